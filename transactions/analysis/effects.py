# SPDX-License-Identifier: Apache-2.0
"""The effects of a transaction's operations as events: BD writes, patches, pushes, lock writes, waits.

``events`` interprets each write by its register and tracks the content of every BD, so that a push
event carries the chain that it starts. ``explain`` and ``check`` both consume these events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from operator import mul
from typing import NamedTuple, TypeAlias

import numpy as np

from onedispatch.transactions.analysis.streams import PacketPayload, PacketWrite, Streams
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.format import spec
from onedispatch.transactions.format.binary import TransactionBinary
from onedispatch.transactions.machine import bd, registers

Tile = tuple[int, int]
"""(column, row)"""
Words = tuple[int, ...]
DIRECTIONS = ("S2MM", "MM2S")
PARAMETER_MAGIC = 0x66660001
"""First word of a core parameter block."""
_CORE_LIST = ("LOCK_VALUE", "DMA_BD", "DMA_S2MM_QUEUE", "DMA_MM2S_QUEUE", "DMA_S2MM_CTRL", "DMA_MM2S_CTRL")
_BD_WORDS = {kind: tile.bd_words for kind, tile in registers.TILES.items()}
_IDLE_BITS = 0x00780000
"""Running and queue size: a poll for zero in these bits waits until the channel is idle."""


@dataclass(frozen=True)
class BdPattern:
    """The words that a BD accesses, in order.

    Attributes:
        dims: (count, step) innermost first; steps in words, the outermost count derived from the length.
        zeros: (before, after) per dimension: zeros that a memory tile inserts; empty for none.
        length: words of the stream per execution, inserted zeros included.
        iteration: (count, step, current): start offsets of successive executions; None if all are equal.
        leading: inserted zeros before the first word from memory.
    """

    dims: tuple[tuple[int, int], ...]
    zeros: tuple[tuple[int, int], ...]
    length: int
    iteration: tuple[int, int, int] | None
    leading: int = 0

    @property
    def only_zeros(self) -> bool:
        """True if all words are inserted zeros, so that memory is not accessed."""
        return self.length <= self.leading

    def extent(self, runs: int = 1) -> int:
        """Returns the words from the base to the end of what ``runs`` executions access; 0 for none."""
        if self.only_zeros:
            return 0
        last = self._last
        if self.iteration is not None:
            count, step, current = self.iteration
            farthest = count - 1 if current + runs > count else current + runs - 1
            last += max(farthest, 0) * step
        return last + 1

    @cached_property
    def _last(self) -> int:
        """The farthest word of one execution that starts at the base."""
        if not self.zeros and self.length < prod(count for count, _ in self.dims):
            return self._last_of_partial()
        return sum((count - 1) * step for count, step in self.dims)

    def _last_of_partial(self) -> int:
        """The farthest word when the length ends inside of a dimension."""
        left, digits = self.length - 1, []
        for count, _ in self.dims:
            digits.append(left % count)
            left //= count
        steps = [step for _, step in self.dims]
        last = sum(digit * step for digit, step in zip(digits, steps, strict=True))
        # Rows before the last word may reach farther: one digit lower, and all inner dimensions complete.
        inside = 0
        for i, (count, step) in enumerate(self.dims):
            if digits[i]:
                outside = sum(map(mul, digits[i + 1 :], steps[i + 1 :]))
                last = max(last, outside + (digits[i] - 1) * step + inside)
            inside += (count - 1) * step
        return last

    def __str__(self) -> str:
        if self.only_zeros and self.length:
            return f"{counted(self.length, 'word')}, all zeros"
        if all(step == 1 for _, step in self.dims[:1]) and len(self.dims) <= 1:
            text = counted(self.length, "word")
        else:
            dims = " x ".join(f"{count}@{step}" for count, step in self.dims)
            text = f"{counted(self.length, 'word')}: {dims}"
        if self.zeros:
            text += ", zeros " + " ".join(
                f"d{i}:{before}+{after}" for i, (before, after) in enumerate(self.zeros) if before or after
            )
        if self.iteration is not None:
            count, step, current = self.iteration
            text += f", +{step} per run of {count}" + (f" from {current}" if current else "")
        return text


# Size of the caches keyed by a BD's words: some 20 MB when full.
BDS_REMEMBERED = 1 << 13


@lru_cache(BDS_REMEMBERED)
def decoded_bd(kind: str, words: Words) -> bd.BufferDescriptor:
    return bd.decode_bd(kind, words)


@lru_cache(BDS_REMEMBERED)
def bd_pattern(kind: str, words: Words) -> BdPattern:
    """Returns the access pattern of a BD."""
    values = vars(decoded_bd(kind, words))
    length = left = values["length"]
    zeros = [(values.get(f"d{i}_zeros_before", 0), values.get(f"d{i}_zeros_after", 0)) for i in range(3)]
    leading, inner = 0, 1
    for i, (before, after) in enumerate(zeros):
        leading += before * inner
        inner *= values.get(f"d{i}_wrap", 0) + before + after
    dims: list[tuple[int, int]] = []
    for i in range(bd.BD_CLASSES[kind].dimensions):
        wrap, step = values.get(f"d{i}_wrap", 0), values[f"d{i}_step"]
        count = min(wrap, left) if wrap else left
        padded = wrap + sum(zeros[i]) if i < len(zeros) else wrap
        dims.append((count, step))
        left = -(-left // padded) if wrap else min(left, 1)
        if left <= 1 and not any(map(any, zeros[i + 1 :])):
            break
    if not any(map(any, zeros)):
        dims = [dim for i, dim in enumerate(dims) if dim[0] > 1 or not i]
    iteration = None
    if values["iteration_wrap"] > 1:
        iteration = (values["iteration_wrap"], values["iteration_step"], values["iteration_current"])
    shown = tuple(zeros) if any(map(any, zeros)) else ()
    return BdPattern(tuple(dims), shown, length, iteration, leading)


# Not frozen: a file creates thousands, and creating a frozen instance takes three times as long.
@dataclass(slots=True)
class BdUse:
    """The content of a BD at the time a push started its chain.

    Attributes:
        op: index of the op that wrote it last.
        argument: (kernel argument, byte offset) of its DDR_PATCH, None for none.
    """

    index: int
    kind: str
    words: Words
    op: int
    argument: tuple[int, int] | None

    @property
    def bd(self) -> bd.BufferDescriptor:
        return decoded_bd(self.kind, self.words)

    @property
    def pattern(self) -> BdPattern:
        return bd_pattern(self.kind, self.words)


class BdWritten(NamedTuple):
    op: int
    tile: Tile
    use: BdUse
    whole: bool = True  # False: a single word was written


class Patched(NamedTuple):
    op: int
    tile: Tile
    bd: int
    argument: tuple[int, int]


class Pushed(NamedTuple):
    """A task push; ``end``: "" if the chain ends, "cycle" if it never does, or why it is unknown."""

    op: int
    tile: Tile
    direction: int
    channel: int
    start: int
    repeat: int
    token: bool
    chain: tuple[BdUse, ...]
    end: str
    packet: int = 0
    """Number of the push among those of the op's control packets; 0 for the op itself."""

    @property
    def bytes(self) -> int:
        """Bytes of the task's stream; an endless chain counts once per repeat."""
        return 4 * self.repeat * sum(use.pattern.length for use in self.chain)


