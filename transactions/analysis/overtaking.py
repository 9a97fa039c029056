# SPDX-License-Identifier: Apache-2.0
"""Tasks that may begin in another order than they are pushed: pushes of the controller that overtake those
that a stream carries to the same queue as control packets."""

from __future__ import annotations

from collections.abc import Iterator

from onedispatch.transactions.analysis import effects
from onedispatch.transactions.analysis.effects import Pushed, Tile
from onedispatch.transactions.analysis.order import HappensBefore

Channel = tuple[Tile, int, int]


class Overtaking:
    """Follows the pushes of a transaction in its context."""

    def __init__(self, order: HappensBefore) -> None:
        self._order = order
        self._carriers: dict[int, Pushed] = {}  # by op
        self._carried: dict[Channel, Pushed] = {}
        """By channel: the task that carries the last packet which pushes one there."""

    def observe(self, event: effects.Event) -> Iterator[tuple[int, Channel, str]]:
        """Yields the op and the channel of a push that no wait holds back, and what may happen."""
        if not isinstance(event, Pushed):
            return
        channel = event.tile, event.direction, event.channel
        if event.packet:
            self._carried[channel] = self._carriers[event.op]
            return
        self._carriers[event.op] = event
        carrier = self._carried.pop(channel, None)
        if carrier is not None and not self._order.has_ended(carrier):
            sent = f"those that op {carrier.op} sends as control packets: nothing waits for their end"
            yield event.op, channel, f"the task may begin before {sent}"
