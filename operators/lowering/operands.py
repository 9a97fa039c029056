# SPDX-License-Identifier: Apache-2.0
"""Reads the operands of an ONNX node and checks their element types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from onedispatch.operators.declarations.kernel import (
    FunctionTable,
)
from onedispatch.operators.interface.operator import NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import numpy_names


def need_float(node: NodeSpec, *tensors: TensorSpec | None) -> None:
    """Raise ``Unsupported`` unless every present tensor is float32."""
    for tensor in tensors:
        if tensor is not None and tensor.dtype != np.float32:
            raise Unsupported(f"{node.op_type} of {tensor.dtype} ({tensor.name})", "float32")


def tensors_of(node: NodeSpec) -> tuple[list[TensorSpec], TensorSpec]:
    """All inputs and the first output, all float32."""
    return operands_of(node, ("float32",))


def function_dtypes(functions: FunctionTable, names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """ONNX operator -> the element types of the function that it becomes: ``names`` says which."""
    return {op: numpy_names(functions[name].dtypes) for op, name in names.items()}


def operands_of(node: NodeSpec, dtypes: Iterable[str]) -> tuple[list[TensorSpec], TensorSpec]:
    """All inputs and the first output, of one of ``dtypes`` (NumPy names).

    Raises ``Unsupported`` for another, with those that would do.
    """
    output = node.outputs[0]
    if output is None:
        raise Unsupported(f"{node.op_type} without its first output")
    inputs = inputs_of(node, dtypes)
    _check_dtypes(node, [output], dtypes)
    return inputs, output


def inputs_of(node: NodeSpec, dtypes: Iterable[str]) -> list[TensorSpec]:
    """All inputs that are there, of one of ``dtypes``. Raises ``Unsupported`` as ``operands_of`` does."""
    inputs = [x for x in node.inputs if x is not None]
    _check_dtypes(node, inputs, dtypes)
    return inputs


def _check_dtypes(node: NodeSpec, tensors: Iterable[TensorSpec], dtypes: Iterable[str]) -> None:
    for tensor in tensors:
        if str(tensor.dtype) not in dtypes:
            raise Unsupported(f"{node.op_type} of {tensor.dtype} ({tensor.name})", ", ".join(dtypes))
