# SPDX-License-Identifier: Apache-2.0
"""Averages of quantised tensors, as onnxruntime computes them.

Averages of whole images are integer sums, requantised by a factor that holds their number: products with
ones. Others are sums of floats, window by window, whose quotient is rounded with the zero point added.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations.registry import MICROSOFT, Inferred, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.kernels.pool import Pool
from onedispatch.operators.kernels.quant_params import QuantParams
from onedispatch.operators.kernels.quantise import Dequantise, Quantise, ScaleAxis
from onedispatch.operators.kernels.window import along_of, window
from onedispatch.operators.lowering.movement import emit_narrow, emit_wide
from onedispatch.operators.lowering.qlinear import BYTES, NARROW, SCALED, bytes_of, unary_of, zero_of
from onedispatch.transactions.base.text import counted

_WIDE = np.dtype(np.float32)


def emit_whole_average(
    name: str,
    x: TensorSpec,
    read: QuantParams,
    written: QuantParams,
    output: TensorSpec,
    lowering: Lowering,
    last: bool,
) -> None:
    """Averages of all pixels of ``x`` [N, C, ...], or [N, ..., C] where channels come ``last``."""
    pixels = prod(x.shape[1:-1] if last else x.shape[2:])
    factor = read.scale / (written.scale * np.float32(pixels))
    options: dict[str, Any] = {
        "scale": lowering.const(np.array([factor], np.float32)),
        "out_zero": zero_of(written.zero, x, lowering),
        "b_zero" if last else "a_zero": zero_of(read.zero, x, lowering),
    }
    if last:
        n, c = x.shape[0], x.shape[-1]
        a, b = lowering.const(np.ones((1, pixels), x.dtype)), x.reshaped((n, pixels, c))
        shape: tuple[int, ...] = (n, 1, c)
    else:
        ones = np.int8 if x.element.itemsize == 2 else x.dtype  # bytes are multiplied faster
        a, b = _rows(name, x, pixels, lowering), lowering.const(np.ones((pixels, 1), ones))
        shape = (a.shape[0], 1)
    made = lowering.temp(x.dtype, shape)
    lowering.emit(MatMul(name, a, b, made, lowering.device, ProductOptions(**options)))
    lowering.alias(output, made)


def _rows(name: str, x: TensorSpec, pixels: int, lowering: Lowering) -> TensorSpec:
    """``x`` with a row for every image: other rows than before where those have padding."""
    rows = lowering.temp(x.dtype, (prod(x.shape[:2]), pixels))
    if x.lies_as(rows):
        return x.reshaped(rows.shape)
    emit_narrow(name, emit_wide(name, x, lowering), rows, lowering)
    return rows


def _emit_windows(
    node: NodeSpec,
    x: TensorSpec,
    read: QuantParams,
    written: QuantParams,
    output: TensorSpec,
    lowering: Lowering,
) -> None:
    """Averages of windows in float32, divided by the scale, the zero point added, rounded once."""
    name, device = node.name, lowering.device
    along = along_of(node, x, node.attr("kernel_shape"), output)
    if len(along) > 2:
        raise Unsupported(f"{node.op_type} over three dimensions", "one or two")
    floats = lowering.temp(_WIDE, x.shape)
    zero = zero_of(read.zero, x, lowering)
    operands = [x, lowering.const(np.array(read.scale)), *([] if zero is None else [zero])]
    lowering.emit(Dequantise(name, operands, floats, device, ScaleAxis()))
    averages, quotients, placed = (lowering.temp(_WIDE, output.shape) for _ in range(3))
    mode = "average_include_pad" if node.attr("count_include_pad", 0) else "average_exclude_pad"
    lowering.emit(Pool(name, mode, floats, averages, window(along), device))
    for func, source, number, made in (
        ("div", averages, written.scale, quotients),
        ("add", quotients, np.float32(written.zero), placed),
    ):
        lowering.emit(Eltwise(name, func, [source, lowering.const(np.array(number))], made, device))
    one = lowering.const(np.array(1, np.float32))
    lowering.emit(Quantise(name, [placed, one], output, device, ScaleAxis()))


def _pixels(node: NodeSpec) -> Inferred:
    x = bytes_of(node, 0, NARROW)
    ones = (1,) * (len(x.shape) - 2)
    last = node.attr("channels_last", 0)
    return [(x.dtype, (x.shape[0], *ones, x.shape[-1]) if last else (*x.shape[:2], *ones))]


@maps(
    "QLinearGlobalAveragePool",
    dtypes=NARROW,
    domain=MICROSOFT,
    infer=_pixels,
    notes=f"channels_last; {SCALED}",
)
def map_qlinear_global_average_pool(node: NodeSpec, lowering: Lowering) -> None:
    x, output, read, written = unary_of(node, NARROW)
    last = bool(node.attr("channels_last", 0))
    emit_whole_average(node.name, x, read, written, output, lowering, last)


def _windows(node: NodeSpec) -> Inferred:
    """Extents of the results, as ONNX's AveragePool has them."""
    x = bytes_of(node, 0)
    rank, floor = len(x.shape) - 2, not node.attr("ceil_mode", 0)
    strides, pads = node.attr("strides") or [1] * rank, node.attr("pads") or [0] * (2 * rank)
    mode, kernel = node.attr("auto_pad", "NOTSET") or "NOTSET", node.attr("kernel_shape") or []
    if (len(kernel), len(strides), len(pads)) != (rank, rank, 2 * rank) or min(strides, default=1) < 1:
        raise Unsupported(f"a window of {kernel}, strides {strides}, pads {pads}", counted(rank, "dimension"))
    made = []
    last = node.attr("channels_last", 0)
    images, channels = x.shape[:1], x.shape[-1:] if last else x.shape[1:2]
    for d, size in enumerate(x.shape[1:-1] if last else x.shape[2:]):
        step = int(strides[d])
        before, after = (int(pads[d]), int(pads[d + rank])) if mode == "NOTSET" else (0, 0)
        room = size + before + after - int(kernel[d])
        count = room // step if floor else -(-room // step)
        if not floor and count * step >= size + before:  # would begin behind the last element
            count -= 1
        made.append(-(-size // step) if mode.startswith("SAME") else count + 1)
    return [(x.dtype, (*images, *made, *channels) if last else (*images, *channels, *made))]


@maps(
    "QLinearAveragePool",
    dtypes=BYTES,
    domain=MICROSOFT,
    infer=_windows,
    notes=f"one or two dimensions, count_include_pad; no channels_last, no ceil_mode; {SCALED}",
)
def map_qlinear_average_pool(node: NodeSpec, lowering: Lowering) -> None:
    x, output, read, written = unary_of(node)
    for attribute in ("channels_last", "ceil_mode"):
        if node.attr(attribute, 0):
            raise Unsupported(f"QLinearAveragePool with {attribute}", f"{attribute} of 0")
    pads = node.attr("pads") or []
    whole = list(node.attr("kernel_shape")) == list(x.shape[2:]) and not any(pads)
    if whole and output.shape[2:] == (1,) * (len(x.shape) - 2):
        emit_whole_average(node.name, x, read, written, output, lowering, last=False)
    else:
        _emit_windows(node, x, read, written, output, lowering)
