# SPDX-License-Identifier: Apache-2.0
"""The devices that can be simulated, for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from onedispatch.operators.scheduling.resources import resources
from onedispatch.transactions import Device, device_names, find_device
from onedispatch.transactions.base.errors import DeviceError
from onedispatch.transactions.base.text import counted, short_bytes
from onedispatch.transactions.machine.device import DeviceName


@dataclass(frozen=True)
class DeviceInfo:
    """A device or a partition: columns of ``core_rows`` cores each. Sizes of memories in bytes.

    ``notes``: what of it can not be used, a sentence each.
    """

    name: str
    columns: int
    core_rows: int
    xrt_name: str
    clock_mhz: float
    aliases: tuple[str, ...] = ()
    core_memory: int = 0
    memory_tile: int = 0
    program_memory: int = 0
    notes: tuple[str, ...] = ()

    @property
    def cores(self) -> int:
        return self.columns * self.core_rows

    @property
    def memories(self) -> str:
        """Of a core, of a memory tile."""
        return f"{short_bytes(self.core_memory)}, {short_bytes(self.memory_tile)}"

    def __str__(self) -> str:
        also = f", also {', '.join(self.aliases)}" if self.aliases else ""
        size = f"{counted(self.columns, 'column')} x {self.core_rows} core rows"
        return f"{self.name}: {size}, {self.clock_mhz:g} MHz ({self.xrt_name}{also})"


def devices(files: Iterable[DeviceName] = ()) -> list[DeviceInfo]:
    """Every device that comes with the package; then those of ``files``, paths of device files.

    ``device=`` takes their names, and paths. Raises ``DeviceError`` for files that are none.
    """
    aliases: dict[str, list[str]] = {}
    for name in device_names():
        aliases.setdefault(find_device(name).name, []).append(name)
    infos = [
        describe(find_device(name), tuple(other for other in names if other != name))
        for name, names in aliases.items()
    ]
    return infos + [describe(find_device(file)) for file in files]


def describe(device: Device, aliases: tuple[str, ...] = ()) -> DeviceInfo:
    return DeviceInfo(
        device.name,
        device.columns,
        device.core_rows,
        device.xrt_name,
        device.constants.get("clock.array_mhz", 0.0),
        aliases,
        device.count("core.data_memory_bytes"),
        device.count("memory_tile.memory_bytes"),
        device.count("core.program_memory_bytes"),
        notes_of(device),
    )


def notes_of(device: Device) -> tuple[str, ...]:
    """What of a device can not be used: memory out of reach, or all of it where no overlay can serve it."""
    try:
        resources(device)
    except DeviceError as error:
        refused = f"no model runs on it: {error.given}; accepted: {error.accepted}"
        return (*device.notes, refused)
    return device.notes
