# SPDX-License-Identifier: Apache-2.0
"""Decodes what nodes of a GraphDef hold: element types, shapes, attributes and tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.graph import Array, type_name_of
from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.text import counted

Type = np.dtype[Any]
Shape = tuple[int | None, ...] | None

# By their numbers in types.proto; None for the unknown type, resources and variants, which hold no numbers.
# Quantised types have the integers that they are stored in.
_KINDS: Sequence[Any] = (
    *(None, np.float32, np.float64, np.int32, np.uint8, np.int16, np.int8, np.object_, np.complex64),
    *(np.int64, np.bool_, np.int8, np.uint8, np.int32, ml_dtypes.bfloat16, np.int16, np.uint16, np.uint16),
    *(np.complex128, np.float16, None, None, np.uint32, np.uint64, ml_dtypes.float8_e5m2),
    *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e4m3b11fnuz),
    *(ml_dtypes.float8_e5m2fnuz, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2),
    ml_dtypes.float4_e2m1fn,
)
_REF = 100  # added to the number of a reference to a variable
_FIELDS: Mapping[Type, str] = {
    np.dtype(kind): name
    for name, kinds in {
        "float_val": (np.float32,),
        "double_val": (np.float64,),
        "int64_val": (np.int64,),
        "uint32_val": (np.uint32,),
        "uint64_val": (np.uint64,),
        "bool_val": (np.bool_,),
        "half_val": (np.float16, ml_dtypes.bfloat16),
        "scomplex_val": (np.complex64,),
        "dcomplex_val": (np.complex128,),
    }.items()
    for kind in kinds
}  # int_val for other integers, float8_val for other floats
_WINDOWS = frozenset("strides ksize dilations rates explicit_paddings block_size depth_radius".split())
_SMALL = 1 << 16  # bytes
_LISTS = ("s", "i", "f", "b", "type", "shape", "tensor", "func")


def dtype_of(number: int, where: str) -> Type | None:
    """Returns the dtype of a number of TensorFlow's DataType, None for types that hold no numbers.

    A reference has the dtype of what it refers to, a string is an object. Raises ``ModelError`` for unknown
    numbers.
    """
    plain = number - _REF if number > _REF else number
    if not 0 <= plain < len(_KINDS):
        raise ModelError(where, f"element type {number}", "one that TensorFlow has")
    kind = _KINDS[plain]
    return None if kind is None else np.dtype(kind)


def onnx_type(dtype: Type | None) -> str:
    """Returns ``tensor(float)`` and the like, "" for unknown types and those that ONNX does not have."""
    if dtype is None or dtype == ml_dtypes.float8_e4m3b11fnuz:
        return ""
    return type_name_of(dtype)


def shape_of(proto: Any, where: str, dtype: Type | None = None) -> Shape:
    """Returns a TensorShapeProto: None for an unknown rank, or for each unknown dimension.

    Raises:
        ModelError: a negative size, or a tensor above the limits of ``limits``.
    """
    if proto.unknown_rank:
        return None
    sizes = [int(dim.size) for dim in proto.dim]
    if any(size < -1 for size in sizes):
        raise ModelError(where, f"the shape {sizes}", "sizes from 0 on, -1 for unknown ones")
    limits.check_tensor(where, dtype or np.dtype(np.uint8), [size for size in sizes if size >= 0])
    limits.RANK.check(where, len(sizes))
    return tuple(None if size < 0 else size for size in sizes)


class ValueReader:
    """Decodes the attributes of one GraphDef, and counts the bytes of its tensors against the limits."""

    def __init__(self, file_bytes: int) -> None:
        self.weights = 0  # bytes of tensors so far
        self.repeated = 0  # of these, bytes that were written out of one value
        self.limit = limits.repeated_bytes(file_bytes)

    def attributes(self, protos: Any, where: str) -> dict[str, Any]:
        """Returns the attributes of a node by name."""
        found = {}
        for name in sorted(protos):
            limits.NAME_LENGTH.check(f"the name {name[:40]!r}...", len(name))
            found[name] = self._attribute(protos[name], f"{where}, attribute {name!r}")
            if name in _WINDOWS:
                _check_window(found[name], f"{where}, {name}")
        return found

    def _attribute(self, proto: Any, where: str) -> Any:
        kind = proto.WhichOneof("value")
        if kind != "list":
            return None if kind is None else self._value(kind, getattr(proto, kind), where)
        for name in _LISTS:
            entries = getattr(proto.list, name)
            if entries:
                return [self._value(name, one, where) for one in entries]
        return []

    def _value(self, kind: str, value: Any, where: str) -> Any:
        match kind:
            case "s":
                return value.decode("utf-8", "replace")
            case "type":
                return dtype_of(value, where)
            case "shape":
                return shape_of(value, where)
            case "tensor":
                return self.tensor(value, where)
            case "func":
                return value.name
        return value

    def tensor(self, proto: Any, where: str) -> Array:
        """Returns the values of a TensorProto, read-only.

        Raises:
            ModelError: no element type, values that do not fit the shape, a size above the limits.
        """
        dtype = dtype_of(proto.dtype, where)
        if dtype is None or not onnx_type(dtype):
            raise ModelError(where, f"element type {proto.dtype}", "one of numbers, truth values or strings")
        shape = shape_of(proto.tensor_shape, where, dtype)
        if shape is None or None in shape:
            raise ModelError(where, "a tensor of unknown shape", "a tensor whose sizes are all known")
        sizes = [size for size in shape if size is not None]
        self.weights += limits.check_tensor(where, dtype, sizes)
        limits.WEIGHT_BYTES.check("the model", self.weights)
        array = self._content(proto, dtype, sizes, where)
        if array is None:
            array = self._listed(proto, dtype, sizes, where)
        array.flags.writeable = False
        return array

    def _content(self, proto: Any, dtype: Type, sizes: Sequence[int], where: str) -> Array | None:
        """Returns the values of ``tensor_content``, None where the tensor has none."""
        data = proto.tensor_content
        if not data:
            return None
        wanted = prod(sizes) * dtype.itemsize
        if dtype.kind == "O" or len(data) != wanted:
            accepted = "strings in string_val" if dtype.kind == "O" else counted(wanted, "byte")
            raise ModelError(where, f"{counted(len(data), 'byte')} of {_shown(dtype, sizes)}", accepted)
        if dtype.kind == "b":  # NumPy takes no other bytes than 0 and 1 for truth values
            return np.not_equal(np.frombuffer(data, np.uint8), 0).reshape(sizes)
        return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(sizes)

    def _listed(self, proto: Any, dtype: Type, sizes: Sequence[int], where: str) -> Array:
        """Returns the values of the field of the tensor's type; its last value stands for all that follow."""
        values, wanted = _field(proto, dtype), prod(sizes)
        if len(values) > wanted:
            given = f"{counted(len(values), 'value')} of {_shown(dtype, sizes)}"
            raise ModelError(where, given, f"at most {counted(wanted, 'value')}")
        if len(values) == wanted:
            return values.reshape(sizes)
        size = wanted * dtype.itemsize
        if len(values) < 2 and size > _SMALL:  # a view: it takes no memory for any shape
            return np.broadcast_to(values[0] if len(values) else _zero(dtype), sizes)
        self.repeated += size
        self.limit.check(where, self.repeated)
        filled = np.empty(wanted, dtype)
        filled[: len(values)] = values
        filled[len(values) :] = values[-1] if len(values) else _zero(dtype)
        return filled.reshape(sizes)


