# SPDX-License-Identifier: Apache-2.0
"""Our answer to a model beside onnxruntime's.

Where onnxruntime refuses a model, at load or at run, we refuse it with a typed error; where both
answer, in strict mode and with fallback, dtypes and shapes are equal and values close. What we do
otherwise on purpose is in ``ANSWERED`` and ``REFUSED``, with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

import onedispatch
from onedispatch import OneDispatchError, UnsupportedModelError
from tests.fuzz.maker import NEWEST, Array
from tests.fuzz.models import Model
from tests.ops import cases_grid_sample, cases_normalise, cases_recurrent, cases_reductions
from tests.ops.case import SUMS, TOLERANCES, Tolerance, check

RUNTIME_OPSET, RUNTIME_IR = 26, 13
"""The newest that onnxruntime takes; onnx may know newer ones."""


NEVER_ENDS = "does not come back"
CRASHES = "does not come back either: a segmentation fault"


@dataclass(frozen=True)
class Deviation:
    """Something that we do otherwise than onnxruntime on purpose: where ``pattern`` is found.

    ANSWERED looks into onnxruntime's message, REFUSED into ours, DIFFERENT into the model's description.
    """

    pattern: str
    reason: str


def _newer(first: int, last: int) -> str:
    return "|".join(str(version) for version in range(first + 1, last + 1)) or "none"


ANSWERED = (
    Deviation("Computed output dimension is <= 0", "a transposed convolution of nothing is empty"),
    Deviation(NEVER_ENDS, "a convolution of no channels is its bias"),
    Deviation("NOT_IMPLEMENTED", "ONNX has it; onnxruntime has no kernel for these types or this version"),
    Deviation(rf"Opset ({_newer(RUNTIME_OPSET, NEWEST)}) is under development", "onnx knows the version"),
    Deviation(
        rf"model IR version: ({_newer(RUNTIME_IR, onnx.IR_VERSION)}), max", "onnx knows the IR version"
    ),
    Deviation(
        "padding values must be non-negative", "SAME_LOWER with strides beyond the kernel pads nothing"
    ),
    Deviation("Dilation not supported for AutoPadType", "ONNX allows dilations with SAME padding"),
    Deviation("Calculated output dimension is negative", "pools: dilations are left out of SAME padding"),
    Deviation("Unsupported pooling size", "ONNX pools over any number of dimensions"),
    Deviation(r"input_shape.Size\(\) > 0", "a pool of no channels is empty, and ONNX has empty tensors"),
    Deviation(r"IsScalarOr1ElementVector\(a_zero_point\)", "ONNX allows a zero point per row of A"),
    Deviation(r"X_shape.NumDimensions\(\) == 4", "ONNX's LRN has any number of spatial dimensions"),
    Deviation(r"lrn.h:\d+ .*alpha_ > 0", "ONNX's LRN has any alpha"),
    Deviation(r"lrn.h:\d+ .*size_ % 2 == 1", "ONNX's LRN has even sizes too"),
    Deviation(
        r"Size of X.shape\[axis:\] must be at least 1",
        "rows of nothing are empty, and ONNX has empty tensors",
    ),
    Deviation("Can broadcast 0 by 0 or 1", "it has kept the dimensions of an empty tensor that was reduced"),
    Deviation("ratio must be in the range", "at inference a ratio that is computed is never read"),
    Deviation("Depth is negative", "it says so of a depth of 0 too: a OneHot of no columns"),
    Deviation("Integer division by zero", "ONNX says nothing of it, and its reference evaluator computes"),
    Deviation("shape input must be 1D tensor", "Expand by a number, which it takes where that is constant"),
    Deviation("Axes input is null", "an input without a name is one that is left out"),
    Deviation(r"Invalid sequence length: .*\[0,0\]", "of a tensor without elements no sequence is looked at"),
    Deviation("bound to different types", "the body of a function that onnxruntime has for float32 alone"),
    Deviation("InsertedPrecisionFreeCast", "a cast that onnxruntime puts in is no node of an old opset"),
)
"""onnxruntime refuses, and we may answer: the model is valid."""

REFUSED = (
    Deviation(r"shape \[.*\] by (onnxruntime|onnx's)", "onnxruntime keeps the dimensions of empty tensors"),
    Deviation(r"'axis': given -?\d{11}", "onnxruntime keeps 32 bits of an axis"),
    Deviation(
        r"axes: given \[.*\d{11}|axis must be in \[-rank", "onnxruntime reads no axes for empty tensors"
    ),
    Deviation("'noop_with_empty_axes'", "onnxruntime takes any number but 0 for 1"),
    Deviation("none for a scalar", "onnxruntime reads no axes for scalars"),
    Deviation(
        r"\(MeanVarianceNormalization\).*the axes are 0, 2 and 3",
        "onnxruntime leaves out axes that are not there",
    ),
    Deviation(r"\(CenterCropPad\), shape", "onnxruntime reads as many sizes as there are, and none below 0"),
    Deviation(r"\(PRelu\).*a shape that broadcasts to", "onnxruntime broadcasts to the slope as well"),
    Deviation("the scale .*finite numbers above zero", "onnxruntime divides by negative scales too"),
    Deviation("No Op registered for ThresholdedRelu", "onnxruntime has it before opset 10, ONNX has not"),
    Deviation(
        r"\(Einsum\).* for label '", "ONNX's inference gives a label one size; onnxruntime broadcasts 1"
    ),
    Deviation("the window along spatial dimension", "a window beyond the data: rounded in several ways"),
)
"""onnxruntime answers, and we refuse with a ``ModelError``: the model is not valid."""

DIFFERENT = (
    Deviation(
        r"Pool\(.*SAME_",
        "onnxruntime leaves dilations out of SAME padding, and cuts data off where strides exceed the window",
    ),
    Deviation(r"Reduce\w+\((float32\[[^\]]*\b0\b|y)", "onnxruntime keeps the dimensions of empty tensors"),
    Deviation(
        r"(Log|Sqrt|Pow|Acosh|Atanh|Acos|Asin)\(.*(Pool|LRN|Hardmax)\(",
        "where NaN goes: onnxruntime's pools and sums carry it elsewhere",
    ),
    Deviation(
        r"InstanceNormalization\((const )?float32\[\d+, \d+(, 1)+\]",
        "onnxruntime scales the mean for itself: planes of one value are not their bias alone",
    ),
    Deviation(
        r"(ReduceMean|Sign)\(.*MeanVarianceNormalization\(y",
        "onnxruntime's variance of equal values may be below zero, and its root NaN",
    ),
    Deviation(
        r"float16.*Pow\(const float16\[[^\]]*\], y",
        "onnxruntime takes exponents in float32, without rounding them to float16: which of them are whole",
    ),
    Deviation(
        r"(Sinh|Cosh|Tan|Reciprocal|Exp)\(.*(Sin|Cos|Tan)\(y",
        "an angle that is huge: a unit of it is any angle",
    ),
    Deviation(r"DequantizeLinear.*ReduceProd\(", "products beyond float32 meet a 0 in another order: NaN"),
    Deviation(r"Pow\(([^)]*int32|y\d).*int32", "0 to a negative power is no integer"),
    Deviation(r"Cast\(.*'to': (6|7)\b", "ONNX says nothing of NaN and of floats beyond the integers"),
    Deviation(r"Gemm\(.*\b0\b", "onnxruntime leaves beta out of products over nothing"),
    Deviation(r"MatMul\([^)]*, 0", "onnxruntime leaves products over nothing as they lie in memory"),
)
"""Both answer, each in its own way."""

CHAIN = Tolerance(ulp=64, scale=2e-5, absolute=2e-6)
"""Several nodes, each of which may round another way."""
LIKE_THEIR_CASES = {
    "ConvTranspose": SUMS,
    "Einsum": SUMS,
    "ReduceL1": cases_reductions.CLOSE,
    "ReduceL2": cases_reductions.CLOSE,
    # 64 numbers of both signs: what their sum is off by, 64 units of the largest, over what is left of it.
    "ReduceLogSum": replace(cases_reductions.LOGARITHM, absolute=1e-4),
    "GridSample": cases_grid_sample.NEAR,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), cases_recurrent.NEAR),
    **dict.fromkeys(
        ("InstanceNormalization", "LayerNormalization", "MeanVarianceNormalization", "RMSNormalization"),
        cases_normalise.CLOSE,
    ),
}
"""Sums and what comes of them, as close as the operators' own cases have to be."""
STEEP = frozenset(("Acos", "Asin", "Cosh", "Div", "Exp", "Log", "Reciprocal", "Sinh", "Tan"))
"""What makes a small difference large."""


