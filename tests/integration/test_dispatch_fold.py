# SPDX-License-Identifier: Apache-2.0
"""Folding: constants and shape arithmetic only, and nothing that an output shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch
from onedispatch.dispatch.compiler.fold import deciding_inputs, fold_constants, specialise
from onedispatch.dispatch.frontend import exporter
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.transactions.base.errors import ModelError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def graph_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[int | str]]],
    outputs: list[str],
    **weights: np.ndarray,
) -> Graph:
    ins = [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()]
    outs = [helper.make_empty_tensor_value_info(n) for n in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ins, outs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return fold_constants(import_model(model))


def node(op: str, reads: str, writes: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, reads.split(), writes.split(), name=op.lower(), **attributes)


def types(graph: Graph) -> list[str]:
    return [n.op_type for n in graph.nodes]


def test_constants_are_computed_once() -> None:
    graph = graph_of(
        [node("Add", "a b", "c"), node("Mul", "c c", "d"), node("Add", "x d", "y")],
        {"x": (FLOAT, [2])},
        ["y"],
        a=np.float32([1, 2]),
        b=np.float32([10, 20]),
    )
    assert types(graph) == ["Add"]
    np.testing.assert_array_equal(graph.constants["d"], [121, 484])
    assert set(graph.constants) == {"d"}


def test_what_is_computed_twice_is_one_array() -> None:
    """But for what differs: an attribute of the other zero gives other signs."""
    graph = graph_of(
        [
            helper.make_node("Transpose", ["w"], ["a"], "a"),
            helper.make_node("Transpose", ["w"], ["b"], "b"),
            helper.make_node("Transpose", ["w"], ["c"], "c", perm=[0, 1]),
            helper.make_node("LeakyRelu", ["b"], ["d"], "d", alpha=0.0),
            helper.make_node("LeakyRelu", ["a"], ["e"], "e", alpha=-0.0),
            helper.make_node("Sum", ["x", "a", "b", "c", "d", "e"], ["y"], "y"),
        ],
        {"x": (FLOAT, [2, 2])},
        ["y"],
        w=np.float32([[1, -2], [3, 4]]),
    )
    assert types(graph) == ["Sum"]
    made = graph.constants
    assert np.shares_memory(made["a"], made["b"])
    np.testing.assert_array_equal(made["a"], [[1, 3], [-2, 4]])
    np.testing.assert_array_equal(made["c"], [[1, -2], [3, 4]])
    assert np.signbit(made["d"][1, 0]) and not np.signbit(made["e"][1, 0])


def test_random_nodes_are_left_alone() -> None:
    graph = graph_of(
        [node("RandomNormal", "", "r", shape=[2]), node("Add", "x r", "y")], {"x": (FLOAT, [2])}, ["y"]
    )
    assert types(graph) == ["RandomNormal", "Add"]


SHAPE_CHAIN = [
    node("Shape", "x", "s"),
    node("Gather", "s zero", "n"),
    node("Concat", "n minus", "t", axis=0),
    node("Reshape", "x t", "y"),
]
CHAIN_WEIGHTS = {"zero": np.int64([0]), "minus": np.int64([-1])}


@pytest.mark.parametrize("batch", [1, 5])
def test_shape_arithmetic_folds_for_concrete_shapes(batch: int) -> None:
    graph = graph_of(SHAPE_CHAIN, {"x": (FLOAT, ["N", 3, 4])}, ["y"], **CHAIN_WEIGHTS)
    assert len(graph.nodes) == 4
    special = specialise(graph, {"x": (batch, 3, 4)}, {})
    assert types(special) == ["Reshape"]
    assert special.value("y").shape == (batch, 12)


QUANTISED_CHAIN = [
    node("Shape", "x", "s"),
    node("Gather", "s zero", "n"),
    node("Cast", "n", "f", to=FLOAT),
    node("QuantizeLinear", "f scale point", "q"),
    node("DequantizeLinear", "q scale point", "d"),
    node("DequantizeLinear", "four scale point", "two"),
    node("Mul", "d two", "m"),
    node("Cast", "m", "i", to=INT64),
    node("Concat", "i minus", "t", axis=0),
    node("Reshape", "x t", "r"),
    node("DequantizeLinear", "weight scale point", "w"),
    node("MatMul", "r w", "y"),
]


def test_shape_arithmetic_folds_as_a_quantiser_left_it() -> None:
    """Weights stay integers all the same."""
    graph = graph_of(
        QUANTISED_CHAIN,
        {"x": (FLOAT, ["N", 6])},
        ["y"],
        **CHAIN_WEIGHTS,
        scale=np.float32(0.5),
        point=np.uint8(0),
        four=np.uint8([4]),
        weight=np.ones((3, 2), np.uint8),
    )
    special = specialise(graph, {"x": (5, 6)}, {})
    assert types(special) == ["Reshape", "DequantizeLinear", "MatMul"]
    assert special.value("r").shape == (10, 3)
    assert special.constants["weight"].dtype == np.uint8


def test_a_shape_that_is_an_output_is_not_folded() -> None:
    graph = graph_of([node("Shape", "x", "y")], {"x": (FLOAT, [2, 3])}, ["y"])
    assert types(specialise(graph, {"x": (2, 3)}, {})) == ["Shape"]


def test_inputs_that_decide_shapes_are_found_and_bound() -> None:
    graph = graph_of(
        [node("Concat", "s rest", "t", axis=0), node("Reshape", "x t", "y")],
        {"x": (FLOAT, [4, 6]), "s": (INT64, [1])},
        ["y"],
        rest=np.int64([-1]),
    )
    assert deciding_inputs(graph) == {"s"}
    special = specialise(graph, {"x": (4, 6), "s": (1,)}, {"s": np.int64([8])})
    assert types(special) == ["Reshape"]
    assert special.value("y").shape == (8, 3)


def test_an_input_that_decides_shapes_folds_no_data_path() -> None:
    """``s`` is also data: the node that computes with it stays."""
    graph = graph_of(
        [node("Reshape", "x s", "y"), node("Add", "s s", "z")],
        {"x": (FLOAT, [4, 6]), "s": (INT64, [2])},
        ["y", "z"],
    )
    special = specialise(graph, {"x": (4, 6), "s": (2,)}, {"s": np.int64([8, 3])})
    assert types(special) == ["Reshape", "Add"]


def test_a_float_computation_behind_a_shape_does_not_bind_its_input() -> None:
    graph = graph_of(
        [node("Cast", "f", "i", to=INT64), node("Reshape", "x i", "y")],
        {"x": (FLOAT, [4]), "f": (FLOAT, [2])},
        ["y"],
    )
    assert deciding_inputs(graph) == frozenset()


def test_shapes_that_contradict_are_a_model_error() -> None:
    graph = graph_of(
        [node("MatMul", "x w", "y")], {"x": (FLOAT, ["N", 4])}, ["y"], w=np.zeros((5, 2), np.float32)
    )
    with pytest.raises(ModelError, match="inference"):
        specialise(graph, {"x": (1, 4)}, {})


@pytest.mark.parametrize(("op_type", "expected"), [("Shape", [2, 3]), ("Size", 6)])
def test_shapes_of_what_folds_with_them(op_type: str, expected: list[int] | int) -> None:
    """The operand has no shape yet: it is computed in the same go."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node(op_type, ["a"], ["y"])]
    constants = [onnx.numpy_helper.from_array(np.ones((2, 3), np.float32), "x")]
    graph = helper.make_graph(nodes, "g", [], [onnx.ValueInfoProto(name="y")], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (y,) = onedispatch.InferenceSession(proto).run(None, {})
    np.testing.assert_array_equal(y, expected)


def test_a_constant_that_is_an_output_keeps_its_shape() -> None:
    """Quantised weights that the model also shows: what reads them is inferred as otherwise."""
    nodes = [
        node("QuantizeLinear", "w s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("MatMul", "x d", "y"),
    ]
    given = {"w": np.ones((3, 4), np.float32), "s": np.array(0.1, np.float32), "z": np.array(0, np.int8)}
    graph = graph_of(nodes, {"x": (FLOAT, [2, 3])}, ["y", "q"], **given)
    special = specialise(graph, {}, {})
    assert (special.value("d").shape, special.value("y").shape) == ((3, 4), (2, 4))


def reshapes(depth: int) -> Graph:
    """Each Reshape takes its target from the shape of the one before, so that each takes another round."""
    nodes = []
    for i in range(depth):
        x, y = (f"x{i}" if i else "x"), f"x{i + 1}"
        nodes += [
            node("Shape", x, f"s{i}"),
            node("Gather", f"s{i} order", f"t{i}"),
            node("Reshape", f"{x} t{i}", y),
        ]
    for at, one in enumerate(nodes):
        one.name = f"node {at}"
    inputs: dict[str, tuple[int, list[int | str]]] = {"x": (FLOAT, ["n", "m"])}
    nodes.append(node("Add", f"x{depth} w", "y"))
    return graph_of(nodes, inputs, ["y"], order=np.int64([1, 0]), w=np.ones(6, np.float32))


@pytest.fixture
def inferred(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each inference of onnx, how many nodes it is of."""
    counts: list[int] = []
    infer = exporter._infer_onnx

    def counted(graph: Graph, *others: Any) -> Any:
        counts.append(len(graph.nodes))
        return infer(graph, *others)

    monkeypatch.setattr(exporter, "_infer_onnx", counted)
    return counts


def test_a_round_infers_what_the_one_before_left_open(inferred: list[int]) -> None:
    special = specialise(reshapes(7), {"x": (6, 5)}, {})
    assert all(special.value(name).is_concrete for n in special.nodes for name in n.writes)
    assert special.value("x6").shape == (6, 5) and special.value("y").shape == (5, 6)
    whole = [count for count in inferred if count > 1]
    assert whole == sorted(whole, reverse=True) and whole[-1] < whole[0] / 2


def test_a_size_that_is_known_late_is_checked_all_the_same() -> None:
    """Of a sum, inference takes the constant's size before it knows the other."""
    special = specialise(reshapes(3), {"x": (6, 5)}, {})
    assert special.value("y").shape == (5, 6)
    with pytest.raises(ModelError, match="Incompatible dimensions"):
        specialise(reshapes(2), {"x": (6, 5)}, {})


@pytest.mark.parametrize("depth", [8, 16])
def test_of_constants_in_a_row_each_is_sized_about_once(depth: int, inferred: list[int]) -> None:
    """Each takes its size from the one before, so that none is known before that is computed."""
    nodes = [
        one
        for i in range(depth)
        for one in (
            helper.make_node("Shape", [f"c{i}"], [f"s{i}"], f"shape {i}"),
            helper.make_node("Gather", [f"s{i}", "order"], [f"t{i}"], f"gather {i}"),
            helper.make_node("Reshape", [f"c{i}", f"t{i}"], [f"c{i + 1}"], f"reshape {i}"),
        )
    ]
    nodes.append(node("Add", f"x c{depth}", "y"))
    weights = {"c0": np.arange(30, dtype=np.float32).reshape(5, 6), "order": np.int64([1, 0])}
    graph = graph_of(nodes, {"x": (FLOAT, [5, 6])}, ["y"], **weights)
    assert types(graph) == ["Add"] and sum(inferred) <= 6 * len(nodes)
    np.testing.assert_array_equal(graph.constants[f"c{depth}"], weights["c0"])
