# SPDX-License-Identifier: Apache-2.0
"""Random small scenarios: routes, BDs, locks, packets, broadcasts, and a controller that waits.

A scenario is a few *flows*. A flow has one MM2S channel and the S2MM channels that its stream
reaches; its tasks send packets of different ids to different receivers, or one stream without
header to all of them. Receivers cut the stream into BDs of their own. A receiver in a memory
tile or core may be a *ring*: its BD takes an empty lock and gives a full one, and another flow
sends on what it has received. All numbers come from a ``Choose``, so that hypothesis can shrink
them and a plain random generator can make millions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol, TypeVar

from onedispatch.transactions import Device, TransactionBuilder
from onedispatch.transactions.machine import registers
from onedispatch.transactions.machine.bd import BD_CLASSES, BufferDescriptor, lock_request_offset, queue_word
from tests.array_model.dma import MM2S, S2MM, dimensions, padded_offsets, stream
from tests.array_model.memory import ModelFault
from tests.array_model.routing import Place, Router, Tree

T = TypeVar("T")
IDLE = registers.DMA_IDLE_MASK
TILE_WORDS = {"mem": 0x20000, "core": 0x4000}
MAX_WORDS = 4000
KEPT_AT_BORDERS = 2000
"""Words at both ends of a memory tile, for what lies across its borders."""


class Choose(Protocol):
    def int(self, low: int, high: int) -> int: ...


class RandomChoose:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def int(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class Abandon(Exception):
    """This combination of choices has no scenario: no free port, no free BD."""


@dataclass(frozen=True)
class Scenario:
    device: Device
    transaction: bytes
    buffers: tuple[bytes | int, ...]
    notes: tuple[str, ...]


@dataclass
class Task:
    start: int
    repeat: int
    token: bool = False


@dataclass
class Ring:
    """A receiver that another flow reads: where, how much per slot, and the locks."""

    place: Place
    base: int
    words: int
    slots: int
    turns: int
    empty: int
    full: int

    def seen_from(self, place: Place) -> bool:
        """Whether BDs of a memory tile reach all of it, and its locks."""
        first = (self.place.column - place.column + 1) * TILE_WORDS["mem"] + self.base
        beside = abs(place.column - self.place.column) <= 1
        return beside and first >= 0 and first + self.words * self.slots <= 3 * TILE_WORDS["mem"]


@dataclass
class Bd:
    """A BD of a sender: how many stream words it has, and which packet it belongs to."""

    words: int
    packet: int | None


@dataclass
class Maker:
    """Collects one scenario. ``settings`` may be written in any order, ``pushes`` come after."""

    choose: Choose
    device: Device
    across: int = 30
    """Chance in percent that a buffer of memory tiles lies across a border, where one is free."""
    settings: list[tuple[int, list[int]]] = field(default_factory=list)
    patches: list[tuple[int, int, int]] = field(default_factory=list)
    pushes: list[tuple[int, int]] = field(default_factory=list)
    late: list[tuple[str, int, int, int]] = field(default_factory=list)
    waits: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    rings: list[Ring] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    observed: list[int] = field(default_factory=list)
    host: list[int] = field(default_factory=lambda: [0, 0])
    _memory: dict[tuple[int, int], int] = field(default_factory=dict)
    _borders: set[int] = field(default_factory=set)
    _bds: set[tuple[int, int, int]] = field(default_factory=set)
    _locks: dict[tuple[int, int], int] = field(default_factory=dict)
    _channels: set[tuple[Place, int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        # Packets that meet at an arbiter and depend on each other may block each other or not,
        # as it happens: either flows share arbiters, or flows feed flows.
        self.share = self.chance(40)
        self.router = Router(self.choose, self.device.columns, self.share)
        self.token_columns = {column for column in range(self.device.columns) if self.chance(40)}
        for column in sorted(self.token_columns):
            self.settings += self.router.token_routes(column)

    # -- choosing --------------------------------------------------------------------------------

    def pick(self, items: Sequence[T]) -> T:
        if not items:
            raise Abandon
        return items[self.choose.int(0, len(items) - 1)]

    def chance(self, percent: int) -> bool:
        return self.choose.int(0, 99) >= 100 - percent

    def address(self, place: Place, block: str, index: int = 0) -> int:
        found = registers.TILES[place.kind].block[block]
        return place.address + found.at(index)

    def lock(self, place: Place, initial: int) -> int:
        """A lock that is not used yet, with its initial value."""
        key = (place.column, place.row)
        number = self._locks.get(key, 0)
        if number >= registers.TILES[place.kind].block["LOCK_VALUE"].count:
            raise Abandon
        self._locks[key] = number + 1
        self.settings.append((self.address(place, "LOCK_VALUE", number), [initial]))
        self.observed.append(self.address(place, "LOCK_VALUE", number))
        return number

    def free_channels(self, place: Place, direction: int) -> list[int]:
        count = 6 if place.kind == "mem" else 2
        return [n for n in range(count) if (place, direction, n) not in self._channels]

    def channel(self, place: Place, direction: int) -> int:
        number = self.pick(self.free_channels(place, direction))
        self._channels.add((place, direction, number))
        return number

    def bd_number(self, place: Place, channel: int) -> int:
        low, high = (0, 15) if place.kind != "mem" else (24, 47) if channel % 2 else (0, 23)
        free = [n for n in range(low, high + 1) if (place.column, place.row, n) not in self._bds]
        number = self.pick(free)
        self._bds.add((place.column, place.row, number))
        return number

    def room(self, place: Place, words: int, host: int) -> int:
        """Word address of ``words`` fresh words in a tile, or in host buffer ``host``.

        Of a memory tile they may lie across a border: the address is then counted from the tile's own
        first word all the same, and may be negative.
        """
        across = self.room_across(place, words)
        if across is not None:
            return across
        gap = self.choose.int(0, 3)
        if place.kind == "shim":
            at = self.host[host] + gap
            self.host[host] = at + words
            return at
        key = (place.column, place.row)
        kept = KEPT_AT_BORDERS if place.kind == "mem" else 0
        at = self._memory.get(key, kept) + gap
        if at + words > TILE_WORDS[place.kind] - kept:
            raise Abandon
        self._memory[key] = at + words
        return at

    def room_across(self, place: Place, words: int) -> int | None:
        """The same across the border to a neighbouring memory tile, where that may be; once per border."""
        if place.kind != "mem" or not 2 <= words <= KEPT_AT_BORDERS or not self.chance(self.across):
            return None
        borders = [c for c in (place.column - 1, place.column) if 0 <= c < self.device.columns - 1]
        free = [c for c in borders if c not in self._borders]
        if not free:
            return None
        column = self.pick(free)  # the border to its east
        self._borders.add(column)
        at = (column + 1 - place.column) * TILE_WORDS["mem"] - self.choose.int(1, words - 1)
        self.notes.append(f"{place}: {words} words at {at} lie across the border east of column {column}")
        return at

    def word_address(self, place: Place, at: int) -> int:
        """The address of word ``at`` of a tile's memory, which may be in a neighbouring memory tile."""
        if place.kind != "mem":
            return place.address + 4 * at
        side, local = divmod(at, TILE_WORDS["mem"])
        return Place(place.column + side, place.row).address + 4 * local

    # -- BDs -------------------------------------------------------------------------------------

    def shape(self, kind: str, length: int | None, pad: bool) -> dict[str, int]:
        """Dimension fields of a BD of ``length`` words (None: any), perhaps with padding."""
        many = 4 if kind == "mem" else 3
        fields: dict[str, int] = {}
        product, used = 1, self.choose.int(0, many - 1)
        for d in range(used):
            wrap = self.choose.int(1, 4)
            fields[f"d{d}_wrap"], fields[f"d{d}_step"] = wrap, self.choose.int(1, 6)
            product *= wrap
        fields[f"d{used}_step"] = self.choose.int(1, 6)
        if pad and kind == "mem" and length is None and self.chance(60):
            product = self.pad(fields, min(used, 3))
        if length is None:
            length = max(0, product * self.choose.int(1, 3) - self.choose.int(0, 2))
        fields["length"] = length
        return fields

    def pad(self, fields: dict[str, int], dimensions: int) -> int:
        """Padding around the lowest dimensions; how many words of the stream they make."""
        product = 1
        for d in range(dimensions):
            for side in ("before", "after"):
                fields[f"d{d}_zeros_{side}"] = self.choose.int(0, 2)
            product *= fields[f"d{d}_wrap"] + fields[f"d{d}_zeros_before"] + fields[f"d{d}_zeros_after"]
        return product

    def span(self, kind: str, fields: dict[str, int]) -> int:
        """Words from the base to the furthest word that a BD can touch, all iterations included."""
        descriptor = BD_CLASSES[kind](**fields)
        dims = dimensions(descriptor)
        touched = (offset for offset in padded_offsets(dims, descriptor.length) if offset is not None)
        furthest = max(touched, default=0)
        return furthest + 1 + (descriptor.iteration_wrap - 1) * descriptor.iteration_step

    def iteration(self, kind: str, step: int | None = None) -> dict[str, int]:
        if self.chance(50):
            return {}
        wrap = self.choose.int(1, 4)
        fields = {"iteration_wrap": wrap, "iteration_step": step or self.choose.int(1, 8)}
        if self.chance(20):
            fields["iteration_current"] = self.choose.int(0, wrap - 1)
        return fields

    def base(self, place: Place, home: Place, at: int) -> dict[str, int]:
        """The base field of a BD in ``place`` for word ``at`` of ``home``'s memory."""
        if place.kind == "shim":
            return {"address": 0}
        if place.kind == "core":
            return {"base": at}
        return {"base": (home.column - place.column + 1) * TILE_WORDS["mem"] + at}

    def write_bd(
        self, place: Place, number: int, fields: dict[str, int], at: int, host: int
    ) -> BufferDescriptor:
        descriptor = BD_CLASSES[place.kind](**fields)
        address = self.address(place, "DMA_BD", number)
        self.settings.append((address, descriptor.to_words()))
        if place.kind == "shim":
            self.patches.append((address + 4, host, at * 4))
        self.notes.append(f"{place} BD {number}: at {at} {descriptor}")
        return descriptor

    def lock_fields(
        self, kind: str, acquire: tuple[int, int], release: tuple[int, int], side: int = 0
    ) -> dict[str, int]:
        """(lock, value) to acquire and to release, as a BD names them; ``side``: neighbour column."""
        view = 64 * (1 + side) if kind == "mem" else 0
        return {
            "acquire_lock": acquire[0] + view,
            "acquire_value": acquire[1],
            "acquire_enable": 1,
            "release_lock": release[0] + view,
            "release_value": release[1],
        }

    def idle_lock(self, place: Place) -> dict[str, int]:
        """A lock that only this BD uses: net zero, or opened later by the controller."""
        if not self.chance(25):
            return {}
        form = self.choose.int(0, 2)
        if form == 0:
            count = self.choose.int(1, 3)
            lock = self.lock(place, count)
            return self.lock_fields(place.kind, (lock, -count), (lock, count))
        if form == 1:
            count = self.choose.int(0, 3)
            lock = self.lock(place, count)
            return self.lock_fields(place.kind, (lock, count), (lock, 0))
        lock = self.lock(place, 0)
        form_of_release = ("set", "release")[self.choose.int(0, 1)]
        self.late.append((form_of_release, place.address, lock, self.choose.int(1, 3)))
        return self.lock_fields(place.kind, (lock, -1), (lock, 1))

    # -- senders ---------------------------------------------------------------------------------

    def fill(self, place: Place, at: int, words: int) -> None:
        """Data for a sender that reads ``words`` words; host buffers are filled at the end."""
        if place.kind != "shim" and words:
            salt = self.choose.int(0, 0xFFFF)
            data = [salt << 12 | i & 0xFFF for i in range(words)]
            for _, part in groupby(range(words), lambda i: (at + i) // TILE_WORDS[place.kind]):
                run = list(part)
                self.settings.append((self.word_address(place, at + run[0]), data[run[0] : run[-1] + 1]))

    def send_chain(self, place: Place, channel: int, packets: Sequence[int | None]) -> list[Bd]:
        """One task of a sender: a chain of BDs; what it sends, repeats included."""
        many = self.choose.int(1, 3)
        numbers = [self.bd_number(place, channel) for _ in range(many)]
        sent = []
        for i, number in enumerate(numbers):
            packet = self.pick(packets)
            fields = self.shape(place.kind, None, pad=True)
            fields.update({**self.iteration(place.kind), **self.idle_lock(place)})
            words = self.span(place.kind, fields)
            at = self.room(place, words, 0)
            self.fill(place, at, words)
            fields.update(self.base(place, place, at))
            self.link(fields, numbers, i, packet)
            descriptor = self.write_bd(place, number, fields, at, 0)
            sent.append(Bd(len(stream(descriptor)), packet))
        return self.push(place, MM2S, channel, numbers[0], sent)

    def link(self, fields: dict[str, int], numbers: list[int], i: int, packet: int | None) -> None:
        if i + 1 < len(numbers):
            fields["use_next"], fields["next_bd"] = 1, numbers[i + 1]
        if packet is not None:
            fields["enable_packet"], fields["packet_id"] = 1, packet
            fields["packet_type"] = self.choose.int(0, 7)

    def push(self, place: Place, direction: int, channel: int, start: int, sent: list[Bd]) -> list[Bd]:
        repeat = self.choose.int(1, 3)
        self.push_task(place, direction, channel, start, repeat)
        return sent * repeat

    def push_task(self, place: Place, direction: int, channel: int, start: int, repeat: int) -> None:
        token = self.chance(30) and place.column in self.token_columns
        queue = ("DMA_S2MM_QUEUE", "DMA_MM2S_QUEUE")[direction]
        word = queue_word(place.kind, start, repeat, token)
        self.pushes.append((self.address(place, queue, channel), word))
        self.notes.append(f"{place} {('S2MM', 'MM2S')[direction]}{channel} task BD {start} x{repeat}")
        if token:
            self.waits.append(("token", (direction, place.column, place.row, channel)))

    def send_ring(self, ring: Ring, place: Place, channel: int, packet: int | None) -> list[Bd]:
        """A sender in ``place`` that reads the ring in (perhaps) a neighbouring tile."""
        number = self.bd_number(place, channel)
        side = ring.place.column - place.column
        fields = self.shape(place.kind, None, pad=True)
        if self.span(place.kind, fields) > ring.words:
            fields = {"length": self.choose.int(0, ring.words)}
        fields["iteration_wrap"], fields["iteration_step"] = ring.slots, ring.words
        fields.update(self.lock_fields(place.kind, (ring.full, -1), (ring.empty, 1), side))
        fields.update(self.base(place, ring.place, ring.base))
        self.link(fields, [number], 0, packet)
        descriptor = self.write_bd(place, number, fields, ring.base, 0)
        self.push_task(place, MM2S, channel, number, ring.turns)
        return [Bd(len(stream(descriptor)), packet)] * ring.turns

    # -- receivers -------------------------------------------------------------------------------

    def receive(self, place: Place, channel: int, total: int) -> None:
        """Tasks that take exactly ``total`` words."""
        parts = [total]
        if total > 2 and self.chance(50):
            cut = self.choose.int(1, total - 1)
            parts = [cut, total - cut]
        turns = [r for r in (2, 3, 4) if total % r == 0 and total // r]
        if place.kind != "shim" and turns and not self.share and self.chance(70):
            return self.receive_ring(place, channel, total, self.pick(turns))
        numbers = [self.bd_number(place, channel) for _ in parts]
        chained = self.chance(50)
        for i, (part, number) in enumerate(zip(parts, numbers, strict=True)):
            fields = self.shape(place.kind, part, pad=False)
            fields.update({**self.iteration(place.kind), **self.idle_lock(place)})
            span = self.span(place.kind, fields)
            at = self.room(place, span, 1)
            fields.update(self.base(place, place, at))
            self.link(fields, numbers if chained else [number], i if chained else 0, None)
            self.write_bd(place, number, fields, at, 1)
            if place.kind != "shim":
                self.observed += [self.word_address(place, at), self.word_address(place, at + span - 1)]
                self.observed += [self.address(place, "DMA_BD", number) + 4]
        for number in numbers[:1] if chained else numbers:
            self.push_task(place, S2MM, channel, number, 1)

    def receive_ring(self, place: Place, channel: int, total: int, turns: int) -> None:
        slots = self.choose.int(1, 2)
        words = total // turns
        base = self.room(place, words * slots, 1)
        empty, full = self.lock(place, slots), self.lock(place, 0)
        number = self.bd_number(place, channel)
        fields = {"length": words, "iteration_wrap": slots, "iteration_step": words}
        fields.update(self.lock_fields(place.kind, (empty, -1), (full, 1)))
        fields.update(self.base(place, place, base))
        self.write_bd(place, number, fields, base, 1)
        self.push_task(place, S2MM, channel, number, turns)
        self.rings.append(Ring(place, base, words, slots, turns, empty, full))

    # -- flows -----------------------------------------------------------------------------------

    def places(self, *kinds: str) -> list[Place]:
        everywhere = [Place(c, r) for c in range(self.device.columns) for r in range(6)]
        return [place for place in everywhere if place.kind in kinds]

    def flow(self, source: Place, ring: Ring | None, last: bool) -> None:
        """One sender, its routes, its receivers. ``last``: everything goes to the host."""
        channel = self.channel(source, MM2S)
        packets: list[int | None] = [None]
        if self.chance(60):
            packets = list({self.choose.int(0, 31) for _ in range(1 if ring else self.choose.int(1, 3))})
        tree = Tree(source, channel)
        targets: dict[tuple[Place, int], list[int | None]] = {}
        for packet in packets:
            for _ in range(self.choose.int(1, 3)):
                kinds = ("shim",) if last else ("shim", "mem", "core")
                place = self.pick([p for p in self.places(*kinds) if self.free_channels(p, S2MM)])
                known = [key for key in targets if key[0] == place and packet not in targets[key]]
                key = self.pick(known) if known and self.chance(50) else (place, self.channel(place, S2MM))
                if not self.router.reach(tree, packet, key[0], key[1]):
                    raise Abandon
                targets.setdefault(key, []).append(packet)
        self.settings += self.router.configure(tree, packets)
        if ring is not None:
            sent = self.send_ring(ring, source, channel, packets[0])
        else:
            tasks = [self.send_chain(source, channel, packets) for _ in range(self.choose.int(1, 2))]
            sent = [bd for task in tasks for bd in task]
        for (place, number), taken in targets.items():
            header = {p: int(self.router.keeps_header(tree, p, place, number)) for p in taken}
            total = sum(bd.words + header[bd.packet] for bd in sent if bd.packet in taken and bd.words)
            if total > MAX_WORDS:
                raise Abandon
            if total:
                self.receive(place, number, total)

    def consumers(self) -> None:
        """A flow for every ring that has no reader yet."""
        for turn in range(3):
            waiting, self.rings = self.rings, []
            for ring in waiting:
                source = ring.place
                if source.kind == "mem" and self.chance(30):
                    beside = [p for p in self.places("mem") if ring.seen_from(p) and p != source]
                    source = self.pick(beside) if beside else source
                self.flow(source, ring, last=turn > 0)


def make_scenario(choose: Choose, device: Device, faults: int = 0, across: int = 30) -> Scenario:
    """A random scenario.

    ``faults``: the chance in percent that something in it is spoilt; ``across``: that a buffer lies
    across the border of two memory tiles.

    Raises:
        Abandon: these choices make none.
    """
    maker = Maker(choose, device, across)
    try:
        for _ in range(choose.int(1, 3)):
            places = [p for p in maker.places("shim", "mem", "core") if maker.free_channels(p, MM2S)]
            maker.flow(maker.pick(places), None, last=False)
        maker.consumers()
    except ModelFault as fault:
        raise Abandon from fault
    if maker.chance(faults):
        spoil(maker)
    transaction = assemble(maker, resets_locks=not maker.chance(faults // 4))
    content = bytes(maker.choose.int(0, 255) ^ i * 37 & 0xFF for i in range(4 * maker.host[0]))
    return Scenario(device, transaction, (content or b"\0\0\0\0", 4 * maker.host[1] + 4), tuple(maker.notes))


def spoil(maker: Maker) -> None:
    """Something goes wrong: a bit of a setting flips, a push is lost, done twice, or asks for a token."""
    form = maker.choose.int(0, 6)
    if form == 0 and maker.pushes:
        del maker.pushes[maker.choose.int(0, len(maker.pushes) - 1)]
    elif form == 1 and maker.pushes:
        maker.pushes.append(maker.pick(maker.pushes))
    elif form == 2 and maker.pushes:
        at = maker.choose.int(0, len(maker.pushes) - 1)
        maker.pushes[at] = (maker.pushes[at][0], maker.pushes[at][1] ^ 1 << 31)
    else:
        at = maker.choose.int(0, len(maker.settings) - 1)
        address, words = maker.settings[at]
        if is_block(address, "MEMORY"):
            return  # data
        word, bit = maker.choose.int(0, len(words) - 1), maker.choose.int(0, 31)
        if word == 0 and len(words) > 1:
            bit %= 9  # the length: the model would walk a gigabyte word by word
        changed = list(words)
        changed[word] ^= 1 << bit
        if len(words) == 1 and changed[0] > words[0] and is_block(address, "LOCK_VALUE"):
            return  # permits that were not given: readers would race with writers
        maker.settings[at] = (address, changed)
        maker.notes.append(f"spoilt: {address:#x} word {word} bit {bit}")


def is_block(address: int, name: str) -> bool:
    found = registers.find_register(address)
    return found is not None and found.block.name == name


def assemble(maker: Maker, resets_locks: bool = True) -> bytes:
    builder = TransactionBuilder(maker.device.device_generation, maker.device.columns)
    for address, words in maker.settings:
        if len(words) == 1:
            builder.write(address, words[0])
        else:
            builder.blockwrite(address, words)
    for address, host, offset in maker.patches:
        builder.ddr_patch(address, host, offset)
    pushes = list(maker.pushes)
    while pushes:
        # Any order between channels; within a channel the order of making.
        address = maker.pick([a for a, _ in pushes])
        first = next(i for i, (a, _) in enumerate(pushes) if a == address)
        builder.write(*pushes.pop(first))
    for form, base, lock, value in maker.late:
        kind = registers.kind_of_row(base >> registers.ROW_SHIFT & registers.ROW_MASK) or "core"
        if form == "set":
            found = registers.TILES[kind].block["LOCK_VALUE"]
            builder.write(base + found.at(lock), value)
        else:
            builder.maskpoll(base + lock_request_offset(kind, lock, value, acquire=False), 1, 1)
    wait_for_all(maker, builder)
    if maker.observed:
        builder.read_regs(maker.observed)
    if resets_locks:  # else a run must leave them as they were set
        for address in sorted({at for at in maker.observed if is_block(at, "LOCK_VALUE")}):
            builder.write(address, 0)
    return builder.to_bytes()


def wait_for_all(maker: Maker, builder: TransactionBuilder) -> None:
    """A token of every task that gives one, in any order, and every channel idle."""
    waits = list(maker.waits)
    while waits:
        _, (direction, column, row, channel) = waits.pop(maker.choose.int(0, len(waits) - 1))
        builder.tct("MM2S" if direction else "S2MM", column, row, channel)
    for address in sorted({address for address, _ in maker.pushes}):
        column, row, offset = registers.split_address(address)
        kind = registers.kind_of_row(row) or "core"
        found = registers.TILES[kind].find(offset)
        if found is None:
            raise ValueError(f"{address:#x} is no queue")
        status = registers.TILES[kind].block[found.block.name.replace("QUEUE", "STATUS")]
        at = column << registers.COLUMN_SHIFT | row << registers.ROW_SHIFT
        builder.maskpoll(at + status.offset + found.index * status.stride, 0, IDLE)


__all__ = ["Abandon", "RandomChoose", "Scenario", "make_scenario"]
