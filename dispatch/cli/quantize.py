# SPDX-License-Identifier: Apache-2.0
"""``onedispatch quantize``: recipes tried on a model, the best one written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onedispatch.dispatch.base.arguments import integer
from onedispatch.dispatch.cli import opening, samples, verdict
from onedispatch.dispatch.cli import output as out
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import write_file
from onedispatch.transactions.base.text import counted, short_bytes

if TYPE_CHECKING:
    from onnx import ModelProto

    from onedispatch.dispatch.runtime.summary import Summary
    from onedispatch.dispatch.tools.dataset import Dataset
    from onedispatch.dispatch.tools.node_errors import Row
    from onedispatch.dispatch.tools.trials import Floors, Trial

NONE_FITS = 2  # the exit code
_WORST = 5


@dataclass(frozen=True)
class QuantizeFlags:
    """What is tried, on which samples, for which device."""

    data: Annotated[str, typer.Option("--data", help=samples.FORMS)]
    recipe: Annotated[
        list[str] | None,
        typer.Option(help="What to try, beside the model as it is: names of the table. Repeatable."),
    ] = None
    calibrate: Annotated[int, typer.Option(help="Samples to calibrate with, at most.")] = 64
    samples: Annotated[
        int, typer.Option(help="Held-out samples that each recipe runs on the simulator, at most.")
    ] = 16
    tolerance: Annotated[
        str,
        typer.Option(help="The share of samples that may name another class than in fp32: 0.01, or 1%."),
    ] = "1%"
    snr: Annotated[
        float | None,
        typer.Option(
            help="The least signal-to-noise ratio of every output, in dB.  "
            "[default: 20, of outputs that are no classes]"
        ),
    ] = None
    device: out.Device = "npu2"
    fallback: out.Fallback = "cpu"
    shape: out.Shapes = None

    @property
    def floors(self) -> Floors:
        """Raises ``InputError`` for shares that are none, and numbers out of range."""
        from onedispatch.dispatch.tools.trials import Floors

        integer("--calibrate", self.calibrate, 1, samples.MOST)
        integer("--samples", self.samples, 1, samples.MOST)
        tolerance = out.parse_share("--tolerance", self.tolerance)
        if self.snr is None:
            return Floors(tolerance)
        if not 0 <= self.snr <= 200:
            raise InputError("--snr", f"{self.snr:g}", "decibels from 0 to 200")
        return Floors(tolerance, self.snr, every=True)


def quantize(
    model: Annotated[str, typer.Argument(help="An .onnx file in float32, or a light model's name.")],
    flags: QuantizeFlags,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the best model here.")] = None,
    json: out.Json = False,
) -> None:
    """Quantise a model for the device by several recipes, and write the best.

    A quarter of the samples is held out; the others calibrate. Each recipe is made by onnxruntime's
    quantiser, compiled, timed by the device's clock (with the launch, without nodes on the host), and run on
    the simulator, on held-out samples, beside onnxruntime on the model as it is. top-1 is the share of
    samples with the same class, where outputs have a score for each class; SNR and cosine are the least of
    all outputs.

    The best is the fastest within --tolerance (classes) and --snr (other outputs, or all where it is given),
    of those with the fewest nodes on the host. An output has a score for each class if it is of floats and
    two dimensions, not counting those of 1 at its end, and no function of one tensor, such as Relu, makes it;
    or if its name has `logits`. By what each output is judged is said below the table.

    The nodes of the best with the largest own errors are named. Where none fits, nothing is written, and the
    exit code is 2.
    """
    from onedispatch.dispatch.tools.recipes import chosen
    from onedispatch.dispatch.tools.trials import Trials, best

    opening.keep(model, output)
    floors, proto = flags.floors, _floats(model)
    recipes = chosen(flags.recipe, proto)
    calibration, held_out = _parts(proto, flags)
    total = sum(len(held_out) + len(calibration) * one.calibrates for one in recipes)
    with out.progress(f"quantising {model}", total) as advance:
        options = {"device": flags.device, "fallback": flags.fallback}
        trials = Trials(proto, calibration, held_out, options, lambda text: advance(1, text))
        tried: list[Trial] = []
        for recipe in recipes:
            tried.append(trials.tried(recipe))
            found = best(tried, floors)
            tried = [one if one is found else one.measured() for one in tried]
        rows = trials.worst(found, _WORST) if found is not None else []
    summary = None if found is None or found.compiled is None else verdict.of(found.compiled)
    if found is not None and found.model is not None and output is not None:
        write_file(output, found.model.SerializeToString())
    _tell(Result(tried, floors, found, rows, output, len(calibration), len(held_out), summary), json)
    if found is None:
        raise typer.Exit(NONE_FITS)


def _floats(name: str) -> ModelProto:
    """The model, which has to be ONNX in float32."""
    from onedispatch.dispatch.tools import recipes, zoo

    proto = zoo.find_model(name)
    recipes.check_floats(name, proto)
    if name in zoo.light_models():
        proto = zoo.randomised(proto)
    return recipes.prepared(proto)


def _parts(proto: ModelProto, flags: QuantizeFlags) -> tuple[Dataset, Dataset]:
    """Samples to calibrate with, and those held out."""
    from onedispatch.dispatch.driver.compile_model import imported

    data = samples.dataset(flags.data, imported(proto).inputs, out.parse_shapes(flags.shape))
    if len(data) < 2:
        accepted = "two at least: some calibrate, others are held out"
        raise InputError(f"--data {flags.data}", counted(len(data), "sample"), accepted)
    calibration, held_out = data.parted()
    return calibration.spread(flags.calibrate), held_out.spread(flags.samples)


@dataclass(frozen=True)
class Result:
    """What was tried, and what came of it."""

    tried: Sequence[Trial]
    floors: Floors
    best: Trial | None
    worst: Sequence[Row]
    output: Path | None
    calibrated: int
    held_out: int
    summary: Summary | None  # the verdict on the best

    @property
    def measures(self) -> dict[str, str]:
        """By what each output is judged; {} where no recipe was measured."""
        return next((one.measures(self.floors) for one in self.tried if one.outputs), {})

    def as_dict(self) -> dict[str, Any]:
        return {
            "calibrated": self.calibrated,
            "held_out": self.held_out,
            "tolerance": self.floors.tolerance,
            "least_snr": self.floors.snr,
            "measures": self.measures,
            "recipes": [one.as_dict() | {"fits": one.fits(self.floors)} for one in self.tried],
            "best": None if self.best is None else self.best.recipe.name,
            "summary": None if self.summary is None else self.summary.as_dict(),
            "worst": [row.as_dict() for row in self.worst],
            "path": None if self.output is None or self.best is None else str(self.output),
        }


def _tell(result: Result, json: bool) -> None:
    if json:
        out.print_json(result.as_dict())
        return
    if result.best is not None and result.summary is not None:
        floats = _as_fast_in_floats(result, result.best)
        beside = f"; fp32 takes no longer, {floats.seconds * 1e3:.3f} ms in all" if floats else ""
        out.tell(f"best, {result.best.recipe.name}: {result.summary}{beside}", style="bold")
    kept = f"{counted(result.calibrated, 'sample')} to calibrate, {result.held_out:,} held out"
    columns = ("recipe", "top-1", "SNR", "cosine", "modelled", "host nodes", "size", "verdict")
    rows = [_cells(one, result) for one in result.tried]
    out.table(f"Recipes, {kept}", columns, rows, right=(1, 2, 3, 4, 5, 6), droppable=(3, 5))
    for one in result.tried:
        if one.failed:
            out.tell(f"{one.recipe.name}: {one.failed}")
    if result.measures:
        judged = ", ".join(f"{name} by {how}" for name, how in result.measures.items())
        out.tell(f"judged: {judged}")
    rows_of_classes = min((one.classes for one in result.tried if one.classes), default=0)
    if rows_of_classes and rows_of_classes * result.floors.tolerance < 1:
        out.tell(
            f"top-1 is of {counted(rows_of_classes, 'row')}: one other class is {1 / rows_of_classes:.1%}"
        )
    if result.best is None:
        floors = result.floors
        outputs = "all outputs" if floors.every else "other outputs"
        kept = f"{1 - floors.tolerance:.1%} of top-1, and {floors.snr:g} dB of {outputs}"
        out.tell(f"no recipe keeps {kept}")
        return
    _tell_best(result, result.best)


def _tell_best(result: Result, best: Trial) -> None:
    from onedispatch.dispatch.cli.node_table import decibels, named

    if result.worst:
        title = f"{best.recipe.name}: largest own errors beside fp32"
        rows = [(named(row), row.theirs, decibels(row.tally.snr(row.tally.own))) for row in result.worst]
        out.table(title, ("node", "value", "own SNR"), rows, right=(2,))
    out.tell(f"best: {best.recipe.name}, {best.recipe.says}")
    if _as_fast_in_floats(result, best):
        out.tell("the model as it is takes no longer: quantising gains size at most")
    if best.spared:
        out.tell(f"in floats: {', '.join(best.spared)}")
    if result.output is not None:
        precision = f" --precision {best.recipe.precision}" if best.recipe.precision != "fp32" else ""
        out.tell(f"written; run it: onedispatch run {result.output} --random{precision}")


def _as_fast_in_floats(result: Result, best: Trial) -> Trial | None:
    """The model as it is, where that takes no longer than the best that it was made."""
    floats = next((one for one in result.tried if one.recipe.name == "fp32" and not one.failed), None)
    faster = floats and floats.seconds <= best.seconds and floats.on_host <= best.on_host
    return floats if faster else None


def _cells(one: Trial, result: Result) -> tuple[str, ...]:
    from onedispatch.dispatch.cli.node_table import decibels, percent

    if one.failed:
        return one.recipe.name, "–", "–", "–", "–", "–", "–", "failed"
    cosine = "–" if one.cosine is None else f"{one.cosine:.5f}"
    fit = "best" if one is result.best else "ok" if one.fits(result.floors) else "off"
    ends = f"{one.seconds * 1e3:.3f} ms", str(one.on_host), short_bytes(one.nbytes), fit
    return one.recipe.name, percent(one.agreement), decibels(one.snr), cosine, *ends
