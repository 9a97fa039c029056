# SPDX-License-Identifier: Apache-2.0
"""Networks as GraphDefs, small, with random weights of a fixed seed: parts of what TensorFlow's users have.

Each function returns the GraphDef, the names of its outputs, and a feed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.tensorflow.graphdefs import GraphBuilder, Tensor

Array = np.ndarray[Any, Any]
Network = tuple[Any, list[str], dict[str, Array]]


class Maker(GraphBuilder):
    """A builder with the layers that several networks have."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def weights(self, name: str, *shape: int, scale: float | None = None) -> Tensor:
        """Normal numbers, by default so small that a product keeps the size of its operand."""
        spread = scale if scale is not None else float(np.prod(shape[:-1])) ** -0.5
        return self.const(name, (self.rng.standard_normal(shape) * spread).astype(np.float32))

    def data(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def conv(self, x: str, name: str, size: int, channels: tuple[int, int], stride: int = 1) -> Tensor:
        """A convolution with bias and Relu."""
        w = self.weights(f"{name}/weights", size, size, *channels)
        strides = [1, stride, stride, 1]
        y = self.op("Conv2D", x, w, name=f"{name}/Conv2D", strides=strides, padding="SAME")
        y = self.op(
            "BiasAdd", y, self.weights(f"{name}/biases", channels[1], scale=0.1), name=f"{name}/BiasAdd"
        )
        return self.op("Relu", y, name=f"{name}/Relu")

    def dense(self, x: str, name: str, given: int, made: int) -> Tensor:
        y = self.op("MatMul", x, self.weights(f"{name}/kernel", given, made), name=f"{name}/MatMul")
        return self.op("BiasAdd", y, self.weights(f"{name}/bias", made, scale=0.1), name=f"{name}/BiasAdd")

    def batch_of(self, x: str, name: str) -> Tensor:
        """The size of the batch, taken from the shape as Keras does."""
        shape = self.op("Shape", x, name=f"{name}/Shape")
        bounds = [np.array(values, np.int32) for values in ([0], [1], [1])]
        return self.op("StridedSlice", shape, *bounds, name=f"{name}/strided_slice", shrink_axis_mask=1)

    def reshaped(self, x: str, name: str, *sizes: int) -> Tensor:
        """Reshaped to the batch and these sizes."""
        batch = self.batch_of(x, name)
        parts = [self.const(f"{name}/size_{i}", np.int32(size)) for i, size in enumerate(sizes)]
        shape = self.op("Pack", [batch, *parts], name=f"{name}/shape")
        return self.op("Reshape", x, shape, name=f"{name}/Reshape")

    def norm(self, x: str, name: str, channels: int) -> Tensor:
        """Batch normalisation with the statistics of the training."""
        rng = self.rng
        mean, offset = (self.weights(f"{name}/{part}", channels, scale=0.2) for part in ("mean", "beta"))
        variance = self.const(f"{name}/variance", rng.uniform(0.5, 2, channels).astype(np.float32))
        scale = self.const(f"{name}/gamma", rng.uniform(0.5, 1.5, channels).astype(np.float32))
        made = self.op(
            *("FusedBatchNormV3", x, scale, offset, mean, variance),
            name=f"{name}/FusedBatchNormV3",
            epsilon=0.001,
            is_training=False,
        )
        return made[0]

    def layer_norm(self, x: str, name: str, width: int) -> Tensor:
        """Written out, as Keras's LayerNormalization is."""
        last = np.array([-1], np.int32)
        mean = self.op("Mean", x, last, name=f"{name}/mean", keep_dims=True)
        still = self.op("StopGradient", mean, name=f"{name}/StopGradient")
        squares = self.op("SquaredDifference", x, still, name=f"{name}/SquaredDifference")
        variance = self.op("Mean", squares, last, name=f"{name}/variance", keep_dims=True)
        spread = self.op("AddV2", variance, np.float32(1e-6), name=f"{name}/add")
        inverse = self.op("Rsqrt", spread, name=f"{name}/Rsqrt")
        gamma = self.const(f"{name}/gamma", self.rng.uniform(0.5, 1.5, width).astype(np.float32))
        scale = self.op("Mul", inverse, gamma, name=f"{name}/mul")
        shift = self.op("Mul", mean, scale, name=f"{name}/mul_2")
        shift = self.op("Sub", self.weights(f"{name}/beta", width, scale=0.1), shift, name=f"{name}/sub")
        return self.op("AddV2", self.op("Mul", x, scale, name=f"{name}/mul_1"), shift, name=f"{name}/add_1")


def mnist() -> Network:
    """Two convolutions with pooling, and two dense layers."""
    b = Maker(1)
    x = b.placeholder("image", "float32", [None, 28, 28, 1])
    y: Any = x
    for i, channels in enumerate([(1, 8), (8, 16)]):
        y = b.conv(y, f"conv{i}", 5, channels)
        sizes: dict[str, Any] = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1]}
        y = b.op("MaxPool", y, name=f"pool{i}", padding="SAME", **sizes)
    y = b.reshaped(y, "flatten", 7 * 7 * 16)
    y = b.op("Relu", b.dense(y, "dense", 7 * 7 * 16, 32), name="dense/Relu")
    y = b.op("Softmax", b.dense(y, "logits", 32, 10), name="probabilities")
    return b.graphdef(), [y], {"image": b.data(2, 28, 28, 1)}


