# SPDX-License-Identifier: Apache-2.0
"""Element types as rows of one table: the code in parameter blocks, the size, the NumPy type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """One element type. ``code`` is what parameter blocks hold; codes are never reused."""

    name: str
    code: int
    numpy: np.dtype[Any]

    @property
    def rates(self) -> str:
        """Whose constants ``kernel.<rates>_...`` of a device hold for it: sign changes no rate."""
        return self.name.replace("u", "i") if self.numpy.kind == "u" else self.name

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.numpy.itemsize

    def __str__(self) -> str:
        return self.name


DTYPES: dict[str, DType] = {
    name: DType(name, code, np.dtype(numpy))
    for code, (name, numpy) in enumerate(
        {
            "f32": np.float32,
            "bf16": ml_dtypes.bfloat16,
            "f16": np.float16,
            "i8": np.int8,
            "u8": np.uint8,
            "i16": np.int16,
            "u16": np.uint16,
            "i32": np.int32,
            "u32": np.uint32,
            "bool": np.bool_,
        }.items()
    )
}
_BY_NUMPY = {row.numpy: row for row in DTYPES.values()}


def dtype_of(numpy: np.dtype[Any]) -> DType | None:
    """The row of a NumPy type, None where the device has no such element."""
    return _BY_NUMPY.get(np.dtype(numpy))
