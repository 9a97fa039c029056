# SPDX-License-Identifier: Apache-2.0
"""What dynamically quantised operators leave to the host."""

from __future__ import annotations

import numpy as np
import pytest

import onedispatch as od
from tests.ops.case import Case, value
from tests.ops.cases_dynamic import lstm


def of_lengths(*lengths: int) -> Case:
    """A DynamicQuantizeLSTM of 4 steps and 2 sequences."""
    return lstm("int8", 4, 2, 9, 12, "forward", True, None, value(np.array(lengths), "int32"))


def test_a_scale_counts_steps_that_some_sequence_has() -> None:
    """onnxruntime does not look at x behind the longest, so nor may the scale that is made of x."""
    assert od.compile(of_lengths(4, 2).model, fallback="error").placement
    with pytest.raises(
        od.UnsupportedModelError, match="DynamicQuantizeLSTM: sequences that may all be shorter"
    ):
        od.compile(of_lengths(3, 2).model, fallback="error")
