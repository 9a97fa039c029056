# SPDX-License-Identifier: Apache-2.0
"""What one memory tile does for a nest: its rings, their buffer descriptors, locks and tasks.

What stays in memory tiles between operators has no ring: chunks leave and arrive where the tensor lies.

A ring takes panels of chunks from one side and gives them to the other. An input panel may
be kept and sent several times (``Hold``); then it is cut into parts with locks of their own,
so that the first part leaves while the last is still coming, and refilling follows the last
time it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise

from onedispatch.operators.emission import overlay
from onedispatch.operators.scheduling.access_pattern import MAX_REPEAT, Pattern
from onedispatch.operators.scheduling.feeds import Feeds
from onedispatch.operators.scheduling.holds import Hold
from onedispatch.operators.scheduling.resources import (
    DRAIN,
    FEED,
    MM2S,
    OUT_FILL,
    ROW_LANES,
    S2MM,
    resources,
    sending,
)
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.transactions.base.errors import SolutionError
from onedispatch.transactions.base.text import counted


@dataclass(frozen=True)
class _Ring:
    """Bytes and (empty, full) locks of a ring's parts, and the packet id that it is sent with."""

    at: Sequence[int]
    locks: Sequence[tuple[int, int]]
    packet: int | None


@dataclass(frozen=True)
class _Send:
    """Chunks of a core row, or with in1 of all: the channel that sends them, and their packet id."""

    row: int
    channel: int
    packet: int | None


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

    def __init__(self, schedule: Schedule, in0_rows: Sequence[int], feeds: Feeds, column: int) -> None:
        self.schedule = schedule
        self.feeds = feeds
        self.column = column
        self.limits = resources(schedule.device)
        self.bds: dict[int, Sequence[int]] = {}
        self.locks: list[tuple[int, int]] = []  # (lock, value) for this nest; restored afterwards
        self.tasks: list[TileTask] = []
        self._bytes = 0
        even, odd = self.limits.mem_bds
        self._free: tuple[Iterator[int], Iterator[int]] = (iter(even), iter(odd))
        self._rings = iter(range(self.limits.rings))
        self._chains: dict[tuple[object, ...], int] = {}  # first BDs over what stays, by what they walk
        rows = in0_rows, [0]
        for port in schedule.feed_order:
            if schedule.chunks(port) and rows[port]:
                for fed, some in schedule.channels(port, rows[port]):
                    self._input(port, fed, self._sends(port, some))
        if schedule.kept[2]:
            self._kept_outputs()
        else:
            self._outputs()

    def _take(self, channel: int, count: int) -> list[int]:
        numbers = list(islice(self._free[channel % 2], count))
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
        end = self.limits.mem_param_at - 4 * self.schedule.nest.occupied
        if self._bytes > end:
            raise self._too_much(f"rings of {counted(self._bytes, 'byte')}", f"at most {end}")
        return start

    def _push(
        self, rank: int, direction: int, channel: int, bd: int, runs: int, per_run: int, at: int = 0
    ) -> None:
        """``runs`` runs, each worth ``per_run`` steps from ``at`` on, as tasks a queue can hold."""
        for done in range(0, runs, MAX_REPEAT):
            repeat = min(MAX_REPEAT, runs - done)
            self._push_at(at + done * per_run, rank, direction, channel, bd, repeat)

    def _push_at(self, step: int, rank: int, direction: int, channel: int, bd: int, repeat: int) -> None:
        self.tasks.append(TileTask(step, rank, direction, channel, bd, repeat))

    # -- inputs ----------------------------------------------------------------------------

    def _sends(self, port: int, rows: Sequence[int]) -> list[_Send]:
        """Where a port's chunks go: those of in0 to one row of cores each, those of in1 to all of them."""
        if port == 1:
            return [_Send(0, sending(1, 0), None)]
        packet = overlay.row_packet if self.schedule.mapping.rowcast else overlay.own_packet
        return [_Send(row, sending(0, row), packet(row)) for row in rows]

    def _input(self, port: int, fed: int, sends: Sequence[_Send]) -> None:
        """A port's rings: one fill chain, of the shim's channel ``fed``, over all of ``sends``."""
        s, hold = self.schedule, self.schedule.holds[port]
        if not s.ring_words(port):
            for send in sends:
                self._send_kept(port, send, None)
            return
        fill = self._take(FEED[fed], len(sends) * len(hold.parts))
        following = dict(pairwise(fill))
        panel_steps = s.steps_per_chunk(port) * hold.chunks * hold.repeat
        panels = s.chunks(port) // (hold.chunks * hold.repeat)
        sent: dict[int, list[_Ring]] = {}
        for i, send in enumerate(sends):
            mine = fill[i * len(hold.parts) : (i + 1) * len(hold.parts)]
            ring = self._input_ring(port, hold, mine, following, send.packet)
            if s.kept[port]:
                self._send_kept(port, send, ring)
            else:
                sent.setdefault(send.channel, []).append(ring)
        for channel, rings in sent.items():
            self._send(port, hold, channel, rings, panels, panel_steps)
        self._push(0, S2MM, FEED[fed], fill[0], panels, panel_steps)

    def _input_ring(
        self, port: int, hold: Hold, fill: Sequence[int], following: dict[int, int], packet: int | None
    ) -> _Ring:
        """A ring and the BDs that fill it."""
        words = self.schedule.ring_words(port)
        panel = words * hold.chunks
        start = self._memory(panel * hold.slots)
        at = [start + 4 * words * first for first in accumulate(hold.parts, initial=0)]
        locks = [self._ring() for _ in hold.parts]
        for j, (number, (empty, full)) in enumerate(zip(fill, locks, strict=True)):
            self.bds[number] = overlay.mem_bd(
                at[j],
                words * hold.parts[j],
                (empty, full),
                overlay.Slots(hold.slots, panel, hold.repeat),
                following.get(number),
            )
        if hold.repeat > 1 and hold.slots * hold.repeat != overlay.RING_SLOTS:
            self.locks += [(empty, hold.slots * hold.repeat) for empty, _ in locks]
        return _Ring(at, locks, packet)

    def _send(
        self, port: int, hold: Hold, channel: int, rings: Sequence[_Ring], panels: int, panel_steps: int
    ) -> None:
        """The BDs of a channel that sends the panels of ``rings`` in turns, and its tasks."""
        words = self.schedule.port_words(port)
        panel = words * hold.chunks
        if hold.repeat == 1:  # one part: the slots take turns by iteration
            numbers = self._take(channel, len(rings))
            following = dict(pairwise(numbers))
            dims = self._apart(port)
            for number, ring in zip(numbers, rings, strict=True):
                ((empty, full),) = ring.locks
                slots, then = overlay.Slots(hold.slots), following.get(number)
                self.bds[number] = overlay.mem_bd(
                    ring.at[0], panel, (full, empty), slots, then, ring.packet, dims
                )
            self._push(1, MM2S, channel, numbers[0], panels, panel_steps)
            return
        chains = []
        for slot in range(hold.slots):
            numbers = self._take(channel, len(hold.parts) * len(rings))
            following = dict(pairwise(numbers))
            pieces = [(ring, j) for ring in rings for j in range(len(hold.parts))]
            for number, (ring, j) in zip(numbers, pieces, strict=True):
                empty, full = ring.locks[j]
                self.bds[number] = overlay.mem_bd(
                    ring.at[j] + 4 * slot * panel,
                    words * hold.parts[j],
                    (full, empty),
                    next_bd=following.get(number),
                    packet=ring.packet,
                )
            chains.append(numbers[0])
        for n in range(panels):
            steps = panel_steps // hold.repeat
            self._push(1, MM2S, channel, chains[n % hold.slots], hold.repeat, steps, n * panel_steps)

    def _apart(self, port: int) -> tuple[tuple[int, int], ...]:
        """(stride in words, count), innermost first, that send chunk by chunk what lies side by side."""
        s = self.schedule
        joined, run = s.joined(port), s.row_words(port)
        if joined == 1:
            return ()
        return (1, run), (run * joined, s.port_words(port) // run), (run, joined)

    # -- what stays ------------------------------------------------------------------------

    def _send_kept(self, port: int, send: _Send, ring: _Ring | None) -> None:
        """Sends chunks of a port that stay here, each with its part in ``ring`` behind it."""
        last = None
        if ring is not None:
            ((empty, full),), words = ring.locks, self.schedule.ring_words(port)
            (last,) = self._take(send.channel, 1)
            slots = overlay.Slots(overlay.RING_SLOTS)
            self.bds[last] = overlay.mem_bd(ring.at[0], words, (full, empty), slots, None, send.packet)
        steps = self.schedule.steps_per_chunk(port)
        for task in self.feeds.send(port, self.column, send.row):
            if last is not None and len(task.patterns) == 1:  # operands in turns, of which one is the ring's
                raise self._too_much("chunks that walk no common progression", "one chain for all operands")
            patterns = task.patterns if last is None else task.patterns[:-1]
            chain = self._chain(send.channel, MM2S, patterns, send.packet, last)
            self._push_at(task.first * steps, 1, MM2S, send.channel, chain, task.repeat)

    def _kept_outputs(self) -> None:
        for row in range(self.schedule.active_rows):
            channel = OUT_FILL + row % ROW_LANES
            for task in self.feeds.drain(self.column, [row]):
                chain = self._chain(channel, S2MM, task.patterns)
                steps = task.first * self.schedule.inner_steps
                self._push_at(steps, 0, S2MM, channel, chain, task.repeat)

    def _chain(
        self,
        channel: int,
        direction: int,
        patterns: Sequence[Pattern],
        packet: int | None = None,
        last: int | None = None,
    ) -> int:
        """The first BD of a chain over ``patterns``, before BD ``last``; equal ones are one. Where they count
        iterations, those of each channel: BDs keep the count, and channels would go on with each other's."""
        counts = any(pattern.iteration[0] > 1 for pattern in patterns)
        key = channel if counts else channel % 2, direction, packet, last, *patterns
        if key not in self._chains:
            numbers = self._take(channel, len(patterns))
            following = dict(zip(numbers, [*numbers[1:], last], strict=True))
            for number, pattern in zip(numbers, patterns, strict=True):
                self.bds[number] = overlay.kept_bd(pattern, following[number], packet)
            self._chains[key] = numbers[0]
        return self._chains[key]

    # -- outputs ---------------------------------------------------------------------------

    def _outputs(self) -> None:
        """From every active core row's output to the drain: whole chunks in two slots, or halves."""
        s = self.schedule
        rows, parts = range(s.active_rows), s.out_parts
        drain = self._take(DRAIN, len(rows) * len(parts))
        following = dict(pairwise(drain))
        slots = overlay.RING_SLOTS // len(parts)
        ring = overlay.Slots(slots)
        for lane in range(min(len(rows), ROW_LANES)):
            sharing = rows[lane::ROW_LANES]
            fills = self._take(OUT_FILL + lane, len(sharing) * len(parts))
            nexts = dict(pairwise(fills))
            for turn, row in enumerate(sharing):
                start, (empty, full) = self._memory(slots * s.out_words), self._ring()
                fill = fills[turn * len(parts) : (turn + 1) * len(parts)]
                send = drain[row * len(parts) : (row + 1) * len(parts)]
                for words, first, taken, given in zip(
                    parts, accumulate(parts, initial=0), fill, send, strict=False
                ):
                    at = start + 4 * first
                    self.bds[taken] = overlay.mem_bd(at, words, (empty, full), ring, nexts.get(taken))
                    self.bds[given] = overlay.mem_bd(at, words, (full, empty), ring, following.get(given))
            self._push(0, S2MM, OUT_FILL + lane, fills[0], s.outer_steps, s.inner_steps)
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
