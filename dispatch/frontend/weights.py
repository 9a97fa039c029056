# SPDX-License-Identifier: Apache-2.0
"""Parses an ONNX model, but leaves the values of large initializers where they are, in its bytes.

Protobuf would copy them, and Python once more. All that is not as plain as ONNX's own writers make it is left
to protobuf: it decides what a valid message is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from onnx import ModelProto
from onnx.helper import tensor_dtype_to_np_dtype

from onedispatch.transactions.base.handlers import reraise_from_handler

Values = dict[int, memoryview]
"""Raw data that is not in the message, by the number of its initializer."""

_LARGE = 4096  # bytes that are worth it
_LENGTH, _VARINT = 2, 0  # wire types
_SIZES = {1: 8, 5: 4}
_GRAPH, _FUNCTIONS = 7 << 3 | _LENGTH, 25 << 3 | _LENGTH  # of a ModelProto
_INITIALIZER = 5 << 3 | _LENGTH  # of a GraphProto
_DATA_TYPE, _RAW_DATA = 2 << 3 | _VARINT, 9 << 3 | _LENGTH  # of a TensorProto
_BESIDE = (1 << 3 | _VARINT, 1 << 3 | _LENGTH, 8 << 3 | _LENGTH, 12 << 3 | _LENGTH)  # dims, name, doc_string


class _Field(NamedTuple):
    """A field of a message: it begins at byte ``start``, its content at ``at``."""

    tag: int
    start: int
    at: int
    end: int


def parse_model(data: memoryview) -> tuple[ModelProto, Values]:
    """Returns the model, and what its initializers lack. Raises protobuf's error for what is no model."""
    try:
        return _apart(data)
    except (ValueError, DecodeError) as error:  # protobuf says whether that is a model
        reraise_from_handler(error)
        return ModelProto.FromString(bytes(data)), {}


def _apart(data: memoryview) -> tuple[ModelProto, Values]:
    fields = list(_fields(data, 0, len(data)))
    (whole,) = (field for field in fields if field.tag == _GRAPH)
    if any(field.tag == _FUNCTIONS for field in fields):
        raise ValueError("inlining makes other initializers")
    model, values, at, number = ModelProto(), Values(), whole.at, 0
    for part in (data[: whole.start], data[whole.end :]):
        model.MergeFromString(bytes(part))
    graph = model.graph
    graph.SetInParent()
    for field in _fields(data, whole.at, whole.end):
        if field.tag != _INITIALIZER:
            continue
        raw = _large_values(data, field)
        if raw is not None:
            graph.MergeFromString(bytes(data[at : field.start]))
            tensor, at = graph.initializer.add(), field.end
            tensor.MergeFromString(bytes(data[field.at : raw.start]) + bytes(data[raw.end : field.end]))
            values[number] = data[raw.at : raw.end]
        number += 1
    graph.MergeFromString(bytes(data[at : whole.end]))
    return model, values


def _large_values(data: memoryview, tensor: _Field) -> _Field | None:
    """The raw data of a tensor of NumPy's own types, where it is large."""
    if tensor.end - tensor.at < _LARGE:
        return None
    fields = list(_fields(data, tensor.at, tensor.end))
    raw = [field for field in fields if field.tag == _RAW_DATA]
    types = [_varint(data, field.at, field.end)[0] for field in fields if field.tag == _DATA_TYPE]
    others = [field for field in fields if field.tag not in (_RAW_DATA, _DATA_TYPE, *_BESIDE)]
    if len(raw) != 1 or len(types) != 1 or others or raw[0].end - raw[0].at < _LARGE:
        return None
    return raw[0] if _is_plain(types[0]) else None


def _is_plain(data_type: int) -> bool:
    try:
        dtype: np.dtype[np.generic] = tensor_dtype_to_np_dtype(data_type)
    except KeyError:
        return False
    return dtype.isbuiltin == 1 and dtype.kind in "biuf"


def _fields(data: memoryview, at: int, end: int) -> Iterator[_Field]:
    """The fields of the message in these bytes. Raises ``ValueError`` for what is none."""
    while at < end:
        start = at
        tag, at = _varint(data, at, end)
        if tag & 7 == _LENGTH:
            length, at = _varint(data, at, end)
            stop = at + length
        elif tag & 7 == _VARINT:
            _, stop = _varint(data, at, end)
        else:
            stop = at + _SIZES.get(tag & 7, end)
        if stop > end:
            raise ValueError("a field that ends behind its message")
        yield _Field(tag, start, at, stop)
        at = stop


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number of seven bits in every byte, and where it ends."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number that does not end")
