# SPDX-License-Identifier: Apache-2.0
"""Sliding windows over two spatial dimensions: attributes that Conv and pooling share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.formulas import ROW, many, parts_bytes, vectors
from onedispatch.operators.declarations.kernel import Scalar
from onedispatch.operators.declarations.params import LIMITS
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import (
    OUTPUT,
    Access,
    Dim,
    Operand,
    contiguous_strides,
    strided_operand,
)

WINDOW_SCALARS = (
    *(
        Scalar(f"{name}{axis}", low=1, high=LIMITS["window_step"], default=1)
        for name in "ksd"
        for axis in "hw"
    ),
    Scalar("width", default=0),  # columns of x, without those that fill up words; 0: all that its axis has
)
TAPS = e.named("taps per window", e.scalar("kh") * e.scalar("kw"))


def copied_planes(channels: e.Expr, split: bool = False) -> e.Expr:
    """Cycles of making the input planes of ``channels`` ready, row by row; ``split`` ones as parts.

    Where windows overlap or skip columns, planes are copied, padding and halo included; with a
    horizontal stride, columns are sorted by their phase in a second pass, so that a tap's values lie side
    by side. Windows of one element read the chunk as it lies.
    """
    size = e.device("part_bytes", "x") if split else e.item_bytes("x")
    strided = many(e.scalar("sw"))
    passes = e.largest(e.differs(TAPS, 1), strided) + strided
    row = e.ceiling(e.count("x", "ow") * size / e.device("vector_bytes")) * e.device("gather_cycles")
    return e.named("planes", channels * passes * (e.count("x", "oh") * row + ROW))


def split_planes(channels: e.Expr) -> e.Expr:
    """Cycles of making the planes parts that native products take: all of a chunk is one run."""
    return e.named("pack(x)", vectors(_planes(channels), "x") * e.device("pack_cycles", "x"))


def split_bytes(channels: e.Expr, weights: e.Expr) -> e.Expr:
    """Bytes of scratch for the parts of the planes of ``channels``, and of so many ``weights``."""
    return parts_bytes("x", _planes(channels)) + parts_bytes("w", weights)


def _planes(channels: e.Expr) -> e.Expr:
    """Elements of a chunk of ``channels``."""
    return channels * e.count("x", "oh") * e.count("x", "ow")


@dataclass(frozen=True)
class Window:
    """Kernel, strides, dilations and pads in (height, width); 1-D inputs get height 1."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]  # top, left, bottom, right

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    def access(self, dim: int, axis: int) -> Access:
        """What output coordinate ``i`` of index dimension ``dim`` reads along ``axis`` (0 h, 1 w)."""
        start = -self.pads[axis]
        span = (self.kernel[axis] - 1) * self.dilations[axis]
        return Access(dim, self.strides[axis], start, start + span)

    @property
    def scalars(self) -> dict[str, float | str]:
        """Kernel scalars kh..dw."""
        pairs = zip("ksd", (self.kernel, self.strides, self.dilations), strict=True)
        return {f"{name}{axis}": pair[i] for name, pair in pairs for i, axis in enumerate("hw")}

    def scalars_for(self, x: TensorSpec) -> dict[str, float | str]:
        """The same, and the width of ``x`` where its rows have padding."""
        return {**self.scalars, "width": x.row if x.row_pitch != x.row else 0}


def spatial(shape: Sequence[int]) -> tuple[int, int]:
    """(height, width) of a [N, C, L] or [N, C, H, W] shape."""
    return (1, shape[2]) if len(shape) == 3 else (shape[2], shape[3])


def rows_view(
    name: str, number: int, tensor: TensorSpec, outer: Sequence[int], accesses: Sequence[Access]
) -> Operand:
    """``tensor`` as [*outer, row], rows with their padding; chunks of inputs begin with words."""
    row = tensor.element
    sizes = (*outer, tensor.row_pitch)
    strides = contiguous_strides(sizes)
    *rest, last = accesses
    if row.per_word > 1 and number != OUTPUT:
        last = replace(last, align=row.per_word)
    walked = [
        (size, stride, access) for size, stride, access in zip(sizes, strides, (*rest, last), strict=True)
    ]
    return strided_operand(name, number, row, walked)


def row_dim(name: str, tensor: TensorSpec) -> Dim:
    """The index dimension along the rows of an output, their padding included."""
    unit = tensor.element.per_word
    return Dim(name, tensor.row_pitch, multiple=unit, padding=tensor.row_pitch - tensor.row)


