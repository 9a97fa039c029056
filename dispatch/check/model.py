# SPDX-License-Identifier: Apache-2.0
"""Checks the nodes of a model that custom kernels compute, on the inputs that they get in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from onedispatch.dispatch.check.child import CheckReport, Reporter, TimeLimit, run_in_child
from onedispatch.dispatch.check.kernels import GRACE, check_call
from onedispatch.dispatch.compiler.quantised import quantisation, sources
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value, type_name_of
from onedispatch.dispatch.plugins import engine
from onedispatch.operators.declarations.registry import custom_mapping
from onedispatch.operators.declarations.statuses import KernelTimeoutError
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec
from onedispatch.operators.plugin.check import Options
from onedispatch.operators.plugin.findings import Finding, failed
from onedispatch.operators.plugin.plugin import NodeMapping
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions.base.errors import InputError, KernelError
from onedispatch.transactions.base.host import kernel_limit
from onedispatch.transactions.base.text import counted

if TYPE_CHECKING:
    from onedispatch.dispatch.artifact.model import CompiledModel

Values = Callable[["CompiledModel", Mapping[str, Array]], list[Array]]
"""Runs a model once and returns the values of its outputs, in order."""

RUN, COMPILATION = (
    "the model, while it runs",
    "the model, while it is compiled",
)  # in place of a kernel's name


@dataclass(frozen=True)
class KernelCall:
    """A node, its mapping and its input arrays, None for an absent one."""

    node: Node
    mapping: NodeMapping
    arrays: list[Array | None]


def check_run(
    model: CompiledModel, graph: Graph | None, feed: Mapping[str, Array], values: Values, options: Options
) -> CheckReport:
    """Checks every node of ``graph``, the source of ``model``, that custom kernels compute, on these inputs.

    Raises ``InputError`` if the model does not have its source.
    """
    if graph is None:
        raise InputError("check", "a compiled model without its source", "an ONNX model, or its path")
    nodes = custom_nodes(graph)
    quantised = sources(graph)
    engine.register_kernels()

    def work(reporter: Reporter) -> None:
        reporter.case(RUN, "")
        with reporter.quiet():
            calls = custom_calls(model, graph, nodes, feed, values)
        with kernel_limit(options.seconds):
            for call in calls:
                _check(reporter, call, spec_of(call, graph, quantised), model, options)

    if not nodes:
        return CheckReport()
    return _without(RUN, run_in_child(work, options.seconds + GRACE, limit=TimeLimit(options.limit)))


def check_compile(compile: Callable[[], object], limit: float) -> None:
    """Compiles in a child first, because that runs methods of custom kernels, and bodies to count their work.

    Raises ``KernelError`` if they end the child. Other errors appear when the caller compiles.
    """

    def work(reporter: Reporter) -> None:
        reporter.case(COMPILATION, "")
        with reporter.quiet(), suppress(Exception):
            compile()

    raise_failed(run_in_child(work, limit, limit=TimeLimit(limit)))


def _without(label: str, report: CheckReport) -> CheckReport:
    """Drops the entry ``label``, which is not a kernel, from the report if it has no findings."""
    if label in report.kernels and not report.kernels[label].findings:
        del report.kernels[label]
    return report


def custom_nodes(graph: Graph) -> list[tuple[Node, NodeMapping]]:
    """Returns the nodes that custom kernels compute, with their mappings."""
    rows = [(node, custom_mapping(node)) for node in graph.nodes]
    return [(node, mapping) for node, mapping in rows if isinstance(mapping, NodeMapping)]


def custom_calls(
    model: CompiledModel,
    graph: Graph,
    found: Sequence[tuple[Node, NodeMapping]],
    feed: Mapping[str, Array],
    values: Values,
) -> list[KernelCall]:
    """Returns the nodes with their input arrays; one run gives intermediate values as outputs."""
    known: dict[str, Array] = {**graph.constants, **feed}
    missing = list(dict.fromkeys(n for node, _ in found for n in node.inputs if n and n not in known))
    if missing:
        known |= dict(zip(missing, values(returning(model, graph, missing), feed), strict=True))
    return [
        KernelCall(node, mapping, [np.asarray(known[name]) if name else None for name in node.inputs])
        for node, mapping in found
    ]


def returning(model: CompiledModel, graph: Graph, names: list[str]) -> CompiledModel:
    """Returns the model with other values of its graph as outputs."""
    outputs = tuple(graph.value(name) for name in names)
    return replace(model, source=replace(graph, outputs=outputs), outputs=outputs, executables={})


def spec_of(call: KernelCall, graph: Graph, quantised: Mapping[str, Any]) -> NodeSpec:
    """Returns the node as its kernel sees it, with the shapes of this run."""
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


def _check(
    reporter: Reporter, call: KernelCall, spec: NodeSpec, model: CompiledModel, options: Options
) -> None:
    plugin = call.mapping.plugin
    text = f"node {call.node.name}"
    reporter.case(plugin.kernel.name, text)
    arrays = call.arrays
    try:
        node = call.mapping.node(spec, model.target)
        instance = plugin.instantiate(node)
    except KernelTimeoutError as error:
        reporter.found(plugin.kernel.name, Finding("timeout", str(error), text))
        return
    except KernelError as error:
        if model.cast_policy != "f32":
            reporter.found(plugin.kernel.name, Finding("refused", str(error), text))
            return
        spec, arrays = _as_f32(spec, arrays)
        node = call.mapping.node(spec, model.target)
        instance = plugin.instantiate(node)
    if instance.is_empty:
        return
    named = zip((one.name for one in plugin.kernel.inputs), arrays, strict=False)
    check_call(reporter, plugin, instance, {n: a for n, a in named if a is not None}, options, text)


def _as_f32(spec: NodeSpec, arrays: list[Array | None]) -> tuple[NodeSpec, list[Array | None]]:
    """Returns the node with its floating-point inputs in float32, as ``cast_policy="f32"`` casts them."""
    cast = [None if a is None or a.dtype.kind in "iub" else a.astype(np.float32) for a in arrays]
    chosen = [old if new is None else new for old, new in zip(arrays, cast, strict=True)]
    tensors = [
        None if tensor is None or array is None else replace(tensor, dtype=array.dtype)
        for tensor, array in zip(spec.inputs, chosen, strict=True)
    ]
    return replace(spec, inputs=tensors, outputs=[None] * len(spec.outputs)), chosen


def raise_failed(report: CheckReport) -> None:
    """Raises an error that lists all findings, unless all are warnings.

    The error is a ``KernelAccessError``, or the class for crashes or timeouts if all errors are of that kind.
    """
    if not failed(report.findings):
        return
    errors = [one for one in report.findings if one.level == "error"]
    listed = "\n  ".join(map(str, report.findings))
    (kind, *others) = {one.kind for one in errors}
    error = refusal(
        kind if kind in ("crash", "timeout") and not others else "access",
        f"check mode, {counted(len(errors), 'finding')}:\n  {listed}\n",
        "",
        "kernels that touch what they declare, each element by one member",
        "onedispatch kernel check FILE checks a kernel by itself",
    )
    error.findings = report.findings  # type: ignore[attr-defined]
    raise error
