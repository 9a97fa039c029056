# SPDX-License-Identifier: Apache-2.0
"""ONNX's functions of one operand."""

from __future__ import annotations

from onedispatch.operators.declarations.functions import ACTIVATIONS, Activation
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec
from onedispatch.operators.kernels.elementwise import Eltwise, numpy_names
from onedispatch.operators.lowering.operands import function_dtypes, operands_of

UNARY = ACTIVATIONS.by_onnx
GELUS = {"none": "gelu", "tanh": "gelu_tanh"}  # attribute approximate
TAKEN = function_dtypes(ACTIVATIONS, UNARY)
# Those that int64 has too, which another kernel computes on: see ``arithmetic.py``.
WIDE_TOO = ("Abs", "Neg")


def emit_activation(node: NodeSpec, lowering: Lowering, activation: Activation) -> None:
    inputs, output = operands_of(node, numpy_names(ACTIVATIONS[activation.code].dtypes))
    op = Eltwise(node.name, "copy", inputs[:1], output, lowering.device, activation=activation)
    lowering.emit(op)


@maps(*(op for op in UNARY if op not in WIDE_TOO), dtypes=TAKEN)
def map_unary(node: NodeSpec, lowering: Lowering) -> None:
    row = UNARY[node.op_type]
    if node.op_type == "Gelu":
        row = GELUS[node.attr("approximate", "none")]
    parameters = [float(node.attr(name, default)) for name, default in ACTIVATIONS[row].attributes]
    emit_activation(node, lowering, Activation(row, *parameters))
