# SPDX-License-Identifier: Apache-2.0
"""Rules for convolutions, pooling, and normalisation over channels.

The attribute data_format holds for data of 1:1 rules by itself; formats of filters are facts. In expansions
``g.relayout`` goes from one format to another. Transposes that this leaves are moved and dropped afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onedispatch.dispatch.sources.api import frontend
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import Operand, SourceNode
from onedispatch.dispatch.tensorflow.rule_helpers import (
    channels_first,
    current,
    int64,
    listed_pads,
    numbers,
    padding,
    rank,
    same_pads,
    spatial,
)

tf = frontend("tensorflow")

# -- convolutions --------------------------------------------------------------------------------


def _strides(n: SourceNode) -> list[int]:
    return spatial(n, n.attr("strides"))


def _dilations(n: SourceNode) -> list[int]:
    return spatial(n, n.attr("dilations"))


def _groups(n: SourceNode) -> int | None:
    """A filter with fewer channels than the image makes groups."""
    image, filters = n.inputs[0].shape, n.inputs[1].shape
    channels = None if image is None else image[1 if channels_first(n) else -1]
    if not isinstance(channels, int) or filters is None or not isinstance(filters[-2], int):
        return None
    return channels // filters[-2]


def _reach(n: SourceNode) -> list[int] | None:
    """What a window covers of each spatial dimension; None if the sizes of the filter are unknown."""
    if n.has("ksize"):
        return spatial(n, n.attr("ksize"))
    sizes = (n.inputs[1].shape or ())[:-2]
    known = [one for one in sizes if isinstance(one, int)]
    if not known or len(known) != len(sizes):
        return None
    return [(size - 1) * d + 1 for size, d in zip(known, _dilations(n), strict=True)]


def _padding(n: SourceNode) -> dict[str, Any]:
    return padding(n, _reach(n), _strides(n))


def _pads(n: SourceNode) -> list[int] | None:
    return _padding(n).get("pads")


def _auto_pad(n: SourceNode) -> str | None:
    return _padding(n).get("auto_pad")


for name, filters in (("Conv2D", "HWCN"), ("Conv3D", "DHWCN")):
    rule = tf.op(name, to="Conv").format(1, filters).ignore("use_cudnn_on_gpu")
    rule.compute(strides=_strides, dilations=_dilations, auto_pad=_auto_pad, pads=_pads, group=_groups)


@tf.expand("DepthwiseConv2dNative", inherit=False)
def depthwise(g: Builder, n: SourceNode) -> Any:
    """One group per channel: the filter [H, W, C, M] makes M channels of each."""
    origin = n.attr("data_format")
    x = g.relayout(n.inputs[0], origin, "NCHW")
    filters, channels = _depthwise_filter(g, n.inputs[1])
    how = {"strides": _strides(n), "dilations": _dilations(n), **_padding(n)}
    return g.relayout(g.Conv(x, filters, group=channels, **how), "NCHW", origin)


def _depthwise_filter(g: Builder, filters: Operand) -> tuple[Operand, int]:
    """A filter [H, W, C, M] as ONNX's [C * M, 1, H, W], and C."""
    shape = filters.shape
    if shape is None or not all(isinstance(one, int) for one in shape):
        raise Refused(f"a filter of shape {shape}")
    wanted = [*shape[:2], 1, int(shape[2] or 0) * int(shape[3] or 0)]
    array = g.known(filters)
    flat = g.Reshape(filters, wanted) if array is None else g.constant(array.reshape(wanted))
    return g.relayout(flat, "HWCN", "NCHW"), int(shape[2] or 0)


# Gradients of convolutions by their image, which networks use as convolutions that enlarge.


@tf.expand("Conv2DBackpropInput", "Conv3DBackpropInputV2", inherit=False)
def conv_transpose(g: Builder, n: SourceNode) -> Any:
    n.ignore("use_cudnn_on_gpu")
    filters, letters = n.inputs[1], "HWCN" if current(n) == "NCHW" else "DHWCN"
    given = n.inputs[2].shape
    channels = None if given is None else given[1 if channels_first(n) else -1]
    shape = filters.shape or ()
    # Each group has its own channels of the result: more than the filter says only in grouped ones.
    whole = n.inputs[0].elements
    made = None if whole is None else whole[1 if channels_first(n) else -1]
    groups = made // int(shape[-2] or 1) if made is not None and isinstance(shape[-2], int) else 1
    if groups > 1 and channels is None:
        raise Refused("groups of an unknown number of channels")
    return _enlarged(g, n, g.relayout(filters, letters, current(n)), groups)


