# SPDX-License-Identifier: Apache-2.0
"""Pushes that may overtake those in control packets are found, and only those."""

from __future__ import annotations

from typing import cast

import pytest

from onedispatch.transactions.analysis.effects import Pushed, TokenWait
from onedispatch.transactions.analysis.order import HappensBefore
from onedispatch.transactions.analysis.overtaking import Overtaking

SHIM, MEM = (0, 0), (0, 1)


class Ended:
    """An order in which tasks of these ops have ended."""

    def __init__(self, *ops: int) -> None:
        self.ops = ops

    def has_ended(self, push: Pushed) -> bool:
        return push.op in self.ops


def push(op: int, tile: tuple[int, int], channel: int = 0, packet: int = 0) -> Pushed:
    return Pushed(op, tile, 1, channel, 0, 1, False, (), "", packet)


def found(ended: Ended, *events: Pushed) -> list[int]:
    overtaking = Overtaking(cast(HappensBefore, ended))
    return [op for event in events for op, *_ in overtaking.observe(event)]


CARRIER, CARRIED = push(3, SHIM), push(3, MEM, packet=1)


def test_a_push_beside_packets_that_may_be_under_way() -> None:
    assert found(Ended(), CARRIER, CARRIED, push(7, MEM)) == [7]


def test_one_finding_for_each_carrier() -> None:
    assert found(Ended(), CARRIER, CARRIED, push(7, MEM), push(8, MEM)) == [7]


@pytest.mark.parametrize(
    "events",
    [
        (CARRIER, push(7, MEM)),  # nothing was sent there
        (CARRIER, CARRIED, push(7, MEM, channel=1)),  # but to another queue
        (CARRIER, CARRIED, push(5, SHIM), push(5, MEM, packet=1)),  # one packet behind the other
    ],
)
def test_what_cannot_be_overtaken(events: tuple[Pushed, ...]) -> None:
    assert not found(Ended(), *events)


def test_a_carrier_that_has_ended() -> None:
    assert not found(Ended(3), CARRIER, CARRIED, push(7, MEM))


def test_other_events_are_none_of_its_business() -> None:
    overtaking = Overtaking(cast(HappensBefore, Ended()))
    assert not list(overtaking.observe(cast(TokenWait, object())))
