# SPDX-License-Identifier: Apache-2.0
"""Element-wise functions as rows: one here, one line in ``cpp_ext/src/kernels/simd/level_math.h``.

``onnx`` ties a row to the ONNX operator that is this function and nothing else; ``work`` counts what a
vector of it takes: one operation where nothing is said. Codes are positions: rows are only ever appended,
and ``sealed`` stays what it is: kernels keep their digests, and what was compiled goes on running.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _floats(name: str, function: Callable[[Array], Any], onnx: str = "", **more: Any) -> Function:
    """A function of floats without parameters."""
    return Function(name, lambda x, a, b: function(x), onnx=onnx, dtypes=FLOATS, **more)


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
            onnx="LeakyRelu",
            dtypes=FLOATS,
            work=work(mul=1, move=2),
            attributes=(("alpha", 0.01),),
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
            code_bytes=512,
        ),
        _floats("tanh", np.tanh, "Tanh", work=work(tanh=1), code_bytes=512),
        _floats("exp", np.exp, "Exp", work=work(exp=1), code_bytes=384),
        _floats("sqrt", np.sqrt, "Sqrt", work=work(sqrt=1)),
        _floats("erf", lambda x: _erf(x), "Erf", work=work(erf=1), code_bytes=512),
        Function("abs", lambda x, a, b: np.abs(x), onnx="Abs", dtypes=NUMBERS, work=MOVE, code_bytes=64),
        Function("neg", lambda x, a, b: -x, onnx="Neg", dtypes=_SIGNED, work=MOVE, code_bytes=64),
        _floats("log", np.log, "Log", work=work(log=1), code_bytes=512),
        Function("reciprocal", lambda x, a, b: 1 / x, onnx="Reciprocal", dtypes=FLOATS, work=work(div=1)),
        Function(
            "softsign",
            lambda x, a, b: x / (1 + np.abs(x)),
            onnx="Softsign",
            dtypes=FLOATS,
            ulp=4,
            work=work(div=1, op=1, move=1),
        ),
        # Whole numbers: what the exponent says is no fraction is kept, the rest rounded, by shifts and masks.
        _floats("ceil", np.ceil, "Ceil", work=work(move=8)),
        _floats("floor", np.floor, "Floor", work=work(move=8)),
        _floats("round", np.rint, "Round", work=work(move=9)),
        Function("sign", lambda x, a, b: np.sign(x), onnx="Sign", dtypes=NUMBERS, work=work(move=3)),
        # exp(x) - 1 is exp with its 1 taken off before the last product.
        Function(
            "elu",
            lambda x, a, b: np.where(x < 0, np.float32(a) * np.expm1(np.minimum(x, 0)), x),
            onnx="Elu",
            dtypes=FLOATS,
            ulp=4,
            absolute=2e-07,
            work=work(exp=1, mul=1, op=1, move=2),
            attributes=(("alpha", 1.0),),
            code_bytes=512,
        ),
        Function(
            "selu",
            lambda x, a, b: np.float32(b) * np.where(x < 0, np.float32(a) * np.expm1(np.minimum(x, 0)), x),
            onnx="Selu",
            dtypes=FLOATS,
            ulp=4,
            absolute=4e-07,
            work=work(exp=1, mul=2, op=1, move=2),
            attributes=(("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
            code_bytes=512,
        ),
        Function(
            "celu",
            lambda x, a, b: np.where(x < 0, np.float32(a) * np.expm1(x / np.float32(a)), x),
            onnx="Celu",
            dtypes=FLOATS,
            ulp=4,
            absolute=4e-07,
            work=work(exp=1, mul=2, op=1, move=2),  # by the reciprocal of alpha, which is known
            attributes=(("alpha", 1.0),),
            code_bytes=512,
        ),
        Function(
            "gelu",
            lambda x, a, b: _gelu(x),
            onnx="Gelu",
            dtypes=FLOATS,
            ulp=4,
            absolute=1e-06,
            work=work(erf=1, mul=3, op=1),
            code_bytes=512,
        ),
        Function(
            "gelu_tanh",
            lambda x, a, b: 0.5 * x * (1 + np.tanh(0.79788456 * (x + 0.044715 * x * x * x))),
            dtypes=FLOATS,
            ulp=4,
            absolute=4e-06,
            work=work(tanh=1, mul=5, op=2),  # as the published kernel counts it
            code_bytes=512,
        ),
        # tanh(log(1 + e)) is n / (n + 2) with n = e * (e + 2).
        Function(
            "mish",
            lambda x, a, b: x * np.tanh(np.logaddexp(x, 0)),
            onnx="Mish",
            dtypes=FLOATS,
            ulp=8,
            absolute=1e-06,
            work=work(exp=1, div=1, mul=2, op=2, move=2),
            code_bytes=512,
        ),
        Function(
            "hardsigmoid",
            lambda x, a, b: np.clip(np.float32(a) * x + np.float32(b), 0, 1),
            onnx="HardSigmoid",
            dtypes=FLOATS,
            ulp=1,
            absolute=1e-07,
            work=work(mul=1, op=1, move=4),
            attributes=(("alpha", 0.2), ("beta", 0.5)),
        ),
        Function(
            "hardswish",
            lambda x, a, b: x * np.clip(x / 6 + 0.5, 0, 1),
            onnx="HardSwish",
            dtypes=FLOATS,
            ulp=2,
            absolute=1e-06,
            work=work(mul=2, op=1, move=4),
        ),
        Function(
            "swish",
            lambda x, a, b: x / (1 + np.exp(-np.float32(a) * x)),
            onnx="Swish",
            dtypes=FLOATS,
            ulp=4,
            absolute=1e-05,
            work=work(exp=1, div=1, mul=2, op=4),
            attributes=(("alpha", 1.0),),
            code_bytes=512,
        ),
        # The larger of x and 0, and log(1 + exp(-|x|)).
        Function(
            "softplus",
            lambda x, a, b: np.logaddexp(x, 0),
            onnx="Softplus",
            dtypes=FLOATS,
            ulp=4,
            absolute=2e-07,
            work=work(exp=1, log=1, op=3, move=4),
            code_bytes=768,
        ),
        Function(
            "thresholded_relu",
            lambda x, a, b: np.where(x > np.float32(a), x, x.dtype.type(0)),
            onnx="ThresholdedRelu",
            dtypes=FLOATS,
            work=work(move=3),
            attributes=(("alpha", 1.0),),
        ),
        Function(
            "shrink",
            lambda x, a, b: _shrunk(x, a, b),
            onnx="Shrink",
            dtypes=NUMBERS,
            work=work(op=2, move=6),
            attributes=(("lambd", 0.5), ("bias", 0.0)),
        ),
        # Powers whose exponent the model says, in the second scalar: the common ones without a logarithm.
        Function("square", lambda x, a, b: x * x, dtypes=FLOATS, work=work(mul=1)),
        Function("cube", lambda x, a, b: x * x * x, dtypes=FLOATS, work=work(mul=2)),
        Function(
            "half_power",
            lambda x, a, b: np.where(np.isneginf(x), np.inf, np.sqrt(x + 0)),
            dtypes=FLOATS,
            work=work(sqrt=1, op=1, move=2),
        ),
        # As "pow" of two tensors: the logarithm is carried in two parts.
        Function(
            "power",
            lambda x, a, b: np.power(x, np.float32(a)),
            dtypes=FLOATS,
            work=work(log=1, exp=1, mul=4, op=8),
            code_bytes=1024,
        ),
        _floats("sin", np.sin, "Sin", ulp=2, work=work(sin=1), code_bytes=768),
        _floats("cos", np.cos, "Cos", ulp=2, work=work(sin=1), code_bytes=768),
        _floats("tan", np.tan, "Tan", ulp=4, work=work(tan=1), code_bytes=896),
        # From 0.5 on by the root of (1 - x) / 2; five coefficients.
        _floats("asin", np.arcsin, "Asin", ulp=4, work=work(sqrt=1, mul=8, op=8), code_bytes=512),
        _floats("acos", np.arccos, "Acos", ulp=4, work=work(sqrt=1, mul=8, op=8), code_bytes=512),
        _floats("atan", np.arctan, "Atan", ulp=2, work=work(atan=1), code_bytes=512),
        # (e - 1/e) / 2 with e = exp(|x|), or a series of four below 1.
        _floats("sinh", np.sinh, "Sinh", ulp=4, work=work(exp=1, div=1, mul=5, op=6), code_bytes=512),
        _floats("cosh", np.cosh, "Cosh", ulp=4, work=work(exp=1, div=1, mul=1, op=2), code_bytes=512),
        # log(1 + t), t from what does not cancel: a quotient, or a sum of roots.
        _floats(
            "asinh", np.arcsinh, "Asinh", ulp=4, work=work(log=1, sqrt=1, div=1, mul=3, op=8), code_bytes=768
        ),
        _floats("acosh", np.arccosh, "Acosh", ulp=4, work=work(log=1, sqrt=1, mul=3, op=8), code_bytes=768),
        _floats("atanh", np.arctanh, "Atanh", ulp=4, work=work(log=1, div=1, mul=1, op=8), code_bytes=768),
        # What recurrent layers know beside.
        Function(
            "affine", lambda x, a, b: np.float32(a) * x + np.float32(b), dtypes=FLOATS, work=work(mul=1, op=1)
        ),
        Function(
            "scaled_tanh",
            lambda x, a, b: np.float32(a) * np.tanh(np.float32(b) * x),
            dtypes=FLOATS,
            work=work(tanh=1, mul=2),
            code_bytes=512,
        ),
    ),
    sealed=4,
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
        Function("fill", lambda a, b: np.float32(a), inputs=0, work=FREE, code_bytes=64),
        Function(
            "max",
            lambda a, b, x, y: np.maximum(x, y),
            inputs=2,
            dtypes=NUMBERS,
            work=COMPARISON,
            code_bytes=128,
        ),
        Function(
            "min",
            lambda a, b, x, y: np.minimum(x, y),
            inputs=2,
            dtypes=NUMBERS,
            work=COMPARISON,
            code_bytes=128,
        ),
        # The logarithm is carried in two parts, or its error would grow with the exponent.
        Function(
            "pow",
            lambda a, b, x, y: np.power(x, y),
            inputs=2,
            dtypes=FLOATS,
            work=work(log=1, exp=1, mul=4, op=8),
            code_bytes=768,
        ),
        Function(
            "prelu",
            lambda a, b, x, y: np.where(x < 0, y * x, x),
            inputs=2,
            onnx="PRelu",
            dtypes=f"{FLOATS} i32 u32",
            work=work(mul=1, move=2),
        ),
        # By squares: 31 of them, and as many products that a bit of the exponent selects.
        Function(
            "ipow", lambda a, b, x, y: _whole_power(x, y), inputs=2, dtypes="i32", work=work(mul=62, move=62)
        ),
    ),
    sealed=4,
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
        Function(
            "sum_abs",
            lambda x: np.abs(x).sum(axis=1, dtype=x.dtype),
            onnx="ReduceL1",
            dtypes=NUMBERS,
            work=work(move=1, sum=1),
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

# mode(old, update): what an element becomes that an update falls on. A NaN replaces nothing, and stays.
SCATTERS = FunctionTable(
    "scatter_mode",
    (
        Function("none", lambda old, new: new, inputs=2, work=FREE),
        Function("add", lambda old, new: old + new, inputs=2, dtypes=NUMBERS),
        Function("mul", lambda old, new: old * new, inputs=2, dtypes=NUMBERS, work=work(mul=1)),
        Function(
            "max",
            lambda old, new: np.where(old < new, new, old),
            inputs=2,
            dtypes=NUMBERS,
            work=COMPARISON,
        ),
        Function(
            "min",
            lambda old, new: np.where(new < old, new, old),
            inputs=2,
            dtypes=NUMBERS,
            work=COMPARISON,
        ),
    ),
    sealed=5,
)

# What becomes of the sums of a step of a recurrent layer; the work on a vector of the state, gates aside.
CELLS = FunctionTable(
    "recurrent_cell",
    (
        Function("rnn", dtypes="f32", work=FREE),
        Function("gru", dtypes="f32", work=work(mul=3, op=3)),  # the reset gate scales the product
        # The reset gate scales the state before it is multiplied: two calls for a step.
        Function("gru_gates", dtypes="f32", work=work(mul=2, op=1)),
        Function("gru_update", dtypes="f32", work=work(mul=1, op=1)),
        Function("lstm", dtypes="f32", work=work(mul=3, op=1)),
        Function("lstm_coupled", dtypes="f32", work=work(mul=3, op=2)),  # forgets as much as comes in
    ),
    sealed=6,
)

TABLES = (ACTIVATIONS, ELTWISE, REDUCTIONS, POOLINGS, SCATTERS, CELLS)


def _shrunk(x: Array, a: float, b: float) -> Any:
    """Integers are cut towards zero, and wrap."""
    wide = x.astype(np.float64)
    shrunk = np.where(wide < -a, wide + b, np.where(wide > a, wide - b, 0))
    return (np.trunc(shrunk).astype(np.int64) if x.dtype.kind in "iu" else shrunk).astype(x.dtype)


def _gelu(x: Array) -> Any:
    return 0.5 * x * (1 + _erf(x * np.float32(0.70710678)))


def _whole_power(x: Array, y: Array) -> Any:
    """It wraps; below an exponent of 0 towards zero, and zero where there is no inverse."""
    unit = np.abs(x) == 1
    power = np.power(x, np.where(unit, np.abs(y) % 2, np.maximum(y, 0)))
    return np.where((y < 0) & ~unit, 0, power).astype(x.dtype)


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
