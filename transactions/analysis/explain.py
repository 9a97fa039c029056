# SPDX-License-Identifier: Apache-2.0
"""Explanation of a transaction: which channels move which data, in which order, and the waits.

``Explanation.of(transaction)`` collects it; ``summary`` is one screen, ``tile_text`` everything about
one tile, ``to_dict`` everything for scripts. Byte counts are those of the pushed tasks: an endless
chain counts once per repeat, inserted zeros count as stream words.
"""

from __future__ import annotations

import textwrap
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any

from onedispatch.transactions.analysis import effects
from onedispatch.transactions.analysis.context import Context
from onedispatch.transactions.analysis.effects import BdUse, Pushed, Tile
from onedispatch.transactions.analysis.order import HappensBefore
from onedispatch.transactions.analysis.steps import ExplainedStep, StepCollector, fold_repetitions
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import KIND_NAMES, counted, lock_condition, short_bytes, tile_name
from onedispatch.transactions.format import spec
from onedispatch.transactions.format.binary import TransactionBinary
from onedispatch.transactions.machine import registers
from onedispatch.transactions.machine.geometry import MemoryView
from onedispatch.transactions.text import listing

_ANY = 1 << 30  # a width that no line has


@dataclass
class ArgumentTraffic:
    """Accesses to one kernel argument.

    Attributes:
        read, written: bytes, with repeats.
        first, end: accessed bytes lie in [first, end).
        bds: pushed shim BDs that access it.
    """

    argument: int
    read: int = 0
    written: int = 0
    first: int = 1 << 64
    end: int = 0
    bds: int = 0


@dataclass(frozen=True)
class Wait:
    """A poll or token wait, in words."""

    op: int
    what: str


@dataclass(frozen=True)
class MemoryWrite:
    """Words written into a memory; ``sets``: register writes that a core parameter block triggers."""

    op: int
    offset: int
    words: int
    magic: int
    crc: int
    sets: int


@dataclass
class Channel:
    """One DMA channel: its tasks and the waits for it. ``by_core``: a core pushes tasks."""

    direction: int
    index: int
    pushes: list[Pushed] = field(default_factory=list)
    by_core: bool = False
    waits: list[int] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{effects.DIRECTIONS[self.direction]}[{self.index}]"

    @property
    def bytes(self) -> int:
        return sum(push.bytes for push in self.pushes)


@dataclass
class TileUse:
    """All events of one tile."""

    tile: Tile
    kind: str
    channels: dict[tuple[int, int], Channel] = field(default_factory=dict)
    locks: list[tuple[int, int, int]] = field(default_factory=list)
    """(op, lock, value) of the locks set."""
    waits: list[Wait] = field(default_factory=list)
    blocks: list[MemoryWrite] = field(default_factory=list)
    registers: list[tuple[int, str, int]] = field(default_factory=list)
    """(op, register, value) of other writes."""

    def channel(self, direction: int, index: int) -> Channel:
        channel = self.channels.get((direction, index))
        if channel is None:
            channel = self.channels[direction, index] = Channel(direction, index)
        return channel

    def bytes(self, direction: int) -> int:
        return sum(c.bytes for c in self.channels.values() if c.direction == direction)

    @property
    def name(self) -> str:
        return tile_name(*self.tile)


