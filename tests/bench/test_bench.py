# SPDX-License-Identifier: Apache-2.0
"""Wall clock beside onnxruntime's, same process, one thread each: ``make bench``. Never pass or fail.

Each case is measured twice, by us and by onnxruntime, in one pytest-benchmark group: read the
ratio of the medians. ``modelled`` in the extra information is the device's own time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onedispatch as od
from onedispatch.dispatch.tools import zoo

pytestmark = pytest.mark.bench
NETWORKS = ("light_squeezenet", "light_resnet50", "light_densenet121")


def _network(name: str) -> onnx.ModelProto:
    return zoo.randomised(zoo.find_model(name), seed=0)


def _matmul(dtype: int, op_type: str, size: int) -> onnx.ModelProto:
    out = TensorProto.INT32 if dtype == TensorProto.INT8 else dtype
    inputs = [helper.make_tensor_value_info(n, dtype, [size, size]) for n in "ab"]
    output = helper.make_tensor_value_info("y", out, [size, size])
    node = helper.make_node(op_type, ["a", "b"], ["y"])
    graph = helper.make_graph([node], f"{op_type}_{size}", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


CASES: dict[str, Any] = {name: (_network, name) for name in NETWORKS} | {
    "MatMul-1024": (_matmul, TensorProto.FLOAT, "MatMul", 1024),
    "MatMulInteger-1024": (_matmul, TensorProto.INT8, "MatMulInteger", 1024),
}


def _feed(model: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    feed = {}
    for info in model.graph.input:
        shape = [d.dim_value or 1 for d in info.type.tensor_type.shape.dim]
        integers = info.type.tensor_type.elem_type == TensorProto.INT8
        feed[info.name] = (
            rng.integers(-128, 128, shape).astype(np.int8)
            if integers
            else rng.standard_normal(shape, np.float32)
        )
    return feed


@pytest.mark.parametrize("runner", ["onedispatch", "onnxruntime"])
@pytest.mark.parametrize("name", CASES)
def test_session_run(benchmark: Any, name: str, runner: str) -> None:
    make, *arguments = CASES[name]
    model = make(*arguments)
    feed = _feed(model)
    benchmark.group = name
    if runner == "onnxruntime":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        theirs = onnxruntime.InferenceSession(model.SerializeToString(), options)
        benchmark(theirs.run, None, feed)
        return
    ours = od.InferenceSession(model, fallback="error", threads=1)
    benchmark(ours.run, None, feed)
    assert ours.last_run is not None
    benchmark.extra_info["modelled_seconds"] = ours.last_run.seconds
