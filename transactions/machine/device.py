# SPDX-License-Identifier: Apache-2.0
"""Devices: geometry and named constants, from description files (``devices/``, or the user's own).

A device file is TOML: ``[section]``, ``key = number`` or ``"string"``. ``[device]`` has ``columns``,
``core_rows``, ``device_generation`` and ``xrt_name``; with ``base = "npu2"`` that device provides every key
the file omits. Valid keys are those of AMD's devices (``devices/npu2.toml``), and ``note`` in any section,
which is a comment; ``geometry`` bounds their values.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import DeviceError
from onedispatch.transactions.base.files import read_file
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted, did_you_mean, span
from onedispatch.transactions.machine.geometry import GEOMETRY_RANGES, accepted_range, unreachable_memory

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DESCRIPTIONS = Path(__file__).parent / "devices"
MOST_BYTES = 1 << 20  # size limit of a device file
MOST_LISTED = 16  # keys of a section that an error lists
MOST_NAME_BYTES = 24  # with "_127col" appended, the name fits the name field of an xclbin
_FILE = re.compile(r"(?P<path>.+\.toml)(?:_(?P<columns>\d{1,3})col)?", re.DOTALL)
_PARTITION = re.compile(r".*_\d+col")
_PLAIN = re.compile(r"[ !#-\[\]-~]*")  # the C++ reader supports no escapes
_TEXTS = tuple(f"device.{key}" for key in ("name", "base", "xrt_name", "alias"))
_ACCEPTED_TEXT = "a string in quotes, of ASCII characters without quotes and backslashes"
_COMPARE = "compare it with the files in transactions/machine/devices"

DeviceName = str | os.PathLike[str]


@dataclass(frozen=True)
class Device:
    """A device or a column partition of one.

    Attributes:
        name: canonical name, such as ``"npu2"`` or ``"npu2_4col"``; of a file its name without ``.toml``.
        columns: columns of the partition.
        core_rows: cores per column (tile rows 2 and up).
        device_generation: DevGen of transaction headers: 3 XDNA, 4 XDNA2.
        xrt_name: XRT's name of the device.
        constants: ``"section.key"`` -> value of the description file, sources named there.
    """

    name: str
    columns: int
    core_rows: int
    device_generation: int
    xrt_name: str
    constants: Mapping[str, float] = field(repr=False)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.columns, self.core_rows, tuple(sorted(self.constants.items()))))

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
        """Name and digest of the whole description: the key of problems and solutions."""
        parts = [self.columns, self.core_rows, self.device_generation, *sorted(self.constants.items())]
        return f"{self.name}@{hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()}"

    def constant(self, key: str) -> float:
        """Returns a constant by ``"section.key"``. Raises DeviceError if the description lacks it."""
        try:
            return self.constants[key]
        except KeyError:
            raise DeviceError(
                f"device {self.name}",
                f"constant {key!r}",
                ", ".join(sorted(self.constants)),
                "name one of these, or add it, with its source, to the files of all devices",
            ) from None

    def count(self, key: str) -> int:
        """Returns a size or a count of the geometry, such as ``"core.data_memory_bytes"``."""
        return int(self.constant(key))

    @property
    def rows(self) -> int:
        """Rows of tiles: the shim, the memory tile and the cores."""
        return 2 + self.core_rows

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on memory that the register map cannot address, and on its use."""
        return tuple(unreachable_memory(self.count))

    def with_constants(self, **changes: float) -> Device:
        """Returns the device with some constants changed; ``.`` in keys is written ``__``.

        Raises DeviceError for an unknown key, and for a geometry that the register map does not support.
        """
        named = {key.replace("__", "."): value for key, value in changes.items()}
        for key, value in named.items():
            self.constant(key)
            _check_bound(f"device {self.name}", key, value)
        return replace(self, constants=MappingProxyType({**self.constants, **named}))

    def partition(self, columns: int) -> Device:
        """Returns a partition of ``columns`` columns, named ``<name>_<columns>col``."""
        if not 1 <= columns <= self.columns:
            raise DeviceError(
                f"device {self.name}", counted(columns, "column"), span(1, self.columns), "name fewer columns"
            )
        if columns == self.columns:
            return self
        return replace(self, name=f"{self.name}_{columns}col", columns=columns)

    def description(self) -> str:
        """Returns the text of a device file for this device, readable by ``read_text`` and by C++."""
        lines = ["[device]", f'name = "{self.name}"', f'xrt_name = "{self.xrt_name}"']
        lines += [f"{key} = {getattr(self, key)}" for key in _HEAD]
        section = "device"
        for key, value in sorted(self.constants.items()):
            this, _, name = key.rpartition(".")
            if this != section:
                section = this
                lines.append(f"[{section}]")
            lines.append(f"{name} = {int(value) if float(value).is_integer() else repr(float(value))}")
        return "\n".join(lines) + "\n"


