# SPDX-License-Identifier: Apache-2.0
"""Reductions over neighbouring axes, and global pooling, which is one over all positions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, EVERY, FLOATS, DType
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    ROW,
    WORD_BYTES,
    accesses,
    busiest,
    combined,
    either,
    kept,
    read,
    sums_bytes,
    vectors,
)
from onedispatch.operators.declarations.functions import REDUCTIONS, Activation
from onedispatch.operators.declarations.kernel import Kernel, Tensor, chooses, declare
from onedispatch.operators.interface.merge import ACTIVATION, Merge
from onedispatch.operators.interface.operator import Operator, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import ACTIVATION_SCALARS
from onedispatch.operators.kernels.movement import Joined
from onedispatch.operators.scheduling.index_space import (
    OUTPUT,
    Access,
    Dim,
    K,
    Operand,
    strided_operand,
)
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]

_NARROW = "i8 u8 i16 u16 i32 bool"  # what is reduced in int32


def _reduce_cost() -> e.Expr:
    """Lines are the members of k with neighbours along i in a vector, or with neighbours along k."""
    r, i, k, step = e.tile("r"), e.tile("i"), e.K_COUNT, e.stride("x", "i")
    columns = e.named("columns", either(e.differs(step, 0), i, 1))  # one that is repeated is reduced once
    several, apart = e.differs(columns, 1), e.differs(step, 1)
    sideways = e.named("sideways", several * (1 - apart))  # vectors hold neighbours along i
    lines = e.named("lines", r * either(sideways, vectors(i, "x"), columns))
    line = e.named("line", either(sideways, k, vectors(k, "x")))
    whole = read(r * columns * k / e.run("x"), e.run("x"), "x")
    alone = read(lines, k, "x", e.stride("x", "k"))  # columns apart are lines of their own
    loads = e.named("loads", either(several * apart, alone, whole))
    across = (1 - sideways) * lines * combined(k, "x", e.work("mode", "x"))
    # Results so far are loaded and stored: words where they are kept, which the last step makes narrow.
    words = 2 * r * e.ceiling(WORD_BYTES * i / e.device("vector_bytes")) + e.LAST * r * accesses(i, "out")
    partial = e.named("partial", either(kept("out"), words, 2 * r * accesses(i, "out")))
    results = e.LAST * vectors(r * i, "out") * (e.finish("mode", "out") + e.work("act", "out"))
    passes = busiest(loads, e.as_expr(0), lines * line * e.work("mode", "x"))
    return ENTRY + lines * ROW + passes + e.named("across", across) + partial + e.named("last step", results)


REDUCE = declare(
    Kernel(
        "od::reduce@1",
        dims=("r", "i"),
        reduces=True,
        inputs=(Tensor("x", "r k i", EVERY),),
        outputs=(Tensor("out", "r i", EVERY),),
        types=(
            {"x": FLOATS, "out": FLOATS},
            {"x": _NARROW, "out": _NARROW},
            {"x": "u32", "out": "u32"},
        ),
        scalars=(chooses("mode", REDUCTIONS, of="x"), *ACTIVATION_SCALARS),
        cost=_reduce_cost(),
        scratch=sums_bytes(e.tile("r") * e.tile("i"), "out"),
        keeps_scratch=True,
        sums=sums_bytes(e.tile("r") * e.tile("i"), "out"),
        # ASSUMPTION: 128 instructions: a loop along and one across rows, and what finishes each function.
        code_bytes=2048,
        joins="columns",
        summary="out[r][i] = reduce_k x[r][k][i], over the steps in f32, int32 or uint32; integers wrap",
    )
)


def word_of(row: DType) -> np.dtype[Any]:
    """The type that kernels compute such elements in: float32, int32 or uint32."""
    return DTYPES[row.word].numpy


def _joins(reduction: Any, reader: Any) -> bool:
    """Whether ``reader`` takes the results, rows of one element each, as rows of several."""
    return isinstance(reader, Joined)


def _joined(reduction: Any, reader: Any) -> Any:
    """``reduction`` (a ``Reduce``), which writes its results in order, whatever their shape."""
    if reduction.axes[1] < len(reduction.inputs[0].shape):
        raise Unsupported("rows that stay as they are", "reductions of rows")
    return reduction.replaced(output=reader.output)


JOINED = Merge("joined", _joins, _joined)


class Reduce(Operator):
    """``act(reduce(x))`` over axes ``first`` to before ``stop`` of ``x``; accumulates in steps.

    Rows of x with padding are reduced alone (``emit_reduce`` sees to the others). The output has one
    element per remaining coordinate, whatever its shape. A NaN anywhere is the largest and smallest value,
    as in NumPy: what onnxruntime makes of one depends on where it lies in its vectors.
    """

    kind = "reduce"
    runs_in_bands = True
    merges = (ACTIVATION, JOINED)

    def __init__(
        self,
        name: str,
        mode: str,
        x: TensorSpec,
        output: TensorSpec,
        axes: tuple[int, int],
        device: Device,
        activation: Activation | None = None,
    ) -> None:
        super().__init__(name, [x], output, device, activation)
        self.mode, self.axes = mode, axes

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Elements before, along and behind the reduced axes."""
        shape, (first, stop) = self.inputs[0].shape, self.axes
        return prod(shape[:first]), prod(shape[first:stop]), prod(shape[stop:])

    @property
    def takes_activation(self) -> bool:
        return super().takes_activation and self.inputs[0].element.is_float

    def nests(self) -> list[Nest]:
        if 0 in (self.sizes[0], self.sizes[2]):
            return []
        keeps_rows = self.axes[1] < len(self.inputs[0].shape)
        return [self._rows_kept() if keeps_rows else self._rows_reduced()]

    def _rows_kept(self) -> Nest:
        """Row padding is reduced like the rest of the rows: input and output have the same."""
        x, y = self.inputs[0], self.output
        outer, length, _ = self.sizes
        inner = prod(x.device_shape[self.axes[1] :])
        unit = max(x.element.per_word, y.element.per_word)
        walked = [(outer, length * inner, Access(0)), (length, inner, Access(K)), (inner, 1, Access(1))]
        out = Operand("out", OUTPUT, y.element, (outer, inner), (inner, 1), (Access(0), Access(1)))
        dims = Dim("o", outer), Dim("i", inner, multiple=unit)
        return self._nest(strided_operand("x", 0, x.element, walked), out, dims)

    def _rows_reduced(self) -> Nest:
        x, y = self.inputs[0], self.output
        unit, pitch = x.element.per_word, y.row_pitch
        outer, length, _ = self.sizes
        step = prod(x.device_shape[self.axes[0] :]) if x.shape else x.row_pitch
        outer, row = (outer, 1) if y.element.per_word == 1 else (y.rows, y.row)
        pitch = pitch if y.element.per_word > 1 else 1
        walked = [(outer, step * row, Access(0))]
        if row > 1:
            walked.append((row, step, Access(1)))
        if unit > 1:
            walked.append((step, 1, Access(K, align=unit)))
        else:
            walked += [(length, 1, Access(K)), (1, 1, Access(1))][: 1 + (row == 1)]
        shape, strides, access = zip(*walked, strict=True)
        operand = Operand("x", 0, x.element, shape, strides, access)
        out = Operand("out", OUTPUT, y.element, (outer, pitch), (pitch, 1), (Access(0), Access(1)))
        last = Dim("i", pitch, multiple=y.element.per_word, padding=pitch - row)
        return self._nest(operand, out, (Dim("o", outer), last))

    def _nest(self, x: Operand, out: Operand, dims: tuple[Dim, Dim]) -> Nest:
        scalars = {"mode": self.mode, **self.activation.scalars}
        unit = x.dtype.per_word if any(a.dim == K and a.align > 1 for a in x.access) else 1
        reduction: dict[str, Any] = {"k_extent": self.sizes[1], "k_multiple": unit}
        return Nest(REDUCE, dims, (x,), (out,), {"r": 0, "i": 1}, scalars, **reduction)

    def reference(self, *arrays: Array) -> Array:
        wide = word_of(self.inputs[0].element)
        x = arrays[0].astype(wide).reshape(self.sizes)
        function = REDUCTIONS[self.mode].reference
        if function is None:
            raise NotImplementedError(self.mode)
        result = self.activation.apply(np.asarray(function(x), wide))
        return result.astype(self.output.dtype).reshape(self.output.shape)
