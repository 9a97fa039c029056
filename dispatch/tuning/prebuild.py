# SPDX-License-Identifier: Apache-2.0
"""Code objects of a catalog: the programs of models that are compiled by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from onedispatch.operators.catalog.build import write
from onedispatch.operators.catalog.container import Library
from onedispatch.operators.catalog.layers import NONE
from onedispatch.operators.emission.programs import NestProgram, recorded


def programs_by(library: Library, compile: Callable[[Sequence[str]], object]) -> dict[bytes, NestProgram]:
    """The programs of what ``compile`` compiles, given the ``catalog=`` that has ``library`` alone."""
    with TemporaryDirectory() as folder, recorded() as programs:
        write([library], Path(folder), lazy=False)
        compile((folder, NONE))
    return programs
