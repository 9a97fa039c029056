# SPDX-License-Identifier: Apache-2.0
"""How good choices are for problems that nothing was tuned for: ``python -m tests.bench.catalog_choice``.

Problems are those of example networks at other image sizes than they were tuned for. The cycles of what the
catalog chooses, and of what the search alone chooses, both measured, are put beside the best that the tuner
finds without a budget; so beside the best of some hundred measurements, not of all solutions that there are.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from statistics import geometric_mean, quantiles

import onedispatch as od
from models.catalog import LIGHT
from onedispatch.dispatch.tools import zoo
from onedispatch.dispatch.tuning.collect import problems_of
from onedispatch.dispatch.tuning.tune import tune
from onedispatch.operators.catalog.layers import selector_of
from onedispatch.operators.catalog.selector import CatalogSearch
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.transactions import find_device

NETWORKS = {"resnet50": (160, 256), "mobilenet_v2": (160, 192), "efficientnet_b0": (192,)}


@dataclass(frozen=True)
class Row:
    """Cycles, measured: of the catalog's choice, of the search's, and of the best that is known."""

    how: str
    chosen: int
    searched: int
    best: int


def held_out(device: str) -> list[Problem]:
    """Problems of networks at other sizes."""
    found: dict[Problem, None] = {}
    for name, sizes in NETWORKS.items():
        for image in sizes:
            model = zoo.randomised(zoo.find_model(str(LIGHT / f"{name}.onnx")), image=image)
            posed = problems_of(lambda selector, m=model: od.compile(m, device, selector=selector))  # type: ignore[misc]
            found |= dict.fromkeys(problem for problem, count in posed.items() if count)
    return list(found)


def is_tuned(selector: CatalogSearch, problem: Problem, device: str) -> bool:
    """Whether a catalog has a row of it."""
    return any(one.how == "exact" for one in selector.explain(problem, find_device(device)).candidates)


def row_of(problem: Problem, device: str, selector: CatalogSearch, jobs: int) -> Row:
    target = find_device(device)
    before = dict(selector.counts)
    chosen = selector.select(problem, target)
    how = next((k for k, n in selector.counts.items() if n != before.get(k, 0)), "again")
    (tuning,) = tune({problem: 1}, target, jobs=jobs, workers="processes" if jobs > 1 else "threads")
    cycles = [od.measure(problem, one, target) for one in (chosen, SEARCH.select(problem, target))]
    return Row(how, *cycles, min(*cycles, tuning.after or cycles[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--device", default="npu2")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    selector = selector_of()
    assert isinstance(selector, CatalogSearch), "no catalog ships"
    problems = [p for p in held_out(given.device) if not is_tuned(selector, p, given.device)]
    picked = random.Random(0).sample(problems, min(given.count, len(problems)))
    rows = [row_of(problem, given.device, selector, given.jobs) for problem in picked]
    show(rows)


def show(rows: list[Row]) -> None:
    for how in (None, *sorted({row.how for row in rows})):
        some = [row for row in rows if how in (None, row.how)]
        chosen = [row.chosen / row.best for row in some]
        searched = [row.searched / row.best for row in some]
        print(f"{how or 'all'}: {len(some)} problems; over the best that is known, geometric mean and 90 %:")
        for name, ratios in (("the catalog's choice", chosen), ("the search's", searched)):
            most = quantiles(ratios, n=10)[-1] if len(ratios) > 1 else ratios[0]
            within = sum(ratio <= 1.02 for ratio in ratios)
            print(f"  {name}: {geometric_mean(ratios):.3f}, {most:.3f}; {within} within 2 %")


if __name__ == "__main__":
    main()
