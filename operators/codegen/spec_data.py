# SPDX-License-Identifier: Apache-2.0
"""A declaration as plain data: what an ``od_kernel_spec`` of ``onedispatch/kernel.h`` holds.

``genheader`` prints it as tables of C; ``_core.register_kernel`` makes the same of it while we run.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.expressions import Expr, ExprOp
from onedispatch.operators.declarations.kernel import (
    ALONG_BLOCK,
    ALONG_NOTHING,
    ALONG_REDUCTION,
    JOINS,
    K_AXIS,
    MAX_KEPT,
    NO_OPERAND,
    NO_SCALAR,
    PRINTS,
    ROLES,
    SCALAR_TYPES,
    WALKS,
    WHOLE,
    Kernel,
    Scalar,
    Tensor,
)

Instruction = tuple[int, int, int, int, float]
"""operation, a, b, c, value: an ``od_step``"""


def spec_data(kernel: Kernel) -> dict[str, Any]:
    """The fields of ``od_kernel_spec`` by their names: numbers, texts, and lists of such records.

    Numbers that are none are NaN. Raises ``ValueError`` for scalars that choose from tables of functions:
    those are for kernels that are compiled with us.
    """
    return {
        "name": kernel.name,
        "digest": kernel.digest,
        "dims": list(kernel.dims),
        "reduces": kernel.reduces,
        "members": kernel.members,
        "operands": [_operand(kernel, tensor) for tensor in kernel.tensors],
        "types": [mask(row.get(t.name, "")) for row in kernel.types for t in kernel.tensors],
        "scalars": [_scalar(kernel, scalar) for scalar in kernel.scalars],
        "cost": instructions(kernel, kernel.cost),
        "scratch": instructions(kernel, kernel.scratch) if kernel.scratches else [],
        "keeps_scratch": kernel.keeps_scratch,
        "constants": constants(kernel),
        "words": kernel.words_used,
        "block_words": kernel.block_words,
        "code_bytes": kernel.code_bytes,
        "prints": PRINTS.index(kernel.prints),
        "joins": JOINS.index(kernel.joins),
    }


def _operand(kernel: Kernel, tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "at": kernel.layout[tensor.name],
        "dtypes": mask(tensor.dtypes),
        "role": ROLES.index(kernel.role(tensor)),
        "optional": tensor.optional,
        "pad": math.nan if tensor.pad is None else float(tensor.pad),
        "fill": math.nan if tensor.fill is None else float(tensor.fill),
        "pad_scalar": scalar_index(kernel, f"pad_{tensor.name}"),
        "fill_scalar": scalar_index(kernel, f"fill_{tensor.name}"),
        "walk": WALKS.index(tensor.walk),
        "like": like_index(kernel, tensor),
        "least_rank": tensor.rank[0],
        "axes": axes(kernel, tensor),
    }


def _scalar(kernel: Kernel, scalar: Scalar) -> dict[str, Any]:
    if scalar.table is not None:
        raise ValueError(
            f"kernel {kernel.name}, scalar {scalar.name}: a table of functions; accepted: a number"
        )
    low, high = scalar.bounds
    return {
        "name": scalar.name,
        "at": kernel.layout[scalar.name],
        "type": SCALAR_TYPES.index(scalar.type),
        "low": float(low),
        "high": float(high),
        "of": kernel.tensors.index(kernel.seen_by(scalar)),
        "hidden": scalar.hidden,
    }


def mask(dtypes: str) -> int:
    """A bit for each of the element types."""
    return sum(1 << DTYPES[dtype].code for dtype in dtypes.split())


def like_index(kernel: Kernel, tensor: Tensor) -> int:
    """The operand that it has the element type of; its own: none."""
    return kernel.tensors.index(kernel.tensor(tensor.like) if tensor.like else tensor)


def scalar_index(kernel: Kernel, name: str) -> int:
    """The number of the hidden scalar of that name; ``NO_SCALAR``."""
    found = kernel.hidden(name)
    return NO_SCALAR if found is None else kernel.scalars.index(found)


def axes(kernel: Kernel, tensor: Tensor) -> list[tuple[str, int]]:
    """(name, what of the index it follows) of every axis."""
    found = []
    for i, axis in enumerate(tensor.axis_names):
        dim = ALONG_NOTHING if kernel.dims or axis.startswith(WHOLE) else i
        if kernel.members:
            dim = ALONG_BLOCK
        elif axis == K_AXIS and kernel.reduces:
            dim = ALONG_REDUCTION
        elif axis in kernel.dims:
            dim = kernel.dims.index(axis)
        found.append((axis.lstrip(WHOLE), dim))
    return found


def constants(kernel: Kernel) -> list[str]:
    """Device constants that the formulas name, each once."""
    leaves = (leaf for formula in (kernel.cost, kernel.scratch) for leaf in formula.leaves())
    wanted = (
        leaf.name
        for leaf in leaves
        if leaf.op in (ExprOp.DEVICE, ExprOp.DEVICE_BY_DTYPE, ExprOp.DEVICE_BY_SUMS)
    )
    return list(dict.fromkeys(wanted))


def instructions(kernel: Kernel, formula: Expr) -> list[Instruction]:
    """The formula as the stack machine takes it; what it has more than once is computed once."""
    numbers: dict[int, int] = {}  # of parts that are kept
    parts = _parts(formula)
    found: list[Instruction] = []

    def push(node: Expr) -> None:
        part = parts.of[node.key]
        if part in numbers:
            found.append((ExprOp.KEPT.value, numbers[part], 0, 0, 0.0))
            return
        for arg in node.args:
            push(arg)
        a, b, c = (*_operands(kernel, node), 0, 0, 0)[:3]
        found.append((node.op.value, a, b, c, node.value))
        if node.args and parts.uses[part] > 1 and len(numbers) < MAX_KEPT:
            numbers[part] = len(numbers)
            found.append((ExprOp.KEEP.value, numbers[part], 0, 0, 0.0))

    push(formula)
    return found


@dataclass
class _Parts:
    """The distinct parts of a formula by their keys, and by how many others each is read."""

    of: dict[tuple[Any, ...], int] = field(default_factory=dict)
    uses: Counter[int] = field(default_factory=Counter)


def _parts(formula: Expr) -> _Parts:
    parts, pending = _Parts(), [formula]
    while pending:
        node = pending.pop()
        known = node.key in parts.of
        part = parts.of.setdefault(node.key, len(parts.of))
        parts.uses[part] += 1
        pending += () if known else node.args
    return parts


_INDICES = {
    **dict.fromkeys(
        (
            ExprOp.TILE,
            ExprOp.SCALAR,
            ExprOp.RUN,
            ExprOp.STEP,
            ExprOp.BYTES,
            ExprOp.PRESENT,
            ExprOp.FILLED,
            ExprOp.DEVICE,
        ),
        1,
    ),
    **dict.fromkeys((ExprOp.KEEP, ExprOp.KEPT), 1),
    **dict.fromkeys((ExprOp.WORK, ExprOp.FINISH, ExprOp.COUNT, ExprOp.STRIDE, ExprOp.DEVICE_BY_SUMS), 2),
    ExprOp.DEVICE_BY_DTYPE: 3,
}


def indices(op: ExprOp) -> int:
    """How many of a, b and c an instruction has."""
    return _INDICES.get(op, 0)


def _operands(kernel: Kernel, node: Expr) -> tuple[int, ...]:
    names = [t.name for t in kernel.tensors]
    scalars = [s.name for s in kernel.scalars]
    match node.op:
        case ExprOp.TILE:
            return (kernel.dims.index(node.name),)
        case ExprOp.SCALAR:
            return (scalars.index(node.name),)
        case ExprOp.WORK | ExprOp.FINISH:
            return scalars.index(node.name), names.index(node.part)
        case ExprOp.COUNT | ExprOp.STRIDE:
            return names.index(node.name), kernel.tensor(node.name).axis_names.index(node.part)
        case ExprOp.RUN | ExprOp.STEP | ExprOp.BYTES | ExprOp.PRESENT | ExprOp.FILLED:
            return (names.index(node.name),)
        case ExprOp.DEVICE:
            return (constants(kernel).index(node.name),)
        case ExprOp.DEVICE_BY_DTYPE:
            types = (names.index(name) if name else NO_OPERAND for name in (node.part, node.other))
            return constants(kernel).index(node.name), *types
        case ExprOp.DEVICE_BY_SUMS:
            return constants(kernel).index(node.name), names.index(node.part)
    return ()
