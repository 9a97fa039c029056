# SPDX-License-Identifier: Apache-2.0
"""Conv: what maps it, and convolutions over three dimensions as those over two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.arrange import Arrange
from onedispatch.operators.kernels.channel_norm import channel_view
from onedispatch.operators.kernels.conv import Conv, Planes
from onedispatch.operators.kernels.conv_integer import IntegerConv, RequantParams
from onedispatch.operators.kernels.elementwise import Eltwise, Layout, View, numpy_names
from onedispatch.operators.kernels.movement import Move, StridedCopy
from onedispatch.operators.kernels.window import WindowAxis, along_of, window
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.live_taps import of_live_taps
from onedispatch.operators.lowering.movement import emit_narrow, emit_wide
from onedispatch.operators.lowering.operands import operands_of
from onedispatch.operators.lowering.qlinear import BYTES, NARROW, bytes_of
from onedispatch.operators.lowering.split_window import Split, splits
from onedispatch.operators.mappings.matmul_integer import known_zero, scale_of_sums
from onedispatch.operators.scheduling.index_space import contiguous_strides
from onedispatch.operators.scheduling.search import estimated


@dataclass(frozen=True)
class ConvFilter:
    """What a convolution does to its data: weights [M, C/groups, *kernel], a bias [M], a window; of integers,
    what they stand for."""

    weights: TensorSpec
    bias: TensorSpec | None
    along: tuple[WindowAxis, ...]
    groups: int
    meaning: RequantParams | None = None

    @property
    def is_const(self) -> bool:
        others = () if self.meaning is None else self.meaning.known_early
        return all(t is None or t.is_const for t in (self.weights, self.bias, *others))

    def operator(
        self, name: str, x: TensorSpec, output: TensorSpec, lowering: Lowering, planes: Planes | None
    ) -> Conv:
        """The operator for x and output that lie as ``planes`` say, over one or two dimensions."""
        args = output, window(self.along), self.groups, lowering.device
        bias = () if self.bias is None else (self.bias,)
        if self.meaning is None:
            return Conv(name, (x, self.weights, *bias), *args, planes=planes)
        weights = self.weights if self.is_const else self._in_rows(name, lowering)
        return IntegerConv(name, (x, weights, *bias), *args, self.meaning, planes=planes)

    def _in_rows(self, name: str, lowering: Lowering) -> TensorSpec:
        """The weights as [M, C/groups, taps]: those of a window in one row of whole words."""
        given = self.weights
        shape = (*given.shape[:2], prod(given.shape[2:]))
        if given.value is not None:
            return lowering.const(given.value.reshape(shape))
        if shape[-1] == given.shape[-1]:
            return given.reshaped(shape)
        rows = lowering.temp(given.dtype, shape)
        emit_narrow(name, emit_wide(name, given, lowering), rows, lowering)
        return rows

    def live(self, x: TensorSpec, output: TensorSpec, lowering: Lowering) -> ConvFilter:
        """The filter without taps that meet no element of x."""
        weights, along = of_live_taps(self.weights, self.along, x, output, lowering)
        return replace(self, weights=weights, along=along)

    def outside(self, x: TensorSpec, lowering: Lowering) -> TensorSpec:
        """What lies around x, as a tensor of one element."""
        zero = None if self.meaning is None else self.meaning.x_zero
        return lowering.const(np.zeros(1, x.dtype)) if zero is None else zero


@maps(
    "Conv",
    dtypes=numpy_names(FLOATS),
    notes="1-D to 3-D, groups, dilations, any pads, any number of channels; bfloat16 and float16 in "
    "float32 where weights or bias are computed",
)
def map_conv(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, numpy_names(FLOATS))
    x, weights = inputs[:2]
    along = along_of(node, x, weights.shape[2:], output)
    one = ConvFilter(weights, node.input(2), tuple(along), int(node.attr("group", 1)))
    emit_conv(node.name, x, one, output, lowering)


@maps(
    "ConvInteger",
    dtypes=BYTES,
    notes="as Conv; zero points per tensor, of weights per output channel too; weights constant or computed",
)
def map_conv_integer(node: NodeSpec, lowering: Lowering) -> None:
    x_zero, w_zero = (known_zero(node.input(i)) for i in (2, 3))
    _emit_integers(node, lowering, (0, 1), None, RequantParams(x_zero, w_zero))


@maps(
    "QLinearConv",
    dtypes=NARROW,
    notes="as Conv; scales and zero points of weights per tensor or channel; weights constant or computed",
)
def map_qlinear_conv(node: NodeSpec, lowering: Lowering) -> None:
    given = [node.input(index) for index in range(8)]
    tensors = [tensor for tensor in given if tensor is not None]
    if len(tensors) < len(given):
        raise Unsupported("QLinearConv without one of its tensors")
    scale = scale_of_sums(node, lowering, *(tensors[i] for i in (1, 4, 6)))
    x_zero, w_zero, out_zero = (known_zero(tensors[i]) for i in (2, 5, 7))
    _emit_integers(node, lowering, (0, 3), node.input(8), RequantParams(x_zero, w_zero, scale, out_zero))


def _emit_integers(
    node: NodeSpec,
    lowering: Lowering,
    places: tuple[int, int],
    bias: TensorSpec | None,
    meaning: RequantParams,
) -> None:
    """A convolution of integers: x and weights are inputs number ``places`` of the node."""
    narrow = meaning.scale is not None
    x, weights = (
        bytes_of(node, place, NARROW if narrow and not i else BYTES) for i, place in enumerate(places)
    )
    output = node.outputs[0]
    if output is None:
        raise Unsupported(f"{node.op_type} without output")
    if narrow and x.element.itemsize < output.element.itemsize:
        raise Unsupported(f"{node.op_type} of {x.dtype} to {output.dtype}", ", ".join(BYTES))
    if 0 in (x.size, weights.size) and output.size:
        raise Unsupported(f"{node.op_type} of no data: {x}, {weights}", "one channel, row and column or more")
    along = along_of(node, x, weights.shape[2:], output)
    one = ConvFilter(weights, bias, tuple(along), int(node.attr("group", 1)), meaning)
    _emit(node.name, x, one, output, lowering)


def emit_conv(name: str, x: TensorSpec, one: ConvFilter, output: TensorSpec, lowering: Lowering) -> None:
    """``output`` [N, M, ...], the convolution of x [N, C, ...] over one to three dimensions.

    Raises ``Unsupported`` for what does not fit the device.
    """
    if 0 in (x.size, one.weights.size) and output.size:
        emit_bias(name, one.bias, output, lowering)
    elif output.element.per_word == 1 or one.is_const:
        _emit(name, x, one, output, lowering)
    else:
        # Computed weights are read as they lie, which kernels do in words: results are rounded once as well.
        x, weights = (in_float32(name, tensor, lowering) for tensor in (x, one.weights))
        bias = None if one.bias is None else in_float32(name, one.bias, lowering)
        sums = lowering.temp(np.dtype(np.float32), output.shape)
        _emit(name, x, ConvFilter(weights, bias, one.along, one.groups), sums, lowering)
        emit_converted(name, sums, output, lowering)


def emit_bias(name: str, bias: TensorSpec | None, output: TensorSpec, lowering: Lowering) -> None:
    """A convolution of no data: sums of nothing, and the bias."""
    if bias is None:
        op = Eltwise(name, "fill", [], output, lowering.device, alpha=0.0)
    else:
        views = [channel_view(output.shape)]
        op = Eltwise(name, "copy", [bias], output, lowering.device, layout=Layout(views))
    lowering.emit(op)


def _emit(name: str, x: TensorSpec, one: ConvFilter, output: TensorSpec, lowering: Lowering) -> None:
    one = one.live(x, output, lowering)
    if one.meaning is not None and (flat := _flattened(x, one, output)) is not None:
        one, planes = flat
    elif len(one.along) < 3:
        planes = None
    elif 0 in output.shape or 0 in x.shape:
        return _emit_nothing(name, output, lowering)
    elif (joined := _joined(x, one, output)) is not None:
        one, planes = joined
    elif (single := _single_frames(x, one, output)) is not None:
        one, planes = single
    else:
        return _emit_frames(name, x, one, output, lowering)
    operator = one.operator(name, x, output, lowering, planes)
    try:
        lowering.emit(operator)
    except Unsupported:
        split = None if planes is not None else _cheapest_parts(name, x, one, output, lowering)
        if split is None:
            raise
        _emit_parts(name, x, one, split, output, lowering)
    return None


def _emit_parts(
    name: str, x: TensorSpec, one: ConvFilter, split: Split, output: TensorSpec, lowering: Lowering
) -> None:
    """The convolution with a part of its taps as channels. Of a window that is split as far as it goes, what
    does not fit yet is split along the next axis."""
    seen, parts = split.emit(name, x, one.outside(x, lowering), lowering), _of_parts(one, x, split)
    if split.taps == 1:
        _emit(name, seen, parts, output, lowering)
    else:
        lowering.emit(parts.operator(name, seen, output, lowering, None))


def _cheapest_parts(
    name: str, x: TensorSpec, one: ConvFilter, output: TensorSpec, lowering: Lowering
) -> Split | None:
    """The way to split the window that fits and is estimated to take the fewest cycles; None where none fits.

    The axis is the first along which windows have several taps, of rows in elements narrower than words that
    are computed none: their padding follows from their length.
    """
    axis = next((d for d, a in enumerate(one.along) if a.kernel > 1), None)
    if axis is None or not (one.is_const or x.element.per_word == 1):
        return None
    at = len(x.shape) - len(one.along) + axis
    best, found = float("inf"), None
    for split in splits(at, one.along[axis], output.shape[at]):
        trial = replace(lowering, ops=[], aliases=[])
        try:
            _emit_parts(name, x, one, split, output, trial)
        except Unsupported:
            continue
        cycles = sum(estimated(schedule) for _, op in trial.ops for schedule in op.schedules)
        if cycles >= best:  # more channels pay no more
            break
        best, found = cycles, split
    return found


def _of_parts(one: ConvFilter, x: TensorSpec, split: Split) -> ConvFilter:
    """The filter over what ``split`` makes of x. In front of the axis windows have one tap each."""
    at = split.axis - (len(x.shape) - len(one.along))
    along = (*one.along[:at], split.along(x), *one.along[at + 1 :])
    made, inside = one.weights.shape[:2]
    shape = (made, inside * split.parts, *(a.kernel for a in along))
    return replace(one, weights=one.weights.reshaped(shape), along=along)


def _emit_nothing(name: str, output: TensorSpec, lowering: Lowering) -> None:
    lowering.emit(Eltwise(name, "fill", [], output, lowering.device, alpha=0.0))


def _flat(one: ConvFilter, along: Sequence[WindowAxis]) -> ConvFilter:
    """The filter over other dimensions, which have as many taps."""
    shape = (*one.weights.shape[:2], *(a.kernel for a in along))
    return replace(one, weights=one.weights.reshaped(shape), along=tuple(along))


def _flattened(x: TensorSpec, one: ConvFilter, output: TensorSpec) -> tuple[ConvFilter, Planes] | None:
    """Windows of one element see planes as one row, with the padding of both: as few runs as there are."""
    if not all(a.plain for a in one.along) or x.row_pitch != output.row_pitch or 0 in output.shape:
        return None
    plane = (1, prod(x.device_shape[2:]))
    return _flat(one, (WindowAxis(1),)), Planes(plane, plane, x.shape[1], (x.shape[1], x.shape[1], 1))


def _joined(x: TensorSpec, one: ConvFilter, output: TensorSpec) -> tuple[ConvFilter, Planes] | None:
    """Neighbouring dimensions in which no window reaches further are one; rows need no padding for that."""
    depth, height, width = one.along
    if x.element.per_word > 1:
        return None
    for joined, at in (((depth.plain and height.plain), 2), ((height.plain and width.plain), 3)):
        if joined:
            along = (height, width) if at == 2 else (depth, height)
            sizes = [(*s[2:at], s[at] * s[at + 1], *s[at + 2 :]) for s in (x.shape, output.shape)]
            inside, out = ((h, w) for h, w in sizes)
            return _flat(one, along), Planes(inside, out, x.shape[1], (x.shape[1], x.shape[1], 1))
    return None


def _single_frames(x: TensorSpec, one: ConvFilter, output: TensorSpec) -> tuple[ConvFilter, Planes] | None:
    """Frames that are made of one frame each: convolutions over two dimensions with another step."""
    n, c, depth = x.shape[:3]
    along, frames = one.along[0], output.shape[2]
    depthwise = one.groups == c == one.weights.shape[0] > 1
    if (along.kernel, along.begin, along.end) != (1, 0, 0) or not (depthwise or 1 in (n, frames, one.groups)):
        return None
    planes = _planes_of(x, output, c, (c * depth, along.stride, depth), frames)
    return _flat(one, one.along[1:]), planes


def _planes_of(
    x: TensorSpec, output: TensorSpec, channels: int, steps: tuple[int, int, int], frames: int
) -> Planes:
    (h, w), (oh, ow) = x.shape[-2:], output.shape[-2:]
    return Planes((h, w), (oh, ow), channels, steps, frames)


def _emit_frames(name: str, x: TensorSpec, one: ConvFilter, output: TensorSpec, lowering: Lowering) -> None:
    """Planes that a frame is made of are brought together: channels and planes are one reduction."""
    n, c, frames = x.shape[0], x.shape[1], output.shape[2]
    made, inside = one.weights.shape[:2]
    depth, *rest = one.along
    stacked = emit_stacked(name, x, depth, frames, one.outside(x, lowering), lowering)
    weights = one.weights.reshaped((made, inside * depth.kernel, *one.weights.shape[3:]))
    flat = replace(one, weights=weights, along=tuple(rest))
    channels = c * depth.kernel
    if 1 in (n, frames, one.groups):
        steps = (frames * channels, channels, 1)
        planes = _planes_of(x, output, channels, steps, frames)
        seen = stacked.reshaped((n, frames * channels, *x.shape[3:]))
        operator = flat.operator(name, seen, output, lowering, planes)
        if _fits(operator):
            lowering.emit(operator)
            return
    apart = lowering.temp(output.dtype, (n * frames, made, *output.shape[3:]))
    seen = stacked.reshaped((n * frames, channels, *x.shape[3:]))
    _emit(name, seen, flat, apart, lowering)
    plane = prod(output.device_shape[3:])
    shape, view = (n, made, frames, plane), View((frames * made * plane, plane, made * plane, 1))
    part = StridedCopy(0, shape, view, View(contiguous_strides(shape)))
    lowering.emit(Arrange(name, [apart], output, lowering.device, [part]))


def _fits(operator: Conv) -> bool:
    try:
        operator.check_fits()
    except Unsupported:
        return False
    return True


def emit_stacked(
    name: str, x: TensorSpec, depth: WindowAxis, frames: int, outside: TensorSpec, lowering: Lowering
) -> TensorSpec:
    """x [N, C, D, H, W] as [N, frames, C * kernel, H, W]: the planes of a frame's windows side by side.

    Planes outside of x are made of the one element of ``outside``.
    """
    n, c, planes = x.shape[:3]
    plane, taps = prod(x.device_shape[3:]), depth.kernel
    stacked = lowering.temp(x.dtype, (n, frames, c * taps, *x.shape[3:]))
    image, frame = frames * c * taps * plane, c * taps * plane
    parts = []

    def part(tensor: int, first: int, count: int, tap: int, view: View) -> None:
        out = View((image, frame, taps * plane, 1), first * frame + tap * plane)
        parts.append(StridedCopy(tensor, (n, count, c, plane), view, out))

    for tap in range(taps):
        at = tap * depth.dilation - depth.begin  # plane of the first frame
        first = min(max(0, -(at // depth.stride)), frames)  # frames before it are outside
        last = min(max(first, (planes - 1 - at) // depth.stride + 1), frames)
        view = View(
            (c * planes * plane, depth.stride * plane, planes * plane, 1),
            max(0, at + first * depth.stride) * plane if last > first else 0,
        )
        part(0, first, last - first, tap, view)
        for begin, end in ((0, first), (last, frames)):
            part(1, begin, end - begin, tap, View((0, 0, 0, 0)))
    lowering.emit(Move(name, [x, outside], stacked, lowering.device, parts))
    return stacked
