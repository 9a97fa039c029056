# SPDX-License-Identifier: Apache-2.0
"""Routes for task completion tokens: from the control port of each tile down to the controller.

A channel whose task issues a token sends a packet with its controller id from the tile's control
port. South master 0 of a shim leads to the controller. Every overlay whose transactions wait for
tokens (TCT, MERGE_SYNC) needs these routes; without one, the simulator reports an error.

The routes use packet id 15, South lane 3, arbiter 6, and the last slot of each slave port. The
cores of the universal overlay have no free lane downwards (all four carry results), so by default
only shims and memory tiles send tokens.
"""

from __future__ import annotations

from onedispatch.transactions.format.builder import TransactionBuilder, register_address
from onedispatch.transactions.machine import registers as reg
from onedispatch.transactions.machine.bd import packet_master, switch_slave, switch_slot
from onedispatch.transactions.machine.switches import CONTROLLER_MASTER

TOKEN_ID, LANE, ARBITER, SLOT = 15, 3, 6, reg.SLOTS_PER_SLAVE - 1
_CONTROLLER_ID = reg.field_of(reg.CHANNEL_FIELDS, "controller_id")


def lay_token_routes(builder: TransactionBuilder, column: int, top: int = reg.MEM_ROW) -> None:
    """Appends routes and controller ids for the tiles of ``column``, from the shim up to row ``top``."""
    for row in range(top + 1):
        tile = reg.TILES[reg.kind_of_row(row) or "core"]

        def write(block: str, index: int, word: int, row: int = row) -> None:
            builder.write(register_address(column, row, block, index), word)

        for slave in ("CONTROL", f"NORTH_{LANE}") if row < top else ("CONTROL",):
            port = tile.slave(slave)
            write("SWITCH_SLAVE", port, switch_slave(packet=True))
            write("SWITCH_SLOT", port * reg.SLOTS_PER_SLAVE + SLOT, switch_slot(TOKEN_ID, ARBITER, 0))
        master = CONTROLLER_MASTER if row == reg.SHIM_ROW else tile.master(f"SOUTH_{LANE}")
        write("SWITCH_MASTER", master, packet_master(ARBITER, 1))
        for name in ("DMA_S2MM_CTRL", "DMA_MM2S_CTRL"):
            for channel in range(tile.block[name].count):
                write(name, channel, TOKEN_ID << _CONTROLLER_ID.lsb)
