# SPDX-License-Identifier: Apache-2.0
"""Semantic diff of two transactions: traffic, tasks, ops; padding is ignored.

Ops are matched by content: the k-th occurrence of an op in one file matches the k-th in the
other. The longest common order of matches is unchanged, the other matches have moved. Of the
remaining ops, those that write the same register are changed, the others removed or added. Versions
may differ. Tasks are compared by the data that they move, not by the numbers of their BDs.
"""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onedispatch.transactions.analysis import explain
from onedispatch.transactions.analysis.effects import DIRECTIONS, Pushed
from onedispatch.transactions.analysis.explain import Explanation
from onedispatch.transactions.base.text import counted, tile_name
from onedispatch.transactions.format.binary import OperationView, TransactionBinary
from onedispatch.transactions.machine import bd, registers
from onedispatch.transactions.text import listing

_HEADER = ("device_generation", "rows", "columns", "mem_tile_rows")
_SIGNS = {"changed": "~", "moved": ">", "removed": "-", "added": "+"}
_MOST = 8
"""Maximum number of differences reported per task list or block."""


@dataclass(frozen=True)
class OpChange:
    """One op that differs; ``a`` and ``b`` are its indices, None if it is absent."""

    kind: str
    a: int | None
    b: int | None
    text: str

    def __str__(self) -> str:
        indices = " -> ".join(str(index) for index in (self.a, self.b) if index is not None)
        return f"{_SIGNS[self.kind]} op {indices}: {self.text}"


@dataclass(frozen=True)
class Difference:
    """All differences: ``tasks`` are differences in behaviour, ``ops`` in encoding."""

    header: tuple[str, ...]
    traffic: tuple[str, ...]
    tasks: tuple[str, ...]
    ops: tuple[OpChange, ...]

    def __bool__(self) -> bool:
        return bool(self.header or self.traffic or self.tasks or self.ops)

    def text(self, most: int = 40) -> str:
        """Returns the differences as text, with at most ``most`` ops."""
        if not self:
            return "no difference in meaning\n"
        lines = [*self.header, *self.traffic, *self.tasks]
        if self.ops and not (self.traffic or self.tasks):
            lines.append("the tasks of all channels are the same; how they are written differs")
        counts = [f"{sum(c.kind == kind for c in self.ops)} {kind}" for kind in _SIGNS]
        lines.append(f"ops: {', '.join(counts)}")
        lines += [f"  {change}" for change in self.ops[:most]]
        if len(self.ops) > most:
            lines.append(f"  and {len(self.ops) - most} more")
        return "\n".join(lines) + "\n"

    def to_dict(self) -> dict[str, Any]:
        return {
            "header": self.header,
            "traffic": self.traffic,
            "tasks": self.tasks,
            "ops": [vars(change) for change in self.ops],
        }


def diff(a: TransactionBinary, b: TransactionBinary) -> Difference:
    """Returns the semantic differences from ``a`` to ``b``."""
    header = [
        f"header: {name} {getattr(a.header, name)} -> {getattr(b.header, name)}"
        for name in _HEADER
        if getattr(a.header, name) != getattr(b.header, name)
    ]
    changes = sorted(_changes(a, b), key=lambda c: (c.a if c.a is not None else c.b or 0, c.kind))
    if not changes:
        return Difference(tuple(header), (), (), ())
    before, after = Explanation.of(a), Explanation.of(b)
    return Difference(
        tuple(header), tuple(_traffic(before, after)), tuple(_tasks(before, after)), tuple(changes)
    )


# --- Ops ----------------------------------------------------------------------------------------


def _meaning(op: OperationView) -> tuple[object, ...]:
    return (op.code, *op.fields.values(), op.payload)


def _occurrences(transaction: TransactionBinary) -> list[tuple[object, int]]:
    counts: dict[object, int] = defaultdict(int)
    result: list[tuple[object, int]] = []
    for op in transaction.ops:
        meaning = _meaning(op)
        result.append((meaning, counts[meaning]))
        counts[meaning] += 1
    return result


def _standing(positions: list[int]) -> set[int]:
    """Returns the indices of a longest increasing subsequence of ``positions``."""
    tails: list[int] = []
    ends: list[int] = []
    previous = [-1] * len(positions)
    for i, position in enumerate(positions):
        at = bisect.bisect_left(tails, position)
        previous[i] = ends[at - 1] if at else -1
        if at == len(tails):
            tails.append(position)
            ends.append(i)
        else:
            tails[at], ends[at] = position, i
    kept = set()
    i = ends[-1] if ends else -1
    while i >= 0:
        kept.add(i)
        i = previous[i]
    return kept


