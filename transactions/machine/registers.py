# SPDX-License-Identifier: Apache-2.0
"""The register map of the array as data: blocks, fields and ports by tile offset.

Three kinds of tile: ``shim`` (row 0), ``mem`` (row 1), ``core`` (rows 2 and up). An address is
``column << 25 | row << 20 | offset``, columns counted from the partition's first one.
Source: the public register headers of aie-rt and the binaries that AMD ships; offsets in bytes,
fields in bits of 32-bit words.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from onedispatch.transactions.base.cached import cached_property

COLUMN_SHIFT = 25
ROW_SHIFT = 20
OFFSET_MASK = (1 << ROW_SHIFT) - 1
ROW_MASK = 0x1F
SHIM_ROW, MEM_ROW, FIRST_CORE_ROW = 0, 1, 2
MAX_CORE_ROWS = ROW_MASK + 1 - FIRST_CORE_ROW
"""Core rows that an address can name; the device file states the actual number."""


@dataclass(frozen=True)
class Field:
    """Bits ``[lsb + width - 1 : lsb]`` of word ``word``; the value is ``raw + bias``."""

    name: str
    word: int
    lsb: int
    width: int
    bias: int = 0
    signed: bool = False
    doc: str = ""

    @cached_property
    def minimum(self) -> int:
        return (-(1 << (self.width - 1)) if self.signed else 0) + self.bias

    @cached_property
    def maximum(self) -> int:
        return (1 << (self.width - self.signed)) - 1 + self.bias


def field_of(fields: Iterable[Field], name: str) -> Field:
    """Returns the field of that name."""
    return next(field for field in fields if field.name == name)


def covered_bits(fields: Iterable[Field], words: int) -> tuple[int, ...]:
    """Returns, per word, the mask of the bits that fields cover."""
    bits = [0] * words
    for field in fields:
        bits[field.word] |= ((1 << field.width) - 1) << field.lsb
    return tuple(bits)


@dataclass(frozen=True)
class Block:
    """``count`` items of ``size`` bytes, ``stride`` bytes apart from ``offset`` on."""

    name: str
    offset: int
    count: int = 1
    stride: int = 4
    size: int = 4
    doc: str = ""

    @property
    def end(self) -> int:
        return self.at(self.count - 1) + self.size

    def at(self, index: int) -> int:
        """Returns the offset of item ``index``."""
        return self.offset + index * self.stride


@dataclass(frozen=True)
class Register:
    """A decoded offset of a tile: byte ``byte`` of item ``index`` of ``block``."""

    block: Block
    index: int
    byte: int

    def __str__(self) -> str:
        text = self.block.name
        if self.block.count > 1:
            text += f"[{self.index}]"
        return f"{text}+{self.byte:#x}" if self.byte else text


@dataclass(frozen=True)
class TileMap:
    """The register map of one kind of tile."""

    kind: str
    blocks: tuple[Block, ...]
    bd_fields: tuple[Field, ...]
    bd_words: int
    masters: tuple[str, ...]
    slaves: tuple[str, ...]
    memory_bytes: int
    """Memory of AMD's devices; of a larger memory, the part that tile addresses can reach."""
    own_lock_view: int
    """Added to a lock id in a BD to mean this tile's own lock."""
    own_memory_view: int
    """Added to a byte address in a BD to mean this tile's own memory."""

    @cached_property
    def block(self) -> Mapping[str, Block]:
        return MappingProxyType({block.name: block for block in self.blocks})

    @cached_property
    def bd_field(self) -> Mapping[str, Field]:
        return MappingProxyType({field.name: field for field in self.bd_fields})

    @cached_property
    def bd_reach(self) -> int:
        """Bytes of its own memory that a BD's base can name."""
        base = self.bd_field.get("base")
        return 4 * (base.maximum + 1) - self.own_memory_view if base else 0

    @cached_property
    def bd_covered(self) -> tuple[int, ...]:
        """Per BD word, the mask of the bits that fields cover."""
        return covered_bits(self.bd_fields, self.bd_words)

    @cached_property
    def _sections(self) -> tuple[tuple[int, int, tuple[Block, ...]], ...]:
        # Interleaved blocks (control and queue of a channel) share one section.
        sections: list[tuple[int, int, tuple[Block, ...]]] = []
        for block in sorted(self.blocks, key=lambda b: b.offset):
            if sections and block.offset < sections[-1][1]:
                start, end, inside = sections[-1]
                sections[-1] = (start, max(end, block.end), (*inside, block))
            else:
                sections.append((block.offset, block.end, (block,)))
        return tuple(sections)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(start for start, _, _ in self._sections)

    def find(self, offset: int) -> Register | None:
        """Returns the register at byte ``offset`` of the tile, None if no known register is there."""
        at = bisect.bisect_right(self._starts, offset) - 1
        if at < 0 or offset >= self._sections[at][1]:
            return None
        for block in self._sections[at][2]:
            index, byte = divmod(offset - block.offset, block.stride)
            if 0 <= index < block.count and byte < block.size:
                return Register(block, index, byte)
        return None

    def master(self, name: str) -> int:
        """Returns the index of a stream-switch master port, such as ``"NORTH_0"``."""
        return self.masters.index(name)

    def slave(self, name: str) -> int:
        """Returns the index of a stream-switch slave port, such as ``"SOUTH_3"``."""
        return self.slaves.index(name)


