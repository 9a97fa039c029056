# SPDX-License-Identifier: Apache-2.0
"""Bands of loop nests: the part of an index space that makes some rows of a result, and what it reads of
each tensor for that.

Rows of a tensor are counted in elements: of every ``period`` of them, as they lie in device memory, a band
has those from ``begin`` on, before ``end``. What lies between two operators of a band is a tensor of its own,
a ``Stripe`` of the whole one; other tensors stay as they are, and the nest sees a part of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.scheduling.index_space import K, Operand, Packed
from onedispatch.operators.scheduling.keeping import cut_at
from onedispatch.operators.scheduling.nest import Nest


@dataclass(frozen=True)
class Stripe:
    """Of every ``period`` elements of a tensor those from ``begin`` on, before ``end``."""

    period: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin

    def step(self, step: int) -> int:
        """Elements of the stripe from one to another that are ``step`` apart in the whole tensor."""
        return step // self.period * self.size if step >= self.period else step

    def beside(self, other: Stripe | None) -> Stripe:
        """The least stripe that holds both. Raises ``Unsupported`` where periods differ."""
        if other is None:
            return self
        if other.period != self.period:
            raise Unsupported(f"rows in periods of {other.period} and {self.period}", "one period")
        return Stripe(self.period, min(self.begin, other.begin), max(self.end, other.end))


class Rows(NamedTuple):
    """The index dimension that walks rows of a result, and elements from a member of it to the next."""

    dim: int
    step: int


@dataclass(frozen=True)
class BandedNest:
    """Members ``begin`` to ``end`` of the index dimension ``dim`` of ``nest``."""

    nest: Nest
    dim: int
    begin: int
    end: int

    def reads(self, operand: Operand) -> Stripe:
        """What it touches of an operand's tensor. Raises ``Unsupported`` where that is all of it."""
        at = _along(operand, self.dim)
        if at is None or operand.dtype.words != 1:
            raise Unsupported(f"every band reads all of {operand.name}", "rows that a band has")
        step, size = operand.strides[at], operand.shape[at]
        low, high = self._touched(operand, at)
        return Stripe(step * size, low * step, high * step)

    def _touched(self, operand: Operand, at: int) -> tuple[int, int]:
        access = operand.access[at]
        if (access.a * self.begin) % access.den:
            raise Unsupported(f"{operand.name} in steps of {access.a}/{access.den}", "whole steps")
        low = access.a * self.begin // access.den + access.start
        high = access.a * (self.end - 1) // access.den + access.end + 1
        low, high = max(low, 0) // access.align * access.align, -(-high // access.align) * access.align
        high = min(high, operand.shape[at])
        if low >= high:
            raise Unsupported(f"a band reads nothing of {operand.name}", "rows that a band has")
        return low, high

    def made(self, stripes: Mapping[int, Stripe]) -> Nest:
        """The nest of this band. Tensors of ``stripes``, by their numbers, are those of the band alone."""
        nest, dim = self.nest, self.nest.dims[self.dim]
        if any(isinstance(x, Packed) and self.dim in x.depends_on() for x in nest.inputs):
            raise Unsupported("constants that bands have parts of", "constants that all bands read")
        whole = (self.begin, self.end) == (0, dim.extent)
        if (dim.whole and not whole) or dim.padding or (self.end - self.begin) % dim.multiple:
            raise Unsupported(f"{dim.name} cannot be parted", f"multiples of {dim.multiple}")
        if any(_along(x, self.dim) == len(x.shape) - 1 for x in nest.strided):
            if nest.scalars.get("width"):
                raise Unsupported(f"{dim.name} along rows that end within words", "rows of whole words")
            if self.end - self.begin == 1 < dim.extent:  # kernels have another order of sums for such rows
                raise Unsupported(f"{dim.name} with one member", "several, as all have that lie side by side")
        dims = tuple(
            replace(one, extent=self.end - self.begin) if d == self.dim else one
            for d, one in enumerate(nest.dims)
        )
        outputs = tuple(self._seen(x, stripes.get(x.tensor)) for x in nest.outputs)
        inputs = tuple(
            x if isinstance(x, Packed) else self._seen(x, stripes.get(x.tensor)) for x in nest.inputs
        )
        return replace(nest, dims=dims, inputs=inputs, outputs=outputs)

    def _seen(self, operand: Operand, stripe: Stripe | None) -> Operand:
        """The view of what a band touches: of the whole tensor, or of a stripe that is one of its own."""
        at = _along(operand, self.dim)
        if at is None:
            if stripe is not None or any(access.dim == self.dim for access in operand.access):
                raise Unsupported(f"every band reads all of {operand.name}", "rows that a band has")
            return operand
        step, access = operand.strides[at], operand.access[at]
        if stripe is None:
            low, high = self._touched(operand, at)
            strides, offset = operand.strides, operand.offset + low * step
        else:
            _check_rows(operand, stripe, at)
            low, high = stripe.begin // step, stripe.end // step
            strides = tuple(stripe.step(one) for one in operand.strides)
            offset = operand.offset // stripe.period * stripe.size
        first = access.a * self.begin // access.den - low
        shape = tuple(high - low if d == at else size for d, size in enumerate(operand.shape))
        moved = replace(access, start=access.start + first, end=access.end + first)
        accesses = tuple(moved if d == at else one for d, one in enumerate(operand.access))
        return replace(operand, shape=shape, strides=strides, access=accesses, offset=offset)


def cut_into_rows(nest: Nest, period: int) -> tuple[Nest, Rows]:
    """``nest`` cut where a dimension walks several periods, and what walks the rows of its one result.

    Raises ``Unsupported`` where no one dimension does.
    """
    cut = cut_at(nest, period)
    (out,) = cut.outputs
    found = [
        Rows(access.dim, step)
        for size, step, access in zip(out.shape, out.strides, out.access, strict=True)
        if size > 1 and step * size == period and access.dim not in (None, K) and access.a == access.den == 1
    ]
    if len(found) != 1:
        raise Unsupported(f"no dimension walks the rows of {period} elements", "rows in one dimension")
    return cut, found[0]


def _check_rows(operand: Operand, stripe: Stripe, at: int) -> None:
    """Raises ``Unsupported`` unless a view walks whole periods, and the stripe's rows by dimension ``at``."""
    step, period = operand.strides[at], stripe.period
    parted = any(one >= period and one % period for one in operand.strides) or operand.offset % period
    if parted or step * operand.shape[at] != period or stripe.begin % step or stripe.end % step:
        raise Unsupported(f"{operand.name} walks no rows of {period} elements", "rows in one dimension")


def _along(operand: Operand, dim: int) -> int | None:
    """The dimension of a view that follows an index dimension member by member."""
    found = (d for d, access in enumerate(operand.access) if access.dim == dim and not access.whole)
    return next(found, None)
