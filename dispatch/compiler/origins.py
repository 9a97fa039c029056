# SPDX-License-Identifier: Apache-2.0
"""Which constants of a model's graph the constants of its device steps are copies of."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from onedispatch.dispatch.compiler.executable import ConstantCopy
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.operators.scheduling.packing import PackedCopy, address_of


class Origins:
    """The constants of a graph, found by where they are in memory: what passes have computed is none."""

    def __init__(self, constants: Mapping[str, Array]) -> None:
        held = [(name, array) for name, array in constants.items() if _plain(array)]
        self._places = sorted((address_of(array), array.nbytes, name) for name, array in held)

    def named(self, copies: Iterable[PackedCopy]) -> Iterator[ConstantCopy]:
        """The copies from constants of the graph, by their names."""
        for source, copy in copies:
            at = address_of(source) + copy.source
            index = bisect_right(self._places, at, key=lambda place: place[0]) - 1
            if index < 0:
                continue
            start, size, name = self._places[index]
            if at + copy.reach <= start + size:
                yield ConstantCopy(name, replace(copy, source=at - start))


def _plain(array: Array) -> bool:
    return (
        isinstance(array, np.ndarray)
        and bool(array.size)
        and array.flags.c_contiguous
        and not array.dtype.hasobject
    )
