# SPDX-License-Identifier: Apache-2.0
"""Reads weights from files beside the model. Models are untrusted, and so is every path in them."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.walk import bodies, tensors
from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.files import reading
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted


def embed(model: ModelProto, folder: Path | None) -> None:
    """Reads external data of subgraphs, functions and attributes into ``model``.

    Only ``external_array`` may follow a reference: onnx and onnxruntime would look in the working directory.
    Initializers of the main graph are not embedded: the importer reads them one by one.

    Raises:
        ModelError: see ``external_array``; more than ``limits.EMBEDDED_BYTES``.
    """
    total = 0
    for body, depth in bodies(model):
        main = depth == 0 and isinstance(body, GraphProto)
        for tensor in tensors(body, initializers=not main):
            if tensor.data_location != TensorProto.EXTERNAL:
                continue
            array = external_array(tensor, folder)
            total += array.nbytes
            limits.EMBEDDED_BYTES.check("the model", total)
            del tensor.external_data[:]
            tensor.ClearField("data_location")
            tensor.raw_data = array.tobytes()


def external_files(model: ModelProto, folder: Path) -> list[Path]:
    """Returns the files of a model's external data, each once. Raises ``ModelError`` for unsafe paths."""
    found: dict[Path, None] = {}
    for body, _ in bodies(model):
        for tensor in tensors(body):
            if tensor.data_location == TensorProto.EXTERNAL:
                location = {entry.key: entry.value for entry in tensor.external_data}.get("location", "")
                found[_safe_path(f"external data of tensor {tensor.name!r}", folder, location)] = None
    return list(found)


def refuse_external(model: ModelProto) -> None:
    """Raises ``ModelError`` if a tensor in ``model`` still refers to a file."""
    for body, _ in bodies(model):
        for tensor in tensors(body):
            if tensor.data_location == TensorProto.EXTERNAL:
                raise ModelError(
                    f"external data of tensor {tensor.name!r}", "a reference to a file", "data in the model"
                )


def external_array(tensor: TensorProto, folder: Path | None) -> np.ndarray[Any, Any]:
    """Returns the values of an external tensor.

    Raises ``ModelError`` if the model has no folder, if the location is outside the model's folder
    (absolute, ``..``, symbolic link), or if the file is too short.
    """
    where = f"external data of tensor {tensor.name!r}"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelError(
            where, f"location {bounded_repr(location)} but no folder to look in", "a model given by its path"
        )
    path = _safe_path(where, folder, location)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    if dtype.itemsize * 8 != _bits(tensor.data_type):
        raise ModelError(where, f"packed {dtype} elements", "elements of whole bytes")
    count = prod(tensor.dims)
    needed = count * dtype.itemsize
    offset, length = (
        _number(where, entries, key, default) for key, default in (("offset", 0), ("length", needed))
    )
    available = path.stat().st_size
    if length != needed or offset + length > available:
        raise ModelError(
            where,
            f"{counted(length, 'byte')} at {offset} of {path.name}, which has {available}",
            f"{counted(needed, 'byte')} for {dtype}{list(tensor.dims)}",
        )
    try:
        with reading(path, ModelError) as file:
            array = np.fromfile(file, dtype, count, offset=offset)
    except OSError as error:
        reraise_from_handler(error)
        raise ModelError(where, str(error), "a file that can be read") from error
    return array.reshape(tuple(tensor.dims))


def _bits(data_type: int) -> int:
    packed: dict[int, int] = {TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.FLOAT4E2M1: 4}
    if data_type in packed:
        return packed[data_type]
    return np.dtype(helper.tensor_dtype_to_np_dtype(data_type)).itemsize * 8


def _number(where: str, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(where, f"{key} {bounded_repr(text)}", "a number of bytes")
    return int(text)


def _safe_path(where: str, folder: Path, location: str) -> Path:
    accepted = "a relative path to a plain file inside the model's folder"
    relative = Path(location)
    if not location or "\0" in location or relative.is_absolute() or ".." in relative.parts:
        raise ModelError(where, f"location {bounded_repr(location)}", accepted)
    try:
        return _plain_file(where, folder, relative, accepted)
    except OSError as error:  # for instance a name that is too long
        reraise_from_handler(error)
        given = f"location {bounded_repr(location)}: {error.strerror}"
        raise ModelError(where, given, accepted) from error


def _plain_file(where: str, folder: Path, relative: Path, accepted: str) -> Path:
    location = str(relative)
    path, walk = folder / relative, folder
    for part in relative.parts:
        walk = walk / part
        if walk.is_symlink():
            raise ModelError(where, f"location {bounded_repr(location)}, a symbolic link", accepted)
    if not path.is_file():
        raise ModelError(where, f"location {bounded_repr(location)}, no such file", accepted)
    if path.stat().st_nlink > 1:
        raise ModelError(where, f"location {bounded_repr(location)}, a hard link to another file", accepted)
    return path
