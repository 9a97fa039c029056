# SPDX-License-Identifier: Apache-2.0
"""A plug-in: the box decoder of TensorFlow's Object Detection API, 33 nodes of a GraphDef, as one kernel.

    onedispatch run ssd.pb --plugin box_decode.py --fusion DecodeBbox --random

The fusion finds the nodes and writes ``acme::DecodeBbox``; the kernel computes it on the array's cores, a
box a member. It is not general: other graphs may mean something else by these nodes, so it is switched on
by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import onedispatch as od


@od.kernel(
    "acme::decode_bbox",
    inputs="code anchor",
    outputs="box",
    scalars=dict.fromkeys(("y_scale", "x_scale", "h_scale", "w_scale"), "f32"),
)
class DecodeBbox:
    """Corners (ymin, xmin, ymax, xmax) of codes (ty, tx, th, tw) relative to anchors; all are [boxes, 4]."""

    def infer(self, n: Any) -> Any:
        return {"box": n["code"].like()}

    def index_space(self, n: Any) -> Any:
        return n["code"].shape[:1]

    def access(self, n: Any) -> Any:
        n.work(op=52)  # of a box: 32 operations, and two exponentials that are counted as ten each
        rows = (n.dim(0), n.whole())
        return {**n.access("code", *rows), **n.access("anchor", *rows), **n.access("box", *rows)}

    def body(self, t: Any) -> None:
        ymin, xmin, ymax, xmax = t.anchor.T
        height, width = ymax - ymin, xmax - xmin
        half = np.float32(0.5)
        ty, tx, th, tw = t.code.T
        y = ty / t.y_scale * height + (ymin + height * half)
        x = tx / t.x_scale * width + (xmin + width * half)
        h, w = np.exp(th / t.h_scale) * height * half, np.exp(tw / t.w_scale) * width * half
        t.box[:] = np.stack([y - h, x - w, y + h, x + w], 1)


od.maps("DecodeBbox", domain="acme")(DecodeBbox)


@od.fusion("DecodeBbox", general=False, framework="tensorflow")
def decode(p: Any) -> Any:
    """The pattern of the decoder: parts by name, one below the other."""
    corner = "Unpack(Transpose(anchor, array(order)))"
    parts = {
        "YMIN": f"{corner}[0]",
        "XMIN": f"{corner}[1]",
        "HEIGHT": f"Sub({corner}[2], YMIN)",
        "WIDTH": f"Sub({corner}[3], XMIN)",
    }
    for index, (name, size, least) in enumerate((("Y", "HEIGHT", "YMIN"), ("X", "WIDTH", "XMIN"))):
        scale = f"{name.lower()}_scale"
        reach = "h_scale" if name == "Y" else "w_scale"
        move = f"RealDiv(Squeeze(Split(const(axis), code)[{index}]), const({scale}))"
        grow = f"RealDiv(Squeeze(Split(const(axis), code)[{index + 2}]), const({reach}))"
        parts[f"C{name}"] = f"Add(Mul({move}, {size}), AddV2({least}, Mul({size}, 0.5)))"
        parts[f"R{name}"] = f"Mul(Mul(Exp({grow}), {size}), 0.5)"
    corners = "Sub(CY, RY), Sub(CX, RX), Add(CY, RY), Add(CX, RX)"
    p.find(f"Transpose(Pack({corners}), array(back))", **parts)
    p.where("codes of four columns", lambda m: m["axis"].constant == 1)

    def build(g: Any, m: Any) -> Any:
        scales = {
            name: float(m[name].constant.reshape(-1)[0])
            for name in ("y_scale", "x_scale", "h_scale", "w_scale")
        }
        return g.op("acme::DecodeBbox", m["code"], m["anchor"], **scales)

    return build
