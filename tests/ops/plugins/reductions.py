# SPDX-License-Identifier: Apache-2.0
"""Members that touch all of a dimension: sums, softmax along either one, products."""

import numpy as np

import onedispatch as od
from tests.ops.plugin_case import Case


@od.maps("RowSum", domain="corpus")
@od.kernel("corpus::row_sum", inputs="x", outputs="z")
class RowSum:
    def infer(self, n):
        return {"z": n["x"].like(n["x"].shape[:1])}

    def access(self, n):
        return n.access("x", 0, None) | n.access("z", 0)

    def body(self, t):
        t.z[:] = t.x.sum(axis=1)

    def reference(self, n, x):
        return x.sum(axis=1)


@od.maps("Bounds", domain="corpus")
@od.kernel("corpus::bounds", inputs="x:f32|i8", outputs="low high")
class Bounds:
    """Two outputs: the least and the largest of every row."""

    def infer(self, n):
        row = n["x"].like(n["x"].shape[:1])
        return {"low": row, "high": row}

    def access(self, n):
        return n.access("x", 0, None) | n.access("low", 0) | n.access("high", 0)

    def body(self, t):
        t.low[:], t.high[:] = t.x.min(axis=1), t.x.max(axis=1)

    def reference(self, n, x):
        return x.min(axis=1), x.max(axis=1)


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@od.maps("SoftmaxLast", domain="corpus")
@od.kernel("corpus::softmax_last", inputs="x", outputs="z", work={"exp": 1, "op": 3, "div": 1})
class SoftmaxLast:
    def infer(self, n):
        return {"z": n["x"].like()}

    def index_space(self, n):
        return n["x"].shape[:1]

    def access(self, n):
        n.work(**{term: times * n["x"].shape[1] for term, times in (("exp", 1), ("op", 3), ("div", 1))})
        return n.access("x", 0, None) | n.access("z", 0, None)

    def body(self, t):
        t.z[:] = softmax(t.x, 1)

    def reference(self, n, x):
        return softmax(x, 1)


@od.maps("SoftmaxFirst", domain="corpus")
@od.kernel("corpus::softmax_first", inputs="x", outputs="z")
class SoftmaxFirst:
    """Along the other dimension: a member per column."""

    def infer(self, n):
        return {"z": n["x"].like()}

    def index_space(self, n):
        return n["x"].shape[1:]

    def access(self, n):
        return n.access("x", None, 0) | n.access("z", None, 0)

    def body(self, t):
        t.z[:] = softmax(t.x, 0)

    def reference(self, n, x):
        return softmax(x, 0)


@od.maps("Product", domain="corpus")
@od.kernel("corpus::product", inputs="x y", outputs="z", work={"mul": 1, "op": 1})
class Product:
    """A matrix product: a row and a column whole for every member."""

    def infer(self, n):
        return {"z": n["x"].like((n["x"].shape[0], n["y"].shape[1]))}

    def verify(self, n):
        (_, k), (rows, _) = n["x"].shape, n["y"].shape
        return None if k == rows else f"{k} columns times {rows} rows"

    def access(self, n):
        k = n["x"].shape[1]
        n.work(mul=k, op=k)
        return n.access("x", 0, None) | n.access("y", None, 1) | n.access("z", 0, 1)

    def body(self, t):
        t.z[:] = t.x @ t.y

    def reference(self, n, x, y):
        return x @ y


CASES = [
    *(Case(RowSum, [shape]) for shape in ((1, 9), (40, 33), (150, 64))),
    *(Case(Bounds, [shape], dtype) for shape in ((4, 9), (45, 64)) for dtype in ("f32", "i8")),
    *(Case(op, [shape], close=1e-6) for op in (SoftmaxLast, SoftmaxFirst) for shape in ((4, 9), (50, 96))),
    *(Case(Product, [(m, k), (k, n)]) for m, k, n in ((1, 4, 1), (9, 8, 14), (40, 64, 70))),
]
