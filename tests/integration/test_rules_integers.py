# SPDX-License-Identifier: Apache-2.0
"""Every row of the tables of integers fires, and does not where it must not; models come from the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onedispatch as od
from onedispatch.dispatch.compile import GRAPH_PASSES, context_of
from onedispatch.dispatch.compiler import rewriter
from onedispatch.dispatch.compiler.fold import fold_constants, specialise
from onedispatch.dispatch.compiler.options import CompileOptions
from onedispatch.dispatch.compiler.passes import run_passes
from onedispatch.dispatch.compiler.quantised import sources
from onedispatch.dispatch.frontend.exporter import sub_model
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.rules.integers import BOUNDS, GROUPS, MOVERS, Group
from onedispatch.transactions import find_device
from tests.integration.integer_models import ATTRIBUTES, AXES, INDICES, SHAPE, Model, group_model, mover_model

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

ROWS = [pytest.param(group, id=f"{group.op_type}-{group.target}") for group in GROUPS]
CONDITIONS = [
    pytest.param(group, place, id=f"{group.target}-{one.name}")
    for group in GROUPS
    for place, one in enumerate(group.where)
]


def first_of(group: Group) -> str:
    """The first operand that is dequantised."""
    return next(name for name in group.operands.replace("*x", "x0").split() if name.isalnum())


# How a model breaks a condition, by how the name of that begins; operand -> options of ``integers``.
BREAKS: dict[str, Any] = {
    "a constant bias": lambda g: {g.operands.split("?")[1]: {"scale": 0.5, "constant": False}},
    "alpha=1 and beta=1": lambda _: {"attributes": {"alpha": 2.0}},
    "operands and y of one type": lambda _: {"result": {"dtype": np.int8}},
    "a, b and c of one type": lambda _: {"a": {"dtype": np.int8}},
    "x, y and z of one type": lambda _: {"x": {"dtype": np.int8}},
    "one scale for all": lambda g: {first_of(g): {"axis": 0}},
    "scales of b": lambda _: {"b": {"axis": 0}},
    "scales of w": lambda _: {"w": {"axis": 1}},
    "x and y of one type": lambda _: {"result": {"dtype": np.int8}},
    "a window without dilations": lambda _: {"attributes": {"dilations": [2, 1]}, "opset": 19},
}


@pytest.fixture
def all_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are judged by themselves, whatever maps by now."""
    monkeypatch.setattr(rewriter, "refusals_of", lambda *_: {})


def outputs_of(model: Model) -> list[str]:
    made = [(node.output[0], node.op_type) for node in model.nodes]
    read = {name for node in model.nodes for name in node.input}
    zeros = {name: str(model.constants[f"{name}_zero"].dtype) for name, op in made if op == "QuantizeLinear"}
    zeros |= {name: "int64" for name, op in made if op in INDICES}
    return [f"{name}:{zeros[name]}" if name in zeros else name for name, _ in made if name not in read]


def in_integers(model: Model, *more: str) -> Graph:
    graph = fold_constants(import_model(model.proto(*outputs_of(model), *more)))
    return by_passes(specialise(graph, {value.name: value.concrete_shape for value in graph.inputs}, {}))


def by_passes(graph: Graph) -> Graph:
    """``graph`` after the passes that integers have, for themselves."""
    wanted = ("group-integers", "pack-weights", "dequantise-constants")
    passes = [one for one in GRAPH_PASSES if one.name in wanted]
    assert len(passes) == len(wanted)
    return run_passes(passes, graph, context_of(graph, {}, {}, CompileOptions(find_device("npu2"))))


