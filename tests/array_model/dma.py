# SPDX-License-Identifier: Apache-2.0
"""DMA: buffer descriptors (BDs), the addresses they walk, and the channels that run them.

**Addresses.** A BD moves ``length`` words. Word number i of a BD without padding is found by
writing i in the mixed radix of the wraps: i = i0 + wrap0 * (i1 + wrap1 * (i2 ...)). Its address
is ``base + current * iteration_step + i0 * step0 + i1 * step1 + ...``. The outermost dimension
has no wrap: it takes all that is left; a dimension with wrap 0 is outermost, and what lies
above it is ignored.

What a memory tile's BD addresses is one range: its west neighbour's words, then its own, then its
east neighbour's. A BD may start in one and go on in the next. Where the partition ends there is no
neighbour, and only a word that would lie there is an error. Its locks are named in the same way.

**Padding** (memory tile, MM2S). Along dimension d come ``before`` extra indices, then the wrap's,
then ``after``. A word whose index is extra along any dimension is the channel's pad value and
touches no memory. The unit of padding at dimension d is thus one whole block of the dimensions
below, their own padding included. The length counts all words of the stream, these too (see
Readings in the README).

**Iteration.** Each execution of a BD counts ``current`` up by one, in the BD register itself,
and back to 0 after ``wrap`` executions. It survives from task to task.

**A channel** takes tasks from a queue of four (a fifth may be running). A task walks the chain
of its start BD to a BD without "use next", ``repeat`` times, and then issues a token if it was
asked to. Per BD: acquire, move, count the iteration up, release. A BD of length 0 only does the
rest. The BD is read from its register when its turn comes, before it acquires.

**S2MM** takes words as they come: it does not see where the sender's BDs begin or end.
**MM2S** sends a header word before the data of a BD with "enable packet", unless the packet of
a BD before it is still open (its TLAST was suppressed). TLAST ends the packet. What becomes of a
stream whose header is in its data, and of packets to control ports, says ``control.py``.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from onedispatch.transactions.machine import bd, registers
from onedispatch.transactions.machine.bd import BufferDescriptor, CoreBd, MemBd, ShimBd
from tests.array_model.control import check_stream_header, packet_part
from tests.array_model.memory import Memory, ModelFault
from tests.array_model.sender import Sender, Steps

if TYPE_CHECKING:
    from tests.array_model.array import Tile

S2MM, MM2S = 0, 1


@dataclass(frozen=True)
class Dimension:
    """``size`` None: the outermost dimension, bounded by the length alone."""

    step: int
    size: int | None
    before: int = 0
    after: int = 0


def dimensions(descriptor: BufferDescriptor) -> list[Dimension]:
    """The dimensions of a BD, innermost first, up to the outermost one that counts."""
    d = descriptor
    if isinstance(d, MemBd):
        given = [
            Dimension(d.d0_step, d.d0_wrap, d.d0_zeros_before, d.d0_zeros_after),
            Dimension(d.d1_step, d.d1_wrap, d.d1_zeros_before, d.d1_zeros_after),
            Dimension(d.d2_step, d.d2_wrap, d.d2_zeros_before, d.d2_zeros_after),
            Dimension(d.d3_step, 0),
        ]
    else:
        given = [Dimension(d.d0_step, d.d0_wrap), Dimension(d.d1_step, d.d1_wrap), Dimension(d.d2_step, 0)]
    used: list[Dimension] = []
    for position, dimension in enumerate(given):
        if dimension.size == 0:
            used.append(dataclasses.replace(dimension, size=None))
            if dimension.after or any(x.before or x.after for x in given[position + 1 :]):
                raise ModelFault("bd", f"padding at or above dimension {position}, which has no wrap")
            break
        used.append(dimension)
    return used


def offsets(dims: list[Dimension], length: int) -> Iterator[int]:
    """Word offsets from the base that a BD without padding walks."""
    for i in range(length):
        rest, offset = i, 0
        for dimension in dims:
            if dimension.size is None:
                index, rest = rest, 0
            else:
                rest, index = divmod(rest, dimension.size)
            offset += index * dimension.step
        yield offset


def padded_offsets(dims: list[Dimension], length: int) -> Iterator[int | None]:
    """The same with padding; None stands for a pad word."""

    def walk(d: int) -> Iterator[int | None]:
        if d < 0:
            yield 0
            return
        dimension = dims[d]
        size = length if dimension.size is None else dimension.size
        for i in range(-dimension.before, size + dimension.after):
            for below in walk(d - 1):
                inside = 0 <= i < size and below is not None
                yield i * dimension.step + (below or 0) if inside else None

    return itertools.islice(walk(len(dims) - 1), length)


def stream(descriptor: BufferDescriptor) -> list[int | None]:
    """Every word of a BD's stream in order: its offset from the BD's base, or None for padding.

    The base's own part, ``current * iteration_step``, is included; in words.
    """
    dims = dimensions(descriptor)
    iteration = descriptor.iteration_current * descriptor.iteration_step
    if any(d.before or d.after for d in dims):
        walked: Iterator[int | None] = padded_offsets(dims, descriptor.length)
    else:
        walked = offsets(dims, descriptor.length)
    return [None if offset is None else iteration + offset for offset in walked]


def step_iteration(tile_map: registers.TileMap, words: list[int]) -> None:
    """Count one execution in a BD's register words; all other bits stay as they are."""
    fields = bd.unpack_fields(tile_map.bd_fields, words)
    following = fields["iteration_current"] + 1
    if following >= fields["iteration_wrap"]:
        following = 0
    field = tile_map.bd_field["iteration_current"]
    mask = (1 << field.width) - 1 << field.lsb
    words[field.word] = words[field.word] & ~mask | following << field.lsb


