# SPDX-License-Identifier: Apache-2.0
"""QuantizeLinear and DequantizeLinear: floats as integers of a scale and a zero point, and back.

Scales and zero points are read where they lie: one for all elements, one per member of an axis, or one per
block of an axis. Quotients and products are computed in float32 and rounded once, whatever the type of ``x``.
From opset 23 on a division has a ``precision``, that of the scale unless said otherwise: elements, scales and
quotients are rounded to it, as onnxruntime does.

NaN becomes the least number of the type, as in onnxruntime's vector code. Infinities and quotients beyond
int32 saturate for every type of ``x``; onnxruntime wraps them where ``x`` is float16, which ONNX does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, FLOATS, nearest
from onedispatch.operators.declarations.formulas import (
    SPLIT,
    WORD_BYTES,
    either,
    many,
    mapped,
    scaled,
    vectors,
    words,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.merge import ACTIVATION, Merge, refuse_applied
from onedispatch.operators.interface.operator import TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import (
    ACTIVATION_SCALARS,
    Array,
    Eltwise,
    Layout,
    View,
    broadcast,
)
from onedispatch.operators.kernels.table import Table, every_byte, table_of
from onedispatch.operators.scheduling.index_space import contiguous_strides
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

QUANTISED = "i8 u8 i16 u16"  # with zero points of the same type
BIASES = f"{QUANTISED} i32"


def _widened(operand: str, run: e.Expr) -> e.Expr:
    """Cycles of making words of ``run`` members of an operand, unless it has words or is one for all."""
    narrow = e.differs(e.item_bytes(operand), WORD_BYTES) * e.differs(e.step(operand), 0)
    return narrow * vectors(run, operand) * e.device("convert_cycles", operand)


def _between() -> e.Expr:
    """Cycles of making a vector of integers of one of floats, or the other way round."""
    return e.device("i32_convert_cycles") + e.device("f32_convert_cycles")


def to_integers(zero: e.Expr | float) -> e.Expr:
    """Cycles of a vector of words: a division, a rounding, a zero point where there is one, a narrowing that
    saturates."""
    return (
        e.device("f32_div_cycles")
        + _between()
        + zero * e.device("i32_op_cycles")
        + e.device("i32_convert_cycles")
    )


def to_floats(zero: e.Expr | float, operand: str) -> e.Expr:
    """Cycles of a vector of words that were ``operand``'s: a difference where there is a zero point, a float,
    a product with a scale whose parts are made: whole numbers of few bits have few themselves."""
    return zero * e.device("i32_op_cycles") + _between() + scaled(operand)


def _operands(run: e.Expr) -> e.Expr:
    return _widened("x0", run) + _widened("x1", run) + e.present("x2") * _widened("x2", run)


def _quantise_cost() -> e.Expr:
    precision, twice = e.scalar("precision"), 2 * e.device("bf16_convert_cycles")
    wider = 2 * e.device("f16_convert_cycles") - twice
    # Quotients are rounded; elements, and scales where there are several, unless they have two bytes.
    words_of = [e.differs(e.item_bytes(x), 2) for x in ("x0", "x1")]
    rounded = 1 + words_of[0] + words_of[1] * e.differs(e.step("x1"), 0)
    rounding = rounded * (e.differs(precision, 0) * twice + many(precision) * wider)
    vector = to_integers(e.present("x2")) + rounding
    return mapped(("x0", "x1", "x2"), lambda rows, run: rows * (_operands(run) + words(run) * vector))


def _dequantise_cost() -> e.Expr:
    """Of every vector of words: a float, a function; narrow results are made of those. A scale that stays
    along a row is split into parts once for it, others vector by vector."""
    vector = to_floats(e.present("x2"), "x0")
    narrow = e.differs(e.item_bytes("out"), WORD_BYTES)

    def row(run: e.Expr) -> e.Expr:
        narrowed = narrow * vectors(run, "out") * e.device("convert_cycles", "out")
        split = either(e.differs(e.step("x1"), 0), words(run), 1) * SPLIT
        made = _operands(run) + split + words(run) * vector
        return made + vectors(run, "out") * e.work("act", "out") + narrowed

    return mapped(("x0", "x1", "x2"), lambda rows, run: rows * row(run))


QUANTISE = declare(
    Kernel(
        "od::quantise@1",
        inputs=(
            Tensor("x0", "...", FLOATS, walk="affine"),
            Tensor("x1", "...", FLOATS, walk="affine"),
            Tensor("x2", "...", QUANTISED, optional=True, walk="affine", like="out"),
        ),
        outputs=(Tensor("out", "...", QUANTISED, walk="affine"),),
        # The float type that is divided in, by its code; 0 is f32.
        scalars=(Scalar("precision", high=DTYPES["f16"].code, default=0),),
        cost=_quantise_cost(),
        joins="tiles",
        # ASSUMPTION: 96 instructions: a division, a rounding, a narrowing per width of the results.
        code_bytes=1536,
        summary="saturate(round(x0 / x1) + x2), to even: x1 are scales, x2 zero points; NaN is the least",
    )
)

DEQUANTISE = declare(
    Kernel(
        "od::dequantise@1",
        inputs=(
            Tensor("x0", "...", BIASES, walk="affine"),
            Tensor("x1", "...", FLOATS, walk="affine"),
            Tensor("x2", "...", BIASES, optional=True, walk="affine", like="x0"),
        ),
        outputs=(Tensor("out", "...", FLOATS, walk="affine"),),
        scalars=ACTIVATION_SCALARS,
        cost=_dequantise_cost(),
        joins="tiles",
        # ASSUMPTION: 64 instructions: a widening per width of x0, a product, a narrowing.
        code_bytes=1024,
        summary="act((x0 - x2) * x1): x1 are scales, x2 zero points",
    )
)


@dataclass(frozen=True)
class ScaleAxis:
    """Whose scale an element has: that of all where ``axis`` is None, that of its member of the axis where
    ``block`` is 0, else that of its block of so many members of the axis, of those of the other axes each."""

    axis: int | None = None
    block: int = 0

    def spread(self, values: Array, shape: Sequence[int]) -> Array:
        """``values`` for elements of ``shape``: what broadcasts to it."""
        if self.axis is None:
            return values.reshape(())
        if self.block == 0:
            return values.reshape([-1 if d == self.axis else 1 for d in range(len(shape))])
        return np.repeat(values, self.block, self.axis).take(np.arange(shape[self.axis]), self.axis)


_NONE = np.zeros((), np.int32)


class _Scaled(Eltwise):
    """A kernel over the elements of the first input, the scales, and the zero points if there are any."""

    applies_activation = False
    merges: ClassVar[tuple[Merge, ...]] = ()

    def __init__(
        self, name: str, inputs: Sequence[TensorSpec], output: TensorSpec, device: Device, along: ScaleAxis
    ) -> None:
        self.along = along
        super().__init__(name, "", inputs, output, device, layout=Layout([]))

    def _check(self) -> None:
        self._check_types()
        self.nests()

    @property
    def scalars(self) -> dict[str, float | str]:
        return {}

    def nests(self) -> list[Nest]:
        if not self.output.size:
            return []
        tensors = range(len(self.inputs))
        return [
            nest
            for shape, views, padding in self._pieces()
            for nest in self.part_nests(shape, views[:-1], views[-1], tensors, padding)
        ]

    def _pieces(self) -> list[tuple[tuple[int, ...], list[View], int]]:
        """Shape, views of all inputs and of the output, and padding of what one step leads through."""
        x, shape = self.inputs[0], self.output.device_shape
        axis, block = self.along.axis, self.along.block
        moved = [broadcast(x, self.output), View(contiguous_strides(shape))]
        if axis is None or block < 2:
            return [(shape, [moved[0], *map(self._scales, self.inputs[1:]), moved[1]], self.padding)]
        extent = x.shape[axis]
        even = extent % block == 0 and shape[axis] == extent  # else the last block is shorter, or padded
        whole = extent // block if even else (extent - 1) // block
        pieces = []
        for first, count, length in ((0, whole, block), (whole, 1, shape[axis] - whole * block)):
            if count * length == 0:
                continue
            views = [_split(moved[0], axis, block, first)]
            views += [_repeated(tensor, axis, first) for tensor in self.inputs[1:]]
            views += [_split(moved[1], axis, block, first)]
            sizes = (*shape[:axis], count, length, *shape[axis + 1 :])
            inside = axis < len(shape) - 1 or first == whole
            pieces.append((sizes, views, self.padding if inside else 0))
        return pieces

    def _scales(self, tensor: TensorSpec) -> View:
        """One for all, one per member of the axis, or one per element."""
        axis = self.along.axis
        if axis is not None and self.along.block:
            return broadcast(tensor, self.output)
        several = tensor.size > 1
        return View([int(several and d == axis) for d in range(len(self.output.device_shape))])

    def reference(self, *arrays: Array) -> Array:
        x = arrays[0].reshape(self.output.shape)
        scale, *zero = (self.along.spread(values, x.shape) for values in arrays[1:])
        with np.errstate(all="ignore"):
            return self.of(x, scale.astype(np.float32), zero[0] if zero else np.zeros((), np.int32))

    def of(self, x: Array, scale: Array, zero: Array) -> Array:
        raise NotImplementedError

    def of_elements(self, x: Array, scale: Array, *zero: Array) -> Array:
        """What becomes of elements that are not those of the input: [n], of one scale."""
        with np.errstate(all="ignore"):
            return self.of(x, scale.astype(np.float32).reshape(()), zero[0].reshape(()) if zero else _NONE)


def _split(view: View, axis: int, block: int, first: int) -> View:
    """``view`` with two dimensions for ``axis``, blocks and their members, from block ``first`` on."""
    steps = view.strides
    by_block = (*steps[:axis], steps[axis] * block, steps[axis], *steps[axis + 1 :])
    return View(by_block, view.offset + first * block * steps[axis])


def _repeated(tensor: TensorSpec, axis: int, first: int) -> View:
    """One element of ``tensor`` for all members of a block, from block ``first`` on."""
    steps = tensor.strides
    return View((*steps[: axis + 1], 0, *steps[axis + 1 :]), first * steps[axis])


class Quantise(_Scaled):
    """``saturate(round(x / scale) + zero point)``; inputs x, scales, and zero points of the output's type."""

    kind = "quantise"
    kernel: ClassVar[Kernel] = QUANTISE

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        device: Device,
        along: ScaleAxis,
        precision: str = "f32",
    ) -> None:
        self.precision = DTYPES[precision]
        super().__init__(name, inputs, output, device, along)

    @property
    def scalars(self) -> dict[str, float | str]:
        return {"precision": self.precision.code}

    def of(self, x: Array, scale: Array, zero: Array) -> Array:
        dividend, divisor = (self._rounded(values) for values in (x, scale))
        return nearest(self._rounded(dividend / divisor).astype(np.float64), zero, self.output.dtype)

    def _rounded(self, values: Array) -> Array:
        return np.asarray(values.astype(self.precision.numpy).astype(np.float32))


