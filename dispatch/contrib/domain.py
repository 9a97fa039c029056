# SPDX-License-Identifier: Apache-2.0
"""onnxruntime's contrib operators: what its optimiser, its quantisers and its model builder write.

Those that ONNX can say are written as ONNX's, by rules, before anything else is done: so they are quantised,
merged and placed as what they stand for. Others have mappings of their own in ``operators/mappings``. A model
may be of any operator set from 7 on: what rules write is valid in its own one.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from onedispatch.dispatch.sources.api import frontend
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import Operand, SourceNode
from onedispatch.operators.declarations.registry import MICROSOFT

RULES = "onedispatch.dispatch.contrib.rules"

contrib = frontend("onnx", domain=MICROSOFT)


def load_rules() -> None:
    """Makes our rules for com.microsoft known."""
    import_module(RULES)


def given(n: SourceNode, index: int) -> Operand | None:
    """Returns an operand, None if the node leaves it out."""
    return n.inputs[index] if index < len(n.inputs) and n.inputs[index] else None


def wants(n: SourceNode, index: int) -> bool:
    """Whether the node has the output."""
    return index < len(n.outputs) and bool(n.outputs[index])


def refuse_given(n: SourceNode, **inputs: int) -> None:
    """Raises ``Refused`` if the node has one of these operands."""
    for name, index in inputs.items():
        if given(n, index) is not None:
            raise Refused(f"{name} is given, which no operator of ONNX takes")


def number(g: Builder, value: float, like: Operand) -> Operand:
    """A constant in the type of a tensor. Raises ``Refused`` if that is unknown."""
    if like.dtype is None:
        raise Refused(f"{like} of unknown type")
    return g.constant(value, like.dtype)


def sizes(g: Builder, x: Operand, axis: int) -> Operand:
    """The size of a dimension, as a tensor int64[1]."""
    known = x.shape[axis] if x.shape is not None and axis < len(x.shape) else None
    if isinstance(known, int):
        return g.constant([known], np.int64)
    return g.Gather(g.Shape(x), g.constant([axis], np.int64))  # type: ignore[no-any-return]


def counted(g: Builder, size: Operand) -> Operand:
    """The numbers from 0 to a size, which is a tensor int64[1], int64."""
    ends = (g.constant(one, np.int64) for one in (0, 1))
    first, step = ends
    return g.Range(first, g.Reshape(size, g.constant(np.zeros(0), np.int64)), step)  # type: ignore[no-any-return]


def unsqueezed(g: Builder, x: Any, axes: Sequence[int]) -> Any:
    return _by_axes(g, "Unsqueeze", x, axes, 13)


def summed(g: Builder, x: Any, axes: Sequence[int]) -> Any:
    """The sum along axes, which are dropped."""
    return _by_axes(g, "ReduceSum", x, axes, 13, keepdims=0)


def _by_axes(g: Builder, op: str, x: Any, axes: Sequence[int], since: int, **rest: int) -> Any:
    """Axes are an operand in operator set ``since`` and later ones, an attribute before."""
    if g.opset < since:
        return g.op(op, x, axes=list(axes), **rest)
    return g.op(op, x, g.constant(list(axes), np.int64), **rest)


def parted(g: Builder, x: Operand, widths: Sequence[int], axis: int) -> list[Any]:
    """Blocks along an axis; those of a constant are constants, so that nothing is cut at run time."""
    array = g.known(x)
    if array is None:
        ends = np.cumsum(widths)
        along = g.constant([axis], np.int64)
        bounds = (
            (g.constant([end - width], np.int64), g.constant([end], np.int64))
            for width, end in zip(widths, ends, strict=True)
        )
        return [g.Slice(x, first, end, along) for first, end in bounds]
    if array.shape[axis] != sum(widths):
        raise Refused(f"{x} of shape {list(array.shape)}, where {sum(widths)} along axis {axis} are expected")
    return [g.constant(one) for one in np.split(array, np.cumsum(widths)[:-1], axis=axis)]


def by_head(g: Builder, x: Any, heads: int) -> Any:
    """[batch, sequence, heads * size] -> [batch, heads, sequence, size]."""
    return g.Transpose(g.Reshape(x, g.constant([0, 0, heads, -1], np.int64)), perm=[0, 2, 1, 3])


def by_place(g: Builder, x: Any) -> Any:
    """[batch, heads, sequence, size] -> [batch, sequence, heads * size]."""
    return g.Reshape(g.Transpose(x, perm=[0, 2, 1, 3]), g.constant([0, 0, -1], np.int64))