@cache
def runtime_errors() -> tuple[type[Exception], ...]:
    """What onnxruntime raises: classes of its own without a common base, and builtins."""
    own = [v for v in vars(state).values() if isinstance(v, type) and issubclass(v, Exception)]
    return (*own, RuntimeError, ValueError, TypeError)


def _never_ends(model: Model) -> bool:
    """onnxruntime does not come back from a convolution without channels."""
    empty = {t.name for t in model.proto.graph.initializer if 0 in t.dims}
    empty |= {name for name, array in model.feed.items() if array.size == 0}
    return any(n.op_type == "Conv" and not empty.isdisjoint(n.input[1:2]) for n in model.proto.graph.node)


_SERIES = ("Sum", "Mean", "Max", "Min", "Concat")
"""onnxruntime reads those of their inputs that are not there."""


class Runtime:
    """onnxruntime's answer to a model: outputs, or a message."""

    def __init__(self, model: Model) -> None:
        self.outputs: list[Array] | None = None
        self.message = ""
        if _never_ends(model):
            self.message = NEVER_ENDS
            return
        empty = any(x.size == 0 for x in model.feed.values())
        kinds = {n.op_type for n in model.proto.graph.node}
        if empty and ("InstanceNormalization" in kinds or {"DequantizeLinear", "ConvTranspose"} <= kinds):
            self.message = CRASHES
            return
        if any(n.op_type in _SERIES and "" in n.input for n in model.proto.graph.node):
            self.message = CRASHES
            return
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(
                model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            self.outputs = [np.asarray(y) for y in session.run(None, model.feed)]
        except runtime_errors() as error:
            self.message = str(error)


def answer(model: Model, fallback: str) -> list[Array] | OneDispatchError:
    """Ours. Anything but a ``OneDispatchError`` is a finding and goes through."""
    try:
        session = onedispatch.InferenceSession(model.proto, fallback=fallback, threads=1)
        return [np.asarray(y) for y in session.run(None, model.feed)]
    except OneDispatchError as error:
        assert str(error)
        return error


def compare(model: Model) -> str:
    """ "answered", "refused" or "deviates". Raises AssertionError, with the model in words."""
    expected = Runtime(model)
    verdicts = {fallback: _compare(model, expected, fallback) for fallback in ("cpu", "error")}
    return verdicts["cpu"]


def _compare(model: Model, expected: Runtime, fallback: str) -> str:
    return judged(model, expected, answer(model, fallback), fallback)


def judged(model: Model, expected: Runtime, ours: list[Array] | OneDispatchError, fallback: str) -> str:
    """``compare`` of our answer."""
    where = f"{model.told} [fallback={fallback}]"
    if expected.outputs is None:
        if isinstance(ours, OneDispatchError):
            return "refused"
        known = any(re.search(d.pattern, expected.message) for d in ANSWERED)
        assert known, f"{where}: answered, onnxruntime refuses: {expected.message[:400]}"
        return "deviates"
    if isinstance(ours, OneDispatchError):
        if fallback == "error" and isinstance(ours, UnsupportedModelError):
            return "refused"
        known = any(re.search(d.pattern, str(ours)) for d in REFUSED)
        assert known, f"{where}: refused with {ours!r}, onnxruntime answers"
        return "deviates"
    assert len(ours) == len(expected.outputs)
    allowed = _tolerance(model.proto)
    if "float16" in model.told:  # rounded to 11 bits after every node
        steep = not STEEP.isdisjoint(node.op_type for node in model.proto.graph.node)
        widened = max(allowed.scale, 0.05 if steep else 4e-3)
        allowed = replace(allowed, ulp=max(allowed.ulp, 4), scale=widened)
    for actual, wanted in zip(ours, expected.outputs, strict=True):
        try:
            check(actual, wanted, allowed)
        except AssertionError as error:
            if differs_on_purpose(model):
                return "deviates"
            raise AssertionError(f"{where}: {error}") from None
    return "answered"


def differs_on_purpose(model: Model) -> bool:
    """Whether a row of ``DIFFERENT`` is about it."""
    return any(re.search(d.pattern, model.told) for d in DIFFERENT)


def _tolerance(proto: onnx.ModelProto) -> Tolerance:
    """That of the one operator, with something for sums that cancel, or the chain's."""
    ops = [node.op_type for node in proto.graph.node]
    if len(ops) > 1:
        return CHAIN if STEEP.isdisjoint(ops) else replace(CHAIN, scale=2e-4, absolute=2e-5)
    own = LIKE_THEIR_CASES.get(ops[0]) or TOLERANCES.get(ops[0], Tolerance(ulp=2))
    return replace(own, absolute=max(own.absolute, 2e-6))
