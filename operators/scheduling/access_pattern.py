# SPDX-License-Identifier: Apache-2.0
"""From a sequence of chunks in device memory to shim DMA tasks.

A chunk is a box: ``(count, stride)`` pairs in 32-bit words, innermost first. A feed is a
sequence of equal boxes at given offsets. Long regular stretches of the sequence become one
task: further buffer-descriptor dimensions, the iteration dimension, and task repeats.

Limits are those of the shim's descriptors and queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from onedispatch.transactions.machine import registers as reg

_FIELDS = reg.SHIM.bd_field
MAX_WRAP = _FIELDS["d0_wrap"].maximum
MAX_STEP = _FIELDS["d0_step"].maximum
MAX_DIMS = 3
MAX_ITERATION = _FIELDS["iteration_wrap"].maximum
MAX_REPEAT = reg.field_of(reg.QUEUE_FIELDS, "repeat").maximum
MAX_CHAIN = 4  # descriptors of one task
_FEW_ROWS = 64  # that are compared first
_KEPT_ROWS, _KEPT = 256, 1024  # length and number of the sequences whose tasks are kept

Dims = tuple[tuple[int, int], ...]  # (count, stride in words), innermost first


@dataclass(frozen=True)
class Pattern:
    """One buffer descriptor's addresses: a base, up to three dimensions, one iteration."""

    base: int  # words
    dims: Dims
    iteration: tuple[int, int] = (1, 0)  # (wrap, step in words)

    @property
    def words(self) -> int:
        return prod(count for count, _ in self.dims)

    def moved(self, words: int) -> Pattern:
        return Pattern(self.base + words, self.dims, self.iteration)


@dataclass(frozen=True)
class ChunkTask:
    """Patterns run as one chain, ``repeat`` times; covers ``chunks`` of the sequence from ``first``."""

    first: int
    chunks: int
    patterns: tuple[Pattern, ...]
    repeat: int
    operands: tuple[int, ...] = (0,)  # which operand each pattern belongs to


def merge(dims: Sequence[tuple[int, int]]) -> Dims:
    """The same addresses with neighbours joined and single steps dropped."""
    merged: list[tuple[int, int]] = []
    for count, stride in dims:
        if count == 1:
            continue
        if merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1] = (merged[-1][0] * count, merged[-1][1])
        else:
            merged.append((count, stride))
    return tuple(merged) or ((1, 1),)


