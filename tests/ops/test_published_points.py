# SPDX-License-Identifier: Apache-2.0
"""Modelled products at published tiles beside measurements; ``tests.bench.gemm_points`` prints them all."""

from __future__ import annotations

import pytest

from tests.bench.gemm_points import POINTS, Tiled, tops


@pytest.mark.parametrize("name", ["P7", "P11"])
def test_modelled_throughput_is_near_the_measured_one(name: str) -> None:
    point = POINTS[name]
    modelled = tops(point.device, point.out, point.size, True, Tiled(point.tile), "narrow")
    assert abs(modelled / point.tops - 1) < 0.06
