# SPDX-License-Identifier: Apache-2.0
"""Nothing that depends on values given at run time is computed on the host unless it is a shape.

Random graphs mix arithmetic on an input that decides shapes with data paths. Which nodes may fold
is found here a second time, by a walk over the ONNX graph that shares nothing with the package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from tests.tables import examples

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

CONSTANTS: dict[str, Array] = {
    "ones": np.int64([1, 1]),
    "zeros": np.int64([0, 0]),
    "swap": np.int64([1, 0]),
    "zero": np.int64(0),
    "one": np.int64(1),
    "five": np.int64(5),
    "axis0": np.int64([0]),
    "only": np.int64([1]),
    "minus": np.int64([-1]),
}
# Inputs that are structure: what an operator's result looks like, not what is in it.
STRUCTURE = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "ReduceSum": (1,),
    "Reshape": (1,),
    "Shape": (0,),
    "Slice": (1, 2, 3, 4),
}


class Builder:
    """Grows a graph node by node; values are kept by kind so that every choice is valid."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.pairs = ["k"]  # int64[2] with a product of 12
        self.flats = ["x"]  # float[12]
        self.tables: list[str] = []  # float, reshaped by a pair
        self.scalars: list[str] = []  # float[]

    def add(self, op: str, reads: str, **attributes: Any) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, reads.split(), [out], name=f"n{len(self.nodes)}", **attributes)
        )
        return out

    def model(self, outputs: list[str]) -> onnx.ModelProto:
        ins = [
            helper.make_tensor_value_info("x", FLOAT, ["N"]),
            helper.make_tensor_value_info("k", INT64, [2]),
        ]
        outs = [helper.make_empty_tensor_value_info(n) for n in outputs]
        used = {name for node in self.nodes for name in node.input}
        tensors = [numpy_helper.from_array(array, n) for n, array in CONSTANTS.items() if n in used]
        graph = helper.make_graph(self.nodes, "g", ins, outs, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def branch(op: str, read: str, out: str) -> onnx.GraphProto:
    info = helper.make_tensor_value_info(out, FLOAT, None)
    return helper.make_graph([helper.make_node(op, [read], [out])], out, [], [info])


def grow(b: Builder, step: str, draw: st.DrawFn) -> None:
    """One step: more arithmetic on shapes, a shape that is used, or data computed from either."""

    def pick(names: list[str]) -> str:
        return draw(st.sampled_from(names))

    match step:
        case "arithmetic":
            op, other = draw(
                st.sampled_from([("Mul", "ones"), ("Add", "zeros"), ("Sub", "zeros"), ("Gather", "swap")])
            )
            b.pairs.append(b.add(op, f"{pick(b.pairs)} {other}"))
        case "largest":
            pair = pick(b.pairs)
            b.pairs.append(b.add("Max", f"{pair} {pair}"))
        case "reshape":
            b.tables.append(b.add("Reshape", f"{pick(b.flats)} {pick(b.pairs)}"))
        case "flatten":
            if b.tables:
                b.flats.append(b.add("Reshape", f"{pick(b.tables)} minus"))
        case "shape":
            if b.tables:
                b.pairs.append(b.add("Shape", pick(b.tables)))
        case "length":
            b.scalars.append(b.add("Cast", b.add("Gather", b.add("Shape", "x") + " zero"), to=FLOAT))
        case "data":
            pair = pick(b.pairs)
            product = b.add("Mul", f"{pair} {pair}")
            b.scalars.append(b.add("ReduceMean", b.add("Cast", product, to=FLOAT), keepdims=0))
        case "range":
            count = b.add("Gather", f"{pick(b.pairs)} zero")
            numbers = b.add("Range", draw(st.sampled_from([f"zero {count} one", f"{count} five one"])))
            b.scalars.append(b.add("ReduceSum", b.add("Cast", numbers, to=FLOAT), keepdims=0))
        case "activation":
            if b.scalars:
                b.scalars.append(b.add(draw(st.sampled_from(["Sigmoid", "Tanh", "Neg"])), pick(b.scalars)))
        case "scale":
            if b.scalars:
                b.flats.append(b.add("Mul", f"{pick(b.flats)} {pick(b.scalars)}"))
        case "fill":
            table = b.add("ConstantOfShape", pick(b.pairs))
            b.flats.append(b.add("Add", b.add("Reshape", f"{table} minus") + f" {pick(b.flats)}"))
        case "slice":
            first = b.add("Slice", f"{pick(b.pairs)} axis0 only axis0")
            expanded = b.add("Expand", f"{b.add('ReduceSum', f'{pick(b.flats)} axis0', keepdims=0)} {first}")
            b.scalars.append(b.add("ReduceSum", f"{expanded} axis0", keepdims=0))
        case "if":
            condition = b.add("Greater", b.add("Gather", f"{pick(b.pairs)} zero") + " five")
            flat, out = pick(b.flats), f"b{len(b.nodes)}"
            then, other = branch("Relu", flat, f"{out}t"), branch("Sigmoid", flat, f"{out}e")
            b.flats.append(b.add("If", condition, then_branch=then, else_branch=other))


STEPS = (
    "arithmetic arithmetic largest reshape reshape flatten shape length "
    "data range activation scale fill slice if"
).split()


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    b = Builder()
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=2, max_size=9)):
        grow(b, step, draw)
    b.tables.append(b.add("Reshape", f"{b.flats[-1]} {draw(st.sampled_from(b.pairs))}"))
    made = [n for n in (*b.flats, *b.tables, *b.scalars, *b.pairs) if n not in ("x", "k")]
    return b.model(draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True)))


