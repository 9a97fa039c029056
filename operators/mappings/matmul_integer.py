# SPDX-License-Identifier: Apache-2.0
"""Products of bytes: MatMulInteger, QLinearMatMul, and what onnxruntime's rewrites make of the former.

Sums are exact, those of 16 bits too, which have 64. As floats (MatMulIntegerToFloat, DynamicQuantizeMatMul)
they are multiplied by the scales of both operands, and a bias comes then, as in onnxruntime.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onedispatch.operators.declarations.registry import MICROSOFT, Inferred, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.lowering.convert import in_float32
from onedispatch.operators.lowering.qlinear import BYTES, NARROW, bytes_of, narrow_of
from onedispatch.operators.mappings.dynamic_quantise import dynamically_quantised
from onedispatch.operators.mappings.matmul import emit_product

F = np.dtype(np.float32)


@maps("MatMulInteger", dtypes=BYTES, notes="zero points per tensor, row (2-D A) or column (2-D B); any K")
def map_matmul_integer(node: NodeSpec, lowering: Lowering) -> None:
    a, b, output = bytes_of(node, 0), bytes_of(node, 1), node.outputs[0]
    if output is None:
        raise Unsupported("MatMulInteger without output")
    zeros = _zeros(a, b, node.input(2), node.input(3))
    emit_product(node, lowering, a, b, output, a_zero=zeros[0], b_zero=zeros[1])


def known_zero(tensor: TensorSpec | None) -> TensorSpec | None:
    """A zero point worth sending: constants that are all zero are dropped."""
    if tensor is None or (tensor.value is not None and not np.any(tensor.value)):
        return None
    return tensor


def _zeros(
    a: TensorSpec, b: TensorSpec, a_zero: TensorSpec | None, b_zero: TensorSpec | None
) -> tuple[TensorSpec | None, TensorSpec | None]:
    """The zero points of both operands. Raises ``Unsupported`` for several that no one matrix has."""
    zeros = known_zero(a_zero), known_zero(b_zero)
    rows, columns = (zero is not None and zero.size > 1 for zero in zeros)
    if rows and max(len(a.shape), len(b.shape)) > 2:
        raise Unsupported("zero points per row of batched matrices", "2-D A and B")
    if columns and len(b.shape) > 2:
        raise Unsupported("zero points per column of batched matrices", "2-D B")
    return zeros


@maps("QLinearMatMul", dtypes=NARROW, notes="scales and zero points of B per column, where 2-D; any K")
def map_qlinear_matmul(node: NodeSpec, lowering: Lowering) -> None:
    (a, b), output = narrow_of(node, 0, 3, wider=True), node.outputs[0]
    given = [node.input(index) for index in range(8)]
    if output is None or any(tensor is None for tensor in given):
        raise Unsupported("QLinearMatMul without one of its tensors")
    tensors = [tensor for tensor in given if tensor is not None]
    (a_scale, b_scale, y_scale), out_zero = (tensors[i] for i in (1, 4, 6)), tensors[7]
    if any(tensor.size != 1 for tensor in (a_scale, y_scale, out_zero)):
        raise Unsupported("scales of A or Y per row or column", "one for the tensor")
    if b_scale.size > 1 and len(b.shape) > 2:
        raise Unsupported("scales per column of batched matrices", "2-D B")
    zeros = _zeros(a, b, tensors[2], tensors[5])
    scale = scale_of_sums(node, lowering, a_scale, b_scale, y_scale)
    options = {"scale": scale, "out_zero": known_zero(out_zero)}
    emit_product(node, lowering, a, b, output, a_zero=zeros[0], b_zero=zeros[1], **options)


def scale_of_sums(
    node: NodeSpec, lowering: Lowering, a: TensorSpec, b: TensorSpec, y: TensorSpec
) -> TensorSpec:
    """``a * b / y`` in float32, each step rounded, as onnxruntime computes it: now, or on the device."""
    if a.value is not None and b.value is not None and y.value is not None:
        first, second, third = (
            t.value.astype(np.float32).reshape(-1) for t in (a, b, y) if t.value is not None
        )
        return lowering.const(first * second / third)
    wide = [in_float32(node.name, tensor, lowering) for tensor in (a, b, y)]
    product, factor = (lowering.temp(np.dtype(np.float32), b.shape) for _ in range(2))
    lowering.emit(Eltwise(node.name, "mul", wide[:2], product, lowering.device))
    lowering.emit(Eltwise(node.name, "div", [product, wide[2]], factor, lowering.device))
    return factor


@dataclass(frozen=True)
class ScaledBytes:
    """Bytes, with their scale and their zero point."""

    tensor: TensorSpec
    scale: TensorSpec
    zero: TensorSpec | None

    @classmethod
    def of(cls, node: NodeSpec, tensor: int, scale: int, zero: int) -> ScaledBytes:
        """The inputs of these numbers. Raises ``Unsupported`` for what is missing, or of another type."""
        by = node.input(scale)
        if by is None or by.dtype != F:
            raise Unsupported(f"{node.op_type} with scales of {by.dtype if by else 'nothing'}", "float32")
        return cls(bytes_of(node, tensor), by, known_zero(node.input(zero)))

    @property
    def several(self) -> bool:
        return any(one is not None and one.size > 1 for one in (self.scale, self.zero))


def emit_as_floats(
    node: NodeSpec,
    a: ScaledBytes,
    b: ScaledBytes,
    bias: TensorSpec | None,
    output: TensorSpec | None,
    lowering: Lowering,
) -> None:
    """``(a @ b) * scale + bias`` into ``output``."""
    name = node.name
    if output is None or output.dtype != F:
        raise Unsupported(f"{node.op_type} to {output.dtype if output else 'nothing'}", "float32")
    if a.several or (b.several and len(b.tensor.shape) > 2):
        raise Unsupported("scales or zero points per row, or of batched matrices", "one, or [N] of a 2-D B")
    if not a.tensor.size or not b.tensor.size:
        raise Unsupported(f"{node.op_type} of no elements", "one or more")
    known = b.tensor.is_const and len(b.tensor.shape) == 2 and bias is not None and bias.value is not None
    packed = np.asarray(bias.value, np.float32).reshape(-1) if known and bias is not None else None
    product = output if bias is None or known else lowering.temp(F, output.shape)
    scale = _both(name, a.scale, b.scale, lowering)
    options = ProductOptions(a_zero=a.zero, b_zero=b.zero, scale=scale, bias=packed)
    lowering.emit(MatMul(name, a.tensor, b.tensor, product, lowering.device, options))
    if product is not output and bias is not None:
        lowering.emit(Eltwise(name, "add", [product, bias], output, lowering.device))


def _both(name: str, one: TensorSpec, several: TensorSpec, lowering: Lowering) -> TensorSpec:
    """The product of two scales [1] or [N], now or on the device."""
    if one.value is not None and several.value is not None:
        return lowering.const(np.asarray(one.value.reshape(-1) * several.value.reshape(-1), np.float32))
    flat = [tensor.reshaped((tensor.size,)) for tensor in (one, several)]
    product = lowering.temp(F, (several.size,))
    lowering.emit(Eltwise(name, "mul", flat, product, lowering.device))
    return product


def _product_shape(node: NodeSpec) -> Inferred:
    a, b = node.inputs[0], node.inputs[1]
    if a is None or b is None:
        return []
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows, columns = a.shape[-2:-1], b.shape[-1:] if len(b.shape) > 1 else ()
    return [(F, (*batch, *rows, *columns))]


_NOTES = "scales and zero points of B per column, where 2-D; any K"


@maps("MatMulIntegerToFloat", dtypes=BYTES, domain=MICROSOFT, infer=_product_shape, notes=_NOTES)
def map_integer_to_float(node: NodeSpec, lowering: Lowering) -> None:
    a, b = ScaledBytes.of(node, 0, 2, 4), ScaledBytes.of(node, 1, 3, 5)
    emit_as_floats(node, a, b, node.input(6), node.outputs[0], lowering)


@maps("DynamicQuantizeMatMul", domain=MICROSOFT, infer=_product_shape, notes=f"A as uint8; {_NOTES}")
def map_dynamic_product(node: NodeSpec, lowering: Lowering) -> None:
    x, b = node.input(0), ScaledBytes.of(node, 1, 2, 3)
    if x is None or x.dtype != F or not x.size:
        raise Unsupported(f"DynamicQuantizeMatMul of {x or 'nothing'}", "float32, one element or more")
    quantised = ScaledBytes(*dynamically_quantised(node.name, x, lowering))
    emit_as_floats(node, quantised, b, node.input(4), node.outputs[0], lowering)
