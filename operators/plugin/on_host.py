# SPDX-License-Identifier: Apache-2.0
"""One call of a custom kernel on the host: the block and the memory that its body is given.

All members are in the call, and every operand is whole, laid out as in device memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.params import ParamBlock, port_ref
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.plugin.instance import KernelInstance
from onedispatch.operators.plugin.lowering import MemberOperator
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

Array = np.ndarray[Any, Any]
OWN_BODY, REFERENCE = "the kernel's own body", "the kernel's reference"


def engine_of(kernel: Any) -> str:
    """The name of what computes the nodes of ``kernel`` on the host."""
    return REFERENCE if kernel.has_reference else OWN_BODY


@dataclass(frozen=True, eq=False)
class HostCall:
    """``words`` of the block, and per operand, in the order of the kernel's tensors, its bytes: None where it
    is absent."""

    words: list[int]
    images: list[Array | None]
    scratch_bytes: int
    made: Mapping[str, TensorSpec]

    def results(self, kernel: Any) -> list[Array]:
        """The outputs, once the call is done."""
        at = [one.name for one in kernel.tensors]
        images = {name: image for name, image in zip(at, self.images, strict=True) if image is not None}
        return [spec.gathered(images[name].view(spec.dtype)) for name, spec in self.made.items()]


def host_call(
    plugin: Any, node: Node, instance: KernelInstance, arrays: Mapping[str, Array], device: Device
) -> HostCall:
    """The call for a node; ``arrays`` are its inputs by the names of the declaration, without absent ones."""
    values = {**arrays, **instance.aux}
    tensors = {name: TensorSpec(name, array.dtype, array.shape) for name, array in values.items()}
    made = {
        name: TensorSpec(name, DTYPES[dtype].numpy, shape)
        for name, (dtype, shape) in instance.outputs.items()
    }
    operator = MemberOperator(plugin, node, instance, tensors, made, device)
    nest = operator.uncut()
    images: list[Array | None] = []
    for one in plugin.kernel.tensors:
        if one.name in made:
            images.append(_blank(made[one.name], float(nest.scalars.get(f"fill_{one.name}", 0.0))))
        else:
            given = values.get(one.name)
            images.append(None if given is None else _image(tensors[one.name], given))
    scratch = int(nest.scalars.get("scratch_bytes", 0))
    return HostCall(_words(nest, tensors | made), images, scratch, made)


def _image(tensor: TensorSpec, array: Array) -> Array:
    return np.ascontiguousarray(tensor.laid(array)).reshape(-1).view(np.uint8)


def _blank(tensor: TensorSpec, fill: float) -> Array:
    """What an output holds before the call."""
    elements = tensor.device_bytes // tensor.dtype.itemsize
    return np.full(elements, 0 if isnan(fill) else fill, tensor.dtype).view(np.uint8)


def _words(nest: Nest, tensors: Mapping[str, TensorSpec]) -> list[int]:
    block = ParamBlock(nest.kernel)
    members = nest.members
    assert members is not None  # of a member kernel
    block.set_members(members.first, members.total, members.whole)
    for operand in nest.strided:
        axes = members.axes[operand.name]
        shape = tensors[operand.name].device_shape if axes else ()
        reference = port_ref(2 if operand.output is not None else 0, 0)
        block.set_member_operand(operand.name, reference, operand.dtype.code, axes, shape)
    for scalar in nest.kernel.scalars:
        block.set_scalar(scalar.name, nest.scalars[scalar.name])
    return list(block.words)
