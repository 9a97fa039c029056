# SPDX-License-Identifier: Apache-2.0
"""``--html FILE`` of inspect and profile: what is known of a compiled model as one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.cli import output as out
from onedispatch.transactions.base.files import write_file

if TYPE_CHECKING:
    from onedispatch.dispatch.page.collect import Seen

Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        help="Write one HTML page: graph, operators, timeline, array, memory. It needs nothing else.",
    ),
]


def write_page(
    path: Path,
    model: str,
    compiled: CompiledModel,
    inspected: Sequence[Mapping[str, Any]],
    seen: Seen,
) -> None:
    """Writes the page. ``inspected``: rows of ``inspect --json``; ``seen``: what saw the model compiled.

    Raises ``InputError`` where the file cannot be written.
    """
    from onedispatch.dispatch.page.collect import facts_of
    from onedispatch.dispatch.page.document import page

    with out.working("timing"):
        facts = facts_of(Path(model).name, compiled, inspected, seen)
    write_file(path, page(facts).encode())