@dataclass
class Explanation:
    """A transaction's traffic, tasks, waits and steps; see the module."""

    title: str
    columns: int
    opcodes: dict[str, int]
    arguments: dict[int, ArgumentTraffic]
    tiles: dict[Tile, TileUse]
    waits: list[Wait]
    steps: list[ExplainedStep]
    """Consecutive runs of events of one kind."""

    @classmethod
    def of(cls, transaction: TransactionBinary, context: Context | None = None) -> Explanation:
        """Explains a transaction; never fails on one that was decoded.

        Args:
            context: the environment that it runs in; with it, effects of control packets are included.
        """
        return _Collector(transaction, context).explanation

    # --- Text -----------------------------------------------------------------------------------

    def summary(self, width: int = _ANY) -> str:
        """Returns one screen, lines of ``width`` characters at most: arguments, array, waits, steps."""
        lines = [self.title, f"  {', '.join(f'{n} {name}' for name, n in self.opcodes.items())}", ""]
        lines += self._argument_lines()
        lines += ["", "array: tasks pushed, bytes into and out of each tile's memory or the host"]
        lines += self._grid(width)
        kinds = Counter(wait.what for wait in self.waits)
        if kinds:
            lines += ["", f"waits: {sum(kinds.values())}"]
            lines += [f"  {count:5} x {what}" for what, count in kinds.most_common(6)]
            lines += [f"        {counted(len(kinds) - 6, 'other kind')}"] if len(kinds) > 6 else []
        lines += ["", "steps:"]
        shown, left = fold_repetitions(self.steps)
        lines += [_step_line(first, last, what) for first, last, what in shown]
        lines += [f"  and {counted(left, 'more step')}"] if left else []
        return "\n".join(part for line in lines for part in _wrapped(line, width)) + "\n"

    def _argument_lines(self) -> Iterator[str]:
        if not self.arguments:
            yield "host memory: no argument is touched"
            return
        yield "host memory        read B      written B   bytes touched                BDs"
        for number, use in sorted(self.arguments.items()):
            span = f"{use.first:#x} to {use.end:#x}"
            yield f"  arg {number:<4} {use.read:>15,} {use.written:>14,}   {span:<28} {use.bds}"

    def _grid(self, most: int) -> Iterator[str]:
        rows = sorted({row for _, row in self.tiles}, reverse=True)
        columns = range(max([self.columns, *(column + 1 for column, _ in self.tiles)]))
        if len(columns) > 16:
            columns = range(16)
        cells = {row: [_cell(self.tiles.get((column, row))) for column in columns] for row in rows}
        width = 2 + max((len(cell) for line in cells.values() for cell in line), default=1)
        beside = max(1, (most - 6) // width)  # columns in a line
        for first in range(0, len(columns), beside):
            some = columns[first : first + beside]
            yield "      " + "".join(f"{f'c{column}':<{width}}" for column in some).rstrip()
            for row, line in cells.items():
                shown = line[first : first + beside]
                yield f"  r{row}  " + "".join(f"{cell:<{width}}" for cell in shown).rstrip()

    def tile_text(self, tile: Tile) -> str:
        """Returns everything about one tile.

        Raises:
            InputError: the transaction does not use this tile.
        """
        use = self.tiles.get(tile)
        if use is None:
            known = ", ".join(tile_name(*one) for one in sorted(self.tiles))
            raise InputError("--tile", tile_name(*tile), known or "no tile", "take one of these")
        lines = [f"{use.name}: {KIND_NAMES[use.kind]}"]
        if use.locks:
            lines += ["  locks set: " + ", ".join(f"{lock} to {v} (op {op})" for op, lock, v in use.locks)]
        for block in use.blocks:
            sets = f", has the core write {counted(block.sets, 'register')}" if block.sets else ""
            lines.append(
                f"  op {block.op}: {counted(block.words, 'word')} to {block.offset:#x}, "
                f"first {block.magic:#010x}, crc {block.crc:08x}{sets}"
            )
        for _, channel in sorted(use.channels.items()):
            lines += _channel_lines(channel)
        lines += [f"  op {op}: {name} = {value:#x}" for op, name, value in use.registers]
        if use.waits:
            lines.append("  waits:")
            lines += [f"    op {wait.op}: {wait.what}" for wait in use.waits]
        return "\n".join(lines) + "\n"

    def text(self) -> str:
        """Returns the summary and every tile."""
        return "\n".join([self.summary(), *(self.tile_text(tile) for tile in sorted(self.tiles))])

    # --- JSON -----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Returns the explanation as plain data."""
        return {
            "title": self.title,
            "opcodes": self.opcodes,
            "arguments": [vars(use) for _, use in sorted(self.arguments.items())],
            "tiles": [_tile_dict(use) for _, use in sorted(self.tiles.items())],
            "waits": [vars(wait) for wait in self.waits],
            "steps": [{"first": a, "last": b, "what": what} for a, b, what in self.steps],
        }


# --- Words --------------------------------------------------------------------------------------


def _wrapped(line: str, width: int) -> list[str]:
    """The line, or several of ``width`` characters at most, further ones behind its indent and more."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(line, width, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False)


def _step_line(first: int, last: int, what: str) -> str:
    name, end = ("op ", "") if first == last else ("ops", f" to {last}")
    return f"  {name} {first:>5}{end:<10} {what}"


def _cell(use: TileUse | None) -> str:
    if use is None:
        return "."
    tasks = sum(len(c.pushes) for c in use.channels.values() if not c.by_core)
    if not tasks:
        return f"{sum(b.words for b in use.blocks)}w" if use.blocks else "locks" if use.locks else "waits"
    return f"{tasks}: {short_bytes(use.bytes(0))}/{short_bytes(use.bytes(1))}"


_SIDES = ("west", "own", "east", "absent")
"""Memories in the view of a memory tile's BD, from address 0 on."""
_VIEW = MemoryView(registers.MEM.memory_bytes)  # that of AMD's devices: headers do not state memory sizes


@lru_cache(maxsize=1 << 12)
def _place(kind: str, words: tuple[int, ...], argument: tuple[int, int] | None) -> str:
    values = vars(effects.decoded_bd(kind, words))
    if kind == "shim":
        if argument is None:
            return f"host address {values['address']:#x}"
        return f"arg {argument[0]} + {argument[1]:#x}"
    if kind == "core":
        return f"memory {values['base'] * 4:#x}"
    first, end = 4 * values["base"], 4 * (values["base"] + effects.bd_pattern(kind, words).extent())
    side, last = _VIEW.side(first), _VIEW.side(max(end - 4, 0))
    place = f"{_SIDES[min(side, 3)]} memory {_VIEW.offset(first):#x}"
    if last <= side:
        return place
    return f"{place} to {_SIDES[min(last, 3)]} memory {_VIEW.offset(end - 1):#x}"


def _lock_text(kind: str, lock: int) -> str:
    if kind != "mem":
        return f"lock {lock}"
    side, own = divmod(lock, registers.MEM.own_lock_view)
    return f"{('west ', '', 'east ', 'no ')[side]}lock {own}"


@lru_cache(maxsize=1 << 12)
def _locks(kind: str, words: tuple[int, ...]) -> str:
    values = vars(effects.decoded_bd(kind, words))
    parts = []
    if values["acquire_enable"]:
        lock, value = values["acquire_lock"], values["acquire_value"]
        parts.append(f"after {_lock_text(kind, lock)} {lock_condition(value)}")
    if values["release_value"]:
        parts.append(f"then {_lock_text(kind, values['release_lock'])} {values['release_value']:+d}")
    if values["enable_packet"]:
        parts.append(f"packet id {values['packet_id']} type {values['packet_type']}")
    if values.get("enable_compression"):
        parts.append("compressed")
    if not values["valid"]:
        parts.append("NOT VALID")
    return ", ".join(parts)


def bd_text(use: BdUse) -> str:
    """Returns one BD on one line: position, pattern, locks."""
    text = f"bd {use.index}: {_place(use.kind, use.words, use.argument)}, {use.pattern}"
    locks = _locks(use.kind, use.words)
    return f"{text}; {locks}" if locks else text


def _channel_lines(channel: Channel) -> Iterator[str]:
    yield f"  {channel.name}: {counted(len(channel.pushes), 'task')}, {counted(channel.bytes, 'byte')}" + (
        ", pushed by the core" if channel.by_core else ""
    )
    shown: set[int] = set()
    for push in channel.pushes:
        runs = f" x {push.repeat}" if push.repeat > 1 else ""
        token = ", gives a token" if push.token else ""
        yield f"    op {push.op}: from bd {push.start}{runs}{token}"
        yield from _chain_lines(push.chain, shown)
        if push.end:
            yield "      and again: the chain never ends" if push.end == "cycle" else f"      {push.end}"
    if channel.resets:
        yield f"    reset: ops {', '.join(map(str, channel.resets))}"
    if channel.waits:
        yield f"    waited for until idle: ops {', '.join(map(str, channel.waits))}"


def _chain_lines(chain: tuple[BdUse, ...], shown: set[int]) -> Iterator[str]:
    """Yields the BDs of a task; BDs of a chain that an earlier task has shown are abbreviated.

    Chains have up to 48 BDs and may be pushed many times.
    """
    for known, uses in groupby(chain, lambda use: len(chain) > 1 and id(use) in shown):
        if known:
            yield f"      bd {', '.join(str(use.index) for use in uses)}: as before"
        else:
            yield from (f"      {bd_text(use)}" for use in uses)
    shown.update(map(id, chain))


def _tile_dict(use: TileUse) -> dict[str, Any]:
    return {
        "column": use.tile[0],
        "row": use.tile[1],
        "kind": use.kind,
        "locks": [{"op": op, "lock": lock, "value": value} for op, lock, value in use.locks],
        "blocks": [vars(block) for block in use.blocks],
        "registers": [{"op": op, "register": name, "value": value} for op, name, value in use.registers],
        "waits": [vars(wait) for wait in use.waits],
        "channels": [_channel_dict(channel) for _, channel in sorted(use.channels.items())],
    }


def _channel_dict(channel: Channel) -> dict[str, Any]:
    return {
        "name": channel.name,
        "bytes": channel.bytes,
        "by_core": channel.by_core,
        "idle_waits": channel.waits,
        "resets": channel.resets,
        "pushes": [
            {
                "op": push.op,
                "start": push.start,
                "repeat": push.repeat,
                "token": push.token,
                "bytes": push.bytes,
                "end": push.end,
                "chain": [_bd_dict(use) for use in push.chain],
            }
            for push in channel.pushes
        ],
    }


def _bd_dict(use: BdUse) -> dict[str, Any]:
    shape = use.pattern
    return {
        "bd": use.index,
        "op": use.op,
        "argument": use.argument and {"index": use.argument[0], "offset": use.argument[1]},
        "dims": [{"count": count, "step": step} for count, step in shape.dims],
        "zeros": [{"before": before, "after": after} for before, after in shape.zeros],
        "iteration": shape.iteration
        and dict(zip(("count", "step", "current"), shape.iteration, strict=True)),
        "extent": shape.extent(),
        "fields": vars(use.bd),
    }


# --- Collecting ---------------------------------------------------------------------------------


class _Collector:
    def __init__(self, transaction: TransactionBinary, context: Context | None) -> None:
        counts = Counter(transaction.codes.tolist()).most_common()
        self.explanation = Explanation(
            listing.summary(transaction),
            transaction.header.columns,
            {spec.name_of(code): count for code, count in counts},
            {},
            {},
            [],
            [],
        )
        self.core_ops: set[int] = set()
        order = None if context is None else HappensBefore(context)
        bds, streams = (None, None) if order is None else (order.bds, order.streams)
        self.explanation.steps = self._take(effects.events(transaction, True, bds, streams))

    def tile(self, tile: Tile) -> TileUse:
        use = self.explanation.tiles.get(tile)
        if use is None:
            use = TileUse(tile, registers.kind_of_row(tile[1]) or "core")
            self.explanation.tiles[tile] = use
        return use

    def _wait(self, op: int, tile: Tile | None, what: str) -> None:
        wait = Wait(op, what)
        self.explanation.waits.append(wait)
        if tile is not None:
            self.tile(tile).waits.append(wait)

    def _take(self, found: Iterable[effects.Event]) -> list[ExplainedStep]:
        steps = StepCollector()
        takers: dict[type, Callable[..., None]] = {
            effects.Pushed: self._pushed,
            effects.LockSet: self._lock_set,
            effects.IdleWait: self._idle_wait,
            effects.LockWait: self._lock_wait,
            effects.DataWritten: self._data,
            effects.Reset: self._reset,
            effects.RegisterWritten: self._register,
            effects.Poll: self._poll,
            effects.TokenWait: self._tokens,
        }
        for event in found:
            steps.add(event)
            take = takers.get(type(event))
            if take is not None:
                take(event)
        steps.end()
        return steps.done

    def _lock_set(self, event: effects.LockSet) -> None:
        if event.op not in self.core_ops:
            self.tile(event.tile).locks.append((event.op, event.lock, event.value))

    def _idle_wait(self, event: effects.IdleWait) -> None:
        tile = self.tile(event.tile)
        tile.channel(event.direction, event.channel).waits.append(event.op)
        self._wait(
            event.op, None, f"{KIND_NAMES[tile.kind]} {effects.DIRECTIONS[event.direction]} channel idle"
        )

    def _lock_wait(self, event: effects.LockWait) -> None:
        kind = KIND_NAMES[self.tile(event.tile).kind]
        done = f"to be {lock_condition(event.value)}" if event.acquire else f"released by {event.value}"
        self._wait(event.op, event.tile, f"{kind} lock {event.lock} {done}")

    def _reset(self, event: effects.Reset) -> None:
        self.tile(event.tile).channel(event.direction, event.channel).resets.append(event.op)

    def _poll(self, event: effects.Poll) -> None:
        hit = effects.decode_address(event.address)
        what = f"{listing.register_text(event.address)} & {event.mask:#x} == {event.value:#x}"
        self._wait(event.op, hit and hit.tile, what)

    def _pushed(self, push: Pushed) -> None:
        channel = self.tile(push.tile).channel(push.direction, push.channel)
        channel.pushes.append(push)
        channel.by_core |= push.op in self.core_ops
        for use in push.chain:
            if use.argument is None:
                continue
            argument, offset = use.argument
            traffic = self.explanation.arguments.setdefault(argument, ArgumentTraffic(argument))
            moved = 4 * use.pattern.length * push.repeat
            traffic.bds += 1
            if push.direction:
                traffic.read += moved
            else:
                traffic.written += moved
            traffic.first = min(traffic.first, offset)
            traffic.end = max(traffic.end, offset + 4 * use.pattern.extent(push.repeat))

    def _data(self, event: effects.DataWritten) -> None:
        sets = len(effects.core_list(event.words)) if event.words[:1] == (effects.PARAMETER_MAGIC,) else 0
        if sets:
            self.core_ops.add(event.op)
        crc = zlib.crc32(effects.little_endian(event.words))
        magic = event.words[0] if event.words else 0
        self.tile(event.tile).blocks.append(
            MemoryWrite(event.op, event.offset, len(event.words), magic, crc, sets)
        )

    def _register(self, event: effects.RegisterWritten) -> None:
        hit = effects.decode_address(event.address)
        if hit is not None and event.op not in self.core_ops:
            register = registers.find_register(event.address)
            self.tile(hit.tile).registers.append((event.op, str(register), event.value))

    def _tokens(self, event: effects.TokenWait) -> None:
        if event.tile is None:
            what = f"{counted(event.tokens, 'token')} of each of {counted(event.columns, 'column')}"
            self._wait(event.op, None, what)
            return
        direction = effects.DIRECTIONS[event.direction & 1]
        tiles = f"{counted(event.columns, 'column')}, {counted(event.rows, 'row')}"
        what = f"tokens of {direction}[{event.channel}] of {tiles}"
        self._wait(event.op, None, what)
