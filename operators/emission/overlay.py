# SPDX-License-Identifier: Apache-2.0
"""The universal overlay: routes, programs and locks that every operator shares.

One transaction, loaded once per context. Reloading an overlay costs milliseconds on
silicon, so operators differ in buffer descriptors, locks and parameters only.

Per column (``resources`` says what lanes are, and which rows share one), with l = r % 4, g = r // 4:
    shim MM2S0 -> mem S2MM0 (feed 0)      shim MM2S1 -> mem S2MM1 (feed 1), packets with id 0
    shim MM2S1 -> lane 5, packets with other ids: to control ports of memory tile and cores (``control``)
    mem MM2S0  -> lane 0, circuit: broadcast to S2MM1 of all cores (in1)
    mem MM2S1+l -> lane 1+l, packets: id 2g to core r, id 2g+1 to the whole row r (in0)
    core r MM2S0 -> lane l downwards -> mem S2MM2+l (out); packets that take turns where rows share it
    mem MM2S5  -> shim S2MM0 (drain)
    tokens of shim and memory tile -> the controller (``token_routes``); cores have no lane for them
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache

from onedispatch.operators.declarations.params import PARAM_LOCKS
from onedispatch.operators.declarations.params import WORDS as PARAM_WORDS
from onedispatch.operators.emission import control
from onedispatch.operators.emission.image import EMPTY, Image
from onedispatch.operators.scheduling.access_pattern import Pattern
from onedispatch.operators.scheduling.resources import ROW_LANES, Resources, resources
from onedispatch.transactions import (
    CoreBd,
    Device,
    MemBd,
    ShimBd,
    TransactionBuilder,
    Xclbin,
    circuit_master,
    packet_master,
    queue_word,
    switch_merge,
    switch_slave,
    switch_slot,
)
from onedispatch.transactions.base.errors import DeviceError
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.machine import registers as reg
from onedispatch.transactions.packets.token_routes import lay_token_routes

OWN_PACKET, ROW_PACKET = 0, 1  # packet ids on the in0 lanes, of a lane's first row
OUT_PACKET = 0  # of results where rows share a lane
IN_ARBITER, OUT_ARBITER, PASS_ARBITER = 0, 1, 2  # the first two can merge deterministically
CONTROL_ARBITER = 3
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
CORE_BUFFERS_AT = PARAM_WORDS * 4

RING_SLOTS = 2
_RUN, _RESET = 1, 2  # of core control
_LOCK_VALUE_MASK = 0x3F
_PARAMETER_CHANNEL = 1  # S2MM of a core: in1, and parameter blocks


def overlay_xclbin(device: Device, image: Image = EMPTY) -> bytes:
    """The container that a hardware context loads: the overlay of ``device`` alone. Raises as below."""
    return Xclbin(device.name, {0: overlay_transaction(device, image)}).to_bytes()


@lru_cache(maxsize=16)
def overlay_transaction(device: Device, image: Image = EMPTY) -> bytes:
    """The overlay of ``device`` as a transaction (v0.1); cores carry the kernels of ``image``.

    Loading it is configuration before any run, and part of none: it is charged where a transaction does it
    (LOADPDI), not here.

    Raises ``DeviceError`` for a device that has too little for it.
    """
    limits = resources(device)
    if image.nbytes > device.count("core.program_memory_bytes"):
        raise DeviceError(
            f"the program memory of {device.name}",
            f"an image of {counted(image.nbytes, 'byte')} with {image}",
            f"at most {device.count('core.program_memory_bytes')}",
            "link fewer kernels, or for fewer element types",
        )
    builder = deepcopy(_routed(device))
    program = struct.pack(f"<{len(image.words)}I", *image.words)
    for column in range(device.columns):
        for row in range(limits.rows):
            _start(builder, column, row, program)
    return builder.to_bytes()


@lru_cache(maxsize=16)
def _routed(device: Device) -> TransactionBuilder:
    """The part of an overlay that all images have; callers copy it before they go on."""
    builder, limits = TransactionBuilder.for_device(device), resources(device)
    for column in range(device.columns):
        _shim(builder, column)
        _mem(builder, column, limits)
        lay_token_routes(builder, column)
        for row in range(limits.rows):
            _core(builder, column, row, limits)
    return builder


def own_packet(row: int) -> int:
    """The id of what core ``row`` alone takes on its lane."""
    return OWN_PACKET + 2 * (row // ROW_LANES)


def row_packet(row: int) -> int:
    """The id of what the whole row takes."""
    return ROW_PACKET + 2 * (row // ROW_LANES)


def out_packet(limits: Resources, row: int) -> int | None:
    """The packet id of a core's results; None where its lane is its own."""
    return OUT_PACKET if len(limits.rows_of_lane(row % ROW_LANES)) > 1 else None


