# SPDX-License-Identifier: Apache-2.0
"""Resize and Upsample: one axis after the other, or where elements repeat evenly, one strided copy."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import isfinite, prod

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.params import MAX_DENOMINATOR, MAX_NUMERATOR
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import numpy_names
from onedispatch.operators.kernels.movement import carried
from onedispatch.operators.kernels.repeat import Array, Repeat, ResizeStep
from onedispatch.operators.kernels.resample import Resample
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.movement import MOVED, Copy, emit_narrow, emit_wide
from onedispatch.operators.lowering.resize_tables import AxisMap, ResampleFilter

_WEIGHTED = numpy_names(FLOATS)  # of linear and cubic
_CUT = ("int8", "uint8", "int32")  # of linear without antialias: floats, cut towards 0


def _step(index: Array, extent: int) -> ResizeStep | None:
    """The step that gives these places of an axis of ``extent`` elements, where there is one."""
    places, count = index.astype(np.int64), len(index)
    start = int(places[0])
    repeats = int(np.argmax(places != start)) or min(count, MAX_DENOMINATOR)
    apart = int(places[-1] - start) // max(count - 1, 1)
    for slope in (Fraction(1, repeats), Fraction(apart), Fraction(extent, count)):
        a, den = slope.numerator, slope.denominator
        fits = 0 < a <= MAX_NUMERATOR and den <= MAX_DENOMINATOR
        if fits and np.array_equal(np.arange(count) * a // den + start, places):
            return a, den, start
    return None


def _emit_nearest(
    node: NodeSpec,
    lowering: Lowering,
    tensors: tuple[TensorSpec, TensorSpec],
    tables: dict[int, Array],
    outside: float,
) -> None:
    x, output = tensors
    found = [_step(tables[d], x.shape[d]) if d in tables else (1, 1, 0) for d in range(len(x.shape))]
    steps = [step for step in found if step is not None]
    if len(steps) == len(found) and all((table >= 0).all() for table in tables.values()):
        try:
            lowering.emit(Repeat(node.name, x, output, steps, lowering.device))
            return
        except Unsupported:
            pass  # more dimensions than a nest has
    narrow, count = carried(x)[0].per_word > 1, carried(x)[1]
    if narrow:
        outside = float(np.asarray(outside).astype(x.dtype).view(f"u{x.dtype.itemsize}"))
    source = emit_wide(node.name, x, lowering) if narrow else x
    result = lowering.temp(source.dtype, output.shape) if narrow else output
    rows = {d: (table[:, None], None) for d, table in tables.items()}
    _emit_passes(node, lowering, source, result, rows, outside, count)
    if narrow:
        emit_narrow(node.name, result, output, lowering)


_Tables = Mapping[int, tuple[Array, Array | None]]


def _order(x: TensorSpec, tables: _Tables) -> list[int]:
    """Axes in the order of passes: those first that make the least of it.

    Of axes that grow alike the last comes first: rows of others are vectors of neighbours, and take less.
    """
    growth = {d: len(index) / max(x.shape[d], 1) for d, (index, _) in tables.items()}
    return sorted(tables, key=lambda d: (growth[d], -d if growth[d] > 1 else d))


def _emit_passes(
    node: NodeSpec,
    lowering: Lowering,
    x: TensorSpec,
    output: TensorSpec,
    tables: _Tables,
    outside: float,
    count: int = 1,
) -> None:
    """One axis after the other; elements are ``count`` words."""
    order = _order(x, tables)
    for d in order:
        index, weight = tables[d]
        shape = [*x.shape[:d], len(index), *x.shape[d + 1 :]]
        target = output if d == order[-1] else lowering.temp(x.dtype, shape)
        sizes = prod(x.shape[:d]), x.shape[d], prod(x.shape[d + 1 :]) * count
        constants = [lowering.const(table) for table in (index, weight) if table is not None]
        lowering.emit(Resample(node.name, [x, *constants], target, sizes, lowering.device, outside))
        x = target


def _values(node: NodeSpec, index: int, what: str) -> list[float] | None:
    """A constant operand's values; None where it is absent or empty, which ONNX takes for the same."""
    tensor = node.input(index)
    if tensor is None or 0 in tensor.shape:
        return None
    if tensor.value is None:
        raise Unsupported(f"{what} computed at run time", f"constant {what}")
    return [float(v) for v in np.asarray(tensor.value).reshape(-1)]