@lru_cache(_KEPT)
def encodable(dims: Dims) -> Dims | None:
    """``dims`` merged and cut to the descriptor's limits, or None where they do not fit.

    The outermost dimension has no wrap; an inner one beyond ``MAX_WRAP`` is cut into two.
    """
    result: list[tuple[int, int]] = []
    joined = merge(dims)
    for position, (count, stride) in enumerate(joined):
        if stride > MAX_STEP or stride < 1:
            return None
        if position == len(joined) - 1 or count <= MAX_WRAP:
            result.append((count, stride))
            continue
        low = next((f for f in range(MAX_WRAP, 0, -1) if count % f == 0), 1)
        if low == 1 or count // low > MAX_WRAP or low * stride > MAX_STEP:
            return None
        result += [(low, stride), (count // low, low * stride)]
    return tuple(result) if len(result) <= MAX_DIMS else None


def _regular(offsets: np.ndarray[Any, Any], covered: int, stride: np.ndarray[Any, Any]) -> int:
    """How many rows from the start on lie ``stride`` before the one ``covered`` behind them.

    Looked for in ever longer parts: short progressions are found without a look at all the rest.
    """
    first, size, rows = 0, _FEW_ROWS, len(offsets) - covered
    while first < rows:
        here = offsets[first : min(first + size, rows)]
        same = (offsets[first + covered : first + covered + len(here)] - here == stride).all(axis=1)
        if not same.all():
            return first + int(np.argmin(same))
        first, size = first + len(here), 4 * size
    return rows


def _regular_levels(offsets: np.ndarray[Any, Any], most: int = 4) -> list[tuple[int, np.ndarray[Any, Any]]]:
    """Nested progressions from the start of ``offsets`` [n, m]: (count, stride per column)."""
    levels: list[tuple[int, np.ndarray[Any, Any]]] = []
    covered = 1
    while covered < len(offsets) and len(levels) < most:
        stride = offsets[covered] - offsets[0]
        if (stride < 0).any():
            break
        count = 1 + _regular(offsets, covered, stride) // covered
        if count == 1:
            break
        levels.append((count, stride))
        covered *= count
    return levels


def _single(
    base: int, box: Dims, levels: list[tuple[int, np.ndarray[Any, Any]]]
) -> tuple[int, tuple[Pattern, ...], int] | None:
    """(chunks covered, the pattern, repeat) for one operand: as many levels as fit."""
    dims, chunks = box, 1
    rest = [(count, int(stride[0])) for count, stride in levels]
    while rest and rest[0][1] > 0 and encodable((*dims, rest[0])):
        chunks *= rest[0][0]
        dims = *dims, rest.pop(0)
    fitted = encodable(dims)
    if fitted is None:
        return None
    iteration, repeat = (1, 0), 1
    if rest and 0 < rest[0][1] <= MAX_STEP:
        count, stride = rest.pop(0)
        full = count <= MAX_ITERATION
        count = min(count, MAX_ITERATION)
        iteration, repeat, chunks = (count, stride), count, chunks * count
        rest = rest if full else []
    if rest and rest[0][1] == 0:
        count = min(rest[0][0], MAX_REPEAT // repeat)
        repeat, chunks = repeat * count, chunks * count
    return chunks, (Pattern(base, fitted, iteration),), repeat


def _chained(
    bases: np.ndarray[Any, Any], boxes: Sequence[Dims], levels: list[tuple[int, np.ndarray[Any, Any]]]
) -> tuple[int, tuple[Pattern, ...], int] | None:
    """The same for several operands in turn: one iteration level only."""
    fitted = [encodable(box) for box in boxes]
    if any(dims is None for dims in fitted):
        return None
    repeat, strides = 1, np.zeros(len(boxes), np.int64)
    if levels and (levels[0][1] <= MAX_STEP).all():
        strides = levels[0][1]
        repeat = min(levels[0][0], MAX_ITERATION)
    patterns = tuple(
        Pattern(int(base), dims or (), (repeat, int(stride)) if stride else (1, 0))
        for base, dims, stride in zip(bases, fitted, strides, strict=True)
    )
    return repeat, patterns, repeat


def _peeled(bases: np.ndarray[Any, Any], boxes: Sequence[Dims]) -> Iterator[tuple[int, Pattern]]:
    """One chunk of boxes that no descriptor holds, cut into descriptors that do."""
    for operand, (base, box) in enumerate(zip(bases, boxes, strict=True)):
        dims = merge(box)
        keep = len(dims)
        while keep and encodable(dims[:keep]) is None:
            keep -= 1
        inner = encodable(dims[:keep]) if keep else ((1, 1),)
        offsets = np.zeros(1, np.int64)
        for count, stride in reversed(dims[keep:]):
            offsets = (offsets[:, None] + np.arange(count) * stride).reshape(-1)
        for offset in offsets:
            yield operand, Pattern(int(base + offset), inner or ((1, 1),))


def chunk_tasks(
    offsets: np.ndarray[Any, Any], boxes: Sequence[Dims], longest: int = MAX_CHAIN
) -> Iterator[ChunkTask]:
    """Tasks that move, for every row of ``offsets`` [chunks, operands] (words), all boxes in turn.

    ``longest``: descriptors that a chain may have; more operands go one by one. There may be millions.
    """
    if len(offsets) > _KEPT_ROWS or len(boxes) > longest or None in map(encodable, boxes):
        yield from _tasks(offsets, boxes, longest)
    elif len(offsets):
        # Columns and rows take the same chunks as others do, at places of their own.
        start = offsets[0]
        for task in _tasks_from_zero((offsets - start).tobytes(), tuple(boxes), longest):
            patterns = zip(task.patterns, task.operands, strict=True)
            moved = tuple(pattern.moved(int(start[operand])) for pattern, operand in patterns)
            yield ChunkTask(task.first, task.chunks, moved, task.repeat, task.operands)


@lru_cache(_KEPT)
def _tasks_from_zero(offsets: bytes, boxes: tuple[Dims, ...], longest: int) -> tuple[ChunkTask, ...]:
    rows = np.frombuffer(offsets, np.int64).reshape(-1, len(boxes))
    return tuple(_tasks(rows, boxes, longest))


def _tasks(offsets: np.ndarray[Any, Any], boxes: Sequence[Dims], longest: int) -> Iterator[ChunkTask]:
    position = 0
    while position < len(offsets):
        rest = offsets[position:]
        if len(boxes) > longest:
            found = None
        elif len(boxes) == 1:
            found = _single(int(rest[0, 0]), boxes[0], _regular_levels(rest))
        else:  # a chain cannot go on for longer
            found = _chained(rest[0], boxes, _regular_levels(rest[:MAX_ITERATION], 1))
        if found is None:
            for operand, pattern in _peeled(rest[0], boxes):
                yield ChunkTask(position, 1, (pattern,), 1, (operand,))
            position += 1
            continue
        chunks, patterns, repeat = found
        yield ChunkTask(position, chunks, patterns, repeat, tuple(range(len(boxes))))
        position += chunks


def addresses(tasks: Sequence[ChunkTask]) -> np.ndarray[Any, Any]:
    """Every word address that ``tasks`` touch, in order: the meaning of a task list, for tests."""
    parts = []
    for task in tasks:
        for turn in range(task.repeat):
            for pattern in task.patterns:
                words = np.zeros(1, np.int64)
                for count, stride in reversed(pattern.dims):
                    words = (words[:, None] + np.arange(count) * stride).reshape(-1)
                wrap, step = pattern.iteration
                parts.append(pattern.base + (turn % wrap) * step + words)
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
