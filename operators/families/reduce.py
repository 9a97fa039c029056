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
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.families.elementwise import (
    ACTIVATION_SCALARS,
    Eltwise,
    View,
    numpy_names,
    operands_of,
)
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Operator, TensorSpec, Unsupported
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
        # ASSUMPTION: 128 instructions: a loop along and one across rows, and what finishes each function.
        code_bytes=2048,
        summary="out[r][i] = reduce_k x[r][k][i], over the steps in f32, int32 or uint32; integers wrap",
    )
)


def word_of(row: DType) -> np.dtype[Any]:
    """The type that kernels compute such elements in: float32, int32 or uint32."""
    return DTYPES[row.word].numpy


class Reduce(Operator):
    """``act(reduce(x))`` over axes ``first`` to before ``stop`` of ``x``; accumulates in steps.

    Rows of x with padding are reduced alone (``emit_reduce`` sees to the others). The output has one
    element per remaining coordinate, whatever its shape. A NaN anywhere is the largest and smallest value,
    as in NumPy: what onnxruntime makes of one depends on where it lies in its vectors.
    """

    kind = "reduce"

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


def emit_reduce(
    name: str, mode: str, x: TensorSpec, output: TensorSpec, axes: tuple[int, int], lowering: Lowering
) -> None:
    """A ``Reduce``, or two of them where rows have padding and more than rows is reduced.

    What lies between the two is as wide as the kernel computes, so that results are rounded once.
    """
    if not x.shape:
        axes = (0, 0)
    first, stop = axes
    last = len(x.shape) - 1
    if stop == last + 1 and last > first and x.row_pitch != x.row:
        rows = lowering.temp(word_of(x.element), x.shape[:-1])
        lowering.emit(Reduce(name, mode, x, rows, (last, stop), lowering.device))
        x, axes = rows, (first, last)
        mode = "sum" if mode == "sum_square" else mode
    lowering.emit(Reduce(name, mode, x, output, axes, lowering.device))


# -- ONNX --------------------------------------------------------------------------------------

_POOLED = {"GlobalAveragePool": "mean", "GlobalMaxPool": "max"}


@maps(*_POOLED, dtypes=numpy_names(FLOATS))
def map_global_pool(node: NodeSpec, lowering: Lowering) -> None:
    (x,), output = operands_of(node, numpy_names(FLOATS))
    if 0 in x.shape[2:] and 0 not in output.shape:
        raise Unsupported("pooling over an empty extent", "at least one element")
    emit_reduce(node.name, _POOLED[node.op_type], x, output, (2, len(x.shape)), lowering)


def _reduce_nothing(node: NodeSpec, lowering: Lowering, x: TensorSpec, output: TensorSpec) -> None:
    """``noop_with_empty_axes``: every element is reduced by itself, which for squares is a square."""
    operands, func = ([x, x], "mul") if node.op_type == "ReduceSumSquare" else ([x], "copy")
    lowering.emit(Eltwise(node.name, func, operands, output, lowering.device))


def _of_nothing(mode: str, dtype: np.dtype[Any]) -> Any:
    """What ONNX says of a reduction over no values; of a mean it says nothing."""
    if mode in ("sum", "sum_square", "prod"):
        return int(mode == "prod")
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if mode == "max" else np.iinfo(dtype).max
    if dtype.kind == "b":
        return mode == "min"
    return -np.inf if mode == "max" else np.inf


def _reduce_emptiness(node: NodeSpec, lowering: Lowering, output: TensorSpec) -> None:
    mode = REDUCTIONS.by_onnx[node.op_type]
    if mode == "mean":
        raise Unsupported("the mean of an empty extent", "at least one element")
    value = lowering.const(np.full(1, _of_nothing(mode, output.dtype), output.dtype))
    views = [View([0] * len(output.device_shape))]
    lowering.emit(Eltwise(node.name, "copy", [value], output, lowering.device, views=views))


# ONNX has no sums of narrow integers.
TAKEN = {
    op: numpy_names(f"{FLOATS} i32 u32" + (" i8 u8 bool" if mode in ("max", "min") else ""))
    for op, mode in REDUCTIONS.by_onnx.items()
}


@maps(*TAKEN, dtypes=TAKEN, notes="neighbouring axes of any length, constant")
def map_reduce(node: NodeSpec, lowering: Lowering) -> None:
    x, output = node.input(0), node.outputs[0]
    listed, given = node.input(1), node.attr("axes")
    if x is None or output is None or str(x.dtype) not in TAKEN[node.op_type]:
        raise Unsupported(f"{node.op_type} of {x.dtype if x else 'nothing'}", ", ".join(TAKEN[node.op_type]))
    if listed is not None and listed.value is None:
        raise Unsupported("axes computed at run time", "constant axes")
    if listed is not None and listed.value is not None:
        given = [int(v) for v in np.asarray(listed.value).reshape(-1)]
    rank = len(x.shape)
    if not given:
        if node.attr("noop_with_empty_axes", 0):
            _reduce_nothing(node, lowering, x, output)
            return
        given = list(range(rank))
    axes = sorted({int(a) % rank for a in given}) if rank else []
    if axes and axes != list(range(axes[0], axes[-1] + 1)):
        raise Unsupported(f"axes {axes} with gaps", "neighbouring axes, or several reductions")
    first, stop = (axes[0], axes[-1] + 1) if axes else (0, 0)
    if 0 in x.shape[first:stop] and output.size:
        _reduce_emptiness(node, lowering, output)
        return
    emit_reduce(node.name, REDUCTIONS.by_onnx[node.op_type], x, output, (first, stop), lowering)
