# SPDX-License-Identifier: Apache-2.0
"""MatMulNBits: products with constant weights of 4 or 8 bits, which share scales in blocks along K.

Weights stay packed in device memory and on every stream; a core widens them. They lie in chunks as
[block, byte of the block, column]; a byte of 4-bit weights holds two neighbours along K, the earlier below.

For bfloat16 data a weight is ``(q - zero) * scale`` rounded to bfloat16, as a MatMul of such weights has it.
For float32 and float16 data ``q - zero``, a whole number that bfloat16 holds, is multiplied as it is, and the
sums of a block are scaled in float32. That is as near to products of float32 weights as other orders of
summation, and what onnxruntime computes at ``accuracy_level`` 0 (its default) to 3; at 4 it rounds the data
to 8 bits, which here stays float.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, FLOATS
from onedispatch.operators.declarations.formulas import (
    F32_SCALED,
    ROW,
    SPLIT,
    WORD_BYTES,
    accumulated,
    either,
    packed,
    parts_bytes,
    products,
    sums_bytes,
    vectors,
    words,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.merge import ACTIVATION
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.elementwise import ACTIVATION_SCALARS
from onedispatch.operators.kernels.merges import BIAS
from onedispatch.operators.kernels.product_costs import finished
from onedispatch.operators.scheduling.index_space import (
    OUTPUT,
    Access,
    Dim,
    K,
    Operand,
    Packed,
    PackedPart,
    strided_operand,
)
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]
BITS = (4, 8)
BYTE = 8
_PART_BYTES = 2  # of a bfloat16 weight


def _widened(members: e.Expr) -> e.Expr:
    """Cycles of making bfloat16 of ``members`` packed weights.

    Nibbles are shuffled apart, bytes made 32-bit integers, these less their zero points floats, and floats
    narrow; where zero points are floats themselves, differences are split into parts as any others.
    """
    apart = e.differs(e.scalar("bits"), BYTE) * e.device("i8_move_cycles")
    floats = e.device("i32_convert_cycles") + e.device("f32_convert_cycles")
    whole = vectors(members, "b") * (apart + e.device("i8_convert_cycles"))
    split = e.present("zero") * e.device("pack_cycles", "zero")
    narrow = e.largest(e.device("bf16_convert_cycles"), split)
    return e.named("widened", ROW + whole + words(members) * (e.device("i32_op_cycles") + floats + narrow))


def _splits() -> e.Expr:
    """1 where data has more than 8 significant bits: sums of blocks are scaled; 0 where weights are."""
    return e.differs(e.device("pack_cycles", "a"), 0)


def _cost() -> e.Expr:
    """Weights are widened once for all rows; what is scaled, and whether sums leave the accumulators for it
    at the end of every block, is as the data is."""
    m, n, block, blocks = e.tile("m"), e.tile("n"), e.count("a", "*block"), e.K_COUNT
    members = block * n
    product = either(e.present("zero"), products(m, block, n, "a", "zero"), products(m, block, n, "a", "b"))
    rows, columns = (e.multiple(size, e.device(f"native_{axis}", "a")) for size, axis in ((m, "m"), (n, "n")))
    left = e.device_of_sums("product_call_cycles", "a")
    left = left + rows * columns * e.device_of_sums("output_cycles", "a")
    scaling = words(m * n) * (F32_SCALED + e.device("f32_op_cycles")) + words(n) * SPLIT
    narrow = (
        e.differs(e.item_bytes("out"), WORD_BYTES) * vectors(m * n, "out") * e.device("convert_cycles", "out")
    )
    by_sums = e.named("scaled sums", blocks * (left + scaling) + e.LAST * narrow)
    by_weights = e.named("scaled weights", blocks * words(members) * e.device("bf16_mul_cycles"))
    return (
        packed("a", m * blocks * block)
        + blocks * (_widened(members) + product)
        + either(_splits(), by_sums, by_weights + accumulated(m, n, "a", "out"))
        + e.named("last step", finished(m * n))
    )


def _scratch() -> e.Expr:
    """Sums that wait for the next step, parts of the data, and the weights, widened."""
    m, n, k = e.tile("m"), e.tile("n"), e.count("a", "k") * e.count("a", "*block")
    part = e.largest(_PART_BYTES, e.present("zero") * e.device("part_bytes", "zero"))
    return sums_bytes(m * n, "out") + parts_bytes("a", m * k) + e.named("weights", k * n * part)


GEMM_NBITS = declare(
    Kernel(
        "od::gemm_nbits@1",
        dims=("m", "n"),
        reduces=True,
        inputs=(
            Tensor("a", "m k *block", FLOATS),
            Tensor("b", "k *bytes n", "u8"),
            Tensor("scale", "k n", FLOATS),
            Tensor("zero", "k n", f"u8 {FLOATS}", optional=True),
            Tensor("bias", "n", "f32", optional=True),
        ),
        outputs=(Tensor("out", "m n", FLOATS, like="a"),),
        types=tuple(
            {
                "a": a,
                "b": "u8",
                "scale": f"{a} f32" if a != "f32" else a,
                "zero": f"u8 {a}",
                "bias": "f32",
                "out": a,
            }
            for a in FLOATS.split()
        ),
        scalars=(Scalar("bits", low=min(BITS), high=max(BITS)), *ACTIVATION_SCALARS),
        cost=_cost(),
        scratch=_scratch(),
        keeps_scratch=True,
        sums=sums_bytes(e.tile("m") * e.tile("n"), "out"),
        # ASSUMPTION: 160 instructions: those of od::gemm, the widening of weights, the scaling of sums.
        code_bytes=2560,
        summary=(
            "act(sum_k a[m][k] * (b[k][n] - zero[k / block][n]) * scale[k / block][n] + bias[n]) over blocks "
            "of weights of 4 or 8 bits; without zero points 8 and 128 stand for 0"
        ),
    )
)


class MatMulNBits(Operator):
    """``act(A @ W + bias)``: A [..., blocks * block] of floats, W [blocks * block, N] of 4 or 8 bits.

    ``b`` [N, blocks, bytes] uint8, ``scales`` and ``zeros`` [N, blocks] (of A's type or float32; of
    uint8 or A's type) are constants. ``bias`` is float32 [N].
    """

    kind = "matmul_nbits"
    runs_in_bands = True
    merges = (BIAS, ACTIVATION)
    is_float, packs_b, matrices = True, True, None  # what BIAS asks of a product

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        device: Device,
        *,
        bits: int,
        bias: Array | None = None,
    ) -> None:
        super().__init__(name, inputs, output, device)
        self.a, self.b, self.scales, *zeros = inputs
        self.zeros = zeros[0] if zeros else None
        self.bits, self.bias = bits, bias

    def nests(self) -> list[Nest]:
        n, blocks, size = self.b.shape
        block = size * BYTE // self.bits
        m, pitch, unit = prod(self.a.shape[:-1]), self.a.row_pitch, self.output.element.per_word
        whole = -(-n // unit) * unit
        dims = (Dim("m", m), Dim("n", whole, multiple=unit, padding=whole - n))
        along = [(m, pitch, Access(0)), (blocks, block, Access(K)), (block, 1, Access())]
        a = strided_operand("a", 0, self.a.element, along)
        b = Packed("b", (1, K), tuple(self._parts(size)))
        out = Operand("out", OUTPUT, self.output.element, (m, whole), (whole, 1), (Access(0), Access(1)))
        scalars = {"bits": self.bits, **self.activation.scalars}
        return [Nest(GEMM_NBITS, dims, (a, b), (out,), {"m": 0, "n": 1}, scalars, k_extent=blocks)]

    def count_macs(self) -> int:
        return self.output.size * self.a.shape[-1]

    def _parts(self, size: int) -> list[PackedPart]:
        parts = [PackedPart("b", DTYPES["u8"], ((K, 0), (None, size), (1, 0)))]
        parts.append(PackedPart("scale", self.scales.element, ((K, 0), (1, 0))))
        if self.zeros is not None:
            parts.append(PackedPart("zero", self.zeros.element, ((K, 0), (1, 0))))
        if self.bias is not None:
            parts.append(PackedPart("bias", DTYPES["f32"], ((1, 0),)))
        return parts

    def _known(self, tensor: TensorSpec) -> Array:
        if tensor.value is None:
            raise self.not_constant(tensor.name)
        return tensor.value

    def packed_parts(self, operand: str) -> list[Array]:
        tensors = [self.b, self.scales, *([self.zeros] if self.zeros is not None else [])]
        parts = [np.moveaxis(self._known(tensor), 0, -1) for tensor in tensors]  # [blocks, ..., N]
        return parts if self.bias is None else [*parts, self.bias.astype(np.float32)]

    def reference(self, *arrays: Array) -> Array:
        a, (q, scales, *zeros) = arrays[0].reshape(self.a.shape), arrays[1:]
        levels = unpacked(q.reshape(self.b.shape), self.bits).astype(np.float32)
        zero = (
            zeros[0].astype(np.float32) if zeros else np.full(scales.shape, 1 << (self.bits - 1), np.float32)
        )
        weights = (levels - zero.reshape(self.scales.shape)[..., None]) * scales.astype(np.float32).reshape(
            *self.scales.shape, 1
        )
        weights = weights.reshape(len(weights), -1)
        if self.a.element.name == "bf16":
            weights = weights.astype(ml_dtypes.bfloat16).astype(np.float32)
        y = np.matmul(a.astype(np.float32), weights.T)
        y = self.activation.apply(y if self.bias is None else y + self.bias)
        return np.asarray(y.astype(self.output.dtype)).reshape(self.output.shape)


def unpacked(q: Array, bits: int) -> Array:
    """Bytes [..., bytes] as numbers of ``bits`` bits each [..., members], the lowest bits first."""
    shifts = np.arange(0, BYTE, bits, dtype=np.uint8)
    members = q[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return np.asarray(members.reshape(*q.shape[:-1], -1))
