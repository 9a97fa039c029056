# SPDX-License-Identifier: Apache-2.0
"""Recipes tried on a model: accuracy on samples that were held out, modelled time, size.

Every quantised model is compiled for the device and run on the simulator, beside onnxruntime on the model of
floats. Time is the clock's, for the shapes of the last sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onnx import ModelProto

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.driver.compile_model import compile_model, imported
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.runtime.clock import timing
from onedispatch.dispatch.tools.matches import SAME
from onedispatch.dispatch.tools.node_errors import NodeErrors, Row
from onedispatch.dispatch.tools.recipes import FLOATS, Recipe, made
from onedispatch.dispatch.tools.sides import Sides, Source
from onedispatch.dispatch.tools.tally import Tally
from onedispatch.transactions.base.errors import OneDispatchError

Feeds = Sequence[Mapping[str, Array]]
Step = Callable[[str], None]
_NEVER = 1e30  # a threshold that nothing passes: trials have floors of their own
_EXAMINED = 2  # samples that own errors of nodes come from


@dataclass(frozen=True)
class Floors:
    """What a recipe has to keep: see ``Trial.fits``.

    ``tolerance`` is the share of samples of another top-1, where outputs are classes; ``snr`` the least
    signal-to-noise ratio of other outputs, in decibels, or of ``every`` one.
    """

    tolerance: float = 0.01
    snr: float = 20.0
    every: bool = False


@dataclass(frozen=True)
class Trial:
    """One recipe on one model. ``failed`` says why it was not measured, "" if it was."""

    recipe: Recipe
    failed: str = ""
    seconds: float = 0.0
    cycles: int = 0
    nbytes: int = 0
    on_host: int = 0  # nodes
    outputs: Mapping[str, Tally] = field(default_factory=dict)
    spared: tuple[str, ...] = ()
    model: ModelProto | None = field(default=None, repr=False)
    compiled: CompiledModel | None = field(default=None, repr=False)

    @property
    def agreement(self) -> float | None:
        """The least of all outputs that are classes."""
        known = [one.agreement for one in self.outputs.values() if one.agreement is not None]
        return min(known) if known else None

    @property
    def classes(self) -> int:
        """The rows that ``agreement`` is of, 0 without one."""
        return min((one.rows for one in self.outputs.values() if one.rows), default=0)

    @property
    def snr(self) -> float | None:
        """The least of all outputs, in decibels."""
        known = [snr for one in self.outputs.values() if (snr := one.snr(one.total)) is not None]
        return min(known) if known else None

    @property
    def cosine(self) -> float | None:
        return min((one.cosine for one in self.outputs.values()), default=None)

    def fits(self, floors: Floors) -> bool:
        """Whether every output keeps its floor."""
        if self.failed:
            return False
        return all(_keeps(one, floors) for one in self.outputs.values())

    def measures(self, floors: Floors) -> dict[str, str]:
        """By what each output is judged."""
        by_class = "top-1 and SNR" if floors.every else "top-1"
        return {name: by_class if one.rows else "SNR" for name, one in self.outputs.items()}

    def measured(self) -> Trial:
        """The same without its models, of which only the best is needed."""
        return replace(self, model=None, compiled=None)

    def as_dict(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe.name,
            "says": self.recipe.says,
            "precision": self.recipe.precision,
            "failed": self.failed,
            "seconds": self.seconds,
            "cycles": self.cycles,
            "bytes": self.nbytes,
            "nodes_on_host": self.on_host,
            "agreement": self.agreement,
            "snr": self.snr,
            "cosine": self.cosine,
            "spared": list(self.spared),
        }


def _keeps(tally: Tally, floors: Floors) -> bool:
    if tally.agreement is not None:
        if 1 - tally.agreement > floors.tolerance:
            return False
        if not floors.every:
            return True
    snr = tally.snr(tally.total)
    return snr is not None and snr >= floors.snr


class Trials:
    """Tries recipes on ``model``, calibrated with ``feeds`` and measured on ``held_out``.

    ``options`` are those of ``compile``, without precision and shapes. ``step`` is called with what was done,
    once a sample of either.
    """

    def __init__(
        self, model: ModelProto, feeds: Feeds, held_out: Feeds, options: Mapping[str, Any], step: Step
    ) -> None:
        self.model, self._feeds, self._held_out = model, feeds, held_out
        self._options, self._step = options, step
        self._floats = Source(model, imported(model))
        self._shapes = {name: array.shape for name, array in held_out[0].items()}
        self._int8: Trial | None = None

    def tried(self, recipe: Recipe) -> Trial:
        """Makes, times and measures the model of a recipe; a failure is a trial that says it."""
        try:
            spared = self._spared(recipe) if recipe.spare else ()
            feeds = _Counted(self._feeds, f"{recipe.name}: calibrating", self._step)
            model = made(recipe, self.model, feeds, spared)
            errors = self._errors(model, self._compiled(model, recipe), per_node=False)
            for feed in self._held_out:
                self._step(f"{recipe.name}: running")
                errors.add(feed)
            compiled = errors.sides.session.model  # with the shapes of the samples
            report = timing(compiled)
        except OneDispatchError as error:
            return Trial(recipe, failed=error.statement())
        trial = Trial(
            recipe,
            seconds=report.seconds + report.launch_seconds,
            cycles=report.cycles,
            nbytes=model.ByteSize(),
            on_host=sum(row.device == "cpu" for row in compiled.placement),
            outputs={row.value: row.tally for row in errors.outputs},
            spared=tuple(spared),
            model=model,
            compiled=compiled,
        )
        if recipe.activations == "u8" and not recipe.op_types and self._int8 is None:
            self._int8 = trial
        return trial

    def worst(self, trial: Trial, most: int) -> list[Row]:
        """The nodes of a trial with the largest own errors, beside the model of floats."""
        assert trial.model is not None and trial.compiled is not None
        errors = self._errors(trial.model, trial.compiled, per_node=True)
        for feed in self._held_out[:_EXAMINED]:
            errors.add(feed)
        return errors.worst(most)

    def _spared(self, recipe: Recipe) -> tuple[str, ...]:
        """The nodes that stay in floats: of the int8 model, those with the largest own errors."""
        plain = self._int8 or self.tried(replace(recipe, name=f"{recipe.name}, before", spare=0.0))
        if plain.model is None:
            return ()
        rows = self.worst(plain, len(self.model.graph.node))
        products = [names for row in rows if (names := _floats_of(row, plain.model))]
        count = max(1, round(recipe.spare * len(products)))
        return tuple(dict.fromkeys(name for names in products[:count] for name in names))

    def _compiled(self, model: ModelProto, recipe: Recipe) -> CompiledModel:
        return compile_model(model, precision=recipe.precision, shapes=self._shapes, **self._options)

    def _errors(self, model: ModelProto, compiled: CompiledModel, *, per_node: bool) -> NodeErrors:
        source, against = Source(model, imported(model)), self._floats
        return NodeErrors(Sides(source, compiled, self._held_out[0], against, per_node=per_node), _NEVER)


def best(trials: Sequence[Trial], floors: Floors) -> Trial | None:
    """The fastest that keeps the floors, of those with the fewest nodes on the host; None if none does.

    The model as it is does not take part.
    """
    fitting = [one for one in trials if one.recipe is not FLOATS and one.fits(floors)]
    return min(fitting, key=lambda one: (one.on_host, one.seconds, one.nbytes), default=None)


def _floats_of(row: Row, model: ModelProto) -> list[str]:
    """The names of a row's nodes that are quantised, and can be left out."""
    types = {node.name: node.op_type for node in model.graph.node}
    return [name for name in row.nodes if types.get(name, "") not in (*SAME, "")]


@dataclass(frozen=True)
class _Counted(Sequence[Mapping[str, Array]]):
    """Feeds that tell when they are taken."""

    feeds: Feeds
    text: str
    step: Step

    def __len__(self) -> int:
        return len(self.feeds)

    def __getitem__(self, place: Any) -> Any:
        found = self.feeds[place]
        return replace(self, feeds=found) if isinstance(place, slice) else found

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        for feed in self.feeds:
            self.step(self.text)
            yield feed
