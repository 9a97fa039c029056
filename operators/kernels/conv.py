# SPDX-License-Identifier: Apache-2.0
"""Convolution: an implicit matrix product per tile, or one channel at a time when depthwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    accesses,
    accumulated,
    either,
    operations,
    products,
    summed,
    sums_bytes,
    vectors,
    wide,
    widened,
    words,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.merge import ACTIVATION, Merge
from onedispatch.operators.interface.operator import Operator, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import ACTIVATION_SCALARS
from onedispatch.operators.kernels.merges import BATCH_NORM
from onedispatch.operators.kernels.product_costs import finished, requantised_sums
from onedispatch.operators.kernels.table import COPIES, ENTRIES, laid_out, looked_up
from onedispatch.operators.kernels.window import (
    TAPS,
    WINDOW_SCALARS,
    Window,
    copied_planes,
    row_dim,
    spatial,
    split_bytes,
    split_planes,
    windows,
)
from onedispatch.operators.scheduling.index_space import (
    F32,
    OUTPUT,
    Access,
    Dim,
    K,
    Operand,
    Packed,
    PackedPart,
    contiguous_strides,
    strided_operand,
)
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


TABLE_BYTES = e.present("table") * COPIES * ENTRIES  # of scratch
UNROLLED = 9  # taps of a depthwise window that stand one after the other in a loop
PRODUCT_BYTES = e.smallest(e.item_bytes("x"), 2)  # of what native products multiply: floats as bfloat16 parts


def _zero_points(inputs: e.Expr, outputs: e.Expr, pixels: e.Expr) -> e.Expr:
    """Cycles of zero points for ``outputs`` channels of so many ``pixels``, each made of so many ``inputs``.

    Weights are summed once for a channel, and what x has for its zero is a product of each of these sums;
    windows are summed once for a pixel, and every channel has a zero of its own. Of wide sums there are twice
    as many words.
    """
    mul, op, results = e.device("i32_mul_cycles"), e.device("i32_op_cycles"), outputs * words(pixels)
    weights = vectors(inputs * outputs, "w") * summed("w") + words(outputs) * mul + results * op
    seen = vectors(inputs * pixels, "x") * summed("x") + results * (mul + op)
    both = e.present("x_zero") * weights + e.present("w_zero") * seen
    return e.named("zero points", (1 + wide("x", "out")) * both)


def _squeezed(windows: e.Expr) -> e.Expr:
    """Cycles of bringing ``windows`` of weights together that are filled up to whole words, as they lie."""
    taps = e.count("w", "*tap")
    return e.named(
        "pack(w)", e.differs(taps, TAPS) * accesses(windows * taps, "w") * e.device("gather_cycles")
    )


def _placed(bytes_of_vector: e.Expr) -> e.Expr:
    """Loads and shuffles that bring the blocks of a vector to the native products that take them."""
    return 1 + e.halvings(e.ceiling(bytes_of_vector / (e.device("native_n", "x") * PRODUCT_BYTES)))


def _conv_cost() -> e.Expr:
    """Planes are packed, windows laid out as columns (im2col), and multiplied by the weights."""
    co, pixels, k = e.tile("co"), e.tile("oh") * e.tile("ow"), e.K_COUNT
    # A window of one element needs no columns: the plane is the matrix, and descriptors bring its blocks.
    # Columns are loaded and shifted into place, and what lies in one vector goes to as many native
    # products as it has rows of them: vectors of that many taps change places by halves, the last vector of
    # a line by those of what it holds.
    line, vector = e.tile("ow") * e.device("part_bytes", "x"), e.device("vector_bytes")
    whole = e.ceiling(line / vector) - 1
    placed = whole * _placed(vector) + _placed(line - whole * vector)
    # One loop for each channel goes over lines, and taps of a window's rows and columns: three dimensions, as
    # many as address generators step through (AM020).
    columns = k * (TAPS * e.tile("oh") * e.device("gather_cycles") * placed + ROW)
    weights = vectors(co * k * TAPS, "w") * e.device("pack_cycles", "w")  # in the order of the blocks
    return (
        split_planes(k)
        + copied_planes(k, split=True)
        + e.named("im2col", e.differs(TAPS, 1) * columns)
        + e.named("pack(w)", weights)
        + products(co, k * TAPS, pixels, "x", "w")
        + accumulated(co, pixels, "x", "out")
        + widened(co, k * TAPS, pixels, "x", "w", "out")
        + _squeezed(co * k)
        + _zero_points(k * TAPS, co, pixels)
        + e.named("last step", finished(co * pixels) + e.LAST * requantised_sums(co * words(pixels), co, "x"))
        + e.LAST * _tabulated(co * pixels)
    )


def _tabulated(results: e.Expr) -> e.Expr:
    """Cycles of a table that is laid out, and of looking so many results up."""
    return e.named("table", e.present("table") * (laid_out("table") + looked_up(results, "out")))


def _conv_scratch() -> e.Expr:
    """Sums that wait for the next step, the parts of planes and weights, columns, and a table's copies."""
    co, k = e.tile("co"), e.count("x", "k")
    # All output channels take the columns of a native product's pixels before those of the next are laid
    # out in their place: one block of them is there at a time, with all that the step sums over.
    block = e.device("native_n", "x") * e.device("part_bytes", "x")
    columns = e.differs(TAPS, 1) * (k * TAPS * block)
    return (
        sums_bytes(co * e.tile("oh") * e.tile("ow"), "out", "x")
        + split_bytes(k, co * k * TAPS)
        + e.named("im2col", columns)
        + TABLE_BYTES
    )


