# SPDX-License-Identifier: Apache-2.0
"""The declaration of a custom kernel as text, for ``onedispatch kernel show``."""

from __future__ import annotations

from typing import Any

from onedispatch.operators.declarations.kernel import Scalar, Tensor
from onedispatch.operators.plugin.custom_kernel import CODE_BYTES, CustomKernel
from onedispatch.transactions.base.text import counted

OPERANDS = ("operand", "role", "ranks", "element types", "access of member i", "outside, or not written")
SCALARS = ("scalar", "type", "accepted", "default")
_PER_NODE = "per node: the kernel says it for each"


def head(kernel: CustomKernel, origin: str) -> list[str]:
    """Where it is from, what it takes of memory, and its index space."""
    assumed = ", assumed: the declaration does not say" if kernel.code_bytes == CODE_BYTES else ""
    devices = "every device" if kernel.devices is None else ", ".join(kernel.devices)
    lines = [
        f"from {origin}" + (f", body in {kernel.library}" if kernel.library else ""),
        f"digest 0x{kernel.digest:08X}, {counted(kernel.code_bytes, 'byte')} of program memory{assumed}",
        f"runs on {devices}",
        f"index space: {_PER_NODE}; i counts members of a dimension",
    ]
    if not kernel.deterministic:
        lines.append("the same inputs may give other bits")
    for output, source in kernel.in_place.items():
        lines.append(f"{output} may lie where {source} lay")
    return lines


def operand_rows(kernel: CustomKernel) -> list[tuple[object, ...]]:
    """The columns of ``OPERANDS``."""
    rows = [_operand(kernel, one) for one in kernel.operands]
    rows += [(one.name, "aux", "", one.dtypes, "all", "") for one in kernel.aux]
    scratch = kernel.scratch_tensors
    return rows + [(one.name, "scratch", "", one.dtypes, "of each call's own", "") for one in scratch]


def _operand(kernel: CustomKernel, one: Tensor) -> tuple[object, ...]:
    least, most = one.rank
    edges = {"pad": one.pad, "fill": one.fill}.items()
    return (
        one.name + (" (optional)" if one.optional else ""),
        kernel.role(one),
        f"{least} to {most}" if least < most else least,
        one.dtypes + (f", that of {one.like}" if one.like else "") + _quantised(one),
        _PER_NODE.partition(":")[0],
        "".join(f"{kind} {value:g}" for kind, value in edges if value is not None),
    )


def _quantised(one: Tensor) -> str:
    if one.quantised is None:
        return ""
    return ", with scale and zero point" if one.quantised else ", without scale and zero point"


def scalar_row(scalar: Scalar) -> tuple[object, ...]:
    """The columns of ``SCALARS``."""
    default = "" if scalar.default is None else f"{scalar.default:g}"
    return scalar.name, scalar.type, scalar.accepted, default


def cost(kernel: CustomKernel) -> list[str]:
    """What a call costs, and what of that is assumed."""
    work = " + ".join(f"{times:g} {term}" for term, times in kernel.work)
    assumed = "as NumPy operations of a Python body count, else 1 op for each touched element (ASSUMPTION)"
    said = work or assumed
    scratch = ", ".join(one.name for one in kernel.scratch_tensors)
    lines = [f"bytes of scratch ({scratch}): per node"] if scratch else []
    return [
        *lines,
        "cycles per call: entry and rows, and the longest of loads of chunks, stores of chunks, and work",
        f"  work of a member = {said}, each at the device's price per vector",
    ]


def described(kernel: CustomKernel, origin: str) -> dict[str, Any]:
    """The declaration as plain data."""

    def operand(one: Tensor) -> dict[str, Any]:
        is_input = kernel.role(one) == "input"
        value = {"pad": one.pad, "optional": one.optional} if is_input else {"fill": one.fill}
        return {
            "name": one.name,
            "dtypes": list(one.dtype_names),
            "ranks": list(one.rank),
            "like": one.like,
            "quantised": one.quantised,
            **value,
        }

    return {
        "name": kernel.name,
        "summary": kernel.summary,
        "digest": kernel.digest,
        "file": origin,
        "devices": None if kernel.devices is None else list(kernel.devices),
        "inputs": [operand(one) for one in kernel.inputs],
        "aux": [{"name": one.name, "dtype": one.dtypes} for one in kernel.aux],
        "scratch": [{"name": one.name, "dtype": one.dtypes} for one in kernel.scratch_tensors],
        "outputs": [operand(one) for one in kernel.outputs],
        "scalars": [
            {"name": s.name, "type": s.type, "accepted": s.accepted, "default": s.default}
            for s in kernel.own_scalars
        ],
        "work": dict(kernel.work),
        "code_bytes": kernel.code_bytes,
        "deterministic": kernel.deterministic,
        "in_place": dict(kernel.in_place),
        "library": kernel.library,
    }