def merge_words(limits: Resources, row: int) -> list[int]:
    """Who takes turns on the lane that core ``row`` shares with rows above: it, then they."""
    core = reg.TILES["core"]
    above = len(limits.rows_of_lane(row % ROW_LANES)) - 1 - row // ROW_LANES
    turns = [(core.slave("DMA_0"), 1), (core.slave(f"NORTH_{row % ROW_LANES}"), above)]
    return switch_merge(turns)


class _Tile:
    """Register writes to one tile, by register name."""

    def __init__(self, builder: TransactionBuilder, column: int, row: int) -> None:
        self.builder = builder
        kind = reg.kind_of_row(row)
        self.map = reg.TILES[kind or "core"]
        self.base = column << reg.COLUMN_SHIFT | row << reg.ROW_SHIFT

    def address(self, block: str, index: int = 0) -> int:
        found = self.map.block[block]
        return self.base + found.at(index)

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

    def packet_slave(self, slave: str, slots: dict[int, int], others: int | None = None) -> None:
        """The msel of each packet id that ``slave`` takes; ``others``: the arbiter of all else."""
        words = [switch_slot(packet, IN_ARBITER, msel) for packet, msel in slots.items()]
        words += [] if others is None else [switch_slot(0, others, 0, mask=0)]
        self._packets(slave, words)

    def packets(self, slave: str, arbiter: int, slots: control.Slots) -> None:
        """``slave`` takes packets by ``slots``, all to one arbiter."""
        self._packets(slave, [switch_slot(one, arbiter, msel, mask) for one, mask, msel in slots])

    def _packets(self, slave: str, words: Sequence[int]) -> None:
        port = self.map.slave(slave)
        self.write("SWITCH_SLAVE", switch_slave(packet=True), port)
        for slot, word in enumerate(words):
            self.write("SWITCH_SLOT", word, port * reg.SLOTS_PER_SLAVE + slot)

    def packet_master(
        self, master: str, msels: tuple[int, ...], drop_header: bool = False, arbiter: int = IN_ARBITER
    ) -> None:
        mask = sum(1 << msel for msel in msels)
        word = packet_master(arbiter, mask, drop_header)
        self.write("SWITCH_MASTER", word, self.map.master(master))


def _shim(builder: TransactionBuilder, column: int) -> None:
    tile = _Tile(builder, column, reg.SHIM_ROW)
    tile.write("MUX", 1 << 10 | 1 << 14)  # South 3 and 7 come from the DMA
    tile.write("DEMUX", 1 << 4)  # South 2 goes to the DMA
    tile.circuit("SOUTH_3", "NORTH_0")
    tile.circuit("NORTH_0", "SOUTH_2")
    tile.packets("SOUTH_7", CONTROL_ARBITER, control.AT_SHIM)
    tile.packet_master("NORTH_1", (0,), drop_header=True, arbiter=CONTROL_ARBITER)
    tile.packet_master(control.LANE, (1,), arbiter=CONTROL_ARBITER)


def _mem(builder: TransactionBuilder, column: int, limits: Resources) -> None:
    tile = _Tile(builder, column, reg.MEM_ROW)
    tile.circuit("SOUTH_0", "DMA_0")
    tile.circuit("SOUTH_1", "DMA_1")
    lanes = min(limits.rows, ROW_LANES)
    for lane in range(1 + lanes):
        tile.circuit(f"DMA_{lane}", f"NORTH_{lane}")
    for lane in range(lanes):
        tile.circuit(f"NORTH_{lane}", f"DMA_{2 + lane}")
    tile.circuit("DMA_5", "SOUTH_0")
    tile.packets(control.ARRIVES, CONTROL_ARBITER, control.AT_MEM)
    tile.packet_master("CONTROL", (0,), arbiter=CONTROL_ARBITER)
    tile.packet_master(control.LANE, (1,), arbiter=CONTROL_ARBITER)
    for ring in range(limits.rings):
        tile.lock(2 * ring, RING_SLOTS)
        tile.lock(2 * ring + 1, 0)
    empty, full = limits.mem_param_locks
    tile.lock(empty, 1)
    tile.lock(full, 0)
    in_bd, out_bd = limits.mem_param_bds
    for index, words in (
        (in_bd, mem_bd(limits.mem_param_at, PARAM_WORDS, (empty, full))),
        (out_bd, mem_bd(limits.mem_param_at, PARAM_WORDS, (full, empty))),
    ):
        builder.blockwrite(tile.address("DMA_BD", index), words)