def _axis_maps(node: NodeSpec, x: TensorSpec, output: TensorSpec) -> list[AxisMap]:
    """How every axis is resized."""
    rank = len(x.shape)
    given = node.attr("axes")
    axes = [int(a) % rank for a in given] if given else list(range(rank))
    old = node.op_type == "Upsample" or node.opset < 11
    scales = node.attr("scales") or _values(node, 1 if old else 2, "scales")
    sizes = None if old else _values(node, 3, "sizes")
    cropped = node.attr("coordinate_transformation_mode") == "tf_crop_and_resize"
    roi = None if old or not cropped else _values(node, 1, "roi")
    if cropped and (roi is None or len(roi) != 2 * len(axes)):
        raise Unsupported("tf_crop_and_resize without a roi of two numbers per axis", "start and end of each")
    if (scales is None) == (sizes is None) or len(scales or sizes or ()) != len(axes):
        raise Unsupported("Resize without scales or sizes of every axis", "one of the two, a number per axis")
    if scales is None and sizes is not None:
        scales = [size / max(x.shape[d], 1) for size, d in zip(sizes, axes, strict=True)]
        policy = node.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scales = [min(scales) if policy == "not_larger" else max(scales)] * len(axes)
    found = [AxisMap(n, n, 1.0, n) for n in x.shape]
    for i, (d, scale) in enumerate(zip(axes, scales or (), strict=True)):
        resized = output.shape[d]
        length = resized if sizes is not None else scale * x.shape[d]
        region = (roi[i], roi[len(axes) + i]) if cropped and roi is not None else (0.0, 1.0)
        found[d] = AxisMap(x.shape[d], resized, scale, length, region)
    return found


def _filter(node: NodeSpec) -> ResampleFilter:
    mode = node.attr("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic"):
        raise Unsupported(f"{node.op_type} with mode {mode}", "nearest, linear, cubic")
    if node.op_type == "Upsample" or node.opset < 11:
        return ResampleFilter(mode, "asymmetric", "simple")
    antialias = bool(node.attr("antialias", 0))
    if antialias and mode == "nearest":
        raise Unsupported("Resize with antialias and mode nearest", "linear or cubic")
    return ResampleFilter(
        mode,
        node.attr("coordinate_transformation_mode", "half_pixel"),
        node.attr("nearest_mode", "round_prefer_floor"),
        float(node.attr("cubic_coeff_a", -0.75)),
        bool(node.attr("exclude_outside", 0)),
        antialias,
    )


@maps(
    "Resize",
    "Upsample",
    dtypes=MOVED,
    notes=f"every mode and coordinate transformation; linear and cubic of {', '.join(_WEIGHTED)}; "
    f"linear without antialias of {', '.join(_CUT)} too",
)
def map_resize(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    if x is None or output is None:
        raise Unsupported(f"{node.op_type} without its data or its result", "both")
    filtered, outside = _filter(node), float(node.attr("extrapolation_value", 0.0))
    cut = _CUT if filtered.mode == "linear" and not filtered.antialias else ()
    if filtered.mode != "nearest" and str(x.dtype) not in (*_WEIGHTED, *cut):
        how = f"{'antialiased, ' if filtered.antialias else ''}mode {filtered.mode}"
        raise Unsupported(f"{node.op_type} of {x.dtype} with {how}", ", ".join((*_WEIGHTED, *cut)))
    if outside and (carried(x)[1] > 1 or not isfinite(outside)):
        raise Unsupported(
            f"extrapolation_value {outside} of {x.dtype}", "0, or elements of 32 bits and a finite value"
        )
    maps_of = {d: axis for d, axis in enumerate(_axis_maps(node, x, output)) if not axis.same}
    if not output.size:
        raise Unsupported(f"{node.op_type} to {list(output.shape)}", "at least one element")
    if not maps_of:
        lowering.emit(Copy(node.name, [x], output, lowering.device))
        return
    tables = {d: filtered.table(axis) for d, axis in maps_of.items()}
    if filtered.mode == "nearest":
        nearest = {d: index[:, 0] for d, (index, _) in tables.items()}
        _emit_nearest(node, lowering, (x, output), nearest, outside)
        return
    wide = in_float32(node.name, x, lowering)
    last = _order(x, tables)[-1]
    rounds = output.element.is_float and last < len(x.shape) - 1 and output.row_pitch == output.row
    result = output if wide is x or rounds else lowering.temp(wide.dtype, output.shape)
    _emit_passes(node, lowering, wide, result, tables, outside)
    if result is not output:
        emit_converted(node.name, result, output, lowering)
