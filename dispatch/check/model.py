# SPDX-License-Identifier: Apache-2.0
"""The nodes of a model that kernels from outside compute, checked on the inputs that they have in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from onedispatch.dispatch.check.child import Clock, Teller, Told, told_by_child
from onedispatch.dispatch.check.kernels import GRACE, check_call
from onedispatch.dispatch.compiler.quantised import quantisation, sources
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value, type_name_of
from onedispatch.dispatch.plugins import engine
from onedispatch.operators.declarations.registry import plugin_of
from onedispatch.operators.declarations.statuses import STATUSES, KernelTimeoutError, error_class
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec
from onedispatch.operators.plugin.check import Options
from onedispatch.operators.plugin.findings import Finding, failed
from onedispatch.operators.plugin.plugin import NodeMapping, is_empty
from onedispatch.transactions.base.errors import InputError, KernelError
from onedispatch.transactions.base.host import kernel_limit
from onedispatch.transactions.base.text import counted

if TYPE_CHECKING:
    from onedispatch.dispatch.artifact.model import CompiledModel

Values = Callable[["CompiledModel", Mapping[str, Array]], list[Array]]
"""Runs a model once: the values of its outputs, in their order"""

_CODES = {row.name: row.code for row in STATUSES if row.name in ("access", "crash", "timeout")}
_ACCESS = _CODES["access"]
RUN, COMPILATION = "the model, while it runs", "the model, while it is compiled"  # beside kernels' names


@dataclass(frozen=True)
class Call:
    """A node, its mapping and the arrays that it is given, None where absent."""

    node: Node
    mapping: NodeMapping
    arrays: list[Array | None]


def check_run(
    model: CompiledModel, graph: Graph | None, feed: Mapping[str, Array], values: Values, options: Options
) -> Told:
    """What check mode says of every node of ``graph``, the source of ``model``, that a kernel from outside
    computes, for these inputs.

    Raises ``InputError`` where the source was not kept.
    """
    if graph is None:
        raise InputError("check", "a compiled model without its source", "an ONNX model, or its path")
    nodes = custom_nodes(graph)
    quantised = sources(graph)
    engine.carry()

    def work(teller: Teller) -> None:
        teller.case(RUN, "")
        with teller.quiet():
            calls = custom_calls(model, graph, nodes, feed, values)
        with kernel_limit(options.seconds):
            for call in calls:
                _check(teller, call, spec_of(call, graph, quantised), model, options)

    if not nodes:
        return Told()
    return _without(RUN, told_by_child(work, options.seconds + GRACE, clock=Clock(options.limit)))


def check_compile(compile: Callable[[], object], limit: float) -> None:
    """Compiles in a child first, since methods of kernels run then, and bodies whose work is counted.

    Raises ``KernelError`` where they end the child. What is refused says so when it is compiled for good.
    """

    def work(teller: Teller) -> None:
        teller.case(COMPILATION, "")
        with teller.quiet(), suppress(Exception):
            compile()

    raise_failed(told_by_child(work, limit, clock=Clock(limit)))


def _without(label: str, told: Told) -> Told:
    """The report without a phase that is no kernel's, where nothing was found in it."""
    if label in told.kernels and not told.kernels[label].findings:
        del told.kernels[label]
    return told


def custom_nodes(graph: Graph) -> list[tuple[Node, NodeMapping]]:
    return [(node, mapping) for node in graph.nodes if isinstance(mapping := plugin_of(node), NodeMapping)]


def custom_calls(
    model: CompiledModel,
    graph: Graph,
    found: Sequence[tuple[Node, NodeMapping]],
    feed: Mapping[str, Array],
    values: Values,
) -> list[Call]:
    """The nodes with what they are given: intermediate values come from one run that returns them too."""
    known: dict[str, Array] = {**graph.constants, **feed}
    missing = list(dict.fromkeys(n for node, _ in found for n in node.inputs if n and n not in known))
    if missing:
        known |= dict(zip(missing, values(returning(model, graph, missing), feed), strict=True))
    return [
        Call(node, mapping, [np.asarray(known[name]) if name else None for name in node.inputs])
        for node, mapping in found
    ]