def _core(builder: TransactionBuilder, column: int, row: int, limits: Resources) -> None:
    tile = _Tile(builder, column, reg.FIRST_CORE_ROW + row)
    own, row_id, columns = row % ROW_LANES, row_packet(row), limits.device.columns
    lanes_above = {above % ROW_LANES for above in range(row + 1, limits.rows)}
    tile.circuit("SOUTH_0", "DMA_1", *(["NORTH_0"] if lanes_above else []))
    for lane in sorted(lanes_above - {own}):
        tile.circuit(f"SOUTH_{1 + lane}", f"NORTH_{1 + lane}")
        tile.circuit(f"NORTH_{lane}", f"SOUTH_{lane}")
    shared = own in lanes_above
    _results(tile, row, limits, shared)
    tile.packets(control.ARRIVES, CONTROL_ARBITER, control.at_core(row, limits.rows))
    tile.packet_master("CONTROL", control.HERE, arbiter=CONTROL_ARBITER)
    if row + 1 < limits.rows:
        tile.packet_master(control.LANE, control.ABOVE, arbiter=CONTROL_ARBITER)
    slots = {own_packet(row): _MSEL_OWN, row_id: _MSEL_SPREAD}
    tile.packet_slave(f"SOUTH_{1 + own}", slots, PASS_ARBITER if shared else None)
    if shared:
        tile.packet_master(f"NORTH_{1 + own}", (0,), arbiter=PASS_ARBITER)
    tile.packet_slave("EAST_0", {row_id: _MSEL_WEST})
    tile.packet_slave("WEST_0", {row_id: _MSEL_EAST})
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
    for index, words in _core_param_bds(limits):
        builder.blockwrite(tile.address("DMA_BD", index), words)


def _results(tile: _Tile, row: int, limits: Resources, shared: bool) -> None:
    """The way of a core's results down its lane; in turns with those of rows above if ``shared``."""
    lane = row % ROW_LANES
    if not shared:
        tile.circuit("DMA_0", f"SOUTH_{lane}")
        return
    tile.packet_slave("DMA_0", {}, OUT_ARBITER)
    tile.packet_slave(f"NORTH_{lane}", {}, OUT_ARBITER)
    lowest = row < ROW_LANES
    tile.packet_master(f"SOUTH_{lane}", (0,), drop_header=lowest, arbiter=OUT_ARBITER)
    tile.builder.blockwrite(tile.address("SWITCH_MERGE", OUT_ARBITER), merge_words(limits, row))


def _start(builder: TransactionBuilder, column: int, row: int, program: bytes) -> None:
    tile = _Tile(builder, column, reg.FIRST_CORE_ROW + row)
    tile.write("CORE_CONTROL", _RESET)
    builder.blockwrite(tile.address("PROGRAM_MEMORY"), program)
    tile.write("CORE_CONTROL", 0)
    tile.write("CORE_CONTROL", _RUN)


@lru_cache(maxsize=16)
def reload_packets(device: Device, image: Image) -> bytes:
    """What a column's shim sends to load ``image`` into its cores: they are stopped, loaded and started.

    ASSUMPTION: the control port of a core writes a word of program memory each cycle, as it takes them.
    """
    everyone = control.UP_TO + resources(device).rows - 1
    core_control = control.register("core", "CORE_CONTROL")
    words = control.packets(
        [
            (everyone, core_control, [_RESET]),
            (everyone, control.register("core", "PROGRAM_MEMORY"), image.words),
            (everyone, core_control, [0]),
            (everyone, core_control, [_RUN]),
        ]
    )
    return struct.pack(f"<{len(words)}I", *words)