def operators(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


def fed(graph: Graph) -> dict[str, Any]:
    """Integers for every input."""
    random = np.random.default_rng(11)
    found = {}
    for value in graph.inputs:
        bits = random.integers(-100, 100, value.concrete_shape)
        found[value.name] = bits > 0 if value.dtype == np.bool_ else bits.astype(value.dtype)
    return found


def computed(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """By onnxruntime, node by node as they are."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, feeds)


def same_numbers(graph: Graph, model: Model, apart: int) -> None:
    """onnxruntime computes the same of both, but for so many units of integers."""
    written = sub_model(graph, graph.nodes, graph.inputs, graph.outputs, graph.constants)
    feeds = fed(graph)
    for given, wanted in zip(
        computed(written, feeds), computed(model.proto(*outputs_of(model)), feeds), strict=True
    ):
        assert given.dtype == wanted.dtype
        if given.dtype.kind == "f":
            np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-4)
        else:
            np.testing.assert_allclose(given.astype(int), wanted.astype(int), rtol=0, atol=apart)


def remarks_of(graph: Graph) -> str:
    left = {node.name for node in graph.nodes if node.op_type.endswith("antizeLinear")}
    assert left <= graph.remarks.keys(), "every one that is left says why"
    return "\n".join(graph.remarks[name] for name in left)


# -- groups ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("group", ROWS)
def test_a_group_becomes_its_operator(group: Group) -> None:
    model = group_model(group)
    graph = in_integers(model)
    assert operators(graph) == [group.target, *(["Cast", "Mul"] if group.sums else [])]
    assert graph.nodes[0].domain == group.domain
    origin = graph.origins[graph.nodes[0].name]
    assert origin.how == group.name and group.op_type in [node.op_type for node in origin.nodes]
    same_numbers(graph, model, apart=1)


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("group", [row for row in ROWS if row.values[0].result])  # type: ignore[union-attr]
def test_what_a_group_makes_is_known_as_integers(group: Group) -> None:
    model = group_model(group)
    assert sources(in_integers(model))["result"][:2] == ("result_scale", "result_zero")


def with_bias_in_floats(model: Model, bias: str, size: int) -> None:
    model.nodes = [node for node in model.nodes if node.output[0] != bias]
    model.constants[bias] = np.linspace(-1, 1, size, dtype=np.float32)


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("group", [row for row in ROWS if row.values[0].op_type in AXES])  # type: ignore[union-attr]
@pytest.mark.parametrize("floats", [False, True])
def test_scales_by_channel(group: Group, floats: bool) -> None:
    name, axis = AXES[group.op_type]
    model = group_model(group, **{name: {"axis": axis}})
    bias = group.operands.split("?")[-1]
    if floats and "?" in group.operands:  # which are rounded to units of the sums
        with_bias_in_floats(model, bias, 8 if group.op_type == "Gemm" else 4)
    graph = in_integers(model)
    assert (group.target in operators(graph)) == (not (floats and group.floats))
    same_numbers(graph, model, apart=1)


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("group", [row for row in ROWS if row.values[0].target in ("QLinearConv", "QGemm")])  # type: ignore[union-attr]
@pytest.mark.parametrize("options", [{"axis": 0}, {"zero": 3}], ids=["scales", "one scale"])
def test_a_constant_bias_may_be_that_of_another_product(group: Group, options: dict[str, int]) -> None:
    """Exporters share equal biases by Identity; a quantiser scales them for the first of their readers."""
    bias = group.operands.split("?")[1]
    model = group_model(group, **{bias: {"scale": 0.05, **options}})
    for node in model.nodes:
        if node.output[0] == bias:
            node.output[0] = "shared"
    model.nodes.insert(-2 if group.result else -1, onnx.helper.make_node("Identity", ["shared"], [bias]))
    graph = in_integers(model)
    assert (group.target in operators(graph)) == (not group.floats)
    same_numbers(graph, model, apart=1)


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("quantised", [False, True], ids=["floats", "integers"])
@pytest.mark.parametrize(
    ("scales", "bias"),
    [((0.1, 1e-10), 5.5), ((0.5, 0.5), 0.12)],
    ids=["beyond int32", "between units that are steps of the result"],
)
def test_a_constant_bias_that_units_do_not_hold_stays(
    quantised: bool, scales: tuple[float, float], bias: float
) -> None:
    model = Model()
    model.integers("a", (2, 4), scales[0])
    model.integers("b", (4, 3), scales[1], dtype=np.int8, constant=True)
    if quantised:
        model.integers("c", (3,), bias / 100, dtype=np.int8, zero=0, constant=True)
    else:
        model.constant("c", np.full(3, bias, np.float32))
    model.node("Gemm", ["a", "b", "c"], ["made"])
    model.quantised("y", "made", 0.05)
    graph = in_integers(model)
    assert "QGemm" not in operators(graph) and "a constant bias, or int32" in remarks_of(graph)
    same_numbers(graph, model, apart=0)


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(("group", "place"), CONDITIONS)
def test_a_condition_that_fails_is_told(group: Group, place: int) -> None:
    condition = group.where[place]
    if condition.name == "scales that are constant":
        model = group_model(group)
        del model.constants["a_scale"]
        model.inputs.append(onnx.helper.make_tensor_value_info("a_scale", onnx.TensorProto.FLOAT, ()))
    elif condition.name.startswith("a bias that is quantised"):
        model = group_model(group)
        with_bias_in_floats(model, "c", 8)
    else:
        (change,) = (make for name, make in BREAKS.items() if condition.name.startswith(name))
        model = group_model(group, **change(group))
    graph = in_integers(model)
    assert group.target not in operators(graph)
    assert f"{group.name} did not fire: {condition.name} (n_made)" in remarks_of(graph)


@pytest.mark.parametrize("group", ROWS)
def test_what_does_not_map_is_told(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rewriter, "refusals_of", lambda _, nodes, __: {node.name: "not now" for node in nodes}
    )
    graph = in_integers(group_model(group))
    assert group.op_type in operators(graph)
    assert f"did not fire: {group.target} does not map: not now" in remarks_of(graph)


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("group", [row for row in ROWS if row.values[0].result])  # type: ignore[union-attr]
def test_floats_that_leave_stay_floats(group: Group) -> None:
    graph = in_integers(group_model(group), "made")
    unquantised = [one for one in GROUPS if not one.result and one.op_type == group.op_type]
    if not any(one.target == group.target for one in unquantised):
        assert group.target not in operators(graph)
    told = remarks_of(graph)
    if not unquantised:
        assert "made (of n_made) is an output of the model" in told


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("group", ROWS)
def test_an_operand_in_floats_stops_a_group(group: Group) -> None:
    model = group_model(group)
    first = next(node for node in model.nodes if node.op_type == "DequantizeLinear")
    model.nodes.remove(first)
    model.inputs = [one for one in model.inputs if one.name != first.input[0]]
    shape = onnx.helper.make_tensor_value_info(first.output[0], onnx.TensorProto.FLOAT, None)
    dims = (
        SHAPE
        if group.op_type not in ("MatMul", "Gemm")
        else {"MatMul": (2, 4, 6), "Gemm": (4, 6)}[group.op_type]
    )
    shape.CopyFrom(onnx.helper.make_tensor_value_info(first.output[0], onnx.TensorProto.FLOAT, dims))
    model.inputs.append(shape)
    graph = in_integers(model)
    assert group.target not in operators(graph)
    remarks_of(graph)


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("floats", [False, True])
def test_a_product_alone_may_have_factors(floats: bool) -> None:
    """Without a bias beta is a factor of nothing, and alpha one of the result's."""
    model = Model()
    given = [model.integers("a", (4, 6)), model.integers("b", (6, 8), dtype=np.int8, constant=True)]
    model.node("Gemm", given, ["made"], alpha=0.3, beta=2.0)
    if not floats:
        model.quantised("result", "made")
    graph = in_integers(model)
    assert operators(graph) == ["QGemm"]
    same_numbers(graph, model, apart=1)


@pytest.mark.usefixtures("all_maps")
def test_dequantised_once_for_several_readers() -> None:
    """Each takes the integers; no reader of floats is left."""
    model = Model()
    model.integers("x", SHAPE)
    model.node("Sigmoid", ["x"], ["made"])
    model.quantised("y", "made")
    model.node("Add", ["x", "x"], ["twice"])
    model.quantised("z", "twice")
    graph = in_integers(model)
    assert sorted(operators(graph)) == ["QLinearAdd", "QLinearSigmoid"]


@pytest.mark.usefixtures("all_maps")
def test_quantised_twice_only_for_two_scales() -> None:
    model = Model()
    model.integers("x", SHAPE)
    model.node("Erf", ["x"], ["made"])
    for name, scale in (("y", 0.1), ("z", 0.1), ("w", 0.2)):
        model.quantised(name, "made", scale)
        model.node("DequantizeLinear", [name, f"{name}_scale", f"{name}_zero"], [f"{name}_floats"])
        model.node("Exp", [f"{name}_floats"], [f"{name}_end"])
    graph = in_integers(model)
    assert operators(graph).count("QuantizeLinear") == 2
    assert [one.reason for one in graph.folded if one.node == "n_z"] == ["its integers are those of y"]
    assert "stays: n_made (Erf) computes in floats" in remarks_of(graph)


# -- movers ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("op_type", [one for one in MOVERS if one != "Identity"])  # which goes
def test_a_mover_takes_integers(op_type: str) -> None:
    graph = in_integers(dequantised(mover_model(op_type, MOVERS[op_type])))
    assert "QuantizeLinear" not in [n.op_type for n in graph.nodes if n.inputs[0] == "made"]
    (moves,) = (node for node in graph.nodes if node.op_type == op_type)
    assert graph.value(moves.inputs[0]).dtype == np.uint8


def dequantised(model: Model) -> Model:
    """What is quantised is dequantised again and leaves as floats."""
    for node in [one for one in model.nodes if one.op_type == "QuantizeLinear"]:
        name = node.output[0]
        model.node("DequantizeLinear", [name, *node.input[1:]], [f"{name}_floats"])
    return model


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("op_type", MOVERS)
def test_a_mover_moves_the_same_numbers(op_type: str) -> None:
    model = dequantised(mover_model(op_type, MOVERS[op_type]))
    graph = in_integers(model)
    assert "QuantizeLinear" not in operators(graph)
    same_numbers(graph, model, apart=0)


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("op_type", [name for name, mover in MOVERS.items() if mover.data < 0])
def test_movers_of_several_want_one_scale(op_type: str) -> None:
    model = dequantised(mover_model(op_type, MOVERS[op_type], x1={"scale": 0.07}, x0={"dtype": np.uint8}))
    graph = in_integers(model)
    if op_type != "Concat":  # which has an operator for it
        assert "QuantizeLinear" in operators(graph)
        assert "moves integers only by one scale" in remarks_of(graph)
    else:
        assert "QLinearConcat" in operators(graph)


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(
    ("op_type", "change"),
    [
        ("Pad", {"operands": (np.array([0, 0, 1, 1, 0, 0, 1, 1]), np.float32(1))}),
        ("Resize", {"attributes": {"mode": "linear"}}),
        (
            "Resize",
            {"attributes": {"mode": "nearest", "coordinate_transformation_mode": "tf_crop_and_resize"}},
        ),
    ],
)
def test_a_mover_that_makes_numbers_stays(op_type: str, change: dict[str, Any]) -> None:
    graph = in_integers(dequantised(mover_model(op_type, MOVERS[op_type], **change)))
    assert "QuantizeLinear" in operators(graph)
    assert f"moves integers only by {MOVERS[op_type].accepted}" in remarks_of(graph)


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("op_type", [name for name, mover in MOVERS.items() if mover.orders])
@pytest.mark.parametrize("computed_scale", [False, True])
def test_sizes_of_integers_are_those_of_their_floats_or_floats_are_compared(
    op_type: str, computed_scale: bool
) -> None:
    """Floats of int32 may be one where the integers are two; a scale that is computed may be negative."""
    options = {} if computed_scale else {"x": {"dtype": np.int32}, "x0": {"dtype": np.int32}}
    model = dequantised(mover_model(op_type, MOVERS[op_type], **options))
    if computed_scale:
        name = model.nodes[0].input[1]
        del model.constants[name]
        model.inputs.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ()))
    graph = in_integers(model)
    (moves,) = (node for node in graph.nodes if node.op_type == op_type)
    assert graph.value(moves.inputs[0]).dtype == np.float32


