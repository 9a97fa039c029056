# SPDX-License-Identifier: Apache-2.0
"""How the arguments of one operator's transaction relate to the tensors of the model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from onedispatch.transactions.base.errors import TransactionError


class ArgKind(IntEnum):
    """What a buffer argument is; the value is the fused argument that it usually lands in."""

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
    one whose offset is not above it.

    Attributes:
        kind: what the region holds.
        xrt_arg_idx: argument index that the operator's own DDR_PATCH ops use.
        onnx_arg_idx: index into inputs ++ constants ++ outputs; used for INPUT and OUTPUT only.
        offset: first byte of the region in the argument.
        size: bytes of the region, hardware padding included.
        padding_offset: bytes of padding that the operator addresses before the data.

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
