# SPDX-License-Identifier: Apache-2.0
"""What a model would cost on other devices, for other batches, with other numbers of a device description."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType
from typing import Any

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.runtime.profile import Profile
from onedispatch.transactions import Device, find_device
from onedispatch.transactions.base.errors import InputError, OneDispatchError
from onedispatch.transactions.base.text import counted, did_you_mean
from onedispatch.transactions.machine.device import read_text, vocabulary

MOST_ROWS = 1000
_GEOMETRY = {f"device.{key}": key for key in ("columns", "core_rows", "device_generation")}
_NUMBER = r"\d+(?:\.\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(x?)({_NUMBER}))?", re.ASCII)
_VALUES = "values such as 32768,65536, a range 1..8, with a step 30..120:30, or by a factor 16..128:x2"


@dataclass(frozen=True)
class Sweep:
    """A key of device descriptions, ``section.key``, and the values that it takes."""

    key: str
    values: tuple[float, ...]


def title(key: str) -> str:
    """A key's name in tables: ``columns`` and the like are without their section."""
    return _GEOMETRY.get(key, key)


@dataclass(frozen=True)
class Case:
    """One question: a device by name, a batch or None for the model's own, values of swept keys."""

    device: str
    batch: int | None = None
    swept: Mapping[str, float] = field(default_factory=dict)

    def target(self) -> Device:
        """The device. Raises ``DeviceError`` where there is none with these values."""
        return varied(find_device(self.device), self.swept)


