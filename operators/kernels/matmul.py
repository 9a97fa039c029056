# SPDX-License-Identifier: Apache-2.0
"""Matrix products: MatMul, Gemm; those of bytes are in ``matmul_integer``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, NUMBERS, saturated
from onedispatch.operators.declarations.formulas import (
    F32_SCALED,
    SPLIT,
    accumulated,
    packed,
    parts_bytes,
    products,
    widened,
    words,
)
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.kernel import MAX_DIMS, Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.merge import ACTIVATION
from onedispatch.operators.interface.operator import Operator, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import (
    ACTIVATION_SCALARS,
    View,
    collapse,
    peel,
)
from onedispatch.operators.kernels.merges import AS_FLOATS, BIAS, FACTOR, SCALED, WIDENED
from onedispatch.operators.kernels.narrow_sums import (
    NARROW_SUMS,
    shift_of,
    summed_floats,
    summed_integers,
    waiting,
    waiting_bytes,
)
from onedispatch.operators.kernels.product_costs import corrected, finished, finished_sums
from onedispatch.operators.scheduling.index_space import (
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
from onedispatch.transactions.base.text import counted

Array = np.ndarray[Any, Any]


def _cost() -> e.Expr:
    """Operands are brought into blocks, multiplied in whole native products, and accumulated."""
    m, k, n = e.tile("m"), e.K_COUNT, e.tile("n")
    scaled = e.differs(e.scalar("alpha"), 1) * (words(m * n) * F32_SCALED + SPLIT)
    # A zero point without a scale: sums in the type of the results begin with it.
    zero = (1 - e.present("scale")) * e.present("out_zero") * words(m * n) * e.device("i32_op_cycles")
    return (
        packed("a", m * k)
        + packed("b", k * n)
        + products(m, k, n, "a", "b")
        + accumulated(m, n, "a", "out", waiting("out"))
        + widened(m, k, n, "a", "b", "out")
        + corrected(m, k, n)
        + e.named(
            "last step", finished(m * n) + e.LAST * (scaled + zero + finished_sums(words(m * n), words(n)))
        )
    )


def _scratch() -> e.Expr:
    """Sums that wait for the next step, then the parts of both operands."""
    m, k, n = e.tile("m"), e.count("a", "k"), e.tile("n")
    return waiting_bytes(m * n, "out", "a") + parts_bytes("a", m * k) + parts_bytes("b", k * n)


_SUMS = "i32 i8 u8 i16"  # what integer sums may become: themselves, or narrow by a scale
_SCALED = {"scale": "f32", "out_zero": _SUMS, "out": _SUMS}
_NARROW = "i8 u8 i16 u16"  # what sums of 64 bits become
GEMM = declare(
    Kernel(
        "od::gemm@1",
        dims=("m", "n"),
        reduces=True,
        inputs=(
            Tensor("a", "m k", NUMBERS),
            Tensor("b", "k n", NUMBERS),
            Tensor("bias", "n", "f32 i32", optional=True),
            Tensor("a_zero", "m", _NARROW, optional=True),
            Tensor("b_zero", "n", _NARROW, optional=True),
            Tensor("scale", "n", "f32", optional=True),
            Tensor("out_zero", "n", f"i32 {_NARROW}", optional=True, like="out"),
        ),
        outputs=(Tensor("out", "m n", NUMBERS),),
        types=(
            {"a": "f32", "b": "f32", "bias": "f32", "out": "f32"},
            {"a": "bf16", "b": "bf16", "bias": "f32", "out": "bf16 f32"},
            {"a": "f16", "b": "f16", "bias": "f32", "out": "f16 f32"},
            *(
                {"a": a, "b": b, "bias": "i32", "a_zero": a, "b_zero": b, **_SCALED}
                for a in ("i8", "u8")
                for b in ("i8", "u8")
            ),
            {
                "a": "i16",
                "b": "i8",
                "bias": "i32",
                "a_zero": "i16",
                "b_zero": "i8",
                "scale": "f32",
                "out_zero": "i32",
                "out": "i32",
            },
            *(
                {
                    "a": a,
                    "b": b,
                    "bias": "i32",
                    "a_zero": a,
                    "b_zero": b,
                    "scale": "f32",
                    "out_zero": _NARROW,
                    "out": _NARROW,
                }
                for a in ("i16", "u16")
                for b in _NARROW.split()
            ),
            *(
                {"a": a, "b": b, "bias": "f32", "a_zero": a, "b_zero": b, "scale": "f32", "out": "f32"}
                for a in ("i8", "u8")
                for b in ("i8", "u8")
            ),
            {"a": "i32", "b": "i32", "bias": "i32", "out": "i32"},
            {"a": "u32", "b": "u32", "out": "u32"},
        ),
        scalars=(
            Scalar("alpha", "f32", default=1.0),
            *ACTIVATION_SCALARS,
            NARROW_SUMS,
        ),
        cost=_cost(),
        scratch=_scratch(),
        keeps_scratch=True,
        joins="panels",
        sums=waiting_bytes(e.tile("m") * e.tile("n"), "out", "a"),
        # ASSUMPTION: 128 instructions: unrolled products, packing, bias, sealed functions, requantisation.
        code_bytes=2048,
        summary=(
            "sum_k (a - a_zero)[m][k] * (b - b_zero)[k][n], over the steps in f32 or int32, which wraps, or "
            "in 64 bits where a has 16 and results are narrow; "
            "floats end as act(alpha * sum + bias[n]), integers as sum + bias[n], where there is a scale as "
            "round((sum + bias[n]) * scale[n]) + out_zero[n], saturated; those of bytes as floats too: "
            "act(sum * scale[n] + bias[n]). With narrow_sums s + 1 sums wait in out's type, rounded after "
            "every step: floats as they are, integers as round(sum / 2**s), saturated, which begin with "
            "bias[n] + out_zero * 2**s and have no scale"
        ),
    )
)


@dataclass(frozen=True)
class Matrix:
    """A tensor as [..., rows, columns]: shape and strides in elements of device memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class ProductOptions:
    """What a ``MatMul`` does beside multiplying: see there."""

    bias: Array | None = None
    alpha: float = 1.0
    trans_a: bool = False
    trans_b: bool = False
    a_zero: TensorSpec | None = None
    b_zero: TensorSpec | None = None
    scale: TensorSpec | None = None
    out_zero: TensorSpec | None = None
    activation: Activation | None = None
    matrices: tuple[Matrix, Matrix, Matrix] | None = None

    def swapped(self) -> ProductOptions:
        """Returns those of the transposed product of a vector."""
        return replace(self, a_zero=self.b_zero, b_zero=self.a_zero, trans_a=False, trans_b=True)


