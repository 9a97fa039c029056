# SPDX-License-Identifier: Apache-2.0
"""Rules for what TensorFlow computes element by element."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from onedispatch.dispatch.sources.api import frontend
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import Operand, SourceNode
from onedispatch.dispatch.tensorflow.rule_helpers import constant, floats

tf = frontend("tensorflow")

# The same operator under the same name, then under another one.

for name in "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Exp Floor Log Neg".split():
    tf.op(name)
for name in "Reciprocal Relu Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh".split():
    tf.op(name)
for name in "Add BitwiseAnd BitwiseOr BitwiseXor Greater Less Mul Pow Sub".split():
    tf.op(name)

tf.op("AddV2", to="Add")
tf.op("Maximum", to="Max")
tf.op("Minimum", to="Min")
tf.op("RealDiv", to="Div")
tf.op("Div")  # of integers, both round towards zero
tf.op("TruncateDiv", to="Div")
tf.op("Inv", to="Reciprocal")
tf.op("Invert", to="BitwiseNot")
tf.op("IsInf")
tf.op("IsNan", to="IsNaN")
tf.op("Rint", to="Round")
tf.op("Equal").ignore("incompatible_shape_error")
tf.op("GreaterEqual", to="GreaterOrEqual")
tf.op("LessEqual", to="LessOrEqual")
tf.op("LogicalAnd", to="And")
tf.op("LogicalNot", to="Not")
tf.op("LogicalOr", to="Or")
tf.op("SelectV2", to="Where")

# Facts: an attribute of the same name, one of another type, one that TensorFlow does not have.

tf.op("LeakyRelu").auto()
tf.op("Softmax").default(axis=-1)
tf.op("LogSoftmax").default(axis=-1)
tf.op("Cast").compute(to=lambda n: n.attr("DstT")).ignore("Truncate")
tf.op("Mod").default(fmod=1)
tf.op("TruncateMod", to="Mod").default(fmod=1)


# Several nodes in place of one.


def _is_float(x: Operand) -> bool:
    return x.dtype is None or x.dtype.kind in "fV"  # bfloat16 has kind V


@tf.expand("AddN", "AccumulateNV2", inherit=False)
def addn(g: Builder, n: SourceNode) -> Any:
    n.ignore("N", "shape")
    return reduce(g.Add, n.inputs)


@tf.expand("Round", inherit=False)
def rounded(g: Builder, n: SourceNode) -> Any:
    return g.Round(n.inputs[0]) if _is_float(n.inputs[0]) else n.inputs[0]


@tf.expand("Relu6", inherit=False)
def relu6(g: Builder, n: SourceNode) -> Any:
    return g.Clip(n.inputs[0], 0, 6)


@tf.expand("ClipByValue", inherit=False)
def clip_by_value(g: Builder, n: SourceNode) -> Any:
    """Bounds that are no scalars are broadcast, which ONNX's Clip does not."""
    x, low, high = n.inputs
    if low.rank == 0 and high.rank == 0:
        return g.Clip(x, low, high)
    return g.Min(g.Max(x, low), high)


@tf.expand("Square", inherit=False)
def square(g: Builder, n: SourceNode) -> Any:
    return g.Mul(n.inputs[0], n.inputs[0])


@tf.expand("SquaredDifference", inherit=False)
def squared_difference(g: Builder, n: SourceNode) -> Any:
    difference = g.Sub(*n.inputs)
    return g.Mul(difference, difference)


@tf.expand("Rsqrt", inherit=False)
def rsqrt(g: Builder, n: SourceNode) -> Any:
    return g.Reciprocal(g.Sqrt(n.inputs[0]))


@tf.expand("Expm1", inherit=False)
def expm1(g: Builder, n: SourceNode) -> Any:
    return g.Sub(g.Exp(n.inputs[0]), 1)


@tf.expand("Log1p", inherit=False)
def log1p(g: Builder, n: SourceNode) -> Any:
    return g.Log(g.Add(n.inputs[0], 1))


@tf.expand("Erfc", inherit=False)
def erfc(g: Builder, n: SourceNode) -> Any:
    return g.Sub(g.constant(1, n.inputs[0].dtype), g.Erf(n.inputs[0]))


@tf.expand("IsFinite", inherit=False)
def is_finite(g: Builder, n: SourceNode) -> Any:
    return g.Not(g.Or(g.IsInf(n.inputs[0]), g.IsNaN(n.inputs[0])))


@tf.expand("NotEqual", inherit=False)
def not_equal(g: Builder, n: SourceNode) -> Any:
    n.ignore("incompatible_shape_error")
    return g.Not(g.Equal(*n.inputs))


@tf.expand("ApproximateEqual", inherit=False)
def approximate_equal(g: Builder, n: SourceNode) -> Any:
    return g.Less(g.Abs(g.Sub(*n.inputs)), n.attr("tolerance"))


@tf.expand("Select", inherit=False)
def select(g: Builder, n: SourceNode) -> Any:
    """A vector of conditions chooses rows of operands with more dimensions."""
    condition, x, y = n.inputs
    if condition.rank is None or (condition.rank == 1 and x.rank is None):
        raise Refused("operands of unknown rank")
    if condition.rank == 1 and x.rank != 1:
        condition = g.Unsqueeze(condition, list(range(1, x.rank or 0)))
    return g.Where(condition, x, y)


# -- quotients -----------------------------------------------------------------------------------


