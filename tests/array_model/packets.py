# SPDX-License-Identifier: Apache-2.0
"""Random scenarios of control packets: what travels, how BDs cut it, who answers.

Senders are shim DMAs, and a memory tile that talks to its own control port. Each writes to words
of its own, so that nothing depends on who comes first; one sender of a column may read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from onedispatch.transactions import Device, MemBd, ShimBd, TransactionBuilder
from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.format import spec
from onedispatch.transactions.format.builder import tile_address
from onedispatch.transactions.machine import registers
from onedispatch.transactions.machine.bd import (
    circuit_master,
    control_packet_header,
    packet_header,
    packet_master,
    queue_word,
    switch_slave,
    switch_slot,
)
from onedispatch.transactions.packets.control_overlay import ARBITER, lay_control_routes, usual_tiles
from onedispatch.transactions.packets.packet import Key
from tests.array_model.scenarios import IDLE, Abandon, Choose, Scenario

ROWS = spec.ARRAY_ROWS
ANSWER_LANE, SENDER_ROOM, MEM_DATA = 3, 0x400, 0x40000
Tile = tuple[int, int]


def at(tile: Tile, block: str, index: int = 0, byte: int = 0) -> int:
    """The address of a register."""
    kind = registers.kind_of_row(tile[1]) or "core"
    found = registers.TILES[kind].block[block]
    return tile_address(*tile, found.at(index) + byte)


@dataclass
class Packet:
    header: int
    rest: list[int]  # control header, data


@dataclass
class Maker:
    choose: Choose
    device: Device
    builder: TransactionBuilder
    tiles: dict[Key, Tile]
    host: list[int] = field(default_factory=list)
    pushes: list[tuple[int, int]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    observed: set[int] = field(default_factory=set)
    answer_words: int = 0
    notes: list[str] = field(default_factory=list)

    def chance(self, percent: int) -> bool:
        return self.choose.int(0, 99) >= 100 - percent

    # -- packets ---------------------------------------------------------------------------------

    def packets(self, keys: list[Key], sender: int, reads: Tile | None) -> list[Packet]:
        return [self.packet(keys, sender, reads) for _ in range(self.choose.int(1, 8))]

    def packet(self, keys: list[Key], sender: int, reads: Tile | None) -> Packet:
        key = keys[self.choose.int(0, len(keys) - 1)]
        tile = self.tiles[key]
        beats, offset = self.target(tile, sender)
        self.observed |= {tile_address(*tile, offset + 4 * i) for i in range(beats)}
        header = packet_header(key[0], self.choose.int(0, 7), self.choose.int(0, 5), key[1])
        if tile == reads and self.chance(40):
            self.answer_words += 1 + beats
            return Packet(header, [control_packet_header(offset, beats, 1, self.choose.int(0, 31))])
        control = control_packet_header(offset, beats, (0, 0, 2)[self.choose.int(0, 2)])
        word = self.choose.int(0, 0xFFFF)
        limit = 63 if beats == 1 and offset & 0xFFFFF in self.lock_offsets(tile) else 0xFFFFFFFF
        return Packet(header, [control, *(min(limit, word * 0x10001 + i) for i in range(beats))])

    def lock_offsets(self, tile: Tile) -> set[int]:
        found = registers.TILES[registers.kind_of_row(tile[1]) or "core"].block["LOCK_VALUE"]
        return {found.at(i) for i in range(found.count)}

    def target(self, tile: Tile, sender: int) -> tuple[int, int]:
        """(data words, offset) of a packet: memory, a lock, or part of a BD that does not run."""
        beats = self.choose.int(1, 4)
        form = self.choose.int(1 if tile[1] == 0 else 0, 2)
        if form == 0:
            return beats, sender * SENDER_ROOM + 4 * self.choose.int(0, 60)
        if form == 1:
            return 1, at((0, tile[1]), "LOCK_VALUE", 2 * sender + self.choose.int(0, 1)) & 0xFFFFF
        byte = 4 * self.choose.int(0, 2)
        return min(beats, 3), at((0, tile[1]), "DMA_BD", 8 + sender, byte) & 0xFFFFF

    # -- senders ---------------------------------------------------------------------------------

    def send(self, tile: Tile, channel: int, packets: list[Packet], first_bd: int, spoilt: bool) -> None:
        """A chain of BDs that holds the packets; cuts inside a packet leave its TLAST out."""
        words: list[int] = []
        starts: dict[int, Packet] = {}
        for packet in packets:
            starts[len(words)] = packet
            words += [packet.header, *packet.rest]
        if spoilt:
            self.spoil(words)
        total = len(words)
        cuts = (
            sorted({self.choose.int(1, total - 1) for _ in range(self.choose.int(0, 3))}) if total > 1 else []
        )
        edges = [0, *cuts, total]
        pieces: list[tuple[list[int], dict[str, int]]] = []
        for begin, end in pairwise(edges):
            piece, fields = words[begin:end], {"suppress_tlast": int(end not in starts and end != total)}
            if begin in starts and len(piece) > 1 and not spoilt and self.chance(40):
                fields |= {
                    "enable_packet": 1,
                    "packet_id": piece[0] & 31,
                    "packet_type": self.choose.int(0, 7),
                }
                piece = piece[1:]
            pieces.append((piece, fields))
        for i, (piece, fields) in enumerate(pieces):
            if i + 1 < len(pieces):
                fields |= {"use_next": 1, "next_bd": first_bd + i + 1}
            self.write_bd(tile, first_bd + i, piece, fields)
        kind = registers.kind_of_row(tile[1]) or "core"
        self.pushes.append((at(tile, "DMA_MM2S_QUEUE", channel), queue_word(kind, first_bd, 1, False)))
        self.waits.append(at(tile, "DMA_MM2S_STATUS", channel))
        self.notes.append(f"{tile} MM2S{channel}: {[hex(word) for word in words]} cut at {cuts}")

    def write_bd(self, tile: Tile, number: int, words: list[int], fields: dict[str, int]) -> None:
        if tile[1] == 0:
            bd = ShimBd(length=len(words), address=0, **fields)
            self.builder.blockwrite(at(tile, "DMA_BD", number), bd.to_words())
            self.builder.ddr_patch(at(tile, "DMA_BD", number, 4), 0, 4 * len(self.host))
            self.host += words
            return
        place = MEM_DATA + 0x100 * number
        self.builder.blockwrite(tile_address(*tile, place), words)
        bd = MemBd(length=len(words), base=0x20000 + place // 4, **fields)
        self.builder.blockwrite(at(tile, "DMA_BD", number), bd.to_words())

    def spoil(self, words: list[int]) -> None:
        """Bits flip in one word, or the last word is lost."""
        if self.chance(25) and len(words) > 1:
            words.pop()
            return
        place = self.choose.int(0, min(len(words) - 1, 7))
        for _ in range(self.choose.int(1, 2)):
            words[place] ^= 1 << self.choose.int(0, 31)

    def answers(self, tile: Tile) -> None:
        """Answers of a tile go down to S2MM1 of its shim."""
        column, row = tile
        slave = "CONTROL"
        while True:
            kind = registers.TILES[registers.kind_of_row(row) or "core"]
            master = f"SOUTH_{ANSWER_LANE}"
            number = kind.slave(slave)
            self.builder.write(at((column, row), "SWITCH_SLAVE", number), switch_slave())
            self.builder.write(
                at((column, row), "SWITCH_MASTER", kind.master(master)), circuit_master(number)
            )
            if row == 0:
                break
            row, slave = row - 1, f"NORTH_{ANSWER_LANE}"
        self.builder.write(at((column, 0), "DEMUX"), 1 << 6)

    def mixed(self, column: int) -> None:
        """MM2S1 of a shim sends control packets and, in BDs or chains that they begin, data.

        Ids 5 and 6 lead to S2MM2, with its header, and S2MM3, without; both are one arbiter's.
        """
        tile = (column, 1)
        self.mixed_routes(column)
        taken, words, cuts = {5: 0, 6: 0}, [], []
        for _ in range(self.choose.int(1, 2)):  # BDs 4 to 7; packets write later ones
            for packet in self.packets([(2, column)], 4, None) if self.chance(60) else ():
                words += [packet.header, *packet.rest]
            target, length = self.choose.int(5, 6), self.choose.int(1, 9)
            words += [packet_header(target, self.choose.int(0, 7), 0, column), *range(length)]
            taken[target] += length + (target == 5)
            inside = length > 1 and self.chance(40)
            cuts += [(len(words) - self.choose.int(1, length - 1), 1)] if inside else []
            cuts.append((len(words), 0))
        begin = 0
        for number, (end, open_end) in enumerate(cuts):
            fields = {"suppress_tlast": open_end}
            if end != len(words):
                fields |= {"use_next": 1, "next_bd": 4 + number + 1}
            self.write_bd((column, 0), 4 + number, words[begin:end], fields)
            begin = end
        self.pushes.append((at((column, 0), "DMA_MM2S_QUEUE", 1), queue_word("shim", 4, 1, False)))
        self.waits.append(at((column, 0), "DMA_MM2S_STATUS", 1))
        for channel, number, count in ((2, 20, taken[5]), (3, 40, taken[6])):
            if count:
                bd = MemBd(length=count, base=0x20000 + (0x70000 + 0x1000 * channel) // 4)
                self.builder.blockwrite(at(tile, "DMA_BD", number), bd.to_words())
                self.pushes.append((at(tile, "DMA_S2MM_QUEUE", channel), queue_word("mem", number, 1, False)))
                self.waits.append(at(tile, "DMA_S2MM_STATUS", channel))
                first = tile_address(*tile, 0x70000 + 0x1000 * channel)
                self.observed |= {first + 4 * i for i in range(count)}
        self.notes.append(f"({column},0) MM2S1 mixed: {[hex(word) for word in words]} cut at {cuts}")

    def mixed_routes(self, column: int) -> None:
        shim, mem = registers.TILES["shim"], registers.TILES["mem"]
        below, up = shim.slave("SOUTH_7"), mem.slave("SOUTH_4")
        settings = [
            (0, "SWITCH_SLAVE", below, switch_slave(packet=True)),
            (0, "SWITCH_SLOT", below * 4, switch_slot(0, 6, 0, 0)),
            (0, "SWITCH_MASTER", shim.master("NORTH_4"), packet_master(6, 1)),
            (1, "SWITCH_SLAVE", up, switch_slave(packet=True)),
            (1, "SWITCH_SLOT", up * 4, switch_slot(2, ARBITER, 0)),
            (1, "SWITCH_SLOT", up * 4 + 1, switch_slot(5, 6, 0)),
            (1, "SWITCH_SLOT", up * 4 + 2, switch_slot(6, 6, 1)),
            (1, "SWITCH_MASTER", mem.master("DMA_2"), packet_master(6, 1)),
            (1, "SWITCH_MASTER", mem.master("DMA_3"), packet_master(6, 2, drop_header=True)),
        ]
        for row, block, index, word in settings:
            self.builder.write(at((column, row), block, index), word)

    def receive(self, column: int) -> None:
        if not self.answer_words:
            return
        bd = ShimBd(length=self.answer_words, address=0)
        self.builder.blockwrite(at((column, 0), "DMA_BD", 15), bd.to_words())
        self.builder.ddr_patch(at((column, 0), "DMA_BD", 15, 4), 1, 0)
        self.pushes.append((at((column, 0), "DMA_S2MM_QUEUE", 1), queue_word("shim", 15, 1, False)))
        self.waits.append(at((column, 0), "DMA_S2MM_STATUS", 1))


def choose_tiles(choose: Choose, columns: int) -> dict[Key, Tile]:
    """The usual ids, or ids counted through for tiles that column 0 reaches."""
    if choose.int(0, 1):
        return usual_tiles(columns, ROWS - registers.FIRST_CORE_ROW)
    every = [(c, r) for c in range(columns) for r in range(ROWS)]
    picked = {every[choose.int(0, len(every) - 1)] for _ in range(6)}
    return {(i, 0): tile for i, tile in enumerate(sorted(picked))}


def make_packet_scenario(choose: Choose, device: Device, faults: int = 0) -> Scenario:
    """A random scenario; ``faults`` is the chance in percent that a packet in it is spoilt.

    Raises:
        Abandon: these choices make none.
    """
    builder = TransactionBuilder(device.device_generation, device.columns)
    maker = Maker(choose, device, builder, choose_tiles(choose, device.columns))
    try:
        mixed = maker.tiles.get((2, 0)) == (0, 1) and maker.chance(50)
        lay_control_routes(builder, maker.tiles, (0,) if mixed else (0, 1))
    except TransactionError as error:
        raise Abandon from error
    columns = sorted({column for _, column in maker.tiles})
    asked = columns[choose.int(0, len(columns) - 1)]
    targets = [tile for key, tile in maker.tiles.items() if key[1] == asked and tile[0] == asked and tile[1]]
    reads = targets[choose.int(0, len(targets) - 1)] if targets and maker.chance(50) else None
    if reads is not None:
        maker.answers(reads)
    spoilt = choose.int(0, 99) < faults
    for sender, (column, channel) in enumerate([(columns[0], 0), (columns[0], 1), (columns[-1], 0)]):
        if mixed and channel == 1:
            maker.mixed(0)
            continue
        if sender and (maker.chance(40) or (sender == 2 and len(columns) == 1)):
            continue
        keys = sorted(key for key in maker.tiles if key[1] == column)
        alone = reads if column == asked and channel == 0 else None
        packets = maker.packets(keys, sender, alone)
        maker.send((column, 0), channel, packets, 4 * channel, spoilt)
        spoilt = False
    if (2, 0) in maker.tiles and maker.tiles[2, 0] == (0, 1) and maker.chance(50):
        slave = registers.TILES["mem"].slave("DMA_0")
        builder.write(at((0, 1), "SWITCH_SLAVE", slave), switch_slave(packet=True))
        builder.write(
            at((0, 1), "SWITCH_SLOT", slave * registers.SLOTS_PER_SLAVE), switch_slot(2, ARBITER, 0)
        )
        maker.send((0, 1), 0, maker.packets([(2, 0)], 3, None), 0, False)
    maker.receive(asked)
    for address, word in maker.pushes:
        builder.write(address, word)
    for address in maker.waits:
        builder.maskpoll(address, 0, IDLE)
    builder.read_regs(sorted(maker.observed))
    content = b"".join(word.to_bytes(4, "little") for word in maker.host)
    answers = 4 * maker.answer_words + 4
    return Scenario(device, builder.to_bytes(), (content or b"\0\0\0\0", answers), tuple(maker.notes))
