# SPDX-License-Identifier: Apache-2.0
"""Leaves the fewest transposes between formats with channels last and with channels first.

Rules write a Transpose before and behind every operator that asks for ONNX's format. Here the nodes between
them that follow any order (``flexible.py``) are put on one side or the other, so that the fewest values are
needed in both: a smallest cut. A Transpose stays where a value crosses, with a remark that says for whom.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import onnx
from onnx import helper

from onedispatch.dispatch.frontend.exporter import node_proto
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value, sort_nodes
from onedispatch.dispatch.frontend.importer import read_node
from onedispatch.dispatch.sources.flexible import Flexible, flexible
from onedispatch.dispatch.sources.formats import permutation
from onedispatch.dispatch.sources.mincut import smallest_cut

_FIRST = {"NCW": "NWC", "NCHW": "NHWC", "NCDHW": "NDHWC"}  # channels first -> the same with channels last


def arrange(graph: Graph) -> Graph:
    """Returns the graph with as few transposes between formats as its nodes allow."""
    for first in _FIRST:
        if any({first, _FIRST[first]} == set(pair) for pair in graph.layouts.values()):
            graph = _Arrangement.of(graph, first).result()
    return graph


@dataclass
class _Arrangement:
    """Of one pair of formats. A value is known by its root, the name under which a node makes it.

    ``side`` is True for names with channels first, False for last; other names have none.
    """

    graph: Graph
    first: str
    moved: dict[str, Node] = field(default_factory=dict)  # the transposes, by their result
    side: dict[str, bool] = field(default_factory=dict)
    bending: dict[str, Flexible] = field(default_factory=dict)  # flexible nodes, by name
    taken: set[str] = field(default_factory=set)  # names of values and nodes

    @classmethod
    def of(cls, graph: Graph, first: str) -> _Arrangement:
        self = cls(graph, first)
        self.taken = {*graph.values, *graph.constants, *(value.name for value in graph.inputs)}
        for node in graph.nodes:
            self.taken.update((node.name, *node.reads, *node.writes))
            pair = graph.layouts.get(node.name)
            if pair is not None and set(pair) == {first, _FIRST[first]}:
                self._move(node, pair[1] == first)
        self._spread()
        return self

    def _move(self, node: Node, to_first: bool) -> None:
        (source,), (result,) = node.inputs, node.outputs
        if self.side.get(source, not to_first) is to_first:
            return  # rules disagree on what the value is: this Transpose is one of the model's own
        self.side[source], self.side[result] = not to_first, to_first
        self.moved[result] = node

    def _spread(self) -> None:
        """Finds the flexible nodes that values of the formats reach."""
        readers: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            for name in (*node.reads, *node.writes):
                readers.setdefault(name, []).append(node)
        waiting, refused = list(self.side), set[str]()
        while waiting:
            for node in readers.get(waiting.pop(), ()):
                if node.name in self.bending or node.name in refused or self._is_moved(node):
                    continue
                found = flexible(self.graph, node, len(self.first))
                sides = {self.side[name] for name in found.moving if name in self.side} if found else set()
                if found is None or len(sides) != 1:
                    refused.add(node.name)
                    continue
                self.bending[node.name] = found
                new = [name for name in found.moving if name not in self.side]
                self.side.update(dict.fromkeys(new, sides.pop()))
                waiting += new

    def _is_moved(self, node: Node) -> bool:
        return len(node.outputs) == 1 and self.moved.get(node.outputs[0]) is node

    def _unused(self, name: str) -> str:
        """Returns the name, longer where a value or node has it."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _root(self, name: str) -> str:
        while name in self.moved:
            name = self.moved[name].inputs[0]
        return name

    # -- which side each node is on ----------------------------------------------------------------

    def _sides(self) -> dict[str, bool]:
        """Returns for each flexible node whether channels come first in what it reads and writes."""
        ends: dict[str, tuple[set[str], set[bool]]] = {}  # root -> flexible nodes, sides of others

        def takes(name: str, node: Node | None) -> None:
            if name not in self.side:
                return
            vertices, sides = ends.setdefault(self._root(name), (set(), set()))
            if node is not None and node.name in self.bending and name in self.bending[node.name].moving:
                vertices.add(node.name)
            else:
                sides.add(self.side[name])

        for node in self.graph.nodes:
            for name in (*node.reads, *node.writes) if not self._is_moved(node) else ():
                takes(name, node)
        for value in (*self.graph.inputs, *self.graph.outputs):
            takes(value.name, None)
        edges = [(frozenset(vertices), True in sides, False in sides) for vertices, sides in ends.values()]
        chosen = smallest_cut(edges)
        return {name: name in chosen for name in self.bending}

    # -- writing -----------------------------------------------------------------------------------

    def result(self) -> Graph:
        """Writes the graph with every flexible node on its side."""
        graph, sides = self.graph, self._sides()
        names = self._names()
        constants: dict[str, Array] = dict(graph.constants)
        values, nodes, made = dict(graph.values), list[Node](), dict[str, bool]()
        needs: dict[tuple[str, bool], list[str]] = {}  # (root, side) -> who reads it so

        def called(name: str, node: Node | None) -> str:
            if name not in self.side:
                return name
            bends = node is not None and node.name in self.bending and name in self.bending[node.name].moving
            side = sides[node.name] if node is not None and bends else self.side[name]
            root = self._root(name)
            if node is not None and name in node.writes:
                made[root] = side
            else:
                needs.setdefault((root, side), []).append(node.name if node is not None else "the model")
            return names[root, side]

        for node in graph.nodes:
            if self._is_moved(node):
                continue
            reads = [called(name, node) for name in node.inputs]
            for name in node.captured:  # a body reads it by its own name
                called(name, node)
            writes = [called(name, node) for name in node.outputs]
            nodes.append(self._written(node, reads, writes, sides.get(node.name), constants))
        for value in graph.inputs:
            if value.name in self.side:
                made[value.name] = self.side[value.name]
        gone = {node.name for node in self.moved.values()}
        layouts = {name: pair for name, pair in graph.layouts.items() if name not in gone}
        remarks = dict(graph.remarks)
        for value in graph.outputs:
            called(value.name, None)
        for (root, side), readers in needs.items():
            if made.get(root, self.side[root]) is not side:
                node = self._transpose(root, side, names)
                nodes.append(node)
                pair = self._pair(side)
                layouts[node.name] = pair
                remarks[node.name] = f"{pair[0]} to {pair[1]} for {', '.join(dict.fromkeys(readers))}"
        for (root, side), name in names.items():
            values[name] = self._value(root, side, name)
        known = [*(value.name for value in graph.inputs), *constants]
        ordered = sort_nodes([*nodes, *self._copies(names)], known)
        changes = {"values": values, "layouts": layouts, "remarks": remarks}
        aliases = {**graph.aliases, **self._aliases(names, {n for node in ordered for n in node.writes})}
        return graph.with_nodes(ordered, constants=constants, aliases=aliases, **changes)

    def _aliases(
        self, names: Mapping[tuple[str, bool], str], made: set[str]
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """What names of values stand for that no node makes any more: other names, or the other side."""
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        for name, side in self.side.items():
            root = self._root(name)
            own, other = names[root, side], names[root, not side]
            if name in made or name in self.graph.constants:
                continue
            if own in made:
                found[name] = own, ()
            elif other in made:
                found[name] = other, tuple(permutation(*self._pair(side)))
        return found

    def _names(self) -> dict[tuple[str, bool], str]:
        """The name of each value on each side: inputs and constants keep theirs, then what ``_fixed`` has."""
        fixed, found = self._fixed(), dict[tuple[str, bool], str]()
        for name in (*(value.name for value in self.graph.inputs), *self.graph.constants):
            if name in self.side:
                found[name, self.side[name]] = name
        given = {*found.values()}
        for name in self.side:
            key = (self._root(name), self.side[name])
            if key not in found or (name in fixed and found[key] not in fixed | given):
                found[key] = name
        for root in {root for root, _ in found}:
            for side in (True, False):
                if (root, side) not in found:
                    found[root, side] = self._unused(f"{root}/{self._format(side)}")
        return found

    def _fixed(self) -> set[str]:
        """Names that stay, whichever value they are: outputs of the model, and what bodies read."""
        captured = {name for node in self.graph.nodes for name in node.captured}
        return (captured | self.graph.output_names) & self.side.keys()

    def _copies(self, names: Mapping[tuple[str, bool], str]) -> list[Node]:
        """Names that stay, of values that have several."""
        found = []
        for name in sorted(self._fixed()):
            own = names[self._root(name), self.side[name]]
            if own != name:
                proto = helper.make_node("Identity", [own], [name], name=self._unused(f"{name}/Identity"))
                found.append(self._read(proto))
        return found

    def _written(
        self, node: Node, reads: list[str], writes: list[str], side: bool | None, constants: dict[str, Array]
    ) -> Node:
        """A node with its values under their names; if it changes sides, axes and constants follow."""
        found = self.bending.get(node.name)
        turned = found is not None and side is not None and self._was(found) is not side
        if not turned and tuple(reads) == node.inputs and tuple(writes) == node.outputs:
            return node
        proto = node_proto(node)
        if found is not None and turned:
            pair = self._pair(bool(side))
            attributes, arrays = found.follow(permutation(*pair))
            for index, array in arrays.items():
                name = self._unused(f"{node.name}/{self._format(bool(side))}_{index}")
                array.flags.writeable = False
                constants[name] = array
                reads[index] = name
            kept = [one for one in proto.attribute if one.name not in attributes]
            del proto.attribute[:]
            proto.attribute.extend(kept)
            proto.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        del proto.input[:], proto.output[:]
        proto.input.extend(reads)
        proto.output.extend(writes)
        return replace(self._read(proto), name=node.name, opset=node.opset)

    def _was(self, found: Flexible) -> bool:
        return self.side[found.moving[0]]

    def _transpose(self, root: str, side: bool, names: Mapping[tuple[str, bool], str]) -> Node:
        perm = list(permutation(*self._pair(side)))
        source, result = names[root, not side], names[root, side]
        known = next((n for n in self.moved.values() if n.outputs[0] == result), None)
        name = known.name if known is not None else self._unused(f"{result}/Transpose")
        return self._read(helper.make_node("Transpose", [source], [result], name=name, perm=perm))

    def _value(self, root: str, side: bool, name: str) -> Value:
        known = self.graph.value(root)
        shape = known.shape
        if shape is not None and self.side[root] is not side:
            perm = permutation(*self._pair(side))
            # Of another rank it is a defect that the check of the whole graph names.
            shape = tuple(shape[axis] for axis in perm) if len(shape) == len(perm) else None
        return Value(name, known.type, shape)

    def _pair(self, to_first: bool) -> tuple[str, str]:
        return self._format(not to_first), self._format(to_first)

    def _format(self, side: bool) -> str:
        return self.first if side else _FIRST[self.first]

    def _read(self, proto: onnx.NodeProto) -> Node:
        node = read_node(proto, self.graph.opsets, self.graph.ir_version)
        assert isinstance(node, Node)
        return node
