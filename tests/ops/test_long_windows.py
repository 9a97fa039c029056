# SPDX-License-Identifier: Apache-2.0
"""Windows whose taps do not fit a core together run all the same, in strict mode."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import onedispatch as od

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(15)


def model(
    op_type: str, x: Array, constants: dict[str, Array], outputs: int = 1, opset: int = 22, **attributes: Any
) -> Any:
    node = helper.make_node(op_type, ["x", *constants], ["y", "i"][:outputs], "n", **attributes)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [onnx.ValueInfoProto(name=name) for name in node.output],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def on_device(proto: Any, **feed: Array) -> list[Array]:
    return list(od.InferenceSession(proto, fallback="error").run(None, feed))


def expected(proto: Any, **feed: Array) -> list[Array]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def weights(*shape: int) -> Array:
    return floats(*shape) / np.float32(np.sqrt(np.prod(shape[1:])))


def summed(x: Array, w: Array, strides: list[int], pads: Any = ()) -> Array:
    """A convolution in float64, which holds sums of products of bytes."""
    rank = x.ndim - 2
    edges = list(zip(pads[:rank], pads[rank:], strict=True)) or [(0, 0)] * rank
    seen = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, [(0, 0), (0, 0), *edges]), w.shape[2:], tuple(range(2, x.ndim))
    )[(..., *(slice(None, None, step) for step in strides), *(slice(None),) * rank)]
    taps = [1, *range(2 + rank, 2 + 2 * rank)]
    return np.moveaxis(np.tensordot(seen, w, (taps, [1, *range(2, 2 + rank)])), -1, 1)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "patches of 32": ((1, 3, 96, 64), (8, 3, 32, 32), {"strides": [32, 32]}),
    "patches of 64 of two images": ((2, 2, 128, 64), (4, 2, 64, 64), {"strides": [64, 64]}),
    "patches in groups": ((1, 4, 64, 64), (4, 2, 32, 32), {"strides": [32, 32], "group": 2}),
    "patches that overlap": ((1, 2, 63, 61), (4, 2, 32, 32), {"strides": [16, 8], "pads": [8, 7, 9, 6]}),
    "prime": ((1, 2, 40, 36), (3, 2, 31, 31), {"pads": [15] * 4}),
    "gaps between windows": ((1, 1, 100, 80), (2, 1, 32, 32), {"strides": [40, 36]}),
    "wide rows": ((1, 2, 3, 2500), (3, 2, 2, 1200), {"strides": [1, 300]}),
    "speech": ((1, 1, 4000), (16, 1, 1024), {"strides": [256]}),
    "speech, padded, of a batch": ((2, 1, 3000), (4, 1, 2048), {"strides": [512], "pads": [1024, 1024]}),
    "long, one by one": ((1, 2, 1500), (2, 2, 1000), {}),
    "long and dilated": ((1, 1, 2600), (3, 1, 1200), {"dilations": [2], "strides": [3], "pads": [5, 4]}),
    "far apart": ((1, 1, 16), (1, 1, 600), {"dilations": [4000], "pads": [1_200_000] * 2}),
    "frames": ((1, 2, 4, 64, 64), (3, 2, 2, 32, 32), {"strides": [2, 32, 32]}),
}


@pytest.mark.daily(3)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    x_shape, w_shape, attributes = CONVOLUTIONS[name]
    x, constants = floats(*x_shape), {"w": weights(*w_shape), "b": floats(w_shape[0])}
    proto = model("Conv", x, constants, **attributes)
    np.testing.assert_allclose(on_device(proto, x=x)[0], expected(proto, x=x)[0], rtol=1e-4, atol=3e-5)


def test_what_lies_outside_of_a_window_stays_outside() -> None:
    x = floats(1, 1, 100, 80)
    x[:, :, 32:40], x[..., 32:36] = np.nan, np.inf  # between windows
    proto = model("Conv", x, {"w": weights(2, 1, 32, 32)}, strides=[40, 36])
    got = on_device(proto, x=x)[0]
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got, expected(proto, x=x)[0], rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize(
    ("shape", "kernel", "stride"), [((1, 2, 64, 64), (32, 32), 32), ((1, 1, 3000), (1200,), 400)]
)
def test_weights_that_are_computed(shape: tuple[int, ...], kernel: tuple[int, ...], stride: int) -> None:
    x, w = floats(*shape), weights(3, shape[1], *kernel)
    proto = model("Conv", x, {"w": w}, strides=[stride] * len(kernel))
    proto.graph.initializer.pop()
    proto.graph.input.append(helper.make_tensor_value_info("w", 1, w.shape))
    got, wanted = on_device(proto, x=x, w=w)[0], expected(proto, x=x, w=w)[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("shape", "kernel"), [((1, 2, 96, 96), (48, 48)), ((1, 1, 4001), (2000,))])
def test_halves(dtype: Any, shape: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    x, w = floats(*shape).astype(dtype), weights(3, shape[1], *kernel).astype(dtype)
    strides = [48, 48] if len(kernel) == 2 else [7]
    got = on_device(model("Conv", x, {"w": w}, strides=strides), x=x)[0].astype(np.float32)
    wide = {"w": w.astype(np.float32)}
    (wanted,) = expected(model("Conv", x.astype(np.float32), wide, strides=strides), x=x.astype(np.float32))
    np.testing.assert_allclose(got, wanted, rtol=2**-7, atol=2**-8)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("shape", "kernel", "more"),
    [
        ((1, 2, 256, 130), (128, 128), {"strides": [128, 2]}),
        ((2, 1, 255, 131), (126, 127), {"strides": [60, 5], "pads": [3, 1, 2, 2]}),
        ((1, 1, 12001), (4095,), {"strides": [999], "pads": [17, 5]}),
    ],
)
def test_integers(dtype: Any, shape: tuple[int, ...], kernel: tuple[int, ...], more: dict[str, Any]) -> None:
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, shape, dtype, endpoint=True)
    w = RNG.integers(-127, 127, (3, shape[1], *kernel), np.int8, endpoint=True)
    constants = {"w": w, "x_zero": np.array(7, dtype)}
    proto = model("ConvInteger", x, constants, **more)
    np.testing.assert_array_equal(
        on_device(proto, x=x)[0], summed(x.astype(float) - 7, w.astype(float), **more)
    )


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [30, 20, 25, 35]])
def test_pools(op_type: str, pads: list[int]) -> None:
    x = floats(1, 2, 170, 180)
    proto = model(op_type, x, {}, kernel_shape=[150, 140], strides=[10, 20], pads=pads)
    np.testing.assert_allclose(on_device(proto, x=x)[0], expected(proto, x=x)[0], rtol=2e-5, atol=1e-6)


def test_pools_of_bytes() -> None:
    x = RNG.integers(-128, 127, (1, 3, 250, 290), np.int8, endpoint=True)
    proto = model("MaxPool", x, {}, kernel_shape=[240, 260])
    np.testing.assert_array_equal(on_device(proto, x=x)[0], expected(proto, x=x)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("size", [(12,), (8, 9)])
def test_the_indices_of_a_pool_alone(dtype: Any, size: tuple[int, ...]) -> None:
    x = RNG.permutation(3 * int(np.prod(size))).reshape(1, 3, *size).astype(dtype)
    for unnamed in (False, True):
        proto = model("MaxPool", x, {}, outputs=2, kernel_shape=[2] * len(size))
        del proto.graph.output[0]
        if unnamed:
            proto.graph.node[0].output[0] = "unread"
        np.testing.assert_array_equal(on_device(proto, x=x)[0], expected(proto, x=x)[0])
