# SPDX-License-Identifier: Apache-2.0
"""A case's node mapped to device operators, without the dispatcher in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from onedispatch.operators.declarations.registry import mapping_for
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Operator, TensorSpec
from onedispatch.transactions import find_device
from tests.ops.case import Array, Case

Execute = Callable[[Operator, Sequence[Array]], Array]


def lower(case: Case) -> Lowering:
    """What the node's mapping function emits.

    Raises:
        Unsupported: no device operator takes the node; KeyError: none is registered at all.
    """
    mapping = mapping_for(case.domain, case.op_type)
    if mapping is None:
        raise KeyError(f"nothing maps {case.op_type}")
    inputs = [
        None if x is None or a is None else TensorSpec(f"x{i}", a.dtype, a.shape, a if x.const else None)
        for i, (x, a) in enumerate(zip(case.inputs, case.arrays, strict=True))
    ]
    outputs = [TensorSpec(f"y{i}", y.dtype, y.shape) for i, y in enumerate(case.expected)]
    node = NodeSpec("node", case.op_type, case.domain, case.opset, inputs, outputs, case.attributes)
    lowering = Lowering(find_device(case.device))
    lowering.begin(node)
    mapping.function(node, lowering)
    return lowering


def computed(
    lowering: Lowering, values: dict[str, Array], execute: Execute
) -> Iterator[tuple[Operator, list[Array], Array]]:
    """Computes each device operator by ``execute``; yields it with its inputs and its first output.

    ``values`` has the inputs of the node by name, and gets what is computed.
    """
    aliases = {output.name: (output, source, offset) for output, source, offset in lowering.aliases}

    def of(tensor: TensorSpec) -> Array:
        if tensor.value is not None:
            return np.asarray(tensor.value)
        if tensor.name not in values and tensor.name in aliases:  # bytes of another tensor
            output, source, offset = aliases[tensor.name]
            at, count = (n // output.dtype.itemsize for n in (offset, output.device_bytes))
            values[tensor.name] = output.gathered(source.laid(of(source))[at : at + count])
        return values[tensor.name]

    for _, op in lowering.ops:
        arrays = [of(tensor) for tensor in op.inputs]
        values[op.output.name] = execute(op, arrays).reshape(op.output.shape)
        if op.further_outputs:
            made = op.references(*arrays)[1:]
            values |= {t.name: y for t, y in zip(op.further_outputs, made, strict=True)}
        yield op, arrays, values[op.output.name]
    for output, _, _ in lowering.aliases:
        of(output)


def evaluate(case: Case, execute: Execute, lowered: Lowering | None = None) -> Array:
    """The node's answer, every device operator computed by ``execute``; ``lowered``: all of them."""
    values: dict[str, Array] = dict(case.feed)
    for _ in computed(lower(case) if lowered is None else lowered, values, execute):
        pass
    return values["y0"]


def reference(op: Operator, arrays: Sequence[Array]) -> Array:
    """``Execute`` by the operator's own NumPy definition."""
    with np.errstate(all="ignore"):
        result: Array = op.reference(*arrays)
    return result


def device_bytes(tensor: TensorSpec, array: np.ndarray[Any, Any]) -> bytes:
    """``array`` as it lies in device memory: rows of narrow types padded to words."""
    rows = array.reshape(-1, tensor.shape[-1] if tensor.shape else 1)
    padded = np.zeros((rows.shape[0], tensor.row_pitch), array.dtype)
    padded[:, : rows.shape[1]] = rows
    return padded.tobytes()
