# SPDX-License-Identifier: Apache-2.0
"""Element types as rows of one table: the code in parameter blocks, the size, the NumPy type.

Wide ones (``i64``: what indices and shapes are made of) have two words. Nothing but what names them takes
them: they are compared, cast, selected and index, and move as words. ASSUMPTION: cores have no vector unit
for them, so their prices (``kernel.i64_...``) are those of the operations on words that they come down to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


def is_number(value: Any) -> bool:
    """Whether it is a number that a float can be."""
    if not isinstance(value, int | float | np.number | np.bool_) or isinstance(value, np.complexfloating):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


@dataclass(frozen=True)
class DType:
    """One element type. ``code`` is what parameter blocks hold; codes are never reused."""

    name: str
    code: int
    numpy: np.dtype[Any]

    @property
    def rates(self) -> str:
        """Whose constants ``kernel.<rates>_...`` of a device hold for it: sign changes none, bool is i8."""
        if self.numpy.kind == "b":
            return "i8"
        return self.name.replace("u", "i") if self.numpy.kind == "u" else self.name

    @property
    def is_float(self) -> bool:
        return self.name in FLOATS.split()

    @property
    def word(self) -> str:
        """The name of the type that kernels compute elements in, and keep sums of them in: 32 bits wide."""
        return "f32" if self.is_float else "u32" if self.name == "u32" else "i32"

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.numpy.itemsize

    @property
    def per_word(self) -> int:
        """Elements in a word of 32 bits, which is what DMAs move; 1 where an element has several."""
        return per_word(self.itemsize)

    @property
    def words(self) -> int:
        """Words of an element; 1 where a word has several."""
        return max(1, self.itemsize // 4)

    def holds(self, value: Any) -> bool:
        """Whether ``value`` is a number of this type's; floating-point types round, integers do not."""
        if not is_number(value):
            return False
        value = float(value)
        if self.numpy.kind in "iu":
            info = np.iinfo(self.numpy)
            return bool(value == value and value.is_integer() and info.min <= value <= info.max)
        return self.numpy.kind != "b" or bool(value in (0, 1))

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
            "i64": np.int64,
        }.items()
    )
}
_BY_NUMPY = {row.numpy: row for row in DTYPES.values()}

# Sets of element types that declarations name.
FLOATS = "f32 bf16 f16"
INTEGERS = "i8 u8 i16 u16 i32 u32"
NUMBERS = f"{FLOATS} {INTEGERS}"
EVERY = f"{NUMBERS} bool"
WIDE = "i64"
# What custom kernels name. It stays what it is: their headers number no others.
OPEN = {name: DTYPES[name] for name in EVERY.split()}

_CARRIERS = {1: "u8", 2: "u16", 4: "u32"}


def per_word(itemsize: int) -> int:
    """Elements of so many bytes in a word; 1 for those of a word or more."""
    return max(1, 4 // itemsize)


def carrier(numpy: np.dtype[Any]) -> tuple[DType, int] | None:
    """What moves the bits of a NumPy type: a row, and how many of its elements make one.

    A row of up to a word moves itself; other types go as unsigned numbers of their width, those of 8 and
    16 bytes as words. None where there is no such width (text, objects).
    """
    own, size = dtype_of(numpy), np.dtype(numpy).itemsize
    if own is not None and own.words == 1:
        return own, 1
    if np.dtype(numpy).hasobject or np.dtype(numpy).kind in "SUM" or size not in (1, 2, 4, 8, 16):
        return None
    return DTYPES[_CARRIERS[min(size, 4)]], max(1, size // 4)


def dtype_of(numpy: np.dtype[Any]) -> DType | None:
    """The row of a NumPy type, None where the device has no such element."""
    return _BY_NUMPY.get(np.dtype(numpy))


def open_dtype_of(numpy: np.dtype[Any]) -> DType | None:
    """The row of a NumPy type that custom kernels take, None where there is none."""
    row = dtype_of(numpy)
    return row if row is not None and row.name in OPEN else None


def saturated(values: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Whole numbers as integers of ``dtype``: what is beyond its ends becomes these."""
    ends = np.iinfo(dtype)
    return np.asarray(np.clip(values, ends.min, ends.max)).astype(dtype)


def nearest(quotients: np.ndarray[Any, Any], zero: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Floats as integers of ``dtype``: rounded to even, ``zero`` added, saturated; NaN is the least."""
    wide = quotients.astype(np.float64)
    return saturated(np.rint(np.where(np.isnan(wide), -np.inf, wide)) + zero, dtype)
