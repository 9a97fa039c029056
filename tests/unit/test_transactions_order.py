# SPDX-License-Identifier: Apache-2.0
"""What data flow orders is no warning; take away one thing that it rests on, and it is one again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onedispatch.transactions import (
    FindingKind,
    MemBd,
    ShimBd,
    Transaction,
    TransactionBuilder,
    circuit_master,
    lock_request_offset,
    queue_word,
    switch_slave,
    tile_address,
)
from onedispatch.transactions.analysis.context import Context
from onedispatch.transactions.analysis.effects import Pushed
from onedispatch.transactions.analysis.tokens import Tokens
from onedispatch.transactions.machine import registers
from onedispatch.transactions.machine.routes import Arrival, Routes

EMPTY, FULL = 0, 1
WORDS = 64
SLOTS = 2
Edit = Callable[["Road"], None]


class Road:
    """Host memory -> shim -> memory tile -> shim -> host memory, twice over; edits change one thing."""

    def __init__(self) -> None:
        self.overlay = TransactionBuilder(4, 1)
        self.made = TransactionBuilder(4, 1)
        self.words = {"in": WORDS, "fill": WORDS, "send": WORDS, "out": WORDS}
        self.between: Edit = lambda road: None
        self.early: Edit = lambda road: None
        self.waits = True
        self.send_acquires: tuple[int, int] | None = (FULL, -1)
        self.send_releases: tuple[int, int] | None = (EMPTY, 1)
        self.fill_releases: tuple[int, int] | None = (FULL, 1)
        self.constants: dict[int, bytes] = {}
        shim, mem = registers.SHIM, registers.MEM
        self.route("shim", 0, shim, "SOUTH_3", "NORTH_0")
        self.route("mem", 1, mem, "SOUTH_0", "DMA_0")
        self.route("mem", 1, mem, "DMA_0", "SOUTH_0")
        self.route("shim", 0, shim, "NORTH_0", "SOUTH_2")
        self.overlay.write(tile_address(0, 0, 0x1F000), 1 << 10)
        self.overlay.write(tile_address(0, 0, 0x1F004), 1 << 4)
        self.overlay.write(tile_address(0, 1, 0xC0000), SLOTS)
        self.overlay.write(tile_address(0, 1, 0xC0010), 0)

    def route(self, kind: str, row: int, tile: registers.TileMap, slave: str, master: str) -> None:
        base, port = {"shim": 0x3F000, "mem": 0xB0000}[kind], tile.slave(slave)
        self.overlay.write(tile_address(0, row, base + 0x100 + 4 * port), switch_slave())
        self.overlay.write(tile_address(0, row, base + 4 * tile.master(master)), circuit_master(port))

    def shim_task(self, index: int, queue: int, argument: int, words: int, token: bool) -> None:
        made = self.made
        made.blockwrite(tile_address(0, 0, 0x1D000 + 0x20 * index), ShimBd.at(0, words).to_words())
        made.ddr_patch(tile_address(0, 0, 0x1D004 + 0x20 * index), argument, 0)
        made.write(tile_address(0, 0, queue), queue_word("shim", index, token=token))

    def mem_task(self, index: int, queue: int, words: int, **locks: tuple[int, int] | None) -> None:
        bd = MemBd.at(0, words, **locks)  # type: ignore[arg-type]
        self.made.blockwrite(tile_address(0, 1, 0xA0000 + 0x20 * index), bd.to_words())
        self.made.write(tile_address(0, 1, queue), queue_word("mem", index))

    def nest(self) -> None:
        fill = {"acquire": (EMPTY, -1), "release": self.fill_releases}
        self.mem_task(0, 0xA0604, self.words["fill"], **fill)
        self.mem_task(1, 0xA0634, self.words["send"], acquire=self.send_acquires, release=self.send_releases)
        self.early(self)
        self.shim_task(0, 0x1D214, 0, self.words["in"], token=False)
        self.shim_task(1, 0x1D204, 1, self.words["out"], token=True)
        if self.waits:
            self.made.tct("S2MM", 0, 0, 0)
        self.between(self)

    def findings(self) -> list[tuple[FindingKind, int | None, str]]:
        self.nest()
        first = len(Transaction.from_bytes(self.made.to_bytes()))
        self.nest()
        overlay = Transaction.from_bytes(self.overlay.to_bytes())
        transaction = Transaction.from_bytes(self.made.to_bytes())
        found = transaction.check(context=Context(overlay, (), self.constants))
        assert all(f.op_index is not None and f.op_index < first + 11 for f in found)
        return [(f.kind, f.op_index, f.message) for f in found]


def hazards(edit: Edit) -> list[str]:
    """The BDs that are told to be rewritten in use, as "row BD"."""
    road = Road()
    edit(road)
    rewritten = [m for k, _, m in road.findings() if k is FindingKind.HAZARD and "rewritten" in m]
    return [f"{m.split()[1]} {m.split()[3]}" for m in rewritten]


def no_wait(road: Road) -> None:
    road.waits = False


def no_send_route(road: Road) -> None:
    road.overlay.write(tile_address(0, 1, 0xB0000 + 4 * registers.MEM.master("SOUTH_0")), 0)


def no_feed_route(road: Road) -> None:
    road.overlay.write(tile_address(0, 0, 0x1F000), 0)


def unknown_lock(road: Road) -> None:
    known, road.overlay = road.overlay, TransactionBuilder(4, 1)
    for op in Transaction.from_bytes(known.to_bytes()).ops:
        if op.fields["reg"] != tile_address(0, 1, 0xC0010):
            road.overlay.write(op.fields["reg"], op.fields["value"])


def full_at_first(road: Road) -> None:
    road.overlay.write(tile_address(0, 1, 0xC0010), 1)


def send_without_lock(road: Road) -> None:
    road.send_acquires = None


def send_when_equal(road: Road) -> None:
    road.send_acquires = (FULL, 1)


def another_releases(road: Road) -> None:
    """It is unknown which release the sender took."""
    road.early = lambda r: r.mem_task(24, 0xA060C, 0, release=(FULL, 1))


def released_by_minus_one(road: Road) -> None:
    road.early = lambda r: r.mem_task(24, 0xA060C, 0, release=(FULL, -1))


def the_host_releases(road: Road) -> None:
    def poll(r: Road) -> None:
        r.made.maskpoll(tile_address(0, 1, lock_request_offset("mem", FULL, 1, False)), 1, 1)

    road.early = poll


def host_sets_lock_midway(road: Road) -> None:
    road.early = lambda r: r.made.write(tile_address(0, 1, 0xC0010), 1)


def longer_feed(road: Road) -> None:
    road.words["in"] = WORDS + 1


def shorter_output(road: Road) -> None:
    """The sender has begun, so its lock was released; but it need not have ended."""
    road.words["out"] = WORDS - 1


def a_switch_is_written(road: Road) -> None:
    road.early = lambda r: r.made.write(tile_address(0, 1, 0xB0000 + 4 * 8), circuit_master(1))


def ends_by_tlast(road: Road) -> None:
    road.early = lambda r: r.made.write(tile_address(0, 0, 0x1D200), 1 << 16)


def compressed(road: Road) -> None:
    road.early = lambda r: r.made.write(tile_address(0, 1, 0xA0600), 1 << 4)


def a_reset(road: Road) -> None:
    road.early = lambda r: r.made.write(tile_address(0, 1, 0xA0640), 2)


def an_overlay_is_loaded(road: Road) -> None:
    road.early = lambda r: r.made.loadpdi(0, 0, 0)


def an_unknown_bd(road: Road) -> None:
    road.early = lambda r: r.made.write(tile_address(0, 1, 0xA060C), queue_word("mem", 30))


def parameters_written(road: Road) -> None:
    road.constants = {1: bytes(16)}


ALL = ["r1 0", "r1 1", "r0 0", "r0 1"]
MIDDLE = ["r1 0", "r1 1", "r0 0"]
FAULTS: list[tuple[Edit, list[str]]] = [
    (no_wait, ALL),
    (no_send_route, MIDDLE),
    (no_feed_route, ["r0 0"]),
    (unknown_lock, ["r1 0", "r0 0"]),
    (full_at_first, ["r1 0", "r0 0"]),
    (send_without_lock, ["r1 0", "r0 0"]),
    (send_when_equal, ["r1 0", "r0 0"]),
    (another_releases, ["r1 0", "r1 24", "r0 0"]),
    (released_by_minus_one, ["r1 0", "r1 24", "r0 0"]),
    (the_host_releases, ["r1 0", "r0 0"]),
    (host_sets_lock_midway, ["r1 0", "r0 0"]),
    (longer_feed, ["r0 0"]),
    (shorter_output, ["r1 1"]),
    (a_switch_is_written, MIDDLE),
    (ends_by_tlast, MIDDLE),
    (compressed, MIDDLE),
    (a_reset, MIDDLE),
    (an_overlay_is_loaded, MIDDLE),
    (an_unknown_bd, MIDDLE),
    (parameters_written, MIDDLE),
]


def test_what_a_token_proves_is_no_warning() -> None:
    assert Road().findings() == []


@pytest.mark.parametrize(("edit", "expected"), FAULTS, ids=[edit.__name__ for edit, _ in FAULTS])
def test_one_fault_brings_the_warning_back(edit: Edit, expected: list[str]) -> None:
    assert sorted(hazards(edit)) == sorted(expected)


def gives_back(road: Road) -> None:
    """What it takes, it gives back itself: only the other one can have given it at first."""
    road.send_releases = (FULL, 1)


def gives_back_what_was_there(road: Road) -> None:
    gives_back(road)
    road.overlay.write(tile_address(0, 1, 0xC0010), 1)


def takes_two_gives_back_one(road: Road) -> None:
    road.send_acquires, road.send_releases, road.fill_releases = (FULL, -2), (FULL, 1), (FULL, 2)


@pytest.mark.parametrize(
    ("edit", "expected"),
    [(gives_back, []), (gives_back_what_was_there, ["r1 0", "r0 0"]), (takes_two_gives_back_one, [])],
)
def test_what_somebody_gives_back_to_itself_nobody_else_did(edit: Edit, expected: list[str]) -> None:
    assert hazards(edit) == expected


def polls(value: int) -> Edit:
    return lambda road: road.made.maskpoll(tile_address(0, 1, 0xC0010), value, 0x3F)


def takes_it(road: Road) -> None:
    road.made.maskpoll(tile_address(0, 1, lock_request_offset("mem", FULL, -1, True)), 1, 1)
    polls(0)(road)


# What the host does before a second task fills, and what it sees then.
SEEN: dict[str, tuple[Edit, Edit]] = {
    "it was given back": (lambda road: None, polls(1)),
    "the host took it": (lambda road: None, takes_it),
    "it was set anew": (lambda road: road.made.write(tile_address(0, 1, 0xC0010), 0), polls(0)),
}


@pytest.mark.parametrize("seen", SEEN)
def test_what_it_had_once_says_nothing_of_what_is_there_now(seen: str) -> None:
    """The second task gets no words: nothing that the host sees of the lock says that it has ended."""
    road = Road()
    gives_back(road)
    road.nest()
    fills = {"acquire": (EMPTY, -1), "release": (FULL, 1)}
    SEEN[seen][0](road)
    road.mem_task(2, 0xA0604, WORDS, **fills)
    SEEN[seen][1](road)
    road.mem_task(2, 0xA0604, WORDS, **fills)
    overlay = Transaction.from_bytes(road.overlay.to_bytes())
    found = Transaction.from_bytes(road.made.to_bytes()).check(context=Context(overlay, (), {}))
    assert [f.message.split(" is rewritten")[0] for f in found if "rewritten" in f.message] == ["c0 r1 BD 2"]


def test_what_is_written_by_a_wait_of_its_own_stays_clean() -> None:
    """Locks set anew while nothing uses them; polls of locks prove what tokens prove."""
    road = Road()

    def restore(r: Road) -> None:
        r.made.write(tile_address(0, 1, 0xC0000), SLOTS)
        r.made.write(tile_address(0, 1, 0xC0010), 0)

    road.between = restore
    assert road.findings() == []


def test_routes_are_followed() -> None:
    road = Road()
    writes = [
        (op.fields["reg"], op.fields["value"]) for op in Transaction.from_bytes(road.overlay.to_bytes()).ops
    ]
    routes = Routes(writes)
    assert routes.of((0, 0), 0, None) == (Arrival(((0, 1), 0), False),)
    assert routes.of((0, 1), 0, None) == (Arrival(((0, 0), 0), False),)
    assert routes.of((0, 1), 0, 3) == (Arrival(((0, 0), 0), True),), "a header stays on a circuit"
    assert routes.of((0, 0), 1, None) == routes.of((0, 1), 1, None) == ()


def test_merged_tokens_are_attributed_as_far_as_they_can_be() -> None:
    tokens: Tokens[str] = Tokens()
    pushes = {}
    for number, channel in enumerate("aab"):
        pushes[number] = _push(number)
        tokens.issue(channel, pushes[number])
    assert list(tokens.merge(1)) == []
    assert list(tokens.merge(1)) == [("a", pushes[0])]
    assert dict(tokens.merge(1)) == {"a": pushes[1], "b": pushes[2]}
    assert tokens.consume("a") is None


def _push(op: int) -> Pushed:
    return Pushed(op, (0, 0), 0, 0, 0, 1, True, (), "")
