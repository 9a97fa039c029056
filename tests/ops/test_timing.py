# SPDX-License-Identifier: Apache-2.0
"""What a clock without data says of every operator: what its run reports."""

from __future__ import annotations

import onedispatch as od
from tests.ops.case import Case
from tests.ops.cases import CASES
from tests.tables import each_case, operator_and_device, sampled
from tests.timing import modelled


@each_case(sampled(CASES, operator_and_device, every=20), group=lambda case: str(case.op_type))
def test_timing_is_that_of_a_run(case: Case) -> None:
    session = od.InferenceSession(case.model, device=case.device, fallback="error", record=False)
    session.run(None, case.feed)
    assert modelled(session.model.timing()) == modelled(session.last_run)
