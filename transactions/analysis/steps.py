# SPDX-License-Identifier: Apache-2.0
"""The steps of a transaction: runs of events of one kind, and their repetitions."""

from __future__ import annotations

from onedispatch.transactions.analysis import effects
from onedispatch.transactions.base.text import KIND_NAMES, counted
from onedispatch.transactions.machine import registers
from onedispatch.transactions.text import listing

_MOST_STEPS = 12
_MOST_COMPARED = 10_000
"""Steps that are searched for repetitions."""
ExplainedStep = tuple[int, int, str]
"""(first op, last op, what)"""
_STEPS: dict[type, str] = {
    effects.BdWritten: "move",
    effects.Patched: "move",
    effects.Pushed: "move",
    effects.Reset: "reset channels",
    effects.LockSet: "move",
    effects.LockWait: "wait",
    effects.IdleWait: "wait",
    effects.Poll: "wait",
    effects.TokenWait: "wait",
    effects.DataWritten: "write parameters",
    effects.RegisterWritten: "set registers",
}


_PROGRAM = "load a program"
_PROGRAM_AT = registers.CORE.block["PROGRAM_MEMORY"].offset


class StepCollector:
    """Collects runs of events of one kind; lock polls around a parameter block belong to the block."""

    def __init__(self) -> None:
        self.done: list[ExplainedStep] = []
        self.what = ""
        self.run: list[effects.Event] = []
        self.block_op = -1
        """The op of the last parameter block."""

    def add(self, event: effects.Event) -> None:
        what = _STEPS.get(type(event))
        if what is None or event.op == self.block_op:
            return
        if what == "move":  # most events
            pass
        elif isinstance(event, effects.RegisterWritten):
            place = listing.register_text(event.address)
            if "_CTRL" in place:
                what = "reset channels"
            elif "CORE_CONTROL" in place:
                what = _PROGRAM
        elif isinstance(event, effects.LockWait):
            if event.tile[1] >= registers.FIRST_CORE_ROW:
                what = "write parameters"
        elif isinstance(event, effects.DataWritten):
            self.block_op = event.op
            if event.tile[1] >= registers.FIRST_CORE_ROW and event.offset >= _PROGRAM_AT:
                what = _PROGRAM
        if what != self.what:
            self.end()
            self.what = what
        self.run.append(event)

    def end(self) -> None:
        """Closes the current run; to be called after the last event too."""
        if self.run:
            self.done.append((self.run[0].op, self.run[-1].op, _step_text(self.what, self.run)))
        self.run = []


def fold_repetitions(steps: list[ExplainedStep]) -> tuple[list[ExplainedStep], int]:
    """Returns the first steps, repetitions folded into one line, and the number of steps left out."""
    result: list[ExplainedStep] = []
    at = 0
    while at < len(steps) and len(result) < _MOST_STEPS:
        period, times = _repeated([what for _, _, what in steps[at : at + _MOST_COMPARED]])
        result += steps[at : at + period]
        if times > 1:
            again = steps[at + period : at + period * times]
            what = "the same" if period == 1 else f"the same {counted(period, 'step')}"
            result.append((again[0][0], again[-1][1], f"{what} {counted(times - 1, 'more time')}"))
        at += period * times
    return result, len(steps) - at


def _repeated(texts: list[str]) -> tuple[int, int]:
    """Returns (length, times) of the repetition at the start that saves most lines."""
    best = (1, 1)
    for period in range(1, min(_MOST_STEPS, len(texts) // 2) + 1):
        times = 1
        while texts[:period] == texts[period * times : period * (times + 1)]:
            times += 1
        # Folding two lines into one line and a remark saves nothing.
        if times > 1 and period * (times - 1) > max(1, best[0] * (best[1] - 1)):
            best = (period, times)
    return best


def _step_text(what: str, run: list[effects.Event]) -> str:
    tiles = {getattr(event, "tile", None) for event in run} - {None}
    kinds = {registers.kind_of_row(tile[1]) for tile in tiles if tile}
    names = " and ".join(name for kind, name in KIND_NAMES.items() if kind in kinds)
    where = f"{counted(len(tiles), 'tile')} ({names})" if tiles else "the array"
    if what == "move":
        pushes, locks = effects.pushes_of(run), sum(isinstance(event, effects.LockSet) for event in run)
        parts = [f"set {counted(locks, 'lock')}"] if locks else []
        if pushes:
            parts.append(
                f"start {counted(len(pushes), 'task')} "
                f"of {counted(sum(push.bytes for push in pushes), 'byte')}"
            )
        return f"{', '.join(parts) or 'write BDs'} in {where}"
    if what == "wait":
        return f"wait for {counted(len(run), 'condition')} in {where}"
    if what in ("write parameters", _PROGRAM):
        words = sum(len(event.words) for event in run if isinstance(event, effects.DataWritten))
        return f"{what}: {counted(words, 'word')} into {where}"
    return f"{what}: {counted(len(run), 'write')} in {where}"
