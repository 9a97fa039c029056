# SPDX-License-Identifier: Apache-2.0
"""Tensors own their element type, how they lie in device memory, and their quantisation."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onedispatch.operators.declarations.dtypes import carrier
from onedispatch.operators.declarations.tensor import Quantisation, TensorSpec, Unsupported
from onedispatch.transactions.base.errors import OperatorError


def spec(dtype: Any, *shape: int, **changes: Any) -> TensorSpec:
    return TensorSpec("t", np.dtype(dtype), shape, **changes)


@pytest.mark.parametrize(
    ("dtype", "shape", "pitch", "strides", "size"),
    [
        ("float32", (3, 5), 5, (5, 1), 60),
        ("int8", (3, 5), 8, (8, 1), 24),
        ("int8", (2, 3, 4), 4, (12, 4, 1), 24),
        ("uint16", (3, 5), 6, (6, 1), 36),
        ("bool", (), 4, (), 4),
        ("int64", (3, 5), 5, (5, 1), 120),
        ("int8", (0, 5), 8, (8, 1), 0),
        ("int8", (5, 0), 0, (0, 1), 0),
    ],
)
def test_rows_are_whole_words(
    dtype: str, shape: tuple[int, ...], pitch: int, strides: tuple[int, ...], size: int
) -> None:
    tensor = spec(dtype, *shape)
    assert (tensor.row_pitch, tensor.strides, tensor.device_bytes) == (pitch, strides, size)
    array = np.arange(tensor.size).astype(dtype).reshape(shape)
    image = tensor.laid(array)
    assert image.nbytes == size
    np.testing.assert_array_equal(tensor.gathered(image), array)


@pytest.mark.parametrize(
    ("dtype", "one", "other", "same"),
    [
        ("float32", (3, 5), (15,), True),
        ("int64", (3, 5), (5, 3), True),
        ("int8", (3, 8), (24,), True),
        ("int8", (3, 8), (2, 12), True),
        ("int8", (3, 5), (1, 3, 5), True),
        ("int8", (3, 5), (15,), False),
        ("int8", (4, 3), (3, 4), False),
        ("int8", (6, 2), (2, 3, 2), True),
        ("uint16", (3, 6), (9, 2), True),
        ("uint16", (3, 5), (5, 3), False),
    ],
)
def test_tensors_that_are_the_same_bytes(
    dtype: str, one: tuple[int, ...], other: tuple[int, ...], same: bool
) -> None:
    a, b = spec(dtype, *one), spec(dtype, *other)
    assert a.lies_as(b) == b.lies_as(a) == same
    array = np.arange(a.size).astype(dtype)
    equal = np.array_equal(a.laid(array.reshape(one)), b.laid(array.reshape(other)))
    assert equal == same


def test_what_moves_elements() -> None:
    assert [(c[0].name, c[1]) for t in ("int8", "int64", "float64") if (c := carrier(np.dtype(t)))] == [
        ("i8", 1),
        ("u32", 2),
        ("u32", 2),
    ]
    found = carrier(np.dtype(ml_dtypes.float8_e4m3fn))
    assert found is not None and found[0].name == "u8"
    assert carrier(np.dtype(object)) is None


def test_element_types_without_a_row() -> None:
    assert spec("uint16", 3).element.name == "u16"
    with pytest.raises(Unsupported, match="t is uint64"):
        _ = spec("uint64", 3).element


@pytest.mark.parametrize(
    ("facts", "dtype", "says"),
    [
        ({"scale": ()}, "int8", "finite numbers above zero"),
        ({"scale": (0.0,)}, "int8", "finite numbers above zero"),
        ({"scale": (float("nan"),)}, "int8", "finite numbers above zero"),
        ({"scale": (1.0, 2.0), "axis": 0}, "int8", "as many zero points as scales"),
        ({"scale": (1.0, 2.0), "zero_point": (0, 0)}, "int8", "one, or an axis"),
        ({"scale": (1.0,), "axis": -1}, "int8", "counted from the first"),
        ({"scale": (1.0,), "zero_point": (128,)}, "int8", "-128 to 127"),
        ({"scale": (1.0,)}, "float32", "integers"),
        (
            {"scale": (1.0, 2.0), "zero_point": (0, 0), "axis": 0},
            "int8",
            "one per coordinate along",
        ),
        ({"scale": (1.0, 2.0), "zero_point": (0, 0), "axis": 2}, "int8", "below 2"),
    ],
)
def test_quantisation_that_stands_for_nothing(facts: dict[str, Any], dtype: str, says: str) -> None:
    with pytest.raises(OperatorError, match=says):
        spec(dtype, 3, 2, quantisation=Quantisation(**facts))


def test_quantisation_per_tensor_and_per_axis() -> None:
    assert spec("uint8", 3, 2, quantisation=Quantisation((0.5,), (255,))).quantisation is not None
    assert spec("int8", 3, 2, quantisation=Quantisation((0.5, 1.0), (3, -3), 1)).quantisation is not None
