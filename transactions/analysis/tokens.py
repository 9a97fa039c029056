# SPDX-License-Identifier: Apache-2.0
"""Which tasks' ends a wait for tokens has seen: a channel's tokens come in the order of its tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from onedispatch.transactions.analysis.effects import Pushed

Channel = TypeVar("Channel")


class Tokens(Generic[Channel]):
    """Tokens that tasks give and nobody has waited for yet."""

    def __init__(self) -> None:
        self._given: dict[Channel, deque[Pushed]] = {}
        self._unattributed = 0
        """Taken by MERGE_SYNC, which does not say of whom."""

    def give(self, channel: Channel, push: Pushed) -> None:
        self._given.setdefault(channel, deque()).append(push)

    def forget(self, channel: Channel) -> None:
        """The channel is reset."""
        self._given.pop(channel, None)

    def channels(self) -> list[Channel]:
        return list(self._given)

    def take(self, channel: Channel) -> Pushed | None:
        """The task that must have ended when one token of the channel has been waited for."""
        given = self._given.get(channel)
        return given.popleft() if given else None

    def merge(self, tokens: int) -> Iterator[tuple[Channel, Pushed]]:
        """Those that must have ended when so many tokens of any channels have: the last per channel."""
        taken = self._unattributed + tokens
        total = sum(map(len, self._given.values()))
        attributed = 0
        for channel, given in self._given.items():
            sure = min(taken - (total - len(given)), len(given))
            if sure > 0:
                last = [given.popleft() for _ in range(sure)][-1]
                attributed += sure
                yield channel, last
        self._unattributed = max(0, taken - attributed) if attributed < total else 0
