# SPDX-License-Identifier: Apache-2.0
"""Operators of the evaluator that move elements, or make them from sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]
Function = Callable[..., Any]


# -- shapes ----------------------------------------------------------------------------------


def shape(a: Attributes, x: Array) -> Array:
    return np.asarray(x.shape, a.get("out_type", np.int32))


def squeeze(a: Attributes, x: Array) -> Array:
    axes = tuple(a.get("squeeze_dims") or a.get("axis") or ())
    return np.squeeze(x, axes or None)


def expand_dims(a: Attributes, x: Array, axis: Array) -> Array:
    return np.expand_dims(x, int(np.ravel(axis)[0]))


def broadcast_args(a: Attributes, x: Array, y: Array) -> Array:
    return np.asarray(np.broadcast_shapes(tuple(x), tuple(y)), x.dtype)


# -- pieces ----------------------------------------------------------------------------------


def unpack(a: Attributes, x: Array) -> list[Array]:
    return list(np.moveaxis(x, a.get("axis", 0), 0))


def split(a: Attributes, axis: Array, x: Array) -> list[Array]:
    return list(np.split(x, a["num_split"], int(axis)))


def split_v(a: Attributes, x: Array, sizes: Array, axis: Array) -> list[Array]:
    """One size may be -1: what is left."""
    left = x.shape[int(axis)] - int(sizes[sizes >= 0].sum())
    known = np.where(sizes < 0, left, sizes)
    return list(np.split(x, np.cumsum(known)[:-1], int(axis)))


def slice_(a: Attributes, x: Array, begin: Array, size: Array) -> Array:
    """A size of -1 reaches to the end."""
    parts = zip(begin.tolist(), size.tolist(), strict=True)
    return x[tuple(slice(b, None if n < 0 else b + n) for b, n in parts)]


def strided_slice(a: Attributes, x: Array, begin: Array, end: Array, strides: Array) -> Array:
    """Bit i of a mask is about entry i: an ellipsis, a new axis, an index, or no begin or end."""

    def has(mask: str, i: int) -> bool:
        return bool(a.get(mask, 0) >> i & 1)

    index: list[Any] = []
    for i in range(len(begin)):
        if has("ellipsis_mask", i):
            index.append(Ellipsis)
        elif has("new_axis_mask", i):
            index.append(None)
        elif has("shrink_axis_mask", i):
            index.append(int(begin[i]))
        else:
            first = None if has("begin_mask", i) else int(begin[i])
            last = None if has("end_mask", i) else int(end[i])
            index.append(slice(first, last, int(strides[i])))
    return x[tuple(index)]


# -- by index --------------------------------------------------------------------------------


def checked(indices: Array, size: Any) -> Array:
    if np.any(indices < 0) or np.any(indices >= size):
        raise IndexError(f"indices outside of 0 to {size}")
    return indices


def gather(a: Attributes, x: Array, indices: Array, axis: Any = 0) -> Array:
    """With ``batch_dims`` each row of indices takes from its own row of ``x``."""
    batch = a.get("batch_dims", 0)
    batch += indices.ndim if batch < 0 else 0
    at = int(axis) + (x.ndim if int(axis) < 0 else 0)
    if not batch:
        return np.take(x, checked(indices, x.shape[at]), at)
    rows = [gather({"batch_dims": batch - 1}, x[i], indices[i], at - 1) for i in range(len(x))]
    return np.stack(rows)


def gather_nd(a: Attributes, x: Array, indices: Array) -> Array:
    depth = indices.shape[-1]
    checked(indices, np.asarray(x.shape[:depth]))
    return (
        x[tuple(np.moveaxis(indices, -1, 0))] if depth else np.broadcast_to(x, indices.shape[:-1] + x.shape)
    )


def scatter_nd(a: Attributes, indices: Array, updates: Array, sizes: Array) -> Array:
    """Updates of one place add up."""
    made = np.zeros(sizes.tolist(), updates.dtype)
    np.add.at(made, tuple(np.moveaxis(indices, -1, 0)), updates)
    return made


def tensor_scatter(function: Any) -> Function:
    def run(a: Attributes, x: Array, indices: Array, updates: Array) -> Array:
        made = x.copy()
        places = tuple(np.moveaxis(checked(indices, np.asarray(x.shape[: indices.shape[-1]])), -1, 0))
        if function is None:
            made[places] = updates
        else:
            function.at(made, places, updates)
        return made

    return run


def dynamic_stitch(a: Attributes, *operands: Array) -> Array:
    """Rows in the order of their numbers; of one number twice the last."""
    half = len(operands) // 2
    rows: dict[int, Array] = {}
    for numbers, data in zip(operands[:half], operands[half:], strict=True):
        flat = data.reshape(-1, *data.shape[numbers.ndim :])
        rows.update(zip(numbers.ravel().tolist(), flat, strict=True))
    return np.stack([rows[i] for i in sorted(rows)])


def dynamic_partition(a: Attributes, x: Array, parts: Array) -> list[Array]:
    return [x[parts == i] for i in range(a["num_partitions"])]


def one_hot(a: Attributes, indices: Array, depth: Array, on: Array, off: Array) -> Array:
    axis = a.get("axis", -1)
    hit = np.expand_dims(indices, axis)
    places = np.arange(int(depth)).reshape([-1, *[1] * (hit.ndim - 1 - axis % hit.ndim)])
    return np.where(hit == places, on, off).astype(on.dtype)


# -- order and padding -------------------------------------------------------------------------


def pad(a: Attributes, x: Array, pads: Array, value: Any = 0) -> Array:
    return np.pad(x, pads.tolist(), constant_values=value) if x.ndim else x


def mirror_pad(a: Attributes, x: Array, pads: Array) -> Array:
    return np.pad(x, pads.tolist(), mode=a["mode"].lower())


def reverse_sequence(a: Attributes, x: Array, lengths: Array) -> Array:
    batch, axis = a.get("batch_dim", 0), a["seq_dim"]
    made = np.moveaxis(x, (batch, axis), (0, 1)).copy()
    for row, length in zip(made, lengths.tolist(), strict=True):
        row[:length] = row[:length][::-1].copy()
    return np.moveaxis(made, (0, 1), (batch, axis))


def roll(a: Attributes, x: Array, shift: Array, axis: Array) -> Array:
    for by, at in zip(np.ravel(shift).tolist(), np.ravel(axis).tolist(), strict=True):
        x = np.roll(x, by, at)
    return x


def space_to_depth(a: Attributes, x: Array) -> Array:
    b, first = a["block_size"], a.get("data_format", "NHWC") == "NCHW"
    n, h, w, c = (np.moveaxis(x, 1, -1) if first else x).shape
    made = (np.moveaxis(x, 1, -1) if first else x).reshape(n, h // b, b, w // b, b, c)
    made = made.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // b, w // b, b * b * c)
    return np.moveaxis(made, -1, 1) if first else made


def depth_to_space(a: Attributes, x: Array) -> Array:
    b, first = a["block_size"], a.get("data_format", "NHWC") == "NCHW"
    n, h, w, c = (np.moveaxis(x, 1, -1) if first else x).shape
    made = (np.moveaxis(x, 1, -1) if first else x).reshape(n, h, w, b, b, c // (b * b))
    made = made.transpose(0, 1, 3, 2, 4, 5).reshape(n, h * b, w * b, c // (b * b))
    return np.moveaxis(made, -1, 1) if first else made


def space_to_batch(a: Attributes, x: Array, block: Array, pads: Array) -> Array:
    """The place within a block becomes the major part of the batch."""
    count = len(block)
    x = np.pad(x, [(0, 0), *pads.tolist(), *[(0, 0)] * (x.ndim - 1 - count)])
    outer = [size // b for size, b in zip(x.shape[1:], block.tolist(), strict=False)]
    inner = [one for pair in zip(outer, block.tolist(), strict=True) for one in pair]
    made = x.reshape([x.shape[0], *inner, *x.shape[1 + count :]])
    rest = range(2 * count + 1, made.ndim)
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), *rest]
    return made.transpose(order).reshape([-1, *outer, *x.shape[1 + count :]])


def batch_to_space(a: Attributes, x: Array, block: Array, crops: Array) -> Array:
    count, sizes = len(block), block.tolist()
    batch = x.shape[0] // int(np.prod(block))
    made = x.reshape([*sizes, batch, *x.shape[1:]])
    order = [count, *(axis for i in range(count) for axis in (count + 1 + i, i))]
    made = made.transpose([*order, *range(2 * count + 1, made.ndim)])
    whole = [size * b for size, b in zip(x.shape[1:], sizes, strict=False)]
    made = made.reshape([batch, *whole, *x.shape[1 + count :]])
    kept = [slice(low, size - high) for (low, high), size in zip(crops.tolist(), whole, strict=True)]
    return made[(slice(None), *kept)]


def square_block(a: Attributes) -> Array:
    return np.asarray([a["block_size"]] * 2)


def matrix_band_part(a: Attributes, x: Array, lower: Array, upper: Array) -> Array:
    rows, columns = np.indices(x.shape[-2:])
    kept = (lower < 0) | (rows - columns <= lower)
    return np.where(kept & ((upper < 0) | (columns - rows <= upper)), x, np.zeros((), x.dtype))


def matrix_diag(a: Attributes, x: Array) -> Array:
    return x[..., None] * np.eye(x.shape[-1], dtype=x.dtype)


def matrix_set_diag(a: Attributes, x: Array, diagonal: Array) -> Array:
    made = x.copy()
    places = np.arange(diagonal.shape[-1])
    made[..., places, places] = diagonal
    return made


def unique(a: Attributes, x: Array) -> tuple[Array, Array]:
    """In the order in which they come."""
    values, first, inverse = np.unique(x, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return values[np.argsort(first)], rank[inverse].astype(a.get("out_idx", np.int32))


# -- from sizes --------------------------------------------------------------------------------


def range_(a: Attributes, start: Array, limit: Array, delta: Array) -> Array:
    return np.arange(start, limit, delta).astype(start.dtype)


def lin_space(a: Attributes, start: Array, stop: Array, num: Array) -> Array:
    return np.linspace(start, stop, int(num)).astype(start.dtype)


def where(a: Attributes, x: Array) -> Array:
    return np.argwhere(x).astype(np.int64)


# -- book-keeping --------------------------------------------------------------------------------


def assert_(a: Attributes, condition: Array, *data: Array) -> list[Array]:
    if not np.all(condition):
        raise ValueError(f"assertion failed: {data}")
    return []


FUNCTIONS: Mapping[str, Function] = {
    "Shape": shape,
    "ShapeN": lambda a, *all_of: [shape(a, x) for x in all_of],
    "Size": lambda a, x: np.asarray(x.size, a.get("out_type", np.int32)),
    "Rank": lambda a, x: np.asarray(x.ndim, np.int32),
    "Reshape": lambda a, x, sizes: x.reshape(sizes.tolist()),
    "EnsureShape": lambda a, x: x,
    "ExpandDims": expand_dims,
    "Squeeze": squeeze,
    "BroadcastTo": lambda a, x, sizes: np.broadcast_to(x, sizes.tolist()),
    "BroadcastArgs": broadcast_args,
    "Transpose": lambda a, x, perm: x.transpose(perm.tolist()),
    "ConjugateTranspose": lambda a, x, perm: x.conj().transpose(perm.tolist()),
    "InvertPermutation": lambda a, x: np.argsort(x).astype(x.dtype),
    "Concat": lambda a, axis, *values: np.concatenate(values, int(axis)),
    "ConcatV2": lambda a, *given: np.concatenate(given[:-1], int(given[-1])),
    "Pack": lambda a, *values: np.stack(values, a.get("axis", 0)),
    "Unpack": unpack,
    "Split": split,
    "SplitV": split_v,
    "Slice": slice_,
    "StridedSlice": strided_slice,
    "Gather": gather,
    "GatherV2": gather,
    "GatherNd": gather_nd,
    "ScatterNd": scatter_nd,
    "TensorScatterUpdate": tensor_scatter(None),
    "TensorScatterAdd": tensor_scatter(np.add),
    "TensorScatterSub": tensor_scatter(np.subtract),
    "TensorScatterMax": tensor_scatter(np.maximum),
    "TensorScatterMin": tensor_scatter(np.minimum),
    "DynamicStitch": dynamic_stitch,
    "DynamicPartition": dynamic_partition,
    "OneHot": one_hot,
    "Tile": lambda a, x, multiples: np.tile(x, multiples.tolist()),
    "Pad": pad,
    "PadV2": pad,
    "MirrorPad": mirror_pad,
    "Reverse": lambda a, x, dims: np.flip(x, tuple(np.flatnonzero(dims))),
    "ReverseV2": lambda a, x, axis: np.flip(x, tuple(axis.tolist())),
    "ReverseSequence": reverse_sequence,
    "Roll": roll,
    "SpaceToDepth": space_to_depth,
    "DepthToSpace": depth_to_space,
    "SpaceToBatch": lambda a, x, pads: space_to_batch(a, x, square_block(a), pads),
    "BatchToSpace": lambda a, x, crops: batch_to_space(a, x, square_block(a), crops),
    "SpaceToBatchND": space_to_batch,
    "BatchToSpaceND": batch_to_space,
    "MatrixBandPart": matrix_band_part,
    "MatrixDiag": matrix_diag,
    "MatrixDiagPart": lambda a, x: np.diagonal(x, axis1=-2, axis2=-1),
    "MatrixSetDiag": matrix_set_diag,
    "Unique": unique,
    "Range": range_,
    "LinSpace": lin_space,
    "Fill": lambda a, sizes, value: np.full(sizes.tolist(), value),
    "Where": where,
    **dict.fromkeys("Identity StopGradient Snapshot PreventGradient".split(), lambda a, x: x),
    **dict.fromkeys("CheckNumerics CheckNumericsV2 PlaceholderWithDefault".split(), lambda a, x: x),
    "Print": lambda a, x, *data: x,
    "IdentityN": lambda a, *all_of: list(all_of),
    "NoOp": lambda a: [],
    "Assert": assert_,
}
