# SPDX-License-Identifier: Apache-2.0
"""Checks across the ops of a transaction: chains, locks, waits, BDs in use.

An error is wrong whatever else is on the array. A warning may be correct: overlays configure BDs
and locks of their own, cores release locks, control packets start channels, and streams order
tasks in ways that the transaction does not show. ``validation`` checks each op alone; ``check`` does both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from onedispatch.transactions.analysis import effects, validation
from onedispatch.transactions.analysis.context import Context
from onedispatch.transactions.analysis.effects import BdUse, Pushed, Tile, Words
from onedispatch.transactions.analysis.order import HappensBefore
from onedispatch.transactions.analysis.overtaking import Overtaking
from onedispatch.transactions.analysis.switch_check import SwitchCheck
from onedispatch.transactions.analysis.tokens import Tokens
from onedispatch.transactions.analysis.unqueued import UnqueuedBds
from onedispatch.transactions.analysis.validation import (
    MOST_FINDINGS,
    ArgSizes,
    Finding,
    FindingKind,
    Severity,
)
from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.base.text import counted, lock_condition, span, tile_name
from onedispatch.transactions.format.binary import TransactionBinary
from onedispatch.transactions.format.decode import decode
from onedispatch.transactions.machine import registers
from onedispatch.transactions.machine.device import Device
from onedispatch.transactions.machine.geometry import MemoryView

_ERROR, _WARNING = Severity.ERROR, Severity.WARNING
_CONTROL = ("DMA_S2MM_CTRL", "DMA_MM2S_CTRL")
_CONTROL_BITS = registers.covered_bits(registers.CHANNEL_FIELDS, 1)[0]
_UNSEEN = ("LOADPDI", "UPDATE_REG", "NEXT")
"""Opcodes that change the array in ways that no event describes."""
Channel = tuple[Tile, int, int]
Problem = tuple[FindingKind, Severity, str]


def check(
    transaction: TransactionBinary, arg_sizes: ArgSizes = None, context: Context | None = None
) -> list[Finding]:
    """Returns all errors and warnings, by op; errors before warnings of the same op.

    Args:
        arg_sizes: bytes of each kernel argument that DDR_PATCH may name; unchecked if None.
        context: the environment that it runs in; accesses that data flow orders then cause no warning.
    """
    sizes = arg_sizes if arg_sizes is None or isinstance(arg_sizes, Mapping) else dict(enumerate(arg_sizes))
    device = None if context is None else context.device
    found = [*validation.validate(transaction, sizes, device), *_FlowCheck(transaction, sizes, context).run()]

    def order(finding: Finding) -> tuple[int, str, str]:
        index = -1 if finding.op_index is None else finding.op_index
        return index, finding.severity.value, finding.kind.value

    return sorted(found, key=order)


def check_bytes(data: bytes, arg_sizes: ArgSizes = None, context: Context | None = None) -> list[Finding]:
    """Returns the findings of ``check``; bytes that are no transaction are a finding too."""
    try:
        transaction = TransactionBinary(data, *decode(data))
    except TransactionError as error:
        message = f"{error.where}: given {error.given}; accepted: {error.accepted}"
        return [Finding(FindingKind.FORMAT, error.op_index, error.byte_offset or 0, message)]
    return check(transaction, arg_sizes, context)


# --- One BD -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Memories:
    """The memory that BDs may access: bytes of a core, and the view of a memory tile."""

    core: int
    mem: MemoryView

    @classmethod
    def of(cls, device: Device | None) -> _Memories:
        """Returns the memories of a device, those of AMD's devices if None."""
        if device is None:
            return cls(registers.CORE.memory_bytes, MemoryView(registers.MEM.memory_bytes))
        return cls(
            min(device.count("core.data_memory_bytes"), registers.CORE.bd_reach),
            MemoryView(device.count("memory_tile.memory_bytes")),
        )

    def problem(self, kind: str, first: int, end: int) -> str:
        """Returns the problem of a BD that accesses [first, end), "" if there is none."""
        room = self.mem.end if kind == "mem" else self.core
        if end > room:
            return f"to {end:#x}; the memory ends at {room:#x}"
        if kind == "mem" and not self.mem.exists(first, end):
            size, pitch = counted(self.mem.bytes, "byte"), self.mem.pitch
            return f"from {first:#x} to {end:#x}; memory tiles have {size} from multiples of {pitch:#x} on"
        return ""


