# SPDX-License-Identifier: Apache-2.0
"""Small float32 networks in bfloat16, strictly on the device, beside onnxruntime in float32."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.tools.checking import check_model

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
WITHIN = 0.05  # of the largest value


def node(op: str, reads: str, writes: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, reads.split(), writes.split(), name=f"{op} {writes}", **attributes)


def model(nodes: list[onnx.NodeProto], shape: Sequence[int], weights: dict[str, Array]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_empty_tensor_value_info("y")
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def weights(**shapes: Sequence[int]) -> dict[str, Array]:
    rng = np.random.default_rng(8)
    made = {}
    for name, shape in shapes.items():
        fan_in = np.prod(shape[1:]) if len(shape) > 2 else shape[0]
        made[name] = (rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)
    return made


def perceptron() -> onnx.ModelProto:
    nodes = [node("Gemm", "x w b", "h"), node("Relu", "h", "r"), node("MatMul", "r v", "y")]
    return model(nodes, (4, 20), weights(w=(20, 33), b=(33,), v=(33, 7)))


def convolutions() -> onnx.ModelProto:
    """A residual block, a depthwise convolution, pooling, a classifier; rows of odd lengths."""
    nodes = [
        node("Conv", "x w b", "c", pads=[1] * 4),
        node("Relu", "c", "r"),
        node("Conv", "r v", "d", pads=[1] * 4, group=8),
        node("Add", "d r", "s"),
        node("MaxPool", "s", "p", kernel_shape=[3, 3], strides=[2, 2]),
        node("GlobalAveragePool", "p", "a"),
        node("Flatten", "a", "f"),
        node("Gemm", "f g", "y"),
    ]
    return model(nodes, (1, 3, 15, 15), weights(w=(8, 3, 3, 3), b=(8,), v=(8, 1, 3, 3), g=(8, 5)))


def attention() -> onnx.ModelProto:
    """What exporters write of a transformer's block: norm, heads, a mask of the lowest number, Gelu."""
    made = weights(q=(16, 16), k=(16, 16), v=(16, 16), o=(16, 16), up=(16, 32), down=(32, 16))
    made |= {"one": np.ones(16, np.float32), "sizes": np.array([1, 6, 2, 8]), "whole": np.array([1, 6, 16])}
    made["mask"] = np.triu(np.full((6, 6), np.finfo(np.float32).min, np.float32), 1)
    made["root"] = np.float32(8**-0.5).reshape(())
    nodes = [node("LayerNormalization", "x one", "n", epsilon=1e-5)]
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            node("MatMul", f"n {name}", f"{name}1"),
            node("Reshape", f"{name}1 sizes", f"{name}2"),
            node("Transpose", f"{name}2", f"{name}3", perm=perm),
        ]
    nodes += [
        node("MatMul", "q3 k3", "s"),
        node("Mul", "s root", "t"),
        node("Add", "t mask", "m"),
        node("Softmax", "m", "p", axis=-1),
        node("MatMul", "p v3", "c"),
        node("Transpose", "c", "c1", perm=[0, 2, 1, 3]),
        node("Reshape", "c1 whole", "c2"),
        node("MatMul", "c2 o", "c3"),
        node("Add", "c3 x", "h"),
        node("MatMul", "h up", "u"),
        node("Gelu", "u", "g"),
        node("MatMul", "g down", "d"),
        node("Add", "d h", "y"),
    ]
    return model(nodes, (1, 6, 16), made)


def normalised() -> onnx.ModelProto:
    """A batch normalisation by itself, one by what is computed, and a mean of three."""
    nodes = [
        node("BatchNormalization", "x one two few some", "n"),
        node("Relu", "n", "r"),
        node("ReduceMean", "r over", "mean", keepdims=0),
        node("Abs", "mean", "size"),
        node("BatchNormalization", "r one two mean size", "m"),
        node("Mean", "n m x", "y"),
    ]
    made = weights(one=(5,), two=(5,), few=(5,))
    made |= {"some": np.linspace(0.5, 1.5, 5, dtype=np.float32), "over": np.array([0, 2, 3])}
    return model(nodes, (2, 5, 3, 7), made)


NETWORKS = {
    "normalised": normalised,
    "perceptron": perceptron,
    "convolutions": convolutions,
    "attention": attention,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_in_bf16_is_near_fp32(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    given = NETWORKS[name]()
    (value,) = given.graph.input
    x = rng.standard_normal([one.dim_value for one in value.type.tensor_type.shape.dim]).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(given.SerializeToString()).run(None, {"x": x})
    compiled = od.compile(given, precision="bf16", fallback="error")
    assert [str(finding) for finding in check_model(compiled)] == []
    session = od.InferenceSession(compiled)
    (found,) = session.run(None, {"x": x})
    assert found.dtype == np.float32 and found.shape == wanted.shape
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert 1e-6 < error < WITHIN  # and it was not float32 all the way
    assert session.last_run is not None and session.last_run.dispatches == 1
    assert not any("computes in float32" in row.remark for row in session.placement)
    compiled.save(tmp_path / "m.od")
    (again,) = od.InferenceSession(od.load(tmp_path / "m.od")).run(None, {"x": x})
    np.testing.assert_array_equal(again, found)


# A product's sums are float32, and leave as they are.
@pytest.mark.parametrize(("name", "casts"), [("perceptron", 1), ("attention", 2)])
def test_borders_are_charged(name: str, casts: int, rng: np.random.Generator) -> None:
    session = od.InferenceSession(NETWORKS[name](), precision="bf16", fallback="error")
    (x,) = session.get_inputs()
    session.run(None, {"x": rng.standard_normal(x.shape).astype(np.float32)})
    assert session.last_run is not None
    found = [op for op in session.last_run.ops if op.op_type == "convert"]
    assert len(found) == casts and all(op.cycles > 0 for op in found)


def test_a_compiled_model_has_one_precision() -> None:
    compiled = od.compile(perceptron(), precision="bf16")
    assert od.InferenceSession(compiled, precision="bf16").model.precision == "bf16"
    assert od.InferenceSession(compiled).model.precision == "bf16"
    with pytest.raises(od.InputError, match="'fp32', which the model was compiled for"):
        od.InferenceSession(od.compile(perceptron()), precision="bf16")


def test_the_command_line_has_it(tmp_path: Path) -> None:
    def invoke(*arguments: str) -> Any:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    source, target = str(tmp_path / "m.onnx"), str(tmp_path / "m.od")
    onnx.save(perceptron(), source)
    assert invoke("compile", source, "-o", target, "--precision", "bf16", "--json")["placement"] == {"npu": 5}
    for given in ([source, "--precision", "bf16"], [target], [target, "--precision", "bf16"]):
        (row,) = invoke("inspect", *given, "--json")
        assert row["precision"] == "bf16" and row["placement"][0]["op_type"] == "Cast"
    names = [one["op_type"] for one in invoke("run", target, "--random", "--json")["report"]["ops"]]
    assert names == ["convert", "matmul", "matmul"]
    wanted = ("bench", source, "--runs", "1", "--precision", "bf16", "--json")
    measured = invoke(*wanted)
    assert measured["precision"] == "bf16" and 1e-6 < measured["largest_error"] < WITHIN
    invoke("compile", source, "-o", target, "--json")
    result = CliRunner().invoke(app, ["run", target, "--random", "--precision", "bf16"])
    assert isinstance(result.exception, od.InputError)
    assert "Compile the ONNX file again" in str(result.exception)
