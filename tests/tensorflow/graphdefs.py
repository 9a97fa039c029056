# SPDX-License-Identifier: Apache-2.0
"""Writes GraphDefs without TensorFlow, node by node.

    b = GraphBuilder()
    x = b.placeholder("x", "float32", [None, 28, 28, 1])
    y = b.op("Conv2D", x, weights, name="conv", strides=[1, 1, 1, 1], padding="SAME")
    model = b.graphdef()

An operand is a tensor of the builder, its name, or an array, which becomes a constant. Attributes that hold
the type or the number of operands are filled from these; others are encoded by their Python type: a tuple or
``UNKNOWN_RANK`` is a shape, a list is a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DataType

from onedispatch.dispatch.tensorflow.signatures import Signature, signature_of

PRODUCER = 1205
UNKNOWN_RANK = object()
NUMBERS = {
    np.dtype(kind): DataType.Value(f"DT_{name}")
    for name, kind in {
        "FLOAT": np.float32,
        "DOUBLE": np.float64,
        "HALF": np.float16,
        "BFLOAT16": ml_dtypes.bfloat16,
        "INT8": np.int8,
        "INT16": np.int16,
        "INT32": np.int32,
        "INT64": np.int64,
        "BOOL": np.bool_,
        "UINT8": np.uint8,
        "UINT16": np.uint16,
        "UINT32": np.uint32,
        "UINT64": np.uint64,
        "STRING": np.object_,
        "COMPLEX64": np.complex64,
        "COMPLEX128": np.complex128,
        "INT4": ml_dtypes.int4,
        "UINT4": ml_dtypes.uint4,
        "FLOAT8_E5M2": ml_dtypes.float8_e5m2,
        "FLOAT8_E4M3FN": ml_dtypes.float8_e4m3fn,
    }.items()
}
_FIELDS = {
    np.dtype(np.float32): "float_val",
    np.dtype(np.float64): "double_val",
    np.dtype(bool): "bool_val",
    np.dtype(np.int64): "int64_val",
    np.dtype(np.uint32): "uint32_val",
    np.dtype(np.uint64): "uint64_val",
}


class Tensor(str):
    """The name of a tensor, with its dtype where the builder knows it."""

    dtype: np.dtype[Any] | None = None

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any] | None) -> Tensor:
        made = cls(name)
        made.dtype = dtype
        return made


class GraphBuilder:
    """A GraphDef while it is written."""

    def __init__(self) -> None:
        self.made = GraphDef()

    def graphdef(self, producer: int = PRODUCER) -> Any:
        """The GraphDef so far, as of a TensorFlow of this version."""
        whole = GraphDef()
        whole.CopyFrom(self.made)
        whole.versions.producer = producer
        return whole

    def placeholder(self, name: str, dtype: Any, shape: Sequence[int | None] | None) -> Tensor:
        node = self._node("Placeholder", name)
        dtype = element_type(dtype)
        node.attr["dtype"].CopyFrom(encoded(dtype))
        node.attr["shape"].CopyFrom(encoded(UNKNOWN_RANK if shape is None else tuple(shape)))
        return Tensor.of(name, dtype)

    def const(self, name: str, value: Any, typed: bool = False) -> Tensor:
        """A constant; ``typed`` writes the field of its type in place of bytes."""
        array = np.asarray(value)
        array = array.astype(object) if array.dtype.kind in "US" else array
        node = self._node("Const", name)
        node.attr["dtype"].type = NUMBERS[array.dtype]
        node.attr["value"].tensor.CopyFrom(tensor_proto(array, typed))
        return Tensor.of(node.name, array.dtype)

    def op(
        self,
        op_type: str,
        *operands: Any,
        name: str = "",
        outputs: int = 0,
        control: Sequence[str] = (),
        **attributes: Any,
    ) -> Any:
        """A node; returns its tensor, or a tuple of several. A list among the operands is a list of tensors.

        ``outputs`` is for operators without signature.
        """
        name = name or self._free(op_type)
        given = [self._operands(one, f"{name}/in{i}") for i, one in enumerate(operands)]
        node = self._node(op_type, name)
        node.input.extend([*(tensor for many in given for tensor in many), *(f"^{one}" for one in control)])
        signature = signature_of(op_type)
        if signature is not None:
            attributes = {**_of_operands(signature, given), **_with_dtypes(signature, attributes)}
        for key, value in attributes.items():
            node.attr[key].CopyFrom(encoded(value))
        types = [None] * (outputs or 1) if signature is None else signature.types(attributes)
        made = tuple(Tensor.of(f"{name}:{i}" if i else name, dtype) for i, dtype in enumerate(types))
        return made[0] if len(made) == 1 else made

    def _operands(self, given: Any, name: str) -> list[Tensor]:
        if isinstance(given, list | tuple) and given and all(isinstance(one, str) for one in given):
            return [tensor for one in given for tensor in self._operands(one, name)]
        if isinstance(given, str):
            return [given if isinstance(given, Tensor) else Tensor.of(given, None)]
        array = np.asarray(given)
        if not isinstance(given, np.ndarray | np.generic):  # Python's numbers are TensorFlow's narrow ones
            array = array.astype({"i": np.int32, "f": np.float32}.get(array.dtype.kind, array.dtype))
        return [self.const(self._free(name), array)]

    def _free(self, name: str) -> str:
        used = {node.name for node in self.made.node}
        return next(one for i in range(len(used) + 1) if (one := f"{name}_{i}" if i else name) not in used)

    def _node(self, op_type: str, name: str) -> Any:
        return self.made.node.add(name=name, op=op_type)


def _of_operands(signature: Signature, given: Sequence[Sequence[Tensor]]) -> dict[str, Any]:
    """The attributes that say types and numbers of operands."""
    found: dict[str, Any] = {}
    for port, tensors in zip(signature.input_ports, given, strict=False):
        dtypes = [tensor.dtype for tensor in tensors]
        if port.count:
            found[port.count] = len(tensors)
        if port.type in signature.attributes and None not in dtypes and dtypes:
            found[port.type] = dtypes if port.listed else dtypes[0]
    return found


def _with_dtypes(signature: Signature, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes with dtypes in place of their names."""
    ports = (*signature.input_ports, *signature.output_ports)
    types = {port.type for port in ports if not port.listed}
    return {key: element_type(value) if key in types else value for key, value in attributes.items()}


