# SPDX-License-Identifier: Apache-2.0
"""Results put together of pieces along each dimension: what Slice, Pad and CenterCropPad are.

A dimension of the result is cut into segments: members that lie in the input at a constant step, or that
are filled. What runs downwards (negative steps, reflections) DMAs cannot walk: its members are segments of
their own, and where these are many, indices for a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.lowering.boxes import BoxCopy, CoordinateMap, along, emit_boxes, emit_slab, filling
from onedispatch.operators.lowering.take import emit_take

# A nest costs as much as moving some 100 KB. So pieces are put together along one dimension after the other
# where there are many, and along a dimension that has many, a kernel takes them by index.
_MOST_BOXES = 9
_MOST_PIECES = 3
_LARGE = 1 << 21  # bytes of a result worth some twenty nests, so that most of it is moved but once


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

    What is filled holds the second input, a scalar.
    """
    if all(len(cut) == 1 and cut[0].source is not None for cut in cuts):
        emit_slab(name, inputs[0], next(_boxes(cuts)), output, lowering)
        return
    if prod(len(cut) for cut in cuts) <= _MOST_BOXES or any(s.source is None for cut in cuts for s in cut):
        emit_boxes(name, inputs, list(_boxes(cuts)), output, lowering)
        return
    x = inputs[0]
    if _lies_around(cuts, output):
        _emit_around(name, x, cuts, output, lowering)
        return
    several = [d for d, cut in enumerate(cuts) if len(cut) > 1]
    several.sort(key=lambda d: output.shape[d] / max(x.shape[d], 1))  # what makes the data less comes first
    own = [cut if len(cut) == 1 else whole for cut, whole in zip(cuts, _whole(x.shape), strict=True)]
    for d in several:
        taken = len(cuts[d]) > _MOST_PIECES
        if taken and own != _whole(x.shape):
            x = _joined(f"{name}//parts", x, own, None, lowering)
        made = output if d == several[-1] else None
        if taken:
            x = _taken(f"{name}//{d}", x, d, cuts[d], made, lowering)
        else:
            own[d] = cuts[d]
            x = _joined(f"{name}//{d}", x, own, made, lowering)
        own = _whole(x.shape)


def emit_extended(name: str, x: TensorSpec, fill: TensorSpec, output: TensorSpec, lowering: Lowering) -> None:
    """``output``: ``x`` in its first corner, the scalar ``fill`` elsewhere."""
    cuts = [
        [Segment(0, own, 0), *([Segment(own, whole - own)] if whole > own else [])]
        for own, whole in zip(x.shape, output.shape, strict=True)
    ]
    emit_segments(name, [x, fill], cuts, output, lowering)


Group = tuple[Segment, ...]  # segments of a dimension that come from one tensor


def _grouped(cut: Sequence[Segment]) -> list[Group]:
    """What lies before the longest segment of a dimension, that one, and what lies behind it."""
    longest = max(range(len(cut)), key=lambda i: cut[i].count)
    groups = cut[:longest], cut[longest : longest + 1], cut[longest + 1 :]
    return [tuple(group) for group in groups if group]


def _lies_around(cuts: Sequence[Sequence[Segment]], output: TensorSpec) -> bool:
    """Whether a large result is a box of the input and, around it, little that a kernel must take by index.

    Along one dimension alone the kernel moves what is between as well as any.
    """
    if sum(len(_grouped(cut)) < len(cut) for cut in cuts) < 2:
        return False
    if output.device_bytes < _LARGE or output.element.per_word > 1:
        return False
    boxes = prod(len(_grouped(cut)) for cut in cuts)
    inside = prod(max(segment.count for segment in cut) for cut in cuts)
    return boxes <= _MOST_BOXES and 2 * inside >= output.size


