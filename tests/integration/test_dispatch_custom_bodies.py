# SPDX-License-Identifier: Apache-2.0
"""Nodes of custom domains in local functions and in bodies of other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import onedispatch as od
from onedispatch.operators.plugin.node import Node
from tests.integration.custom import Array, Bring, acme, feed
from tests.plugins import model, value

# -- functions and bodies -------------------------------------------------------------------------


def test_custom_nodes_of_local_functions(bring: Bring) -> None:
    bring()
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    body = [acme("p q", "t", a=3.0), helper.make_node("Relu", ["t"], ["r"])]
    function = helper.make_function("local", "Twice", ["p", "q"], ["r"], body, imports)
    call = helper.make_node("Twice", ["x", "y"], ["z"], domain="local", name="call")
    inputs = [value("x", [3, 5]), value("y", [3, 5])]
    proto = model([call], inputs, [value("z", [3, 5])], (("", 17), ("local", 1), ("acme", 1)))
    proto.functions.append(function)
    arrays = feed(3, 5)
    (found,) = od.InferenceSession(proto).run(None, arrays)
    np.testing.assert_array_equal(found, np.maximum(3 * arrays["x"] + arrays["y"], 0))


def looping(op_type: str = "ScaleAdd") -> ModelProto:
    """x, then three times ``2 * v + y``, in the body of a Loop."""
    body = helper.make_graph(
        [acme("v y", "v2", op_type, name="inner", a=2.0), helper.make_node("Identity", ["c"], ["c2"])],
        "body",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("v", [3])],
        [value("c2", [], TensorProto.BOOL), value("v2", [3])],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["z"], name="loop", body=body)
    inputs = [value("n", [], TensorProto.INT64), value("x", [3]), value("y", [3])]
    return model([loop], inputs, [value("z", [3])])


def test_custom_nodes_in_bodies_run_on_the_host(bring: Bring) -> None:
    bring()
    session = od.InferenceSession(looping())
    x, y = np.float32([1, 2, 3]), np.float32([1, 0, -1])
    (found,) = session.run(None, {"n": np.asarray(3), "x": x, "y": y})
    np.testing.assert_array_equal(found, 2 * (2 * (2 * x + y) + y) + y)
    (row,) = session.placement
    assert row.device == "cpu" and "onnx's reference evaluator" in row.reason


def scanning(nodes: Sequence[NodeProto], rounds: bool, stop: float | None) -> ModelProto:
    """A Loop that gives its value, and of every round that value and its largest element."""
    body = helper.make_graph(
        [
            *nodes,
            helper.make_node("ReduceMax", ["v2"], ["most"], keepdims=0),
            helper.make_node("Identity", ["v2"], ["v3"]),
            helper.make_node("Identity", ["c"], ["c2"])
            if stop is None
            else helper.make_node("Less", ["most", "stop"], ["c2"]),
        ],
        "body",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("v", [3])],
        [value("c2", [], TensorProto.BOOL), value("v2", [3]), value("v3", [3]), value("most", [])],
        initializer=[helper.make_tensor("two", 1, [], [2.0]), helper.make_tensor("stop", 1, [], [stop or 0])],
    )
    loop = helper.make_node("Loop", ["n" if rounds else "", "", "x"], ["z", "all", "mosts"], body=body)
    inputs = [value("x", [3]), value("y", [3]), *([value("n", [], TensorProto.INT64)] if rounds else [])]
    return model([loop], inputs, [value("z", [3]), value("all", ["k", 3]), value("mosts", ["k"])])


@pytest.mark.parametrize(("rounds", "stop"), [(3, None), (5, 40.0), (None, 40.0), (1, 40.0)])
def test_loops_give_what_onnxruntime_gives(rounds: int | None, stop: float | None, bring: Bring) -> None:
    """The same loop twice: its body with a custom kernel, and with ONNX's operators."""
    bring()
    plain = [helper.make_node("Mul", ["v", "two"], ["w"]), helper.make_node("Add", ["w", "y"], ["v2"])]
    given = {"x": np.float32([1, 2, 3]), "y": np.float32([1, 0, -1])}
    given |= {"n": np.asarray(rounds)} if rounds else {}
    ours, theirs = (
        od.InferenceSession(scanning(nodes, rounds is not None, stop)).run(None, given)
        for nodes in ([acme("v y", "v2", name="inner", a=2.0)], plain)
    )
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_bodies_that_nobody_runs_with_kernels_from_outside(bring: Bring) -> None:
    bring()
    body = helper.make_graph([acme("v v", "w", a=2.0)], "body", [value("v", [3])], [value("w", [3])])
    scan = helper.make_node("Scan", ["x"], ["z"], name="scan", body=body, num_scan_inputs=1)
    with pytest.raises(od.UnsupportedModelError, match="bodies of If and Loop") as refused:
        od.compile(model([scan], [value("x", [9000, 3])], [value("z", [9000, 3])]))
    assert refused.value.nodes == ("scan (Scan): its body has acme.ScaleAdd",)
    session = od.InferenceSession(model([scan], [value("x", [4, 3])], [value("z", [4, 3])]))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    (z,) = session.run(None, {"x": x})  # of few rounds each is part of the graph
    np.testing.assert_array_equal(z, 3 * x)
    assert [row.op_type for row in session.placement if row.op_type == "ScaleAdd"] == ["ScaleAdd"] * 4


