# SPDX-License-Identifier: Apache-2.0
"""What plug-ins register: mapping rules of one node, and fusions of several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from onedispatch.dispatch.sources.facts import Fact
from onedispatch.dispatch.sources.targets import Target

Kind = Literal["1:1", "1:N", "N:M"]
Versions = tuple[int, int | None]  # first and last, None: all later ones


@dataclass(frozen=True)
class Place:
    """Where a rule was written."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


@dataclass(eq=False)
class Rule:
    """The mapping of one operator of a source framework.

    Either ``target`` with ``facts`` (1:1), or ``function``, which writes its nodes (1:N). ``ours``: it comes
    with the package, and rules of others go before it.
    """

    framework: str
    domain: str
    op_type: str
    place: Place
    origin: str
    ours: bool
    versions: Versions | None = None
    target: Target | None = None
    facts: list[Fact] = field(default_factory=list)
    function: Callable[..., Any] | None = None
    inherit: bool = True

    @property
    def kind(self) -> Kind:
        return "1:1" if self.function is None else "1:N"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.framework, self.domain, self.op_type

    @property
    def source(self) -> str:
        """``tensorflow::TopKV2``, ``acme::OldName``, with its versions if they are limited."""
        space = self.domain or self.framework
        return f"{space}::{self.op_type}{_spelled(self.versions)}"

    @property
    def name(self) -> str:
        return f"rule for {self.source}"

    def covers(self, version: int) -> bool:
        """Whether it is for this version of the operator set."""
        first, last = self.versions or (0, None)
        return first <= version and (last is None or version <= last)

    def clashes(self, other: object) -> bool:
        """Whether both would take the same node."""
        if not isinstance(other, Rule) or other.key != self.key:
            return False
        (first, last), (low, high) = self.versions or (0, None), other.versions or (0, None)
        return (last is None or low <= last) and (high is None or first <= high)

    def __str__(self) -> str:
        target = "" if self.target is None else f" -> {self.target}"
        return f"{self.source}{target} ({self.place})"


def _spelled(versions: Versions | None) -> str:
    if versions is None:
        return ""
    return f" versions {versions[0]} {'on' if versions[1] is None else f'to {versions[1]}'}"


@dataclass(eq=False)
class Fusion:
    """Patterns of several nodes, and the function that writes what is in their place.

    ``general`` ones are on unless they are switched off, others off until they are named.
    """

    name: str
    general: bool
    place: Place
    origin: str
    roots: tuple[Any, ...] = ()  # NodePattern, each with its alternatives
    conditions: tuple[Any, ...] = ()
    build: Callable[..., Any] | None = None
    ours: bool = False
    framework: str | None = None

    def clashes(self, other: object) -> bool:
        """Whether both have one name."""
        return isinstance(other, Fusion) and other.name == self.name

    def __str__(self) -> str:
        return f"fusion {self.name} ({self.place})"
