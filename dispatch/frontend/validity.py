# SPDX-License-Identifier: Apache-2.0
"""Validates ONNX models: refuses invalid nodes before any pass folds, maps or runs them.

Three stages, each as early as possible:

- ``check_valid``, at import: versions, and every node, those of subgraphs too, against its schema;
- shape inference, strict and with types, wherever shapes become known (``exporter.infer_values``);
- ``check_nodes``: what schemas and inference leave out, from the tables in ``operator_checks`` and, for
  operators without an ONNX schema, ``contrib_checks``.

A model is invalid if onnxruntime refuses it. A node that ONNX allows is valid even where onnxruntime has
no kernel for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import onnx
from onnx import AttributeProto, ModelProto, NodeProto
from onnx.defs import OpSchema

from onedispatch.dispatch.frontend.contrib_checks import CONTRIB_CHECKS
from onedispatch.dispatch.frontend.facts import Facts
from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.dispatch.frontend.operator_checks import CHECKS
from onedispatch.dispatch.frontend.schemas import domain_of, onnx_operators, onnx_schema, schema_of
from onedispatch.dispatch.frontend.walk import bodies_of
from onedispatch.operators.declarations.registry import MICROSOFT, mapping_for
from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.text import counted, did_you_mean, span

_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)

_CHECKS = {"": CHECKS, MICROSOFT: CONTRIB_CHECKS}
# onnx deprecated version 18, whose scale and bias are per group, with version 21; onnxruntime still has it.
_STILL_COMPUTED = ("GroupNormalization",)


def check_valid(proto: ModelProto) -> None:
    """Checks the model's versions, and every node against the schema of its operator set.

    Raises:
        ModelError: a version newer than onnx's; a node that its schema does not allow.
    """
    _check_versions(proto)
    context = onnx.checker.C.CheckerContext()
    context.ir_version = proto.ir_version
    opsets = {domain_of(o.domain): int(o.version) for o in proto.opset_import}
    context.opset_imports = opsets
    for node in (node for body, _ in bodies_of([proto.graph]) for node in body.node):
        where = f"node {node.name or list(node.output[:1])} ({node.op_type})"
        if domain_of(node.domain) not in opsets:
            raise ModelError(
                where,
                f"domain {node.domain or 'ai.onnx'!r}, of which the model imports no operator set",
                f"one of {', '.join(repr(name or 'ai.onnx') for name in opsets)}",
                f"add onnx.helper.make_opsetid({node.domain!r}, 1) to the model's opset_imports",
            )
        operator = node.op_type, domain_of(node.domain), opsets[domain_of(node.domain)]
        known = onnx_schema(*operator)
        schema = known if _from_plugin(node) else schema_of(*operator)
        if schema is None and not operator[1]:
            _refuse_unknown(where, *operator)
        # onnxruntime's own operators in ONNX's domain: some of them take any attribute.
        if schema is not None and (known is not None or operator[1]):
            _check_attributes(node, schema, where)
        # The checks of com.microsoft name the operand that is missing, which a count does not.
        if schema is not None and (known is not None or node.op_type not in CONTRIB_CHECKS):
            _check_counts(node, schema, where)
            _check_omitted(node, schema, where)
        if schema is not known:
            continue  # an operator of onnxruntime, which onnx's checker refuses in ONNX's domain
        if any(a.type in _GRAPHS for a in node.attribute):
            continue  # subgraphs may read outer values, which onnx's checker of single nodes refuses
        if schema is not None and schema.deprecated and node.op_type in _STILL_COMPUTED:
            continue
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError as error:
            raise ModelError(where, str(error).split("\n\n")[0].strip(), "a valid ONNX node") from error


def _refuse_unknown(where: str, op_type: str, domain: str, opset: int) -> None:
    """Raises ``ModelError`` for an operator that neither onnx nor onnxruntime has in this operator set."""
    versions = [v for v in range(1, onnx.defs.onnx_opset_version() + 1) if schema_of(op_type, domain, v)]
    if versions:
        accepted = f"operator sets {span(versions[0], versions[-1])}, which have it"
        remedy = "change the model's operator set, or write the node with other operators"
    else:
        accepted = "operators of onnx, or of onnxruntime in ONNX's domain"
        remedy = did_you_mean(op_type, onnx_operators()) or "name the domain that the operator is of"
    raise ModelError(where, f"no operator of operator set {opset}", accepted, remedy)


def check_nodes(graph: Graph, nodes: Iterable[Node]) -> None:
    """Checks shapes, attributes and constant operands of ``nodes``.

    A check that needs a shape which is not known yet passes.

    Raises:
        ModelError: a node that no ONNX runtime could compute.
    """
    for node in nodes:
        checks = _CHECKS.get(domain_of(node.domain), {}).get(node.op_type, ())
        if checks:
            facts = Facts.of(graph, node)
            for check in checks:
                check(facts)


# -- versions -----------------------------------------------------------------------------------


@cache
def _newest() -> dict[str, int]:
    """Returns the newest operator set of each domain that the installed onnx has."""
    newest: dict[str, int] = {}
    for domain, version in onnx.helper.OP_SET_ID_VERSION_MAP:
        newest[domain_of(domain)] = max(version, newest.get(domain_of(domain), 0))
    newest[""] = max(newest.get("", 0), onnx.defs.onnx_opset_version())
    return newest


def _check_versions(proto: ModelProto) -> None:
    if proto.ir_version > onnx.IR_VERSION:
        raise ModelError(
            "the model's IR version",
            str(proto.ir_version),
            f"{span(1, onnx.IR_VERSION)}, what onnx {onnx.__version__} knows",
            "install a newer onnx, or save the model for an older one",
        )
    for opset in proto.opset_import:
        newest = _newest().get(domain_of(opset.domain))
        if newest is not None and not 1 <= opset.version <= newest:
            raise ModelError(
                f"the model's operator set of domain {opset.domain or 'ai.onnx'!r}",
                f"version {opset.version}",
                f"{span(1, newest)}, what onnx {onnx.__version__} knows",
                "install a newer onnx, or convert the model with onnx.version_converter",
            )


# -- schemas ------------------------------------------------------------------------------------


def _from_plugin(node: NodeProto) -> bool:
    """True if a plug-in maps the operator; the plug-in then checks operands and attributes itself."""
    mapping = mapping_for(domain_of(node.domain), node.op_type)
    return mapping is not None and (mapping.custom is not None or bool(mapping.origin))


@cache
def _attribute_types(schema: OpSchema) -> dict[str, tuple[int, str, bool]]:
    """Returns per attribute the number of its type, the name of its type, and whether it is required."""
    found = {}
    for name, attribute in schema.attributes.items():
        kind = str(attribute.type).rpartition(".")[2]
        found[name] = AttributeProto.AttributeType.Value(kind), kind, bool(attribute.required)
    return found


def _check_attributes(node: NodeProto, schema: OpSchema, where: str) -> None:
    known = _attribute_types(schema)
    for attribute in node.attribute:
        if attribute.name not in known:
            raise ModelError(
                where,
                f"attribute {attribute.name!r}",
                f"{', '.join(sorted(known)) or 'no attributes'} "
                f"({node.op_type} of operator set {schema.since_version})",
                did_you_mean(attribute.name, known),
            )
        number, kind, _ = known[attribute.name]
        if attribute.type != number and not attribute.ref_attr_name:
            raise ModelError(
                f"{where}, attribute {attribute.name!r}",
                f"type {AttributeProto.AttributeType.Name(attribute.type)}",
                f"type {kind}",
            )
    given = [attribute.name for attribute in node.attribute]
    for name, (_, kind, required) in known.items():
        if required and name not in given:
            raise ModelError(where, f"no attribute {name!r}", f"{name!r} of type {kind}")
    if len(set(given)) < len(given):
        raise ModelError(where, f"attributes {given}", "each attribute once")


def _check_counts(node: NodeProto, schema: OpSchema, where: str) -> None:
    counts = (
        ("input", len(node.input), schema.min_input, schema.max_input),
        ("output", len(node.output), schema.min_output, schema.max_output),
    )
    for what, given, least, most in counts:
        if not least <= given <= most:
            accepted = counted(least, what) if least == most else f"{span(least, most)} {what}s"
            raise ModelError(where, counted(given, what), accepted)


def _check_omitted(node: NodeProto, schema: OpSchema, where: str) -> None:
    """Refuses inputs without a name that are not optional; with unnamed variadic ones onnxruntime crashes."""
    option = OpSchema.FormalParameterOption
    for index, name in enumerate(node.input if schema.inputs else ()):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if name or formal.option == option.Optional:
            continue
        if formal.option == option.Variadic:
            accepted = f"a name: {node.op_type} takes any number of inputs, none of which may be omitted"
            raise ModelError(where, f"input {index} without a name", accepted, "leave it out of the list")
        given = f"input {index} ({formal.name}) without a name"
        raise ModelError(where, given, f"a name: {node.op_type} needs {formal.name}")
