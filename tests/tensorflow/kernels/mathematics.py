# SPDX-License-Identifier: Apache-2.0
"""Operators of the evaluator that compute numbers: element by element, products, reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
from scipy import special

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]
Function = Callable[..., Any]

SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def wide(x: Array) -> Array:
    """Floats in float64, others as they are."""
    return x.astype(np.float64) if x.dtype.kind in "fV" else x


def elementwise(function: Function) -> Function:
    """The operator whose result has the type of its first operand."""

    def run(attributes: Attributes, *operands: Array) -> Array:
        return np.asarray(function(*map(wide, operands))).astype(operands[0].dtype)

    return run


def compared(function: Function) -> Function:
    """The operator whose result is a truth value."""
    return lambda attributes, *operands: np.asarray(function(*operands)).astype(bool)


def truncated(x: Array, y: Array) -> Array:
    """The quotient, of integers rounded towards zero."""
    if x.dtype.kind not in "iu":
        return np.trunc(x / y) if x.dtype.kind == "f" else x / y
    quotient = np.abs(x) // np.abs(y)
    return np.where((x < 0) != (y < 0), -quotient, quotient) if x.dtype.kind == "i" else x // y


def div(x: Array, y: Array) -> Array:
    return truncated(x, y) if x.dtype.kind in "iu" else x / y


def shifted(function: Function) -> Function:
    """A shift by a number of bits within the type, which TensorFlow clamps."""
    return lambda x, y: function(x, np.clip(y, 0, x.dtype.itemsize * 8 - 1))


UNARY: Mapping[str, Function] = {
    **{name: getattr(np, name.lower()) for name in "Abs Ceil Cos Cosh Exp Expm1 Floor Log Log1p".split()},
    **{name: getattr(np, name.lower()) for name in "Rint Sign Sin Sinh Sqrt Square Tan Tanh".split()},
    **{name: getattr(np, f"arc{name[1:].lower()}") for name in "Acos Acosh Asin Asinh Atan Atanh".split()},
    "Neg": np.negative,
    "Round": np.rint,
    "Invert": np.invert,
    "Inv": lambda x: 1 / x,
    "Reciprocal": lambda x: 1 / x,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Sigmoid": special.expit,
    "Erf": special.erf,
    "Erfc": special.erfc,
    "Erfinv": special.erfinv,
    "Ndtri": special.ndtri,
    "Lgamma": special.gammaln,
    "Digamma": special.digamma,
    "Relu": lambda x: np.maximum(x, 0),
    "Relu6": lambda x: np.clip(x, 0, 6),
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "Selu": lambda x: SELU_SCALE * np.where(x < 0, SELU_ALPHA * np.expm1(x), x),
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softmax": lambda x: special.softmax(x, -1),
    "LogSoftmax": lambda x: special.log_softmax(x, -1),
    "ZerosLike": np.zeros_like,
    "OnesLike": np.ones_like,
    "L2Loss": lambda x: (x**2).sum() / 2,
}
BINARY: Mapping[str, Function] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "MulNoNan": lambda x, y: np.where(y == 0, 0, x * y),
    "RealDiv": np.true_divide,
    "Div": div,
    "DivNoNan": lambda x, y: np.where(y == 0, 0, x / np.where(y == 0, 1, y)),
    "TruncateDiv": truncated,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "TruncateMod": np.fmod,
    "Mod": np.fmod,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Pow": np.power,
    "SquaredDifference": lambda x, y: (x - y) ** 2,
    "Atan2": np.arctan2,
    "Xdivy": lambda x, y: np.where(x == 0, 0, x / y),
    "Xlogy": lambda x, y: np.where(x == 0, 0, x * np.log(y)),
    "Xlog1py": lambda x, y: np.where(x == 0, 0, x * np.log1p(y)),
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "LeftShift": shifted(np.left_shift),
    "RightShift": shifted(np.right_shift),
    "ClipByValue": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "AddN": lambda *all_of: reduce(np.add, all_of),
    "AccumulateNV2": lambda *all_of: reduce(np.add, all_of),
}
COMPARED: Mapping[str, Function] = {
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
    "LogicalAnd": np.logical_and,
    "LogicalOr": np.logical_or,
    "LogicalNot": np.logical_not,
    "IsNan": np.isnan,
    "IsInf": np.isinf,
    "IsFinite": np.isfinite,
}


def approximate_equal(a: Attributes, x: Array, y: Array) -> Array:
    return np.abs(x - y) < a.get("tolerance", 1e-5)


def leaky_relu(a: Attributes, x: Array) -> Array:
    return np.where(x > 0, x, x * np.asarray(a.get("alpha", 0.2), x.dtype))


def cast(a: Attributes, x: Array) -> Array:
    return (x.real if x.dtype.kind == "c" and a["DstT"].kind != "c" else x).astype(a["DstT"])


def bitcast(a: Attributes, x: Array) -> Array:
    """The same bytes; an axis of narrower elements comes behind, or is taken away."""
    given, wanted = x.dtype.itemsize, a["type"].itemsize
    x = np.ascontiguousarray(x)
    if given >= wanted:
        more = (given // wanted,) if given > wanted else ()
        return np.frombuffer(x.tobytes(), a["type"]).reshape(x.shape + more)
    return np.frombuffer(x.tobytes(), a["type"]).reshape(x.shape[:-1])


def bucketize(a: Attributes, x: Array) -> Array:
    return np.searchsorted(np.asarray(a["boundaries"], np.float32), x, side="right").astype(np.int32)


def select(a: Attributes, condition: Array, t: Array, e: Array) -> Array:
    """A vector of conditions chooses rows."""
    if condition.ndim == 1 and t.ndim > 1:
        condition = condition.reshape([-1, *[1] * (t.ndim - 1)])
    return np.where(condition, t, e).astype(t.dtype)


def fake_quant(a: Attributes, x: Array, low: Array, high: Array) -> Array:
    """Rounded to as many steps as the bits have, after the zero is moved to one of them."""
    least, most = (1.0 if a.get("narrow_range") else 0.0), 2.0 ** a.get("num_bits", 8) - 1
    low, high = wide(low), wide(high)
    scale = (high - low) / (most - least)
    zero = np.clip(np.floor(least - low / scale + 0.5), least, most)
    nudged_low, nudged_high = (least - zero) * scale, (most - zero) * scale
    steps = np.floor((np.clip(wide(x), nudged_low, nudged_high) - nudged_low) / scale + 0.5)
    return (steps * scale + nudged_low).astype(x.dtype)


def fake_quant_args(a: Attributes, x: Array) -> Array:
    return fake_quant(a, x, np.asarray(a.get("min", -6.0)), np.asarray(a.get("max", 6.0)))


# -- products --------------------------------------------------------------------------------


def matmul(a: Attributes, x: Array, y: Array) -> Array:
    left, right = (
        (wide(x).T if a.get("transpose_a") else wide(x)),
        (wide(y).T if a.get("transpose_b") else wide(y)),
    )
    return (left @ right).astype(x.dtype)


def batch_matmul(a: Attributes, x: Array, y: Array) -> Array:
    left, right = (
        wide(one).swapaxes(-1, -2).conj() if a.get(name) else wide(one)
        for one, name in ((x, "adj_x"), (y, "adj_y"))
    )
    return np.matmul(left, right).astype(a.get("Tout", x.dtype))


def einsum(a: Attributes, *operands: Array) -> Array:
    return np.asarray(np.einsum(a["equation"], *map(wide, operands))).astype(operands[0].dtype)


# -- reductions ------------------------------------------------------------------------------


def mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    total = np.sum(x, axis=axis, keepdims=keepdims)
    count = np.asarray(x.size // max(np.size(total), 1), total.dtype)
    return truncated(total, count) if x.dtype.kind in "iu" else total / count


def reduction(function: Function) -> Function:
    def run(a: Attributes, x: Array, indices: Array) -> Array:
        axes = tuple(sorted({int(i) % max(x.ndim, 1) for i in np.ravel(indices)}))
        return np.asarray(function(wide(x), axis=axes, keepdims=bool(a.get("keep_dims")))).astype(x.dtype)

    return run


def arg(function: Function) -> Function:
    return lambda a, x, axis: function(x, axis=int(axis)).astype(a.get("output_type", np.int64))


def top_k(a: Attributes, x: Array, k: Any = None) -> tuple[Array, Array]:
    """The largest first; of equal ones the first."""
    count = int(a["k"] if k is None else k)
    order = np.argsort(-wide(x), axis=-1, kind="stable")[..., :count]
    return np.take_along_axis(x, order, -1), order.astype(a.get("index_type", np.int32))


def cumulative(function: Function, neutral: int) -> Function:
    def run(a: Attributes, x: Array, axis: Array) -> Array:
        at = int(axis) % x.ndim
        given = np.flip(wide(x), at) if a.get("reverse") else wide(x)
        if a.get("exclusive"):
            first = np.full_like(np.take(given, [0], at), neutral)
            given = np.concatenate([first, np.delete(given, -1, at)], at)
        made = function(given, axis=at)
        return (np.flip(made, at) if a.get("reverse") else made).astype(x.dtype)

    return run


def segments(function: Function, empty: int) -> Function:
    """Rows of one segment reduced; ``count`` is given where segments are not sorted."""

    def run(a: Attributes, x: Array, ids: Array, count: Any = None) -> Array:
        total = int(ids.max()) + 1 if count is None else int(count)
        made = np.full((total, *x.shape[ids.ndim :]), empty, x.dtype)
        for segment in set(ids[ids >= 0].tolist()):
            made[segment] = function(wide(x)[ids == segment], axis=0)
        return made

    return run


FUNCTIONS: Mapping[str, Function] = {
    **{name: elementwise(function) for name, function in {**UNARY, **BINARY}.items()},
    **{name: compared(function) for name, function in COMPARED.items()},
    "ApproximateEqual": approximate_equal,
    "LeakyRelu": leaky_relu,
    "Cast": cast,
    "Bitcast": bitcast,
    "Bucketize": bucketize,
    "Select": select,
    "SelectV2": lambda a, condition, t, e: np.where(condition, t, e).astype(t.dtype),
    "FakeQuantWithMinMaxArgs": fake_quant_args,
    "FakeQuantWithMinMaxVars": fake_quant,
    "FakeQuantWithMinMaxVarsPerChannel": fake_quant,
    "MatMul": matmul,
    "BatchMatMul": batch_matmul,
    "BatchMatMulV2": batch_matmul,
    "BatchMatMulV3": batch_matmul,
    "Einsum": einsum,
    "Sum": reduction(np.sum),
    "Prod": reduction(np.prod),
    "Max": reduction(np.max),
    "Min": reduction(np.min),
    "Mean": reduction(mean),
    "All": reduction(np.all),
    "Any": reduction(np.any),
    "EuclideanNorm": reduction(lambda x, **how: np.sqrt(np.sum(x**2, **how))),
    "ArgMax": arg(np.argmax),
    "ArgMin": arg(np.argmin),
    "TopK": top_k,
    "TopKV2": top_k,
    "Cumsum": cumulative(np.cumsum, 0),
    "Cumprod": cumulative(np.cumprod, 1),
    "SegmentSum": segments(np.sum, 0),
    "SegmentMean": segments(np.mean, 0),
    "SegmentMax": segments(np.max, 0),
    "SegmentMin": segments(np.min, 0),
    "SegmentProd": segments(np.prod, 1),
    "UnsortedSegmentSum": segments(np.sum, 0),
}
