# SPDX-License-Identifier: Apache-2.0
"""``onedispatch kernel list | show``: what the cores can compute, from the declarations."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onedispatch.dispatch.cli import output as out
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.phrases import counted

app = typer.Typer(
    no_args_is_help=True, help="Kernels: what a core computes in one call, and what that costs."
)


@app.command("list")
def list_kernels(json: out.Json = False) -> None:
    """Every kernel, with its operands and element types."""
    kernels = all_kernels()
    if json:
        out.print_json([described(kernel) for kernel in kernels])
        return
    rows = [
        (k.name, " ".join(t.name for t in k.inputs), " ".join(t.name for t in k.outputs), k.summary)
        for k in kernels
    ]
    out.table(counted(len(rows), "kernel"), ("kernel", "in", "out", "computes"), rows)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="As `onedispatch kernel list` has it; od::gemm@1, or gemm.")],
    json: out.Json = False,
) -> None:
    """One kernel whole: operands, scalars, its words in the parameter block, its cost per call."""
    kernel = _find(name)
    if json:
        out.print_json(described(kernel))
        return
    out.console.print(f"{kernel.name}  {kernel.summary}", markup=False)
    out.console.print(
        f"digest 0x{kernel.digest:08X}, {counted(kernel.words_used, 'word')} of the parameter block, "
        f"{counted(kernel.code_bytes, 'byte')} of program memory (assumed)",
        markup=False,
    )
    out.table(
        "Operands",
        ("operand", "word", "direction", "axes", "element types", "access"),
        [
            (
                t.name + (" (optional)" if t.optional else ""),
                kernel.layout[t.name],
                "out" if t in kernel.outputs else "in",
                " ".join(t.axis_names),
                t.dtypes,
                t.accepted_walk,
            )
            for t in kernel.tensors
        ],
        right=(1,),
    )
    if kernel.scalars:
        out.table(
            "Scalars",
            ("scalar", "word", "type", "accepted", "default"),
            [(s.name, kernel.layout[s.name], s.type, _accepted(s), _default(s)) for s in kernel.scalars],
            right=(1,),
        )
    out.console.print(f"cycles per call: {kernel.cost}", markup=False)


def _find(name: str) -> Kernel:
    kernels = all_kernels()
    found = [k for k in kernels if name in (k.name, k.short_name)]
    if len(found) != 1:
        known = ", ".join(k.name for k in kernels)
        raise InputError("kernel", repr(name), f"one of {known}", "`onedispatch kernel list` tells of each")
    return found[0]


def _accepted(scalar: Scalar) -> str:
    if scalar.table is not None:
        return ", ".join(row.name for row in scalar.table.rows)
    low, high = scalar.bounds
    return "any" if scalar.type == "f32" and low == -high else f"{low:g} to {high:g}"


def _default(scalar: Scalar) -> str:
    if scalar.table is not None:
        return scalar.table.rows[0].name
    return "" if scalar.default is None else f"{scalar.default:g}"


def described(kernel: Kernel) -> dict[str, Any]:
    """The declaration as plain data."""

    def operand(tensor: Tensor) -> dict[str, Any]:
        return {
            "name": tensor.name,
            "word": kernel.layout[tensor.name],
            "axes": list(tensor.axis_names),
            "dtypes": tensor.dtypes.split(),
            "optional": tensor.optional,
            "access": tensor.walk,
        }

    return {
        "name": kernel.name,
        "summary": kernel.summary,
        "digest": kernel.digest,
        "dims": list(kernel.dims),
        "reduces": kernel.reduces,
        "inputs": [operand(t) for t in kernel.inputs],
        "outputs": [operand(t) for t in kernel.outputs],
        "scalars": [
            {"name": s.name, "word": kernel.layout[s.name], "type": s.type, "accepted": _accepted(s)}
            for s in kernel.scalars
        ],
        "cost": str(kernel.cost),
        "code_bytes": kernel.code_bytes,
    }