class UnknownPackets(NamedTuple):
    """A task sends control packets with unknown content."""

    op: int


class Reset(NamedTuple):
    op: int
    tile: Tile
    direction: int
    channel: int


class LockSet(NamedTuple):
    op: int
    tile: Tile
    lock: int
    value: int


class LockWait(NamedTuple):
    """A poll of the request window, which performs the request once it can be granted."""

    op: int
    tile: Tile
    lock: int
    value: int
    acquire: bool


class IdleWait(NamedTuple):
    op: int
    tile: Tile
    direction: int
    channel: int


class Poll(NamedTuple):
    """A poll of any other register."""

    op: int
    address: int
    mask: int
    value: int


class TokenWait(NamedTuple):
    """A token wait. TCT: one of each tile's channel; MERGE_SYNC: ``tokens`` of each column, tile None."""

    op: int
    tile: Tile | None
    direction: int
    channel: int
    columns: int
    rows: int
    tokens: int


class DataWritten(NamedTuple):
    """Words written into a memory; in a core tile usually a parameter block."""

    op: int
    tile: Tile
    offset: int
    words: Words


class RegisterWritten(NamedTuple):
    op: int
    address: int
    value: int
    mask: int


Event: TypeAlias = (
    BdWritten | Patched | Pushed | Reset | LockSet | LockWait | IdleWait | Poll | TokenWait | DataWritten
    | RegisterWritten | UnknownPackets
)  # fmt: skip


