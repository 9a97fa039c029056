# SPDX-License-Identifier: Apache-2.0
"""Modelled throughput of int8 matrix products: the rows of the README, measured.

``python -m tests.bench.gemm_points`` prints one line per point: B constant, and B computed at run
time. Operations are 2 M K N, seconds are the device's (``last_run.seconds``), launch left out.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

import onedispatch as od

POINTS = (
    ("npu2", 4224, 4224, 4608),
    ("npu1", 4160, 4224, 4224),
    ("npu2", 2048, 2048, 2048),
    ("npu2_4col", 2048, 2048, 2048),
)


def tops(device: str, m: int, k: int, n: int, constant: bool) -> float:
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
    session = od.InferenceSession(model.SerializeToString(), device=device, fallback="error")
    feed = {"a": np.zeros((m, k), np.int8)}
    session.run(None, feed if constant else {**feed, "b": b})
    if session.last_run is None:
        raise RuntimeError("session.run leaves a report")
    return float(2 * m * k * n / session.last_run.seconds / 1e12)


def main() -> None:
    for device, m, k, n in POINTS:
        constant, computed = (tops(device, m, k, n, constant) for constant in (True, False))
        print(f"{device} {m} x {k} x {n}: constant B {constant:.2f} TOPS, computed B {computed:.2f} TOPS")


if __name__ == "__main__":
    main()
