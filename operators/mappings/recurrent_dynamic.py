# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLSTM: an LSTM whose weights are integers of 8 bits.

The product of x and its weights is that of onnxruntime: x as uint8 by what it holds, sums in int32, times
the scales of both. The state stays float32 between the steps, times the floats that its weights stand for;
onnxruntime makes uint8 of it before every step, whose rounding (a 510th of the state's range at most for each
member) the results here do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onedispatch.operators.declarations.registry import MICROSOFT, Inferred, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.lowering.qlinear import BYTES
from onedispatch.operators.mappings.dynamic_quantise import dynamically_quantised
from onedispatch.operators.mappings.recurrent import RecurrentNode, recurrent_of

Array = np.ndarray[Any, Any]
F = np.dtype(np.float32)


@dataclass(frozen=True)
class Weights:
    """Constant weights [directions, k, 4 * hidden], with a scale and a zero point for every column of a
    direction: [directions, 4 * hidden]."""

    values: Array
    scale: Array
    zero: Array

    @classmethod
    def of(cls, node: NodeSpec, index: int, scale_index: int) -> Weights:
        """Input ``index``, whose scale is another. Raises ``Unsupported`` for computed ones."""
        given = [node.input(i) for i in (index, scale_index, scale_index + 1)]
        values = [tensor.value for tensor in given if tensor is not None and tensor.value is not None]
        if len(values) < 3:
            raise Unsupported(f"{node.op_type} with computed weights or scales", "constants")
        weights, scale, zero = (np.asarray(value) for value in values)
        if str(weights.dtype) not in BYTES:
            raise Unsupported(f"{node.op_type} with weights of {weights.dtype}", ", ".join(BYTES))
        shape = weights.shape[0], weights.shape[2]
        scale, zero = (np.broadcast_to(one.reshape(shape[0], -1), shape) for one in (scale, zero))
        return cls(weights, scale.astype(np.float32), zero)

    @property
    def floats(self) -> Array:
        """What they stand for, as LSTM has them: [directions, 4 * hidden, k]."""
        whole = self.values.astype(np.int32) - self.zero[:, None].astype(np.int32)
        return np.ascontiguousarray((whole * self.scale[:, None]).astype(np.float32).transpose(0, 2, 1))

    @property
    def joined(self) -> Array:
        """[k, directions * 4 * hidden]."""
        return np.ascontiguousarray(self.values.transpose(1, 0, 2).reshape(self.values.shape[1], -1))


@dataclass
class _Dynamic(RecurrentNode):
    """The node as an LSTM, of whose weights those of x are ``whole`` too."""

    whole: Weights

    def multiplied(self, weights: TensorSpec, result: TensorSpec, bias: Array | None) -> None:
        name, lowering, x = self.node.name, self.lowering, self.x
        constants = (self.whole.joined, self.whole.scale, self.whole.zero)
        y, scale, zero = dynamically_quantised(name, x, lowering)
        w, w_scale, w_zero = (lowering.const(np.ascontiguousarray(one)) for one in constants)
        both = lowering.temp(F, (w_scale.size,))
        lowering.emit(Eltwise(name, "mul", [w_scale.reshaped((w_scale.size,)), scale], both, lowering.device))
        zeros = w_zero.reshaped((w_zero.size,)) if np.any(self.whole.zero) else None
        options = ProductOptions(bias=bias, a_zero=zero, b_zero=zeros, scale=both)
        lowering.emit(MatMul(name, y, w, result, lowering.device, options))


def _shapes(node: NodeSpec) -> Inferred:
    x, r = node.inputs[0], node.inputs[2]
    assert x is not None and r is not None
    directions, hidden = r.shape[:2]
    last = directions, x.shape[1], hidden
    return [(F, (x.shape[0], *last[:1], *last[1:])), (F, last), (F, last)]


@maps(
    "DynamicQuantizeLSTM",
    dtypes=("float32",),
    domain=MICROSOFT,
    infer=_shapes,
    notes="constant weights; the state between the steps in float32",
)
def map_dynamic_lstm(node: NodeSpec, lowering: Lowering) -> None:
    weights, states = Weights.of(node, 1, 8), Weights.of(node, 2, 10)
    x, lengths = node.input(0), node.input(4)
    whole = lengths is None or (
        lengths.value is not None and x is not None and lengths.value.max() == x.shape[0]
    )
    if not whole:  # what lies behind the longest would count for the scale of x
        raise Unsupported(f"{node.op_type}: sequences that may all be shorter than x", "one as long as x")
    others: Sequence[TensorSpec | None] = [node.input(index) for index in range(3, 8)]
    w, r = (lowering.const(one.floats) for one in (weights, states))
    plain = replace(node, op_type="LSTM", domain="", inputs=[node.input(0), w, r, *others])
    _Dynamic(plain, lowering, *recurrent_of(plain), whole=weights).results()
