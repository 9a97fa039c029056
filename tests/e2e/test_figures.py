# SPDX-License-Identifier: Apache-2.0
"""models/figures/costs.md says what the examples cost; test_networks.py compares its networks."""

from __future__ import annotations

import pytest

from tests.e2e import figures


@pytest.mark.parametrize("example", figures.QUICK, ids=lambda one: f"{one.name} on {one.device}")
def test_costs_are_those_of_the_table(example: figures.Example) -> None:
    figures.compare(example.key, example.run())


def test_the_table_is_whole_and_as_generated() -> None:
    rows = figures.committed()
    assert list(rows) == [one.key for one in figures.EXAMPLES], figures.REMEDY
    assert figures.TABLE.read_text() == figures.text(rows), figures.REMEDY
