# SPDX-License-Identifier: Apache-2.0
"""Task completion tokens: which tasks must have ended when a wait for tokens ends.

A channel sends its tokens in the order of its tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from onedispatch.transactions.analysis.effects import Pushed

Channel = TypeVar("Channel")


class Tokens(Generic[Channel]):
    """Tokens that tasks issue and no wait has consumed yet."""

    def __init__(self) -> None:
        self._given: dict[Channel, deque[Pushed]] = {}
        self._unattributed = 0
        """Tokens that MERGE_SYNC consumed from unknown channels."""

    def issue(self, channel: Channel, push: Pushed) -> None:
        """Records that a task issues a token."""
        self._given.setdefault(channel, deque()).append(push)

    def forget(self, channel: Channel) -> None:
        """Drops the tokens of a channel that is reset."""
        self._given.pop(channel, None)

    def channels(self) -> list[Channel]:
        return list(self._given)

    def consume(self, channel: Channel) -> Pushed | None:
        """Returns the task that must have ended when a wait has consumed one token of the channel."""
        given = self._given.get(channel)
        return given.popleft() if given else None

    def merge(self, tokens: int) -> Iterator[tuple[Channel, Pushed]]:
        """Yields, per channel, the last task that must have ended when a wait consumed ``tokens`` of any."""
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
