# SPDX-License-Identifier: Apache-2.0
"""MaxPool and AveragePool over windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onedispatch.operators.base import Lowering, NodeSpec, Operator, TensorSpec, Unsupported
from onedispatch.operators.cost import window_cycles
from onedispatch.operators.elementwise import apply_activation, tensors_of
from onedispatch.operators.index_space import OUTPUT, Access, Dim, Nest, contiguous_strides, strided_operand
from onedispatch.operators.params import POOL_MODES, Activation
from onedispatch.operators.registry import maps
from onedispatch.operators.schedule import Schedule
from onedispatch.operators.window import Window, spatial, window_of, windows
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]


class Pool(Operator):
    """Maximum or average of a window of every channel of [N, C, (H,) W]."""

    kind = "pool"

    def __init__(
        self,
        name: str,
        mode: str,
        x: TensorSpec,
        output: TensorSpec,
        window: Window,
        device: Device,
        activation: Activation | None = None,
    ) -> None:
        super().__init__(name, [x], output, device, activation)
        self.mode, self.window = mode, window

    def nests(self) -> list[Nest]:
        x = self.inputs[0]
        channels = x.shape[0] * x.shape[1]
        (h, w), (oh, ow) = spatial(x.shape), spatial(self.output.shape)
        if channels * oh * ow == 0:
            return []
        dims = (Dim("c", channels), Dim("oh", oh), Dim("ow", ow))
        accesses = (Access(0), self.window.access(1, 0), self.window.access(2, 1))
        sizes, outs = (channels, h, w), (channels, oh, ow)
        inside = strided_operand(
            "x", 0, 4, list(zip(sizes, contiguous_strides(sizes), accesses, strict=True))
        )
        out = strided_operand(
            "out",
            OUTPUT,
            4,
            [(e, s, Access(d)) for d, (e, s) in enumerate(zip(outs, contiguous_strides(outs), strict=True))],
        )

        def cycles(t: Sequence[Any], _k: Any) -> Any:
            return window_cycles(self.device, t[0] * t[1] * t[2], self.window.taps)

        return [Nest("POOL", dims, (inside,), out, self._args, cycles)]

    def _args(self, s: Schedule) -> Mapping[str, int | list[int]]:
        top, left, bottom, right = self.window.pads
        self.window.check_plane(s.tiles[1], s.tiles[2])
        return {
            "dim_c": 0,
            "dim_oh": 1,
            "dim_ow": 2,
            **self.window.words(),
            "x": s.ref("x"),
            **self.window.axis_words(s, (0, 1, 2)),
            "mode": POOL_MODES[self.mode],
            "act": self.activation.words(),
            "pad_top": top,
            "pad_left": left,
            "pad_bottom": bottom,
            "pad_right": right,
        }

    def reference(self, *arrays: Array) -> Array:
        x = arrays[0].reshape(*arrays[0].shape[:2], *spatial(arrays[0].shape))
        out = spatial(self.output.shape)
        if self.mode == "max":
            y = windows(x, self.window, out, -np.inf).max(axis=(-1, -2))
        else:
            ones = np.ones((1, 1, *x.shape[2:]), np.float32)
            if self.mode == "average_include_pad":
                top, left, bottom, right = self.window.pads
                ones = np.pad(ones, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=1)
                shifted = Window(self.window.kernel, self.window.strides, self.window.dilations, (0, 0, 0, 0))
                count = windows(ones, shifted, out, 0.0).sum(axis=(-1, -2))
            else:
                count = windows(ones, self.window, out, 0.0).sum(axis=(-1, -2))
            y = windows(x, self.window, out, 0.0).sum(axis=(-1, -2)) / count
        return apply_activation(self.activation, y.astype(np.float32)).reshape(self.output.shape)


@maps("MaxPool", "AveragePool", notes="1-D and 2-D, dilations, ceil_mode; no Indices output")
def map_pool(node: NodeSpec, lowering: Lowering) -> None:
    (x,), output = tensors_of(node)
    if len(node.outputs) > 1 and node.outputs[1] is not None:
        raise Unsupported("MaxPool with its Indices output", "the first output only")
    window = window_of(node, x, node.attr("kernel_shape"), output)
    mode = "max"
    if node.op_type == "AveragePool":
        include = node.attr("count_include_pad", 0)
        mode = "average_include_pad" if include else "average_exclude_pad"
    lowering.emit(Pool(node.name, mode, x, output, window, lowering.device))
