# SPDX-License-Identifier: Apache-2.0
"""A node of a kernel from outside, computed on the host: by the kernel's reference, or by its own body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.tensor import NodeSpec
from onedispatch.transactions import Device
from onedispatch.transactions.base.boundary import blamed_on

Array = np.ndarray[Any, Any]
OWN_BODY, REFERENCE = "the kernel's own body", "the kernel's reference"


def engine_of(plugin: Any) -> str:
    """Who computes its nodes on the host."""
    return REFERENCE if plugin.kernel.has_reference else OWN_BODY


def compute(plugin: Any, spec: NodeSpec, device: Device, arrays: Sequence[Array | None]) -> list[Array]:
    """The node's outputs, in the order of the declaration; ``spec`` has its inputs' shapes and types.

    Raises ``KernelError`` where the kernel refuses the node or its body fails.
    """
    node = plugin.node(spec, device)
    kernel, about = plugin.kernel, f"node {spec.name} ({spec.op_type}) on the host"
    with blamed_on(type(kernel), about):
        made = kernel.infer(node)
        results = kernel.reference(node, *arrays) if kernel.has_reference else _run(kernel, node, arrays)
    results = results if isinstance(results, tuple | list) else (results,)
    return [
        _checked(node, one.name, made[one.name], result)
        for one, result in zip(kernel.declared.outputs, results, strict=True)
    ]


def _checked(node: Any, name: str, made: tuple[str, tuple[int, ...]], result: Any) -> Array:
    dtype, shape = made
    array = np.asarray(result)
    if array.dtype != DTYPES[dtype].numpy or array.shape != tuple(shape):
        given = f"{array.dtype}{list(array.shape)}"
        accepted = f"{DTYPES[dtype].numpy}{list(shape)}, as infer says"
        raise node.refuse("output_size", f"output {name} of {REFERENCE}", given, accepted)
    return np.ascontiguousarray(array).reshape(shape)


def _run(kernel: Any, node: Any, arrays: Sequence[Array | None]) -> list[Array]:
    raise NotImplementedError
