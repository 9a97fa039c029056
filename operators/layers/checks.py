# SPDX-License-Identifier: Apache-2.0
"""What a layer says of itself beside its access, held to it: memory that is shared, hooks for slices."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from onedispatch.operators.layers.methods import LayerMethods, overridden, said
from onedispatch.operators.layers.slices import Along, Slice, along, check_backward, check_forward
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import KernelInstance
from onedispatch.operators.plugin.node import Node

# The hooks for rows and for columns, by how far from the last dimension they lie.
_HOOKS = ((2, "backward_h"), (1, "backward_w"))


def check_in_place(kernel: CustomKernel, node: Node, instance: KernelInstance) -> None:
    """Raises ``KernelLayerConfigurationError`` where a result that takes an input's memory would be written
    before another member reads what lay there."""
    for target, source in instance.in_place.items():
        dtype, shape = instance.outputs[target]
        given = node[source]
        if (given.dtype, given.shape) != (dtype, shape):
            _refuse(node, target, source, f"{given.dtype}{list(given.shape)} and {dtype}{list(shape)}", "")
        found = instance.hazard(source, target)
        if found:
            _refuse(node, target, source, found, ": a member would read what another has written")


def _refuse(node: Node, target: str, source: str, given: str, why: str) -> None:
    raise node.refuse(
        "layer_configuration",
        f"{target} in the memory of {source}",
        given + why,
        "elements that the member which writes them alone reads, of one type and shape",
        "leave out can_inplace and is_share_mem_layer, or mend access",
    )


def checked_bytes(node: Node, what: str, size: Any) -> int:
    """``size``, which the method ``what`` answered. Raises ``KernelError`` for what is no number of bytes."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise node.refuse("parameter_invalid", what, repr(size), "bytes, from 0 on")
    return size


def check_slices(kernel: CustomKernel, layer: LayerMethods, node: Node, instance: KernelInstance) -> None:
    """Raises ``KernelAccessError`` where hooks for slices say less than members touch."""
    if not said(layer, "is_backslice_optimize_support_layer") or not kernel.inputs:
        return
    source, target = kernel.inputs[0].name, kernel.outputs[0].name
    shape = node[source].shape if node[source].present else ()
    for behind, hook in _HOOKS:
        where = along(instance, source, shape, target, len(shape) - behind) if len(shape) >= behind else None
        if where is not None:
            check_backward(node, where, _asks(layer, f"{hook}slice"), _asks(layer, f"{hook}idx"), hook)
            if hook == "backward_h":
                _check_rows(layer, node, where)


def _check_rows(layer: LayerMethods, node: Node, rows: Along) -> None:
    check_forward(node, rows, _asks(layer, "forward_height"), _asks(layer, "backward_hslice"))
    a = Fraction(rows.source.a) / Fraction(rows.target.a) if rows.source.dim == rows.target.dim else None
    if a is None or a.denominator != 1 or a <= 0:
        return
    window = rows.backward(Slice(0, 1)).size
    wanted = {
        "backward_stride_h": int(a),
        "backward_kh": window,
        "backward_up_pad_h": max(0, -rows.backward(Slice(0, 1)).first),
    }
    for name, value in wanted.items():
        argument = 0 if "pad" in name else 1
        given = said(layer, name, argument)
        if overridden(type(layer), name) and given != value:
            raise node.refuse("access", f"{name}({argument})", given, f"{value}, which access says")


def _asks(layer: LayerMethods, name: str) -> Callable[[int], Any]:
    return lambda number: said(layer, name, number)
