# SPDX-License-Identifier: Apache-2.0
"""The transaction format as one table: header, opcodes and field offsets.

Decoder, encoder, sizes, text, checks, README and the C++ header are all derived from it.
All numbers are little-endian. Offsets are bytes from the start of the header or of the op.
Two versions exist: 0.1 (AMD's files) and 1.0 ("optimised", smaller). Bytes that no field
covers are padding: ignored when read, kept when copied, zero when we write them.

Sources: measured on 5,256 public Strix files for v0.1; aie-rt, DynamicDispatch and aiebu for
v1.0 and for the opcodes that those files lack (``evidence`` says which).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from onedispatch.transactions.base.cached import cached_property

Version = tuple[int, int]
V0_1: Version = (0, 1)
V1_0: Version = (1, 0)
VERSIONS: tuple[Version, ...] = (V0_1, V1_0)

CUSTOM_BEGIN = 128
"""Opcodes from this one on carry their size at byte 4, known or not."""
CUSTOM_SIZE_AT = 4
CUSTOM_MIN_SIZE = 8
MAX_ARGUMENTS = 6
"""Fused arguments 0 to 5: in, out, scratch, const, super-kernel params, control packets."""
KERNEL_ARGUMENT_OFFSET = 3
"""Kernel argument = argument index + 3 (opcode, instruction BO and count come first)."""
KERNEL_OPCODE = 3
"""Kernel argument 0: "execute this transaction"."""
DDR_APERTURE = 0x80000000
"""Added to every host buffer address: DDR as the shim sees it."""


@dataclass(frozen=True)
class ByteField:
    """An unsigned little-endian number: ``width`` bytes at ``offset``."""

    name: str
    offset: int
    width: int
    doc: str = ""


@dataclass(frozen=True)
class OpLayout:
    """The byte layout of one opcode in one version.

    ``sizes`` lists the legal total sizes when the op has no payload. ``size_at`` is the byte of
    the u32 field that repeats the op's total size, None when the size is implied.
    ``payload_at`` starts a run of ``payload_width``-byte words that reaches to the op's end.
    """

    fields: tuple[ByteField, ...]
    sizes: tuple[int, ...]
    size_at: int | None = None
    payload_at: int | None = None
    payload_width: int = 4

    @property
    def min_size(self) -> int:
        return self.sizes[0]

    @property
    def has_fixed_size(self) -> bool:
        return self.payload_at is None and len(self.sizes) == 1

    @cached_property
    def by_name(self) -> Mapping[str, ByteField]:
        return MappingProxyType({field.name: field for field in self.fields})

    def field(self, name: str) -> ByteField:
        return self.by_name[name]


@dataclass(frozen=True)
class Opcode:
    """One row of the opcode table."""

    code: int
    name: str
    doc: str
    evidence: str
    layouts: Mapping[Version, OpLayout]


HEADER_SIZE = 16
HEADER: tuple[ByteField, ...] = (
    ByteField("major", 0, 1, "format version, major"),
    ByteField("minor", 1, 1, "format version, minor"),
    ByteField("device_generation", 2, 1, "2 AIEML, 3 XDNA, 4 XDNA2, 8/9 Strix A0/B0"),
    ByteField("rows", 3, 1, "rows of the array, shim and memory tile included"),
    ByteField("columns", 4, 1, "columns of the partition"),
    ByteField("mem_tile_rows", 5, 1, "rows of memory tiles"),
    ByteField("padding", 6, 2, "ignored, kept"),
    ByteField("op_count", 8, 4, "number of operations"),
    ByteField("byte_size", 12, 4, "size of the whole transaction, header included"),
)
DEVICE_GENERATIONS: Mapping[int, str] = MappingProxyType(
    {2: "AIEML", 3: "XDNA", 4: "XDNA2", 8: "XDNA2 (Strix A0)", 9: "XDNA2 (Strix B0)"}
)
MAX_COLUMNS: Mapping[int, int] = MappingProxyType({3: 5, 4: 8, 8: 8, 9: 8})
"""Columns of the whole array by device generation, if known."""
ARRAY_ROWS = 6
MEM_TILE_ROWS = 1
MAX_PREEMPTION = 3

_MEASURED = "measured"
_READ = "read in source"
_UNCONFIRMED = "layout unconfirmed"


def _both(layout: OpLayout) -> Mapping[Version, OpLayout]:
    return MappingProxyType({V0_1: layout, V1_0: layout})


def _each(v0_1: OpLayout, v1_0: OpLayout) -> Mapping[Version, OpLayout]:
    return MappingProxyType({V0_1: v0_1, V1_0: v1_0})


def _masked() -> Mapping[Version, OpLayout]:
    # aie-rt writes 32 bytes (4 of padding), mlir-aie 28: the size field decides.
    return _each(
        OpLayout(
            (
                ByteField("reg", 8, 8, "register address"),
                ByteField("value", 16, 4, "value under the mask"),
                ByteField("mask", 20, 4, "bits that count"),
            ),
            (28, 32),
            size_at=24,
        ),
        OpLayout(
            (
                ByteField("reg", 4, 4, "register address"),
                ByteField("value", 8, 4, "value under the mask"),
                ByteField("mask", 12, 4, "bits that count"),
            ),
            (16,),
        ),
    )


_NOOP = OpLayout((), (4,))
_STATE = (
    ByteField("state_index", 1, 1, "entry of the state table"),
    ByteField("function", 2, 1, "0 multiply, 1 increment, 2 decrement"),
    ByteField("argument", 4, 4, "operand of the function"),
)
_STATE_REG = OpLayout((*_STATE, ByteField("reg", 8, 4, "register offset")), (12,))

OPCODES: tuple[Opcode, ...] = (
    Opcode(
        0,
        "WRITE",
        "write one word to a register",
        _MEASURED,
        _each(
            OpLayout(
                (ByteField("reg", 8, 8, "register address"), ByteField("value", 16, 4, "word")),
                (24,),
                size_at=20,
            ),
            OpLayout((ByteField("reg", 4, 4, "register address"), ByteField("value", 8, 4, "word")), (12,)),
        ),
    ),
    Opcode(
        1,
        "BLOCKWRITE",
        "write consecutive words from a register on",
        _MEASURED,
        _each(
            OpLayout((ByteField("reg", 8, 4, "first register address"),), (16,), size_at=12, payload_at=16),
            OpLayout((ByteField("reg", 4, 4, "first register address"),), (12,), size_at=8, payload_at=12),
        ),
    ),
    Opcode(3, "MASKWRITE", "change the masked bits of a register", _MEASURED, _masked()),
    Opcode(4, "MASKPOLL", "wait until (register & mask) == value", _MEASURED, _masked()),
    Opcode(5, "NOOP", "do nothing", _READ, _both(_NOOP)),
    Opcode(
        6,
        "PREEMPT",
        "a point where the context may be switched",
        _MEASURED,
        _both(OpLayout((ByteField("level", 1, 1, "0 none, 1 memory tile, 2 core tile, 3 registers"),), (4,))),
    ),
    Opcode(7, "MASKPOLL_BUSY", "MASKPOLL without yielding", _MEASURED, _masked()),
    Opcode(
        8,
        "LOADPDI",
        "load another overlay",
        _READ,
        _both(
            OpLayout(
                (
                    ByteField("pdi_id", 2, 2, "PDI of the xclbin"),
                    ByteField("pdi_size", 4, 4, "bytes of the PDI, 0 = whole"),
                    ByteField("address", 8, 8, "address of the PDI, 0 = by id"),
                ),
                (16,),
            )
        ),
    ),
    Opcode(
        9,
        "LOAD_PM_START",
        "begin loading core program memory",
        _READ,
        _both(
            OpLayout(
                (ByteField("count", 1, 3, "sequences that follow"), ByteField("pm_id", 4, 4, "program")), (8,)
            )
        ),
    ),
    Opcode(
        10,
        "CREATE_SCRATCHPAD",
        "reserve a scratchpad",
        _READ,
        _both(
            OpLayout(
                (
                    ByteField("usage", 1, 1, "what it is for"),
                    ByteField("scratch_size", 4, 4, "bytes"),
                    ByteField("scratch_offset", 8, 8, "offset of the scratchpad"),
                ),
                (16,),
            )
        ),
    ),
    Opcode(11, "UPDATE_STATE_TABLE", "compute on a state table entry", _READ, _both(OpLayout(_STATE, (8,)))),
    Opcode(12, "UPDATE_REG", "write a computed state to a register", _READ, _both(_STATE_REG)),
    Opcode(13, "UPDATE_SCRATCH", "write a computed state to the scratchpad", _UNCONFIRMED, _both(_STATE_REG)),
    Opcode(
        128,
        "TCT",
        "wait for task completion tokens",
        _READ,
        _both(
            OpLayout(
                (
                    ByteField("word", 8, 4, "direction[7:0] | row[15:8] | column[23:16]"),
                    ByteField("config", 12, 4, "rows[15:8] | columns[23:16] | channel[31:24]"),
                ),
                (16,),
                size_at=4,
            )
        ),
    ),
    Opcode(
        129,
        "DDR_PATCH",
        "put a buffer address into shim BD words 1 and 2",
        _MEASURED,
        _each(
            OpLayout(
                (
                    # Bytes 8 to 23 hold an action (0) among garbage; sources disagree on its offset.
                    ByteField("reg", 24, 8, "address of shim BD word 1"),
                    ByteField("arg_index", 32, 8, "which kernel argument"),
                    ByteField("arg_offset", 40, 8, "bytes added to its address"),
                ),
                (48,),
                size_at=4,
            ),
            OpLayout(
                (
                    ByteField("reg", 8, 4, "address of shim BD word 1"),
                    ByteField("arg_index", 12, 1, "which kernel argument"),
                    ByteField("arg_offset", 16, 8, "bytes added to its address"),
                ),
                (24,),
                size_at=4,
            ),
        ),
    ),
    Opcode(
        130,
        "READ_REGS",
        "report the values of registers",
        _READ,
        _both(
            OpLayout(
                (ByteField("count", 8, 4, "number of addresses"),),
                (16,),
                size_at=4,
                payload_at=16,
                payload_width=8,
            )
        ),
    ),
    Opcode(
        131,
        "RECORD_TIMER",
        "record the time under an id",
        _MEASURED,
        _both(OpLayout((ByteField("id", 8, 4, "time stamp id"),), (12,), size_at=4)),
    ),
    Opcode(
        132,
        "MERGE_SYNC",
        "wait for tokens of several columns",
        _MEASURED,
        _both(
            OpLayout(
                (
                    ByteField("tokens", 8, 1, "tokens to wait for"),
                    ByteField("columns", 9, 1, "columns that send them"),
                ),
                (12, 16),
                size_at=4,
            )
        ),
    ),
    Opcode(
        133,
        "NEXT",
        "continue with the next instruction buffer",
        _UNCONFIRMED,
        _both(OpLayout((), (8,), size_at=4, payload_at=8)),
    ),
    Opcode(
        134,
        "TIMER_134",
        "unnamed, found in convolution files; an id like a timer's",
        _MEASURED,
        _both(OpLayout((ByteField("id", 8, 4, "counts 0, 1, 2..."),), (12,), size_at=4)),
    ),
    Opcode(
        200,
        "LOAD_PM_END",
        "end loading core program memory",
        _UNCONFIRMED,
        _both(OpLayout((), (8,), size_at=4, payload_at=8)),
    ),
)

NEVER_SERIALISED: Mapping[int, str] = MappingProxyType(
    {
        2: "BLOCKSET",  # expanded to BLOCKWRITE before it is written
        14: "CONFIG_SHIMDMA_BD",
        15: "CONFIG_SHIMDMA_DMABUF_BD",
    }
)
"""Opcodes with a name but no published layout: refused by name."""

BY_CODE: Mapping[int, Opcode] = MappingProxyType({op.code: op for op in OPCODES})
BY_NAME: Mapping[str, Opcode] = MappingProxyType({op.name: op for op in OPCODES})

UNKNOWN_CUSTOM = OpLayout((), (CUSTOM_MIN_SIZE,), size_at=CUSTOM_SIZE_AT, payload_at=8)
"""Layout of any other opcode >= CUSTOM_BEGIN: a size and undocumented bytes."""


def find_layout(code: int, version: Version) -> OpLayout | None:
    """Returns the layout of an opcode, None if it has none in this version."""
    known = BY_CODE.get(code)
    if known is not None:
        return known.layouts[version]
    return UNKNOWN_CUSTOM if code >= CUSTOM_BEGIN else None


@cache
def name_of(code: int) -> str:
    """Returns the opcode's name; ``CUSTOM_n`` for an unknown custom op, ``OP_n`` for any other."""
    known = BY_CODE.get(code)
    if known is not None:
        return known.name
    unknown = f"CUSTOM_{code}" if code >= CUSTOM_BEGIN else f"OP_{code}"
    return NEVER_SERIALISED.get(code, unknown)
