# SPDX-License-Identifier: Apache-2.0
"""Modelled throughput of matrix products beside published measurements, and the rows of the README.

``python -m tests.bench.gemm_points`` prints one line per product: B constant, and B computed at run time;
with names as arguments (``P1 P13``), or ``points`` for all, those of arXiv 2512.13282 instead: what was
measured, what the published tile takes with the best mapping for it, B constant and computed, and what our
own tiles take with exact sums and with narrow ones. ``points --file POINTS.json`` does the same with other
points: a list of objects with device, dtype ("i8-i16", "bf16"), m, k, n (the tile), M, K, N, tops, and an id
if wanted. Operations are 2 M K N, seconds are the device's (``last_run.seconds``), launch left out.

Where results are narrower than sums, the published kernels keep sums in the type of the results from step to
step (their budget of a core's memory is 2 m k + 2 k n + m n elements, the last ones of that type), which
rounds or saturates at every step: ``sums="narrow"``, in which those tiles run. By default ours are exact:
four bytes for each sum, which leaves room for smaller tiles. int32 results are their own sums.

The search finds other tiles than the published ones there too: 96 x 96 x 72 instead of 96 x 64 x 96 on npu2,
whose calls take 301 instead of 256 MAC per cycle by the fit to the published single-core kernels, and which
no publication has measured. A constant B lies in device memory chunk by chunk (the published kernels read a
column-major one); a computed one is read row-major, in runs of a tile's width, which the paper found 9 to 25
% slower on npu2 than column-major, 1 to 5 % on npu1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

import onedispatch as od
from onedispatch.operators.scheduling.candidates import one_tile
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.search import search
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device

Tile = tuple[int, int, int]  # m, k, n
OUT = {
    "i8-i8": "int8",
    "i8-i16": "int16",
    "i8-i32": "int32",
    "bf16": "bfloat16",
    "bf16-bf16": "bfloat16",
}

KEYS = ("device", "dtype", "m", "k", "n", "M", "K", "N", "tops")

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

    @classmethod
    def of(cls, given: Any) -> Point:
        """A point of a file of points. Raises ``InputError`` for a key that is missing or a value that is
        none."""
        missing = [key for key in KEYS if not isinstance(given, dict) or key not in given]
        if missing:
            raise od.InputError("a point", f"{given!r} without {', '.join(missing)}", ", ".join(KEYS))
        if given["dtype"] not in OUT:
            raise od.InputError("dtype of a point", repr(given["dtype"]), ", ".join(OUT))
        for key in KEYS[2:]:
            whole = key != "tops"
            value = given[key]
            if type(value) not in ((int,) if whole else (int, float)) or not value > 0:
                accepted = "a whole number above 0" if whole else "a number above 0"
                raise od.InputError(f"{key} of a point", repr(value), accepted)
        m, k, n, rows, depth, columns = (given[key] for key in KEYS[2:8])
        out = OUT[given["dtype"]]
        return cls(given["device"], out, (rows, depth, columns), (m, k, n), float(given["tops"]))


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
    """A selector: what the search finds, of a tile where one is given; ``taken``: all of it."""

    tile: Tile | None = None
    taken: list[Solution] = field(default_factory=list)

    def select(self, problem: Problem, device: Device) -> Solution:
        if self.tile is None:
            found = SEARCH.select(problem, device)
        else:  # another tile than the search's has another best mapping
            m, k, n = self.tile
            found = search(problem.nest, device, one_tile((m, n), k))
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


def at_their_tile(point: Point, constant: bool) -> float:
    """10^12 operations per modelled second with the published tile, and the best mapping for it."""
    return tops(point.device, point.out, point.size, constant, Tiled(point.tile), "narrow")


def points(named: Iterable[tuple[str, Point]]) -> bool:
    """Prints a line for each point; of one that does not fit, why. Whether all of them do."""
    fine = True
    for name, one in named:
        try:
            print(line_of(name, one), flush=True)
        except od.OneDispatchError as error:
            print(f"{name}: {error}", flush=True)
            fine = False
    return fine


def line_of(name: str, one: Point) -> str:
    line = f"{name} {one.device} {one.out} {'x'.join(map(str, one.size))}: published {one.tops:.2f} TOPS"
    line += f", published tile {'x'.join(map(str, one.tile))}"
    for constant in (True, False):
        same = at_their_tile(one, constant)
        line += f", B {'constant' if constant else 'computed'} {same:.2f} ({same / one.tops - 1:+.1%})"
    for sums in ("exact", "narrow"):
        own = Tiled()
        found = tops(one.device, one.out, one.size, True, own, sums)
        line += f", own tile of {sums} sums {shown(own)} {found:.2f} ({found / one.tops - 1:+.1%})"
    return line


def points_of(file: Path) -> tuple[list[tuple[str, Point]], bool]:
    """The points of a file, by their ids, or by their places in it, and whether that is all that it has; what
    is no point is printed.

    Raises ``InputError`` for a file that has no list.
    """
    try:
        rows = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise od.InputError(str(file), str(error), "a file of JSON") from error
    if not isinstance(rows, list):
        raise od.InputError(str(file), type(rows).__name__, "a list of points")
    found = []
    for i, given in enumerate(rows):
        name = str(given.get("id", f"#{i}")) if isinstance(given, dict) else f"#{i}"
        try:
            found.append((name, Point.of(given)))
        except od.InputError as error:
            print(f"{name}: {error}", flush=True)
    return found, len(found) == len(rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Modelled matrix products beside published measurements.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="points, or some of " + " ".join(POINTS))
    parser.add_argument("--file", type=Path, help="points of yours: JSON, see this module's first lines")
    given = parser.parse_args(arguments)
    names = [*POINTS] if given.names == ["points"] else given.names
    unknown = [name for name in names if name not in POINTS and not given.file]
    if unknown:
        parser.error(f"no point {unknown[0]}: points, or some of {' '.join(POINTS)}")
    fine = True
    if given.file:
        try:
            read, fine = points_of(given.file)
        except od.InputError as error:
            parser.error(str(error))
        fine = points(read) and fine
    elif names:
        fine = points((name, POINTS[name]) for name in names)
    else:
        rows()
    if not fine:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
