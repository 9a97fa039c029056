# SPDX-License-Identifier: Apache-2.0
"""What sends words into a switch: DMA channels, and control ports that answer.

A word moves only when every receiver can take it, and it moves to all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.array_model.array import Tile
    from tests.array_model.switch import Route

Steps = Iterator[bool]
"""What every agent is: a coroutine that yields True when it did something, False when it waits."""


class Sender:
    def __init__(self, tile: Tile, name: str) -> None:
        self.tile, self.name = tile, name
        self.waits_for = ""
        self.route: Route

    @property
    def paused(self) -> bool:
        return False

    def _until(self, condition: Callable[[], bool], what: str) -> Steps:
        """Wait until ``condition()``, asked once per step; ends with a step that did something."""
        if not condition():
            self.waits_for = what
            yield True  # from now on the status register says what it waits for
            while not condition():
                yield False
            self.waits_for = ""
        yield True

    def _send_word(self, route: Route, value: Callable[[], int], is_header: bool = False) -> Steps:
        """One word to all receivers; ``value`` is asked for it when it moves."""
        receivers = [d.channel for d in route.destinations if d.keeps_header or not is_header]
        text = "stream (no room at " + ", ".join(c.name for c in receivers) + ")"
        yield from self._until(
            lambda: not self.paused and all(channel.can_take() for channel in receivers), text
        )
        word = value()
        for channel in receivers:
            channel.give(word)
