# SPDX-License-Identifier: Apache-2.0
"""Copies on the device, for values that need bytes of their own; asking an operator for all it has."""

from __future__ import annotations

from onedispatch.dispatch.compiler.arg_maps import (
    checked_arg_map,
    explanation_of,
    macs_of,
    parameters_of,
    transaction_of,
)
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.lowering.movement import Copy
from onedispatch.operators.scheduling.select import Selector
from onedispatch.transactions import Device


def device_copy(like: TensorSpec, name: str, device: Device) -> Operator:
    """An operator that copies ``like``, an alias as a rule, to a tensor of its own that is called ``name``.

    Raises ``Unsupported`` where the device cannot copy such a tensor.
    """
    source, output = (TensorSpec(n, like.dtype, like.shape) for n in (like.name, name))
    copy = Copy(f"copy of {like.name}", inputs=[source], output=output, device=device)
    copy.check_fits()
    return copy


def build(operator: Operator, about: str) -> None:
    """Asks ``operator`` for all that it hands over; it keeps what took long.

    Raises ``Unsupported`` where it refuses only now, ``InternalError`` that names it, with ``about``, for
    what no operator may raise.
    """
    parameters_of(operator, about, checked_arg_map(operator, about))
    transaction_of(operator, about)
    explanation_of(operator, about)
    macs_of(operator, about)


class Copies:
    """The copies that a model's outputs need, each made once."""

    def __init__(self, device: Device, selector: Selector) -> None:
        self._device, self._selector = device, selector
        self._made: dict[str, Operator] = {}

    def of(self, tensor: TensorSpec) -> Operator:
        """The operator that copies ``tensor`` to ``<its name>//own``.

        Raises ``Unsupported`` where the device cannot.
        """
        name = tensor.name
        if name not in self._made:
            copy = device_copy(tensor, f"{name}//own", self._device).selected(self._selector)
            build(copy, f"output {name}")
            self._made[name] = copy
        return self._made[name]
