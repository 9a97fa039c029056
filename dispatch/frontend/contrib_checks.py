# SPDX-License-Identifier: Apache-2.0
"""Validity checks of com.microsoft operators, for which ONNX has no schemas: operator -> checks.

Many compute on integers what an operator of ONNX computes on floats: its checks hold for them, of
their tensors without scales and zero points.
"""

from __future__ import annotations

from math import prod

from onedispatch.dispatch.frontend.facts import Facts, NodeCheck
from onedispatch.dispatch.frontend.operator_checks import CHECKS, joined_shapes
from onedispatch.dispatch.frontend.quantise_checks import quantised_checks
from onedispatch.dispatch.frontend.shared_checks import broadcasts
from onedispatch.operators.declarations.registry import MICROSOFT
from onedispatch.transactions.base.text import counted


def as_onnx(op_type: str, *operands: int) -> tuple[NodeCheck, ...]:
    """Returns the checks of ONNX's ``op_type`` on the inputs ``operands``; nodes with channels last pass."""

    def picked(check: NodeCheck) -> NodeCheck:
        return lambda facts: None if facts.attr("channels_last", 0) else check(facts.picked(*operands))

    return tuple(map(picked, CHECKS[op_type]))


def broadcast_together(*operands: int) -> NodeCheck:
    """These operands broadcast to one shape."""

    def check(facts: Facts) -> None:
        shapes = [facts.shape(index) for index in operands]
        known = [shape for shape in shapes if shape is not None]
        rank = max(map(len, known), default=0)
        laid = [(1,) * (rank - len(shape)) + shape for shape in known]
        whole = tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*laid, strict=True))
        for index, shape in zip(operands, shapes, strict=True):
            if shape is not None and not broadcasts(shape, whole):
                facts.refuse(
                    facts.input_name(index), list(shape), f"a shape that broadcasts to {list(whole)}"
                )

    return check


def inner_sizes(a: int, b: int) -> NodeCheck:
    """A product of matrices: a's columns are b's rows."""

    def check(facts: Facts) -> None:
        left, right = facts.shape(a), facts.shape(b)
        for index, shape in ((a, left), (b, right)):
            if shape == ():
                facts.refuse(facts.input_name(index), "a scalar", "rank 1 or more")
        if left and right and left[-1] != right[max(len(right) - 2, 0)]:
            facts.refuse(facts.input_name(b), list(right), f"{counted(left[-1], 'row')}, as A has columns")

    return check


def joined_tensors(facts: Facts) -> None:
    """QLinearConcat: what it joins is every third input, from the third on."""
    joined_shapes(facts.picked(*range(2, len(facts.node.inputs), 3)))


def softmax_version(facts: Facts) -> None:
    """QLinearSoftmax: which Softmax of ONNX it is is said by an attribute, without a default."""
    opset = facts.attr("opset")
    if opset is None or int(opset) < 1:
        facts.refuse(
            "attribute 'opset'", "none" if opset is None else opset, "an operator set of ONNX, 1 or more"
        )


def packed_weights(facts: Facts) -> None:
    """MatMulNBits: weights of N rows and K columns, in blocks of K, of 2, 4 or 8 bits each."""
    sizes = {name: int(facts.attr(name, 0)) for name in ("K", "N", "block_size")}
    bits = int(facts.attr("bits", 4))
    if bits not in (2, 4, 8):
        facts.refuse("attribute 'bits'", bits, "2, 4, 8")
    for name, least in (("K", 1), ("N", 1), ("block_size", 16)):
        if sizes[name] < least:
            facts.refuse(f"attribute {name!r}", sizes[name], f"{least} or more")
    k, n, block = sizes.values()
    if block & (block - 1):
        facts.refuse("attribute 'block_size'", block, "a power of two: 16, 32, 64, 128, 256")
    blocks = -(-k // block)
    a, zero = facts.shape(0), facts.dtype(3)
    if a is not None and (not a or a[-1] != k):
        facts.refuse(facts.input_name(0), list(a), f"rows of {k}, which is K")
    of_blocks = f"{n} x {counted(blocks, 'block')}"
    zeros = -(-blocks * bits // 8) if zero is not None and zero.kind == "u" else blocks  # integers are packed
    counts = {
        1: (n * blocks * (block * bits // 8), f"{of_blocks} of {block} numbers"),
        2: (n * blocks, of_blocks),
        3: (n * zeros, of_blocks),
        4: (blocks * block, f"a group for each of {counted(k, 'column')}"),
        5: (n, "one for each of N"),
    }
    for index, (count, what) in counts.items():
        given = facts.shape(index)
        if given is None or prod(given) == count or (index == 4 and prod(given) == k):
            continue
        facts.refuse(facts.input_name(index), list(given), f"{count} elements: {what}")


def attended_shapes(facts: Facts) -> None:
    """QAttention: columns for queries, keys and values of every head, and masks and past keys that fit."""
    x, w, heads = facts.shape(0), facts.shape(1), int(facts.attr("num_heads", 0))
    if heads < 1:
        facts.refuse("attribute 'num_heads'", heads, "1 or more")
    if x is not None and len(x) != 3:
        facts.refuse(facts.input_name(0), list(x), "rank 3: [batch, sequence, size]")
    if w is not None and (len(w) != 2 or w[1] % (3 * heads) or not w[1] or (x is not None and w[0] != x[2])):
        rows = "as many rows as x has columns" if x is None else counted(x[2], "row")
        facts.refuse(
            facts.input_name(1), list(w), f"{rows}, and {counted(3 * heads, 'column')} or a multiple"
        )
    if x is None or w is None:
        return
    (batch, length, _), columns = x, w[1]
    past, size = facts.shape(8), columns // (3 * heads)
    _fits(facts, 2, [(columns,)])
    if past is not None and (len(past) != 5 or past[:3] + past[4:] != (2, batch, heads, size)):
        facts.refuse(facts.input_name(8), list(past), f"[2, {batch}, {heads}, any, {size}]")
    keys = length + (past[3] if past else 0)
    if past is not None or not facts.has(8):
        _fits(facts, 5, [(batch,), (2 * batch,), (batch, keys), (batch, length, keys)])


def _fits(facts: Facts, index: int, accepted: list[tuple[int, ...]]) -> None:
    given = facts.shape(index)
    if given is not None and given not in accepted:
        facts.refuse(facts.input_name(index), list(given), " or ".join(str(list(one)) for one in accepted))


_QUANTISED = quantised_checks(MICROSOFT)

CONTRIB_CHECKS: dict[str, tuple[NodeCheck, ...]] = {
    **_QUANTISED,
    **{
        op_type: (*_QUANTISED[op_type], *checks)
        for op_type, checks in {
            "DynamicQuantizeMatMul": (inner_sizes(0, 1),),
            "MatMulIntegerToFloat": (inner_sizes(0, 1),),
            "QAttention": (attended_shapes,),
            "QGemm": as_onnx("Gemm", 0, 3, 6),
            "QLinearAdd": (broadcast_together(0, 3),),
            "QLinearAveragePool": as_onnx("AveragePool", 0),
            "QLinearConcat": (joined_tensors,),
            "QLinearConv": as_onnx("Conv", 0, 3, 8),
            "QLinearGlobalAveragePool": as_onnx("GlobalAveragePool", 0),
            "QLinearMul": (broadcast_together(0, 3),),
            "QLinearSoftmax": (softmax_version, *as_onnx("Softmax", 0)),
            "QLinearWhere": (broadcast_together(0, 1, 4),),
        }.items()
    },
    "MatMulNBits": (packed_weights,),
}
