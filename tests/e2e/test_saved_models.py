# SPDX-License-Identifier: Apache-2.0
"""Compiled models in files: opened by whatever opens a model, with the options and shapes that they have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.driver.executable_cache import prepared

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

# Half the size and back, beside the image: sizes must be even, 1 is not.
NODES = """
<ir_version: 8, opset_import: ["": 17]> g (float[N, 3, H, W] image) => (float[N, C, H2, W2] y) {
  [down] d = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(image)
  [up] u = Resize<mode="nearest">(d, empty, scales)
  [join] y = Concat<axis=1>(image, u)
}
"""
FIXED = '<ir_version: 8, opset_import: ["": 17]> g (float[4, 8] x) => (float[4, 8] y) { y = Relu(x) }'


def unet() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(NODES)
    given = {"scales": np.array([1, 1, 2, 2], np.float32), "empty": np.zeros(0, np.float32)}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in given.items())
    return proto


@pytest.fixture
def source(tmp_path: Path) -> Path:
    onnx.save(unet(), tmp_path / "unet.onnx")
    return tmp_path / "unet.onnx"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    od.compile(unet(), shapes={"image": [1, 3, 4, 6]}).save(tmp_path / "unet.od")
    return tmp_path / "unet.od"


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)])


def refused(*arguments: object) -> str:
    result = invoke(*arguments)
    assert isinstance(result.exception, od.InputError), result.output
    return str(result.exception)


# -- opening ---------------------------------------------------------------------------------------


def test_a_session_opens_the_file_as_it_opens_models(saved: Path) -> None:
    x = np.random.default_rng(0).random((1, 3, 4, 6), np.float32)
    answers = [
        od.InferenceSession(given).run(None, {"image": x})[0]
        for given in (str(saved), saved, saved.read_bytes(), od.load(saved))
    ]
    assert len({answer.tobytes() for answer in answers}) == 1
    damaged = saved.read_bytes()[:-1]
    with pytest.raises(od.CompiledModelError, match="the given bytes"):
        od.InferenceSession(damaged)


def test_compiling_it_says_what_opens_it(saved: Path) -> None:
    for given in (saved, saved.read_bytes(), od.load(saved)):
        with pytest.raises(od.InputError, match=r"InferenceSession takes it, and onedispatch\.load reads it"):
            od.compile(given)  # type: ignore[arg-type]


def test_a_benchmark_needs_the_model_for_onnxruntime_too(saved: Path) -> None:
    assert "a compiled model" in refused("bench", saved)


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("device", "npu2"),
        ("precision", "fp32"),
        ("cast_policy", "error"),
        ("sums", "exact"),
        ("groups", "off"),
    ],
)
def test_an_option_that_it_was_not_compiled_with_is_refused(option: str, given: str, tmp_path: Path) -> None:
    """Defaults too, where they are named: a report would be of another device, or of other numbers."""
    others = {"device": "npu1", "precision": "bf16", "cast_policy": "f32", "sums": "narrow", "groups": "on"}
    proto, path = onnx.parser.parse_model(FIXED), tmp_path / "m.od"
    od.compile(proto, **others).save(path)  # type: ignore[arg-type]
    flag = f"--{option.replace('_', '-')}"
    for command in (["run", path, "--random"], ["inspect", path], ["compile", path, "-o", tmp_path / "n.od"]):
        assert flag in refused(*command, flag, given)
        assert invoke(*command).exit_code == invoke(*command, flag, others[option]).exit_code == 0
    with pytest.raises(od.InputError, match=option):
        od.InferenceSession(path, **{option: given})  # type: ignore[arg-type]
    assert od.InferenceSession(path, **{option: others[option]}).device == "npu1"  # type: ignore[arg-type]


def test_reports_are_of_its_own_device(tmp_path: Path) -> None:
    path = tmp_path / "m.od"
    od.compile(onnx.parser.parse_model(FIXED), "npu1").save(path)
    (row,) = json.loads(invoke("inspect", path, "--json").stdout)
    assert row and "\nnpu1, " in invoke("inspect", path).stdout
    od.compile(onnx.parser.parse_model(FIXED), "npu2_4col").save(path)
    assert json.loads(invoke("txn", "replay", path, "--json").stdout)["device"] == "npu2_4col"
    assert json.loads(invoke("txn", "replay", path, "--json", "--device", "npu2").stdout)["device"] == "npu2"


def test_strict_is_promised_of_models_that_keep_to_it_alone(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(od.InputError, match="fallback='error'"):
        od.InferenceSession(saved, fallback="error")  # other shapes could go to the host
    fixed = od.compile(onnx.parser.parse_model(FIXED))
    assert od.InferenceSession(fixed, fallback="error").placement[0].device == "npu"
    strict = od.compile(onnx.parser.parse_model(FIXED), fallback="error")
    assert od.InferenceSession(strict, fallback="cpu").placement
    with pytest.raises(od.InputError, match="fallback"):
        od.InferenceSession(fixed, fallback="gpu")


# -- shapes ----------------------------------------------------------------------------------------


def test_the_shapes_that_it_was_compiled_for_are_those_of_random_inputs(saved: Path) -> None:
    (row,) = json.loads(invoke("run", saved, "--random", "--json").stdout)["outputs"]
    assert row["shape"] == [1, 6, 4, 6]
    (row,) = json.loads(invoke("run", saved, "--random", "--shape", "image=2,3,2,2", "--json").stdout)[
        "outputs"
    ]
    assert row["shape"] == [2, 6, 2, 2]
    assert "image[1, 3, 4, 6]" in invoke("inspect", saved).stdout


def test_shapes_are_compiled_at_once_for_a_compiled_model_too(saved: Path) -> None:
    session = od.InferenceSession(saved, shapes={"image": [1, 3, 2, 2]})
    assert list(session.model.executables) == ["image[1, 3, 4, 6]", "image[1, 3, 2, 2]"]
    fixed = od.compile(onnx.parser.parse_model(FIXED))
    with pytest.raises(od.InputError, match="x"):
        od.InferenceSession(fixed, shapes={"x": [5, 8]})


def test_without_onnx_it_runs_what_it_was_compiled_for(saved: Path, tmp_path: Path) -> None:
    """In a process that cannot import onnx: the graph that comes along is left out, and said to be."""
    od.compile(unet()).save(tmp_path / "open.od")
    on_host = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 2] x) => (float y) { y = Det(x) }'
    od.compile(onnx.parser.parse_model(on_host)).save(tmp_path / "host.od")
    script = """
