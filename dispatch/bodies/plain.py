# SPDX-License-Identifier: Apache-2.0
"""Dropout with its mask, outside of training; TopK of int64."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from onedispatch.dispatch.bodies.writer import Body, body


@body("Dropout", since=13)
def dropout(b: Body) -> tuple[str, ...]:
    """Nothing is dropped; the mask is true everywhere."""
    if b.number(2, 0):
        raise b.refusal("training_mode", "false")
    return b.op("Identity", b.input(0)), b.constant(np.ones(b.shape(0), bool))


@body("TopK", since=11)
def top_k(b: Body) -> tuple[str, ...]:
    """A radix sort of two digits: by the low words, then by the high ones, which leaves equals in order.

    So exporters sort the lengths of sequences.
    """
    x, shape = b.input(0), b.shape(0)
    if b.value(0).dtype != np.int64 or not shape:
        raise b.refusal(str(b.value(0)), "int64 of one dimension or more")
    axis = int(b.attributes["axis"]) % len(shape)
    order = {"axis": axis, "largest": b.attributes["largest"], "sorted": 1}
    low = b.op("Cast", x, to=TensorProto.UINT32)
    above = b.op("Sub", x, b.op("Cast", low, to=TensorProto.INT64))
    high = b.op("Cast", b.op("Div", above, b.constant(1 << 32, np.int64)), to=TensorProto.INT32)
    by_low = b.last_of("TopK", 2, low, b.constant([shape[axis]], np.int64), **order)
    high = b.op("GatherElements", high, by_low, axis=axis)
    by_high = b.last_of("TopK", 2, high, b.input(1), **order)
    places = b.op("GatherElements", by_low, by_high, axis=axis)
    return b.op("GatherElements", x, places, axis=axis), places
