# SPDX-License-Identifier: Apache-2.0
"""Whose work failed: a kernel's error in a fused transaction names the nodes that it computes."""

from __future__ import annotations

import re

from onedispatch.dispatch.compiler.executable import DeviceStep
from onedispatch.dispatch.compiler.used_kernels import used_kernels
from onedispatch.operators.declarations.statuses import CODES
from onedispatch.transactions import Transaction
from onedispatch.transactions.base.errors import KernelError, SimulationError

_BY = re.compile(r" (?:written|queued) by op (\d+)")  # of what is left behind at the end


def blamed(error: KernelError | SimulationError, step: DeviceStep) -> None:
    """Names the operator under way first in ``where`` of ``error``; ``node`` of a kernel's is set, too.

    The remedy is about the kernel where it is a custom one, about the data where an index is wrong: then
    overlay and parameter block are right.
    Every operator ends with a timer mark of its own, so those before the failing operation tell which it is.
    """
    if isinstance(error, KernelError):
        _advise(error, step)
    index: int | None = getattr(error, "op_index", None)
    left = _BY.search(error.given) if index is None else None
    at = int(left.group(1)) if left else index
    if at is None or (isinstance(error, KernelError) and error.node):
        return
    ops = Transaction.from_bytes(step.transaction).ops
    ended = {op.id for op in ops[:at] if op.name == "RECORD_TIMER"}
    under_way = next((op for op in step.ops if op.timer not in ended), None)
    if under_way is not None:
        node = "+".join(under_way.nodes) or under_way.name
        error.where = f"node {node!r} ({under_way.op_type}), {error.where}"
        if isinstance(error, KernelError):
            error.node = node


def _advise(error: KernelError, step: DeviceStep) -> None:
    """Writes what to do about a custom kernel, or about data, into ``error``."""
    own = next((used for used in used_kernels([step]) if f"{used.name}: " in error.given), None)
    if own is not None:
        error.accepted = f"calls that {own.name} computes"
        error.remedy = f"correct it in {own.origin}: `onedispatch kernel check` runs its members one by one"
    elif error.status == CODES["index"]:
        error.given, _, error.accepted = error.given.partition("; accepted: ")
        error.remedy = "correct the data that the node gets: indices, or lengths"