PLAIN = ProductOptions()


class MatMul(Operator):
    """``act(alpha * A @ B + bias)`` of floats, or ``(A - a_zero) @ (B - b_zero)`` of integers.

    A is [..., M, K], B is [..., K, N]; leading dimensions broadcast. A constant 2-D B is packed
    tile by tile; ``bias`` [N] needs that. ``trans_a``/``trans_b`` read 2-D A/B transposed. ``scale``
    ([1] or [N], float32) makes integer sums narrow: rounded half to even, ``out_zero`` ([1]) added,
    saturated, which is onnxruntime's arithmetic; integer sums as float32 are ``act(sum * scale + bias)``.
    ``matrices`` says how A, B and the output lie instead of
    their shapes, all of words and with as many leading dimensions.
    ``narrow_sums``: 0, or s + 1 for results shifted by s bits, as ``in_narrow_sums`` makes it.
    """

    kind = "matmul"
    runs_in_bands = True
    merges = (AS_FLOATS, SCALED, FACTOR, BIAS, ACTIVATION, WIDENED)

    def __init__(
        self,
        name: str,
        a: TensorSpec,
        b: TensorSpec,
        output: TensorSpec,
        device: Device,
        options: ProductOptions = PLAIN,
    ) -> None:
        matrices = options.matrices
        if matrices is None and len(b.shape) == 1 < len(a.shape) and output.element.per_word > 1:
            # Rows of narrow elements are what the kernel writes: the transposed product.
            a, b, options = b, a, options.swapped()
        self.optional = {name: getattr(options, name) for name in ("a_zero", "b_zero", "scale", "out_zero")}
        others = [tensor for tensor in self.optional.values() if tensor is not None]
        super().__init__(name, [a, b, *others], output, device, options.activation)
        self.a, self.b, self.bias = a, b, options.bias
        self.alpha = options.alpha
        self.trans_a, self.trans_b = options.trans_a, options.trans_b
        self.matrices = matrices
        self.narrow_sums = 0
        # Only a matrix that a constant is as a whole is packed; of others, one is read of each batch.
        whole = matrices is None or matrices[1] == Matrix(b.shape, contiguous_strides(b.shape))
        self.packs_b = b.is_const and len(b.shape) == 2 and whole

    @property
    def is_float(self) -> bool:
        return self.output.element.is_float

    @property
    def of_integers(self) -> bool:
        """Whether the sums are integers, whatever the results are."""
        return not self.a.element.is_float

    def scaled(self, scale: TensorSpec | None, output: TensorSpec, **fields: Any) -> MatMul:
        """The same with another ``scale`` and ``output``."""
        optional = {**self.optional, "scale": scale}
        others = (tensor for tensor in optional.values() if tensor is not None)
        inputs = (self.a, self.b, *others)
        made = self.replaced(optional=optional, inputs=inputs, output=output, **fields)
        assert isinstance(made, MatMul)
        return made

    @property
    def takes_activation(self) -> bool:
        return super().takes_activation and self.is_float

    def in_narrow_sums(self) -> Operator:
        """The same with sums of several steps in the type of the results; itself where they have it anyway.

        Integers are shifted as they are stored, so their scale must be one of 1, 1/2, 1/4, ...: with others,
        and of 16 bits, all bits are kept.
        """
        if self.output.element.per_word == 1 or is_wide(self.a):
            return self
        if self.is_float:
            return self.replaced(narrow_sums=1)
        shift = shift_of(self.optional["scale"])
        return self if shift is None else self.scaled(None, self.output, narrow_sums=1 + shift)

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
        if self.matrices is not None:
            return self._nests_seen(*self.matrices)
        a_shape, a_strides = self._matrix(self.a, self.trans_a, column=False)
        b_shape, b_strides = self._matrix(self.b, self.trans_b, column=True)
        m, k, n = a_shape[-2], a_shape[-1], b_shape[-1]
        batch = list(np.broadcast_shapes(a_shape[:-2], b_shape[:-2]))
        pitch = self.output.row_pitch if self.output.element.per_word > 1 else n
        out_strides = [*contiguous_strides([*batch, m, pitch])]
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
            self._nest(part, steps, offsets, (m, k, n), (a_strides, b_strides, out_strides))
            for part, steps, offsets in peel(sizes, strides, MAX_DIMS - 2)
        ]

    def count_macs(self) -> int:
        if self.matrices is not None:
            a, _, out = self.matrices
            return prod(out.shape) * a.shape[-1]
        return self.output.size * self._matrix(self.a, self.trans_a, column=False)[0][-1]

    def _nests_seen(self, a: Matrix, b: Matrix, out: Matrix) -> list[Nest]:
        batch, (m, n), k = out.shape[:-2], out.shape[-2:], a.shape[-1]
        views = [View(x.strides[:-2]) for x in (a, b, out)]
        sizes, strides = collapse(batch, views) if prod(batch) > 1 else ([], [[], [], []])
        return [
            self._nest(part, steps, offsets, (m, k, n), (a.strides, b.strides, out.strides))
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
        matrices: tuple[Sequence[int], Sequence[int], Sequence[int]],
    ) -> Nest:
        (m, k, n), nb = mkn, len(sizes)
        dm, dn = nb, nb + 1
        (am, ak), (bk, bn) = matrices[0][-2:], matrices[1][-2:]
        units = [t.element.per_word for t, step in ((self.a, ak), (self.b, bk)) if step == 1]
        last = self._last_dim(n)
        dims = (*[Dim(f"b{i}", s, max_tile=1) for i, s in enumerate(sizes)], Dim("m", m), last)
        batches = [[(s, strides[t][d], Access(d)) for d, s in enumerate(sizes)] for t in range(3)]
        along_a = [*batches[0], _along(self.a, m, am, dm), _along(self.a, k, ak, K)]
        a = strided_operand("a", 0, self.a.element, along_a, offsets[0])
        along_b = [*batches[1], _along(self.b, k, bk, K), _along(self.b, n, bn, dn)]
        b = self._packed(dn) if self.packs_b else strided_operand("b", 1, self.b.element, along_b, offsets[1])
        row = last.extent if self.matrices is None else matrices[2][-2]
        along_out = [*batches[2], (m, row, Access(dm)), (last.extent, 1, Access(dn))]
        lain, steps, access = zip(*along_out, strict=True)
        out = Operand("out", OUTPUT, self.output.element, lain, steps, access, offsets[2])
        others = self._others({"a_zero": (dm, m), "b_zero": (dn, n), "scale": (dn, n), "out_zero": (dn, 1)})
        scalars = {"alpha": self.alpha, **self.activation.scalars, "narrow_sums": self.narrow_sums}
        reduction: dict[str, Any] = {"k_extent": k, "k_multiple": max([1, *units])}
        return Nest(GEMM, dims, (a, b, *others), (out,), {"m": dm, "n": dn}, scalars, **reduction)

    def _last_dim(self, n: int) -> Dim:
        """Columns of the output; where its elements are narrower than words, with the padding of its rows."""
        unit = self.output.element.per_word
        extent = -(-n // unit) * unit
        return Dim("n", extent, multiple=unit, padding=extent - n)

    def _packed(self, dn: int) -> Packed:
        parts = [PackedPart("b", self.b.element, ((K, 0), (dn, 0)))]
        if self.bias is not None:
            parts.append(PackedPart("bias", DTYPES["f32" if self.is_float else "i32"], ((dn, 0),)))
        parts += [PackedPart(name, tensor.element, ((None, 1),)) for name, tensor in self._beside_b.items()]
        return Packed("b", (dn, K), tuple(parts))

    @property
    def _beside_b(self) -> dict[str, TensorSpec]:
        """Zero points and scales that every chunk of a packed B brings: of single constants, descriptors of
        their own would take longer."""
        given = {name: tensor for name, tensor in self.optional.items() if tensor is not None}
        return {n: t for n, t in given.items() if self.packs_b and t.value is not None and t.size == 1}

    def _others(self, along: dict[str, tuple[int, int]]) -> list[Operand]:
        """Zero points and scales: one for the tensor, or one per row (A) or column (B)."""
        found: list[Operand] = []
        given = [(name, tensor) for name, tensor in self.optional.items() if tensor is not None]
        for index, (name, tensor) in enumerate(given, 2):
            if name in self._beside_b:
                continue
            unit = tensor.element.per_word
            (dim, extent), shape = along[name], (-(-tensor.size // unit) * unit,)
            if tensor.size not in (1, extent):
                raise Unsupported(
                    f"{name} {tensor.name} of shape {list(tensor.shape)}",
                    f"a scalar, or {counted(extent, 'value')}",
                )
            access = Access(None) if tensor.size == 1 else Access(dim, align=unit)
            found.append(Operand(name, index, tensor.element, shape, (1,), (access,)))
        return found

    def packed_parts(self, operand: str) -> list[Array]:
        if self.b.value is None:
            raise self.not_constant(operand)
        parts = [self.b.value.T if self.trans_b else self.b.value]
        if self.bias is not None:
            parts.append(np.asarray(self.bias, np.float32 if self.is_float else np.int32))
        return parts + [np.asarray(tensor.value).reshape(1) for tensor in self._beside_b.values()]

    # -- reference -------------------------------------------------------------------------

    def _sums_of_floats(self, a: Array, b: Array) -> Array:
        if not self.narrow_sums:
            return np.asarray(np.matmul(a, b))
        return summed_floats(a, b, self.schedules[0].k_tile, self.output.dtype)

    def reference(self, *arrays: Array) -> Array:
        given = iter(arrays[2:])
        a, b = (x.reshape(t.shape) for x, t in zip(arrays[:2], self.inputs, strict=False))
        if self.matrices is not None:
            return self._product_seen(a, b, *self.matrices)
        a, b = (a.T if self.trans_a else a), (np.swapaxes(b, -1, -2) if self.trans_b else b)
        if not self.of_integers:
            y = np.float32(self.alpha) * self._sums_of_floats(a.astype(np.float32), b.astype(np.float32))
            y = y if self.bias is None else y + self.bias
            return (
                self.activation.apply(y.astype(np.float32))
                .astype(self.output.dtype)
                .reshape(self.output.shape)
            )
        zeros = {name: next(given) for name, tensor in self.optional.items() if tensor is not None}
        a, b = a.astype(np.int64), b.astype(np.int64)
        if "a_zero" in zeros:
            a = a - zeros["a_zero"].astype(np.int64).reshape(-1, *[1] * (zeros["a_zero"].size > 1))
        if "b_zero" in zeros:
            b = b - zeros["b_zero"].astype(np.int64).reshape(-1)
        zero = int(zeros["out_zero"].reshape(-1)[0]) if "out_zero" in zeros else 0
        bias = np.int64(0) if self.bias is None else self.bias
        if self.narrow_sums:
            k_tile, dtype = self.schedules[0].k_tile, self.output.dtype
            made = summed_integers(a, b, k_tile, self.narrow_sums - 1, dtype, bias, zero)
            return made.reshape(self.output.shape)
        sums = np.matmul(a, b)
        if self.is_float:
            return self._as_floats(sums.astype(np.int32), zeros.get("scale"))
        sums = sums + bias
        if "scale" in zeros:
            held = sums if is_wide(self.a) else sums.astype(np.int32)
            sums = requantised(held, zeros["scale"], zero, self.output.dtype)
        result: Array = sums.astype(self.output.dtype)
        return result.reshape(self.output.shape)

    def _as_floats(self, sums: Array, scale: Array | None) -> Array:
        y = sums.astype(np.float32)
        y = y if scale is None else y * scale.reshape(-1)
        y = y if self.bias is None else y + np.asarray(self.bias, np.float32)
        return np.asarray(self.activation.apply(y), np.float32).reshape(self.output.shape)

    def _product_seen(self, a: Array, b: Array, *matrices: Matrix) -> Array:
        tensors = zip((self.a.laid(a), self.b.laid(b)), matrices, strict=False)
        a, b = (View(m.strides).of(x, m.shape) for x, m in tensors)
        wide = np.float32 if self.is_float else a.dtype
        y = np.float32(self.alpha) * np.matmul(a.astype(wide), b.astype(wide)) if self.is_float else a @ b
        y = self.activation.apply(y if self.bias is None else y + self.bias)
        image = np.zeros(self.output.size, self.output.dtype)
        View(matrices[2].strides).of(image, matrices[2].shape)[...] = y
        return self.output.gathered(image)


def is_wide(x: TensorSpec) -> bool:
    """Whether sums that become narrow have 64 bits: those of products of 16-bit integers."""
    return not x.element.is_float and x.element.itemsize == 2


def requantised(sums: Array, scale: Array, zero: int, dtype: np.dtype[Any]) -> Array:
    """``sums`` [..., N], int32 or int64, as integers of ``dtype``, as onnxruntime's QLinear ones do."""
    scaled = sums.astype(np.float32) * scale.astype(np.float32)
    return saturated(np.rint(scaled.astype(np.float64)) + zero, dtype)


def _along(tensor: TensorSpec, extent: int, stride: int, dim: int) -> tuple[int, int, Access]:
    """An axis of a matrix; chunks of elements that lie side by side begin and end with words."""
    unit = tensor.element.per_word
    if unit == 1 or stride != 1:
        return extent, stride, Access(dim)
    return -(-extent // unit) * unit, stride, Access(dim, align=unit)


def _batch_strides(batch: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    lead = len(batch) - len(shape)
    return [0] * lead + [s if n != 1 else 0 for n, s in zip(shape, strides, strict=True)]