@lru_cache(effects.BDS_REMEMBERED)
def bd_problems(kind: str, words: Words, memories: _Memories) -> tuple[Problem, ...]:
    """Returns the problems of a BD that do not depend on its tile."""
    return (*_reserved(kind, words), *_dimensions(kind, words, memories), *_bd_locks(kind, words))


def _reserved(kind: str, words: Words) -> Iterator[Problem]:
    for at, (word, covered) in enumerate(zip(words, registers.TILES[kind].bd_covered, strict=True)):
        if word & ~covered:
            # DDR_PATCH replaces the address, so its previous bits do not matter.
            severity = _WARNING if kind == "shim" and at == 1 else _ERROR
            yield FindingKind.RESERVED, severity, f"word {at} has no bits {word & ~covered:#x}"


def _dimensions(kind: str, words: Words, memories: _Memories) -> Iterator[Problem]:
    values = vars(effects.decoded_bd(kind, words))
    if not values["length"]:
        return
    wraps = [values.get(f"d{i}_wrap", 0) for i in range(3)]
    zeros = [(values.get(f"d{i}_zeros_before", 0), values.get(f"d{i}_zeros_after", 0)) for i in range(3)]
    for i, wrap in enumerate(wraps):
        if not wrap and (zeros[i][1] or any(map(any, zeros[i + 1 :]))):
            message = f"zeros around dimension {i} or outside it, which has no wrap: they are never reached"
            yield FindingKind.DIMENSION, _WARNING, message
            break
    if not wraps[0] and wraps[1]:
        yield FindingKind.DIMENSION, _WARNING, "dimension 1 wraps, dimension 0 does not: it is never reached"
    if kind == "shim":
        return
    extent = effects.bd_pattern(kind, words).extent()
    first = 4 * values["base"]
    problem = memories.problem(kind, first, first + 4 * extent) if extent else ""
    if problem:
        yield FindingKind.DIMENSION, _ERROR, f"reaches {problem}"


def _bd_locks(kind: str, words: Words) -> Iterator[Problem]:
    values = vars(effects.decoded_bd(kind, words))
    if values["acquire_enable"] and -values["acquire_value"] > registers.LOCK_MAX:
        message = f"waits for a lock >= {-values['acquire_value']}; locks end at {registers.LOCK_MAX}"
        yield FindingKind.LOCK, _ERROR, message
    for name, used in (("acquire", values["acquire_enable"]), ("release", values["release_value"])):
        lock = values[f"{name}_lock"]
        if used and kind == "mem" and lock >= 3 * registers.MEM.own_lock_view:
            yield FindingKind.LOCK, _ERROR, f"{name}s lock {lock}; accepted: 0 to 191"
    if values["use_next"] and values["next_bd"] >= registers.TILES[kind].block["DMA_BD"].count:
        yield FindingKind.CHAIN, _ERROR, f"is followed by BD {values['next_bd']}, which does not exist"


