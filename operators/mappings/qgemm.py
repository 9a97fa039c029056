# SPDX-License-Identifier: Apache-2.0
"""QGemm: onnxruntime's Gemm of bytes: a product of integers, a bias of int32, one factor."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations.registry import MICROSOFT, Inferred, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Array, Eltwise
from onedispatch.operators.kernels.matmul import is_wide
from onedispatch.operators.kernels.quantise import Dequantise, Quantise, ScaleAxis
from onedispatch.operators.lowering.qlinear import NARROW, constant, narrow_of, zero_of
from onedispatch.operators.mappings.matmul import emit_product

_SUMS, _FLOATS = np.dtype(np.int32), np.dtype(np.float32)


def _shapes(node: NodeSpec) -> Inferred:
    (a, b), zero = narrow_of(node, 0, 3), node.input(8)
    if (len(a.shape), len(b.shape)) != (2, 2):
        raise Unsupported(f"QGemm of {a} and {b}", "matrices")
    rows, columns = a.shape[bool(node.attr("transA", 0))], b.shape[not node.attr("transB", 0)]
    return [(_FLOATS if zero is None else zero.dtype, (rows, columns))]


@maps(
    "QGemm",
    dtypes=NARROW,
    domain=MICROSOFT,
    infer=_shapes,
    notes="alpha, transposed inputs, scales of B per column, C constant or computed; to float32 or bytes; "
    "constant scales and zero points",
)
def map_qgemm(node: NodeSpec, lowering: Lowering) -> None:
    (a, b), c, output = narrow_of(node, 0, 3), node.input(6), node.outputs[0]
    if output is None:
        raise Unsupported("QGemm without its result", "one")
    options: dict[str, Any] = {
        "trans_a": bool(node.attr("transA", 0)),
        "trans_b": bool(node.attr("transB", 0)),
        "a_zero": _zero(node, 2, a, lowering),
        "b_zero": _zero(node, 5, b, lowering),
    }
    scale, narrow = lowering.const(_factor(node)), node.input(8) is not None
    zero = _zero(node, 8, output, lowering) if narrow else None
    n = output.shape[-1]
    row = (
        c is not None
        and c.value is not None
        and b.is_const
        and c.size in (1, n)
        and c.shape[-1:] in ((), (1,), (n,))
    )
    if row and c is not None and c.value is not None:
        options["bias"] = np.broadcast_to(np.asarray(c.value).reshape(-1), (n,))
    if narrow and (c is None or row):
        emit_product(node, lowering, a, b, output, scale=scale, out_zero=zero, **options)
        return
    if is_wide(a):
        given = f"QGemm of {a.dtype} " + ("with C computed, or of several rows" if narrow else "to float32")
        raise Unsupported(given, "a constant row, and a result of 8 or 16 bits; or A of 8 bits")
    sums = lowering.temp(_SUMS, output.shape)
    emit_product(node, lowering, a, b, sums, **options)
    if c is not None and not row:
        total = lowering.temp(_SUMS, output.shape)
        lowering.emit(Eltwise(node.name, "add", [sums, c], total, lowering.device))
        sums = total
    floats = lowering.temp(_FLOATS, output.shape) if narrow else output
    lowering.emit(
        Dequantise(
            node.name, [sums, scale], floats, lowering.device, ScaleAxis(1 if scale.size > 1 else None)
        )
    )
    if narrow:
        one = lowering.const(np.array(1, np.float32))
        operands = [floats, one, *([] if zero is None else [zero])]
        lowering.emit(Quantise(node.name, operands, output, lowering.device, ScaleAxis()))


def _factor(node: NodeSpec) -> Array:
    """``alpha * a_scale * b_scale / y_scale`` in float32, each step rounded: [1] or [N]."""
    a, b = (np.asarray(constant(node, index), np.float32).reshape(-1) for index in (1, 4))
    factor = np.float32(node.attr("alpha", 1.0)) * a * b
    if node.input(7) is not None:
        factor = factor / np.asarray(constant(node, 7), np.float32).reshape(-1)
    return np.asarray(factor, np.float32)


def _zero(node: NodeSpec, index: int, x: TensorSpec, lowering: Lowering) -> TensorSpec | None:
    """A zero point of the type of ``x``; None where all are 0."""
    if node.input(index) is None:
        return None
    return zero_of(constant(node, index), x, lowering)
