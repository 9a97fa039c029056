# SPDX-License-Identifier: Apache-2.0
"""Schemas of operators: onnx's, and onnxruntime's for operators that onnx lacks.

onnxruntime has operators of its own in com.microsoft and, for older models, in ONNX's own domain:
LayerNormalization before operator set 17, SimplifiedLayerNormalization in any. Its schemas have the form of
onnx's, and are loaded when a model has a node that onnx does not know.
"""

from __future__ import annotations

from functools import cache

import onnx
from onnx.defs import OpSchema

NEWEST = 1 << 30  # no operator set is newer


def domain_of(name: str) -> str:
    """Returns the name of a domain, "" for both names of ONNX's own."""
    return "" if name == "ai.onnx" else name


def schema_of(op_type: str, domain: str, opset: int) -> OpSchema | None:
    """Returns the schema of an operator in version ``opset`` of its domain: onnx's, or else onnxruntime's."""
    return onnx_schema(op_type, domain, opset) or runtime_schema(op_type, domain, opset)


@cache
def onnx_schema(op_type: str, domain: str, opset: int) -> OpSchema | None:
    """Returns the schema of the onnx package, None if it has none."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


@cache
def onnx_attributes(op_type: str) -> frozenset[str]:
    """Returns the attributes that an operator of ONNX has in any of its versions."""
    found, opset = set[str](), NEWEST
    while opset > 0 and (schema := onnx_schema(op_type, "", opset)) is not None:
        found.update(schema.attributes)
        opset = schema.since_version - 1
    return frozenset(found)


@cache
def onnx_operators() -> tuple[str, ...]:
    """Returns the names of the operators in ONNX's own domain."""
    return tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))


@cache
def runtime_schema(op_type: str, domain: str, opset: int) -> OpSchema | None:
    """Returns onnxruntime's schema, None if it has none or has deprecated the operator."""
    versions = _runtime_schemas().get((domain, op_type), {})
    version = max((since for since in versions if since <= max(opset, 1)), default=0)
    found = versions.get(version)
    return None if found is None or found.deprecated else found


def runtime_has(op_type: str, domain: str) -> bool:
    """True if onnxruntime has the operator in any version of its domain."""
    return (domain, op_type) in _runtime_schemas()


def runtime_operators(domain: str) -> list[str]:
    """Returns the names of onnxruntime's operators in a domain."""
    return sorted(op_type for one, op_type in _runtime_schemas() if one == domain)


@cache
def _runtime_schemas() -> dict[tuple[str, str], dict[int, OpSchema]]:
    """Returns onnxruntime's schemas by (domain, operator), then by their first version."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    found: dict[tuple[str, str], dict[int, OpSchema]] = {}
    for schema in get_all_operator_schema():
        found.setdefault((schema.domain, schema.name), {})[schema.since_version] = schema
    return found
