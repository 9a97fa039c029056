# SPDX-License-Identifier: Apache-2.0
"""The array: tiles, their registers, their cores, and a scheduler that has no idea of time.

Everything that acts is a coroutine (an *agent*): the controller, every DMA channel, every core.
A round gives each agent one step: one register write, one word, one lock. Agents never see each
other; they meet at locks, streams and registers. Rounds go on until the controller is done.
When a whole round changes nothing while the controller waits, nothing ever will: **deadlock**.

The order of agents within a round means nothing. A sound transaction gives the same bytes for every
order; ``Array(shuffle=seed)`` tries another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onedispatch.transactions import Device
from onedispatch.transactions.analysis.transaction import Transaction
from onedispatch.transactions.format import spec
from onedispatch.transactions.machine import registers
from tests.array_model.control import ControlPort
from tests.array_model.controller import Controller
from tests.array_model.dma import MM2S, S2MM, Channel
from tests.array_model.locks import Lock, read_request_window
from tests.array_model.memory import HostMemory, Memory, ModelFault
from tests.array_model.sender import Sender, Steps
from tests.array_model.switch import Arbiters, Route, Switch, trace

CHANNELS = {"shim": 2, "mem": 6, "core": 2}
CORE_LOCK_VIEW = registers.CORE_VIEW_LOCKS
XDNA = 3
BASES = registers.MEM.bd_field["base"].maximum + 1
PACES = (1.0, 0.3, 0.03, 0.003)
CONTROLLER_LAST = -1
"""As ``shuffle``: the controller acts only when nothing else can, as if writes took ages."""
_ENABLE, _RESET = 1, 2
_READ_ONLY = ("_STATUS", "LOCK_REQUEST", "TIMER_LOW", "TIMER_HIGH", "_COUNT")


class Deadlock(ModelFault):
    """Nothing can move while the controller waits."""

    def __init__(self, text: str) -> None:
        super().__init__("deadlock", text)


class Core:
    """What a program on a core may touch: its own data memory and its own locks, nothing else."""

    def __init__(self, tile: Tile) -> None:
        self.column, self.row = tile.column, tile.row - registers.FIRST_CORE_ROW
        self.name = f"{tile.name} core"
        self.memory = tile.memory
        self.room = 4 * len(tile.memory.words) - tile.array.stack_bytes
        """Bytes of data memory below stack and tables."""
        self._locks = tile.locks
        self.waits_for = ""
        self.home: int | None = None
        """The lock that its program acquired first: where it waits between operators."""
        self.waiting: int | None = None

    def _lock(self, view_id: int) -> Lock:
        if not CORE_LOCK_VIEW <= view_id < CORE_LOCK_VIEW + len(self._locks):
            raise ModelFault("core", f"{self.name}: lock {view_id} is not its own")
        return self._locks[view_id - CORE_LOCK_VIEW]

    def acquire(self, view_id: int, count: int = 1) -> Steps:
        """``yield from core.acquire(48 + id)``: wait until the lock holds ``count``, and take it."""
        self.waits_for = f"lock {view_id - CORE_LOCK_VIEW}"
        self.home = view_id if self.home is None else self.home
        self.waiting = view_id
        while not self._lock(view_id).try_acquire(-count):
            yield False
        self.waits_for, self.waiting = "", None
        yield True

    def release(self, view_id: int, count: int = 1) -> Steps:
        self._lock(view_id).release(count)
        yield True


Agent = tuple[str, Callable[[], bool]]
"""A name, and the function that does its next step and says whether it did anything."""
Program = Callable[[Core], Steps]
Loader = Callable[[Sequence[int]], Program]
"""Finds the program that the words of program memory name; ModelFault when there is none."""


def no_programs(image: Sequence[int]) -> Program:
    raise ModelFault("core", f"program memory holds no known program: {[hex(w) for w in image[:4]]}")


@dataclass(frozen=True)
class Sizes:
    """What a kind of tile has: as much as registers can address, or what a device's file says."""

    memory_bytes: int
    program_bytes: int
    locks: int
    bds: int

    @classmethod
    def of(cls, kind: str, device: Device | None) -> Sizes:
        tile = registers.TILES[kind]
        locks, bds = tile.block["LOCK_VALUE"].count, tile.block["DMA_BD"].count
        if device is None:
            program = tile.block["PROGRAM_MEMORY"].size if kind == "core" else 0
            return cls(tile.memory_bytes, program, locks, bds)
        section = {"mem": "memory_tile"}.get(kind, kind)
        memory = {"core": "core.data_memory_bytes", "mem": "memory_tile.memory_bytes"}.get(kind)
        return cls(
            device.count(memory) if memory else 0,
            device.count("core.program_memory_bytes") if kind == "core" else 0,
            device.count(f"{section}.locks"),
            device.count(f"{section}.bds"),
        )


