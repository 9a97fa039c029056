# SPDX-License-Identifier: Apache-2.0
"""Control packets: register accesses that travel through the switches to a tile's control port.

**Packets in a stream.** A stream that enters a packet-switched port is a row of packets. A BD with
"enable packet" makes the stream header of the first; every other header is a word of the data.
The header's id decides, by slots and masters as for any packet, where this packet goes:

* to control ports: ``[stream header][control header][data words]``. The control header says how
  many data words follow; after them the next packet begins. TLAST, or the end of the task, inside a
  packet is an error. Whether masters drop the stream header makes no difference.
* to S2MM channels: the packet lasts until TLAST. Its header must not be all that a BD has left.

A packet to both, and a stream without header that reaches a DMA on one way and a packet-switched
port on another, are not supported.

**Execution.** When its last word is there, the packet acts: data word i is written to offset + 4 i
of the tile, with everything that the same WRITE of a transaction does. A read has no data words; as
many words as it says are read and sent from the tile's control slave port, as one packet with the
return id, to S2MM channels. Both headers have odd parity, or it is an error; so is operation 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onedispatch.transactions.machine import bd, registers
from tests.array_model.memory import ModelFault
from tests.array_model.sender import Sender, Steps

if TYPE_CHECKING:
    from tests.array_model.array import Tile
    from tests.array_model.dma import Channel

WRITE, READ, WRITE_INCREMENT = range(3)


def check_stream_header(name: str, word: int) -> None:
    if word.bit_count() % 2 == 0:
        raise ModelFault("packet", f"{name}: stream header {word:#x} has even parity")


def check_control_header(name: str, word: int) -> None:
    if word.bit_count() % 2 == 0:
        raise ModelFault("packet", f"{name}: control header {word:#x} has even parity")
    if fields_of(word)["operation"] > WRITE_INCREMENT:
        raise ModelFault("packet", f"{name}: operation 3 in control header {word:#x}")


def fields_of(word: int) -> dict[str, int]:
    return bd.unpack_fields(registers.CONTROL_PACKET_FIELDS, [word])


def packet_length(packet: list[int]) -> int:
    """Words of a packet, both headers included, as far as its first words tell."""
    if len(packet) < 2:
        return 2
    fields = fields_of(packet[1])
    return 2 + (0 if fields["operation"] == READ else fields["beats"])


def packet_part(channel: Channel, value: Callable[[int | None], int], rest: list[int | None]) -> Steps:
    """Words of the open packet, as long as ``rest`` has some; what is complete acts."""
    while rest and len(channel.packet) < packet_length(channel.packet):
        yield from channel._until(lambda: not channel.paused, "the pause bit")
        channel.packet.append(value(rest.pop(0)))
        if len(channel.packet) == 2:
            check_control_header(channel.name, channel.packet[1])
        yield True
    if len(channel.packet) == packet_length(channel.packet):
        packet, steps = channel.packet, channel.steps
        for port in channel.route.ports:
            port.execute(packet)
        if channel.steps is steps:  # else the packet reset the channel that it came from
            channel.close_packet()
        yield True


class ControlPort(Sender):
    """The control port of a tile: executes packets, answers reads."""

    def __init__(self, tile: Tile) -> None:
        super().__init__(tile, f"{tile.name} control port")
        self.answers: list[tuple[int, list[int], Channel | None]] = []
        """Packet id and words of what waits to leave; of a token the channel whose task ended."""
        self.steps = self._run()

    def execute(self, packet: list[int]) -> None:
        fields = fields_of(packet[1])
        read: list[int] = []
        for beat in range(fields["beats"]):
            offset = fields["offset"] + 4 * beat
            if offset > registers.OFFSET_MASK:
                raise ModelFault("packet", f"{self.name}: offset {offset:#x}")
            if fields["operation"] == READ:
                read.append(self.tile.read(offset))
            else:
                self.tile.write(offset, packet[2 + beat])
        if read:
            route = self.tile.array.route_of(self, fields["return_id"])
            if route.ports or route.controller:
                raise ModelFault("unsupported", f"{self.name}: an answer to no DMA")
            self.answers.append((fields["return_id"], read, None))

    def send_token(self, channel: Channel) -> None:
        """A task of ``channel`` has ended: a packet with its controller id to the controller."""
        packet_id = bd.unpack_fields(registers.CHANNEL_FIELDS, [channel.control])["controller_id"] & 31
        if not self.tile.array.route_of(self, packet_id).controller:
            raise ModelFault("route", f"{channel.name}: its token does not reach the controller")
        self.answers.append((packet_id, [], channel))

    @property
    def busy(self) -> bool:
        return bool(self.answers)

    def step(self) -> bool:
        return next(self.steps, False)

    def _run(self) -> Steps:
        array = self.tile.array
        while True:
            while not self.answers:
                yield False
            packet_id, words, channel = self.answers[0]
            header = bd.packet_header(packet_id, 0, self.tile.row, self.tile.column)
            route = array.route_of(self, packet_id)
            yield from self._until(lambda r=route: array.arbiters.take(r.arbiters, self), "an arbiter")
            for i, word in enumerate([header, *words] if channel is None else ()):
                yield from self._send_word(route, lambda w=word: w, is_header=i == 0)
            if channel is not None:
                channel.tokens += 1
            array.arbiters.release(self)
            self.answers.pop(0)
            yield True