@pytest.mark.usefixtures("all_maps")
def test_a_vector_has_no_columns_that_scales_are_of() -> None:
    model = Model()
    model.integers("a", (2, 4, 6))
    model.integers("b", (6,), dtype=np.int8, constant=True, axis=0)
    model.node("MatMul", ["a", "b"], ["y"])
    graph = in_integers(model)
    assert operators(graph) == ["DequantizeLinear", "MatMul"]
    assert "scales of b for the columns of b" in remarks_of(graph)


@pytest.mark.usefixtures("all_maps")
def test_a_bias_has_scales_of_columns() -> None:
    """onnxruntime takes those of rows for such where there are as many."""
    model = Model()
    model.integers("a", (3, 6))
    model.integers("b", (6, 3), 0.02, dtype=np.int8, constant=True, axis=1)
    model.integers("c", (3, 3), 0.05 * 0.02, dtype=np.int32, zero=0, axis=0)
    model.node("Gemm", ["a", "b", "c"], ["made"])
    model.quantised("y", "made")
    graph = in_integers(model)
    assert "QGemm" not in operators(graph) and "whose scale is that of a times that of b" in remarks_of(graph)


@pytest.mark.usefixtures("all_maps")
def test_names_of_the_model_stay_its_own() -> None:
    """Also where they are like those that the pass gives to what it makes."""
    model = bounded("Relu", 128, 0.1, before="AveragePool")
    del model.nodes[-1]
    model.quantised("turned_integers", "made", 0.1, 128)
    same_numbers(in_integers(model), model, apart=1)


