# SPDX-License-Identifier: Apache-2.0
"""What ``local`` of a layer is given: the tile of a kernel's body, with parameters and actual sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onedispatch.operators.plugin.body import Tile
from onedispatch.operators.plugin.instance_checks import is_size
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions.base.text import span

_MOVES = frozenset({"copy", "fill", "local", "call", "load", "store"})


class LayerTile:
    """``Tile`` with ``params`` and ``resize``; everything else is the tile's."""

    def __init__(self, tile: Tile, params: Any, ends: str) -> None:
        object.__setattr__(self, "_tile", tile)
        object.__setattr__(self, "params", params)
        object.__setattr__(self, "_ends", ends)  # the names of results that say the sizes of others

    def begin(self) -> None:
        """Every result is as large as planned until ``resize`` says less."""
        for name, values in vars(self._tile).items():
            if name.endswith(self._ends):
                values[...] = self._planned(name)

    def _planned(self, name: str) -> Sequence[int]:
        result = getattr(self._tile, name.removesuffix(self._ends))
        return result.shape or (1,)

    def resize(self, name: str, shape: int | Sequence[int]) -> None:
        """Says how much of a result there is, from its beginning on.

        Raises ``KernelError`` for a result whose shape is not dynamic, or more than was planned.
        """
        sizes = getattr(self._tile, name + self._ends, None) if isinstance(name, str) else None
        where = f"resize({name!r}, {shape!r})"
        if sizes is None:
            accepted = "a result of a layer whose output_shape_is_dynamic"
            raise refusal("parameter_invalid", where, "no such result", accepted)
        wanted = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
        planned = tuple(self._planned(name + self._ends))
        if len(wanted) != len(planned):
            raise refusal("output_size", where, f"rank {len(wanted)}", f"rank {len(planned)}")
        for d, (size, most) in enumerate(zip(wanted, planned, strict=True)):
            if not is_size(size) or not 0 <= size <= most:
                accepted = f"{span(0, most)}, the planned size"
                raise refusal("output_size", f"{where}, dimension {d}", repr(size), accepted)
        sizes[...] = wanted

    def __getattr__(self, name: str) -> Any:
        if name in _MOVES:
            accepted = "work on t.<operand>, which lies in the core's memory; moves are for global_"
            raise refusal("not_supported", f"t.{name} in local", "a move of data", accepted)
        return getattr(self._tile, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._tile, name, value)
