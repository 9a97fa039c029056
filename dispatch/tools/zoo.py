# SPDX-License-Identifier: Apache-2.0
"""Networks of real shapes without downloads: the onnx package's light models, with random weights.

The light models have constant weights, whose uniform results prove little. ``randomised`` gives every
weight seeded random values of the scale that training would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onedispatch.dispatch.artifact.container import is_compiled
from onedispatch.dispatch.frontend.walk import bodies_of
from onedispatch.transactions.base.errors import InputError, ModelError, reason_of
from onedispatch.transactions.base.files import reading
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.text import did_you_mean

Array = np.ndarray[Any, Any]

# Roles of weights: (op_type, input position) -> role.
_ROLES = {
    ("Conv", 1): "weight",
    ("ConvTranspose", 1): "weight",
    ("Gemm", 1): "weight",
    ("MatMul", 0): "weight",
    ("MatMul", 1): "weight",
    ("Conv", 2): "small",
    ("ConvTranspose", 2): "small",
    ("Gemm", 2): "small",
    ("BatchNormalization", 1): "one",
    ("BatchNormalization", 2): "small",
    ("BatchNormalization", 3): "small",
    ("BatchNormalization", 4): "one",
    ("InstanceNormalization", 1): "one",
    ("InstanceNormalization", 2): "small",
    ("LayerNormalization", 1): "one",
    ("LayerNormalization", 2): "small",
    ("PRelu", 1): "small",
    ("Add", 0): "small",
    ("Add", 1): "small",
    ("Sum", 0): "small",
    ("Mul", 0): "one",
    ("Mul", 1): "one",
}


def light_models() -> dict[str, Path]:
    """Returns names and paths of the light models of the onnx package."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return {path.stem: path for path in sorted(folder.glob("light_*.onnx"))}


def find_model(name: str) -> ModelProto:
    """Returns a model by path, or a light model by name.

    Raises ``ModelError``, which lists the names, if there is neither.
    """
    path = light_models().get(name, Path(name))
    if is_compiled(path):
        raise InputError(f"model {name!r}", "a compiled model", "the ONNX file, which onnxruntime runs too")
    try:
        with reading(path):  # refuses devices, and pipes without a writer
            return onnx.load(path)
    except Exception as error:  # OSError, protobuf's DecodeError, onnx's ValidationError
        reraise_from_handler(error)
        raise ModelError(
            f"model {name!r}",
            reason_of(error, name),
            "a path, or one of " + ", ".join(light_models()),
            did_you_mean(name, light_models()),
        ) from error


def randomised(
    model: ModelProto,
    seed: int = 0,
    *,
    batch: int | None = None,
    image: int | None = None,
    drop_softmax: bool = True,
) -> ModelProto:
    """Returns a copy of the model with seeded random weights of realistic scale.

    Weights of convolutions and matrix products get He's scale, scales and variances are near
    1, biases and means near 0: those that bodies of If and the like read, too. ``batch`` replaces the first
    dimension of the inputs, and of a Reshape to it; ``image`` the last two of 4-D inputs.
    """
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    result.ir_version = max(result.ir_version, 4)
    if drop_softmax:
        _drop_softmax(graph)
    made = _constants_of_shape(graph)
    weights = {t.name: tuple(t.dims) for t in graph.initializer if t.data_type == TensorProto.FLOAT}
    weights.update(made)
    roles = _roles(graph, weights)
    rng = np.random.default_rng(seed)
    nodes = [node for node in graph.node if not made.keys() & set(node.output)]
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in _nodes(graph) for name in node.input}
    used |= {v.name for body, _ in bodies_of([graph]) for v in body.output}
    kept = [t for t in graph.initializer if t.name in used and t.name not in weights]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    for name, shape in weights.items():
        if name in roles or name in used:
            _add(graph, name, _draw(rng, *roles.get(name, ("small", None)), shape))
    names = {t.name for t in graph.initializer}
    inputs = [v for v in graph.input if v.name not in names and v.name in used]
    del graph.input[:]
    graph.input.extend(inputs)
    _resize(graph, batch, image)
    return result


def random_input(model: ModelProto, seed: int = 0) -> dict[str, Array]:
    """Returns seeded values for every input that has none of its own: standard-normal floats, and integers 0
    or 1, which are valid tokens, masks and token types, or such texts; symbolic dimensions become 1."""
    rng = np.random.default_rng(seed)
    graph, feed = model.graph, {}
    given = {tensor.name for tensor in graph.initializer}
    given |= {sparse.values.name for sparse in graph.sparse_initializer}
    for value in graph.input:
        if value.name in given:
            continue
        shape = [d.dim_value if d.HasField("dim_value") else 1 for d in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        whole = dtype.kind in "biuO"
        drawn = rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)
        feed[value.name] = (drawn.astype(str) if dtype.hasobject else drawn).astype(dtype)
    return feed