import sys
sys.modules["onnx"] = None
import numpy as np, onedispatch as od
x = np.ones((1, 3, 4, 6), np.float32)
session = od.InferenceSession("unet.od")
print(session.run(None, {"image": x})[0].shape, session.placement[0].device)
for action in (
    lambda: session.run(None, {"image": x[:, :, :2]}),
    lambda: session.model.save("again.od"),
    lambda: od.load("open.od"),
    lambda: od.load("host.od"),
):
    try:
        action()
    except od.OneDispatchError as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "(1, 6, 4, 6) npu"
    assert lines[1].startswith("InputError") and "onnx package is not installed" in lines[1]
    assert lines[2].startswith("CompiledModelError") and "Copy the file" in lines[2]
    assert lines[3].startswith("CompiledModelError") and "Install the onnx package" in lines[3]
    assert lines[4].startswith("CompiledModelError") and "nodes that run on the host" in lines[4]
    assert not (tmp_path / "again.od").exists()


def test_without_onnx_a_model_says_what_it_needs() -> None:
    script = """
import sys
sys.modules["onnx"] = None
import onedispatch as od
from onedispatch.dispatch.driver.executable_cache import prepared
try:
    od.InferenceSession("d.onnx")
except od.InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "given an ONNX model, without the onnx package" in done.stdout, done.stderr
    assert "pip install onnx" in done.stdout


# -- placement before shapes are known ---------------------------------------------------------------


def test_no_placement_passes_for_one_without_host_nodes(source: Path) -> None:
    compiled = od.compile(source)
    session = od.InferenceSession(source)
    for one in (compiled, session, od.InferenceSession(compiled)):
        with pytest.raises(
            od.InputError, match=r"given nothing yet of .*image: tensor\(float\)\[N, 3, H, W\]"
        ) as found:
            _ = all(node.device == "npu" for node in one.placement)
        assert "shapes={input: sizes}" in found.value.remedy
    session.run(None, {"image": np.ones((1, 3, 2, 2), np.float32)})
    assert [node.device for node in session.placement] == ["npu"] * 3
    assert od.InferenceSession(source, shapes={"image": [1, 3, 2, 2]}).placement == session.placement


def test_values_that_decide_shapes_are_named() -> None:
    session = od.InferenceSession(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[8] x, int64[2] size) => (float[A, B] y)'
            " { y = Reshape(x, size) }"
        )
    )
    with pytest.raises(od.InputError, match="the value of input size, which decides shapes") as found:
        _ = session.placement
    assert found.value.remedy == "run it once"


@pytest.mark.parametrize("command", [["inspect"], ["run", "--random"]], ids=lambda one: one[0])
def test_sizes_that_fit_are_taken_and_named(command: list[str], source: Path) -> None:
    taken = invoke(command[0], source, *command[1:])
    assert taken.exit_code == 0 and "taken: --shape image=1,3,224,224" in taken.stderr
    assert invoke(command[0], source, *command[1:], "--shape", "image=1,3,2,2").exit_code == 0
    wrong = invoke(command[0], source, *command[1:], "--shape", "image=1,3,3,3")
    assert isinstance(wrong.exception, od.ModelError) and "--shape" not in str(wrong.exception)


def test_sizes_of_constants_are_tried_too(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N, W] x) => (float[M, 48] y)'
        " { y = Concat<axis=0>(x, table) }"
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((5, 48), np.float32), "table"))
    onnx.save(proto, tmp_path / "m.onnx")
    taken = invoke("inspect", tmp_path / "m.onnx")
    assert taken.exit_code == 0 and "taken: --shape x=1,48" in taken.stderr


def test_inputs_are_named_where_no_size_is_found(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N, W] x) => (float[2, 1000] y)'
        " { s = Shape(table) \n y = Reshape(x, s) }"
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((7, 143), np.float32), "table"))
    onnx.save(proto, tmp_path / "m.onnx")
    text = refused("inspect", tmp_path / "m.onnx")
    assert "x: tensor(float)[N, W]" in text and "--shape input=sizes" in text


def test_the_inputs_that_are_open_are_listed_in_a_sentence() -> None:
    open_inputs = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N] x, float[M] d) => (float y) { y = Add(x, d) }'
    )
    with pytest.raises(od.InputError) as caught:
        _ = od.compile(open_inputs).placement
    text = str(caught.value)
    assert "given nothing yet of the shape of input x: " in text and ", the shape of input d: " in text


def test_a_file_is_as_small_as_the_weights(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = {name: random.standard_normal((512, 512), np.float32) for name in ("v", "w")}
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 512] x) => (float[N, 512] y)'
    proto = onnx.parser.parse_model(f"{text} {{ h = MatMul(x, v) y = MatMul(h, w) }}")
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    size = sum(w.nbytes for w in weights.values())
    for precision, share in (("fp32", 1.0), ("bf16", 0.5)):
        od.compile(proto, shapes={"x": (4, 512)}, precision=precision).save(tmp_path / "m.od")
        model = od.load(tmp_path / "m.od")
        replace(model, source=None).save(tmp_path / "closed.od")  # the graph has the weights as they were
        assert (tmp_path / "closed.od").stat().st_size < share * size
    x = random.standard_normal((4, 512), np.float32)
    (y,) = od.InferenceSession(od.compile(proto, shapes={"x": (4, 512)})).run(None, {"x": x})
    od.compile(proto, shapes={"x": (4, 512)}).save(tmp_path / "m.od")
    np.testing.assert_array_equal(od.InferenceSession(tmp_path / "m.od").run(None, {"x": x})[0], y)


def test_equal_constants_of_two_shapes_are_stored_once(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 256] x) => (float[N, 256] y)'
    proto = onnx.parser.parse_model(f"{text} {{ y = Add(x, w) }}")
    w = random.standard_normal((64, 256), np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    model = prepared(od.compile(proto, shapes={"x": (1, 256)}), {"x": (64, 256)})
    model.save(tmp_path / "m.od")
    assert (tmp_path / "m.od").stat().st_size < 1.2 * w.nbytes  # of the graph and of both executables
    session = od.InferenceSession(tmp_path / "m.od")
    for rows in (1, 64):
        x = random.standard_normal((rows, 256), np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + w)
