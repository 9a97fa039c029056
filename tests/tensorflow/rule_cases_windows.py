# SPDX-License-Identifier: Apache-2.0
"""Cases of our rules for convolutions, pooling, and normalisation over channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.tensorflow.rule_case import Case, Fed, case, data, fed

PLAIN: Mapping[str, Any] = {"strides": [1, 1, 1, 1]}
TWO: Mapping[str, Any] = {"strides": [1, 2, 2, 1]}
FIRST: Mapping[str, Any] = {"data_format": "NCHW"}
LISTED: Mapping[str, Any] = {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0]}
SAME: Mapping[str, Any] = {"padding": "SAME"}
VALID: Mapping[str, Any] = {"padding": "VALID"}
X = fed(2, 7, 6, 4)
X_FIRST = fed(2, 4, 7, 6)


def _convolutions() -> list[Case]:
    w = data(3, 3, 4, 5)
    free = fed(2, 7, 6, 4, free=True)
    return [
        case("Conv2D", X, w, **SAME, **TWO),
        case("Conv2D", free, data(3, 2, 4, 5), **VALID, **PLAIN, note="free"),
        case("Conv2D", X, data(3, 3, 2, 6), **SAME, **PLAIN, note="groups"),
        case("Conv2D", X, w, **LISTED, **TWO, note="listed"),
        case("Conv2D", X, w, **SAME, **PLAIN, dilations=[1, 2, 1, 1], note="dilated"),
        case("Conv2D", X_FIRST, w, **SAME, **PLAIN, **FIRST, note="first"),
        case("Conv2D", X, fed(3, 3, 4, 5), **SAME, **PLAIN, note="computed filter"),
        case("Conv3D", fed(1, 4, 5, 6, 2), data(2, 3, 3, 2, 3), **SAME, strides=[1, 1, 2, 1, 1]),
        case("DepthwiseConv2dNative", X, data(3, 3, 4, 2), **SAME, **TWO),
        case("DepthwiseConv2dNative", X, fed(3, 3, 4, 1), **VALID, **PLAIN, note="computed"),
        case("DepthwiseConv2dNative", X_FIRST, data(3, 3, 4, 1), **SAME, **PLAIN, **FIRST, note="first"),
    ]


def _gradients() -> list[Case]:
    """Of convolutions by their image: sizes of the image that strides leave open, constant and computed."""
    w, cases = data(3, 4, 3, 4), list[Case]()
    for padding, height, width in (("SAME", 14, 11), ("VALID", 16, 15), ("SAME", 13, 12)):
        sizes = np.array([2, height, width, 3], np.int32)
        for given, computed in ((sizes, ""), (Fed(sizes), " computed")):
            more = {**TWO, "padding": padding, "note": f"{padding} {height}{computed}"}
            cases.append(case("Conv2DBackpropInput", given, w, fed(2, 7, 6, 4), **more))
    filters, dy = data(3, 3, 4, 2), fed(2, 7, 6, 8)
    cases.append(case("DepthwiseConv2dNativeBackpropInput", [2, 14, 12, 4], filters, dy, **SAME, **TWO))
    filters, dy = data(2, 3, 3, 3, 2), fed(1, 4, 3, 3, 2)
    strides = [1, 2, 2, 2, 1]
    return [*cases, case("Conv3DBackpropInputV2", [1, 8, 6, 6, 3], filters, dy, **SAME, strides=strides)]


def _pools() -> list[Case]:
    three: dict[str, Any] = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1]}
    first: dict[str, Any] = {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2]}
    batch: dict[str, Any] = {"include_batch_in_index": True, "Targmax": np.int32}
    return [
        case("MaxPool", X, ksize=[1, 3, 2, 1], **SAME, **TWO),
        case("MaxPool", X, ksize=[1, 2, 2, 1], **VALID, **TWO, note="valid"),
        case("MaxPool", X, ksize=[1, 3, 3, 1], **LISTED, **TWO, note="listed"),
        case("MaxPool", X_FIRST, **first, **SAME, **FIRST, note="first"),
        case("MaxPoolV2", X, [1, 3, 2, 1], [1, 2, 2, 1], **SAME),
        case("MaxPoolWithArgmax", X, ksize=[1, 3, 2, 1], **SAME, **TWO),
        case("MaxPoolWithArgmax", X, ksize=[1, 2, 2, 1], **VALID, **TWO, **batch, note="batch"),
        case("AvgPool", X, ksize=[1, 3, 3, 1], **SAME, **TWO),
        case("AvgPool", X, ksize=[1, 3, 3, 1], **VALID, **TWO, note="valid"),
        case("MaxPool3D", fed(1, 4, 5, 6, 2), **three, **SAME),
        case("AvgPool3D", fed(1, 4, 5, 6, 2), **three, **SAME),
    ]


def _norms() -> list[Case]:
    norm = [data(4), data(4, seed=1), data(4, seed=2), np.abs(data(4, seed=3))]
    names = "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3".split()
    cases = [case(name, X, *norm, is_training=False, epsilon=0.01) for name in names]
    cases.append(case(names[-1], X_FIRST, *norm, is_training=False, **FIRST, note="first"))
    for name in names:
        cases.append(case(name, fed(1, 5, 6, 4), *norm, is_training=True, note="one image"))
    for scaled in (True, False):
        more: dict[str, Any] = {
            "variance_epsilon": 0.01,
            "scale_after_normalization": scaled,
            "note": str(scaled),
        }
        cases.append(case("BatchNormWithGlobalNormalization", X, *(norm[i] for i in (2, 3, 1, 0)), **more))
    return [
        *cases,
        case("BiasAdd", X, data(4)),
        case("BiasAdd", X_FIRST, data(4), **FIRST, note="first"),
        case("BiasAddV1", fed(3, 4), fed(4)),
        case("LRN", fed(2, 3, 4, 9), depth_radius=2, bias=1.5, alpha=0.3, beta=0.6),
    ]


CASES: Sequence[Case] = [*_convolutions(), *_gradients(), *_pools(), *_norms()]