def _zero(dtype: Type) -> Any:
    return "" if dtype.kind == "O" else np.zeros((), dtype)[()]


def _field(proto: Any, dtype: Type) -> Array:
    """Returns the values of the field that holds a tensor's type, one after the other."""
    if dtype.kind == "O":
        texts = np.empty(len(proto.string_val), object)
        texts[:] = [one.decode("utf-8", "replace") for one in proto.string_val]
        return texts
    integers = dtype.kind in "iu" or dtype in (
        ml_dtypes.int4,
        ml_dtypes.uint4,
        ml_dtypes.int2,
        ml_dtypes.uint2,
    )
    name = _FIELDS.get(dtype, "int_val" if integers else "float8_val")
    values = getattr(proto, name)
    match name:
        case "float8_val":
            return np.frombuffer(values, np.uint8).view(dtype)
        case "half_val":
            return np.fromiter(values, np.int64, len(values)).astype(np.uint16).view(dtype)
        case "int_val":
            return np.fromiter(values, np.int64, len(values)).astype(np.int32).astype(dtype)
        case "scomplex_val" | "dcomplex_val":
            part = np.dtype(np.float32 if dtype == np.complex64 else np.float64)
            return np.fromiter(values, part, len(values))[: len(values) // 2 * 2].view(dtype)
    return np.fromiter(values, dtype, len(values))


def _shown(dtype: Type, sizes: Sequence[int]) -> str:
    return f"{'string' if dtype.kind == 'O' else dtype}{list(sizes)}"


def _check_window(value: Any, where: str) -> None:
    numbers = value if isinstance(value, list) else [value]
    limits.WINDOW.check(where, max((abs(n) for n in numbers if isinstance(n, int)), default=0))
