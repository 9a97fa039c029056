# SPDX-License-Identifier: Apache-2.0
"""Happens-before: the order that data flow establishes between waits and tasks.

When a wait has seen the token of an output, the output's words were sent: the channel that the switches
connect to it has sent as many, the locks that its BDs acquired were released as often, by the actors that
can release them, and so on back to host memory. ``HappensBefore`` keeps, for every channel and core, the
least progress that explains every wait so far.

All results are lower bounds on progress. Events that cannot be tracked (a chain that never ends, a BD that
the transaction does not write, a channel reset, a change of routes, a change of a running program, memory
or parameters written other than by DMA) end the tracking: from then on no task counts as ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import TypeAlias

from onedispatch.transactions.analysis import effects
from onedispatch.transactions.analysis.context import Context, CoreProgram, LockUse, Uses
from onedispatch.transactions.analysis.effects import BdUse, Pushed, Tile, Words
from onedispatch.transactions.analysis.progress import Actor, Resource, Step, Task
from onedispatch.transactions.analysis.streams import Streams
from onedispatch.transactions.machine import registers, routes

Channel: TypeAlias = tuple[Tile, int, int]
_CONTROL = ("DMA_S2MM_CTRL", "DMA_MM2S_CTRL")
_CONTROL_BITS = sum(
    1 << f.lsb
    for f in registers.CHANNEL_FIELDS
    if f.name in ("pause_memory", "pause_stream", "out_of_order", "compression")
)
_FINISH = registers.field_of(registers.CHANNEL_FIELDS, "finish_on_tlast")
_UNCOUNTED = _CONTROL_BITS | ((1 << _FINISH.width) - 1) << _FINISH.lsb
"""Bits of a channel's control register that make the words of a run differ from its BD's length."""
_HOPS = 4
"""Maximum number of buffers between host memory and a core that a parameter block passes."""
_ENABLE = 1 << registers.field_of(registers.CORE_CONTROL_FIELDS, "enable").lsb
_PROGRAM_AT = registers.CORE.block["PROGRAM_MEMORY"].offset


def _stream(channel: tuple[Tile, int]) -> Resource:
    """Returns the resource "words into" an S2MM channel."""
    return channel[0], "words into", channel[1]


def _lock(tile: Tile, lock: int) -> Resource:
    return tile, "lock", lock


class HappensBefore:
    """Tracks a transaction in its context; ``has_ended`` tests whether a task must have ended."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._untracked = False
        self._dirty = False
        self._actors: dict[object, Actor] = {}
        self._producers: dict[Resource, dict[int, Actor]] = {}
        self._consumers: dict[Resource, dict[int, Actor]] = {}
        self._init: dict[Resource, int] = {}
        self._unbalanced: set[Resource] = set()
        """Locks whose token balance is unknown."""
        self._host_acquired: dict[Resource, int] = {}
        """Tokens that the host acquired by polling request windows."""
        self._end: dict[tuple[int, int], tuple[Actor, int]] = {}
        """(op of a push, packet) -> (its channel's actor, the actor's step count at the task's end)."""
        self._steps: dict[tuple[Channel, int], tuple[tuple[BdUse, ...], tuple[Step, ...]]] = {}
        self._cores: dict[Tile, CoreProgram] = {}
        self._uses: dict[Tile, Uses] = {}
        self._stopped: set[Tile] = set()
        self._unknown_programs = False
        """True if a core runs an unknown program, which may use the locks of any neighbouring core."""
        self._blocks: dict[Tile, deque[tuple[BdUse, Resource, int]]] = {}
        """Parameter blocks in transit to a core: (receiving BD, stream, first word in the stream)."""
        self.bds: dict[tuple[Tile, int], BdUse] = {}
        """BDs that the overlay wrote."""
        self.locks_set: list[effects.LockSet] = []
        self._changed: set[Resource] = set()
        self._read_overlay()

    def _read_overlay(self) -> None:
        writes: list[tuple[int, int]] = []
        for event in effects.events(self._context.overlay):
            if isinstance(event, effects.BdWritten):
                self.bds[event.tile, event.use.index] = event.use
            elif isinstance(event, effects.LockSet):
                self._init[_lock(event.tile, event.lock)] = event.value
                self.locks_set.append(event)
            elif isinstance(event, effects.RegisterWritten):
                writes.append((event.address, event.value))
            elif isinstance(event, effects.DataWritten):
                self._unknown_programs |= not self._load(event) and event.tile[1] >= registers.FIRST_CORE_ROW
            elif isinstance(event, Pushed):
                self._untracked = True  # the overlay's own tasks may consume any words
        self._routes = routes.Routes(writes)
        self.streams = Streams(self._routes, self._context.constants)

    def _load(self, event: effects.DataWritten) -> bool:
        """True if the words, from the start of program memory on, are a known program; records it."""
        for known in self._context.programs if event.offset == _PROGRAM_AT else ():
            uses = known.starts(event.words)
            if uses is not None:
                self._cores[event.tile], self._uses[event.tile] = known, uses
                return True
        return False

    def observe(self, event: effects.Event) -> None:
        """Processes the next event; ``record_end`` reports what waits have seen."""
        if isinstance(event, Pushed):
            self._pushed(event)
        elif isinstance(event, effects.LockSet):
            self._lock_set(event)
        elif isinstance(event, effects.LockWait):
            self._lock_acquired(event)
        elif isinstance(event, effects.Poll):
            self._lock_polled(event)
        elif not isinstance(event, effects.BdWritten | effects.Patched):
            self._invalidate(event)

    # --- Events ---------------------------------------------------------------------------------

    def _pushed(self, push: Pushed) -> None:
        if push.end or self._untracked:
            self._untracked = True
            return
        channel = (push.tile, push.direction, push.channel)
        steps = self._steps_of(channel, push)
        actor = self._actor(channel)
        task = actor.push(steps, push.repeat)
        self._join(actor, task)
        self._end[push.op, push.packet] = (actor, actor.steps)
        for at, step in enumerate(steps):
            self._queue_block(push, task, at, step)
            if push.direction == 0 and push.tile[1] == 0 and step.use is not None:
                argument = step.use.argument
                if argument is None or argument[0] in self._context.constants:
                    self._untracked = True  # the task may overwrite parameters

    def record_end(self, push: Pushed) -> None:
        """Records that a wait has seen the end of a task."""
        actor, steps = self._end.get((push.op, push.packet), (None, 0))
        if actor is not None:
            self._advance(actor, steps, steps)

    def _lock_acquired(self, wait: effects.LockWait) -> None:
        """Records a lock request of the host that was granted."""
        key = _lock(wait.tile, wait.lock)
        if wait.acquire and wait.value < 0:
            self._host_acquired[key] = self._host_acquired.get(key, 0) - wait.value
            self._changed.add(key)
            self._dirty = True
        elif not wait.acquire:
            self._unbalanced.add(key)

    def _lock_polled(self, poll: effects.Poll) -> None:
        """Records that the host saw a lock's value: produced minus consumed tokens reached it."""
        hit = effects.decode_address(poll.address)
        if hit is None or hit.name != "LOCK_VALUE" or hit.byte or poll.value > registers.LOCK_MAX:
            return
        if poll.mask & registers.LOCK_MAX == registers.LOCK_MAX and not self._untracked:
            self._propagate()
            self._propagate_resource(_lock(hit.tile, hit.item), poll.value)

    def _lock_set(self, event: effects.LockSet) -> None:
        """Restarts a lock's balance at the value set, if all tasks that use the lock must have ended."""
        self._propagate()
        key = _lock(event.tile, event.lock)
        consumers, producers = self._consumers.get(key, {}), self._producers.get(key, {})
        consumed = sum(actor.total_consumed.get(key, 0) for actor in consumers.values())
        produced = sum(actor.total_produced.get(key, 0) for actor in producers.values())
        quiescent = all(a.consumed(key) == a.total_consumed.get(key, 0) for a in consumers.values())
        quiescent = quiescent and all(
            a.produced(key) == a.total_produced.get(key, 0) for a in producers.values()
        )
        if not quiescent or self._blocks.get(event.tile):
            self._unbalanced.add(key)
            return
        self._unbalanced.discard(key)
        for actor in consumers.values():
            actor.reset_held(key)
        self._init[key] = event.value + consumed - produced + self._host_acquired.get(key, 0)

    def _invalidate(self, event: effects.Event) -> None:
        """Ends the tracking if any other event changes what the tracking relies on."""
        if isinstance(event, effects.Reset | effects.UnknownPackets):
            self._untracked = True
        elif isinstance(event, effects.DataWritten):
            quiescent = event.tile in self._stopped and self._is_quiescent(event.tile)
            self._untracked |= not (quiescent and self._load(event))
        elif isinstance(event, effects.RegisterWritten):
            register = registers.find_register(event.address)
            name = "" if register is None else register.block.name
            uncounted = name in _CONTROL and bool(event.value & event.mask & _UNCOUNTED)
            if uncounted or name == "PROGRAM_MEMORY" or routes.is_switch_register(event.address):
                self._untracked = True
            elif name == "CORE_CONTROL":
                self._core_control_written(event)

    def _core_control_written(self, event: effects.RegisterWritten) -> None:
        """Records the stop or start of a core; a core that waits for its next block loses no state by it."""
        column, row, _ = registers.split_address(event.address)
        self._untracked |= not self._is_quiescent((column, row))
        if event.value & event.mask & _ENABLE:
            self._stopped.discard((column, row))
        else:
            self._stopped.add((column, row))

    def _is_quiescent(self, tile: Tile) -> bool:
        """True if the tile's core must have finished every parameter block that was sent to it."""
        self._propagate()
        actor = self._actors.get(tile)
        idle = actor is None or actor.done == actor.steps
        return idle and tile in self._cores and not self._blocks.get(tile)

    def stop_tracking(self) -> None:
        """Ends the tracking: the array changes in a way that no event describes."""
        self._untracked = True

    def has_ended(self, push: Pushed) -> bool:
        """True if the task must have ended, so that it will load no BD any more."""
        if self._untracked:
            return False
        self._propagate()
        actor, steps = self._end.get((push.op, push.packet), (None, 0))
        return actor is not None and actor.done >= steps

    # --- Tasks as steps -------------------------------------------------------------------------

    def _actor(self, key: object) -> Actor:
        actor = self._actors.get(key)
        if actor is None:
            actor = self._actors[key] = Actor()
        return actor

    def _join(self, actor: Actor, task: Task) -> None:
        for key in task.consumes:
            self._consumers.setdefault(key, {})[id(actor)] = actor
        for key in task.produces:
            self._producers.setdefault(key, {})[id(actor)] = actor

    def _steps_of(self, channel: Channel, push: Pushed) -> tuple[Step, ...]:
        known = self._steps.get((channel, push.start))
        if known is None or known[0] is not push.chain:
            steps = tuple(self._step(channel, use) for use in push.chain)
            known = self._steps[channel, push.start] = (push.chain, steps)
        return known[1]

    def _step(self, channel: Channel, use: BdUse) -> Step:
        tile, mm2s, number = channel
        values = vars(use.bd)
        if values.get("enable_compression"):
            self._untracked = True
        acquires, releases = [], []
        if values["acquire_enable"] and values["acquire_value"] < 0:
            owner = effects.lock_owner(use.kind, tile, values["acquire_lock"])
            if owner is not None:
                acquires.append((_lock(*owner), -values["acquire_value"]))
        if values["release_value"]:
            owner = effects.lock_owner(use.kind, tile, values["release_lock"])
            if owner is not None and values["release_value"] < 0:
                self._unbalanced.add(_lock(*owner))
            elif owner is not None:
                releases.append((_lock(*owner), values["release_value"]))
        words = values["length"]
        if not mm2s:
            received = ((_stream((tile, number)), words),) if words else ()
            return Step(use, tuple(acquires), received, (), tuple(releases))
        packet = values["packet_id"] if values["enable_packet"] else None
        arrivals = self._routes.of(tile, number, packet)
        sent = tuple((_stream(to), words + header) for to, header in arrivals if words + header)
        return Step(use, tuple(acquires), (), sent, tuple(releases))

    # --- Progress -------------------------------------------------------------------------------

    def _advance(self, actor: Actor, done: int, begun: int) -> None:
        consumed = actor.advance(done, begun)
        if consumed:
            self._dirty = True
            self._changed |= consumed

    def _propagate(self) -> None:
        """Raises every actor's progress to the least that explains the known facts."""
        if self._untracked or not self._dirty:
            return
        self._resolve_blocks()
        while self._changed:
            self._propagate_resource(self._changed.pop())
        self._dirty = False

    def _propagate_resource(self, key: Resource, left: int = 0) -> None:
        """Requires that the producers of ``key`` produced what was consumed, plus ``left``."""
        if key in self._unbalanced or (key[1] == "lock" and not self._is_closed(key)):
            return
        consumers, producers = list(self._consumers.get(key, {}).values()), self._producers.get(key, {})
        consumed = sum(actor.consumed(key) for actor in consumers)
        self._require_tokens(key, producers.values(), consumed + self._host_acquired.get(key, 0) + left)
        if len(consumers) == 1 and id(consumers[0]) in producers:
            # Self-released tokens cannot satisfy the actor's own acquires: other producers must provide
            # as many tokens as the actor held at once.
            others = [actor for actor in producers.values() if actor is not consumers[0]]
            self._require_tokens(key, others, consumers[0].max_held(key))

    def _require_tokens(self, key: Resource, producers: Collection[Actor], consumed: int) -> None:
        """Requires that the initial value and ``producers`` together provide ``consumed`` tokens."""
        needed = consumed - self._init.get(key, 0)
        if needed <= 0:
            return
        most = sum(actor.total_produced[key] for actor in producers)
        for actor in producers:
            wanted = needed - (most - actor.total_produced[key])
            if 0 < wanted <= actor.total_produced[key]:
                self._advance(actor, *actor.steps_to_produce(key, wanted))

    def _is_closed(self, lock: Resource) -> bool:
        """True if the lock's initial value and all actors that may use it are known."""
        tile = lock[0]
        if lock not in self._init:
            return False
        core = tile[1] >= registers.FIRST_CORE_ROW
        return not core or (tile in self._cores and not self._unknown_programs and not self._blocks.get(tile))

    # --- Parameter blocks of cores ----------------------------------------------------------------

    def _queue_block(self, push: Pushed, task: Task, at: int, step: Step) -> None:
        """Queues the parameter blocks whose arrival a task signals to its core."""
        known = self._cores.get(push.tile)
        if known is None or step.use is None or (_lock(push.tile, known.full), 1) not in step.releases:
            return
        key = _stream((push.tile, push.channel))
        begins = task.consumed_before.get(key, 0)
        begins += sum(n for s in task.steps[:at] for k, n in s.receives if k == key)
        per_pass = task.consumes.get(key, 0)
        waiting = self._blocks.setdefault(push.tile, deque())
        waiting += [(step.use, key, begins + n * per_pass) for n in range(task.passes)]
        self._dirty = True

    def _resolve_blocks(self) -> None:
        """Turns queued blocks into steps of their cores, in order, as far as their words are known."""
        for tile, waiting in self._blocks.items():
            while waiting:
                use = self._use_of_block(tile, *waiting[0])
                if use is None:
                    break
                waiting.popleft()
                self._core_step(tile, use)

    def _use_of_block(self, tile: Tile, use: BdUse, key: Resource, begins: int) -> LockUse | None:
        known = self._cores[tile]
        # A block arrives in one piece or in several; the first one determines its lock use.
        ahead = vars(use.bd)["base"] - known.parameters_at // 4
        if ahead < 0 or ahead % known.words or use.pattern.length % known.words:
            return None
        words = self._content(key, begins - ahead, known.words)
        return None if words is None else self._uses[tile](words, tile[0], tile[1] - registers.FIRST_CORE_ROW)

    def _core_step(self, tile: Tile, use: LockUse) -> None:
        def amounts(counts: Mapping[int, int]) -> tuple[tuple[Resource, int], ...]:
            return tuple((_lock(tile, lock), count) for lock, count in counts.items() if count)

        full = ((_lock(tile, self._cores[tile].full), 1),)
        last = frozenset(_lock(tile, lock) for lock in use.last)
        step = Step(None, full, amounts(use.acquired), amounts(use.released), (), last)
        actor = self._actor(tile)
        self._join(actor, actor.push((step,), 1))
        self._changed.update(actor.total_produced)

    def _content(self, key: Resource, begins: int, length: int, hops: int = _HOPS) -> Words | None:
        """Returns the words of a stream from word ``begins`` on, traced back to a constant argument.

        Traces whole runs of BDs over contiguous words, and single-slot buffers between them.
        """
        found = self._producer(key, begins)
        if found is None or not hops or not _is_contiguous(found[1], length):
            return None
        actor, step, task, passes = found
        use = step.use
        if use is not None and use.kind == "shim":
            if use.argument is None or use.argument[0] not in self._context.constants:
                return None
            argument, offset = use.argument
            data = self._context.constants[argument][offset : offset + 4 * length]
            return tuple(memoryview(data).cast("I")) if len(data) == 4 * length else None
        if len(step.acquires) != 1 or use is None:
            return None
        # The step that released this lock wrote the words that are sent.
        ((lock, _),) = step.acquires
        given = actor.consumed_before(lock, task, passes, step) - self._init.get(lock, 0)
        written = self._producer(lock, given)
        if given < 0 or lock in self._unbalanced or written is None or not _is_contiguous(written[1], length):
            return None
        actor, step, task, passes = written
        if step.use is None or vars(step.use.bd)["base"] != vars(use.bd)["base"] or not step.receives:
            return None
        ((stream, _),) = step.receives
        return self._content(stream, actor.consumed_before(stream, task, passes, step), length, hops - 1)

    def _producer(self, key: Resource, begins: int) -> tuple[Actor, Step, Task, int] | None:
        """Returns the step that produces the resource from ``begins`` on, if it has only one producer."""
        producers = list(self._producers.get(key, {}).values())
        found = producers[0].producer_at(key, begins) if len(producers) == 1 else None
        return None if found is None else (producers[0], *found)


def _is_contiguous(step: Step, length: int) -> bool:
    """True if every run of a step moves at least ``length`` contiguous words."""
    if step.use is None:
        return False
    shape = step.use.pattern
    row = len(shape.dims) == 1 and shape.dims[0][1] == 1 and not shape.zeros
    return row and shape.iteration is None and shape.length >= length
