# SPDX-License-Identifier: Apache-2.0
"""Sequences whose members are known become these: exporters cut tensors to sequences and take them apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto

from onedispatch.dispatch.compiler.inline import Writer, unique
from onedispatch.dispatch.frontend.graph import Folded, Graph, Node

_MOST_MEMBERS = 1024  # of a tensor that is cut: each is a result of Split


def inline_sequences(graph: Graph) -> tuple[Graph, bool]:
    """The graph with members in place of sequences, as far as constants and shapes say which; and whether it
    had such sequences.

    A sequence stays where something else reads it, or it is an output; so does what takes a member that is
    not there.
    """
    if not any(node.op_type in _MAKES and not node.domain for node in graph.nodes):
        return graph, False
    work = _Members(graph)
    for node in graph.nodes:
        work.take(node)
    return (work.result(), True) if work.folded else (graph, False)


def of_sequences(node: Node) -> bool:
    """Whether the node may give way to members of a sequence, for some shapes."""
    return not node.domain and (node.op_type in _MAKES or node.op_type in _TAKES)


@dataclass
class _Members(Writer):
    known: dict[str, list[str]] = field(default_factory=dict)  # by sequence: its members
    written: set[int] = field(default_factory=set)  # ids of nodes

    def take(self, node: Node) -> None:
        makes = _MAKES.get(node.op_type) if not node.domain else None
        members = makes(self, node) if makes is not None else None
        if node.op_type == "Identity" and not node.domain:
            members = self.known.get(node.inputs[0])
        if members is not None:
            self.known[node.outputs[0]] = members
        takes = _TAKES.get(node.op_type) if not node.domain and node.inputs[:1] else None
        if (
            takes is None
            or node.inputs[0] not in self.known
            or not takes(self, node, self.known[node.inputs[0]])
        ):
            self.nodes.append(node)
            return
        self.folded.append(Folded(node.name, node.op_type, f"the members of {node.inputs[0]} are known"))

    def result(self) -> Graph:
        """Without sequences that nothing reads any more, and members that nothing has taken."""
        read = set(self.graph.output_names)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            unread = read.isdisjoint(node.writes)
            if unread and node.outputs[:1] and node.outputs[0] in self.known:
                self.folded.append(Folded(node.name, node.op_type, "its members are known"))
            elif not unread or id(node) not in self.written:
                kept.append(node)
                read.update(node.reads)
        return self.graph.with_nodes(
            reversed(kept),
            constants={**self.graph.constants, **self.constants},
            folded=(*self.graph.folded, *self.folded),
        )

    def add(self, parent: Node, proto: NodeProto) -> Node:
        node = super().add(parent, proto)
        self.written.add(id(node))
        return node

    def number(self, node: Node, position: int, absent: int) -> int | None:
        """A constant operand of one element; None if it is not constant."""
        if len(node.inputs) <= position or not node.inputs[position]:
            return absent
        value = self.graph.constants.get(node.inputs[position])
        return int(value.reshape(())) if value is not None and value.size == 1 else None

    # -- what makes sequences ----------------------------------------------------------------------------

    def construct(self, node: Node) -> list[str] | None:
        return list(node.inputs)

    def split(self, node: Node) -> list[str] | None:
        shape, axis = self.graph.value(node.inputs[0]).shape, int(node.attributes.get("axis", 0))
        given = len(node.inputs) > 1 and bool(node.inputs[1])
        if given and not node.attributes.get("keepdims", 1):  # ONNX ignores it there, onnxruntime does not
            return None
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        extent = shape[axis]
        sizes = self._sizes(node, extent) if isinstance(extent, int) else None
        if sizes is None or len(sizes) > _MOST_MEMBERS:
            return None
        drops = not node.attributes.get("keepdims", 1)
        members = [unique(f"{node.outputs[0]}/{one}", node.name, self.edges) for one in range(len(sizes))]
        parts = [unique(f"{name}/part", node.name, self.edges) for name in members] if drops else members
        self.write(node, "Split", [node.inputs[0]], parts, axis=axis, split=sizes)
        for part, member in zip(parts, members, strict=True) if drops else ():
            self.write(node, "Squeeze", [part], [member], axes=[axis])
        return members

    def _sizes(self, node: Node, extent: int) -> list[int] | None:
        if len(node.inputs) < 2 or not node.inputs[1]:
            return [1] * extent or None
        given = self.graph.constants.get(node.inputs[1])
        if given is None:
            return None
        if given.ndim:
            sizes = [int(size) for size in given]
            return sizes if sum(sizes) == extent and min(sizes) >= 0 else None
        size = int(given)
        return [min(size, extent - at) for at in range(0, extent, size)] or None if size > 0 else None

    def insert(self, node: Node) -> list[str] | None:
        members = self.known.get(node.inputs[0])
        if members is None:
            return None
        at = self.number(node, 2, len(members))
        if at is None or not -len(members) <= at <= len(members):
            return None
        at += len(members) if at < 0 else 0
        return [*members[:at], node.inputs[1], *members[at:]]

    def erase(self, node: Node) -> list[str] | None:
        members = self.known.get(node.inputs[0])
        at = self.number(node, 1, -1)
        if members is None or at is None or not -len(members) <= at < len(members):
            return None
        return [one for place, one in enumerate(members) if place != at % len(members)]

    # -- what takes them apart ---------------------------------------------------------------------------

    def at(self, node: Node, members: list[str]) -> bool:
        place = self.number(node, 1, 0)
        if place is None or not -len(members) <= place < len(members):
            return False
        self.write(node, "Identity", [members[place]], [node.outputs[0]])
        return True

    def join(self, node: Node, members: list[str]) -> bool:
        if not members:
            return False
        axis, parts = int(node.attributes["axis"]), members
        if node.attributes.get("new_axis", 0):
            parts = [
                unique(f"{node.outputs[0]}/{place}", node.name, self.edges) for place in range(len(members))
            ]
            for member, part in zip(members, parts, strict=True):
                self.write(node, "Unsqueeze", [member], [part], axes=[axis])
        self.write(node, "Concat", parts, [node.outputs[0]], axis=axis)
        return True

    def length(self, node: Node, members: list[str]) -> bool:
        if not self.graph.output_names.isdisjoint(node.writes):
            return False
        self.constants[node.outputs[0]] = np.asarray(len(members), np.int64)
        return True


_MAKES: dict[str, Callable[[_Members, Node], list[str] | None]] = {
    "SequenceConstruct": _Members.construct,
    "SequenceEmpty": lambda _, __: [],
    "SequenceErase": _Members.erase,
    "SequenceInsert": _Members.insert,
    "SplitToSequence": _Members.split,
}
_TAKES: dict[str, Callable[[_Members, Node, list[str]], bool]] = {
    "ConcatFromSequence": _Members.join,
    "SequenceAt": _Members.at,
    "SequenceLength": _Members.length,
}
