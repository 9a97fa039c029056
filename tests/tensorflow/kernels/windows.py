# SPDX-License-Identifier: Apache-2.0
"""Operators of the evaluator that move windows over images, and normalisation over channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tests.tensorflow.kernels.mathematics import wide

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]
Function = Callable[..., Any]
Pads = list[tuple[int, int]]


def same(size: int, window: int, stride: int) -> tuple[int, int]:
    """The padding of SAME: ceil(size / stride) windows, the odd element behind."""
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def pads_of(a: Attributes, sizes: Sequence[int], window: Sequence[int], strides: Sequence[int]) -> Pads:
    """The padding of each axis; ``explicit_paddings`` are in the order of the axes of the data format."""
    if a["padding"] == "VALID":
        return [(0, 0)] * len(sizes)
    if a["padding"] == "SAME":
        return [same(*one) for one in zip(sizes, window, strides, strict=True)]
    pairs = np.asarray(a["explicit_paddings"]).reshape(-1, 2).tolist()
    return [(low, high) for low, high in pairs]


def starts(sizes: Sequence[int], window: Sequence[int], strides: Sequence[int]) -> list[int]:
    """How many windows fit each padded axis."""
    return [(size - k) // stride + 1 for size, k, stride in zip(sizes, window, strides, strict=True)]


class Geometry:
    """A convolution: its image with channels last, and padding, strides, dilations of the other axes."""

    def __init__(self, a: Attributes, sizes: Sequence[int], kernel: Sequence[int]) -> None:
        rank = len(sizes)
        self.first = a.get("data_format", "NHWC").startswith("NC")
        axes = list(range(2, rank)) if self.first else list(range(1, rank - 1))
        self.strides = [a["strides"][i] for i in axes]
        self.dilations = [(a.get("dilations") or [1] * rank)[i] for i in axes]
        self.kernel = list(kernel)
        self.window = [(k - 1) * d + 1 for k, d in zip(kernel, self.dilations, strict=True)]
        self.sizes = [sizes[i] for i in axes]
        if a["padding"] == "EXPLICIT":
            pairs = pads_of(a, sizes, sizes, sizes)
            self.pads = [pairs[i] for i in axes]
        else:
            self.pads = pads_of(a, self.sizes, self.window, self.strides)
        self.padded = [s + low + high for s, (low, high) in zip(self.sizes, self.pads, strict=True)]
        self.counts = starts(self.padded, self.window, self.strides)

    def last(self, x: Array) -> Array:
        """The image with channels last."""
        return np.moveaxis(x, 1, -1) if self.first else x

    def back(self, x: Array) -> Array:
        """An image with channels last in the data format."""
        return np.moveaxis(x, -1, 1) if self.first else x

    def taps(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Each position in the kernel, with the elements of the padded image that it meets."""
        for at in np.ndindex(*self.kernel):
            low = [i * d for i, d in zip(at, self.dilations, strict=True)]
            rows = zip(low, self.counts, self.strides, strict=True)
            yield at, (slice(None), *(slice(b, b + (n - 1) * s + 1, s) for b, n, s in rows))


def conv(a: Attributes, x: Array, w: Array) -> Array:
    """Channels of the filter that are fewer than those of the image make groups."""
    g = Geometry(a, x.shape, w.shape[:-2])
    image = np.pad(g.last(wide(x)), [(0, 0), *g.pads, (0, 0)])
    groups = image.shape[-1] // w.shape[-2]
    made: Any = 0
    for at, where in g.taps():
        parts = np.split(image[where], groups, -1)
        filters = np.split(wide(w)[at], groups, -1)
        made = made + np.concatenate([p @ f for p, f in zip(parts, filters, strict=True)], -1)
    return g.back(made).astype(x.dtype)


def depthwise(a: Attributes, x: Array, w: Array) -> Array:
    """Channel c makes the channels c * multiplier and following."""
    g = Geometry(a, x.shape, w.shape[:2])
    image = np.pad(g.last(wide(x)), [(0, 0), *g.pads, (0, 0)])
    made: Any = 0
    for at, where in g.taps():
        made = made + image[where][..., None] * wide(w)[at]
    return g.back(made.reshape(*made.shape[:-2], -1)).astype(x.dtype)


def conv_backprop(a: Attributes, sizes: Array, w: Array, dy: Array) -> Array:
    """The gradient of a convolution by its image: every product goes back where it came from."""
    g = Geometry(a, sizes.tolist(), w.shape[:-2])
    given = g.last(wide(dy))
    channels = int(sizes[1] if g.first else sizes[-1])
    groups = channels // w.shape[-2]
    image = np.zeros([given.shape[0], *g.padded, channels])
    for at, where in g.taps():
        parts, filters = np.split(given, groups, -1), np.split(wide(w)[at], groups, -1)
        image[where] += np.concatenate([p @ f.T for p, f in zip(parts, filters, strict=True)], -1)
    inner = [slice(low, low + size) for (low, _), size in zip(g.pads, g.sizes, strict=True)]
    return g.back(image[(slice(None), *inner)]).astype(dy.dtype)


def depthwise_backprop(a: Attributes, sizes: Array, w: Array, dy: Array) -> Array:
    g = Geometry(a, sizes.tolist(), w.shape[:2])
    given = g.last(wide(dy))
    given = given.reshape(*given.shape[:-1], *w.shape[2:])
    image = np.zeros([given.shape[0], *g.padded, w.shape[2]])
    for at, where in g.taps():
        image[where] += (given * wide(w)[at]).sum(-1)
    inner = [slice(low, low + size) for (low, _), size in zip(g.pads, g.sizes, strict=True)]
    return g.back(image[(slice(None), *inner)]).astype(dy.dtype)


