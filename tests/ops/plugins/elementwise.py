# SPDX-License-Identifier: Apache-2.0
"""A member per element."""

import numpy as np

import onedispatch as od
from tests.ops.plugin_case import Case


@od.kernel("corpus::abs", inputs="x:f32|bf16|i16", outputs="z")
class Abs:
    def infer(self, n):
        return {"z": n["x"].like()}

    def body(self, t):
        t.z[:] = np.abs(t.x)

    def reference(self, n, x):
        return np.abs(x)


@od.kernel("corpus::relu6", inputs="x:f32|i8", outputs="z")
class Relu6:
    def infer(self, n):
        return {"z": n["x"].like()}

    def body(self, t):
        t.z[:] = np.minimum(np.maximum(t.x, 0), 6)

    def reference(self, n, x):
        return np.clip(x, 0, 6)


@od.kernel("corpus::clip", inputs="x", outputs="z", scalars={"low": ("f32", -1.0), "high": "f32"})
class Clip:
    def infer(self, n):
        return {"z": n["x"].like()}

    def body(self, t):
        t.z[:] = np.minimum(np.maximum(t.x, t.low), t.high)

    def reference(self, n, x):
        return np.clip(x, np.float32(n.low), np.float32(n.high))


@od.kernel("corpus::scale", inputs="x:bf16", outputs="z", scalars={"by": "f32"}, work={"mul": 1})
class Scale:
    """In f32, rounded once."""

    def infer(self, n):
        return {"z": n["x"].like()}

    def body(self, t):
        t.z[:] = (t.by * t.x.astype(np.float32)).astype(t.z.dtype)

    def reference(self, n, x):
        return (np.float32(n.by) * x.astype(np.float32)).astype(x.dtype)


@od.kernel("corpus::saturating_add", inputs="x:i8 y:i8", outputs="z")
class SaturatingAdd:
    def infer(self, n):
        return {"z": n["x"].like(np.broadcast_shapes(n["x"].shape, n["y"].shape))}

    def body(self, t):
        t.z[:] = np.clip(t.x.astype(np.int16) + t.y, -128, 127).astype(np.int8)

    def reference(self, n, x, y):
        return np.clip(x.astype(np.int32) + y, -128, 127).astype(np.int8)


@od.kernel("corpus::cast", inputs="x:f32|i8|u8", outputs=[od.Out("z", "bf16 i32 f32")], scalars={"to": "u32"})
class Cast:
    """``to``: 0 bfloat16, 1 int32."""

    def infer(self, n):
        return {"z": n["x"].like(dtype=("bf16", "i32")[n.to])}

    def body(self, t):
        t.z[:] = t.x.astype(t.z.dtype)

    def reference(self, n, x):
        return x.astype(self.types()[n.to])

    @staticmethod
    def types():
        import ml_dtypes

        return ml_dtypes.bfloat16, np.int32


SHAPES = [(7,), (5, 33), (2, 3, 4, 5, 6)]
CASES = [
    *(Case(Abs, [shape], dtype) for shape in SHAPES for dtype in ("f32", "bf16", "i16")),
    *(Case(Relu6, [shape], dtype) for shape in SHAPES for dtype in ("f32", "i8")),
    *(Case(Clip, [shape], attributes={"high": 0.75}) for shape in SHAPES),
    Case(Clip, [(3, 50)], attributes={"low": 0.25, "high": 0.5}),
    *(Case(Scale, [shape], "bf16", {"by": 0.3}) for shape in SHAPES),
    Case(SaturatingAdd, [(4, 70), (4, 70)], "i8"),
    Case(SaturatingAdd, [(3, 4, 70), (70,)], "i8"),
    Case(SaturatingAdd, [(3, 4, 9), (3, 1, 9)], "i8"),
    Case(Cast, [(5, 33)], "f32", {"to": 0}),
    Case(Cast, [(300,)], "i8", {"to": 1}),
    Case(Cast, [(2, 3, 4)], "u8", {"to": 1}),
]

for kernel in (Abs, Relu6, Clip, Scale, SaturatingAdd, Cast):
    od.maps(kernel.__name__, domain="corpus")(kernel)
