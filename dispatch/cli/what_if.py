# SPDX-License-Identifier: Apache-2.0
"""``onedispatch time --devices ... --batch ... --sweep ...``: one table of what a model would cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from onedispatch.dispatch.artifact.container import is_compiled
from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.cli import opening
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.what_if_flags import WhatIfFlags
from onedispatch.dispatch.compiler.options import CompileOptions
from onedispatch.dispatch.driver.requested import READING
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.tools import what_if
from onedispatch.dispatch.tools.batching import check_batched, leading, with_batch
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import InputError


def cases_of(flags: WhatIfFlags, device: str | None) -> list[what_if.Case]:
    """Raises ``InputError`` or ``DeviceError`` for what is no device, batch or sweep."""
    if device is not None and flags.devices:
        raise InputError("--devices", "one beside --device", "either")
    devices = what_if.parse_devices(flags.devices or [device or "npu2"])
    batches, sweeps = what_if.parse_batches(flags.batch or ()), what_if.parse_sweeps(flags.sweep or ())
    return what_if.cases(devices, batches, sweeps)


@dataclass(frozen=True)
class Subject:
    """A model that was read once, to be compiled for one case after another."""

    graph: Graph
    choices: dict[str, Any]  # of ``CompileOptions.checked``, without the device
    shapes: opening.Shapes
    taken: opening.Shapes = field(default_factory=dict)  # of the first case, where dimensions stayed open

    def compiled(self, device: Device, batch: int | None) -> CompiledModel:
        """See ``what_if.Compiled``."""
        from onedispatch.dispatch.driver.compile_model import compile_imported

        options = CompileOptions.on(device, **self.choices)
        graph = self.graph if batch is None else with_batch(self.graph, batch)
        shapes = self.shapes if batch is None else _resized(self.shapes, graph, batch)
        model = compile_imported(graph, options, shapes)
        if not model.executables:
            taken, model = opening.first_executable(model, shapes, quiet=True)
            known = {*self.taken, *shapes}
            self.taken.update({name: shape for name, shape in taken.items() if name not in known})
        if batch is not None:
            check_batched(self.graph, model.used_last()[1].outputs, batch)
        return model


def _resized(shapes: opening.Shapes, graph: Graph, batch: int) -> opening.Shapes:
    """Shapes that the command names, with the batch where the graph has it."""
    batched = {v.name for v in graph.inputs if v.shape and v.shape[0] == batch}
    return {name: (batch, *shape[1:]) if name in batched else shape for name, shape in shapes.items()}


def subject(model: str, compiling: opening.CompileFlags) -> Subject:
    """Reads the model. Raises ``InputError`` for one that is compiled already."""
    if is_compiled(model):
        given = f"{model}, a compiled model"
        raise InputError("--devices, --batch, --sweep", given, "the ONNX file, which is compiled for each")
    from onedispatch.dispatch.driver.compile_model import imported

    requested = compiling.requested
    choices = {n: value for n, value in requested.given.items() if n not in (*READING, "device", "cache")}
    CompileOptions.checked(**choices)  # what is wrong with them is wrong in every row
    with out.working(f"reading {model}"):
        graph = imported(opening.source(Path(model)), how=requested.reading)
    return Subject(graph, choices, compiling.shapes)


def answer(model: str, compiling: opening.CompileFlags, flags: WhatIfFlags, json: bool) -> None:
    """Prints a row for each case. Raises ``typer.Exit`` with 1 where none has an answer."""
    cases = cases_of(flags, compiling.device)
    read = subject(model, compiling)
    if flags.batch:
        leading(read.graph)  # refused once, and not in every row
    answers = []
    with out.progress(f"timing {Path(model).name}", len(cases)) as advance:
        for row in what_if.rows(cases, read.compiled):
            answers.append(row)
            advance()
    if read.taken:
        opening.tell_guessed(read.taken)
    if json:
        out.print_json({"model": model, "rows": [row.as_dict() for row in answers]})
    else:
        _show(Path(model).name, answers)
    if all(row.error for row in answers):
        raise typer.Exit(1)


_TITLES = ("us", "us/sample", "cores busy", "DDR MB", "MACs", "host nodes", "bound by")
_LEAST_ASKED = ("MACs", "DDR MB", "host nodes", "cores busy")  # what narrow terminals do without


def _show(name: str, answers: Sequence[what_if.Row]) -> None:
    first = answers[0].case
    keys = [what_if.title(key) for key in first.swept]
    batch = ["batch"] if first.batch is not None else []
    titles = ["device", *keys, *batch, *_TITLES]
    if not batch:
        titles.remove("us/sample")
    rows = [(*_asked(row.case), *_cells(row, bool(batch))) for row in answers]
    droppable = [[titles.index(title)] for title in _LEAST_ASKED]
    out.say(f"{name}: modelled time on the device, and what bounds it\n")
    out.columns(titles, rows, (0, len(titles) - 1), droppable)
    for row in answers:
        if row.error:
            out.say(f"\n{', '.join(_asked(row.case))}: {row.error}")


def _asked(case: what_if.Case) -> list[str]:
    batch = [] if case.batch is None else [str(case.batch)]
    return [case.device, *(f"{value:g}" for value in case.swept.values()), *batch]


def _cells(row: what_if.Row, batched: bool) -> list[str]:
    if row.error:
        return ["–"] * (5 + batched) + ["does not fit"]
    each = [f"{row.us_per_sample:,.1f}"] if row.us_per_sample is not None else []
    return [
        f"{row.us:,.1f}",
        *each,
        f"{row.cores_busy:.0%}",
        f"{row.ddr_bytes / 1e6:,.2f}",
        _count(row.macs),
        str(row.host_nodes),
        row.bound_by,
    ]


def _count(number: float) -> str:
    """With three digits and a prefix: 4.09 G."""
    units = ["", " k", " M", " G", " T", " P"]
    power = min(int(math.log10(max(number, 1))) // 3, len(units) - 1)
    return f"{number / 1000**power:.3g}{units[power]}"
