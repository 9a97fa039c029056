# SPDX-License-Identifier: Apache-2.0
"""Rules that operators of many kinds share."""

from __future__ import annotations

from onedispatch.dispatch.frontend.facts import Facts, Rule
from onedispatch.transactions.base.phrases import span


def axis_in_range(default: int, *, end: bool = False) -> Rule:
    """Attribute ``axis`` names a dimension of the first input; ``end``: or the place behind the last."""

    def rule(facts: Facts) -> None:
        axis, shape = facts.attr("axis", default), facts.shape(0)
        if shape is None:
            return
        rank = len(shape)
        most = rank if end else rank - 1
        if not -rank <= axis <= most and not (rank == 0 and axis in (-1, 0)):
            facts.refuse("attribute 'axis'", axis, f"{span(-rank, most)} for rank {rank}")

    return rule


def one_of(name: str, *accepted: str) -> Rule:
    """Attribute ``name`` is one of ``accepted``; left out, it is the first."""

    def rule(facts: Facts) -> None:
        given = facts.attr(name, accepted[0])
        if given not in accepted:
            facts.refuse(f"attribute {name!r}", repr(given), ", ".join(map(repr, accepted)))

    return rule