def _differ(g: Builder, x: Operand, y: Operand) -> Any:
    """Whether one of two numbers is negative, and the other is not."""
    return g.Xor(g.Less(x, 0), g.Less(y, 0))


@tf.expand("FloorDiv", inherit=False)
def floor_div(g: Builder, n: SourceNode) -> Any:
    """ONNX's quotient of integers is rounded towards zero: one less where there is a rest below zero."""
    x, y = n.inputs
    quotient = g.Div(x, y)
    if _is_float(x):
        return g.Floor(quotient)
    if x.dtype is not None and x.dtype.kind == "u":
        return quotient
    below = g.And(g.Not(g.Equal(g.Mod(x, y), 0)), _differ(g, x, y))
    return g.Sub(quotient, g.Cast(below, to=x.dtype))


@tf.expand("FloorMod", inherit=False)
def floor_mod(g: Builder, n: SourceNode) -> Any:
    """ONNX's Mod of integers has the sign of the divisor, as here; of floats only C's fmod is there."""
    x, y = n.inputs
    if not _is_float(x):
        return g.Mod(x, y)
    rest = g.Mod(x, y, fmod=1)
    other = g.And(g.Not(g.Equal(rest, 0)), _differ(g, rest, y))
    return g.Where(other, g.Add(rest, y), rest)


@tf.expand("DivNoNan", inherit=False)
def div_no_nan(g: Builder, n: SourceNode) -> Any:
    x, y = n.inputs
    return g.Where(g.Equal(y, 0), 0, g.Div(x, y))


@tf.expand("MulNoNan", inherit=False)
def mul_no_nan(g: Builder, n: SourceNode) -> Any:
    x, y = n.inputs
    return g.Where(g.Equal(y, 0), 0, g.Mul(x, y))


@tf.expand("Xdivy", "Xlogy", "Xlog1py", inherit=False)
def zero_where_x_is(g: Builder, n: SourceNode) -> Any:
    """A quotient, or a product with a logarithm, that is 0 wherever x is."""
    x, y = n.inputs
    if n.op_type == "Xdivy":
        made = g.Div(x, y)
    else:
        made = g.Mul(x, g.Log(g.Add(y, 1) if n.op_type == "Xlog1py" else y))
    return g.Where(g.Equal(x, 0), 0, made)


@tf.expand("Atan2", inherit=False)
def atan2(g: Builder, n: SourceNode) -> Any:
    """The angle of the quotient, half a turn on where x is negative; straight up or down where x is zero."""
    y, x = n.inputs
    turn = g.Where(g.Less(y, 0), g.constant(-math.pi, y.dtype), math.pi)
    angle = g.Atan(g.Div(y, x))
    angle = g.Where(g.Less(x, 0), g.Add(angle, turn), angle)
    return g.Where(g.Equal(x, 0), g.Mul(g.Sign(y), math.pi / 2), angle)


@tf.expand("LeftShift", "RightShift", inherit=False)
def shift(g: Builder, n: SourceNode) -> Any:
    """By as many bits as the type has less one at most, as TensorFlow does it."""
    x, by = n.inputs
    if x.dtype is None or x.dtype.kind != "u":
        raise Refused(f"{x.dtype}, where ONNX's BitShift takes unsigned integers")
    most = x.dtype.itemsize * 8 - 1
    return g.BitShift(x, g.Min(by, most), direction="LEFT" if n.op_type == "LeftShift" else "RIGHT")


# -- steps ---------------------------------------------------------------------------------------


@tf.expand("Bucketize", inherit=False)
def bucketize(g: Builder, n: SourceNode) -> Any:
    """The number of boundaries that are not above."""
    boundaries = g.constant(n.attr("boundaries"), np.float32)
    x = n.inputs[0] if n.inputs[0].dtype == np.float32 else g.Cast(n.inputs[0], to=np.dtype(np.float32))
    above = g.GreaterOrEqual(g.Unsqueeze(x, [-1]), boundaries)
    return g.ReduceSum(g.Cast(above, to=np.dtype(np.int32)), [-1], keepdims=0)


@tf.expand("FakeQuantWithMinMaxArgs", inherit=False)
def fake_quant_args(g: Builder, n: SourceNode) -> Any:
    return _fake_quant(g, n, np.float32(n.attr("min")), np.float32(n.attr("max")))


@tf.expand("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel", inherit=False)
def fake_quant_vars(g: Builder, n: SourceNode) -> Any:
    return _fake_quant(g, n, constant(n, 1, "min"), constant(n, 2, "max"))


def _fake_quant(g: Builder, n: SourceNode, low: Any, high: Any) -> Any:
    """Rounds to the steps that the bits have between bounds, moved so that zero is one of the steps."""
    least, most = float(n.attr("narrow_range")), 2.0 ** n.attr("num_bits") - 1
    step = (high - low) / (most - least)
    zero = np.clip(np.floor(least - low / step + 0.5), least, most)
    bottom, top = ((one - zero) * step for one in (least, most))
    x = floats(g, n.inputs[0])
    inside = g.Min(g.Max(x, g.constant(bottom, np.float32)), g.constant(top, np.float32))
    steps = g.Div(g.Sub(inside, g.constant(bottom, np.float32)), g.constant(step, np.float32))
    rounded = g.Floor(g.Add(steps, 0.5))
    return g.Add(g.Mul(rounded, g.constant(step, np.float32)), g.constant(bottom, np.float32))