@tf.expand("DepthwiseConv2dNativeBackpropInput", inherit=False)
def depthwise_transpose(g: Builder, n: SourceNode) -> Any:
    filters, channels = _depthwise_filter(g, n.inputs[1])
    return _enlarged(g, n, filters, channels)


def _enlarged(g: Builder, n: SourceNode, filters: Operand, groups: int) -> Any:
    """Writes the ConvTranspose. Of the sizes that its strides leave open, the node says one."""
    origin = n.attr("data_format")
    x = g.relayout(n.inputs[2], origin, current(n))
    window = filters.shape
    if window is None or not all(isinstance(one, int) for one in window):
        raise Refused(f"a filter of shape {window}")
    strides, dilations = _strides(n), _dilations(n)
    reach = [(int(k or 0) - 1) * d + 1 for k, d in zip(window[2:], dilations, strict=True)]
    how: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": groups}
    wanted, given = _wanted(n), None if x.shape is None else x.shape[2:]
    if wanted is None or given is None or not all(isinstance(one, int) for one in given):
        return g.relayout(_cut(g, n, x, filters, reach, how), current(n), origin)
    full = [(int(o or 0) - 1) * s + k for o, s, k in zip(given, strides, reach, strict=True)]
    # What the convolution, whose gradient this is, put before and behind its image.
    pads = listed_pads(n) or same_pads(full, wanted if n.attr("padding") == "SAME" else full)
    ends = zip(wanted, pads[: len(full)], pads[len(full) :], full, strict=True)
    rest = [size + low + high - f for size, low, high, f in ends]
    made = g.ConvTranspose(x, filters, pads=pads, output_padding=rest, **how)
    return g.relayout(made, current(n), origin)


def _wanted(n: SourceNode) -> list[int] | None:
    """The spatial sizes of the result: a constant, or what its shape says."""
    whole: Any = n.inputs[0].elements if n.inputs[0].elements is not None else n.outputs[0].shape
    if whole is None:
        return None
    sizes = list(whole[2:] if channels_first(n) else whole[1:-1])
    return sizes if all(isinstance(one, int) for one in sizes) else None


def _cut(g: Builder, n: SourceNode, x: Operand, filters: Operand, reach: Sequence[int], how: Any) -> Any:
    """All that the strides can make, of which sizes that are computed are cut out."""
    count = len(reach)
    rest = [stride - 1 for stride in how["strides"]]
    whole = g.ConvTranspose(x, filters, output_padding=rest, **how)
    places = list(range(2, 2 + count) if channels_first(n) else range(1, 1 + count))
    sizes = g.Gather(int64(g, n.inputs[0]), places)
    starts = g.constant(np.zeros(count, np.int64))
    if n.attr("padding") == "SAME":
        full = g.Sub(g.Shape(whole, start=2), rest)
        starts = g.Div(g.Max(g.Sub(full, sizes), 0), 2)
    elif n.attr("padding") == "EXPLICIT":
        starts = g.constant((listed_pads(n) or [])[:count], np.int64)
    return g.Slice(whole, starts, g.Add(starts, sizes), list(range(2, 2 + count)))


# -- pooling -------------------------------------------------------------------------------------

_POOLS = {"MaxPool": "MaxPool", "MaxPool3D": "MaxPool", "AvgPool": "AveragePool", "AvgPool3D": "AveragePool"}


for name, target in _POOLS.items():
    tf.op(name, to=target).compute(kernel_shape=_reach, strides=_strides, auto_pad=_auto_pad, pads=_pads)


@tf.expand("MaxPoolV2", inherit=False)
def max_pool_v2(g: Builder, n: SourceNode) -> Any:
    """The window and strides are inputs."""
    origin = n.attr("data_format")
    x = g.relayout(n.inputs[0], origin, "NCHW")
    window, strides = (spatial(n, numbers(n, i, what)) for i, what in ((1, "ksize"), (2, "strides")))
    made = g.MaxPool(x, kernel_shape=window, strides=strides, **padding(n, window, strides))
    return g.relayout(made, "NCHW", origin)


