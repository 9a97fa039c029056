# SPDX-License-Identifier: Apache-2.0
"""Functions of operands or results that are no plain numbers of one type, as rows.

Their code is in ``cpp_ext/src/kernels/simd/level_logic.h``. References take the inputs alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import EVERY, FLOATS, INTEGERS, NUMBERS, WIDE
from onedispatch.operators.declarations.functions import TABLES
from onedispatch.operators.declarations.kernel import Function, FunctionTable, work

Array = np.ndarray[Any, Any]
_BITS, _COMPARISON = work(move=1), work(compare=1)
_ALL_INTEGERS = f"{INTEGERS} {WIDE}"
_ORDERED = f"{NUMBERS} {WIDE}"
_UNSIGNED = "u8 u16 u32"

# func(inputs ...) of elements of one type: true or false.
COMPARISONS = FunctionTable(
    "comparison",
    (
        Function("equal", np.equal, inputs=2, onnx="Equal", dtypes=f"{EVERY} {WIDE}", work=_COMPARISON),
        Function("greater", np.greater, inputs=2, onnx="Greater", dtypes=_ORDERED, work=_COMPARISON),
        Function(
            "greater_or_equal",
            np.greater_equal,
            inputs=2,
            onnx="GreaterOrEqual",
            dtypes=_ORDERED,
            work=_COMPARISON,
        ),
        Function("less", np.less, inputs=2, onnx="Less", dtypes=_ORDERED, work=_COMPARISON),
        Function(
            "less_or_equal", np.less_equal, inputs=2, onnx="LessOrEqual", dtypes=_ORDERED, work=_COMPARISON
        ),
        # Of their bits: the sign is masked, the rest compared as integers.
        Function("isnan", np.isnan, onnx="IsNaN", dtypes=FLOATS, work=work(move=2)),
        Function("isinf", np.isinf, onnx="IsInf", dtypes=FLOATS, work=work(move=2)),
        Function("isposinf", lambda x: x == np.inf, dtypes=FLOATS, work=_BITS),
        Function("isneginf", lambda x: x == -np.inf, dtypes=FLOATS, work=_BITS),
    ),
    sealed=9,
)


def _quotient(x: Array, y: Array) -> Any:
    """Towards zero, and zero where the divisor is."""
    safe = np.where(y == 0, 1, y)
    floor = x // safe
    up = (x % safe != 0) & ((x < 0) != (y < 0))
    return np.where(y == 0, 0, floor + up)


def _remainder(function: Any, x: Array, y: Array) -> Any:
    """Where there is none, zero."""
    return np.where(y == 0, x.dtype.type(0), function(x, np.where(y == 0, y.dtype.type(1), y)))


def _shifted(function: Any, x: Array, y: Array) -> Any:
    width = x.dtype.type(8 * x.dtype.itemsize)
    return np.where(y < width, function(x, np.minimum(y, width - x.dtype.type(1))), x.dtype.type(0))


# func(inputs ...): of bits, of integers, and arithmetic of those of 64 bits, which wrap.
BINARIES = FunctionTable(
    "binary_func",
    (
        Function("and", np.bitwise_and, inputs=2, dtypes=f"{_ALL_INTEGERS} bool", work=_BITS),
        Function("or", np.bitwise_or, inputs=2, dtypes=f"{_ALL_INTEGERS} bool", work=_BITS),
        Function("xor", np.bitwise_xor, inputs=2, dtypes=f"{_ALL_INTEGERS} bool", work=_BITS),
        Function("not", np.invert, dtypes=f"{_ALL_INTEGERS} bool", work=_BITS),
        # ASSUMPTION: each element by an amount of its own: per bit of the amount a shift and a selection.
        Function(
            "shift_left",
            lambda x, y: _shifted(np.left_shift, x, y),
            inputs=2,
            dtypes=_UNSIGNED,
            work=work(move=10),
        ),
        Function(
            "shift_right",
            lambda x, y: _shifted(np.right_shift, x, y),
            inputs=2,
            dtypes=_UNSIGNED,
            work=work(move=10),
        ),
        # What is left of the dividend: a quotient, its product, a difference; the sign of the divisor.
        Function(
            "mod",
            lambda x, y: _remainder(np.mod, x, y),
            inputs=2,
            dtypes=_ALL_INTEGERS,
            work=work(div=1, mul=1, op=2, compare=1),
            code_bytes=512,
        ),
        Function(
            "fmod",
            lambda x, y: _remainder(np.fmod, x, y),
            inputs=2,
            dtypes=_ALL_INTEGERS,
            work=work(div=1, mul=1, op=1),
            code_bytes=512,
        ),
        # ASSUMPTION: in two steps, for quotients up to 2^46; greater ones are not charged for.
        Function(
            "float_mod",
            np.mod,
            inputs=2,
            dtypes=FLOATS,
            work=work(div=2, mul=2, op=4, move=2),
            code_bytes=512,
        ),
        Function(
            "float_fmod", np.fmod, inputs=2, dtypes=FLOATS, work=work(div=2, mul=2, op=3), code_bytes=512
        ),
        Function("add", np.add, inputs=2, onnx="Add", dtypes=WIDE),
        Function("sub", np.subtract, inputs=2, onnx="Sub", dtypes=WIDE),
        Function("mul", np.multiply, inputs=2, onnx="Mul", dtypes=WIDE, work=work(mul=1)),
        Function("div", _quotient, inputs=2, onnx="Div", dtypes=WIDE, work=work(div=1), code_bytes=512),
        Function("max", np.maximum, inputs=2, dtypes=WIDE, work=_COMPARISON),
        Function("min", np.minimum, inputs=2, dtypes=WIDE, work=_COMPARISON),
        Function("neg", np.negative, onnx="Neg", dtypes=WIDE),
        Function("abs", np.abs, onnx="Abs", dtypes=WIDE, work=work(op=1, move=1)),
    ),
    sealed=4,
)

# Every table of functions that a kernel of ours has.
ALL_TABLES = (*TABLES, COMPARISONS, BINARIES)
