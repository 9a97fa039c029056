# SPDX-License-Identifier: Apache-2.0
"""Index spaces: what a loop nest iterates over, and what of each tensor a tile of it touches.

A ``Nest`` has up to five parallel dimensions and at most one reduction dimension. Each
operand says, per dimension of its tensor view, which interval member ``i`` of an index
dimension touches: ``[a*i/den + start, a*i/den + end]``, the quotient rounded down. From that the
scheduler derives tiles, chunks, halos and DMA patterns. Edges need no special cases: a tile that would
overhang is shifted back (and redone), a chunk that would overhang is shifted into its tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import lcm, prod
from typing import Any, NamedTuple

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, DType
from onedispatch.operators.declarations.kernel import K_AXIS, WHOLE, WORDS, Function, Kernel, Scalar, Tensor
from onedispatch.operators.declarations.params import Axis
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.scheduling.buffer import Buffer
from onedispatch.operators.scheduling.members import Members
from onedispatch.transactions.base.cached import cached_property

F32 = DTYPES["f32"]
K = -1  # names the reduction dimension in ``Access.dim``
OUTPUT = -1  # names the output in ``Operand.tensor``; OUTPUT - 1 names the next one
SERIALISED_NAME = "serialised"  # metadata key of a field whose name in data is another
AUX = "aux"  # the packed operand that holds a kernel's auxiliary tensors

IntArray = Any  # an int, or an integer ndarray while many tilings are evaluated at once


@dataclass(frozen=True)
class Dim:
    """One parallel index dimension. ``whole``: never cut. ``multiple``: tiles are multiples of it.

    The last ``padding`` members fill up the output's row to whole words: inputs may lack them, and the
    kernel writes zeros there.
    """

    name: str
    extent: int
    whole: bool = False
    multiple: int = 1
    max_tile: int = 1 << 30
    padding: int = 0


@dataclass(frozen=True)
class Access:
    """What index member ``i`` touches along one tensor dimension: ``[a*i/den + start, a*i/den + end]``.

    ``dim`` is an index dimension, ``K`` for the reduction, or None for the whole extent.
    ``whole``: chunks hold the whole extent along it, whatever of it a tile touches.
    ``align``: chunks begin at multiples of it (4 for bytes that lie side by side). ``a*i/den`` is
    rounded down. What a kernel can follow is checked where a nest is declared.
    """

    dim: int | None = None
    a: int = 1
    start: int = 0
    end: int = 0
    align: int = 1
    den: int = 1
    whole: bool = False

    def chunk(self, extent: int, tile: IntArray, index_extent: int) -> IntArray:
        """Coordinates that a chunk holds for a tile of ``tile`` members."""
        if self.dim is None or self.whole:
            return extent
        span = -(-self.a * (tile - 1) // self.den) + self.end - self.start + 1
        if isinstance(tile, int) and self.align == 1:  # as below, without the price of NumPy
            return min(span, extent)
        if self.align > 1:
            even = self.a == self.den == 1 and self.start % self.align == 0 and self.end == self.start
            exact = even & (np.asarray(tile) % self.align == 0) & (index_extent % self.align == 0)
            padded = -(-span // self.align) * self.align + (0 if self.dim == K else self.align)
            span = np.where(exact, span, padded)
        return np.minimum(span, extent)


@dataclass(frozen=True)
class Operand:
    """A tensor view: shape, element strides, offset, and its access per dimension.

    DMAs move words. Chunks of elements narrower than a word therefore consist of whole words: the
    innermost dimension lies element by element, in multiples of ``dtype.per_word``, and every other step
    is such a multiple (``nest_rules`` refuses the rest). An ``offset`` inside a word is the kernel's to add.
    """

    name: str
    tensor: int  # index of the operator's input, or OUTPUT (- 1, - 2, ... of further outputs)
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    access: tuple[Access, ...]
    offset: int = 0  # elements
    buffer: Buffer | None = None

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def output(self) -> int | None:
        """Which of the operator's outputs it is; None of an input."""
        return OUTPUT - self.tensor if self.tensor <= OUTPUT else None

    @property
    def lead_bytes(self) -> int:
        """Bytes from the word where a chunk begins to its first element."""
        return self.offset % self.dtype.per_word * self.itemsize

    def in_column(self, column: int) -> Operand:
        """The view of one column's shares: elements count from byte 0 of its memory tile."""
        buffer = self.buffer
        if buffer is None:
            return self
        first = (
            buffer.at // self.itemsize + self.offset // buffer.period * buffer.share - column * buffer.share
        )
        return replace(self, strides=buffer.strides(self.strides), offset=first, buffer=None)

    def depends_on(self) -> frozenset[int]:
        return frozenset(a.dim for a in self.access if a.dim is not None and not a.whole)

    def chunk_shape(self, nest: LoopNest, tiles: Sequence[IntArray], k_tile: IntArray) -> list[IntArray]:
        shape = []
        for access, extent in zip(self.access, self.shape, strict=True):
            tile, index_extent = nest.tile_of(access.dim, tiles, k_tile)
            shape.append(access.chunk(extent, tile, index_extent))
        return shape

    def chunk_words(self, nest: LoopNest, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
        return self.words_of(self.chunk_shape(nest, tiles, k_tile))

    def words_of(self, shape: Sequence[IntArray]) -> IntArray:
        """Words of a chunk of that shape."""
        return -(-(prod(shape) * self.itemsize) // 4)

    def axes(self, shape: Sequence[int]) -> list[Axis]:
        """One ``Axis`` per view dimension of a chunk of that shape, strides those of the packed chunk."""
        axes = []
        for d, access in enumerate(self.access):
            a = 0 if access.dim is None else access.a
            stride = prod(shape[d + 1 :])
            axes.append(Axis(self.shape[d], shape[d], stride, a, access.start, access.align, access.den))
        return axes

    def extents(self, nest: LoopNest, tiles: Sequence[IntArray], k_tile: IntArray) -> Iterator[_Extent]:
        """(dimension, chunk extent, chunk stride) per view dimension, for many tilings at once."""
        shape = self.chunk_shape(nest, tiles, k_tile)
        for d, access in enumerate(self.access):
            yield access.dim, shape[d], prod(shape[d + 1 :])


_Extent = tuple[int | None, Any, Any]


@dataclass(frozen=True)
class PackedPart:
    """An operand inside a packed chunk: ``axes`` outermost first, as (index dimension or ``K``, 0), or
    (None, extent) for a whole extent; (``K``, extent) has all of the reduction, whatever a step takes."""

    name: str
    dtype: DType
    axes: tuple[tuple[int | None, int], ...]

    def extents(self, nest: LoopNest, tiles: Sequence[IntArray], k_tile: IntArray) -> Iterator[_Extent]:
        counts = [size or nest.tile_of(dim, tiles, k_tile)[0] for dim, size in self.axes]
        for i, (dim, _) in enumerate(self.axes):
            yield dim, counts[i], prod(counts[i + 1 :])

    def words(self, nest: LoopNest, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
        elements = prod(count for _, count, _ in self.extents(nest, tiles, k_tile))
        return -(-elements * self.dtype.itemsize // 4)


@dataclass(frozen=True)
class Packed:
    """A constant that is laid out chunk after chunk, as ``packing`` does: ``dims`` (K too) it depends on.

    A chunk holds ``parts`` one after the other, each from a word on. Its name says, among the nests of an
    operator, what it holds: those that are laid out alike lie in device memory once.

    ``core_resident``: every core holds one chunk of it and retains it for the next nest of the operator that
    reads the same constant (weight-stationary). Solutions of such a nest have one tile per core.
    """

    name: str
    dims: tuple[int, ...]
    parts: tuple[PackedPart, ...]
    core_resident: bool = field(default=False, metadata={SERIALISED_NAME: "stays"})

    def depends_on(self) -> frozenset[int]:
        return frozenset(self.dims)

    def chunk_words(self, nest: LoopNest, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
        return sum(part.words(nest, tiles, k_tile) for part in self.parts)


class Split(NamedTuple):
    """Columns that share an index dimension, the members that each has (the last may have fewer), and what
    tiles are multiples of."""

    dim: int
    columns: int
    members: int
    multiple: int = 1


def split_of(nest: LoopNest, operand: Operand) -> Split:
    """How the buffer of ``operand`` lays an index dimension over the columns.

    Raises ``Unsupported`` where its columns would need what lies beyond their neighbours.
    """
    return _cut_by(nest, operand)[0]


def _cut_by(nest: LoopNest, operand: Operand) -> tuple[Split, bool]:
    """The split, and whether columns take what their neighbours have, too."""
    buffer = operand.buffer
    assert buffer is not None
    at = buffer.split_axis(operand.shape, operand.strides)
    if at is None or operand.offset % buffer.period or operand.dtype.words != 1:
        walked = (
            f"{operand.name}: its steps {operand.strides} walk no whole shares of {buffer.share} elements"
        )
        raise Unsupported(walked, f"views of whole shares of {buffer}")
    end = operand.offset + sum((n - 1) * s for n, s in zip(operand.shape, operand.strides, strict=True))
    if (end // buffer.period + 1) * buffer.share * operand.itemsize > 4 * buffer.words:
        raise Unsupported(f"{operand.name}: a view up to element {end}", f"what {buffer} has room for")
    access, held = operand.access[at], buffer.share // operand.strides[at]
    if access.dim is None or access.dim == K or access.whole or access.den != 1:
        raise Unsupported(f"{operand.name}, of which every tile takes all", "what each column has a part of")
    if access.align > 1 and (access.a != 1 or access.start % access.align or access.end != access.start):
        raise Unsupported(f"{operand.name} by {access}", f"members one by one, from one of {access.align} on")
    dim, extent, columns = access.dim, nest.dims[access.dim].extent, buffer.columns
    even = buffer.is_even and extent % columns == 0
    members = extent // columns if even else held // access.a
    halo = columns > 1 and held != access.a * members  # each has descriptors of its own then, too
    shared = 0 < extent - (columns - 1) * members <= members and (even or held % access.a == 0)
    for column in range(columns):
        last = min((column + 1) * members, extent) - 1
        low = max(access.a * column * members + access.start, 0)
        high = min(access.a * last + access.end, operand.shape[at] - 1)
        near = (column - 1) * held <= low and high < (column + 2) * held
        if not shared or not near or (access.align > 1 and low % access.align):
            raise Unsupported(f"{operand.name}: columns take what others have", "shares that they have whole")
        halo = halo or low < column * held or high >= (column + 1) * held
    if not halo and access.a * (extent - 1) + access.end >= operand.shape[at]:
        given = f"{operand.name}: its last tile reaches beyond the end, so that chunk begins in another share"
        raise Unsupported(given, "chunks within the share of a column")
    return Split(dim, columns, members, access.align), halo


def kept(operands: Iterable[Operand | Packed]) -> bool:
    """Whether what a port carries stays in memory tiles."""
    return any(isinstance(x, Operand) and x.buffer is not None for x in operands)


def depends(operands: Iterable[Operand | Packed]) -> frozenset[int]:
    """What the chunks of any of these depend on: index dimensions, and ``K``."""
    return frozenset[int]().union(*(x.depends_on() for x in operands))


@dataclass(frozen=True)
class LoopNest:
    """One kernel called for every tile of an index space: data alone. ``Nest`` is one that was checked.

    ``roles`` says which index dimension each of the kernel's named dimensions is; operands are
    bound to the kernel's by their names; ``scalars`` are numbers, or names of functions.
    """

    kernel: Kernel
    dims: tuple[Dim, ...]
    inputs: tuple[Operand | Packed, ...]
    outputs: tuple[Operand, ...]
    roles: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, float | str] = field(default_factory=dict)
    k_extent: int = 0
    k_multiple: int = 1
    k_whole: bool = False
    occupied: int = 0  # words of every memory tile that buffers take while it runs
    k_step: int = 0  # members of the reduction that a step takes, where sums must keep their order; 0: any
    members: Members | None = None  # of a member kernel; nothing that a choice depends on

    @cached_property
    def bound(self) -> dict[str, Operand | PackedPart]:
        """The kernel's operands that are there, by name: strided ones, and parts of packed ones."""
        found: dict[str, Operand | PackedPart] = {}
        for x in self.inputs:
            found |= {part.name: part for part in x.parts} if isinstance(x, Packed) else {x.name: x}
        return found | {x.name: x for x in self.outputs}

    @property
    def reduces(self) -> bool:
        return self.kernel.reduces

    @cached_property
    def resident_operands(self) -> frozenset[str]:
        """Names of the operands that cores retain from nest to nest."""
        return frozenset(x.name for x in self.inputs if isinstance(x, Packed) and x.core_resident)

    def in0_resident(self, in1: frozenset[str]) -> bool:
        """Returns True if every operand of in0 (all but ``in1``) is core-resident."""
        in0 = {x.name for x in self.inputs} - in1
        return bool(in0) and in0 <= self.resident_operands

    @cached_property
    def split(self) -> Split | None:
        """How buffers lay an index dimension over the columns; None where no operand has one.

        Raises ``Unsupported`` where a view is cut inside its members, or two are cut apart.
        """
        each = [split_of(self, operand) for operand in self.strided if operand.buffer is not None]
        if not each:
            return None
        # Chunks of other tiles begin before them and end behind: those of the last column would begin
        # earlier, within the tensor, and all columns do alike.
        multiple = lcm(*(one.multiple for one in each))
        found = {one._replace(multiple=multiple) for one in each}
        if len(found) > 1:
            raise Unsupported(f"buffers cut along {sorted(found)}", "one dimension that all are cut along")
        return found.pop()

    @cached_property
    def halo(self) -> Operand | None:
        """The operand of which columns take what the memory tiles of their neighbours have, too."""
        found = [x for x in self.strided if x.buffer is not None and _cut_by(self, x)[1]]
        if len(found) > 1 or any(x.output is not None for x in found):
            names = ", ".join(x.name for x in found)
            raise Unsupported(f"{names} beyond the shares of columns", "one input of which they take more")
        return found[0] if found else None

    @property
    def out_kept(self) -> bool:
        """Whether results stay in memory tiles."""
        return any(output.buffer is not None for output in self.outputs)

    @property
    def is_empty(self) -> bool:
        return any(dim.extent == 0 for dim in self.dims)

    @property
    def strided_inputs(self) -> list[Operand]:
        return [x for x in self.inputs if isinstance(x, Operand)]

    @property
    def strided(self) -> list[Operand]:
        """Strided inputs, then outputs."""
        return [*self.strided_inputs, *self.outputs]

    def out_words(self, tiles: Sequence[IntArray], k_tile: IntArray) -> IntArray:
        """Words of an out chunk: those of all outputs, each from a word on."""
        return sum(output.chunk_words(self, tiles, k_tile) for output in self.outputs)

    @property
    def cut(self) -> list[int]:
        """Dimensions of which a tile may be a part."""
        return [d for d, dim in enumerate(self.dims) if dim.extent > 1 and not dim.whole]

    @property
    def longer_block(self) -> int:
        """Words of the parameter block beyond those that every nest's has."""
        return self.kernel.block_words - WORDS

    def function(self, scalar: Scalar) -> Function:
        """The row of its table that a scalar chooses, by name or by code."""
        assert scalar.table is not None
        chosen = self.scalars.get(scalar.name, scalar.default or 0)
        return scalar.table[chosen] if isinstance(chosen, str) else scalar.table.rows[int(chosen)]

    def fills(self, output: str) -> bool:
        """Whether a member kernel's output is filled before calls: it has a fill, or its rows are padded."""
        said = self.scalars.get(f"fill_{output}", self.kernel.tensor(output).fill)
        return (said is not None and said == said) or any(dim.padding for dim in self.dims)

    def aux_values(self) -> Iterator[tuple[PackedPart, Any]]:
        """The auxiliary tensors and their values, in the order in which they lie in their chunk."""
        scalars = {s.name: self.scalars.get(s.name, s.default) for s in self.kernel.scalars}
        aux = next((x for x in self.inputs if isinstance(x, Packed) and x.name == AUX), None)
        for part, tensor in zip(aux.parts if aux else (), self.kernel.aux, strict=True):
            yield part, tensor.computed(scalars)

    def tile_of(self, dim: int | None, tiles: Sequence[IntArray], k_tile: IntArray) -> tuple[IntArray, int]:
        """(tile, extent) of an index dimension, the reduction, or neither."""
        if dim is None:
            return 1, 1
        if dim == K:
            return k_tile, self.k_extent
        return tiles[dim], self.dims[dim].extent

    def axis_dim(self, tensor: Tensor, axis: str) -> int | None:
        """The index dimension that an operand's axis runs along; None for a whole extent."""
        if self.kernel.members:
            operand, at = self.bound.get(tensor.name), tensor.axis_names.index(axis)
            there = isinstance(operand, Operand) and at < len(operand.access)
            return operand.access[at].dim if there else None  # type: ignore[union-attr]
        if axis.startswith(WHOLE):
            return None
        if axis == K_AXIS and self.kernel.reduces:
            return K
        return self.roles[axis] if self.kernel.dims else tensor.axis_names.index(axis)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major element strides."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def strided_operand(
    name: str, tensor: int, dtype: DType, dims: Sequence[tuple[int, int, Access]], offset: int = 0
) -> Operand:
    """An operand from (extent, stride, access) triples, ordered as its elements lie in memory.

    Broadcast dimensions (stride 0) are left out.
    """
    walked = sorted((d for d in dims if d[1]), key=lambda d: -d[1])
    walked = walked or [(1, 1, Access(None))]
    extents, strides, access = zip(*walked, strict=True)
    return Operand(name, tensor, dtype, extents, strides, access, offset)
