# SPDX-License-Identifier: Apache-2.0
"""Errors of one value over any number of samples: signal-to-noise ratio, cosine, the largest, top-1."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Graph
from onedispatch.dispatch.tools.differences import errors_of, largest_of, share_of
from onedispatch.operators.declarations.functions import ACTIVATIONS


@dataclass
class Noise:
    """One kind of error of a value: its largest, and the sum of its squares."""

    largest: float = 0.0
    squares: float = 0.0

    def add(self, one: Array, other: Array) -> None:
        errors = errors_of(one, other) if one.shape == other.shape else np.full(1, np.inf)
        self.largest = max(self.largest, float(errors.max(initial=0.0)))
        self.squares += float(np.square(errors).sum())


@dataclass
class Tally:
    """A value's numbers beside the reference's, over all samples so far.

    ``total`` is the error of a run, ``own`` that of the node fed with the reference's inputs, ``inherited``
    what changes between the two.
    """

    samples: int = 0
    largest: float = 0.0  # of the reference
    squares: float = 0.0  # of the reference
    total: Noise = field(default_factory=Noise)
    own: Noise | None = None
    inherited: Noise | None = None
    _product: float = 0.0
    _mine: float = 0.0
    rows: int = 0  # of outputs that are classes
    same_class: int = 0

    def add(self, mine: Array, theirs: Array, alone: Array | None = None) -> None:
        """One sample: of the run, of the reference, and of the node fed with the reference's inputs."""
        self.samples += 1
        self.largest = max(self.largest, largest_of(theirs))
        self.total.add(mine, theirs)
        if alone is not None:
            self.own, self.inherited = self.own or Noise(), self.inherited or Noise()
            self.own.add(alone, theirs)
            self.inherited.add(mine, alone)
        if mine.shape != theirs.shape:
            return
        a, b = mine.astype(np.float64).ravel(), theirs.astype(np.float64).ravel()
        finite = np.isfinite(a) & np.isfinite(b)
        a, b = a[finite], b[finite]
        self.squares += float(b @ b)
        self._product += float(a @ b)
        self._mine += float(a @ a)

    def add_classes(self, mine: Array, theirs: Array) -> None:
        """Whether each row of scores, along the last dimension, names the same class."""
        same = mine.argmax(-1) == theirs.argmax(-1)
        self.rows += same.size
        self.same_class += int(np.count_nonzero(same))

    def relative(self, noise: Noise | None) -> float | None:
        """The largest error as a share of the reference's largest number."""
        if noise is None:
            return None
        return share_of(noise.largest, self.largest)

    def snr(self, noise: Noise | None) -> float | None:
        """Signal-to-noise ratio in decibels: infinite without an error."""
        if noise is None:
            return None
        if not noise.squares:
            return math.inf
        ratio = self.squares / noise.squares
        return 10 * math.log10(ratio) if ratio else -math.inf

    @property
    def cosine(self) -> float:
        """Of the two as vectors; 1 for two of zeros."""
        norm = math.sqrt(self._mine * self.squares)
        return self._product / norm if norm else float(self._mine == self.squares)

    def as_dict(self) -> dict[str, float | None]:
        """Errors as shares of the reference's largest number, ratios in decibels."""
        return {
            "own": self.relative(self.own),
            "inherited": self.relative(self.inherited),
            "snr": self.snr(self.total),
            "own_snr": self.snr(self.own),
            "cosine": self.cosine,
            "agreement": self.agreement,
        }

    @property
    def agreement(self) -> float | None:
        """The share of rows with the same class; None for what is no class."""
        return self.same_class / self.rows if self.rows else None


# Functions of one tensor, whose results are no scores; but Log, which ends classifiers behind a Softmax.
_FUNCTIONS = frozenset(row.onnx for row in ACTIVATIONS.rows) - {"Log", ""} | {"Clip"}
_PASSED = frozenset(
    ("QuantizeLinear", "DequantizeLinear", "Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
)


def maker_of(graph: Graph, name: str) -> str:
    """The type of the node that computes a value, before those that hand its numbers on; "" for none."""
    makers = {written: node for node in graph.nodes for written in node.writes}
    node = makers.get(name)
    while node is not None and node.op_type in _PASSED:
        node = makers.get(node.inputs[0])
    return "" if node is None else node.op_type


def class_scores(name: str, array: Array, maker: str = "") -> Array | None:
    """An output with a score for each class in its last dimension; None for others.

    These are floats of two dimensions, beside those of 1 at the end, that no function of one tensor, as Relu,
    makes (``maker``); and what is called logits.
    """
    called = "logits" in name.lower()
    if maker in _FUNCTIONS and not called:
        return None
    rank = array.ndim
    while rank > 2 and array.shape[rank - 1] == 1:
        rank -= 1
    scores = array.reshape(array.shape[:rank])
    if array.dtype.kind != "f" or rank < 2 or scores.shape[-1] < 2:
        return None
    return scores if rank == 2 or called else None
