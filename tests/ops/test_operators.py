# SPDX-License-Identifier: Apache-2.0
"""Every case of the table on the simulated array, in strict mode, against onnxruntime.

A clock without data says of each what its run reports.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import onedispatch
from tests.ops.case import Case, case, check, f32, run_onnxruntime
from tests.ops.cases import CASES
from tests.tables import each_case, operator_and_device, operator_and_types, sampled
from tests.timing import modelled

EVERY = 16  # of the other cases of an operator and its types one in so many; `make nightly` runs all


@each_case(sampled(CASES, operator_and_types, EVERY), group=operator_and_device)
def test_device_equals_onnxruntime(case: Case) -> None:
    session = onedispatch.InferenceSession(case.model, device=case.device, fallback="error")
    outputs = session.run(None, case.feed)
    assert len(outputs) == len(case.expected)
    for actual, expected in zip(outputs, case.expected, strict=True):
        check(actual, expected, case.allowed)
    assert modelled(session.model.timing()) == modelled(session.last_run)


@pytest.mark.parametrize("shape", [(2, 8, 101), (2, 5, 3, 2, 2)], ids=str)
def test_lrn_of_other_ranks(shape: tuple[int, ...]) -> None:
    """onnxruntime has four dimensions only: the same data in four."""
    flat = case("LRN", f32(*shape[:2], int(np.prod(shape[2:])), 1), size=3, alpha=0.5)
    own = case("LRN", f32(*shape), size=3, alpha=0.5)
    x = flat.feed["x0"]
    (actual,) = onedispatch.InferenceSession(own.model, fallback="error").run(None, {"x0": x.reshape(shape)})
    check(actual.reshape(x.shape), run_onnxruntime(flat.model, {"x0": x})[0], own.allowed)


@pytest.mark.parametrize("size", [2, 4])
def test_lrn_of_even_sizes(size: int) -> None:
    """onnxruntime has odd sizes only; onnx's own reference has all, where there are as many images as
    channels (it walks over the wrong dimension)."""
    own = case("LRN", f32(7, 7, 3, 5), size=size, alpha=0.5)
    (result,) = ReferenceEvaluator(own.model).run(None, own.feed)
    expected = np.asarray(result)
    (actual,) = onedispatch.InferenceSession(own.model, fallback="error").run(None, own.feed)
    check(actual, expected.astype(np.float32), own.allowed)
