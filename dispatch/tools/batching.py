# SPDX-License-Identifier: Apache-2.0
"""A model for another batch: the leading dimension of its inputs, also where the model states it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from onedispatch.dispatch.frontend.exporter import rewired
from onedispatch.dispatch.frontend.graph import Array, Dimension, Graph, Node, Value, describe_shape
from onedispatch.transactions.base.errors import InputError

_REMEDY = "leave --batch out, and give sizes by --shape"


def with_batch(graph: Graph, batch: int) -> Graph:
    """Returns ``graph`` with ``batch`` for the leading dimension of its inputs.

    Where some leave it open, it is theirs, and they call it by one name; where all state it, it is the same
    size of all. Then targets of Reshape that begin with that size begin with the new one: samples lie one
    behind the other, so each keeps its own shape. ``check_batched`` says whether the rest follows.

    Raises ``InputError`` where there is no such dimension.
    """
    found = leading(graph)
    old = next(iter(found.values()))
    if old == batch:
        return graph
    inputs = tuple(_resized(v, old, batch) if v.name in found else v for v in graph.inputs)
    graph = replace(graph, inputs=inputs)
    if not isinstance(old, int):
        return graph
    outputs = tuple(replace(value, shape=None) for value in graph.outputs)
    return _with_targets(replace(graph, outputs=outputs), old, batch)


def check_batched(graph: Graph, outputs: tuple[Value, ...], batch: int) -> None:
    """Raises ``InputError`` unless outputs of a model whose batch was stated follow the ``batch``.

    ``graph`` is the model as it was; ``outputs`` are those that it has for the batch.
    """
    old = next(iter(leading(graph).values()))
    if not isinstance(old, int) or old == batch:
        return
    for before, after in zip(graph.outputs, outputs, strict=True):
        kept = before.shape and after.shape and before.shape[0] == old and after.shape[0] != batch
        if kept:
            given = f"output {after.name!r} has shape {describe_shape(after.shape)} for a batch of {batch}"
            raise _refused(given, "models whose outputs have as many rows as their inputs")


def leading(graph: Graph) -> dict[str, Dimension]:
    """The leading dimension of each input that ``with_batch`` is to replace: one size, or one name.

    Raises ``InputError`` where there is none.
    """
    found: dict[str, Dimension] = {}
    for value in graph.inputs:
        if value.dtype is None or value.shape is None:
            raise _refused(f"input {value}", "inputs whose number of dimensions is known")
        if value.shape:
            found[value.name] = value.shape[0]
    names = {size for size in found.values() if not isinstance(size, int)}
    if names:
        found = {name: size for name, size in found.items() if size in names}
    if len(set(found.values())) != 1:
        inputs = ", ".join(map(str, graph.inputs))
        raise _refused(f"inputs {inputs}", "inputs with one leading dimension, by size or by name")
    return found


def _refused(given: str, accepted: str) -> InputError:
    return InputError("--batch", given, accepted, _REMEDY)


def _resized(value: Value, old: Dimension, batch: int) -> Value:
    """With the batch for its leading dimension, and for others of the same name."""
    _, *rest = value.shape or ()
    named = isinstance(old, str)
    return replace(value, shape=(batch, *(batch if named and size == old else size for size in rest)))


def _with_targets(graph: Graph, old: int, batch: int) -> Graph:
    """The graph whose constant targets of Reshape begin with ``batch`` where they began with ``old``."""
    constants, nodes = dict(graph.constants), []
    for node in graph.nodes:
        target = _target(node, graph.constants)
        if target is not None and target.size and target[0] == old:
            name = f"{node.inputs[1]}, batch of {node.name}"
            constants[name] = np.array([batch, *target[1:]], target.dtype)
            node = rewired(node, (node.inputs[0], name), node.outputs)
        nodes.append(node)
    return graph.with_nodes(nodes, constants=constants)


def _target(node: Node, constants: Mapping[str, Array]) -> Array | None:
    """The constant target of a Reshape; None for others."""
    if node.op_type != "Reshape" or node.domain or len(node.inputs) != 2:
        return None
    return constants.get(node.inputs[1])