# -- the rule, once more -------------------------------------------------------------------


def reads_of(node: onnx.NodeProto) -> set[str]:
    inner = {n for a in node.attribute if a.HasField("g") for part in a.g.node for n in part.input}
    return set(node.input) | inner


def run_time(model: onnx.ModelProto) -> set[str]:
    """Names that depend on the values of ``k``, or on shapes that follow from these."""
    found = {"k"}
    for node in model.graph.node:
        of_x = node.op_type == "Shape" and node.input[0] in ("x", "k")
        if not of_x and found & reads_of(node):
            found.update(node.output)
    return found


def offences(model: onnx.ModelProto, folded: set[str]) -> list[str]:
    """Folded nodes whose run-time value is seen as data."""
    depends = run_time(model)
    seen = {v.name for v in model.graph.output}  # as data, by something that is not folded
    live = set(seen)
    for node in reversed(model.graph.node):
        if not live & set(node.output):
            continue
        live |= reads_of(node)
        if node.name in folded and not seen & set(node.output):
            continue
        structure = STRUCTURE.get(node.op_type, ())
        seen |= {n for i, n in enumerate(node.input) if i not in structure}
        seen |= reads_of(node) - set(node.input)
    return [
        n.name
        for n in model.graph.node
        if n.name in folded and depends & set(n.output) and seen & set(n.output)
    ]


FEEDS = [
    {"x": np.linspace(-2, 3, 12).astype(np.float32), "k": np.int64([3, 4])},
    {"x": np.linspace(1, -1, 12).astype(np.float32), "k": np.int64([2, 6])},
]


def check(model: onnx.ModelProto, fallback: str) -> list[str]:
    """Runs the model on all feeds; the nodes that were folded for the last."""
    session = od.InferenceSession(model, fallback=fallback)
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names: set[str] = set()
    for feed in FEEDS:
        for mine, other in zip(session.run(None, feed), theirs.run(None, feed), strict=True):
            assert mine.shape == other.shape and mine.dtype == other.dtype
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
        rows = {p.node: p.device for p in session.placement}
        assert set(rows) >= {n.name for n in model.graph.node}
        names = {name for name, place in rows.items() if place == "folded"}
        assert offences(model, names) == [], onnx.printer.to_text(model)
        assert fallback == "cpu" or "cpu" not in rows.values()
    return sorted(names)


@settings(
    max_examples=examples(120),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much],
)
@given(models(), st.sampled_from(["cpu", "error", "error"]))
def test_only_shapes_and_constants_fold(model: onnx.ModelProto, fallback: str) -> None:
    try:
        check(model, fallback)
    except od.UnsupportedModelError as error:
        assert fallback == "error" and error.nodes


def shapes_as_data() -> onnx.ModelProto:
    b = Builder()
    pair = b.add("Mul", "k ones")
    table = b.add("Reshape", f"x {pair}")
    number = b.add("Cast", b.add("Mul", f"{pair} {pair}"), to=FLOAT)
    factor = b.add("Exp", b.add("Sigmoid", b.add("ReduceSum", number, keepdims=0)))
    return b.model([b.add("Mul", f"{table} {factor}")])


def test_a_shape_that_is_also_data_is_computed_when_the_model_runs() -> None:
    assert check(shapes_as_data(), "cpu") == []
    assert check(shapes_as_data(), "error") == []


def test_the_shape_of_a_reshaped_tensor_is_what_its_operand_said() -> None:
    b = Builder()
    shape = b.add("Shape", b.add("Reshape", "x k"))
    b.add("Mul", "x " + b.add("ReduceSum", b.add("Cast", shape, to=FLOAT), keepdims=0))
    assert check(b.model(["v4"]), "cpu") == []
    alone = Builder()
    shown = alone.add("Shape", alone.add("Reshape", "x k"))
    assert check(alone.model([shown]), "error") == []  # a constant of the program, which the device moves


def test_an_input_that_decides_shapes_is_an_operand_of_the_transaction() -> None:
    """``s`` decides a shape, and is what Add adds: other values, other answers."""
    ends = [helper.make_tensor_value_info("x", FLOAT, [12]), helper.make_tensor_value_info("s", FLOAT, [4])]
    nodes = [
        helper.make_node("Reshape", ["x", "images"], ["i"], name="images"),
        helper.make_node("Resize", ["i", "", "s"], ["r"], name="resize"),
        helper.make_node("Add", ["s", "s"], ["y"], name="add"),
    ]
    tensors = [numpy_helper.from_array(np.int64([1, 1, 3, 4]), "images")]
    graph = helper.make_graph(
        nodes, "g", ends, [helper.make_empty_tensor_value_info(n) for n in "ry"], tensors
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = od.InferenceSession(model)
    for size in (1, 2):
        scales = np.float32([1, 1, size, size])
        r, y = session.run(None, {"x": FEEDS[0]["x"], "s": scales})
        assert r.shape == (1, 1, 3 * size, 4 * size)
        np.testing.assert_array_equal(y, 2 * scales)
        assert {p.node: p.device for p in session.placement}["add"] == "npu"
        (step,) = session.model.executables[next(reversed(session.model.executables))].device_steps
        assert "s" in [slot.name for slot in step.inputs]


def test_known_only_once_shapes_are_known_still_folds_as_data() -> None:
    b = Builder()
    root = b.add("Sqrt", b.add("Cast", b.add("Gather", b.add("Shape", "x") + " zero"), to=FLOAT))
    b.add("Div", f"x {root}")
    assert check(b.model(["v4"]), "error") == ["n0", "n1", "n2", "n3"]
