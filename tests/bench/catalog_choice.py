# SPDX-License-Identifier: Apache-2.0
"""How good choices are for problems that nothing was tuned for: ``python -m tests.bench.catalog_choice``.

Problems are those of example networks at other image sizes than they were tuned for. The cycles of what the
catalog chooses, of what the search alone chooses, and of what is chosen by measuring (``--measure 12`` of
commands), all measured, are put beside the best that the tuner finds without a budget; so beside the best of
some hundred measurements, not of all solutions that there are. ``--bound 50`` also says of so many how far
the optimum can be from that (``optimum.py``, needs ``pip install '.[test,bound]'``).
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

SOLVER_SECONDS = 20
NETWORKS = {"resnet50": (160, 256), "mobilenet_v2": (160, 192), "efficientnet_b0": (192,)}


@dataclass(frozen=True)
class Row:
    """Cycles, measured: of the catalog's choice, of the search's, of the fastest of some that were measured,
    and of the best that is known; and what no solution takes less than."""

    how: str
    chosen: int
    searched: int
    tried: int
    best: int
    bound: int | None


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


def row_of(problem: Problem, device: str, selector: CatalogSearch, jobs: int, bounded: bool) -> Row:
    target = find_device(device)
    before = dict(selector.counts)
    chosen = selector.select(problem, target)
    how = next((k for k, n in selector.counts.items() if n != before.get(k, 0)), "again")
    (tuning,) = tune({problem: 1}, target, jobs=jobs, workers="processes" if jobs > 1 else "threads")
    choices = chosen, SEARCH.select(problem, target), od.MeasuredSearch().select(problem, target)
    cycles = [od.measure(problem, one, target) for one in choices]
    best = min(*cycles, tuning.after or cycles[0])
    return Row(how, *cycles, best, bound_of(problem, device, best) if bounded else None)


def bound_of(problem: Problem, device: str, best: int) -> int:
    """What no solution takes less than."""
    from tests.bench.optimum import Bound

    return Bound(problem, find_device(device), best).solved(SOLVER_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--device", default="npu2")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--bound", type=int, default=0)
    given = parser.parse_args()
    selector = selector_of()
    assert isinstance(selector, CatalogSearch), "no catalog ships"
    problems = [p for p in held_out(given.device) if not is_tuned(selector, p, given.device)]
    picked = random.Random(0).sample(problems, min(given.count, len(problems)))
    rows = [
        row_of(problem, given.device, selector, given.jobs, number < given.bound)
        for number, problem in enumerate(picked)
    ]
    show(rows)
    show_bounds([row.best / row.bound for row in rows if row.bound])


def show(rows: list[Row]) -> None:
    for how in (None, *sorted({row.how for row in rows})):
        some = [row for row in rows if how in (None, row.how)]
        chosen = [row.chosen / row.best for row in some]
        searched = [row.searched / row.best for row in some]
        tried = [row.tried / row.best for row in some]
        print(f"{how or 'all'}: {len(some)} problems; over the best that is known, geometric mean and 90 %:")
        for name, ratios in (
            ("the catalog's choice", chosen),
            ("the search's", searched),
            ("by measuring", tried),
        ):
            most = quantiles(ratios, n=10)[-1] if len(ratios) > 1 else ratios[0]
            within = sum(ratio <= 1.02 for ratio in ratios)
            print(f"  {name}: {geometric_mean(ratios):.3f}, {most:.3f}; {within} within 2 %")


def show_bounds(far: list[float]) -> None:
    if far:
        print(f"{len(far)} problems, the best that is known over the bound of every solution: geometric mean")
        print(f"  {geometric_mean(far):.3f}, from {min(far):.3f} to {max(far):.3f}")


if __name__ == "__main__":
    main()
