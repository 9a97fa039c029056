# SPDX-License-Identifier: Apache-2.0
"""How fast a solution is measured, beside runs of the same product: ``make bench``.

A measurement emits the nest and times three of it in a row, without data. A run on the engine (the first, or
any with ``record=False``) moves and computes; a recorded one skips what the engine decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.dispatch.tuning.collect import problems_of
from onedispatch.operators.emission import emitter
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.transactions import find_device

pytestmark = pytest.mark.bench
NPU2 = find_device("npu2")
SIZES = {"128 x 256 x 256": (128, 256, 256), "512 x 1024 x 1024": (512, 1024, 1024)}


def model(m: int, k: int, n: int) -> onnx.ModelProto:
    weights = np.random.default_rng(0).standard_normal((k, n)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [m, n])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("size", SIZES)
def test_measure(benchmark: Any, size: str) -> None:
    (problem,) = problems_of(lambda selector: od.compile(model(*SIZES[size]), selector=selector))
    solution = SEARCH.select(problem, NPU2)

    def measured() -> int:
        emitter._PROGRAMS.clear()  # a tuner asks about a solution once
        return od.measure(problem, solution, NPU2)

    benchmark(measured)


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_run(benchmark: Any, size: str, record: bool) -> None:
    m, k, _ = SIZES[size]
    x = np.random.default_rng(1).standard_normal((m, k)).astype(np.float32)
    session = od.InferenceSession(model(*SIZES[size]), threads=1, record=record)
    for _ in range(3):
        session.run(None, {"x": x})
    benchmark(session.run, None, {"x": x})
