# SPDX-License-Identifier: Apache-2.0
"""Relocation of an operator's argument addresses into the fused buffers.

Each operator numbers its own arguments; its arg map states their content, the bindings the positions that
the planner chose. New argument and offset of an address (a, p) in region e of the arg map:

    INPUT, OUTPUT               argument of the tensor   tensor base + (p - e.offset) - e.padding_offset
    CONST_INPUT                 3                        p + base of the operator's constants
    CONST_KERNEL_PARAM_INPUT    4                        p + base of the operator's parameters
    SCRATCH_PAD                 2                        p + base of the operator's own scratch
    CTRL_PKT_BIN                5, or as bound           p + base of the operator's control packets
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from onedispatch.transactions.arguments.argmap import ArgKind, ArgMap
from onedispatch.transactions.base.errors import TransactionError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bindings:
    """Positions of one operator's regions in the fused buffers; offsets in bytes.

    Attributes:
        tensors: onnx_arg_idx -> (fused argument 0 in, 1 out, 2 scratch; base offset there).
        const: base of the operator's constants in argument 3.
        params: base of its super-kernel parameters in argument 4.
        scratch: base of operator scratch in argument 2.
        ctrl: base of its control packets in argument ``ctrl_argument``.
        in_place: outputs may overlap inputs.
    """

    tensors: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    const: int = 0
    params: int = 0
    scratch: int = 0
    ctrl: int = 0
    ctrl_argument: int = int(ArgKind.CTRL_PKT_BIN)
    in_place: bool = False


def relocated(
    where: str, args: Sequence[ArgMap], bindings: Bindings, argument: int, offset: int
) -> tuple[int, int]:
    """Returns the fused (argument, offset) of an operator's address.

    Raises:
        TransactionError: the address lies outside every region of the arg map, or in front of its buffer.
    """
    regions = sorted(args, key=lambda e: (e.xrt_arg_idx, e.offset))
    at = int(region_of(regions, np.array([argument], np.uint64), np.array([offset], np.uint64))[0])
    if at < 0 or offset >= regions[at].end:
        listed = ", ".join(f"{e.xrt_arg_idx}: {e.offset} to {e.end}" for e in regions) or "no argument"
        raise TransactionError(
            where,
            f"argument {argument} offset {offset}",
            f"the regions of the arg map ({listed})",
            "correct the arg map or the patch",
        )
    new_argument, shift = fused_position(where, regions[at], bindings)
    if offset + shift < 0:
        raise TransactionError(
            where,
            f"argument {argument} offset {offset} before the start of its buffer",
            "padding that the buffer has in front",
            "let the planner leave room for padding_offset",
        )
    return new_argument, offset + shift


def fused_position(where: str, entry: ArgMap, bindings: Bindings) -> tuple[int, int]:
    """Returns (fused argument, amount added to a patch offset) of a region."""
    if entry.kind in (ArgKind.INPUT, ArgKind.OUTPUT):
        bound = bindings.tensors.get(entry.onnx_arg_idx)
        if bound is None:
            raise TransactionError(
                f"{where} bindings",
                f"no tensor {entry.onnx_arg_idx}",
                f"one of {sorted(bindings.tensors)}",
                "bind every onnx_arg_idx of the arg map's inputs and outputs",
            )
        return bound[0], bound[1] - entry.offset - entry.padding_offset
    if entry.kind is ArgKind.CTRL_PKT_BIN:
        return bindings.ctrl_argument, bindings.ctrl
    base = {
        ArgKind.CONST_INPUT: bindings.const,
        ArgKind.CONST_KERNEL_PARAM_INPUT: bindings.params,
        ArgKind.SCRATCH_PAD: bindings.scratch,
    }[entry.kind]
    return int(entry.kind), base


def region_of(
    regions: Sequence[ArgMap], arguments: npt.NDArray[np.uint64], offsets: npt.NDArray[np.uint64]
) -> Ints:
    """Returns, per offset, the index of the last region of its argument that starts at or below it, or -1."""
    result = np.full(len(arguments), -1, np.int64)
    for argument in sorted({entry.xrt_arg_idx for entry in regions}):
        members = [i for i, entry in enumerate(regions) if entry.xrt_arg_idx == argument]
        starts = np.array([regions[i].offset for i in members], np.uint64)
        mine = arguments == argument
        found = np.searchsorted(starts, offsets[mine], side="right") - 1
        result[mine] = np.where(found >= 0, members[0] + found, -1)
    return result
