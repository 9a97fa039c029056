# SPDX-License-Identifier: Apache-2.0
"""What ``gate`` and ``diff`` print, and write as Markdown: totals, and operators that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.runtime.summary import where_nodes_are
from onedispatch.dispatch.tools.cost_diff import CostDiff, OperatorChange
from onedispatch.dispatch.tools.cost_record import CostRecord
from onedispatch.dispatch.tools.gate import Verdict, share_text
from onedispatch.transactions.base.text import counted, markdown_table

_TOTALS = ("total", "before", "after", "change", "verdict")
_OPERATORS = ("operator", "kind", "before", "after", "change", "verdict")
_MOST_ROWS = 20  # operators that are shown, unless all are asked for


def show_diff(diff: CostDiff, full: bool) -> None:
    """The tables. ``full``: every operator, also those that take what they took."""
    for line in (*(f"not alike: {one}" for one in diff.unlike), *(f"note: {one}" for one in diff.notes)):
        out.tell(line)
    out.table(_title(diff), _TOTALS, _total_rows(diff), right=(1, 2, 3))
    rows, rest = _operators(diff, full)
    if rows:
        out.table("Cycles of operators", _OPERATORS, map(_operator_row, rows), right=(2, 3, 4))
    for line in (*rest, *_moves(diff)):
        out.tell(line)


def _title(diff: CostDiff) -> str:
    before, after = _name(diff.before), _name(diff.after)
    return f"{before} beside itself" if before == after else f"{before}, then {after}"


def _name(record: CostRecord) -> str:
    return f"{record.model} on {record.device}"


def _total_rows(diff: CostDiff) -> list[tuple[str, ...]]:
    return [
        (
            one.what,
            _number(one.before),
            _number(one.after),
            _percent(one.change),
            _mark(one.beyond, one.worse),
        )
        for one in diff.totals
    ]


def _mark(beyond: bool, worse: bool) -> str:
    return ("more" if worse else "less") if beyond else ""


def _operators(diff: CostDiff, full: bool) -> tuple[list[OperatorChange], list[str]]:
    """Rows to show, and lines about those that are not."""
    if full:
        return list(diff.operators), []
    changed = diff.changed
    shown, bound = _worst(changed), share_text(diff.tolerance)
    same, more = len(diff.operators) - len(changed), len(changed) - len(shown)
    if not changed:
        return [], [f"no operator of {same} differs by more than {bound}"] if same else []
    rest = [f"and {counted(more, 'more operator')} (--full)"] if more else []
    return shown, [*rest, *([f"{counted(same, 'other operator')} within {bound}"] if same else [])]


def _worst(changed: list[OperatorChange]) -> list[OperatorChange]:
    """Of many those that changed most, in their order."""
    if len(changed) <= _MOST_ROWS:
        return changed
    most = sorted(changed, key=lambda one: -abs(one.cycles))[:_MOST_ROWS]
    return [one for one in changed if one in most]


def _operator_row(one: OperatorChange) -> tuple[str, ...]:
    return one.name, one.op_type, _cycles(one.before), _cycles(one.after), _percent(one.change), one.verdict


def _moves(diff: CostDiff) -> Iterator[str]:
    for node in diff.to_host:
        yield f"moved to the host: {node.node} ({node.op_type}): {node.reason}"
    for node in diff.to_device:
        yield f"moved to the device: {node.node} ({node.op_type})"


def _cycles(cycles: int | None) -> str:
    return "–" if cycles is None else f"{cycles:,}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def _percent(change: float | None) -> str:
    if change is None or change == float("inf"):
        return "" if change is None else "new"
    return f"{change:+.2%}"


# -- gates --------------------------------------------------------------------------------------


def cost_line(record: CostRecord) -> str:
    """A record in one line."""
    parts = [
        f"{_name(record)}: {record.us:,.1f} us ({record.cycles:,} cycles)",
        f"{record.ddr_bytes / 1e6:,.2f} MB of DDR traffic",
        counted(record.dispatches, "dispatch"),
    ]
    if record.placement is not None:
        npu, cpu, folded = (record.placement.get(place, 0) for place in ("npu", "cpu", "folded"))
        parts[-1] = where_nodes_are(npu, cpu, folded, record.dispatches)
    return ", ".join(parts)


def verdict_line(verdicts: Sequence[Verdict]) -> str:
    """The last line of a gate."""
    failures = sum(len(one.failures) for one in verdicts)
    return f"gate not met: {counted(failures, 'failure')}" if failures else "gate met"


def show_verdicts(verdicts: Sequence[Verdict], full: bool) -> None:
    """Failures first, a line each, which a script finds by its first word; then the tables."""
    for one in verdicts:
        for failure in one.failures:
            out.say(f"FAILED {_of_sizes(one, failure.option)}: {failure.found}")
    for one in verdicts:
        if one.diff is not None:
            show_diff(one.diff, full)
        for line in _lines(one):
            out.say(line)
    out.say(verdict_line(verdicts))


def _lines(verdict: Verdict) -> list[str]:
    notes = [f"note: {_of_sizes(verdict, note)}" for note in verdict.notes]
    cost = [] if verdict.record is None else [_of_sizes(verdict, cost_line(verdict.record))]
    return [*notes, *cost]


def _of_sizes(verdict: Verdict, text: str) -> str:
    """``text``, of several sizes with the one that it is about."""
    return f"{text}, {verdict.sizes}" if verdict.sizes else text


def diff_markdown(diff: CostDiff, full: bool) -> str:
    """The tables of a diff, as pages of code review show them."""
    rows, rest = _operators(diff, full)
    parts = [out.as_markdown(_title(diff)), markdown_table(_TOTALS, _total_rows(diff))]
    parts += [markdown_table(_OPERATORS, map(_operator_cells, rows))] if rows else []
    lines = [*(f"not alike: {one}" for one in diff.unlike), *diff.notes, *rest, *_moves(diff)]
    return "\n\n".join([*parts, *map(out.as_markdown, lines)]) + "\n"


def _operator_cells(one: OperatorChange) -> tuple[str, ...]:
    """A row whose names are text, also those that hold what Markdown would obey."""
    name, kind, *rest = _operator_row(one)
    return out.as_markdown(name), out.as_markdown(kind), *rest


def verdict_markdown(verdicts: Sequence[Verdict], full: bool) -> str:
    """The same of a gate, with what failed at the top."""
    lines = [out.as_markdown(line) for one in verdicts for line in _lines(one)]
    head = [f"### OneDispatch: {verdict_line(verdicts)}", *lines]
    failed = "\n".join(
        f"- `{failure.option}`: {out.as_markdown(_of_sizes(one, failure.found))}"
        for one in verdicts
        for failure in one.failures
    )
    page = "\n\n".join([*head, *([failed] if failed else [])]) + "\n"
    diffs = [diff_markdown(one.diff, full) for one in verdicts if one.diff is not None]
    return "\n".join([page, *diffs])
