# SPDX-License-Identifier: Apache-2.0
"""Properties that passes require and ensure."""

from __future__ import annotations

from typing import Any

from onedispatch.dispatch.compiler.evaluate import may_evaluate
from onedispatch.dispatch.compiler.executable import DeviceStep, Executable
from onedispatch.dispatch.compiler.inline import is_if
from onedispatch.dispatch.compiler.passes import Property
from onedispatch.dispatch.compiler.quantised import quantisations
from onedispatch.dispatch.frontend.graph import Graph, sort_nodes
from onedispatch.dispatch.frontend.validity import check_nodes
from onedispatch.transactions.base.errors import ModelError, OneDispatchError


def _unsorted(graph: Graph) -> str:
    known = [*(value.name for value in graph.inputs), *graph.constants]
    try:
        ordered = sort_nodes(graph.nodes, known)
    except ModelError as error:
        return error.statement()
    return "" if ordered == graph.nodes else "nodes stand before what they read"


def _dead(graph: Graph) -> str:
    read = graph.output_names.union(name for node in graph.nodes for name in node.reads)
    return ", ".join(node.name for node in graph.nodes if read.isdisjoint(node.writes))


def _open_inputs(graph: Graph) -> str:
    tensors = (value for value in graph.inputs if value.dtype is not None)
    return ", ".join(str(value) for value in tensors if not value.is_concrete)


def _foldable(graph: Graph) -> str:
    known = set(graph.constants)
    found = (node for node in graph.nodes if may_evaluate(node) and known.issuperset(node.reads))
    kept = graph.output_names  # what leaves is for the device to make
    return ", ".join(
        node.name for node in found if kept.isdisjoint(node.writes) and node.op_type != "DequantizeLinear"
    )


def _known_branches(graph: Graph) -> str:
    return ", ".join(node.name for node in graph.nodes if is_if(node) and node.inputs[0] in graph.constants)


def _invalid(graph: Graph) -> str:
    try:
        check_nodes(graph, graph.nodes)
    except OneDispatchError as error:
        return error.statement()
    return ""


def _other_quantisations(graph: Graph) -> str:
    return "" if graph.quantised.keys() >= quantisations(graph).keys() else "scales that it does not know"


def _unverified(value: Any) -> str:
    try:
        value.verify()
    except OneDispatchError as error:
        return error.statement()
    return ""


def _broken_steps(executable: Executable) -> str:
    return "; ".join(
        said for step in executable.steps if isinstance(step, DeviceStep) and (said := _unverified(step))
    )


SORTED = Property("nodes stand behind what they read, values are made once", _unsorted)
LIVE = Property("every node is read", _dead)
SHAPED = Property("all tensor inputs have concrete shapes", _open_inputs)
FOLDED = Property("no node of constants alone, but for DequantizeLinear", _foldable)
INLINED = Property("no If whose condition is constant", _known_branches)
VALID = Property("nodes keep ONNX's rules of shapes, types and attributes", _invalid)
QUANTISED = Property("the graph says what its integers stand for", _other_quantisations)
VERIFIED = Property("what each node becomes is whole, in order, and fits the device", _unverified)
FUSED = Property("slots, buffers, timers and reloads of each step agree", _broken_steps)
