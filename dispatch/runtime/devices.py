# SPDX-License-Identifier: Apache-2.0
"""The devices that can be simulated, for people."""

from __future__ import annotations

from dataclasses import dataclass

from onedispatch.transactions import device_names, find_device
from onedispatch.transactions.base.phrases import counted


@dataclass(frozen=True)
class DeviceInfo:
    """A device or a partition: columns of ``core_rows`` cores each."""

    name: str
    columns: int
    core_rows: int
    xrt_name: str
    clock_mhz: float
    aliases: tuple[str, ...] = ()

    @property
    def cores(self) -> int:
        return self.columns * self.core_rows

    def __str__(self) -> str:
        also = f", also {', '.join(self.aliases)}" if self.aliases else ""
        size = f"{counted(self.columns, 'column')} x {self.core_rows} core rows"
        return f"{self.name}: {size}, {self.clock_mhz:g} MHz ({self.xrt_name}{also})"


def devices() -> list[DeviceInfo]:
    """Every device that ``device=`` takes."""
    aliases: dict[str, list[str]] = {}
    for name in device_names():
        aliases.setdefault(find_device(name).name, []).append(name)
    infos = []
    for name, names in aliases.items():
        device = find_device(name)
        others = tuple(other for other in names if other != name)
        clock = device.constants.get("clock.array_mhz", 0.0)
        infos.append(DeviceInfo(name, device.columns, device.core_rows, device.xrt_name, clock, others))
    return infos
