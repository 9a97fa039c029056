# SPDX-License-Identifier: Apache-2.0
"""Compares a run with onnxruntime, or with saved values, to find the first value that diverges.

Outputs are compared with those of onnxruntime on the unchanged model with default options, as users run it;
models of other frameworks, which it does not read, with onnxruntime on the translated graph. Intermediate
values are compared where a device operator or a host region writes them: values inside a fused operator are
never rounded, and have no row. Both sides return these values as additional outputs. onnxruntime optimises
here as well: unoptimised it computes groups of DequantizeLinear, an operator and QuantizeLinear in floats,
and their integers would differ from those that its users see.

Saved values have the names of the source framework: ``Graph.aliases`` says which value of the translated
graph each of them is, and how it is turned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.compile import source_of
from onedispatch.dispatch.compiler.options import ImportOptions
from onedispatch.dispatch.frontend.graph import Array, Graph, Node
from onedispatch.dispatch.host.engines import RUNTIME
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.dispatch.tools.differences import (
    Difference,
    Number,
    errors_of,
    first_difference,
    largest_of,
    share_of,
)
from onedispatch.dispatch.tools.expected import Expected, Host
from onedispatch.dispatch.tools.written_values import (
    nodes_inside,
    with_outputs_as,
    with_types,
    written_values,
)
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import did_you_mean


@dataclass(frozen=True)
class ValueComparison:
    """One value compared: ``error`` is the largest difference, ``relative`` is ``error / largest``.

    ``nodes`` were fused into one operator; ``node``, the last of them, writes the value. Both errors are
    infinite if only one side is a finite number, or the shapes differ: ``theirs_shape`` is the other one.

    ``index`` is the first element that is above the threshold, or else the worst; ``mine`` and ``theirs`` are
    there, ``difference`` and ``ulp`` apart (units in the last place of ``dtype``, of integers the
    difference).
    """

    node: str
    op_type: str
    nodes: tuple[str, ...]
    value: str
    dtype: str
    shape: tuple[int, ...]
    error: float
    relative: float
    largest: float
    diverges: bool
    index: tuple[int, ...] | None = None
    mine: Number | None = None
    theirs: Number | None = None
    difference: float = 0.0
    ulp: float = 0.0
    theirs_shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """The outputs, and every value in execution order; values above ``threshold`` diverge.

    ``skipped`` are saved values that were not compared, each with the reason.
    """

    precision: str
    threshold: float
    rows: tuple[ValueComparison, ...]
    outputs: tuple[ValueComparison, ...] = ()
    beside: str = RUNTIME  # what computed the outputs to compare with
    per_node: bool = True
    skipped: tuple[str, ...] = ()
    saved: bool = False  # ``beside`` is a file of values

    @property
    def unchanged(self) -> bool:
        """Whether onnxruntime computed the outputs of the model as it is."""
        return self.beside == RUNTIME and not self.saved

    @property
    def first(self) -> ValueComparison | None:
        """The first value that diverges; an output if no intermediate value does."""
        return next((row for row in (*self.rows, *self.outputs) if row.diverges), None)

    def as_dict(self) -> dict[str, Any]:
        first = self.first
        return {
            "precision": self.precision,
            "threshold": self.threshold,
            "diverges": first is not None,
            "first": None if first is None else first.node,
            "first_value": None if first is None else asdict(first),
            "outputs_beside": self.beside,
            "outputs": [asdict(row) for row in self.outputs],
            "rows": [asdict(row) for row in self.rows],
            "skipped": list(self.skipped),
        }


@dataclass(frozen=True)
class Question:
    """What is compared.

    Attributes:
        model: as it was given.
        graph: ``model``, imported as ``how`` says.
        threshold: a fraction of a value's largest number on the other side.
        per_node: values of nodes too, not the outputs alone.
        reference: values to compare with, by tensor name; None: onnxruntime's.
        named: where ``reference`` came from.
    """

    model: Any
    graph: Graph
    threshold: float
    how: ImportOptions = field(default_factory=ImportOptions)
    per_node: bool = True
    reference: Mapping[str, Array] | None = None
    named: str = "the reference"


def compare(
    question: Question,
    feed: Mapping[str, Array],
    answers: Sequence[Any],
    like: CompiledModel,
    *,
    threads: int | None = None,
    kernel_seconds: float | None = None,
) -> Comparison:
    """Compares a run, of the model compiled as ``like`` is, with onnxruntime or with a reference.

    ``answers`` are the outputs of the run for ``feed``. Raises ``InputError`` for a threshold that is not
    above 0 and a reference with none of the model's values, and the errors of compiling and running.
    """
    check_threshold(question.threshold)
    graph = with_types(question.graph, feed, like)
    work = _Work(replace(question, graph=graph), feed, like, threads, kernel_seconds)
    wanted = {
        name: answer
        for value, answer in zip(graph.outputs, answers, strict=True)
        if _numbers(answer) and (name := value.name)
    }
    if question.reference is not None:
        return work.beside_reference(question.reference, wanted)
    return work.beside_runtime(wanted)


@dataclass(frozen=True)
class _Work:
    """One comparison."""

    question: Question
    feed: Mapping[str, Array]
    like: CompiledModel
    threads: int | None
    kernel_seconds: float | None

    @property
    def graph(self) -> Graph:
        return self.question.graph

    @property
    def host(self) -> Host:
        return Host(self.like.target, self.threads, self.kernel_seconds)

    @cached_property
    def makers(self) -> dict[str, Node]:
        """The node that makes each value."""
        return {name: node for node in self.graph.nodes for name in node.writes}

    def beside_runtime(self, wanted: Mapping[str, Any]) -> Comparison:
        named = list(written_values(self.graph, self.feed, self.like)) if self.question.per_node else []
        theirs = self.host.values(self.graph, named, self.feed)
        ours, inside = self._ours(named), nodes_inside(self.graph, set(named))
        rows = [self._row(name, inside[name], ours[name], theirs[name]) for name in named]
        outside = Expected(self.question.model, self.question.how, self.graph, list(wanted), self.host)
        expected = outside.run(self.feed)
        outputs = [self._row(name, (), answer, expected[name]) for name, answer in wanted.items()]
        return self._comparison(rows, outputs, outside.beside)

    def beside_reference(self, reference: Mapping[str, Array], wanted: Mapping[str, Any]) -> Comparison:
        """Saved values beside those of the nodes that make them, and beside the outputs."""
        given = self.graph, self.feed, self.like
        saved = {self._own_name(name): array for name, array in reference.items()}
        made = list(written_values(*given, beside_host=False)) if self.question.per_node else []
        turned = {name: self.graph.unaliased(name) for name in saved}
        order = {name: place for place, name in enumerate(made)}
        inner = sorted(
            (name for name in saved if turned[name][0] in order), key=lambda n: order[turned[n][0]]
        )
        ours = self._ours(list(dict.fromkeys(turned[name][0] for name in inner)))
        inside = nodes_inside(self.graph, set(made))
        rows = []
        for name in inner:
            value, perm = turned[name]
            mine = np.asarray(ours[value]).transpose(perm) if perm else ours[value]
            rows.append(self._row(name, inside[value], mine, saved[name], value))
        outputs = [self._row(n, (), answer, saved[n]) for n, answer in wanted.items() if n in saved]
        done = {*inner, *(name for name in wanted if name in saved)}
        skipped = [f"{name}: {self._why(name)}" for name in saved if name not in done]
        if not rows and not outputs:
            names = [*wanted, *self.makers]
            near = next((hint for name in saved if (hint := did_you_mean(name, names))), "")
            text = f"{', '.join(list(saved)[:5]) or 'no value'} in {self.question.named}"
            accepted = f"outputs ({', '.join(wanted)})" + (", or values of nodes" if made else "")
            raise InputError("--reference", text, accepted, near)
        return self._comparison(rows, outputs, self.question.named, tuple(skipped))

    def _own_name(self, name: str) -> str:
        """The name of a value in the graph: TensorFlow calls the first output of a node ``name:0``."""
        known = name in self.makers or name in self.graph.output_names
        foreign = source_of(self.question.model, self.question.how) != "onnx"
        return name.removesuffix(":0") if foreign and not known else name

    def _why(self, name: str) -> str:
        """Why a saved value has no row."""
        value = self.graph.unaliased(name)[0]
        if value in self.graph.constants:
            return "a constant of the model"
        if value in self.feed:
            return "an input of the model"
        if value not in self.makers:
            return "no value of the translated graph"
        return "inside of an operator" if self.question.per_node else "a value of a node, without --per-node"

    def _ours(self, names: Sequence[str]) -> dict[str, Any]:
        """Values of the graph, compiled as ``like`` is, with these values as outputs."""
        if not names:
            return {}
        probe = with_outputs_as(self.graph, names, self.like)
        session = InferenceSession(probe, threads=self.threads, kernel_seconds=self.kernel_seconds)
        return dict(zip(names, session.run(None, self.feed), strict=True))

    def _row(
        self, name: str, nodes: tuple[str, ...], mine: Any, theirs: Any, value: str = ""
    ) -> ValueComparison:
        node = self.makers.get(value or name)
        ends = (node.name, node.op_type) if node is not None else ("", "")
        bound = self.question.threshold
        return value_comparison(ends, nodes, name, np.asarray(mine), np.asarray(theirs), bound)

    def _comparison(
        self,
        rows: Sequence[ValueComparison],
        outputs: Sequence[ValueComparison],
        beside: str,
        skipped: tuple[str, ...] = (),
    ) -> Comparison:
        asked = self.question
        return Comparison(
            self.like.precision,
            asked.threshold,
            tuple(rows),
            tuple(outputs),
            beside,
            asked.per_node,
            skipped,
            asked.reference is not None,
        )


def check_threshold(threshold: float) -> None:
    """Raises ``InputError`` for one that is not above 0."""
    if not 0 < threshold < np.inf:
        raise InputError("threshold", f"{threshold:g}", "a number above 0")


def _numbers(answer: Any) -> bool:
    return isinstance(answer, np.ndarray) and not answer.dtype.hasobject


def value_comparison(
    maker: tuple[str, str], nodes: tuple[str, ...], name: str, mine: Array, theirs: Array, bound: float
) -> ValueComparison:
    """Returns two arrays compared; ``maker`` is a node and its operator, ``bound`` a share of the largest."""
    alike = mine.shape == theirs.shape
    errors = errors_of(mine, theirs) if alike else np.full(1, np.inf)
    largest, error = largest_of(theirs), float(errors.max(initial=0.0))
    relative = share_of(error, largest)
    first = first_difference(mine, theirs, errors, bound * largest) if alike else Difference(error=np.inf)
    return ValueComparison(
        *maker,
        nodes,
        name,
        str(theirs.dtype),
        _sizes(mine),
        error,
        relative,
        largest,
        relative > bound,
        first.index,
        first.mine,
        first.theirs,
        first.error,
        first.ulp,
        _sizes(theirs),
    )


def _sizes(array: Array) -> tuple[int, ...]:
    return tuple(int(size) for size in array.shape)
