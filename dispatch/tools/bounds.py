# SPDX-License-Identifier: Apache-2.0
"""What bounds a run: the resource that is busy for most of its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from onedispatch.dispatch.runtime.report import ChannelReport, RunReport
from onedispatch.transactions import Device

_BUSY = 0.5  # of the time: a resource that works less bounds nothing
WAITS, HOST = "waits", "host"


def busy_shares(report: RunReport, device: Device) -> dict[str, float]:
    """Of the run's time, how long each resource is busy: of several cores or channels the busiest."""
    if not report.cycles:
        return {}
    rate = device.constant("ddr.gigabytes_per_second") * 1e9
    cores = Counter[tuple[int, int]]()
    for core in report.cores:
        cores[core.column, core.row] += core.busy
    return {
        "cores": max(cores.values(), default=0) / report.cycles,
        "DDR": report.ddr_burst_bytes / rate / report.seconds,
        "shim DMA": _busiest(one for one in report.channels if one.row == 0) / report.cycles,
        "memory tile DMA": _busiest(one for one in report.channels if one.row == 1) / report.cycles,
        "reloads": report.reload_cycles / report.cycles,
    }


def bound_by(report: RunReport, device: Device) -> str:
    """The resource that is busy longest, and for how much of the time.

    "waits" comes first where that is less than half: the rest are locks, commands and latencies. "host"
    where nothing runs on the device.
    """
    shares = busy_shares(report, device)
    if not shares:
        return HOST
    name, share = max(shares.items(), key=lambda item: item[1])
    return f"{name} {share:.0%}" if share >= _BUSY else f"{WAITS}, {name} {share:.0%}"


def cores_busy(report: RunReport, device: Device) -> float:
    """Of the time of all cores of the device, how much of it they compute."""
    time = report.cycles * device.columns * device.core_rows
    return sum(core.busy for core in report.cores) / time if time else 0.0


def _busiest(channels: Iterable[ChannelReport]) -> int:
    """Busy cycles of the channel that has most, over all dispatches."""
    busy = Counter[tuple[int, int, str, int]]()
    for one in channels:
        busy[one.column, one.row, one.direction, one.channel] += one.busy
    return max(busy.values(), default=0)
