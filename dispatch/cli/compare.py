# SPDX-License-Identifier: Apache-2.0
"""``onedispatch compare``: a model's values beside onnxruntime's, beside another model's, or saved ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.cli import comparison, opening, verdict
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.models import InputFlags, feed_of, shapes_in
from onedispatch.dispatch.cli.samples import SampleFlags
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.transactions.base.errors import InputError

if TYPE_CHECKING:
    from onedispatch.dispatch.cli.node_table import Found
    from onedispatch.dispatch.tools.node_errors import NodeErrors

_CURED = 5  # nodes with the largest own errors, whose cures are looked for


@dataclass(frozen=True)
class BesideFlags:
    """What values are compared with."""

    per_node: Annotated[
        bool, typer.Option("--per-node", help="The value of every node too, in execution order.")
    ] = False
    threshold: Annotated[
        float | None,
        typer.Option(
            help=f"Where a value diverges: a share of its largest number.  [default: {comparison.THRESHOLD}]"
        ),
    ] = None
    against: Annotated[
        str,
        typer.Option(help="Compare with this model by onnxruntime: what an int8 one was made of, fp32.onnx."),
    ] = ""
    reference: Annotated[
        str, typer.Option(help="Compare with these values instead, by tensor name: values.npz.")
    ] = ""


def compare(
    model: opening.Model,
    given: InputFlags,
    taken: SampleFlags,
    compiling: opening.CompileFlags,
    beside: BesideFlags,
    json: out.Json = False,
) -> None:
    """Run a model and compare its values with onnxruntime's, to find the first that diverges.

    Outputs are compared with onnxruntime on the unchanged model; of other frameworks, which it does not read,
    on the graph that the model was translated to. --against compares with another model, by the names of
    values and nodes: integers count as what they stand for. --reference compares with values that another
    framework computed, by the names that they have there. Of outputs with a score for each class, top-1 is
    the share of samples with the same class.

    --per-node compares what every device operator and host region writes as well, in execution order: the
    error of its own, which it makes when it is fed with the reference's inputs, and what it inherits. Of the
    largest own errors it says which precision or scale would cure them.

    Of the first value that diverges it names the node, the first element that is too far off, both numbers,
    and their difference in units in the last place (ULP). The exit code is 2 then.
    """
    how = compiling.requested.reading
    one = {"option": "onedispatch compare", "per_node": beside.per_node}
    asked = comparison.asked(model, beside.threshold, how, reference=beside.reference, **one)  # type: ignore[arg-type]
    if beside.reference and (beside.against or taken.data or taken.samples):
        other = "--against" if beside.against else "a data set"
        raise InputError("--reference", f"values beside {other}", "one input, or --against for a data set")
    against = comparison.asked(beside.against, None, how, option="--against") if beside.against else None
    compiled = opening.open_model(model, compiling)
    session = InferenceSession(compiled)
    if beside.reference:
        _beside_saved(asked, session, compiled, feed_of(session, compiled, given, compiling.shapes), json)
        return
    feeds, shapes = taken.feeds(session, compiled, given, compiling.shapes)
    with opening.taken_sizes(compiled, shapes, shapes_in(feeds[0])):
        errors = _errors(asked, against, compiled, feeds)
    found = _found(errors, feeds, beside)
    if json:
        out.print_json(found.as_dict())
    else:
        if compiled.latest:
            verdict.show(verdict.of(compiled))
        _show(found)
    if found.diverges:
        raise typer.Exit(comparison.DIVERGES)


def _beside_saved(
    asked: comparison.Asked,
    session: InferenceSession,
    compiled: CompiledModel,
    given: tuple[dict[str, Array], opening.Shapes],
    json: bool,
) -> None:
    feed, shapes = given
    with opening.taken_sizes(compiled, shapes, shapes_in(feed)), out.working("running"):
        answers = session.run(None, feed)
    found = asked.compared(feed, answers, compiled)
    if json:
        out.print_json(found.as_dict())
    else:
        verdict.show(verdict.of(session.model))
        comparison.show(found)
    if found.first is not None:
        raise typer.Exit(comparison.DIVERGES)


def _errors(
    asked: comparison.Asked,
    against: comparison.Asked | None,
    compiled: CompiledModel,
    feeds: Sequence[dict[str, Array]],
) -> NodeErrors:
    from onedispatch.dispatch.tools.node_errors import NodeErrors
    from onedispatch.dispatch.tools.sides import Sides, Source

    def source(one: comparison.Asked) -> Source:
        return Source(one.model, one.graph, one.how)

    other = None if against is None else source(against)
    with out.progress("comparing", len(feeds)) as advance:
        errors = NodeErrors(
            Sides(source(asked), compiled, feeds[0], other, per_node=asked.per_node), asked.threshold
        )
        for feed in feeds:
            errors.add(feed)
            advance()
    return errors


def _found(errors: NodeErrors, feeds: Sequence[dict[str, Array]], beside: BesideFlags) -> Found:
    from onedispatch.dispatch.cli.node_table import Found
    from onedispatch.dispatch.tools.cures import cures

    with out.working("looking for cures"):
        known = cures(errors, errors.worst(_CURED), feeds)
    aside = getattr(feeds, "aside", ())
    return Found(errors, beside.against, beside.per_node, aside, known)


def _show(found: Found) -> None:
    from onedispatch.dispatch.cli import node_table

    node_table.show(found)
