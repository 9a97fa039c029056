# SPDX-License-Identifier: Apache-2.0
"""What rules map to: operators of ONNX and onnxruntime by their schemas, others by their custom kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto
from onnx.defs import OpSchema

from onedispatch.dispatch.frontend.schemas import (
    NEWEST,
    domain_of,
    onnx_attributes,
    onnx_operators,
    onnx_schema,
    runtime_schema,
)
from onedispatch.operators.declarations import registry
from onedispatch.operators.declarations.registry import MICROSOFT
from onedispatch.transactions.base.text import did_you_mean

OPSET = 21
"""ONNX's operator set that rules for other frameworks write."""


# Operators that onnxruntime has in ONNX's domain, the first in operator sets before ONNX's own.
_OF_RUNTIME = {("", "LayerNormalization"), ("", "SimplifiedLayerNormalization")}


@dataclass(frozen=True)
class Target:
    """An operator by domain and type."""

    domain: str
    op_type: str

    @classmethod
    def parsed(cls, text: str) -> Target:
        """``TopK`` of ONNX, or ``acme::Bucketize``. Raises ``ValueError`` for other text."""
        domain, colons, op_type = text.rpartition("::")
        if not op_type.isidentifier() or (colons and not domain):
            raise ValueError(text)
        return cls(domain_of(domain), op_type)

    def __str__(self) -> str:
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    def schema(self, opset: int = OPSET) -> OpSchema | None:
        """ONNX's schema in this version, or else onnxruntime's; None of operators of plug-ins."""
        found = onnx_schema(self.op_type, self.domain, opset)
        if found is None and (self.domain == MICROSOFT or (self.domain, self.op_type) in _OF_RUNTIME):
            return runtime_schema(self.op_type, self.domain, opset)  # which take long to load
        return found

    @property
    def exists(self) -> bool:
        """Whether ONNX has the operator in any version, or it is of another domain."""
        return bool(self.domain) or self.schema(NEWEST) is not None

    @property
    def attributes_ever(self) -> list[str] | None:
        """The names of its attributes in any version; None if nothing says which it has."""
        return self.attributes() if self.domain else sorted(onnx_attributes(self.op_type))

    def attributes(self, opset: int = OPSET) -> list[str] | None:
        """The names of its attributes; None if nothing says which it has."""
        schema = self.schema(opset)
        if schema is not None:
            return sorted(schema.attributes)
        mapping = registry.mapping_for(self.domain, self.op_type)
        if mapping is None or mapping.custom is None:
            return None
        kernel = mapping.custom.plugin.kernel
        return sorted(one.name for one in kernel.scalars)

    def nearest(self) -> str:
        """The operators of ONNX that are spelled almost alike, as a remedy."""
        return did_you_mean(self.op_type, onnx_operators())


# Integer operands that are lists of one dimension, where frameworks give a single number too.
_LISTS = {
    ("TopK", 1), ("Unsqueeze", 1), ("Squeeze", 1), ("Expand", 1), ("Tile", 1), ("Reshape", 1), ("Pad", 1),
    ("Pad", 3), ("Slice", 1), ("Slice", 2), ("Slice", 3), ("Slice", 4), ("Split", 1), ("ConstantOfShape", 0),
    *((f"Reduce{kind}", 1) for kind in "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split()),
}  # fmt: skip


def is_list(op_type: str, index: int) -> bool:
    """Whether an input of one of ONNX's operators always has one dimension."""
    return (op_type, index) in _LISTS


@cache
def fixed_type(schema_key: tuple[str, str, int], index: int) -> np.dtype[Any] | None:
    """Returns the only type that an input may have, None where there are several."""
    op_type, domain, opset = schema_key
    schema = Target(domain, op_type).schema(opset)
    if schema is None or not schema.inputs:
        return None
    formal = schema.inputs[min(index, len(schema.inputs) - 1)]
    types = [text for text in formal.types if text.startswith("tensor(")]
    if len(types) != 1:
        return None
    number = getattr(TensorProto, types[0][7:-1].upper(), None)
    return (
        None
        if number is None or types[0] == "tensor(string)"
        else onnx.helper.tensor_dtype_to_np_dtype(number)
    )


def as_attribute(schema: OpSchema | None, name: str, value: Any) -> Any:
    """Returns ``value`` as ONNX's attribute of this name takes it.

    Raises ``TypeError`` for another kind of value: the text says which is taken.
    """
    value = _plain(value)
    if schema is None or name not in schema.attributes:
        return value
    kinds = OpSchema.AttrType
    kind = getattr(kinds, _name_of(schema.attributes[name].type))  # onnxruntime's schemas have their own enum
    match kind:
        case kinds.INT if isinstance(value, int):
            return int(value)
        case kinds.INT if isinstance(value, np.dtype):
            return int(onnx.helper.np_dtype_to_tensor_dtype(value))
        case kinds.FLOAT if isinstance(value, int | float):
            return float(value)
        case kinds.STRING if isinstance(value, str | bytes):
            return value
        case kinds.INTS if isinstance(value, int):
            return [int(value)]
        case kinds.INTS if _all(value, int):
            return [int(one) for one in value]
        case kinds.FLOATS if _all(value, int | float):
            return [float(one) for one in value]
        case kinds.STRINGS if _all(value, str | bytes):
            return list(value)
        case kinds.TENSOR if isinstance(value, np.ndarray):
            return onnx.numpy_helper.from_array(value)
        case kinds.TENSOR if isinstance(value, TensorProto):
            return value
        case kinds.GRAPH if isinstance(value, onnx.GraphProto):
            return value
    raise TypeError(f"{value!r}, which is no {_name_of(kind)}")


def _all(value: Any, kind: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, kind) for one in value)


def _plain(value: Any) -> Any:
    """NumPy's scalars and small arrays of numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def written(schema: OpSchema | None, name: str, value: Any) -> AttributeProto:
    """Returns the attribute of a node. Raises ``TypeError`` or ``ValueError`` for what ONNX cannot hold."""
    if isinstance(value, np.dtype):
        value = int(onnx.helper.np_dtype_to_tensor_dtype(value))
    if isinstance(value, np.ndarray):
        value = onnx.numpy_helper.from_array(value)
    if isinstance(value, bool):
        value = int(value)
    known = None if schema is None else schema.attributes.get(name)
    if known is not None and isinstance(value, list) and not value:  # whose kind nothing else says
        return onnx.helper.make_attribute(name, value, attr_type=_number_of(known.type))
    return onnx.helper.make_attribute(name, value)


def _number_of(kind: OpSchema.AttrType) -> int:
    """ONNX's number of a kind of attribute, by its name: INTS."""
    return int(AttributeProto.AttributeType.Value(_name_of(kind)))


def _name_of(kind: OpSchema.AttrType) -> str:
    return str(kind).rpartition(".")[2]