def inception() -> Network:
    """Four branches that are joined along the channels."""
    b = Maker(2)
    x = b.placeholder("x", "float32", [None, 14, 14, 24])
    one = b.conv(x, "mixed/b0", 1, (24, 16))
    three = b.conv(b.conv(x, "mixed/b1a", 1, (24, 12)), "mixed/b1b", 3, (12, 16))
    five = b.conv(b.conv(x, "mixed/b2a", 1, (24, 4)), "mixed/b2b", 5, (4, 8))
    sizes: dict[str, Any] = {"ksize": [1, 3, 3, 1], "strides": [1, 1, 1, 1]}
    pool = b.op("AvgPool", x, name="mixed/pool", padding="SAME", **sizes)
    pool = b.conv(pool, "mixed/b3", 1, (24, 8))
    y = b.op("ConcatV2", [one, three, five, pool], 3, name="mixed/concat")
    sizes = {"ksize": [1, 14, 14, 1], "strides": [1, 2, 2, 1]}
    y = b.op("AvgPool", y, name="global", padding="VALID", **sizes)
    y = b.op("Squeeze", y, name="features", squeeze_dims=[1, 2])
    return b.graphdef(), ["mixed/concat", y], {"x": b.data(1, 14, 14, 24)}


def mobile() -> Network:
    """An inverted residual block of MobileNetV2, one with stride, and the mean over the image."""
    b = Maker(3)
    x = b.placeholder("x", "float32", [1, 15, 15, 8])
    y = _inverted(b, x, "block1", 8, 1)
    y = b.op("AddV2", x, y, name="block1/add")
    y = _inverted(b, y, "block2", 8, 2)
    y = b.op("Mean", y, np.array([1, 2], np.int32), name="mean")
    return b.graphdef(), [y], {"x": b.data(1, 15, 15, 8)}


def _inverted(b: Maker, x: str, name: str, channels: int, stride: int) -> Tensor:
    inner, plain = 3 * channels, [1, 1, 1, 1]
    w = b.weights(f"{name}/expand/weights", 1, 1, channels, inner)
    y = b.op("Conv2D", x, w, name=f"{name}/expand", strides=plain, padding="SAME")
    y = b.op("Relu6", b.norm(y, f"{name}/expand/bn", inner), name=f"{name}/expand/Relu6")
    w = b.weights(f"{name}/depthwise/weights", 3, 3, inner, 1, scale=0.4)
    strides = [1, stride, stride, 1]
    y = b.op("DepthwiseConv2dNative", y, w, name=f"{name}/depthwise", strides=strides, padding="SAME")
    y = b.op("Relu6", b.norm(y, f"{name}/depthwise/bn", inner), name=f"{name}/depthwise/Relu6")
    w = b.weights(f"{name}/project/weights", 1, 1, inner, channels)
    y = b.op("Conv2D", y, w, name=f"{name}/project", strides=plain, padding="SAME")
    return b.norm(y, f"{name}/project/bn", channels)


def transformer(tokens: int = 12, width: int = 32, heads: int = 4) -> Network:
    """A layer of an encoder: attention over heads and a perceptron, each behind a normalisation."""
    b = Maker(4)
    x = b.placeholder("x", "float32", [None, tokens, width])
    y = b.layer_norm(x, "ln1", width)
    y = b.op("AddV2", x, _attention(b, y, tokens, width, heads), name="residual1")
    z = b.layer_norm(y, "ln2", width)
    z = b.op("Einsum", [z, b.weights("ffn/up", width, 2 * width)], name="ffn/Einsum", equation="btd,df->btf")
    z = _gelu(b, z, "ffn/gelu")
    z = b.op("BatchMatMulV2", z, b.weights("ffn/down", width * 2, width), name="ffn/BatchMatMul")
    z = b.op("AddV2", y, z, name="residual2")
    z = b.op("Identity", z, name="hidden")
    return b.graphdef(), [z], {"x": b.data(2, tokens, width)}


def _attention(b: Maker, x: str, tokens: int, width: int, heads: int) -> Tensor:
    size, order = width // heads, np.array([0, 2, 1, 3], np.int32)
    parts = []
    for part in ("query", "key", "value"):
        w = b.weights(f"attention/{part}/kernel", width, heads, size, scale=width**-0.5)
        y = b.op("Einsum", [x, w], name=f"attention/{part}/Einsum", equation="abc,cde->abde")
        parts.append(b.op("Transpose", y, order, name=f"attention/{part}/transpose"))
    q = b.op("Mul", parts[0], np.float32(size**-0.5), name="attention/scale")
    scores = b.op("BatchMatMulV2", q, parts[1], name="attention/scores", adj_y=True)
    y = b.op(
        "BatchMatMulV2", b.op("Softmax", scores, name="attention/Softmax"), parts[2], name="attention/mix"
    )
    y = b.op("Transpose", y, order, name="attention/transpose")
    y = b.reshaped(y, "attention/join", tokens, width)
    w = b.weights("attention/output/kernel", width, width)
    return b.op("BatchMatMulV2", y, w, name="attention/output")


