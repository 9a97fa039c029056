# SPDX-License-Identifier: Apache-2.0
"""Tunes the example networks and writes the catalog that ships, with its log: ``make catalog``.

``python -m models.catalog --device npu2 --minutes 20`` goes on where the log stopped; ``--minutes 0`` only
builds from it what ships. ``--again`` measures its rows anew first, and what the search chooses, as a change
of the clock, of what is emitted or of the cost model asks for. Of each problem the log has the rows that
decide something (``packed``).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from itertools import repeat
from pathlib import Path

import numpy as np
import zstandard
from onnx import ModelProto

import onedispatch as od
from onedispatch.dispatch.tools import zoo
from onedispatch.dispatch.tools.quantising import quantised
from onedispatch.dispatch.tuning.collect import problems_of
from onedispatch.dispatch.tuning.explore import Measure, Measured
from onedispatch.dispatch.tuning.prebuild import programs_by
from onedispatch.dispatch.tuning.tune import tune
from onedispatch.operators.catalog import log
from onedispatch.operators.catalog.build import merged, write
from onedispatch.operators.catalog.layers import SHIPPED
from onedispatch.operators.catalog.log import Tuned
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.select import SEARCH, Search
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device, find_device
from onedispatch.transactions.base.errors import SolutionError
from onedispatch.transactions.base.text import counted

LIGHT = Path(__file__).parent / "light"
QUANTISED = ("resnet50", "mobilenet_v2", "efficientnet_b0")
# Networks whose transactions ship; of the others they are emitted.
PREBUILT = (
    *(("resnet50", precision) for precision in ("fp32", "bf16", "int8")),
    *(("mobilenet_v2", precision) for precision in ("fp32", "int8")),
    ("bert_base", "fp32"),
    ("bert_base", "bf16"),
)
DEVICES = ("npu1", "npu2")


def model_of(name: str, precision: str) -> ModelProto:
    """An example network with seeded weights."""
    path = LIGHT / f"{name}.onnx"
    model = zoo.randomised(zoo.find_model(str(path) if path.exists() else name))
    if precision != "int8":
        return model
    rng = np.random.default_rng(0)
    feeds = [
        {v.name: rng.standard_normal([d.dim_value for d in v.type.tensor_type.shape.dim]).astype(np.float32)}
        for v in model.graph.input
    ]
    return quantised(model, feeds, activations="u8", per_channel=True)


def networks() -> Iterator[tuple[str, str]]:
    """Names and precisions of what is tuned."""
    for name in (*(path.stem for path in sorted(LIGHT.glob("*.onnx"))), *zoo.light_models()):
        yield name, "fp32"
        yield name, "bf16"
        if name in QUANTISED:
            yield name, "int8"


def compiled(name: str, precision: str, device: str, **options: object) -> object:
    narrow = "bf16" if precision == "bf16" else "fp32"
    return od.compile(model_of(name, precision), device, narrow, **options)  # type: ignore[arg-type]


def _compiling(name: str, precision: str, device: str) -> Callable[[Search], object]:
    return lambda selector: compiled(name, precision, device, selector=selector)


def problems(device: str) -> Counter[Problem]:
    """The problems of all networks as the catalog has them compiled, with how many nests are each; those
    that plans only ask about, 0 times, so that compiling searches nothing."""
    counts: Counter[Problem] = Counter()
    known = [od.Catalog(SHIPPED)] if any(SHIPPED.glob("*.odcat")) else []
    for name, precision in networks():
        found = problems_of(_compiling(name, precision, device), known)
        counts.update(found)
        print(f"{device}: {name} {precision}, {len(counts):,} problems so far", flush=True)
    return counts


def packed_log(device: str) -> Path:
    return SHIPPED / f"tuned_{device}.jsonl.zst"


def tuned(device: str, seconds: float, jobs: int) -> None:
    """Goes on with the log of a device."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        if packed_log(device).exists():
            path.write_bytes(log.contents(packed_log(device)))
        tune(problems(device), device, seconds, log=path, jobs=jobs, workers="processes")
        packed_log(device).write_bytes(packed(log.read(path)))


