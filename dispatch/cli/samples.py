# SPDX-License-Identifier: Apache-2.0
"""Data sets on the command line: --data, --samples, and random samples in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.base.arguments import integer
from onedispatch.dispatch.cli import opening
from onedispatch.dispatch.cli.models import InputFlags, feed_of, shapes_in
from onedispatch.dispatch.frontend.graph import Value
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.dispatch.tools.dataset import Dataset, Feed, read_dataset
from onedispatch.transactions.base.errors import InputError

MOST = 1_000_000
FORMS = (
    "Samples to run: an .npz whose arrays have the names of inputs, an .npy for the only input, both with a "
    "sample in each row or each element of one more dimension before; or a folder with a sample in each of "
    "its .npz and .npy files."
)

Data = Annotated[str, typer.Option("--data", help=FORMS)]


@dataclass(frozen=True)
class SampleFlags:
    """Which samples a model is run on."""

    data: Data = ""
    samples: Annotated[
        int | None,
        typer.Option(
            help="At most how many of --data, evenly spread, or of --random, each with the next seed.  "
            "[default: 8 of --data, 1 of --random]"
        ),
    ] = None

    def feeds(
        self, session: InferenceSession, compiled: CompiledModel, given: InputFlags, shapes: opening.Shapes
    ) -> tuple[Sequence[Feed], opening.Shapes]:
        """The samples, and the shapes of inputs that were not made up, as ``feed_of`` has them.

        Raises ``InputError`` for two sources of inputs at once, and for samples that do not fit.
        """
        if self.samples is not None:
            integer("--samples", self.samples, 1, MOST)
        if self.data:
            if given.inputs or given.random:
                other = "--input" if given.inputs else "--random"
                raise InputError("--data", f"{self.data}, beside {other}", "one of them")
            data = dataset(self.data, compiled.inputs, opening.shapes_of(compiled, shapes))
            data = data.spread(self.samples or 8)
            return data, shapes_in(data[0])
        if self.samples is not None and not given.random:
            raise InputError("--samples", f"{self.samples} of no data set", "--data, or --random")
        first, known = feed_of(session, compiled, given, shapes)
        sizes = shapes_in(first)  # of all: sizes that fit are looked for once
        seeds = range(given.seed + 1, given.seed + (self.samples or 1))
        rest = [feed_of(session, compiled, replace(given, seed=seed), sizes)[0] for seed in seeds]
        return [first, *rest], known


def dataset(path: str, inputs: Sequence[Value], shapes: opening.Shapes) -> Dataset:
    """The samples at ``path``, with the sizes of ``--shape`` for open dimensions."""
    bound = [replace(value, shape=shapes.get(value.name, value.shape)) for value in inputs]
    return read_dataset(path, bound)
