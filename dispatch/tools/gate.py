# SPDX-License-Identifier: Apache-2.0
"""Limits that a model's cost is held against, alone and beside a baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onedispatch.dispatch.tools.cost_diff import Amount, CostDiff, OperatorChange
from onedispatch.dispatch.tools.cost_record import CostRecord
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import counted

_LISTED = 3  # nodes that a line names


@dataclass(frozen=True)
class Limits:
    """The most that there may be of each; None: any number. Shares are 0.02 for two percent."""

    max_us: float | None = None
    max_ms: float | None = None
    max_cycles: int | None = None
    max_ddr_mb: float | None = None
    max_dispatches: int | None = None
    no_cpu: bool = False
    min_npu_share: float | None = None

    @property
    def any(self) -> bool:
        """True if there is one; 0 is one too."""
        return self != Limits()


@dataclass(frozen=True)
class Failure:
    """A limit that is not met: the option that states it, and what was found."""

    option: str
    found: str

    def __str__(self) -> str:
        return f"{self.option}: {self.found}"


@dataclass(frozen=True)
class Verdict:
    """What a gate says: ``failures`` is empty where it is met; ``notes`` are what no limit holds. Without a
    record nothing was measured. ``sizes`` names those of inputs, of a model that is compiled for several."""

    record: CostRecord | None
    failures: tuple[Failure, ...]
    diff: CostDiff | None = None
    notes: tuple[str, ...] = ()
    sizes: str = ""

    @property
    def met(self) -> bool:
        return not self.failures

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it."""
        return {
            "met": self.met,
            "failures": [asdict(one) for one in self.failures],
            "notes": list(self.notes),
            "record": None if self.record is None else self.record.as_dict(),
            "diff": None if self.diff is None else self.diff.as_dict(),
        }


