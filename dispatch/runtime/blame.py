# SPDX-License-Identifier: Apache-2.0
"""Whose work failed: a kernel's error in a fused transaction names the nodes that it computes."""

from __future__ import annotations

from onedispatch.dispatch.compiler.executable import DeviceStep
from onedispatch.dispatch.compiler.used_kernels import used_kernels
from onedispatch.transactions import Transaction
from onedispatch.transactions.base.errors import KernelError


def blamed(error: KernelError, step: DeviceStep) -> KernelError:
    """``error`` with ``node`` set, and named first in ``where``: that of the operator under way.

    The remedy is about the kernel where it is a custom one: overlay and parameter block are right then.
    Every operator ends with a timer mark of its own, so those before the failing operation tell which it is.
    """
    _advise(error, step)
    at = getattr(error, "op_index", None)
    if at is None or error.node:
        return error
    ops = Transaction.from_bytes(step.transaction).ops
    ended = {op.id for op in ops[:at] if op.name == "RECORD_TIMER"}
    under_way = next((op for op in step.ops if op.timer not in ended), None)
    if under_way is not None:
        error.node = "+".join(under_way.nodes) or under_way.name
        error.where = f"node {error.node!r} ({under_way.op_type}), {error.where}"
    return error


def _advise(error: KernelError, step: DeviceStep) -> None:
    """Writes what to do about a custom kernel into ``error``."""
    own = next((used for used in used_kernels([step]) if f"{used.name}: " in error.given), None)
    if own is not None:
        error.accepted = f"calls that {own.name} computes"
        error.remedy = f"correct it in {own.origin}: `onedispatch kernel check` runs its members one by one"