def measured_again(device: str, jobs: int) -> None:
    """Measures the rows of a device's log once more, and what the search chooses now, after a change of the
    clock, of what is emitted or of the cost model; what does not fit any more is left out."""
    target = find_device(device)
    logged: dict[Problem, list[Solution]] = {}
    for row in log.read(packed_log(device)):
        logged.setdefault(replace(row.problem, device=target.identity), []).append(row.solution)
    with ProcessPoolExecutor(jobs) as pool:
        chosen = pool.map(_searched, logged, repeat(target), chunksize=32)
        asked = [
            Measure(problem, solution)
            for (problem, solutions), first in zip(logged.items(), chosen, strict=True)
            for solution in dict.fromkeys([*first, *solutions])
        ]
        answers = pool.map(Measure.done, asked, repeat(target), chunksize=32)
        found = [
            Tuned(one.problem, one.solution, **asdict(answer), version=od.__version__)
            for one, answer in zip(asked, answers, strict=True)
            if isinstance(answer, Measured)
        ]
    print(f"{device}: {counted(len(found), 'solution')} measured, of {len(asked):,}", flush=True)
    if not found:
        raise SystemExit(f"{device}: no row fits; the log stays as it is")
    packed_log(device).write_bytes(packed(found))


def _searched(problem: Problem, device: Device) -> list[Solution]:
    """What the search chooses, if there is something."""
    try:
        return [SEARCH.select(problem, device)]
    except (Unsupported, SolutionError):
        return []


def packed(rows: Iterable[Tuned]) -> bytes:
    """A log, compressed, without rows of kernels that were declared anew since, and without those that decide
    nothing: of each problem there stay the search's solution, the fastest, and the one that the cost model
    finds fastest."""
    kept: dict[Problem, list[Tuned]] = {}
    for row in filter(_declared, rows):
        first, best, least = kept.get(row.problem, [row] * 3)
        best = min(best, row, key=lambda one: (one.cycles, one.solution.name))
        kept[row.problem] = [first, best, min(least, row, key=lambda one: one.estimated)]
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "log.jsonl"
        log.append(whole, (row for some in kept.values() for row in dict.fromkeys(some)))
        return zstandard.ZstdCompressor(level=22, write_checksum=True).compress(whole.read_bytes())


def _declared(row: Tuned) -> bool:
    """Whether there is the kernel of a row, as the row knows it."""
    try:
        _ = row.problem.nest
    except SolutionError:
        return False
    return True


def built(device: str) -> None:
    """Writes the catalog of a device's log, and the programs of ``PREBUILT``."""
    (library,) = merged(log.read(packed_log(device)))

    def compile_all(catalog: Sequence[str]) -> None:
        for name, precision in PREBUILT:
            compiled(name, precision, device, catalog=catalog)

    programs = programs_by(library, compile_all)
    for old in SHIPPED.glob(f"*_{device}.od*"):
        old.unlink()
    write([library], SHIPPED, lazy=True, programs={library.device: programs})
    entries = sum(len(table.entries) for table in library.tables.values())
    print(f"{device}: {entries:,} problems, {len(programs)} programs")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", action="append", choices=DEVICES)
    parser.add_argument("--minutes", type=float, default=20, help="of tuning for each device; 0 only builds")
    parser.add_argument(
        "--again", action="store_true", help="measure what is known, and what the search chooses, first"
    )
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    SHIPPED.mkdir(exist_ok=True)
    for device in given.device or DEVICES:
        if given.again:
            measured_again(device, given.jobs)
        if given.minutes:
            tuned(device, 60 * given.minutes, given.jobs)
        built(device)
    shutil.rmtree(SHIPPED / "__pycache__", ignore_errors=True)


if __name__ == "__main__":
    main()
