# SPDX-License-Identifier: Apache-2.0
"""What must have happened: the order that data flow establishes between waits and tasks.

When a token of an output has been waited for, its words have come from somewhere: the channel that
the switches connect has sent as many, the locks that its BDs took were released as often, by the
only ones who can, and so on back to the host memory that it all began with. ``Order`` keeps, for
every channel and core, how far it *must* have come, as the least that explains every wait so far.

Everything here is a lower bound on progress. What could not be followed (a chain that never ends, a
BD that nobody wrote, a channel that is reset, routes that change, programs that change while they
work, memory or parameters written past the DMA) ends it: from there on nothing is said to have happened.
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
"""Bits of a channel's control register with which a BD's length no longer counts its words."""
_HOPS = 4
"""Buffers between host memory and a core that a parameter block may pass."""
_ENABLE = 1 << registers.field_of(registers.CORE_CONTROL_FIELDS, "enable").lsb
_PROGRAM_AT = registers.CORE.block["PROGRAM_MEMORY"].offset


def _stream(channel: tuple[Tile, int]) -> Resource:
    """Words into an S2MM channel."""
    return channel[0], "words into", channel[1]


def _lock(tile: Tile, lock: int) -> Resource:
    return tile, "lock", lock


class HappensBefore:
    """Follows a transaction in its context; ``done`` says whether a task must have ended."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lost = False
        self._dirty = False
        self._actors: dict[object, Actor] = {}
        self._producers: dict[Resource, dict[int, Actor]] = {}
        self._consumers: dict[Resource, dict[int, Actor]] = {}
        self._init: dict[Resource, int] = {}
        self._wild: set[Resource] = set()
        """Locks whose balance is not known."""
        self._host: dict[Resource, int] = {}
        """What polls of request windows took."""
        self._end: dict[tuple[int, int], tuple[Actor, int]] = {}
        """The op of a push, and the packet -> its channel, and the step behind its last one."""
        self._steps: dict[tuple[Channel, int], tuple[tuple[BdUse, ...], tuple[Step, ...]]] = {}
        self._cores: dict[Tile, CoreProgram] = {}
        self._uses: dict[Tile, Uses] = {}
        self._stopped: set[Tile] = set()
        self._strange_programs = False
        """Cores run what nobody explained: they may use the locks of any core around them."""
        self._blocks: dict[Tile, deque[tuple[BdUse, Resource, int]]] = {}
        """Parameter blocks on their way to a core: its BD, and the word of which stream it begins at."""
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
                self._strange_programs |= not self._load(event) and event.tile[1] >= registers.FIRST_CORE_ROW
            elif isinstance(event, Pushed):
                self._lost = True  # it has tasks of its own: who takes which words is not known
        self._routes = routes.Routes(writes)
        self.streams = Streams(self._routes, self._context.constants)

    def _load(self, event: effects.DataWritten) -> bool:
        """Whether the words are a program that is known, from the first word of program memory on."""
        for known in self._context.programs if event.offset == _PROGRAM_AT else ():
            uses = known.starts(event.words)
            if uses is not None:
                self._cores[event.tile], self._uses[event.tile] = known, uses
                return True
        return False

    def follow(self, event: effects.Event) -> None:
        """The next event; what waits see ``ended`` says."""
        if isinstance(event, Pushed):
            self._pushed(event)
        elif isinstance(event, effects.LockSet):
            self._lock_set(event)
        elif isinstance(event, effects.LockWait):
            self._lock_taken(event)
        elif isinstance(event, effects.Poll):
            self._lock_seen(event)
        elif not isinstance(event, effects.BdWritten | effects.Patched):
            self._changed_by(event)

    # --- What the transaction does --------------------------------------------------------------

    def _pushed(self, push: Pushed) -> None:
        if push.end or self._lost:
            self._lost = True
            return
        channel = (push.tile, push.direction, push.channel)
        steps = self._steps_of(channel, push)
        actor = self._actor(channel)
        task = actor.push(steps, push.repeat)
        self._join(actor, task)
        self._end[push.op, push.packet] = (actor, actor.steps)
        for at, step in enumerate(steps):
            self._notice_block(push, task, at, step)
            if push.direction == 0 and push.tile[1] == 0 and step.use is not None:
                argument = step.use.argument
                if argument is None or argument[0] in self._context.constants:
                    self._lost = True  # parameters may be written anew

    def ended(self, push: Pushed) -> None:
        """A wait has seen the end of a task."""
        actor, steps = self._end.get((push.op, push.packet), (None, 0))
        if actor is not None:
            self._advance(actor, steps, steps)

    def _lock_taken(self, wait: effects.LockWait) -> None:
        """The host asked for a lock, and got it."""
        key = _lock(wait.tile, wait.lock)
        if wait.acquire and wait.value < 0:
            self._host[key] = self._host.get(key, 0) - wait.value
            self._changed.add(key)
            self._dirty = True
        elif not wait.acquire:
            self._wild.add(key)

    def _lock_seen(self, poll: effects.Poll) -> None:
        """The host waited for a value of a lock: so much more than was taken has been given."""
        hit = effects.decode_address(poll.address)
        if hit is None or hit.name != "LOCK_VALUE" or hit.byte or poll.value > registers.LOCK_MAX:
            return
        if poll.mask & registers.LOCK_MAX == registers.LOCK_MAX and not self._lost:
            self._settle()
            self._explain(_lock(hit.tile, hit.item), poll.value)

    def _lock_set(self, event: effects.LockSet) -> None:
        """A lock is set: its balance starts anew if all tasks that use it must have ended."""
        self._settle()
        key = _lock(event.tile, event.lock)
        takers, givers = self._consumers.get(key, {}), self._producers.get(key, {})
        taken = sum(actor.all_taken.get(key, 0) for actor in takers.values())
        given = sum(actor.all_given.get(key, 0) for actor in givers.values())
        rests = all(a.taken(key) == a.all_taken.get(key, 0) for a in takers.values())
        rests = rests and all(a.given(key) == a.all_given.get(key, 0) for a in givers.values())
        if not rests or self._blocks.get(event.tile):
            self._wild.add(key)
            return
        self._wild.discard(key)
        for actor in takers.values():
            actor.begin_anew(key)
        self._init[key] = event.value + taken - given + self._host.get(key, 0)

    def _changed_by(self, event: effects.Event) -> None:
        """Any other event: whether it changes what this file relies on."""
        if isinstance(event, effects.Reset | effects.UnknownPackets):
            self._lost = True
        elif isinstance(event, effects.DataWritten):
            resting = event.tile in self._stopped and self._rests(event.tile)
            self._lost |= not (resting and self._load(event))
        elif isinstance(event, effects.RegisterWritten):
            register = registers.find_register(event.address)
            name = "" if register is None else register.block.name
            uncounted = name in _CONTROL and bool(event.value & event.mask & _UNCOUNTED)
            if uncounted or name == "PROGRAM_MEMORY" or routes.is_switch_register(event.address):
                self._lost = True
            elif name == "CORE_CONTROL":
                self._controlled(event)

    def _controlled(self, event: effects.RegisterWritten) -> None:
        """A core is stopped or started: a program that waits for its next block has lost nothing by it."""
        column, row, _ = registers.split_address(event.address)
        self._lost |= not self._rests((column, row))
        if event.value & event.mask & _ENABLE:
            self._stopped.discard((column, row))
        else:
            self._stopped.add((column, row))

    def _rests(self, tile: Tile) -> bool:
        """Whether its core must have done all that it was given parameter blocks for."""
        self._settle()
        actor = self._actors.get(tile)
        idle = actor is None or actor.done == actor.steps
        return idle and tile in self._cores and not self._blocks.get(tile)

    def give_up(self) -> None:
        """Something happens that no event tells."""
        self._lost = True

    def done(self, push: Pushed) -> bool:
        """Whether the task must have ended: nothing of it is still to load a BD."""
        if self._lost:
            return False
        self._settle()
        actor, steps = self._end.get((push.op, push.packet), (None, 0))
        return actor is not None and actor.done >= steps

    # --- Tasks as steps -------------------------------------------------------------------------

    def _actor(self, key: object) -> Actor:
        actor = self._actors.get(key)
        if actor is None:
            actor = self._actors[key] = Actor()
        return actor

    def _join(self, actor: Actor, task: Task) -> None:
        for key in task.takes:
            self._consumers.setdefault(key, {})[id(actor)] = actor
        for key in task.gives:
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
            self._lost = True
        acquires, gives = [], []
        if values["acquire_enable"] and values["acquire_value"] < 0:
            owner = effects.lock_owner(use.kind, tile, values["acquire_lock"])
            if owner is not None:
                acquires.append((_lock(*owner), -values["acquire_value"]))
        if values["release_value"]:
            owner = effects.lock_owner(use.kind, tile, values["release_lock"])
            if owner is not None and values["release_value"] < 0:
                self._wild.add(_lock(*owner))
            elif owner is not None:
                gives.append((_lock(*owner), values["release_value"]))
        words = values["length"]
        if not mm2s:
            received = ((_stream((tile, number)), words),) if words else ()
            return Step(use, tuple(acquires), received, (), tuple(gives))
        packet = values["packet_id"] if values["enable_packet"] else None
        arrivals = self._routes.of(tile, number, packet)
        sent = tuple((_stream(to), words + header) for to, header in arrivals if words + header)
        return Step(use, tuple(acquires), (), sent, tuple(gives))

    # --- Progress -------------------------------------------------------------------------------

    def _advance(self, actor: Actor, done: int, begun: int) -> None:
        taken = actor.advance(done, begun)
        if taken:
            self._dirty = True
            self._changed |= taken

    def _settle(self) -> None:
        """The least progress of everybody that explains what is known."""
        if self._lost or not self._dirty:
            return
        self._resolve_blocks()
        while self._changed:
            self._explain(self._changed.pop())
        self._dirty = False

    def _explain(self, key: Resource, left: int = 0) -> None:
        """What was taken, and what was ``left`` then, must have been given by those who can."""
        if key in self._wild or (key[1] == "lock" and not self._is_known(key)):
            return
        takers, givers = list(self._consumers.get(key, {}).values()), self._producers.get(key, {})
        taken = sum(actor.taken(key) for actor in takers)
        self._require(key, givers.values(), taken + self._host.get(key, 0) + left)
        if len(takers) == 1 and id(takers[0]) in givers:
            # What it gives back serves nobody but itself: what it had at a time came from others.
            others = [actor for actor in givers.values() if actor is not takers[0]]
            self._require(key, others, takers[0].held(key))

    def _require(self, key: Resource, givers: Collection[Actor], taken: int) -> None:
        """So much was taken of what was there at first and what ``givers`` gave."""
        needed = taken - self._init.get(key, 0)
        if needed <= 0:
            return
        most = sum(actor.all_given[key] for actor in givers)
        for actor in givers:
            wanted = needed - (most - actor.all_given[key])
            if 0 < wanted <= actor.all_given[key]:
                self._advance(actor, *actor.steps_for(key, wanted))

    def _is_known(self, lock: Resource) -> bool:
        """Whether its value was set, and everybody who may use it is known."""
        tile = lock[0]
        if lock not in self._init:
            return False
        core = tile[1] >= registers.FIRST_CORE_ROW
        return not core or (tile in self._cores and not self._strange_programs and not self._blocks.get(tile))

    # --- Parameter blocks of cores ----------------------------------------------------------------

    def _notice_block(self, push: Pushed, task: Task, at: int, step: Step) -> None:
        """A task that tells a core that a parameter block has come."""
        known = self._cores.get(push.tile)
        if known is None or step.use is None or (_lock(push.tile, known.full), 1) not in step.gives:
            return
        key = _stream((push.tile, push.channel))
        begins = task.taken_before.get(key, 0)
        begins += sum(n for s in task.steps[:at] for k, n in s.receives if k == key)
        per_pass = task.takes.get(key, 0)
        waiting = self._blocks.setdefault(push.tile, deque())
        waiting += [(step.use, key, begins + n * per_pass) for n in range(task.passes)]
        self._dirty = True

    def _resolve_blocks(self) -> None:
        """Gives cores the blocks that are known to come to them, in order."""
        for tile, waiting in self._blocks.items():
            while waiting:
                use = self._use_of_block(tile, *waiting[0])
                if use is None:
                    break
                waiting.popleft()
                self._core_step(tile, use)

    def _use_of_block(self, tile: Tile, use: BdUse, key: Resource, begins: int) -> LockUse | None:
        known = self._cores[tile]
        # A block has come, in one piece or in several; what it does with locks, the first one says.
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
        step = Step(None, full, amounts(use.taken), amounts(use.given), (), last)
        actor = self._actor(tile)
        self._join(actor, actor.push((step,), 1))
        self._changed.update(actor.all_given)

    def _content(self, key: Resource, begins: int, length: int, hops: int = _HOPS) -> Words | None:
        """The words that a stream carries from its word ``begins`` on, back to a known argument.

        Followed are whole runs of BDs over words in a row, and buffers of one slot in between.
        """
        found = self._sender(key, begins)
        if found is None or not hops or not _plain(found[1], length):
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
        # What it sends was written by the step that gave it the lock.
        ((lock, _),) = step.acquires
        given = actor.taken_before(lock, task, passes, step) - self._init.get(lock, 0)
        written = self._sender(lock, given)
        if given < 0 or lock in self._wild or written is None or not _plain(written[1], length):
            return None
        actor, step, task, passes = written
        if step.use is None or vars(step.use.bd)["base"] != vars(use.bd)["base"] or not step.receives:
            return None
        ((stream, _),) = step.receives
        return self._content(stream, actor.taken_before(stream, task, passes, step), length, hops - 1)

    def _sender(self, key: Resource, begins: int) -> tuple[Actor, Step, Task, int] | None:
        """Who gives the resource from ``begins`` on, if only one can."""
        givers = list(self._producers.get(key, {}).values())
        found = givers[0].sender_of(key, begins) if len(givers) == 1 else None
        return None if found is None else (givers[0], *found)


def _plain(step: Step, length: int) -> bool:
    """Whether a step moves ``length`` words in a row, or more, wherever its task stands."""
    if step.use is None:
        return False
    shape = step.use.pattern
    row = len(shape.dims) == 1 and shape.dims[0][1] == 1 and not shape.zeros
    return row and shape.iteration is None and shape.length >= length
