# SPDX-License-Identifier: Apache-2.0
"""Mapping functions of plug-ins: how they are called, and what is checked of their answers.

Every error names the node, the function and its file: it is for the function's author to correct.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import type_name_of
from onedispatch.dispatch.frontend.schemas import schema_of
from onedispatch.operators.declarations.registry import Inferred, OpMapping
from onedispatch.operators.declarations.tensor import NodeSpec, Unsupported
from onedispatch.operators.interface.operator import Alias, Lowering, Operator
from onedispatch.operators.plugin.watchdog import asked
from onedispatch.transactions.base.boundary import plugin_failure, source_of
from onedispatch.transactions.base.errors import ModelError, OneDispatchError, OperatorError
from onedispatch.transactions.base.text import did_you_mean


class Attributes(dict[str, Any]):
    """The attributes of a node, and which of them were read; ``whole`` where something went through all."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.read: set[str] = set()
        self.whole = False

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def _whole(self) -> Attributes:
        self.whole = True
        return self

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self._whole())

    def __len__(self) -> int:
        return dict.__len__(self._whole())

    def keys(self) -> Any:
        return dict.keys(self._whole())

    def values(self) -> Any:
        return dict.values(self._whole())

    def items(self) -> Any:
        return dict.items(self._whole())

    def copy(self) -> dict[str, Any]:
        return dict.copy(self._whole())


def call(mapping: OpMapping, spec: NodeSpec, lowering: Lowering) -> None:
    """Calls the mapping function of a plug-in for a node.

    Raises:
        Unsupported: the function does not take the node.
        OperatorError: an operator that it makes is declared wrongly.
        ModelError: the node has an attribute that the function never reads.
        InternalError: anything else that it raises.
    """
    about = f"node {spec.name} ({spec.op_type})"
    read = Attributes(spec.attributes)
    spec, before = replace(spec, attributes=read), len(lowering.ops)
    lowering.begin(spec)
    with _named(mapping.function, about):
        asked(mapping.function, about, spec, lowering, meant=Unsupported)
    kept = [value for _, op in lowering.ops[before:] for value in vars(op).values()]
    if not read.whole and not any(value is spec or value is read for value in kept):
        _check_attributes(mapping, spec, read)


@contextmanager
def _named(function: Any, about: str) -> Iterator[None]:
    """Adds the node and the function to what the declaration of an operator lacks."""
    try:
        yield
    except OperatorError as error:
        where = f"{about}, {source_of(function)}: {error.where}"
        remedy = error.remedy or "correct that function, or the shapes that its infer= gives"
        raise OperatorError(where, error.given, error.accepted, remedy) from error


def _check_attributes(mapping: OpMapping, spec: NodeSpec, read: Attributes) -> None:
    """Raises ``ModelError`` for attributes that neither the functions read nor a schema has."""
    unknown = [name for name in dict.__iter__(read) if name not in read.read]
    if not unknown:
        return
    if mapping.infer is not None:
        with suppress(OneDispatchError, Unsupported):
            asked(mapping.infer, f"node {spec.name} ({spec.op_type})", spec, meant=Unsupported)
    schema = schema_of(spec.op_type, spec.domain, spec.opset)
    known = read.read | set(schema.attributes if schema else ())
    unknown = [] if read.whole else [name for name in unknown if name not in known]
    if unknown:
        raise ModelError(
            f"node {spec.name} ({spec.op_type}), mapped by {source_of(mapping.function)}",
            f"attribute {unknown[0]!r}",
            f"{', '.join(sorted(known)) or 'no attributes'}: what that function reads by node.attr",
            did_you_mean(unknown[0], known) or "leave it out, or read it there",
        )


def inferred(mapping: OpMapping, spec: NodeSpec) -> Inferred:
    """The type and shape of every output, as the ``infer`` of a mapping gives them.

    Raises:
        Unsupported: it does not take the node.
        InternalError: it answers something else, or raises.
    """
    about, infer = f"node {spec.name} ({spec.op_type})", mapping.infer
    assert infer is not None
    made: Any = asked(infer, about, spec, meant=Unsupported)
    try:
        if isinstance(made, str):
            raise TypeError
        return [_typed(*one) for one in made]
    except (TypeError, ValueError, ModelError) as error:
        accepted = "a list with (dtype, shape) of each output, shapes of integers from 0 on"
        raise plugin_failure(infer, about, f"infer gives {_short(made)}; accepted: {accepted}") from error


def _typed(dtype: Any, shape: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """One output. Raises ``TypeError``, ``ValueError`` or ``ModelError`` for what is none."""
    element, sizes = np.dtype(dtype), tuple(operator.index(size) for size in shape)
    type_name_of(element)
    if dtype is None or min(sizes, default=0) < 0:
        raise ValueError
    return element, sizes


def _short(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 200 else f"{text[:200]}..."


def check_results(
    mapping: OpMapping,
    spec: NodeSpec,
    ops: Sequence[Operator],
    aliases: Sequence[Alias],
    taken: Iterable[str],
) -> None:
    """Raises ``InternalError`` where operators of a mapping function make a value twice, or one of ``taken``,
    which others make."""
    made = [t.name for op in ops for t in op.outputs] + [alias.output.name for alias in aliases]
    twice = sorted({name for name in made if made.count(name) > 1})
    others = sorted(set(made).intersection(taken))
    if twice or others:
        what = f"{twice[0]!r} twice" if twice else f"{others[0]!r}, which other nodes or the model make"
        given = f"operators that make {what}; accepted: every value made once"
        raise plugin_failure(mapping.function, f"node {spec.name} ({spec.op_type})", given)