class AddressInfo(NamedTuple):
    """A decoded address; ``does`` is the effect of writing a word there.

    Effects: "push", "lock" (set), "bd", "control", "data" (into a memory), "" for any other.
    """

    tile: Tile
    kind: str
    name: str
    item: int
    byte: int
    does: str


@lru_cache(maxsize=1 << 14)
def decode_address(address: int) -> AddressInfo | None:
    column, row, _ = registers.split_address(address)
    register, kind = registers.find_register(address), registers.kind_of_row(row)
    if register is None or kind is None:
        return None
    name = register.block.name
    return AddressInfo((column, row), kind, name, register.index, register.byte, _write_effect(kind, name))


def _write_effect(kind: str, name: str) -> str:
    if name.endswith("_QUEUE"):
        return "push"
    if name.endswith("_CTRL") and kind != "shim":
        return "control"
    return {"LOCK_VALUE": "lock", "DMA_BD": "bd", "MEMORY": "data", "PROGRAM_MEMORY": "data"}.get(name, "")


def events(
    transaction: TransactionBinary,
    core_lists: bool = False,
    bds: Mapping[tuple[Tile, int], BdUse] | None = None,
    streams: Streams | None = None,
) -> Iterator[Event]:
    """Yields all events of the transaction in order.

    Args:
        core_lists: include the register lists in core parameter blocks, as if the core executed them
            immediately.
        bds: content of the BDs before the transaction.
        streams: decodes control packets; their effects are reported at the push of their task.
    """
    return _Interpreter(transaction, core_lists, bds, streams).run()


