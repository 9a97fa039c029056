# SPDX-License-Identifier: Apache-2.0
"""Modelled throughput of int8 matrix products: the rows of the README, measured.

``python -m tests.bench.gemm_points`` prints one line per point: B constant, and B computed at run
time; where arXiv 2512.13282 has measured the product, also its own tile with B constant, which is what the
published figure is to be compared with. Operations are 2 M K N, seconds are the device's
(``last_run.seconds``), launch left out.

The search finds other tiles than the published ones: 96 x 96 x 72 instead of 96 x 64 x 96 on npu2, whose
calls take 301 instead of 256 MAC per cycle by the fit to the published single-core kernels, and which no
publication has measured. A constant B lies in device memory chunk by chunk (the published kernels read a
column-major one); a computed one is read row-major, in runs of a tile's width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper

import onedispatch as od
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device

Tile = tuple[int, int, int]  # m, k, n

POINTS: tuple[tuple[str, int, int, int, Tile | None], ...] = (
    ("npu2", 4224, 4224, 4608, (96, 64, 96)),
    ("npu1", 4160, 4224, 4224, (80, 88, 96)),
    ("npu2", 2048, 2048, 2048, None),
    ("npu2_4col", 2048, 2048, 2048, None),
)


@dataclass(frozen=True)
class Tiled:
    """A selector: what the search finds, with another tile."""

    tile: Tile

    def select(self, problem: Problem, device: Device) -> Solution:
        m, k, n = self.tile
        return replace(SEARCH.select(problem, device), tiles=(m, n), k_tile=k)


def tops(device: str, m: int, k: int, n: int, constant: bool, tile: Tile | None = None) -> float:
    """10^12 operations per modelled second of ``MatMulInteger`` [m, k] x [k, n] on ``device``."""
    b = np.random.default_rng(0).integers(-128, 127, (k, n)).astype(np.int8)
    inputs = [helper.make_tensor_value_info("a", TensorProto.INT8, [m, k])]
    if not constant:
        inputs.append(helper.make_tensor_value_info("b", TensorProto.INT8, [k, n]))
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "gemm",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.INT32, [m, n])],
        [onnx.numpy_helper.from_array(b, "b")] if constant else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    selector = Tiled(tile) if tile else None
    compiled = od.compile(model.SerializeToString(), device=device, fallback="error", selector=selector)
    session = od.InferenceSession(compiled)
    feed = {"a": np.zeros((m, k), np.int8)}
    session.run(None, feed if constant else {**feed, "b": b})
    if session.last_run is None:
        raise RuntimeError("session.run leaves a report")
    return float(2 * m * k * n / session.last_run.seconds / 1e12)


def main() -> None:
    for device, m, k, n, tile in POINTS:
        constant, computed = (tops(device, m, k, n, constant) for constant in (True, False))
        line = f"{device} {m} x {k} x {n}: constant B {constant:.2f} TOPS, computed B {computed:.2f} TOPS"
        if tile:
            line += f", published tile {tops(device, m, k, n, True, tile):.2f} TOPS"
        print(line)


if __name__ == "__main__":
    main()
