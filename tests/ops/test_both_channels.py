# SPDX-License-Identifier: Apache-2.0
"""Products whose weights come by both channels of a shim, behind all of in1: the same results, sooner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onedispatch as od
from onedispatch.operators.scheduling.select import Search
from tests.bench.one_channel import one_channel
from tests.devices import device_text
from tests.ops.case import check_beside_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
BYTES = "(x, xs, xz, w, ws, wz, ys, yz)"

CASES = {
    "vector": ("float[1, 512] x", "float[1, 2048] y", "MatMul (x, w)", (512, 2048)),
    "rows": ("float[1, 3, 512] x", "float[1, 3, 1030] y", "MatMul (x, w)", (512, 1030)),
    "window": (
        "float[1, 96, 4, 4] x",
        "float[1, 512, 4, 4] y",
        "Conv <pads = [1, 1, 1, 1]> (x, w)",
        (512, 96, 3, 3),
    ),
    "bytes": ("uint8[1, 1024] x", "uint8[1, 2000] y", f"QLinearMatMul {BYTES}", (1024, 2000)),
}
# Where what comes first is long, or the cores decide.
LONG_FIRST = {
    "few channels": (
        "npu1_1col",
        "uint8[1, 256, 14, 14] x",
        "uint8[1, 32, 14, 14] y",
        f"QLinearConv <pads = [1, 1, 1, 1]> {BYTES}",
        (32, 256, 3, 3),
    ),
    "few columns": ("npu1_1col", "float[128, 64] x", "float[128, 32] y", "MatMul (x, w)", (64, 32)),
    "deep": ("npu1_1col", "float[1, 256, 7, 7] x", "float[1, 256, 7, 7] y", "Conv (x, w)", (256, 256, 1, 1)),
}


def product(case: str, seed: int = 0) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one product with constant weights, and what it reads."""
    return made(*CASES[case], seed)


def made(
    x: str, y: str, body: str, shape: tuple[int, ...], seed: int = 0
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g ({x}) => ({y}) {{ y = {body} }}')
    rng, narrow = np.random.default_rng(seed), x.startswith("uint8")
    weights = rng.integers(-9, 10, shape).astype(np.int8 if narrow else np.float32)
    scales = {"xs": np.float32(0.5), "ws": np.float32(0.25), "ys": np.float32(8)}
    zeros = {"xz": np.uint8(100), "wz": np.int8(0), "yz": np.uint8(128)}
    constants = {"w": weights, **(scales | zeros if narrow else {})}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items())
    sizes = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    return model, {"x": rng.integers(0, 9, sizes).astype(np.uint8 if narrow else np.float32)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("device", ["npu1", "npu2", "npu2_2col"])
def test_products_by_both_channels(case: str, device: str) -> None:
    model, feed = product(case)
    compiled = od.compile(model, device, fallback="error")
    (op,) = compiled.device_step.ops
    assert "by both channels" in op.schedule[0]
    results = [od.InferenceSession(compiled, record=how).run(None, feed) for how in (False, "verify")]
    for one in results:
        check_beside_onnxruntime(model, feed, one, "fp32")
    assert results[0][0].tobytes() == results[1][0].tobytes() and results[0][0].any()


@pytest.mark.parametrize("case", ["vector", "window", "bytes"])
def test_they_take_less_time(case: str) -> None:
    """Weights decide it: each channel of a shim brings 4.5 GB/s."""
    model, _ = product(case)
    both = od.compile(model, "npu2", fallback="error", selector=Search()).timing().cycles
    with one_channel():
        one = od.compile(model, "npu2", fallback="error", selector=Search()).timing().cycles
    assert both < 0.9 * one


@pytest.mark.parametrize("case", LONG_FIRST)
def test_one_channel_where_waiting_for_in1_takes_longer(case: str) -> None:
    """Where both would be slower, what the search chooses is as fast as what it would choose without them."""
    device, *text = LONG_FIRST[case]
    model, _ = made(*text)
    compiled = od.compile(model, device, fallback="error", selector=Search())
    with one_channel():
        one = od.compile(model, device, fallback="error", selector=Search()).timing().cycles
    assert compiled.timing().cycles <= 1.02 * one


def test_reads_alone_get_a_share_of_device_memory(tmp_path: Path) -> None:
    """What reads has its share, what writes has all: a product with weights, and one number everywhere."""
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[1, 1] x) => (float[512, 512] y)'
    filled = parser.parse_model(f"{text} {{ y = Expand(x, shape) }}")
    filled.graph.initializer.append(numpy_helper.from_array(np.array([512, 512]), "shape"))
    file = tmp_path / "slow.toml"
    file.write_text(device_text({"ddr.read_share": 0.1}))
    read, written = (
        [od.compile(model, device, fallback="error").timing().cycles for device in ("npu2", str(file))]
        for model in (product("vector")[0], filled)
    )
    assert read[1] > 2 * read[0] and written[1] < 1.1 * written[0]
