# SPDX-License-Identifier: Apache-2.0
"""Routes for control packets: from the shim DMAs to the control ports of tiles.

The id in the stream header alone routes a packet; the column in the header is that of the sending
shim. The packets (id, column) -> tile of a ``PacketTiles`` map therefore need slots that distinguish
the ids in the switch of every tile on the way: four per port, each for all ids with
``(id & mask) == value``; the first match counts.

The routes go up on lane 5, sideways on lane 3 of row 0, and use arbiter 7. The universal overlay
(``operators/emission/overlay.py``) has other routes on lane 5, so an array has either set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.base.text import counted, tile_name
from onedispatch.transactions.format.builder import TransactionBuilder, register_address
from onedispatch.transactions.machine import registers as reg
from onedispatch.transactions.machine.bd import ShimBd, packet_master, queue_word, switch_slave, switch_slot
from onedispatch.transactions.machine.device import Device
from onedispatch.transactions.packets.control_packets import ControlPackets, PacketTiles
from onedispatch.transactions.packets.packet import ControlPacket, Key
from onedispatch.transactions.packets.token_routes import lay_token_routes

SHIM_ID, MEM_ID, FIRST_CORE_ID = 1, 2, 8
LANE, SIDE_LANE, ARBITER = 5, 3, 7
SHIM_SLAVES = ("SOUTH_3", "SOUTH_7")  # of MM2S 0 and 1
MUX_DMA = 1 << 10 | 1 << 14
_MASKS = sorted(range(32), key=lambda mask: (mask.bit_count(), mask))
_MSELS = ("CONTROL", f"NORTH_{LANE}", f"EAST_{SIDE_LANE}", f"WEST_{SIDE_LANE}")
_ARRIVES = {
    "NORTH": (0, 1, f"SOUTH_{LANE}"),
    "EAST": (1, 0, f"WEST_{SIDE_LANE}"),
    "WEST": (-1, 0, f"EAST_{SIDE_LANE}"),
}
Ports = dict[tuple[int, int, str], dict[int, str]]
"""(column, row, slave) -> packet id -> the master that it leaves by"""


def usual_tiles(columns: int, core_rows: int) -> dict[Key, tuple[int, int]]:
    """Returns the ids of AMD's 4x4 overlays, per column: 1 shim, 2 memory tile, 8 and up the cores."""
    tiles: dict[Key, tuple[int, int]] = {}
    for column in range(columns):
        tiles[SHIM_ID, column] = (column, reg.SHIM_ROW)
        tiles[MEM_ID, column] = (column, reg.MEM_ROW)
        for row in range(core_rows):
            tiles[FIRST_CORE_ID + row, column] = (column, reg.FIRST_CORE_ROW + row)
    return tiles


def control_overlay(device: Device, tiles: PacketTiles | None = None) -> bytes:
    """Returns a transaction with the routes of ``tiles`` (``usual_tiles`` if None) and of tokens."""
    builder = TransactionBuilder.for_device(device)
    usual = usual_tiles(device.columns, device.core_rows)
    lay_control_routes(builder, usual if tiles is None else tiles)
    for column in range(device.columns):
        lay_token_routes(builder, column)
    return builder.to_bytes()


def lay_control_routes(
    builder: TransactionBuilder, tiles: PacketTiles, channels: Sequence[int] = (0, 1)
) -> None:
    """Writes switch registers so that each packet reaches its tile from MM2S ``channels`` of its column.

    Raises:
        TransactionError: a tile outside the partition, an id with two routes at one port, or ids that
            four slots cannot distinguish.
    """
    ports = _ports(tiles, channels, builder.columns, builder.rows)
    muxed: set[int] = set()
    masters: set[tuple[int, int, str]] = set()
    for (column, row, slave), ways in sorted(ports.items()):
        tile_map = reg.TILES[reg.kind_of_row(row) or "core"]

        def write(block: str, index: int, word: int, at: tuple[int, int] = (column, row)) -> None:
            builder.write(register_address(*at, block, index), word)

        if row == reg.SHIM_ROW and slave in SHIM_SLAVES and column not in muxed:
            muxed.add(column)
            write("MUX", 0, MUX_DMA)
        number = tile_map.slave(slave)
        write("SWITCH_SLAVE", number, switch_slave(packet=True))
        for slot, (mask, value, master) in enumerate(_slots(ways, f"{tile_name(column, row)} {slave}")):
            word = switch_slot(value, ARBITER, _MSELS.index(master), mask)
            write("SWITCH_SLOT", number * reg.SLOTS_PER_SLAVE + slot, word)
        for master in sorted(set(ways.values())):
            if (column, row, master) not in masters:
                masters.add((column, row, master))
                word = packet_master(ARBITER, 1 << _MSELS.index(master))
                write("SWITCH_MASTER", tile_map.master(master), word)


