# SPDX-License-Identifier: Apache-2.0
"""Loops and Scans of a known number of rounds: the nodes of all rounds, with onnxruntime's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import onedispatch as od
from tests.ops.case import run_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

ONE = "g (float[2,3] x) => (float[2,3] y)"
TWO = "g (float[2,3] x) => (float[2,3] y, float[?, ?, ?] z)"
CONSTANTS = (
    "int64 four = {4}, int64 none = {0}, bool yes = {1}, bool no = {0}, float half = {0.5}, int64 zero = {0},"
    " float[3] w = {1, 2, 3}, int64 two = {2}, float ten = {10.0}, int64 many = {100000}"
)
STEP = "b (int64 i, bool c, float[2,3] v) => (bool o, float[2,3] u)"
STACK = "b (int64 i, bool c, float[2,3] v) => (bool o, float[2,3] u, float[2,3] s)"
COUNTER = "b (int64 i, bool c, int64 k, float[2,3] v) => (bool o, int64 l, float[2,3] u)"
LOOPS = {
    "rounds": (
        ONE,
        f"y = Loop<body={STEP} {{ o = Identity(c) t = Mul(v, w) u = Mul(t, half) }}>(four, yes, x)",
    ),
    "without condition": (ONE, f"y = Loop<body={STEP} {{ o = Identity(c) u = Neg(v) }}>(four, , x)"),
    "stacked": (
        TWO,
        f"y, z = Loop<body={STACK} {{ o = Identity(c) u = Mul(v, w) s = Neg(u) }}>(four, yes, x)",
    ),
    "only stacked": (
        "g (float[2,3] x) => (float[?, ?, ?] z)",
        "z = Loop<body=b (int64 i, bool c) => (bool o, float[2,3] s) { o = Identity(c) f = Cast<to=1>(i)"
        " s = Add(x, f) }>(four, yes)",
    ),
    "number of the round": (
        ONE,
        f"y = Loop<body={STEP} {{ o = Identity(c) f = Cast<to=1>(i) u = Add(v, f) }}>(four, yes, x)",
    ),
    "what a round leaves": (
        ONE,
        "y, q = Loop<body=b (int64 i, bool c, float[2,3] v, float[3] k) => (bool o, float[2,3] u,"
        " float[3] k) {"
        " o = Identity(c) u = Add(v, k) }>(four, yes, x, w)",
    ),
    "states that change places": (
        ONE,
        "n = Neg(x) y, q = Loop<body=b (int64 i, bool c, float[2,3] v, float[2,3] k) => (bool o,"
        " float[2,3] k,"
        " float[2,3] u) { o = Identity(c) u = Add(v, k) }>(four, yes, x, n)",
    ),
    "constants inside": (
        ONE,
        f"y = Loop<body={STEP} <float[3] h = {{3, 4, 5}}> {{ o = Identity(c) k = Constant<value_float=2.0>()"
        " t = Mul(v, k) u = Sub(t, h) }>(four, yes, x)",
    ),
    "none": (ONE, f"t = Loop<body={STEP} {{ o = Identity(c) u = Neg(v) }}>(none, yes, x) y = Exp(t)"),
    "none by condition": (
        ONE,
        f"t = Loop<body={STEP} {{ o = Identity(c) u = Neg(v) }}>(four, no, x) y = Exp(t)",
    ),
    "until the condition fails": (
        ONE,
        f"k, y = Loop<body={COUNTER} {{ one = Constant<value_int=1>() three = Constant<value_int=3>()"
        " l = Add(k, one) o = Less(l, three) u = Mul(v, w) }>(, yes, zero, x)",
    ),
    "count and condition": (
        ONE,
        f"k, y = Loop<body={COUNTER} {{ step = Constant<value_int=2>() l = Add(k, step) a = Less(l, four)"
        " o = And(a, c) u = Mul(v, w) }>(four, yes, zero, x)",
    ),
    "condition of captured values": (
        ONE,
        f"e = Shape(x) n = ReduceProd<keepdims=0>(e) y = Loop<body={STEP} {{ k = Add(i, four) o = Less(k, n)"
        " u = Mul(v, w) }>(, yes, x)",
    ),
    "rounds of a size": (
        "g (float[N,3] x) => (float[N,3] y)",
        "e = Shape(x) n = Gather(e, zero) y = Loop<body=b (int64 i, bool c, float[N,3] v) => (bool o,"
        " float[N,3] u)"
        " { o = Identity(c) r = Gather<axis=0>(x, i) u = Add(v, r) }>(n, yes, x)",
    ),
    "an If inside": (
        ONE,
        f"y = Loop<body={STEP} {{ o = Identity(c) t = Greater(i, zero) u = If(t) <then_branch = p () =>"
        " (float[2,3] r) { r = Exp(v) }, else_branch = q () => (float[2,3] r) { r = Neg(v) }> }>(two,"
        " yes, x)",
    ),
    "a Loop inside": (
        ONE,
        f"y = Loop<body={STEP} {{ o = Identity(c) m = Add(i, two) u = Loop<body=e (int64 j, bool d,"
        " float[2,3] p)"
        " => (bool q, float[2,3] r) { q = Identity(d) t = Mul(p, half) r = Add(t, v) }>(m, yes, v)"
        " }>(two, yes, x)",
    ),
    "a sequence as state": (
        "g (float[2,3] x) => (float[?, ?] y)",
        "e = SequenceEmpty() s = Loop<body=b (int64 i, bool c, seq(float[2,3]) p) => (bool o,"
        " seq(float[2,3]) q) {"
        " o = Identity(c) f = Cast<to=1>(i) a = Add(x, f) q = SequenceInsert(p, a) }>(four, yes, e)"
        " y = ConcatFromSequence<axis = 1>(s)",
    ),
    "number of the round in a row": (
        "g (float[2,3] x) => (float[2,3] y, int64[a,b] z)",
        "y, z = Loop<body=b (int64[1] i, bool c, float[2,3] v) => (bool o, float[2,3] u, int64[1] s) {"
        " o = Identity(c) u = Neg(v) s = Identity(i) }>(four, yes, x)",
    ),
    "a state whose name an inner body has": (
        "g (float[2,3] v) => (float[2,3] y)",
        "y = Loop<body=b (int64 i, bool c, float[2,3] a) => (bool o, float[2,3] u) { o = Identity(c)"
        " u = Loop<body=d (int64 j, bool e, float[2,3] v) => (bool e2, float[2,3] r) { e2 = Identity(e)"
        " s = Mul(v, half) r = Add(s, a) }>(two, yes, a) }>(two, yes, v)",
    ),
    "inputs that only an inner body reads": (
        ONE,
        "y = Loop<body=b (int64 i, bool c, float[2,3] v) => (bool c, float[2,3] u) {"
        " u = Loop<body=d (int64 j, bool e, float[2,3] p) => (bool e, float[2,3] r) {"
        " k = Add(i, j) s = Cast<to=1>(k) r = Add(s, p) }>(two, yes, v) }>(two, yes, x)",
    ),
    "names that are there": (
        ONE,
        f"n = Neg(x) y0 = Loop<body={STEP} {{ o = Identity(c) t = Exp(v) u = Neg(t) }}>(two, yes, n)"
        f" y1 = Loop<body={STEP} {{ o = Identity(c) t = Abs(v) u = Sqrt(t) }}>(two, yes, y0) y = Add(y1, n)",
    ),
}
SCAN = "b (float[3] s, float[3] r) => (float[3] t, float[3] q)"
SCANS = {
    "sums": (
        "g (float[3] a, float[4,3] x) => (float[3] y, float[?, ?] z)",
        f"y, z = Scan<num_scan_inputs=1, body={SCAN} {{ t = Add(s, r) q = Mul(t, w) }}>(a, x)",
    ),
    "backward": (
        "g (float[3] a, float[4,3] x) => (float[3] y, float[?, ?] z)",
        "y, z = Scan<num_scan_inputs=1, scan_input_directions = [1], scan_output_directions = [1],"
        f" body={SCAN} {{ t = Mul(s, w) p = Add(t, r) q = Neg(p) }}>(a, x)",
    ),
    "columns": (
        "g (float[3] a, float[3,4] x) => (float[3] y, float[?, ?] z)",
        "y, z = Scan<num_scan_inputs=1, scan_input_axes = [-1], scan_output_axes = [1],"
        f" body={SCAN} {{ t = Sub(s, r) q = Identity(t) }}>(a, x)",
    ),
    "several": (
        "g (float[3] a, float[4,3] x, float[4,3] k) => (float[3] y, float[?, ?] z)",
        "y, z = Scan<num_scan_inputs=2, body=b (float[3] s, float[3] r, float[3] h) => (float[3] t,"
        " float[3] q) {"
        " m = Mul(r, h) t = Add(s, m) q = Identity(r) }>(a, x, k)",
    ),
    "operands that are left out": (
        "g (float[4,3] x) => (float[?, ?] z)",
        "z = Scan<num_scan_inputs=1, body=b (float[3] r) => (float[3] q) { q = Clip(r, , half) }>(x)",
    ),
    "a state whose name an inner body has": (
        "g (float[3] a, float[4,3] x) => (float[3] y)",
        "y = Loop<body=b (int64 i, bool c, float[3] s) => (bool o, float[3] u) { o = Identity(c)"
        " u, q = Scan<num_scan_inputs=1, body=d (float[3] t, float[3] a) => (float[3] t2, float[3] m) {"
        " m = Mul(a, s) t2 = Add(t, m) }>(s, x) }>(two, yes, a)",
    ),
    "no state": (
        "g (float[4,3] x) => (float[?, ?] z)",
        "z = Scan<num_scan_inputs=1, body=b (float[3] r) => (float[3] q) { q = Mul(r, w) }>(x)",
    ),
}
EVERY = {**LOOPS, **{f"scan, {name}": one for name, one in SCANS.items()}}


def model(head: str, body: str, opset: int = 17) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["": {opset}]> {head} <{CONSTANTS}> {{ {body} }}'
    proto: onnx.ModelProto = parser.parse_model(text)
    return proto


def feed_of(proto: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(7)
    shapes = {
        one.name: [d.dim_value or 2 for d in one.type.tensor_type.shape.dim] for one in proto.graph.input
    }
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("name", "opset"),
    # Sequences are states from operator set 13 on.
    [(name, opset) for name in EVERY for opset in (12, 17, 21) if opset > 12 or "sequence" not in name],
)
def test_the_device_computes_all_rounds(name: str, opset: int) -> None:
    proto = model(*EVERY[name], opset)
    feed = feed_of(proto)
    session = od.InferenceSession(proto, fallback="error")
    for mine, other in zip(session.run(None, feed), run_onnxruntime(proto, feed), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-6)
    assert not {"Loop", "Scan"} & {row.op_type for row in session.placement if row.device == "cpu"}


def test_the_placement_says_how_many_rounds_there_are() -> None:
    session = od.InferenceSession(model(*LOOPS["rounds"]))
    (row,) = (row for row in session.placement if row.op_type == "Loop")
    assert "its 4 rounds are part of the graph" in row.reason
    assert [row.node for row in session.placement if row.op_type == "Mul"] == [
        f"Loop_0/{at}/Mul_{place}" for at in range(4) for place in (1, 2)
    ]


STAY = {
    "depends on 'n', which is data": (
        "g (float[2,3] x, int64 n) => (float[2,3] y)",
        f"y = Loop<body={STEP} {{ o = Identity(c) u = Neg(v) }}>(n, yes, x)",
    ),
    "200,000 nodes in 100,000 rounds, more than": (
        ONE,
        f"y = Loop<body={STEP} {{ o = Identity(c) u = Neg(v) }}>(many, yes, x)",
    ),
    "it has no end": (ONE, f"y = Loop<body={STEP} {{ o = Identity(c) u = Neg(v) }}>(, yes, x)"),
    "it has more than 2,999 rounds": (
        ONE,
        f"y = Loop<body={STEP} {{ o = Less(i, many) u = Neg(v) }}>(, yes, x)",
    ),
    "no device operator for ai.onnx.NonZero of its body": (
        ONE,
        f"y = Loop<body={STEP} {{ o = Identity(c) n = NonZero(v) f = Cast<to=1>(n) s ="
        " ReduceSum<keepdims=0>(f)"
        " u = Mul(v, s) }>(four, yes, x)",
    ),
    "its condition depends on 'x', which is data": (
        ONE,
        f"y = Loop<body={STEP} {{ u = Add(v, v) m = ReduceMax<keepdims=0>(u) o = Less(m, ten) }}>(four,"
        " yes, x)",
    ),
    "its condition has 2 elements": (
        ONE,
        f"y = Loop<body={STEP} {{ t = Constant<value_ints=[5, 6]>() o = Less(t, four)"
        " u = Neg(v) }>(four, yes, x)",
    ),
    "27,000 nodes in 9,000 rounds, more than": (
        "g (float[9000, 3] x) => (float[?, ?] z)",
        "z = Scan<num_scan_inputs=1, body=b (float[3] r) => (float[3] r) {}>(x)",
    ),
    "its body has a node Loop, and what that does depends on 'n', which is data": (
        "g (float[2,3] x, int64 n) => (float[2,3] y)",
        f"y = Loop<body={STEP} {{ o = Identity(c) u = Loop<body=e (int64 j, bool d, float[2,3] p) =>"
        " (bool q, float[2,3] r) { q = Identity(d) r = Neg(p) }>(n, yes, v) }>(four, yes, x)",
    ),
    "x: tensor.double..2, 3., of a type that no device operator takes": (
        "g (double[2,3] x) => (double[2,3] y)",
        "y = Loop<body=b (int64 i, bool c, double[2,3] v) => (bool o, double[2,3] u) { o = Identity(c)"
        " u = Neg(v) }>(four, yes, x)",
    ),
    "it has no rounds that its results would be of": (
        TWO,
        f"y, z = Loop<body={STACK} {{ o = Identity(c) u = Mul(v, w) s = Neg(u) }}>(none, yes, x)",
    ),
}


@pytest.mark.parametrize("reason", STAY)
def test_others_stay_and_say_why(reason: str) -> None:
    with pytest.raises(od.UnsupportedModelError, match=f"not unrolled: .*{reason}"):
        od.InferenceSession(model(*STAY[reason]), fallback="error")


def test_rounds_follow_from_each_shape() -> None:
    proto = model(*LOOPS["rounds of a size"])
    session = od.InferenceSession(proto, fallback="error")
    for rows in (1, 4, 2):
        feed = {"x": np.random.default_rng(rows).standard_normal((rows, 3), np.float32)}
        np.testing.assert_allclose(session.run(None, feed)[0], run_onnxruntime(proto, feed)[0], rtol=1e-6)