def element_type(given: Any) -> np.dtype[Any]:
    """The dtype of a name of TensorFlow's, or of what NumPy takes for one."""
    return np.dtype(object) if given == "string" else np.dtype(given)


def encoded(value: Any) -> Any:
    """A Python value as AttrValue."""
    made = AttrValue()
    if isinstance(value, list):
        made.list.SetInParent()
        for one in value:
            kind, plain = _plain(one)
            field = getattr(made.list, kind)
            if kind in ("shape", "tensor"):
                field.add().CopyFrom(plain)
            else:
                field.append(plain)
        return made
    kind, plain = _plain(value)
    if kind in ("shape", "tensor"):
        getattr(made, kind).CopyFrom(plain)
    else:
        setattr(made, kind, plain)
    return made


def _plain(value: Any) -> tuple[str, Any]:
    """The field of AttrValue that holds a value, and what it holds."""
    if isinstance(value, np.dtype | type):
        return "type", NUMBERS[np.dtype(value)]
    if value is UNKNOWN_RANK or isinstance(value, tuple):
        return "shape", shape_proto(None if value is UNKNOWN_RANK else value)
    if isinstance(value, bool | np.bool_):
        return "b", bool(value)
    if isinstance(value, int | np.integer):
        return "i", int(value)
    if isinstance(value, float | np.floating):
        return "f", float(value)
    if isinstance(value, np.ndarray):
        return "tensor", tensor_proto(value)
    return "s", value.encode() if isinstance(value, str) else value


def shape_proto(shape: Sequence[int | None] | None) -> Any:
    made = TensorShapeProto(unknown_rank=shape is None)
    for size in shape or ():
        made.dim.add(size=-1 if size is None else size)
    return made


def tensor_proto(array: np.ndarray[Any, Any], typed: bool = False) -> Any:
    """An array as TensorProto: its bytes, or with ``typed`` (and for strings) the field of its type."""
    made = TensorProto(dtype=NUMBERS[array.dtype], tensor_shape=shape_proto(array.shape))
    if array.dtype == np.dtype(object):
        flat = array.ravel().tolist()
        made.string_val.extend(one.encode() if isinstance(one, str) else one for one in flat)
    elif not typed:
        made.tensor_content = array.astype(array.dtype.newbyteorder("<")).tobytes()
    elif array.dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        made.half_val.extend(array.view(np.uint16).ravel().tolist())
    elif array.dtype.kind == "c":
        name, part = ("scomplex_val", np.float32) if array.dtype == np.complex64 else ("dcomplex_val", float)
        getattr(made, name).extend(np.ascontiguousarray(array).ravel().view(part).tolist())
    elif array.dtype.itemsize == 1 and "float8" in array.dtype.name:
        made.float8_val = array.tobytes()
    else:
        wide = array.astype(np.int64) if array.dtype.kind == "V" else array
        getattr(made, _FIELDS.get(array.dtype, "int_val")).extend(wide.ravel().tolist())
    return made
