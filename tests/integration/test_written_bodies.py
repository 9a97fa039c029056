# SPDX-License-Identifier: Apache-2.0
"""Function bodies of ours: what ONNX's node tests do not have, beside definitions in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from tests import plugins
from tests.ops.case import run_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")
RNG = np.random.default_rng(5)
Arrays = dict[str, np.ndarray[Any, Any]]


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def ran(op: str, opset: int, feed: Arrays, constants: Arrays, order: str, **attributes: Any) -> Any:
    """The result of a model of one node, every node of whose body is on the device; of the third run."""
    names = [name if name != "_" else "" for name in order.split()]
    node = helper.make_node(op, names, ["y"], name="n", **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
        for name, one in feed.items()
    ]
    held = [numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items()]
    kind = helper.np_dtype_to_tensor_dtype(feed["x"].dtype)
    output = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph([node], "g", inputs, [output], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    session = od.InferenceSession(model, fallback="error")
    assert all("by its function body" in one.reason for one in session.placement)
    for _ in range(3):
        (y,) = session.run(None, feed)
    return y


def as_parts(z: Any) -> Any:
    return np.stack((z.real, z.imag), axis=-1)


@pytest.mark.parametrize("length", [12, 20, 31])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_dft_of_complex_numbers_pads_and_cuts(length: int, axis: int) -> None:
    x = floats(3, 20, 4, 2)
    z = x[..., 0] + 1j * x[..., 1]
    constants = {"n": np.int64(length), "axis": np.int64(axis)}
    y = ran("DFT", 20, {"x": x}, constants, "x n axis")
    np.testing.assert_allclose(y, as_parts(np.fft.fft(z, length, axis)), rtol=0, atol=2e-5)
    y = ran("DFT", 20, {"x": x}, constants, "x n axis", inverse=1)
    np.testing.assert_allclose(y, as_parts(np.fft.ifft(z, length, axis)), rtol=0, atol=2e-6)


@pytest.mark.parametrize("length", [21, 64])
def test_dft_of_real_numbers(length: int) -> None:
    x = floats(2, length, 1)
    y = ran("DFT", 17, {"x": x}, {}, "x", axis=1, onesided=1)
    np.testing.assert_allclose(y, as_parts(np.fft.rfft(x[..., 0], axis=1)), rtol=0, atol=2e-5)


# step, length and samples: frames that steps divide, that they do not, that lie apart, and one alone
@pytest.mark.parametrize(
    ("step", "length", "samples"),
    [
        (16, 64, 500),
        (30, 64, 401),
        (100, 64, 1000),
        (100, 64, 964),
        (1, 8, 20),
        (7, 50, 50),
        (160, 400, 999),
    ],
)
@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(step: int, length: int, samples: int, onesided: int) -> None:
    x, window = floats(2, samples, 1), np.hanning(length).astype(np.float32)
    constants = {"step": np.int64(step), "window": window, "length": np.int64(length)}
    y = ran("STFT", 17, {"x": x}, constants, "x step window length", onesided=onesided)
    frames = sliding_window_view(x[..., 0], length, axis=1)[:, ::step] * np.float64(window)
    wanted = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    np.testing.assert_allclose(y, as_parts(wanted), rtol=0, atol=4e-5)


@pytest.mark.parametrize("fallback", ["error", "cpu"])
def test_stft_of_samples_without_a_last_dimension(fallback: str) -> None:
    """[batch, samples], as public audio front ends have them: onnxruntime takes it, on the host, too."""
    window = np.hanning(16).astype(np.float32)
    held = [numpy_helper.from_array(np.int64(5), "step"), numpy_helper.from_array(np.int64(16), "length")]
    reads = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, "samples"))]
    if fallback == "cpu":  # a window that is computed stays on the host
        reads.append(helper.make_tensor_value_info("window", TensorProto.FLOAT, (16,)))
    else:
        held.append(numpy_helper.from_array(window, "window"))
    node = helper.make_node("STFT", ["x", "step", "window", "length"], ["y"], name="n", onesided=1)
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", reads, made, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    feed = {"x": floats(2, 100), "window": window}
    feed = {one.name: feed[one.name] for one in reads}
    session = od.InferenceSession(model, fallback=fallback)
    for _ in range(3):
        (y,) = session.run(None, feed)
        frames = sliding_window_view(feed["x"], 16, axis=1)[:, ::5] * np.float64(window)
        np.testing.assert_allclose(y, as_parts(np.fft.rfft(frames)), rtol=0, atol=2e-5)
    assert all(("by its function body" in one.reason) == (fallback == "error") for one in session.placement)


def test_stft_of_complex_numbers_without_a_window() -> None:
    x = floats(2, 300, 2)
    constants = {"step": np.int64(7), "length": np.int64(32)}
    y = ran("STFT", 17, {"x": x}, constants, "x step _ length", onesided=0)
    z = x[..., 0] + 1j * x[..., 1]
    wanted = np.fft.fft(sliding_window_view(z, 32, axis=1)[:, ::7])
    np.testing.assert_allclose(y, as_parts(wanted), rtol=0, atol=2e-5)


def linear(image: Any, y: float, x: float) -> Any:
    """All channels of [channels, rows, columns] between its elements; zeros around it."""
    rows, columns = image.shape[1:]
    top, left = int(np.floor(y)), int(np.floor(x))
    found = np.zeros(len(image))
    for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
        if 0 <= row < rows and 0 <= column < columns:
            found += image[:, row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return found


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
def test_roi_align_at_and_beyond_the_borders(batch: int, mode: str) -> None:
    x, rows, columns, ratio = floats(batch, 5, 20, 14), 4, 3, 2
    corners = np.sort(RNG.uniform(-8, 60, (9, 2, 2)), axis=1).reshape(9, 4).astype(np.float32)
    of = RNG.integers(0, batch, 9)
    sizes = {"output_height": rows, "output_width": columns, "sampling_ratio": ratio}
    how = {"spatial_scale": 0.4, "coordinate_transformation_mode": mode}
    y = ran("RoiAlign", 16, {"x": x, "r": corners, "of": of}, {}, "x r of", **sizes, **how)
    wanted = np.zeros((9, 5, rows, columns))
    half = mode == "half_pixel"
    for n, roi in enumerate(corners.astype(np.float64) * 0.4 - (0.5 if half else 0)):
        extents = roi[2:] - roi[:2] if half else np.maximum(roi[2:] - roi[:2], 1)
        for point in np.ndindex(rows * ratio, columns * ratio):
            at = roi[1::-1] + extents[::-1] * (np.array(point) + 0.5) / (rows * ratio, columns * ratio)
            if (at < -1).any() or (at > (20, 14)).any():
                continue
            seen = np.clip(at, 0, (19, 13))
            wanted[n, :, point[0] // ratio, point[1] // ratio] += linear(x[of[n]], *seen) / ratio**2
    np.testing.assert_allclose(y, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_places_are_computed_in_float32(dtype: str) -> None:
    """Of a large picture halves could not say where an element lies."""
    x = np.sin(np.arange(600) / 40).astype(dtype) * np.ones((1, 1, 8, 1), dtype)
    corners = np.array([[500, 1, 570, 6], [37, 2, 93, 5]], dtype)
    sizes = {"output_height": 2, "output_width": 9, "sampling_ratio": 2}
    feed = {"x": x, "r": corners}
    y = ran("RoiAlign", 16, feed, {"of": np.zeros(2, np.int64)}, "x r of", **sizes)
    places = corners[:, :1] - 0.5 + (corners[:, 2:3] - corners[:, :1]) * (np.arange(18) + 0.5) / 18
    seen = np.interp(places, np.arange(600), x[0, 0, 0].astype(np.float64)).reshape(2, 9, 2).mean(axis=2)
    np.testing.assert_allclose(y[:, 0, 0], seen, rtol=0, atol=1e-3 if dtype == "float16" else 1e-5)


WRONG = [(1, [0, 1]), (1, [-1, 0]), (2, [0, 2]), (2, [0, -1]), (2, [-3, 0])]


@pytest.mark.parametrize(("batch", "wrong"), WRONG)
def test_regions_of_pictures_that_there_are_not_end_the_run(batch: int, wrong: list[int]) -> None:
    feed = {"x": floats(batch, 3, 9, 9), "r": np.array([[1, 1, 4, 4]] * 2, np.float32), "of": np.array(wrong)}
    sizes = {"output_height": 2, "output_width": 2, "sampling_ratio": 1}
    with pytest.raises(od.KernelError, match="index"):
        ran("RoiAlign", 16, feed, {}, "x r of", **sizes)
    with pytest.raises(od.UnsupportedModelError) as caught:
        ran("RoiAlign", 16, {name: feed[name] for name in "xr"}, {"of": feed["of"]}, "x r of", **sizes)
    assert "batch_indices from" in str(caught.value)


def test_deform_conv_with_all_that_it_may_have() -> None:
    x, w, bias = floats(2, 8, 11, 9), floats(6, 4, 2, 3), floats(6)
    offsets, mask = 2 * floats(2, 2 * 6 * 2, 6, 4), floats(2, 2 * 6, 6, 4)
    how = {"group": 2, "offset_group": 2, "strides": [2, 2], "pads": [1, 0, 1, 2], "dilations": [1, 2]}
    feed = {"x": x, "offsets": offsets, "mask": mask}
    y = ran("DeformConv", 19, feed, {"w": w, "b": bias}, "x w offsets b mask", **how)
    wanted = np.zeros(y.shape) + bias[:, None, None]
    for n, row, column, tap in np.ndindex(2, 6, 4, 6):
        down, right = divmod(tap, 3)
        for part in range(2):
            moved = offsets[n, (part * 6 + tap) * 2 :][:2, row, column]
            place = 2 * row - 1 + down + moved[0], 2 * column + 2 * right + moved[1]
            share = mask[n, part * 6 + tap, row, column]
            own = slice(3 * part, 3 * part + 3)
            seen = share * linear(x[n, 4 * part : 4 * part + 4], *map(float, place))
            wanted[n, own, row, column] += w[own, :, down, right] @ seen
    np.testing.assert_allclose(y, wanted, rtol=0, atol=5e-5)


def test_the_mask_of_dropout_outside_of_training() -> None:
    node = helper.make_node("Dropout", ["x"], ["y", "mask"], name="n")
    outputs = [plugins.value("y", (3, 5)), helper.make_tensor_value_info("mask", TensorProto.BOOL, (3, 5))]
    model = plugins.model([node], [plugins.value("x", (3, 5))], outputs)
    x = floats(3, 5)
    y, mask = od.InferenceSession(model, fallback="error").run(None, {"x": x})
    assert mask.all() and mask.shape == (3, 5)
    np.testing.assert_array_equal(y, x)


INTEGERS = {
    "few": lambda rng, shape: rng.integers(-3, 3, shape),
    "of all bits": lambda rng, shape: rng.integers(-(1 << 63), (1 << 63) - 1, shape),
    "high words alike": lambda rng, shape: rng.integers(0, 2, shape) << 32 | rng.integers(0, 2, shape),
    "beyond one word": lambda rng, shape: -(rng.integers(0, 3, shape) << 31),
}


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("which", INTEGERS)
def test_top_k_of_int64(which: str, largest: int) -> None:
    """Places of equals in their order, as onnxruntime has them."""
    for shape, axis, k in (((1,), 0, 1), ((9,), 0, 9), ((4, 7), 0, 3), ((2, 5, 3), 1, 2), ((300,), -1, 20)):
        x = INTEGERS[which](np.random.default_rng(k), shape)
        outputs = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in "vi"]
        node = helper.make_node("TopK", ["x", "k"], ["v", "i"], name="n", axis=axis, largest=largest)
        given = [helper.make_tensor_value_info("x", TensorProto.INT64, shape)]
        graph = helper.make_graph([node], "g", given, outputs, [numpy_helper.from_array(np.array([k]), "k")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        session = od.InferenceSession(model, fallback="error")
        for ours, theirs in zip(session.run(None, {"x": x}), run_onnxruntime(model, {"x": x}), strict=True):
            np.testing.assert_array_equal(ours, theirs)


REFUSED = {
    "STFT: x: tensor(float)[1, 64, 3]": ("STFT", "x step _ length", {"onesided": 0}, {"x": floats(1, 64, 3)}),
    "STFT: window 'window', which is computed": ("STFT", "x step window", {}, {"window": floats(64)}),
    "DFT: a matrix of 52428800 elements": ("DFT", "x n", {"onesided": 0}, {}),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_a_body_cannot_say_is_refused_with_the_reason(reason: str) -> None:
    op, order, attributes, computed = REFUSED[reason]
    feed = {"x": floats(1, 200, 1), **computed}
    constants = {"step": np.int64(8), "n": np.int64(1 << 17), "length": np.int64(8)}
    left = {name: one for name, one in constants.items() if name in order.split() and name not in feed}
    with pytest.raises(od.UnsupportedModelError) as caught:
        ran(op, 17, feed, left, order, **attributes)
    assert reason in str(caught.value), str(caught.value)
