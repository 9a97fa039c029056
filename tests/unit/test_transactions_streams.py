# SPDX-License-Identifier: Apache-2.0
"""Control packets that shims send, read from the bytes of a kernel argument."""

from __future__ import annotations

import struct
from typing import cast

from onedispatch.transactions.analysis.streams import PacketWrite, Streams, Tile
from onedispatch.transactions.machine.routes import Routes
from onedispatch.transactions.packets.packet import ControlPacket

AT = 0xC0000


class Leading:
    """Routes by which packets of channel 1 come to one memory tile, those of channel 0 to another."""

    def controls(self, tile: Tile, channel: int, packet: int) -> tuple[Tile, ...]:
        return ((channel, 1),)


def streams(*words: int) -> Streams:
    return Streams(cast(Routes, Leading()), {4: struct.pack(f"<{len(words)}I", *words)})


def test_a_stream_that_ends_inside_a_packet_is_not_known() -> None:
    packet = ControlPacket.write(1, 0, AT, [1, 2, 3])
    words = packet.header, packet.control, *packet.data
    whole = streams(*words)
    assert whole.read(0, 1, (4, 0), len(words)) == (PacketWrite(((1, 1),), AT, packet.data),)
    for length in range(1, len(words)):
        assert streams(*words).read(0, 1, (4, 0), length) is None, length


def test_the_same_bytes_go_where_their_channel_leads() -> None:
    packet = ControlPacket.write(1, 0, AT, [1])
    both = streams(packet.header, packet.control, *packet.data)
    found = [both.read(0, channel, (4, 0), 3) for channel in (0, 1)]
    assert found == [(PacketWrite(((channel, 1),), AT, (1,)),) for channel in (0, 1)]