def returning(model: CompiledModel, graph: Graph, names: list[str]) -> CompiledModel:
    """The model with other outputs: edges of its graph."""
    outputs = tuple(graph.value(name) for name in names)
    return replace(model, source=replace(graph, outputs=outputs), outputs=outputs, executables={})


def spec_of(call: Call, graph: Graph, quantised: Mapping[str, Any]) -> NodeSpec:
    """The node as its kernel sees it, with the shapes of this run."""
    inputs = [
        None if array is None else _tensor(name, array, graph, quantised)
        for name, array in zip(call.node.inputs, call.arrays, strict=True)
    ]
    outputs = []
    for name in call.node.outputs:
        value = graph.value(name)
        known = bool(name) and value.is_concrete and value.dtype is not None
        outputs.append(TensorSpec(name, value.dtype, value.concrete_shape) if known and value.dtype else None)
    node = call.node
    opset = graph.opset_of(node)
    return NodeSpec(node.name, node.op_type, node.domain, opset, inputs, outputs, node.attributes)


def _tensor(name: str, array: Array, graph: Graph, quantised: Mapping[str, Any]) -> TensorSpec:
    said = quantised.get(name)
    value = Value(name, type_name_of(array.dtype), array.shape)
    scale = None if said is None else quantisation(value, graph.constants, *said)
    return TensorSpec(name, array.dtype, array.shape, graph.constants.get(name), scale)


def _check(teller: Teller, call: Call, spec: NodeSpec, model: CompiledModel, options: Options) -> None:
    kernel = call.mapping.kernel
    text = f"node {call.node.name}"
    teller.case(kernel.declared.name, text)
    arrays = call.arrays
    try:
        node = call.mapping.node(spec, model.target)
        placement = kernel.place(node)
    except KernelTimeoutError as error:
        teller.found(kernel.declared.name, Finding("timeout", str(error), text))
        return
    except KernelError as error:
        if model.cast_policy != "f32":
            teller.found(kernel.declared.name, Finding("refused", str(error), text))
            return
        spec, arrays = _as_f32(spec, arrays)
        node = call.mapping.node(spec, model.target)
        placement = kernel.place(node)
    if is_empty(placement):
        return
    named = zip((one.name for one in kernel.declared.inputs), arrays, strict=False)
    check_call(teller, kernel, placement, {n: a for n, a in named if a is not None}, options, text)


def _as_f32(spec: NodeSpec, arrays: list[Array | None]) -> tuple[NodeSpec, list[Array | None]]:
    """The node behind the casts of ``cast_policy="f32"``: all its inputs of floating-point types."""
    cast = [None if a is None or a.dtype.kind in "iub" else a.astype(np.float32) for a in arrays]
    chosen = [old if new is None else new for old, new in zip(arrays, cast, strict=True)]
    tensors = [
        None if tensor is None or array is None else replace(tensor, dtype=array.dtype)
        for tensor, array in zip(spec.inputs, chosen, strict=True)
    ]
    return replace(spec, inputs=tensors, outputs=[None] * len(spec.outputs)), chosen


def raise_failed(told: Told) -> None:
    """Raises an error that lists all findings, where one is more than a warning: ``KernelAccessError``, but
    where all are crashes, or bodies that do not end."""
    if not failed(told.findings):
        return
    errors = [one for one in told.findings if one.level == "error"]
    listed = "\n  ".join(map(str, told.findings))
    (kind, *others) = {one.kind for one in errors}
    error = error_class(_ACCESS if others else _CODES.get(kind, _ACCESS))(
        f"check mode, {counted(len(errors), 'finding')}:\n  {listed}\n",
        "",
        "kernels that touch what they declare, each element by one member",
        "onedispatch kernel check FILE checks a kernel by itself",
    )
    error.findings = told.findings  # type: ignore[attr-defined]
    raise error