@pytest.mark.usefixtures("all_maps")
def test_a_mover_behind_a_group_comes_after_its_rounding() -> None:
    model = Model()
    for name, shape, scale in (("a", (2, 4, 6), 0.05), ("b", (2, 6, 8), 0.02)):
        model.integers(name, shape, scale)
    model.node("MatMul", ["a", "b"], ["made"])
    model.node("Transpose", ["made"], ["turned"], perm=[0, 2, 1])
    model.quantised("y", "turned")
    graph = in_integers(model)
    assert operators(graph) == ["QLinearMatMul", "Transpose"]
    same_numbers(graph, model, apart=1)


# -- bounds ----------------------------------------------------------------------------------------------


def bounded(op_type: str, zero: int, scale: float, *bounds: float, before: str = "Neg") -> Model:
    model = Model()
    model.integers("x", SHAPE)
    model.node(before, ["x"], ["turned"], **ATTRIBUTES.get(before, {}))
    operands = [model.constant(f"bound{n}", np.float32(one)) for n, one in enumerate(bounds)]
    model.node(op_type, ["turned", *operands], ["made"])
    model.quantised("y", "made", scale, zero)
    return model


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(
    ("op_type", "zero", "scale", "bounds", "goes"),
    [
        ("Relu", 0, 0.1, (), True),
        ("Relu", 1, 0.1, (), False),
        ("Clip", 0, 6 / 255, (0.0, 6.0), True),
        ("Clip", 0, 7 / 255, (0.0, 6.0), False),
        ("Clip", 3, 6 / 255, (0.0, 7.0), False),
        ("Clip", 0, 5 / 255, (0.0, 6.0), True),
        ("Clip", 0, 5 / 255, (-1.0,), True),
        ("Clip", 0, 6 / 255, (float("nan"), 6.0), False),
    ],
)
def test_a_bound_goes_where_saturation_keeps_it(
    op_type: str, zero: int, scale: float, bounds: tuple[float, ...], goes: bool
) -> None:
    assert op_type in BOUNDS
    model = bounded(op_type, zero, scale, *bounds)
    graph = in_integers(model)
    assert (op_type not in operators(graph)) == goes
    same_numbers(graph, model, apart=0)
    if not goes:
        assert "computes in floats" in remarks_of(graph)


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(
    ("op_type", "zero", "bounds"), [("Relu", 128, ()), ("Relu", 7, ()), ("Clip", 3, (0.0, 6.0))]
)
def test_a_bound_behind_a_group_bounds_integers(op_type: str, zero: int, bounds: tuple[float, ...]) -> None:
    model = bounded(op_type, zero, 0.1, *bounds, before="AveragePool")
    graph = in_integers(model)
    assert operators(graph) == ["QLinearAveragePool", "Clip"]
    same_numbers(graph, model, apart=1)


