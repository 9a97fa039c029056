# SPDX-License-Identifier: Apache-2.0
"""How much an operator does: operations of products and convolutions, else bytes that it reads and makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tests.ops.case import Case

Array = np.ndarray[Any, Any]
_PRODUCTS = ("MatMul", "MatMulInteger", "QLinearMatMul", "Gemm")
_WEIGHTS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3, "ConvTranspose": 1}  # which operand they are


@dataclass(frozen=True)
class Work:
    """Of one run; ``unit`` is of a rate: thousands of millions a second."""

    amount: float
    unit: str

    def rate(self, milliseconds: float) -> str:
        return f"{self.amount / milliseconds / 1e6:.1f}"


def work_of(case: Case, outputs: Sequence[Any]) -> Work:
    operands = [array for array in case.arrays if array is not None]
    made = [array for array in outputs if isinstance(array, np.ndarray)]
    if case.op_type in _PRODUCTS:
        transposed = case.op_type == "Gemm" and case.attributes.get("transA", 0)
        return Work(2.0 * made[0].size * operands[0].shape[0 if transposed else -1], "Gop/s")
    if case.op_type in _WEIGHTS:
        windows = operands[0] if case.op_type == "ConvTranspose" else made[0]
        taps = prod(operands[_WEIGHTS[case.op_type]].shape[1:])
        return Work(2.0 * windows.size * taps, "Gop/s")
    return Work(float(sum(array.nbytes for array in (*operands, *made))), "GB/s")