def as_dict(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Plain data: the verdict, or those on each of several sizes."""
    if len(verdicts) == 1:
        return verdicts[0].as_dict()
    each = [{"sizes": one.sizes} | one.as_dict() for one in verdicts]
    return {"met": all(one.met for one in verdicts), "sizes": each}


def unmeasured(open_inputs: str, sizes: str) -> Verdict:
    """The verdict on a model whose ``open_inputs`` have no sizes; ``sizes`` are options that name some."""
    found = f"the sizes of {open_inputs} are not given, and a limit on guessed sizes is no gate: {sizes}"
    return Verdict(None, (Failure("--shape", found),))


def judge(
    record: CostRecord, limits: Limits, diff: CostDiff | None = None, max_regression: float | None = None
) -> Verdict:
    """Holds a record against limits, and against the baseline of ``diff``, whose tolerance is for totals.

    ``max_regression`` is what any operator may take longer, as a share of what it took; operators that
    appeared are held, in all, to what those took that vanished. Raises ``InputError`` for a baseline of
    another device, other options or other inputs.
    """
    failures = list(_over(record, limits))
    if diff is not None:
        check_comparable(diff)
        failures += _regressed(diff, max_regression)
    return Verdict(record, tuple(failures), diff, tuple(_notes(record, limits)))


def check_comparable(diff: CostDiff) -> None:
    """Raises ``InputError``, which says what differs, unless both records are of one question."""
    if diff.unlike:
        raise InputError(
            "--baseline",
            f"a record that differs in {'; '.join(diff.unlike)}",
            "a baseline of the same device, options and shapes of inputs",
            "pass what it was written with, or write it again with --write-baseline; `onedispatch diff` "
            "compares unlike records",
        )


def _over(record: CostRecord, limits: Limits) -> Iterator[Failure]:
    amounts = (
        ("--max-us", record.us, limits.max_us, "us"),
        ("--max-ms", record.us / 1e3, limits.max_ms, "ms"),
        ("--max-cycles", record.cycles, limits.max_cycles, "cycles"),
        ("--max-ddr-mb", record.ddr_bytes / 1e6, limits.max_ddr_mb, "MB"),
        ("--max-dispatches", record.dispatches, limits.max_dispatches, "dispatches"),
    )
    for option, found, most, unit in amounts:
        if most is not None and option in _TIMES and not record.operators:
            yield Failure(option, "nothing runs on the device, so there is no modelled time")
        elif most is not None and found > most:
            yield Failure(option, f"{_number(found)} {unit}, at most {_number(most)}")
    if limits.no_cpu and record.host_nodes:
        yield Failure("--no-cpu", _on_host(record))
    share, least = record.npu_share, limits.min_npu_share
    if least is not None and share is not None and share < least:
        yield Failure(
            "--min-npu-share", f"{share:.2%} of the nodes that a run computes, at least {share_text(least)}"
        )


_TIMES = ("--max-us", "--max-ms", "--max-cycles")


def _notes(record: CostRecord, limits: Limits) -> Iterator[str]:
    """What limits that are met leave open."""
    if record.host_nodes and not limits.no_cpu and limits.min_npu_share is None:
        nodes = counted(len(record.host_nodes), "node")
        yield f"{nodes} on the host, whose time is in no limit; --no-cpu and --min-npu-share limit such nodes"


def _on_host(record: CostRecord) -> str:
    named = [f"{one.node} ({one.op_type}): {one.reason}" for one in record.host_nodes[:_LISTED]]
    more = len(record.host_nodes) - len(named)
    rest = f"; and {more} more" if more else ""
    return f"{counted(len(record.host_nodes), 'node')} on the host: {'; '.join(named)}{rest}"


def _regressed(diff: CostDiff, max_regression: float | None) -> Iterator[Failure]:
    for total in diff.totals:
        if total.worse and total.what in _GATED:
            change = f"{_number(total.before)} before, {_number(total.after)} now: {_percent(total.change)}"
            yield Failure("--baseline", f"{total.what}: {change}, tolerance {share_text(diff.tolerance)}")
    for node in diff.to_host:
        yield Failure("--baseline", f"{node.node} ({node.op_type}) moved to the host: {node.reason}")
    if max_regression is not None:
        yield from _slower(diff, max_regression)


def _slower(diff: CostDiff, most: float) -> Iterator[Failure]:
    """Operators that take too much longer, and those without partners, which are held together."""
    limit = f"at most +{share_text(most)}"
    for one in diff.operators:
        if (one.change or 0.0) > most:
            change = f"{one.before:,} cycles before, {one.after:,} now: {_percent(one.change)}"
            yield Failure("--max-regression", f"{one.name} ({one.op_type}): {change}, {limit}")
    new = [one for one in diff.operators if one.before is None]
    gone = [one for one in diff.operators if one.after is None]
    replaced = Amount.of("cycles", -sum(one.cycles for one in gone), sum(one.cycles for one in new), most)
    if replaced.worse:
        change = f": {_percent(replaced.change)}, {limit}" if gone else ", so that nothing can be compared"
        yield Failure("--max-regression", f"{_named(new, 'appeared')}; {_named(gone, 'vanished')}{change}")


def _named(operators: Sequence[OperatorChange], verdict: str) -> str:
    """Operators without partners, the largest first, and their cycles."""
    if not operators:
        return f"none {verdict}"
    largest = sorted(operators, key=lambda one: -abs(one.cycles))[:_LISTED]
    names = [f"{one.name} ({one.op_type})" for one in largest]
    names += [f"{len(operators) - len(names)} more"] if len(operators) > len(names) else []
    return f"{', '.join(names)} {verdict}, {abs(sum(one.cycles for one in operators)):,} cycles"


# Totals of which more fails a gate; the others are the same in other units, or follow from moved nodes.
_GATED = ("cycles", "DDR bytes", "dispatches")


def _percent(change: float | None) -> str:
    if change is None:
        return ""
    return f"{change:+.2%}" if math.isfinite(change) else "none before"


def _number(value: float) -> str:
    """Whole numbers as they are, others with six digits."""
    return f"{value:,.0f}" if float(value).is_integer() or value >= 1e5 else f"{value:,.6g}"


def share_text(share: float) -> str:
    """A share as it was given: 0.02 is 2%."""
    return f"{share * 100:g}%"
