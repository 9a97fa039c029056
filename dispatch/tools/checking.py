# SPDX-License-Identifier: Apache-2.0
"""Checks transactions in their context: overlay, buffer sizes, parameter blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.compiler.executable import BUFFERS, DeviceStep
from onedispatch.operators.emission.context import context
from onedispatch.transactions import Device, Finding, Transaction, find_device
from onedispatch.transactions.analysis.check import check_bytes
from onedispatch.transactions.analysis.context import Context
from onedispatch.transactions.analysis.explain import Explanation
from onedispatch.transactions.base.text import counted

PARAMS = BUFFERS.index("params")


def check_step(step: DeviceStep, device: Device, sizes: Mapping[int, int] | None = None) -> list[Finding]:
    """Returns the errors and warnings about the transaction of a device step.

    Args:
        sizes: bytes of each kernel argument; those of the step if None.
    """
    return check_bytes(step.transaction, sizes or step.sizes, context_of(step, device))


def context_of(step: DeviceStep, device: Device) -> Context:
    """Returns the context in which the transaction of a device step runs."""
    return context(device, {PARAMS: step.params}, step.image)


def explain_model(model: CompiledModel) -> Explanation:
    """Explains a model's transaction, control packets included. Raises as ``model.transaction`` does."""
    transaction = Transaction.from_bytes(model.transaction)
    ((step,),) = (executable.device_steps for executable in model.executables.values())
    return transaction.explain(context_of(step, model.target))


def regions(model: CompiledModel) -> list[tuple[str, DeviceStep]]:
    """Every device step of a compiled model, in order: the sizes of inputs, its number, and its operators."""
    return [
        (f"{key}, region {number}: {counted(len(step.ops), 'operator')}", step)
        for key, executable in model.executables.items()
        for number, step in enumerate(executable.device_steps)
    ]


def check_model(model: CompiledModel, sizes: Mapping[int, int] | None = None) -> list[Finding]:
    """Returns the findings about every device step of a compiled model, in order; of several each says which
    of ``regions`` it is about."""
    steps = regions(model)
    return [
        finding if len(steps) == 1 else replace(finding, message=f"{name}: {finding.message}")
        for name, step in steps
        for finding in check_step(step, model.target, sizes)
    ]


def check_for_overlay(
    data: bytes, device: str, sizes: Mapping[int, int] | None, params: bytes | None
) -> list[Finding]:
    """Returns the findings about a transaction that was made for the overlay of a device.

    Args:
        params: the parameter blocks, which are its kernel argument ``PARAMS``; without them
            the work of the cores is unknown.

    Raises:
        DeviceError: there is no such device.
    """
    blocks = {} if params is None else {PARAMS: params}
    return check_bytes(data, sizes, context(find_device(device), blocks))
