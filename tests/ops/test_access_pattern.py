# SPDX-License-Identifier: Apache-2.0
"""``chunk_tasks``: whatever the chunks, the tasks touch exactly their words, in order, within the
limits of a shim DMA; and the descriptors written for them mean the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onedispatch.operators.emission.flow import _shim_words
from onedispatch.operators.scheduling import access_pattern
from onedispatch.operators.scheduling.access_pattern import Dims, Pattern, addresses, chunk_tasks
from onedispatch.transactions import ShimBd
from tests.ops.case import Array

MOST_WORDS = 60_000
DETERMINISTIC = settings(max_examples=300, derandomize=True, deadline=None, database=None)

COUNT = st.one_of(st.integers(1, 6), st.sampled_from([31, 64, 65, 257, 1023, 1024, 1031, 2048, 4099]))
STRIDE = st.one_of(
    st.integers(1, 9), st.sampled_from([64, 1000, 4099, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
)


@st.composite
def boxes(draw: st.DrawFn) -> Dims:
    """A box, dense in its innermost dimension more often than not."""
    counts = draw(st.lists(COUNT, min_size=1, max_size=4).filter(lambda c: np.prod(c) <= 6000))
    first = draw(st.sampled_from([1, 1, 1, 2, 7]))
    return tuple((n, first if d == 0 else draw(STRIDE)) for d, n in enumerate(counts))


@st.composite
def offset_lists(draw: st.DrawFn, operands: int) -> Array:
    """Nested progressions, as schedules make them, with an irregular tail now and then."""
    levels = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    columns = []
    for _ in range(operands):
        column = np.array([draw(st.integers(0, 5000))])
        for count in levels:
            step = draw(st.one_of(st.sampled_from([0, 0, 1]), STRIDE))
            column = (np.arange(count)[:, None] * step + column).reshape(-1)
        tail = draw(st.lists(st.integers(0, 9000), max_size=2))
        columns.append((column, tail))
    length = min(len(tail) for _, tail in columns)
    return np.stack([np.concatenate([column, tail[:length]]) for column, tail in columns], axis=-1).astype(
        np.int64
    )


@st.composite
def feeds(draw: st.DrawFn) -> tuple[Array, list[Dims]]:
    parts = draw(st.lists(boxes(), min_size=1, max_size=3))
    offsets = draw(offset_lists(len(parts)))
    size = sum(int(np.prod([count for count, _ in box])) for box in parts)
    return offsets[: max(1, MOST_WORDS // size)], parts


def box_words(box: Dims) -> Array:
    words = np.zeros(1, np.int64)
    for count, stride in reversed(box):
        words = (words[:, None] + np.arange(count) * stride).reshape(-1)
    return words


def naive(offsets: Array, parts: Sequence[Dims]) -> Array:
    words = [box_words(box) for box in parts]
    return np.concatenate([at + own for row in offsets for at, own in zip(row, words, strict=True)])


@DETERMINISTIC
@given(feeds())
def test_tasks_touch_exactly_the_words_of_the_chunks(feed: tuple[Array, list[Dims]]) -> None:
    offsets, parts = feed
    tasks = list(chunk_tasks(offsets, parts))
    np.testing.assert_array_equal(addresses(tasks), naive(offsets, parts))


@DETERMINISTIC
@given(feeds())
def test_tasks_respect_the_limits_of_a_shim_dma(feed: tuple[Array, list[Dims]]) -> None:
    offsets, parts = feed
    position = 0
    for task in chunk_tasks(offsets, parts):
        assert position - 1 <= task.first <= position  # a chunk cut into pieces repeats its number
        position = task.first + task.chunks
        assert 1 <= task.repeat <= 256
        assert 1 <= len(task.patterns) <= len(parts) and len(task.operands) == len(task.patterns)
        for pattern in task.patterns:
            assert 1 <= len(pattern.dims) <= 3
            assert all(1 <= stride <= 1 << 20 for _, stride in pattern.dims)
            assert all(count <= 1023 for count, _ in pattern.dims[:-1])
            assert 1 <= pattern.iteration[0] <= 64 and 0 <= pattern.iteration[1] <= 1 << 20
    assert position == len(offsets)


@DETERMINISTIC
@given(feeds())
def test_descriptors_mean_their_patterns(feed: tuple[Array, list[Dims]]) -> None:
    """A shim BD's own fields, read as the hardware does, give the addresses of its pattern."""
    offsets, parts = feed
    seen: set[Pattern] = set()
    for task in list(chunk_tasks(offsets, parts))[:20]:
        seen.update(task.patterns)
    for pattern in seen:
        bd = ShimBd.from_words(_shim_words(pattern.dims, pattern.iteration, None))
        assert bd.length == pattern.words and bd.valid == 1 and bd.use_next == 0
        index = np.arange(bd.length)
        first = bd.d0_wrap or bd.length
        second = bd.d1_wrap or -(-bd.length // first)
        words = index % first * bd.d0_step
        words = words + index // first % second * bd.d1_step + index // (first * second) * bd.d2_step
        np.testing.assert_array_equal(words, box_words(pattern.dims))
        if pattern.iteration[0] > 1:
            assert (bd.iteration_wrap, bd.iteration_step) == pattern.iteration


def test_no_chunks_make_no_tasks() -> None:
    assert list(chunk_tasks(np.zeros((0, 1), np.int64), [((4, 1),)])) == []
    assert addresses([]).size == 0


def test_a_chain_is_found_without_a_look_at_all_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of chunks of two operands: each chain takes some of them, and looks at as many."""
    chunks, levels, looked = 1 << 14, access_pattern._regular_levels, []

    def counted(offsets: Array, most: int) -> list[tuple[int, Array]]:
        looked.append(len(offsets))
        return levels(offsets, most)

    monkeypatch.setattr(access_pattern, "_regular_levels", counted)
    offsets = np.stack([np.arange(chunks) % 512 * 8, np.arange(chunks) * 4], axis=-1)
    tasks = list(chunk_tasks(offsets, [((8, 1),), ((4, 1),)]))
    assert sum(task.chunks for task in tasks) == chunks == sum(looked)
    parts = offsets[:, 0, None] + np.arange(8), offsets[:, 1, None] + np.arange(4)
    np.testing.assert_array_equal(addresses(tasks), np.concatenate(parts, axis=1).reshape(-1))


@pytest.mark.parametrize("regular", [1, 63, 64, 65, 319, 320, 321, 1500])
def test_a_progression_ends_where_it_breaks(regular: int) -> None:
    offsets = np.concatenate([np.arange(regular) * 8, np.arange(700) * 12 + 100_000])[:, None]
    tasks = list(chunk_tasks(offsets, [((8, 1),)]))
    np.testing.assert_array_equal(addresses(tasks), (offsets + np.arange(8)).reshape(-1))
    assert len(tasks) <= 3
