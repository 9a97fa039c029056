# SPDX-License-Identifier: Apache-2.0
"""What kernels print: lines with node, kernel, core and member, in an order of their own.

Every core keeps what the kernel of one operation prints in a ring (``PRINT_BYTES``), so that the newest lines
stay. Lines come by operator, then by core (column, row), then as they were printed; host threads change
nothing. The ring takes no operand and none of a core's memory. Its way out of the core is charged, whole,
whatever was printed (``kernel.print_byte_cycles`` of the device): modelled time does not depend on values.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.native import core as native
from onedispatch.dispatch.compiler.executable import DeviceStep
from onedispatch.dispatch.host.printed import collecting
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted, tile_name

PRINT_BYTES: int = native.PRINT_BYTES  # of a ring, where the session says nothing
SINKS = ("report", "stdout")
Sink = Literal["report", "stdout"] | None

LOGGER = logging.getLogger("onedispatch.print")


@dataclass(frozen=True)
class Print:
    """One line.

    Attributes:
        node: the ONNX nodes that the kernel computes, joined by ``+``.
        kernel: its name.
        core: (column, row) of the tile in the array, row 2 being the first with cores; ``"host"`` where the
            node ran there.
        member: global coordinates in the kernel's index space: those that the kernel named, or the first
            member of the call.
        text: the line. Where ``lost`` is not 0: how many lines of the same operation and core came
            before the next one and were lost, since the ring holds no more.
    """

    node: str
    kernel: str
    core: tuple[int, int] | Literal["host"]
    member: tuple[int, ...]
    text: str
    lost: int = 0

    def __str__(self) -> str:
        core = self.core if isinstance(self.core, str) else f"core {tile_name(*self.core)}"
        member = " member " + ",".join(map(str, self.member)) if self.member else ""
        return f"[{self.node} {self.kernel} {core}{member}] {self.text}"


def prints_of(raw: Iterable[Sequence[Any]], step: DeviceStep) -> list[Print]:
    """What ``run.prints()`` of the simulator says, in order: by operator, core and sequence."""
    rings = [(_operator(step, since), column, row, ring) for column, row, since, ring in raw]
    found = []
    for index, column, row, ring in sorted(rings, key=lambda one: one[:3]):
        node = "+".join(step.ops[index].nodes) or step.ops[index].name if index < len(step.ops) else ""
        found += lines_of(node, (column, row), ring)
    return found


def lines_of(node: str, core: tuple[int, int] | Literal["host"], ring: Sequence[Any]) -> list[Print]:
    """One ring, (kernel, lines lost, [(member, text)]), its mark of an overflow first."""
    kernel, lost, lines = ring
    marks = [Print(node, kernel, core, (), f"... {counted(lost, 'line')} lost", lost)] if lost else []
    return marks + [Print(node, kernel, core, member, text) for member, text in lines]


def _operator(step: DeviceStep, since: int) -> int:
    """The operator that ran after timer mark ``since``."""
    for reload in step.reloads:
        if reload.timer == since:
            return reload.before
    return max(since, 0)  # operators end with marks 1, 2, ...


def hand_out(prints: Iterable[Print], sink: Sink) -> None:
    """To the logger ``onedispatch.print``, and to stdout where the session says so."""
    if sink is None:
        return
    logged = LOGGER.isEnabledFor(logging.INFO)
    for line in prints:
        if logged:
            LOGGER.info("%s", line)
        if sink == "stdout":
            sys.stdout.write(f"{line}\n")
    if sink == "stdout":
        sys.stdout.flush()


def ring_bytes(sink: object, print_bytes: object) -> int:
    """Bytes of every ring. Raises ``InputError`` for options that there are none of."""
    if sink is not None and sink not in SINKS:
        raise InputError("print", bounded_repr(sink), "'report', 'stdout', or None")
    limit = native.MOST_PRINT_BYTES
    given = PRINT_BYTES if print_bytes is None else arguments.integer("print_bytes", print_bytes, 1, limit)
    return 0 if sink is None else given


@dataclass
class PrintObserver:
    """Keeps what kernels print in a run, and hands it out step by step; ``ring`` is in bytes."""

    sink: Sink
    ring: int
    lines: list[Print] = field(default_factory=list)

    def clear(self) -> None:
        """Before a run."""
        self.lines = []

    def add(self, printed: Sequence[Print]) -> None:
        """What a step printed."""
        self.lines += printed
        hand_out(printed, self.sink)

    @contextmanager
    def on_host(self) -> Iterator[list[Print]]:
        """Observes a step on the host; the list is filled when it ends, as far as it came where it fails."""
        printed: list[Print] = []
        with collecting(self.ring) as on_host:
            try:
                yield printed
            finally:  # what was printed before a failure tells why
                printed += [line for node, ring in on_host.rows for line in lines_of(node, "host", ring)]
                self.add(printed)
