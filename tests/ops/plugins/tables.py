# SPDX-License-Identifier: Apache-2.0
"""Values looked up: in a table that the kernel brings, and in one that the model gives."""

import numpy as np

import onedispatch as od
from tests.ops.plugin_case import Case


@od.maps("Softsign", domain="corpus")
@od.kernel("corpus::softsign", inputs="x:i8", outputs=[od.Out("z")], aux="table", scalars={"scale": "f32"})
class Softsign:
    """``v / (1 + |v|)`` of ``v = scale * x``: 256 values in a table."""

    def infer(self, n):
        return {"z": ("f32", n["x"].shape)}

    def access(self, n):
        v = np.float32(n.scale) * np.arange(-128, 128, dtype=np.float32)
        n.aux("table", v / (1 + np.abs(v)))
        return n.elementwise("x", "z")

    def body(self, t):
        t.z[:] = t.table[t.x.astype(np.int16) + 128]

    def reference(self, n, x):
        v = np.float32(n.scale) * x.astype(np.float32)
        return v / (1 + np.abs(v))


@od.maps("Gather", domain="corpus")
@od.kernel("corpus::gather", inputs="table:f32|i16 at:i32", outputs="z")
class Gather:
    """Rows of a table: any member may touch any row."""

    def infer(self, n):
        return {"z": n["table"].like((*n["at"].shape, n["table"].shape[1]))}

    def access(self, n):
        return n.access("table", None, 1) | n.access("at", 0) | n.access("z", 0, 1)

    def body(self, t):
        t.z[:] = t.table[t.at]

    def reference(self, n, table, at):
        return table[at]


CASES = [
    *(Case(Softsign, [shape], "i8", {"scale": 0.05}) for shape in ((9,), (4, 70), (2, 3, 40))),
    Case(Gather, [(20, 33), (50,)], ["f32", "i32"], top=20),
    Case(Gather, [(9, 64), (7,)], ["i16", "i32"], top=9),
]
