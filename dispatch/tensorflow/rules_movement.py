# SPDX-License-Identifier: Apache-2.0
"""Rules that join, split, turn and pad tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onedispatch.dispatch.sources.api import frontend
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import Operand, SourceNode
from onedispatch.dispatch.tensorflow.rule_helpers import (
    END,
    Size,
    constant,
    int64,
    numbers,
    product,
    rank,
    size,
    vector,
)

tf = frontend("tensorflow")

for name in ("Transpose", "ConjugateTranspose"):
    tf.op(name, to="Transpose").attr_from_input(1, "perm")
tf.op("Tile")

# -- joining and splitting -----------------------------------------------------------------------

tf.op("Concat").attr_from_input(0, "axis").variadic("values", count="N", others=1)


@tf.expand("ConcatV2", inherit=False)
def concat(g: Builder, n: SourceNode) -> Any:
    (axis,) = numbers(n, n.attr("N"), "the axis")
    return g.Concat(*n.inputs[:-1], axis=axis)


@tf.expand("Pack", inherit=False)
def pack(g: Builder, n: SourceNode) -> Any:
    """Tensors side by side along a new axis."""
    n.ignore("N")
    axis = n.attr("axis")
    return g.Concat(*(g.Unsqueeze(one, [axis]) for one in n.inputs), axis=axis)


@tf.expand("Unpack", inherit=False)
def unpack(g: Builder, n: SourceNode) -> Any:
    axis, count = n.attr("axis"), n.attr("num")
    return tuple(g.Squeeze(one, [axis]) for one in _split(g, n.inputs[0], None, axis, count))


@tf.expand("Split", inherit=False)
def split(g: Builder, n: SourceNode) -> Any:
    (axis,) = numbers(n, 0, "the axis")
    return _split(g, n.inputs[1], None, axis, n.attr("num_split"))


@tf.expand("SplitV", inherit=False)
def split_v(g: Builder, n: SourceNode) -> Any:
    """One size may be -1: what is left."""
    x, sizes, _ = n.inputs
    (axis,) = numbers(n, 2, "the axis")
    wanted = int64(g, sizes)
    if sizes.constant is not None and -1 in sizes.constant:
        known = [int(one) for one in sizes.constant]
        whole = size(g, x, axis)
        left = whole - sum(known) - 1 if isinstance(whole, int) else g.Sub(whole, [sum(known) + 1])
        wanted = vector(g, [left if one == -1 else one for one in known])
    return _split(g, x, wanted, axis, n.attr("num_split"))


def _split(g: Builder, x: Operand, sizes: Operand | None, axis: int, count: int) -> tuple[Any, ...]:
    if count == 1:
        return (x,)
    if sizes is None:
        made = g.Split(x, axis=axis, num_outputs=count, outputs=count)
    else:
        made = g.Split(x, sizes, axis=axis, outputs=count)
    return tuple(made)


@tf.expand("DynamicPartition", inherit=False)
def partition(g: Builder, n: SourceNode) -> Any:
    """Rows by the number of their part."""
    data, parts = n.inputs
    if parts.rank != 1:
        raise Refused(f"parts of rank {parts.rank}")
    numbered = range(n.attr("num_partitions"))
    return tuple(g.Compress(data, g.Equal(parts, number), axis=0) for number in numbered)


# -- padding -------------------------------------------------------------------------------------


@tf.expand("Pad", "PadV2", inherit=False)
def pad(g: Builder, n: SourceNode) -> Any:
    """TensorFlow lists what is before and behind per dimension; ONNX all that is before, then behind."""
    return g.Pad(n.inputs[0], _pads(g, n.inputs[1]), *n.inputs[2:])


def _pads(g: Builder, paddings: Operand) -> Any:
    array = g.known(paddings)
    if array is not None:
        return g.constant(array.T.reshape(-1), np.int64)
    return g.Reshape(g.Transpose(int64(g, paddings), perm=[1, 0]), [-1])


@tf.expand("MirrorPad", inherit=False)
def mirror_pad(g: Builder, n: SourceNode) -> Any:
    """ONNX mirrors without the edge; with it, parts that are turned are put beside."""
    x, paddings = n.inputs
    if n.attr("mode") == "REFLECT":
        return g.Pad(x, _pads(g, paddings), mode="reflect")
    for axis, (before, behind) in enumerate(constant(n, 1, "paddings").tolist()):
        parts = [x]
        if before:
            parts.insert(0, g.Slice(x, [before - 1], [-END], [axis], [-1]))
        if behind:
            parts.append(g.Slice(x, [-1], [-behind - 1], [axis], [-1]))
        x = g.Concat(*parts, axis=axis) if len(parts) > 1 else x
    return x


# -- the other way round ---------------------------------------------------------------------------


@tf.expand("ReverseV2", inherit=False)
def reverse(g: Builder, n: SourceNode) -> Any:
    return _reversed(g, n.inputs[0], numbers(n, 1, "axes"))


@tf.expand("Reverse", inherit=False)
def reverse_by_flags(g: Builder, n: SourceNode) -> Any:
    flags = constant(n, 1, "flags of the dimensions")
    return _reversed(g, n.inputs[0], np.flatnonzero(flags).tolist())


def _reversed(g: Builder, x: Operand, axes: Sequence[int]) -> Any:
    count = len(axes)
    return g.Slice(x, [-1] * count, [-END] * count, list(axes), [-1] * count) if count else x


@tf.expand("ReverseSequence", inherit=False)
def reverse_sequence(g: Builder, n: SourceNode) -> Any:
    """ONNX turns one of the first two dimensions: others are brought there."""
    x, lengths = n.inputs[0], int64(g, n.inputs[1])
    batch, time = n.attr("batch_dim"), n.attr("seq_dim")
    if {batch, time} == {0, 1}:
        return g.ReverseSequence(x, lengths, batch_axis=batch, time_axis=time)
    order = [batch, time, *(i for i in range(rank(x, "data")) if i not in (batch, time))]
    made = g.ReverseSequence(g.Transpose(x, perm=order), lengths, batch_axis=0, time_axis=1)
    return g.Transpose(made, perm=np.argsort(order).tolist())


@tf.expand("Roll", inherit=False)
def roll(g: Builder, n: SourceNode) -> Any:
    """What is pushed out at one end comes in at the other."""
    made = n.inputs[0]
    for by, axis in zip(numbers(n, 1, "the shift"), numbers(n, 2, "axes"), strict=True):
        length = size(g, n.inputs[0], axis)
        if isinstance(length, int):
            first = [length - by % max(length, 1)]
        else:
            first = g.Sub(length, g.Mod(g.constant([by], np.int64), length))
        parts = [g.Slice(made, first, [END], [axis]), g.Slice(made, [0], first, [axis])]
        made = g.Concat(*parts, axis=axis)
    return made


# -- blocks ----------------------------------------------------------------------------------------

for name in ("SpaceToDepth", "DepthToSpace"):
    tf.op(name).rename(block_size="blocksize")


@tf.expand("SpaceToBatch", "SpaceToBatchND", inherit=False)
def space_to_batch(g: Builder, n: SourceNode) -> Any:
    """Each place within a block becomes a batch of its own."""
    block, padding = _block(n)
    x, count = n.inputs[0], len(block)
    width = rank(x, "data")
    rows = [[0, 0], *padding, *[[0, 0]] * (width - 1 - count)]
    if np.any(rows):
        x = g.Pad(x, g.constant(np.array(rows).T.reshape(-1), np.int64))
    batch, rest = size(g, x, 0), [size(g, x, axis) for axis in range(1 + count, width)]
    outer = [_divided(g, size(g, x, 1 + i), b) for i, b in enumerate(block)]
    inner = [one for pair in zip(outer, block, strict=True) for one in pair]
    made = g.Reshape(x, vector(g, [batch, *inner, *rest]))
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2)]
    made = g.Transpose(made, perm=[*order, *range(2 * count + 1, width + count)])
    return g.Reshape(made, vector(g, [product(g, batch, *block), *outer, *rest]))


@tf.expand("BatchToSpace", "BatchToSpaceND", inherit=False)
def batch_to_space(g: Builder, n: SourceNode) -> Any:
    """Batches are put together to blocks, whose edges are cut."""
    block, crops = _block(n)
    x, count = n.inputs[0], len(block)
    sizes = [size(g, x, axis) for axis in range(rank(x, "data"))]
    batch = _divided(g, sizes[0], int(np.prod(block)))
    made = g.Reshape(x, vector(g, [*block, batch, *sizes[1:]]))
    order = [count, *(axis for i in range(count) for axis in (count + 1 + i, i))]
    made = g.Transpose(made, perm=[*order, *range(2 * count + 1, len(sizes) + count)])
    whole = [product(g, one, b) for one, b in zip(sizes[1:], block, strict=False)]
    made = g.Reshape(made, vector(g, [batch, *whole, *sizes[1 + count :]]))
    cut = {i + 1: (low, -high or END) for i, (low, high) in enumerate(crops) if low or high}
    if not cut:
        return made
    return g.Slice(made, [low for low, _ in cut.values()], [high for _, high in cut.values()], list(cut))


def _block(n: SourceNode) -> tuple[list[int], list[list[int]]]:
    """The size of a block, and what is put around the image or cut off."""
    several = n.op_type.endswith("ND")
    block = numbers(n, 1, "the block") if several else [n.attr("block_size")] * 2
    edges = constant(n, 2 if several else 1, "paddings or crops")
    if min(block, default=1) < 1 or edges.shape != (len(block), 2) or np.any(edges < 0):
        raise Refused(f"a block {block} with paddings or crops {edges.tolist()}")
    return block, edges.tolist()


def _divided(g: Builder, whole: Size, by: int) -> Size:
    found: Size = whole // by if isinstance(whole, int) else g.Div(whole, by)
    return found
