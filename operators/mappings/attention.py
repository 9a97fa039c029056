# SPDX-License-Identifier: Apache-2.0
"""Attention of ONNX: products, a bias and Softmax, by the operators that are there.

Query heads that share a head of keys are more rows of its product, so that no key is repeated. What masks
from the start (causal order, windows, constant masks) is one constant. Rows that see nothing give zeros.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from onedispatch.operators.declarations.registry import mapping_for, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.mappings.matmul import emit_product

Array = np.ndarray[Any, Any]
_OPSET = 21  # of the nodes that one is made of
# One of bfloat16 rounds its scores and its weights, as ONNX's body does, and nothing between: its row in the
# table of types stays without it, where a result is rounded once.
_TYPES = ("float32", "bfloat16")


class Decomposition:
    """Standard operators, one after the other, in the place of ``node``."""

    def __init__(self, node: NodeSpec, lowering: Lowering) -> None:
        self.node, self.lowering = node, lowering

    def emit(
        self,
        op_type: str,
        inputs: list[TensorSpec],
        shape: tuple[int, ...],
        to: TensorSpec | None = None,
        **attributes: Any,
    ) -> TensorSpec:
        """The result, of the first input's type; a new tensor, or ``to``. Raises ``Unsupported``."""
        target = to or self.lowering.temp(inputs[0].dtype, shape)
        mapping = mapping_for("", op_type)
        if mapping is None:
            raise Unsupported(f"{op_type}, which it is made of, does not map")
        spec = NodeSpec(self.node.name, op_type, "", _OPSET, inputs, [target], attributes)
        mapping.function(spec, self.lowering)
        return target

    def const(self, value: Any, dtype: np.dtype[Any]) -> TensorSpec:
        return self.lowering.const(np.asarray(value, dtype))

    def reshape(self, x: TensorSpec, *shape: int, to: TensorSpec | None = None) -> TensorSpec:
        if x.shape == shape and to is None:
            return x
        return self.emit("Reshape", [x], shape, to)

    def transpose(self, x: TensorSpec, *perm: int, to: TensorSpec | None = None) -> TensorSpec:
        return self.emit("Transpose", [x], tuple(x.shape[d] for d in perm), to, perm=list(perm))