def _emit_around(
    name: str, x: TensorSpec, cuts: Sequence[Sequence[Segment]], output: TensorSpec, lowering: Lowering
) -> None:
    """``output`` of boxes: a group of several segments along a dimension is taken by index before, of no
    more members of ``x`` than it has."""
    tensors: dict[tuple[tuple[int, Group], ...], TensorSpec] = {(): x}

    def taken(groups: tuple[tuple[int, Group], ...]) -> TensorSpec:
        if groups not in tensors:
            axis, group = groups[0]  # the first dimension comes last: its members lie one behind another
            label = f"{name}//{'.'.join(f'{d}@{g[0].at}' for d, g in groups)}"
            tensors[groups] = _taken_nearby(label, taken(groups[1:]), axis, group, lowering)
        return tensors[groups]

    boxes = []
    for choice in product(*map(_grouped, cuts)):
        several = tuple((d, group) for d, group in enumerate(choice) if len(group) > 1)
        taken(several)
        begin = [group[0].source or 0 if len(group) == 1 else 0 for group in choice]
        steps = [group[0].step if len(group) == 1 else 1 for group in choice]
        shape = tuple(sum(segment.count for segment in group) for group in choice)
        target = along([group[0].at for group in choice])
        boxes.append(BoxCopy(list(tensors).index(several), shape, along(begin, steps), target))
    emit_boxes(name, list(tensors.values()), boxes, output, lowering)


def _taken_nearby(name: str, x: TensorSpec, axis: int, group: Group, lowering: Lowering) -> TensorSpec:
    """The members of ``group`` along ``axis``, of those of ``x`` from the first to the last of them."""
    ends = [at for s in group for at in (s.source or 0, (s.source or 0) + s.step * (s.count - 1))]
    first, last = min(ends), max(ends)
    near = lowering.temp(x.dtype, [last + 1 - first if d == axis else n for d, n in enumerate(x.shape)])
    begin = [first if d == axis else 0 for d in range(len(x.shape))]
    slab = BoxCopy(0, near.shape, along(begin), along([0] * len(begin)))
    emit_slab(f"{name}//near", x, slab, near, lowering)
    own = [replace(s, source=(s.source or 0) - first) for s in group]
    return _taken(name, near, axis, own, None, lowering)


def _joined(
    name: str,
    x: TensorSpec,
    cuts: Sequence[Sequence[Segment]],
    output: TensorSpec | None,
    lowering: Lowering,
) -> TensorSpec:
    """The pieces of ``x`` put together, in ``output`` or a tensor of its own."""
    output = output or lowering.temp(x.dtype, [sum(s.count for s in cut) for cut in cuts])
    emit_boxes(name, [x], list(_boxes(cuts)), output, lowering)
    return output


def _taken(
    name: str, x: TensorSpec, axis: int, cut: Sequence[Segment], output: TensorSpec | None, lowering: Lowering
) -> TensorSpec:
    """The same along one dimension by a kernel that reads indices."""
    indices = np.concatenate([(s.source or 0) + s.step * np.arange(s.count) for s in cut]).astype(np.int32)
    shape = (*x.shape[:axis], len(indices), *x.shape[axis + 1 :])
    output = output or lowering.temp(x.dtype, shape)
    emit_take(name, x, lowering.const(indices), axis, output, lowering)
    return output


def _whole(shape: Sequence[int]) -> list[Sequence[Segment]]:
    return [[Segment(0, size, 0)] for size in shape]


def _boxes(cuts: Sequence[Sequence[Segment]]) -> Iterator[BoxCopy]:
    """One for each choice of segments with members; then slabs that fill up the dimensions in turn."""
    taken = [[s for s in cut if s.source is not None] for cut in cuts]
    for pieces in product(*taken):
        source = CoordinateMap(
            tuple(s.source or 0 for s in pieces), tuple((d, s.step) for d, s in enumerate(pieces))
        )
        yield BoxCopy(0, tuple(s.count for s in pieces), source, along([s.at for s in pieces]))
    inner = [(0, sum(s.count for s in cut)) for cut in cuts]
    for d, cut in enumerate(cuts):
        for filled in (s for s in cut if s.source is None):
            slab = [*inner[:d], (filled.at, filled.count), *inner[d + 1 :]]
            yield filling(1, [at for at, _ in slab], [count for _, count in slab])
        if not taken[d]:
            return
        first, last = taken[d][0], taken[d][-1]
        inner[d] = (first.at, last.at + last.count - first.at)
