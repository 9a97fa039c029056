# SPDX-License-Identifier: Apache-2.0
"""Random shapes and attributes per operator family: on the array and by reference, and their
schedules. The same examples on every run (derandomised), a bounded number of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onedispatch
from onedispatch.operators.scheduling.schedule import Schedule
from tests.ops.case import Case, check
from tests.ops.cases import FAMILIES
from tests.ops.lowered import evaluate, lower, reference
from tests.tables import examples

EXAMPLES = examples(80)
BOUNDED = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("family", FAMILIES)
@BOUNDED
@given(data=st.data())
def test_random_case(family: str, data: st.DataObject) -> None:
    case: Case = data.draw(FAMILIES[family])
    lowered = lower(case)
    check(evaluate(case, reference, lowered), case.expected[0], case.allowed)
    for _, op in lowered.ops:
        for schedule in op.schedules:
            check_schedule(schedule)
    session = onedispatch.InferenceSession(case.model, device=case.device, fallback="error")
    check(session.run(None, case.feed)[0], case.expected[0], case.allowed)


def check_schedule(schedule: Schedule) -> None:
    """Tiles cover the index space, fit the memories, and the counts belong together."""
    s, dims = schedule, schedule.nest.dims
    assert all(1 <= tile <= dim.extent for tile, dim in zip(s.tiles, dims, strict=True))
    assert s.inner_steps * s.k_tile >= s.nest.k_extent > (s.inner_steps - 1) * s.k_tile or not s.nest.reduces
    visited = np.zeros([dim.extent for dim in dims], bool)
    for column in range(s.mapping.columns):
        for row in range(s.active_rows):
            loops = [s.counts[d] for d in s.mapping.order]
            along = [np.broadcast_to(at, (1, *loops)).reshape(-1) for at in s.origins_of(column, [row])]
            origins = np.stack(along, axis=-1)
            for origin in np.unique(origins, axis=0):
                visited[tuple(slice(o, o + t) for o, t in zip(origin, s.tiles, strict=True))] = True
                assert all(0 <= o <= d.extent - t for o, d, t in zip(origin, dims, s.tiles, strict=True))
    assert visited.all()
    assert s.active_rows <= s.limits.rows and s.mapping.columns <= s.device.columns
    assert 1 <= s.busy_cores <= s.active_rows * s.mapping.columns
    core = sum(s.port_words(p) * s.port_depth(p) for p in (0, 1)) + s.out_words * s.out_depth
    beside = s.scratch_words - s.out_words * s.sums_in_slot
    assert s.limits.core_holds(core + s.nest.longer_block, beside)
    rings = s.limits.rows * (s.port_words(0) + s.out_words) + s.port_words(1)
    assert rings * 2 <= s.limits.mem_words
