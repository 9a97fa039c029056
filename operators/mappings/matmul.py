# SPDX-License-Identifier: Apache-2.0
"""MatMul and Gemm; products of bytes are in ``matmul_integer``."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Eltwise, Layout, View, numpy_names
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.operands import operands_of

_INTEGERS = ("int32", "uint32")
PRODUCTS = (*numpy_names(FLOATS), *_INTEGERS)


@maps("MatMul", dtypes=PRODUCTS, notes="any rank, broadcast batches, any K")
def map_matmul(node: NodeSpec, lowering: Lowering) -> None:
    (a, b), output = operands_of(node, PRODUCTS)
    emit_product(node, lowering, a, b, output)


def emit_product(
    node: NodeSpec, lowering: Lowering, a: TensorSpec, b: TensorSpec, output: TensorSpec, **options: Any
) -> None:
    """A ``MatMul``, or zeros (``out_zero``) where the reduction is empty."""
    k, zero = a.shape[-2] if options.get("trans_a") else a.shape[-1], options.get("out_zero")
    if k > 0:
        lowering.emit(MatMul(node.name, a, b, output, lowering.device, ProductOptions(**options)))
    elif zero is None:
        lowering.emit(Eltwise(node.name, "fill", [], output, lowering.device, alpha=0.0))
    else:
        views = [View([0] * len(output.device_shape))]
        lowering.emit(Eltwise(node.name, "copy", [zero], output, lowering.device, layout=Layout(views)))


@maps("Gemm", dtypes=PRODUCTS, notes="alpha, beta, transposed inputs, any K; C constant or computed")
def map_gemm(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = operands_of(node, PRODUCTS)
    a, b = inputs[:2]
    c = node.input(2)
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    whole = str(output.dtype) in _INTEGERS
    if whole and not (alpha.is_integer() and beta.is_integer()):
        raise Unsupported(f"Gemm of {output.dtype} with alpha {alpha} and beta {beta}", "whole numbers")
    options: dict[str, Any] = {
        "alpha": alpha,
        "trans_a": bool(node.attr("transA", 0)),
        "trans_b": bool(node.attr("transB", 0)),
    }
    n = output.shape[-1]
    row = c is not None and c.value is not None and c.size in (1, n) and (c.size == 1 or c.shape[-1] == n)
    if whole and (alpha, beta) != (1.0, 1.0):
        _emit_whole(node, lowering, (a, b, c), output, options | {"beta": beta})
    elif c is None or beta == 0.0:
        emit_product(node, lowering, a, b, output, **options)
    elif row and a.size and b.is_const and c.value is not None and not whole:
        bias = np.float32(beta) * np.broadcast_to(np.asarray(c.value, np.float32).reshape(-1), (n,))
        emit_product(node, lowering, a, b, output, bias=bias, **options)
    else:
        _add_computed(node, lowering, (a, b, c), output, beta, options)


def _emit_whole(
    node: NodeSpec,
    lowering: Lowering,
    inputs: tuple[TensorSpec, TensorSpec, TensorSpec | None],
    output: TensorSpec,
    options: dict[str, Any],
) -> None:
    """A product of integers, and C, each times a whole number: all of them wrap."""
    (a, b, c), alpha, beta = inputs, int(options.pop("alpha")), int(options.pop("beta"))

    def times(x: TensorSpec, factor: int, target: TensorSpec) -> None:
        bits = lowering.const(np.array([factor & 0xFFFFFFFF], np.uint32).view(output.dtype))
        lowering.emit(Eltwise(node.name, "mul", [x, bits], target, lowering.device))

    adds = c is not None and beta
    product = lowering.temp(output.dtype, output.shape)
    emit_product(node, lowering, a, b, product, **options)
    scaled = lowering.temp(output.dtype, output.shape) if adds else output
    times(product, alpha, scaled)
    if c is not None and adds:
        term = lowering.temp(output.dtype, c.shape)
        times(c, beta, term)
        lowering.emit(Eltwise(node.name, "add", [scaled, term], output, lowering.device))


def _add_computed(
    node: NodeSpec,
    lowering: Lowering,
    inputs: tuple[TensorSpec, TensorSpec, TensorSpec],
    output: TensorSpec,
    beta: float,
    options: dict[str, Any],
) -> None:
    """A product and a C that is added to it; narrow floats in float32, so that they are rounded once."""
    a, b, c = inputs
    narrow = output.element.per_word > 1
    dtype = np.dtype(np.float32) if narrow else output.dtype
    product = lowering.temp(dtype, output.shape)
    emit_product(node, lowering, a, b, product, **options)
    total = lowering.temp(dtype, output.shape) if narrow else output
    c = in_float32(node.name, c, lowering) if narrow else c
    both = Eltwise(node.name, "add", [product, c], total, lowering.device)
    lowering.emit(both.replaced(beta=beta))
    if narrow:
        emit_converted(node.name, total, output, lowering)
