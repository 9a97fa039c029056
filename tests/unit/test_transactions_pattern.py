# SPDX-License-Identifier: Apache-2.0
"""How far a BD reaches, against a list of the words that it touches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onedispatch.transactions import MemBd, ShimBd, Transaction, TransactionBuilder
from onedispatch.transactions.analysis.effects import bd_pattern
from onedispatch.transactions.analysis.validation import patched_bds


def touched(wraps: list[int], steps: list[int], length: int) -> list[int]:
    """Word offsets in order, the outermost dimension without end."""
    found = []
    for word in range(length):
        at, left = 0, word
        for wrap, step in zip(wraps, steps, strict=False):
            at += left % wrap * step
            left //= wrap
        found.append(at + left * steps[-1])
    return found


@given(
    st.lists(st.integers(1, 5), min_size=3, max_size=3),
    st.lists(st.integers(1, 60), min_size=4, max_size=4),
    st.integers(1, 200),
)
def test_extent_is_that_of_the_words(wraps: list[int], steps: list[int], length: int) -> None:
    fields = {f"d{i}_wrap": wrap for i, wrap in enumerate(wraps)}
    fields |= {f"d{i}_step": step for i, step in enumerate(steps)}
    words = tuple(MemBd(length=length, valid=1, **fields).to_words())
    assert bd_pattern("mem", words).extent() == max(touched(wraps, steps, length)) + 1


@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=2),
    st.lists(st.integers(1, 60), min_size=3, max_size=3),
    st.integers(0, 200),
)
def test_argument_bounds_use_the_same_extent(wraps: list[int], steps: list[int], length: int) -> None:
    fields = {f"d{i}_wrap": wrap for i, wrap in enumerate(wraps)}
    fields |= {f"d{i}_step": step for i, step in enumerate(steps)}
    words = tuple(ShimBd(length=length, valid=1, **fields).to_words())
    made = TransactionBuilder(4, 1)
    made.blockwrite(0x1D000, words)
    made.ddr_patch(0x1D004, 0, 0)
    _, extents = patched_bds(Transaction.from_bytes(made.to_bytes()))
    ends = max(touched([wrap or 1000 for wrap in wraps], steps, length), default=-1)
    assert extents.tolist() == [4 * (ends + 1)] == [4 * bd_pattern("shim", words).extent()]
