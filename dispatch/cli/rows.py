# SPDX-License-Identifier: Apache-2.0
"""Rows below each other, without lines, as wide as a terminal: whole words, and names that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.cells import cell_len

_LEAST_NAME = 24  # cells of the first column, where names are longer: other columns make room for it
_HEADS = (0.5, 0.0, 0.25, 0.75)  # shares of a shortened name that come from its beginning, the best first
_TIGHTER = ((False, 2), (False, 1), (True, 1))  # whether heads take several lines; gaps of so many cells


@dataclass(frozen=True)
class _Layout:
    """Columns that are shown, each with the lines of its head; ``room`` is what the first may take."""

    heads: list[list[str]]
    cells: list[list[str]]
    left: list[bool]
    gap: int
    width: int
    dropped: list[str]  # heads of columns that are not shown

    def width_of(self, column: int) -> int:
        return max(map(cell_len, (*self.heads[column], *self.cells[column])), default=0)

    @property
    def room(self) -> int:
        return self.width - sum(self.width_of(column) + self.gap for column in range(1, len(self.cells)))

    @property
    def fits(self) -> bool:
        return self.room >= min(self.width_of(0), _LEAST_NAME)

    def lines(self) -> tuple[list[str], list[str]]:
        """Those of the head, and one for each row."""
        names = distinct(self.cells[0], max(self.room, _LEAST_NAME))
        cells = [names, *self.cells[1:]]
        first = max(map(cell_len, (*self.heads[0], *names)))
        widths = [first, *map(self.width_of, range(1, len(cells)))]
        heads, rows = zip_longest(*self.heads, fillvalue=""), zip(*cells, strict=True)
        return [self._line(row, widths) for row in heads], [self._line(row, widths) for row in rows]

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        padded = (
            cell + " " * (width - cell_len(cell)) if left else " " * (width - cell_len(cell)) + cell
            for cell, width, left in zip(row, widths, self.left, strict=True)
        )
        return (" " * self.gap).join(padded).rstrip()


def fitted(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    left: Sequence[int] = (0,),
    droppable: Sequence[Sequence[int]] = (),
) -> tuple[list[str], list[str], list[str]]:
    """Lines of heads, lines of rows, and heads of the columns that ``width`` cells have no room for.

    Columns at ``left`` are to the left. What does not fit gets narrower gaps, then heads of several lines,
    then loses groups of columns, those that are ``droppable`` first; in the end names of the first column
    are shortened.
    """
    layouts = list(_layouts(heads, rows, width, left, droppable))
    chosen = next((one for one in layouts if one.fits), layouts[-1])
    return *chosen.lines(), chosen.dropped


def _layouts(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    left: Sequence[int],
    droppable: Sequence[Sequence[int]],
) -> Iterator[_Layout]:
    """From the widest to the narrowest."""
    for count in range(len(droppable) + 1):
        gone = {index for group in droppable[:count] for index in group}
        kept = [index for index in range(len(heads)) if index not in gone]
        cells, sides = [[row[index] for row in rows] for index in kept], [index in left for index in kept]
        for folds, gap in _TIGHTER:
            titles = [heads[index].split(" ") if folds else [heads[index]] for index in kept]
            yield _Layout(titles, cells, sides, gap, width, [heads[index] for index in sorted(gone)])


def distinct(names: Sequence[str], width: int) -> list[str]:
    """The names in ``width`` cells at most: without a part of each, so that as many as can be differ."""
    each = [[shortened(name, width, head) for name in names] for head in _HEADS]
    return max(each, key=lambda one: len(set(one)))


def shortened(word: str, width: int, head: float = 0.5) -> str:
    """The word without a part, where it is longer than ``width`` cells: its middle, or what lies behind the
    share ``head`` of what stays."""
    if cell_len(word) <= width or width < 5:
        return word
    begin = int((width - 1) * head)
    return f"{word[:begin]}…{word[len(word) - (width - 1 - begin) :]}"
