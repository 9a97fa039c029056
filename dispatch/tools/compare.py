# SPDX-License-Identifier: Apache-2.0
"""Compares a run with onnxruntime: outputs first, then value by value, to find the first that diverges.

Outputs are compared with those of onnxruntime on the unchanged model with default options, as users run it.
Intermediate values are compared where a device operator or a host region writes them: values inside a fused
operator are never rounded, and have no row. Both sides return these values as additional outputs.
onnxruntime optimises here as well: unoptimised it computes groups of DequantizeLinear, an operator and
QuantizeLinear in floats, and their integers would differ from those that its users see.
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
class ValueComparison:
    """One value compared: ``error`` is the largest difference, ``relative`` is ``error / largest``.

    ``nodes`` were fused into one operator; ``node``, the last of them, writes the value. Both errors are
    infinite if only one side is a finite number.
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
    """The outputs, and every value in execution order; values above ``threshold`` diverge."""

    precision: str
    threshold: float
    rows: tuple[ValueComparison, ...]
    outputs: tuple[ValueComparison, ...] = ()
    beside: str = RUNTIME  # what computed the outputs to compare with

    @property
    def first(self) -> ValueComparison | None:
        """The first value that diverges; an output if no intermediate value does."""
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
        graph: ``model``, imported.
        answers: the outputs of the run for ``feed``.
        threshold: a fraction of a value's largest number on onnxruntime.

    Raises ``InputError`` for a threshold that is not above 0, and the errors of compiling and running.
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

    def compared(name: str, nodes: tuple[str, ...], mine: Any, theirs: Any) -> ValueComparison:
        node = made.get(name)
        ends = (node.name, node.op_type) if node is not None else ("", "")
        return _value_comparison(ends, nodes, name, np.asarray(mine), np.asarray(theirs), threshold)

    named = _compared(graph, feed, like)
    inside, theirs = _inside(graph, set(named)), host(named)
    ours = _values(graph, named, feed, like, threads, kernel_seconds)
    rows = [compared(name, inside[name], ours[name], theirs[name]) for name in named]
    wanted = {
        name: answer for name, answer in zip(graph.output_names, answers, strict=True) if _numbers(answer)
    }
    beside, expected = _as_users_run(model, list(wanted), feed, threads, host)
    outputs = [compared(name, (), answer, expected[name]) for name, answer in wanted.items()]
    return Comparison(like.precision, threshold, tuple(rows), tuple(outputs), beside)


def _values(
    graph: Graph,
    names: Sequence[str],
    feed: Mapping[str, Array],
    like: CompiledModel,
    threads: int | None,
    kernel_seconds: float | None,
) -> dict[str, Any]:
    """Returns the values ``names`` of ``graph``, compiled as ``like`` is, with these values as outputs."""
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
    """Returns which engine, onnxruntime by default or the host's engines, and its outputs."""
    try:
        found = Runtime(_plain(model), names, threads, None, True).run(feed)
        return RUNTIME, dict(zip(names, found, strict=True))
    except (EngineRefused, InputError) as error:
        return f"the host's engines, since onnxruntime does not run the model: {statement_of(error)}", host(
            names
        )


def _plain(model: ModelLike) -> str | bytes:
    """Returns the model as onnxruntime opens it: a path as text, or bytes."""
    if isinstance(model, ModelProto):
        return bytes(model.SerializeToString())
    return os.fspath(model) if isinstance(model, str | os.PathLike) else bytes(model)


def _numbers(answer: Any) -> bool:
    return isinstance(answer, np.ndarray) and not answer.dtype.hasobject


Known = tuple[dict[str, tuple[int, ...]], dict[str, Array]]


def _known(graph: Graph, feed: Mapping[str, Array]) -> Known:
    """Returns the shapes of the inputs, and the values of inputs that are shape operands."""
    shapes = bind_shapes(graph.inputs, {name: array.shape for name, array in feed.items()}) or {}
    return shapes, {name: feed[name] for name in deciding_inputs(graph)}


def _with_types(graph: Graph, feed: Mapping[str, Array], like: CompiledModel) -> Graph:
    """Returns ``graph`` with the types that custom kernels infer, which the host needs as well."""
    custom = CustomNodes(graph, like.target, like.options.cast_policy)
    special = specialise(graph, *_known(graph, feed), custom)
    names = (name for node in graph.nodes for name in node.writes if not graph.value(name).type)
    return replace(graph, values={**graph.values, **{name: special.value(name) for name in names}})


def _compared(graph: Graph, feed: Mapping[str, Array], like: CompiledModel) -> list[str]:
    """Returns the names of numeric values that device operators or host regions write on both sides."""
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
    """Returns for each value the node that makes it and the nodes that were fused into that node."""
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


def _value_comparison(
    maker: tuple[str, str], nodes: tuple[str, ...], name: str, mine: Array, theirs: Array, bound: float
) -> ValueComparison:
    a, b = mine.astype(np.float64), theirs.astype(np.float64)
    known = np.isfinite(b)
    largest = float(np.abs(b[known]).max(initial=0.0))
    alike = a.shape == b.shape and bool(
        np.array_equal(a[~known], b[~known], equal_nan=True) and np.isfinite(a[known]).all()
    )
    error = float(np.abs(a[known] - b[known]).max(initial=0.0)) if alike else np.inf
    relative = error / largest if largest else (0.0 if error == 0 else np.inf)
    shape = tuple(int(size) for size in mine.shape)
    return ValueComparison(
        *maker, nodes, name, str(theirs.dtype), shape, error, relative, largest, relative > bound
    )
