# SPDX-License-Identifier: Apache-2.0
"""Estimates of core cycles per kernel call, for choosing schedules.

The simulator charges what its kernels say; these formulas follow the same constants
(section ``kernel`` of the device descriptions) and only have to rank tilings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onedispatch.transactions import Device

_SPECIAL = ("sigmoid", "tanh", "exp", "sqrt", "erf", "log", "reciprocal")


def _product(values: Sequence[Any]) -> Any:
    result: Any = 1
    for value in values:
        result = result * value
    return result


def _words(device: Device, elements: Any, specials: float = 0.0) -> Any:
    """Call cycles, the words through the vector unit, ``specials`` slow functions per element."""
    per_element = 1.0 / device.constant("kernel.words_per_cycle")
    per_special = device.constant("kernel.special_cycles_per_element")
    return device.constant("kernel.call_cycles") + elements * (per_element + specials * per_special)


def eltwise_cycles(device: Device, tiles: Sequence[Any], n_in: int, activation: str, func: str) -> Any:
    """Cycles of an element-wise call over a tile box of 4-byte elements."""
    specials = float(activation in _SPECIAL) + float(func in ("div", "pow"))
    elements = _product(tiles)
    return _words(device, elements, specials) + elements * n_in / 16


def mac_cycles(device: Device, macs: Any, outputs: Any, dtype: str) -> Any:
    """Cycles of ``macs`` multiply-accumulates into ``outputs`` accumulators."""
    kind = {"f32": "f32", "i8i32": "i8"}[dtype]
    return (
        device.constant(f"kernel.{kind}_call_cycles")
        + macs / device.constant(f"kernel.{kind}_macs_per_cycle")
        + outputs * device.constant(f"kernel.{kind}_output_cycles")
    )


def window_cycles(device: Device, outputs: Any, taps: int) -> Any:
    """Cycles of a pooling or depthwise call: ``taps`` per output element."""
    return _words(device, outputs) + outputs * taps / device.constant("kernel.window_macs_per_cycle")


def row_cycles(device: Device, elements: Any, specials: float) -> Any:
    """Cycles of a kernel that walks its chunk, with ``specials`` slow functions per element."""
    return _words(device, elements, specials)
