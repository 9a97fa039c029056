# SPDX-License-Identifier: Apache-2.0
"""A short form of ``python -m tests.fuzz.differential``: always the same models, none of which differs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fuzz.differential import float_verdict, quantised_verdict, run

PARTS = 4


@pytest.mark.daily(4)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    ("verdict", "count"), [(float_verdict, 70), (quantised_verdict, 40)], ids=["models", "quantised"]
)
def test_none_differs(verdict: Callable[[str], str], count: int, part: int) -> None:
    tally = run(f"part {part}", 0, count, verdict)
    assert not tally.findings, "\n".join(tally.findings)
    # Most run on the device; others may be refused.
    assert tally.counts["strict"] > count / 3
