# SPDX-License-Identifier: Apache-2.0
"""A run beside onnxruntime: its outputs first, then value by value, to find where it goes astray.

Outputs are compared with those of onnxruntime on the model itself, with its default options, as users run it.
Compared inside are the values that the device, or a host region, really makes: what is inside an operator
that several nodes became is never rounded, and has no row of its own. On both sides these values are outputs
too. onnxruntime optimises here as well: without that it computes groups of DequantizeLinear, an operator and
QuantizeLinear in floats, and integers would differ that its users never see.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.compile import GRAPH_PASSES, context_of
from onedispatch.dispatch.compiler.custom import CustomNodes
from onedispatch.dispatch.compiler.fold import deciding_inputs, specialise
from onedispatch.dispatch.compiler.mapping import map_graph, merged
from onedispatch.dispatch.compiler.passes import run_passes
from onedispatch.dispatch.compiler.precision import narrow_name
from onedispatch.dispatch.frontend.graph import Array, Graph
from onedispatch.dispatch.frontend.input_shapes import bind_shapes
from onedispatch.dispatch.host.engines import RUNTIME, EngineRefused, Runtime
from onedispatch.dispatch.host.regions import HostRegion
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.transactions.base.errors import InputError, statement_of

if TYPE_CHECKING:
    from onedispatch.dispatch.frontend.importer import ModelLike


@dataclass(frozen=True)
class Difference:
    """A value beside the host's: ``error`` is the largest difference, ``relative`` that over ``largest``.

    ``nodes`` became one operator: ``node`` made the value, of those before it nothing is left. Where one side
    has a number and the other has none, both errors are infinite.
    """

    node: str
    op_type: str
    nodes: tuple[str, ...]
    value: str
    dtype: str
    shape: tuple[int, ...]
    error: float
    relative: float
    largest: float
    diverges: bool


@dataclass(frozen=True)
class Comparison:
    """The outputs, and every value in the order in which nodes run; those beyond ``threshold`` diverge."""

    precision: str
    threshold: float
    rows: tuple[Difference, ...]
    outputs: tuple[Difference, ...] = ()
    beside: str = RUNTIME  # what computed the outputs that ours are compared with

    @property
    def first(self) -> Difference | None:
        """The first value that diverges; an output where no value inside does."""
        return next((row for row in (*self.rows, *self.outputs) if row.diverges), None)

    def as_dict(self) -> dict[str, Any]:
        first = self.first
        return {
            "precision": self.precision,
            "threshold": self.threshold,
            "diverges": first is not None,
            "first": None if first is None else first.node,
            "outputs_beside": self.beside,
            "outputs": [asdict(row) for row in self.outputs],
            "rows": [asdict(row) for row in self.rows],
        }


def compare(
    model: ModelLike,
    graph: Graph,
    feed: Mapping[str, Array],
    answers: Sequence[Any],
    like: CompiledModel,
    *,
    threshold: float,
    threads: int | None = None,
    kernel_seconds: float | None = None,
) -> Comparison:
    """Compares a run of ``model``, compiled as ``like`` is, with onnxruntime.

    Args:
        graph: what was imported of ``model``.
        answers: the outputs that the run gave for ``feed``.
        threshold: a share of a value's largest number on onnxruntime.

    Raises ``InputError`` for a threshold that is not above 0, and what compiling and running raise.
    """
    if not 0 < threshold < np.inf:
        raise InputError("threshold", f"{threshold:g}", "a number above 0")
    graph = _with_types(graph, feed, like)
    made = {name: node for node in graph.nodes for name in node.writes}

    def host(names: Sequence[str]) -> dict[str, Any]:
        region = HostRegion(
            graph, graph.nodes, names, threads, device=like.target, kernel_seconds=kernel_seconds
        )
        return region.run(feed)

    def difference(name: str, nodes: tuple[str, ...], mine: Any, theirs: Any) -> Difference:
        node = made.get(name)
        ends = (node.name, node.op_type) if node is not None else ("", "")
        return _difference(ends, nodes, name, np.asarray(mine), np.asarray(theirs), threshold)

    named = _compared(graph, feed, like)
    inside, theirs = _inside(graph, set(named)), host(named)
    ours = _values(graph, named, feed, like, threads, kernel_seconds)
    rows = [difference(name, inside[name], ours[name], theirs[name]) for name in named]
    wanted = {
        name: answer for name, answer in zip(graph.output_names, answers, strict=True) if _numbers(answer)
    }
    beside, expected = _as_users_run(model, list(wanted), feed, threads, host)
    outputs = [difference(name, (), answer, expected[name]) for name, answer in wanted.items()]
    return Comparison(like.precision, threshold, tuple(rows), tuple(outputs), beside)


def _values(
    graph: Graph,
    names: Sequence[str],
    feed: Mapping[str, Array],
    like: CompiledModel,
    threads: int | None,
    kernel_seconds: float | None,
) -> dict[str, Any]:
    """The values ``names`` of ``graph``, compiled as ``like`` is with them as outputs."""
    results = tuple(graph.value(name) for name in names)
    probe = CompiledModel(
        replace(like.options, selector=None),
        graph.inputs,
        results,
        deciding_inputs(graph),
        replace(graph, outputs=results),
        like.cache_size,
    )
    session = InferenceSession(probe, threads=threads, kernel_seconds=kernel_seconds)
    return dict(zip(names, session.run(None, feed), strict=True))


def _as_users_run(
    model: ModelLike,
    names: list[str],
    feed: Mapping[str, Array],
    threads: int | None,
    host: Callable[[Sequence[str]], dict[str, Any]],
) -> tuple[str, dict[str, Any]]:
    """The outputs of a plain onnxruntime session, or of the host's engines where there is none, and which."""
    try:
        found = Runtime(_plain(model), names, threads, None, True).run(feed)
        return RUNTIME, dict(zip(names, found, strict=True))
    except (EngineRefused, InputError) as error:
        return f"the host's engines, since onnxruntime does not run the model: {statement_of(error)}", host(
            names
        )


