# SPDX-License-Identifier: Apache-2.0
"""Tries edits of a model: compiles it with each, for what moves to the NPU and what time it takes then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from onnx import ModelProto

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.compiler.executable import Executable
from onedispatch.dispatch.driver.compile_model import compile_model
from onedispatch.dispatch.frontend.importer import node_names
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.dispatch.runtime.summary import Summary
from onedispatch.dispatch.tools.advice.edits import TAKEN, Edit, edits_of
from onedispatch.transactions.base.errors import OneDispatchError
from onedispatch.transactions.base.text import counted, duration

_OF_HOST_NODES = ("freeze", "narrow", "cast", "cut")
_OF_USERS = ("freeze", "precision", "int8", "device")  # to take, by a flag or a command
_MOST_TRIED = 8  # edits, where nodes on the host are shown
Concrete = Callable[[CompiledModel], CompiledModel]
Progress = Callable[[str], Any]


@dataclass(frozen=True)
class Trial:
    """An edit, and the model with it: ``summary``, or why it does not compile (``refused``)."""

    edit: Edit
    before: Summary
    summary: Summary | None
    refused: str = ""

    @property
    def helps(self) -> bool:
        """Whether fewer nodes are on the host, or as many and it takes less time."""
        if self.summary is None:
            return False
        return _merit(self.summary) < _merit(self.before)

    @property
    def gain(self) -> str:
        """What it gains or loses, for people."""
        if self.summary is None:
            return f"does not compile: {self.refused}"
        before, after = self.before, self.summary
        texts = []
        if after.cpu != before.cpu:
            texts.append(f"{counted(after.cpu, 'node')} on the host instead of {before.cpu:,}")
        if after.dispatches != before.dispatches:
            texts.append(f"{counted(after.dispatches, 'dispatch')} instead of {before.dispatches:,}")
        times = f"{duration(after.seconds)} instead of {duration(before.seconds)}"
        return "; ".join([*texts, times if after.seconds != before.seconds else "the same time"])

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it."""
        return {
            "edit": self.edit.text,
            "node": self.edit.node,
            "options": dict(self.edit.options),
            "caution": self.edit.caution,
            "helps": self.helps,
            "gain": self.gain,
            "refused": self.refused,
            "summary": None if self.summary is None else asdict(self.summary),
        }


def _merit(summary: Summary) -> tuple[int, float]:
    """Less is better: nodes on the host, then time, launches included."""
    return summary.cpu, summary.seconds + summary.launch_seconds


@dataclass(frozen=True)
class Advice:
    """What was tried on a model; ``best``: the edits that help, together, and what they gain together."""

    before: Summary
    trials: Sequence[Trial]
    best: Sequence[Edit]
    together: Summary
    model: ModelProto  # with those of ``best`` that change it

    @property
    def options(self) -> dict[str, str]:
        """Options of ``compile`` among ``best``."""
        return {name: value for edit in self.best for name, value in edit.options.items()}

    @property
    def writes(self) -> bool:
        """Whether ``model`` is another than what was given."""
        return any(edit.change for edit in self.best)

    @property
    def beyond(self) -> list[Trial]:
        """Trials that alone help more than ``best`` together, the most first: the user's to take, since they
        need data, another NPU, or a choice between values of an input."""
        found = [
            (_merit(trial.summary), trial)
            for trial in self.trials
            if trial.edit.kind in _OF_USERS and trial.edit not in self.best and trial.summary is not None
        ]
        better = [one for one in found if one[0] < _merit(self.together)]
        return [trial for _, trial in sorted(better, key=lambda one: one[0])]


def _named(model: ModelProto) -> ModelProto:
    """The model with the names that its nodes have with us as their own: those of nodes without one count
    them, and an edit that adds nodes would give a name to another node."""
    names = node_names(model.graph.node)
    if names == [node.name for node in model.graph.node]:
        return model
    made = ModelProto()
    made.CopyFrom(model)
    for node, name in zip(made.graph.node, names, strict=True):
        node.name = name
    return made


@dataclass(frozen=True)
class _State:
    """A model with edits that were taken."""

    model: ModelProto
    options: Mapping[str, str]
    summary: Summary
    taken: tuple[Edit, ...] = ()


