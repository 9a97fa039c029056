# SPDX-License-Identifier: Apache-2.0
"""ScatterElements, ScatterND, TensorScatter and OneHot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np

from onedispatch.operators.declarations.dtypes import NUMBERS
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Eltwise, Layout, View, numpy_names
from onedispatch.operators.kernels.movement import Move, StridedCopy, carried
from onedispatch.operators.kernels.scatter import Scatter
from onedispatch.operators.kernels.take import IndexedLayout
from onedispatch.operators.lowering.boxes import BoxCopy, along, emit_boxes
from onedispatch.operators.lowering.convert import emit_converted
from onedispatch.operators.lowering.movement import MOVED, Copy, emit_narrow, emit_renamed, emit_wide
from onedispatch.operators.lowering.position import emit_positions
from onedispatch.operators.lowering.take import checked
from onedispatch.operators.mappings.gather import indexed
from onedispatch.operators.scheduling.index_space import contiguous_strides
from onedispatch.operators.scheduling.resources import resources
from onedispatch.transactions import Device

_TAKEN = {"none": MOVED, **dict.fromkeys(("add", "mul", "max", "min"), numpy_names(NUMBERS))}


def _mode(node: NodeSpec, x: TensorSpec) -> str:
    mode = node.attr("reduction", "none")
    if mode not in _TAKEN:
        raise Unsupported(f"reduction {mode!r}", ", ".join(_TAKEN))
    if str(x.dtype) not in _TAKEN[mode]:
        raise Unsupported(f"reduction {mode} of {x.dtype}", ", ".join(_TAKEN[mode]))
    return str(mode)


def _updates(node: NodeSpec, x: TensorSpec) -> TensorSpec:
    updates = node.input(2)
    if updates is None or updates.dtype != x.dtype:
        raise Unsupported(f"{node.op_type} with updates of {updates and updates.dtype}", str(x.dtype))
    return updates


@maps(
    "ScatterElements",
    "Scatter",
    dtypes=MOVED,
    notes="any axis; every reduction of up to 32 bits; the last of several updates stays",
)
def map_scatter_elements(node: NodeSpec, lowering: Lowering) -> None:
    x, indices, output = indexed(node)
    updates, mode = _updates(node, x), _mode(node, x)
    axis = int(node.attr("axis", 0)) % len(x.shape)
    if not indices.size:
        lowering.emit(Copy(node.name, [x], output, lowering.device))
        return
    if indices.value is not None:
        indices = lowering.const(checked(indices, x.shape[axis], node.name).astype(np.int32))
    beside = tuple(indices.shape[axis] if d == axis else n for d, n in enumerate(x.shape))
    lenient = beside != indices.shape
    if lenient:  # indices of the extent, which place nothing, fill up what is beside the updates
        if indices.value is None:
            indices = _looked_at(node.name, indices, x.shape[axis], lowering)
        indices = _filled_up(node.name, indices, beside, x.shape[axis], lowering)
        updates = _filled_up(node.name, updates, beside, 0, lowering)
    walk = _elements_walk(x, indices, axis, updates)
    inputs = (x, indices, updates)
    lowering.emit(Scatter(node.name, inputs, output, walk, mode, lowering.device, lenient))


STREAMED = 1024  # indices at a time: fewer are not worth a call


def emit_placed(
    name: str, indices: TensorSpec, updates: TensorSpec, output: TensorSpec, lowering: Lowering
) -> None:
    """``output`` [n]: ``updates`` [k] where ``indices`` [k] say, zeros elsewhere.

    All indices stream by every tile of the result, so they are made narrow before, and tiles of a large
    result are as large as a core holds beside its streams.
    """
    if not indices.size:
        zeros = lowering.const(np.zeros(output.shape, output.dtype))
        lowering.emit(Copy(name, [zeros], output, lowering.device))
        return
    extent = output.size
    indices = _looked_at(name, indices, extent, lowering)
    sizes = {"o": 1, "a": output.row_pitch, "k": indices.size, "i": 1, "w": 1}
    strides = {"index": {"k": 1}, "updates": {"k": 1}, "out": {"a": 1}}
    walk = IndexedLayout(sizes, strides, {"a": _largest_tile(output, lowering.device)}, extent=extent)
    lowering.emit(Scatter(name, (indices, updates), output, walk, "none", lowering.device))


def _largest_tile(output: TensorSpec, device: Device) -> int:
    """Elements of the largest equal tiles of a result; of a word where no core needs more than one."""
    words = resources(device).slot_bytes // 4
    beside = 2 * 2 * STREAMED  # two chunks of indices and two of updates
    cores, unit = device.columns * device.core_rows, output.element.per_word
    room = max(words - beside, words // 2) * unit
    passes = -(-output.row_pitch // (cores * room))
    if passes <= 1:
        return unit
    tile = -(-output.row_pitch // (cores * passes))
    return -(-tile // unit) * unit


def _looked_at(name: str, indices: TensorSpec, extent: int, lowering: Lowering) -> TensorSpec:
    """The same indices, none below zero; one outside ends the run before others are put beside them."""
    found = emit_positions(name, indices.reshaped((indices.size, 1)), (extent,), (extent,), lowering, True)
    return found.reshaped(indices.shape)


def _filled_up(
    name: str, tensor: TensorSpec, shape: tuple[int, ...], value: int, lowering: Lowering
) -> TensorSpec:
    """``tensor`` in the first corner of ``shape``, the rest ``value``."""
    result = lowering.temp(tensor.dtype, shape)
    rest = lowering.const(np.full(1, value, tensor.dtype))
    laid = result.device_shape
    whole = StridedCopy(0, laid, View([0] * len(laid)), View(contiguous_strides(laid)))
    corner = StridedCopy(1, tensor.device_shape, View(tensor.strides), View(result.strides))
    lowering.emit(Move(name, [rest, tensor], result, lowering.device, [whole, corner]))
    return result


def _elements_walk(x: TensorSpec, indices: TensorSpec, axis: int, updates: TensorSpec) -> IndexedLayout:
    """x, indices and updates differ along ``axis`` alone."""
    row, count = carried(x)
    extent, length = x.shape[axis], indices.shape[axis]
    outer, inner = prod(x.shape[:axis]), x.shape[axis + 1 :]
    sizes = {"o": outer, "a": extent, "k": length, "i": 1, "w": 1}
    if not inner and count == 1:
        pitch, steps = x.row_pitch, updates.row_pitch
        own = {"o": pitch, "a": 1}
        strides = {"x": own, "out": own, "index": {"o": length, "k": 1}, "updates": {"o": steps, "k": 1}}
        return IndexedLayout(sizes | {"a": pitch}, strides, {"a": row.per_word}, extent=extent)
    last = inner[-1] if inner else 1
    rows, wide = prod(inner[:-1]), (x.row_pitch if inner else 1)
    each = rows * wide * count  # words or elements of one coordinate along the axis
    index = {"o": length * rows * last, "k": rows * last, "i": last, "w": 1}
    sizes |= {"i": rows, "w": wide}
    if count > 1:
        index = {"o": length * rows * last, "k": rows * last, "i": 1}
        sizes |= {"i": rows * wide, "w": count}
    step = {"i": sizes["w"], "w": 1}
    own = {"o": extent * each, "a": each, **step}
    strides = {"x": own, "out": own, "index": index, "updates": {"o": length * each, "k": each, **step}}
    return IndexedLayout(
        sizes, strides, {"w": max(row.per_word, count)}, wide - last if count == 1 else 0, extent
    )


def _lies_in_a_row(name: str, tensor: TensorSpec, lowering: Lowering) -> TensorSpec:
    """All elements of ``tensor`` as one row."""
    flat = lowering.temp(tensor.dtype, (tensor.size,))
    if tensor.lies_as(flat):
        return tensor.reshaped(flat.shape)
    emit_narrow(name, emit_wide(name, tensor, lowering), flat, lowering)
    return flat


@maps("ScatterND", dtypes=MOVED, notes="every reduction of up to 32 bits; the last of several updates stays")
def map_scatter_nd(node: NodeSpec, lowering: Lowering) -> None:
    x, indices, output = indexed(node)
    updates, mode = _updates(node, x), _mode(node, x)
    if not updates.size:
        lowering.emit(Copy(node.name, [x], output, lowering.device))
        return
    deep = indices.shape[-1]
    if mode == "none" and _emit_put(node.name, (x, indices, updates), output, lowering):
        return
    row, count = carried(x)
    at = emit_positions(node.name, indices, x.shape[:deep], x.device_shape[:deep], lowering)
    places, each = prod(x.device_shape[:deep]), prod(x.device_shape[deep:]) * count
    sizes = {"o": 1, "a": places, "k": at.size, "i": 1, "w": each}
    if deep == len(x.shape) and count == 1:
        updates = _lies_in_a_row(node.name, updates, lowering)
        own = {"a": 1}
        strides = {"x": own, "out": own, "index": {"k": 1}, "updates": {"k": 1}}
        walk = IndexedLayout(sizes, strides, {"a": row.per_word}, extent=places)
    else:
        own, step = {"a": each, "w": 1}, {"k": each, "w": 1}
        strides = {"x": own, "out": own, "index": {"k": 1}, "updates": step}
        walk = IndexedLayout(sizes, strides, {"w": max(row.per_word, count)}, extent=places)
    lowering.emit(Scatter(node.name, (x, at, updates), output, walk, mode, lowering.device))


# Tuples of indices for each nest that copies what is beside their box: about as many cycles of ``Scatter`` as
# a nest takes (measured on npu2: 8 a tuple, 4,000 a nest).
_TUPLES_A_NEST = 512


def _emit_put(
    name: str, inputs: tuple[TensorSpec, TensorSpec, TensorSpec], output: TensorSpec, lowering: Lowering
) -> bool:
    """The same as moves, where constant tuples of indices are a box of ``x``: no kernel looks at them.

    That is what exporters make of ``x[..., a:b] = updates``. A box that is all of ``x`` needs no ``x``.
    """
    x, indices, updates = inputs
    constant = indices.value is not None and indices.shape[-1] > 0
    box = _box_of(indices, x.shape, name) if constant else None
    if box is None:
        return False
    begin, extents = box
    slabs = list(_beside(begin, extents, x.shape))
    if not slabs:
        emit_renamed(name, updates, output, lowering)
        return True
    put = updates.reshaped(extents)
    if prod(indices.shape[:-1]) < _TUPLES_A_NEST * len(slabs) or not put.lies_as(updates):
        return False
    boxes = [BoxCopy(1, extents, along([0] * len(extents)), along(begin))]
    boxes += [BoxCopy(0, shape, along(first), along(first)) for first, shape in slabs]
    emit_boxes(name, [x, put], boxes, output, lowering)
    return True


Box = tuple[tuple[int, ...], tuple[int, ...]]  # where it begins along each dimension, and its extents


def _box_of(indices: TensorSpec, shape: tuple[int, ...], name: str) -> Box | None:
    """The box of ``shape`` that constant ``indices`` [..., n] count through, the last dimension fastest."""
    deep = indices.shape[-1]
    columns = np.asarray(indices.value).reshape(-1, deep)
    given = [TensorSpec(name, indices.dtype, (len(columns),), columns[:, d]) for d in range(deep)]
    at = [checked(column, shape[d], name) for d, column in enumerate(given)]
    begin = tuple(int(column[0]) for column in at)
    extents = tuple(int(column[-1]) + 1 - first for column, first in zip(at, begin, strict=True))
    if min(extents, default=1) < 1 or prod(extents) != len(columns):
        return None
    counted = np.indices(extents).reshape(deep, -1)
    if any((column - first != own).any() for column, first, own in zip(at, begin, counted, strict=True)):
        return None
    return begin + (0,) * (len(shape) - deep), extents + shape[deep:]


def _beside(begin: tuple[int, ...], extents: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[Box]:
    """Boxes of ``shape`` that are all of it but one box, the outermost dimensions cut first."""
    for d, (first, extent) in enumerate(zip(begin, extents, strict=True)):
        for low, high in ((0, first), (first + extent, shape[d])):
            if low < high:
                yield (
                    (*begin[:d], low, *(0 for _ in shape[d + 1 :])),
                    (*extents[:d], high - low, *shape[d + 1 :]),
                )


@maps("TensorScatter", dtypes=MOVED, notes="both modes; write indices constant or computed")
def map_tensor_scatter(node: NodeSpec, lowering: Lowering) -> None:
    x, updates, first, output = node.input(0), node.input(1), node.input(2), node.outputs[0]
    if x is None or updates is None or output is None or updates.dtype != x.dtype:
        raise Unsupported("TensorScatter without cache, update of its type or result", "all of them")
    carried(x)
    axis = int(node.attr("axis", -2)) % len(x.shape)
    extent, length = x.shape[axis], updates.shape[axis]
    if not updates.size:
        lowering.emit(Copy(node.name, [x], output, lowering.device))
        return
    beside = prod(x.shape[1:axis])
    at = _write_places(node, first, (x.shape[0], beside, length), extent, lowering)
    row, count = carried(x)
    if axis == len(x.shape) - 1 and row.per_word > 1:
        raise Unsupported("TensorScatter along rows of narrow elements", "an axis before the last")
    each = prod(x.device_shape[axis + 1 :]) * count
    sizes = {"o": x.shape[0] * beside, "a": extent, "k": length, "i": 1, "w": each}
    own, step = {"o": extent * each, "a": each, "w": 1}, {"o": length * each, "k": each, "w": 1}
    strides = {"x": own, "out": own, "index": {"o": length, "k": 1}, "updates": step}
    walk = IndexedLayout(sizes, strides, {"w": max(row.per_word, count)}, extent=extent)
    lowering.emit(Scatter(node.name, (x, at, updates), output, walk, "none", lowering.device))


def _write_places(
    node: NodeSpec,
    first: TensorSpec | None,
    shape: tuple[int, int, int],
    extent: int,
    lowering: Lowering,
) -> TensorSpec:
    """Where every update goes along the axis, [batch, beside, length] of int32."""
    device, name, made = lowering.device, node.name, np.dtype(np.int32)
    circular = node.attr("mode", "linear") == "circular"
    if first is None or first.value is not None:
        begins = np.zeros(shape[0], np.int64) if first is None else np.asarray(first.value)
        given = TensorSpec(name, np.dtype(np.int64), begins.shape, begins)
        at = checked(given, extent, name)[:, None, None] + np.arange(shape[2])
        at = np.broadcast_to(at % extent if circular else at, shape)
        return lowering.const(checked(replace(given, shape=shape, value=at), extent, name).astype(np.int32))
    # A write index is a position of the axis: another one ends the run.
    begin = emit_positions(name, first.reshaped((shape[0], 1)), (extent,), (extent,), lowering, True)
    steps = lowering.const(np.arange(shape[2], dtype=np.int32))
    views = [View((1, 0, 0)), View((0, 0, 1))]
    where = lowering.temp(made, shape)
    lowering.emit(Eltwise(name, "add", [begin, steps], where, device, layout=Layout(views)))
    if not circular:
        return where
    turn = lowering.const(np.full(1, extent, np.int32))
    laps, whole, within = (lowering.temp(made, shape) for _ in range(3))
    lowering.emit(Eltwise(name, "div", [where, turn], laps, device))
    lowering.emit(Eltwise(name, "mul", [laps, turn], whole, device))
    lowering.emit(Eltwise(name, "sub", [where, whole], within, device))
    return within


@maps("OneHot", dtypes=("int64", "int32", "float32"), notes="depth constant; values constant or computed")
def map_one_hot(node: NodeSpec, lowering: Lowering) -> None:
    indices, depth, values, output = node.input(0), node.input(1), node.input(2), node.outputs[0]
    if indices is None or depth is None or values is None or output is None:
        raise Unsupported("OneHot without indices, depth, values or result", "all of them")
    if depth.value is None:
        raise Unsupported("a depth computed at run time", "a constant depth")
    if str(indices.dtype) not in ("int64", "int32", "float32"):
        raise Unsupported(f"OneHot of {indices.dtype}", "int64, int32, float32")
    if not output.size:
        lowering.emit(Copy(node.name, [values], output, lowering.device))
        return
    if indices.dtype == np.float32:
        whole = lowering.temp(np.dtype(np.int64), indices.shape)  # int32 would wrap some of them into range
        indices = emit_converted(node.name, indices, whole, lowering)
    axis = int(node.attr("axis", -1)) % len(output.shape)
    walk = _one_hot_walk(values, indices, axis, output)
    inputs = (values, indices, values)
    op = Scatter(node.name, inputs, output, walk, "none", lowering.device, lenient=True)
    lowering.emit(op)


def _one_hot_walk(values: TensorSpec, indices: TensorSpec, axis: int, output: TensorSpec) -> IndexedLayout:
    """The first of ``values`` everywhere; an index puts the second one at its place along ``axis``."""
    row, count = carried(output)
    extent, shape = output.shape[axis], output.shape
    outer, inner = prod(shape[:axis]), shape[axis + 1 :]
    sizes = {"o": outer, "a": extent, "k": 1, "i": 1, "w": 1}
    offsets = {"updates": count}
    if not inner and count == 1:
        pitch = output.row_pitch
        strides = {"x": {}, "updates": {}, "index": {"o": 1}, "out": {"o": pitch, "a": 1}}
        return IndexedLayout(sizes | {"a": pitch}, strides, {"a": row.per_word}, 0, extent, offsets)
    last, rows, wide = (inner[-1] if inner else 1), prod(inner[:-1]), (output.row_pitch if inner else 1)
    each = rows * wide * count
    if count > 1:
        sizes |= {"i": rows * wide, "w": count}
        index = {"o": rows * last, "i": 1}
        own = {"w": 1}
    else:
        sizes |= {"i": rows, "w": wide}
        index = {"o": rows * last, "i": last, "w": 1}
        own = {}
    out = {"o": extent * each, "a": each, "i": sizes["w"], "w": 1}
    strides = {"x": own, "updates": own, "index": index, "out": out}
    padding = wide - last if count == 1 else 0
    return IndexedLayout(sizes, strides, {"w": max(row.per_word, count)}, padding, extent, offsets)
