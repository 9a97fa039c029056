# SPDX-License-Identifier: Apache-2.0
"""Modelled times of kernels that wait for device memory, beside published measurements on Strix.

``python -m tests.bench.stream_points`` prints a line for each point, with names as arguments (``P34 P38``)
those alone: what was measured (mlir-air's registry, wall clock of one dispatch) and what is modelled, the
host's launch included. Constants of the device decide these times, none of them an operator's or a shape's:
``dma.shim_words_per_cycle``, what one channel of a shim brings, which matrix-vector products are bound by;
and ``ddr.gigabytes_per_second``, what all columns take together, which additions on all columns are bound by;
``ddr.read_share`` of it is for reads alone. Published matrix-vector products read by one channel of a shim;
so do the modelled ones beside them. The last number of a line is by both, as they are compiled.

What the published kernels do differently: they are started from Python, whose launch takes 70 to 94 us where
45 us are modelled, which is most of the difference of the shortest ones. How many cores of a column their
additions use is not stated: on one, two and four columns those take 3.1 GB/s a channel, less than one brings.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

import onedispatch as od
from onedispatch.operators.scheduling.select import Search
from tests.bench.one_channel import one_channel

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
KIND = helper.np_dtype_to_tensor_dtype(BFLOAT16)
OPSET = 24


@dataclass(frozen=True)
class Stream:
    """A measurement in microseconds of an operator whose inputs are bfloat16."""

    device: str
    op_type: str
    shapes: tuple[tuple[int, ...], ...]
    microseconds: float


def _product(rows: int, inner: int, microseconds: float) -> Stream:
    """A matrix [rows, inner] times a vector."""
    return Stream("npu2", "MatMul", ((1, inner), (inner, rows)), microseconds)


def _addition(device: str, length: int, microseconds: float) -> Stream:
    return Stream(device, "Add", ((length,), (length,)), microseconds)


POINTS = {
    "P32": _product(512, 2048, 136),
    "P33": _product(2048, 2048, 330),
    "P34": _product(8192, 2048, 1067),
    "P35": _product(16384, 2048, 2193),
    "P37": _product(1024, 1024, 147),
    "P37b": _product(128, 896, 84),
    "P38": _addition("npu2_1col", 4194304, 2759),
    "P38b": _addition("npu2_2col", 4194304, 1327),
    "P38c": _addition("npu2_4col", 4194304, 706),
    "P38d": _addition("npu2", 4194304, 437),
    "P39": _addition("npu2", 2097152, 277),
    "P39b": _addition("npu2", 8388608, 798),
}


def modelled(point: Stream, *, as_published: bool = True) -> float:
    """Microseconds of the device and of the host's launch. ``as_published``, weights of products come by one
    channel of a shim, otherwise as they are compiled, by both."""
    names = [f"x{i}" for i in range(len(point.shapes))]
    inputs = [
        helper.make_tensor_value_info(name, KIND, list(shape))
        for name, shape in zip(names, point.shapes, strict=True)
    ]
    outputs = [onnx.ValueInfoProto(name="y")]
    graph = helper.make_graph([helper.make_node(point.op_type, names, ["y"])], "stream", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    feed: dict[str, Any] = {
        name: np.zeros(shape, BFLOAT16) for name, shape in zip(names, point.shapes, strict=True)
    }
    typed = onnx.shape_inference.infer_shapes(model)
    with one_channel() if as_published else nullcontext():
        session = od.InferenceSession(typed, point.device, fallback="error", selector=Search())
    session.run(None, feed)
    report = session.last_run
    if report is None:
        raise RuntimeError("session.run leaves a report")
    return 1e6 * (report.seconds + report.launch_seconds)


def line(name: str, point: Stream) -> str:
    shapes = " by ".join("x".join(map(str, shape)) for shape in point.shapes)
    ours = modelled(point)
    text = (
        f"{name} {point.device} {point.op_type} {shapes}: published {point.microseconds:.0f} us, "
        f"modelled {ours:.0f} us ({ours / point.microseconds - 1:+.1%})"
    )
    if point.op_type == "MatMul":
        text += f", by both channels {modelled(point, as_published=False):.0f} us"
    return text


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Modelled streams beside published measurements.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of " + " ".join(POINTS))
    for name in parser.parse_args(arguments).names or POINTS:
        print(line(name, POINTS[name]), flush=True)


if __name__ == "__main__":
    main()
