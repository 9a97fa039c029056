# SPDX-License-Identifier: Apache-2.0
"""Small networks, and what onnxruntime's own quantiser makes of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]

TYPES = {
    "u4": QuantType.QUInt4,
    "s4": QuantType.QInt4,
    "u8": QuantType.QUInt8,
    "s8": QuantType.QInt8,
    "u16": QuantType.QUInt16,
    "s16": QuantType.QInt16,
}


@dataclass(frozen=True)
class Scheme:
    """How a network is quantised: types of activations and weights, format, scales of weights."""

    activations: str
    weights: str
    per_channel: bool = False
    operators: bool = False  # QOperator, else QDQ

    def __str__(self) -> str:
        form = "_qoperator" if self.operators else ""
        return f"{self.activations}{self.weights}{form}{'_per_channel' if self.per_channel else ''}"


SCHEMES = (
    *(Scheme(one, "s8", several) for one in ("u8", "s8", "u16", "s16") for several in (False, True)),
    *(Scheme("u8", "u8", several, operators=True) for several in (False, True)),
)


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._feeds: Iterator[Feed] = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


def feeds_of(model: onnx.ModelProto, count: int, seed: int) -> list[Feed]:
    """Random inputs for calibration, or to run with."""
    random = np.random.default_rng(seed)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    return [
        {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(count)
    ]


def quantised(model: onnx.ModelProto, scheme: Scheme, folder: Path, feeds: Sequence[Feed]) -> onnx.ModelProto:
    """``model`` by onnxruntime's static quantiser."""
    logging.getLogger().setLevel(logging.ERROR)  # it asks for preparations that no test needs
    path = folder / "quantised.onnx"
    quantize_static(
        model,
        path,
        _Reader(feeds),
        quant_format=QuantFormat.QOperator if scheme.operators else QuantFormat.QDQ,
        activation_type=TYPES[scheme.activations],
        weight_type=TYPES[scheme.weights],
        per_channel=scheme.per_channel,
    )
    return onnx.load(path)


def dynamic(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """``model`` by onnxruntime's dynamic quantiser: scales of activations are computed at run time."""
    source, path = folder / "floats.onnx", folder / "dynamic.onnx"
    onnx.save(model, source)
    quantize_dynamic(source, path, weight_type=QuantType.QUInt8)
    return onnx.load(path)


def output_scale(model: onnx.ModelProto) -> float:
    """Of the integers that the one output stands for."""
    (output,) = model.graph.output
    (last,) = (node for node in model.graph.node if output.name in node.output)
    if last.op_type != "DequantizeLinear":
        return 0.0
    (scale,) = (one for one in model.graph.initializer if one.name == last.input[1])
    return float(numpy_helper.to_array(scale).reshape(-1)[0])


@dataclass
class _Net:
    """Nodes and weights so far."""

    seed: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def weight(self, *shape: int) -> str:
        spread = 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0])
        return self.constant(self.random.normal(size=shape, scale=spread).astype(np.float32))

    def constant(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(values)
        return name

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], f"n_{name}", **attributes))
        return name

    def model(self, given: Sequence[int], last: str, shape: Sequence[int]) -> onnx.ModelProto:
        assert self.nodes[-1].output[0] == last
        self.nodes[-1].output[0] = "y"
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def convolutions() -> onnx.ModelProto:
    """Every group of images: convolutions, residuals, gates, pools, a classifier. [2, 3, 8, 8]."""
    net = _Net(1)
    first = net.add("Relu", net.add("Conv", "x", net.weight(8, 3, 3, 3), net.weight(8), pads=[1] * 4))
    apart = net.add("Conv", first, net.weight(8, 1, 3, 3), net.weight(8), pads=[1] * 4, group=8)
    bounds = [net.constant(np.float32(0)), net.constant(np.float32(6))]
    total = net.add("Add", first, net.add("Clip", apart, *bounds))
    pooled = net.add("MaxPool", total, kernel_shape=[2, 2], strides=[2, 2])
    gated = net.add("Mul", pooled, net.add("Sigmoid", pooled))
    both = net.add("Concat", net.add("LeakyRelu", gated, alpha=0.1), pooled, axis=1)
    means = net.add("AveragePool", both, kernel_shape=[2, 2], strides=[2, 2])
    flat = net.add("Flatten", net.add("GlobalAveragePool", means))
    hidden = net.add("Gemm", flat, net.weight(12, 16), net.weight(12), transB=1)
    classes = net.add("MatMul", hidden, net.weight(12, 10))
    return net.model([2, 3, 8, 8], net.add("Softmax", classes, axis=-1), [2, 10])


def transformer() -> onnx.ModelProto:
    """A block of an encoder: normalisations, attention of two heads, Gelu. [2, 6, 16]."""
    net = _Net(2)

    def dense(x: str, wide: int, out: int) -> str:
        return net.add("Add", net.add("MatMul", x, net.weight(wide, out)), net.weight(out))

    def normal(x: str) -> str:
        ones = net.constant(net.random.uniform(0.5, 1.5, 16).astype(np.float32))
        return net.add("LayerNormalization", x, ones, net.weight(16), axis=-1)

    def heads(x: str, *order: int) -> str:
        apart = net.add("Reshape", dense(x, 16, 16), net.constant(np.array([2, 6, 2, 8])))
        return net.add("Transpose", apart, perm=order)

    x = normal("x")
    scores = net.add("MatMul", heads(x, 0, 2, 1, 3), heads(x, 0, 2, 3, 1))
    scaled = net.add("Mul", scores, net.constant(np.float32(0.35)))
    mixed = net.add("MatMul", net.add("Softmax", scaled, axis=-1), heads(x, 0, 2, 1, 3))
    turned = net.add("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = net.add("Reshape", turned, net.constant(np.array([2, 6, 16])))
    x = net.add("Add", "x", dense(joined, 16, 16))
    hidden = dense(normal(x), 16, 32)
    half = net.add("Div", hidden, net.constant(np.float32(np.sqrt(2))))
    whole = net.add("Add", net.add("Erf", half), net.constant(np.float32(1)))
    gelu = net.add("Mul", net.add("Mul", hidden, whole), net.constant(np.float32(0.5)))
    return net.model([2, 6, 16], net.add("Add", x, dense(gelu, 32, 16)), [2, 6, 16])


NETWORKS = {"convolutions": convolutions, "transformer": transformer}
