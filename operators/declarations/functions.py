# SPDX-License-Identifier: Apache-2.0
"""Element-wise functions as rows: one here, one line in ``cpp_ext/src/kernels/simd/level_math.h``.

``onnx`` ties a row to the ONNX operator that is this function and nothing else; ``work`` counts what a
vector of it takes: one operation where nothing is said. Codes are positions: rows are only ever appended,
and ``sealed`` stays what it is: kernels keep their digests, and what was compiled goes on running.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS, NUMBERS
from onedispatch.operators.declarations.kernel import FREE, Function, FunctionTable, work

Array = np.ndarray[Any, Any]
MOVE, COMPARISON, SUM = work(move=1), work(compare=1), work(sum=1)
_SIGNED = f"{FLOATS} i8 i16 i32"


def _scaled_sum(a: float, b: float, x: Array, y: Array) -> Any:
    return x + y if a == b == 1 else np.float32(a) * x + np.float32(b) * y


def _quotient(a: float, b: float, x: Array, y: Array) -> Any:
    """Integers towards zero, and zero where the divisor is; they wrap."""
    if x.dtype.kind not in "iu":
        return x / y
    wide, divisor = x.astype(np.int64), y.astype(np.int64)
    quotient = np.abs(wide) // np.maximum(np.abs(divisor), 1) * np.sign(wide) * np.sign(divisor)
    return quotient.astype(x.dtype)


# act(x, alpha, beta): what a kernel applies to its results.
ACTIVATIONS = FunctionTable(
    "activation",
    (
        Function("none", lambda x, a, b: x, work=FREE),
        Function(
            "relu", lambda x, a, b: np.maximum(x, x.dtype.type(0)), onnx="Relu", dtypes=NUMBERS, work=MOVE
        ),
        Function(
            "leakyrelu",
            lambda x, a, b: np.where(x < 0, np.float32(a) * x, x),
            dtypes=FLOATS,
            work=work(mul=1, move=2),
        ),
        Function(
            "clip",
            lambda x, a, b: np.minimum(np.maximum(x, np.float32(a)), np.float32(b)),
            dtypes=FLOATS,
            work=work(move=4),  # bounds are known: two operations on bits for each
        ),
        Function(
            "sigmoid",
            lambda x, a, b: 1 / (1 + np.exp(-x)),
            onnx="Sigmoid",
            dtypes=FLOATS,
            work=work(exp=1, div=1, op=4),
        ),
        Function("tanh", lambda x, a, b: np.tanh(x), onnx="Tanh", dtypes=FLOATS, work=work(tanh=1)),
        Function("exp", lambda x, a, b: np.exp(x), onnx="Exp", dtypes=FLOATS, work=work(exp=1)),
        Function("sqrt", lambda x, a, b: np.sqrt(x), onnx="Sqrt", dtypes=FLOATS, work=work(sqrt=1)),
        Function("erf", lambda x, a, b: _erf(x), onnx="Erf", dtypes=FLOATS, work=work(erf=1)),
        Function("abs", lambda x, a, b: np.abs(x), onnx="Abs", dtypes=NUMBERS, work=MOVE),
        Function("neg", lambda x, a, b: -x, onnx="Neg", dtypes=_SIGNED, work=MOVE),
        Function("log", lambda x, a, b: np.log(x), onnx="Log", dtypes=FLOATS, work=work(log=1)),
        Function("reciprocal", lambda x, a, b: 1 / x, onnx="Reciprocal", dtypes=FLOATS, work=work(div=1)),
        Function(
            "softsign",
            lambda x, a, b: x / (1 + np.abs(x)),
            onnx="Softsign",
            dtypes=FLOATS,
            ulp=4,
            work=work(div=1, op=1, move=1),
        ),
    ),
    sealed=14,
)

# func(alpha, beta, inputs ...): what the element-wise kernel computes.
ELTWISE = FunctionTable(
    "eltwise_func",
    (
        Function("copy", lambda a, b, x: x, inputs=1, work=FREE),
        Function("add", _scaled_sum, inputs=2, onnx="Add", dtypes=NUMBERS),
        Function("sub", lambda a, b, x, y: x - y, inputs=2, onnx="Sub", dtypes=NUMBERS),
        Function("mul", lambda a, b, x, y: x * y, inputs=2, onnx="Mul", dtypes=NUMBERS, work=work(mul=1)),
        Function("div", _quotient, inputs=2, onnx="Div", dtypes=NUMBERS, work=work(div=1)),
        Function("muladd", lambda a, b, x, y, z: x * y + z, inputs=3, dtypes=FLOATS, work=work(mul=1, op=1)),
        Function("fill", lambda a, b: np.float32(a), inputs=0, work=FREE),
        Function("max", lambda a, b, x, y: np.maximum(x, y), inputs=2, dtypes=NUMBERS, work=COMPARISON),
        Function("min", lambda a, b, x, y: np.minimum(x, y), inputs=2, dtypes=NUMBERS, work=COMPARISON),
        # The logarithm is carried in two parts, or its error would grow with the exponent.
        Function(
            "pow",
            lambda a, b, x, y: np.power(x, y),
            inputs=2,
            dtypes=FLOATS,
            work=work(log=1, exp=1, mul=4, op=8),
        ),
    ),
    sealed=10,
)


def _mean(x: Array) -> Any:
    """Of integers: the sum, which wraps, divided towards zero."""
    if x.dtype.kind == "f":
        return x.mean(axis=1)
    total = x.sum(axis=1, dtype=x.dtype).astype(np.int64)
    return (np.abs(total) // x.shape[1] * np.sign(total)).astype(x.dtype)


# mode(x) over axis 1 of float32, int32 or uint32: what kernels compute narrower elements in.
REDUCTIONS = FunctionTable(
    "reduce_mode",
    (
        Function("sum", lambda x: x.sum(axis=1, dtype=x.dtype), onnx="ReduceSum", dtypes=NUMBERS, work=SUM),
        Function("mean", _mean, onnx="ReduceMean", dtypes=NUMBERS, work=SUM, finish=work(div=1)),
        Function("max", lambda x: x.max(axis=1), onnx="ReduceMax", work=COMPARISON),
        Function("min", lambda x: x.min(axis=1), onnx="ReduceMin", work=COMPARISON),
        Function(
            "sum_square",
            lambda x: (x * x).sum(axis=1, dtype=x.dtype),
            onnx="ReduceSumSquare",
            dtypes=NUMBERS,
            work=work(mul=1, sum=1),
        ),
        Function(
            "prod",
            lambda x: x.prod(axis=1, dtype=x.dtype),
            onnx="ReduceProd",
            dtypes=NUMBERS,
            work=work(mul=1),
        ),
    ),
    sealed=6,
)

POOLINGS = FunctionTable(
    "pool_mode",
    (
        Function("max", dtypes=NUMBERS, work=COMPARISON),
        Function("average_exclude_pad", dtypes=FLOATS, work=SUM, finish=work(div=1)),
        Function("average_include_pad", dtypes=FLOATS, work=SUM, finish=work(div=1)),
        Function("sum", dtypes=FLOATS, work=SUM),
    ),
    sealed=3,
)

TABLES = (ACTIVATIONS, ELTWISE, REDUCTIONS, POOLINGS)


def _erf(x: Array) -> Any:
    return np.vectorize(erf, otypes=[np.float32])(x) if x.size else x


@dataclass(frozen=True)
class Activation:
    """A function applied to every result element: the name of a row of ``ACTIVATIONS``."""

    code: str = "none"
    alpha: float = 0.0
    beta: float = 0.0

    @property
    def scalars(self) -> dict[str, float | str]:
        """The three scalars of kernels that apply it (``ACTIVATION_SCALARS``)."""
        return {"act": self.code, "act_alpha": self.alpha, "act_beta": self.beta}

    def apply(self, x: Array) -> Array:
        """The activation in NumPy."""
        function = ACTIVATIONS[self.code].reference
        if function is None:
            raise NotImplementedError(self.code)
        result: Array = function(x, self.alpha, self.beta)
        return result
