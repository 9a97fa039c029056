# SPDX-License-Identifier: Apache-2.0
"""What products and convolutions take in beside functions: a factor, a bias, a scale and a shift."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations.tensor import Scaled, TensorSpec, Unsupported
from onedispatch.operators.interface.merge import Merge, refuse_applied
from onedispatch.operators.kernels.channel_norm import ChannelAffine
from onedispatch.operators.kernels.convert import Convert
from onedispatch.operators.kernels.elementwise import Eltwise

Array = np.ndarray[Any, Any]
_SMALLEST = 1e-30
_FIRST = "none before it"  # functions that the producer applies


def _multiplies(product: Any, reader: Any) -> bool:
    """Whether ``reader`` is the product times or over one number, known or not."""
    if not isinstance(reader, Eltwise) or len(reader.inputs) != 2 or not product.is_float:
        return False
    if product.of_integers:  # has a scale of its own
        return False
    first = reader.inputs[0].name == product.output.name
    return (reader.func == "mul" or (reader.func == "div" and first)) and _other(product, reader).size == 1


def _other(product: Any, reader: Any) -> TensorSpec:
    others: list[TensorSpec] = [t for t in reader.inputs if t.name != product.output.name]
    return others[0]


def _with_factor(product: Any, reader: Any) -> Any:
    """``product`` (a ``MatMul``) times or over the constant number that ``reader`` brings."""
    other = _other(product, reader)
    if other.value is None:
        raise Unsupported(f"{other.name} is no constant", "a constant number")
    refuse_applied(product, _FIRST)
    if reader.output.shape != product.output.shape:
        raise Unsupported(f"{other} adds dimensions", "a number of as many as the product has, or fewer")
    number = float(np.asarray(other.value).reshape(-1)[0])
    factor = number if reader.func == "mul" else 1 / number if number else np.inf
    alpha = product.alpha * factor
    if not _SMALLEST <= abs(alpha) <= 1 / _SMALLEST:  # in float32 it would be 0, or no number
        raise Unsupported(f"{other.name} is {number:g}", f"factors of {_SMALLEST:g} to {1 / _SMALLEST:g}")
    bias = None if product.bias is None else np.float32(factor) * np.asarray(product.bias, np.float32)
    return product.replaced(output=reader.output, activation=reader.activation, alpha=alpha, bias=bias)


FACTOR = Merge("factor", _multiplies, _with_factor)


def _adds(product: Any, reader: Any) -> bool:
    """Whether ``reader`` is the sum of the product and one other value, and no more."""
    plain = isinstance(reader, Eltwise) and reader.func == "add" and len(reader.inputs) == 2
    return plain and product.is_float and (reader.alpha, reader.beta) == (1.0, 1.0)


def _with_bias(product: Any, reader: Any) -> Any:
    """``product`` (a ``MatMul``) with the constant [N] that ``reader`` adds to it."""
    other = _other(product, reader)
    if other.value is None:
        raise Unsupported(
            f"{other.name} is no constant: a product would get a residual again with every step of its "
            "reduction",
            "a constant bias",
        )
    refuse_applied(product, _FIRST)
    if product.bias is not None:
        raise Unsupported(f"{product.name} has a bias already", "one")
    if not product.packs_b:
        raise Unsupported(f"{product.b.name} is no constant matrix, with which a bias is packed", "one")
    n = product.output.shape[-1] if product.output.shape else 1
    laid = product.matrices is None or product.matrices[2].shape[-1] == n
    row = other.size == n and (other.shape or (1,))[-1] == n
    if not laid or not row or reader.output.shape != product.output.shape:
        raise Unsupported(f"{other} beside columns of {product.output}", f"[{n}], a value for each column")
    bias = np.asarray(other.value, np.float32).reshape(-1)
    return product.replaced(output=reader.output, activation=reader.activation, bias=bias)


BIAS = Merge("bias", _adds, _with_bias)


def _widens(product: Any, reader: Any) -> bool:
    """Whether ``reader`` is the product as float32, which its sums are."""
    return isinstance(reader, Convert) and product.is_float and reader.output.dtype == np.float32


def _widened(product: Any, reader: Any) -> Any:
    """``product`` (a ``MatMul``) that writes its sums as they are: nothing rounds them on the way."""
    return product.replaced(output=reader.output)


WIDENED = Merge("float32", _widens, _widened)


def _becomes_floats(product: Any, reader: Any) -> bool:
    """Whether ``reader`` is int32 sums as float32."""
    return (
        isinstance(reader, Convert) and product.output.dtype == np.int32 and reader.output.dtype == np.float32
    )


def _as_floats(product: Any, reader: Any) -> Any:
    """``product`` (a ``MatMul``) of bytes that writes its sums as float32."""
    if {product.a.element.itemsize, product.b.element.itemsize} != {1}:
        raise Unsupported(f"sums of {product.a.dtype} and {product.b.dtype}", "products of int8 and uint8")
    if product.bias is not None or product.optional["scale"] is not None:
        raise Unsupported(f"{product.name} has a bias or a scale of its own", "neither")
    if reader.output.shape != product.output.shape:
        raise Unsupported(f"{reader.output}", f"the shape {list(product.output.shape)}")
    return product.scaled(None, reader.output)


AS_FLOATS = Merge("as_floats", _becomes_floats, _as_floats)


def _scales_sums(product: Any, reader: Any) -> bool:
    """Whether ``reader`` is sums of integers, as float32, times one other value."""
    if not (product.is_float and product.of_integers and isinstance(reader, Eltwise)):
        return False
    return reader.func == "mul" and len(reader.inputs) == 2


def _with_scale(product: Any, reader: Any) -> Any:
    """``product`` (a ``MatMul``) with the scale that ``reader`` multiplies its sums by, computed or not."""
    other, n = _other(product, reader), (product.output.shape or (1,))[-1]
    refuse_applied(product, _FIRST)
    if product.bias is not None or product.optional["scale"] is not None:
        raise Unsupported(f"{product.name} has a bias or a scale already", "neither")
    if reader.output.shape != product.output.shape:
        raise Unsupported(f"{other} adds dimensions", "a scale of as many as the product has, or fewer")
    if other.size != 1 and (other.size != n or other.shape[-1] != n):
        raise Unsupported(f"{other} beside columns of {product.output}", f"one scale, or [{n}]")
    return product.scaled(other, reader.output, activation=reader.activation)


SCALED = Merge("scale", _scales_sums, _with_scale)


def _scales(_: Any, reader: Any) -> bool:
    return isinstance(reader, ChannelAffine)


def _scaled(conv: Any, reader: Any) -> Any:
    """``conv`` (a ``Conv``) with weights and bias that do what ``reader`` does to their channels."""
    refuse_applied(conv, _FIRST)
    if not conv.packs:
        raise Unsupported(f"weights or bias of {conv.name} are no constants", "constants")
    if conv.x.element.per_word > 1:
        raise Unsupported(f"weights of {conv.x.dtype}, which a scale would round once more", "float32")
    scaled = Scaled(np.asarray(conv.weights.value, np.float32), np.asarray(reader.scale, np.float32))
    value = scaled.product
    shift: Array = (conv.bias_values * reader.scale + reader.shift).astype(np.float32)
    weights = TensorSpec(conv.weights.name, value.dtype, value.shape, value, scaled=scaled)
    bias = TensorSpec(f"{conv.output.name}//bias", shift.dtype, shift.shape, shift)
    return conv.replaced(
        inputs=(conv.x, weights, bias),
        weights=weights,
        bias=bias,
        output=reader.output,
        activation=reader.activation,
    )


BATCH_NORM = Merge("batch_norm", _scales, _scaled)