def test_a_body_of_a_branch_that_is_known_is_no_body_any_more(bring: Bring) -> None:
    bring()
    branches = [
        helper.make_graph([acme("x x", "z", name=name, a=a)], name, [], [value("z", [3])])
        for name, a in (("yes", 1.0), ("no", 5.0))
    ]
    node = helper.make_node("If", ["c"], ["z"], then_branch=branches[0], else_branch=branches[1])
    constant = helper.make_tensor("c", TensorProto.BOOL, [], [False])
    proto = model([node], [value("x", [3])], [value("z", [3])], initializer=[constant])
    session = od.InferenceSession(proto)
    np.testing.assert_array_equal(session.run(None, {"x": np.ones(3, np.float32)})[0], [6, 6, 6])
    assert [row.op_type for row in session.placement if row.device != "folded"] == ["ScaleAdd"]


def test_what_is_missing_in_bodies_is_named(bring: Bring) -> None:
    bring()
    with pytest.raises(od.UnknownOperatorError) as refused:
        od.compile(looping("ScaleAd"))
    assert refused.value.nodes == ("in a body of loop: acme.ScaleAd (nearest: acme.ScaleAdd)",)


def test_an_error_in_a_body_stays_what_it_is(bring: Bring) -> None:
    def computed(n: Node, x: Array, y: Array) -> Array:
        raise n.refuse("broadcast", "y", "nothing that goes", "what goes")

    bring(computed=computed)
    session = od.InferenceSession(looping())
    arrays = {"n": np.asarray(1), "x": np.zeros(3, np.float32), "y": np.zeros(3, np.float32)}
    with pytest.raises(od.KernelBroadcastError) as refused:
        session.run(None, arrays)
    assert refused.value.node == "inner"


def test_a_reference_that_raises_or_gives_something_else(bring: Bring) -> None:
    kernel = bring()
    proto = model([acme("x x", "z", name="n0")], [value("x", [3])], [value("z", None)])
    session = od.InferenceSession(proto)

    def given(result: Any) -> Any:
        kernel.computed = lambda n, x, y: result() if callable(result) else result
        return session.run(None, {"x": np.zeros(3, np.float32)})

    for wrong in (np.zeros(4, np.float32), np.zeros(3), 1.0, "text"):
        with pytest.raises(
            od.KernelOutputSizeError, match=r"n0.*output z of the kernel's reference.*as infer says"
        ):
            given(wrong)
    with pytest.raises(od.KernelOutputCountError, match="given 2; accepted: 1"):
        given((np.zeros(3, np.float32), np.zeros(3, np.float32)))
    with pytest.raises(od.InternalError, match=r"node n0 .* on the host.*ZeroDivisionError"):
        given(lambda: 1 // 0)
    assert given(np.ones(3, np.float32))[0].sum() == 3