def quantises(_: Any, reader: Any) -> bool:
    return isinstance(reader, Quantise)


def constants_of(op: Any) -> list[Array]:
    """The scale, and the zero point if there is one. Raises ``Unsupported`` for several or computed ones."""
    for tensor in op.inputs[1:]:
        if tensor.value is None or tensor.size != 1:
            raise Unsupported(f"{tensor} of {op.name}", "one constant scale and one constant zero point")
    return [np.asarray(tensor.value) for tensor in op.inputs[1:]]


def _as_table(first: Any, reader: Any) -> Any:
    """What ``reader`` makes integers of, after ``first`` made floats of others: a function of 8 bits."""
    (x, *_), output = first.inputs, reader.output
    for tensor in (x, output):
        if tensor.element.itemsize != 1:
            raise Unsupported(f"{tensor} between scales", "int8, uint8")
    if reader.inputs[0].name != first.output.name or reader.inputs[0].shape != x.shape:
        raise Unsupported(f"{reader.inputs[0]} of {x}", "every element once")
    scales, entries = (constants_of(first), constants_of(reader)), every_byte(x.dtype)
    floats = first.of_elements(entries, *scales[0])
    table = reader.of_elements(floats, *scales[1])
    return Table(reader.name, x, table_of(output, table), output, first.device)


