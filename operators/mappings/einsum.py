# SPDX-License-Identifier: Apache-2.0
"""Einsum as sums, transposes and batched matrix products, from the left to the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from onedispatch.operators.declarations.einsum import EquationError, check_sizes, parse
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Eltwise, Layout, View
from onedispatch.operators.kernels.matmul import MatMul, Matrix, ProductOptions
from onedispatch.operators.kernels.movement import Move, StridedCopy
from onedispatch.operators.lowering.movement import emit_narrow, emit_wide
from onedispatch.operators.lowering.operands import operands_of
from onedispatch.operators.lowering.reduce import emit_reduce
from onedispatch.operators.mappings.matmul import PRODUCTS, emit_product
from onedispatch.operators.scheduling.index_space import contiguous_strides


@dataclass(frozen=True)
class _Term:
    """A tensor and the label of each of its dimensions, all different."""

    tensor: TensorSpec
    labels: tuple[str, ...]

    def size(self, label: str) -> int:
        return self.tensor.shape[self.labels.index(label)]

    def stride(self, label: str) -> int:
        return self.tensor.strides[self.labels.index(label)] if label in self.labels else 0


@maps("Einsum", dtypes=PRODUCTS, notes="any equation: sums, diagonals, transposes and batched products")
def map_einsum(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, PRODUCTS)
    shapes = [x.shape for x in inputs]
    try:
        equation = parse(str(node.attr("equation", "")), [len(shape) for shape in shapes])
        check_sizes(equation, shapes)
    except EquationError as error:
        raise Unsupported(f"Einsum: {error.given}", error.accepted) from error
    steps = _Contraction(node, lowering)
    if 0 in (size for shape in shapes for size in shape):
        lowering.emit(Eltwise(node.name, "fill", [], output, lowering.device, alpha=0.0))
        return
    terms = [steps.distinct(x, labels) for x, labels in zip(inputs, equation.operands, strict=True)]
    while len(terms) > 1:
        first, second, *rest = terms
        kept = {*equation.result, *(x for term in rest for x in term.labels)}
        last = output if not rest else None
        terms = [steps.product(first, second, kept, equation.result, last), *rest]
    steps.finish(terms[0], equation.result, output)


@dataclass(frozen=True)
class _Groups:
    """What the labels of a product are: of both and kept, of both and summed, of one."""

    batch: tuple[str, ...]
    rows: tuple[str, ...]
    inner: tuple[str, ...]
    columns: tuple[str, ...]
    sizes: dict[str, int]
    swapped: bool  # the second term has the rows

    @classmethod
    def of(cls, a: _Term, b: _Term, kept: set[str], result: Sequence[str]) -> _Groups:
        """Rows and columns in the order of the result, whose last label belongs to the columns."""
        order = [*result, *(x for x in (*a.labels, *b.labels) if x not in result)]
        place = order.index
        sizes = {x: term.size(x) for term in (a, b) for x in term.labels}
        inner = tuple(x for x in a.labels if x in b.labels and x not in kept)
        batch = tuple(sorted((x for x in a.labels if x in b.labels and x in kept), key=place))
        rows = tuple(sorted((x for x in a.labels if x not in b.labels), key=place))
        columns = tuple(sorted((x for x in b.labels if x not in a.labels), key=place))
        last = max((*rows, *columns), key=place, default=None)
        if last in rows:
            return cls(batch, columns, inner, rows, sizes, True)
        return cls(batch, rows, inner, columns, sizes, False)

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.batch, *self.rows, *self.columns)

    def count(self, labels: Sequence[str]) -> int:
        return prod(self.sizes[x] for x in labels)

    def joined_in(self, labels: Sequence[str]) -> bool:
        """Whether rows and columns are matrices in a tensor of these labels, its columns side by side."""
        if set(labels) != set(self.labels):
            return False
        strides = dict(zip(labels, contiguous_strides([self.sizes[x] for x in labels]), strict=True))
        rows, columns = (self._step(some, strides) for some in (self.rows, self.columns))
        return rows is not None and (columns == 1 or self.count(self.columns) == 1)

    def _step(self, labels: Sequence[str], strides: dict[str, int]) -> int | None:
        """The stride of several dimensions as one, 1 of none; None where they do not lie in one."""
        step, reach = 1, 0
        for label in reversed(labels):
            if self.sizes[label] == 1:
                continue
            if not reach:
                step = strides[label]
            elif strides[label] != reach:
                return None
            reach = strides[label] * self.sizes[label]
        return step

    def _steps(self, term: _Term, labels: Sequence[str]) -> int | None:
        return self._step(labels, dict(zip(term.labels, term.tensor.strides, strict=True)))

    def readable(self, term: _Term, rows: Sequence[str], columns: Sequence[str]) -> bool:
        """Whether a matrix lies in a term so that DMAs read runs of it, not single words."""
        steps = self._steps(term, rows), self._steps(term, columns)
        return None not in steps and 1 in (
            *(step for step, some in zip(steps, (rows, columns), strict=True) if self.count(some) > 1),
            *([1] if self.count(rows) == self.count(columns) == 1 else []),
        )

    def matrix(self, term: _Term, rows: Sequence[str], columns: Sequence[str]) -> Matrix:
        m, n = self.count(rows), self.count(columns)
        if "matrix" in term.labels:
            return Matrix((m, n), (n, 1))
        batch = [(self.sizes[x], term.stride(x)) for x in self.batch]
        ends = [(m, self._steps(term, rows) or 1), (n, self._steps(term, columns) or 1)]
        shape, strides = zip(*batch, *ends, strict=True)
        return Matrix(shape, strides)


class _Contraction:
    """What an equation comes down to, each step an operator."""

    def __init__(self, node: NodeSpec, lowering: Lowering) -> None:
        self.node, self.name, self.lowering = node, node.name, lowering

    def distinct(self, x: TensorSpec, labels: Sequence[str]) -> _Term:
        """Diagonals of repeated labels; dimensions of one member that broadcast are left out."""
        if len(set(labels)) == len(labels):
            return _Term(x, tuple(labels))
        steps = dict.fromkeys(labels, 0)
        for label, stride in zip(labels, x.strides, strict=True):
            steps[label] += stride
        sizes = dict(zip(labels, x.shape, strict=True))
        made = self.lowering.temp(x.dtype, tuple(sizes.values()))
        self._move(x, View(list(steps.values())), made)
        return _Term(made, tuple(sizes))

    def _move(self, x: TensorSpec, view: View, made: TensorSpec) -> None:
        laid = made.device_shape
        padding = made.row_pitch - made.row
        part = StridedCopy(
            0, laid, view if made.shape else View((0,)), View(contiguous_strides(laid)), padding
        )
        self.lowering.emit(Move(self.name, [x], made, self.lowering.device, [part]))

    def ordered(self, term: _Term, labels: Sequence[str], target: TensorSpec | None = None) -> TensorSpec:
        """The tensor with its dimensions in this order; as it is where they are."""
        wanted = [x for x in labels if x in term.labels]
        if tuple(wanted) == term.labels and target is None:
            return term.tensor
        made = target or self.lowering.temp(term.tensor.dtype, [term.size(x) for x in wanted])
        self._move(term.tensor, View([term.stride(x) for x in wanted]), made)
        return made

    def seen(self, x: TensorSpec, shape: Sequence[int]) -> TensorSpec:
        """The same elements in another shape."""
        other = x.reshaped(shape)
        if other.lies_as(x):
            return other
        made = self.lowering.temp(x.dtype, shape)
        emit_narrow(self.name, emit_wide(self.name, x, self.lowering), made, self.lowering)
        return made

    def summed(self, term: _Term, kept: set[str], target: TensorSpec | None = None) -> _Term:
        """Returns the term summed over the labels that neither other terms nor the result have."""
        gone = [x for x in term.labels if x not in kept]
        if not gone:
            return term
        rest = [x for x in term.labels if x in kept]
        sizes = [term.size(x) for x in rest]
        tensor = self.ordered(term, [*rest, *gone])
        made = target or self.lowering.temp(tensor.dtype, sizes)
        axes = (len(rest), len(term.labels))
        emit_reduce(self.name, "sum", tensor, made, axes, self.lowering)
        return _Term(made, tuple(rest))

    def _squeezed(self, term: _Term, other: _Term) -> _Term:
        """Without dimensions of one member that broadcast to those of the other."""
        wide = {x for x in term.labels if x in other.labels and term.size(x) == 1 < other.size(x)}
        if not wide:
            return term
        labels = tuple(x for x in term.labels if x not in wide)
        return _Term(self.seen(term.tensor, [term.size(x) for x in labels]), labels)

    def product(
        self, a: _Term, b: _Term, kept: set[str], result: Sequence[str], output: TensorSpec | None
    ) -> _Term:
        """Both terms, summed over the labels that are not ``kept``; in ``output`` where it can be."""
        a, b = self._squeezed(a, b), self._squeezed(b, a)
        a, b = self.summed(a, kept.union(b.labels)), self.summed(b, kept.union(a.labels))
        found = _Groups.of(a, b, kept, result)
        if found.swapped:
            a, b = b, a
        wanted = tuple(result) if output is not None else found.labels
        if not found.inner and (a.labels == b.labels or a.tensor.element.per_word == 1):
            return self._multiplied(a, b, wanted, found.sizes, output)
        if a.tensor.element.per_word > 1:
            return self._by_rows(a, b, found, output if wanted == found.labels else None)
        if not found.joined_in(wanted):
            wanted, output = found.labels, None
        return self._strided(a, b, found, wanted, output)

    def _strided(
        self, a: _Term, b: _Term, found: _Groups, labels: Sequence[str], output: TensorSpec | None
    ) -> _Term:
        """A product of matrices as they lie in their tensors; of copies where they do not lie in one."""
        sizes, batch = found.sizes, found.batch
        made = output or self.lowering.temp(a.tensor.dtype, [sizes[x] for x in labels])
        out = _Term(made, tuple(labels))
        if not found.readable(a, found.rows, found.inner):
            a = self._copied(a, [*batch, *found.rows, *found.inner])
        if b.tensor.value is not None and not batch:
            order = [b.labels.index(x) for x in (*found.inner, *found.columns)]
            flat = np.ascontiguousarray(b.tensor.value.transpose(order)).reshape(found.count(found.inner), -1)
            b = _Term(self.lowering.const(flat), ("constant", "matrix"))
        elif not found.readable(b, found.inner, found.columns):
            b = self._copied(b, [*batch, *found.inner, *found.columns])
        groups = (found.rows, found.inner), (found.inner, found.columns), (found.rows, found.columns)
        views = tuple(found.matrix(t, *group) for t, group in zip((a, b, out), groups, strict=True))
        seen = (views[0], views[1], views[2])
        op = MatMul(self.name, a.tensor, b.tensor, made, self.lowering.device, ProductOptions(matrices=seen))
        self.lowering.emit(op)
        return out

    def _copied(self, term: _Term, labels: Sequence[str]) -> _Term:
        made = self.lowering.temp(term.tensor.dtype, [term.size(x) for x in labels])
        return _Term(self.ordered(term, labels, made), tuple(labels))

    def _by_rows(self, a: _Term, b: _Term, found: _Groups, output: TensorSpec | None) -> _Term:
        """A product of copies whose rows are matrices' rows: of elements narrower than words."""
        batch, rows, inner, columns = found.batch, found.rows, found.inner, found.columns
        m, k, n = (found.count(some) for some in (rows, inner, columns))
        count = [found.count(batch)] if batch else []
        left = self.seen(self.ordered(a, [*batch, *rows, *inner]), [*count, m, k])
        right = self.seen(self.ordered(b, [*batch, *inner, *columns]), [*count, k, n])
        made = output or self.lowering.temp(left.dtype, [found.sizes[x] for x in found.labels])
        product = made
        if list(made.shape) != [*count, m, n]:
            product = self.lowering.temp(left.dtype, [*count, m, n])
        emit_product(self.node, self.lowering, left, right, product)
        if product is not made:
            emit_narrow(self.name, emit_wide(self.name, product, self.lowering), made, self.lowering)
        return _Term(made, found.labels)

    def _multiplied(
        self, a: _Term, b: _Term, labels: Sequence[str], sizes: dict[str, int], output: TensorSpec | None
    ) -> _Term:
        """Nothing to sum over: a product element by element."""
        made = output or self.lowering.temp(a.tensor.dtype, [sizes[x] for x in labels])
        layout = None
        if a.labels != tuple(labels) or b.labels != tuple(labels):
            layout = Layout([View([term.stride(x) for x in labels] or [0]) for term in (a, b)])
        ends = [a.tensor, b.tensor], made, self.lowering.device
        self.lowering.emit(Eltwise(self.name, "mul", *ends, layout=layout))
        return _Term(made, tuple(labels))

    def finish(self, term: _Term, labels: Sequence[str], output: TensorSpec) -> None:
        """``output``, with its dimensions in this order."""
        if term.tensor.name == output.name:
            return
        if set(term.labels) != set(labels):
            in_place = tuple(x for x in term.labels if x in labels) == tuple(labels)
            term = self.summed(term, set(labels), output if in_place else None)
            if in_place:
                return
        self.ordered(term, labels, output)
