# SPDX-License-Identifier: Apache-2.0
"""Decisions of one random model, and its nodes before they are written down."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]
NEWEST = onnx.defs.onnx_opset_version()
OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24)
ODD_INTS = (-5, -2, -1, 0, 1, 2, 3, 5, 8, 1 << 40, -(1 << 40))
SMALL_INTS = (-2, -1, 0, 1, 2, 3, 5)
DTYPES = ("float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool")
WIDE_DTYPES = (*["float32"] * 7, "float16", "int32", "int64", "float64", "uint8")
SIZES = (1, 2, 3, 4, 5, 7)


@dataclass
class Tensor:
    """An input of the model: its data, and whether it is an initializer."""

    array: Array
    const: bool = False


@dataclass
class Draft:
    """A node before it is written down. Inputs are new tensors, names of earlier ones, or None."""

    op_type: str
    inputs: list[Tensor | str | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""


class Maker:
    """Decisions for one model."""

    def __init__(self, rng: random.Random, wide: bool = False) -> None:
        self.rng = rng
        self.opset = rng.choice(OPSETS) if rng.random() < 0.9 else rng.choice((NEWEST, 25, 26))
        self.dtype = "float32"  # of data for which a recipe names no other
        if wide:
            self.opset, self.dtype = rng.randint(7, 26), rng.choice(WIDE_DTYPES)
        self.known: dict[str, tuple[int, ...]] = {}  # earlier float values with known shapes

    # -- parts ----------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def shape(self, low: int = 0, high: int = 5) -> tuple[int, ...]:
        rank = self.rng.randint(low, 6 if high == 5 and self.chance(0.1) else high)
        sizes = [self.rng.choice(SIZES) for _ in range(rank)]
        if sizes and self.chance(0.05):
            sizes[self.rng.randrange(rank)] = 0
        return tuple(sizes)

    def data(self, shape: tuple[int, ...], dtype: str = "float32") -> Array:
        numbers = np.random.default_rng(self.rng.getrandbits(32))
        if dtype == "bool":
            return numbers.integers(0, 2, shape).astype(np.bool_)
        if np.dtype(dtype).kind in "iu":
            low = 0 if np.dtype(dtype).kind == "u" else -9
            return numbers.integers(low, 10, shape).astype(dtype)
        return np.asarray(numbers.standard_normal(shape), dtype)

    def tensor(self, *shape: int, dtype: str = "", const: float = 0.3) -> Tensor:
        return Tensor(self.data(tuple(shape), dtype or self.dtype), self.chance(const))

    def ints(self, values: list[int], const: float = 0.9) -> Tensor:
        return Tensor(np.asarray(values, np.int64), self.chance(const))

    def data_input(self, low: int = 0, high: int = 5) -> tuple[Tensor | str, tuple[int, ...]]:
        """The first input: an earlier value where one fits, or a new one."""
        fitting = [name for name, shape in self.known.items() if low <= len(shape) <= high]
        if fitting and self.chance(0.7):
            name = self.rng.choice(fitting)
            return name, self.known[name]
        shape = self.shape(low, high)
        return self.tensor(*shape, const=0.1), shape

    def axis(self, rank: int) -> int:
        return self.rng.randrange(-rank, rank) if rank else 0

    def axes(self, rank: int) -> list[int]:
        count = self.rng.randint(1, rank) if rank else 0
        chosen = sorted(self.rng.sample(range(rank), count))
        return [a - rank if self.chance(0.3) else a for a in chosen]
