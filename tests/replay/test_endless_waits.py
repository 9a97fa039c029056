# SPDX-License-Identifier: Apache-2.0
"""A replay that waits for what can never be ends at once, beside tasks that go on for ever.

The livelock limit stays at its twenty million events: a wait that was not recognised would run
into it, and say so.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from onnx import TensorProto, helper

import onedispatch as od
from onedispatch.dispatch.tools.replay import replay
from onedispatch.transactions import (
    FindingKind,
    MemBd,
    Severity,
    Transaction,
    TransactionBuilder,
    lock_request_offset,
    queue_word,
    tile_address,
)

IDLE = 0x78003C
SOON = 200_000
"""Events after which a wait must have been recognised; the limit is a hundred times as many."""
Made = TransactionBuilder


def mem(offset: int) -> int:
    return tile_address(0, 1, offset)


def task(made: Made, bd: int, channel: int, at: int = 0, token: bool = False, **more: object) -> None:
    made.blockwrite(mem(0xA0000 + 0x20 * bd), MemBd.at(at, 256, **more).to_words())  # type: ignore[arg-type]
    made.write(mem(0xA0604 + 8 * channel), queue_word("mem", bd, token=token))


def request(lock: int, value: int) -> int:
    return mem(lock_request_offset("mem", lock, value, True))


def end_of_the_endless(made: Made) -> None:
    made.maskpoll(mem(0xA0660), 0, IDLE)


def bits_outside_the_mask(made: Made) -> None:
    made.maskpoll(mem(0xA0668), 2, 1)


def bits_of_no_lock(made: Made) -> None:
    made.maskpoll(mem(0xC0000), 64, 0xFF)


def bits_of_no_request(made: Made) -> None:
    made.maskpoll(request(5, -1), 3, 3)


def bits_of_no_status(made: Made) -> None:
    made.maskpoll(mem(0xA0660), 1 << 31, 1 << 31)


def more_than_a_lock_counts(made: Made) -> None:
    made.maskpoll(request(5, -64), 1, 1)


def start_of_an_idle_channel(made: Made) -> None:
    made.maskpoll(mem(0xA0680), 1 << 19, 1 << 19)


def lock_that_no_channel_uses(made: Made) -> None:
    made.write(mem(0xC0000), 3)
    made.maskpoll(mem(0xC0000), 5, 0x3F)


def lock_released_for_the_last_time(made: Made) -> None:
    task(made, 2, 2, 0x1000, release=(7, 1))
    made.maskpoll(mem(0xA0668), 0, IDLE)
    made.maskpoll(request(7, -2), 1, 1)


def end_of_who_waits_for_such_a_lock(made: Made) -> None:
    task(made, 2, 2, 0x1000, release=(7, 1))
    made.maskpoll(mem(0xA0668), 0, IDLE)
    task(made, 4, 4, 0x2000, acquire=(7, -2))
    made.maskpoll(mem(0xA0670), 0, IDLE)


def memory_that_no_channel_writes(made: Made) -> None:
    made.maskpoll(mem(0x40000), 1, 1)


def memory_of_another_tile(made: Made) -> None:
    made.maskpoll(tile_address(3, 2, 0x100), 1, 1)


def register_that_is_written_only(made: Made) -> None:
    made.maskpoll(mem(0xFFF00), 1, 1)


def the_same_busily(made: Made) -> None:
    made.maskpoll_busy(mem(0xB0000), 1, 1)


def descriptor_without_a_counter(made: Made) -> None:
    made.maskpoll(mem(0xA0000), 0, 0xFFFFFFFF)


def program_that_is_not_there(made: Made) -> None:
    made.maskpoll(tile_address(0, 2, 0x32004), 1, 1)


def token_of_an_idle_channel(made: Made) -> None:
    made.tct("MM2S", 0, 0, 0)


def token_of_the_endless(made: Made) -> None:
    made.tct("S2MM", 0, 1, 0)


def token_that_was_not_asked_for(made: Made) -> None:
    task(made, 2, 2, 0x1000)
    made.tct("S2MM", 0, 1, 2)


def second_token_of_one(made: Made) -> None:
    task(made, 2, 2, 0x1000, token=True)
    made.tct("S2MM", 0, 1, 2)
    made.tct("S2MM", 0, 1, 2)


def more_tokens_than_tasks_give(made: Made) -> None:
    task(made, 2, 2, 0x1000, token=True)
    made.merge_sync(2, 1)


NEVER: list[tuple[Callable[[Made], None], str]] = [
    (end_of_the_endless, "S2MM0 holds 0x80001: its task never ends"),
    (bits_outside_the_mask, "bits outside its mask"),
    (bits_of_no_lock, "no bits but 0x3f"),
    (bits_of_no_request, "no bits but 0x1"),
    (bits_of_no_status, "no bits but 0x"),
    (more_than_a_lock_counts, "more than a lock can count"),
    (start_of_an_idle_channel, "MM2S0 holds 0x0: it has no task"),
    (lock_that_no_channel_uses, "it holds 3, and no active channel uses it"),
    (lock_released_for_the_last_time, "lock 7 holds 1, and no active channel changes it"),
    (end_of_who_waits_for_such_a_lock, "waits for lock 7"),
    (memory_that_no_channel_writes, "no active channel or core writes that word"),
    (memory_of_another_tile, "no active channel or core writes that word"),
    (register_that_is_written_only, "MODULE_CLOCK"),
    (the_same_busily, "SWITCH_MASTER"),
    (descriptor_without_a_counter, "counts runs in BD 0"),
    (program_that_is_not_there, "no program"),
    (token_of_an_idle_channel, "MM2S0 has no task"),
    (token_of_the_endless, "its task never ends"),
    (token_that_was_not_asked_for, "has no task"),
    (second_token_of_one, "has no task"),
    (more_tokens_than_tasks_give, "give 1"),
]
STATIC = [wait for wait, _ in NEVER if "bits" in wait.__name__ or wait is more_than_a_lock_counts]


def beside_an_endless_task(wait: Callable[[Made], None]) -> Made:
    made = TransactionBuilder(4, 4)
    task(made, 0, 0, next_bd=0)
    wait(made)
    return made


@pytest.mark.parametrize(("wait", "says"), NEVER, ids=[wait.__name__ for wait, _ in NEVER])
def test_what_can_never_be_ends_at_once(wait: Callable[[Made], None], says: str) -> None:
    made = beside_an_endless_task(wait)
    report = replay(made.to_bytes())
    assert report.stop is not None and report.stop.kind == "endless_wait", report.verdict
    assert says.lower() in report.stop.text.lower(), report.stop.text
    assert "waits for" in report.stop.text, "what was polled"
    assert report.stop.op_index == len(Transaction.from_bytes(made.to_bytes())) - 1
    assert report.events < SOON


@pytest.mark.parametrize("wait", STATIC)
def test_what_a_poll_alone_tells_check_says_too(wait: Callable[[Made], None]) -> None:
    made = TransactionBuilder(4, 4)
    wait(made)
    transaction = Transaction.from_bytes(made.to_bytes())
    (finding,) = transaction.validate()
    assert (finding.kind, finding.severity) == (FindingKind.VALUE, Severity.ERROR)
    assert "never succeed" in finding.message
    assert finding in transaction.check()
    stop = replay(transaction).stop
    assert stop is not None and stop.kind == "endless_wait", "without anything else going on, too"


def unseen_partner(made: Made) -> None:
    made.maskpoll(request(5, -1), 1, 1)


def end_of_who_waits_for_it(made: Made) -> None:
    task(made, 2, 2, 0x1000, acquire=(7, -1))
    made.maskpoll(mem(0xA0668), 0, IDLE)


def long_but_finite(made: Made) -> None:
    made.blockwrite(mem(0xA0040), MemBd.at(0x1000, 0x8000).to_words())
    made.write(mem(0xA0614), queue_word("mem", 2, 256))
    made.maskpoll(mem(0xA0668), 0, IDLE)


def descriptor_with_a_counter(made: Made) -> None:
    words = MemBd.at(0x1000, 8, iteration=(8, 4)).to_words()
    made.blockwrite(mem(0xA0040), words)
    made.write(mem(0xA0614), queue_word("mem", 2, 3))
    made.maskpoll(mem(0xA0058), 3 << 23, 0x3F << 23)


def memory_that_a_task_writes(made: Made) -> None:
    made.write(mem(0x1000), 0xFFFFFFFF)
    task(made, 2, 2, 0x1000)
    made.maskpoll(mem(0x1000), 0, 1 << 31)


def timer(made: Made) -> None:
    made.maskpoll(mem(0x940F8), 0x40_0000, 0xFFFF_0000)


def last_bit_of_a_timer(made: Made) -> None:
    made.maskpoll(tile_address(0, 0, 0x340F8), 1, 1)


def token_of_packets(made: Made) -> None:
    """No task of the channel is in the transaction: control packets push it, if anything does."""
    made.tct("MM2S", 0, 1, 0)


CAN_BE = [
    token_of_packets, unseen_partner, end_of_who_waits_for_it, long_but_finite, descriptor_with_a_counter,
    memory_that_a_task_writes, timer, last_bit_of_a_timer,
]  # fmt: skip


@pytest.mark.parametrize("wait", CAN_BE)
def test_what_can_be_is_waited_for(wait: Callable[[Made], None]) -> None:
    report = replay(beside_an_endless_task(wait).to_bytes())
    assert report.finished and report.stop is None, report.stop
    assert [task.moving for task in report.unfinished] == [True]
    assert report.packet_tokens == (wait is token_of_packets)


def test_a_compiled_model_ends_whose_tensors_stay_on_the_array() -> None:
    """Control packets push what memory tiles do there; without them their tokens are taken as given."""
    relu, softmax = helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, 256]) for name in "xy")
    graph = helper.make_graph([relu, softmax], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    grouped, plain = (replay(od.compile(model, groups=groups).transaction) for groups in ("on", "off"))
    # One of each of the four channels that take results, of each column.
    assert grouped.finished and grouped.packet_tokens == 32, grouped.verdict
    assert plain.finished and plain.packet_tokens == 0


@pytest.mark.parametrize("wait", [timer, last_bit_of_a_timer])
def test_time_goes_on_where_nothing_else_does(wait: Callable[[Made], None]) -> None:
    made = TransactionBuilder(4, 4)
    wait(made)
    report = replay(made.to_bytes())
    assert report.complete, report.stop
    if wait is timer:
        assert 0x40_0000 <= report.cycles < 0x41_0000
