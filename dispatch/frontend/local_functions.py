# SPDX-License-Identifier: Apache-2.0
"""Inlines the functions that a model defines."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import FunctionProto, ModelProto, NodeProto, inliner
from onnx.defs import OpSchema

from onedispatch.dispatch.frontend.schemas import domain_of
from onedispatch.dispatch.frontend.walk import bodies, bodies_of
from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.handlers import reraise_from_handler


def inlined(proto: ModelProto) -> ModelProto:
    """Returns the model with every call of its functions inlined; ``proto`` is not modified.

    A function may import another version of an operator set than the model if each of its operators is the
    same in both, additional element types aside: so ONNX allows it. onnx's inliner would not inline such
    calls, and it ignores the default attributes of functions.

    Raises:
        ModelError: an operator that differs in the function's version; a function that cannot be inlined.
    """
    imported = {domain_of(o.domain): int(o.version) for o in proto.opset_import}
    if any(one.attribute_proto or _others(one, imported) for one in proto.functions):
        given, proto = proto, ModelProto()
        proto.CopyFrom(given)
        _add_defaults(proto)
        for function in proto.functions:
            _import_as(function, imported)
    try:
        return inliner.inline_local_functions(proto)
    except Exception as error:  # the C++ inliner raises RuntimeError and its own kinds
        reraise_from_handler(error)
        raise ModelError("the model's functions", str(error), "functions that can be inlined") from error


def _add_defaults(proto: ModelProto) -> None:
    """Adds the default attributes of functions to calls that omit them."""
    defaults = {_name(one, one.name): one.attribute_proto for one in proto.functions if one.attribute_proto}
    for node in (node for body, _ in bodies(proto) for node in body.node):
        given = {attribute.name for attribute in node.attribute}
        known = defaults.get(_name(node, node.op_type), ())
        node.attribute.extend(attribute for attribute in known if attribute.name not in given)


def _name(one: FunctionProto | NodeProto, name: str) -> tuple[str, str, str]:
    return domain_of(one.domain), name, one.overload


def _others(function: FunctionProto, imported: Mapping[str, int]) -> dict[str, int]:
    """Returns the operator sets of which the function imports another version than the model, with it."""
    versions = {domain_of(o.domain): int(o.version) for o in function.opset_import}
    return {domain: own for domain, own in versions.items() if imported.get(domain, own) != own}


def _import_as(function: FunctionProto, imported: Mapping[str, int]) -> None:
    """Makes a function import the model's versions. Raises ``ModelError`` if an operator differs in them."""
    others = _others(function, imported)
    for node in (node for body, _ in bodies_of([function]) for node in body.node):
        domain = domain_of(node.domain)
        if domain not in others:
            continue
        own, models = (_schema(node.op_type, domain, v) for v in (others[domain], imported[domain]))
        if _form(own) != _form(models):
            where = f"function {function.name!r}, node {node.name or list(node.output[:1])} ({node.op_type})"
            given = f"operator set {others[domain]}, whose {node.op_type} is another"
            raise ModelError(
                where, given, f"the {node.op_type} of the model's operator set, {imported[domain]}"
            )
    for one in function.opset_import:
        one.version = imported.get(domain_of(one.domain), one.version)


def _schema(op_type: str, domain: str, opset: int) -> OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:  # none that onnx knows
        return None


def _form(schema: OpSchema | None) -> object:
    """Returns the form of an operator's nodes: equal for versions that differ only in element types."""
    if schema is None:
        return None
    attributes = {
        name: (str(one.type), one.required, one.default_value.SerializeToString())
        for name, one in schema.attributes.items()
    }
    return attributes, [one.option for one in schema.inputs], [one.option for one in schema.outputs]