def _ports(*groups: tuple[str, int]) -> tuple[str, ...]:
    names: list[str] = []
    for name, count in groups:
        names += [f"{name}_{i}" for i in range(count)] if count else [name]
    return tuple(names)


def _dma(s2mm: int, mm2s: int, s2mm_status: int, mm2s_status: int, channels: int) -> tuple[Block, ...]:
    return (
        Block("DMA_S2MM_CTRL", s2mm, channels, 8, doc="channel control"),
        Block("DMA_S2MM_QUEUE", s2mm + 4, channels, 8, doc="a write pushes one task"),
        Block("DMA_MM2S_CTRL", mm2s, channels, 8, doc="channel control"),
        Block("DMA_MM2S_QUEUE", mm2s + 4, channels, 8, doc="a write pushes one task"),
        Block("DMA_S2MM_STATUS", s2mm_status, channels),
        Block("DMA_MM2S_STATUS", mm2s_status, channels),
    )


def _locks(values: int, count: int, overflow: int, underflow: int, requests: int) -> tuple[Block, ...]:
    status_words = (count + 31) // 32
    return (
        Block("LOCK_VALUE", values, count, 0x10, doc="a write sets the lock"),
        Block("LOCK_OVERFLOW", overflow, status_words),
        Block("LOCK_UNDERFLOW", underflow, status_words),
        Block(
            "LOCK_REQUEST",
            requests,
            count,
            LOCK_REQUEST_STRIDE,
            LOCK_REQUEST_STRIDE,
            "a read performs the request",
        ),
    )


def _switch(base: int, masters: tuple[str, ...], slaves: tuple[str, ...]) -> tuple[Block, ...]:
    return (
        Block("SWITCH_MASTER", base, len(masters)),
        Block("SWITCH_SLAVE", base + 0x100, len(slaves)),
        Block("SWITCH_SLOT", base + 0x200, len(slaves) * SLOTS_PER_SLAVE, doc="slave * 4 + slot"),
        Block("SWITCH_MERGE", base + 0x800, MERGE_ARBITERS, 0x10, 0x10, "deterministic merge"),
    )


def _timer(name: str, base: int) -> tuple[Block, ...]:
    return (
        Block(f"{name}_CONTROL", base),
        Block(f"{name}_LOW", base + 0xF8),
        Block(f"{name}_HIGH", base + 0xFC),
    )


# --- Words that are not BDs ---------------------------------------------------------------------