# A function between integers of 8 bits has 256 results at most.
TABULATED = Merge("table", quantises, _as_table)


def _reads_integers(first: Any, reader: Any) -> bool:
    return bool(reader.reads_integers and reader.inputs[0].name == first.output.name)


def _of_integers(first: Any, reader: Any) -> Any:
    refuse_applied(first, "none before it")
    if first.output.dtype != np.float32:
        raise Unsupported(f"{first.output} between", "float32")
    return reader.of_integers(first.inputs[0], *constants_of(first))


# A kernel that makes its own floats of integers.
INTEGERS = Merge("integers", _reads_integers, _of_integers)


class Dequantise(_Scaled):
    """``act((x - zero point) * scale)``; inputs x, scales, and zero points of x's type."""

    kind = "dequantise"
    kernel: ClassVar[Kernel] = DEQUANTISE
    applies_activation = True
    merges: ClassVar[tuple[Merge, ...]] = (TABULATED, INTEGERS, ACTIVATION)

    @property
    def scalars(self) -> dict[str, float | str]:
        return dict(self.activation.scalars)

    def of(self, x: Array, scale: Array, zero: Array) -> Array:
        difference = x.astype(np.int32) - zero.astype(np.int32)
        floats = np.asarray(difference.astype(np.float32) * scale, np.float32)
        return np.asarray(self.activation.apply(floats)).astype(self.output.dtype)
