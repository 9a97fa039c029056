# SPDX-License-Identifier: Apache-2.0
"""Descriptors of shims come before the last wait of the operator before, where that one leaves them alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onedispatch.transactions import (
    ShimBd,
    Transaction,
    TransactionBuilder,
    find_device,
    queue_word,
)
from onedispatch.transactions.format.builder import register_address
from onedispatch.transactions.fusion.ahead import written_ahead

DEVICE = find_device("npu1")


def task(made: TransactionBuilder, column: int, number: int, *, pushed: bool = True) -> None:
    """A task of a shim that reads 16 words: its descriptor, the patch of its address, and the push."""
    at = register_address(column, 0, "DMA_BD", number)
    made.blockwrite(at, ShimBd.at(0, 16).to_words())
    made.ddr_patch(at + 4, 0, 64 * number)
    if pushed:
        made.write(register_address(column, 0, "DMA_MM2S_QUEUE"), queue_word("shim", number, 1, True))


def operators(*bodies: list[tuple[int, int]]) -> Transaction:
    """One operator per body, each the tasks of (column, descriptor), and the wait for its end."""
    made = TransactionBuilder.for_device(DEVICE)
    for number, body in enumerate(bodies):
        made.record_timer(number)
        for column, bd in body:
            task(made, column, bd)
        made.tct("MM2S", 0, 0, 0)
    made.record_timer(len(bodies))
    return Transaction.from_bytes(made.to_bytes())


def story(transaction: Transaction) -> list[str]:
    """Its operations, in short."""
    return [_SHORT.get(op.name, op.name) for op in transaction.ops]


_SHORT = {"BLOCKWRITE": "bd", "DDR_PATCH": "patch", "WRITE": "push", "TCT": "wait", "RECORD_TIMER": "timer"}


def test_what_the_operator_before_leaves_alone_is_written_while_it_runs() -> None:
    plain = operators([(0, 0)], [(0, 1), (1, 0)])
    ahead = written_ahead(plain)
    body = ["bd", "patch", "push"]
    assert story(plain) == ["timer", *body, "wait", "timer", *body, *body, "wait", "timer"]
    assert story(ahead) == [
        *["timer", *body, "bd", "patch", "bd", "patch", "wait"],
        *["timer", "push", "push", "wait", "timer"],
    ]
    assert sorted(op.raw for op in ahead.ops) == sorted(op.raw for op in plain.ops)
    assert Transaction.from_bytes(ahead.to_bytes()) == ahead
    assert list(ahead.offsets) == list(Transaction.from_bytes(ahead.to_bytes()).offsets)


def test_a_descriptor_in_use_stays_where_it_is() -> None:
    assert written_ahead(operators([(0, 0)], [(0, 0)])) == operators([(0, 0)], [(0, 0)])


def test_a_descriptor_of_an_operator_that_has_ended_is_free() -> None:
    ahead = story(written_ahead(operators([(0, 0), (1, 3)], [(0, 0)], [(1, 3)])))
    assert ahead[-7:] == ["bd", "patch", "wait", "timer", "push", "wait", "timer"]


def test_only_what_an_operator_begins_with_comes_ahead() -> None:
    made = TransactionBuilder.for_device(DEVICE)
    made.record_timer(0)
    task(made, 0, 0)
    made.tct("MM2S", 0, 0, 0)
    made.record_timer(1)
    task(made, 0, 1)
    made.tct("MM2S", 0, 0, 0)
    task(made, 0, 2)
    made.tct("MM2S", 0, 0, 0)
    made.record_timer(2)
    ahead = written_ahead(Transaction.from_bytes(made.to_bytes()))
    body = ["bd", "patch", "push"]
    assert story(ahead) == [
        *["timer", *body, "bd", "patch", "wait", "timer", "push", "wait", *body, "wait", "timer"]
    ]


def test_an_operator_without_an_end_of_its_own_lets_nothing_pass() -> None:
    made = TransactionBuilder.for_device(DEVICE)
    made.record_timer(0)
    task(made, 0, 0)
    made.record_timer(1)
    task(made, 0, 1)
    made.tct("MM2S", 0, 0, 0)
    made.record_timer(2)
    plain = Transaction.from_bytes(made.to_bytes())
    assert written_ahead(plain) == plain


def between(body: Callable[[TransactionBuilder], None]) -> list[str]:
    """The story of an operator that does ``body``, and another one whose task takes descriptor 2."""
    made = TransactionBuilder.for_device(DEVICE)
    made.record_timer(0)
    body(made)
    made.tct("MM2S", 0, 0, 0)
    made.record_timer(1)
    task(made, 0, 2)
    made.tct("MM2S", 0, 0, 0)
    made.record_timer(2)
    return story(written_ahead(Transaction.from_bytes(made.to_bytes())))


def words(made: TransactionBuilder) -> None:
    """As transactions from outside may write a descriptor: word by word."""
    at = register_address(0, 0, "DMA_BD", 2)
    for number, word in enumerate(ShimBd.at(0, 16).to_words()):
        made.write(at + 4 * number, word)


def several(made: TransactionBuilder) -> None:
    made.blockwrite(register_address(0, 0, "DMA_BD", 1), [*ShimBd.at(0, 16).to_words()] * 2)


def masked(made: TransactionBuilder) -> None:
    made.maskwrite(register_address(0, 0, "DMA_BD", 2), 16, 0xFF)


def unknown(made: TransactionBuilder) -> None:
    made.loadpdi(0)


@pytest.mark.parametrize("body", [words, several, masked, unknown])
def test_descriptors_that_an_operator_writes_in_any_way_are_its_own(
    body: Callable[[TransactionBuilder], None],
) -> None:
    assert between(body)[-6:] == ["timer", "bd", "patch", "push", "wait", "timer"]
    assert between(lambda made: task(made, 0, 1))[-4:] == ["timer", "push", "wait", "timer"]
