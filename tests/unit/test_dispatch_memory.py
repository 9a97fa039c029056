# SPDX-License-Identifier: Apache-2.0
"""The memory planner: alive together means apart, and little is wasted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onedispatch.dispatch.compiler.memory import ALIGNMENT, Interval, aligned, check, most_alive, pack, plan
from onedispatch.transactions.base.errors import OneDispatchError


@st.composite
def intervals(draw: st.DrawFn) -> list[Interval]:
    count = draw(st.integers(0, 40))
    made = []
    for index in range(count):
        first = draw(st.integers(0, 30))
        last = first + draw(st.integers(0, 8))
        made.append(Interval(f"t{index}", draw(st.integers(1, 100_000)), first, last))
    return made


@settings(max_examples=200, deadline=None)
@given(intervals())
def test_tensors_alive_together_never_overlap(tensors: list[Interval]) -> None:
    result = plan(tensors)
    for i, a in enumerate(tensors):
        start = result.offsets[a.name]
        assert start % ALIGNMENT == 0 and start + a.size <= result.size
        for b in tensors[i + 1 :]:
            other = result.offsets[b.name]
            apart = start + a.size <= other or other + b.size <= start
            assert apart or not a.overlaps(b)
    assert most_alive(tensors) <= result.size <= 2 * max(1, most_alive(tensors)) + ALIGNMENT


def test_a_chain_needs_two_tensors() -> None:
    chain = [Interval(f"t{i}", 1000, i, i + 1) for i in range(100)]
    result = plan(chain)
    assert result.size == result.lower_bound == 2 * aligned(1000)


def test_a_residual_network_is_close_to_the_bound() -> None:
    tensors = []
    for block in range(16):
        size, at = 100_000 >> (block // 4), block * 3
        tensors += [
            Interval(f"skip{block}", size, at, at + 3),
            Interval(f"a{block}", size // 4, at + 1, at + 2),
            Interval(f"b{block}", size // 4, at + 2, at + 3),
        ]
    result = plan(tensors)
    assert result.size <= 1.2 * result.lower_bound


def test_the_check_finds_an_overlap() -> None:
    tensors = [Interval("a", 100, 0, 2), Interval("b", 100, 1, 3)]
    check(tensors, {"a": 0, "b": 128})
    with pytest.raises(OneDispatchError, match="a and b"):
        check(tensors, {"a": 0, "b": 64})
    with pytest.raises(OneDispatchError, match="multiples"):
        check(tensors, {"a": 0, "b": 130})


def test_nothing_and_packing() -> None:
    assert plan([]).size == 0
    assert pack([("a", 1), ("b", 65), ("c", 0)]).offsets == {"a": 0, "b": 64, "c": 192}
