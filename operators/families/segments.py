# SPDX-License-Identifier: Apache-2.0
"""Results put together of pieces along each dimension: what Slice, Pad and CenterCropPad are.

A dimension of the result is cut into segments: members that lie in the input at a constant step, or that
are filled. What runs downwards (negative steps, reflections) DMAs cannot walk: its members are segments of
their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported
from onedispatch.operators.families.boxes import Box, Walk, along, emit_boxes, filling
from onedispatch.operators.interface.operator import Lowering
from onedispatch.transactions.base.phrases import counted

_MOST_ALONG = 64  # pieces of a dimension


@dataclass(frozen=True)
class Segment:
    """``count`` members of a result's dimension from ``at`` on: from ``source`` in steps of ``step``.

    They are filled where ``source`` is None.
    """

    at: int
    count: int
    source: int | None = None
    step: int = 1


def runs(members: Sequence[int], at: int = 0) -> list[Segment]:
    """Segments that take ``members`` of a dimension, one after the other, from ``at`` on."""
    found = []
    first = 0
    while first < len(members):
        step = members[first + 1] - members[first] if first + 1 < len(members) else -1
        last = first + (step >= 0)
        while step >= 0 and last + 1 < len(members) and members[last + 1] - members[last] == step:
            last += 1
        count = last - first + 1
        found.append(Segment(at + first, count, members[first], step if count > 1 else 1))
        first = last + 1
    return found


def emit_segments(
    name: str,
    inputs: Sequence[TensorSpec],
    cuts: Sequence[Sequence[Segment]],
    output: TensorSpec,
    lowering: Lowering,
) -> None:
    """``output`` from the first of ``inputs``, by the segments ``cuts`` of each dimension.

    What is filled holds the second input, a scalar. Raises ``Unsupported`` for more segments than a few
    nests can move.
    """
    several = [d for d, cut in enumerate(cuts) if len(cut) > 1]
    together, apart = prod(len(cut) for cut in cuts), sum(len(cuts[d]) for d in several)
    if together <= max(2 * apart, 1) or any(s.source is None for cut in cuts for s in cut):
        emit_boxes(name, inputs, list(_boxes(cuts)), output, lowering)
        return
    x = inputs[0]
    several.sort(key=lambda d: output.shape[d] / max(x.shape[d], 1))  # what makes the data less comes first
    own = [cut if len(cut) == 1 else whole for cut, whole in zip(cuts, _whole(x.shape), strict=True)]
    for i, d in enumerate(several):
        if len(cuts[d]) > _MOST_ALONG:
            given = f"{counted(len(cuts[d]), 'piece')} along dimension {d} of {x}"
            raise Unsupported(given, f"at most {_MOST_ALONG}")
        own[d] = cuts[d]
        shape = [sum(s.count for s in cut) for cut in own]
        made = output if i == len(several) - 1 else lowering.temp(x.dtype, shape)
        emit_boxes(f"{name}//{d}", [x], list(_boxes(own)), made, lowering)
        x, own = made, _whole(shape)


def _whole(shape: Sequence[int]) -> list[Sequence[Segment]]:
    return [[Segment(0, size, 0)] for size in shape]


def _boxes(cuts: Sequence[Sequence[Segment]]) -> Iterator[Box]:
    """One for each choice of segments with members; then slabs that fill up the dimensions in turn."""
    taken = [[s for s in cut if s.source is not None] for cut in cuts]
    for pieces in product(*taken):
        source = Walk(tuple(s.source or 0 for s in pieces), tuple((d, s.step) for d, s in enumerate(pieces)))
        yield Box(0, tuple(s.count for s in pieces), source, along([s.at for s in pieces]))
    inner = [(0, sum(s.count for s in cut)) for cut in cuts]
    for d, cut in enumerate(cuts):
        for filled in (s for s in cut if s.source is None):
            slab = [*inner[:d], (filled.at, filled.count), *inner[d + 1 :]]
            yield filling(1, [at for at, _ in slab], [count for _, count in slab])
        if not taken[d]:
            return
        first, last = taken[d][0], taken[d][-1]
        inner[d] = (first.at, last.at + last.count - first.at)
