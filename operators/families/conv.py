# SPDX-License-Identifier: Apache-2.0
"""Convolution: an implicit matrix product per tile, or one channel at a time when depthwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    accumulated,
    operations,
    products,
    sums_bytes,
    vectors,
)
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.kernel import Kernel, Tensor, declare
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.convert import emit_converted, in_float32
from onedispatch.operators.families.elementwise import (
    ACTIVATION_SCALARS,
    Eltwise,
    numpy_names,
    operands_of,
)
from onedispatch.operators.families.matmul import finished
from onedispatch.operators.families.norm import ChannelAffine, channel_view
from onedispatch.operators.families.window import (
    TAPS,
    WINDOW_SCALARS,
    Window,
    copied_planes,
    row_dim,
    rows_view,
    spatial,
    split_bytes,
    split_planes,
    window_of,
    windows,
)
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Operator, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import (
    F32,
    OUTPUT,
    Access,
    Dim,
    K,
    Operand,
    Packed,
    Part,
    contiguous_strides,
)
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


PRODUCT_BYTES = 2  # of what native products of floats multiply: bfloat16 parts


def _conv_cost() -> e.Expr:
    """Planes are packed, windows laid out as columns (im2col), and multiplied by the weights."""
    co, pixels, k = e.tile("co"), e.tile("oh") * e.tile("ow"), e.K_COUNT
    # A window of one element needs no columns: the plane is the matrix, and descriptors bring its blocks.
    # Columns are loaded and shifted into place, and what lies in one vector goes to as many native
    # products as it has rows of them: vectors of that many taps change places by halves.
    column_vectors = e.ceiling(e.tile("ow") * e.device("part_bytes", "x") / e.device("vector_bytes"))
    blocks = e.device("vector_bytes") / (e.device("native_n", "x") * PRODUCT_BYTES)
    placed = e.device("gather_cycles") * (1 + e.halvings(blocks))
    columns = k * TAPS * (e.tile("oh") * column_vectors * placed + ROW)
    weights = vectors(co * k * TAPS, "w") * e.device("pack_cycles", "w")  # in the order of the blocks
    return (
        split_planes(k)
        + copied_planes(k, split=True)
        + e.named("im2col", e.differs(TAPS, 1) * columns)
        + e.named("pack(w)", weights)
        + products(co, k * TAPS, pixels, "x", "w")
        + accumulated(co, pixels, "x", "out")
        + e.named("last step", finished(co * pixels))
    )


def _conv_scratch() -> e.Expr:
    """Sums that wait for the next step, then the parts of planes and weights, then columns."""
    co, k = e.tile("co"), e.count("x", "k")
    # All output channels take the columns of a native product's pixels before those of the next are laid
    # out in their place: one block of them is there at a time, with all that the step sums over.
    block = e.device("native_n", "x") * e.device("part_bytes", "x")
    columns = e.differs(TAPS, 1) * (k * TAPS * block)
    return (
        sums_bytes(co * e.tile("oh") * e.tile("ow"), "out")
        + split_bytes(k, co * k * TAPS)
        + e.named("im2col", columns)
    )


def _depthwise_cost() -> e.Expr:
    """One multiply-accumulate per tap and vector of outputs, lanes side by side along a row."""
    rows = e.tile("c") * e.tile("oh") * vectors(e.tile("ow"), "out")
    taps = rows * (TAPS * e.device("window_mac_cycles", "x") + ROW)
    weights = vectors(e.tile("c") * TAPS, "w") * e.device("pack_cycles", "w")
    results = rows * (e.present("bias") * operations("bias") + e.work("act", "out"))
    planes = split_planes(e.tile("c")) + copied_planes(e.tile("c"), split=True)
    return ENTRY + planes + e.named("pack(w)", weights) + e.named("taps", taps) + results


CONV = declare(
    Kernel(
        "od::conv@1",
        dims=("co", "oh", "ow"),
        reduces=True,
        inputs=(
            Tensor("x", "k oh ow", FLOATS, walk="interval", like="out"),
            Tensor("w", "co k *tap", FLOATS, like="out"),
            Tensor("bias", "co", optional=True),
        ),
        outputs=(Tensor("out", "co oh ow", FLOATS),),
        scalars=(*WINDOW_SCALARS, *ACTIVATION_SCALARS),
        cost=_conv_cost(),
        scratch=_conv_scratch(),
        keeps_scratch=True,
        # ASSUMPTION: 192 instructions: unrolled products with ramps, im2col, packing, bias, activations.
        code_bytes=3072,
        summary="convolution of a tile: weights times windows, accumulated over channels",
    )
)
DWCONV = declare(
    Kernel(
        "od::dwconv@1",
        dims=("c", "oh", "ow"),
        inputs=(
            Tensor("x", "c oh ow", FLOATS, walk="interval", like="out"),
            Tensor("w", "c *tap", FLOATS, like="out"),
            Tensor("bias", "c", optional=True),
        ),
        outputs=(Tensor("out", "c oh ow", FLOATS),),
        scalars=(*WINDOW_SCALARS, *ACTIVATION_SCALARS),
        cost=_depthwise_cost(),
        scratch=split_bytes(e.tile("c"), e.tile("c") * TAPS),
        # ASSUMPTION: 128 instructions: an unrolled loop of windows, edges, bias, activations.
        code_bytes=2048,
        summary="convolution of every channel with its own window",
    )
)


class Conv(Operator):
    """``act(conv(X, W) + bias)``: X [N, C, (H,) W], W [M, C/groups, (kh,) kw], bias [M].

    Constant weights and bias are packed tile by tile; where one of them is computed at run time,
    both are read as they lie. Sums are f32; results narrower than that are rounded once.
    """

    kind = "conv"

    def __init__(
        self,
        name: str,
        x: TensorSpec,
        weights: TensorSpec,
        bias: TensorSpec | None,
        output: TensorSpec,
        window: Window,
        groups: int,
        device: Device,
        activation: Activation | None = None,
    ) -> None:
        inputs = [x, weights] if bias is None else [x, weights, bias]
        super().__init__(name, inputs, output, device, activation)
        self.x, self.weights, self.bias, self.window, self.groups = x, weights, bias, window, groups
        self.packs = weights.is_const and (bias is None or bias.is_const)
        if x.element.per_word > 1 and not self.packs:
            raise Unsupported(f"weights of {x.dtype} computed at run time", "constants, or float32")

    @property
    def bias_values(self) -> Array:
        """The constant bias [M], zeros where there is none."""
        if self.bias is None or self.bias.value is None:
            return np.zeros(self.weights.shape[0], np.float32)
        return np.asarray(self.bias.value, np.float32).reshape(-1)

    @property
    def depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.x.shape[1] == self.weights.shape[0]

    def nests(self) -> list[Nest]:
        if 0 in self.output.shape or 0 in self.x.shape:
            return []
        return [self._depthwise_nest() if self.depthwise else self._grouped_nest()]

    # -- through the matrix kernel: dims n, g, co, oh, ow ---------------------------------------

    def _grouped_nest(self) -> Nest:
        n, c = self.x.shape[:2]
        (h, _), (oh, _) = spatial(self.x.shape), spatial(self.output.shape)
        g, ci, co = self.groups, c // self.groups, self.weights.shape[0] // self.groups
        dims = (
            *(Dim("n", n, max_tile=1), Dim("g", g, max_tile=1)),
            *(Dim("co", co), Dim("oh", oh), row_dim("ow", self.output)),
        )
        accesses = [Access(0), Access(1), Access(K), self.window.access(3, 0), self.window.access(4, 1)]
        x = rows_view("x", 0, self.x, (n, g, ci, h), accesses)
        out = rows_view("out", OUTPUT, self.output, (n, g, co, oh), [Access(d) for d in range(5)])
        inputs = self._parameters((g, co), (1, 2), ci)
        if self.packs:
            part = Part("w", self.x.element, ((K, 0), (None, self.window.taps), (2, 0)))
            inputs = (Packed("w", (1, 2, K), (part, Part("bias", F32, ((2, 0),)))),)

        roles = {"co": 2, "oh": 3, "ow": 4}
        return Nest(
            CONV,
            dims,
            (x, *inputs),
            (out,),
            roles,
            self._scalars,
            k_extent=ci,
        )

    @property
    def _scalars(self) -> dict[str, float | str]:
        return {**self.window.scalars_for(self.x), **self.activation.scalars}

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

    # -- depthwise: dims n, c, oh, ow ---------------------------------------------------------

    def _depthwise_nest(self) -> Nest:
        n, c = self.x.shape[:2]
        (h, _), (oh, _) = spatial(self.x.shape), spatial(self.output.shape)
        dims = (Dim("n", n, max_tile=1), Dim("c", c), Dim("oh", oh), row_dim("ow", self.output))
        accesses = [Access(0), Access(1), self.window.access(2, 0), self.window.access(3, 1)]
        x = rows_view("x", 0, self.x, (n, c, h), accesses)
        out = rows_view("out", OUTPUT, self.output, (n, c, oh), [Access(d) for d in range(4)])
        inputs = self._parameters((c,), (1,), 1)
        if self.packs:
            part = Part("w", self.x.element, ((1, 0), (None, self.window.taps)))
            inputs = (Packed("w", (1,), (part, Part("bias", F32, ((1, 0),)))),)
        return Nest(DWCONV, dims, (x, *inputs), (out,), {"c": 1, "oh": 2, "ow": 3}, self._scalars)

    # -- constants ----------------------------------------------------------------------------

    def pack(self, operand: str, schedule: Schedule, out: Array) -> None:
        if self.weights.value is None:
            raise self.not_constant(operand)
        if self.depthwise:
            self._pack_depthwise(schedule, out)
        else:
            self._pack_grouped(schedule, out)

    def _pack_grouped(self, s: Schedule, out: Array) -> None:
        g, taps = self.groups, self.window.taps
        co, ci = self.weights.shape[0] // g, self.weights.shape[1]
        weights = np.asarray(self.weights.value, self.x.dtype).reshape(g, co, ci, taps)
        bias = self.bias_values.reshape(g, co)
        tile, k_tile, steps = s.tiles[2], s.k_tile, s.inner_steps
        packed = s.packed("w")
        chunks = out.reshape(s.slot_count(packed), -1)
        whole = ci // k_tile  # reduction steps that are full; the last one may hold fewer channels
        for i in range(s.grid[2]):
            at = min(i * tile, co - tile)
            slots = s.slot(packed, [np.arange(g)[:, None], i], np.arange(steps))
            part = np.ascontiguousarray(weights[:, at : at + tile].transpose(0, 2, 3, 1))  # [g, ci, taps, co]
            full = _bytes(part[:, : whole * k_tile]).reshape(g, whole, -1)
            chunks[slots[:, :whole], : full.shape[2]] = full
            if whole < steps:
                rest = _bytes(part[:, whole * k_tile :]).reshape(g, -1)
                chunks[slots[:, whole], : rest.shape[1]] = rest
            chunks[slots, -4 * tile :] = _bytes(bias[:, None, at : at + tile])

    def _pack_depthwise(self, s: Schedule, out: Array) -> None:
        c, taps, tile = self.groups, self.window.taps, s.tiles[1]
        weights = np.asarray(self.weights.value, self.x.dtype).reshape(c, taps)
        packed = s.packed("w")
        chunks = out.reshape(s.slot_count(packed), -1)
        for i in range(s.grid[1]):
            at, slot = min(i * tile, c - tile), s.slot(packed, [i])
            values = _bytes(weights[at : at + tile]).reshape(-1)
            chunks[slot, : values.size] = values
            chunks[slot, -4 * tile :] = _bytes(self.bias_values[at : at + tile])

    # -- fusion, reference ----------------------------------------------------------------------

    def absorb(self, consumer: Operator) -> Operator | None:
        whole = self.x.element.per_word == 1  # scaled weights would be rounded once more
        scaled = isinstance(consumer, ChannelAffine) and self.packs and self.takes_activation and whole
        if not scaled or not isinstance(consumer, ChannelAffine):
            return super().absorb(consumer)
        scale = consumer.scale.reshape(-1, *[1] * (len(self.weights.shape) - 1))
        value = (np.asarray(self.weights.value, np.float32) * scale).astype(self.x.dtype)
        shift = (self.bias_values * consumer.scale + consumer.shift).astype(np.float32)
        weights = TensorSpec(self.weights.name, value.dtype, value.shape, value)
        bias = TensorSpec(f"{self.output.name}//bias", shift.dtype, shift.shape, shift)
        return self.replaced(
            inputs=(self.x, weights, bias),
            weights=weights,
            bias=bias,
            output=consumer.output,
            activation=consumer.activation,
        )

    def reference(self, *arrays: Array) -> Array:
        x, weights = (array.astype(np.float32) for array in arrays[:2])
        bias = arrays[2].astype(np.float32) if len(arrays) > 2 else np.zeros(weights.shape[0], np.float32)
        out = spatial(self.output.shape)
        seen = windows(x.reshape(*x.shape[:2], *spatial(x.shape)), self.window, out, 0.0)
        g = self.groups
        seen = seen.reshape(x.shape[0], g, x.shape[1] // g, *out, *self.window.kernel)
        kernel = weights.reshape(g, -1, x.shape[1] // g, *self.window.kernel)
        y = np.einsum("ngcyxhw,gochw->ngoyx", seen, kernel, optimize=True)
        y = y.reshape(x.shape[0], weights.shape[0], *out) + bias.reshape(1, -1, 1, 1)
        y = self.activation.apply(y.astype(np.float32))
        return y.astype(self.output.dtype).reshape(self.output.shape)


def _bytes(array: Array) -> Array:
    """The elements as bytes along the last axis."""
    return np.ascontiguousarray(array).view(np.uint8)


@maps(
    "Conv",
    dtypes=numpy_names(FLOATS),
    notes="1-D and 2-D, groups, dilations, any pads, any number of channels; bfloat16 and float16 in "
    "float32 where weights or bias are computed",
)
def map_conv(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, numpy_names(FLOATS))
    x, weights = inputs[:2]
    window = window_of(node, x, weights.shape[2:], output)
    groups = int(node.attr("group", 1))
    if 0 in (x.size, weights.size) and output.size:
        _emit_bias(node, lowering, node.input(2), output)
        return
    bias = node.input(2)
    packs = weights.is_const and (bias is None or bias.is_const)
    if output.element.per_word == 1 or packs:
        lowering.emit(Conv(node.name, x, weights, bias, output, window, groups, lowering.device))
        return
    # Computed weights are read as they lie, which kernels do in words: results are rounded once all the same.
    x, weights = (in_float32(node.name, tensor, lowering) for tensor in (x, weights))
    bias = None if bias is None else in_float32(node.name, bias, lowering)
    sums = lowering.temp(np.dtype(np.float32), output.shape)
    lowering.emit(Conv(node.name, x, weights, bias, sums, window, groups, lowering.device))
    emit_converted(node.name, sums, output, lowering)


def _emit_bias(node: NodeSpec, lowering: Lowering, bias: TensorSpec | None, output: TensorSpec) -> None:
    """A convolution of no data: sums of nothing, and the bias."""
    if bias is None:
        op = Eltwise(node.name, "fill", [], output, lowering.device, alpha=0.0)
    else:
        views = [channel_view(output.shape)]
        op = Eltwise(node.name, "copy", [bias], output, lowering.device, views=views)
    lowering.emit(op)
