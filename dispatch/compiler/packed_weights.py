# SPDX-License-Identifier: Apache-2.0
"""Weights that only DequantizeLinear makes floats of: products take them as they are packed.

``MatMul(x, DequantizeLinear(q))`` of constant q becomes onnxruntime's ``MatMulNBits``, as there: weights of
4 bits keep them, and those of 8 a byte, to the cores, where they would be four bytes as constants in float32.
One scale per tensor or per column is one per block with the same value in each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onedispatch.dispatch.compiler.integers import is_quantised
from onedispatch.dispatch.compiler.mapping import refusals_of
from onedispatch.dispatch.compiler.piece import Piece, own_opsets
from onedispatch.dispatch.compiler.splice import Splice
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, prune
from onedispatch.dispatch.rules.diagnostics import did_not_fire
from onedispatch.dispatch.rules.match import Index
from onedispatch.operators.declarations.registry import MICROSOFT
from onedispatch.transactions import Device
from onedispatch.transactions.base.text import counted

_RULE = "packed_weights"
_BITS = {"int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
_BLOCKS = (256, 128, 64, 32, 16)


@dataclass(frozen=True)
class _Weights:
    """Levels [N, blocks, block] and zero points [N, blocks] from 0 up, and scales [N, blocks]."""

    bits: int
    levels: Array
    scales: Array
    zeros: Array

    def operands(self) -> dict[str, Array]:
        """Constants by the operator's names for them; no zero points where they are in the middle."""
        made = {"B": _nibbles(self.levels, self.bits), "scales": np.ascontiguousarray(self.scales)}
        if np.any(self.zeros != 1 << (self.bits - 1)):
            made["zero_points"] = _nibbles(self.zeros, self.bits)
        return made


def pack_weights(graph: Graph, device: Device) -> Graph:
    """``graph`` with MatMulNBits in place of products of dequantised constants, where that maps.

    What does not become one has a remark that says why.
    """
    if not is_quantised(graph):
        return graph
    index, splice, put = Index.of(graph), Splice(graph), False
    for node in graph.nodes:
        maker = index.makers.get(node.inputs[1]) if node.op_type == "MatMul" and not node.domain else None
        if maker is None or maker.op_type != "DequantizeLinear" or maker.inputs[0] not in graph.constants:
            continue
        found = _weights(graph, maker)
        piece = found if isinstance(found, str) else _piece(graph, node, found)
        if isinstance(piece, Graph):
            refused = refusals_of(piece, piece.nodes, device)
            piece = str(next(iter(refused.values()))) if refused else piece
        if isinstance(piece, str):
            splice.remark(node, did_not_fire(_RULE, f"{piece} ({maker.name})"))
            continue
        alone = len(index.readers[node.inputs[1]]) == 1 and node.inputs[1] not in graph.output_names
        splice.put([maker, node] if alone else [node], piece, _RULE)
        put = True
    changed = splice.result()
    return prune(replace(changed, opsets=own_opsets(graph))) if put else changed


def _weights(graph: Graph, maker: Node) -> _Weights | str:
    """The constants of a DequantizeLinear, or why they are no blocks along K."""
    names = [*maker.inputs, ""]
    known = [graph.constants.get(name) for name in names[:3] if name]
    if any(array is None for array in known):
        return "scales or zero points that are computed"
    q, scale, *zero = [np.asarray(array) for array in known]
    made = graph.value(maker.outputs[0]).dtype
    if q.dtype.name not in _BITS or q.ndim != 2 or made != scale.dtype:
        return f"{q.dtype} weights of rank {q.ndim} with {scale.dtype} scales"
    k, block = q.shape[0], int(maker.attributes.get("block_size", 0))
    axis = int(maker.attributes.get("axis", 1)) % 2
    if not block:
        block = next((size for size in _BLOCKS if k % size == 0), 0)
        if not block or (scale.size > 1 and axis == 0):
            return "scales per row" if block else f"{counted(k, 'row')} are no blocks of 16"
    elif axis != 0 or block not in _BLOCKS:
        return f"blocks of {block} along axis {axis}"
    bits = _BITS[q.dtype.name]
    middle = 0 if q.dtype.name.startswith("u") else 1 << (bits - 1)
    blocks = -(-k // block)
    levels = np.pad(q.astype(np.int16) + middle, ((0, blocks * block - k), (0, 0)))
    points = zero[0].astype(np.int16) if zero else np.zeros(scale.shape, np.int16)
    return _Weights(
        bits,
        levels.T.reshape(-1, blocks, block).astype(np.uint8),
        _by_block(scale, blocks, q.shape[1]),
        _by_block(points + middle, blocks, q.shape[1]).astype(np.uint8),
    )


def _by_block(values: Array, blocks: int, columns: int) -> Array:
    """One per tensor, per column or per block as [N, blocks]."""
    laid = values if values.ndim == 2 else values.reshape(1, -1)
    return np.asarray(np.broadcast_to(laid, (blocks, columns)).T)


def _nibbles(values: Array, bits: int) -> Array:
    """Numbers [..., members] in bytes, the first one lowest."""
    if bits == 8:
        return np.ascontiguousarray(values)
    even = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, values.shape[-1] % 2)])
    return np.ascontiguousarray(even[..., 0::2] | even[..., 1::2] << 4)


def _piece(graph: Graph, node: Node, weights: _Weights) -> Graph:
    piece, operands = Piece(graph), weights.operands()
    n, _, block = weights.levels.shape
    k = graph.value(node.inputs[1]).concrete_shape[0]
    given = [
        piece.constant(name, operands[name]) if name in operands else ""
        for name in ("B", "scales", "zero_points")
    ]
    attributes = {"K": k, "N": n, "bits": weights.bits, "block_size": block}
    piece.write("MatMulNBits", [node.inputs[0], *given], node.outputs, domain=MICROSOFT, adds=attributes)
    return piece.result()
