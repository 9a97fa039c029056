# SPDX-License-Identifier: Apache-2.0
"""Copies on the device, for values that need bytes of their own; asking an operator for all it has."""

from __future__ import annotations

from dataclasses import replace

from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported
from onedispatch.operators.families.movement import Copy
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.scheduling.select import Selector
from onedispatch.transactions import Device
from onedispatch.transactions.base.boundary import blamed_on


def device_copy(source: TensorSpec, output: TensorSpec, device: Device) -> Operator:
    """An operator that copies ``source`` (same bytes, perhaps another shape) to ``output``.

    Raises ``Unsupported`` where the device cannot copy such a tensor.
    """
    value = None if source.value is None else source.value.reshape(output.shape)
    same = replace(source, shape=output.shape, value=value)
    copy = Copy(f"copy of {source.name}", inputs=[same], output=output, device=device)
    copy.check_fits()
    return copy


def build(operator: Operator, about: str) -> None:
    """Asks ``operator`` for all that it hands over; it keeps what took long.

    Raises ``Unsupported`` where it refuses only now, ``InternalError`` that names it, with ``about``, for
    what no operator may raise.
    """
    with blamed_on(type(operator), f"operator {operator.name} of {about}", Unsupported):
        operator.arg_map()
        operator.transaction()
        operator.super_kernel_params()
        operator.explain()


class Copies:
    """The copies that a model's outputs need, each made once."""

    def __init__(self, device: Device, selector: Selector) -> None:
        self._device, self._selector = device, selector
        self._made: dict[str, Operator] = {}

    def of(self, origin: TensorSpec, name: str, like: TensorSpec) -> Operator:
        """The operator that copies ``origin`` to ``<name>//own``, a tensor ``like`` another.

        Raises ``Unsupported`` where the device cannot.
        """
        if name not in self._made:
            own = TensorSpec(f"{name}//own", like.dtype, like.shape)
            copy = device_copy(origin, own, self._device).selected(self._selector)
            build(copy, f"output {name}")
            self._made[name] = copy
        return self._made[name]