def _changes(a: TransactionBinary, b: TransactionBinary) -> Iterator[OpChange]:
    keys_a, keys_b = _occurrences(a), _occurrences(b)
    where_b = {key: index for index, key in enumerate(keys_b)}
    pairs = [(i, where_b[key]) for i, key in enumerate(keys_a) if key in where_b]
    still = _standing([j for _, j in pairs])
    for at, (i, j) in enumerate(pairs):
        if at not in still:
            yield OpChange("moved", i, j, str(a.ops[i]))
    matched_a, matched_b = {i for i, _ in pairs}, {j for _, j in pairs}
    waiting: dict[tuple[object, ...], deque[int]] = defaultdict(deque)
    for j in range(len(keys_b)):
        if j not in matched_b:
            waiting[_where(b.ops[j])].append(j)
    for i in range(len(keys_a)):
        if i in matched_a:
            continue
        op = a.ops[i]
        others = waiting[_where(op)]
        if others:
            j = others.popleft()
            yield OpChange("changed", i, j, _changed(op, b.ops[j]))
        else:
            yield OpChange("removed", i, None, listing.describe(op))
    for rest in waiting.values():
        for j in rest:
            yield OpChange("added", None, j, listing.describe(b.ops[j]))


def _where(op: OperationView) -> tuple[object, ...]:
    """Returns the opcode and the register of an op."""
    return (op.code, op.fields.get("reg"))


def _changed(a: OperationView, b: OperationView) -> str:
    at = listing.register_text(a.reg) if "reg" in a.fields else ""
    head = f"{a.name} {at}".rstrip()
    if a.payload or b.payload:
        return f"{head}: {'; '.join(_payload_changes(a, b))}"
    old, new = a.fields, b.fields
    if a.name == "WRITE":
        old, new = _decoded(a) or old, _decoded(b) or new
    parts = [f"{name} {old.get(name)} -> {new[name]}" for name in new if old.get(name) != new[name]]
    return f"{head}: {', '.join(parts)}"


def _decoded(op: OperationView) -> dict[str, int]:
    fields = listing.word_fields(op.reg, op.value)
    return bd.unpack_fields(fields, [op.value]) if fields else {}


def _payload_changes(a: OperationView, b: OperationView) -> Iterator[str]:
    register = a.register if "reg" in a.fields else None
    kind = registers.kind_of_row(a.tile[1]) if a.tile else None
    old, new = a.words, b.words
    is_bds = kind and register and register.block.name == "DMA_BD" and not register.byte
    if not is_bds or kind is None or register is None or len(old) != len(new):
        if len(old) != len(new):
            yield f"{len(old)} -> {counted(len(new), 'word')}"
        differ = [i for i in range(min(len(old), len(new))) if old[i] != new[i]]
        yield from (f"word {i} {old[i]:#x} -> {new[i]:#x}" for i in differ[:_MOST])
        if len(differ) > _MOST:
            yield f"and {counted(len(differ) - _MOST, 'more word')}"
        return
    tile = registers.TILES[kind]
    step = tile.block["DMA_BD"].stride // 4
    for number, at in enumerate(range(0, len(old), step), register.index):
        before, after = old[at : at + step], new[at : at + step]
        if before == after:
            continue
        parts: list[str] = []
        if len(before) >= tile.bd_words:
            values, others = vars(bd.decode_bd(kind, before)), vars(bd.decode_bd(kind, after))
            parts = [f"{n} {values[n]} -> {others[n]}" for n in values if values[n] != others[n]]
        yield f"bd {number}: {', '.join(parts) or 'bits without a field'}"


# --- Meaning ------------------------------------------------------------------------------------


def _traffic(a: Explanation, b: Explanation) -> Iterator[str]:
    for argument in sorted({*a.arguments, *b.arguments}):
        empty = explain.ArgumentTraffic(argument, first=0)
        old, new = a.arguments.get(argument, empty), b.arguments.get(argument, empty)
        parts = [
            f"{name} {before:,} -> {after:,}"
            for name in ("read", "written", "first", "end")
            if (before := getattr(old, name)) != (after := getattr(new, name))
        ]
        if parts:
            yield f"arg {argument}: {', '.join(parts)}"


def _tasks(a: Explanation, b: Explanation) -> Iterator[str]:
    for tile in sorted({*a.tiles, *b.tiles}):
        old, new = a.tiles.get(tile), b.tiles.get(tile)
        channels = sorted({*(old.channels if old else ()), *(new.channels if new else ())})
        for key in channels:
            before = _signatures(old.channels[key].pushes if old and key in old.channels else [])
            after = _signatures(new.channels[key].pushes if new and key in new.channels else [])
            if before != after:
                name = f"{tile_name(*tile)} {DIRECTIONS[key[0]]}[{key[1]}]"
                yield from (f"{name}: {line}" for line in _task_lines(before, after))


def _signatures(pushes: list[Pushed]) -> list[str]:
    return [_signature(push) for push in pushes]


def _signature(push: Pushed) -> str:
    chain = " | ".join(explain.bd_text(use).partition(": ")[2] for use in push.chain)
    runs = f" x {push.repeat}" if push.repeat > 1 else ""
    return f"{chain}{runs}{', token' if push.token else ''}{f', {push.end}' if push.end else ''}"


def _task_lines(before: list[str], after: list[str]) -> Iterator[str]:
    if len(before) != len(after):
        yield f"{len(before)} -> {counted(len(after), 'task')}"
    differ = [i for i in range(min(len(before), len(after))) if before[i] != after[i]]
    yield from (f"task {i}: {before[i]} -> {after[i]}" for i in differ[:_MOST])
    if len(differ) > _MOST:
        yield f"and {counted(len(differ) - _MOST, 'more task')}"
