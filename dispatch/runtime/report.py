# SPDX-License-Identifier: Apache-2.0
"""What a run cost: modelled time per operator, and bytes between memory and array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from onedispatch.transactions.base.phrases import counted


@dataclass(frozen=True)
class OpReport:
    """One device operator of a run.

    ``cycles`` are cycles of the array's clock; ``schedule`` is one line per loop nest: tiles,
    mapping to the array, and how many cores work, with the reason where some do not.
    """

    name: str
    op_type: str
    nodes: tuple[str, ...]
    cycles: int
    dispatch: int = 0
    schedule: tuple[str, ...] = ()

    @property
    def cores(self) -> str:
        """How many cores work, and why others do not."""
        return " | ".join(dict.fromkeys(line.rsplit("; ", 1)[-1] for line in self.schedule))


@dataclass(frozen=True)
class RunReport:
    """One ``session.run``.

    Attributes:
        dispatches: kernel runs on the device; 1 for a model that lives there as a whole.
        cycles: modelled array cycles of all dispatches.
        seconds: the same in modelled seconds, on the device.
        ops: device operators in the order in which they ran.
        ddr_bytes_read, ddr_bytes_written: payload bytes between host memory and the array.
        host_seconds: wall-clock seconds of host regions; 0.0 without any.
        wall_seconds: wall-clock seconds of the whole run on this machine.
        launch_seconds: modelled seconds that the host spends on launching all dispatches, beside
            ``seconds`` (constant ``host.launch_us`` of the device description, sourced there; on
            silicon 45 to 94 us per dispatch have been measured).
        ddr_burst_bytes: the bytes read and written in whole bursts of 64, by address and length:
            what host memory is busy with.
        reloads: how often the transaction loaded other kernels into program memory, which was too small
            for all of them.
        reload_cycles: array cycles that it took, beside those of ``ops``.
    """

    dispatches: int
    cycles: int
    seconds: float
    ops: Sequence[OpReport] = field(default_factory=list)
    ddr_bytes_read: int = 0
    ddr_bytes_written: int = 0
    host_seconds: float = 0.0
    wall_seconds: float = 0.0
    launch_seconds: float = 0.0
    ddr_burst_bytes: int = 0
    reloads: int = 0
    reload_cycles: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"dispatches      {self.dispatches}",
            f"modelled time   {self.seconds * 1e3:.3f} ms ({self.cycles:,} cycles)",
            f"host launch     {self.launch_seconds * 1e3:.3f} ms",
            f"DDR read        {counted(self.ddr_bytes_read, 'byte')}",
            f"DDR written     {counted(self.ddr_bytes_written, 'byte')}",
            f"DDR bursts      {counted(self.ddr_burst_bytes, 'byte')}",
        ]
        if self.reloads:
            lines.append(f"reloads         {self.reloads} of program memory ({self.reload_cycles:,} cycles)")
        if self.host_seconds:
            lines.append(f"host regions    {self.host_seconds * 1e3:.3f} ms of wall clock")
        if self.ops:
            lines += ["", *_table(self.ops, self.cycles)]
        return "\n".join(lines)


def _table(ops: Sequence[OpReport], total: int) -> list[str]:
    head = ("op", "kind", "cycles", "share", "cores")
    rows = [
        (op.name, op.op_type, f"{op.cycles:,}", f"{op.cycles / total:.1%}" if total else "", op.cores)
        for op in ops
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(4)]
    lines = []
    for row in (head, *rows):
        left = "  ".join(f"{cell:<{width}}" for cell, width in zip(row[:2], widths[:2], strict=True))
        right = "  ".join(f"{cell:>{width}}" for cell, width in zip(row[2:4], widths[2:], strict=True))
        lines.append(f"{left}  {right}  {row[4]}".rstrip())
    return lines