@pytest.mark.usefixtures("all_maps")
def test_integers_are_never_nan() -> None:
    """As exporters guard Softmax."""
    model = Model()
    model.integers("x", SHAPE)
    model.node("IsNaN", ["x"], ["asked"])
    model.node("Where", ["asked", model.constant("none", np.float32(0)), "x"], ["made"])
    model.quantised("y", "made", 0.05)
    model.node("DequantizeLinear", ["y", "y_scale", "y_zero"], ["end"])
    graph = in_integers(model)
    assert operators(graph) == ["DequantizeLinear"]
    same_numbers(graph, model, apart=0)


# -- the whole -------------------------------------------------------------------------------------------


def between_integers(op_type: str) -> tuple[od.NodePlacement, ...]:
    model = Model()
    model.integers("x", SHAPE)
    model.node(op_type, ["x"], ["made"])
    model.quantised("y", "made")
    return od.InferenceSession(model.proto(*outputs_of(model)), fallback="error").placement


def test_inspect_says_what_stays_and_why() -> None:
    (row,) = (one for one in between_integers("LogSoftmax") if one.node == "n_y")
    assert "stays: n_made (LogSoftmax) computes in floats" in row.remark


def test_what_a_merge_takes_does_not_stay() -> None:
    rows = between_integers("Erf")
    assert {row.reason.partition(" ")[2].partition(" ")[0] for row in rows} == {"table"}
    assert not any("stays" in row.remark for row in rows)


