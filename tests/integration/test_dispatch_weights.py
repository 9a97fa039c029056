# SPDX-License-Identifier: Apache-2.0
"""Weights that stay in the model's file while it is compiled: the same as protobuf reads, and none of them
is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onedispatch as od
from onedispatch.dispatch.base.mapped import Kept, owned, unchanged_files
from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.frontend.weights import parse_model
from onedispatch.transactions.base.errors import ModelError

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

LARGE, SMALL = (64, 32), (4, 4)


def _model(rows: int | str = 8) -> ModelProto:
    random = np.random.default_rng(0)
    shapes = {"a": LARGE, "b": (32,), "c": (32, 64), "d": SMALL}
    tensors = [
        numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "a", "b"], ["h"]),
        helper.make_node("MatMul", ["h", "c"], ["y"]),
        helper.make_node("Det", ["d"], ["z"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 64])]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("y", [rows, 64]), ("z", []), ("c", [32, 64]))
    ]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_only_large_values_stay_outside() -> None:
    model = _model()
    found, values = parse_model(memoryview(model.SerializeToString()))
    assert sorted(values) == [0, 2]
    for number, raw in values.items():
        found.graph.initializer[number].raw_data = bytes(raw)
    assert found == model


def test_what_is_not_plain_is_left_to_protobuf() -> None:
    data = _model().SerializeToString()
    twice = data + ModelProto(graph=_model().graph).SerializeToString()  # messages in pieces are merged
    found, values = parse_model(memoryview(twice))
    assert not values and found == ModelProto.FromString(twice)
    segment = _model()
    segment.graph.initializer[0].segment.begin = 1
    found, values = parse_model(memoryview(segment.SerializeToString()))
    assert sorted(values) == [2] and found.graph.initializer[0] == segment.graph.initializer[0]


def test_damaged_bytes_are_read_as_protobuf_reads_them() -> None:
    data, random = bytearray(_model().SerializeToString()), np.random.default_rng(1)
    for _ in range(300):
        damaged = bytearray(data)
        for at in random.integers(0, len(data), 4):
            damaged[at if at % 2 else at % 64] = random.integers(256)
        del damaged[len(data) - random.integers(0, 3) :]
        try:
            wanted = ModelProto.FromString(bytes(damaged))
        except DecodeError:
            with pytest.raises(DecodeError):
                parse_model(memoryview(damaged))
            continue
        found, values = parse_model(memoryview(damaged))
        for number, raw in values.items():
            found.graph.initializer[number].raw_data = bytes(raw)
        assert found.SerializeToString(deterministic=True) == wanted.SerializeToString(deterministic=True)


def test_values_of_another_size_are_refused() -> None:
    model = _model()
    model.graph.initializer[0].dims[0] = 65
    with pytest.raises(ModelError, match="'a'"):
        import_model(model.SerializeToString())


@pytest.mark.parametrize("rows", [8, "rows"])
def test_nothing_that_is_kept_lies_in_the_file(rows: int | str, tmp_path: Path) -> None:
    """In a process of its own: only so many files are mapped, and other tests may hold them all."""
    call = f"keeps_nothing_of_the_file({rows!r}, {str(tmp_path / 'model.onnx')!r})"
    script = f"from pathlib import Path; from {__name__} import *; {call}"
    subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], check=True, timeout=120)


def keeps_nothing_of_the_file(rows: int | str, name: str) -> None:
    path = Path(name)
    onnx.save(_model(rows), path)
    with unchanged_files(core):
        constant = import_model(path).constants["c"]
        assert owned(constant) is not constant
    constant = import_model(path).constants["c"]
    assert owned(constant) is constant  # read, as no block checks whether the file changes
    compiled = od.compile(path)
    path.write_bytes(b"")  # its pages are gone
    session = od.InferenceSession(compiled)
    y, _, c = session.run(None, {"x": np.ones((8, 64), np.float32)})
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in _model().graph.initializer}
    np.testing.assert_array_equal(c, weights["c"])
    np.testing.assert_allclose(y, (np.ones((8, 64)) @ weights["a"] + weights["b"]) @ weights["c"], 1e-3, 1e-3)


# In a process of its own, which SIGBUS would end.
CHANGED = """
import os, sys
import onedispatch as od
from onedispatch.dispatch.compiler.passes import observed

class Changing:
    def after(self, ran, before, result, seconds):
        if ran.name == sys.argv[2]:
            os.truncate(sys.argv[1], int(sys.argv[3]))
            os.utime(sys.argv[1], ns=(0, 0))

