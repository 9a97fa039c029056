# SPDX-License-Identifier: Apache-2.0
"""``onedispatch compare``: a model's values beside onnxruntime's, or beside saved ones."""

from __future__ import annotations

from typing import Annotated

import typer

from onedispatch.dispatch.cli import comparison, opening
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.models import InputFlags, feed_of
from onedispatch.dispatch.runtime.session import InferenceSession


def compare(
    model: opening.Model,
    given: InputFlags,
    compiling: opening.CompileFlags,
    per_node: Annotated[
        bool, typer.Option("--per-node", help="The value of every node too, in execution order.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            help=f"Where a value diverges: a share of its largest number.  [default: {comparison.THRESHOLD}]"
        ),
    ] = None,
    reference: Annotated[
        str, typer.Option(help="Compare with these values instead, by tensor name: values.npz.")
    ] = "",
    json: out.Json = False,
) -> None:
    """Run a model and compare its values with onnxruntime's, to find the first that diverges.

    Outputs are compared with onnxruntime on the unchanged model; of other frameworks, which it does not read,
    on the graph that the model was translated to. --per-node compares what every device operator and host
    region writes as well, in execution order. --reference compares with values that another framework
    computed, by the names that they have there.

    Of the first value that diverges it names the node, the first element that is too far off, both numbers,
    and their difference in units in the last place (ULP). The exit code is 2 then.
    """
    how = compiling.requested.reading
    asked = comparison.asked(
        model, threshold, how, option="onedispatch compare", per_node=per_node, reference=reference
    )
    compiled = opening.open_model(model, compiling)
    session = InferenceSession(compiled)
    feed, shapes = feed_of(session, compiled, given, compiling.shapes)
    with opening.taken_as_one(compiled, shapes), out.working("running"):
        answers = session.run(None, feed)
    found = asked.compared(feed, answers, compiled)
    if json:
        out.print_json(found.as_dict())
    else:
        comparison.show(found)
    if found.first is not None:
        raise typer.Exit(comparison.DIVERGES)
