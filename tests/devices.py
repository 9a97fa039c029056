# SPDX-License-Identifier: Apache-2.0
"""Device files for tests: what they say differs from ``npu2``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from onedispatch.transactions import Device
from onedispatch.transactions.machine.device import read_text

# name -> "section.key" -> value. Small, odd and large arrays, memories from a quarter to twice, and as
# little of everything else as the overlay can do with.
FILES: dict[str, dict[str, int]] = {
    "two": {"device.columns": 2, "device.core_rows": 2},
    "six": {"device.columns": 6, "device.core_rows": 3},
    "ten": {"device.columns": 10, "device.core_rows": 6},
    "halved": {"core.data_memory_bytes": 32768, "memory_tile.memory_bytes": 262144},
    "quartered": {"core.data_memory_bytes": 16384, "memory_tile.memory_bytes": 131072},
    "cores_doubled": {"core.data_memory_bytes": 131072},
    "tiles_doubled": {"memory_tile.memory_bytes": 1048576},
    "doubled": {"core.data_memory_bytes": 131072, "memory_tile.memory_bytes": 1048576},
    "one": {"device.columns": 1, "device.core_rows": 1},
    "scarce": {
        "device.columns": 3,
        "memory_tile.bds": 24,
        "memory_tile.locks": 32,
        "shim.bds": 6,
        "core.bds": 6,
        "dma.queue_depth": 1,
    },
    "tall": {"device.columns": 2, "device.core_rows": 11},
}


def device_text(changes: Mapping[str, float], base: str = "npu2") -> str:
    """A device file that says ``changes`` of ``base``."""
    sections: dict[str, list[str]] = {"device": [f'base = "{base}"']}
    for key, value in changes.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, []).append(f"{name} = {value}")
    return "\n".join(line for section, lines in sections.items() for line in (f"[{section}]", *lines)) + "\n"


def device_file(folder: Path, name: str, changes: dict[str, int] | None = None) -> Path:
    """Writes ``name.toml``; what it says is ``FILES[name]`` unless given."""
    path = folder / f"{name}.toml"
    path.write_text(device_text(FILES[name] if changes is None else changes), encoding="utf-8")
    return path


def device_of(name: str) -> Device:
    """The device of ``FILES[name]`` without a file."""
    return read_text(device_text(FILES[name]), name, name)[0]
