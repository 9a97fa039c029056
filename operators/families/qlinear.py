# SPDX-License-Identifier: Apache-2.0
"""What onnxruntime's quantiser writes for functions of one tensor: tables of 256 entries.

Their entries are computed as onnxruntime computes its own, float by float, so that not one differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import nearest
from onedispatch.operators.declarations.registry import MICROSOFT, maps
from onedispatch.operators.families.elementwise import Array
from onedispatch.operators.families.table import Table, every_byte
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported

BYTES = ("int8", "uint8")
NARROW = (*BYTES, "int16", "uint16")
SCALED = "constant scales and zero points of one element"


@dataclass(frozen=True)
class Scale:
    """A tensor's scale and zero point."""

    scale: np.float32
    zero: int

    @classmethod
    def of(cls, scale: Array, zero: Array | None = None) -> Scale:
        """Of constants of one element each."""
        return cls(np.float32(scale.item()), 0 if zero is None else int(zero.item()))

    def floats(self, x: Array) -> Array:
        """What integers stand for, in float32."""
        return np.asarray(self.scale * (x.astype(np.int32) - self.zero).astype(np.float32), np.float32)

    def integers(self, values: Array, dtype: np.dtype[Any]) -> Array:
        """``values`` [float32] as integers: quotients rounded to even, saturated; NaN is the least."""
        return nearest(values / self.scale, self.zero, dtype)


def scale_of(node: NodeSpec, index: int, zero_index: int | None = None) -> Scale:
    """The constant scale that is input ``index``, and its zero point: the one behind it, or another.

    Raises ``Unsupported`` for computed ones, and for several.
    """
    found = [constant(node, index)]
    zero = node.input(index + 1 if zero_index is None else zero_index)
    if zero is not None:
        found += [constant(node, index + 1 if zero_index is None else zero_index)]
    if any(value.size != 1 for value in found):
        raise Unsupported(f"{node.op_type} with several scales or zero points of one tensor", SCALED)
    return Scale.of(*found)


def constant(node: NodeSpec, index: int) -> Array:
    """The scales or zero points that are input ``index``. Raises ``Unsupported`` for computed ones."""
    tensor = node.input(index)
    if tensor is None or tensor.value is None:
        given = "none" if tensor is None else f"a computed one ({tensor.name})"
        raise Unsupported(f"{node.op_type}: scale or zero point {index}: {given}", SCALED)
    return tensor.value


def bytes_of(node: NodeSpec, index: int, accepted: Sequence[str] = BYTES) -> TensorSpec:
    """Input ``index``, of 8 bits, or what else is ``accepted``. Raises ``Unsupported`` for others."""
    tensor = node.input(index)
    if tensor is None or str(tensor.dtype) not in accepted:
        given = "nothing" if tensor is None else f"{tensor.dtype} ({tensor.name})"
        raise Unsupported(f"{node.op_type} of {given}", ", ".join(accepted))
    return tensor


def narrow_of(node: NodeSpec, x: int, w: int, *, wider: bool = False) -> tuple[TensorSpec, TensorSpec]:
    """Inputs ``x`` and ``w`` of a product, of 8 or 16 bits: where x has 8, so have w and the first output.

    ``wider``: the output may have 16 even then. Raises ``Unsupported`` for others.
    """
    first = bytes_of(node, x, NARROW)
    whole = first.element.itemsize == 1
    accepted = BYTES if whole else NARROW
    made = node.outputs[0]
    results = NARROW if wider else accepted
    if made is not None and made.element.itemsize < 4 and str(made.dtype) not in results:
        raise Unsupported(f"{node.op_type} of {first.dtype} to {made.dtype}", ", ".join(results))
    return first, bytes_of(node, w, accepted)


def unary_of(node: NodeSpec, accepted: Sequence[str] = BYTES) -> tuple[TensorSpec, TensorSpec, Scale, Scale]:
    """What a function of one tensor reads and makes, of types that are ``accepted``, and their scales.

    Raises ``Unsupported`` for other types, and for scales that are computed or several.
    """
    return bytes_of(node, 0, accepted), result_of(node, accepted), scale_of(node, 1), scale_of(node, 3)