def send_packets(
    builder: TransactionBuilder, packets: ControlPackets, argument: int, offset: int = 0, channel: int = 0
) -> None:
    """Appends ops that send the packets at byte ``offset`` of kernel argument ``argument``, in order.

    Consecutive packets of one column form one task of that column's shim MM2S ``channel``, with a
    BD that no packet writes; the next task starts after it has ended.

    Raises:
        TransactionError: packets that write every BD of their shim.
    """
    bds = reg.SHIM.block["DMA_BD"]
    written = {(p.key[1], (p.offset - bds.offset) // bds.stride) for p in packets.packets if _in(bds, p)}
    for column, run in groupby(packets.packets, key=lambda packet: packet.key[1]):
        size = sum(packet.size for packet in run)
        free = [n for n in range(bds.count) if (column, n) not in written]
        if not free:
            raise TransactionError(
                "control packets", f"writes to all BDs of shim {column}", "one BD that no packet writes",
                "send the packets in parts",
            )  # fmt: skip
        at = register_address(column, reg.SHIM_ROW, "DMA_BD", free[-1])
        builder.blockwrite(at, ShimBd.at(0, size // 4).to_words())
        builder.ddr_patch(at + 4, argument, offset)
        queue = register_address(column, reg.SHIM_ROW, "DMA_MM2S_QUEUE", channel)
        builder.write(queue, queue_word("shim", free[-1]))
        idle = register_address(column, reg.SHIM_ROW, "DMA_MM2S_STATUS", channel)
        builder.maskpoll(idle, 0, reg.DMA_IDLE_MASK)
        offset += size


def _in(block: reg.Block, packet: ControlPacket) -> bool:
    return block.offset <= packet.offset < block.offset + block.count * block.stride


def _ports(tiles: PacketTiles, channels: Sequence[int], columns: int, rows: int) -> Ports:
    """Routes every packet along row 0 to the tile's column, then up."""
    ports: Ports = {}
    for (packet_id, start), (column, row) in tiles.items():
        if not (0 <= start < columns and 0 <= column < columns and 0 <= row < rows):
            raise TransactionError(
                "control routes", f"packet id {packet_id} of column {start} to {tile_name(column, row)}",
                f"tiles of {counted(columns, 'column')} and {counted(rows, 'row')}",
                "name a device that has them",
            )  # fmt: skip
        for channel in channels:
            at, slave = (start, reg.SHIM_ROW), SHIM_SLAVES[channel]
            while True:
                side = "EAST" if at[0] < column else "WEST" if at[0] > column else "NORTH"
                arrived = at == (column, row)
                master = "CONTROL" if arrived else f"{side}_{LANE if side == 'NORTH' else SIDE_LANE}"
                _add(ports, (*at, slave), packet_id, master)
                if arrived:
                    break
                right, up, slave = _ARRIVES[side]
                at = (at[0] + right, at[1] + up)
    return ports


def _add(ports: Ports, port: tuple[int, int, str], packet_id: int, master: str) -> None:
    ways = ports.setdefault(port, {})
    if ways.setdefault(packet_id, master) != master:
        raise TransactionError(
            "control routes", f"packet id {packet_id} to {ways[packet_id]} and to {master}",
            f"one way at port {port[2]} of c{port[0]} r{port[1]}", "give the packets different ids",
        )  # fmt: skip


def _slots(ways: Mapping[int, str], where: str) -> list[tuple[int, int, str]]:
    """Returns (mask, value, master) of up to four slots, in order, that route every id to its master."""

    def search(left: frozenset[int], free: int) -> list[tuple[int, int, str]] | None:
        if not left:
            return []
        tried: set[frozenset[int]] = set()
        for mask in _MASKS if free else ():
            for value in sorted({packet_id & mask for packet_id in left}):
                caught = frozenset(i for i in left if i & mask == value)
                if caught in tried or len({ways[i] for i in caught}) != 1:
                    continue
                tried.add(caught)
                rest = search(left - caught, free - 1)
                if rest is not None:
                    return [(mask, value, ways[min(caught)]), *rest]
        return None

    found = search(frozenset(ways), reg.SLOTS_PER_SLAVE)
    if found is None:
        raise TransactionError(
            "control routes", f"packet ids {sorted(ways)} at {where}",
            f"ids that {reg.SLOTS_PER_SLAVE} slots tell apart", "number tiles so that masks group them",
        )  # fmt: skip
    return found
