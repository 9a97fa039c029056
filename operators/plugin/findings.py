# SPDX-License-Identifier: Apache-2.0
"""What check mode finds: each finding says which member did what where, and what was declared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

KINDS = {
    "read": "reads outside of its declaration",
    "write": "writes outside of its declaration",
    "race": "two members write one element",
    "gap": "elements that no member writes",
    "order": "other bits in another order, or in other partitions",
    "state": "other bits when the same call is made again",
    "host": "reads memory of the host, which no core has",
    "wide": "declares much more than it touches",
    "reshape": "a layer that is said to reshape changes its data",
    "header": "a parameter header that says something else than Params",
    "stale": "a compiled body that is older than its source",
    "refused": "the kernel or its node is refused",
    "crash": "it crashes",
    "timeout": "it does not end in time",
    "failed": "it fails",
}
WARNINGS = frozenset({"wide", "stale"})
KEPT = 3  # findings of a kind that are said of an operand, in one case


@dataclass(frozen=True)
class Finding:
    """``kind``: one of ``KINDS``. ``member`` and ``coordinate``: numbers per dimension, () where none is
    known. ``declared``: ``[low..high, ...]`` of the operand, ends included. ``ratio``: of "wide"."""

    kind: str
    text: str
    case: str = ""
    member: tuple[int, ...] = ()
    operand: str = ""
    coordinate: tuple[int, ...] = ()
    declared: str = ""
    ratio: float = 0.0

    @property
    def level(self) -> str:
        return "warning" if self.kind in WARNINGS else "error"

    def as_dict(self) -> dict[str, Any]:
        return {"level": self.level} | asdict(self)

    def __str__(self) -> str:
        return f"{self.level}: {self.kind}: {f'{self.case}: ' if self.case else ''}{self.text}"


class Findings:
    """Findings as they come; of many alike the first few are kept."""

    def __init__(self, case: str = "") -> None:
        self.case = case
        self.kept: list[Finding] = []
        self._seen: dict[tuple[str, str], int] = {}

    def add(self, kind: str, text: str, *, operand: str = "", **more: Any) -> None:
        if any(text == one.text for one in self.kept):
            return
        seen = self._seen[kind, operand] = self._seen.get((kind, operand), 0) + 1
        if seen <= KEPT:
            self.kept.append(Finding(kind, text, self.case, operand=operand, **more))

    def has(self, *kinds: str) -> bool:
        return any(kind in kinds for kind, _ in self._seen)

    def __iter__(self) -> Iterator[Finding]:
        return iter(list(self.kept))


def failed(findings: Iterable[Finding]) -> bool:
    """Whether one of them is more than a warning."""
    return any(one.level == "error" for one in findings)
