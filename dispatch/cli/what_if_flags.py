# SPDX-License-Identifier: Apache-2.0
"""``--devices``, ``--batch`` and ``--sweep``: options of commands that make tables of their combinations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class WhatIfFlags:
    """Other devices, batches and numbers of a device: a row of one table for each combination."""

    devices: Annotated[
        list[str] | None,
        typer.Option(help="Several devices, as --device names one: npu1,npu2_4col,my.toml. Repeatable."),
    ] = None
    batch: Annotated[
        list[str] | None,
        typer.Option(help="Sizes of the inputs' leading dimension: 1,2,4 or 1..64:x2. Repeatable."),
    ] = None
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="Values of a key of device files: columns=1..8, core.data_memory_bytes=32768,65536, "
            "ddr.gigabytes_per_second=30..120:30. Repeatable."
        ),
    ] = None

    @property
    def asked(self) -> bool:
        return any((self.devices, self.batch, self.sweep))
