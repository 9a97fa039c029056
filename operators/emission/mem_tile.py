# SPDX-License-Identifier: Apache-2.0
"""What one memory tile does for a nest: its rings, their buffer descriptors, locks and tasks.

A ring takes panels of chunks from one side and gives them to the other. An input panel may
be kept and sent several times (``Hold``); then it is cut into parts with locks of their own,
so that the first part leaves while the last is still coming, and refilling follows the last
time it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from onedispatch.operators.emission import overlay
from onedispatch.operators.scheduling.schedule import Hold, Schedule
from onedispatch.transactions.base.errors import SolutionError
from onedispatch.transactions.base.phrases import counted

S2MM, MM2S = 0, 1
FEED, DRAIN = (0, 1), 5  # S2MM channels from the shim, MM2S channel to it
OUT_FILL = 2  # S2MM channel of core row 0
MAX_REPEAT = 256


@dataclass(frozen=True)
class TileTask:
    """``repeat`` runs of the chain at ``bd``, first needed at ``step`` of the work."""

    step: int
    rank: int
    direction: int
    channel: int
    bd: int
    repeat: int


class MemTile:
    """What one column's memory tile is set up to do."""

    def __init__(self, schedule: Schedule, in0_rows: Sequence[int]) -> None:
        self.schedule = schedule
        self.bds: dict[int, Sequence[int]] = {}
        self.locks: list[tuple[int, int]] = []  # (lock, value) for this nest; restored afterwards
        self.tasks: list[TileTask] = []
        self._bytes = 0
        # Even channels may use BDs 0-23, odd ones 24-47; two belong to the overlay.
        self._free: tuple[Iterator[int], Iterator[int]] = (
            iter(range(overlay.MEM_PARAM_OUT_BD)),
            iter(range(24, overlay.MEM_PARAM_IN_BD)),
        )
        self._rings = iter(range(overlay.MEM_RINGS))
        packet = overlay.ROW_PACKET if schedule.mapping.rowcast else overlay.OWN_PACKET
        if schedule.chunks(0) and in0_rows:
            self._input(0, [(1 + row, packet) for row in in0_rows])
        if schedule.chunks(1):
            self._input(1, [(0, None)])
        self._outputs()

    def _take(self, channel: int, count: int) -> list[int]:
        numbers = [n for n, _ in zip(self._free[channel % 2], range(count), strict=False)]
        if len(numbers) < count:
            raise self._too_much(f"channel {channel} needs {counted(count, 'more BD')}", "what is left")
        return numbers

    def _too_much(self, given: str, accepted: str) -> SolutionError:
        where = f"memory tile of {self.schedule.nest.kernel.name}"
        return SolutionError(where, given, accepted, "choose smaller tiles")

    def _ring(self) -> tuple[int, int]:
        """The (empty, full) locks of the next ring."""
        ring = next(self._rings)
        return 2 * ring, 2 * ring + 1

    def _memory(self, words: int) -> int:
        start = self._bytes
        self._bytes += words * 4
        end = overlay.MEM_PARAM_AT - 4 * self.schedule.nest.longer_block
        if self._bytes > end:
            raise self._too_much(f"rings of {counted(self._bytes, 'byte')}", f"at most {end}")
        return start

    def _push(
        self, rank: int, direction: int, channel: int, bd: int, runs: int, per_run: int, at: int = 0
    ) -> None:
        """``runs`` runs, each worth ``per_run`` steps from ``at`` on, as tasks a queue can hold."""
        for done in range(0, runs, MAX_REPEAT):
            repeat = min(MAX_REPEAT, runs - done)
            self.tasks.append(TileTask(at + done * per_run, rank, direction, channel, bd, repeat))

    # -- inputs ----------------------------------------------------------------------------

    def _input(self, port: int, sends: Sequence[tuple[int, int | None]]) -> None:
        """A port's rings: one fill chain over all of ``sends`` (channel, packet id)."""
        s, hold = self.schedule, self.schedule.holds[port]
        fill = self._take(FEED[port], len(sends) * len(hold.parts))
        following = dict(pairwise(fill))
        panel_steps = s.steps_per_chunk(port) * hold.chunks * hold.repeat
        panels = s.chunks(port) // (hold.chunks * hold.repeat)
        for i, (channel, packet) in enumerate(sends):
            mine = fill[i * len(hold.parts) : (i + 1) * len(hold.parts)]
            self._input_ring(port, hold, mine, following, channel, packet, panels, panel_steps)
        self._push(0, S2MM, FEED[port], fill[0], panels, panel_steps)

    def _input_ring(
        self,
        port: int,
        hold: Hold,
        fill: Sequence[int],
        following: dict[int, int],
        channel: int,
        packet: int | None,
        panels: int,
        panel_steps: int,
    ) -> None:
        words = self.schedule.port_words(port)
        panel = words * hold.chunks
        start = self._memory(panel * hold.slots)
        at = [start + 4 * words * first for first in accumulate(hold.parts, initial=0)]
        locks = [self._ring() for _ in hold.parts]
        for j, (number, (empty, full)) in enumerate(zip(fill, locks, strict=True)):
            self.bds[number] = overlay.mem_bd(
                at[j],
                words * hold.parts[j],
                empty,
                full,
                hold.slots,
                next_bd=following.get(number),
                count=hold.repeat,
                slot_words=panel,
            )
        if hold.repeat == 1:  # one part: the slots take turns by iteration
            (number,) = self._take(channel, 1)
            ((empty, full),) = locks
            self.bds[number] = overlay.mem_bd(start, panel, full, empty, hold.slots, packet=packet)
            self._push(1, MM2S, channel, number, panels, panel_steps)
            return
        self.locks += [(empty, hold.slots * hold.repeat) for empty, _ in locks]
        chains = []
        for slot in range(hold.slots):
            numbers = self._take(channel, len(hold.parts))
            nexts: list[int | None] = [*numbers[1:], None]
            for j, (number, (empty, full)) in enumerate(zip(numbers, locks, strict=True)):
                self.bds[number] = overlay.mem_bd(
                    at[j] + 4 * slot * panel,
                    words * hold.parts[j],
                    full,
                    empty,
                    next_bd=nexts[j],
                    packet=packet,
                )
            chains.append(numbers[0])
        for n in range(panels):
            steps = panel_steps // hold.repeat
            self._push(1, MM2S, channel, chains[n % hold.slots], hold.repeat, steps, n * panel_steps)

    # -- outputs ---------------------------------------------------------------------------

    def _outputs(self) -> None:
        """From every active core row's output to the drain: whole chunks in two slots, or halves."""
        s = self.schedule
        rows, parts = range(s.active_rows), s.out_parts
        drain = self._take(DRAIN, len(rows) * len(parts))
        following = dict(pairwise(drain))
        slots = overlay.RING_SLOTS // len(parts)
        for row in rows:
            start, (empty, full) = self._memory(slots * s.out_words), self._ring()
            fill = self._take(OUT_FILL + row, len(parts))
            nexts = dict(pairwise(fill))
            send = drain[row * len(parts) : (row + 1) * len(parts)]
            for words, first, taken, given in zip(
                parts, accumulate(parts, initial=0), fill, send, strict=False
            ):
                at = start + 4 * first
                self.bds[taken] = overlay.mem_bd(at, words, empty, full, slots, nexts.get(taken))
                self.bds[given] = overlay.mem_bd(at, words, full, empty, slots, following.get(given))
            self._push(0, S2MM, OUT_FILL + row, fill[0], s.outer_steps, s.inner_steps)
        self._push(1, MM2S, DRAIN, drain[0], s.outer_steps, s.inner_steps)

    def writes(self) -> Iterator[tuple[int, list[int]]]:
        """Buffer descriptors joined into runs of neighbours: (first BD, words)."""
        run: list[int] = []
        first = previous = -2
        for number in sorted(self.bds):
            if number != previous + 1:
                if run:
                    yield first, run
                first, run = number, []
            run = [*run, *self.bds[number]]
            previous = number
        if run:
            yield first, run
