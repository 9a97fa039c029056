# SPDX-License-Identifier: Apache-2.0
"""Sizes of all edges, inferred again as more becomes known, each time as far as that may tell more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.exporter import OwnInference, infer_values
from onedispatch.dispatch.frontend.graph import Graph, Node, Value
from onedispatch.dispatch.frontend.shape_operands import shape_positions
from onedispatch.transactions.base.errors import ModelError


class Sizes:
    """What inference has found for one set of shapes.

    A node is settled where all sizes are known on both sides: it is inferred again only when a value that it
    reads becomes known. Where that changes what was found, everything is inferred again.
    """

    def __init__(self, bound: Mapping[str, Value], own: OwnInference | None) -> None:
        """``bound`` are the inputs; ``own`` infers nodes that ONNX has no schema for."""
        self._bound, self._own = bound, own
        self._settled: dict[str, int] = {}  # values of settled nodes, with their bytes
        self._known: set[str] = set()  # constants, and values that are decided

    def inferred(self, graph: Graph, whole: bool, propagate: bool) -> Graph:
        """The graph with types and sizes, as far as they can be inferred.

        Without ``whole``, nodes are left out whose sizes follow from values that are not known. ``propagate``
        follows integers that are known in part, which pass through all nodes.

        Raises:
            ModelError: sizes that contradict each other; a tensor beyond the limits, or all together.
        """
        known = {*graph.constants, *graph.decided}
        self._reopen(graph, known - self._known)
        self._known = known
        if propagate:
            self._settled.clear()
        left = {*self._settled, *(() if whole or propagate else self._out_of_reach(graph))}
        found = self._attempt(graph, left, propagate)
        if self._settled and self._differs(graph, found, left):
            self._settled.clear()
            found = self._attempt(graph, set(), propagate)
        sizes = self._checked(found)
        if not propagate:
            self._settled.update(sizes)
        return found

    def _attempt(self, graph: Graph, left: set[str], propagate: bool) -> Graph:
        try:
            values = infer_values(
                graph, self._bound, graph.decided, propagate=propagate, own=self._own, settled=left
            )
        except ModelError:
            if not left:
                raise
            self._settled.clear()  # all together says what is wrong as it would have at once
            return self._attempt(graph, set(), propagate)
        return replace(graph, values=values)

    def _reopen(self, graph: Graph, news: set[str]) -> None:
        """Takes nodes that read ``news`` from the settled ones."""
        for node in graph.nodes:
            if not news.isdisjoint(node.reads):
                for name in node.writes:
                    self._settled.pop(name, None)

    def _differs(self, graph: Graph, found: Graph, left: set[str]) -> bool:
        """Whether a size that was known, and that others may be settled by, is another one now."""
        values = (name for node in graph.nodes for name in node.writes if name not in left)
        return any(
            graph.value(name).is_concrete and found.value(name) != graph.value(name) for name in values
        )

    def _out_of_reach(self, graph: Graph) -> set[str]:
        """Values of the nodes whose sizes follow from values that are not known, and of what reads these
        alone.

        What reads sized values too may be sized: of a sum, the larger one says the shape.
        """
        reached = {*self._settled, *(value.name for value in graph.inputs)}
        found: set[str] = set()
        for node in graph.nodes:
            if all(name in reached for name in node.writes):
                continue
            blocked = any(node.inputs[i] not in self._known for i in shape_positions(node))
            made = [name for name in node.reads if name not in graph.constants]
            if not blocked and (not made or not reached.isdisjoint(made)):
                reached.update(node.writes)
            else:
                found.update(node.writes)
        return found

    def _checked(self, graph: Graph) -> dict[str, int]:
        """Bytes of what nodes make all of whose sizes are known, on both sides, settled ones aside.

        Bodies are not among them: what they are inlined as has yet to be inferred under these names.
        """
        found: dict[str, int] = {}
        total = 0
        for node in graph.nodes:
            if all(name in self._settled for name in node.writes):
                total += sum(self._settled[name] for name in node.writes)
                continue
            sizes = _bytes_made(graph, node)
            total += sum(size for size in sizes if size is not None)
            concrete = None not in sizes and all(graph.value(name).is_concrete for name in node.reads)
            if concrete and not node.has_subgraph:
                found.update({name: size or 0 for name, size in zip(node.writes, sizes, strict=True)})
        limits.GRAPH_BYTES.check("the model for these shapes", total)
        return found


def _bytes_made(graph: Graph, node: Node) -> list[int | None]:
    """Bytes of what a node makes, None where they are not known. Raises ``ModelError`` beyond the limits."""
    where = f"node {node.name} ({node.op_type})"
    sizes: list[int | None] = []
    for name in node.writes:
        value, about = graph.value(name), f"{where}, output {name!r}"
        limits.RANK.check(about, len(value.shape or ()))
        dtype = value.dtype if value.is_concrete else None
        sizes.append(None if dtype is None else limits.check_tensor(about, dtype, value.concrete_shape))
    return sizes
