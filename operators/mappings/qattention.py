# SPDX-License-Identifier: Apache-2.0
"""QAttention of onnxruntime: one product of bytes makes queries, keys and values, the rest is Attention.

Its masks are integers: 1 or 0 for each key, or how many keys of a batch count. What they leave out gets
``mask_filter_value`` added to its score, and so still counts where nothing else is left.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onedispatch.operators.declarations.registry import MICROSOFT, Inferred, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.lowering.convert import in_float32
from onedispatch.operators.lowering.qlinear import BYTES, bytes_of
from onedispatch.operators.mappings.attention import Decomposition, map_attention
from onedispatch.operators.mappings.matmul_integer import ScaledBytes, emit_as_floats
from onedispatch.transactions.base.text import counted

F, I64 = np.dtype(np.float32), np.dtype(np.int64)
_X, _W, _BIAS, _X_SCALE, _W_SCALE, _MASK, _X_ZERO, _W_ZERO, _PAST = range(9)
_FILTER = -10000.0  # onnxruntime's default


def _heads(node: NodeSpec) -> tuple[int, int]:
    """How many, and the size of each. Raises ``Unsupported`` where the weights have others."""
    heads, columns = int(node.attr("num_heads", 0)), bytes_of(node, _W).shape[-1]
    if heads < 1 or columns % (3 * heads):
        raise Unsupported(
            f"{counted(columns, 'column')} for num_heads {heads}", "queries, keys and values alike"
        )
    return heads, columns // (3 * heads)


def _keys_before(node: NodeSpec) -> int:
    past = node.input(_PAST)
    return 0 if past is None else past.shape[3]


def _shapes(node: NodeSpec) -> Inferred:
    x, (heads, size) = bytes_of(node, _X), _heads(node)
    batch, rows = x.shape[:2]
    present = 2, batch, heads, _keys_before(node) + rows, size
    return [(F, (batch, rows, heads * size)), (F, present)]


class _Mask:
    """What ``mask_index`` hides, as a bias for scores [batch, heads, queries, keys]."""

    def __init__(self, steps: Decomposition, mask: TensorSpec, keys: int, batch: int, hidden: float) -> None:
        self.steps, self.keys, self.batch, self.hidden = steps, keys, batch, hidden
        self.mask = in_float32(steps.node.name, mask, steps.lowering)

    def bias(self) -> TensorSpec:
        """Raises ``Unsupported`` for masks of four dimensions."""
        shape, steps = self.mask.shape, self.steps
        if len(shape) == 1:
            seen = self._by_length()
        elif len(shape) in (2, 3) and shape[-1] == self.keys:
            seen = self._bounded(self.mask)
            seen = steps.reshape(seen, shape[0], 1, shape[1] if len(shape) == 3 else 1, self.keys)
        else:
            raise Unsupported(
                f"a mask of shape {list(shape)}", f"[B], [2 B], [B, {self.keys}] or [B, S, ...]"
            )
        lost = steps.emit("Sub", [steps.const(1, F), seen], seen.shape)
        return steps.emit("Mul", [lost, steps.const(self.hidden, F)], seen.shape)

    def _by_length(self) -> TensorSpec:
        """Keys before the end of each batch, and where it is given not before its beginning."""
        steps, key, batch = self.steps, np.arange(self.keys, dtype=np.float32), self.batch
        parts = self.mask.shape[0] // batch
        bounds = [self._part(self.mask, i * batch, batch) for i in range(parts)]
        columns = [steps.reshape(bound, batch, 1, 1, 1) for bound in bounds]
        shape = (batch, 1, 1, self.keys)
        seen = self._bounded(steps.emit("Sub", [columns[0], steps.const(key, F)], shape))
        if parts == 1:
            return seen
        begun = self._bounded(steps.emit("Sub", [steps.const(key + 1, F), columns[1]], shape))
        return steps.emit("Mul", [seen, begun], shape)

    def _part(self, x: TensorSpec, first: int, count: int) -> TensorSpec:
        return x if x.shape[0] == count else sliced(self.steps, x, first, count, 0)

    def _bounded(self, x: TensorSpec) -> TensorSpec:
        """0 up to 0, 1 from 1 on."""
        return self.steps.emit("Clip", [x, self.steps.const(0, F), self.steps.const(1, F)], x.shape)


def sliced(steps: Decomposition, x: TensorSpec, first: int, count: int, axis: int) -> TensorSpec:
    shape = tuple(count if d == axis else size for d, size in enumerate(x.shape))
    bounds = [steps.const([number], I64) for number in (first, first + count, axis)]
    return steps.emit("Slice", [x, *bounds], shape)


@maps(
    "QAttention",
    dtypes=BYTES,
    domain=MICROSOFT,
    infer=_shapes,
    notes="masks of lengths or of each key, unidirectional, past keys; no do_rotary; Attention in float32",
)
def map_qattention(node: NodeSpec, lowering: Lowering) -> None:
    if node.attr("do_rotary", 0) or node.attr("past_present_share_buffer", 0):
        raise Unsupported("QAttention with do_rotary or past_present_share_buffer", "0 for both")
    x, w = ScaledBytes.of(node, _X, _X_SCALE, _X_ZERO), ScaledBytes.of(node, _W, _W_SCALE, _W_ZERO)
    (batch, rows, _), (heads, size) = x.tensor.shape, _heads(node)
    steps = Decomposition(node, lowering)
    made = lowering.temp(F, (batch, rows, 3 * heads * size))
    emit_as_floats(node, x, w, node.input(_BIAS), made, lowering)
    inputs: list[TensorSpec | None] = [
        sliced(steps, made, i * heads * size, heads * size, 2) for i in range(3)
    ]
    keys, past, mask = _keys_before(node) + rows, node.input(_PAST), node.input(_MASK)
    hidden = float(node.attr("mask_filter_value", _FILTER))
    inputs.append(None if mask is None else _Mask(steps, mask, keys, batch, hidden).bias())
    if past is not None:
        before = (batch, heads, past.shape[3], size)
        inputs += [steps.reshape(sliced(steps, past, i, 1, 0), *before) for i in range(2)]
    present = node.outputs[1] if len(node.outputs) > 1 else None
    kept = [] if present is None else [lowering.temp(F, (batch, heads, keys, size)) for _ in range(2)]
    attributes = {
        "q_num_heads": heads,
        "kv_num_heads": heads,
        "is_causal": int(node.attr("unidirectional", 0)),
        "scale": float(node.attr("scale", 0.0)),
    }
    outputs = [node.outputs[0], *kept]
    map_attention(
        replace(node, op_type="Attention", domain="", inputs=inputs, outputs=outputs, attributes=attributes),
        lowering,
    )
    if present is not None:
        both = [steps.reshape(one, 1, *one.shape) for one in kept]
        steps.emit("Concat", [*both], present.shape, present, axis=0)
