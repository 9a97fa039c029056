# SPDX-License-Identifier: Apache-2.0
"""The universal overlay: routes, programs and locks that every operator shares.

One transaction, loaded once per context. Reloading an overlay costs milliseconds on
silicon, so operators differ in buffer descriptors, locks and parameters only.

Per column (lanes are stream-switch ports between neighbouring rows):
    shim MM2S0 -> mem S2MM0 (feed 0)      shim MM2S1 -> mem S2MM1 (feed 1)
    mem MM2S0  -> lane 0, circuit: broadcast to S2MM1 of all four cores (in1)
    mem MM2S1+r -> lane 1+r, packets: id 0 to core r, id 1 to the whole row r (in0)
    core r MM2S0 -> lane r downwards -> mem S2MM2+r (out)
    mem MM2S5  -> shim S2MM0 (drain)
    tokens of shim and memory tile -> the controller (``token_routes``); cores have no lane for them
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

from onedispatch.operators.declarations import params
from onedispatch.operators.declarations.kernel import Kernel
from onedispatch.operators.declarations.params import PARAM_LOCKS
from onedispatch.operators.declarations.params import WORDS as PARAM_WORDS
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.transactions import (
    CoreBd,
    Device,
    MemBd,
    TransactionBuilder,
    circuit_master,
    packet_master,
    switch_slave,
    switch_slot,
)
from onedispatch.transactions.machine import registers as reg
from onedispatch.transactions.packets.token_routes import lay_token_routes

CORE_ROWS = reg.CORE_ROWS

OWN_PACKET, ROW_PACKET = 0, 1  # packet ids on the in0 lanes
_MSEL_OWN, _MSEL_SPREAD, _MSEL_WEST, _MSEL_EAST = range(4)

# Core locks: (empty, full) by (port, depth); ports as in params: 0 in0, 1 in1, 2 out.
CORE_LOCKS = {
    (0, 2): (0, 1),
    (1, 2): (2, 3),
    (2, 1): (4, 5),
    (2, 2): (6, 7),
    (0, 1): (8, 9),
    (1, 1): (10, 11),
}
CORE_PARAM_BD = 15
CORE_BUFFERS_AT = PARAM_WORDS * 4

MEM_RINGS = 30  # lock pairs (2i, 2i + 1)
RING_SLOTS = 2
MEM_PARAM_LOCKS = (62, 63)
MEM_PARAM_IN_BD, MEM_PARAM_OUT_BD = 47, 23
MEM_PARAM_AT = reg.TILES["mem"].memory_bytes - PARAM_WORDS * 4


@cache
def overlay_transaction(device: Device, kernels: tuple[Kernel, ...] | None = None) -> bytes:
    """The overlay of ``device`` as a transaction (v0.1); cores carry ``kernels``, or all declared ones."""
    image = program_image(all_kernels() if kernels is None else kernels)
    builder = TransactionBuilder(device.device_generation, device.columns)
    for column in range(device.columns):
        _shim(builder, column)
        _mem(builder, column)
        lay_token_routes(builder, column)
        for row in range(CORE_ROWS):
            _core(builder, column, row, device.columns)
    for column in range(device.columns):
        for row in range(CORE_ROWS):
            _start(builder, column, row, image)
    return builder.to_bytes()


class _Tile:
    """Register writes to one tile, by register name."""

    def __init__(self, builder: TransactionBuilder, column: int, row: int) -> None:
        self.builder = builder
        kind = reg.kind_of_row(row)
        self.map = reg.TILES[kind or "core"]
        self.base = column << reg.COLUMN_SHIFT | row << reg.ROW_SHIFT

    def address(self, block: str, index: int = 0) -> int:
        found = self.map.block[block]
        return self.base + found.offset + index * found.stride

    def write(self, block: str, value: int, index: int = 0) -> None:
        self.builder.write(self.address(block, index), value)

    def lock(self, index: int, value: int) -> None:
        self.write("LOCK_VALUE", value, index)

    def circuit(self, slave: str, *masters: str) -> None:
        """Connect ``slave`` to every one of ``masters``."""
        port = self.map.slave(slave)
        self.write("SWITCH_SLAVE", switch_slave(), port)
        for master in masters:
            self.write("SWITCH_MASTER", circuit_master(port), self.map.master(master))

    def packet_slave(self, slave: str, slots: dict[int, int]) -> None:
        """Packet ids of ``slave`` that are taken, with the msel of each (arbiter 0)."""
        port = self.map.slave(slave)
        self.write("SWITCH_SLAVE", switch_slave(packet=True), port)
        for slot, (packet, msel) in enumerate(slots.items()):
            word = switch_slot(packet, arbiter=0, msel=msel)
            self.write("SWITCH_SLOT", word, port * reg.SLOTS_PER_SLAVE + slot)

    def packet_master(self, master: str, msels: tuple[int, ...], drop_header: bool = False) -> None:
        mask = sum(1 << msel for msel in msels)
        word = packet_master(0, mask, drop_header)
        self.write("SWITCH_MASTER", word, self.map.master(master))


def _shim(builder: TransactionBuilder, column: int) -> None:
    tile = _Tile(builder, column, reg.SHIM_ROW)
    tile.write("MUX", 1 << 10 | 1 << 14)  # South 3 and 7 come from the DMA
    tile.write("DEMUX", 1 << 4)  # South 2 goes to the DMA
    tile.circuit("SOUTH_3", "NORTH_0")
    tile.circuit("SOUTH_7", "NORTH_1")
    tile.circuit("NORTH_0", "SOUTH_2")


def _mem(builder: TransactionBuilder, column: int) -> None:
    tile = _Tile(builder, column, reg.MEM_ROW)
    tile.circuit("SOUTH_0", "DMA_0")
    tile.circuit("SOUTH_1", "DMA_1")
    for lane in range(1 + CORE_ROWS):
        tile.circuit(f"DMA_{lane}", f"NORTH_{lane}")
    for row in range(CORE_ROWS):
        tile.circuit(f"NORTH_{row}", f"DMA_{2 + row}")
    tile.circuit("DMA_5", "SOUTH_0")
    for ring in range(MEM_RINGS):
        tile.lock(2 * ring, RING_SLOTS)
        tile.lock(2 * ring + 1, 0)
    empty, full = MEM_PARAM_LOCKS
    tile.lock(empty, 1)
    tile.lock(full, 0)
    for index, words in mem_param_bds(PARAM_WORDS):
        builder.blockwrite(tile.address("DMA_BD", index), words)


def _core(builder: TransactionBuilder, column: int, row: int, columns: int) -> None:
    tile = _Tile(builder, column, reg.FIRST_CORE_ROW + row)
    top = row == CORE_ROWS - 1
    tile.circuit("SOUTH_0", "DMA_1", *([] if top else ["NORTH_0"]))
    for above in range(row + 1, CORE_ROWS):
        tile.circuit(f"SOUTH_{1 + above}", f"NORTH_{1 + above}")
        tile.circuit(f"NORTH_{above}", f"SOUTH_{above}")
    tile.circuit("DMA_0", f"SOUTH_{row}")
    tile.packet_slave(f"SOUTH_{1 + row}", {OWN_PACKET: _MSEL_OWN, ROW_PACKET: _MSEL_SPREAD})
    tile.packet_slave("EAST_0", {ROW_PACKET: _MSEL_WEST})
    tile.packet_slave("WEST_0", {ROW_PACKET: _MSEL_EAST})
    everything = (_MSEL_OWN, _MSEL_SPREAD, _MSEL_WEST, _MSEL_EAST)
    tile.packet_master("DMA_0", everything, drop_header=True)
    if column > 0:
        tile.packet_master("WEST_0", (_MSEL_SPREAD, _MSEL_WEST))
    if column < columns - 1:
        tile.packet_master("EAST_0", (_MSEL_SPREAD, _MSEL_EAST))
    for (_, depth), (empty, full) in CORE_LOCKS.items():
        tile.lock(empty, depth)
        tile.lock(full, 0)
    tile.lock(PARAM_LOCKS[0], 1)
    tile.lock(PARAM_LOCKS[1], 0)
    index, words = core_param_bd(PARAM_WORDS)
    builder.blockwrite(tile.address("DMA_BD", index), words)


def _start(builder: TransactionBuilder, column: int, row: int, image: list[int]) -> None:
    tile = _Tile(builder, column, reg.FIRST_CORE_ROW + row)
    builder.blockwrite(tile.address("PROGRAM_MEMORY"), image)
    tile.write("CORE_CONTROL", 2)  # reset
    tile.write("CORE_CONTROL", 0)
    tile.write("CORE_CONTROL", 1)  # run


def program_image(kernels: Iterable[Kernel]) -> list[int]:
    """The super kernel's image: which program it is, the digests of the ``kernels`` it carries, a hash."""
    digests = sorted(kernel.digest for kernel in kernels)
    head = [params.IMAGE_MAGIC, params.SUPER_KERNEL_ID, params.SUPER_KERNEL_VERSION, len(digests)]
    words = [*head, *digests]
    return [*words, image_hash(words)]


