# SPDX-License-Identifier: Apache-2.0
"""ConvTranspose: plain convolutions for every phase of the stride, interleaved. Col2Im: sums of planes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.arrange import Arrange
from onedispatch.operators.kernels.conv import Conv
from onedispatch.operators.kernels.conv_transpose import (
    Phase,
    PhaseConvs,
    joined_weights,
    phases,
    selected_taps,
    union,
)
from onedispatch.operators.kernels.elementwise import Eltwise, View, numpy_names
from onedispatch.operators.kernels.movement import Move, StridedCopy
from onedispatch.operators.kernels.window import WindowAxis, check_steps, spatial, window
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.operands import operands_of
from onedispatch.operators.lowering.reduce import emit_reduce
from onedispatch.operators.mappings.conv import ConvFilter, emit_bias, emit_conv, emit_stacked
from onedispatch.operators.scheduling.index_space import contiguous_strides

F32 = np.dtype(np.float32)


@maps(
    "ConvTranspose",
    dtypes=numpy_names(FLOATS),
    notes="1-D to 3-D, groups, strides, dilations, any pads, output_padding, output_shape, auto_pad",
)
def map_conv_transpose(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, numpy_names(FLOATS))
    x, weights = inputs[:2]
    along = _along_of(node, x, weights.shape[2:], output)
    one = ConvFilter(weights, node.input(2), tuple(along), int(node.attr("group", 1)))
    emit_transposed(node.name, x, one, output, lowering)


def _along_of(node: NodeSpec, x: TensorSpec, kernel: Sequence[int], output: TensorSpec) -> list[WindowAxis]:
    """Taps and steps per dimension, and what is cut off before the first output."""
    rank = len(x.shape) - 2
    if rank not in (1, 2, 3):
        raise Unsupported(
            f"{node.op_type} over {rank} spatial dimensions", "one, two or three spatial dimensions"
        )
    strides = [int(v) for v in node.attr("strides") or [1] * rank]
    dilations = [int(v) for v in node.attr("dilations") or [1] * rank]
    pads = [int(v) for v in node.attr("pads") or [0] * (2 * rank)]
    further = [int(v) for v in node.attr("output_padding") or [0] * rank]
    mode = node.attr("auto_pad", "NOTSET") or "NOTSET"
    check_steps(node, kernel, strides, dilations)
    begins = pads[:rank]
    if mode == "VALID" and not node.attr("output_shape"):
        begins = [0] * rank
    elif mode != "NOTSET" or node.attr("output_shape"):
        reach = [
            (size - 1) * s + more + (k - 1) * d + 1
            for size, s, more, k, d in zip(x.shape[2:], strides, further, kernel, dilations, strict=True)
        ]
        totals = [max(0, r - o) for r, o in zip(reach, output.shape[2:], strict=True)]
        begins = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in totals]
    return [WindowAxis(*one) for one in zip(kernel, strides, dilations, begins, strict=True)]


def emit_transposed(
    name: str, x: TensorSpec, one: ConvFilter, output: TensorSpec, lowering: Lowering
) -> None:
    """``output`` [N, M, ...], the transposed convolution of x [N, C, ...] over one to three dimensions.

    Weights are [C, M/groups, *kernel]; ``begin`` of the window is what is cut off before the first output.
    Raises ``Unsupported`` for what does not fit the device.
    """
    if 0 in output.shape:
        lowering.emit(Eltwise(name, "fill", [], output, lowering.device, alpha=0.0))
    elif 0 in (x.size, one.weights.size):
        emit_bias(name, one.bias, output, lowering)
    elif output.element.per_word > 1 and not one.is_const:
        wide = [in_float32(name, t, lowering) for t in (x, one.weights)]
        bias = None if one.bias is None else in_float32(name, one.bias, lowering)
        sums = lowering.temp(F32, output.shape)
        _emit(name, wide[0], replace(one, weights=wide[1], bias=bias), sums, lowering)
        emit_converted(name, sums, output, lowering)
    else:
        _emit(name, x, one, output, lowering)


def _emit(name: str, x: TensorSpec, one: ConvFilter, output: TensorSpec, lowering: Lowering) -> None:
    found = [phases(a) for a in one.along]
    if all(len(some) == 1 for some in found):  # strides of one: a convolution with its taps turned round
        chosen = [some[0] for some in found]
        weights = _plain_weights(name, one, [chosen], lowering)
        seen = weights.reshaped(_plain_shape(one, chosen))
        plain = ConvFilter(seen, one.bias, tuple(p.along for p in chosen), one.groups)
        emit_conv(name, x, plain, output, lowering)
    elif len(found) == 3:
        _emit_frames(name, x, one, output, found[0], lowering)
    else:
        made = _phases_made(name, x, one, output, found, lowering)
        _emit_interleaved(name, made, [len(some) for some in found], output, lowering)


def _plain_shape(one: ConvFilter, chosen: Sequence[Phase]) -> tuple[int, ...]:
    c, m = one.weights.shape[:2]
    return (m * one.groups, c // one.groups, *(p.along.kernel for p in chosen))


def _plain_weights(
    name: str, one: ConvFilter, combinations: Sequence[Sequence[Phase]], lowering: Lowering
) -> TensorSpec:
    """The weights [M, C/groups, *taps] of plain convolutions, one after the other in a row."""
    value, groups = one.weights.value, one.groups
    if value is not None:
        each = [selected_taps(value, groups, [p.taps for p in chosen]) for chosen in combinations]
        return lowering.const(np.concatenate([w.reshape(-1) for w in each]))
    (c, m), kernel = one.weights.shape[:2], one.weights.shape[2:]
    inside, taps = c // groups, prod(kernel)
    zero, parts, at = lowering.const(np.zeros(1, one.weights.dtype)), [], 0
    for chosen in combinations:
        counts = [p.along.kernel for p in chosen]
        shape = (groups, m, inside)
        for place in np.ndindex(*counts):
            flat = int(np.ravel_multi_index(place, counts))
            strides = (m * inside * prod(counts), inside * prod(counts), prod(counts))
            out = View(strides, at + flat)
            if not all(p.taps for p in chosen):
                parts.append(StridedCopy(1, shape, View((0, 0, 0)), out))
                continue
            tap = [p.taps[i] for p, i in zip(chosen, place, strict=True)]
            first = int(np.ravel_multi_index(tap, kernel))
            parts.append(StridedCopy(0, shape, View((inside * m * taps, taps, m * taps), first), out))
        at += groups * m * inside * prod(counts)
    made = lowering.temp(one.weights.dtype, (at,))
    lowering.emit(Move(name, [one.weights, zero], made, lowering.device, parts))
    return made


@dataclass(frozen=True)
class _Made:
    """Outputs of all phases: ``phase`` and ``channel`` count planes from one to the next; images follow their
    channels. Along each dimension the first ``cuts`` of them are behind the border."""

    tensor: TensorSpec
    phase: int
    channel: int
    cuts: Sequence[int]


def _least_union(along: WindowAxis) -> int:
    """What to cut off before the first output, so that all phases have their taps at the fewest inputs."""
    sizes = [union(phases(replace(along, begin=along.begin - cut)))[1] for cut in range(along.stride)]
    return sizes.index(min(sizes))


def _phases_made(
    name: str,
    x: TensorSpec,
    one: ConvFilter,
    output: TensorSpec,
    found: Sequence[Sequence[Phase]],
    lowering: Lowering,
) -> _Made:
    """The outputs of all phases: of one convolution that has them as channels, or of one for each.

    One where all phases have their taps at the same inputs. Otherwise it would multiply inputs by zeros
    that no tap is, and infinities and NaN would reach outputs that they have no part in.
    """
    n, made, count = x.shape[0], output.shape[1], prod(len(some) for some in found)
    exact, value = prod(a.kernel for a in one.along), one.weights.value
    cuts = [_least_union(a) for a in one.along]
    aligned = [phases(replace(a, begin=a.begin - cut)) for a, cut in zip(one.along, cuts, strict=True)]
    joined = count * prod(union(some)[1] for some in aligned)
    depthwise = one.groups == x.shape[1] == made > 1
    if one.is_const and not depthwise and joined == exact and value is not None:
        rounds = [
            -(-(o + cut) // a.stride) for o, cut, a in zip(output.shape[2:], cuts, one.along, strict=True)
        ]
        weights = lowering.const(joined_weights(value, one.groups, aligned))
        bias = None
        if one.bias is not None and one.bias.value is not None:
            bias = lowering.const(np.repeat(one.bias.value.reshape(-1), count))
        reach = [union(some) for some in aligned]
        along = tuple(WindowAxis(size, 1, 1, -first) for first, size in reach)
        target = lowering.temp(x.dtype, (n, made * count, *rounds))
        emit_conv(name, x, ConvFilter(weights, bias, along, one.groups), target, lowering)
        return _Made(target, 1, count, cuts)
    sizes = [-(-o // len(some)) for o, some in zip(output.shape[2:], found, strict=True)]
    # The zeros that stand for no tap are multiplied by padding alone.
    beyond = [
        [p if p.taps else replace(p, first=size) for p in some]
        for some, size in zip(found, x.shape[2:], strict=True)
    ]
    combinations = list(product(*beyond))
    weights = _plain_weights(name, one, combinations, lowering)
    target = lowering.temp(x.dtype, (count, n, made, *sizes))
    parts, at = [], 0
    for chosen in combinations:
        shape = _plain_shape(one, chosen)
        value = None if weights.value is None else weights.value[at : at + prod(shape)].reshape(shape)
        own = TensorSpec(f"{weights.name}//{at}", weights.dtype, shape, value)
        at += prod(shape)
        part = TensorSpec(target.name, target.dtype, (n, made, *sizes))
        walked = window([p.along for p in chosen])
        inputs = [x, own] if one.bias is None else [x, own, one.bias]
        parts.append(Conv(name, inputs, part, walked, one.groups, lowering.device))
    shared = None if weights.is_const and one.is_const else weights
    lowering.emit(PhaseConvs(name, parts, target, lowering.device, shared))
    return _Made(target, n * made, 1, [0] * len(found))


def _emit_interleaved(
    name: str, made: _Made, counts: Sequence[int], output: TensorSpec, lowering: Lowering
) -> None:
    """``output``, whose elements are of every phase in turn along its last dimensions."""
    h, w = (1, *counts) if len(counts) == 1 else counts
    if output.element.per_word > 1 and (w > 1 or output.row_pitch != output.row):
        wide = emit_converted(name, made.tensor, lowering.temp(F32, made.tensor.shape), lowering)
        result = lowering.temp(F32, output.shape)
        _emit_interleaved(name, replace(made, tensor=wide), counts, result, lowering)
        emit_converted(name, result, output, lowering)
        return
    (oh, ow), width = spatial(output.shape), made.tensor.row_pitch
    plane = spatial(made.tensor.shape[-len(counts) - 2 :])[0] * width
    channels, phase = prod(output.shape[:2]), made.phase * plane
    top, left = (0, *made.cuts) if len(counts) == 1 else made.cuts
    parts = []
    for rows, columns in product(_segments(oh, h, top), _segments(ow, w, left)):
        shape = (channels, rows.rounds, rows.phases, columns.rounds, columns.phases)
        first = (rows.phase * w + columns.phase) * phase + rows.round * width + columns.round
        inside = View((made.channel * plane, width, w * phase, 1, phase), first)
        outside = View((oh * ow, h * ow, ow, w, 1), rows.at * ow + columns.at)
        parts.append(StridedCopy(0, shape, inside, outside))
    if w == 1:  # rows are whole
        parts = [_rows_last(part) for part in parts]
    lowering.emit(Arrange(name, [made.tensor], output, lowering.device, parts))


def _rows_last(part: StridedCopy) -> StridedCopy:
    """The same without its last dimension, which has one member."""
    view, out = (View(view.strides[:-1], view.offset) for view in (part.view, part.out_view))
    return StridedCopy(part.tensor, part.shape[:-1], view, out)


@dataclass(frozen=True)
class _PhaseRun:
    """Outputs from ``at`` on: of ``rounds`` rounds from ``round`` on, ``phases`` phases from ``phase`` on."""

    at: int
    round: int
    phase: int
    rounds: int
    phases: int


def _segments(extent: int, count: int, cut: int) -> list[_PhaseRun]:
    """What is left of the first round behind the cut, whole rounds, what is left of the last one."""
    first = min(-cut % count, extent)
    rounds, rest = divmod(extent - first, count)
    begin = 1 if cut else 0
    found = [
        _PhaseRun(0, 0, cut, 1, first),
        _PhaseRun(first, begin, 0, rounds, count),
        _PhaseRun(first + rounds * count, begin + rounds, 0, 1, rest),
    ]
    return [one for one in found if one.rounds and one.phases]


def _emit_frames(
    name: str, x: TensorSpec, one: ConvFilter, output: TensorSpec, found: Sequence[Phase], lowering: Lowering
) -> None:
    """By the phase of the depth: its planes are brought together as channels, the rest has two dimensions."""
    n, c = x.shape[:2]
    made, frames = output.shape[1:3]
    plane, stride = prod(output.device_shape[3:]), len(found)
    tensors: list[TensorSpec] = []
    parts: list[StridedCopy] = []
    for p, phase in enumerate(found):
        count = -(-(frames - p) // stride)
        if count <= 0:
            continue
        target = lowering.temp(output.dtype, (n * count, made, *output.shape[3:]))
        if phase.taps:
            zero = lowering.const(np.zeros(1, x.dtype))
            stacked = emit_stacked(name, x, phase.along, count, zero, lowering)
            seen = stacked.reshaped((n * count, c * len(phase.taps), *x.shape[3:]))
            flat = replace(one, weights=_frame_weights(name, one, phase, lowering), along=one.along[1:])
            emit_transposed(name, seen, flat, target, lowering)
        else:
            emit_bias(name, one.bias, target, lowering)
        shape, inside = (n, made, count, plane), View((count * made * plane, plane, made * plane, 1))
        outside = View((made * frames * plane, frames * plane, stride * plane, 1), p * plane)
        parts.append(StridedCopy(len(tensors), shape, inside, outside))
        tensors.append(target)
    lowering.emit(Arrange(name, tensors, output, lowering.device, parts))


def _frame_weights(name: str, one: ConvFilter, phase: Phase, lowering: Lowering) -> TensorSpec:
    """Weights [C * taps, M/groups, *kernel of a plane]: the phase's taps along the depth are channels."""
    c, m, depth, *rest = one.weights.shape
    taps, shape = len(phase.taps), (c * len(phase.taps), m, *rest)
    if one.weights.value is not None:
        chosen = np.take(one.weights.value, list(phase.taps), axis=2)
        return lowering.const(np.ascontiguousarray(np.moveaxis(chosen, 2, 1)).reshape(shape))
    size = prod(rest)
    made, strides = lowering.temp(one.weights.dtype, shape), contiguous_strides((c, taps, m, size))
    parts = [
        StridedCopy(
            0,
            (c, m, size),
            View((m * depth * size, depth * size, 1), k * size),
            View((strides[0], size, 1), i * strides[1]),
        )
        for i, k in enumerate(phase.taps)
    ]
    lowering.emit(Move(name, [one.weights], made, lowering.device, parts))
    return made