def _gelu(b: Maker, x: str, name: str) -> Tensor:
    y = b.op("Erf", b.op("Mul", x, np.float32(2**-0.5), name=f"{name}/mul"), name=f"{name}/Erf")
    y = b.op("AddV2", y, np.float32(1), name=f"{name}/add")
    half = b.op("Mul", x, np.float32(0.5), name=f"{name}/half")
    return b.op("Mul", half, y, name=f"{name}/mul_1")


def ssd(classes: int = 4) -> Network:
    """The head of a detector: two feature maps, and boxes decoded as the Object Detection API does."""
    b = Maker(5)
    codes, scores, anchors = [], [], 0
    feed = {}
    for i, (size, per) in enumerate([(8, 3), (4, 6)]):
        x = b.placeholder(f"features{i}", "float32", [1, size, size, 16])
        feed[str(x)] = b.data(1, size, size, 16)
        for kind, width, into in (("Box", 4, codes), ("Class", classes, scores)):
            name = f"{kind}Predictor_{i}"
            w = b.weights(f"{name}/weights", 3, 3, 16, per * width)
            y = b.op("Conv2D", x, w, name=f"{name}/Conv2D", strides=[1, 1, 1, 1], padding="SAME")
            y = b.op(
                "BiasAdd", y, b.weights(f"{name}/biases", per * width, scale=0.1), name=f"{name}/BiasAdd"
            )
            into.append(b.reshaped(y, name, size * size * per, width))
        anchors += size * size * per
    code = b.op("ConcatV2", codes, 1, name="codes")
    code = b.op("Squeeze", code, name="codes/Squeeze", squeeze_dims=[0])
    boxes = _decoded(b, code, _anchors(b, anchors))
    boxes = b.op("ExpandDims", boxes, 0, name="boxes")
    confidences = b.op("Sigmoid", b.op("ConcatV2", scores, 1, name="logits"), name="scores")
    return b.graphdef(), [boxes, confidences], feed


def _anchors(b: Maker, count: int) -> Tensor:
    centres = b.rng.uniform(0.1, 0.9, (count, 2))
    sizes = b.rng.uniform(0.05, 0.3, (count, 2))
    corners = np.concatenate([centres - sizes / 2, centres + sizes / 2], 1)
    return b.const("anchors", corners.astype(np.float32))


def _decoded(b: Maker, codes: str, anchors: str) -> Tensor:
    """Boxes of codes (ty, tx, th, tw) of the faster R-CNN box coder, relative to anchors."""
    order, half = np.array([1, 0], np.int32), np.float32(0.5)
    y1, x1, y2, x2 = b.op("Unpack", b.op("Transpose", anchors, order, name="a/transpose"), name="a", num=4)
    sizes = [b.op("Sub", high, low, name=f"a/{n}") for n, high, low in (("h", y2, y1), ("w", x2, x1))]
    centres = [
        b.op("AddV2", low, b.op("Mul", size, half, name=f"a/half_{n}"), name=f"a/centre_{n}")
        for n, low, size in zip("yx", (y1, x1), sizes, strict=True)
    ]
    parts = b.op("Split", 1, codes, name="code", num_split=4)
    flat = [b.op("Squeeze", one, name=f"code/{i}", squeeze_dims=[1]) for i, one in enumerate(parts)]
    scaled = [
        b.op("RealDiv", one, np.float32(by), name=f"code/scaled_{i}")
        for i, (one, by) in enumerate(zip(flat, (10, 10, 5, 5), strict=True))
    ]
    low, high = [], []
    for i, n in enumerate("yx"):
        move = b.op("Mul", scaled[i], sizes[i], name=f"decode/{n}/move")
        centre = b.op("Add", move, centres[i], name=f"decode/{n}/centre")
        size = b.op(
            "Mul", b.op("Exp", scaled[i + 2], name=f"decode/{n}/Exp"), sizes[i], name=f"decode/{n}/size"
        )
        reach = b.op("Mul", size, half, name=f"decode/{n}/reach")
        low.append(b.op("Sub", centre, reach, name=f"decode/{n}/low"))
        high.append(b.op("Add", centre, reach, name=f"decode/{n}/high"))
    stacked = b.op("Pack", [*low, *high], name="decode/stack")
    return b.op("Transpose", stacked, order, name="decode/transpose")


NETWORKS: Mapping[str, Callable[[], Network]] = {
    "mnist": mnist,
    "inception": inception,
    "mobile": mobile,
    "transformer": transformer,
    "ssd": ssd,
}


def operators_of(graphdef: Any) -> Sequence[str]:
    """The operators that a GraphDef has, each once."""
    return sorted({node.op for node in graphdef.node})