LOCK_REQUEST_STRIDE = 0x400
LOCK_REQUEST_ACQUIRE = 0x200
LOCK_REQUEST_VALUE_SHIFT = 2
LOCK_REQUEST_VALUE_MASK = 0x7F
LOCK_MAX = 63
SLOTS_PER_SLAVE = 4
ARBITERS = 8
MSELS = 4
QUEUE_DEPTH = 4
DMA_IDLE_MASK = 0x0078003C
"""Status bits that are all zero when a channel is idle: stalls, overflow, running, queue."""

QUEUE_FIELDS: tuple[Field, ...] = (
    Field("start_bd", 0, 0, 4, doc="first BD; 6 bits in a memory tile"),
    Field("repeat", 0, 16, 8, bias=1, doc="how often the chain runs"),
    Field("token", 0, 31, 1, doc="issue a completion token"),
)
MEM_QUEUE_FIELDS: tuple[Field, ...] = (
    Field("start_bd", 0, 0, 6, doc="first BD"),
    *QUEUE_FIELDS[1:],
)
CHANNEL_FIELDS: tuple[Field, ...] = (
    Field("reset", 0, 1, 1, doc="channel reset (core, mem)"),
    Field("pause_memory", 0, 1, 1, doc="shim only"),
    Field("pause_stream", 0, 2, 1, doc="shim only"),
    Field("out_of_order", 0, 3, 1, doc="S2MM only"),
    Field("compression", 0, 4, 1),
    Field("controller_id", 0, 8, 8, doc="packet id of the completion token"),
    Field("finish_on_tlast", 0, 16, 2),
)
STATUS_FIELDS: tuple[Field, ...] = (
    Field("state", 0, 0, 2, doc="0 idle"),
    Field("stalled_acquire", 0, 2, 1),
    Field("stalled_release", 0, 3, 1),
    Field("stalled_stream", 0, 4, 1, doc="starved (S2MM) or back-pressured (MM2S)"),
    Field("stalled_token", 0, 5, 1, doc="token or count FIFO full"),
    Field("error_memory", 0, 8, 2),
    Field("error_bd_unavailable", 0, 10, 1),
    Field("error_bd_invalid", 0, 11, 1),
    Field("error_fot_length", 0, 12, 1),
    Field("error_fot_bds", 0, 13, 1),
    Field("error_axi", 0, 16, 2, doc="shim only"),
    Field("queue_overflow", 0, 18, 1),
    Field("running", 0, 19, 1),
    Field("queue_size", 0, 20, 3),
    Field("current_bd", 0, 24, 6, doc="4 bits in shim and core"),
)
MASTER_FIELDS: tuple[Field, ...] = (
    Field("slave", 0, 0, 7, doc="circuit mode: slave port"),
    Field("arbiter", 0, 0, 3, doc="packet mode"),
    Field("msel_enable", 0, 3, 4, doc="packet mode: mask of msels"),
    Field("drop_header", 0, 7, 1),
    Field("packet", 0, 30, 1),
    Field("enable", 0, 31, 1),
)
SLAVE_FIELDS: tuple[Field, ...] = (Field("packet", 0, 30, 1), Field("enable", 0, 31, 1))
MERGE_TURNS = 4
MERGE_FIELDS: tuple[Field, ...] = (
    *(
        field
        for turn in range(MERGE_TURNS)
        for field in (
            Field(f"slave{turn}", turn // 2, turn % 2 * 16, 5, doc="port whose packets come next"),
            Field(f"packets{turn}", turn // 2, turn % 2 * 16 + 8, 6, doc="how many of them"),
        )
    ),
    Field("enable", 2, 0, 1, doc="packets pass in this order alone, over and over"),
)
"""Deterministic merge of one of the first MERGE_ARBITERS arbiters. ASSUMPTION: the layout follows aie-rt's
headers for AIE-ML; no public transaction writes these registers."""
MERGE_ARBITERS = 2
SLOT_FIELDS: tuple[Field, ...] = (
    Field("arbiter", 0, 0, 3),
    Field("msel", 0, 4, 2),
    Field("enable", 0, 8, 1),
    Field("mask", 0, 16, 5, doc="(header id & mask) == id"),
    Field("id", 0, 24, 5),
)
PACKET_HEADER_FIELDS: tuple[Field, ...] = (
    Field("id", 0, 0, 5),
    Field("type", 0, 12, 3),
    Field("source_row", 0, 16, 5),
    Field("source_column", 0, 21, 7),
    Field("parity", 0, 31, 1, doc="odd parity of the word"),
)
CONTROL_PACKET_FIELDS: tuple[Field, ...] = (
    Field("offset", 0, 0, 20, doc="offset in the tile"),
    Field("beats", 0, 20, 2, bias=1, doc="data words"),
    Field("operation", 0, 22, 2, doc="0 write, 1 read, 2 write and increment"),
    Field("return_id", 0, 24, 5),
    Field("parity", 0, 31, 1, doc="odd parity of the word"),
)
CORE_CONTROL_FIELDS: tuple[Field, ...] = (Field("enable", 0, 0, 1), Field("reset", 0, 1, 1))
CORE_STATUS_FIELDS: tuple[Field, ...] = (
    Field("enabled", 0, 0, 1),
    Field("reset", 0, 1, 1),
    Field("memory_stall", 0, 2, 4, doc="south, west, north, east"),
    Field("lock_stall", 0, 6, 4, doc="south, west, north, east"),
    Field("stream_stall_slave", 0, 10, 1),
    Field("stream_stall_master", 0, 12, 1),
    Field("cascade_stall", 0, 14, 2, doc="in, out"),
    Field("debug_halt", 0, 16, 1),
    Field("ecc_stall", 0, 17, 1),
    Field("ecc_scrub", 0, 18, 1),
    Field("error_halt", 0, 19, 1),
    Field("done", 0, 20, 1),
    Field("bus_stall", 0, 21, 1),
)
TCT_FIELDS: tuple[Field, ...] = (
    Field("direction", 0, 0, 8, doc="0 S2MM, 1 MM2S"),
    Field("row", 0, 8, 8),
    Field("column", 0, 16, 8),
    Field("rows", 1, 8, 8),
    Field("columns", 1, 16, 8),
    Field("channel", 1, 24, 8),
)

# --- Shim ---------------------------------------------------------------------------------------


def _lock_word(word: int) -> tuple[Field, ...]:
    return (
        Field("acquire_lock", word, 0, 4),
        Field("acquire_value", word, 5, 7, signed=True, doc="-n: wait for >= n, take n"),
        Field("acquire_enable", word, 12, 1),
        Field("release_lock", word, 13, 4),
        Field("release_value", word, 18, 7, signed=True, doc="0 = no release"),
        Field("valid", word, 25, 1),
        Field("use_next", word, 26, 1),
        Field("next_bd", word, 27, 4),
        Field("suppress_tlast", word, 31, 1),
    )


_SHIM_BD = (
    Field("length", 0, 0, 32, doc="words"),
    Field("address_low", 1, 2, 30, doc="bits 31:2 of the byte address"),
    Field("address_high", 2, 0, 16, doc="bits 47:32 of the byte address"),
    Field("packet_type", 2, 16, 3),
    Field("packet_id", 2, 19, 5),
    Field("ooo_bd_id", 2, 24, 6),
    Field("enable_packet", 2, 30, 1),
    Field("d0_step", 3, 0, 20, bias=1, doc="words"),
    Field("d0_wrap", 3, 20, 10, doc="count, 0 = no wrap"),
    Field("secure", 3, 30, 1),
    Field("d1_step", 4, 0, 20, bias=1),
    Field("d1_wrap", 4, 20, 10),
    Field("burst", 4, 30, 2, doc="0 64 B, 1 128 B, 2 256 B, 3 512 B (XDNA2)"),
    Field("d2_step", 5, 0, 20, bias=1),
    Field("axqos", 5, 20, 4),
    Field("axcache", 5, 24, 4),
    Field("smid", 5, 28, 4),
    Field("iteration_step", 6, 0, 20, bias=1),
    Field("iteration_wrap", 6, 20, 6, bias=1),
    Field("iteration_current", 6, 26, 6),
    *_lock_word(7),
)
_SHIM_MASTERS = _ports(("CONTROL", 0), ("FIFO", 0), ("SOUTH", 6), ("WEST", 4), ("NORTH", 6), ("EAST", 4))
_SHIM_SLAVES = _ports(
    ("CONTROL", 0),
    ("FIFO", 0),
    ("SOUTH", 8),
    ("WEST", 4),
    ("NORTH", 4),
    ("EAST", 4),
    ("TRACE", 0),
)
SHIM = TileMap(
    "shim",
    (
        *_locks(0x14000, 16, 0x14120, 0x14128, 0x40000),
        Block("DMA_BD", 0x1D000, 16, 0x20, 0x20),
        *_dma(0x1D200, 0x1D210, 0x1D220, 0x1D228, 2),
        Block("DMA_S2MM_WRITE_COUNT", 0x1D230, 2),
        Block("DMA_S2MM_FOT_COUNT", 0x1D238, 2),
        Block("MUX", 0x1F000, doc="shim into the array"),
        Block("DEMUX", 0x1F004, doc="array into the shim"),
        *_timer("TIMER", 0x34000),
        *_switch(0x3F000, _SHIM_MASTERS, _SHIM_SLAVES),
        Block("MODULE_CLOCK", 0xFFF00),
        Block("MODULE_RESET", 0xFFF10, 2),
        Block("COLUMN_CLOCK", 0xFFF20),
        Block("COLUMN_RESET", 0xFFF28),
    ),
    _SHIM_BD,
    8,
    _SHIM_MASTERS,
    _SHIM_SLAVES,
    memory_bytes=0,
    own_lock_view=0,
    own_memory_view=0,
)
SHIM_MM2S_SLAVES = (SHIM.slave("SOUTH_3"), SHIM.slave("SOUTH_7"))
"""Switch slave that shim MM2S channel 0 / 1 enters."""
SHIM_S2MM_MASTERS = (SHIM.master("SOUTH_2"), SHIM.master("SOUTH_3"))
"""Switch master that feeds shim S2MM channel 0 / 1."""
MUX_FIELDS: tuple[Field, ...] = tuple(
    Field(f"south_{port}", 0, lsb, 2, doc="0 PL, 1 DMA, 2 NoC")
    for port, lsb in ((2, 8), (3, 10), (6, 12), (7, 14))
)
DEMUX_FIELDS: tuple[Field, ...] = tuple(
    Field(f"south_{port}", 0, lsb, 2, doc="0 PL, 1 DMA, 2 NoC")
    for port, lsb in ((2, 4), (3, 6), (4, 8), (5, 10))
)

# --- Memory tile --------------------------------------------------------------------------------

_MEM_BD = (
    Field("length", 0, 0, 17, doc="words"),
    Field("ooo_bd_id", 0, 17, 6),
    Field("packet_id", 0, 23, 5),
    Field("packet_type", 0, 28, 3),
    Field("enable_packet", 0, 31, 1),
    Field("base", 1, 0, 19, doc="words; own memory from 0x20000 on"),
    Field("use_next", 1, 19, 1),
    Field("next_bd", 1, 20, 6),
    Field("d0_zeros_before", 1, 26, 6, doc="words"),
    Field("d0_step", 2, 0, 17, bias=1, doc="words"),
    Field("d0_wrap", 2, 17, 10, doc="count, 0 = no wrap"),
    Field("suppress_tlast", 2, 31, 1),
    Field("d1_step", 3, 0, 17, bias=1),
    Field("d1_wrap", 3, 17, 10),
    Field("d1_zeros_before", 3, 27, 5, doc="d0 rows"),
    Field("d2_step", 4, 0, 17, bias=1),
    Field("d2_wrap", 4, 17, 10),
    Field("d2_zeros_before", 4, 27, 4, doc="d1 planes"),
    Field("enable_compression", 4, 31, 1),
    Field("d3_step", 5, 0, 17, bias=1),
    Field("d0_zeros_after", 5, 17, 6),
    Field("d1_zeros_after", 5, 23, 5),
    Field("d2_zeros_after", 5, 28, 4),
    Field("iteration_step", 6, 0, 17, bias=1),
    Field("iteration_wrap", 6, 17, 6, bias=1),
    Field("iteration_current", 6, 23, 6),
    Field("acquire_lock", 7, 0, 8, doc="own locks from 64 on"),
    Field("acquire_value", 7, 8, 7, signed=True, doc="-n: wait for >= n, take n"),
    Field("acquire_enable", 7, 15, 1),
    Field("release_lock", 7, 16, 8),
    Field("release_value", 7, 24, 7, signed=True, doc="0 = no release"),
    Field("valid", 7, 31, 1),
)
_MEM_MASTERS = _ports(("DMA", 6), ("CONTROL", 0), ("SOUTH", 4), ("NORTH", 6))
_MEM_SLAVES = _ports(("DMA", 6), ("CONTROL", 0), ("SOUTH", 6), ("NORTH", 4), ("TRACE", 0))
MEM = TileMap(
    "mem",
    (
        Block("MEMORY", 0, 1, 0x80000, 0x80000),
        *_timer("TIMER", 0x94000),
        Block("MEMORY_CONTROL", 0x96048, doc="bit 0 zero all, bit 1 interleave"),
        Block("DMA_BD", 0xA0000, 48, 0x20, 0x20),
        *_dma(0xA0600, 0xA0630, 0xA0660, 0xA0680, 6),
        Block("DMA_S2MM_WRITE_COUNT", 0xA06B0, 6),
        Block("DMA_S2MM_FOT_COUNT", 0xA06C8, 6),
        Block("DMA_MM2S_PAD_VALUE", 0xA06E0, 6, doc="XDNA2: what zero padding inserts"),
        *_switch(0xB0000, _MEM_MASTERS, _MEM_SLAVES),
        *_locks(0xC0000, 64, 0xC0420, 0xC0428, 0xD0000),
        Block("MODULE_CLOCK", 0xFFF00),
        Block("MODULE_RESET", 0xFFF10),
    ),
    _MEM_BD,
    8,
    _MEM_MASTERS,
    _MEM_SLAVES,
    memory_bytes=0x80000,
    own_lock_view=64,
    own_memory_view=0x80000,
)

# --- Core tile ----------------------------------------------------------------------------------

_CORE_BD = (
    Field("length", 0, 0, 14, doc="words"),
    Field("base", 0, 14, 14, doc="words"),
    Field("packet_type", 1, 16, 3),
    Field("packet_id", 1, 19, 5),
    Field("ooo_bd_id", 1, 24, 6),
    Field("enable_packet", 1, 30, 1),
    Field("enable_compression", 1, 31, 1),
    Field("d0_step", 2, 0, 13, bias=1, doc="words"),
    Field("d1_step", 2, 13, 13, bias=1),
    Field("d2_step", 3, 0, 13, bias=1),
    Field("d0_wrap", 3, 13, 8, doc="count, 0 = no wrap"),
    Field("d1_wrap", 3, 21, 8),
    Field("iteration_step", 4, 0, 13, bias=1),
    Field("iteration_wrap", 4, 13, 6, bias=1),
    Field("iteration_current", 4, 19, 6),
    *_lock_word(5),
)
_CORE_MASTERS = _ports(
    ("CORE", 0),
    ("DMA", 2),
    ("CONTROL", 0),
    ("FIFO", 0),
    ("SOUTH", 4),
    ("WEST", 4),
    ("NORTH", 6),
    ("EAST", 4),
)
_CORE_SLAVES = _ports(
    ("CORE", 0),
    ("DMA", 2),
    ("CONTROL", 0),
    ("FIFO", 0),
    ("SOUTH", 6),
    ("WEST", 4),
    ("NORTH", 4),
    ("EAST", 4),
    ("CORE_TRACE", 0),
    ("MEM_TRACE", 0),
)
CORE = TileMap(
    "core",
    (
        Block("MEMORY", 0, 1, 0x10000, 0x10000),
        *_timer("MEMORY_TIMER", 0x14000),
        Block("MEMORY_CONTROL", 0x16010, doc="bit 0 zero all"),
        Block("DMA_BD", 0x1D000, 16, 0x20, 0x18),
        *_dma(0x1DE00, 0x1DE10, 0x1DF00, 0x1DF10, 2),
        Block("DMA_S2MM_WRITE_COUNT", 0x1DF18, 2),
        Block("DMA_S2MM_FOT_COUNT", 0x1DF20, 2),
        *_locks(0x1F000, 16, 0x1F120, 0x1F128, 0x40000),
        Block("PROGRAM_MEMORY", 0x20000, 1, 0x4000, 0x4000),
        Block("REGISTER_WINDOW", 0x30000, 1, 0x1100, 0x1100, "accumulators, vectors (debug)"),
        Block("CORE_PC", 0x31100),
        Block("CORE_SP", 0x31120),
        Block("CORE_LR", 0x31130),
        Block("CORE_CONTROL", 0x32000),
        Block("CORE_STATUS", 0x32004),
        Block("CORE_ENABLE_EVENTS", 0x32008),
        *_timer("TIMER", 0x34000),
        Block("TILE_CONTROL", 0x36030),
        Block("CASCADE_CONTROL", 0x36060, doc="bit 0 input, bit 1 output direction"),
        Block("CORE_MEMORY_ZEROISE", 0x36070),
        *_switch(0x3F000, _CORE_MASTERS, _CORE_SLAVES),
        Block("MODULE_CLOCK", 0x60000),
        Block("MODULE_RESET", 0x60010, doc="bit 0 switch, 1 memory, 2 core"),
    ),
    _CORE_BD,
    6,
    _CORE_MASTERS,
    _CORE_SLAVES,
    memory_bytes=0x10000,
    own_lock_view=0,
    own_memory_view=0,
)
CORE_VIEW_MEMORY = 0x70000
"""A core's own data memory in its load/store view."""
CORE_VIEW_END = 1 << 20
"""Pointers of a core have 20 bits; AM020."""
CORE_VIEW_LOCKS = 48
"""A core's own lock 0 in its lock view."""

TILES: Mapping[str, TileMap] = MappingProxyType({"shim": SHIM, "mem": MEM, "core": CORE})


def kind_of_row(row: int) -> str | None:
    """Returns ``"shim"``, ``"mem"`` or ``"core"``; None for a row that no address can name."""
    if row == SHIM_ROW:
        return "shim"
    if row == MEM_ROW:
        return "mem"
    return "core" if FIRST_CORE_ROW <= row <= ROW_MASK else None


def split_address(address: int) -> tuple[int, int, int]:
    """Returns column, row and offset of an address."""
    return address >> COLUMN_SHIFT, (address >> ROW_SHIFT) & ROW_MASK, address & OFFSET_MASK


@lru_cache(maxsize=1 << 14)
def find_register(address: int) -> Register | None:
    """Returns the register at an address, None if the row or the offset is unknown."""
    _, row, offset = split_address(address)
    kind = kind_of_row(row)
    return TILES[kind].find(offset) if kind else None
