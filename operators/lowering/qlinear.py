# SPDX-License-Identifier: Apache-2.0
"""Reads the operands of quantised ONNX nodes: scales, zero points, lookup tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Array
from onedispatch.operators.kernels.quant_params import QuantParams
from onedispatch.operators.kernels.table import Table, every_byte

BYTES = ("int8", "uint8")
NARROW = (*BYTES, "int16", "uint16")
SCALED = "constant scales and zero points of one element"


def scale_of(node: NodeSpec, index: int, zero_index: int | None = None) -> QuantParams:
    """The constant scale that is input ``index``, and its zero point: the one behind it, or another.

    Raises ``Unsupported`` for computed ones, and for several.
    """
    found = [constant(node, index)]
    zero = node.input(index + 1 if zero_index is None else zero_index)
    if zero is not None:
        found += [constant(node, index + 1 if zero_index is None else zero_index)]
    if any(value.size != 1 for value in found):
        raise Unsupported(f"{node.op_type} with several scales or zero points of one tensor", SCALED)
    return QuantParams.of(*found)


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


def unary_of(
    node: NodeSpec, accepted: Sequence[str] = BYTES
) -> tuple[TensorSpec, TensorSpec, QuantParams, QuantParams]:
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