@dataclass(frozen=True)
class Task:
    start_bd: int
    repeat: int
    token: bool
    resident: bool
    """Pushed by the overlay: it may wait on after a run."""


class Channel(Sender):
    """One DMA channel: registers that the controller sees, and the coroutine that does the work."""

    def __init__(self, tile: Tile, direction: int, number: int) -> None:
        super().__init__(tile, f"{tile.name} {('S2MM', 'MM2S')[direction]}{number}")
        self.direction, self.number = direction, number
        self.control = 0
        self.pad_value = 0
        self.tokens = 0
        self.reset()

    def reset(self) -> None:
        """Forget all tasks; a packet that was open is closed."""
        self.queue: list[Task] = []
        self.running: Task | None = None
        self.current_bd = 0
        self.waits_for = ""
        self.wants_word = False
        self.begun = False
        self.word: int | None = None
        self.packet_open = False
        self.packet: list[int] = []
        self.tile.array.arbiters.release(self)
        self.steps = self._run()

    # -- what the controller sees --------------------------------------------------------------

    def write_control(self, value: int) -> None:
        fields = bd.unpack_fields(registers.CHANNEL_FIELDS, [value])
        if fields["out_of_order"] or fields["compression"] or fields["finish_on_tlast"]:
            raise ModelFault("unsupported", f"{self.name} control {value:#x}")
        self.control = value
        if self.tile.kind != "shim" and fields["reset"]:
            self.reset()

    @property
    def paused(self) -> bool:
        return self.tile.kind == "shim" and bool(self.control & 0b110)

    def push(self, word: int) -> None:
        """A write to the queue register."""
        if self.tile.kind != "shim" and self.control & 0b10:
            raise ModelFault("queue", f"{self.name} is held in reset")
        fields = bd.decode_queue(self.tile.kind, word)
        if len(self.queue) + (self.running is not None) > registers.QUEUE_DEPTH:
            raise ModelFault("queue", f"{self.name}: a fifth waiting task")
        resident = self.tile.array.loading
        self.queue.append(Task(fields["start_bd"], fields["repeat"], bool(fields["token"]), resident))

    def status(self) -> int:
        """The status register; 0 is idle."""
        busy = int(self.running is not None or bool(self.queue))
        values = {
            "state": busy,
            "stalled_acquire": int(self.waits_for.startswith("lock")),
            "stalled_stream": int(self.waits_for.startswith("stream")),
            "running": busy,
            "queue_size": len(self.queue) - (self.running is None and bool(self.queue)),
            "current_bd": self.current_bd,
        }
        return bd.pack_fields(self.name, registers.STATUS_FIELDS, values, 1)[0]

    @property
    def at_rest(self) -> bool:
        """No task and no open packet; a resident task may wait for a lock, or for a BD's first word."""
        if self.packet_open:
            return False
        tasks = [*self.queue, *([self.running] if self.running else [])]
        return not tasks or (all(task.resident for task in tasks) and not self.begun)

    def step(self) -> bool:
        """One step of the coroutine; a reset gives the channel a new one."""
        return next(self.steps, False)

    # -- the coroutine -------------------------------------------------------------------------

    def _run(self) -> Steps:
        while True:
            while not self.queue:
                yield False
            self.running = task = self.queue.pop(0)
            yield True
            for left in reversed(range(task.repeat)):
                following: int | None = task.start_bd
                while following is not None:
                    self.current_bd = following
                    descriptor = self._descriptor(following)
                    self.last_bd = not (left or descriptor.use_next)
                    yield from self._execute(descriptor)
                    following = descriptor.next_bd if descriptor.use_next else None
            self.running = None
            if task.token:
                self.tile.control_port.send_token(self)
            yield True

    def _descriptor(self, number: int) -> BufferDescriptor:
        """BD ``number`` as its registers hold it now."""
        tile = self.tile
        if number >= len(tile.bds):
            raise ModelFault("bd", f"{self.name}: BD {number}")
        if tile.kind == "mem" and (number >= len(tile.bds) // 2) != bool(self.number % 2):
            raise ModelFault("bd", f"{self.name}: BD {number} belongs to channels of the other parity")
        descriptor = bd.decode_bd(tile.kind, tile.bds[number])
        if not descriptor.valid:
            raise ModelFault("bd", f"{self.name}: BD {number} is not valid")
        if isinstance(descriptor, MemBd | CoreBd) and descriptor.enable_compression:
            raise ModelFault("unsupported", f"{self.name}: BD {number} asks for compression")
        return descriptor

    def _execute(self, descriptor: BufferDescriptor) -> Steps:
        self.begun = False
        if descriptor.acquire_enable:
            lock = self.tile.lock_of_bd(descriptor.acquire_lock)
            value = descriptor.acquire_value
            yield from self._until(lambda: lock.try_acquire(value), f"lock {lock.name} (acquire {value})")
        words = stream(descriptor)
        self._check_places(descriptor, words)
        if words:
            move = self._send if self.direction == MM2S else self._take
            yield from move(descriptor, words)
        step_iteration(self.tile.map, self.tile.bds[self.current_bd])
        if descriptor.release_value:
            self.tile.lock_of_bd(descriptor.release_lock).release(descriptor.release_value)
        yield True

    def _check_places(self, descriptor: BufferDescriptor, words: list[int | None]) -> None:
        """All addresses of a BD must exist before its first word moves."""
        if self.direction == S2MM and any(word is None for word in words):
            raise ModelFault("bd", f"{self.name}: padding on S2MM")
        memories = {id(self.place(descriptor, word)[0]) for word in words if word is not None}
        if len(memories) > 1 and not isinstance(descriptor, MemBd):
            raise ModelFault("ddr", f"{self.name}: BD {self.current_bd} leaves its kernel argument")

    def place(self, descriptor: BufferDescriptor, offset: int) -> tuple[Memory, int]:
        """The memory, and the word in it, that ``offset`` words from the BD's base mean."""
        if isinstance(descriptor, ShimBd):
            return self.tile.array.host.place(descriptor.address + 4 * offset)
        if isinstance(descriptor, MemBd):
            return self.tile.array.mem_view(self.tile, descriptor.base + offset)
        if not isinstance(descriptor, CoreBd):
            raise TypeError(descriptor)
        address = descriptor.base + offset
        if address >= len(self.tile.memory.words):
            raise ModelFault("memory", f"{self.name}: byte {address * 4:#x} of a core's data memory")
        return self.tile.memory, address

    # -- moving words --------------------------------------------------------------------------

    def _take(self, descriptor: BufferDescriptor, words: list[int | None]) -> Steps:
        """S2MM: store every word that arrives."""
        for offset in words:
            self.wants_word = True
            yield from self._until(lambda: self.word is not None, "stream (no word arrives)")
            memory, address = self.place(descriptor, offset or 0)
            memory.store(address, self.word or 0)
            self.word = None
            self.begun = True

    def can_take(self) -> bool:
        """Whether a word may be given to this S2MM channel now."""
        return self.wants_word and not self.paused

    def give(self, word: int) -> None:
        self.word = word
        self.wants_word = False

    def _send(self, descriptor: BufferDescriptor, words: list[int | None]) -> Steps:
        """MM2S: header, then every word, each as soon as all receivers can take it."""
        yield from self._until(lambda: not self.paused, "the pause bit")
        header = None
        if descriptor.enable_packet and not self.packet_open:
            header = bd.packet_header(
                descriptor.packet_id, descriptor.packet_type, self.tile.row, self.tile.column
            )
        rest = list(words)
        while rest:
            if not self.packet_open:
                yield from self._open(descriptor, header, rest)
                header = None
            if self.route.ports:
                yield from packet_part(self, partial(self._value, descriptor), rest)
            else:
                for offset in rest:
                    yield from self._send_word(self.route, lambda at=offset: self._value(descriptor, at))
                    self.begun = True
                rest = []
        if self.packet and (self.last_bd or not descriptor.suppress_tlast):
            raise ModelFault("packet", f"{self.name}: a packet cut off after {len(self.packet)} words")
        if self.packet_open and not descriptor.suppress_tlast:
            self.close_packet()

    def _open(self, descriptor: BufferDescriptor, header: int | None, rest: list[int | None]) -> Steps:
        """Find the route; where a packet begins, take its arbiters and send its header."""
        array = self.tile.array
        self.route = array.route_of(self, None if header is None else descriptor.packet_id)
        if header is None and self.route.headers_in_data:
            header = self._value(descriptor, rest[0])
            check_stream_header(self.name, header)
            self.route = array.route_of(self, header & 0x1F)
            rest.pop(0)
            if not rest and not self.route.ports:
                raise ModelFault("unsupported", f"{self.name}: a BD that ends with a header for a DMA")
        if header is None:
            return
        arbiters, wanted = array.arbiters, self.route.arbiters
        text = f"stream (an arbiter of {sorted(wanted)} serves another packet)"
        yield from self._until(lambda: arbiters.take(wanted, self), text)
        self.packet_open = True
        if self.route.ports:
            self.packet = [header]
        else:
            yield from self._send_word(self.route, lambda word=header: word, is_header=True)

    def close_packet(self) -> None:
        self.packet_open = False
        self.packet = []
        self.tile.array.arbiters.release(self)

    def _value(self, descriptor: BufferDescriptor, offset: int | None) -> int:
        """The word that ``offset`` names: the pad value, or what memory holds now."""
        if offset is None:
            return self.pad_value
        memory, address = self.place(descriptor, offset)
        return memory.load(address)
