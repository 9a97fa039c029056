# SPDX-License-Identifier: Apache-2.0
"""What is known of numbers that are computed from shapes: never anything else than what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from onedispatch.dispatch.sources.elements import elements_of, shape_from

SHAPE = (None, 7, 64)


def known(op: str, *given: Any, shape: Any = None, **attributes: Any) -> Any:
    """What is known of the result of a node, as a list; None of nothing."""
    node = helper.make_node(op, [f"x{i}" for i in range(len(given) or 1)], ["y"], **attributes)
    arrays = [None if one is None else np.array(one, object) for one in given]
    found = elements_of(node, arrays, [shape] * max(len(given), 1))
    return None if found is None else found.tolist()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (known("Shape", shape=SHAPE), [None, 7, 64]),
        (known("Shape", shape=SHAPE, start=1, end=2), [7]),
        (known("Shape", shape=("batch", 3)), [None, 3]),
        (known("Shape", shape=None), None),
        (known("Size", shape=SHAPE), None),
        (known("Size", shape=(2, 3)), 6),
        (known("Gather", [None, 7, 64], 1), 7),
        (known("Gather", [None, 7, 64], [2, 0]), [64, None]),
        (known("Gather", [None, 7], 5), None),
        (known("Slice", [None, 7, 64], [1], [9]), [7, 64]),
        (known("Slice", [None, 7, 64], [-1], [-9], [0], [-1]), [64, 7, None]),
        (known("Squeeze", [5], [0]), 5),
        (known("Unsqueeze", 5, [0]), [5]),
        (known("Concat", [None], [7], axis=0), [None, 7]),
        (known("Concat", [None], None, axis=0), None),
        (known("Mul", [None, 7], 2), [None, 14]),
        (known("Div", [-7, 7], 2), [-3, 3]),
        (known("Div", [7], 0), None),
        (known("Range", 0, 3, 1), [0, 1, 2]),
        (known("Range", 0, 10**12, 1), None),
        (known("Where", [True, False], [1, 2], [None, 4]), [1, 4]),
        (known("Exp", [1]), None),
    ],
)
def test_elements(found: Any, expected: Any) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("sizes", "whole", "expected"),
    [
        ([None, 448], SHAPE, [None, 448]),
        ([-1, 6], (2, 3, 4), [4, 6]),
        ([-1, 6], (None, 3, 4), [None, 6]),
        ([0, -1], (None, 3, 4), [None, None]),
        ([0, -1], (2, 3, 4), [2, 12]),
        ([-3, 6], (2, 3), None),
    ],
)
def test_shapes_from_elements(sizes: list[Any], whole: Any, expected: Any) -> None:
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    assert shape_from(node, [None, np.array(sizes, object)], whole) == expected
