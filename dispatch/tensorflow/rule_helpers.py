# SPDX-License-Identifier: Apache-2.0
"""What our rules for TensorFlow share: operands that have to be known, sizes, spatial attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import Operand, SourceNode

Array = np.ndarray[Any, Any]
Size = int | Operand
"""A size that is known, or a tensor int64[1] that has it."""

INT64 = np.dtype(np.int64)
END = np.iinfo(np.int64).max
"""As an end of ONNX's Slice: all that there is."""


def constant(n: SourceNode, index: int, what: str) -> Array:
    """Returns the values of an input. Raises ``Refused`` if they are computed."""
    array = n.inputs[index].constant
    if array is None:
        raise Refused(f"{what} ({n.inputs[index]}) is computed, where a constant is expected")
    return array


def numbers(n: SourceNode, index: int, what: str) -> list[int]:
    """Returns the whole numbers of an input, of a scalar one. Raises ``Refused`` if they are computed."""
    return [int(one) for one in constant(n, index, what).reshape(-1)]


def rank(x: Operand, what: str) -> int:
    """Returns how many dimensions a tensor has. Raises ``Refused`` if that is unknown."""
    if x.rank is None:
        raise Refused(f"{what} ({x}) of unknown rank")
    return x.rank


def int64(g: Builder, x: Operand) -> Any:
    """Returns whole numbers in ONNX's type for sizes, axes and places."""
    array = g.known(x)
    if array is not None:
        return g.constant(array.astype(np.int64))
    return x if x.dtype == INT64 else g.Cast(x, to=INT64)


def floats(g: Builder, x: Operand) -> Any:
    """Returns numbers in float32, other floats as they are."""
    dtype = x.dtype
    return x if dtype is not None and dtype.kind == "f" else g.Cast(x, to=np.dtype(np.float32))


def size(g: Builder, x: Operand, axis: int) -> Size:
    """Returns the size of a dimension, which is computed from the shape where it is unknown."""
    shape = x.shape
    if shape is not None and isinstance(shape[axis], int):
        return int(shape[axis] or 0)
    end = axis + 1 if axis != -1 else None
    found: Operand = g.Shape(x, start=axis, end=end)
    return found


def vector(g: Builder, parts: Sequence[Size]) -> Any:
    """Returns sizes as one tensor, a constant if all are known."""
    if all(isinstance(one, int) for one in parts):
        return g.constant(np.array(parts, np.int64))
    return g.Concat(*(g.constant([one], np.int64) if isinstance(one, int) else one for one in parts), axis=0)


def product(g: Builder, *factors: Size) -> Size:
    """Returns the product of sizes."""
    known = int(np.prod([one for one in factors if isinstance(one, int)], dtype=np.int64))
    found: Size = known
    for one in factors:
        if not isinstance(one, int):
            found = one if isinstance(found, int) and found == 1 else g.Mul(one, found)
    return found


def channels_first(n: SourceNode) -> bool:
    """Whether the data of a node has channels before what is spatial."""
    return str(n.attr("data_format", "NHWC")).startswith("NC")


def current(n: SourceNode) -> str:
    """Returns the format of ONNX's operators with the dimensions of a node's data."""
    return "NCDHW" if len(n.attr("data_format", "NHWC")) == 5 else "NCHW"


def spatial(n: SourceNode, given: Sequence[int], others: int = 1) -> list[int]:
    """Returns those of one number per dimension that are about the spatial ones.

    ``others`` is what those of batch and channels are where nothing is done over these. Raises ``Refused``
    if something is.
    """
    first = channels_first(n)
    if {given[0], given[1 if first else -1]} != {others}:
        raise Refused(f"{list(given)} in the format {n.attr('data_format', 'NHWC')}: over batch or channels")
    return list(given[2:] if first else given[1:-1])


def listed_pads(n: SourceNode) -> list[int] | None:
    """Returns the padding that the node lists: what is before each spatial dimension, then what is behind."""
    listed = list(n.attr("explicit_paddings", []))
    if n.attr("padding") != "EXPLICIT":
        return None
    return [*spatial(n, listed[::2], others=0), *spatial(n, listed[1::2], others=0)]


def same_pads(full: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Returns the padding of SAME, the odd element behind, of windows that reach ``full``."""
    total = [max(reach - size, 0) for reach, size in zip(full, sizes, strict=True)]
    return [*(one // 2 for one in total), *(one - one // 2 for one in total)]


def padding(n: SourceNode, window: Sequence[int] | None, strides: Sequence[int]) -> dict[str, Any]:
    """Returns the attributes of ONNX for the padding of the image, input 0.

    ``window`` is what a window covers. SAME is computed where sizes are known: the device takes no auto_pad
    whose windows leave elements out.
    """
    listed, shape = listed_pads(n), n.inputs[0].shape
    if listed is not None:
        return {"pads": listed}
    if n.attr("padding") == "VALID":
        return {"auto_pad": "VALID"}
    sizes = None if shape is None else shape[2:] if channels_first(n) else shape[1:-1]
    known = [one for one in sizes or () if isinstance(one, int)]
    if window is None or len(known) != len(window):
        # A window of one element needs no padding for any sizes.
        return {"auto_pad": "VALID" if window is not None and set(window) == {1} else "SAME_UPPER"}
    steps = zip(known, window, strides, strict=True)
    return {"pads": same_pads([(-(-size // s) - 1) * s + k for size, k, s in steps], known)}
