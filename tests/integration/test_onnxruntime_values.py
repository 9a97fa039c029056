# SPDX-License-Identifier: Apache-2.0
"""``OrtValue`` beside onnxruntime's: what values say, whose memory they share, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, parser

import onedispatch as od

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

X = np.random.default_rng(6).standard_normal((3, 4), np.float32)
ENGINES = {"onnxruntime": onnxruntime, "onedispatch": od}
Engine = Any  # a module: onnxruntime, or ours under its name


@pytest.fixture(params=ENGINES)
def ort(request: pytest.FixtureRequest) -> Engine:
    return ENGINES[request.param]


SAID = (
    "data_type device_name element_type has_value is_sparse_tensor is_tensor is_tensor_sequence shape".split()
)
SAID += ["tensor_size_in_bytes"]
KINDS = (np.float32, np.float64, np.float16, np.int8, np.uint16, np.int64, np.bool_)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_values_say_the_same_of_themselves(kind: type) -> None:
    array = np.arange(6).reshape(2, 3).astype(kind)
    theirs, ours = (ort.OrtValue.ortvalue_from_numpy(array) for ort in (onnxruntime, od))
    for name in SAID:
        assert getattr(ours, name)() == getattr(theirs, name)(), name
    assert ours.data_ptr() == array.ctypes.data == theirs.data_ptr()
    np.testing.assert_array_equal(ours.numpy(), array)
    np.testing.assert_array_equal(np.asarray(ours), array)
    assert np.asarray(ours, np.float32).dtype == np.float32


def test_values_share_memory(ort: Engine) -> None:
    array = np.zeros((2, 3), np.float32)
    made = ort.OrtValue.ortvalue_from_numpy(array)
    made.update_inplace(np.full((2, 3), 7, np.float32))
    assert (array == 7).all() and np.shares_memory(made.numpy(), array)
    other = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    other.update_inplace(made)
    assert (other.numpy() == 7).all()
    if ort is od:  # onnxruntime copies between devices alone
        other.update_inplace(np.zeros((2, 3), np.float32))
        ort.copy_tensors([made], [other])
        assert (other.numpy() == 7).all()
    tensor = np.from_dlpack(ort.OrtValue.from_dlpack(array))
    assert tensor.shape == (2, 3) and (tensor == 7).all()
    every_second = np.arange(8, dtype=np.float32)[::2]
    np.testing.assert_array_equal(ort.OrtValue.ortvalue_from_numpy(every_second).numpy(), [0, 2, 4, 6])


def test_values_of_types_of_onnx(ort: Engine) -> None:
    made = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], TensorProto.BFLOAT16)
    assert (made.shape(), made.data_type(), made.element_type()) == (
        [2, 3],
        "tensor(bfloat16)",
        TensorProto.BFLOAT16,
    )
    bits = np.array([0x3F80, 0x4000], np.uint16)
    made = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
    assert (made.data_type(), made.shape(), made.data_ptr()) == ("tensor(bfloat16)", [2], bits.ctypes.data)
    if ort is od:  # onnxruntime has no array of these
        np.testing.assert_array_equal(made.numpy().astype(np.float32), [1, 2])


def test_sequences_are_values(ort: Engine) -> None:
    text = """<ir_version: 8, opset_import: ["": 21]> g (float[2] x) => (seq(float[2]) s)
        { y = Neg(x) s = SequenceConstruct(x, y) }"""
    made = ort.InferenceSession(parser.parse_model(text).SerializeToString())
    (value,) = made.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(X[0, :2])})
    assert value.is_tensor_sequence() and not value.is_tensor() and value.has_value()
    assert (value.data_type(), value.element_type()) == ("seq(tensor(float))", TensorProto.FLOAT)
    if ort is od:  # onnxruntime ends the process
        np.testing.assert_array_equal(value.numpy()[1], -X[0, :2])
        with pytest.raises(od.InputError, match=r"OrtValue.shape: given a seq"):
            value.shape()


VALUE_MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "size": (lambda: od.OrtValue.ortvalue_from_shape_and_type([2, -1], np.float32), "-1"),
    "type": (lambda: od.OrtValue.ortvalue_from_shape_and_type([2], 999), "element_type 999"),
    "text": (lambda: od.OrtValue.ortvalue_from_shape_and_type([2], np.str_), "a type of numbers"),
    "memory": (lambda: od.OrtValue.ortvalue_from_shape_and_type([2], np.int8, memory_info=1), "memory_info"),  # type: ignore[arg-type]
    "bytes": (lambda: od.OrtValue.ortvalue_from_numpy_with_onnx_type(X, TensorProto.INT8), "4 bytes"),
    "dlpack": (lambda: od.OrtValue.from_dlpack(5), "__dlpack__"),
    "dates": (lambda: od.OrtValue.ortvalue_from_numpy(np.zeros(2, "M8[s]")), "datetime64"),
    "read-only": (lambda: od.OrtValue.ortvalue_from_numpy(read_only()).update_inplace(X), "read-only"),
    "dtype": (lambda: od.OrtValue.ortvalue_from_numpy(X).update_inplace(X.astype(np.float64)), "float64"),
    "as many": (lambda: od.copy_tensors([], [od.OrtValue.ortvalue_from_numpy(X)]), "as many"),
}


def read_only() -> Any:
    array = X.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("case", VALUE_MISTAKES)
def test_mistakes_with_values_are_explained(case: str) -> None:
    make, text = VALUE_MISTAKES[case]
    with pytest.raises(od.InputError, match=text):
        make()
