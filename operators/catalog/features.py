# SPDX-License-Identifier: Apache-2.0
"""What catalogs see of a problem: its hardware, its operation, its kind, and its sizes.

Problems of one *family* differ in nothing but sizes: what is tuned for one is a guess for its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2

from onedispatch.operators.scheduling.index_space import Access, K, Operand, Packed
from onedispatch.operators.scheduling.plain import digest_of, plain
from onedispatch.operators.scheduling.problem import DIGEST_BYTES, Problem
from onedispatch.transactions import Device
from onedispatch.transactions.base.cached import cached_property

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class ProblemFeatures:
    """A problem, as tables see it."""

    problem: Problem

    # -- hardware --------------------------------------------------------------------------

    @property
    def hardware(self) -> str:
        """The device: its name, and the digest of its description."""
        return self.problem.device

    # -- operation -------------------------------------------------------------------------

    @cached_property
    def operation(self) -> str:
        """The canonical einsum of a contraction (``ac,cb->ab``), of other kernels their name.

        Letters count the result's dimensions, then those of the reduction, in the order of their first use.
        """
        return _einsum(self.problem) or self.problem.kernel

    # -- problem ---------------------------------------------------------------------------

    @property
    def kernel(self) -> str:
        """Name and digest of the kernel's declaration: solutions are of one version."""
        return f"{self.problem.kernel}#{self.problem.declaration:08x}"

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Element types: of every operand, those inside of packed constants too, then of results."""
        parts = [
            part.dtype.name
            for x in self.problem.inputs
            for part in ((x,) if isinstance(x, Operand) else x.parts)
        ]
        return (*parts, *(x.dtype.name for x in self.problem.outputs))

    @cached_property
    def layout(self) -> str:
        """How operands arrive: ``rows`` (contiguous), ``views``, ``packed``, ``kept`` in memory tiles."""
        operands = (*self.problem.inputs, *self.problem.outputs)
        return ",".join(f"{x.name}:{_layout(x)}" for x in operands)

    @cached_property
    def scalars(self) -> dict[str, float | str]:
        """Attributes that the cost depends on."""
        return dict(self.problem.scalars)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Extents by the names of dimensions; ``k`` is the reduction."""
        sizes = {dim.name: dim.extent for dim in self.problem.dims}
        return sizes | ({"k": self.problem.k_extent} if self.problem.k_extent else {})

    # -- nearness --------------------------------------------------------------------------

    @cached_property
    def family(self) -> bytes:
        """A digest of all but the sizes."""
        problem = self.problem
        alike = replace(
            problem,
            dims=tuple(replace(dim, extent=0) for dim in problem.dims),
            inputs=tuple(_sizeless(x) for x in problem.inputs),
            outputs=tuple(_sizeless_operand(x) for x in problem.outputs),
            k_extent=0,
            occupied=0,
        )
        return bytes.fromhex(digest_of((plain(alike), self.layout), DIGEST_BYTES))

    @cached_property
    def point(self) -> tuple[float, ...]:
        """Where it lies among its family: the binary logarithms of its sizes."""
        return tuple(log2(size) if size > 0 else -1.0 for size in self.extents)

    @property
    def extents(self) -> tuple[int, ...]:
        """Of every dimension and the reduction."""
        return (*(dim.extent for dim in self.problem.dims), self.problem.k_extent)

    @property
    def is_kept(self) -> bool:
        """Whether tensors stay in memory tiles: what is best then depends on every word."""
        operands = (*self.problem.inputs, *self.problem.outputs)
        kept = any(isinstance(x, Operand) and x.buffer is not None for x in operands)
        return kept or bool(self.problem.occupied or self.problem.k_step)


@dataclass(frozen=True)
class Features(ProblemFeatures):
    """A problem on a device, as predicates see it."""

    device: Device


def _layout(operand: Operand | Packed) -> str:
    if isinstance(operand, Packed):
        return "packed"
    if operand.buffer is not None:
        return "kept"
    expected = 1
    for extent, stride in zip(reversed(operand.shape), reversed(operand.strides), strict=True):
        if extent > 1 and stride != expected:
            return "view"
        expected *= extent
    return "rows"


def _sizeless(operand: Operand | Packed) -> Operand | Packed:
    if isinstance(operand, Operand):
        return _sizeless_operand(operand)
    return operand


def _sizeless_operand(operand: Operand) -> Operand:
    rank = len(operand.shape)
    return replace(operand, shape=(0,) * rank, strides=(0,) * rank, buffer=None)


def _einsum(problem: Problem) -> str:
    """The einsum of a problem in which several inputs are reduced member by member; "" of others."""
    terms = [_indices(x) for x in problem.inputs]
    made = _indices(problem.outputs[0]) if len(problem.outputs) == 1 else None
    reduced = [term for term in terms if term is not None and K in term]
    if made is None or None in terms or len(reduced) < 2:
        return ""
    labels: dict[int, str] = {}
    for index in (*made, *(index for term in reduced for index in term)):
        labels.setdefault(index, _LETTERS[len(labels)])
    written = ["".join(labels[index] for index in term) for term in reduced]
    return f"{','.join(written)}->{''.join(labels[index] for index in made)}"


def _indices(operand: Operand | Packed) -> tuple[int, ...] | None:
    """The dimensions that an operand walks one by one; None where windows or halves of members matter."""
    if isinstance(operand, Packed):
        axes = operand.parts[0].axes
        plain_axes = all(size == 0 for dim, size in axes if dim is not None) and all(
            dim is not None for dim, _ in axes
        )
        return tuple(dim for dim, _ in axes if dim is not None) if plain_axes else None
    if not all(map(_is_plain, operand.access)):
        return None
    return tuple(access.dim for access in operand.access if access.dim is not None)


def _is_plain(access: Access) -> bool:
    return (access.a, access.start, access.end, access.den) == (1, 0, 0, 1)
