# SPDX-License-Identifier: Apache-2.0
"""Random GraphDefs: small, valid, with data for their placeholders."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tests.tensorflow.graphdefs import GraphBuilder, Tensor

UNARY = ("Neg", "Relu", "Identity", "Square", "Shape", "Size", "Rank", "IsFinite")
BINARY = ("AddV2", "Mul", "Maximum", "Less", "SquaredDifference")
SEVERAL = ("TopKV2", "Split", "Unpack", "IdentityN", "ShapeN")


class Grown:
    """A GraphDef that grows by random nodes over floats [2, 4], with tensors of other kinds at its ends."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.b = GraphBuilder()
        self.feed = {}
        self.floats: list[str] = []
        for i in range(self.rng.randint(1, 3)):
            data = np.random.default_rng([seed, i]).standard_normal((2, 4)).astype(np.float32)
            if self.rng.random() < 0.5:
                self.floats.append(self.b.placeholder(f"x{i}", "float32", [2, None]))
                self.feed[f"x{i}"] = data
            else:
                self.floats.append(self.b.const(f"c{i}", data, typed=self.rng.random() < 0.5))
        for _ in range(self.rng.randint(1, 12)):
            self.grow()

    def pick(self) -> str:
        """A tensor, now and then by its long name."""
        name = self.rng.choice(self.floats)
        if ":" in name or self.rng.random() < 0.7:
            return name
        return Tensor.of(f"{name}:0", np.dtype(np.float32))

    def grow(self) -> None:
        op = self.rng.choice((*UNARY, *BINARY, *SEVERAL))
        operands: list[Any] = [self.pick() for _ in range(2 if op in BINARY else 1)]
        more: dict[str, Any] = {}
        match op:
            case "TopKV2":
                operands.append(np.int32(4))
            case "Split":
                operands, more = [np.int32(0), operands[0]], {"num_split": 2}
            case "Unpack":
                more = {"num": 2}
            case "IdentityN" | "ShapeN":
                operands = [[self.pick() for _ in range(3)]]
        before = [node.name for node in self.b.made.node if node.op not in ("Const", "Placeholder")]
        control = self.rng.sample(before, min(len(before), 1))
        made = self.b.op(op, *operands, control=control, **more)
        if op in ("Neg", "Relu", "Identity", "Square", "AddV2", "Mul", "Maximum", "SquaredDifference"):
            self.floats.append(made)
        elif op in ("IdentityN", "TopKV2"):
            self.floats += [tensor for tensor in made if tensor.dtype == np.float32]
