# SPDX-License-Identifier: Apache-2.0
"""Our rules with random shapes and attributes: windows, slices, indices, resizing, against the evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tables import examples
from tests.tensorflow.rule_case import Case, Fed, case, fed
from tests.tensorflow.test_rules import check

SETTINGS = settings(max_examples=examples(300), deadline=None)
SIDES = st.integers(1, 8)
SEEDS = st.integers(0, 2**32 - 1)


def run(one: Case, host: bool = False) -> None:
    check(*one.graphdef(), fallback="cpu" if host else "error")


class Windows:
    """Sizes of an image, a window that is inside of it, strides, dilations, and paddings: of two axes."""

    def __init__(self, draw: Any, paddings: str = "SAME VALID EXPLICIT", dilate: bool = False) -> None:
        self.sides = [draw(SIDES) for _ in range(2)]
        self.kernel = [draw(st.integers(1, min(side, 4))) for side in self.sides]
        self.strides = [draw(st.integers(1, 3)) for _ in range(2)]
        self.first = draw(st.booleans())
        most = [(side - 1) // max(k - 1, 1) for side, k in zip(self.sides, self.kernel, strict=True)]
        # TensorFlow takes no strides with dilations.
        dilated = dilate and self.strides == [1, 1]
        self.dilations = [draw(st.integers(1, max(one, 1))) if dilated else 1 for one in most]
        self.batch, self.free, self.seed = draw(st.integers(1, 3)), draw(st.booleans()), draw(SEEDS)
        padding = draw(st.sampled_from(paddings.split()))
        self.attributes: dict[str, Any] = {"padding": padding, "strides": self.whole(self.strides)}
        self.attributes["data_format"] = "NCHW" if self.first else "NHWC"
        if padding == "EXPLICIT":  # never as wide as the window, where a place would be padding alone
            each = [draw(st.integers(0, k - 1)) for k in self.kernel for _ in range(2)]
            listed = [*[0] * 4, *each] if self.first else [0, 0, *each, 0, 0]
            self.attributes["explicit_paddings"] = listed

    def whole(self, spatial: list[int], batch: int = 1, channels: int = 1) -> list[int]:
        return [batch, channels, *spatial] if self.first else [batch, *spatial, channels]

    def image(self, channels: int) -> Fed:
        return fed(*self.whole(self.sides, self.batch, channels), seed=self.seed, free=self.free)


@SETTINGS
@given(st.data(), st.integers(1, 5), st.integers(1, 5))
def test_convolutions(draw: st.DataObject, given_: int, made: int) -> None:
    w = Windows(draw.draw, dilate=True)
    groups = draw.draw(st.sampled_from([1, 2]))
    filters = fed(*w.kernel, given_, made * groups, seed=w.seed)
    operand = filters if draw.draw(st.booleans()) else filters.value
    more = {**w.attributes, "dilations": w.whole(w.dilations)}
    run(case("Conv2D", w.image(given_ * groups), operand, **more))


@SETTINGS
@given(st.data(), st.integers(1, 5), st.integers(1, 3))
def test_depthwise_convolutions(draw: st.DataObject, channels: int, times: int) -> None:
    w = Windows(draw.draw, dilate=True)
    filters = fed(*w.kernel, channels, times, seed=w.seed).value
    more = {**w.attributes, "dilations": w.whole(w.dilations)}
    run(case("DepthwiseConv2dNative", w.image(channels), filters, **more))


@SETTINGS
@given(st.data(), st.integers(1, 4), st.integers(1, 4))
def test_transposed_convolutions(draw: st.DataObject, given_: int, made: int) -> None:
    """The image has the sizes of the window; the gradient as many as the convolution would make."""
    w = Windows(draw.draw, "SAME VALID")
    ends = zip(w.sides, w.kernel, w.strides, strict=True)
    same = w.attributes["padding"] == "SAME"
    sides = [-(-side // s) if same else (side - k) // s + 1 for side, k, s in ends]
    sizes = np.array(w.whole(w.sides, w.batch, made), np.int32)
    computed = draw.draw(st.booleans())
    dy = fed(*w.whole(sides, w.batch, given_), seed=w.seed)
    filters = fed(*w.kernel, made, given_, seed=w.seed).value
    one = case("Conv2DBackpropInput", Fed(sizes) if computed else sizes, filters, dy, **w.attributes)
    run(one, host=computed)


@SETTINGS
@given(st.data(), st.integers(1, 5), st.sampled_from(["MaxPool", "AvgPool"]))
def test_pools(draw: st.DataObject, channels: int, op: str) -> None:
    w = Windows(draw.draw, "SAME VALID EXPLICIT" if op == "MaxPool" else "SAME VALID")
    run(case(op, w.image(channels), ksize=w.whole(w.kernel), **w.attributes))


@SETTINGS
@given(st.data())
def test_strided_slices(draw: st.DataObject) -> None:
    """Every kind of entry, with bounds that may lie outside, constant or computed."""
    shape = draw.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    kinds = draw.draw(st.lists(st.sampled_from(["cut", "single", "new"]), min_size=1, max_size=6))
    while sum(one != "new" for one in kinds) > len(shape):
        kinds.remove(next(one for one in kinds if one != "new"))
    dots = draw.draw(st.integers(0, len(kinds))) if draw.draw(st.booleans()) else None
    used = [one for one in kinds if one != "new"]
    sizes = iter(shape)
    if dots is not None:
        before = sum(one != "new" for one in kinds[:dots])
        sizes = iter(shape[:before] + shape[len(shape) - (len(used) - before) :])
        kinds.insert(dots, "dots")
    rows, masks = [], dict.fromkeys("begin end ellipsis new_axis shrink_axis".split(), 0)
    for i, kind in enumerate(kinds):
        size = next(sizes) if kind in ("cut", "single") else 1
        rows.append(_entry(draw, kind, size))
        for name, on in (("ellipsis", "dots"), ("new_axis", "new"), ("shrink_axis", "single")):
            masks[name] |= (kind == on) << i
        for name in ("begin", "end"):
            masks[name] |= draw.draw(st.booleans()) << i
    begin, end, strides = (np.array(one, np.int32) for one in zip(*rows or [(0, 0, 1)], strict=True))
    computed, free = draw.draw(st.booleans()), draw.draw(st.booleans())
    # Of a slice backwards from before the first element only known sizes tell that it is empty.
    if computed or free:
        begin = np.where(strides < 0, np.maximum(begin, -1), begin)
    bounds = [Fed(one) if computed else one for one in (begin, end)]
    x = fed(*shape, seed=draw.draw(SEEDS), free=free)
    more = {f"{name}_mask": value for name, value in masks.items()}
    run(case("StridedSlice", x, *bounds, strides, **more), host=computed)


def _entry(draw: st.DataObject, kind: str, size: int) -> tuple[int, int, int]:
    if kind == "single":
        at = draw.draw(st.integers(-size, size - 1))
        return at, at + 1, 1
    begin, end = (draw.draw(st.integers(-size - 2, size + 2)) for _ in range(2))
    return begin, end, draw.draw(st.sampled_from([1, 2, 3, -1, -2]))


@SETTINGS
@given(st.data())
def test_gathers(draw: st.DataObject) -> None:
    shape = draw.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    batch = draw.draw(st.integers(0, len(shape) - 1))
    axis = draw.draw(st.integers(batch, len(shape) - 1))
    rest = draw.draw(st.lists(st.integers(1, 3), max_size=2))
    seed = draw.draw(SEEDS)
    dtype = draw.draw(st.sampled_from([np.int32, np.int64]))
    indices = np.random.default_rng(seed).integers(0, shape[axis], [*shape[:batch], *rest]).astype(dtype)
    given_axis = axis - len(shape) if draw.draw(st.booleans()) else axis
    operand = Fed(indices) if draw.draw(st.booleans()) else indices
    run(case("GatherV2", fed(*shape, seed=seed), operand, given_axis, batch_dims=batch))


@SETTINGS
@given(st.data(), st.sampled_from(["ResizeBilinear", "ResizeNearestNeighbor"]))
def test_resizing(draw: st.DataObject, op: str) -> None:
    """Up and down; neither corners nor halves, or one of them."""
    sides = [draw.draw(SIDES) for _ in range(2)]
    wanted = np.array([draw.draw(st.integers(1, 17)) for _ in range(2)], np.int32)
    mode = draw.draw(st.sampled_from(["", "align_corners", "half_pixel_centers"]))
    x = fed(2, *sides, 3, seed=draw.draw(SEEDS), free=draw.draw(st.booleans()))
    run(case(op, x, wanted, **({mode: True} if mode else {})))