class Advisor:
    """Compiles a model with edits, for what each gains.

    Args:
        model: the ONNX model, weights included.
        options: of ``compile``, by name.
        shapes: of inputs with open dimensions, by input; of inputs that an edit takes away, left out.
        concrete: returns a compiled model with an executable.
        progress: is called with the text of each edit before it is tried.
    """

    def __init__(
        self,
        model: ModelProto,
        options: Mapping[str, Any],
        shapes: Mapping[str, Sequence[int]],
        concrete: Concrete,
        progress: Progress = lambda _: None,
    ) -> None:
        self._model = _named(model)
        self._options = options
        self._shapes = shapes
        self._concrete = concrete
        self._progress = progress

    def advise(self, devices: Iterable[str] = ()) -> Advice:
        """Tries every edit alone, then those of the model and the precision that help, one after the other.

        Raises what ``compile`` raises for the model as it is.
        """
        compiled = self._compiled(self._model, {})
        start = _State(self._model, {}, InferenceSession(compiled).summary())
        trials = [self.tried(edit, start) for edit in self._edits(self._model, compiled, devices)]
        return replace(self._best(start.summary, trials), trials=trials)

    def moves(self, executable: Executable, before: Summary) -> dict[str, Edit]:
        """Returns for nodes on the host the edit, of those that give up least, that moves them to the NPU.

        Edits that leave more nodes on the host than there were, as casts that do not map either, move none.
        """
        start, found = _State(self._model, {}, before), dict[str, Edit]()
        for edit in edits_of(self._model, executable, {}, ())[:_MOST_TRIED]:
            if edit.kind in _OF_HOST_NODES and len(found) < before.cpu:
                trial = self.tried(edit, start)
                if trial.helps and trial.summary is not None:
                    left = {row.node for row in trial.summary.host}
                    moved = [row.node for row in before.host if row.node not in left]
                    found = dict.fromkeys(moved, edit) | found
        return found

    def _edits(self, model: ModelProto, compiled: CompiledModel, devices: Iterable[str]) -> list[Edit]:
        _, executable = compiled.used_last()
        named = {"device": compiled.device, "precision": compiled.precision}
        frozen = self._options.get("freeze") or ()
        return edits_of(model, executable, named, devices, frozen)

    def tried(self, edit: Edit, state: _State) -> Trial:
        """Returns what an edit gains."""
        options = {**state.options, **edit.options}
        try:
            return Trial(edit, state.summary, self._summary(self._changed(state.model, edit), options))
        except OneDispatchError as error:
            return Trial(edit, state.summary, None, error.statement())

    def _best(self, before: Summary, trials: Sequence[Trial]) -> Advice:
        """Takes edits by kind, of a kind the best first, while each still helps; no device, and no int8.

        Each kind's edits are those of the model as the kinds before left it.
        """
        state = _State(self._model, {}, before)
        for kind in TAKEN:
            if state.taken:
                trials = self._trials_after(state, kind)
            found = [trial for trial in trials if trial.edit.kind == kind and trial.helps]
            values = Counter(trial.edit.input for trial in found)
            # Of several values of an input which help, none is better than the others: the user knows which.
            found = [trial for trial in found if not trial.edit.input or values[trial.edit.input] == 1]
            for trial in sorted(found, key=lambda one: _merit(one.summary or before)):
                state = self._taken(state, trial.edit)
        return Advice(before, (), state.taken, state.summary, state.model)

    def _trials_after(self, state: _State, kind: str) -> list[Trial]:
        edits = self._edits(state.model, self._compiled(state.model, state.options), ())
        return [self.tried(edit, state) for edit in edits if edit.kind == kind]

    def _taken(self, state: _State, edit: Edit) -> _State:
        """The model with one more edit, where that still helps."""
        try:
            changed = self._changed(state.model, edit)
            options = {**state.options, **edit.options}
            after = self._summary(changed, options)
        except (OneDispatchError, StopIteration):  # an earlier one took away what it changes
            return state
        if _merit(after) >= _merit(state.summary):
            return state
        return _State(changed, options, after, (*state.taken, edit))

    def _changed(self, model: ModelProto, edit: Edit) -> ModelProto:
        self._progress(edit.text)
        return model if edit.change is None else edit.change(model)

    def _summary(self, model: ModelProto, options: Mapping[str, str]) -> Summary:
        return InferenceSession(self._compiled(model, options)).summary()

    def _compiled(self, model: ModelProto, options: Mapping[str, str]) -> CompiledModel:
        inputs = {one.name for one in model.graph.input}
        shapes = {name: shape for name, shape in self._shapes.items() if name in inputs}
        given = {**self._options, **options, "fallback": "cpu"}
        return self._concrete(compile_model(model, shapes=shapes, **given))
