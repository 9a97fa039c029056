# SPDX-License-Identifier: Apache-2.0
"""The stages of compiling, and about how long it still takes, while a command compiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.text import Text

from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.rows import shortened
from onedispatch.dispatch.compiler.passes import Pass, observed

# Shares of the time that passes take, in percent: networks differ little. Others take next to none.
SHARES = {
    "import": 17,
    "fold-constants": 4,
    "specialise": 2,
    "rewrite-patterns": 5,
    "expand-bodies": 1,
    "map-nodes": 6,
    "merge-operators": 3,
    "select-solutions": 8,
    "group-operators": 21,
    "emit-operators": 22,
    "fuse": 11,
}
_LEAST_TEXT, _SPINNER = 12, 3  # cells of a terminal
_SHOWN_FROM = 1.0  # seconds, before which no time is shown


class Stages:
    """An observer of passes; as text, the pass that runs and about how many seconds are left.

    What is left follows from the share of the passes that are done, in the time that they took. Each set of
    shapes goes through the later passes once more: the first of them that comes again begins a new count.
    """

    def __init__(self, text: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._text = text
        self._clock = clock
        self._start = clock()
        self._running = ""
        self._done: dict[str, float] = {}  # share by pass
        self._at = self._start  # when the last one was done

    def before(self, runs: Pass) -> None:
        if runs.name in self._done:
            self._done = {}
            self._start = self._at = self._clock()
        self._running = runs.name

    def after(self, ran: Pass, before: Any, result: Any, seconds: float) -> None:
        self._done[ran.name] = SHARES.get(ran.name, 0)
        self._at = self._clock()

    @property
    def left(self) -> float | None:
        """About how many seconds are left; None where too little is done to say so."""
        done, now = sum(self._done.values()), self._clock()
        if done < SHARES["import"] or now - self._start < _SHOWN_FROM:
            return None
        whole = (self._at - self._start) * self._whole / done
        return max(0.0, self._start + whole - now)

    @property
    def _whole(self) -> float:
        """The share of all passes of this count: without those of the model, where it began behind them."""
        behind = next(iter(self._done)) not in ("import", "translate")
        return sum(SHARES.values()) - (SHARES["import"] + SHARES["fold-constants"] if behind else 0)

    def __str__(self) -> str:
        return f"{self._text}{self._stage}"

    @property
    def _stage(self) -> str:
        """The pass that runs, and about how long it still takes."""
        left = self.left
        rest = "" if left is None else f", about {max(1, round(left))} s left"
        return f": {self._running}{rest}" if self._running else ""

    def __rich__(self) -> Text:
        """One line of the terminal: where that is narrow, what is compiled is shortened, not what is left."""
        stage = self._stage
        text = shortened(out.visible(self._text), max(_LEAST_TEXT, out.errors.width - len(stage) - _SPINNER))
        return Text(f"{text}{stage}", no_wrap=True, overflow="ellipsis")


@contextmanager
def compiling(text: str) -> Iterator[None]:
    """Shows the stages of what is compiled inside, as ``working`` shows its text."""
    stages = Stages(text)
    with observed(stages), out.working(stages):
        yield