try:
    with observed(Changing()):
        od.compile(sys.argv[1])
except od.ModelError as error:
    print(error)
"""


@pytest.mark.parametrize(("after", "left"), [("import", 0), ("specialise", 5000), ("partition", 20000)])
def test_a_file_that_is_cut_short_meanwhile_is_refused(after: str, left: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_model(), path)
    assert 8192 < path.stat().st_size < 20000
    done = subprocess.run(
        [sys.executable, "-c", CHANGED, path, after, str(left)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(path) in done.stdout and "cut short or written to while it was read" in done.stdout


# -- models for other shapes -----------------------------------------------------------------------------

WIDE = (2048, 2304)  # 18.9 MB, which stay in the file


def _wide() -> ModelProto:
    weights = np.random.default_rng(1).standard_normal(WIDE).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", WIDE[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", WIDE[1]])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("change", ["none", "replaced", "cut"])
def test_other_shapes_take_weights_from_the_file(change: str, tmp_path: Path) -> None:
    call = f"takes_weights_from_the_file({change!r}, {str(tmp_path / 'model.onnx')!r})"
    script = f"from pathlib import Path; from {__name__} import *; {call}"
    subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], check=True, timeout=120)


def takes_weights_from_the_file(change: str, name: str) -> None:
    path = Path(name)
    onnx.save(_wide(), path)
    weights = numpy_helper.to_array(_wide().graph.initializer[0])
    session = od.InferenceSession(path, fallback="error")
    source = session.model.source
    assert source is not None and isinstance(source.constants, Kept) and source.constants.files

    def runs(rows: int) -> None:
        x = np.random.default_rng(rows).standard_normal((rows, WIDE[0])).astype(np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weights, 1e-3, 1e-3)

    runs(1)
    if change == "replaced":  # another file of this name: what was opened is still there
        path.with_suffix(".new").write_bytes(b"other")
        path.with_suffix(".new").rename(path)
    if change == "cut":
        path.write_bytes(b"")
        for refused in (lambda: runs(3), lambda: session.model.save(path.with_suffix(".od"))):
            with pytest.raises(ModelError, match="cut short or written to since it was opened"):
                refused()
    else:
        runs(3)
        session.model.save(path.with_suffix(".od"))
    runs(1)  # compiled already


def test_executables_for_other_shapes_share_their_weights(tmp_path: Path) -> None:
    """A row behind those of a cache, whose number says where it stands: that row of a table is a constant of
    each executable."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1, 64] x, float[n, 64] cache) => (float[m, 64] y) <int64 zero = {0}> {
        s = Shape(cache) at = Gather(s, zero) row = Gather(table, at) p = Add(x, row) q = MatMul(p, w)
        r = Sigmoid(q) y = Concat<axis = 0>(cache, r) }"""
    proto = onnx.parser.parse_model(text)
    random = np.random.default_rng(4)
    for name, shape in (("w", (64, 64)), ("table", (32, 64))):
        array = random.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    session = od.InferenceSession(proto, fallback="error")
    buffers = []
    for rows in (3, 4, 9):
        feed = {"x": np.ones((1, 64), np.float32), "cache": random.standard_normal((rows, 64), np.float32)}
        expected = ReferenceEvaluator(proto).run(None, feed)[0]
        np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-5, atol=1e-5)
        last = list(session.model.executables.values())[-1]
        buffers += [step.const for step in last.device_steps]
    assert len({id(buffer) for buffer in buffers}) == 1
    session.model.save(tmp_path / "model.od")
    loaded = od.InferenceSession(tmp_path / "model.od")
    np.testing.assert_array_equal(loaded.run(None, feed)[0], session.run(None, feed)[0])


@pytest.mark.parametrize("rows", [1, 7])
def test_a_buffer_that_becomes_another_is_a_copy(rows: int) -> None:
    """The second weight is laid out for the rows of a run."""
    random = np.random.default_rng(5)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "v"], ["b"]), helper.make_node("MatMul", ["x", "w"], ["y"])],
        "two",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, 64]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 512]),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("b", "y")],
        [
            numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
            for name, shape in (("v", (64, 64)), ("w", (512, 768)))
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = od.InferenceSession(proto, fallback="error")
    for count in (rows, 300, rows, 40):
        feed = {
            "a": random.standard_normal((1, 64), np.float32),
            "x": random.standard_normal((count, 512), np.float32),
        }
        for mine, other in zip(
            session.run(None, feed), ReferenceEvaluator(proto).run(None, feed), strict=True
        ):
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-3)