class Tile:
    """One tile of any kind: what it has, and its register decoder."""

    def __init__(self, array: Array, column: int, row: int) -> None:
        self.array, self.column, self.row = array, column, row
        self.kind = registers.kind_of_row(row) or "core"
        self.map = registers.TILES[self.kind]
        self.name = f"({column},{row})"
        sizes = array.sizes[self.kind]
        self.memory = Memory(f"the memory of {self.name}", sizes.memory_bytes // 4)
        self.locks = [Lock(f"{self.name}/{i}") for i in range(sizes.locks)]
        self.bds = [[0] * self.map.bd_words for _ in range(sizes.bds)]
        self.switch = Switch(self.map)
        self.s2mm = [Channel(self, S2MM, n) for n in range(CHANNELS[self.kind])]
        self.mm2s = [Channel(self, MM2S, n) for n in range(CHANNELS[self.kind])]
        self.control_port = ControlPort(self)
        self.program_memory = [0] * (sizes.program_bytes // 4)
        self.core_control = 0
        self.core = Core(self)
        self.core_steps: Steps | None = None
        self.other: dict[int, int] = {}
        """Registers that exist but do nothing here."""

    def lock_of_bd(self, number: int) -> Lock:
        """A lock as a BD names it: a memory tile's BD counts west, own, east."""
        if self.kind != "mem":
            return self.locks[number]
        side, local = divmod(number, 64)
        tile = self.array.tiles.get((self.column + side - 1, self.row)) if side < 3 else None
        if tile is None:
            raise ModelFault("lock", f"{self.name}: lock {number} of a BD")
        return tile.locks[local]

    # -- registers -----------------------------------------------------------------------------

    def _find(self, offset: int) -> registers.Register:
        found = self.map.find(offset)
        absent = {"DMA_BD": self.bds, "LOCK_VALUE": self.locks, "LOCK_REQUEST": self.locks}
        few = found is not None and found.index >= len(absent.get(found.block.name, range(1 << 20)))
        if found is None or offset % 4 or few:
            raise ModelFault("register", f"{self.name} has nothing at offset {offset:#x}")
        return found

    def _channel(self, name: str, index: int) -> Channel:
        return (self.s2mm if "S2MM" in name else self.mm2s)[index]

    def write(self, offset: int, word: int) -> None:
        """One word into a register or into memory."""
        found = self._find(offset)
        name, index = found.block.name, found.index
        if name.endswith(_READ_ONLY):
            raise ModelFault("register", f"{self.name}: a write to {name}")
        if name == "MEMORY":
            self.memory.store(offset // 4, word)
        elif name == "PROGRAM_MEMORY":
            if self.core_steps is not None:
                raise ModelFault("core", f"{self.name}: its program is overwritten while it runs")
            self.program_memory[found.byte // 4] = word
        elif name == "DMA_BD":
            self.bds[index][found.byte // 4] = word
        elif name in ("DMA_S2MM_QUEUE", "DMA_MM2S_QUEUE"):
            self._channel(name, index).push(word)
        elif name in ("DMA_S2MM_CTRL", "DMA_MM2S_CTRL"):
            self._channel(name, index).write_control(word)
        elif name == "DMA_MM2S_PAD_VALUE":
            if word and self.array.generation == XDNA:
                raise ModelFault("unsupported", f"{self.name}: XDNA pads with zeros only")
            self.mm2s[index].pad_value = word
        elif name == "LOCK_VALUE":
            self.locks[index].set(word)
        elif name == "MEMORY_CONTROL":
            if word & 1:
                self.memory.zero()
        elif name == "CORE_CONTROL":
            self._control_core(word)
        elif name == "SWITCH_MERGE":
            self.switch.merges[index][found.byte // 4] = word
            self.array.arbiters.merge((self.column, self.row, index), self.switch.merges[index])
        elif not self._write_switch(name, index, word):
            self.other[offset] = word

    def _write_switch(self, name: str, index: int, word: int) -> bool:
        switch = self.switch
        if name == "MUX":
            switch.mux = word
        elif name == "DEMUX":
            switch.demux = word
        elif name == "SWITCH_MASTER":
            switch.set_master(self.name, index, word)
        elif name == "SWITCH_SLAVE":
            switch.slaves[index] = word
        elif name == "SWITCH_SLOT":
            switch.slots[index] = word
        else:
            return False
        self.array.routes.clear()
        return True

    def read(self, offset: int) -> int:
        """One word from a register or from memory. Reading the request window has an effect."""
        found = self._find(offset)
        name, index = found.block.name, found.index
        if name == "MEMORY":
            return int(self.memory.words[offset // 4])
        if name == "DMA_BD":
            return self.bds[index][found.byte // 4]
        if name in ("DMA_S2MM_STATUS", "DMA_MM2S_STATUS"):
            return self._channel(name, index).status()
        if name in ("DMA_S2MM_CTRL", "DMA_MM2S_CTRL"):
            return self._channel(name, index).control
        if name == "DMA_MM2S_PAD_VALUE":
            return self.mm2s[index].pad_value
        if name == "LOCK_VALUE":
            return self.locks[index].value
        if name == "LOCK_REQUEST":
            return read_request_window(self.locks, self.kind, offset)
        if name == "CORE_CONTROL":
            return self.core_control
        if name == "PROGRAM_MEMORY":
            return self.program_memory[found.byte // 4]
        if name == "SWITCH_MERGE":
            return self.switch.merges[index][found.byte // 4]
        return self.other.get(offset, 0)

    # -- the core ------------------------------------------------------------------------------

    def _control_core(self, word: int) -> None:
        """Reset ends the program; enable starts it, or lets a disabled one go on."""
        self.core_control = word
        if word & _RESET:
            self.core_steps = None
            self.core.home = self.core.waiting = None
        elif word & _ENABLE and self.core_steps is None:
            self.core_steps = self.array.loader(self.program_memory)(self.core)

    def step_core(self) -> bool:
        if self.core_steps is None or not self.core_control & _ENABLE:
            return False
        return next(self.core_steps, False)


class Array:
    """A partition of ``columns`` columns.

    Args:
        columns: width of the partition.
        loader: which program an image in program memory names.
        shuffle: seed for another order and another pace of the agents; None: all take turns.
        generation: 3 XDNA, 4 XDNA2.
        max_rounds: so many rounds are a livelock.
        device: whose rows, memories, locks and BDs it has; those of AMD's arrays if None.
    """

    def __init__(
        self,
        columns: int,
        loader: Loader = no_programs,
        shuffle: int | None = None,
        generation: int = 4,
        max_rounds: int = 2_000_000,
        device: Device | None = None,
    ) -> None:
        self.columns, self.loader, self.generation = columns, loader, generation
        self.rows = spec.ARRAY_ROWS if device is None else device.rows
        self.sizes = {kind: Sizes.of(kind, device) for kind in registers.TILES}
        self.stack_bytes = 0 if device is None else device.count("core.stack_bytes")
        self._max_rounds = max_rounds
        self._shuffle = shuffle
        self._random = random.Random(shuffle) if shuffle is not None else None
        self._pace: dict[str, float] = {}
        self.overlays: Mapping[int, bytes] = {}
        self.loading = False
        """An overlay is being loaded: tasks that it pushes are resident."""
        self.registers_read: list[tuple[int, int]] = []
        """(address, value) of the READ_REGS operations of the last run."""
        self.rounds = 0
        self.reset()

    def reset(self) -> None:
        """Everything as after power-up: unwritten memories, locks 0, no routes, no cores."""
        self.host = HostMemory()
        self.arbiters = Arbiters()
        self.routes: dict[tuple[Sender, int | None], Route] = {}
        self.tiles: dict[tuple[int, int], Tile] = {}
        for column in range(self.columns):
            for row in range(self.rows):
                self.tiles[column, row] = Tile(self, column, row)

    # -- addresses -----------------------------------------------------------------------------

    def tile_at(self, address: int) -> tuple[Tile, int]:
        column, row, offset = registers.split_address(address)
        tile = self.tiles.get((column, row))
        if tile is None:
            raise ModelFault("address", f"{address:#x} is column {column} row {row}")
        return tile, offset

    def write(self, address: int, word: int) -> None:
        tile, offset = self.tile_at(address)
        tile.write(offset, word)

    def read(self, address: int) -> int:
        tile, offset = self.tile_at(address)
        return tile.read(offset)

    def mem_view(self, tile: Tile, address: int) -> tuple[Memory, int]:
        """A word address in a memory tile's BD: west neighbour, own, east neighbour."""
        own, words = registers.MEM.own_memory_view // 4, len(tile.memory.words)
        # Where a memory is larger than AMD's, its neighbours' lie that much further away.
        side, local = divmod(address - own, max(own, words))
        neighbour = self.tiles.get((tile.column + side, tile.row)) if address < BASES and side < 2 else None
        if neighbour is None:
            raise ModelFault("memory", f"{tile.name}: byte {address * 4:#x} of a memory tile's view")
        return neighbour.memory, local

    def route_of(self, sender: Sender, packet_id: int | None) -> Route:
        """Where a stream with this header, or with none, goes, as the switches are set now."""
        key = (sender, packet_id)
        if key not in self.routes:
            self.routes[key] = trace(self, sender, packet_id)
        return self.routes[key]

    # -- running -------------------------------------------------------------------------------

    def load(self, overlay: bytes) -> None:
        """Configure the array by an overlay, before any run: register writes only, in order."""
        self.loading = True
        for _ in Controller(self, Transaction.from_bytes(overlay)).steps:
            pass
        self.loading = False

    def run(self, transaction: bytes, buffers: Sequence[bytes | int] = ()) -> list[bytes]:
        """Run to the end of the transaction; returns the bytes of all buffers.

        Raises:
            ModelFault: what the transaction does wrong; ``Deadlock`` when nothing can move.
        """
        self.host = HostMemory(buffers)
        for channel in self.channels():
            channel.tokens = 0
        controller = Controller(self, Transaction.from_bytes(transaction))
        while not controller.done:
            self._round(controller)
        self._check_finished()
        self._settle()
        self.registers_read = controller.registers
        return [memory.words.tobytes() for memory in self.host.buffers]

    def channels(self) -> list[Channel]:
        return [c for tile in self.tiles.values() for c in (*tile.s2mm, *tile.mm2s)]

    def _round(self, controller: Controller) -> None:
        agents: list[Agent] = [("controller", lambda: next(controller.steps, True))]
        for tile in self.tiles.values():
            agents += [(c.name, c.step) for c in (*tile.s2mm, *tile.mm2s) if c.queue or c.running]
            if tile.control_port.busy:
                agents.append((tile.control_port.name, tile.control_port.step))
            if tile.core_steps is not None:
                agents.append((tile.core.name, tile.step_core))
        # Lists, not generators: every agent steps, also after one that has moved.
        moved = [step() for _, step in self._awake(agents)]
        if not any(moved):
            moved = [step() for _, step in agents]
        if not any(moved):
            raise Deadlock(self.explain(controller))
        self.rounds += 1
        if self.rounds > self._max_rounds:
            raise ModelFault("livelock", self.explain(controller))

    def _awake(self, agents: list[Agent]) -> list[Agent]:
        """The agents that act in this round: all of them, or a random part in random order."""
        if self._random is None:
            return agents
        for name, _ in agents:
            self._pace.setdefault(name, self._random.choice(PACES))
        if self._shuffle == CONTROLLER_LAST:
            self._pace["controller"] = 0.0
        awake = [agent for agent in agents if self._random.random() < self._pace[agent[0]]]
        self._random.shuffle(awake)
        return awake

    def _check_finished(self) -> None:
        """Writes to host memory that are still under way when the run ends would be lost."""
        shims = [c for c in self.channels() if c.tile.kind == "shim" and c.direction == S2MM]
        late = [c.name for c in shims if c.running]
        if late:
            raise ModelFault("data_loss", f"unfinished at the end of the transaction: {late}")

    def _settle(self) -> None:
        """What is under way may end by itself; then all must be at rest.

        No task, open packet or running operator is left, and every lock has the value that its
        value register was last written with.
        """
        for _ in range(self._max_rounds):
            agents: list[Agent] = [(c.name, c.step) for c in self.channels() if c.queue or c.running]
            for tile in self.tiles.values():
                agents.append((tile.control_port.name, tile.control_port.step))
                agents.append((tile.core.name, tile.step_core))
            moved = [step() for _, step in agents]  # all of them, as in a round
            if not any(moved):
                break
        left = [c.name for c in self.channels() if not c.at_rest]
        for tile in self.tiles.values():
            left += [tile.control_port.name] if tile.control_port.busy else []
            left += [tile.core.name] if tile.core.waiting not in (None, tile.core.home) else []
            left += [lock.name for lock in tile.locks if lock.value != lock.rest]
        if left:
            raise ModelFault("unfinished", f"left behind: {left}")

    def explain(self, controller: Controller) -> str:
        """Who waits for what."""
        waits = [controller.waits_for]
        waits += [f"{c.name} BD {c.current_bd}: {c.waits_for}" for c in self.channels() if c.waits_for]
        ports = [t.control_port for t in self.tiles.values()]
        waits += [f"{port.name}: {port.waits_for}" for port in ports if port.waits_for]
        waits += [f"{t.core.name}: {t.core.waits_for}" for t in self.tiles.values() if t.core.waits_for]
        return "; ".join(waits)