@dataclass(frozen=True)
class Row:
    """The answer. ``error`` says why there is none; the numbers are 0 then.

    ``us_per_sample`` is by the batch; None where none is asked for. ``macs`` are multiply-accumulates of
    products on the device.
    """

    case: Case
    device: str = ""
    us: float = 0.0
    us_per_sample: float | None = None
    launch_us: float = 0.0
    cycles: int = 0
    dispatches: int = 0
    cores_busy: float = 0.0
    ddr_bytes: int = 0
    ddr_burst_bytes: int = 0
    macs: int = 0
    host_nodes: int = 0
    bound_by: str = ""
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it."""
        asked = {"device": self.case.device, "batch": self.case.batch, "swept": dict(self.case.swept)}
        if self.error:
            return asked | {"error": self.error}
        names = (
            *("us", "us_per_sample", "launch_us", "cycles", "dispatches", "cores_busy"),
            *("ddr_bytes", "ddr_burst_bytes", "macs", "host_nodes", "bound_by"),
        )
        return asked | {name: getattr(self, name) for name in names} | {"error": ""}


Compiled = Callable[[Device, int | None], CompiledModel]
"""The model for a device and a batch. Raises ``OneDispatchError`` where it does not fit."""


def rows(cases: Sequence[Case], compiled: Compiled) -> Iterator[Row]:
    """Yields a row for each case, in order; one that does not fit says why, and others go on."""
    for case in cases:
        try:
            yield _row(case, compiled)
        except OneDispatchError as error:
            yield Row(case, error=error.statement())


def _row(case: Case, compiled: Compiled) -> Row:
    target = case.target()
    model = compiled(target, case.batch)
    report = model.timing()
    profile = report.profile
    placed = model.used_last()[1].placement
    us = report.seconds * 1e6
    return Row(
        case,
        target.name,
        us,
        us / case.batch if case.batch else None,
        report.launch_seconds * 1e6,
        report.cycles,
        report.dispatches,
        profile.busy_share if profile else 0.0,
        report.ddr_bytes_read + report.ddr_bytes_written,
        report.ddr_burst_bytes,
        profile.macs if profile else 0,
        sum(one.device == "cpu" for one in placed),
        _bound(profile),
    )


def _bound(profile: Profile | None) -> str:
    """What most of the critical path goes into, and how much of it; "host" where nothing runs on the NPU."""
    if profile is None or not profile.cycles:
        return "host"
    return f"{profile.bound} {profile.bounds[profile.bound] / profile.cycles:.0%}"


# -- cases --------------------------------------------------------------------------------------


def cases(devices: Sequence[str], batches: Sequence[int], sweeps: Sequence[Sweep]) -> list[Case]:
    """Returns every combination. Raises ``InputError`` for more than ``MOST_ROWS`` of them."""
    count = len(devices) * max(1, len(batches))
    for one in sweeps:
        count *= len(one.values)
    if count > MOST_ROWS:
        raise InputError("--sweep", counted(count, "combination"), f"up to {MOST_ROWS:,} in all")
    swept = [dict(zip((s.key for s in sweeps), v, strict=True)) for v in product(*(s.values for s in sweeps))]
    own: list[int | None] = [None]
    return [Case(*one) for one in product(devices, batches or own, swept)]


def parse_devices(texts: Sequence[str]) -> list[str]:
    """``npu1,npu2,my.toml`` as names, each once. Raises ``DeviceError`` for one that there is not."""
    names = list(dict.fromkeys(name for text in texts for name in _parts("--devices", text)))
    for name in names:
        find_device(name)
    return names


def parse_batches(texts: Sequence[str]) -> list[int]:
    """``1,2,4`` or ``1..8`` as numbers, each once."""
    values = _values("--batch", texts)
    for value in values:
        if not 1 <= value <= 1 << 20 or not value.is_integer():
            raise InputError("--batch", f"{value:g}", f"whole numbers from 1 to {1 << 20:,}")
    return [int(value) for value in values]


def parse_sweeps(texts: Sequence[str]) -> list[Sweep]:
    """``key=values`` each. Raises ``InputError`` for an unknown key, and for one that is given twice."""
    sweeps: list[Sweep] = []
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals:
            raise InputError("--sweep", repr(text), "key=values", f"write {_VALUES} behind a key")
        key = _key(name.strip())
        if any(one.key == key for one in sweeps):
            raise InputError("--sweep", f"{text!r}: {key} once more", "each key once, with all its values")
        sweeps.append(Sweep(key, tuple(_values("--sweep", [values]))))
    return sweeps


def _key(name: str) -> str:
    """The key of device descriptions that is meant: whole, or without its section where one has it."""
    known = vocabulary()
    if name in known:
        return name
    found = [key for key in known if key.partition(".")[2] == name]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(found) if found else "columns, core_rows, or another key of device files: section.key"
    short = [key.partition(".")[2] for key in known]
    remedy = did_you_mean(name, known) or did_you_mean(name, short) or "devices/npu2.toml has all of them"
    raise InputError("--sweep", f"the key {name!r}", shown, "write one of these" if found else remedy)


def _values(option: str, texts: Sequence[str]) -> list[float]:
    return list(
        dict.fromkeys(v for text in texts for part in _parts(option, text) for v in _spread(option, part))
    )


def _parts(option: str, text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InputError(option, repr(text), "a list with commas, without gaps")
    return parts


def _spread(option: str, text: str) -> list[float]:
    """A number, or those of a range, its end included where a step meets it."""
    if re.fullmatch(_NUMBER, text, re.ASCII):
        return [float(text)]
    found = _RANGE.fullmatch(text)
    if found is None:
        raise InputError(option, repr(text), _VALUES)
    first, last, step = float(found[1]), float(found[2]), float(found[4] or 1)
    grows = step > 1 and first > 0 if found[3] else step > 0
    if first > last or not grows:
        raise InputError(option, repr(text), "ranges that begin with their smaller end, and grow")
    return _steps(option, text, first, last, (lambda v: v * step) if found[3] else (lambda v: v + step))


def _steps(
    option: str, text: str, first: float, last: float, following: Callable[[float], float]
) -> list[float]:
    values = [first]
    while (value := round(following(values[-1]), 9)) <= last:
        values.append(value)
        if len(values) > MOST_ROWS:
            raise InputError(option, repr(text), f"up to {counted(MOST_ROWS, 'value')}")
    return values


# -- devices ------------------------------------------------------------------------------------


def varied(device: Device, values: Mapping[str, float]) -> Device:
    """Returns ``device`` with other values of its description; fewer columns alone are its partition.

    Raises ``DeviceError`` for values that no description may have.
    """
    if not values:
        return device
    columns = values.get("device.columns")
    if columns is not None and columns.is_integer() and 1 <= columns <= device.columns:
        device = device.partition(int(columns))
        values = {key: value for key, value in values.items() if key != "device.columns"}
        if not values:
            return device
    geometry = {_GEOMETRY[key]: _whole(value) for key, value in values.items() if key in _GEOMETRY}
    rest = {key: value for key, value in values.items() if key not in _GEOMETRY}
    changed = replace(device, constants=MappingProxyType({**device.constants, **rest}), **geometry)
    said = ", ".join(f"{key} = {value:g}" for key, value in values.items())
    return read_text(changed.description(), f"device {device.name} with {said}")[0]


def _whole(value: float) -> Any:
    """As a description has it; a fraction stays one, which is refused there."""
    return int(value) if value.is_integer() else value
