# SPDX-License-Identifier: Apache-2.0
"""Which values of a graph there are to compare, and which nodes were fused into the one that writes each.

A value inside a fused operator is never rounded, and never there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.base.precisions import PRECISIONS, narrow_name
from onedispatch.dispatch.compile import GRAPH_PASSES, context_of
from onedispatch.dispatch.compiler.custom import CustomNodes
from onedispatch.dispatch.compiler.fold import deciding_inputs, specialise
from onedispatch.dispatch.compiler.mapping import map_graph, merged
from onedispatch.dispatch.compiler.passes import run_passes
from onedispatch.dispatch.frontend.graph import Array, Graph
from onedispatch.dispatch.frontend.input_shapes import bind_shapes

Known = tuple[dict[str, tuple[int, ...]], dict[str, Array]]


def shapes_and_values(graph: Graph, feed: Mapping[str, Array]) -> Known:
    """Returns the shapes of the inputs, and the values of inputs that are shape operands."""
    shapes = bind_shapes(graph.inputs, {name: array.shape for name, array in feed.items()}) or {}
    return shapes, {name: feed[name] for name in deciding_inputs(graph)}


def specialised(graph: Graph, feed: Mapping[str, Array], like: CompiledModel) -> Graph:
    """Returns ``graph`` with the shapes of a feed, and all types and shapes that follow."""
    custom = CustomNodes(graph, like.target, like.options.cast_policy)
    return specialise(graph, *shapes_and_values(graph, feed), custom)


def with_types(graph: Graph, feed: Mapping[str, Array], like: CompiledModel) -> Graph:
    """Returns ``graph`` with the types that custom kernels infer, which the host needs as well."""
    special = specialised(graph, feed, like)
    names = (name for node in graph.nodes for name in node.writes if not graph.value(name).type)
    return replace(graph, values={**graph.values, **{name: special.value(name) for name in names}})


def written_values(
    graph: Graph, feed: Mapping[str, Array], like: CompiledModel, *, beside_host: bool = True
) -> dict[str, np.dtype[Any]]:
    """Returns the numeric values that device operators or host regions write, with the types they have there.

    ``beside_host``: the host has to have the type of each.
    """
    context = context_of(graph, *shapes_and_values(graph, feed), like.options)
    special = run_passes(GRAPH_PASSES, graph, context)
    units = merged(map_graph(special, like.target), special.output_names)
    written = {name for unit in units for name in unit.writes}
    found = {}
    for name in (name for node in graph.nodes for name in node.writes):
        value, narrow = special.value(name), narrow_name(name, like.precision)
        dtype = value.dtype
        if dtype is None or dtype.hasobject or not {name, narrow} & written:
            continue
        if not beside_host or value.type == (graph.value(name).type or value.type):
            found[name] = dtype if name in written else PRECISIONS[like.precision]
    return found


def with_outputs_as(graph: Graph, names: Sequence[str], like: CompiledModel) -> CompiledModel:
    """Returns ``graph`` to be compiled as ``like`` was, with these values as outputs."""
    results = tuple(graph.value(name) for name in names)
    options, whole = replace(like.options, selector=None), replace(graph, outputs=results)
    return CompiledModel(options, graph.inputs, results, deciding_inputs(graph), whole, like.cache_size)


def nodes_inside(graph: Graph, named: set[str]) -> dict[str, tuple[str, ...]]:
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
