# SPDX-License-Identifier: Apache-2.0
"""What becomes of each node of a model, without compiling it: by its operator, not yet by its shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onedispatch.dispatch.bodies.function_bodies import has_body
from onedispatch.dispatch.compile import framework_of, read_model
from onedispatch.dispatch.compiler.custom import is_onnx_domain
from onedispatch.dispatch.compiler.early import nearest_to
from onedispatch.dispatch.compiler.options import ImportOptions
from onedispatch.dispatch.compiler.rewrite import anchored
from onedispatch.dispatch.compiler.unroll import is_loop
from onedispatch.dispatch.frontend.graph import Graph, Node, Step
from onedispatch.dispatch.frontend.schemas import runtime_has
from onedispatch.dispatch.plugins import discovery
from onedispatch.dispatch.sources.host import implementation
from onedispatch.dispatch.sources.translate import Examination, examine
from onedispatch.operators.declarations import registry

DEVICE, HOST, UNMAPPED = "device", "host", "unmapped"


@dataclass(frozen=True)
class NodeCheck:
    """A node of the model: ``where`` it may run, ``how`` it is mapped or why not, what is ``nearest``."""

    node: str
    op_type: str
    domain: str
    version: int
    where: str
    how: str
    nearest: tuple[str, ...] = ()


def check_nodes_of(model: object, how: ImportOptions) -> list[NodeCheck]:
    """Returns a row for each node, in order. Raises as the import of a model and its rules do."""
    graph, found = examined(model, how)
    made = {name: step for step in found.steps for name, _ in step.made}
    written: dict[str, list[Node]] = {}
    for node in found.nodes:
        written.setdefault(_source_of(node, made), []).append(node)
    done = {name: step for step in found.steps if step.made for name in (*step.took, step.node)}
    done = {step.node: step for step in found.steps if not step.refused} | done
    return [
        _checked(graph, node, found, done.get(node.name), written.get(node.name, [])) for node in graph.nodes
    ]


def examined(model: object, how: ImportOptions) -> tuple[Graph, Examination]:
    """Returns a model as it is read, and what its rules make of it."""
    discovery.ensure()
    graph = read_model(model, how)
    return graph, examine(graph, framework_of(graph), how.fusions)


def explained(found: Examination, name: str) -> list[Step]:
    """Returns the steps that a node took part in, and those of what was made of it, in order."""
    names, steps = {name}, []
    for step in reversed(found.steps):  # what a rule wrote is translated before the rule is done
        if step.node in names:
            names.update(made for made, _ in step.made)
            steps.append(step)
    return [*steps, *(step for step in found.steps if name in step.took and step not in steps)]


def _source_of(node: Node, made: dict[str, Step]) -> str:
    name = node.name
    while name in made and made[name].node != name:
        name = made[name].node
    return name


def _checked(
    graph: Graph, node: Node, found: Examination, done: Step | None, written: Sequence[Node]
) -> NodeCheck:
    row = (node.name, node.op_type, node.domain, graph.opset_of(node))
    left = found.unmapped.get(node.name) or found.refused.get(node.name)
    if left is not None:
        return NodeCheck(*row, UNMAPPED, left.reason, left.nearest)
    if done is not None and node.name in done.took:
        return NodeCheck(*row, DEVICE, f"{done.rule}: {', '.join(op for _, op in done.made)}")
    how = "" if done is None else f"{done.rule}: {', '.join(op for _, op in done.made) or 'its operand'}"
    wheres = [_where(graph, one) for one in written] or [(DEVICE, "")]
    unknown = next(
        ((one, why) for one, (where, why) in zip(written, wheres, strict=False) if where == UNMAPPED), None
    )
    if unknown is not None:
        one, why = unknown
        missing = next(iter(_missing_in(one)), (one.domain, one.op_type))
        return NodeCheck(*row, UNMAPPED, how or why, tuple(nearest_to(*missing)))
    where = HOST if any(one == HOST for one, _ in wheres) else DEVICE
    reasons = ", ".join(dict.fromkeys(reason for _, reason in wheres if reason))
    return NodeCheck(*row, where, "; ".join(filter(None, (how, reasons))))


def _missing_in(node: Node) -> list[tuple[str, str]]:
    """Operators in the bodies of a node that nothing computes."""
    return [
        (domain, op_type)
        for domain, op_type in node.inner
        if not is_onnx_domain(domain)
        and registry.mapping_for(domain, op_type) is None
        and not runtime_has(op_type, domain)
        and implementation(domain, op_type) is None
    ]


def _where(graph: Graph, node: Node) -> tuple[str, str]:
    """Where a node of ONNX may run, and why there."""
    inner = _missing_in(node)
    if inner:
        return UNMAPPED, f"in its body: no rule, no kernel for {', '.join('::'.join(one) for one in inner)}"
    if registry.mapping_for(node.domain, node.op_type) is not None:
        return DEVICE, ""
    if implementation(node.domain, node.op_type) is not None:
        return HOST, "its host implementation"
    if node.domain and not is_onnx_domain(node.domain) and not runtime_has(node.op_type, node.domain):
        return UNMAPPED, "no rule, no kernel"
    if has_body(node, graph.opset_of(node)):
        return DEVICE, f"{node.op_type} by its function body"
    if is_loop(node):
        return DEVICE, f"{node.op_type} as the nodes of its rounds, where their number is known"
    if anchored(node):
        return DEVICE, f"{node.op_type} where a rewrite rule takes it"
    return HOST, f"no device operator for {node.op_type}"
