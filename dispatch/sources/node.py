# SPDX-License-Identifier: Apache-2.0
"""A node of a source framework, as rules and their callbacks see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Dimension, Node, Value
from onedispatch.transactions.base.errors import RuleError
from onedispatch.transactions.base.text import did_you_mean

_MISSING = object()


class Known(Protocol):
    """What is known of the tensors of a graph that is being translated."""

    def value(self, name: str) -> Value: ...

    def constant(self, name: str) -> Array | None: ...

    def elements(self, name: str) -> Array | None: ...


class Operand(str):
    """The name of a tensor, and what is known: ``dtype``, ``shape``, ``rank``, ``constant``, ``elements``."""

    __slots__ = ("_known",)
    _known: Known

    def __new__(cls, name: str, known: Known) -> Operand:
        made = super().__new__(cls, name)
        made._known = known
        return made

    @property
    def dtype(self) -> np.dtype[Any] | None:
        return self._known.value(str(self)).dtype

    @property
    def shape(self) -> tuple[Dimension, ...] | None:
        """Sizes; a symbol's name or None where a size is unknown; None if the rank is."""
        return self._known.value(str(self)).shape

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def constant(self) -> Array | None:
        """The values of a constant, and of what is computed from known sizes; None of other tensors."""
        return self._known.constant(str(self))

    @property
    def elements(self) -> Array | None:
        """Whole numbers of which some are known, in an array of objects: None is an unknown one.

        Of ``[Shape(x)[0], 7, 64]``, with x of any batch: ``[None, 7, 64]``. None of other tensors.
        """
        return self._known.elements(str(self))


class SourceNode:
    """A node: ``name``, ``op_type``, ``domain``, ``version`` of its operator set, ``inputs`` and ``outputs``.

    ``mentioned`` collects the attributes that were asked for.
    """

    def __init__(
        self, node: Node, version: int, known: Known, defaults: Mapping[str, Any] | None = None
    ) -> None:
        self.name, self.op_type, self.domain, self.version = node.name, node.op_type, node.domain, version
        self.inputs: Sequence[Operand] = [Operand(name, known) for name in node.inputs]
        self.outputs: Sequence[Operand] = [Operand(name, known) for name in node.outputs]
        self.attributes: Mapping[str, Any] = {**(defaults or {}), **node.attributes}
        self.defaults: Mapping[str, Any] | None = defaults
        self.mentioned: set[str] = set()

    def attr(self, name: str, default: Any = _MISSING) -> Any:
        """Returns an attribute, or ``default``.

        Raises ``RuleError`` if the node lacks it and no default is given.
        """
        self.mentioned.add(name)
        found = self.attributes.get(name, default)
        if found is _MISSING:
            raise RuleError(
                f"{self}: attribute {name!r}",
                "none",
                ", ".join(sorted(self.attributes)) or "no attributes",
                did_you_mean(name, self.attributes) or f"give a default: attr({name!r}, value)",
            )
        return found

    def ignore(self, *names: str) -> None:
        """Says of attributes that they mean nothing, in strict mode too."""
        self.mentioned.update(names)

    def has(self, name: str) -> bool:
        """Whether the node has the attribute, given or by default."""
        self.mentioned.add(name)
        return name in self.attributes

    @property
    def spelled(self) -> str:
        """``acme.OldName``; ONNX's own operators without a domain."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    def __str__(self) -> str:
        return f"node {self.name} ({self.spelled})"

    def unmentioned(self) -> list[str]:
        """Returns attributes that no rule looked at and whose value says something.

        Element types are not among them, nor names that begin with _, which frameworks keep for themselves,
        nor what has the default of its operator, nor how many edges there are, nor that nothing is padded.
        """
        defaults = self.defaults or {}
        return [
            name
            for name, value in self.attributes.items()
            if name not in self.mentioned
            and not name.startswith("_")
            and not _is_type(value)
            and not (name in defaults and _same(defaults[name], value))
            and not self._counts_edges(name, value)
            and (name, value) != ("padding", "VALID")
        ]

    def _counts_edges(self, name: str, value: Any) -> bool:
        """Whether an attribute such as N of AddN says what the edges say."""
        counts = name.lower() in ("n", "num", "count") or name.startswith("num_")
        return counts and type(value) is int and value in (len(self.inputs), len(self.outputs))


def _is_type(value: Any) -> bool:
    several = value if isinstance(value, list | tuple) else [value]
    return bool(several) and all(isinstance(one, np.dtype) for one in several)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(one) == list(other)
    return type(one) is type(other) and not isinstance(one, np.ndarray) and bool(one == other)
