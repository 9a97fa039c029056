# SPDX-License-Identifier: Apache-2.0
"""Modelled throughput of matrix products beside published measurements, and the rows of the README.

``python -m tests.bench.gemm_points`` prints one line per product: B constant, and B computed at run time;
with names as arguments (``P1 P13``), or ``points`` for all, those of arXiv 2512.13282 instead, with B
constant: what was measured, what our own tiles take with exact sums and with narrow ones, and the published
tile. Operations are 2 M K N, seconds are the device's (``last_run.seconds``), launch left out.

Where results are narrower than sums, the published kernels keep sums in the type of the results from step to
step (their budget of a core's memory is 2 m k + 2 k n + m n elements, the last ones of that type), which
rounds or saturates at every step: ``sums="narrow"``, in which those tiles run. By default ours are exact:
four bytes for each sum, which leaves room for smaller tiles. int32 results are their own sums.

The search finds other tiles than the published ones there too: 96 x 96 x 72 instead of 96 x 64 x 96 on npu2,
whose calls take 301 instead of 256 MAC per cycle by the fit to the published single-core kernels, and which
no publication has measured. A constant B lies in device memory chunk by chunk (the published kernels read a
column-major one); a computed one is read row-major, in runs of a tile's width.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

import onedispatch as od
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device

Tile = tuple[int, int, int]  # m, k, n

PRODUCTS: tuple[tuple[str, int, int, int, Tile | None], ...] = (
    ("npu2", 4224, 4224, 4608, (96, 64, 96)),
    ("npu1", 4160, 4224, 4224, (80, 88, 96)),
    ("npu2", 2048, 2048, 2048, None),
    ("npu2_4col", 2048, 2048, 2048, None),
)


@dataclass(frozen=True)
class Point:
    """A measurement in 10^12 operations a second; operands are int8, of bfloat16 results bfloat16."""

    device: str
    out: str
    size: Tile  # M, K, N
    tile: Tile
    tops: float


POINTS = {
    "P1": Point("npu1", "int8", (4032, 4032, 4032), (112, 112, 112), 6.52),
    "P3": Point("npu1", "int16", (4224, 4032, 4224), (96, 112, 96), 5.85),
    "P4": Point("npu1", "int16", (4160, 4160, 4096), (80, 104, 128), 5.75),
    "P5": Point("npu1", "int32", (4160, 4224, 4224), (80, 88, 96), 4.42),
    "P7": Point("npu1", "bfloat16", (4224, 4032, 4224), (96, 56, 96), 3.12),
    "P8": Point("npu1", "bfloat16", (4224, 4032, 4032), (96, 48, 112), 3.02),
    "P9": Point("npu2", "int8", (4032, 4320, 4608), (144, 72, 144), 37.35),
    "P11": Point("npu2", "int16", (4096, 4320, 4480), (128, 72, 112), 30.77),
    "P13": Point("npu2", "int32", (4224, 4224, 4608), (96, 64, 96), 24.74),
    "P15": Point("npu2", "bfloat16", (4032, 4224, 4608), (112, 48, 96), 14.52),
}


@dataclass(frozen=True)
class Tiled:
    """A selector: what the search finds, with another tile where one is given; ``taken``: all of it."""

    tile: Tile | None = None
    taken: list[Solution] = field(default_factory=list)

    def select(self, problem: Problem, device: Device) -> Solution:
        found = SEARCH.select(problem, device)
        if self.tile is not None:
            m, k, n = self.tile
            found = replace(found, tiles=(m, n), k_tile=k)
        self.taken.append(found)
        return found


def product(out: str, m: int, k: int, n: int, constant: bool) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The model of one product [m, k] x [k, n], and its feed."""
    narrow = np.dtype(ml_dtypes.bfloat16 if out == "bfloat16" else np.int8)
    b = np.random.default_rng(0).integers(-128, 127, (k, n)).astype(narrow)
    kind = helper.np_dtype_to_tensor_dtype(narrow)
    made = helper.np_dtype_to_tensor_dtype(np.dtype(ml_dtypes.bfloat16 if out == "bfloat16" else out))
    inputs = [helper.make_tensor_value_info("a", kind, [m, k])]
    constants = {
        "one": np.float32(1),
        "none": np.int8(0),
        "zero": np.zeros((), np.int16 if out == "int16" else np.int8),
    }
    if constant:
        constants["b"] = b
    else:
        inputs.append(helper.make_tensor_value_info("b", kind, [k, n]))
    if out == "int8":
        names = ["a", "one", "none", "b", "one", "none", "one", "zero"]
        nodes = [helper.make_node("QLinearMatMul", names, ["y"])]
    elif out == "int16":  # no operator of ONNX has these: QDQ models do
        nodes = [helper.make_node("DequantizeLinear", [x, "one", "none"], [f"{x}f"]) for x in "ab"]
        nodes += [helper.make_node("MatMul", ["af", "bf"], ["yf"])]
        nodes += [helper.make_node("QuantizeLinear", ["yf", "one", "zero"], ["y"])]
    else:
        nodes = [helper.make_node("MatMul" if out == "bfloat16" else "MatMulInteger", ["a", "b"], ["y"])]
    read = {name for node in nodes for name in node.input}
    tensors = [numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items() if name in read]
    outputs = [helper.make_tensor_value_info("y", made, [m, n])]
    graph = helper.make_graph(nodes, "gemm", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    a = np.zeros((m, k), narrow)
    return model, {"a": a} if constant else {"a": a, "b": b}


def tops(device: str, out: str, size: Tile, constant: bool, selector: Tiled, sums: str = "exact") -> float:
    """10^12 operations per modelled second of a product on ``device``."""
    m, k, n = size
    model, feed = product(out, m, k, n, constant)
    session = od.InferenceSession(
        od.compile(model.SerializeToString(), device=device, fallback="error", selector=selector, sums=sums)
    )
    session.run(None, feed)
    if session.last_run is None:
        raise RuntimeError("session.run leaves a report")
    return float(2 * m * k * n / session.last_run.seconds / 1e12)


def rows() -> None:
    for device, m, k, n, tile in PRODUCTS:
        size = (m, k, n)
        constant, computed = (tops(device, "int32", size, fixed, Tiled()) for fixed in (True, False))
        line = f"{device} {m} x {k} x {n}: constant B {constant:.2f} TOPS, computed B {computed:.2f} TOPS"
        if tile:
            line += f", published tile {tops(device, 'int32', size, True, Tiled(tile)):.2f} TOPS"
        print(line)


def shown(selector: Tiled) -> str:
    """m x k x n of the tile that was taken."""
    (m, n), k = selector.taken[-1].tiles, selector.taken[-1].k_tile
    return f"{m}x{k}x{n}"


def points(names: list[str]) -> None:
    for name in names:
        one, own = POINTS[name], Tiled()
        found = tops(one.device, one.out, one.size, True, own)
        line = f"{name} {one.device} {one.out} {'x'.join(map(str, one.size))}: published {one.tops:.2f} TOPS"
        line += f", own tile {shown(own)} {found:.2f} ({found / one.tops - 1:+.1%})"
        narrow = Tiled()
        quick = tops(one.device, one.out, one.size, True, narrow, "narrow")
        line += f", narrow sums: {shown(narrow)} {quick:.2f} ({quick / one.tops - 1:+.1%})"
        same = tops(one.device, one.out, one.size, True, Tiled(one.tile), "narrow")
        line += f", published tile {'x'.join(map(str, one.tile))} {same:.2f} ({same / one.tops - 1:+.1%})"
        print(line, flush=True)


def main() -> None:
    named = sys.argv[1:]
    if named:
        points([*POINTS] if named == ["points"] else named)
    else:
        rows()


if __name__ == "__main__":
    main()
