# SPDX-License-Identifier: Apache-2.0
"""``precision``: which tensors become narrower, where casts stand, and what stays as the model says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.dispatch.base.precisions import PRECISIONS, rounded
from onedispatch.dispatch.compiler.fold import specialise
from onedispatch.dispatch.compiler.precision import lower_precision
from onedispatch.dispatch.driver.compile_model import imported
from onedispatch.dispatch.driver.executable_cache import ExecutableCache
from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.operators.declarations import registry
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.transactions import find_device
from tests.integration.custom import Bring, acme
from tests.plugins import model as custom_model
from tests.plugins import value

Array = np.ndarray[Any, Any]
BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)


def model(
    nodes: list[onnx.NodeProto],
    outputs: list[str],
    kinds: dict[str, int] | None = None,
    shape: tuple[int | str, ...] = (4, 8),
    **weights: Array,
) -> onnx.ModelProto:
    """Of inputs that begin with x, float32 unless ``kinds`` says otherwise."""
    made = {name for node in nodes for name in node.output}
    reads = dict.fromkeys(name for node in nodes for name in node.input if name.startswith("x"))
    kinds = kinds or {}
    inputs = [
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)
        for name in reads
        if name not in made
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(op: str, reads: str, writes: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, reads.split(), writes.split(), name=f"{op} {writes}", **attributes)


def narrowed(given: onnx.ModelProto) -> Graph:
    graph = imported(given)
    special = specialise(graph, {v.name: v.concrete_shape for v in graph.inputs}, {})
    assert lower_precision(special, "fp32", find_device("npu2")) is special
    return lower_precision(special, "bf16", find_device("npu2"))


def types(graph: Graph, one: Node) -> list[str]:
    """Of what a node reads and writes."""
    return [str(graph.value(name).dtype) for name in (*one.inputs, *one.outputs)]


def by_name(graph: Graph) -> dict[str, Node]:
    return {one.name: one for one in graph.nodes}


def refuse(monkeypatch: pytest.MonkeyPatch, op_type: str) -> None:
    """Has the operator lack a kernel for bfloat16."""
    ours = registry.mapping_for("", op_type)
    assert ours is not None

    def wide_only(spec: Any, lowering: Any) -> None:
        if any(tensor is not None and tensor.dtype == BF16 for tensor in (*spec.inputs, *spec.outputs)):
            raise Unsupported("bfloat16 in this test", "float32")
        ours.function(spec, lowering)

    changed = registry.OpMapping("", op_type, ours.dtypes, ours.notes, wide_only)
    monkeypatch.setitem(registry._MAPPINGS, ("", op_type), changed)


# -- constants ---------------------------------------------------------------------------------------


def test_constants_are_rounded_to_nearest_even_and_stay_finite() -> None:
    ties = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], np.float32)
    np.testing.assert_array_equal(rounded(ties, BF16).astype(np.float32), [1, 1 + 2**-6, 1 + 2**-7])
    lowest = np.finfo(np.float32).min
    ends = rounded(np.array([lowest, -lowest, -np.inf, np.inf, np.nan], np.float32), BF16)
    largest = float(ml_dtypes.finfo(BF16).max)
    np.testing.assert_array_equal(ends.astype(np.float64), [-largest, largest, -np.inf, np.inf, np.nan])
    assert rounded(np.float32(0.1).reshape(()), BF16).shape == ()


# -- the graph ---------------------------------------------------------------------------------------


def test_everything_between_inputs_and_outputs_is_narrow() -> None:
    w = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    graph = narrowed(model([node("MatMul", "x w", "h"), node("Relu", "h", "y")], ["y"], w=w))
    assert [one.op_type for one in graph.nodes] == ["Cast", "MatMul", "Relu", "Cast"]
    assert types(graph, graph.nodes[1]) == ["bfloat16"] * 3
    assert [str(graph.value(name).dtype) for name in ("x", "y")] == ["float32"] * 2
    assert types(graph, graph.nodes[0]) == ["float32", "bfloat16"]
    assert types(graph, graph.nodes[-1]) == ["bfloat16", "float32"]
    ((_, constant),) = graph.constants.items()
    np.testing.assert_array_equal(constant, w.astype(BF16))
    assert set(graph.inserted) == {graph.nodes[0].name, graph.nodes[-1].name}
    assert list(graph.order) == [one.name for one in graph.nodes]


def test_a_tensor_is_cast_once() -> None:
    nodes = [node("Relu", "x", "a"), node("Neg", "x", "b"), node("Add", "a b", "y"), node("Abs", "y", "z")]
    graph = narrowed(model(nodes, ["y", "z"]))
    assert sum(one.op_type == "Cast" for one in graph.nodes) == 3


def test_integers_and_booleans_stay() -> None:
    nodes = [node("Add", "x xi", "y"), node("Greater", "xf y2", "m"), node("Cast", "x", "y2", to=1)]
    kinds = {"x": TensorProto.INT32, "xi": TensorProto.INT32}
    graph = narrowed(model([nodes[0], nodes[2], nodes[1]], ["y", "m"], kinds))
    named = by_name(graph)
    assert types(graph, named["Add y"]) == ["int32"] * 3
    assert types(graph, named["Cast y2"]) == ["int32", "bfloat16"]
    assert types(graph, named["Greater m"]) == ["bfloat16", "bfloat16", "bool"]


def test_operands_that_decide_shapes_keep_their_precision() -> None:
    scales = np.array([1, 1, 1.7, 2.3], np.float32)
    given = model([node("Resize", "x  scales", "y", mode="linear")], ["y"], shape=(1, 2, 6, 6), scales=scales)
    given.graph.node[0].input[:] = ["x", "", "scales"]
    graph = narrowed(given)
    (resize,) = (one for one in graph.nodes if one.op_type == "Resize")
    np.testing.assert_array_equal(graph.constants[resize.inputs[2]], scales)
    assert graph.value(resize.outputs[0]).concrete_shape == (1, 2, 10, 13)
    assert graph.value(resize.inputs[0]).dtype == BF16


def test_scales_of_integers_keep_their_precision() -> None:
    weights = {"s": np.float32(0.1).reshape(()), "z": np.uint8(3).reshape(())}
    nodes = [
        node("Relu", "x", "a"),
        node("QuantizeLinear", "a s z", "q"),
        node("DequantizeLinear", "q s z", "y"),
    ]
    graph = narrowed(model(nodes, ["y"], **weights))
    named = by_name(graph)
    assert types(graph, named["QuantizeLinear q"]) == ["float32", "float32", "uint8", "uint8"]
    assert types(graph, named["DequantizeLinear y"]) == ["uint8", "float32", "uint8", "float32"]
    assert types(graph, named["Relu a"]) == ["bfloat16"] * 2


def test_what_has_no_kernel_computes_in_float32_between_casts(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "Tanh")
    nodes = [node("Relu", "x", "a"), node("Tanh", "a", "b"), node("Tanh", "b", "c"), node("Neg", "c", "y")]
    graph = narrowed(model(nodes, ["y"]))
    kinds = [one.op_type for one in graph.nodes]
    assert kinds == ["Cast", "Relu", "Cast", "Tanh", "Tanh", "Cast", "Neg", "Cast"]
    assert {str(graph.value(one.outputs[0]).dtype) for one in graph.nodes if one.op_type == "Tanh"} == {
        "float32"
    }
    assert "computes in float32" in graph.remarks["Tanh b"] and "in this test" in graph.remarks["Tanh b"]


def test_it_stays_on_the_device_and_inspect_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "Tanh")
    nodes = [node("Relu", "x", "a"), node("Tanh", "a", "b"), node("Neg", "b", "y")]
    compiled = od.compile(model(nodes, ["y"]), precision="bf16", fallback="error")
    rows = {row.node: row for row in compiled.placement}
    assert {row.device for row in rows.values()} == {"npu"}
    assert "computes in float32" in rows["Tanh b"].remark
    assert [row.op_type for row in compiled.placement] == [
        "Cast", "Relu", "Cast", "Tanh", "Cast", "Neg", "Cast"
    ]  # fmt: skip
    casts = [row for row in rows.values() if row.op_type == "Cast"]
    assert all(row.reason.startswith("inserted by precision='bf16': tensor(") for row in casts)


def test_the_host_gets_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(spec: Any, lowering: Any) -> None:
        raise Unsupported("all of it", "nothing")

    ours = registry.mapping_for("", "Erf")
    assert ours is not None
    monkeypatch.setitem(registry._MAPPINGS, ("", "Erf"), registry.OpMapping("", "Erf", (), "", nothing))
    nodes = [node("Relu", "x", "a"), node("Erf", "a", "b"), node("Neg", "b", "y")]
    graph = narrowed(model(nodes, ["y"]))
    erf = by_name(graph)["Erf b"]
    assert types(graph, erf) == ["float32"] * 2 and "Erf b" not in graph.remarks


def test_kernels_from_outside_take_what_the_model_says(bring: Bring) -> None:
    kernel = bring()
    nodes = [node("Relu", "x", "a"), acme("a a", "b", name="outside", a=2.0), node("Neg", "b", "y")]
    given = custom_model(nodes, [value("x", [3, 4])], [value("y", None)])
    session = od.InferenceSession(given, precision="bf16")
    rows = {row.node: row for row in session.placement}
    assert "computes in float32: custom kernels" in rows["outside"].remark
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], -3 * x)
    assert {one["x"].dtype for one in kernel.asked} == {"f32"}


def test_merges_are_those_of_the_model_as_it_is() -> None:
    w = np.ones((8, 8), np.float32)
    nodes = [node("MatMul", "x w", "h"), node("Relu", "h", "y")]
    for precision in PRECISIONS:
        compiled = od.compile(model(nodes, ["y"], w=w), precision=precision, fallback="error")
        (row,) = (row for row in compiled.placement if row.op_type == "Relu")
        assert "together with MatMul h" in row.reason


# -- the option ----------------------------------------------------------------------------------------


def test_what_is_no_precision_is_refused() -> None:
    with pytest.raises(od.InputError, match="'fp32', 'bf16'"):
        od.compile(model([node("Relu", "x", "y")], ["y"]), precision="fp8")


def test_files_keep_it(tmp_path: Path) -> None:
    for shape in ((4, 8), ("N", 8)):
        given = model([node("Relu", "x", "y")], ["y"], shape=shape)
        od.compile(given, precision="bf16", fallback="error").save(tmp_path / "m.od")
        loaded = od.load(tmp_path / "m.od")
        assert loaded.precision == "bf16"
        _, executable, _ = ExecutableCache(loaded).executable({"x": (4, 8)}, {})
        assert [row.op_type for row in executable.placement] == ["Cast", "Relu", "Cast"]


def test_what_maps_by_its_body_alone_is_narrow_too() -> None:
    turned = helper.make_node("RotaryEmbedding", ["x", "cos", "sin"], ["y"], name="turn")
    angles = np.linspace(0, 1, 24, dtype=np.float32).reshape(1, 6, 4)
    given = model([turned], ["y"], shape=(1, 2, 6, 8), cos=np.cos(angles), sin=np.sin(angles))
    given.opset_import[0].version = 23
    session = od.InferenceSession(given, precision="bf16", fallback="error")
    (row,) = (row for row in session.placement if row.node == "turn")
    assert "by its function body" in row.reason and "computes in float32" not in row.remark
    x = np.random.default_rng(3).standard_normal((1, 2, 6, 8)).astype(np.float32)
    wanted = od.InferenceSession(given).run(None, {"x": x})[0]
    assert np.abs(session.run(None, {"x": x})[0] - wanted).max() < 0.02 * np.abs(wanted).max()


def test_attention_of_a_rule_is_narrow_as_a_whole() -> None:
    scale = np.float32(8**-0.5).reshape(())
    nodes = [
        node("Transpose", "x1", "k", perm=[0, 1, 3, 2]),
        node("MatMul", "x0 k", "s"),
        node("Mul", "s scale", "t"),
        node("Softmax", "t", "p", axis=-1),
        node("MatMul", "p x2", "y"),
    ]
    given = model(nodes, ["y"], shape=(1, 2, 6, 8), scale=scale)
    compiled = od.compile(given, precision="bf16", fallback="error")
    rows = {row.node: row for row in compiled.placement}
    assert "rule attention" in rows["Softmax p"].reason and "function body" not in rows["Softmax p"].reason
    assert sum(row.op_type == "Cast" for row in compiled.placement) == 4
    assert not any("computes in float32" in row.remark for row in compiled.placement)


def test_batch_normalisation_is_folded_before_weights_are_rounded(rng: np.random.Generator) -> None:
    def positive(*shape: int) -> Array:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)

    nodes = [
        node("Conv", "x w b", "c", group=2),
        node("BatchNormalization", "c s t m v", "n"),
        node("Relu", "n", "y"),
    ]
    parameters = {name: positive(4) for name in "bstmv"}
    exact = positive(4, 1, 3, 3)
    graph = narrowed(model(nodes, ["y"], shape=(1, 2, 5, 5), w=exact, **parameters))
    assert [one.op_type for one in graph.nodes] == ["Cast", "Conv", "Relu", "Cast"]
    _, weights, bias = graph.nodes[1].inputs
    factor = parameters["s"] / np.sqrt(parameters["v"].astype(np.float64) + 1e-5)
    wanted = (exact * factor.reshape(4, 1, 1, 1)).astype(np.float32).astype(BF16)
    np.testing.assert_array_equal(graph.constants[weights], wanted)
    shift = (parameters["b"] - parameters["m"]) * factor + parameters["t"]
    np.testing.assert_allclose(graph.constants[bias].astype(np.float32), shift, rtol=0.004)


def test_what_moves_elements_between_float32_stays_so() -> None:
    """Det runs on the host: nothing between two of them is cast; beside a product it is."""
    nodes = [
        node("Det", "x", "d"),
        node("Reshape", "d s", "r"),
        node("Transpose", "r", "t", perm=[2, 0, 1]),
        node("Det", "t", "y"),
        node("Flatten", "r", "f"),
        node("MatMul", "f w", "z"),
    ]
    given = {"s": np.array([2, 2, 2]), "w": np.ones((4, 3), np.float32)}
    few = [node("Identity", "t", "z") if one.output[0] == "f" else one for one in nodes[:5]]
    graph = narrowed(model(few, ["y", "z"], shape=(8, 3, 3), s=given["s"]))
    assert not graph.inserted and [one.op_type for one in graph.nodes] == [one.op_type for one in few]
    graph = narrowed(model(nodes, ["y", "z"], shape=(8, 3, 3), **given))
    kinds = {one.name: types(graph, one)[0] for one in graph.nodes}
    assert kinds["Reshape r"] == kinds["Transpose t"] == kinds["MatMul z"] == "bfloat16"


def test_counted_values_stay_float32(rng: np.random.Generator) -> None:
    """Place 1001 is none that bfloat16 has; sines are narrow then, as what they turn."""
    nodes = [
        node("Cast", "x1", "place", to=TensorProto.FLOAT),
        node("MatMul", "place frequencies", "product"),
        node("Concat", "product product", "angle", axis=-1),
        node("Sin", "angle", "sine"),
        node("Mul", "x sine", "y"),
        node("Exp", "place", "z"),
    ]
    frequencies = rng.uniform(0, 1, (8, 4)).astype(np.float32)
    graph = narrowed(model(nodes, ["y", "z"], {"x1": TensorProto.INT64}, frequencies=frequencies))
    wide = {one.name for one in graph.nodes if one.op_type != "Cast" and "float32" in types(graph, one)}
    assert wide == {"MatMul product", "Concat angle", "Sin sine"}
    assert types(graph, next(one for one in graph.nodes if one.name == "Mul y")) == ["bfloat16"] * 3


def test_what_becomes_integers_stays_float32() -> None:
    """Of inputs and of integers, but not behind a product of data, which is what networks are made of."""
    nodes = [
        node("Cast", "x1", "f", to=TensorProto.FLOAT),
        node("Floor", "f", "g"),
        node("Cast", "g", "i", to=TensorProto.INT64),
        node("Mul", "x w", "scaled"),
        node("Cast", "scaled", "j", to=TensorProto.INT64),
        node("MatMul", "x w", "product"),
        node("Cast", "product", "k", to=TensorProto.INT64),
        node("Add", "i j", "ij"),
        node("Add", "ij k", "whole"),
        node("Cast", "whole", "y", to=TensorProto.FLOAT),
    ]
    given = model(nodes, ["y"], {"x1": TensorProto.INT64}, shape=(4, 4), w=np.full((4, 4), 1.5, np.float32))
    graph = narrowed(given)
    narrow = {
        one.name for one in graph.nodes if "bfloat16" in types(graph, one) and one.name not in graph.inserted
    }
    assert narrow == {"MatMul product", "Cast k"}
