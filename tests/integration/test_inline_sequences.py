# SPDX-License-Identifier: Apache-2.0
"""Sequences whose members are known: tensors take their place, with onnxruntime's results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import onedispatch as od
from tests.ops.case import run_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

HEAD = "g (float[3, 6] x) => (float[?, ?] y)"
TAKEN = {
    "equal chunks": (
        "s = SplitToSequence<axis = -1>(x, four) a = SequenceAt(s, zero) b = SequenceAt(s, last)"
        " m = ReduceMax<axes = [1], keepdims = 1>(b) y = Sub(a, m)"
    ),
    "sizes": "s = SplitToSequence<axis = 1>(x, sizes) a = SequenceAt(s, one) y = Exp(a)",
    "rows": "s = SplitToSequence<axis = 0, keepdims = 0>(x) a = SequenceAt(s, two) y = Reshape(a, line)",
    "rows that stay": "s = SplitToSequence(x) a = SequenceAt(s, one) y = Neg(a)",
    "built": (
        "n = Neg(x) s = SequenceConstruct(x, n) a = SequenceAt(s, one) b = SequenceAt(s, zero) y = Sub(a, b)"
    ),
    "joined": "n = Neg(x) s = SequenceConstruct(x, n, x) y = ConcatFromSequence<axis = 1>(s)",
    "stacked": (
        "n = Neg(x) s = SequenceConstruct(x, n) t = ConcatFromSequence<axis = 0, new_axis = 1>(s)"
        " y = ReduceSum<keepdims = 0>(t, zeros)"
    ),
    "grown": (
        "e = SequenceEmpty() n = Neg(x) s = SequenceInsert(e, x) t = SequenceInsert(s, n, zero)"
        " u = SequenceErase(t) k = SequenceLength(t) f = Cast<to = 1>(k) a = SequenceAt(u, zero)"
        " y = Mul(a, f)"
    ),
    "of what the device computes": (
        "t = Transpose<perm = [1, 0]>(x) s = SplitToSequence<axis = 0>(t, two) a = SequenceAt(s, one)"
        " u = SplitToSequence<axis = 1>(a, one) b = SequenceAt(u, two) y = Neg(b)"
    ),
    "of a shape that is computed": (
        "k = Shape(x) h = Gather(k, zero) r = Unsqueeze(h, zeros) t = Concat<axis = 0>(r, minus)"
        " u = Reshape(x, t) s = SplitToSequence<axis = 1>(u, two) a = SequenceAt(s, two) y = Neg(a)"
    ),
}
CONSTANTS = (
    "int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 four = {4}, int64 last = {-1},"
    " int64[3] sizes = {1, 2, 3}, int64[2] line = {1, 6}, int64[1] zeros = {0}, int64[1] minus = {-1}"
)


def model(body: str, opset: int = 17, head: str = HEAD) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["": {opset}]> {head} <{CONSTANTS}> {{ {body} }}'
    proto: onnx.ModelProto = parser.parse_model(text)
    return proto


def feed() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(3).standard_normal((3, 6), np.float32)}


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("opset", [13, 17])
def test_members_take_the_place_of_a_sequence(name: str, opset: int) -> None:
    proto = model(TAKEN[name], opset)
    session = od.InferenceSession(proto, fallback="error")
    np.testing.assert_allclose(
        session.run(None, feed())[0], run_onnxruntime(proto, feed())[0], rtol=1e-5, atol=1e-6
    )
    assert session.last_run is not None and session.last_run.dispatches == 1
    gone = {row.op_type: row.reason for row in session.placement if row.device == "folded"}
    assert any("members" in reason for op_type, reason in gone.items() if "Sequence" in op_type)


def test_attributes_say_sizes_of_old_operators() -> None:
    body = "s = SplitToSequence<axis = 0, keepdims = 0>(x) a = SequenceAt(s, two) y = Reshape(a, line)"
    proto = model(body, opset=11)
    session = od.InferenceSession(proto, fallback="error")
    np.testing.assert_array_equal(session.run(None, feed())[0], run_onnxruntime(proto, feed())[0])


CHUNK = "s = SplitToSequence<axis = 1>(x, two) a = SequenceAt(s, {at}) y = Neg(a)"


def test_members_are_named_unlike_what_is_there() -> None:
    proto = model(CHUNK.format(at="one"))
    taken = onnx.helper.make_node("Relu", ["x"], ["s/1"], "/Split")
    proto.graph.node.insert(0, taken)
    proto.graph.output.append(onnx.helper.make_tensor_value_info("s/1", onnx.TensorProto.FLOAT, (3, 6)))
    for ours, theirs in zip(
        od.InferenceSession(proto, fallback="error").run(None, feed()),
        run_onnxruntime(proto, feed()),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("given", [{}, {"at": np.asarray(1)}], ids=["an output", "a member by data"])
def test_what_is_not_known_stays(given: dict[str, np.ndarray]) -> None:
    """It is computed on the host."""
    inputs, outputs = ("float[3, 6] x, int64 at", "") if given else ("float[3, 6] x", ", seq(float) s")
    proto = model(CHUNK.format(at="at" if given else "one"), head=f"g ({inputs}) => (float[?, ?] y{outputs})")
    session = od.InferenceSession(proto)
    assert "SplitToSequence" in {row.op_type for row in session.placement if row.device == "cpu"}
    assert given == {} or "Split" not in {row.op_type for row in session.placement}
    ours = session.run(None, feed() | given)
    theirs = run_onnxruntime(proto, feed() | given)
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert all(np.array_equal(a, b) for a, b in zip(ours[1:], theirs[1:], strict=True))


def test_open_shapes_are_known_when_it_runs() -> None:
    proto = model(CHUNK.format(at="one"), head="g (float[N, 6] x) => (float[?, ?] y)")
    session = od.InferenceSession(proto, fallback="error")
    for rows in (3, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 6), np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x[:, 2:4])


def test_members_are_named_unlike_what_is_in_bodies() -> None:
    """The branch has a sequence of its own under the name that the first member would have."""
    branch = """
        b () => (float[?, ?] z) { inner = SequenceConstruct(x, x) z = ConcatFromSequence<axis = 1>(inner) }
    """
    taken = f"If(c)<then_branch = {branch}, else_branch = {branch}>"
    body = f"{CHUNK.format(at='one')} c = Cast<to = 9>(at) d = {taken}"
    head = "g (float[3, 6] x, int64 at) => (float[?, ?] y, float[?, ?] d)"
    proto = model(body, head=head)
    for attribute in proto.graph.node[-1].attribute:
        for node in attribute.g.node:
            for names in (node.input, node.output):
                names[:] = ["s/0" if name == "inner" else name for name in names]
    given = feed() | {"at": np.asarray(1)}
    ours, theirs = od.InferenceSession(proto).run(None, given), run_onnxruntime(proto, given)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_member_that_is_not_there_fails_as_before() -> None:
    proto = model(CHUNK.format(at="four"))
    with pytest.raises(od.OneDispatchError):
        od.InferenceSession(proto).run(None, feed())
