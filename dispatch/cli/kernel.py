# SPDX-License-Identifier: Apache-2.0
"""``onedispatch kernel list | show | include``: what the cores can compute, from the declarations."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onedispatch.dispatch.cli import output as out
from onedispatch.operators.codegen.headers import include_folder
from onedispatch.operators.declarations.dtypes import EVERY
from onedispatch.operators.declarations.kernel import WHOLE, Kernel, Scalar, Tensor
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
    """One kernel whole: index space, operands and access, scalars, memory, its cost per call."""
    kernel = _find(name)
    if json:
        out.print_json(described(kernel))
        return
    out.console.print(f"{kernel.name}  {kernel.summary}", markup=False)
    out.console.print(
        f"digest 0x{kernel.digest:08X}, {counted(kernel.words_used, 'word')} of a parameter block of "
        f"{kernel.block_words}, {counted(kernel.code_bytes, 'byte')} of program memory (assumed)",
        markup=False,
    )
    out.console.print(f"index space: {kernel.index_space}; i counts members of a dimension", markup=False)
    out.table(
        "Operands",
        ("operand", "word", "role", "axes", "element types", "access of member i"),
        [
            (
                t.name + (" (optional)" if t.optional else ""),
                kernel.layout[t.name],
                kernel.role(t),
                " ".join(t.axis_names),
                t.dtypes + (f", that of {t.like}" if t.like else ""),
                _access(t),
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
    if kernel.scratches:
        kept = ", kept over the steps of a tile" if kernel.keeps_scratch else ""
        out.console.print(f"bytes of scratch{kept}: {kernel.scratch}", markup=False)
        for label, formula in kernel.scratch.definitions().items():
            out.console.print(f"  {label} = {formula}", markup=False)
    out.console.print(f"cycles per call: {kernel.cost}", markup=False)
    for label, formula in kernel.cost.definitions().items():
        out.console.print(f"  {label} = {formula}", markup=False)


@app.command("include")
def include() -> None:
    """The folder of the headers that a library of kernels is compiled against, for -I."""
    typer.echo(include_folder())


def _find(name: str) -> Kernel:
    kernels = all_kernels()
    found = [k for k in kernels if name in (k.name, k.short_name)]
    if len(found) != 1:
        known = ", ".join(k.name for k in kernels)
        raise InputError("kernel", repr(name), f"one of {known}", "`onedispatch kernel list` tells of each")
    return found[0]


def _access(tensor: Tensor) -> str:
    """What a member of the index touches, the extents of auxiliary tensors, and pads."""
    if tensor.shape:
        return "all: " + " x ".join(map(str, tensor.shape))
    followed = any(not axis.startswith(WHOLE) for axis in tensor.axis_names)
    parts = [tensor.accepted_walk] if followed else []
    parts += [f"{axis}: all" for axis in tensor.axis_names if axis.startswith(WHOLE)]
    parts += [f"pad {tensor.pad:g}"] if tensor.pad is not None else []
    parts += [f"fill {tensor.fill:g}"] if tensor.fill is not None else []
    return "; ".join(parts)


def _accepted(scalar: Scalar) -> str:
    if scalar.table is not None:
        return ", ".join(
            row.name if row.dtypes == EVERY else f"{row.name} ({row.dtypes})" for row in scalar.table.rows
        )
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
            "like": tensor.like,
            "optional": tensor.optional,
            "walk": tensor.walk,
            "access": tensor.accepted_walk,
            "shape": list(tensor.shape),
            "pad": tensor.pad,
            "fill": tensor.fill,
        }

    return {
        "name": kernel.name,
        "summary": kernel.summary,
        "digest": kernel.digest,
        "dims": list(kernel.dims),
        "reduces": kernel.reduces,
        "index_space": kernel.index_space,
        "inputs": [operand(t) for t in kernel.inputs],
        "aux": [operand(t) for t in kernel.aux],
        "outputs": [operand(t) for t in kernel.outputs],
        "scalars": [
            {"name": s.name, "word": kernel.layout[s.name], "type": s.type, "accepted": _accepted(s)}
            for s in kernel.scalars
        ],
        "scratch": str(kernel.scratch),
        "keeps_scratch": kernel.keeps_scratch,
        "block_words": kernel.block_words,
        "cost": {"call": str(kernel.cost), **kernel.cost.definitions()},
        "code_bytes": kernel.code_bytes,
    }
