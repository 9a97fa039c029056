# SPDX-License-Identifier: Apache-2.0
"""Estimates of core cycles per kernel call, for choosing schedules.

The simulator charges what its kernels say; these formulas follow the same constants
(section ``kernel`` of the device descriptions) but only have to rank tilings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onedispatch.transactions import Device

CALL_CYCLES = 150  # function entry, address set-up, loop prologue


def _product(values: Sequence[Any]) -> Any:
    result: Any = 1
    for value in values:
        result = result * value
    return result


def eltwise_cycles(device: Device, tiles: Sequence[Any], n_in: int, activation: str, func: str) -> Any:
    """Cycles of an element-wise call over a tile box of 4-byte elements."""
    per_element = 0.25 if activation in ("none", "relu", "clip", "leakyrelu") else 2.0
    if func in ("div", "pow"):
        per_element += 1.0
    return CALL_CYCLES + _product(tiles) * (per_element + n_in / 16)


def mac_cycles(device: Device, macs: Any, outputs: Any, dtype: str) -> Any:
    """Cycles of ``macs`` multiply-accumulates into ``outputs`` accumulators."""
    fast = device.device_generation >= 4
    peak = {"f32": 85.0 if fast else 42.0, "i8i32": 512.0 if fast else 256.0}[dtype]
    return CALL_CYCLES + macs / peak + outputs * 0.13


def window_cycles(device: Device, outputs: Any, taps: int) -> Any:
    """Cycles of a pooling or depthwise call: ``taps`` per output element."""
    return CALL_CYCLES + outputs * (0.25 + taps / 8)


def row_cycles(device: Device, elements: Any, passes: float) -> Any:
    """Cycles of a kernel that walks its chunk ``passes`` times."""
    return CALL_CYCLES + elements * passes / 8
