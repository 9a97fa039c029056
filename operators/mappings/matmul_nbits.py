# SPDX-License-Identifier: Apache-2.0
"""MatMulNBits of onnxruntime: products with constant weights of 4 or 8 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.registry import MICROSOFT, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import numpy_names
from onedispatch.operators.kernels.matmul_nbits import BITS, BYTE, MatMulNBits, unpacked
from onedispatch.operators.lowering.segments import Segment, emit_segments
from onedispatch.transactions.base.text import counted

SMALLEST_BLOCK, LARGEST_BLOCK = 16, 256


def inferred(node: NodeSpec) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
    """Type and shape of the product: those of A, with N columns."""
    a = node.input(0)
    assert a is not None
    return [(a.dtype, (*a.shape[:-1], int(node.attr("N"))))]


@maps(
    "MatMulNBits",
    domain=MICROSOFT,
    infer=inferred,
    dtypes=numpy_names(FLOATS),
    notes="4 and 8 bits; blocks of 16 to 256; constant weights, scales and zero points (packed or floats); "
    "data stays float at every accuracy_level",
)
def map_matmul_nbits(node: NodeSpec, lowering: Lowering) -> None:
    """(A, B, scales, zero_points, g_idx, bias), as docs/ContribOperators.md of onnxruntime has it."""
    a, output = node.input(0), node.outputs[0]
    if a is None or output is None:
        raise Unsupported("MatMulNBits without its data or its result", "both")
    if str(a.dtype) not in numpy_names(FLOATS):
        raise Unsupported(f"MatMulNBits of {a.dtype} ({a.name})", ", ".join(numpy_names(FLOATS)))
    k, n, bits, block = (int(node.attr(name, default)) for name, default in _ATTRIBUTES)
    if bits not in BITS:
        raise Unsupported(f"weights of {counted(bits, 'bit')}", " or ".join(map(str, BITS)))
    if node.input(4) is not None:
        raise Unsupported("g_idx: rows of weights in another order", "blocks of neighbours, without g_idx")
    blocks, size = -(-k // block), block * bits // BYTE
    b = _constant(node, 1, (n, blocks, size))
    scales, zeros = _floats(node, 2, (n, blocks), a), _zeros(node, n, blocks, bits, a)
    bias = node.input(5)
    values = None if bias is None else np.asarray(_constant(node, 5, (n,)).value).astype(np.float32)
    a = _whole_blocks(node.name, a, blocks * block, lowering)
    operands = [a, b, scales] if zeros is None else [a, b, scales, zeros]
    lowering.emit(MatMulNBits(node.name, operands, output, lowering.device, bits=bits, bias=values))


_ATTRIBUTES = (("K", 0), ("N", 0), ("bits", 4), ("block_size", 0))


def _constant(node: NodeSpec, index: int, shape: Sequence[int]) -> TensorSpec:
    """Constant input ``index`` in ``shape``: they are often lists."""
    tensor = node.input(index)
    if tensor is None or tensor.value is None:
        given = "nothing" if tensor is None else f"{tensor.name}, computed at run time"
        raise Unsupported(
            f"input {index} of MatMulNBits: {given}", "a constant, which is packed at compile time"
        )
    return tensor.reshaped(tuple(shape))


def _floats(node: NodeSpec, index: int, shape: Sequence[int], a: TensorSpec) -> TensorSpec:
    """The same, of the type of ``a``, where that has all its values."""
    tensor = _constant(node, index, shape)
    value = np.asarray(tensor.value)
    own = value.astype(a.dtype)
    if not np.array_equal(own.astype(np.float64), value.astype(np.float64), equal_nan=True):
        raise Unsupported(
            f"MatMulNBits: {tensor.name} of {tensor.dtype} beside data of {a.dtype}",
            f"values that {a.dtype} has",
        )
    return TensorSpec(tensor.name, own.dtype, own.shape, own)


def _zeros(node: NodeSpec, n: int, blocks: int, bits: int, a: TensorSpec) -> TensorSpec | None:
    """Zero points [N, blocks]: of floats as they are, of packed numbers as bytes."""
    given = node.input(3)
    if given is None or given.dtype != np.uint8:
        return None if given is None else _floats(node, 3, (n, blocks), a)
    rows = _constant(node, 3, (n, -(-blocks * bits // BYTE)))
    value = np.ascontiguousarray(unpacked(np.asarray(rows.value), bits)[:, :blocks])
    if np.all(value == 1 << (bits - 1)):
        return None
    return TensorSpec(given.name, value.dtype, value.shape, value)


def _whole_blocks(name: str, a: TensorSpec, columns: int, lowering: Lowering) -> TensorSpec:
    """``a`` with zeros where the last block has weights beyond K."""
    k = a.shape[-1]
    if k == columns:
        return a
    found = lowering.temp(a.dtype, (*a.shape[:-1], columns))
    cuts = [[Segment(0, size, 0)] for size in a.shape[:-1]]
    cuts.append([Segment(0, k, 0), Segment(k, columns - k)])
    emit_segments(name, [a, lowering.const(np.zeros((), a.dtype))], cuts, found, lowering)
    return found
