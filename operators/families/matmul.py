# SPDX-License-Identifier: Apache-2.0
"""Matrix products: MatMul, Gemm, MatMulInteger."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, DType, dtype_of
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.kernel import MAX_DIMS, Kernel, Scalar, Tensor, declare
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.elementwise import (
    ACTIVATION_SCALARS,
    Eltwise,
    View,
    collapse,
    peel,
    tensors_of,
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
    strided_operand,
)
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.transactions import Device
from onedispatch.transactions.base.phrases import counted

Array = np.ndarray[Any, Any]


def mac_cost(macs: e.Expr, of: str) -> e.Expr:
    """A call of ``macs`` multiply-accumulates at the rate of operand ``of``'s element type."""
    return (
        e.device("call_cycles", of)
        + e.ELEMENTS * e.device("output_cycles", of)
        + macs / e.device("macs_per_cycle", of)
        + e.ELEMENTS * e.LAST * e.weight("act") * e.device("special_cycles_per_element")
    )


GEMM = declare(
    Kernel(
        "od::gemm@1",
        dims=("m", "n"),
        reduces=True,
        inputs=(
            Tensor("a", "m k", "f32 i8 u8"),
            Tensor("b", "k n", "f32 i8 u8"),
            Tensor("bias", "n", "f32 i32", optional=True),
            Tensor("a_zero", "m", "i8 u8", optional=True),
            Tensor("b_zero", "n", "i8 u8", optional=True),
        ),
        outputs=(Tensor("out", "m n", "f32 i32"),),
        scalars=(Scalar("alpha", "f32", default=1.0), *ACTIVATION_SCALARS),
        cost=mac_cost(e.ELEMENTS * e.K_COUNT, "a"),
        summary="act(alpha * sum_k (a - a_zero)[m][k] * (b - b_zero)[k][n] + bias[n]), over the steps",
    )
)


