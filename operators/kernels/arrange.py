# SPDX-License-Identifier: Apache-2.0
"""Moves whose results get an activation on the way: the last step of operators of several parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.kernels.elementwise import rounded
from onedispatch.operators.kernels.movement import Move

Array = np.ndarray[Any, Any]


class Arrange(Move):
    """A ``Move`` of numbers that applies its activation."""

    kind = "arrange"
    applies_activation = True

    @property
    def takes_activation(self) -> bool:
        return super().takes_activation and self.output.element.is_float

    def reference(self, *arrays: Array) -> Array:
        return rounded(lambda x: self.activation.apply(x), self.output.dtype, super().reference(*arrays))
