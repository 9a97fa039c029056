# SPDX-License-Identifier: Apache-2.0
"""Arg maps: which region of an operator's arguments holds which tensor of the model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from onedispatch.transactions.base.errors import TransactionError


class ArgKind(IntEnum):
    """Content of a buffer argument; the value is the fused argument that usually receives it."""

    INPUT = 0
    OUTPUT = 1
    SCRATCH_PAD = 2
    CONST_INPUT = 3
    CONST_KERNEL_PARAM_INPUT = 4
    CTRL_PKT_BIN = 5


@dataclass(frozen=True)
class ArgMap:
    """One region of one argument.

    Several entries may share ``xrt_arg_idx`` at different offsets; a patch belongs to the last
    entry whose offset is at or below the patch's.

    Attributes:
        kind: content of the region.
        xrt_arg_idx: argument index that the operator's own DDR_PATCH ops use.
        onnx_arg_idx: index into inputs ++ constants ++ outputs; used for INPUT and OUTPUT only.
        offset: first byte of the region in the argument.
        size: bytes of the region, hardware padding included.
        padding_offset: bytes of padding that the operator addresses in front of the data.

    Raises:
        TransactionError: a negative number.
    """

    kind: ArgKind
    xrt_arg_idx: int
    onnx_arg_idx: int
    offset: int
    size: int
    padding_offset: int = 0

    def __post_init__(self) -> None:
        for name in ("xrt_arg_idx", "onnx_arg_idx", "offset", "size", "padding_offset"):
            value = getattr(self, name)
            if value < 0:
                raise TransactionError(f"ArgMap.{name}", str(value), "0 or more", "correct the arg map")

    @property
    def end(self) -> int:
        """First byte after the region."""
        return self.offset + self.size
