# SPDX-License-Identifier: Apache-2.0
"""Every case of the table on the simulated array, in strict mode, against onnxruntime."""

from __future__ import annotations

import pytest

import onedispatch
from tests.ops.case import Case, check
from tests.ops.cases import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_device_equals_onnxruntime(case: Case) -> None:
    session = onedispatch.InferenceSession(case.model, device=case.device, fallback="error")
    outputs = session.run(None, case.feed)
    assert len(outputs) == len(case.expected)
    for actual, expected in zip(outputs, case.expected, strict=True):
        check(actual, expected, case.allowed)
