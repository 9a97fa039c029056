# SPDX-License-Identifier: Apache-2.0
"""Gather and its kin: results that are elements of an input, named by indices."""

from __future__ import annotations

from math import prod

import numpy as np

from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Eltwise, Layout, View
from onedispatch.operators.kernels.movement import Move, StridedCopy, carried
from onedispatch.operators.kernels.take import IndexedLayout, Take
from onedispatch.operators.lowering.movement import MOVED
from onedispatch.operators.lowering.position import emit_counts, emit_positions
from onedispatch.operators.lowering.take import checked, emit_take, rows_walk
from onedispatch.operators.scheduling.index_space import contiguous_strides


def indexed(node: NodeSpec) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Data, indices and the result of a node. Raises ``Unsupported`` for other types than move or count."""
    x, indices, output = node.input(0), node.input(1), node.outputs[0]
    if x is None or indices is None or output is None:
        raise Unsupported(f"{node.op_type} without data, indices or result", "all of them")
    if str(x.dtype) not in MOVED:
        raise Unsupported(f"{node.op_type} of {x.dtype}", ", ".join(MOVED))
    if str(indices.dtype) not in ("int32", "int64"):
        raise Unsupported(f"indices of {indices.dtype}", "int32, int64")
    carried(x)
    return x, indices, output


@maps("Gather", dtypes=MOVED, notes="any axis; indices of any rank, constant or computed")
def map_gather(node: NodeSpec, lowering: Lowering) -> None:
    x, indices, output = indexed(node)
    axis = int(node.attr("axis", 0)) % max(len(x.shape), 1)
    emit_take(node.name, x, indices, axis, output, lowering)


@maps("GatherElements", dtypes=MOVED, notes="any axis; indices constant or computed")
def map_gather_elements(node: NodeSpec, lowering: Lowering) -> None:
    x, indices, output = indexed(node)
    axis = int(node.attr("axis", 0)) % max(len(x.shape), 1)
    if not output.size:
        lowering.emit(Move(node.name, [x], output, lowering.device, []))
        return
    extent = x.shape[axis]
    if indices.value is not None:
        indices = lowering.const(checked(indices, extent, node.name).astype(np.int32))
    beside = tuple(extent if d == axis else n for d, n in enumerate(indices.shape))
    if beside != x.shape:  # what indices have no element for is left out
        x = _corner(node.name, x, beside, lowering)
    lowering.emit(Take(node.name, (x, indices), output, _elements_walk(x, indices, axis), lowering.device))


def _corner(name: str, x: TensorSpec, shape: tuple[int, ...], lowering: Lowering) -> TensorSpec:
    """The first ``shape`` elements of ``x``."""
    result = lowering.temp(x.dtype, shape)
    laid = result.device_shape
    part = StridedCopy(
        0, laid, View(x.strides), View(contiguous_strides(laid)), result.row_pitch - result.row
    )
    lowering.emit(Move(name, [x], result, lowering.device, [part]))
    return result


def _elements_walk(x: TensorSpec, indices: TensorSpec, axis: int) -> IndexedLayout:
    """x and its indices differ along ``axis`` alone; the result is as large as those."""
    row, count = carried(x)
    extent, length = x.shape[axis], indices.shape[axis]
    outer, inner = x.shape[:axis], x.shape[axis + 1 :]
    many = prod(outer)
    if not inner:
        lines = indices.reshaped((*outer, length))
        return rows_walk(x, outer, extent, None, lines, True, TensorSpec("", x.dtype, indices.shape))
    last, rows, wide = inner[-1], prod(inner[:-1]), x.row_pitch
    sizes = {"o": many, "k": extent, "j": length, "i": rows, "w": wide}
    index = {"o": length * rows * last, "j": rows * last, "i": last, "w": 1}
    if count > 1:
        sizes |= {"i": rows * wide, "w": count}
        index = {"o": length * rows * last, "j": rows * last, "i": 1}
    each, step = rows * wide * count, {"i": sizes["w"], "w": 1}
    strides = {
        "x": {"o": extent * each, "k": each, **step},
        "index": index,
        "out": {"o": length * each, "j": each, **step},
    }
    padding = wide - last if count == 1 else 0
    return IndexedLayout(sizes, strides, {"w": max(row.per_word, count)}, padding, extent)


@maps("GatherND", dtypes=MOVED, notes="any batch_dims; indices constant or computed")
def map_gather_nd(node: NodeSpec, lowering: Lowering) -> None:
    x, indices, output = indexed(node)
    first = int(node.attr("batch_dims", 0))
    stop = first + (indices.shape[-1] if indices.shape else 0)
    if not output.size:
        lowering.emit(Move(node.name, [x], output, lowering.device, []))
        return
    at = emit_positions(node.name, indices, x.shape[first:stop], x.device_shape[first:stop], lowering)
    at = at.reshaped(indices.shape[:-1])
    ends = stop == len(x.shape)
    inner = None if ends else prod(x.device_shape[stop:])
    extent = prod(x.device_shape[first:stop])
    walk = rows_walk(x, x.shape[:first], extent, inner, at, True, output)
    lowering.emit(Take(node.name, (x, at), output, walk, lowering.device))


@maps(
    "ReverseSequence",
    dtypes=MOVED,
    notes="either axis; lengths constant or computed",
)
def map_reverse_sequence(node: NodeSpec, lowering: Lowering) -> None:
    x, lengths, output = indexed(node)
    time, batch = int(node.attr("time_axis", 0)), int(node.attr("batch_axis", 1))
    if {time, batch} != {0, 1} or len(x.shape) < 2:
        raise Unsupported(
            f"time_axis {time} and batch_axis {batch} of {x}", "0 and 1, two dimensions or more"
        )
    if not output.size:
        lowering.emit(Move(node.name, [x], output, lowering.device, []))
        return
    row, count = carried(x)
    steps, lines = x.shape[time], x.shape[batch]
    at = _reversed(node.name, lengths, (x.shape[0], x.shape[1]), time, lowering)
    if len(x.shape) == 2:
        walk = _elements_walk(x, at.reshaped(x.shape), time)
    else:
        wide = prod(x.device_shape[2:]) * count
        sizes = {"o": 1, "k": steps, "j": steps, "i": lines, "w": wide}
        own, index = {"i": wide, "w": 1}, {"j": lines, "i": 1}
        strides = {"x": {"k": lines * wide, **own}, "index": index, "out": {"j": lines * wide, **own}}
        if batch == 0:
            sizes |= {"o": lines, "i": 1}
            own, index = {"o": steps * wide}, {"o": steps, "j": 1}
            strides = {"x": {**own, "k": wide, "w": 1}, "index": index, "out": {**own, "j": wide, "w": 1}}
        walk = IndexedLayout(sizes, strides, {"w": max(row.per_word, count)}, extent=steps)
    lowering.emit(Take(node.name, (x, at), output, walk, lowering.device))


def _reversed(
    name: str, lengths: TensorSpec, shape: tuple[int, int], time: int, lowering: Lowering
) -> TensorSpec:
    """Where each element comes from along time, int32: length - 1 - t below its length, t behind.

    A computed length outside of the axis ends the run.
    """
    made, device, steps = np.dtype(np.int32), lowering.device, shape[time]
    along = View((1, 0) if time == 0 else (0, 1))
    across = View((0, 1) if time == 0 else (1, 0))
    if lengths.value is not None:
        wrong = np.asarray(lengths.value)[(lengths.value < 0) | (lengths.value > steps)]
        if wrong.size:
            raise Unsupported(f"a sequence of {wrong.flat[0]} in an axis of {steps}", f"0 to {steps}")
        each = np.asarray(lengths.value).astype(np.int64)
        at, n = (np.arange(steps)[:, None], each) if time == 0 else (np.arange(steps), each[:, None])
        return lowering.const(np.where(at < n, n - 1 - at, at + 0 * n).astype(np.int32))
    lengths = emit_counts(name, lengths, steps, lowering)
    t = lowering.const(np.arange(steps, dtype=np.int32))
    ends = lowering.const(np.arange(steps, dtype=np.int32) * 2 + 1)
    zero, one = (lowering.const(np.full(1, v, np.int32)) for v in (0, 1))

    def step(func: str, inputs: list[TensorSpec], views: list[View]) -> TensorSpec:
        result = lowering.temp(made, shape)
        lowering.emit(Eltwise(name, func, inputs, result, device, layout=Layout(views)))
        return result

    whole, single = View((shape[1], 1)), View((0, 0))
    left = step("sub", [lengths, t], [across, along])
    inside = step("min", [step("max", [left, zero], [whole, single]), one], [whole, single])
    turned = step("mul", [inside, step("sub", [lengths, ends], [across, along])], [whole, whole])
    return step("add", [turned, t], [whole, along])
