# SPDX-License-Identifier: Apache-2.0
"""Ifs with a known condition: their branch is part of the graph, and gives the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onedispatch as od

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL
X = np.linspace(-2, 2, 6).astype(np.float32).reshape(2, 3)


def node(op: str, reads: str, writes: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, reads.split(), writes.split(), name=f"{op.lower()} {writes}", **attributes)


def branch(nodes: list[NodeProto], outputs: str, **weights: np.ndarray) -> GraphProto:
    outs = [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs.split()]
    return helper.make_graph(
        nodes, "branch", [], outs, [numpy_helper.from_array(a, n) for n, a in weights.items()]
    )


def model(nodes: list[NodeProto], outputs: str, **weights: np.ndarray) -> onnx.ModelProto:
    ins = [helper.make_tensor_value_info("x", FLOAT, ["N", 3])]
    outs = [helper.make_empty_tensor_value_info(n) for n in outputs.split()]
    tensors = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "g", ins, outs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(proto: onnx.ModelProto, fallback: str = "error", x: np.ndarray = X) -> dict[str, tuple[str, str]]:
    """The answers are onnx's own (onnxruntime takes no captured outputs); placement by node."""
    session = od.InferenceSession(proto, fallback=fallback)
    theirs = ReferenceEvaluator(proto)
    for mine, other in zip(session.run(None, {"x": x}), theirs.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    assert len({p.node for p in session.placement}) == len(session.placement)
    return {p.node: (p.op_type, p.device) for p in session.placement}


@pytest.mark.parametrize("taken", [True, False])
def test_a_constant_condition(taken: bool) -> None:
    then, other = branch([node("Relu", "x", "t")], "t"), branch([node("Sigmoid", "x", "t")], "t")
    proto = model(
        [node("If", "c", "r", then_branch=then, else_branch=other), node("Exp", "r", "y")],
        "y",
        c=np.array(taken),
    )
    rows = check(proto)
    assert rows["if r"] == ("If", "folded") and rows["exp y"] == ("Exp", "npu")
    assert rows["relu t" if taken else "sigmoid t"][1] == "npu" and len(rows) == 3


def shape_condition() -> list[NodeProto]:
    return [node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Greater", "n two", "c")]


@pytest.mark.parametrize(("rows", "op"), [(2, "Sigmoid"), (5, "Relu")])
def test_a_condition_that_shapes_decide(rows: int, op: str) -> None:
    """Squeeze-like exports: one graph for all shapes, one branch once these are known."""
    then, other = branch([node("Relu", "x", "t")], "t"), branch([node("Sigmoid", "x", "t")], "t")
    proto = model(
        [*shape_condition(), node("If", "c", "y", then_branch=then, else_branch=other)],
        "y",
        zero=np.int64(0),
        two=np.int64(2),
    )
    placed = check(proto, x=np.ones((rows, 3), np.float32))
    assert (op, "npu") in placed.values()
    assert ("If", "folded") in placed.values()


def test_a_condition_that_values_decide_stays_on_the_host() -> None:
    then, other = branch([node("Relu", "x", "t")], "t"), branch([node("Sigmoid", "x", "t")], "t")
    nodes = [
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Cast", "sum", "c", to=BOOL),
        node("If", "c", "y", then_branch=then, else_branch=other),
    ]
    assert check(model(nodes, "y"), "cpu")["if y"] == ("If", "cpu")
    with pytest.raises(od.UnsupportedModelError, match="If"):
        check(model(nodes, "y"))


def flagged(*more: NodeProto) -> onnx.ModelProto:
    """An If on an input of the model, whose branches give results of different shapes."""
    then = branch([node("Relu", "x", "t")], "t")
    other = branch([node("ReduceSum", "x", "t", keepdims=1)], "t")
    proto = model([node("If", "flag", "r", then_branch=then, else_branch=other), *more], "y")
    proto.graph.input.append(helper.make_tensor_value_info("flag", BOOL, [1]))
    return proto


@pytest.mark.parametrize("also_data", [False, True])
def test_a_condition_that_the_caller_says(also_data: bool, tmp_path: Any) -> None:
    last = [node("Cast", "flag", "f", to=FLOAT), node("Add", "r f", "y")] if also_data else []
    proto = flagged(*(last or [node("Exp", "r", "y")]))
    compiled = od.compile(proto, fallback="error")
    assert compiled.deciding == {"flag"}
    theirs, path = ReferenceEvaluator(proto), tmp_path / "model.od"
    compiled.save(path)
    for session in (od.InferenceSession(compiled), od.InferenceSession(path)):
        for taken in (True, False, True):
            feed = {"x": X, "flag": np.array([taken])}
            np.testing.assert_allclose(session.run(None, feed)[0], theirs.run(None, feed)[0], 1e-5, 1e-6)
            assert session.last_run is not None and session.last_run.dispatches == 1
        assert len(session.model.executables) == 2


def by_rate(
    nodes: list[NodeProto], kind: int = TensorProto.INT64, size: Any = 1, also: str = ""
) -> onnx.ModelProto:
    """An If whose condition ``c`` is computed of the input ``rate``, as of voice detectors."""
    then, other = branch([node("Relu", "x", "t")], "t"), branch([node("Sigmoid", "x", "t")], "t")
    last = [node("If", "c", "r", then_branch=then, else_branch=other), node("Exp", "r", "y")]
    one = np.ones(1, helper.tensor_dtype_to_np_dtype(kind))
    proto = model([*nodes, *last], f"y {also}".strip(), one=one, first=np.int64(0), flat=np.array([-1]))
    proto.graph.input.append(helper.make_tensor_value_info("rate", kind, [size]))
    return proto


CHOSEN = {
    "equal": [node("Equal", "rate one", "c")],
    "another": [node("Equal", "rate one", "e"), node("Not", "e", "c")],
    "reshaped": [
        node("Reshape", "rate flat", "r1"),
        node("Gather", "r1 first", "r2", axis=0),
        node("Cast", "r2", "r3", to=TensorProto.INT32),
        node("Cast", "one", "one3", to=TensorProto.INT32),
        node("Equal", "r3 one3", "e"),
        node("Equal", "rate one", "f"),
        node("Or", "e f", "c"),
    ],
}


@pytest.mark.parametrize("how", CHOSEN)
def test_a_mode_that_the_caller_says_chooses_a_branch(how: str, tmp_path: Any) -> None:
    proto = by_rate(CHOSEN[how])
    compiled = od.compile(proto, fallback="error")
    assert compiled.deciding == {"rate"}
    theirs, path = ReferenceEvaluator(proto), tmp_path / "model.od"
    compiled.save(path)
    for session in (od.InferenceSession(compiled), od.InferenceSession(path)):
        for rate in (1, 2, 1):
            feed = {"x": X, "rate": np.array([rate])}
            np.testing.assert_allclose(session.run(None, feed)[0], theirs.run(None, feed)[0], 1e-5, 1e-6)
            assert session.last_run is not None and session.last_run.dispatches == 1
        assert len(session.model.executables) == 2


EMBEDDED = [node("Equal", "rate one", "c"), node("Add", "rate one", "also")]
TOKENS = [node("Gather", "rate first", "token", axis=0), node("Equal", "token one", "c")]

STAYS = {
    "read as data": by_rate(EMBEDDED, also="also"),
    "of unknown length": by_rate(TOKENS, size="N"),
    "a count": by_rate([node("Greater", "rate one", "c")]),
    "computed": by_rate([node("Add", "rate one", "n"), node("Equal", "n one", "c")]),
    "a float": by_rate([node("Equal", "rate one", "c")], FLOAT),
    "data": by_rate([node("ReduceMax", "rate", "n", keepdims=1), node("Equal", "n one", "c")], size=2),
}


@pytest.mark.parametrize("what", STAYS)
def test_a_condition_that_is_computed_of_data_stays(what: str) -> None:
    """What differs from run to run would be another executable each time."""
    proto, rate = STAYS[what], STAYS[what].graph.input[1].type.tensor_type
    with pytest.raises(od.UnsupportedModelError, match=r"no device operator for ai\.onnx\.If"):
        od.compile(proto, fallback="error")
    dtype = helper.tensor_dtype_to_np_dtype(rate.elem_type)
    feed = {"x": X, "rate": np.ones(rate.shape.dim[0].dim_value or 3, dtype)}
    session = od.InferenceSession(proto)
    (mine, *_) = session.run(None, feed)
    np.testing.assert_allclose(mine, ReferenceEvaluator(proto).run(None, feed)[0], rtol=1e-5)
    assert not session.model.deciding


def test_names_stay_unique() -> None:
    """Both Ifs and the graph around them use ``t``, for values and for nodes."""

    def one(op: str) -> GraphProto:
        inner = [node(op, "x", "t"), node("Neg", "t", "u")]
        return branch(inner, "u")

    nodes = [
        node("Exp", "x", "t"),
        node("If", "c", "a", then_branch=one("Relu"), else_branch=one("Tanh")),
        node("If", "c", "b", then_branch=one("Sigmoid"), else_branch=one("Tanh")),
        node("Sum", "t a b", "y"),
    ]
    rows = check(model(nodes, "y", c=np.array(True)))
    assert [op for op, _ in rows.values()].count("Neg") == 2 and len(rows) == 8


def test_ifs_inside_ifs_and_values_captured_from_between() -> None:
    deep = branch([node("Add", "x h", "d")], "d")
    inside = [
        node("Relu", "x", "h"),
        node("If", "c", "e", then_branch=deep, else_branch=branch([node("Neg", "h", "f")], "f")),
    ]
    nodes = [
        node("Exp", "x", "h_outside"),
        node(
            "If", "c", "a", then_branch=branch(inside, "e"), else_branch=branch([node("Neg", "x", "z")], "z")
        ),
        node("Add", "a h_outside", "y"),
    ]
    rows = check(model(nodes, "y", c=np.array(True)))
    assert [op for op, _ in rows.values()].count("If") == 2 and ("Neg", "npu") not in rows.values()


def test_a_host_if_inside_reads_renamed_values() -> None:
    """``h`` exists twice; the inner If stays on the host and must read the inner one."""
    run_time = [node("ReduceSum", "x", "sum", keepdims=0), node("Cast", "sum", "c2", to=BOOL)]
    deep = branch([node("Add", "h x", "d")], "d")
    inside = [
        node("Relu", "x", "h"),
        node("If", "c2", "e", then_branch=deep, else_branch=branch([node("Neg", "h", "f")], "f")),
    ]
    taken = branch(inside, "e")
    nodes = [
        *run_time,
        node("If", "c", "a", then_branch=taken, else_branch=branch([node("Neg", "x", "z")], "z")),
    ]
    nodes += [node("Exp", "x", "h"), node("Add", "a h", "y")]
    assert ("If", "cpu") in check(model(nodes, "y", c=np.array(True)), "cpu").values()


def test_outputs_that_the_branch_only_hands_on() -> None:
    """A captured value, an initializer, a Constant, and one value twice."""
    inside = [node("Constant", "", "k", value_float=2.0), node("Relu", "x", "r")]
    taken = branch(inside, "e w k r r", w=np.float32([[3, 4, 5]]))
    other = branch([node("Neg", "x", "n")], "n n n n n")
    nodes = [
        node("Exp", "x", "e"),
        node("If", "c", "a b k1 d e1", then_branch=taken, else_branch=other),
        node("Sum", "a b k1 d e1", "y"),
    ]
    check(model(nodes, "y a b d", c=np.array(True)))


def test_a_condition_of_several_elements_is_left_to_the_host() -> None:
    taken = branch([node("Relu", "x", "t")], "t")
    proto = model([node("If", "c", "y", then_branch=taken, else_branch=taken)], "y", c=np.array([True, True]))
    session = od.InferenceSession(proto, shapes={"x": X.shape})
    assert [p.device for p in session.placement] == ["cpu"]


def test_a_broken_branch_is_a_model_error() -> None:
    good, bad = branch([node("Relu", "x", "t")], "t"), branch([node("Relu", "nowhere", "t")], "t")
    for nodes in (
        [node("If", "c", "y", then_branch=bad, else_branch=good)],
        [node("If", "c", "y z", then_branch=good, else_branch=good)],
        [node("If", "c", "y", else_branch=good)],
        [node("If", "c", "y", then_branch=branch([node("Relu", "x x", "t")], "t"), else_branch=good)],
    ):
        with pytest.raises(od.ModelError):
            od.compile(model(nodes, "y", c=np.array(True)))


def test_a_saved_model_inlines_too(tmp_path: Any) -> None:
    then, other = branch([node("Relu", "x", "t")], "t"), branch([node("Sigmoid", "x", "t")], "t")
    nodes = [*shape_condition(), node("If", "c", "y", then_branch=then, else_branch=other)]
    proto = model(nodes, "y", zero=np.int64(0), two=np.int64(2))
    od.compile(proto, fallback="error").save(tmp_path / "m.od")
    session = od.InferenceSession(od.load(tmp_path / "m.od"))
    np.testing.assert_array_equal(session.run(None, {"x": X.repeat(2, 0)})[0], np.maximum(X.repeat(2, 0), 0))
    assert {p.op_type: p.device for p in session.placement}["Relu"] == "npu"
