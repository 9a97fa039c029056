# SPDX-License-Identifier: Apache-2.0
"""A case of a rule for TensorFlow: a node with data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.tensorflow.graphdefs import GraphBuilder

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Fed:
    """An operand that is given when the model runs; others are constants. ``free``: of any first size."""

    value: Array
    free: bool = False


@dataclass(frozen=True)
class Case:
    """A node. A list among the operands is a list of tensors."""

    op: str
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def __str__(self) -> str:
        return f"{self.op}-{self.note}" if self.note else self.op

    def graphdef(self) -> tuple[Any, list[str], dict[str, Array]]:
        """The model, its outputs, and its feed."""
        b, feed = GraphBuilder(), dict[str, Array]()

        def tensor(given: Any) -> Any:
            if isinstance(given, list) and any(isinstance(one, Fed | np.ndarray) for one in given):
                return [tensor(one) for one in given]
            if isinstance(given, Fed):
                name = f"x{len(feed)}"
                feed[name] = given.value
                shape: list[int | None] = list(given.value.shape)
                if given.free:
                    shape[0] = None
                return b.placeholder(name, given.value.dtype, shape)
            return b.const(f"c{len(b.made.node)}", _array(given))

        made = b.op(self.op, *map(tensor, self.operands), name="node", **self.attributes)
        return b.graphdef(), list(made) if isinstance(made, tuple) else [made], feed


def _array(given: Any) -> Array:
    array = np.asarray(given)
    if isinstance(given, np.ndarray | np.generic):
        return array
    return array.astype({"i": np.int32, "f": np.float32}.get(array.dtype.kind, array.dtype))


def data(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Normal numbers; of integers from -9 to 9."""
    rng = np.random.default_rng([seed, *shape])
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0 if np.dtype(dtype).kind == "u" else -9, 10, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def fed(*shape: int, seed: int = 0, dtype: Any = np.float32, free: bool = False) -> Fed:
    return Fed(data(*shape, seed=seed, dtype=dtype), free)


def whole(*shape: int, seed: int = 0, dtype: Any = np.int32) -> Fed:
    return fed(*shape, seed=seed, dtype=dtype)


def flags(*shape: int, seed: int = 0) -> Fed:
    return Fed(data(*shape, seed=seed) > 0)


def case(op: str, *operands: Any, note: str = "", **attributes: Any) -> Case:
    return Case(op, operands, attributes, note)
