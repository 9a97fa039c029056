# SPDX-License-Identifier: Apache-2.0
"""Operators for some rows of a result at a time, and what these results together are: nothing is moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.interface.operator import Operator, WholeCopy
from onedispatch.operators.scheduling.nest import Nest


class Band(Operator):
    """What ``whole`` does for some rows of its result: ``nest`` is a part of its one nest.

    Tensors are those of ``whole``, or such as have the rows of this band alone. What several bands compute
    (halos) each of them counts as its work.
    """

    merges = ()

    def __init__(
        self, whole: Operator, number: int, inputs: Sequence[TensorSpec], output: TensorSpec, nest: Nest
    ) -> None:
        super().__init__(f"{whole.name}, band {number + 1}", inputs, output, whole.device, whole.activation)
        self.whole, self.nest, self.kind = whole, nest, whole.kind  # type: ignore[misc]

    def nests(self) -> list[Nest]:
        return [self.nest]

    def count_macs(self) -> int:
        """Those of ``whole``, by the share of its index space."""
        (whole,) = self.whole.plain_nests
        return self.whole.count_macs() * _members(self.nest) // _members(whole)

    def packed_parts(self, operand: str) -> Sequence[np.ndarray[Any, Any]]:
        return self.whole.packed_parts(operand)


class JoinedBands(Operator):
    """The result of ``whole``, of which each of ``bands`` wrote some rows where the whole has them."""

    kind = "bands"

    def __init__(self, whole: Operator, bands: Sequence[TensorSpec], said: str) -> None:
        super().__init__(whole.name, bands, whole.output, whole.device)
        self.said = said
        self.elided = tuple(WholeCopy(number, 0) for number in range(len(bands)))
        self.holds = {one.name: 0 for one in bands}

    def nests(self) -> list[Nest]:
        return []

    def explain(self) -> list[str]:
        return [self.said]


def _members(nest: Nest) -> int:
    return int(np.prod([dim.extent for dim in nest.dims], dtype=np.int64))
