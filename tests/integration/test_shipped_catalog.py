# SPDX-License-Identifier: Apache-2.0
"""The catalog that ships: whole, fitting, what its log says, and no slower than the search."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

import onedispatch as od
from models.catalog import DEVICES, LIGHT, packed_log
from onedispatch.dispatch.tools import zoo
from onedispatch.operators.catalog import log
from onedispatch.operators.catalog.build import library_of, merged
from onedispatch.operators.catalog.choice import refusal_of
from onedispatch.operators.catalog.container import Library
from onedispatch.operators.catalog.features import Features
from onedispatch.operators.catalog.layers import SHIPPED
from onedispatch.operators.catalog.lint import lint
from onedispatch.operators.catalog.log import Tuned
from onedispatch.operators.catalog.objects import CodeObjects
from onedispatch.operators.scheduling.commands import controller_cycles
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import estimated
from onedispatch.transactions import find_device

SAMPLE = 60


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def rows(device: str) -> list[Tuned]:
    return log.read(packed_log(device))


@pytest.mark.daily(2)
def test_it_is_what_its_log_says(device: str, rows: list[Tuned]) -> None:
    (made,) = merged(rows)
    ships = library_of(SHIPPED / f"catalog_lazy_{device}.odcat")
    assert _answers(ships) == _answers(made) and ships.tree == made.tree


def _answers(library: Library) -> dict[bytes, str]:
    entries = (entry for table in library.tables.values() for entry in table.entries)
    return {entry.problem: entry.solution.name for entry in entries}


def test_nothing_is_wrong_with_it() -> None:
    """Warnings name kernels and devices that are others now: `make catalog` tunes for them."""
    findings = lint(SHIPPED, [find_device(name) for name in DEVICES])
    assert [one for one in findings if one.level == "error"] == []


@pytest.mark.daily(2)
def test_its_solutions_fit_and_take_what_was_measured(device: str, rows: list[Tuned]) -> None:
    """A sample, measured again: what is emitted may have become a little faster or slower since."""
    target, best = find_device(device), dict[Problem, Tuned]()
    for row in rows:
        if row.problem not in best or row.cycles < best[row.problem].cycles:
            best[row.problem] = row
    for row in random.Random(0).sample(list(best.values()), SAMPLE):
        assert not refusal_of(Features(row.problem, target), row.solution)
        assert od.measure(row.problem, row.solution, target) == pytest.approx(row.cycles, rel=0.05)


def test_the_cost_model_says_what_was_measured(device: str, rows: list[Tuned]) -> None:
    """A sample, to a tenth on average; and a nest takes no less than the controller does for it."""
    errors = []
    for row in random.Random(1).sample(rows, 4 * SAMPLE):
        schedule = Schedule(row.problem.nest, find_device(device), row.solution)
        errors.append(abs(math.log(row.cycles / estimated(schedule))))
        assert controller_cycles(schedule) < 1.01 * row.cycles, schedule.explain()
    assert sum(errors) / len(errors) < 0.1


@pytest.mark.daily(2)
def test_a_network_is_answered_by_it_and_not_slower(device: str) -> None:
    model = zoo.randomised(zoo.find_model(str(LIGHT / "mobilenet_v2.onnx")))
    catalog = od.Catalog(SHIPPED)
    selector = od.CatalogSearch([catalog])
    tuned = od.compile(model, device, selector=selector).timing().cycles
    searched = od.compile(model, device, catalog="none").timing().cycles
    assert selector.counts["exact"] > 3 * sum(n for how, n in selector.counts.items() if how != "exact")
    assert 10 * len(selector._sketches._found) < selector.counts["exact"]  # what plans asked about
    assert tuned < searched
    stats, file = catalog.stats(), next(Path(SHIPPED).glob(f"*{device}.odobj"))
    assert 0 < stats.opened < stats.children / 2  # only the children that it needs
    assert (catalog.stats().programs > 0) == CodeObjects(str(file)).is_of_this_source
