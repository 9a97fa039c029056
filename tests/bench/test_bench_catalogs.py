# SPDX-License-Identifier: Apache-2.0
"""How fast catalogs of 20,000 solutions open and answer, beside decoding them whole: ``make bench``.

Times are medians of one process; ``test_memory_and_time_of_a_fresh_process`` prints what a fresh one takes,
resident memory too, of a lazy and a merged catalog and of all solutions decoded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from onedispatch.operators.catalog.build import merged, write
from onedispatch.operators.catalog.catalog import Catalog
from onedispatch.operators.catalog.features import Features
from onedispatch.operators.catalog.log import Tuned
from onedispatch.operators.catalog.selector import CatalogSearch
from onedispatch.operators.scheduling.solution import Mapping, Solution
from tests.integration.catalogs import NPU1, NPU2, rows

pytestmark = pytest.mark.bench
COUNT = 20_000
WHOLE = "whole.msgpack"

FRESH = """
import json, pickle, sys, time
from pathlib import Path
import msgpack
from onedispatch.operators.catalog.catalog import Catalog
from onedispatch.operators.catalog.features import Features
from onedispatch.operators.catalog.selector import CatalogSearch
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import find_device

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

kind, path, problem = sys.argv[1], Path(sys.argv[2]), Problem.from_data(json.loads(sys.argv[3]))
all_kernels()
device = find_device("npu2")
seen = Features(problem, device)
problem.nest, problem.digest, seen.family, device.identity
before, start = resident(), time.perf_counter()
if kind == "whole":
    data = msgpack.unpackb((path / "whole.msgpack").read_bytes())
    table = {row["problem"]: (Solution.from_data(row["solution"]), row["cycles"]) for row in data}
    opened = found = time.perf_counter()
else:
    catalog = Catalog(path)
    list(catalog._roots(device, None))
    opened = time.perf_counter()
    assert catalog.offers(catalog.asked(seen), seen, "exact", frozenset())
    found = time.perf_counter()
print(json.dumps({"open_ms": 1e3 * (opened - start), "first_ms": 1e3 * (found - opened),
                  "resident_mb": (resident() - before) / 1e6}))
"""


def many() -> list[Tuned]:
    """Solutions that all differ, of problems that all differ, half of them for each device."""
    known = [row for row in rows() if row.problem.device == NPU2.identity]
    made = []
    for number in range(COUNT):
        device, row = (NPU1, NPU2)[number % 2], known[number // 2 % len(known)]
        m, n = row.problem.dims
        size = 8 + number // 4
        problem = replace(
            row.problem,
            dims=(replace(m, extent=size), replace(n, extent=8 * (1 + number % 4))),
            k_extent=8 + number % 7,
            device=device.identity,
        )
        made.append(Tuned(problem, _solution(number), 1000 + number, 1000.0, "bench"))
    first = next(row for row in known)
    return [*made[:-1], first]


def _solution(number: int) -> Solution:
    columns, tile = 1 + number % 4, 1 + number // 4
    return Solution("od::gemm@1", Mapping(0, 1, columns, frozenset(["b"]), False, (0, 1)), (tile, 8), 8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    libraries = merged(many())
    made = {name: tmp_path_factory.mktemp(name) for name in ("lazy", "merged", "whole")}
    for name in ("lazy", "merged"):
        write(libraries, made[name], lazy=name == "lazy")
    entries = [e for library in libraries for table in library.tables.values() for e in table.entries]
    data = [{"problem": e.problem, "solution": e.solution.to_data(), "cycles": e.cycles} for e in entries]
    (made["whole"] / WHOLE).write_bytes(msgpack.packb(data))
    return made


FORMS = ("lazy", "merged")


@pytest.mark.parametrize("form", FORMS)
def test_open(benchmark: Any, folders: dict[str, Path], form: str) -> None:
    benchmark(lambda: list(Catalog(folders[form])._roots(NPU2, None)))


@pytest.mark.parametrize("form", FORMS)
def test_first_selection(benchmark: Any, folders: dict[str, Path], form: str) -> None:
    row = next(row for row in rows() if row.problem.device == NPU2.identity)

    def first() -> None:
        assert CatalogSearch([Catalog(folders[form])]).select(row.problem, NPU2) == row.solution

    benchmark(first)


def test_warm_selection(benchmark: Any, folders: dict[str, Path]) -> None:
    row = next(row for row in rows() if row.problem.device == NPU2.identity)
    selector = CatalogSearch([Catalog(folders["lazy"])])
    benchmark(selector.select, row.problem, NPU2)


def test_nearest_rows(benchmark: Any, folders: dict[str, Path]) -> None:
    """Of a family of thousands, before the cost model corrects them."""
    row = next(row for row in rows() if row.problem.device == NPU2.identity)
    seen, catalog = Features(row.problem, NPU2), Catalog(folders["lazy"])
    (table,) = (one.table for one in catalog.asked(seen) if one.table)
    benchmark(table.nearest, seen, 4, 0.5)


@pytest.mark.parametrize("kind, form", [("catalog", "lazy"), ("catalog", "merged"), ("whole", "whole")])
def test_memory_and_time_of_a_fresh_process(folders: dict[str, Path], kind: str, form: str) -> None:
    row = next(row for row in rows() if row.problem.device == NPU2.identity)
    command = [sys.executable, "-c", FRESH, kind, str(folders[form]), json.dumps(row.problem.to_data())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    print(f"\n{form}, {COUNT:,} solutions, fresh process: {done.stdout.strip()}")
