# SPDX-License-Identifier: Apache-2.0
"""A kernel's declaration in words: what ``onedispatch kernel show`` and ``operators/KERNELS.md`` say."""

from __future__ import annotations

from onedispatch.operators.declarations.dtypes import EVERY
from onedispatch.operators.declarations.kernel import WHOLE, Kernel, Scalar, Tensor
from onedispatch.transactions.base.text import counted

OPERANDS = ("operand", "word", "role", "axes", "element types", "access of member i")
SCALARS = ("scalar", "word", "type", "accepted", "default")


def head(kernel: Kernel) -> list[str]:
    """What it is named by and takes of memory, and its index space."""
    return [
        f"digest 0x{kernel.digest:08X}, {counted(kernel.words_used, 'word')} of a parameter block of "
        f"{kernel.block_words}, {counted(kernel.code_bytes, 'byte')} of program memory (assumed)",
        f"index space: {kernel.index_space}; i counts members of a dimension",
        *_exactness(kernel),
    ]


def _exactness(kernel: Kernel) -> list[str]:
    """Of results that are floats of two bytes, where it has such."""
    halves = [name for name in ("bf16", "f16") if any(name in t.dtypes.split() for t in kernel.outputs)]
    if not halves:
        return []
    return [f"{' and '.join(halves)}: within {kernel.ulp} ulp of exact results, rounded once"]


def operand_row(kernel: Kernel, tensor: Tensor) -> tuple[object, ...]:
    """The columns of ``OPERANDS``."""
    return (
        tensor.name + (" (optional)" if tensor.optional else ""),
        kernel.layout[tensor.name],
        kernel.role(tensor),
        " ".join(tensor.axis_names),
        tensor.dtypes + (f", that of {tensor.like}" if tensor.like else ""),
        access(tensor),
    )


def scalar_row(kernel: Kernel, scalar: Scalar) -> tuple[object, ...]:
    """The columns of ``SCALARS``."""
    return (scalar.name, kernel.layout[scalar.name], scalar.type, accepted(scalar), default(scalar))


def formulas(kernel: Kernel) -> list[str]:
    """Scratch and cost, each followed by what it names."""
    lines = []
    if kernel.scratches:
        kept = ", kept over the steps of a tile" if kernel.keeps_scratch else ""
        lines.append(f"bytes of scratch{kept}: {kernel.scratch}")
        lines += [f"  {label} = {formula}" for label, formula in kernel.scratch.definitions().items()]
    lines.append(f"cycles per call: {kernel.cost}")
    lines += [f"  {label} = {formula}" for label, formula in kernel.cost.definitions().items()]
    if kernel.prints != "no":
        most = ", at most one value in a line" if kernel.prints == "one" else ""
        lines.append(f"it prints{most}: print_byte_cycles for every byte of its ring, per operation and core")
    return lines


def access(tensor: Tensor) -> str:
    """What a member of the index touches, the extents of auxiliary tensors, and pads."""
    if tensor.shape:
        return "all: " + " x ".join(map(str, tensor.shape))
    followed = any(not axis.startswith(WHOLE) for axis in tensor.axis_names)
    parts = [tensor.accepted_walk] if followed else []
    parts += [f"{axis}: all" for axis in tensor.axis_names if axis.startswith(WHOLE)]
    parts += [f"pad {tensor.pad:g}"] if tensor.pad is not None else []
    parts += [f"fill {tensor.fill:g}"] if tensor.fill is not None else []
    return "; ".join(parts)


def accepted(scalar: Scalar) -> str:
    """The functions that it may choose, or the numbers that it may be."""
    if scalar.table is not None:
        return ", ".join(
            row.name if row.dtypes == EVERY else f"{row.name} ({row.dtypes})" for row in scalar.table.rows
        )
    low, high = scalar.bounds
    return "any" if scalar.type == "f32" and low == -high else f"{low:g} to {high:g}"


def default(scalar: Scalar) -> str:
    """What it is where nothing is said; empty where something must be."""
    if scalar.table is not None:
        return scalar.table.rows[0].name
    return "" if scalar.default is None else f"{scalar.default:g}"
