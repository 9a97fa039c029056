# SPDX-License-Identifier: Apache-2.0
"""The super kernel's parameter block: what it holds, and how it is filled.

A parameter block is ``WORDS`` little-endian 32-bit words (more for kernels that need more) that an operator
hands to the persistent super kernel of every core. The first 40 describe the loop that the core runs (which
buffers, which locks, which tiles); the rest is the kernel's, laid out by its declaration (``kernel.py``).

Groups of words (``PORT_FIELDS``, ``DIM_FIELDS``, ``AXIS_FIELDS``; C++ reads them by the same tables)
    port        4 words: address in core view, slot bytes, depth/locks/cadence, chunk bytes
    dim         4 words: extent, tile, factors of column, row and step, outer count; the tile of step o
                is column*per_column + row*per_row + o*per_step
    axis        5 words: extent D, chunk extent E, stride, a/den/align, b
    along       1 word per operand of a member kernel, behind its reference: the index dimension of every
                axis, and its rank
    members     1 word per axis of a member kernel, behind the axis: elements that a member touches (0: it
                may touch all), and how many of the last of D are no elements of the tensor
    total       1 word per index dimension of a member kernel, behind its first member
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations import members
from onedispatch.operators.declarations.kernel import ARGS_AT, AXIS_WORDS, MAX_DIMS, WORDS, Kernel, Scalar
from onedispatch.transactions.base.errors import OperatorError, TransactionError
from onedispatch.transactions.machine.bd import pack_fields
from onedispatch.transactions.machine.registers import CORE_VIEW_LOCKS, Field, field_of

__all__ = ["ABSENT", "ARGS_AT", "BYTES", "HEADER", "MAGIC", "WORDS", "Axis", "ParamBlock", "f32", "port_ref"]

MAGIC = 0x0D15A7C5
LOCK_BASE = CORE_VIEW_LOCKS  # a core's own locks in its own view
PARAM_LOCKS = (14, 15)  # own locks: the block may be written, the block may be read
BYTES = WORDS * 4
ABSENT = 0xFFFFFFFF

PORTS = ("in0", "in1", "out")
PORT_OUT = PORTS.index("out")
PORT_SHIFT, DTYPE_SHIFT = 24, 16  # of a reference; the byte offset lies below
CADENCE_NONE, CADENCE_STEP, CADENCE_TILE, CADENCE_ONCE = 0, 1, 2, 3
CADENCE_LAST = 4  # of out: a slot is taken for the last step of a tile alone
CADENCES = {
    "none": CADENCE_NONE,
    "step": CADENCE_STEP,
    "tile": CADENCE_TILE,
    "once": CADENCE_ONCE,
    "last": CADENCE_LAST,
}

# The image in program memory: what names the core program and the kernels that it carries, as long as the
# code that it stands for. From "kernels" on, two words each: digest, and a bit for every element type of
# the first output that the kernel was compiled for. Then code, which is not interpreted: the super kernel's,
# and for each bit a copy of the kernel's; its words hold the digest of whose it is. The last of all "words"
# is a hash of those before (FNV-1a, 32 bits, over their bytes).
IMAGE_MAGIC = 0x4B53444F  # 'ODSK'
SUPER_KERNEL_ID, SUPER_KERNEL_VERSION = 1, 3
IMAGE = {"magic": 0, "program": 1, "version": 2, "words": 3, "count": 4, "kernels": 5}
CARRIED_WORDS = 2  # of each kernel: digest, element types
# ASSUMPTION: 128 instructions of 16 bytes for start-up, locks, the loops and reading the parameter block.
SUPER_KERNEL_BYTES = 2048
MAX_CARRIED = 256
HASH_BASIS, HASH_PRIME = 0x811C9DC5, 0x01000193

# What core programs accept, by argument: mappings refuse what is beyond, before anything is emitted.
LIMITS = {
    "window_step": 1 << 12,  # kernel extent, stride, dilation
    "window_plane": 1 << 20,  # elements of one channel that the windows of a tile cover
    "window_taps": 1 << 16,
    "lrn_size": 1 << 14,
}

MAX_COUNT = 1 << 20  # outer tiles of a dimension, steps of a reduction
PORT_FIELDS = (
    Field("address", 0, 0, 32),
    Field("slot_bytes", 1, 0, 32),
    Field("depth", 2, 0, 8),
    Field("acquire", 2, 8, 8),
    Field("release", 2, 16, 8),
    Field("cadence", 2, 24, 8),
    Field("chunk_bytes", 3, 0, 32),
)
DIM_FIELDS = (
    Field("extent", 0, 0, 32),
    Field("tile", 1, 0, 32),
    Field("per_column", 2, 0, 16),
    Field("per_row", 2, 16, 4),
    Field("per_step", 2, 20, 12),
    Field("count", 3, 0, 32),
)
AXIS_FIELDS = (
    Field("extent", 0, 0, 32),
    Field("chunk", 1, 0, 32),
    Field("stride", 2, 0, 32),
    Field("a", 3, 0, 16),
    Field("den", 3, 16, 8),
    Field("align", 3, 24, 8),
    Field("b", 4, 0, 32, signed=True),
)
ALONG_WHOLE = 0xF  # of an axis that follows no index dimension
ALONG_FIELDS = (
    *(Field(f"axis_{i}", 0, 4 * i, 4) for i in range(MAX_DIMS)),
    Field("rest", 0, 20, 8),
    Field("rank", 0, 28, 4),
)
ALONG_REST = 0xFF  # dimensions that no tensor has
SPAN_FIELDS = (Field("span", 0, 0, 28), Field("padding", 0, 28, 4))
TOTAL_FIELDS = (Field("members", 0, 0, 31), Field("whole", 0, 31, 1))
GROUPS = {
    "port": PORT_FIELDS,
    "dim": DIM_FIELDS,
    "axis": AXIS_FIELDS,
    "along": ALONG_FIELDS,
    "span": SPAN_FIELDS,
    "total": TOTAL_FIELDS,
}
# name -> first word. Widths follow from the groups in the module docstring.
HEADER = {
    "magic": 0,
    "kernel": 1,  # digest of the kernel's declaration
    "row_mask": 2,
    "inner_steps": 3,
    "port_in0": 4,
    "port_in1": 8,
    "port_out": 12,
    "dims": 16,
    "k_extent": 36,
    "k_tile": 37,
    "loop_order": 38,  # dimension per nibble, outermost loop in the lowest one
    "scratch": 39,  # its address in core view; 0 where the kernel declares none
}
MAX_NUMERATOR, MAX_DENOMINATOR, MAX_ALIGN = (
    field_of(AXIS_FIELDS, name).maximum for name in ("a", "den", "align")
)
MAX_PER_COLUMN = field_of(DIM_FIELDS, "per_column").maximum
DIM_WORDS, PORT_WORDS = (fields[-1].word + 1 for fields in (DIM_FIELDS, PORT_FIELDS))


_SMALLER = "use smaller extents, tiles or scalars"


def packed(where: str, fields: Sequence[Field], *values: int) -> list[int]:
    """The words of a group. Raises ``OperatorError`` for what its field has no room for."""
    named = {field.name: value for field, value in zip(fields, values, strict=True)}
    try:
        return pack_fields(where, fields, named, fields[-1].word + 1)
    except TransactionError as error:
        raise OperatorError(error.where, error.given, error.accepted, _SMALLER) from error


@dataclass(frozen=True)
class Axis:
    """How a chunk lies along one tensor dimension (5 words).

    The chunk's origin is ``clamp(align_down(floor(a * o / den) + b), 0, extent - chunk)`` for the tile
    origin ``o`` of the index dimension; ``stride`` is counted in elements of the chunk.
    """

    extent: int
    chunk: int
    stride: int
    a: int = 1
    b: int = 0
    align: int = 1
    den: int = 1

    def words(self) -> list[int]:
        values = (self.extent, self.chunk, self.stride, self.a, self.den, self.align, self.b)
        return packed("axis of a parameter block", AXIS_FIELDS, *values)

    def origin(self, tile_origin: Any) -> Any:
        """First coordinate that the chunk of the tile at ``tile_origin`` holds; arrays give arrays."""
        wanted = self.a * tile_origin // self.den + self.b
        aligned = wanted - wanted % self.align
        return np.minimum(np.maximum(aligned, 0), self.extent - self.chunk)  # np.clip takes twice as long


SCALAR_AXIS = Axis(extent=1, chunk=1, stride=0)


def f32(value: float) -> int:
    """The bits of ``value`` rounded to float32, as an unsigned word."""
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:  # beyond float32: the IEEE result is an infinity
        return 0x7F800000 if value > 0 else 0xFF800000


def scalar_word(scalar: Scalar, value: float) -> int:
    """The word that stands for a number in a parameter block."""
    return f32(float(value)) if scalar.type == "f32" else int(value) & 0xFFFFFFFF


def port_ref(port: int, byte_offset: int) -> int:
    """Where an operand lies; ``set_operand`` adds its element type (bits 16 to 23)."""
    return port << PORT_SHIFT | byte_offset


@dataclass
class ParamBlock:
    """The words of one block under construction: named parts of the kernel's declaration."""

    kernel: Kernel
    words: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.words = [0] * self.kernel.block_words
        self.words[HEADER["magic"]] = MAGIC
        self.words[HEADER["kernel"]] = self.kernel.digest
        for tensor in self.kernel.tensors:
            self.words[self.kernel.layout[tensor.name]] = ABSENT

    def put(self, at: int, values: Iterable[int]) -> None:
        """Raises ``OperatorError`` for what is no word: to cut it off would be another operator."""
        for i, value in enumerate(values):
            if not -(1 << 31) <= value < 1 << 32:
                where = f"word {at + i} of a {self.kernel.name} parameter block"
                raise OperatorError(where, str(value), "32 bits", _SMALLER)
            self.words[at + i] = value & 0xFFFFFFFF

    def set_dim(self, name: str, index_dim: int) -> None:
        """The kernel's dimension ``name`` is index dimension ``index_dim``."""
        self.words[self.kernel.layout[f"dim_{name}"]] = index_dim

    def set_operand(self, name: str, reference: int, dtype_code: int, axes: Sequence[Axis] = ()) -> None:
        """Operand ``name``: where it lies (``port_ref``), its element type, an input's axes in order."""
        at = self.kernel.layout[name]
        self.put(at, [reference | dtype_code << DTYPE_SHIFT])
        for i, axis in enumerate(axes):
            self.put(at + 1 + AXIS_WORDS * i, axis.words())

    def set_members(self, first: Sequence[int], total: Sequence[int], whole: Sequence[bool] = ()) -> None:
        """The index space of an instance of a member kernel, up to five dimensions.

        ``first`` is the member that the nest begins with, ``total`` how many there are in all; ``whole``
        dimensions are not cut: all their members are in every call.
        """
        for d in range(MAX_DIMS):
            there = d < len(total)
            values = (total[d], int(d < len(whole) and whole[d])) if there else (1, 0)
            words = packed(f"members of index dimension {d}", TOTAL_FIELDS, *values)
            self.put(self.kernel.layout["members"] + 2 * d, [first[d] if there else 0, *words])

    def set_member_operand(
        self,
        name: str,
        reference: int,
        dtype_code: int,
        axes: Sequence[members.MemberAxis],
        chunk: Sequence[int],
    ) -> None:
        """Operand ``name`` of a member kernel: ``axes`` of its tensor, of which the core has a ``chunk``,
        row-major."""
        at, rank = self.kernel.layout[name], len(axes)
        along = [ALONG_WHOLE if axis.along is None else axis.along for axis in axes]
        dims = along + [ALONG_WHOLE] * (MAX_DIMS - rank)
        self.put(at, [reference | dtype_code << DTYPE_SHIFT])
        self.put(at + 1, packed(f"operand {name}", ALONG_FIELDS, *dims, ALONG_REST, rank))
        for i, one in enumerate(axes):
            axis = Axis(one.extent, chunk[i], prod(chunk[i + 1 : rank]), one.a, one.b, one.align, one.den)
            span = 0 if one.along is None else one.span
            words = [*axis.words(), *packed(f"operand {name}, axis {i}", SPAN_FIELDS, span, one.padding)]
            self.put(at + 2 + members.AXIS_WORDS * i, words)

    def set_scalar(self, name: str, value: float | str) -> None:
        """A scalar: the name of a function, or a number, rounded to its type."""
        scalar = self.kernel.scalar(name)
        if scalar.table is not None:
            word = scalar.table.word(str(value))
        else:
            word = f32(float(value)) if scalar.type == "f32" else int(value)
        self.put(self.kernel.layout[name], [word])

    def to_bytes(self) -> bytes:
        return struct.pack(f"<{len(self.words)}I", *self.words)
