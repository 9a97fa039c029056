# SPDX-License-Identifier: Apache-2.0
"""Members that touch more than one element: halos with pads, strides, other orders."""

import numpy as np

import onedispatch as od
from tests.ops.plugin_case import Case


@od.maps("BoxFilter", domain="corpus")
@od.kernel("corpus::box_filter", inputs=[od.In("x", "f32 i32", pad=0)], outputs="z", work={"op": 8})
class BoxFilter:
    """The sum of 3 x 3 neighbours; outside of the image is 0."""

    def infer(self, n):
        return {"z": n["x"].like()}

    def access(self, n):
        halo = n.dim(0, start=-1, end=1), n.dim(1, start=-1, end=1)
        return n.access("x", *halo) | n.access("z", 0, 1)

    def body(self, t):
        rows = t.x[:-2] + t.x[1:-1] + t.x[2:]
        t.z[:] = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]

    def reference(self, n, x):
        wide = np.pad(x, 1)
        rows = wide[:-2] + wide[1:-1] + wide[2:]
        return rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]


@od.maps("Halve", domain="corpus")
@od.kernel("corpus::halve", inputs=[od.In("x", pad=0)], outputs="z", work={"op": 3, "mul": 1})
class Halve:
    """Means of 2 x 2; at an odd edge the pad counts."""

    def infer(self, n):
        return {"z": n["x"].like([(size + 1) // 2 for size in n["x"].shape])}

    def access(self, n):
        return n.access("x", n.block(0, 2), n.block(1, 2)) | n.access("z", 0, 1)

    def body(self, t):
        rows = t.x[::2] + t.x[1::2]
        t.z[:] = np.float32(0.25) * (rows[:, ::2] + rows[:, 1::2])

    def reference(self, n, x):
        wide = np.pad(x, [(0, size % 2) for size in x.shape])
        rows = wide[::2] + wide[1::2]
        return np.float32(0.25) * (rows[:, ::2] + rows[:, 1::2])


@od.maps("Transpose", domain="corpus")
@od.kernel("corpus::transpose", inputs="x:f32|bf16|i8", outputs="z")
class Transpose:
    def infer(self, n):
        return {"z": n["x"].like(n["x"].shape[::-1])}

    def access(self, n):
        return n.access("x", 1, 0) | n.access("z", 0, 1)

    def body(self, t):
        t.z[:] = t.x.T

    def reference(self, n, x):
        return np.ascontiguousarray(x.T)


CASES = [
    *(Case(BoxFilter, [shape], dtype) for shape in ((1, 1), (9, 20), (70, 45)) for dtype in ("f32", "i32")),
    *(Case(Halve, [shape]) for shape in ((2, 2), (13, 21), (64, 80))),
    *(Case(Transpose, [shape], dtype) for shape in ((3, 50), (64, 33)) for dtype in ("f32", "bf16", "i8")),
]