@maps("Col2Im", dtypes=numpy_names(FLOATS), notes="images of one to three dimensions, constant shapes")
def map_col2im(node: NodeSpec, lowering: Lowering) -> None:
    (x, *_), output = node.inputs, node.outputs[0]
    if x is None or output is None or str(x.dtype) not in numpy_names(FLOATS):
        raise Unsupported(f"Col2Im of {x.dtype if x else 'nothing'}", ", ".join(numpy_names(FLOATS)))
    block = _listed(node, 2)
    along = _block_along(node, block)
    taps, channels = prod(block), output.shape[1]
    steps = [
        (size + a.begin + a.end - (a.kernel - 1) * a.dilation - 1) // a.stride + 1
        for size, a in zip(output.shape[2:], along, strict=True)
    ]
    if 0 in (x.size, output.size):
        lowering.emit(Eltwise(node.name, "fill", [], output, lowering.device, alpha=0.0))
        return
    wide = in_float32(node.name, x, lowering)
    seen = TensorSpec(wide.name, wide.dtype, (x.shape[0], channels, taps, *steps), wide.value)
    placed = lowering.temp(F32, (taps, *output.shape))
    zero, whole = lowering.const(np.zeros(1, F32)), View(contiguous_strides((placed.size,)))
    parts = [StridedCopy(1, (placed.size,), View((0,)), whole)]
    parts += [_placed(seen, placed, along, place) for place in np.ndindex(*block)]
    used = [part for part in parts if 0 not in part.shape]
    lowering.emit(Move(node.name, [seen, zero], placed, lowering.device, used))
    sums = output if output.dtype == F32 else lowering.temp(F32, output.shape)
    emit_reduce(node.name, "sum", placed, sums, (0, 1), lowering)
    if sums is not output:
        emit_converted(node.name, sums, output, lowering)


