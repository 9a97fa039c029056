# SPDX-License-Identifier: Apache-2.0
"""Weights that only DequantizeLinear makes floats of: products take them as they are packed.

``MatMul(x, DequantizeLinear(q))`` of constant q becomes onnxruntime's ``MatMulNBits``, as there: weights of
4 bits keep them, and those of 8 a byte, to the cores, where they would be four bytes as constants in float32.
One scale per tensor or per column is one per block with the same value in each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.rules.match import Match, attribute
from onedispatch.dispatch.rules.pattern import Condition, Rule

_BITS = {"int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
_BLOCKS = (256, 128, 64, 32, 16)


def _known(match: Match) -> bool:
    return all(match.constant(name) is not None for name in ("scale", "zero") if name in match.values)


def _packable(match: Match) -> bool:
    q, scale = match.constant("q"), match.constant("scale")
    if q is None or scale is None:
        return False
    return q.dtype.name in _BITS and q.ndim == 2 and q.size > 0 and match.value("w").dtype == scale.dtype


def _block_size(match: Match) -> int:
    """Returns the rows of a block, as the node says or as many as divide K; 0 if there are none."""
    given = int(match.maker("w").attributes.get("block_size", 0))
    return given or next((size for size in _BLOCKS if match.shape("q")[0] % size == 0), 0)


def _in_blocks(match: Match) -> bool:
    return _block_size(match) in _BLOCKS


def _along_k(match: Match) -> bool:
    """True if there is a scale for the tensor, for each column, or for each block of rows."""
    node = match.maker("w")
    axis = attribute(match.graph, node, "axis")  # None in operator sets before 13: no scales of an axis
    by_row = axis is not None and int(axis) % 2 == 0
    blocks = bool(node.attributes.get("block_size", 0))
    return by_row if blocks else not by_row or match.shape("scale") in ((), (1,))


def _middle(match: Match) -> int:
    """Returns what makes integers of the weights' type start from 0."""
    name = str(match.value("q").dtype)
    return 0 if name.startswith("u") else 1 << (_BITS[name] - 1)


def _bits(match: Match) -> int:
    return _BITS[str(match.value("q").dtype)]


def _levels(match: Match) -> Array:
    """Returns the weights from 0 up, packed [N, blocks, bytes of a block]."""
    q, block = np.asarray(match.constant("q")), _block_size(match)
    rows = -(-q.shape[0] // block) * block
    levels = np.pad(q.astype(np.int16) + _middle(match), ((0, rows - q.shape[0]), (0, 0)))
    return _nibbles(levels.T.reshape(q.shape[1], -1, block).astype(np.uint8), _bits(match))


def _scales(match: Match) -> Array:
    return np.ascontiguousarray(_by_block(match, np.asarray(match.constant("scale"))))


def _zeros(match: Match) -> Array | None:
    """Returns the zero points from 0 up, packed; None if they are in the middle."""
    given, middle = match.constant("zero"), _middle(match)
    points = np.zeros(match.shape("scale"), np.int16) if given is None else given.astype(np.int16)
    zeros = _by_block(match, points + middle).astype(np.uint8)
    return _nibbles(zeros, _bits(match)) if np.any(zeros != 1 << (_bits(match) - 1)) else None


def _by_block(match: Match, values: Array) -> Array:
    """Returns values per tensor, per column or per block as [N, blocks]."""
    k, columns = match.shape("q")
    laid = values if values.ndim == 2 else values.reshape(1, -1)
    return np.asarray(np.broadcast_to(laid, (-(-k // _block_size(match)), columns)).T)


def _nibbles(values: Array, bits: int) -> Array:
    """Returns numbers [..., members] in bytes, the first one lowest."""
    if bits == 8:
        return np.ascontiguousarray(values)
    even = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, values.shape[-1] % 2)])
    return np.ascontiguousarray(even[..., 0::2] | even[..., 1::2] << 4)


def _given(match: Match) -> str:
    node, q, scale = match.maker("w"), match.value("q"), match.value("scale")
    block = int(node.attributes.get("block_size", 0))
    blocks = f" in blocks of {block}" if block else ""
    return f"{q} with scales {scale}{blocks} ({node.name})"


def _size(axis: int) -> Callable[[Match], int]:
    return lambda match: match.shape("q")[axis]


PACKED_WEIGHTS = Rule(
    "packed_weights",
    "MatMul",
    ("MatMul(x, beside(w := WEIGHTS))",),
    "com.microsoft.MatMulNBits(x, B, scales, zeros, K=k, N=n, bits=bits, block_size=block)",
    1,
    {
        "WEIGHTS": "DequantizeLinear(array(q), scale) | DequantizeLinear(array(q), scale, zero)"
        " | com.microsoft.DequantizeLinear(array(q), scale)"
        " | com.microsoft.DequantizeLinear(array(q), scale, zero)"
    },
    where=(
        Condition("scales and zero points that are constants", _known, _given),
        Condition("weights [K, N] of 4 or 8 bits, with scales of their floats' type", _packable, _given),
        Condition("rows in blocks of 16, 32, 64, 128 or 256", _in_blocks, _given),
        Condition("scales of the tensor, of columns, or of blocks of rows", _along_k, _given),
    ),
    derive={
        "B": _levels,
        "scales": _scales,
        "zeros": _zeros,
        "k": _size(0),
        "n": _size(1),
        "bits": _bits,
        "block": _block_size,
    },
    near=False,
)
