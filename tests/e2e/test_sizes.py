# SPDX-License-Identifier: Apache-2.0
"""Open dimensions: sizes that commands suggest for them, and several that are compiled into one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.driver.compile_model import imported
from onedispatch.dispatch.tools.open_sizes import fitting_sizes, kind_of

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def halved(*, batch: str = "N") -> onnx.ModelProto:
    """Eight times smaller, and back, beside the image: sides are multiples of eight."""
    proto = parser.parse_model(f"""
{HEAD} g (float[{batch}, 3, H, W] images) => (float[{batch}, C, H2, W2] y) {{
  d = Conv<kernel_shape = [8, 8], strides = [8, 8]>(images, w)
  u = Resize<mode = "nearest">(d, empty, scales)
  y = Concat<axis = 1>(images, u)
}}""")
    weights = np.random.default_rng(0).standard_normal((2, 3, 8, 8), np.float32)
    scales = np.float32([1, 1, 8, 8])
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros(0, np.float32), "empty"))
    proto.graph.initializer.append(numpy_helper.from_array(scales, "scales"))
    return proto


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(halved(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def invoke(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    return result


def suggested(text: str, **constants: np.ndarray[Any, Any]) -> dict[str, tuple[int, ...]]:
    proto = parser.parse_model(f"{HEAD} {text}")
    proto.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in constants.items())
    graph = imported(proto)
    return fitting_sizes(graph, graph.inputs, {})


def test_sides_are_multiples_of_the_strides() -> None:
    graph = imported(halved())
    assert fitting_sizes(graph, graph.inputs, {}) == {"images": (1, 3, 224, 224)}


def test_reshapes_say_how_many_positions_are_left() -> None:
    text = """g (float[b, 3, h, w] x) => (float[1, 64, 144] y) {
      c = Conv<strides = [8, 8]>(x, k)
      y = Reshape(c, s) }"""
    found = suggested(text, s=np.int64([1, 64, 144]), k=np.ones((64, 3, 8, 8), np.float32))
    assert found == {"x": (1, 3, 96, 96)}


def test_tables_of_positions_say_lengths() -> None:
    text = "g (float[batch, seq, 4] x, float[batch, seq, 4] z) => (float[batch, seq, 4] y) {"
    text += " s = Add(x, positions) y = Mul(s, z) }"
    found = suggested(text, positions=np.ones((1, 77, 4), np.float32))
    assert found == {"x": (1, 77, 4), "z": (1, 77, 4)}


@pytest.mark.parametrize(
    "dimension, kind",
    [("batch_size", "batch"), ("image_height", "side"), ("W", "side"), ("seq_len", "length"), ("q", "side")],
)
def test_names_say_what_dimensions_are(dimension: str, kind: str) -> None:
    text = f"{HEAD} g (float[1, 3, {dimension}, 4] x) => (float[1, 3, A, 4] y) {{ y = Relu(x) }}"
    graph = imported(parser.parse_model(text))
    assert kind_of(graph.inputs[0], 2) == kind


def test_commands_take_sizes_that_fit_and_say_so(model: Path, tmp_path: Path) -> None:
    one = "--shape images=1,3,224,224"
    (row,) = json.loads(invoke("inspect", model, "--json").stdout)
    assert row["key"] == "images[1, 3, 224, 224]"
    cycles = [_cycles("time", model, *more) for more in ([], one.split(), ["--shape", "images=1,3,8,8"])]
    assert cycles[0] == cycles[1] > cycles[2]
    for command in (["inspect"], ["time"], ["profile"], ["run", "--random"], ["compare", "--random"]):
        shown = invoke(*command, model)
        assert f"sizes of open dimensions are not given; taken: {one}" in " ".join(shown.stderr.split())
        assert one not in invoke(*command, model, *one.split()).stderr
    shown = invoke("compile", model, "-o", tmp_path / "m.od")
    assert one in shown.stdout
    assert json.loads(invoke("compile", model, "-o", tmp_path / "m.od", "--json").stdout)["suggested"] == one
    relu = tmp_path / "relu.onnx"
    onnx.save(parser.parse_model(f"{HEAD} g (float[N, seq] x) => (float[N, seq] y) {{ y = Relu(x) }}"), relu)
    shown = invoke("run", relu, "--random")
    assert "taken: --shape x=1,128" in shown.stderr and "shape=[1, 128]" in shown.stdout


def _cycles(*arguments: object) -> int:
    return int(json.loads(invoke(*arguments, "--json").stdout)["report"]["cycles"])


def test_a_gate_judges_no_guessed_size(model: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "b.json"
    shown = invoke("gate", model, "--max-us", "1000000", "--write-baseline", baseline, code=2)
    assert "FAILED --shape: the sizes of images: tensor(float)[N, 3, H, W] are not given" in shown.stdout
    assert "--shape images=1,3,224,224" in shown.stdout and not baseline.exists()
    assert json.loads(invoke("gate", model, "--no-cpu", "--json", code=2).stdout)["record"] is None
    assert "gate met" in invoke("gate", model, "--no-cpu", "--shape", "images=2,3,8,8").stdout


@pytest.fixture
def two_sizes(model: Path, tmp_path: Path) -> Path:
    path = tmp_path / "two.od"
    invoke("compile", model, "-o", path, "--shapes", "images=64x64,2x3x8x8")
    return path


KEYS = "images[1, 3, 64, 64]", "images[2, 3, 8, 8]"


def test_each_of_several_sizes_has_its_verdict(two_sizes: Path) -> None:
    for command in ("inspect", "time"):
        lines = invoke(command, two_sizes).stdout.splitlines()
        assert [line.partition(": all ")[0] for line in lines if ": all " in line] == [*KEYS]
        one = invoke(command, two_sizes, "--shape", "images=1,3,64,64").stdout
        assert KEYS[1] not in one and ": all " not in one
    found = json.loads(invoke("time", two_sizes, "--json").stdout)
    assert [*found["sizes"]] == [*KEYS] and found["summary"] == found["sizes"][KEYS[1]]
    large = json.loads(invoke("time", two_sizes, "--json", "--shape", "images=1,3,64,64").stdout)
    assert large["summary"] == found["sizes"][KEYS[0]] != found["summary"]


@pytest.mark.parametrize("command", [["profile"], ["run", "--random"]])
def test_of_several_sizes_the_one_that_is_taken_is_named(command: list[str], two_sizes: Path) -> None:
    shown = invoke(*command, two_sizes).stderr
    assert f"compiled for 2 sizes; taken: {KEYS[1]}, the last; --shape names another" in shown
    assert "compiled for" not in invoke(*command, two_sizes, "--shape", "images=1,3,64,64").stderr


def test_a_gate_holds_every_size_to_its_limits(two_sizes: Path, tmp_path: Path) -> None:
    large, small = (_cycles("time", two_sizes, "--shape", f"images={s}") for s in ("1,3,64,64", "2,3,8,8"))
    assert large > small
    shown = invoke("gate", two_sizes, "--max-cycles", str(small), "--markdown", tmp_path / "g.md", code=2)
    failed = [line for line in shown.stdout.splitlines() if line.startswith("FAILED")]
    (line,) = failed
    assert line.startswith(f"FAILED --max-cycles, {KEYS[0]}: {large:,} cycles, at most {small:,}")
    assert "images" in (tmp_path / "g.md").read_text()
    assert "gate met" in invoke("gate", two_sizes, "--max-cycles", str(large)).stdout
    one = invoke("gate", two_sizes, "--max-cycles", str(small), "--shape", "images=2,3,8,8").stdout
    assert "gate met" in one
    found = json.loads(invoke("gate", two_sizes, "--max-cycles", str(small), "--json", code=2).stdout)
    assert not found["met"] and [row["met"] for row in found["sizes"]] == [False, True]
    assert "a model of several sizes" in str(
        invoke("gate", two_sizes, "--write-baseline", tmp_path / "b", code=1).exception
    )


def test_profiles_are_compiled_into_one_file(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.od"
    made = json.loads(
        invoke(
            "compile", model, "-o", path, "--shapes", "images=16x24,2x3x8x8", "--no-graph", "--json"
        ).stdout
    )
    assert made["shapes"] == ["images[1, 3, 16, 24]", "images[2, 3, 8, 8]"] and not made["suggested"]
    session, theirs = od.InferenceSession(path), onnxruntime.InferenceSession(str(model))
    for shape in ((2, 3, 8, 8), (1, 3, 16, 24)):
        x = np.random.default_rng(1).standard_normal(shape, np.float32)
        (y,), (expected,) = session.run(None, {"images": x}), theirs.run(None, {"images": x})
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
        assert not any(work.kind == "compile" for work in session.last_run.host_work)
    with pytest.raises(od.InputError, match=r"the shapes that it was compiled for: .*\[1, 3, 16, 24\]"):
        session.run(None, {"images": np.ones((1, 3, 8, 8), np.float32)})


def weighty(kind: str) -> onnx.ModelProto:
    """A network of windows, one of them depthwise, and a product; weights are most of its file."""
    rng = np.random.default_rng(3)
    shapes = {"w": (160, 32, 3, 3), "d": (160, 1, 3, 3), "u": (160, 160, 2, 2), "b": (160,), "m": (160, 96)}
    weights = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    weights |= {"g": weights["b"] + 1, "v": weights["b"] ** 2 + 1}
    body = """
  c = Conv<pads = [1, 1, 1, 1]>(x, w, b)
  n = BatchNormalization(c, g, b, b, v)
  e = Conv<pads = [1, 1, 1, 1], group = 160>(n, d)
  s = ConvTranspose<strides = [2, 2]>(e, u)
  r = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(s)
  t = Transpose<perm = [0, 2, 3, 1]>(r)
  y = MatMul(t, m)"""
    if kind == "bf16":  # a rule folds it before anything is narrower: those weights are computed
        body = body.replace("BatchNormalization(c, g, b, b, v)", "Relu(c)")
    proto = parser.parse_model(f"{HEAD} g (float[1, 32, H, W] x) => (float[1, H, W, 96] y) {{{body}}}")
    if kind == "int8":
        proto = parser.parse_model(f"""
{HEAD} g (uint8[1, 32, H, W] x) => (uint8[1, 160, H, W] y) {{
  y = QLinearConv<pads = [1, 1, 1, 1]>(x, one, zero, w, one, signed, scale, zero)
}}""")
        codes = rng.integers(-99, 100, shapes["w"]).astype(np.int8)
        weights = {"w": codes, "one": np.float32(1), "scale": np.float32(4e3)}
        weights |= {"zero": np.uint8(128), "signed": np.int8(0)}
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items())
    return proto


@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8"])
def test_files_have_weights_once(kind: str, tmp_path: Path) -> None:
    """With the graph, with two sizes, and with both: and loaded models have the very same constants."""
    sizes, precision = [{"x": (1, 32, side, side)} for side in (6, 12)], "bf16" if kind == "bf16" else "fp32"
    model = weighty(kind)
    both = od.compile(model, "npu2", precision, "error", profiles=sizes)
    one = od.compile(model, "npu2", precision, "error", shapes=sizes[0])
    files = {"both": both, "two": both.without_graph(), "graph": one, "alone": one.without_graph()}
    taken = {}
    for name, made in files.items():
        made.save(tmp_path / name)
        again = od.load(tmp_path / name)
        again.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / name).read_bytes()
        taken[name] = (tmp_path / name).stat().st_size
        for old, new in zip(made.executables.values(), again.executables.values(), strict=True):
            assert old.device_steps[0].const.tobytes() == new.device_steps[0].const.tobytes()
    weights = sum(numpy_helper.to_array(t).nbytes for t in model.graph.initializer)
    own, rest = weights / 2 if kind == "bf16" else weights, 10_000  # the transaction of a size, and names
    assert taken["alone"] < own + rest and taken["two"] < own + 2 * rest, taken
    assert taken["graph"] < weights + rest and taken["both"] < weights + 2 * rest, taken


@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_models_of_such_files_compute_the_same(kind: str, tmp_path: Path) -> None:
    model, sizes = weighty(kind), [{"x": (1, 32, side, side)} for side in (6, 12)]
    od.compile(model, "npu2", profiles=sizes).without_graph().save(tmp_path / "two.od")
    session, theirs = od.InferenceSession(tmp_path / "two.od"), reference(model)
    for shape in ((1, 32, 6, 6), (1, 32, 12, 12)):
        x = np.random.default_rng(5).integers(0, 9, shape).astype(np.uint8 if kind == "int8" else np.float32)
        (y,), (expected,) = session.run(None, {"x": x}), theirs.run(None, {"x": x})
        if kind == "int8":
            np.testing.assert_array_equal(y, expected)
        else:
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
        assert y.any()


def reference(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_profiles_of_the_function_keep_the_graph() -> None:
    sets = [{"images": (1, 3, side, side)} for side in range(8, 8 * 11, 8)]
    compiled = od.compile(halved(), profiles=sets)
    assert len(compiled.executables) == compiled.cache_size == len(sets)  # above the default
    x = np.ones((1, 3, 8, 96), np.float32)
    assert od.InferenceSession(compiled).run(None, {"images": x})[0].shape == (1, 5, 8, 96)


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--shapes", "images=16"], "--shapes: given images=16; accepted: all sizes of images"),
        (["--shapes", "images=16x"], "name=sizes,sizes"),
        (["--shapes", "image=16x16"], "Did you mean 'images'?"),
        (["--shapes", "images=16x16", "--shapes", "images=8x8"], "images once more"),
        (["--shapes", "images=17x16"], "Concat"),
        (["--no-graph"], "nothing yet of the shape of input images"),
    ],
)
def test_wrong_profiles_say_why(flags: list[str], message: str, model: Path, tmp_path: Path) -> None:
    found = invoke("compile", model, "-o", tmp_path / "m.od", *flags, code=1).exception
    assert message in str(found) and not (tmp_path / "m.od").exists()


def test_profiles_of_the_function_are_checked() -> None:
    with pytest.raises(od.InputError, match=r"profiles\[0\].*also of images"):
        od.compile(halved(), profiles=[{}])
    with pytest.raises(od.InputError, match="a list of dicts"):
        od.compile(halved(), profiles={"images": (1, 3, 8, 8)})  # type: ignore[arg-type]