def _placed(
    seen: TensorSpec, placed: TensorSpec, along: Sequence[WindowAxis], place: Sequence[int]
) -> StridedCopy:
    """What blocks have at one ``place`` in them, where it lies in the image; without what lies outside."""
    n, c, _, *steps = seen.shape
    tap = int(np.ravel_multi_index(place, [a.kernel for a in along]))
    source, target, sizes = seen.strides[2] * tap, placed.strides[0] * tap, []
    for d, (a, at, count) in enumerate(zip(along, place, steps, strict=True)):
        offset, extent = at * a.dilation - a.begin, placed.shape[3 + d]
        first = max(0, -(offset // a.stride))
        sizes.append(max(0, min(count, -((offset - extent) // a.stride)) - first))
        source += first * seen.strides[3 + d]
        target += (first * a.stride + offset) * placed.strides[3 + d]
    out = [s * a.stride for s, a in zip(placed.strides[3:], along, strict=True)]
    inside = View((*seen.strides[:2], *seen.strides[3:]), source)
    return StridedCopy(0, (n, c, *sizes), inside, View((*placed.strides[1:3], *out), target))


def _listed(node: NodeSpec, index: int) -> list[int]:
    tensor = node.input(index)
    if tensor is None or tensor.value is None:
        raise Unsupported(f"Col2Im whose input {index} is computed at run time", "a constant")
    values: Any = tensor.value.reshape(-1).tolist()
    return [int(v) for v in values]


def _block_along(node: NodeSpec, block: Sequence[int]) -> tuple[WindowAxis, ...]:
    rank = len(block)
    if rank not in (1, 2, 3):
        raise Unsupported(f"Col2Im with blocks {list(block)}", "one, two or three dimensions")
    strides = [int(v) for v in node.attr("strides") or [1] * rank]
    dilations = [int(v) for v in node.attr("dilations") or [1] * rank]
    pads = [int(v) for v in node.attr("pads") or [0] * (2 * rank)]
    check_steps(node, block, strides, dilations)
    return tuple(
        WindowAxis(*one) for one in zip(block, strides, dilations, pads[:rank], pads[rank:], strict=True)
    )
