# SPDX-License-Identifier: Apache-2.0
"""Commands about the package itself: ops, devices."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.plugins import discovery
from onedispatch.dispatch.runtime.devices import devices as all_devices
from onedispatch.operators.declarations.registry import OpMapping, all_mappings
from onedispatch.operators.plugin.catalog import spelled
from onedispatch.transactions.base.text import counted


def ops(
    name: Annotated[str, typer.Argument(help="Only operators whose name contains this.")] = "",
    json: out.Json = False,
) -> None:
    """Which ONNX operators run on the device, for which dtypes, within which bounds, plug-ins included."""
    discovery.ensure()
    rows = [m for m in all_mappings() if name.lower() in m.op_type.lower()]
    if json:
        out.print_json(
            [
                {"domain": m.domain, "op_type": m.op_type, "dtypes": list(m.dtypes), "notes": m.notes}
                | {"plugin": m.origin}
                for m in rows
            ]
        )
        return
    columns, cells = ["operator", "dtypes", "bounds"], [_cells(m) for m in rows]
    if any(m.origin for m in rows):
        columns, cells = [*columns, "plug-in"], [(*row, m.origin) for row, m in zip(cells, rows, strict=True)]
    out.table(counted(len(rows), "operator"), columns, cells)


def _cells(mapping: OpMapping) -> tuple[str, ...]:
    return spelled(mapping), ", ".join(mapping.dtypes), mapping.notes


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
