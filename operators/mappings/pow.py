# SPDX-License-Identifier: Apache-2.0
"""Powers: one of several functions, by what the model says of the exponent."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations.functions import ACTIVATIONS, Activation
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Eltwise, numpy_names
from onedispatch.operators.lowering.convert import emit_converted, in_float32

# Exponents that take no logarithm.
COMMON = {1.0: "none", 2.0: "square", 3.0: "cube", 0.5: "half_power", -1.0: "reciprocal"}
FLOATS = numpy_names(ACTIVATIONS["power"].dtypes)
BASES = (*FLOATS, "int32")
EXPONENTS = (*BASES, "int8", "uint8", "int16", "uint16", "uint32", "int64")


@maps(
    "Pow",
    dtypes=BASES,
    notes="broadcasting; exponents constant (any type) or computed; int32 by floats in float32",
)
def map_pow(node: NodeSpec, lowering: Lowering) -> None:
    x, exponent, output = node.inputs[0], node.inputs[1], node.outputs[0]
    if x is None or exponent is None or output is None:
        raise Unsupported("Pow without a base, an exponent or a result", "all three")
    if node.opset < 7:
        raise Unsupported(f"Pow of opset {node.opset} broadcasts by attribute", "opset 7")
    if str(x.dtype) not in BASES:
        raise Unsupported(f"Pow of {x.dtype} ({x.name})", ", ".join(BASES))
    if exponent.value is None and str(exponent.dtype) not in EXPONENTS:
        raise Unsupported(f"Pow by {exponent.dtype} ({exponent.name})", ", ".join(EXPONENTS))
    if x.dtype == np.int32:
        _whole(node, lowering, x, exponent, output)
        return
    if exponent.value is not None and exponent.value.size == 1:
        _by_constant(node, lowering, x, float(exponent.value.reshape(())), output)
        return
    if x.element.per_word > 1 and not _exactly(exponent, x.dtype):
        _in_float32(node, lowering, x, exponent, output)
        return
    emit_power(node.name, lowering, x, _as(node.name, exponent, x.dtype, lowering), output)


def _exactly(exponent: TensorSpec, dtype: np.dtype[Any]) -> bool:
    """Whether every exponent is a number of ``dtype``: rounded, a large one makes another power."""
    if exponent.value is None:
        return bool(np.can_cast(exponent.dtype, dtype))
    with np.errstate(all="ignore"):
        back = exponent.value.astype(dtype).astype(np.float64)
    return bool(np.array_equal(back, exponent.value.astype(np.float64), equal_nan=True))


def _in_float32(
    node: NodeSpec, lowering: Lowering, x: TensorSpec, exponent: TensorSpec, output: TensorSpec
) -> None:
    """The power of both in float32, rounded (of integers: cut towards zero) once."""
    base = in_float32(node.name, x, lowering)
    wide = lowering.temp(np.dtype(np.float32), output.shape)
    emit_power(node.name, lowering, base, in_float32(node.name, exponent, lowering), wide)
    emit_converted(node.name, wide, output, lowering)


def _by_constant(
    node: NodeSpec, lowering: Lowering, x: TensorSpec, exponent: float, output: TensorSpec
) -> None:
    activation = Activation(COMMON[exponent]) if exponent in COMMON else Activation("power", exponent)
    op = Eltwise(node.name, "copy", [x], output, lowering.device, activation=activation)
    lowering.emit(op)


def _whole(
    node: NodeSpec, lowering: Lowering, x: TensorSpec, exponent: TensorSpec, output: TensorSpec
) -> None:
    """Integers: by whole numbers exactly, by others in float32, cut towards zero."""
    value = exponent.value
    whole = value is not None and bool(np.all(value == np.asarray(value, np.int32)))
    if whole or exponent.dtype.kind in "iu":
        lowering.emit(
            Eltwise(
                node.name, "ipow", [x, _as(node.name, exponent, x.dtype, lowering)], output, lowering.device
            )
        )
        return
    _in_float32(node, lowering, x, exponent, output)


def emit_power(
    name: str, lowering: Lowering, x: TensorSpec, exponent: TensorSpec, output: TensorSpec
) -> None:
    """``x`` to the power of ``exponent``, of one floating-point type."""
    lowering.emit(Eltwise(name, "pow", [x, exponent], output, lowering.device))


def _as(name: str, x: TensorSpec, dtype: np.dtype[Any], lowering: Lowering) -> TensorSpec:
    """``x`` with elements of another type: constants at once."""
    if x.dtype == dtype:
        return x
    if x.value is not None:
        with np.errstate(all="ignore"):
            return lowering.const(x.value.astype(dtype))
    if (
        x.row_pitch != x.row and lowering.temp(dtype, x.shape).row_pitch != x.row
    ):  # neither lies without padding
        x = in_float32(name, x, lowering)
    return x if x.dtype == dtype else emit_converted(name, x, lowering.temp(dtype, x.shape), lowering)