def image_hash(words: Iterable[int]) -> int:
    """32-bit FNV-1a over the little-endian bytes of ``words``."""
    value = params.HASH_BASIS
    for word in words:
        for byte in int(word).to_bytes(4, "little"):
            value = (value ^ byte) * params.HASH_PRIME & 0xFFFFFFFF
    return value


def mem_param_bds(words: int) -> list[tuple[int, tuple[int, ...]]]:
    """(number, BD) of a memory tile for parameter blocks of so many words: in, then out."""
    empty, full = MEM_PARAM_LOCKS
    at = MEM_PARAM_AT - 4 * (words - PARAM_WORDS)
    return [
        (MEM_PARAM_IN_BD, mem_bd(at, words, empty, full)),
        (MEM_PARAM_OUT_BD, mem_bd(at, words, full, empty)),
    ]


def core_param_bd(words: int) -> tuple[int, tuple[int, ...]]:
    """(number, BD) of a core for parameter blocks of so many words."""
    return CORE_PARAM_BD, core_bd(0, words, *PARAM_LOCKS)


@lru_cache(maxsize=4096)  # columns, and operators of one kind, have the same ones
def core_bd(base: int, words: int, acquire: int, release: int, slots: int = 1) -> tuple[int, ...]:
    """A core BD over ``slots`` buffers in turn, from byte ``base``, that takes one and gives one."""
    described = CoreBd.at(
        base,
        words,
        iteration=(words, slots) if slots > 1 else None,
        acquire=(acquire, -1),
        release=(release, 1),
    )
    return tuple(described.to_words())


@lru_cache(maxsize=4096)
def mem_bd(
    base: int,
    words: int,
    acquire: int,
    release: int,
    slots: int = 1,
    next_bd: int | None = None,
    packet: int | None = None,
    count: int = 1,
    slot_words: int = 0,
) -> tuple[int, ...]:
    """The same in a memory tile: locks move by ``count``, slots lie ``slot_words`` apart.

    ``packet`` prepends a packet header with that id.
    """
    described = MemBd.at(
        base,
        words,
        iteration=(slot_words or words, slots) if slots > 1 else None,
        acquire=(acquire, -count),
        release=(release, count),
        next_bd=next_bd,
        packet_id=packet,
    )
    return tuple(described.to_words())
