# SPDX-License-Identifier: Apache-2.0
"""Slices of a layer's tensors: what backward says is enough for what forward gives, for any access."""

from __future__ import annotations

from fractions import Fraction

import hypothesis.strategies as st
from hypothesis import given

from onedispatch.operators.layers.slices import Along, Slice
from onedispatch.operators.plugin.instance import Interval

STEPS = st.sampled_from([1, 2, 3, 5, Fraction(1, 2), Fraction(2, 3), -1, 0])


@st.composite
def alongs(draw: st.DrawFn) -> Along:
    members = draw(st.integers(1, 12))
    block = draw(st.integers(1, 4))
    start = draw(st.integers(-4, 4))
    source = Interval(0, draw(STEPS), start, start + draw(st.integers(0, 4)))
    source = draw(st.sampled_from([source, Interval()]))
    extent = draw(st.integers(1, 40))
    return Along(source, Interval(0, block, 0, block - 1), members, extent, members * block)


def _touched(where: Along, out: Slice) -> set[int]:
    """What members that write one of ``out`` touch of the input, one after the other."""
    if where.source.whole:
        return set(range(where.extent))
    found: set[int] = set()
    for member in range(where.members):
        written = where.target.first(member)
        if written < out.end and out.first < written + where.target.span:
            first = where.source.first(member)
            found |= set(range(first, first + where.source.span))
    return found & set(range(where.extent))


@given(alongs(), st.data())
def test_backward_has_what_members_touch_and_forward_gives_it_back(where: Along, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, where.out_extent - 1))
    out = Slice(first, data.draw(st.integers(1, where.out_extent - first)))
    needed = where.backward(out)
    assert _touched(where, out) <= set(range(needed.first, needed.end))
    assert where.forward(needed).covers(out, where.out_extent)


@given(alongs(), st.data())
def test_forward_gives_nothing_that_lacks_its_input(where: Along, data: st.DataObject) -> None:
    first = data.draw(st.integers(-2, where.extent - 1))
    there = Slice(first, data.draw(st.integers(0, where.extent - first)))
    if where.source.whole or Fraction(where.source.a) <= 0:
        return  # all of the input, or places that lie apart
    made = where.forward(there)
    assert _touched(where, made) <= set(range(there.first, there.end)) or not made.size
