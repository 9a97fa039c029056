# SPDX-License-Identifier: Apache-2.0
"""Rules for tables that are looked up, and for operators that ONNX took over."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.dispatch.contrib.domain import contrib, given, summed, unsqueezed
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import SourceNode

contrib.op("GatherND")
contrib.op("Range")
contrib.op("Trilu").auto()


@contrib.expand("Pad")
def pad(g: Builder, n: SourceNode) -> Any:
    """The pads may be a row of a matrix, the value a list of one."""
    x, value = n.inputs[0], given(n, 2)
    pads = g.Reshape(n.inputs[1], g.constant([-1], np.int64))
    if value is not None:
        value = g.Reshape(value, g.constant(np.zeros(0), np.int64))
    return g.Pad(x, pads, value)


@contrib.expand("ExpandDims", inherit=False)
def expand_dims(g: Builder, n: SourceNode) -> Any:
    axis = n.inputs[1].constant
    if axis is None:
        raise Refused(f"the axis ({n.inputs[1]}) is computed, where a constant is expected")
    return unsqueezed(g, n.inputs[0], [int(axis.reshape(-1)[0])])


@contrib.expand("CDist", inherit=False)
def distances(g: Builder, n: SourceNode) -> Any:
    """Of every row of A to every row of B."""
    metric = n.attr("metric", b"sqeuclidean")
    metric = metric.decode() if isinstance(metric, bytes) else metric
    if metric not in ("sqeuclidean", "euclidean"):
        raise Refused(f"metric {metric!r}, where sqeuclidean and euclidean are known")
    a, b = n.inputs
    apart = g.Sub(unsqueezed(g, a, [1]), unsqueezed(g, b, [0]))
    found = summed(g, g.Mul(apart, apart), [2])
    return found if metric == "sqeuclidean" else g.Sqrt(found)


@contrib.expand("GatherBlockQuantized", inherit=False)
def gather_dequantised(g: Builder, n: SourceNode) -> Any:
    """Rows of a table of packed integers, with a scale for each block of them."""
    scales, zeros = n.inputs[2], given(n, 3)
    axis, block = int(n.attr("quantize_axis", 1)), int(n.attr("block_size", 128))
    bits = int(n.attr("bits", 4))
    table = n.inputs[0]
    if table.dtype == np.uint8:
        if bits == 8 and zeros is None:
            zeros = g.constant(np.full(_shape(scales), 128, np.uint8))
        elif bits != 8:
            table, zeros = _unpacked(g, n, bits)
    rows = g.DequantizeLinear(table, scales, zeros, axis=axis, block_size=block)
    return g.Gather(rows, n.inputs[1], axis=int(n.attr("gather_axis", 0)))


def _shape(x: Any) -> tuple[int, ...]:
    if x.shape is None or not all(isinstance(one, int) for one in x.shape):
        raise Refused(f"{x} has an unknown shape")
    return tuple(x.shape)


def _unpacked(g: Builder, n: SourceNode, bits: int) -> tuple[Any, Any]:
    """The table and its zero points, one number to a byte; low bits come first."""
    scales, zeros = n.inputs[2], given(n, 3)
    tables = [n.inputs[0].constant, None if zeros is None else zeros.constant]
    if tables[0] is None or (zeros is not None and tables[1] is None):
        raise Refused("a packed table that is computed, where a constant is expected")
    shape = _shape(scales)
    apart = [None if one is None else _numbers(one, bits) for one in tables]
    if apart[1] is None:
        return g.constant(apart[0]), g.constant(np.full(shape, 1 << bits - 1, np.uint8))
    return g.constant(apart[0]), g.constant(apart[1][..., : shape[-1]])


def _numbers(packed: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    apart = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return np.asarray(apart.reshape(*packed.shape[:-1], -1))
