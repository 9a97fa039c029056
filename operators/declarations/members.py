# SPDX-License-Identifier: Apache-2.0
"""Member kernels: their part of a parameter block, and what they cannot declare.

The words, in this order: per index dimension the first member and how many there are; per operand a
reference, what its axes follow, and six words per axis, as many as its highest rank; one per scalar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from onedispatch.operators.declarations.expressions import ExprOp

MOST = 5  # index dimensions, and dimensions of a tensor
SPACE_WORDS = 2 * MOST
AXIS_WORDS = 6  # those of any axis, and how many elements a member touches
_HEAD_WORDS = 2  # of an operand


@dataclass(frozen=True)
class MemberAxis:
    """One dimension of a tensor: member ``i`` of index dimension ``along``, counted from the first of the
    nest, touches ``span`` elements from ``floor(a*i/den) + b`` on. ``along`` None: anything, and ``span`` 0.

    The last ``padding`` of ``extent`` fill up words and are no elements of the tensor.
    """

    extent: int
    padding: int
    along: int | None
    a: int
    den: int
    b: int
    span: int
    align: int = 1

    def fields(self, chunk: int, stride: int, begin: int = 0) -> tuple[int, ...]:
        """Those of ``od_axis``; of what follows no index dimension, the chunk begins at ``begin``."""
        b, along = (begin, -1) if self.along is None else (self.b, self.along)
        return self.extent, chunk, stride, self.a, self.den, self.align, b, self.span, along, self.padding


class Tensor(Protocol):
    """An operand of ``kernel.py``."""

    @property
    def name(self) -> str: ...
    @property
    def axes(self) -> str: ...
    @property
    def axis_names(self) -> tuple[str, ...]: ...
    @property
    def rank(self) -> tuple[int, int]: ...
    @property
    def walk(self) -> str: ...


def words(tensors: Sequence[Tensor]) -> int:
    """Words of the index space and of the operands."""
    return SPACE_WORDS + sum(_HEAD_WORDS + AXIS_WORDS * len(t.axis_names) for t in tensors)


def layout(tensors: Sequence[Tensor], scalars: Sequence[str], at: int) -> Mapping[str, int]:
    """First word of ``members``, of every operand and its ``<operand>_<axis>``, and of every scalar."""
    found = {"members": at}
    at += SPACE_WORDS
    for tensor in tensors:
        found[tensor.name] = at
        at += _HEAD_WORDS
        for axis in tensor.axis_names:
            found[f"{tensor.name}_{axis}"] = at
            at += AXIS_WORDS
    return found | {name: at + i for i, name in enumerate(scalars)}


def fault(kernel: Any) -> tuple[str, object, str] | None:
    """What cannot stand in a ``Kernel``, being a member kernel or not being one: what, given, accepted."""
    for t in kernel.tensors:
        low, high = t.rank
        if not kernel.members and (t.rank != (0, 0) or not t.axes):
            return f"{t.name}: axes {t.axes!r}, rank", t.rank, "axes, unless of a member kernel"
        if kernel.members and not 0 <= low <= high <= MOST:
            return f"rank of {t.name}", t.rank, f"a least and a largest one, at most {MOST}"
        if kernel.members and (t.axes or t.walk != "interval"):
            accepted = "no axes and walk 'interval': a member kernel's block says what members touch"
            return f"{t.name}: axes and walk", f"{t.axes!r}, {t.walk!r}", accepted
    if not kernel.members:
        hidden = [s.name for s in kernel.scalars if s.hidden]
        return ("hidden scalars", hidden, "none, unless of a member kernel") if hidden else None
    if kernel.dims or kernel.reduces or kernel.types:
        accepted = "none: a member kernel has the index space of each instance"
        return "dimensions, reduction and rows of types", "some", accepted
    filled = {leaf.name for leaf in kernel.cost.leaves() if leaf.op is ExprOp.FILLED}
    if not filled >= {t.name for t in kernel.outputs}:
        return "cost", "nothing for filling outputs", "formulas.filling() of every output"
    return None