def _plain(model: ModelLike) -> str | bytes:
    """What onnxruntime opens: a path as text, or bytes."""
    if isinstance(model, ModelProto):
        return bytes(model.SerializeToString())
    return os.fspath(model) if isinstance(model, str | os.PathLike) else bytes(model)


def _numbers(answer: Any) -> bool:
    return isinstance(answer, np.ndarray) and not answer.dtype.hasobject


Known = tuple[dict[str, tuple[int, ...]], dict[str, Array]]


def _known(graph: Graph, feed: Mapping[str, Array]) -> Known:
    """Shapes of the inputs, and those of their values that decide shapes."""
    shapes = bind_shapes(graph.inputs, {name: array.shape for name, array in feed.items()}) or {}
    return shapes, {name: feed[name] for name in deciding_inputs(graph)}


def _with_types(graph: Graph, feed: Mapping[str, Array], like: CompiledModel) -> Graph:
    """The host, too, reads what kernels from outside make: their types only they infer."""
    custom = CustomNodes(graph, like.target, like.options.cast_policy)
    special = specialise(graph, *_known(graph, feed), custom)
    names = (name for node in graph.nodes for name in node.writes if not graph.value(name).type)
    return replace(graph, values={**graph.values, **{name: special.value(name) for name in names}})


def _compared(graph: Graph, feed: Mapping[str, Array], like: CompiledModel) -> list[str]:
    """Names of values of ``graph`` that operators, or host regions, write: numbers that both sides have."""
    special = run_passes(GRAPH_PASSES, graph, context_of(graph, *_known(graph, feed), like.options))
    units = merged(map_graph(special, like.target), special.output_names)
    written = {name for unit in units for name in unit.writes}
    named = (name for node in graph.nodes for name in node.writes)
    return [
        name
        for name in named
        if (name in written or narrow_name(name, like.precision) in written)
        and (dtype := special.value(name).dtype) is not None
        and not dtype.hasobject
        and special.value(name).type == (graph.value(name).type or special.value(name).type)
    ]


def _inside(graph: Graph, named: set[str]) -> dict[str, tuple[str, ...]]:
    """By value: the node that makes it, and those before it that became one with that."""
    made = {name: node for node in graph.nodes for name in node.writes}
    taken: set[str] = set()
    found: dict[str, tuple[str, ...]] = {}
    for name, node in made.items():
        if name not in named:
            continue
        group, waiting = [], [node]
        while waiting:
            group.append(waiting.pop())
            for before in (made[one] for one in group[-1].reads if one in made):
                if before.name not in taken and named.isdisjoint(before.writes):
                    taken.add(before.name)
                    waiting.append(before)
        found[name] = tuple(one.name for one in group)
    return found


def _difference(
    maker: tuple[str, str], nodes: tuple[str, ...], name: str, mine: Array, theirs: Array, bound: float
) -> Difference:
    a, b = mine.astype(np.float64), theirs.astype(np.float64)
    known = np.isfinite(b)
    largest = float(np.abs(b[known]).max(initial=0.0))
    alike = a.shape == b.shape and bool(
        np.array_equal(a[~known], b[~known], equal_nan=True) and np.isfinite(a[known]).all()
    )
    error = float(np.abs(a[known] - b[known]).max(initial=0.0)) if alike else np.inf
    relative = error / largest if largest else (0.0 if error == 0 else np.inf)
    shape = tuple(int(size) for size in mine.shape)
    return Difference(
        *maker, nodes, name, str(theirs.dtype), shape, error, relative, largest, relative > bound
    )