_HEAD = ("columns", "core_rows", "device_generation")


def _make(
    name: str, columns: int, rows: int, generation: int, xrt: str, constants: dict[str, float]
) -> Device:
    return Device(name, columns, rows, generation, xrt, MappingProxyType(constants))


def _check_bound(where: str, key: str, value: float) -> None:
    bound = accepted_range(key)
    if bound is not None and not bound.accepts(value):
        raise DeviceError(where, f"{key} = {value:g}", str(bound), _COMPARE)


def read_description(path: Path) -> tuple[Device, str]:
    """Reads a description file: the device and its alias ("" for none).

    Raises:
        DeviceError: the file is missing, not TOML, lacks a key, or exceeds the register map.
    """
    where = f"device description {path.name}"
    try:
        text = read_file(path, DeviceError, "a device description", MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise _unreadable(where, f"{type(error).__name__}: {error}") from error
    return read_text(text, where, path.name.removesuffix(".toml"))


def read_text(text: str, where: str, name: str = "") -> tuple[Device, str]:
    """Parses a device and its alias; ``name`` is the default name."""
    known = vocabulary()
    numbers, texts = _entries(text, where, known)
    base = texts.get("base")
    if base is not None:
        if base not in _table():
            raise DeviceError(where, f"base = {base!r}", ", ".join(_table()), "name one of these")
        found = _table()[base]
        given = {f"device.{key}": float(getattr(found, key)) for key in _HEAD}
        numbers = {**given, **found.constants, **numbers}
        texts.setdefault("xrt_name", found.xrt_name)
    return _described(where, name, numbers, texts, known)


def _described(
    where: str, name: str, numbers: dict[str, float], texts: dict[str, str], known: Collection[str]
) -> tuple[Device, str]:
    for key in (*known, "device.xrt_name"):
        if key not in numbers and key.removeprefix("device.") not in texts:
            raise _unreadable(where, f"no {key}")
    for key, value in numbers.items():
        _check_bound(where, key, value)
    stack, memory = numbers["core.stack_bytes"], numbers["core.data_memory_bytes"]
    if stack >= memory:
        accepted = f"less than core.data_memory_bytes, {memory:g}"
        raise DeviceError(where, f"core.stack_bytes = {stack:g}", accepted, _COMPARE)
    columns, rows, generation = (int(numbers.pop(f"device.{key}")) for key in _HEAD)
    own = texts.get("name", name)
    _check_name(where, own, stated="name" in texts)
    device = _make(own, columns, rows, generation, texts["xrt_name"], numbers)
    return device, texts.get("alias", "")


def _entries(text: str, where: str, known: Collection[str] | None) -> tuple[dict[str, float], dict[str, str]]:
    """Parses ``"section.key"`` -> number, and the strings of ``[device]``; refuses keys outside ``known``."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _unreadable(where, f"{type(error).__name__}: {error}") from error
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    for section, entries in data.items():
        if not isinstance(entries, dict):
            raise _unreadable(where, f"{section} outside a section")
        _check_section(where, section, entries, known)
        for key, value in entries.items():
            name = f"{section}.{key}"
            if key == "note" or name in _TEXTS:
                if not isinstance(value, str) or not _PLAIN.fullmatch(value):
                    raise DeviceError(where, f"{name} = {value!r}", _ACCEPTED_TEXT, _COMPARE)
                if name in _TEXTS:
                    texts[key] = value
            else:
                numbers[name] = _number(where, name, value)
    return numbers, texts


def _check_section(
    where: str, section: str, entries: Mapping[str, Any], known: Collection[str] | None
) -> None:
    """Refuses unknown keys of a section: a misspelt key would be ignored silently."""
    if known is None:
        return
    names = [name.rpartition(".") for name in (*known, *_TEXTS)]
    keys = [key for own, _, key in names if own == section]
    if not keys:
        sections = dict.fromkeys(own for own, _, _ in names)
        raise DeviceError(where, f"section [{section}]", ", ".join(f"[{own}]" for own in sections), _COMPARE)
    for key in entries:
        if key != "note" and key not in keys:
            near = get_close_matches(key, keys, n=1)
            remedy = f"write {section}.{near[0]} if that is meant" if near else _COMPARE
            listed = ", ".join((*keys[:MOST_LISTED], *(["..."] if len(keys) > MOST_LISTED else []), "note"))
            raise DeviceError(where, f"{section}.{key}", f"keys of [{section}]: {listed}", remedy)


def _number(where: str, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise DeviceError(where, f"{name} = {value!r}", str(accepted_range(name) or "a number"), _COMPARE)
    return float(value)


def _check_name(where: str, name: str, stated: bool) -> None:
    """Refuses a name that an xclbin cannot hold; a file's name must not look like a partition's."""
    most = MOST_NAME_BYTES + (len("_127col") if stated else 0)
    fits = 0 < len(name.encode("utf-8", "replace")) <= most and _PLAIN.fullmatch(name)
    if not fits or (not stated and _PARTITION.fullmatch(name)):
        raise DeviceError(
            where,
            f"the name {name!r}",
            f"1 to {most} ASCII characters without quotes and backslashes that do not end like _2col",
            "rename the file",
        )


def _unreadable(where: str, given: str) -> DeviceError:
    return DeviceError(
        where,
        given,
        'sections of key = number or "string", among them '
        f"{', '.join(GEOMETRY_RANGES)} and device.xrt_name; device.base names a device that has the rest",
        _COMPARE,
    )


@lru_cache(maxsize=1)
def vocabulary() -> tuple[str, ...]:
    """Returns every numeric ``"section.key"`` of AMD's devices: the keys that device files may have."""
    found = dict.fromkeys(GEOMETRY_RANGES)
    for path in sorted(DESCRIPTIONS.glob("*.toml")):
        found |= dict.fromkeys(_entries(_packaged(path), path.name, None)[0])
    return tuple(found)


def _packaged(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Device]:
    devices: dict[str, Device] = {}
    aliases: dict[str, Device] = {}
    for path in sorted(DESCRIPTIONS.glob("*.toml")):
        text, where = _packaged(path), f"device description {path.name}"
        numbers, named = _entries(text, where, None)
        device, alias = _described(where, path.stem, numbers, named, GEOMETRY_RANGES)
        devices[device.name] = device
        for columns in range(1, device.columns):
            part = device.partition(columns)
            devices[part.name] = part
        if alias:
            aliases[alias] = device
    return MappingProxyType({**devices, **aliases})


@public
def device_names() -> tuple[str, ...]:
    """Returns every name that ``find_device`` accepts besides paths of device files; aliases last."""
    return tuple(_table())


@public
def find_device(name: DeviceName) -> Device:
    """Returns a device by name, alias, or the path of its file, ``my_npu.toml``.

    The suffix ``_4col`` of a name or a path selects a partition of four columns.

    Raises:
        DeviceError: the name is unknown, or the file is invalid.
    """
    text = os.fspath(name) if isinstance(name, os.PathLike) else name
    device = _table().get(text)
    if device is not None:
        return device
    file = _FILE.fullmatch(text) if isinstance(text, str) else None
    if file is None:
        accepted = f"{', '.join(device_names())}, or the path of a device file, my_npu.toml"
        raise DeviceError("device", bounded_repr(text), accepted, did_you_mean(str(text), device_names()))
    device, _ = read_description(Path(file["path"]))
    return device.partition(int(file["columns"])) if file["columns"] else device