@lru_cache(maxsize=16)
def reload_transaction(device: Device, size: int, columns: int) -> bytes:
    """Loads another image into all cores between two operators, and starts them anew.

    Its only argument, 0, are ``reload_packets``, ``size`` bytes. A core that has given back its parameter
    block has done all work of the operators before; what it does next is to wait for another block. So each
    is waited for before it is stopped. In the first ``columns``, where operators ran since programs were
    loaded last, a block may still be on its way to a core that no output comes from: there, the channel that
    carries blocks is waited for before. Locks are at rest then, and stay as they are. Each shim sends the
    packets once, and cores hand them on; the last of them starts the core, so a token says that all run.
    """
    builder, limits = TransactionBuilder.for_device(device), resources(device)
    empty, _ = PARAM_LOCKS
    for column in range(device.columns):
        for row in range(limits.rows):
            tile = _Tile(builder, column, reg.FIRST_CORE_ROW + row)
            if column < columns:
                builder.maskpoll(tile.address("DMA_S2MM_STATUS", _PARAMETER_CHANNEL), 0, reg.DMA_IDLE_MASK)
            builder.maskpoll(tile.address("LOCK_VALUE", empty), 1, _LOCK_VALUE_MASK)
    number = limits.shim_param_bds[0]
    for column in range(device.columns):
        tile = _Tile(builder, column, reg.SHIM_ROW)
        builder.blockwrite(tile.address("DMA_BD", number), ShimBd.at(0, size // 4, burst=2).to_words())
        builder.ddr_patch(tile.address("DMA_BD", number) + 4, 0, 0)
        tile.write("DMA_MM2S_QUEUE", queue_word("shim", number, 1, True), control.CHANNEL)
    builder.tct("MM2S", 0, reg.SHIM_ROW, control.CHANNEL, columns=device.columns)
    return builder.to_bytes()


def _core_param_bds(limits: Resources) -> Iterator[tuple[int, list[int]]]:
    """(number, BD) for parameter blocks by their pieces, which come one after the other."""
    empty, full = ((PARAM_LOCKS[0], -1), (PARAM_LOCKS[1], 1))
    for pieces, number in limits.core_param_bds.items():
        yield number, CoreBd.at(0, pieces * PARAM_WORDS, acquire=empty, release=full).to_words()


@lru_cache(maxsize=4096)  # columns, and operators of one kind, have the same ones
def core_bd(
    base: int,
    words: int,
    acquire: int,
    release: int,
    slots: int = 1,
    packet: int | None = None,
    dims: tuple[tuple[int, int], ...] = (),
) -> tuple[int, ...]:
    """A core BD over ``slots`` buffers in turn, from byte ``base``, that takes one and gives one."""
    described = CoreBd.at(
        base,
        words,
        dims,
        iteration=(words, slots) if slots > 1 else None,
        acquire=(acquire, -1),
        release=(release, 1),
        packet_id=packet,
    )
    return tuple(described.to_words())


@dataclass(frozen=True)
class Slots:
    """A ring of ``count`` buffers, ``apart`` words from one to the next (0: side by side).

    Locks move by ``credits`` for each.
    """

    count: int = 1
    apart: int = 0
    credits: int = 1


ONE_SLOT = Slots()


@lru_cache(maxsize=4096)
def mem_bd(
    base: int,
    words: int,
    locks: tuple[int, int],
    slots: Slots = ONE_SLOT,
    next_bd: int | None = None,
    packet: int | None = None,
    dims: tuple[tuple[int, int], ...] = (),
) -> tuple[int, ...]:
    """The same in a memory tile, where ``locks`` are the one that it acquires and the one that it releases.

    ``packet`` prepends a packet header with that id.
    """
    described = MemBd.at(
        base,
        words,
        dims,
        iteration=(slots.apart or words, slots.count) if slots.count > 1 else None,
        acquire=(locks[0], -slots.credits),
        release=(locks[1], slots.credits),
        next_bd=next_bd,
        packet_id=packet,
    )
    return tuple(described.to_words())


@lru_cache(maxsize=4096)
def kept_bd(pattern: Pattern, next_bd: int | None = None, packet: int | None = None) -> tuple[int, ...]:
    """A memory tile's BD over what stays there between operators, or in its neighbours. It takes no lock:
    its writer is done."""
    wrap, step = pattern.iteration
    *inner, (_, outermost) = pattern.dims
    described = MemBd.at(
        0,
        pattern.words,
        (*((stride, count) for count, stride in inner), (outermost, 0)),  # the length bounds the outermost
        iteration=(step, wrap) if wrap > 1 else None,
        next_bd=next_bd,
        packet_id=packet,
    )
    return tuple(replace(described, base=described.base + pattern.base).to_words())
