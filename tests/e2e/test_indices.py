# SPDX-License-Identifier: Apache-2.0
"""Indices outside of their axis: an error that names node, index and bound, and never another element."""

from __future__ import annotations

import numpy as np
import pytest

import onedispatch
from onedispatch.operators.declarations.statuses import ERRORS
from tests.ops.case import Case, case, f32, value

INDEX = ERRORS[-34]
EXTENT = 37


def gather(at: int, const: bool) -> Case:
    return case("Gather", f32(5, EXTENT), value([3, at, -EXTENT], "int64", const), axis=1)


@pytest.mark.parametrize("at", [EXTENT, -EXTENT - 1, 2**31 - 1, -(2**31)])
def test_computed_ones_end_the_run(at: int) -> None:
    good, bad = gather(EXTENT - 1, False), gather(at, False)
    session = onedispatch.InferenceSession(good.model, fallback="error")
    x = good.feed["x0"]
    for feed, fails in ((good.feed, False), ({**bad.feed, "x0": x}, True), (good.feed, False)):
        if not fails:
            np.testing.assert_array_equal(session.run(None, feed)[0], x[:, [3, EXTENT - 1, 0]])
            continue
        with pytest.raises(INDEX, match=rf"node 'node'.*index {at} .*axis of {EXTENT}") as caught:
            session.run(None, feed)
        assert caught.value.node == "node" and isinstance(caught.value, onedispatch.SimulationError)


@pytest.mark.parametrize("at", [EXTENT, -EXTENT - 1])
def test_constant_ones_are_refused(at: int) -> None:
    with pytest.raises(
        onedispatch.UnsupportedModelError, match=rf"index {at} of node along an axis of {EXTENT}"
    ):
        onedispatch.InferenceSession(gather(at, True).model, fallback="error")
