# SPDX-License-Identifier: Apache-2.0
"""The engine's declaration of a kernel from outside: what its parameter block holds, and what a call costs.

Beside the scalars of the kernel there are hidden ones, which every instance says: where scratch begins, pads
and fills, and the work of a member. The declaration alone decides which there are, so that a Python body and
its compiled twin have one digest.
"""

from __future__ import annotations

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.expressions import NOTHING, Expr
from onedispatch.operators.declarations.formulas import ENTRY, ROW, accesses, busiest, chunk, filling
from onedispatch.operators.declarations.kernel import Kernel, KernelDeclarationError, Prints, Scalar, Tensor
from onedispatch.operators.plugin.declared import Declared, In, Out, declaration_refused, ranks_of

RANK = "rank"  # of the first output's tensor, as a hidden scalar
SCRATCH_BYTES = "scratch_bytes"
_PRINTS: tuple[Prints, ...] = ("no", "yes", "one")  # by ``Declared.prints``


def engine_kernel(declared: Declared) -> Kernel:
    """The member kernel that runs it. Raises ``KernelDeclarationInvalidError`` where the engine refuses."""
    try:
        return Kernel(
            declared.name,
            inputs=tuple(_tensor(declared, one) for one in declared.inputs),
            outputs=tuple(_tensor(declared, one) for one in declared.outputs),
            aux=tuple(Tensor(one.name, "", one.dtype, walk="interval", rank=(0, 5)) for one in declared.aux),
            scalars=(*declared.scalars, *_hidden(declared)),
            cost=_cost(declared),
            scratch=e.scalar(SCRATCH_BYTES) if declared.scratch else NOTHING,
            code_bytes=declared.code_bytes,
            summary=declared.summary,
            members=True,
            prints=_PRINTS[declared.prints],
        )
    except KernelDeclarationError as error:
        raise declaration_refused(declared.name, error) from error


def _tensor(declared: Declared, one: In | Out) -> Tensor:
    least, most = ranks_of(one)
    return Tensor(
        one.name,
        "",
        " ".join(declared.dtypes_of(one)),
        optional=isinstance(one, In) and one.optional,
        walk="interval",
        like=one.like,
        pad=one.pad if isinstance(one, In) else None,
        fill=one.fill if isinstance(one, Out) else None,
        rank=(least, max(most, 1)),
    )


def _hidden(declared: Declared) -> list[Scalar]:
    hidden = [Scalar(RANK, "u32", hidden=True)]
    hidden += [Scalar(f"work_{term}", "f32", hidden=True) for term, _ in declared.work_per_member]
    hidden += [Scalar(f"pad_{one.name}", "f32", hidden=True) for one in declared.inputs]
    hidden += [Scalar(f"fill_{one.name}", "f32", hidden=True) for one in declared.outputs]
    if declared.scratch:
        hidden.append(Scalar(SCRATCH_BYTES, "u32", hidden=True))
        hidden += [Scalar(f"at_{one.name}", "u32", hidden=True) for one in declared.scratch]
    return hidden


def _cost(declared: Declared) -> Expr:
    """Rows of the first output's chunk; every chunk is loaded or stored once beside the members' work.

    ASSUMPTION: a vector is loaded once per call however many members read it.
    """
    first = declared.outputs[0].name
    loads: Expr = e.as_expr(0)
    for one in declared.inputs:
        loads = loads + e.present(one.name) * accesses(chunk(one.name, _axes(one)), one.name)
    for aux in declared.aux:
        loads = loads + accesses(chunk(aux.name, [f"t{i}" for i in range(5)]), aux.name)
    stores: Expr = e.as_expr(0)
    fills: Expr = e.as_expr(0)
    for out in declared.outputs:
        stores = stores + accesses(chunk(out.name, _axes(out)), out.name)
        fills = fills + filling(out.name, _axes(out))
    price: Expr = e.as_expr(0)
    for term, _ in declared.work_per_member:
        price = price + e.scalar(f"work_{term}") * e.device(f"{term}_cycles", first)
    work = e.named("work", e.ELEMENTS * price / e.device("lanes", first))
    rows = e.as_expr(1)
    for i, axis in enumerate(_axes(declared.outputs[0])):
        inner = e.differs(e.scalar(RANK), i + 1)  # 0 of the last dimension
        rows = rows * (1 + inner * (e.count(first, axis) - 1))
    return (
        ENTRY
        + fills
        + e.named("rows", rows) * ROW
        + busiest(loads / e.device("loads_per_cycle"), stores, work)
    )


def _axes(one: In | Out) -> list[str]:
    return [f"t{i}" for i in range(max(ranks_of(one)[1], 1))]
