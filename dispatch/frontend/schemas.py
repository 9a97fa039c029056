# SPDX-License-Identifier: Apache-2.0
"""Schemas of operators: onnx's, and onnxruntime's of what onnx has none for.

onnxruntime has operators of its own in com.microsoft and, for older models, in ONNX's own domain:
LayerNormalization before operator set 17, SimplifiedLayerNormalization in any. Its schemas are of the same
form as onnx's, and are loaded where a model has a node that onnx does not know.
"""

from __future__ import annotations

from functools import cache

import onnx
from onnx.defs import OpSchema


def schema_of(op_type: str, domain: str, opset: int) -> OpSchema | None:
    """The schema of an operator in version ``opset`` of its domain: onnx's, or else onnxruntime's."""
    return onnx_schema(op_type, domain, opset) or runtime_schema(op_type, domain, opset)


@cache
def onnx_schema(op_type: str, domain: str, opset: int) -> OpSchema | None:
    """The schema that the onnx package has, None where it has none."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


@cache
def onnx_operators() -> tuple[str, ...]:
    """The names of the operators in ONNX's own domain."""
    return tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))


@cache
def runtime_schema(op_type: str, domain: str, opset: int) -> OpSchema | None:
    """The schema that onnxruntime has, None where it has none or has withdrawn the operator."""
    versions = _runtime_schemas().get((domain, op_type), {})
    version = max((since for since in versions if since <= max(opset, 1)), default=0)
    found = versions.get(version)
    return None if found is None or found.deprecated else found


def runtime_has(op_type: str, domain: str) -> bool:
    """True if onnxruntime has the operator in any version of its domain."""
    return (domain, op_type) in _runtime_schemas()


@cache
def _runtime_schemas() -> dict[tuple[str, str], dict[int, OpSchema]]:
    """(domain, operator) -> first version of the domain that a schema is of -> the schema."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    found: dict[tuple[str, str], dict[int, OpSchema]] = {}
    for schema in get_all_operator_schema():
        found.setdefault((schema.domain, schema.name), {})[schema.since_version] = schema
    return found
