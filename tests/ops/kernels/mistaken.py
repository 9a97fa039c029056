# SPDX-License-Identifier: Apache-2.0
"""Kernels with a mistake each, for check mode; two of them are those of published examples."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, ClassVar

import numpy as np

import onedispatch as od

Node = Any
Tile = Any


class Like:
    """The output is like x, unless a kernel says otherwise."""

    def infer(self, n: Node) -> Any:
        return {"z": n["x"].like()}


@od.kernel("wrong::four_rows", inputs="x y", outputs="z")
class FourRows(Like):
    """Published: claims four rows per member while it walks one."""

    examples = ({"x": (2, 8, 5), "y": (2, 8, 5)},)

    def index_space(self, n: Node) -> Any:
        first, rows, columns = n["x"].shape
        return (first, rows // 4, columns)

    def access(self, n: Node) -> Any:
        return dict.fromkeys("xyz", (n.dim(0), n.block(1, 4), n.dim(2)))

    def body(self, t: Tile) -> None:
        t.z[:, ::4] = t.x[:, ::4] + t.y[:, ::4]


@od.kernel("wrong::softmax_rows", inputs="x", outputs="z")
class SoftmaxRows(Like):
    """Published: the index space is not divided by the vector width; writes behind the end are dropped."""

    examples = ({"x": (5, 64)},)

    def index_space(self, n: Node) -> Any:
        return (n["x"].shape[1],)

    def access(self, n: Node) -> Any:
        return dict.fromkeys("xz", (n.whole(), n.block(0, 16)))

    def body(self, t: Tile) -> None:
        e = np.exp(t.x - t.x.max(axis=0))
        t.z[:] = e / e.sum(axis=0)


@od.kernel("wrong::race", inputs="x", outputs="z")
class Race(Like):
    """Two members write each element."""

    examples = ({"x": (6,)},)

    def access(self, n: Node) -> Any:
        return n.access("x", 0) | n.access("z", n.dim(0, 1, 0, 1))

    def body(self, t: Tile) -> None:
        t.z[:] = 0


@od.kernel("wrong::counts", inputs="x", outputs="z")
class Counts(Like):
    """Keeps state between calls."""

    examples = ({"x": (6,)},)
    calls: ClassVar[int] = 0

    def body(self, t: Tile) -> None:
        Counts.calls += 1
        t.z[:] = t.x + Counts.calls


@od.kernel("wrong::boxes", inputs="x", outputs="z")
class Boxes(Like):
    """Gives other results when it runs with its neighbours."""

    examples = ({"x": (6,)},)

    def body(self, t: Tile) -> None:
        t.z[:] = t.x + len(t.x)


@od.kernel("wrong::wide", inputs="x", outputs="z")
class Wide(Like):
    """Declares seven elements and looks at one."""

    examples = ({"x": (3, 20)},)

    def access(self, n: Node) -> Any:
        return n.elementwise("z") | n.access("x", 0, n.dim(1, 1, -3, 3))

    def body(self, t: Tile) -> None:
        t.z[:] = t.x[:, 3:-3]


@od.kernel("wrong::leaves", inputs="x", outputs="z")
class Leaves(Like):
    """Ends the process."""

    def body(self, t: Tile) -> None:
        print("no licence", file=sys.stderr, flush=True)
        os._exit(3)


@od.kernel("wrong::loops", inputs="x", outputs="z")
class Loops(Like):
    """Never ends."""

    def body(self, t: Tile) -> None:
        while True:
            pass


@od.kernel("wrong::loops_elsewhere", inputs="x", outputs="z")
class LoopsElsewhere(Like):
    """Never ends, unless it runs on the main thread."""

    examples = ({"x": (6,)},)

    def body(self, t: Tile) -> None:
        t.z[:] = t.x
        time.sleep(0.01)  # so that it is worth a thread
        while threading.current_thread() is not threading.main_thread():
            pass


TABLE = np.arange(1, 9, dtype=np.float32)  # of this module, that is, of the host's memory


def of_table(values: Any) -> Any:
    return values * TABLE[3]


@od.kernel("wrong::reads_a_global", inputs="x", outputs="z")
class ReadsAGlobal(Like):
    """Multiplies with what no core was brought, through another function."""

    def body(self, t: Tile) -> None:
        t.z[:] = of_table(t.x)


@od.kernel("wrong::reads_itself", inputs="x", outputs="z")
class ReadsItself(Like):
    """Keeps weights in its object."""

    def __init__(self) -> None:
        self.weights = [0.5] * 32

    def body(self, t: Tile) -> None:
        t.z[:] = t.x * np.float32(sum(self.weights))


FACTOR = np.float32(3)  # a constant of the code


@od.kernel("fine::constants", inputs="x", outputs="z")
class Constants(Like):
    """Few numbers are constants of the code."""

    def body(self, t: Tile) -> None:
        coefficients = (0.5, 0.25)
        t.z[:] = FACTOR * t.x + np.float32(coefficients[0])


@od.kernel("wrong::raises", inputs="x", outputs="z")
class Raises(Like):
    """Raises."""

    def body(self, t: Tile) -> None:
        t.z[:] = {}["table"]


@od.kernel("wrong::shapes", inputs="x", outputs="z")
class Shapes(Like):
    """Writes what does not fit."""

    def body(self, t: Tile) -> None:
        t.z[:] = np.zeros(999, np.float32)


@od.kernel("wrong::takes_nothing", inputs="x", outputs="z")
class TakesNothing(Like):
    """Refuses every node."""

    def verify(self, n: Node) -> Any:
        return "something else"

    def body(self, t: Tile) -> None:
        pass


@od.kernel("fine::blur", inputs="x", outputs="z")
class Blur(Like):
    """Three neighbours along the last dimension, pads outside: nothing is wrong with it."""

    def access(self, n: Node) -> Any:
        last = n["x"].rank - 1
        halo = tuple(n.dim(d, 1, -1, 1) if d == last else n.dim(d) for d in range(last + 1))
        return n.elementwise("z") | n.access("x", *halo)

    def verify(self, n: Node) -> bool:
        return bool(n["x"].rank >= 1)

    def body(self, t: Tile) -> None:
        t.z[:] = t.x[..., :-2] + t.x[..., 1:-1] + t.x[..., 2:]


for op_type, target in (
    ("Loops", Loops),
    ("Raises", Raises),
    ("Shapes", Shapes),
    ("Blur", Blur),
    ("LoopsElsewhere", LoopsElsewhere),
    ("Counts", Counts),
):
    od.maps(op_type, domain="wrong")(target)
