# SPDX-License-Identifier: Apache-2.0
"""Rules for parts of tensors: slices, and elements by their indices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onedispatch.dispatch.sources.api import frontend
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import Operand, SourceNode
from onedispatch.dispatch.tensorflow.rule_helpers import END, int64, numbers, rank

tf = frontend("tensorflow")

# -- slices --------------------------------------------------------------------------------------


@tf.expand("Slice", inherit=False)
def slice_(g: Builder, n: SourceNode) -> Any:
    """A size of -1 reaches to the end."""
    x, begin, size = n.inputs
    if begin.constant is not None and size.constant is not None:
        whole = zip(numbers(n, 1, "begin"), numbers(n, 2, "size"), strict=True)
        cut = {i: (b, END if s < 0 else b + s) for i, (b, s) in enumerate(whole) if (b, s) != (0, -1)}
        if not cut:
            return x
        return g.Slice(x, [b for b, _ in cut.values()], [e for _, e in cut.values()], list(cut))
    starts, sizes = int64(g, begin), int64(g, size)
    return g.Slice(x, starts, g.Where(g.Less(sizes, 0), END, g.Add(starts, sizes)))


@dataclass
class _Spec:
    """What a StridedSlice does, entry by entry of begin, end and strides.

    ``taken`` are those that are about a dimension, ``axes`` these dimensions; ``single`` those of them that
    are an index; ``new`` the dimensions of the result that were not there.
    """

    taken: list[int] = field(default_factory=list)
    axes: list[int] = field(default_factory=list)
    single: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, n: SourceNode, count: int) -> _Spec:
        made, axis, kept = cls(), 0, 0  # of the input, and of the result
        for i in range(count):
            if _has(n, "ellipsis_mask", i):
                others = sum(not _has(n, "new_axis_mask", later) for later in range(i + 1, count))
                if i == count - 1:
                    break
                skipped = rank(n.inputs[0], "a tensor with an ellipsis") - axis - others
                axis, kept = axis + skipped, kept + skipped
            elif _has(n, "new_axis_mask", i):
                made.new.append(kept)
                kept += 1
            else:
                made.taken.append(i)
                made.axes.append(axis)
                if _has(n, "shrink_axis_mask", i):
                    made.single.append(i)
                axis, kept = axis + 1, kept + (not _has(n, "shrink_axis_mask", i))
        return made


def _has(n: SourceNode, mask: str, entry: int) -> bool:
    return bool(n.attr(mask, 0) >> entry & 1)


@tf.expand("StridedSlice", inherit=False)
def strided_slice(g: Builder, n: SourceNode) -> Any:
    """A Slice of all dimensions that are cut; then indices lose theirs, and new ones come."""
    _, begin, end, _ = n.inputs
    strides = numbers(n, 3, "strides")
    n.ignore("begin_mask", "end_mask")  # of entries that are no slice
    spec = _Spec.of(n, len(strides))
    known = begin.constant is not None and end.constant is not None
    made = _cut_known(g, n, spec, strides) if known else _cut(g, n, spec, strides)
    if spec.single:
        gone = [axis for i, axis in zip(spec.taken, spec.axes, strict=True) if i in spec.single]
        made = g.Squeeze(made, gone)
    return g.Unsqueeze(made, spec.new) if spec.new else made


def _cut_known(g: Builder, n: SourceNode, spec: _Spec, strides: list[int]) -> Any:
    """With constant bounds, for those dimensions that are not whole."""
    begin, end = numbers(n, 1, "begin"), numbers(n, 2, "end")
    rows = []
    for i, axis in zip(spec.taken, spec.axes, strict=True):
        first, last = _bounds(n, i, strides[i])
        if i in spec.single:  # -1 is the last element, behind which is the end
            row = (begin[i], begin[i] + 1 or END, axis, 1)
        else:
            low, high = first if first is not None else begin[i], last if last is not None else end[i]
            row = (low, high, axis, strides[i])
            if _before_all(n.inputs[0], axis, low, strides[i]):
                row = (0, 0, axis, 1)
        if (row[0], row[1], row[3]) != (0, END, 1):
            rows.append(row)
    return g.Slice(n.inputs[0], *map(list, zip(*rows, strict=True))) if rows else n.inputs[0]


def _before_all(x: Operand, axis: int, begin: int, stride: int) -> bool:
    """Whether a slice backwards begins before the first element: ONNX would begin at that."""
    length = None if x.shape is None else x.shape[axis]
    return stride < 0 and isinstance(length, int) and begin < -length


def _bounds(n: SourceNode, entry: int, stride: int) -> tuple[int | None, int | None]:
    """Where a slice begins and ends if a mask says that no bound counts; None: the bound does."""
    ends = (0, END) if stride > 0 else (END, -END)
    first = ends[0] if _has(n, "begin_mask", entry) else None
    last = ends[1] if _has(n, "end_mask", entry) else None
    return first, last


def _cut(g: Builder, n: SourceNode, spec: _Spec, strides: list[int]) -> Any:
    """With bounds that are computed."""
    if not spec.taken:
        return n.inputs[0]
    single = np.isin(spec.taken, spec.single)
    bounds = [_bounds(n, i, strides[i]) for i in spec.taken]
    masked = [(None, None) if alone else one for one, alone in zip(bounds, single, strict=True)]
    starts, ends = (
        _replaced(g, g.Gather(int64(g, n.inputs[which + 1]), spec.taken), [one[which] for one in masked])
        for which in (0, 1)
    )
    if single.any():
        behind = g.Where(g.Equal(starts, -1), END, g.Add(starts, 1))
        ends = behind if single.all() else g.Where(single, behind, ends)
    steps = [1 if alone else strides[i] for i, alone in zip(spec.taken, single, strict=True)]
    return g.Slice(n.inputs[0], starts, ends, spec.axes, steps)


def _replaced(g: Builder, bounds: Operand, by: list[int | None]) -> Any:
    """Bounds, where something else counts that."""
    there = np.array([one is not None for one in by])
    return g.Where(there, [one or 0 for one in by], bounds) if there.any() else bounds


# -- by index --------------------------------------------------------------------------------------

tf.op("Gather").ignore("validate_indices")
tf.op("GatherNd", to="GatherND").ignore("bad_indices_policy")


@tf.expand("GatherV2", inherit=False)
def gather(g: Builder, n: SourceNode) -> Any:
    """With batch_dims each row of indices takes from its own row of the data."""
    x, indices, _ = n.inputs
    (axis,) = numbers(n, 2, "the axis")
    batch = n.attr("batch_dims")
    if batch == 0:
        return g.Gather(x, indices, axis=axis)
    width, depth = rank(x, "data"), rank(indices, "indices")
    batch, axis = batch % depth if batch < 0 else batch, axis % width
    # GatherND takes at the dimension behind those of the batch: those between go behind it, and back.
    order = [*range(batch), axis, *range(batch, axis), *range(axis + 1, width)]
    moved = g.Transpose(x, perm=order) if axis != batch else x
    found = g.GatherND(moved, g.Unsqueeze(int64(g, indices), [-1]), batch_dims=batch)
    if axis == batch:
        return found
    between, total = axis - batch, depth + width - batch - 1
    back = [*range(batch), *range(depth, depth + between), *range(batch, depth)]
    return g.Transpose(found, perm=[*back, *range(depth + between, total)])


@tf.expand("ScatterNd", inherit=False)
def scatter_nd(g: Builder, n: SourceNode) -> Any:
    """Updates of one place add up."""
    n.ignore("bad_indices_policy")
    indices, updates, shape = n.inputs
    zeros = g.ConstantOfShape(int64(g, shape), value=np.zeros(1, updates.dtype))
    return g.ScatterND(zeros, int64(g, indices), updates, reduction="add")


tf.op("TensorScatterUpdate", to="ScatterND").ignore("bad_indices_policy")
for name, reduction in (("Add", "add"), ("Max", "max"), ("Min", "min")):
    tf.op(f"TensorScatter{name}", to="ScatterND").default(reduction=reduction).ignore("bad_indices_policy")


@tf.expand("TensorScatterSub", inherit=False)
def tensor_scatter_sub(g: Builder, n: SourceNode) -> Any:
    n.ignore("bad_indices_policy")
    x, indices, updates = n.inputs
    return g.ScatterND(x, int64(g, indices), g.Neg(updates), reduction="add")


@tf.expand("DynamicStitch", inherit=False)
def dynamic_stitch(g: Builder, n: SourceNode) -> Any:
    """Rows of several tensors in the order of their numbers; of one number twice the last row."""
    count = n.attr("N")
    parts, places, total = [], dict[int, int](), 0
    for i in range(count):
        data = n.inputs[count + i]
        indices = numbers(n, i, "numbers of rows")
        places |= {number: total + row for row, number in enumerate(indices)}
        total += len(indices)
        parts.append(_rows(g, data, rank(n.inputs[i], "numbers of rows"), len(indices)))
    if sorted(places) != list(range(len(places))):
        raise Refused("rows that no input has")
    whole = parts[0] if len(parts) == 1 else g.Concat(*parts, axis=0)
    return g.Gather(whole, [places[number] for number in sorted(places)], axis=0)


def _rows(g: Builder, data: Operand, axes: int, count: int) -> Any:
    """Data whose first dimensions number the rows, with one in their place."""
    if axes == 1:
        return data
    return g.Reshape(data, g.Concat([count], g.Shape(data, start=axes), axis=0))


@tf.expand("Where", inherit=False)
def where(g: Builder, n: SourceNode) -> Any:
    """The places of what is true, or not zero: one a row."""
    return g.Transpose(g.NonZero(n.inputs[0]), perm=[1, 0])


@tf.expand("Unique", inherit=False)
def unique(g: Builder, n: SourceNode) -> Any:
    """In the order in which they come, and of each element its place among them."""
    values, _, places = g.Unique(n.inputs[0], sorted=0, outputs=3)
    return values, places
