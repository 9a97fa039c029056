# SPDX-License-Identifier: Apache-2.0
"""Emits arithmetic of two operands."""

from __future__ import annotations

from collections.abc import Sequence

from onedispatch.operators.declarations.dtypes import WIDE
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.interface.operator import Lowering, TensorSpec
from onedispatch.operators.kernels.elementwise import Eltwise, Layout
from onedispatch.operators.kernels.logic import Binary


def emit_arithmetic(
    name: str,
    func: str,
    inputs: Sequence[TensorSpec],
    output: TensorSpec,
    lowering: Lowering,
    activation: Activation | None = None,
    layout: Layout | None = None,
) -> None:
    """``activation(func(inputs))`` by the kernel that has elements of the output's type."""
    if output.element.name == WIDE:
        lowering.emit(Binary(name, func, inputs, output, lowering.device, layout=layout))
    else:
        op = Eltwise(name, func, inputs, output, lowering.device, activation=activation, layout=layout)
        lowering.emit(op)