# -- pooling: windows over all axes, of size 1 over batch and channels ---------------------------


def pooled(a: Attributes, x: Array, function: Function, outside: float) -> Array:
    """``function`` of the elements of each window, which are behind; ``outside`` is the padding."""
    ksize, strides = [int(k) for k in a["ksize"]], [int(s) for s in a["strides"]]
    pads = pads_of(a, x.shape, ksize, strides)
    padded = np.pad(wide(x), pads, constant_values=outside)
    views = np.lib.stride_tricks.sliding_window_view(padded, ksize)
    views = views[tuple(slice(None, None, s) for s in strides)]
    return np.asarray(function(views.reshape(*views.shape[: x.ndim], -1), axis=-1)).astype(x.dtype)


def max_pool(a: Attributes, x: Array) -> Array:
    return pooled(a, x, np.max, -np.inf if x.dtype.kind in "fV" else np.iinfo(x.dtype).min)


def max_pool_v2(a: Attributes, x: Array, ksize: Array, strides: Array) -> Array:
    return max_pool({**a, "ksize": ksize.tolist(), "strides": strides.tolist()}, x)


def avg_pool(a: Attributes, x: Array) -> Array:
    """Padding does not count."""
    return pooled(a, x, np.nanmean, np.nan)


def max_pool_with_argmax(a: Attributes, x: Array) -> tuple[Array, Array]:
    """With the place of each maximum, (y * width + x) * channels + channel, the batch in front on demand."""
    places = np.arange(x.size, dtype=np.float64).reshape(x.shape)
    if not a.get("include_batch_in_index"):
        places %= x[0].size
    found: list[Array] = []

    def first(windows: Array, axis: int) -> Array:
        found.append(np.argmax(windows, axis))
        return np.max(windows, axis)

    values = pooled(a, x, first, -np.inf)
    picked = pooled(a, places, lambda w, axis: np.take_along_axis(w, found[0][..., None], -1)[..., 0], -1.0)
    return values, picked.astype(a.get("Targmax", np.int64))


# -- normalisation -------------------------------------------------------------------------------


def channels_first(a: Attributes) -> bool:
    return bool(a.get("data_format", "NHWC").startswith("NC"))


def batch_norm(
    a: Attributes, x: Array, scale: Array, offset: Array, mean: Array, variance: Array
) -> list[Array]:
    """By the given mean and variance, or in training by those of the batch."""
    image = np.moveaxis(wide(x), 1, -1) if channels_first(a) else wide(x)
    used, spread = wide(mean), wide(variance)
    returned = [mean, variance]
    if a.get("is_training", True):
        flat = image.reshape(-1, image.shape[-1])
        used, spread = flat.mean(0), flat.var(0)
        corrected = spread * len(flat) / max(len(flat) - 1, 1)
        factor = a.get("exponential_avg_factor", 1.0)
        running = zip((used, corrected), (mean, variance), strict=True)
        returned = [new if factor == 1 else (1 - factor) * wide(old) + factor * new for new, old in running]
    made = (image - used) / np.sqrt(spread + a.get("epsilon", 1e-4)) * wide(scale) + wide(offset)
    made = (np.moveaxis(made, -1, 1) if channels_first(a) else made).astype(x.dtype)
    batch = [one.astype(scale.dtype) for one in returned]
    return [made, *batch, used.astype(scale.dtype), spread.astype(scale.dtype)]


def batch_norm_v3(a: Attributes, *operands: Array) -> list[Array]:
    return [*batch_norm(a, *operands), np.zeros(0, operands[1].dtype)]


def global_norm(a: Attributes, t: Array, m: Array, v: Array, beta: Array, gamma: Array) -> Array:
    scale = wide(gamma) if a["scale_after_normalization"] else 1.0
    return ((wide(t) - m) / np.sqrt(wide(v) + a["variance_epsilon"]) * scale + beta).astype(t.dtype)


def bias_add(a: Attributes, x: Array, bias: Array) -> Array:
    return x + (bias.reshape([-1, *[1] * (x.ndim - 2)]) if channels_first(a) else bias)


def lrn(a: Attributes, x: Array) -> Array:
    """Divided by a power of the squares of the channels within the radius."""
    radius, channels = a.get("depth_radius", 5), x.shape[-1]
    squares = wide(x) ** 2
    near = [squares[..., max(c - radius, 0) : c + radius + 1].sum(-1) for c in range(channels)]
    total = a.get("bias", 1.0) + a.get("alpha", 1.0) * np.stack(near, -1)
    return (wide(x) / total ** a.get("beta", 0.5)).astype(x.dtype)


FUNCTIONS: Mapping[str, Function] = {
    "Conv2D": conv,
    "Conv3D": conv,
    "DepthwiseConv2dNative": depthwise,
    "Conv2DBackpropInput": conv_backprop,
    "Conv3DBackpropInputV2": conv_backprop,
    "DepthwiseConv2dNativeBackpropInput": depthwise_backprop,
    "MaxPool": max_pool,
    "MaxPoolV2": max_pool_v2,
    "MaxPoolWithArgmax": max_pool_with_argmax,
    "AvgPool": avg_pool,
    "MaxPool3D": max_pool,
    "AvgPool3D": avg_pool,
    "FusedBatchNorm": batch_norm,
    "FusedBatchNormV2": batch_norm,
    "FusedBatchNormV3": batch_norm_v3,
    "BatchNormWithGlobalNormalization": global_norm,
    "BiasAdd": bias_add,
    "BiasAddV1": bias_add,
    "LRN": lrn,
}
