# SPDX-License-Identifier: Apache-2.0
"""Commands about the package itself: devices."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.runtime.devices import devices as all_devices


def devices(
    files: Annotated[
        list[str] | None, typer.Argument(help="Device files, my_npu.toml, to check and to show too.")
    ] = None,
    json: out.Json = False,
) -> None:
    """The NPUs that can be simulated, and their column partitions."""
    found = all_devices(files or ())
    if json:
        out.print_json([asdict(info) for info in found])
        return
    out.table(
        "Devices",
        ("name", "columns", "cores", "memories", "MHz", "XRT name", "also"),
        [
            (d.name, d.columns, d.cores, d.memories, f"{d.clock_mhz:g}", d.xrt_name, ", ".join(d.aliases))
            for d in found
        ],
        right=(1, 2, 3, 4),
    )
    for info in found:
        for note in info.notes:
            out.tell(f"{info.name}: {note}")
