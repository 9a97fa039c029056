# SPDX-License-Identifier: Apache-2.0
"""GraphDef messages: from files, bytes, texts and messages of other packages.

Protobuf's classes, which no other file imports, come from tensorboard, which has them without TensorFlow.
They are imported when a GraphDef is read: compiling ONNX models, and running compiled ones, needs no
tensorboard.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from onedispatch.dispatch.frontend.protobuf import parsed
from onedispatch.transactions.base.errors import InputError, ModelError
from onedispatch.transactions.base.files import read_file
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.text import counted

TEXT_SUFFIX = ".pbtxt"
SAVED_MODEL = "saved_model.pb"
_ACCEPTED = "a TensorFlow GraphDef"
_FREEZE = "freeze the model: convert_variables_to_constants_v2(function).graph.as_graph_def()"


def is_message(model: object) -> bool:
    """True for a GraphDef message, of whichever package."""
    descriptor = getattr(type(model), "DESCRIPTOR", None)
    return getattr(descriptor, "name", "") == "GraphDef" and hasattr(model, "SerializeToString")


def read_message(model: Any) -> Any:
    """Returns a path, bytes, or a message (left unchanged) as the GraphDef of tensorboard's package.

    Raises:
        ModelError: no such file, or not a GraphDef.
        InputError: tensorboard is not installed.
    """
    kind = _message_class()
    if is_message(model):
        own = isinstance(model, kind)
        return _whole(model, "the given GraphDef") if own else _of_other_package(model, kind)
    if isinstance(model, bytes | bytearray | memoryview):
        return _of_bytes(bytes(model), "the given bytes", kind)
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        data = read_file(path, ModelError, "a GraphDef that can be read")
        if path.name == SAVED_MODEL:
            raise ModelError(str(path), "a SavedModel", _ACCEPTED, _FREEZE)
        return (_of_text if path.suffix == TEXT_SUFFIX else _of_bytes)(data, str(path), kind)
    raise ModelError(
        "the model", f"a {type(model).__name__}", "a path, the bytes of a GraphDef, or a GraphDef"
    )


def _message_class() -> Any:
    try:
        from tensorboard.compat.proto.graph_pb2 import GraphDef
    except ImportError as error:
        raise InputError(
            "reading a TensorFlow GraphDef",
            "a Python without tensorboard, whose protobuf classes it takes",
            "one that has tensorboard",
            "install it: pip install onedispatch[tensorflow] (or: pip install tensorboard)",
        ) from error
    return GraphDef


def _of_other_package(message: Any, kind: Any) -> Any:
    where = f"the given {type(message).__module__}.GraphDef"
    try:
        data = message.SerializeToString()
    except Exception as error:  # protobuf's EncodeError differs between its implementations
        reraise_from_handler(error)
        raise ModelError(where, f"a message that cannot be written: {error}", _ACCEPTED) from error
    return _of_bytes(data, where, kind)


def _of_bytes(data: bytes, where: str, kind: Any) -> Any:
    size = counted(len(data), "byte")
    proto = parsed(
        kind(), data, where, f"{size} that are no GraphDef", _ACCEPTED, "check that the file is complete"
    )
    return _whole(proto, f"{where} ({size})")


def _of_text(data: bytes, where: str, kind: Any) -> Any:
    from google.protobuf import text_format

    try:
        proto = text_format.Parse(data.decode("utf-8"), kind())
    except Exception as error:  # ParseError, and others that a text leads the parser to
        reraise_from_handler(error)
        given = f"a text that is no GraphDef: {str(error)[:200]}"
        raise ModelError(where, given, f"{_ACCEPTED} in protobuf's text format") from error
    return _whole(proto, where)


def _whole(proto: Any, where: str) -> Any:
    """Refuses what has no nodes: protobuf reads many files of other kinds as an empty message."""
    if not proto.node:
        raise ModelError(where, "no nodes", _ACCEPTED, f"if this is a SavedModel, {_FREEZE}")
    return proto