class _Interpreter:
    def __init__(
        self,
        transaction: TransactionBinary,
        core_lists: bool,
        bds: Mapping[tuple[Tile, int], BdUse] | None,
        streams: Streams | None,
    ) -> None:
        self.transaction = transaction
        self.streams = streams
        self.packets = 0  # number of the current control packet of an op, 0 outside of packets
        self.core_lists = core_lists
        # Memory views: lists of Python numbers would be ten times as large as the file.
        self.words = memoryview(transaction.to_bytes()).cast("I")
        self.offsets = transaction.offsets.data
        self.head = spec.BY_NAME["BLOCKWRITE"].layouts[transaction.version].min_size
        self.found: list[Event] = []
        self.bds: dict[tuple[Tile, int], BdUse] = dict(bds or {})
        self.chains: dict[Tile, dict[int, tuple[tuple[BdUse, ...], str]]] = {}

    def run(self) -> Iterator[Event]:
        steps: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
            "WRITE": (self._write, ("reg", "value")),
            "BLOCKWRITE": (self._blockwrite, ("reg",)),
            "MASKWRITE": (self._write, ("reg", "value", "mask")),
            "MASKPOLL": (self._poll, ("reg", "value", "mask")),
            "MASKPOLL_BUSY": (self._poll, ("reg", "value", "mask")),
            "TCT": (self._tct, ("word", "config")),
            "DDR_PATCH": (self._patch, ("reg", "arg_index", "arg_offset")),
            "MERGE_SYNC": (self._merge_sync, ("tokens", "columns")),
        }
        # Decodes all ops of an opcode at once, one tuple of fields per op, which the loop consumes in order.
        rows: dict[int, tuple[Callable[..., None], Iterator[tuple[int, ...]]]] = {}
        for name, (step, fields) in steps.items():
            indices = self.transaction.indices(name)
            columns = [self.transaction.column(name, field, indices).data for field in fields]
            rows[spec.BY_NAME[name].code] = (step, zip(*columns, strict=True))
        codes = self.transaction.codes
        ops = np.flatnonzero(np.isin(codes, list(rows)))
        for op, code in zip(ops.data, codes[ops].data, strict=True):
            step, values = rows[code]
            step(op, *next(values))
            yield from self.found
            self.found.clear()

    def _blockwrite(self, op: int, address: int) -> None:
        start, end = self.offsets[op] + self.head, self.offsets[op + 1]
        self.block(op, address, tuple(self.words[start >> 2 : end >> 2]))

    def block(self, op: int, address: int, words: Words) -> None:
        hit = decode_address(address)
        if hit is not None and hit.does == "data":
            self.found.append(DataWritten(op, hit.tile, address & registers.OFFSET_MASK, words))
            if self.core_lists and hit.kind == "core" and words[:1] == (PARAMETER_MAGIC,):
                for at, run in core_runs(words):
                    self.block(op, address & ~registers.OFFSET_MASK | at, run)
            return
        at = 0
        while at < len(words):
            hit = decode_address(address + 4 * at) if at else hit
            if hit is not None and hit.does == "bd" and not hit.byte:
                size = _BD_WORDS[hit.kind]
                part = words[at : at + size]
                if len(part) == size:
                    self._bd_written(op, hit, part, None)
                    at += size
                    continue
            self._write(op, address + 4 * at, words[at])
            at += 1

    def _bd_written(
        self, op: int, hit: AddressInfo, words: Words, argument: tuple[int, int] | None, *, whole: bool = True
    ) -> None:
        use = BdUse(hit.item, hit.kind, words, op, argument)
        self.bds[hit.tile, hit.item] = use
        self.chains.pop(hit.tile, None)
        self.found.append(BdWritten(op, hit.tile, use, whole))

    def _write(self, op: int, address: int, value: int, mask: int = bd.WORD_MASK) -> None:
        hit = decode_address(address)
        if hit is None:
            self.found.append(RegisterWritten(op, address, value, mask))
        elif hit.does == "lock" and mask == bd.WORD_MASK:
            self.found.append(LockSet(op, hit.tile, hit.item, value))
        elif hit.does == "push" and mask == bd.WORD_MASK:
            self._push(op, hit, value)
        elif hit.does == "bd":
            self._bd_word(op, hit, value, mask)
        elif hit.does == "data":
            self.found.append(DataWritten(op, hit.tile, hit.byte, (value,)))
        elif hit.does == "control" and value & mask & 2:
            self.found.append(Reset(op, hit.tile, int("MM2S" in hit.name), hit.item))
        else:
            self.found.append(RegisterWritten(op, address, value, mask))

    def _bd_word(self, op: int, hit: AddressInfo, value: int, mask: int) -> None:
        size = _BD_WORDS[hit.kind]
        old = self.bds.get((hit.tile, hit.item))
        words = list(old.words) if old else [0] * size
        word = hit.byte // 4
        if word >= size:
            return
        words[word] = words[word] & ~mask | value & mask
        argument = old.argument if old and not (hit.kind == "shim" and word in (1, 2)) else None
        self._bd_written(op, hit, tuple(words), argument, whole=False)

    def _patch(self, op: int, address: int, argument: int, offset: int) -> None:
        hit = decode_address(address)
        if hit is None or hit.kind != "shim" or hit.name != "DMA_BD" or hit.byte != 4:
            return
        old = self.bds.get((hit.tile, hit.item))
        if old is not None:
            use = BdUse(old.index, old.kind, old.words, old.op, (argument, offset))
            self.bds[hit.tile, hit.item] = use
            self.chains.pop(hit.tile, None)
        self.found.append(Patched(op, hit.tile, hit.item, (argument, offset)))

    def _push(self, op: int, hit: AddressInfo, value: int) -> None:
        fields = _queue(hit.kind, value)
        cache = self.chains.setdefault(hit.tile, {})
        start = fields["start_bd"]
        if start not in cache:
            cache[start] = self._chain(hit.tile, hit.kind, start)
        direction, (chain, end) = int("MM2S" in hit.name), cache[start]
        carried: tuple[PacketWrite | PacketPayload, ...] | None = ()
        if self.streams is not None and hit.kind == "shim" and direction:
            chain, carried = self._carried(self.streams, hit, chain)
        token = bool(fields["token"])
        how = (direction, hit.item, start, fields["repeat"], token)
        self.found.append(Pushed(op, hit.tile, *how, chain, end, self.packets))
        if carried is None:
            self.found.append(UnknownPackets(op))
        for one in carried or ():
            if isinstance(one, PacketWrite):
                for tile in one.tiles:
                    self._packet(op, tile, one)
        if carried:
            self.packets = 0

    def _carried(
        self, streams: Streams, hit: AddressInfo, chain: tuple[BdUse, ...]
    ) -> tuple[tuple[BdUse, ...], tuple[PacketWrite | PacketPayload, ...] | None]:
        """Returns a shim's chain, reduced to the data for DMAs, and its packets; None if they are unknown."""
        if any(use.bd.enable_packet for use in chain) or not streams.carries_packets(hit.tile[0], hit.item):
            return chain, ()
        if len(chain) != 1 or chain[0].argument is None:
            return chain, None
        (use,) = chain
        assert use.argument is not None
        carried = streams.read(hit.tile[0], hit.item, use.argument, use.pattern.length)
        for one in carried or ():
            if isinstance(one, PacketPayload):
                fields = {"length": one.length, "enable_packet": 1, "packet_id": one.packet}
                words = tuple(replace(use.bd, **fields).to_words())
                chain = (BdUse(use.index, use.kind, words, use.op, (use.argument[0], one.offset)),)
        return chain, carried

    def _packet(self, op: int, tile: Tile, one: PacketWrite) -> None:
        at = tile[0] << registers.COLUMN_SHIFT | tile[1] << registers.ROW_SHIFT | one.offset
        self.packets += 1
        self.block(op, at, one.words)

    def _chain(self, tile: Tile, kind: str, start: int) -> tuple[tuple[BdUse, ...], str]:
        chain: list[BdUse] = []
        seen: set[int] = set()
        index = start
        while True:
            use = self.bds.get((tile, index))
            if use is None:
                return tuple(chain), f"BD {index} is not written here"
            chain.append(use)
            seen.add(index)
            descriptor = use.bd
            if not descriptor.use_next:
                return tuple(chain), ""
            index = descriptor.next_bd
            if index in seen:
                return tuple(chain), "cycle"

    def _poll(self, op: int, address: int, value: int, mask: int) -> None:
        hit = decode_address(address)
        if hit is not None and hit.name == "LOCK_REQUEST" and not address & 3 and mask & value & 1:
            request = bd.decode_lock_request(hit.kind, address & registers.OFFSET_MASK)
            assert request is not None
            self.found.append(LockWait(op, hit.tile, *request))
        elif hit is not None and hit.name in ("DMA_S2MM_STATUS", "DMA_MM2S_STATUS"):
            if mask & _IDLE_BITS == _IDLE_BITS and not value:
                self.found.append(IdleWait(op, hit.tile, int("MM2S" in hit.name), hit.item))
            else:
                self.found.append(Poll(op, address, mask, value))
        else:
            self.found.append(Poll(op, address, mask, value))

    def _tct(self, op: int, word: int, config: int) -> None:
        v = bd.unpack_fields(registers.TCT_FIELDS, [word, config])
        tile = (v["column"], v["row"])
        self.found.append(TokenWait(op, tile, v["direction"], v["channel"], v["columns"], v["rows"], 1))

    def _merge_sync(self, op: int, tokens: int, columns: int) -> None:
        self.found.append(TokenWait(op, None, 0, 0, columns, 1, tokens))