def _add(graph: onnx.GraphProto, name: str, array: Array) -> None:
    """Adds a float initializer in place: copying one would keep two in protobuf's arena."""
    tensor = graph.initializer.add()
    tensor.name = name
    tensor.data_type = TensorProto.FLOAT
    tensor.dims.extend(array.shape)
    tensor.raw_data = array.tobytes()


def _drop_softmax(graph: onnx.GraphProto) -> None:
    outputs = {v.name: v for v in graph.output}
    for node in list(graph.node):
        if node.op_type == "Softmax" and node.output[0] in outputs:
            outputs[node.output[0]].name = node.input[0]
            graph.node.remove(node)


def _constants_of_shape(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Returns float outputs of ConstantOfShape nodes with constant shapes: they are weights too."""
    shapes = {t.name: t for t in graph.initializer if t.data_type == TensorProto.INT64}
    return {
        node.output[0]: tuple(int(d) for d in numpy_helper.to_array(shapes[node.input[0]]))
        for node in graph.node
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes and _is_float(node)
    }


def _nodes(graph: onnx.GraphProto) -> list[NodeProto]:
    """Returns the nodes of a graph, then those of bodies in it, at any depth."""
    return [node for body, _ in bodies_of([graph]) for node in body.node]


def _is_float(node: NodeProto) -> bool:
    """True if a ConstantOfShape makes float32."""
    return all(a.t.data_type == TensorProto.FLOAT for a in node.attribute)


def _roles(
    graph: onnx.GraphProto, weights: dict[str, tuple[int, ...]]
) -> dict[str, tuple[str, NodeProto | None]]:
    """Returns the role of each weight by its first reader, behind Unsqueeze and the like."""
    names = {name: name for name in weights}
    roles: dict[str, tuple[str, NodeProto | None]] = {}
    for node in _nodes(graph):
        if node.op_type in ("Unsqueeze", "Reshape", "Identity", "Squeeze", "Transpose"):
            if node.input[0] in names:
                names[node.output[0]] = names[node.input[0]]
            continue
        for position, name in enumerate(node.input):
            if name in names:
                role = _ROLES.get((node.op_type, position), "small")
                roles.setdefault(names[name], (role, node))
    return roles


def _draw(rng: np.random.Generator, role: str, node: NodeProto | None, shape: Sequence[int]) -> Array:
    values = rng.standard_normal(shape, np.float32)
    if role == "one":
        return (1 + 0.1 * np.clip(values, -3, 3)).astype(np.float32)
    if role == "weight" and node is not None and len(shape) > 1:
        values *= np.float32(np.sqrt(2 / _fan_in(node, shape)))
    else:
        values *= np.float32(0.05)
    return values


def _fan_in(node: NodeProto, shape: Sequence[int]) -> int:
    if node.op_type == "Gemm":
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        return int(shape[1] if transposed else shape[0])
    if node.op_type == "MatMul":
        return int(shape[-2])
    return int(np.prod(shape[1:]))  # Conv: channels of a group times the window


def _resize(graph: onnx.GraphProto, batch: int | None, image: int | None) -> None:
    old = None
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        if batch is not None and dims:
            old = dims[0].dim_value
            dims[0].dim_value = batch
        if image is not None:
            if len(dims) != 4:
                raise InputError("image", str(image), "a model with 4-D inputs (N, C, H, W)")
            dims[2].dim_value = dims[3].dim_value = image
    bodies = [body for body, _ in bodies_of([graph]) if isinstance(body, onnx.GraphProto)]
    for output in [output for body in bodies for output in body.output]:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    for body in bodies:
        del body.value_info[:]
    targets = {node.input[1] for node in _nodes(graph) if node.op_type == "Reshape" and len(node.input) > 1}
    for tensor in [tensor for body in bodies for tensor in body.initializer]:
        if tensor.name in targets and (batch is not None or image is not None):
            _free_reshape(tensor, old, batch, image)


def _free_reshape(tensor: TensorProto, old: int | None, batch: int | None, image: int | None) -> None:
    """Makes the target of a Reshape follow the batch; the size of a flattened image becomes -1."""
    shape = numpy_helper.to_array(tensor).copy()
    if batch is not None and shape.size and shape[0] == old:
        shape[0] = batch
    if image is not None and shape.size == 2 and shape[1] > 0:
        shape[1] = -1
    tensor.CopyFrom(numpy_helper.from_array(shape, tensor.name))
