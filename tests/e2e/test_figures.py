# SPDX-License-Identifier: Apache-2.0
"""models/figures/costs.md says what the examples cost; test_networks.py compares its networks."""

from __future__ import annotations

import pytest

from tests.e2e import figures


@pytest.mark.daily(4)
@pytest.mark.parametrize("example", figures.QUICK, ids=lambda one: f"{one.name} on {one.device}")
def test_costs_are_those_of_the_table(example: figures.Example) -> None:
    figures.compare(example.key, example.run())


def test_the_table_is_whole_and_as_generated() -> None:
    rows = figures.committed()
    assert list(rows) == [one.key for one in figures.EXAMPLES], figures.REMEDY
    assert figures.TABLE.read_text() == figures.text(rows), figures.REMEDY


def test_the_demo_of_the_readme_is_the_present_one() -> None:
    """What README pastes of ``make demo``: the cycles of one image, and of the last 197."""
    readme = (figures.TABLE.parents[2] / "README.md").read_text()
    pasted = readme.split("<!-- DEMO OUTPUT: begin")[1].split("<!-- DEMO OUTPUT: end")[0]
    rows = figures.committed()
    for batch in (1, 197):
        cycles = rows[f"digits, batch {batch}", "npu2"].split(" | ")[2]
        assert f" {cycles} " in pasted, "paste the output of `make demo` anew"