@lru_cache(maxsize=1 << 10)
def _queue(kind: str, value: int) -> dict[str, int]:
    return bd.decode_queue(kind, value)


@lru_cache(maxsize=1 << 10)
def core_list(words: Words) -> tuple[tuple[int, int], ...]:
    """Returns (offset, value) of the register writes that a core parameter block makes the core execute.

    A list is two or more consecutive pairs whose offsets are DMA or lock registers of a core tile.
    """
    pairs: list[tuple[int, int]] = []
    at = 0
    while at + 3 < len(words):
        run = []
        while at + 1 < len(words) and _is_core_register(words[at]):
            run.append((words[at], words[at + 1]))
            at += 2
        if len(run) > 1:
            pairs += run
        at += not run
    return tuple(pairs)


@lru_cache(maxsize=1 << 10)
def core_runs(words: Words) -> tuple[tuple[int, Words], ...]:
    """Returns the writes of ``core_list`` with consecutive registers merged: (offset, values)."""
    runs: list[tuple[int, list[int]]] = []
    for offset, value in core_list(words):
        if runs and offset == runs[-1][0] + 4 * len(runs[-1][1]):
            runs[-1][1].append(value)
        else:
            runs.append((offset, [value]))
    return tuple((offset, tuple(values)) for offset, values in runs)


@lru_cache(maxsize=1 << 10)
def _is_core_register(offset: int) -> bool:
    if offset & 3 or not 0x1D000 <= offset < 0x20000:
        return False
    register = registers.CORE.find(offset)
    return register is not None and register.block.name in _CORE_LIST


def lock_owner(kind: str, tile: Tile, lock: int) -> tuple[Tile, int] | None:
    """Returns (tile, the tile's own lock id) of a lock id in a BD; None if there is no such lock."""
    if kind != "mem":
        return tile, lock
    side, own = divmod(lock, 64)
    return ((tile[0] + side - 1, tile[1]), own) if side < 3 else None


def pushes_of(found: Iterable[Event]) -> list[Pushed]:
    return [event for event in found if isinstance(event, Pushed)]


def little_endian(words: Words) -> bytes:
    """Returns the words as little-endian bytes."""
    return np.array(words, "<u4").tobytes()