def zero_of(values: int | Array, x: TensorSpec, lowering: Lowering) -> TensorSpec | None:
    """Zero points as a tensor of the type of ``x``; None where all are 0."""
    return lowering.const(np.asarray(values, x.dtype).reshape(-1)) if np.any(values) else None


def broadcast_shape(node: NodeSpec, *tensors: TensorSpec | None) -> tuple[int, ...]:
    """What the tensors broadcast to. Raises ``Unsupported`` where they do not."""
    shapes = [tensor.shape for tensor in tensors if tensor is not None]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise Unsupported(f"{node.op_type} of shapes {shapes}", "shapes that broadcast") from error


def result_of(node: NodeSpec, accepted: Sequence[str] = BYTES) -> TensorSpec:
    """The first output, of 8 bits, or what else is ``accepted``. Raises ``Unsupported`` for others."""
    output = node.outputs[0]
    if output is None or str(output.dtype) not in accepted:
        raise Unsupported(f"{node.op_type} to {output or 'nothing'}", ", ".join(accepted))
    return output


def emit_table(
    name: str, x: TensorSpec, output: TensorSpec, entry: Callable[[Array], Array], lowering: Lowering
) -> None:
    """``output[i] = entry(x[i])``, where ``entry`` takes all 256 numbers of the type of ``x``."""
    table = lowering.const(np.ascontiguousarray(entry(every_byte(x.dtype)), output.dtype))
    lowering.emit(Table(name, x, table, output, lowering.device))


def fused(a: Any, b: Any, c: Any) -> Array:
    """``a * b + c`` of float32, rounded once to float32.

    The product has 48 bits; their sum is rounded to odd in float64, which has enough bits behind those of
    float32 that the second rounding is right.
    """
    product, addend = np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    even = (total.view(np.int64) & 1) == 0
    odd = np.where(lost > 0, np.nextafter(total, np.inf), np.nextafter(total, -np.inf))
    return np.where((lost != 0) & even, odd, total).astype(np.float32)


# onnxruntime's logistic function is a quotient of polynomials of x squared. Highest powers first.
_ABOVE = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
_BELOW = (
    6.10247389755681e-13,
    5.76102136993427e-09,
    6.29106785017040e-06,
    1.70198817374094e-03,
    1.16817656904453e-01,
    9.93151921023180e-01,
)
_FLAT = np.float32(18)  # beyond it the function is 0 or 1


def logistic(x: Array) -> Array:
    """The sigmoid of float32 as onnxruntime approximates it, to the bit."""
    x = np.clip(x, -_FLAT, _FLAT)
    above, below = (_polynomial(x * x, terms) for terms in (_ABOVE, _BELOW))
    return np.asarray(np.clip(above * x / below + np.float32(0.5), np.float32(0), np.float32(1)))


def _polynomial(x: Array, terms: tuple[float, ...]) -> Array:
    found = np.full_like(x, np.float32(terms[0]))
    for term in terms[1:]:
        found = fused(found, x, np.float32(term))
    return found


# -- onnxruntime -------------------------------------------------------------------------------


def _map_unary(node: NodeSpec, lowering: Lowering, function: Callable[[Array], Array]) -> None:
    x, output, read, written = unary_of(node)

    def entry(numbers: Array) -> Array:
        return written.integers(function(read.floats(numbers)), output.dtype)

    emit_table(node.name, x, output, entry, lowering)


@maps("QLinearSigmoid", dtypes=BYTES, domain=MICROSOFT, like=0, notes=f"by table; {SCALED}")
def map_qlinear_sigmoid(node: NodeSpec, lowering: Lowering) -> None:
    _map_unary(node, lowering, logistic)


@maps("QLinearLeakyRelu", dtypes=BYTES, domain=MICROSOFT, like=0, notes=f"by table; {SCALED}")
def map_qlinear_leaky_relu(node: NodeSpec, lowering: Lowering) -> None:
    alpha = np.float32(node.attr("alpha", 0.01))
    _map_unary(node, lowering, lambda x: np.where(x >= 0, x, x * alpha))