class _Attention:
    """One node: its tensors as [batch, heads, sequence, size]."""

    def __init__(self, node: NodeSpec, lowering: Lowering) -> None:
        self.steps, self.node = Decomposition(node, lowering), node
        q, k, v = (node.input(i) for i in range(3))
        self.y = node.outputs[0]
        if q is None or k is None or v is None or self.y is None:
            raise Unsupported("Attention without query, key, value or output")
        for tensor in (q, k, v, self.y):  # float16 is rounded where ONNX's own body does
            if tensor.dtype != q.dtype or str(q.dtype) not in _TYPES:
                raise Unsupported(f"Attention of {tensor.dtype} ({tensor.name})", " or ".join(_TYPES))
        self.heads, self.kv_heads = self._heads(q, 0, "q_num_heads"), self._heads(k, 1, "kv_num_heads")
        if self.heads % self.kv_heads:
            raise Unsupported(f"{self.heads} heads of queries for {self.kv_heads} of keys", "a multiple")
        self.filled = node.input(6)
        if self.filled is not None and q.dtype != np.float32:  # keys are counted in the type of scores
            raise Unsupported(f"Attention of {q.dtype} with nonpad_kv_seqlen", "float32")
        if self.filled is not None and node.input(4) is not None:
            raise Unsupported("Attention with nonpad_kv_seqlen and past keys", "one of them")
        self.q = self._by_head(q, self.heads)
        self.k = self._with_past(k, 4, 1)
        self.v = self._with_past(v, 5, 2)

    def _heads(self, x: TensorSpec, index: int, attribute: str) -> int:
        if len(x.shape) == 4:
            return x.shape[1]
        heads = int(self.node.attr(attribute, 0))
        if len(x.shape) != 3 or heads < 1 or x.shape[2] % heads:
            given = f"input {index} of shape {list(x.shape)} with {attribute} {heads}"
            raise Unsupported(given, f"4 dimensions, or 3 whose last {attribute} divides")
        return heads

    def _by_head(self, x: TensorSpec, heads: int) -> TensorSpec:
        if len(x.shape) == 4:
            return x
        batch, length, size = x.shape
        return self.steps.transpose(self.steps.reshape(x, batch, length, heads, size // heads), 0, 2, 1, 3)

    def _with_past(self, x: TensorSpec, past: int, present: int) -> TensorSpec:
        """Keys or values behind those of the past; ``present`` is the output that has them."""
        mine, before = self._by_head(x, self.kv_heads), self.node.input(past)
        out = self.node.outputs[present] if present < len(self.node.outputs) else None
        if before is not None:
            batch, heads, length, size = mine.shape
            shape = (batch, heads, length + before.shape[2], size)
            return self.steps.emit("Concat", [before, mine], shape, out, axis=2)
        if out is not None:
            self.steps.emit("Identity", [mine], mine.shape, out)
        return mine

    @property
    def scores_shape(self) -> tuple[int, int, int, int]:
        return self.q.shape[0], self.heads, self.q.shape[2], self.k.shape[2]

    def emit(self) -> None:
        steps, (batch, heads, rows, keys) = self.steps, self.scores_shape
        grouped = batch, self.kv_heads, heads // self.kv_heads * rows
        scale = float(self.node.attr("scale", 0) or 1 / sqrt(self.q.shape[3]))
        scores = steps.lowering.temp(self.q.dtype, (*grouped, keys))
        query = steps.reshape(self.q, *grouped, self.q.shape[3])
        emit_product(self.node, steps.lowering, query, self.k, scores, alpha=scale, trans_b=True)
        scores = steps.reshape(scores, *self.scores_shape)
        self._show(0, scores)
        scores = self._capped(scores)
        self._show(1, scores)
        scores, keep = self._biased(scores)
        weights = steps.emit("Softmax", [scores], scores.shape, axis=-1)
        if keep is not None:  # chosen, not multiplied: 0 * NaN is NaN
            to = steps.lowering.temp(weights.dtype, weights.shape)
            weights = steps.emit("Where", [keep, weights, steps.const(0, weights.dtype)], weights.shape, to)
        self._show(3, weights)
        size = self.v.shape[3]
        result = steps.lowering.temp(self.q.dtype, (*grouped, size))
        emit_product(self.node, steps.lowering, steps.reshape(weights, *grouped, keys), self.v, result)
        self._leave(steps.reshape(result, batch, heads, rows, size))

    def _show(self, mode: int, scores: TensorSpec) -> None:
        """The output that tells scores: of the product, behind the cap, with the bias, or their Softmax."""
        out = self.node.outputs[3] if len(self.node.outputs) > 3 else None
        if out is None or int(self.node.attr("qk_matmul_output_mode", 0)) != mode:
            return
        self.steps.emit("Identity", [scores], out.shape, out)

    def _capped(self, scores: TensorSpec) -> TensorSpec:
        cap = float(self.node.attr("softcap", 0.0))
        if not cap:
            return scores
        for op_type, factor in (("Mul", 1 / cap), ("Tanh", 0.0), ("Mul", cap)):
            inputs = [scores, *([self.steps.const([factor], scores.dtype)] if factor else [])]
            scores = self.steps.emit(op_type, inputs, scores.shape)
        return scores

    def _leave(self, result: TensorSpec) -> None:
        """Heads go where the output has them."""
        steps, out = self.steps, self.y
        assert out is not None
        if len(out.shape) == 4:
            steps.emit("Identity", [result], out.shape, out)
        else:
            steps.reshape(steps.transpose(result, 0, 2, 1, 3), *out.shape, to=out)

    # -- what hides keys ---------------------------------------------------------------------

    def _biased(self, scores: TensorSpec) -> tuple[TensorSpec, TensorSpec | None]:
        """Scores with the bias added, and whether each row sees a key, where some may see nothing."""
        mask, fixed, steps = self._mask(), self._fixed(), self.steps
        computed = [] if self.filled is None else [self._by_length(self.filled)]
        if mask is not None and mask.value is None:
            computed.append(self._as_bias(mask))
        elif mask is not None and mask.value is not None:
            fixed = fixed + _bias(mask.value)
        if computed:
            bias, keep = self._computed(computed, fixed, scores)
            return steps.emit("Add", [scores, bias], scores.shape), keep
        if not np.any(fixed):
            self._show(2, scores)
            return scores, None
        self._show_biased(scores, steps.const(fixed, scores.dtype))
        empty = np.all(np.isneginf(fixed), axis=-1, keepdims=True)
        bias = steps.const(np.where(empty, 0, fixed), scores.dtype)
        seen = steps.const(~empty, np.dtype(np.bool_)) if empty.any() else None
        return steps.emit("Add", [scores, bias], scores.shape), seen

    def _mask(self) -> TensorSpec | None:
        """The mask with one value for each key: those that it leaves out are hidden."""
        mask, keys, dtype = self.node.input(3), self.scores_shape[3], self.q.dtype
        if mask is None or mask.shape[-1] == keys:
            return mask
        hidden = np.full((*mask.shape[:-1], keys - mask.shape[-1]), -np.inf, dtype)
        if mask.value is not None:
            return self.steps.const(np.concatenate([_bias(np.asarray(mask.value)), hidden], axis=-1), dtype)
        bias, shape = self._as_bias(mask), (*mask.shape[:-1], keys)
        return self.steps.emit("Concat", [bias, self.steps.const(hidden, dtype)], shape, axis=len(shape) - 1)

    def _as_bias(self, mask: TensorSpec) -> TensorSpec:
        """A computed mask as what is added to scores: 0 or -inf for a bool."""
        if mask.dtype != np.bool_:
            return mask
        seen = self.steps.emit("CastLike", [mask, self.q], mask.shape, self._new(mask.shape))
        return self.steps.emit("Log", [seen], mask.shape)

    def _new(self, shape: tuple[int, ...]) -> TensorSpec:
        return self.steps.lowering.temp(self.q.dtype, shape)

    def _by_length(self, filled: TensorSpec) -> TensorSpec:
        """The bias of a cache of which each batch has filled so much: [batch, 1, queries or 1, keys].

        Of whole numbers a - b, cut to 0 and 1, is whether a > b.
        """
        steps, (batch, _, rows, keys), attr = self.steps, self.scores_shape, self.node.attr
        length = steps.emit("CastLike", [filled, self.q], (batch,), self._new((batch,)))
        length = steps.reshape(length, batch, 1, 1, 1)
        key, query = np.arange(keys)[None, :], np.arange(rows)[:, None] - rows
        right = 0 if attr("is_causal", 0) else int(attr("right_window_size", -1))
        before = [key] + ([key - query - right - 1] if right >= 0 else [])
        seen = self._above(length, steps.const(np.maximum.reduce(np.broadcast_arrays(*before)), self.q.dtype))
        left = int(attr("left_window_size", -1))
        if left >= 0:
            ends = steps.const(key - query + left + 1, self.q.dtype)
            near = self._above(ends, length)
            shape = tuple(np.broadcast_shapes(seen.shape, near.shape))
            seen = steps.emit("Mul", [seen, near], shape)
        return steps.emit("Log", [seen], seen.shape)

    def _above(self, one: TensorSpec, other: TensorSpec) -> TensorSpec:
        """1 where one is above the other, 0 elsewhere, of whole numbers."""
        steps, dtype = self.steps, self.q.dtype
        shape = tuple(np.broadcast_shapes(one.shape, other.shape))
        difference = steps.emit("Sub", [one, other], shape)
        return steps.emit("Clip", [difference, steps.const(0, dtype), steps.const(1, dtype)], shape)

    def _show_biased(self, scores: TensorSpec, bias: TensorSpec) -> None:
        """Mode 2 of ``_show``: rows that see nothing too."""
        out = self.node.outputs[3] if len(self.node.outputs) > 3 else None
        if out is not None and int(self.node.attr("qk_matmul_output_mode", 0)) == 2:
            self.steps.emit("Add", [scores, bias], out.shape, out)

    def _fixed(self) -> Array:
        """0 where a query may see a key by its place, -inf elsewhere: [queries, keys]."""
        (_, _, rows, keys), attr, past = self.scores_shape, self.node.attr, self.node.input(4)
        if self.filled is not None:
            return np.zeros((rows, keys), np.float32)  # all of it depends on what is filled
        at = np.arange(rows)[:, None] + (past.shape[2] if past is not None else 0) - np.arange(keys)[None, :]
        seen = at >= 0 if attr("is_causal", 0) else np.ones((rows, keys), bool)
        left, right = int(attr("left_window_size", -1)), int(attr("right_window_size", -1))
        seen &= (at <= left) if left >= 0 else True
        seen &= (at >= -right) if right >= 0 else True
        return _bias(seen)

    def _computed(
        self, biases: list[TensorSpec], fixed: Array, scores: TensorSpec
    ) -> tuple[TensorSpec, TensorSpec]:
        """The bias of computed masks, and whether each row sees a key: [..., queries, 1].

        Rows of nothing but -inf, whose Softmax were no number, get a bias of 0.
        """
        steps, dtype = self.steps, self.q.dtype
        parts = [*biases, *([steps.const(fixed, dtype)] if np.any(fixed) else [])]
        bias = parts[0]
        for part in parts[1:]:
            shape = tuple(np.broadcast_shapes(bias.shape, part.shape))
            bias = steps.emit("Add", [bias, part], shape)
        self._show_biased(scores, bias)
        column = (*bias.shape[:-1], 1)
        axes = steps.const([len(column) - 1], np.dtype(np.int64))
        most = steps.emit("ReduceMax", [bias, axes], column, keepdims=1)
        # Of a number, even the lowest, 4 or more is left; of -inf nothing.
        small = steps.const([6 / float(np.finfo(np.float32).max)], dtype)
        above = steps.emit(
            "Add", [steps.emit("Mul", [most, small], column), steps.const([10], dtype)], column
        )
        keep = steps.emit("Clip", [above, steps.const(0, dtype), steps.const(1, dtype)], column)
        least = steps.emit("Log", [steps.emit("Sub", [steps.const([1], dtype), keep], column)], column)
        seen = steps.lowering.temp(np.dtype(np.bool_), column)
        steps.emit("CastLike", [keep, seen], column, seen)
        return steps.emit("Max", [bias, least], bias.shape), seen


def _bias(mask: Array) -> Array:
    """A constant mask as what is added to scores."""
    if mask.dtype == np.bool_:
        return np.asarray(np.where(mask, 0, -np.inf), np.float32)
    return np.asarray(mask, np.float32)


@maps(
    "Attention",
    notes="masks, causal, windows, grouped heads, past keys, softcap; bfloat16 too, scores rounded",
)
def map_attention(node: NodeSpec, lowering: Lowering) -> None:
    _Attention(node, lowering).emit()
