# SPDX-License-Identifier: Apache-2.0
"""Taps of a window that meet no data: they see padding alone, wherever the window stands.

Dilated windows on small planes have them (the pyramids of segmentation networks), and 3 x 3 windows on planes
of one element (the last levels of detectors).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.kernels.window import WindowAxis


def live_taps(axis: WindowAxis, extent: int, made: int) -> tuple[range, WindowAxis]:
    """The taps of ``axis`` from the first to the last that meets data, and the window that has these alone.

    ``extent`` and ``made``: the elements of data and result along it. All taps where none meets data, or
    where no padding in front of fewer taps gives the same results.
    """
    at = np.arange(made)[:, None] * axis.stride + np.arange(axis.kernel) * axis.dilation - axis.begin
    live = np.flatnonzero(((at >= 0) & (at < extent)).any(axis=0))
    if not live.size:
        return range(axis.kernel), axis
    taps = range(int(live[0]), int(live[-1]) + 1)
    begin, span = axis.begin - taps.start * axis.dilation, axis.dilation * (len(taps) - 1) + 1
    end = max(0, (made - 1) * axis.stride + span - extent - begin)
    if begin < 0 or (extent + begin + end - span) // axis.stride + 1 != made:
        return range(axis.kernel), axis
    return taps, replace(axis, kernel=len(taps), begin=begin, end=end)


def of_live_taps(
    weights: TensorSpec, along: tuple[WindowAxis, ...], x: TensorSpec, output: TensorSpec, lowering: Lowering
) -> tuple[TensorSpec, tuple[WindowAxis, ...]]:
    """Constant ``weights`` [M, C, *kernel] and their window without taps that meet no data.

    They stay where a weight is infinite or NaN: times the zeros of padding it is not zero.
    """
    extents = zip(along, x.shape[2:], output.shape[2:], strict=True)
    taps, kept = zip(*(live_taps(*one) for one in extents), strict=True)
    if weights.value is None or kept == along or not output.size:
        return weights, along
    value: np.ndarray[Any, Any] = np.asarray(weights.value)
    if value.dtype.kind not in "iu" and not np.isfinite(value.astype(np.float32)).all():
        return weights, along
    inside = (slice(None), slice(None), *(slice(one.start, one.stop) for one in taps))
    return lowering.const(np.ascontiguousarray(value[inside])), kept