@tf.expand("MaxPoolWithArgmax", inherit=False)
def max_pool_with_argmax(g: Builder, n: SourceNode) -> Any:
    """ONNX counts places with channels first, TensorFlow with channels last."""
    shape = n.inputs[0].shape
    if shape is None or not all(isinstance(one, int) for one in shape[1:]):
        raise Refused(f"an image of shape {shape}")
    height, width, channels = (int(one or 0) for one in shape[1:])
    x = g.relayout(n.inputs[0], "NHWC", "NCHW")
    how = {"kernel_shape": _reach(n), "strides": _strides(n), **_padding(n)}
    values, places = g.MaxPool(x, outputs=2, **how)
    plane = height * width
    channel = g.Mod(g.Div(places, plane), channels)
    place = g.Add(g.Mul(g.Mod(places, plane), channels), channel)
    if n.attr("include_batch_in_index"):
        whole = plane * channels
        place = g.Add(place, g.Mul(g.Div(places, whole), whole))
    return g.relayout(values, "NCHW", "NHWC"), g.relayout(place, "NCHW", "NHWC")


# -- normalisation -------------------------------------------------------------------------------


@tf.expand("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", inherit=False)
def fused_batch_norm(g: Builder, n: SourceNode) -> Any:
    """By the mean and variance that are given, which are also what the node says of the batch."""
    n.ignore("exponential_avg_factor")  # of training
    origin = n.attr("data_format")
    x, scale, offset, mean, variance = n.inputs
    image = g.relayout(x, origin, current(n))
    if n.attr("is_training"):
        return _by_own_moments(g, n, image)
    y = g.BatchNormalization(image, scale, offset, mean, variance, epsilon=n.attr("epsilon"))
    none = [g.constant([], scale.dtype)] if n.op_type == "FusedBatchNormV3" else []
    return g.relayout(y, current(n), origin), mean, variance, mean, variance, *none


def _by_own_moments(g: Builder, n: SourceNode, image: Operand) -> Any:
    """In training, by the moments of the batch: with one image in it an InstanceNormalization.

    Keras normalises layers so, with a channel for each row that it normalises. What nothing reads of the
    moments is dropped later.
    """
    if image.shape is None or image.shape[0] != 1 or n.attr("exponential_avg_factor") != 1:
        raise Refused("is_training: by the means of the batch; freeze the graph for inference")
    y = g.InstanceNormalization(image, n.inputs[1], n.inputs[2], epsilon=n.attr("epsilon"))
    axes = [axis for axis in range(len(image.shape)) if axis != 1]
    mean = g.ReduceMean(image, axes)
    difference = g.Sub(image, mean)
    variance = g.Squeeze(g.ReduceMean(g.Mul(difference, difference), axes), axes)
    count = g.Cast(g.Div(g.Size(image), g.Shape(image, start=1, end=2)), to=np.dtype(np.float32))
    unbiased = g.Mul(variance, g.Div(count, g.Max(g.Sub(count, 1), 1)))
    mean = g.Squeeze(mean, axes)
    none = [g.constant([], np.float32)] if n.op_type == "FusedBatchNormV3" else []
    return g.relayout(y, current(n), n.attr("data_format")), mean, unbiased, mean, variance, *none


@tf.expand("BatchNormWithGlobalNormalization", inherit=False)
def global_norm(g: Builder, n: SourceNode) -> Any:
    x, mean, variance, beta, gamma = n.inputs
    if not n.attr("scale_after_normalization"):
        gamma = g.Expand(g.constant(1, x.dtype), g.Shape(mean))
    image = g.relayout(x, "NHWC", "NCHW")
    y = g.BatchNormalization(image, gamma, beta, mean, variance, epsilon=n.attr("variance_epsilon"))
    return g.relayout(y, "NCHW", "NHWC")


@tf.expand("BiasAdd", "BiasAddV1", inherit=False)
def bias_add(g: Builder, n: SourceNode) -> Any:
    """With channels first the bias gets a dimension of one element for each spatial one."""
    x, bias = n.inputs
    if channels_first(n):
        wanted = [-1, *[1] * (rank(x, "the data") - 2)]
        array = g.known(bias)
        bias = g.Reshape(bias, wanted) if array is None else g.constant(array.reshape(wanted))
    return g.Add(x, bias)


def _width(n: SourceNode) -> int:
    return 2 * int(n.attr("depth_radius")) + 1


tf.op("LRN").auto().format(0, "NHWC").format(0, "NHWC", output=True).compute(
    size=_width, alpha=lambda n: n.attr("alpha") * _width(n)
)
