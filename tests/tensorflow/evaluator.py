# SPDX-License-Identifier: Apache-2.0
"""Computes GraphDefs in NumPy, by the definitions of TensorFlow's operators.

What our rules make of a GraphDef is compared with this, so it shares nothing with them: neither the reader
and the signatures of this project, nor onnx, nor onnxruntime. It is written to be read, not to be fast. Sums
of products are made in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.tensorflow.kernels import images, mathematics, movement, windows

Array = np.ndarray[Any, Any]
Attributes = dict[str, Any]
Function = Callable[..., Any]

DTYPES = {
    number: np.dtype(kind)
    for kind, number in (
        (np.float32, 1),
        (np.float64, 2),
        (np.int32, 3),
        (np.uint8, 4),
        (np.int16, 5),
        (np.int8, 6),
        (np.object_, 7),
        (np.complex64, 8),
        (np.int64, 9),
        (np.bool_, 10),
        (ml_dtypes.bfloat16, 14),
        (np.uint16, 17),
        (np.complex128, 18),
        (np.float16, 19),
        (np.uint32, 22),
        (np.uint64, 23),
    )
}
FUNCTIONS: Mapping[str, Function] = {
    **mathematics.FUNCTIONS,
    **movement.FUNCTIONS,
    **windows.FUNCTIONS,
    **images.FUNCTIONS,
}


def evaluate(graphdef: Any, feed: Mapping[str, Any], outputs: Sequence[str]) -> list[Array]:
    """The tensors named by ``outputs``; ``feed`` has an array for each placeholder that they need."""
    wanted = [_split(name) for name in outputs]
    found = _computed(graphdef, feed, [node for node, _ in wanted])
    return [found[node][index] for node, index in wanted]


def evaluate_all(graphdef: Any, feed: Mapping[str, Any]) -> dict[str, Array]:
    """Every tensor of the graph by its name."""
    found = _computed(graphdef, feed, [node.name for node in graphdef.node])
    return {
        f"{name}:{index}" if index else name: tensor
        for name, tensors in found.items()
        for index, tensor in enumerate(tensors)
    }


def _split(name: str) -> tuple[str, int]:
    node, _, index = name.partition(":")
    return node, int(index or 0)


def _computed(graphdef: Any, feed: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, list[Array]]:
    """The outputs of the nodes named by ``wanted``, and of all that they need."""
    nodes = {node.name: node for node in graphdef.node}
    found: dict[str, list[Array]] = {_split(name)[0]: [np.asarray(value)] for name, value in feed.items()}
    stack = list(reversed(wanted))
    while stack:
        node = nodes[stack[-1]]
        sources = [_split(name) for name in node.input if not name.startswith("^")]
        missing = [name for name, _ in sources if name not in found]
        if node.name in found or not missing:
            stack.pop()
            if node.name not in found:
                found[node.name] = _outputs(node, [found[name][index] for name, index in sources])
        elif len(stack) > 2 * len(nodes) + len(wanted):
            raise ValueError(f"{node.name} needs itself")
        else:
            stack.extend(missing[:1])
    return found


def _outputs(node: Any, inputs: Sequence[Array]) -> list[Array]:
    attributes = {name: decoded(value) for name, value in node.attr.items()}
    if node.op == "Const":
        return [attributes["value"]]
    if node.op == "Placeholder":
        raise KeyError(f"the feed has nothing for the placeholder {node.name}")
    if node.op not in FUNCTIONS:
        raise NotImplementedError(f"{node.op} of node {node.name}")
    with np.errstate(all="ignore"):
        made = FUNCTIONS[node.op](attributes, *inputs)
    return [np.asarray(one) for one in (made if isinstance(made, list | tuple) else [made])]


def decoded(value: Any) -> Any:
    """An AttrValue as a Python value."""
    kind = value.WhichOneof("value")
    if kind == "list":
        fields = [
            name for name in ("s", "i", "f", "b", "type", "shape", "tensor") if getattr(value.list, name)
        ]
        return [_plain(fields[0], one) for one in getattr(value.list, fields[0])] if fields else []
    return _plain(kind, getattr(value, kind)) if kind else None


def _plain(kind: str, value: Any) -> Any:
    if kind == "s":
        return value.decode()
    if kind == "type":
        return DTYPES.get(value)
    if kind == "tensor":
        return tensor(value)
    return [dim.size for dim in value.dim] if kind == "shape" else value


def tensor(proto: Any) -> Array:
    """A TensorProto as an array."""
    dtype = DTYPES[proto.dtype]
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_content:
        return np.frombuffer(proto.tensor_content, dtype).reshape(shape)
    if dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        values = np.array(list(proto.half_val), np.uint16).view(dtype)
    elif dtype.kind == "c":
        pairs = np.array([*proto.scomplex_val, *proto.dcomplex_val]).reshape(-1, 2)
        values = (pairs[:, 0] + 1j * pairs[:, 1]).astype(dtype)
    else:
        names = "float double int string int64 bool uint32 uint64".split()
        filled = [list(getattr(proto, f"{name}_val")) for name in names]
        flat = max(filled, key=len)
        values = np.array([v.decode() if isinstance(v, bytes) else v for v in flat], dtype)
    size = int(np.prod(shape, dtype=np.int64))
    last = values[-1:] if len(values) else np.zeros(1, dtype)
    return np.concatenate([values, np.repeat(last, size - len(values))]).astype(dtype).reshape(shape)
