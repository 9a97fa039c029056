# SPDX-License-Identifier: Apache-2.0
"""Routes for control packets: from the shim DMAs to the control ports of tiles.

A packet is routed by the id in its stream header alone, and the shim that sends it is the column in
its header. So the packets (id, column) -> tile of a ``TileMap`` need, in the switch of every tile
on the way, slots that tell ids apart: four per port, each for all ids with ``(id & mask) == value``,
the first that matches counts.

The routes go up on lane 5, sideways on lane 3 of row 0, and use arbiter 7. The universal overlay
(``operators/emission/overlay.py``) has its own on lane 5: an array has these routes or those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.format.builder import TransactionBuilder, tile_address
from onedispatch.transactions.machine import registers as reg
from onedispatch.transactions.machine.bd import ShimBd, packet_master, queue_word, switch_slave, switch_slot
from onedispatch.transactions.machine.device import Device
from onedispatch.transactions.packets.control_packets import ControlPackets, TileMap
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
"""(column, row, slave) -> the master by which each packet id leaves"""


def usual_tiles(columns: int, core_rows: int) -> dict[Key, tuple[int, int]]:
    """The ids of AMD's 4x4 overlays: 1 the shim, 2 the memory tile, 8.. the cores, each of its column."""
    tiles: dict[Key, tuple[int, int]] = {}
    for column in range(columns):
        tiles[SHIM_ID, column] = (column, reg.SHIM_ROW)
        tiles[MEM_ID, column] = (column, reg.MEM_ROW)
        for row in range(core_rows):
            tiles[FIRST_CORE_ID + row, column] = (column, reg.FIRST_CORE_ROW + row)
    return tiles


def control_overlay(device: Device, tiles: TileMap | None = None) -> bytes:
    """A transaction that lays the routes of ``tiles`` (``usual_tiles`` if None), and those of tokens."""
    builder = TransactionBuilder.for_device(device)
    usual = usual_tiles(device.columns, device.core_rows)
    lay_control_routes(builder, usual if tiles is None else tiles)
    for column in range(device.columns):
        lay_token_routes(builder, column)
    return builder.to_bytes()


def lay_control_routes(builder: TransactionBuilder, tiles: TileMap, channels: Sequence[int] = (0, 1)) -> None:
    """Writes switch registers so that each packet reaches its tile from MM2S ``channels`` of its column.

    Raises:
        TransactionError: a tile outside the partition, an id with two ways at one port, or ids that
            four slots cannot tell apart.
    """
    ports = _ports(tiles, channels, builder.columns, builder.rows)
    muxed: set[int] = set()
    masters: set[tuple[int, int, str]] = set()
    for (column, row, slave), ways in sorted(ports.items()):
        tile_map = reg.TILES[reg.kind_of_row(row) or "core"]

        def write(block: str, index: int, word: int, at: tuple[int, int] = (column, row)) -> None:
            found = reg.TILES[reg.kind_of_row(at[1]) or "core"].block[block]
            builder.write(tile_address(*at, found.offset + index * found.stride), word)

        if row == reg.SHIM_ROW and slave in SHIM_SLAVES and column not in muxed:
            muxed.add(column)
            write("MUX", 0, MUX_DMA)
        number = tile_map.slave(slave)
        write("SWITCH_SLAVE", number, switch_slave(packet=True))
        for slot, (mask, value, master) in enumerate(_slots(ways, f"c{column} r{row} {slave}")):
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
    """Sends the blob ``packets`` from byte ``offset`` of kernel argument ``argument``, in its order.

    Packets in a row with the same column go in one task of that column's shim MM2S ``channel``,
    by a BD that no packet writes; the next task starts when it is through.

    Raises:
        TransactionError: packets that write every BD of their shim.
    """
    shim = reg.TILES["shim"].block
    bds = shim["DMA_BD"]
    written = {(p.key[1], (p.offset - bds.offset) // bds.stride) for p in packets.packets if _in(bds, p)}
    for column, run in groupby(packets.packets, key=lambda packet: packet.key[1]):
        size = sum(packet.size for packet in run)
        free = [n for n in range(bds.count) if (column, n) not in written]
        if not free:
            raise TransactionError(
                "control packets", f"writes to all BDs of shim {column}", "one BD that no packet writes",
                "send the packets in parts",
            )  # fmt: skip
        at = tile_address(column, reg.SHIM_ROW, bds.offset + free[-1] * bds.stride)
        builder.blockwrite(at, ShimBd.at(0, size // 4).to_words())
        builder.ddr_patch(at + 4, argument, offset)
        queue, status = shim["DMA_MM2S_QUEUE"], shim["DMA_MM2S_STATUS"]
        push = queue_word("shim", free[-1])
        builder.write(tile_address(column, reg.SHIM_ROW, queue.offset + channel * queue.stride), push)
        idle = tile_address(column, reg.SHIM_ROW, status.offset + channel * status.stride)
        builder.maskpoll(idle, 0, reg.DMA_IDLE_MASK)
        offset += size


def _in(block: reg.Block, packet: ControlPacket) -> bool:
    return block.offset <= packet.offset < block.offset + block.count * block.stride


def _ports(tiles: TileMap, channels: Sequence[int], columns: int, rows: int) -> Ports:
    """Along row 0 to the tile's column, then up."""
    ports: Ports = {}
    for (packet_id, start), (column, row) in tiles.items():
        if not (0 <= start < columns and 0 <= column < columns and 0 <= row < rows):
            raise TransactionError(
                "control routes", f"packet id {packet_id} of column {start} to c{column} r{row}",
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
    """(mask, value, master) of up to four slots, in order, that send every id its way."""

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
