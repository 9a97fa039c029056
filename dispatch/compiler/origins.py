# SPDX-License-Identifier: Apache-2.0
"""Which constants of a model's graph the constants of its device steps are copies of."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from onedispatch.dispatch.compiler.executable import ConstantCopy
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.scheduling.packing import PackedCopy, address_of

_SMALL = 1 << 16  # bytes of what is computed, as biases are, and lies beside each of many chunks
_Place = tuple[int, int, str, Array | None]  # address, bytes, name of the constant, what scales it


class Origins:
    """The constants of a graph, found by where they are in memory: what passes have computed is none."""

    def __init__(self, constants: Mapping[str, Array]) -> None:
        held = [(name, array) for name, array in constants.items() if _plain(array)]
        self._places = sorted((address_of(array), array.nbytes, name) for name, array in held)

    def named(self, copies: Iterable[PackedCopy], read: Iterable[TensorSpec]) -> Iterator[ConstantCopy]:
        """The copies from constants of the graph, by their names; some may be from those that were scaled for
        one of the tensors that are ``read``."""
        scaled = list(self._scaled(read))
        for source, copy in copies:
            at = address_of(source) + copy.source
            for start, size, name, factors in (*self._before(at), *scaled):
                if start <= at and at + copy.reach <= start + size:
                    yield ConstantCopy(name, replace(copy, source=at - start), factors)
                    break
            else:
                if source.nbytes <= _SMALL:
                    yield ConstantCopy("", copy, own=source)

    def _before(self, at: int) -> Iterator[_Place]:
        """The last constant that begins there or before."""
        index = bisect_right(self._places, at, key=lambda place: place[0]) - 1
        if index >= 0:
            yield (*self._places[index], None)

    def _scaled(self, read: Iterable[TensorSpec]) -> Iterator[_Place]:
        """Where constants lie that were scaled."""
        for spec in read:
            if spec.scaled is None or spec.value is None or not _plain(spec.scaled.constant):
                continue
            at = address_of(spec.scaled.constant)
            for start, size, name, _ in self._before(at):
                if (start, size) == (at, spec.value.nbytes):
                    yield address_of(spec.value), size, name, spec.scaled.factors


def _plain(array: Array) -> bool:
    return (
        isinstance(array, np.ndarray)
        and bool(array.size)
        and array.flags.c_contiguous
        and not array.dtype.hasobject
    )
