# SPDX-License-Identifier: Apache-2.0
"""An ONNX model with nodes of acme, run on the simulated array beside NumPy.

    python run_model.py [--device npu1] [--plugin acme_kernels/libacme.so] [--save out.npz]

Without ``--plugin`` the kernels are those of the installed package, found by its entry point.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

import onedispatch as od

Array = np.ndarray[Any, Any]
ROWS, COLUMNS, EDGE, GAMMA = 48, 70, 0.5, 0.45


def model() -> ModelProto:
    """image -> Blur -> Tone -> NormaliseRows; ONNX knows none of these, their kernels infer the shapes."""
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [ROWS, COLUMNS])
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("rows", "contrast")]
    nodes = [
        helper.make_node("Blur", ["image"], ["mean", "contrast"], name="blur", domain="acme", edge=EDGE),
        helper.make_node("Tone", ["mean"], ["toned"], name="tone", domain="acme", gamma=GAMMA),
        helper.make_node("NormaliseRows", ["toned"], ["rows"], name="normalise", domain="acme"),
    ]
    graph = helper.make_graph(nodes, "acme", [image], results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def reference(image: Array) -> tuple[Array, Array]:
    """The same in NumPy, with sums in the kernels' order."""
    one = np.float32(1)
    padded = np.pad(image, 1, constant_values=EDGE)
    windows = [padded[i : i + ROWS, j : j + COLUMNS] for i in range(3) for j in range(3)]
    contrast = np.max(windows, 0) - np.min(windows, 0)
    table = ((np.arange(257) / 256) ** np.float64(np.float32(GAMMA))).astype(np.float32)
    at = np.clip(
        np.add.accumulate(windows)[-1] * (one / np.float32(9)) * np.float32(256), 0, np.float32(255.99)
    )
    i = at.astype(np.int64)
    toned = table[i] + (at - i.astype(np.float32)) * (table[i + 1] - table[i])
    share = one / np.float32(COLUMNS)
    centred = toned - np.add.accumulate(toned, 1)[:, -1:] * share
    variance = np.add.accumulate(centred * centred, 1)[:, -1:] * share
    with np.errstate(divide="ignore"):
        factor = np.where(variance < np.float32(1e-10), np.float32(0), one / np.sqrt(variance))
    return centred * factor, contrast


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="npu2")
    parser.add_argument("--plugin", action="append", default=[])
    parser.add_argument("--save", help="a file for the answers")
    options = parser.parse_args()
    image = np.random.default_rng(0).random((ROWS, COLUMNS), np.float32)
    image[9:14] = EDGE  # three rows of the result are flat
    session = od.InferenceSession(model(), device=options.device, fallback="error", plugins=options.plugin)
    answers = session.run(None, {"image": image})
    wrong = 0
    for name, got, wanted in zip(("rows", "contrast"), answers, reference(image), strict=True):
        different = int((got != wanted).sum())
        wrong += different
        print(f"{name} {list(got.shape)}: {got.size - different} of {got.size} elements equal NumPy's")
    for node in session.placement:
        print(f"{node.node}: {node.device}, {node.reason}")
    report = session.last_run
    assert report is not None
    print(f"{report.dispatches} dispatch, {report.cycles:,} cycles, {report.seconds * 1e6:.1f} us modelled")
    for line in report.prints:
        print(line)
    if options.save:
        np.savez(options.save, *answers)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