class MatMul(Operator):
    """``act(alpha * A @ B + bias)`` in f32, or ``(A - a_zero) @ (B - b_zero)`` from bytes to int32.

    A is [..., M, K], B is [..., K, N]; leading dimensions broadcast. A constant 2-D B is packed
    tile by tile; ``bias`` [N] needs that. ``trans_a``/``trans_b`` read 2-D A/B transposed.
    """

    kind = "matmul"

    def __init__(
        self,
        name: str,
        a: TensorSpec,
        b: TensorSpec,
        output: TensorSpec,
        device: Device,
        *,
        bias: Array | None = None,
        alpha: float = 1.0,
        trans_a: bool = False,
        trans_b: bool = False,
        a_zero: TensorSpec | None = None,
        b_zero: TensorSpec | None = None,
        activation: Activation | None = None,
    ) -> None:
        zeros = [z for z in (a_zero, b_zero) if z is not None]
        super().__init__(name, [a, b, *zeros], output, device, activation)
        self.a, self.b, self.a_zero, self.b_zero = a, b, a_zero, b_zero
        self.bias, self.alpha = bias, alpha
        self.trans_a, self.trans_b = trans_a, trans_b
        self.itemsize = a.dtype.itemsize
        self.dtype = "f32" if self.itemsize == 4 else "i8i32"
        self.packs_b = b.is_const and len(b.shape) == 2

    # -- geometry ----------------------------------------------------------------------------

    def _matrix(self, tensor: TensorSpec, transposed: bool, column: bool) -> tuple[list[int], list[int]]:
        """(shape, element strides) of a tensor as [..., rows, columns]."""
        shape = list(tensor.shape)
        if len(shape) == 1:
            # the added dimension has one member: no stride, so that views leave it out
            return ([shape[0], 1], [1, 0]) if column else ([1, shape[0]], [0, 1])
        pitch = tensor.row_pitch
        strides = [s * pitch for s in contiguous_strides(shape[:-1])] + [1]
        if transposed:
            shape[-2:], strides[-2:] = shape[:-3:-1], strides[:-3:-1]
        return shape, strides

    def nests(self) -> list[Nest]:
        a_shape, a_strides = self._matrix(self.a, self.trans_a, column=False)
        b_shape, b_strides = self._matrix(self.b, self.trans_b, column=True)
        m, k, n = a_shape[-2], a_shape[-1], b_shape[-1]
        batch = list(np.broadcast_shapes(a_shape[:-2], b_shape[:-2]))
        out_strides = [*contiguous_strides([*batch, m, n])]
        views = [
            View(_batch_strides(batch, a_shape[:-2], a_strides[:-2])),
            View(_batch_strides(batch, b_shape[:-2], b_strides[:-2])),
            View(out_strides[:-2]),
        ]
        if 0 in batch or m * n == 0:
            return []
        # A batch over which B does not change is more rows of A.
        if batch and not any(views[1].strides) and self._rows_join(batch, a_shape, a_strides):
            m, batch = m * prod(batch), []
            views = [View([]), View([]), View([])]
        sizes, strides = collapse(batch, views) if prod(batch) > 1 else ([], [[], [], []])
        return [
            self._nest(part, steps, offsets, (m, k, n), (a_strides, b_strides))
            for part, steps, offsets in peel(sizes, strides, MAX_DIMS - 2)
        ]

    def _rows_join(self, batch: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> bool:
        whole = list(shape[:-2]) == list(batch)
        steps = [strides[-2] * prod(shape[d + 1 : -1]) for d in range(len(shape) - 2)]
        return whole and not self.trans_a and steps == list(strides[:-2])

    def _nest(
        self,
        sizes: Sequence[int],
        strides: Sequence[Sequence[int]],
        offsets: Sequence[int],
        mkn: tuple[int, int, int],
        matrices: tuple[Sequence[int], Sequence[int]],
    ) -> Nest:
        (m, k, n), nb = mkn, len(sizes)
        dm, dn = nb, nb + 1
        per_word = 4 // self.itemsize
        dims = (*[Dim(f"b{i}", s, max_tile=1) for i, s in enumerate(sizes)], Dim("m", m), Dim("n", n))
        batches = [[(s, strides[t][d], Access(d)) for d, s in enumerate(sizes)] for t in range(3)]
        (am, ak), (bk, bn) = matrices[0][-2:], matrices[1][-2:]
        a = strided_operand(
            "a",
            0,
            self._element(self.a),
            [*batches[0], self._along(m, am, dm), self._along(k, ak, K)],
            offsets[0],
        )
        b: Operand | Packed
        if self.packs_b:
            parts = [Part("b", self._element(self.b), ((K, 0), (dn, 0)))]
            if self.bias is not None:
                parts.append(Part("bias", F32, ((dn, 0),)))
            b = Packed("b", (dn, K), tuple(parts))
        else:
            b = strided_operand(
                "b",
                1,
                self._element(self.b),
                [*batches[1], self._along(k, bk, K), self._along(n, bn, dn)],
                offsets[1],
            )
        out = strided_operand(
            "out",
            OUTPUT,
            self._element(self.output),
            [*batches[2], (m, n, Access(dm)), (n, 1, Access(dn))],
            offsets[2],
        )
        zeros = [
            self._zero(name, tensor, index, dim, extent)
            for name, tensor, index, dim, extent in (
                ("a_zero", self.a_zero, 2, dm, m),
                ("b_zero", self.b_zero, 2 + (self.a_zero is not None), dn, n),
            )
            if tensor is not None
        ]

        scalars = {"alpha": self.alpha, **self.activation.scalars}
        roles, bound = {"m": dm, "n": dn}, (a, b, *zeros)
        return Nest(GEMM, dims, bound, (out,), roles, scalars, k_extent=k, k_multiple=per_word)

    def _along(self, extent: int, stride: int, dim: int) -> tuple[int, int, Access]:
        if self.itemsize == 4 or stride != 1:
            return extent, stride, Access(dim)
        return -(-extent // 4) * 4, stride, Access(dim, align=4)

    def _zero(self, name: str, tensor: TensorSpec, index: int, dim: int, extent: int) -> Operand | Packed:
        """A zero point: one for the tensor, or one per row (A) or column (B)."""
        if tensor.size == 1:
            return Operand(name, index, self._element(tensor), (4,), (1,), (Access(None),))
        if tensor.size != extent:
            raise Unsupported(
                f"zero point {tensor.name} of shape {list(tensor.shape)}",
                f"a scalar, or {counted(extent, 'value')}",
            )
        shape = (-(-extent // 4) * 4,)
        return Operand(name, index, self._element(tensor), shape, (1,), (Access(dim, align=4),))

    @staticmethod
    def _element(tensor: TensorSpec) -> DType:
        found = dtype_of(tensor.dtype)
        if found is None:
            raise Unsupported(f"{tensor.name} is {tensor.dtype}", ", ".join(DTYPES))
        return found

    def pack(self, operand: str, schedule: Schedule, out: Array) -> None:
        if self.b.value is None:
            raise self.not_constant(operand)
        matrix = self.b.value.T if self.trans_b else self.b.value
        dn = len(schedule.nest.dims) - 1
        n_tile, k_tile, steps = schedule.tiles[dn], schedule.k_tile, schedule.inner_steps
        k, n = matrix.shape
        packed = schedule.packed(operand)
        chunks = out.reshape(schedule.slot_count(packed), -1)
        used = n_tile * k_tile * self.itemsize
        for i in range(schedule.grid[dn]):
            at = min(i * n_tile, n - n_tile)
            part = np.zeros((steps * k_tile, n_tile), matrix.dtype)
            part[:k] = matrix[:, at : at + n_tile]
            slots = schedule.slot(packed, [i], np.arange(steps))
            chunks[slots, :used] = part.reshape(steps, -1).view(np.uint8)
            if self.bias is not None:
                bias = self.bias[at : at + n_tile].astype(np.float32)
                chunks[slots, -4 * n_tile :] = bias.view(np.uint8)

    # -- fusion, reference -----------------------------------------------------------------

    def absorb(self, consumer: Operator) -> Operator | None:
        if self.dtype != "f32":
            return None
        bias = self._bias_of(consumer) if self.takes_activation else None
        if bias is None:
            return super().absorb(consumer)
        return self.replaced(output=consumer.output, activation=consumer.activation, bias=bias)

    def _bias_of(self, consumer: Operator) -> Array | None:
        """The constant [N] that ``consumer`` adds to this product, if that is all it does."""
        plain = isinstance(consumer, Eltwise) and consumer.func == "add" and len(consumer.inputs) == 2
        if not plain or not self.packs_b or self.bias is not None or not isinstance(consumer, Eltwise):
            return None
        if consumer.output.shape != self.output.shape or (consumer.alpha, consumer.beta) != (1.0, 1.0):
            return None
        n = self.output.shape[-1] if self.output.shape else 1
        for i, other in enumerate(consumer.inputs):
            mine = consumer.inputs[1 - i]
            row = other.value is not None and other.size == n and (other.shape or (1,))[-1] == n
            if row and other.value is not None and mine.name == self.output.name:
                return np.asarray(other.value, np.float32).reshape(-1)
        return None

    def reference(self, *arrays: Array) -> Array:
        a, b = arrays[0], arrays[1]
        a, b = (a.T if self.trans_a else a), (b.T if self.trans_b else b)
        if self.dtype == "f32":
            y = np.float32(self.alpha) * np.matmul(a, b)
            if self.bias is not None:
                y = y + self.bias
            return self.activation.apply(y.astype(np.float32)).reshape(self.output.shape)
        rest = list(arrays[2:])
        a, b = a.astype(np.int32), b.astype(np.int32)
        if self.a_zero is not None:
            zero = rest.pop(0).astype(np.int32)
            a = a - (zero.reshape(-1, 1) if zero.size > 1 else zero.reshape(()))
        if self.b_zero is not None:
            zero = rest.pop(0).astype(np.int32)
            b = b - (zero.reshape(-1) if zero.size > 1 else zero.reshape(()))
        product: Array = np.matmul(a, b).astype(np.int32)
        return product.reshape(self.output.shape)


def _batch_strides(batch: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    lead = len(batch) - len(shape)
    return [0] * lead + [s if n != 1 else 0 for n, s in zip(shape, strides, strict=True)]


# -- ONNX --------------------------------------------------------------------------------------


@maps("MatMul", notes="any rank, broadcast batches")
def map_matmul(node: NodeSpec, lowering: Lowering) -> None:
    (a, b), output = tensors_of(node)
    emit_product(node, lowering, a, b, output)


def emit_product(
    node: NodeSpec, lowering: Lowering, a: TensorSpec, b: TensorSpec, output: TensorSpec, **options: Any
) -> None:
    """A ``MatMul``, or zeros where the reduction is empty."""
    k = a.shape[-2] if options.get("trans_a") else a.shape[-1]
    if k == 0:
        lowering.emit(Eltwise(node.name, "fill", [], output, lowering.device, alpha=0.0))
    else:
        lowering.emit(MatMul(node.name, a, b, output, lowering.device, **options))


@maps("Gemm", notes="alpha, beta, transposed inputs; C constant or computed")
def map_gemm(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = tensors_of(node)
    a, b = inputs[:2]
    c = node.input(2)
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    options: dict[str, Any] = {
        "alpha": alpha,
        "trans_a": bool(node.attr("transA", 0)),
        "trans_b": bool(node.attr("transB", 0)),
    }
    n = output.shape[-1]
    row = c is not None and c.value is not None and c.size in (1, n) and (c.size == 1 or c.shape[-1] == n)
    if c is None or beta == 0.0:
        emit_product(node, lowering, a, b, output, **options)
    elif row and a.size and b.is_const and c.value is not None:
        bias = np.float32(beta) * np.broadcast_to(np.asarray(c.value, np.float32).reshape(-1), (n,))
        emit_product(node, lowering, a, b, output, bias=bias, **options)
    else:
        product = lowering.temp(output.dtype, output.shape)
        emit_product(node, lowering, a, b, product, **options)
        add = Eltwise(node.name, "add", [product, c], output, lowering.device, beta=beta)
        lowering.emit(add)


@maps("MatMulInteger", dtypes=("int8", "uint8"), notes="zero points per tensor, row (A) or column (B)")
def map_matmul_integer(node: NodeSpec, lowering: Lowering) -> None:
    a, b, output = node.input(0), node.input(1), node.outputs[0]
    if a is None or b is None or output is None:
        raise Unsupported("MatMulInteger without A, B or output")
    for tensor in (a, b):
        if tensor.dtype.itemsize != 1:
            raise Unsupported(f"{tensor.name} is {tensor.dtype}", "int8 or uint8")
    zeros = [_integer_zero(node.input(i)) for i in (2, 3)]
    if any(z is not None and z.size > 1 for z in zeros) and max(len(a.shape), len(b.shape)) > 2:
        raise Unsupported("zero points per row or column of batched matrices", "2-D A and B")
    emit_product(node, lowering, a, b, output, a_zero=zeros[0], b_zero=zeros[1])


def _integer_zero(tensor: TensorSpec | None) -> TensorSpec | None:
    """A zero point worth sending: constants that are all zero are dropped."""
    if tensor is None or (tensor.value is not None and not np.any(tensor.value)):
        return None
    return tensor