def _depthwise_cost() -> e.Expr:
    """One multiply-accumulate per tap and vector of outputs, lanes side by side along a row."""
    c, rows = e.tile("c"), e.tile("c") * e.tile("oh")
    # A loop over the outputs of a channel has the taps of small windows one after the other; of larger ones
    # each vector of outputs is a loop over taps.
    made = rows * vectors(e.tile("ow"), "x")
    large = e.largest(0, e.ceiling((TAPS - UNROLLED) / TAPS))
    loops = either(large, made, c)
    taps = made * TAPS * e.device("window_mac_cycles", "x") + loops * ROW
    weights = vectors(c * TAPS, "w") * e.device("pack_cycles", "w")
    bias = rows * words(e.tile("ow")) * e.present("bias") * operations("bias")
    results = rows * vectors(e.tile("ow"), "out") * e.work("act", "out")
    narrow = requantised_sums(rows * words(e.tile("ow")), c, "x")
    # Zero points are taken from the weights, and what x has for its zero from one sum of these per channel.
    op, mul = e.device("i32_op_cycles"), e.device("i32_mul_cycles")
    x_zero = e.present("x_zero") * (c * (TAPS * op + mul) + rows * words(e.tile("ow")) * op)
    zeros = e.named("zero points", x_zero + e.present("w_zero") * (c * words(TAPS) * op))
    planes = split_planes(c) + copied_planes(c, split=True)
    packs = e.named("pack(w)", weights) + _squeezed(c)
    finish = bias + results + zeros + narrow + _tabulated(rows * e.tile("ow"))
    return ENTRY + planes + packs + e.named("taps", taps) + finish


def _types() -> tuple[dict[str, str], ...]:
    """Element types that go together: floats, and integers, whose sums a scale makes narrow."""
    floats = ({"x": t, "w": t, "bias": "f32", "out": t} for t in FLOATS.split())
    scaled = {"bias": "i32", "scale": "f32", "out_zero": SUMS, "table": BYTES, "out": SUMS}
    integers = (
        {"x": x, "w": w, "x_zero": x, "w_zero": w, **scaled} for x in BYTES.split() for w in BYTES.split()
    )
    narrow = {"bias": "i32 i64", "scale": "f32", "out_zero": NARROW, "out": NARROW}
    halves = (
        {"x": x, "w": w, "x_zero": x, "w_zero": w, **narrow} for x in HALVES.split() for w in BYTES.split()
    )
    return (*floats, *integers, *halves)


def _inputs(data: str, channels: str, weights: str) -> tuple[Tensor, ...]:
    """x of axes ``data``, and weights whose output ``channels`` have parameters each."""
    return (
        Tensor("x", data, f"{FLOATS} {NARROW}", walk="interval"),
        Tensor("w", weights, f"{FLOATS} {BYTES}"),
        Tensor("bias", channels, "f32 i32 i64", optional=True),
        Tensor("x_zero", channels, NARROW, optional=True, like="x"),
        Tensor("w_zero", channels, BYTES, optional=True, like="w"),
        Tensor("scale", channels, optional=True),
        Tensor("out_zero", channels, f"i32 {NARROW}", optional=True, like="out"),
        Tensor("table", "*entries", BYTES, optional=True, like="out"),
    )