@dataclass(frozen=True)
class WindowAxis:
    """The window along one spatial dimension: taps, steps, and padding before and after the data."""

    kernel: int
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    end: int = 0

    @property
    def plain(self) -> bool:
        """Every output is made of the element at its own place."""
        return (self.kernel, self.stride, self.begin, self.end) == (1, 1, 0, 0)


def window(along: Sequence[WindowAxis]) -> Window:
    """The window over one or two spatial dimensions."""
    h, w = (WindowAxis(1), *along) if len(along) == 1 else along
    steps = ((h.kernel, w.kernel), (h.stride, w.stride), (h.dilation, w.dilation))
    return Window(*steps, (h.begin, w.begin, h.end, w.end))


def along_of(node: NodeSpec, x: TensorSpec, kernel: Sequence[int], output: TensorSpec) -> list[WindowAxis]:
    """The window of a Conv or pooling node, dimension by dimension.

    Raises:
        Unsupported: no or more than three spatial dimensions; steps that no core program takes.
    """
    rank = len(x.shape) - 2
    if rank not in (1, 2, 3):
        raise Unsupported(
            f"{node.op_type} over {rank} spatial dimensions", "one, two or three spatial dimensions"
        )
    strides = [int(v) for v in node.attr("strides") or [1] * rank]
    dilations = [int(v) for v in node.attr("dilations") or [1] * rank]
    pads = [int(v) for v in node.attr("pads") or [0] * (2 * rank)]
    mode = node.attr("auto_pad", "NOTSET") or "NOTSET"
    if mode == "VALID":
        pads = [0] * (2 * rank)
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        pads = _same_pads(node, x, output, kernel, strides, dilations)
    kernel = [int(v) for v in kernel]
    for d, (made, size) in enumerate(zip(output.shape[2:], x.shape[2:], strict=True)):
        whole = 1 + max(size + pads[d] + pads[d + rank] - 1, 0) // dilations[d]
        if made == 1 and kernel[d] > whole:  # of ceil_mode: one window, and beyond it lies nothing
            kernel[d], strides[d] = whole, 1
    check_steps(node, kernel, strides, dilations)
    return [
        WindowAxis(*one) for one in zip(kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    ]


def check_steps(
    node: NodeSpec, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> None:
    most = LIMITS["window_step"]
    for name, values in (("kernel", kernel), ("strides", strides), ("dilations", dilations)):
        if any(value > most for value in values):
            raise Unsupported(f"{node.op_type} with {name} {list(values)}", f"at most {most} each")
    if prod(kernel) > LIMITS["window_taps"]:
        raise Unsupported(f"{node.op_type} with kernel {list(kernel)}", f"{LIMITS['window_taps']} elements")


def _same_pads(
    node: NodeSpec,
    x: TensorSpec,
    output: TensorSpec,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """Of SAME_UPPER and SAME_LOWER. Windows of a pool that leave out two elements or more begin behind the
    first one in some of onnxruntime's pools, and in none of its convolutions: pools of them are refused."""
    begins, ends, upper = [], [], node.attr("auto_pad") == "SAME_UPPER"
    for i, size in enumerate(x.shape[2:]):
        out = output.shape[2 + i]
        total = (out - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - size
        if int((total + (not upper)) / 2) < 0 and "Pool" in node.op_type:
            raise Unsupported(
                f"{node.op_type} with auto_pad, whose windows leave out the last {-total} of {size} elements",
                "explicit pads",
            )
        total = max(0, total)
        small, large = total // 2, total - total // 2
        begins.append(small if upper else large)
        ends.append(large if upper else small)
    return begins + ends


def windows(x: np.ndarray[Any, Any], window: Window, out: tuple[int, int], fill: float) -> Any:
    """x [N, C, H, W] as [N, C, oh, ow, kh, kw], padded with ``fill``: for NumPy references."""
    (kh, kw), (sh, sw), (dh, dw) = window.kernel, window.strides, window.dilations
    x = x[:, :, max(-window.pads[0], 0) :, max(-window.pads[1], 0) :]
    top, left = (max(pad, 0) for pad in window.pads[:2])
    height = max(x.shape[2] + top, (out[0] - 1) * sh + (kh - 1) * dh + 1)
    width = max(x.shape[3] + left, (out[1] - 1) * sw + (kw - 1) * dw + 1)
    padded = np.full((*x.shape[:2], height, width), fill, x.dtype)
    padded[:, :, top : top + x.shape[2], left : left + x.shape[3]] = x
    n, c, h, w = padded.strides
    shape = (*x.shape[:2], *out, kh, kw)
    return np.lib.stride_tricks.as_strided(padded, shape, (n, c, h * sh, w * sw, h * dh, w * dw))
