# SPDX-License-Identifier: Apache-2.0
"""Types and shapes of the results of one node, as the compiler infers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import onnx
from onnx import NodeProto, helper, numpy_helper

from onedispatch.dispatch.compiler.custom import CustomNodes
from onedispatch.dispatch.frontend.exporter import infer_values
from onedispatch.dispatch.frontend.graph import Array, Value
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.operators.declarations.statuses import KernelNonStaticInputError
from onedispatch.transactions import Device

_SMALL = 1024  # elements of constants whose values shapes may follow from


class Operand(Protocol):
    """What is known of an input: ``value`` of a constant."""

    name: str
    known: Value
    value: Array | None


def inferred(
    node: NodeProto, operands: Sequence[Any], opsets: Mapping[str, int], device: Device
) -> dict[str, Value]:
    """What is known of the results of ``node``, by name.

    Raises ``ModelError`` for a node that ONNX does not allow, ``KernelError`` for one that its layer refuses.
    """
    unique = {one.name: one for one in operands}
    values = {name: one.value for name, one in unique.items() if one.value is not None}
    small = {name: array for name, array in values.items() if array.size <= _SMALL}
    inputs = [_info(one.known) for name, one in unique.items() if name not in small]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    tensors = [numpy_helper.from_array(array, name) for name, array in small.items()]
    graph = helper.make_graph([node], "one layer", inputs, outputs, tensors)
    imports = [helper.make_opsetid(*one) for one in opsets.items()]
    read = import_model(helper.make_model(graph, opset_imports=imports, ir_version=10))
    own = CustomNodes(read, device)
    found = infer_values(read, {value.name: value for value in read.inputs}, {}, own=own)
    try:
        own.raise_refused(read)
    except KernelNonStaticInputError:
        if all(one.value is not None for one in operands):
            raise
    return found


def _info(value: Value) -> onnx.ValueInfoProto:
    if value.dtype is None:
        return onnx.ValueInfoProto(name=value.name)
    return helper.make_tensor_value_info(
        value.name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
    )
