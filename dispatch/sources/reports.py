# SPDX-License-Identifier: Apache-2.0
"""What a translation could not do: all nodes at once, each with its reason."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from onedispatch.transactions.base.errors import UnknownOperatorError, UnsupportedModelError
from onedispatch.transactions.base.text import counted


@dataclass(frozen=True)
class Untranslated:
    """A node of another framework that no rule maps, or that its rule does not take; what is ``nearest``."""

    node: str
    reason: str
    nearest: tuple[str, ...] = ()

    def __str__(self) -> str:
        near = f" (nearest: {', '.join(self.nearest)})" if self.nearest else ""
        return f"{self.node}: {self.reason}{near}"


class RuleWarning(UserWarning):
    """A node has attributes that its rule says nothing of; in strict mode that is an error."""


def refuse_foreign(
    where: str, framework: str, unmapped: Collection[Untranslated], refused: Collection[Untranslated]
) -> None:
    """Raises ``UnknownOperatorError`` for nodes of a framework that no rule maps, all of them, and
    ``UnsupportedModelError`` for those that their rules do not take."""
    if unmapped:
        raise UnknownOperatorError(
            where,
            f"{counted(len(unmapped), 'node')} of {framework} that no rule maps",
            "operators of `onedispatch ops map`",
            f'map them in a plug-in: od.frontend("{framework}").op(...)',
            nodes=map(str, [*unmapped, *refused]),
        )
    if refused:
        given = f"{counted(len(refused), 'node')} that their rules do not take"
        raise UnsupportedModelError(where, given, "what the rules say", nodes=map(str, refused))


def report_unmentioned(where: str, lines: Sequence[str], *, strict: bool) -> None:
    """Warns of attributes that no rule mentions. Raises ``UnsupportedModelError`` in strict mode."""
    if lines and strict:
        raise UnsupportedModelError(
            where,
            f"attributes that no rule mentions, of {counted(len(lines), 'node')}",
            "in strict mode, attributes that their rule maps",
            "map them, or say that they mean nothing: .ignore(name)",
            nodes=lines,
        )
    if lines:
        text = "; ".join(lines[:5]) + ("; ..." if len(lines) > 5 else "")
        warnings.warn(f"attributes that no rule mentions: {text}", RuleWarning, stacklevel=2)
