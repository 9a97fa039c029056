# SPDX-License-Identifier: Apache-2.0
"""``onedispatch kernel list | show | include``: what the cores can compute, from the declarations."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onedispatch.dispatch.cli import output as out
from onedispatch.operators.codegen import kernel_text as text
from onedispatch.operators.codegen.headers import include_folder
from onedispatch.operators.declarations.kernel import Kernel, Tensor
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
    for line in text.head(kernel):
        out.console.print(line, markup=False)
    out.table("Operands", text.OPERANDS, [text.operand_row(kernel, t) for t in kernel.tensors], right=(1,))
    if kernel.scalars:
        out.table("Scalars", text.SCALARS, [text.scalar_row(kernel, s) for s in kernel.scalars], right=(1,))
    for line in text.formulas(kernel):
        out.console.print(line, markup=False)


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
            {"name": s.name, "word": kernel.layout[s.name], "type": s.type, "accepted": text.accepted(s)}
            for s in kernel.scalars
        ],
        "scratch": str(kernel.scratch),
        "keeps_scratch": kernel.keeps_scratch,
        "block_words": kernel.block_words,
        "cost": {"call": str(kernel.cost), **kernel.cost.definitions()},
        "code_bytes": kernel.code_bytes,
    }