BYTES = "i8 u8"
HALVES = "i16 u16"
NARROW = f"{BYTES} {HALVES}"  # what sums of 64 bits become
SUMS = f"i32 {BYTES}"  # what integer sums may become: themselves, or narrow by a scale
PAD = Scalar("pad", "i32", default=0)  # what integers have for x's zero where no x_zero says it
_SUMMARY = (
    "; integers are (x - x_zero) * (w - w_zero), summed in int32, which wraps, or of 16 bits exactly, where "
    "there is a scale round((sum + bias) * scale) + out_zero, saturated; table[that] where there is a table"
)


CONV = declare(
    Kernel(
        "od::conv@1",
        dims=("co", "oh", "ow"),
        reduces=True,
        inputs=_inputs("k oh ow", "co", "co k *tap"),
        outputs=(Tensor("out", "co oh ow", f"{FLOATS} i32 {NARROW}"),),
        types=_types(),
        scalars=(*WINDOW_SCALARS, *ACTIVATION_SCALARS, PAD),
        cost=_conv_cost(),
        scratch=_conv_scratch(),
        keeps_scratch=True,
        joins="panels",
        sums=sums_bytes(e.tile("co") * e.tile("oh") * e.tile("ow"), "out", "x"),
        # ASSUMPTION: 160 instructions: unrolled products with ramps, im2col, packing, bias, activations,
        # look-ups.
        code_bytes=2560,
        summary=f"convolution of a tile: weights times windows, accumulated over channels{_SUMMARY}",
    )
)
DWCONV = declare(
    Kernel(
        "od::dwconv@1",
        dims=("c", "oh", "ow"),
        inputs=_inputs("c oh ow", "c", "c *tap"),
        outputs=(Tensor("out", "c oh ow", f"{FLOATS} i32 {NARROW}"),),
        types=_types(),
        scalars=(*WINDOW_SCALARS, *ACTIVATION_SCALARS, PAD),
        cost=_depthwise_cost(),
        scratch=split_bytes(e.tile("c"), e.tile("c") * TAPS) + TABLE_BYTES,
        joins="panels",
        # ASSUMPTION: 192 instructions: the taps of small windows one after the other, a loop for larger ones,
        # edges, bias, activations, look-ups.
        code_bytes=3072,
        summary=f"convolution of every channel with its own window{_SUMMARY}",
    )
)


@dataclass(frozen=True)
class Planes:
    """Which planes [H, W] of x and of the output are images, frames and channels.

    Without one, x is [N, C, (H,) W] and the output [N, M, (H,) W]. With one, x is whatever consists of planes
    of ``x_plane``, ``steps`` of them from an image, a frame and a channel to the next, and the output is
    [N, M, frames, *out_plane]. Rows of both are rows of their tensors, or planes are without row padding.
    """

    x_plane: tuple[int, int]
    out_plane: tuple[int, int]
    channels: int  # of x, in the order of the weights
    steps: tuple[int, int, int]
    frames: int = 1

    @classmethod
    def of(cls, x: Sequence[int], out: Sequence[int]) -> Planes:
        """Those of [N, C, (H,) W] and [N, M, (H,) W]."""
        return cls(spatial(x), spatial(out), x[1], (x[1], x[1], 1))


