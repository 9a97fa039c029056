# SPDX-License-Identifier: Apache-2.0
"""Devices: geometry and named constants, from the description files in ``devices/``."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import DeviceError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DESCRIPTIONS = Path(__file__).parent / "devices"


@dataclass(frozen=True)
class Device:
    """A device or a column partition of one.

    Attributes:
        name: canonical name, such as ``"npu2"`` or ``"npu2_4col"``.
        columns: columns of the partition.
        core_rows: cores per column (tile rows 2 and up).
        device_generation: DevGen of transaction headers: 3 XDNA, 4 XDNA2.
        xrt_name: what XRT calls the device.
        constants: ``"section.key"`` -> value of the description file, sources named there.
    """

    name: str
    columns: int
    core_rows: int
    device_generation: int
    xrt_name: str
    constants: Mapping[str, float]

    def __hash__(self) -> int:
        return hash((self.name, self.columns, tuple(sorted(self.constants.items()))))

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled, and tuning sends devices to other processes.
        return (
            _make,
            (
                self.name,
                self.columns,
                self.core_rows,
                self.device_generation,
                self.xrt_name,
                dict(self.constants),
            ),
        )

    @cached_property
    def identity(self) -> str:
        """Name and digest of everything that is known of it: what problems and solutions are for."""
        parts = [self.columns, self.core_rows, self.device_generation, *sorted(self.constants.items())]
        return f"{self.name}@{hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()}"

    def constant(self, key: str) -> float:
        """A constant by ``"section.key"``; DeviceError when the description lacks it."""
        try:
            return self.constants[key]
        except KeyError:
            raise DeviceError(
                f"device {self.name}",
                f"constant {key!r}",
                ", ".join(sorted(self.constants)),
                "add it, with its source, to the description file",
            ) from None

    def with_constants(self, **changes: float) -> Device:
        """The same device with other constants; ``.`` in keys is written ``__``."""
        named = {key.replace("__", "."): value for key, value in changes.items()}
        for key in named:
            self.constant(key)
        return replace(self, constants=MappingProxyType({**self.constants, **named}))


def _make(
    name: str, columns: int, rows: int, generation: int, xrt: str, constants: dict[str, float]
) -> Device:
    return Device(name, columns, rows, generation, xrt, MappingProxyType(constants))


def read_description(path: Path) -> tuple[Device, str]:
    """The device of a description file, and its alias ("" for none).

    Raises:
        DeviceError: the file is missing, not TOML, or lacks a key.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        head = data.pop("device")
        constants = {
            f"{section}.{key}": float(value)
            for section, entries in data.items()
            for key, value in entries.items()
            if not isinstance(value, str)  # the C++ reader keeps strings apart too
        }
        device = _make(
            path.stem,
            head["columns"],
            head["core_rows"],
            head["device_generation"],
            head["xrt_name"],
            constants,
        )
    except (OSError, tomllib.TOMLDecodeError, KeyError, AttributeError, ValueError, TypeError) as error:
        raise DeviceError(
            f"device description {path.name}",
            f"{type(error).__name__}: {error}",
            "sections of key = number, and [device] with columns, core_rows, device_generation, xrt_name",
            "compare it with the files in transactions/devices",
        ) from error
    return device, head.get("alias", "")


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Device]:
    devices: dict[str, Device] = {}
    aliases: dict[str, Device] = {}
    for path in sorted(DESCRIPTIONS.glob("*.toml")):
        device, alias = read_description(path)
        devices[device.name] = device
        for columns in range(1, device.columns):
            name = f"{device.name}_{columns}col"
            devices[name] = replace(device, name=name, columns=columns)
        if alias:
            aliases[alias] = device
    return MappingProxyType({**devices, **aliases})


@public
def device_names() -> tuple[str, ...]:
    """Every name that ``find_device`` accepts; aliases last."""
    return tuple(_table())


@public
def find_device(name: str) -> Device:
    """A device by name or alias.

    Raises:
        DeviceError: no such device; lists the known names.
    """
    device = _table().get(name)
    if device is None:
        raise DeviceError("find_device", repr(name), ", ".join(device_names()), "use one of these names")
    return device
