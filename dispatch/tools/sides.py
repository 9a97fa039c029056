# SPDX-License-Identifier: Apache-2.0
"""Three runs of one sample: the reference's, the device's, and the device's cut at every value.

The reference is onnxruntime on the model itself, or on another one (``matches``). Where the device runs the
model with all values as outputs, nodes read what others made. Where it is cut, each node reads the
reference's numbers, in the type that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.compiler.options import ImportOptions
from onedispatch.dispatch.compiler.quantised import quantisations
from onedispatch.dispatch.frontend.exporter import rewired
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value, type_name_of
from onedispatch.dispatch.frontend.shape_operands import operand_cone
from onedispatch.dispatch.host.regions import HostRegion
from onedispatch.dispatch.runtime.feeds import Inputs, checked_feed
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.dispatch.tools.expected import Expected, Host
from onedispatch.dispatch.tools.matches import Match, matched
from onedispatch.dispatch.tools.written_values import (
    specialised,
    with_outputs_as,
    with_types,
    written_values,
)
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import InputError

Feed = Mapping[str, Array]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Source:
    """A model as it was given, what was imported of it, and how."""

    model: Any
    graph: Graph
    how: ImportOptions = field(default_factory=ImportOptions)


class Sides:
    """A model, compiled as ``like``, and its reference: made once, run on any number of samples.

    Args:
        first: a sample, whose shapes say what is fused.
        against: the reference; None: the model itself.
        per_node: values of nodes too, not outputs alone.

    Raises ``InputError`` for a sample that does not fit, and a reference with other inputs or outputs.
    """

    def __init__(
        self,
        source: Source,
        like: CompiledModel,
        first: Feed,
        against: Source | None = None,
        *,
        per_node: bool = True,
        threads: int | None = None,
    ) -> None:
        checked_feed(Inputs(like.inputs), first)
        self.like, self._threads = like, threads
        self.graph = with_types(source.graph, first, like)
        self.reference = self.graph if against is None else against.graph
        self._host = Host(like.target, threads)
        self.session = InferenceSession(like, threads=threads)
        self._first = first
        self._written = written_values(self.graph, first, like) if per_node else {}
        self.matches = self._matches(against)
        self.output_names = self._output_names()
        expecting, names = against or source, list(dict.fromkeys(self.output_names.values()))
        self._expected = Expected(expecting.model, expecting.how, self.reference, names, self._host)

    @property
    def beside(self) -> str:
        """What computed the outputs to compare with."""
        return self._expected.beside

    def outputs(self, feed: Feed) -> tuple[Arrays, Arrays]:
        """The outputs that are numbers, of the device and of the reference, by this model's names."""
        theirs = self._expected.run(self._theirs_of(feed))
        made = zip((one.name for one in self.like.outputs), self.session.run(None, dict(feed)), strict=True)
        mine = {name: np.asarray(array) for name, array in made if name in self.output_names}
        return mine, {name: np.asarray(theirs[self.output_names[name]]) for name in mine}

    def values(self, feed: Feed) -> Arrays:
        """All compared values of a run on the device."""
        return self._named(self._all.run(None, dict(feed)))

    def given(self, feed: Feed) -> Arrays:
        """The reference's, by this model's names."""
        theirs = self._reference_values.run(self._theirs_of(feed))
        return {one.value: np.asarray(theirs[one.theirs]) for one in self.matches}

    def alone(self, feed: Feed, given: Arrays, session: InferenceSession | None = None) -> Arrays:
        """What each node makes of the reference's numbers; ``session`` is one of ``cut``, with others' types.

        Nothing reads it there, so an operator may write float32 of what others read in a narrower type, as
        which it counts.
        """
        matches = {one.value: one for one in self.matches}
        read = {name: matches[name].given(given[name], self.dtype(name)) for name in self._cuts}
        found = self._named((session or self._alone).run(None, {**feed, **read}))
        if session is not None:
            return found
        return {name: array.astype(self._written[name]).astype(array.dtype) for name, array in found.items()}

    def cut(self, like: CompiledModel) -> InferenceSession:
        """The model cut at every value, to be compiled as ``like`` was."""
        names = [_own(one.value) if one.value in self._cuts else one.value for one in self.matches]
        return InferenceSession(with_outputs_as(self._apart, names, like), threads=self._threads)

    def dtype(self, name: str) -> np.dtype[Any]:
        """The element type of a compared value, in the model."""
        found = self._special.value(name).dtype
        assert found is not None  # ``written_values`` are numbers
        return found

    def _named(self, arrays: Sequence[Any]) -> Arrays:
        pairs = zip(self.matches, arrays, strict=True)
        return {one.value: np.asarray(array) for one, array in pairs}

    # -- what belongs together -----------------------------------------------------------------------

    def _matches(self, against: Source | None) -> list[Match]:
        if not self._written:
            return []
        stands = quantisations(self._special)
        if against is not None:
            return matched(self._special, self._written, self.reference, stands)
        return [Match(name, name, stands.get(name)) for name in self._written]

    def _output_names(self) -> dict[str, str]:
        """By output of this model, the reference's: of its name, else at its place. Numbers alone."""
        mine = [value.name for value in self.like.outputs]
        theirs = [value.name for value in self.reference.outputs]
        numbers = [v.name for v in self.like.outputs if v.dtype is not None and not v.dtype.hasobject]
        if set(numbers) <= set(theirs):
            return {name: name for name in numbers}
        return {name: other for name, other in _in_order("outputs", mine, theirs).items() if name in numbers}

    def _theirs_of(self, feed: Feed) -> Feed:
        """The feed by the reference's names of inputs."""
        mine, theirs = ([value.name for value in graph.inputs] for graph in (self.graph, self.reference))
        if set(theirs) <= set(mine):
            return {name: feed[name] for name in theirs if name in feed}  # others are optional
        return {other: feed[name] for name, other in _in_order("inputs", mine, theirs).items()}

    @cached_property
    def _special(self) -> Graph:
        """The graph with the sample's shapes, which only values of nodes need."""
        return specialised(self.graph, self._first, self.like)

    # -- what runs ---------------------------------------------------------------------------------

    @cached_property
    def _reference_values(self) -> HostRegion:
        return self._host.region(self.reference, list(dict.fromkeys(one.theirs for one in self.matches)))

    @cached_property
    def _all(self) -> InferenceSession:
        names = [one.value for one in self.matches]
        return InferenceSession(with_outputs_as(self.graph, names, self.like), threads=self._threads)

    @cached_property
    def _alone(self) -> InferenceSession:
        return self.cut(self.like)

    @cached_property
    def _cuts(self) -> dict[str, Value]:
        """The values that are cut, as inputs. What decides shapes stays whole, and integers that count."""
        cone = operand_cone(self.graph)
        found = {}
        for one in self.matches:
            dtype, rank = self.dtype(one.value), len(self._special.value(one.value).shape or ())
            if one.value not in cone and (one.quantised is not None or dtype.kind in "fV"):
                found[one.value] = Value(one.value, type_name_of(dtype), (None,) * rank)
        return found

    @cached_property
    def _apart(self) -> Graph:
        """The graph with every cut value as an input; the node that makes it writes another name."""
        nodes = tuple(self._renamed(node) for node in self.graph.nodes)
        own = {_own(name): replace(self.graph.value(name), name=_own(name)) for name in self._cuts}
        values, inputs = (
            {**self.graph.values, **self._cuts, **own},
            (*self.graph.inputs, *self._cuts.values()),
        )
        return replace(self.graph, nodes=nodes, inputs=inputs, values=values)

    def _renamed(self, node: Node) -> Node:
        if self._cuts.keys().isdisjoint(node.writes):
            return node
        return rewired(
            node, node.inputs, [_own(name) if name in self._cuts else name for name in node.outputs]
        )


def _own(name: str) -> str:
    """What a node writes in the cut graph."""
    return f"{name}//own"


def _in_order(what: str, mine: Sequence[str], theirs: Sequence[str]) -> dict[str, str]:
    if len(mine) != len(theirs):
        given = f"{what} {', '.join(theirs)}, where the model has {', '.join(mine)}"
        raise InputError("--against", given, f"a model with the same {what}")
    return dict(zip(mine, theirs, strict=True))
