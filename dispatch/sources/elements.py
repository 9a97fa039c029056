# SPDX-License-Identifier: Apache-2.0
"""What is known of whole numbers that are computed from shapes, element by element.

Frameworks reshape to a batch of any size, and sizes that are known: ``[Shape(x)[0], 7, 64]``. Here such
a tensor is an array of Python's integers, with None where an element is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from onedispatch.dispatch.frontend.graph import Array, Dimension

Elements = Array
"""An array of objects: int, or None."""
LIMIT = 1024
"""Tensors with more elements are not followed: no shape has so many."""
_Given = Sequence[Elements | None]
_Attributes = Mapping[str, Any]


def elements_of(
    node: onnx.NodeProto, given: _Given, shapes: Sequence[Sequence[Dimension] | None]
) -> Elements | None:
    """Returns what is known of the first result of a node; None if nothing is.

    Args:
        given: what is known of each input.
        shapes: of each input.
    """
    function = _FUNCTIONS.get(node.op_type) if not node.domain else None
    if function is None:
        return None
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    if node.op_type in ("Shape", "Size"):
        made = None if shapes[0] is None else function(attributes, _known(shapes[0]))
    elif all(one is not None for one in given):
        try:
            made = function(attributes, *given)
        except (IndexError, TypeError, ValueError, ZeroDivisionError, OverflowError):
            return None  # what is wrong with the node is said when it is checked
    else:
        return None
    return made if made is not None and made.size <= LIMIT else None


def shape_from(
    node: onnx.NodeProto, given: _Given, whole: Sequence[Dimension] | None
) -> Sequence[Any] | None:
    """Returns the shape of what a node makes by the sizes in one of its inputs; None of other nodes.

    ``whole`` is the shape of its first input.
    """
    index = {"Reshape": 1, "ConstantOfShape": 0}.get(node.op_type) if not node.domain else None
    sizes = None if index is None or index >= len(given) else given[index]
    if sizes is None or sizes.ndim != 1:
        return None
    if any(one is not None and one < -(node.op_type == "Reshape") for one in sizes):
        return None  # no sizes: the check of the node says so
    if node.op_type == "ConstantOfShape":
        return list(sizes)
    found = [_copied(node, whole, i) if size == 0 else size for i, size in enumerate(sizes)]
    if -1 in found:
        total, rest = _product(whole), _product([one for one in found if one != -1])
        found[found.index(-1)] = total // rest if total is not None and rest else None
    return found


def _product(sizes: Sequence[Dimension] | None) -> int | None:
    known = [one for one in sizes or () if isinstance(one, int)]
    return int(np.prod(known, dtype=np.int64)) if sizes is not None and len(known) == len(sizes) else None


def _copied(node: onnx.NodeProto, whole: Sequence[Dimension] | None, axis: int) -> Dimension:
    """The size that a Reshape by 0 has."""
    if any(one.name == "allowzero" and one.i for one in node.attribute):
        return 0
    return whole[axis] if whole is not None and axis < len(whole) else None


def _known(shape: Sequence[Dimension]) -> Elements:
    found = np.empty(len(shape), object)
    found[:] = [one if isinstance(one, int) else None for one in shape]
    return found


def _shape(attributes: _Attributes, whole: Elements) -> Elements:
    return whole[attributes.get("start", 0) : attributes.get("end")]


def _size(attributes: _Attributes, whole: Elements) -> Elements:
    known = all(one is not None for one in whole)
    return np.array(int(np.prod(whole)) if known else None, object)


def _gather(attributes: _Attributes, x: Elements, indices: Elements) -> Elements:
    return np.asarray(np.take(x, indices.astype(np.int64), attributes.get("axis", 0)), object)


def _slice(attributes: _Attributes, x: Elements, *bounds: Elements) -> Elements | None:
    starts, ends, *rest = ([int(i) for i in one] for one in bounds)
    if x.ndim != 1 or len(starts) != 1:
        return None
    return x[starts[0] : ends[0] : rest[1][0] if len(rest) > 1 else 1]


def _squeeze(attributes: _Attributes, x: Elements, axes: Elements | None = None) -> Elements:
    return np.squeeze(x, None if axes is None else tuple(int(i) for i in axes))


def _unsqueeze(attributes: _Attributes, x: Elements, axes: Elements) -> Elements:
    return np.expand_dims(x, tuple(int(i) for i in axes))


def _concat(attributes: _Attributes, *parts: Elements) -> Elements:
    return np.concatenate(parts, attributes["axis"])


def _reshape(attributes: _Attributes, x: Elements, sizes: Elements) -> Elements:
    return x.reshape([int(one) for one in sizes])


def _range(attributes: _Attributes, start: Elements, limit: Elements, delta: Elements) -> Elements | None:
    bounds = [one.item() for one in (start, limit, delta)]
    if abs(bounds[1] - bounds[0]) > LIMIT:
        return None
    return np.arange(*bounds).astype(object)


def _where(attributes: _Attributes, condition: Elements, x: Elements, y: Elements) -> Elements | None:
    return np.where(condition.astype(bool), x, y) if None not in condition.ravel().tolist() else None


def _by_number(function: Callable[[int, int], int]) -> Callable[..., Elements]:
    """The operator on two tensors, of which unknown elements make unknown ones."""
    each = np.frompyfunc(lambda a, b: None if a is None or b is None else function(a, b), 2, 1)
    return lambda attributes, x, y: np.asarray(each(x, y), object)


def _quotient(a: int, b: int) -> int:
    return -(-a // b) if (a < 0) != (b < 0) else a // b


_FUNCTIONS: Mapping[str, Callable[..., Elements | None]] = {
    "Shape": _shape,
    "Size": _size,
    "Cast": lambda attributes, x: x,
    "Identity": lambda attributes, x: x,
    "Gather": _gather,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "Reshape": _reshape,
    "Range": _range,
    "Where": _where,
    "Add": _by_number(lambda a, b: a + b),
    "Sub": _by_number(lambda a, b: a - b),
    "Mul": _by_number(lambda a, b: a * b),
    "Div": _by_number(_quotient),
    "Max": _by_number(max),
    "Min": _by_number(min),
}
