# SPDX-License-Identifier: Apache-2.0
"""A model without functions of its own: their nodes in the place of every call."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import FunctionProto, ModelProto, NodeProto, inliner
from onnx.defs import OpSchema

from onedispatch.dispatch.frontend.validity import domain_of
from onedispatch.dispatch.frontend.walk import bodies, bodies_of
from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.handlers import reraise_from_handler


def inlined(proto: ModelProto) -> ModelProto:
    """The model with every call of its functions inlined; ``proto`` stays as it is.

    A function may import another version of an operator set than the model where each of its operators
    is the same in both, more element types aside: ONNX's rule. onnx's inliner would leave its calls, and
    it forgets what attributes of functions are where a call leaves them out.

    Raises:
        ModelError: an operator that is another one in the function's version; what cannot be inlined.
    """
    imported = {domain_of(o.domain): int(o.version) for o in proto.opset_import}
    if any(one.attribute_proto or _others(one, imported) for one in proto.functions):
        given, proto = proto, ModelProto()
        proto.CopyFrom(given)
        _say_defaults(proto)
        for function in proto.functions:
            _import_as(function, imported)
    try:
        return inliner.inline_local_functions(proto)
    except Exception as error:  # the C++ inliner raises RuntimeError and its own kinds
        reraise_from_handler(error)
        raise ModelError("the model's functions", str(error), "functions that can be inlined") from error


def _say_defaults(proto: ModelProto) -> None:
    """Writes down the attributes that calls leave at the defaults of their functions."""
    defaults = {_name(one, one.name): one.attribute_proto for one in proto.functions if one.attribute_proto}
    for node in (node for body, _ in bodies(proto) for node in body.node):
        said = {attribute.name for attribute in node.attribute}
        known = defaults.get(_name(node, node.op_type), ())
        node.attribute.extend(attribute for attribute in known if attribute.name not in said)


def _name(one: FunctionProto | NodeProto, name: str) -> tuple[str, str, str]:
    return domain_of(one.domain), name, one.overload


def _others(function: FunctionProto, imported: Mapping[str, int]) -> dict[str, int]:
    """Operator sets of which the function imports another version than the model, with that version."""
    versions = {domain_of(o.domain): int(o.version) for o in function.opset_import}
    return {domain: own for domain, own in versions.items() if imported.get(domain, own) != own}


def _import_as(function: FunctionProto, imported: Mapping[str, int]) -> None:
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
    """What a node of an operator has to look like: versions that differ in types alone are one."""
    if schema is None:
        return None
    attributes = {
        name: (str(one.type), one.required, one.default_value.SerializeToString())
        for name, one in schema.attributes.items()
    }
    return attributes, [one.option for one in schema.inputs], [one.option for one in schema.outputs]
