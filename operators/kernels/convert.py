# SPDX-License-Identifier: Apache-2.0
"""Elements of one type as elements of another."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DType
from onedispatch.operators.interface.operator import TensorSpec
from onedispatch.operators.kernels.movement import Repack

Array = np.ndarray[Any, Any]


class Convert(Repack):
    """A ``Move`` of values, each rounded to the output's type."""

    kind = "convert"

    def row_of(self, tensor: TensorSpec) -> DType:
        return tensor.element

    def bits(self, array: Array) -> Array:
        return array
