# SPDX-License-Identifier: Apache-2.0
"""Two layers of one's own around two operators of ONNX: crop, Unsqueeze, Add, double; in one dispatch.

python models/examples/crop_double.py              # shapes that are known: one program
python models/examples/crop_double.py --dynamic    # open shapes: a program for each that is seen
python models/examples/crop_double.py --save crop.onnx
onedispatch run crop.onnx --plugin models/examples/crop_double.py --random
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import onedispatch as od

TOP, LEFT, SIZE = 8, 16, (32, 40)


class Crop(od.Layer):
    """A window of a picture: moves alone."""

    name = "crop_double::crop"

    class Params:
        top: int = 0
        left: int = 0
        size: tuple[int, int]

    def shape(self, n: Any) -> Any:
        rows, columns = n["x"].shape[-2:]
        bottom, right = self.params.top + self.params.size[0], self.params.left + self.params.size[1]
        if bottom > rows or right > columns:
            given = f"a window that ends at row {bottom}, column {right}"
            raise n.refuse("layer_configuration", "size", given, f"at most {rows} and {columns}")
        return n["x"].like((*n["x"].shape[:-2], *self.params.size))

    def global_(self, g: Any) -> None:
        p = self.params
        g.copy(g.y, g.x[..., p.top : p.top + p.size[0], p.left : p.left + p.size[1]])


class Double(od.Layer):
    """Twice the input, tile by tile."""

    name = "crop_double::double"

    def can_inplace(self, data_prec: str) -> bool:
        return True

    def local(self, t: Any) -> None:
        t.y[:] = t.x + t.x


def network(*, dynamic: bool) -> od.Graph:
    g = od.Graph("crop_double")
    x = g.input("x", ("channels", "rows", "columns") if dynamic else (3, 64, 64))
    window = {"top": TOP, "left": LEFT, "size": SIZE}
    y = g.add_layer("crop_double::crop", [x], params=window)
    y = g.add_layer("Unsqueeze", [y, np.asarray([0])])
    y = g.add_layer("Add", [y, 0.5])
    g.output(g.add_layer("crop_double::double", [y]), "y")
    return g


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dynamic", action="store_true", help="leave all sizes of the input open")
    parser.add_argument("--device", default="npu2")
    parser.add_argument("--save", type=Path, help="write the model there, and end")
    options = parser.parse_args()
    graph = network(dynamic=options.dynamic)
    if options.save is not None:
        options.save.write_bytes(graph.to_onnx().SerializeToString())
        print(options.save)
        return
    session = od.InferenceSession(graph, options.device, fallback="error")
    rng = np.random.default_rng(0)
    for shape in ((3, 64, 64), (1, 48, 80), (3, 64, 64)) if options.dynamic else ((3, 64, 64),):
        x = rng.standard_normal(shape).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        rows, columns = (slice(at, at + size) for at, size in zip((TOP, LEFT), SIZE, strict=True))
        wanted = 2 * (x[None, :, rows, columns] + np.float32(0.5))
        report = session.last_run
        assert report is not None and (y == wanted).all()
        print(
            f"{list(shape)} -> {list(y.shape)}, equal to NumPy's; {report.dispatches} dispatch, "
            f"{report.cycles:,} modelled cycles"
        )
    for row in session.placement:
        print(f"{row.node}: {row.device}, {row.reason}")


if __name__ == "__main__":
    main()
