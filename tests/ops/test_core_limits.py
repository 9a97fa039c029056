# SPDX-License-Identifier: Apache-2.0
"""What no core program takes is refused when it is mapped: a reason in strict mode, else the host's."""

from __future__ import annotations

import pytest

import onedispatch as od
from onedispatch.operators.declarations.params import LIMITS, ParamBlock
from onedispatch.operators.kernels.channel_norm import LRN
from tests.ops.case import Case, Tolerance, case, check, f32, weight

STEP = LIMITS["window_step"] + 1
BEYOND = [
    case("MaxPool", f32(1, 2, 9000), kernel_shape=[STEP]),
    case("AveragePool", f32(1, 1, 300, 300), kernel_shape=[260, 260]),
    case("MaxPool", f32(1, 2, 9000), kernel_shape=[3], strides=[STEP]),
    case("MaxPool", f32(1, 2, 9000), kernel_shape=[2], dilations=[STEP]),
    case("AveragePool", f32(1, 2, 9000), kernel_shape=[3], strides=[70_000], ceil_mode=1),
    case("Conv", f32(1, 2, 9000), weight(2, 2, 2), strides=[STEP]),
    case("Conv", f32(1, 2, 9000), weight(2, 1, 2), dilations=[STEP], group=2),
    case("LRN", f32(1, 6, 2, 2), size=LIMITS["lrn_size"] + 1),
    case("AveragePool", f32(1, 2, 9, 6), kernel_shape=[1, 1], strides=[3, 1], auto_pad="SAME_UPPER"),
    case("LpPool", f32(1, 2, 12, 6), kernel_shape=[2, 1], strides=[6, 1], auto_pad="SAME_LOWER"),
]


@pytest.mark.parametrize("examined", BEYOND, ids=lambda examined: examined.id)
def test_what_no_core_takes_runs_on_the_host(examined: Case) -> None:
    with pytest.raises(od.UnsupportedModelError):
        od.InferenceSession(examined.model, fallback="error").run(None, examined.feed)
    session = od.InferenceSession(examined.model)
    (answer,) = session.run(None, examined.feed)
    check(answer, examined.expected[0], Tolerance(ulp=1))
    assert [p.device for p in session.placement] == ["cpu"]


@pytest.mark.parametrize("size", [(1 << 32) + 3, -(1 << 31) - 1])
def test_a_number_that_is_no_word_is_never_cut_off(size: int) -> None:
    with pytest.raises(od.OperatorError, match="od::lrn@1"):
        ParamBlock(LRN).set_scalar("size", size)