class Conv(Operator):
    """``act(conv(X, W) + bias)``: X [N, C, (H,) W], W [M, C/groups, (kh,) kw], bias [M].

    Constant weights and bias are packed tile by tile; where one of them is computed at run time,
    both are read as they lie. Sums are f32; results narrower than that are rounded once. ``planes`` are
    other ways of seeing x and the output: see there.
    """

    kind = "conv"
    runs_in_bands = True
    merges: ClassVar[tuple[Merge, ...]] = (BATCH_NORM, ACTIVATION)

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        window: Window,
        groups: int,
        device: Device,
        planes: Planes | None = None,
    ) -> None:
        x, weights, *biases = inputs
        bias = biases[0] if biases else None
        super().__init__(name, inputs, output, device)
        self.x, self.weights, self.bias, self.window, self.groups = x, weights, bias, window, groups
        self.planes = planes or Planes.of(x.shape, output.shape)
        self.images, self.made = x.shape[0], weights.shape[0]
        self.packs = weights.is_const and (bias is None or bias.is_const)
        if x.element.is_float and x.element.per_word > 1 and not self.packs:
            raise Unsupported(f"weights of {x.dtype} computed at run time", "constants, or float32")

    @property
    def bias_values(self) -> Array:
        """The constant bias [M], zeros where there is none."""
        if self.bias is None or self.bias.value is None:
            return np.zeros(self.weights.shape[0], np.float32)
        return np.asarray(self.bias.value, np.float32).reshape(-1)

    @property
    def depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.planes.channels == self.made

    def nests(self) -> list[Nest]:
        if 0 in self.output.shape or 0 in self.x.shape:
            return []
        return [self._depthwise_nest() if self.depthwise else self._grouped_nest()]

    def count_macs(self) -> int:
        if 0 in self.output.shape or 0 in self.x.shape:
            return 0
        results = self.images * self.made * self.planes.frames * prod(self.planes.out_plane)
        return results * self.planes.channels // self.groups * self.window.taps

    # -- planes: rows, and operands of them -----------------------------------------------------

    @property
    def _rows(self) -> tuple[TensorSpec, TensorSpec]:
        """x and the output as rows of their planes."""
        tensors = zip((self.x, self.output), (self.planes.x_plane, self.planes.out_plane), strict=True)
        x, out = (TensorSpec(t.name, t.dtype, plane) for t, plane in tensors)
        return x, out

    def _x(self, outer: Sequence[tuple[int, int, Access]], dims: tuple[int, int]) -> Operand:
        """x: (extent, planes from one to the next, access) outermost first, then ``dims`` of the window."""
        x = self._rows[0]
        plane, unit = x.device_bytes // x.dtype.itemsize, x.element.per_word
        down, across = self.window.access(dims[0], 0), self.window.access(dims[1], 1)
        across = replace(across, align=unit) if unit > 1 else across
        walked = [(n, step * plane, access) for n, step, access in outer]
        walked += [(x.shape[0], x.row_pitch, down), (x.row_pitch, 1, across)]
        return strided_operand("x", 0, x.element, walked)

    def _out(self, outer: Sequence[tuple[int, int]], first: int = 0) -> Operand:
        """The output: (extent, planes from one to the next) along the first dimensions of the index."""
        out = self._rows[1]
        plane = out.device_bytes // out.dtype.itemsize
        sizes = (*(n for n, _ in outer), out.shape[0], out.row_pitch)
        strides = (*(step * plane for _, step in outer), out.row_pitch, 1)
        access = tuple(Access(d) for d in range(len(sizes)))
        return Operand("out", OUTPUT, out.element, sizes, strides, access, first * plane)

    # -- through the matrix kernel: dims n, g or frame, co, oh, ow --------------------------------

    def _grouped_nest(self) -> Nest:
        planes, g = self.planes, self.groups
        n, ci, co = self.images, planes.channels // g, self.made // g
        image, frame, channel = planes.steps
        made = self.made * planes.frames  # planes of an image of the output
        walked = [("n", n, image, made), ("d", planes.frames, frame, 1)]
        walked.append(("g", g, ci * channel, co * planes.frames))
        single = next((w for w in (walked[1], walked[2], walked[0]) if w[1] == 1), None)
        if single is None:
            raise Unsupported(f"images, frames and groups: {n}, {planes.frames}, {g}", "1 of one of them")
        walked.remove(single)
        outer = tuple(Dim(name, size, max_tile=1) for name, size, _, _ in walked)
        dims = (*outer, Dim("co", co), Dim("oh", planes.out_plane[0]), row_dim("ow", self._rows[1]))
        along = [(size, step, Access(d)) for d, (_, size, step, _) in enumerate(walked)]
        x = self._x([*along, (ci, channel, Access(K))], (3, 4))
        out = self._out([*((size, step) for _, size, _, step in walked), (co, planes.frames)])
        inputs: tuple[Operand | Packed, ...]
        if self.packs:
            along_w = (1, 2, K) if walked[1][0] == "g" else (2, K)
            inputs = self._packed(along_w, 2, ((K, 0), (None, self.window.taps), (2, 0)))
        elif walked[1][0] == "g":
            inputs = self._parameters((g, co), (1, 2), ci)
        else:
            inputs = self._parameters((co,), (2,), ci)
        roles = {"co": 2, "oh": 3, "ow": 4}
        return Nest(CONV, dims, (x, *inputs), (out,), roles, self._scalars, k_extent=ci)

    @property
    def _scalars(self) -> dict[str, float | str]:
        return {**self.window.scalars_for(self._rows[0]), **self.activation.scalars}

    def _packed(
        self, dims: tuple[int, ...], outputs: int, weights: tuple[tuple[int | None, int], ...]
    ) -> tuple[Operand | Packed, ...]:
        """Constants of the kernel, whose output channels lie along index dimension ``outputs``."""
        bias = PackedPart("bias", F32, ((outputs, 0),))
        return (Packed("w", dims, (PackedPart("w", self.x.element, weights), bias)),)

    def _parameters(
        self, sizes: Sequence[int], dims: Sequence[int], channels: int
    ) -> tuple[Operand | Packed, ...]:
        """Weights and bias that are read as they lie: output channels are ``sizes`` over ``dims``."""
        taps = self.window.taps
        outputs = tuple(Access(d) for d in dims)
        shape, access = (*sizes, channels, taps), (*outputs, Access(K), Access(None))
        if channels == 1:  # no reduction along weights: one chunk serves all its steps
            shape, access = (*sizes, taps), (*outputs, Access(None))
        weights = Operand("w", 1, F32, shape, contiguous_strides(shape), access)
        if self.bias is None:
            return (weights,)
        return weights, Operand("bias", 2, F32, tuple(sizes), contiguous_strides(sizes), outputs)

    # -- depthwise: dims n, c, (frame,) oh, ow --------------------------------------------------

    def _depthwise_nest(self) -> Nest:
        planes, n, c = self.planes, self.images, self.planes.channels
        image, frame, channel = planes.steps
        walked = [("n", n, image, c * planes.frames), ("c", c, channel, planes.frames)]
        walked += [("d", planes.frames, frame, 1)] if planes.frames > 1 else []
        oh, ow = len(walked), len(walked) + 1
        dims = (
            *(Dim(name, size) if name == "c" else Dim(name, size, max_tile=1) for name, size, _, _ in walked),
            *(Dim("oh", planes.out_plane[0]), row_dim("ow", self._rows[1])),
        )
        x = self._x([(size, step, Access(d)) for d, (_, size, step, _) in enumerate(walked)], (oh, ow))
        out = self._out([(size, step) for _, size, _, step in walked])
        inputs = self._parameters((c,), (1,), 1)
        if self.packs:
            inputs = self._packed((1,), 1, ((1, 0), (None, self.window.taps)))
        return Nest(DWCONV, dims, (x, *inputs), (out,), {"c": 1, "oh": oh, "ow": ow}, self._scalars)

    # -- constants ----------------------------------------------------------------------------

    def packed_parts(self, operand: str) -> list[Array]:
        if self.weights.value is None:
            raise self.not_constant(operand)
        windows = self._windows(np.asarray(self.weights.value, self.x.dtype))
        if not self.depthwise:  # output channels last
            windows = np.moveaxis(windows, -3, -1)
        return [windows, self._by_group(self.bias_values)]

    def _windows(self, weights: Array) -> Array:
        """Weights as [M, taps] where they are depthwise, else as [C/groups, taps] for each output channel."""
        taps = self.window.taps
        return self._by_group(weights.reshape(self.made, *(() if self.depthwise else (-1,)), taps))

    def _by_group(self, values: Array) -> Array:
        """What is [M, ...], as [groups, M/groups, ...] where an index dimension walks over groups."""
        if self.groups == 1 or self.depthwise:
            return values
        return values.reshape(self.groups, -1, *values.shape[1:])

    # -- reference ------------------------------------------------------------------------------

    def reference(self, *arrays: Array) -> Array:
        x, weights = (array.astype(np.float32) for array in arrays[:2])
        bias = arrays[2].astype(np.float32) if len(arrays) > 2 else np.zeros(self.made, np.float32)
        y = self._sums(x, weights)
        y = self.activation.apply((y + bias.reshape(-1, 1, 1, 1)).astype(np.float32))
        return y.astype(self.output.dtype).reshape(self.output.shape)

    def _sums(self, x: Array, weights: Array) -> Array:
        """What comes before the bias, as [images, output channels, frames, oh, ow]; zeros around x."""
        planes, out, g = self.planes, self.planes.out_plane, self.groups
        each = (range(size) for size in (self.images, planes.frames, planes.channels))
        n, f, c = (m * step for m, step in zip(np.ix_(*each), planes.steps, strict=True))
        x = x.reshape(-1, *planes.x_plane)[(n + f + c).reshape(-1, planes.channels)]
        seen = windows(x, self.window, out, 0.0)
        seen = seen.reshape(len(x), g, planes.channels // g, *out, *self.window.kernel)
        kernel = weights.reshape(g, -1, planes.channels // g, *self.window.kernel)
        y: Array = np.einsum("ngcyxhw,gochw->ngoyx", seen, kernel, optimize=True)
        y = y.reshape(self.images, planes.frames, self.made, *out).swapaxes(1, 2)
        return y


def as_bytes(array: Array) -> Array:
    """The elements as bytes along the last axis."""
    return np.ascontiguousarray(array).view(np.uint8)
