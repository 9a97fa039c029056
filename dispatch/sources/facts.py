# SPDX-License-Identifier: Apache-2.0
"""The facts of a 1:1 rule: each changes what becomes of a node's inputs and attributes.

They apply in the order in which they are written; one about inputs sees the list that those before it left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.formats import FORMATS
from onedispatch.dispatch.sources.node import Operand, SourceNode
from onedispatch.dispatch.sources.targets import Target


class Refused(Exception):
    """A rule does not take a node, for a reason that is the model's and not the rule's.

    Callbacks raise it: ``raise od.Refused("a filter that is computed")``.
    """


@dataclass
class Draft:
    """What a node becomes: ``attributes`` in the target's names, ``formats`` by ("in" or "out", position)."""

    node: SourceNode
    target: Target
    g: Builder
    inputs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    formats: dict[tuple[str, int], str] = field(default_factory=dict)
    variadic: list[Variadic] = field(default_factory=list)
    outputs: int = 0  # that the node has beyond those that are read


class Fact(Protocol):
    """One statement of a rule."""

    def apply(self, draft: Draft) -> None: ...


@dataclass(frozen=True)
class Auto:
    """Attributes that the target has under the same name keep their values."""

    def apply(self, draft: Draft) -> None:
        known = draft.target.attributes(draft.g.opset)
        for name in list(draft.node.attributes):
            if (known is None or name in known) and name not in draft.attributes:
                draft.attributes[name] = draft.node.attr(name)


@dataclass(frozen=True)
class Rename:
    """Attribute ``theirs`` is the target's ``ours``."""

    theirs: str
    ours: str

    def apply(self, draft: Draft) -> None:
        if draft.node.has(self.theirs):
            draft.attributes[self.ours] = draft.node.attr(self.theirs)


@dataclass(frozen=True)
class Default:
    """The target's attribute, where nothing else gives it."""

    name: str
    value: Any

    def apply(self, draft: Draft) -> None:
        draft.attributes.setdefault(self.name, self.value)


@dataclass(frozen=True)
class Compute:
    """The target's attribute, computed from the node; None leaves it out."""

    name: str
    function: Callable[[SourceNode], Any] = field(hash=False)

    def apply(self, draft: Draft) -> None:
        value = self.function(draft.node)
        if value is not None:
            draft.attributes[self.name] = value


@dataclass(frozen=True)
class Ignore:
    """Attributes that mean nothing to the target."""

    names: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        draft.node.mentioned.update(self.names)


@dataclass(frozen=True)
class InputFromAttribute:
    """An attribute becomes input ``index``: whole numbers as int64. Its place is filled, or made."""

    name: str
    index: int
    dtype: Any = None

    def apply(self, draft: Draft) -> None:
        if not draft.node.has(self.name):
            return
        array = np.asarray(draft.node.attr(self.name))
        if self.dtype is None and array.dtype.kind in "iub" and array.dtype != np.bool_:
            array = array.astype(np.int64)
        elif self.dtype is None and array.dtype == np.float64:
            array = array.astype(np.float32)
        _put(draft.inputs, self.index, draft.g.constant(array, self.dtype))


@dataclass(frozen=True)
class AttributeFromInput:
    """Input ``index``, which has to be constant, becomes the target's attribute and is no input any more."""

    index: int
    name: str

    def apply(self, draft: Draft) -> None:
        if self.index >= len(draft.inputs) or not draft.inputs[self.index]:
            return
        operand = draft.inputs.pop(self.index)
        constant = draft.g.known(operand)
        if constant is None:
            raise Refused(
                f"input {self.index} ({operand}) becomes attribute {self.name!r} and is no constant"
            )
        draft.attributes[self.name] = constant.item() if constant.ndim == 0 else constant.tolist()


@dataclass(frozen=True)
class DropInput:
    """The target has no such input; without ``when``, or where it says so of the node."""

    index: int
    when: Callable[[SourceNode], bool] | None = field(default=None, hash=False)

    def apply(self, draft: Draft) -> None:
        if self.index < len(draft.inputs) and (self.when is None or self.when(draft.node)):
            del draft.inputs[self.index]


@dataclass(frozen=True)
class AddInput:
    """A constant as input ``index``: an array, or what a function of the node gives."""

    index: int
    value: Any = field(hash=False)

    def apply(self, draft: Draft) -> None:
        value = self.value(draft.node) if callable(self.value) else self.value
        _put(draft.inputs, self.index, value if isinstance(value, Operand) else draft.g.constant(value))


@dataclass(frozen=True)
class Reorder:
    """The target's inputs, as positions in the list so far."""

    order: tuple[int, ...]

    def apply(self, draft: Draft) -> None:
        lacking = [index for index in self.order if index >= len(draft.inputs)]
        if lacking:
            raise Refused(f"{len(draft.inputs)} inputs, of which input {lacking[0]} is to be moved")
        draft.inputs[:] = [draft.inputs[index] for index in self.order]


@dataclass(frozen=True)
class Format:
    """The format of an input or output, fixed or as an attribute of the node says."""

    port: tuple[str, int]
    origin: str = ""
    attribute: str = ""

    def apply(self, draft: Draft) -> None:
        said = self.origin or draft.node.attr(self.attribute, None)
        if said not in FORMATS:
            raise Refused(f"{self.attribute}={said!r}, where one of {', '.join(FORMATS)} is expected")
        draft.formats[self.port] = said


@dataclass(frozen=True)
class Variadic:
    """Port ``name`` has as many edges as the attribute ``count`` says; the node has ``others`` beside those.

    ``output``: of the outputs.
    """

    name: str
    count: str
    output: bool = False
    others: int = 0

    def apply(self, draft: Draft) -> None:
        draft.variadic.append(self)

    def edges(self, node: SourceNode) -> int:
        """Returns how many edges the port has. Raises ``Refused`` for what is no number of edges."""
        count = node.attr(self.count)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            side = "outputs" if self.output else "inputs"
            raise Refused(f"{self.count}={count!r}, where the number of {side} {self.name!r} is expected")
        return count


def check_counts(draft: Draft) -> None:
    """Raises ``Refused`` where the counts of variadic ports disagree with the node's edges."""
    for side, output in (("inputs", False), ("outputs", True)):
        ports = [one for one in draft.variadic if one.output is output]
        if not ports:
            continue
        given = len(draft.node.outputs if output else draft.node.inputs)
        wanted = sum(one.edges(draft.node) for one in ports) + sum(one.others for one in ports)
        if output and given <= wanted:  # outputs that nothing reads need no edge
            draft.outputs = max(draft.outputs, wanted)
        elif given != wanted:
            said = ", ".join(dict.fromkeys(f"{one.count}={draft.node.attr(one.count)}" for one in ports))
            names = " and ".join(one.name for one in ports)
            raise Refused(f"{said} for {names}, which asks for {wanted} {side}; the node has {given}")


def _put(inputs: list[str], index: int, name: str) -> None:
    """Fills an empty place, or else makes one at ``index``; places before it that lack are empty."""
    while len(inputs) < index:
        inputs.append("")
    if index < len(inputs) and not inputs[index]:
        inputs[index] = name
    else:
        inputs.insert(index, name)