@lru_cache(effects.BDS_REMEMBERED)
def _sides(words: Words, view: MemoryView) -> frozenset[int]:
    """Returns the tiles whose memory and locks a memory tile's BD uses: 0 west, 1 own, 2 east."""
    values = vars(effects.decoded_bd("mem", words))
    extent = effects.bd_pattern("mem", words).extent()
    sides = set()
    if extent:
        first = 4 * values["base"]
        sides = {view.side(first), view.side(first + 4 * extent - 4)}
    for name, used in (("acquire", values["acquire_enable"]), ("release", values["release_value"])):
        if used:
            sides.add(values[f"{name}_lock"] // registers.MEM.own_lock_view)
    return frozenset(sides)


# --- Across ops ---------------------------------------------------------------------------------


@dataclass
class _Lock:
    """A transaction's use of one lock.

    Attributes:
        least, most: range of the values that it is set to; ``least`` is None if it is never set.
        raised: sum of all releases.
        lowered: whether any acquire or release lowers it.
        known_raisers: whether any known release raises it.
        waits: (acquire value, channel, BD) -> the first op; for the host (acquire value, None, op) -> op.
    """

    least: int | None = None
    most: int = 0
    raised: int = 0
    lowered: bool = False
    known_raisers: bool = False
    waits: dict[tuple[int, Channel | None, int], int] = field(default_factory=dict)


class _FlowCheck:
    def __init__(
        self, transaction: TransactionBinary, sizes: Mapping[int, int] | None, context: Context | None
    ) -> None:
        self.transaction = transaction
        self.order = None if context is None else HappensBefore(context)
        self.columns = transaction.header.columns
        device = None if context is None else context.device
        self.memories = _Memories.of(device)
        mem_bds = registers.MEM.block["DMA_BD"].count if device is None else device.count("memory_tile.bds")
        self.half = mem_bds // 2  # BDs of a memory tile that channels of one parity can use
        self.sizes = sizes
        self.found: list[Finding] = []
        self.reported: Counter[tuple[FindingKind, Severity]] = Counter()
        self.suppressed: dict[tuple[FindingKind, Severity], int] = {}
        """Class of findings -> op of the first one beyond MOST_FINDINGS."""
        self.bad_bds: set[tuple[Channel, int, int]] = set()
        self.locks: dict[tuple[Tile, int], _Lock] = {}
        self.bd_users: dict[tuple[Tile, int], dict[Channel, tuple[Pushed, int]]] = {}
        self.running: dict[Channel, list[Pushed]] = {}
        self.open_tokens: Tokens[Channel] = Tokens()
        self.releases: dict[tuple[Tile, int], set[Channel]] = {}
        self.waits_seen = 0
        self.endless: dict[Channel, Pushed] = {}
        self.unknown_users: set[Tile] = set()
        self.tokens = 0
        self.token_channels: set[Channel] = set()
        self.pushed_tiles: set[Tile] = set()
        self.idle_waited: set[tuple[object, ...]] = set()
        self.switches = SwitchCheck()
        self.unqueued = UnqueuedBds()

    def run(self) -> list[Finding]:
        steps = {
            effects.BdWritten: self._bd_written,
            effects.Patched: self._patched,
            effects.Pushed: self._pushed,
            effects.LockSet: self._lock_set,
            effects.LockWait: self._lock_wait,
            effects.IdleWait: self._idle_wait,
            effects.TokenWait: self._token_wait,
            effects.Reset: self._reset,
            effects.Poll: self._poll,
            effects.RegisterWritten: self._register,
        }
        order = self.order
        if order is not None:
            for lock in order.locks_set:
                self._lock_set(lock)
            if any(len(self.transaction.indices(name)) for name in _UNSEEN):
                order.stop_tracking()
        bds, streams = (None, None) if order is None else (order.bds, order.streams)
        overtaking = None if order is None else Overtaking(order)
        for event in effects.events(self.transaction, bds=bds, streams=streams):
            if order is not None and overtaking is not None:
                order.observe(event)
                for op, channel, problem in overtaking.observe(event):
                    self._report(FindingKind.HAZARD, _WARNING, op, f"{_channel(channel)}: {problem}")
            self.unqueued.observe(event)
            step = steps.get(type(event))
            if step is not None:
                step(event)  # type: ignore[operator]
        for channel in list(self.endless):
            self._report_endless(channel)
        self._check_late_writes()
        self._check_unqueued()
        self._check_locks()
        for op, message in self.switches.end():
            self._report(FindingKind.ROUTE, _ERROR, op, message)
        for (kind, severity), op in self.suppressed.items():
            more = validation.suppressed_text(self.reported[kind, severity] - MOST_FINDINGS)
            self.found.append(self._finding(kind, severity, op, more))
        return self.found

    def _finding(self, kind: FindingKind, severity: Severity, op: int, message: str) -> Finding:
        return Finding(kind, op, int(self.transaction.offsets[op]), message, severity)

    def _report(self, kind: FindingKind, severity: Severity, op: int, message: str) -> None:
        self.reported[kind, severity] += 1
        if self.reported[kind, severity] > MOST_FINDINGS:
            self.suppressed.setdefault((kind, severity), op)
        else:
            self.found.append(self._finding(kind, severity, op, message))

    def lock(self, tile: Tile, lock: int) -> _Lock:
        state = self.locks.get((tile, lock))
        if state is None:
            state = self.locks[tile, lock] = _Lock()
        return state

    # --- BDs ------------------------------------------------------------------------------------

    def _bd_written(self, event: effects.BdWritten) -> None:
        use, tile = event.use, event.tile
        for kind, severity, message in bd_problems(use.kind, use.words, self.memories):
            self._report(kind, severity, event.op, f"{_name(tile)} BD {use.index}: {message}")
        if use.kind == "mem":
            self._check_neighbours(event.op, tile, use)
        self._rewritten(event.op, tile, use.index, lambda old: old.words != use.words)

    def _patched(self, event: effects.Patched) -> None:
        """Checks a DDR_PATCH as a write of the BD, whose address it changes."""
        self._rewritten(event.op, event.tile, event.bd, lambda old: old.argument != event.argument)

    def _rewritten(self, op: int, tile: Tile, index: int, differs: Callable[[BdUse], bool]) -> None:
        """Reports the tasks that may still use a BD that is written."""
        for channel, (push, waited) in self.bd_users.pop((tile, index), {}).items():
            if self.order is None or not self.order.has_ended(push):
                old = next((use for use in push.chain if use.index == index), None)
                changes = old is None or differs(old)
                self._report_hazard(op, index, channel, push, changes, waited == self.waits_seen)

    def _report_hazard(
        self, op: int, index: int, channel: Channel, push: Pushed, changes: bool, at_once: bool
    ) -> None:
        """Reports a write of a BD that an unfinished task may still load.

        An idle channel loads the first BD of a task within cycles, and some of AMD's files rely on
        that. A BD behind another task or BD, or of a repeated task, is loaded later.
        """
        behind = self.running.get(channel, [push])[0] is not push
        later = behind or index != push.start or push.repeat > 1
        how = ": nothing waits in between" if at_once else ", which no wait has seen end"
        self._report(
            FindingKind.HAZARD,
            _ERROR if at_once and later and changes else _WARNING,
            op,
            f"{_name(push.tile)} BD {index} is rewritten; {_channel(channel)} may still use it for the "
            f"task of op {push.op}{how}",
        )

    def _check_neighbours(self, op: int, tile: Tile, use: BdUse) -> None:
        """Reports a BD that uses memory or locks of a neighbour that does not exist."""
        sides = _sides(use.words, self.memories.mem)
        for way in self._absent(tile, sides):
            message = f"{_name(tile)} BD {use.index} uses the memory tile to the {way}: there is none"
            self._report(FindingKind.DIMENSION, _ERROR, op, message)

    def _absent(self, tile: Tile, sides: Iterable[int]) -> list[str]:
        """Returns the neighbours among ``sides`` (0 west, 1 own, 2 east) outside of the partition."""
        ways = ((0, "west", tile[0] - 1), (2, "east", tile[0] + 1))
        return [way for side, way, column in ways if side in sides and not 0 <= column < self.columns]

    # --- Tasks ----------------------------------------------------------------------------------

    def _pushed(self, push: Pushed) -> None:
        channel = (push.tile, push.direction, push.channel)
        kind = registers.kind_of_row(push.tile[1]) or "core"
        self.running.setdefault(channel, []).append(push)
        for use in push.chain:
            self._use(push, channel, use)
        if push.end == "cycle":
            self.endless[channel] = push
            if push.token:
                message = f"{_channel(channel)}: a chain that never ends gives no token"
                self._report(FindingKind.CHAIN, _ERROR, push.op, message)
        elif push.end:
            self.unknown_users.add(push.tile)
            last = vars(push.chain[-1].bd)["next_bd"] if push.chain else push.start
            exists = last < registers.TILES[kind].block["DMA_BD"].count
            self._report(
                FindingKind.BD, _WARNING if exists else _ERROR, push.op,
                f"{_channel(channel)}: {push.end}" + ("; the overlay must" if exists else ": there is none"),
            )  # fmt: skip
        self.pushed_tiles.add(channel[0])
        if push.token:
            self.tokens += 1
            self.token_channels.add(channel)
            if push.end != "cycle":
                self.open_tokens.issue(channel, push)

    def _use(self, push: Pushed, channel: Channel, use: BdUse) -> None:
        values, shape = vars(use.bd), use.pattern
        self.bd_users.setdefault((push.tile, use.index), {})[channel] = (push, self.waits_seen)
        bad = (channel, use.op, use.index)
        if bad not in self.bad_bds:
            for kind, severity, message in _queued_problems(push, use, bool(values["valid"]), self.half):
                self.bad_bds.add(bad)
                self._report(kind, severity, push.op, f"{_bd(channel, use)} {message}")
        if shape.iteration is not None:
            self._check_iterations(push, channel, use)
        self._record_locks(push, channel, use, values)

    def _check_iterations(self, push: Pushed, channel: Channel, use: BdUse) -> None:
        """Reports iterations of a push that leave the argument or memory of the first one."""
        reach = 4 * use.pattern.extent(push.repeat)
        if use.kind == "shim":
            if use.argument is None or self.sizes is None or use.argument[0] not in self.sizes:
                return
            argument, offset = use.argument
            size = self.sizes[argument]
            if offset + 4 * use.pattern.extent() <= size < offset + reach:
                self._report(
                    FindingKind.ARGUMENT, _ERROR, push.op,
                    f"{_bd(channel, use)}: {counted(push.repeat, 'run')} access "
                    f"argument {argument} of {counted(size, 'byte')} from {offset} to {offset + reach}",
                )  # fmt: skip
            return
        if not reach:
            return
        end = 4 * vars(use.bd)["base"] + reach
        problem = self.memories.problem(use.kind, end - 4, end)  # iterations need not be one range
        if problem:
            message = f"{counted(push.repeat, 'run')} reach {problem}"
            self._report(FindingKind.DIMENSION, _ERROR, push.op, f"{_bd(channel, use)}: {message}")
        elif use.kind == "mem":
            last_side = self.memories.mem.side(end - 1)
            # The accesses of the first execution were checked when the BD was written.
            for way in self._absent(push.tile, {last_side} - _sides(use.words, self.memories.mem)):
                message = f"{counted(push.repeat, 'run')} reach the memory tile to the {way}: there is none"
                self._report(FindingKind.DIMENSION, _ERROR, push.op, f"{_bd(channel, use)}: {message}")

    def _record_locks(self, push: Pushed, channel: Channel, use: BdUse, values: Mapping[str, int]) -> None:
        if values["release_value"]:
            owner = effects.lock_owner(use.kind, push.tile, values["release_lock"])
            if owner is not None:
                state = self.lock(*owner)
                times = registers.LOCK_MAX if push.end == "cycle" else push.repeat
                state.raised += max(values["release_value"], 0) * times
                state.known_raisers |= values["release_value"] > 0
                state.lowered |= values["release_value"] < 0
                self.releases.setdefault(owner, set()).add(channel)
        if values["acquire_enable"]:
            owner = effects.lock_owner(use.kind, push.tile, values["acquire_lock"])
            if owner is not None:
                state = self.lock(*owner)
                state.lowered |= values["acquire_value"] != 0
                state.waits.setdefault((values["acquire_value"], channel, use.index), push.op)

    def _retire(self, channel: Channel, last: Pushed | None = None) -> None:
        """Marks the tasks of a channel as ended: up to ``last``, or all of them."""
        running = self.running.pop(channel, [])
        ended = len(running)
        if last is not None:  # none, if its end was seen before
            ended = next((i for i, push in enumerate(running, 1) if push is last), 0)
        if ended < len(running):
            self.running[channel] = running[ended:]
        for push in running[:ended]:
            if push.end == "cycle":
                continue
            if self.order is not None:
                self.order.record_end(push)
            for use in push.chain:
                users = self.bd_users.get((push.tile, use.index), {})
                if channel in users and users[channel][0] is push:
                    del users[channel]

    def _reset(self, event: effects.Reset) -> None:
        channel = (event.tile, event.direction, event.channel)
        self.open_tokens.forget(channel)
        for push in self.running.pop(channel, ()):
            for use in push.chain:
                self.bd_users.get((push.tile, use.index), {}).pop(channel, None)
        self._report_endless(channel)

    def _report_endless(self, channel: Channel) -> None:
        push = self.endless.pop(channel, None)
        if push is None:
            return
        gated = any(vars(use.bd)["acquire_enable"] for use in push.chain)
        chain = " ".join(str(use.index) for use in push.chain)
        tail = "its locks gate it" if gated else "and no lock gates it"
        message = f"{_channel(channel)}: the chain of BDs {chain} never ends, {tail}"
        self._report(FindingKind.CHAIN, _WARNING if gated else _ERROR, push.op, message)

    def _check_late_writes(self) -> None:
        """Warns of writes to host memory that no wait has seen end when the transaction ends."""
        for channel, pushes in self.running.items():
            tile, direction, _ = channel
            if tile[1] != registers.SHIM_ROW or effects.DIRECTIONS[direction & 1] != "S2MM":
                continue
            late = [p for p in pushes if p.end != "cycle" and not (self.order and self.order.has_ended(p))]
            if late:
                message = (
                    f"{_channel(channel)} may still write host memory for the task of op {late[0].op} "
                    "when the transaction ends: no wait has seen it end"
                )
                self._report(FindingKind.HAZARD, _WARNING, len(self.transaction) - 1, message)

    def _check_unqueued(self) -> None:
        """Warns of an argument patched into a BD that is never queued; an overlay may queue other BDs."""
        for one in self.unqueued.end():
            if one.has_argument:
                self._report(FindingKind.BD, _WARNING, one.op, f"{_name(one.tile)} {one}")

    # --- Waits ----------------------------------------------------------------------------------

    def _idle_wait(self, event: effects.IdleWait) -> None:
        self.waits_seen += 1
        channel = (event.tile, event.direction, event.channel)
        push = self.endless.pop(channel, None)
        if push is not None:
            message = f"{_channel(channel)}: the chain never ends, but op {event.op} waits for its end"
            self._report(FindingKind.CHAIN, _ERROR, push.op, message)
        if channel not in self.idle_waited and channel not in self.running:
            message = f"{_channel(channel)} is waited for, but nothing here starts it"
            self._report(FindingKind.WAIT, _WARNING, event.op, message)
        self.idle_waited.add(channel)
        self._retire(channel)

    def _register(self, event: effects.RegisterWritten) -> None:
        for op, message in self.switches.write(*event):
            self._report(FindingKind.ROUTE, _ERROR, op, message)
        register = registers.find_register(event.address)
        if register is None or register.byte or register.block.name not in _CONTROL:
            return
        unknown = event.value & event.mask & ~_CONTROL_BITS
        if unknown:
            # AMD's files set bit 0 of control registers, which no public source explains.
            self._report(FindingKind.RESERVED, _WARNING, event.op, f"{register} has no bits {unknown:#x}")

    def _poll(self, _: effects.Poll) -> None:
        self.waits_seen += 1

    def _token_wait(self, event: effects.TokenWait) -> None:
        self.waits_seen += 1
        if event.tile is None:
            wanted = event.tokens * event.columns
            if wanted > self.tokens:
                message = f"waits for {counted(wanted, 'token')}; the tasks before it give {self.tokens}"
                self._report(FindingKind.WAIT, _WARNING if self.tokens else _ERROR, event.op, message)
            for channel, push in self.open_tokens.merge(event.tokens):
                self._retire(channel, push)
        else:
            column, row = event.tile
            tiles = ((column + c, row + r) for c in range(event.columns) for r in range(event.rows))
            missing = next((t for t in tiles if (t, *event[2:4]) not in self.token_channels), None)
            if missing is not None:
                name = _channel((missing, event.direction, event.channel))
                message = f"waits for a token of {name}; no task there gives one"
                unseen = missing[1] != registers.SHIM_ROW and missing not in self.pushed_tiles
                message += ", unless control packets push it" if unseen else ""
                self._report(FindingKind.WAIT, _WARNING if unseen else _ERROR, event.op, message)
            last_column, last_row = column + event.columns - 1, row + event.rows - 1
            for c in self.open_tokens.channels():
                if column <= c[0][0] <= last_column and row <= c[0][1] <= last_row and c[1:] == event[2:4]:
                    given = self.open_tokens.consume(c)
                    if given is not None:
                        self._retire(c, given)

    def _lock_set(self, event: effects.LockSet) -> None:
        state = self.lock(event.tile, event.lock)
        state.least = event.value if state.least is None else min(state.least, event.value)
        state.most = max(state.most, event.value)

    def _lock_wait(self, event: effects.LockWait) -> None:
        self.waits_seen += 1
        state = self.lock(event.tile, event.lock)
        if event.acquire:
            state.waits[event.value, None, event.op] = event.op
            state.lowered |= event.value != 0
            if self.order is None:  # any task that releases the lock may be the one that the host waits for
                for channel in self.releases.get((event.tile, event.lock), ()):
                    self._retire(channel)
        else:
            state.raised += max(event.value, 0)
            state.known_raisers |= event.value > 0
            state.lowered |= event.value < 0

    # --- Locks ----------------------------------------------------------------------------------

    def _check_locks(self) -> None:
        for (tile, lock), state in self.locks.items():
            if registers.kind_of_row(tile[1]) == "core" or state.least is None:
                continue  # cores and overlays use locks in ways that the transaction does not show
            low = 0 if state.lowered else state.least
            high = min(registers.LOCK_MAX, state.most + state.raised)
            near = any((tile[0] + d, tile[1]) in self.unknown_users for d in (-1, 0, 1))
            sure = state.known_raisers and not near
            for (value, channel, index), op in state.waits.items():
                wanted = abs(value)
                if low <= wanted <= high or (value < 0 and wanted <= high):
                    continue
                who = f"{_channel(channel)} BD {index}" if channel else "the host"
                kept = f"at {low}" if low == high else f"within {span(low, high)}"
                self._report(
                    FindingKind.LOCK, _ERROR if sure and wanted > high else _WARNING, op,
                    f"{who} waits for {_name(tile)} lock {lock} {lock_condition(value)}; "
                    f"what is done here keeps it {kept}",
                )  # fmt: skip


def _queued_problems(push: Pushed, use: BdUse, valid: bool, half: int) -> Iterator[Problem]:
    """Yields the problems of a BD on the channel that queues it; reported once per BD and channel."""
    if not valid:
        yield FindingKind.BD, _ERROR, "is queued while not valid"
    low = half * (push.channel % 2)
    # ``validation`` checks the first BD.
    if use.kind == "mem" and not low <= use.index < low + half and use.index != push.start:
        yield FindingKind.BD, _ERROR, f"is queued on a channel that can use BDs {span(low, low + half - 1)}"
    if use.pattern.zeros and not push.direction:
        yield FindingKind.DIMENSION, _WARNING, "inserts zeros, which an S2MM channel does not"


def _name(tile: Tile) -> str:
    return tile_name(*tile)


def _channel(channel: Channel) -> str:
    tile, direction, index = channel
    return f"{_name(tile)} {effects.DIRECTIONS[direction & 1]}[{index}]"


def _bd(channel: Channel, use: BdUse) -> str:
    return f"{_channel(channel)} BD {use.index}"
