# SPDX-License-Identifier: Apache-2.0
"""Rows of mean 0 and variance 1, or of root mean square 1: what layer, instance and group
normalisation have in common. Statistics are float32 for every element type."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.formulas import (
    ENTRY,
    F32_SCALED,
    PAIR,
    ROW,
    SPLIT,
    WORD_BYTES,
    either,
    vectors,
    words,
)
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor, declare
from onedispatch.operators.interface.merge import Merge
from onedispatch.operators.interface.operator import Operator, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Array
from onedispatch.operators.kernels.quant_params import QuantParams
from onedispatch.operators.kernels.quantise import QUANTISED, constants_of, quantises, to_floats, to_integers
from onedispatch.operators.kernels.rows import LENGTH
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

SECTIONS = "*sections"  # of a row, each with a scale and a bias
_TYPES = f"{FLOATS} {QUANTISED}"
_ROWS, _PARAMETERS = f"b o {LENGTH}", f"o {SECTIONS}"


def _cost() -> e.Expr:
    """Walks of every row: the residual, its sum and centring, the squares' sum, scaling; scale with bias,
    where every element has its own. Where sections have theirs, it is one walk with the scaling. What is
    added up first is stored once, into ``out`` or as ``total``: the walk is the same.

    Where statistics are exact, the mean is that of pairs of float32, and squares are added up in halves of
    vectors. Integers become floats in a walk before all others, and results integers in one behind them.
    """
    length, centre, sections = e.count("x", LENGTH), e.scalar("centre"), e.scalar("sections")
    scale, bias, residual = (e.present(name) for name in ("scale", "bias", "residual"))
    reads, writes = (
        e.named(name, e.differs(e.scalar(of), 0))
        for name, of in (("reads", "x_scale"), ("writes", "out_scale"))
    )
    op, mul = (
        e.named(name, either(reads, e.device(f"f32_{name}_cycles"), e.device(f"{name}_cycles", "x")))
        for name in ("op", "mul")
    )
    # Statistics and parameters are float32, and so are products with them, whatever x is: results of half
    # precision are rounded once. Only squares are products of x's own type, summed up exactly.
    scaling = e.named("scaling", e.largest(mul, e.device("f32_mul_cycles")))
    line = e.named("line", either(reads, words(length), vectors(length, "x")))
    parted = e.named("parted", e.differs(sections, 0))
    exact = e.named("exact", (1 - parted) * either(reads, 1, e.differs(e.item_bytes("x"), 2)))
    section = e.largest(sections, 1)
    scaled = (1 - parted) * scale  # in a walk of its own
    # A deviation is one of its row, or of its section with the scale: split once for it.
    by_one = scaling - (e.device("f32_mul_cycles") - F32_SCALED)
    last = either(parted, section * vectors(length / section, "x"), line) * by_one
    last = last + either(parted, section, 1) * SPLIT
    mean = e.named("mean", centre * (1 + exact * (PAIR - 1)) * op)  # of a vector added to it
    # By how many elements there are: a quotient where it is exact, else the product with a constant.
    by_count = (1 + centre) * either(exact, e.device("f32_div_cycles"), F32_SCALED)
    root = e.device("f32_div_cycles") + e.device("f32_sqrt_cycles")
    per_row = by_count + root + parted * section * scaling
    moves, lanes = e.device("f32_move_cycles"), e.device("f32_lanes")
    across = e.halvings(e.smallest(length, lanes)) * ((1 + centre) * moves + mean + op)
    integers = reads * (
        ROW + vectors(length, "x") * e.device("convert_cycles", "x") + words(length) * to_floats(1, "x")
    )
    integers = integers + writes * (ROW + words(length) * to_integers(1))
    loops = (1 + residual + 2 * centre + scaled + either(parted, section, 1)) * ROW
    walks = line * (mean + (1 + exact + residual + centre + bias) * op + mul + scaled * scaling)
    rows = e.tile("b") * e.tile("o") * (loops + walks + last + per_row + across + integers)
    return ENTRY + (reads + 1 - exact) * SPLIT + rows  # of the scale of integers, and of one by the count


def _scratch() -> e.Expr:
    """A row of floats, where one of its ends has integers."""
    integers = e.largest(e.differs(e.scalar("x_scale"), 0), e.differs(e.scalar("out_scale"), 0))
    return integers * e.count("x", LENGTH) * WORD_BYTES


NORMALISE = declare(
    Kernel(
        "od::normalise@1",
        dims=("b", "o"),
        inputs=(
            Tensor("x", _ROWS, _TYPES),
            Tensor("scale", _PARAMETERS, optional=True),
            Tensor("bias", _PARAMETERS, optional=True),
            Tensor("residual", _ROWS, FLOATS, optional=True, like="x"),
        ),
        outputs=(Tensor("out", _ROWS, _TYPES), Tensor("total", _ROWS, FLOATS, optional=True, like="x")),
        scalars=(
            Scalar("epsilon", "f32", low=0.0),
            Scalar("centre", high=1, default=1),  # 0: divided by the root mean square as they are
            Scalar("sections", default=0),  # of a row, as long as each other; 0: every element has its scale
            Scalar("length", default=0),  # members of the row; 0: all that the chunk has along it
            # What integers of x, and of out, stand for; a scale of 0: they are floats.
            Scalar("x_scale", "f32", low=0.0, default=0.0),
            Scalar("x_zero", "i32", low=-(1 << 15), high=(1 << 16) - 1, default=0),
            Scalar("out_scale", "f32", low=0.0, default=0.0),
            Scalar("out_zero", "i32", low=-(1 << 15), high=(1 << 16) - 1, default=0),
        ),
        cost=_cost(),
        scratch=_scratch(),
        joins="tiles",
        # ASSUMPTION: 176 instructions: two sums, a root, scale and bias by element and by section; floats of
        # integers, and integers of floats.
        code_bytes=2816,
        summary=(
            "(x - mean) / sqrt(variance + epsilon) * scale[o] + bias[o] of every row [b][o], "
            "with the residual added to x first; total is that sum, rounded to the type of x"
        ),
    )
)


def _to_integers(first: Any, reader: Any) -> Any:
    if first.output.dtype != np.float32 or reader.precision.numpy != np.float32:
        raise Unsupported(f"{first.output} with quotients of {reader.precision.numpy}", "float32")
    return first.to_integers(reader.output, *constants_of(reader))


class Normalise(Operator):
    """Rows of [batches, rows, length]; ``scale`` and the optional ``bias`` are float32 [length], or
    [rows, sections].

    ``length`` may be several dimensions of ``x`` where its rows have no padding. With ``residual``, the last
    input is as ``x`` and added to it first, both float32; a further output is that sum. ``read`` and
    ``written`` are what integers of ``x`` and of the output stand for.

    Rows of float32 and of integers that have no sections are what onnxruntime computes, to the bit, where
    they have 8 elements and more (16 without ``centre``) and fit a core. Means are exact but for their last
    rounding; squares are added in eight sums, then these by halves, then what is left. A product that is
    added to something is rounded with the sum.
    """

    kind = "normalise"
    runs_in_bands = True
    adds_residual = True
    applies_activation = False
    reads_integers = True
    merges: ClassVar[tuple[Merge, ...]] = (Merge("quantise", quantises, _to_integers),)
    read: QuantParams | None = None
    written: QuantParams | None = None

    def __init__(
        self,
        name: str,
        inputs: list[TensorSpec],
        output: TensorSpec,
        device: Device,
        *,
        sizes: tuple[int, int, int],
        epsilon: float,
        centre: bool = True,
        sections: int = 0,
    ) -> None:
        super().__init__(name, inputs, output, device)
        self.sizes, self.epsilon, self.centre, self.sections = sizes, epsilon, centre, sections
        self.residual = False

    def with_residual(
        self, x: TensorSpec, residual: TensorSpec, total: TensorSpec | None = None
    ) -> Normalise:
        """What normalises the sum of both, and writes it too where ``total`` is given."""
        if self.residual:
            raise Unsupported(f"{self.name} adds a residual already", "one")
        for tensor in (self.inputs[0], self.output):
            if tensor.dtype != x.dtype or self.read is not None:
                raise Unsupported(f"{self.name} of {tensor.dtype}", f"{x.dtype}, that of the sum")
        inputs, written = (x, *self.inputs[1:], residual), () if total is None else (total,)
        return cast(Normalise, self.replaced(inputs=inputs, residual=True, further_outputs=written))

    def of_integers(self, x: TensorSpec, *constants: Array) -> Normalise:
        """The same of integers ``x``, whose scale and zero point are ``constants``."""
        if self.residual:
            raise Unsupported(f"{self.name} adds a residual", "none")
        _check_ends(x, self.inputs[0])
        return cast(Normalise, self.replaced(inputs=(x, *self.inputs[1:]), read=QuantParams.of(*constants)))

    def to_integers(self, output: TensorSpec, *constants: Array) -> Normalise:
        """The same that writes integers, whose scale and zero point are ``constants``."""
        _check_ends(output, self.output)
        return cast(Normalise, self.replaced(output=output, written=QuantParams.of(*constants)))

    def nests(self) -> list[Nest]:
        if not self.output.size:
            return []
        batches, rows, length = self.sizes
        width = self.output.row_pitch if length == self.output.row else length
        sizes, strides = (batches, rows, width), (rows * width, width, 1)
        access = Access(0), Access(1), Access(None)
        x, out = (
            Operand(name, n, tensor.element, sizes, strides, access)
            for name, n, tensor in (("x", 0, self.inputs[0]), ("out", OUTPUT, self.output))
        )
        total = [
            Operand("total", OUTPUT - 1 - n, tensor.element, sizes, strides, access)
            for n, tensor in enumerate(self.further_outputs)
        ]
        if self.sections:
            laid = (rows, self.sections), (self.sections, 1), (Access(1), Access(None))
        else:
            laid = (length,), (1,), (Access(None),)  # type: ignore[assignment]
        names = ("scale", "bias")[: len(self.inputs) - 1 - self.residual]
        parameters = [Operand(name, i, F32, *laid) for i, name in enumerate(names, 1)]
        if self.residual:
            last = len(self.inputs) - 1
            parameters.append(Operand("residual", last, self.inputs[last].element, sizes, strides, access))
        scalars = {
            "epsilon": self.epsilon,
            "centre": int(self.centre),
            "sections": self.sections,
            "length": length,
        }
        for name, end in (("x", self.read), ("out", self.written)):
            if end is not None:
                scalars |= {f"{name}_scale": float(end.scale), f"{name}_zero": end.zero}
        dims = Dim("b", batches), Dim("o", rows)
        return [Nest(NORMALISE, dims, (x, *parameters), (out, *total), {"b": 0, "o": 1}, scalars)]

    def reference(self, *arrays: Array) -> Array:
        return self.references(*arrays)[0]

    def references(self, *arrays: Array) -> list[Array]:
        batches, rows, length = self.sizes
        x = arrays[0] if self.read is None else self.read.floats(arrays[0])
        x = x.astype(np.float32).reshape(batches, rows, 1, length)
        if self.residual:
            summed = x + arrays[-1].astype(np.float32).reshape(x.shape)
            arrays, x = arrays[:-1], summed.astype(self.inputs[0].dtype).astype(np.float32)
        total = [x.reshape(t.shape).astype(t.dtype) for t in self.further_outputs]
        if self.centre:
            x = x - x.mean(axis=-1, keepdims=True)
        variance = (x * x).mean(axis=-1, keepdims=True)
        y = x / np.sqrt(variance + np.float32(self.epsilon))
        if self.sections:
            y = y.reshape(batches, rows, self.sections, -1)
        shape = (rows, self.sections, 1) if self.sections else (length,)
        for parameter, function in zip(arrays[1:], (np.multiply, np.add), strict=False):
            y = function(y, parameter.reshape(shape))
        made = np.asarray(y, np.float32).reshape(self.output.shape)
        if self.written is not None:
            return [self.written.integers(made, self.output.dtype), *total]
        return [made.astype(self.output.dtype), *total]


def _check_ends(integers: TensorSpec, floats: TensorSpec) -> None:
    """Raises ``Unsupported`` where rows of integers do not lie as those of floats do."""
    padded = integers.row_pitch != integers.row or floats.row_pitch != floats.row
    if integers.shape != floats.shape or padded or integers.element.itemsize > 2:
        raise Unsupported(f"{integers} beside {floats}", "8 or 16 bits, in rows of whole words")
