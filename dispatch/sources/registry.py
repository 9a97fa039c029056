# SPDX-License-Identifier: Apache-2.0
"""Which mapping rules and fusions there are: those of plug-ins, and behind them ours."""

from __future__ import annotations

import difflib

from onedispatch.dispatch.sources.rule import Fusion, Rule
from onedispatch.operators.declarations.registry import mapping_for
from onedispatch.operators.plugin import registrations
from onedispatch.transactions.base.errors import RuleError

_OURS: list[Rule | Fusion] = []


def add(one: Rule | Fusion) -> None:
    """Makes a rule or fusion known. Raises ``RuleError`` where another one has its key."""
    if not one.ours:
        registrations.add_extra(one)
        return
    for other in _OURS:
        if other.clashes(one):
            raise RuleError(
                f"{one.name} of {one.place}", f"a second one beside {other.place}", "one for each"
            )
    _OURS.append(one)


def withdraw(one: Rule | Fusion) -> None:
    """Takes back a rule or fusion that turned out to be wrong while it was written."""
    registrations.withdraw_extra(one)
    _OURS[:] = [other for other in _OURS if other is not one]


def rules() -> list[Rule]:
    """Returns every rule, those of plug-ins first."""
    return [one for one in (*registrations.extras(), *_OURS) if isinstance(one, Rule)]


def fusions() -> list[Fusion]:
    """Returns every fusion in the order of matching: those of plug-ins as registered, then ours.

    One of a plug-in takes the place of ours with the same name.
    """
    found = [one for one in registrations.extras() if isinstance(one, Fusion)]
    names = {one.name for one in found}
    return [*found, *(one for one in _OURS if isinstance(one, Fusion) and one.name not in names)]


class Rules:
    """The rules of this moment, by what they map."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str, str], list[Rule]] = {}
        for rule in rules():
            self._by_key.setdefault(rule.key, []).append(rule)

    def find(self, framework: str, domain: str, op_type: str, version: int) -> Rule | None:
        """Returns the rule for an operator in this version, None if there is none.

        Where a plug-in has a kernel or an operator for it, ours is not used.
        """
        known = [rule for rule in self._by_key.get((framework, domain, op_type), ()) if rule.covers(version)]
        mapping = mapping_for(domain, op_type) if known and known[0].ours else None
        return known[0] if known and not (mapping is not None and mapping.origin) else None

    def any_for(self, framework: str, domain: str, op_type: str) -> bool:
        """Whether a rule is for the operator in any version."""
        return (framework, domain, op_type) in self._by_key

    def nearest(self, framework: str, domain: str, op_type: str) -> list[str]:
        """Returns what is there instead: the operator in other versions or domains, or names alike."""
        same = [r for key, found in self._by_key.items() if key[2] == op_type for r in found]
        if same:
            return [rule.source for rule in same]
        names = {key[2]: found for key, found in self._by_key.items() if key[0] == framework}
        close = difflib.get_close_matches(op_type, list(names), 3)
        return [rule.source for name in close for rule in names[name][:1]]
