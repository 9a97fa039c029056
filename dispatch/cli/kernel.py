# SPDX-License-Identifier: Apache-2.0
"""``onedispatch kernel list | show | new | check | include``: what the cores can compute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli import plugin_text
from onedispatch.dispatch.cli.flags import expands_flags
from onedispatch.dispatch.cli.kernel_check import check
from onedispatch.dispatch.cli.plugins import takes_plugins
from onedispatch.dispatch.plugins import skeleton
from onedispatch.dispatch.plugins.listing import Known, known
from onedispatch.operators.codegen import kernel_text as text
from onedispatch.operators.codegen.headers import include_folder
from onedispatch.operators.declarations.kernel import Kernel, Tensor
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import counted

app = typer.Typer(
    no_args_is_help=True, help="Kernels: what a core computes in one call, and what that costs."
)


@app.command("list")
@takes_plugins
def list_kernels(
    device: Annotated[
        str | None, typer.Option(help="Only kernels that run on it, as `onedispatch devices` names it.")
    ] = None,
    json: out.Json = False,
) -> None:
    """Every kernel, with its operands, and the file that brought it where it is not ours."""
    kernels = known(device)
    if json:
        out.print_json([described(one) for one in kernels])
        return
    out.table(
        counted(len(kernels), "kernel"), ("kernel", "in", "out", "computes", "from"), map(_row, kernels)
    )


def _row(one: Known) -> tuple[str, ...]:
    if one.kernel is None:
        return (one.name, "", "", "what program images ask it for", one.origin)
    inputs, outputs = (" ".join(t.name for t in side) for side in (one.kernel.inputs, one.kernel.outputs))
    return (one.name, inputs, outputs, one.kernel.summary, one.origin or "onedispatch")


@app.command("show")
@takes_plugins
def show(
    name: Annotated[str, typer.Argument(help="As `onedispatch kernel list` has it; od::gemm@1, or gemm.")],
    json: out.Json = False,
) -> None:
    """One kernel whole: index space, operands and access, scalars, memory, its cost per call."""
    found = _find(name)
    if json:
        out.print_json(described(found))
        return
    summary = found.kernel.summary if found.kernel else ""
    out.console.print(f"{found.name}  {summary}", markup=False)
    if isinstance(found.kernel, CustomKernel):
        _show_custom(found.kernel, found.origin)
    elif found.kernel is not None:
        _show_ours(found.kernel)
    else:
        text = f"from {found.origin}, digest 0x{found.digest:08X}: declared there, for program images"
        out.console.print(text, markup=False)


def _show_ours(kernel: Kernel) -> None:
    for line in text.head(kernel):
        out.console.print(line, markup=False)
    out.table("Operands", text.OPERANDS, [text.operand_row(kernel, t) for t in kernel.tensors], right=(1,))
    if kernel.scalars:
        out.table("Scalars", text.SCALARS, [text.scalar_row(kernel, s) for s in kernel.scalars], right=(1,))
    for line in text.formulas(kernel):
        out.console.print(line, markup=False)


def _show_custom(kernel: CustomKernel, origin: str) -> None:
    for line in plugin_text.head(kernel, origin):
        out.console.print(line, markup=False)
    out.table("Operands", plugin_text.OPERANDS, plugin_text.operand_rows(kernel))
    if kernel.own_scalars:
        out.table("Scalars", plugin_text.SCALARS, map(plugin_text.scalar_row, kernel.own_scalars))
    for line in plugin_text.cost(kernel):
        out.console.print(line, markup=False)


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="A namespace, acme, or with the kernel's name: acme::blur.")],
    python: Annotated[bool, typer.Option("--python/--cpp", help="In Python, or in C++.")] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where to write it; the default is called as the namespace.")
    ] = None,
    json: out.Json = False,
) -> None:
    """Write a kernel that works, with its tests and what installs it as a package. Nothing is overwritten."""
    out.written(skeleton.write(name, "python" if python else "cpp", folder), json)


app.command("check")(takes_plugins(expands_flags(check)))


@app.command("include")
def include(json: out.Json = False) -> None:
    """The folder of the headers that a library of kernels is compiled against, for -I."""
    if json:
        out.print_json({"path": str(include_folder())})
    else:
        typer.echo(include_folder())


def _find(name: str) -> Known:
    kernels = known()
    found = [one for one in kernels if name in (one.name, one.name.partition("@")[0], one.short_name)]
    if len(found) != 1:
        names = ", ".join(one.name for one in found or kernels)
        raise InputError("kernel", repr(name), f"one of {names}", "`onedispatch kernel list` tells of each")
    return found[0]


def described(one: Known) -> dict[str, Any]:
    """A kernel as plain data."""
    if isinstance(one.kernel, CustomKernel):
        return plugin_text.described(one.kernel, one.origin)
    if one.kernel is not None:
        return {**_described(one.kernel), "file": one.origin}
    return {"name": one.name, "digest": one.digest, "file": one.origin}


def _described(kernel: Kernel) -> dict[str, Any]:
    """The declaration as plain data."""

    def operand(tensor: Tensor) -> dict[str, Any]:
        return {
            "name": tensor.name,
            "word": kernel.layout[tensor.name],
            "axes": list(tensor.axis_names),
            "dtypes": list(tensor.dtype_names),
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
