# SPDX-License-Identifier: Apache-2.0
"""GraphDefs of the tests, by tensorboard's protobuf classes; tests that need them skip where it is absent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

TYPES = {"float32": 1, "int32": 3, "int64": 9, "bool": 10}


def graphdef(*nodes: Any, producer: int = 1882) -> Any:
    """A GraphDef of these nodes."""
    messages = pytest.importorskip("tensorboard.compat.proto.graph_pb2")
    made = messages.GraphDef(node=nodes)
    made.versions.producer = producer
    return made


def node(name: str, op: str, *inputs: str, **attributes: Any) -> Any:
    """A node; a NumPy type is a type attribute, a tuple a shape, an array a tensor."""
    messages = pytest.importorskip("tensorboard.compat.proto.node_def_pb2")
    made = messages.NodeDef(name=name, op=op, input=inputs)
    for key, value in attributes.items():
        _set(made.attr[key], value)
    return made


def const(name: str, array: Any) -> Any:
    """A constant."""
    found = np.asarray(array)
    return node(name, "Const", dtype=found.dtype.type, value=found)


def _set(attr: Any, value: Any) -> None:
    if isinstance(value, type) and issubclass(value, np.generic):
        attr.type = TYPES[np.dtype(value).name]
    elif isinstance(value, np.ndarray):
        attr.tensor.dtype = TYPES[value.dtype.name]
        attr.tensor.tensor_content = value.tobytes()
        for size in value.shape:
            attr.tensor.tensor_shape.dim.add().size = size
    elif isinstance(value, tuple):
        for size in value:
            attr.shape.dim.add().size = size
    elif isinstance(value, bool):
        attr.b = value
    elif isinstance(value, list):
        attr.list.i.extend(value)
    elif isinstance(value, str):
        attr.s = value.encode()
    elif isinstance(value, int):
        attr.i = value
    else:
        attr.f = value
