# SPDX-License-Identifier: Apache-2.0
"""A custom kernel for one node: what its members touch, and the values that the node gives.

An instance is plain data, checked in ``instance_checks.py``: a Python class and a shared object end in the
same one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from onedispatch.operators.declarations.kernel import Tensor
from onedispatch.operators.declarations.members import MemberAxis
from onedispatch.operators.plugin.custom_kernel import RANK, SCRATCH_BYTES, CustomKernel

SCRATCH_ALIGN = 64  # bytes: a vector register


@dataclass(frozen=True)
class Interval:
    """What member ``i`` of index dimension ``dim`` touches along one dimension of a tensor:
    ``[floor(a*i) + start, floor(a*i) + end]``, both ends included. ``dim=None``: anything of it.

    ``a`` is a whole number or a ``Fraction`` (``Fraction(1, 2)``: two members share an element).
    """

    dim: int | None = None
    a: int | Fraction = 1
    start: int = 0
    end: int = 0

    @property
    def whole(self) -> bool:
        return self.dim is None

    @property
    def span(self) -> int:
        """Coordinates that one member touches."""
        return self.end - self.start + 1

    def first(self, member: int) -> int:
        """The first coordinate that ``member`` touches."""
        a = self.a
        return (a * member if isinstance(a, int) else math.floor(Fraction(a) * member)) + self.start

    def axis(self, extent: int, first: int = 0, padding: int = 0, align: int = 1) -> MemberAxis:
        """Returns what a parameter block says of it, as declared; members count from ``first`` on.

        A nest may have less of it. What is whole, or runs backwards, follows no index dimension.
        """
        a = Fraction(self.a)
        if self.dim is None or a < 0:
            return MemberAxis(extent, padding, None, 0, 1, 0, 0, align)
        start = self.first(first)
        return MemberAxis(extent, padding, self.dim, a.numerator, a.denominator, start, self.span, align)

    def __str__(self) -> str:
        if self.whole:
            return "whole"
        step = f"i{self.dim}" if self.a == 1 else f"{self.a}*i{self.dim}"
        return f"[{step}{self.start:+d}, {step}{self.end:+d}]" if self.start or self.end else f"[{step}]"


WHOLE_DIMENSION = Interval()


@dataclass(frozen=True)
class KernelInstance:
    """A custom kernel bound to one node: everything that lowering needs, and nothing of the graph.

    ``outputs``: (dtype, shape) by name; ``access``: an ``Interval`` per tensor dimension, by operand;
    ``scratch``: bytes; ``work``: element operations per member, by term, and ``basis`` where these come from:
    the declaration, a count, or an assumption. ``preferred_split``: the index dimension that is best cut
    first, ``uncut`` those of which every call has all members. ``in_place``: outputs that may lie where an
    input lay, by name.
    """

    outputs: Mapping[str, tuple[str, tuple[int, ...]]]
    index_space: tuple[int, ...]
    access: Mapping[str, tuple[Interval, ...]]
    scalars: Mapping[str, float] = field(default_factory=dict)
    aux: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    scratch: Mapping[str, int] = field(default_factory=dict)
    pads: Mapping[str, float] = field(default_factory=dict)
    fills: Mapping[str, float] = field(default_factory=dict)
    work: Mapping[str, float] = field(default_factory=dict)
    preferred_split: int | None = None
    in_place: Mapping[str, str] = field(default_factory=dict)
    basis: Literal["declared", "counted", "assumed"] = "assumed"
    uncut: frozenset[int] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute: no output has an element."""
        return all(0 in shape for _, shape in self.outputs.values())

    def intervals(self, name: str) -> tuple[Interval, ...]:
        """What a member touches of an operand that is there; anything of auxiliary tensors."""
        found = self.access.get(name)
        return (WHOLE_DIMENSION,) * self.aux[name].ndim if found is None else found

    def edge(self, operand: Tensor) -> float | None:
        """What is read outside of an input, or what elements of an output hold that no member writes."""
        declared = operand.fill if operand.pad is None else operand.pad
        return self.pads.get(operand.name, self.fills.get(operand.name, declared))

    def hazard(self, source: str, target: str) -> str:
        """Where a member would read what another has written, were ``target`` in the place of ``source``.

        Both have one element type and one shape.
        """
        alone = all(size == 1 for size in self.index_space)
        written_along = {written.dim for written in self.intervals(target)}
        apart = all(size == 1 or dim in written_along for dim, size in enumerate(self.index_space))
        pairs = zip(self.intervals(source), self.intervals(target), strict=True)
        for d, (read, written) in enumerate(pairs):
            inside = read.start >= written.start and read.end <= written.end
            same = (read.dim, read.a) == (written.dim, written.a) and inside
            # All of a dimension is a member's own where others are apart from it along another one.
            if not (alone or (same and (apart or not read.whole))):
                return f"dimension {d} reads {read} and writes {written}"
        return ""

    def hidden_scalars(self, kernel: CustomKernel) -> dict[str, float]:
        """The hidden scalars but work: the rank, pads, fills (NaN: none), and where scratch begins."""
        _, shape = self.outputs[kernel.outputs[0].name]
        values: dict[str, float] = {RANK: max(len(shape), 1)}
        values |= {f"pad_{one.name}": self.edge(one) or 0.0 for one in kernel.inputs}
        fills = {one.name: self.edge(one) for one in kernel.outputs}
        values |= {f"fill_{name}": math.nan if fill is None else fill for name, fill in fills.items()}
        at = 0
        for scratch in kernel.scratch_tensors:
            values[f"at_{scratch.name}"] = at
            at += -(-self.scratch[scratch.name] // SCRATCH_ALIGN) * SCRATCH_ALIGN
        return values | ({SCRATCH_BYTES: at} if kernel.scratch_tensors else {})