def test_models_without_integers_are_as_they_were() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2,6,8] x) => (float[2,6,8] y) { y = Erf(x) }'
    )
    graph = specialise(import_model(proto), {"x": (2, 6, 8)}, {})
    assert by_passes(graph) is graph


def test_a_pool_of_an_older_operator_set_takes_integers_of_its_first_that_has_them() -> None:
    """MaxPool takes integers since 12: what passes write in a model of 11 is a node of 12."""
    model = Model(np.int8)
    x = model.integers("x", (1, 2, 6, 6))
    model.node("MaxPool", [x], ["m"], kernel_shape=[2, 2])
    model.quantised("y", "m", 0.05)
    proto = model.proto(*outputs_of(model))
    proto.opset_import[0].version = 11
    session = od.InferenceSession(proto, fallback="error")
    feed = {"x_integers": np.arange(72, dtype=np.int8).reshape(1, 2, 6, 6)}
    (y,) = session.run(None, feed)
    np.testing.assert_array_equal(y, computed(proto, feed)[0])


def test_a_bound_that_goes_with_its_quantiser_has_a_row() -> None:
    """The QuantizeLinear that saturation leaves makes integers that are there already."""
    model = Model(np.uint8)
    x = model.integers("x", (4,), scale=0.05)
    low, high = (model.constant(name, np.float32(v)) for name, v in (("low", -100), ("high", 100)))
    model.node("Clip", [x, low, high], ["c"])
    model.quantised("y", "c", 0.05)
    model.node("DequantizeLinear", ["y", *model.scaled("again", 0.05, 128, np.dtype(np.uint8))], ["f"])
    model.node("Sigmoid", ["f"], ["s"])
    session = od.InferenceSession(model.proto("s"), fallback="error")
    rows = {row.node: row.device for row in session.placement}
    assert rows == {"n_x": "folded", "n_c": "folded", "n_y": "folded", "n_f": "npu", "n_s": "npu"}
