# SPDX-License-Identifier: Apache-2.0
"""Cases of the table in other element types: of every mapped operator, in every type that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, NotImplemented

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.functions import ACTIVATIONS, ELTWISE
from onedispatch.operators.declarations.registry import OpMapping, all_mappings
from tests.ops.case import OPSET, Array, Case, Input, case, f32, run_onnxruntime, value
from tests.ops.cases import CASES

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
EACH = 3  # cases of an operator in a type
MOST_ELEMENTS = 3000
MOVABLE = (*(str(row.numpy) for row in DTYPES.values()), "uint64", "float64")
# onnxruntime saturates where ONNX's reference wraps, as here: no values that get so far.
SATURATED = ("ReduceProd", "ReduceSumSquare", "Gemm")

REDUCED = ("int8", "uint8", "int16", "uint16", "int32", "uint32")  # exact, whatever the order

SLOW = {  # functions that are computed in steps
    row.onnx
    for table in (ACTIVATIONS, ELTWISE)
    for row in table.rows
    if {term for term, _ in row.work} - {"op", "mul"} and row.onnx != "Div"
}


def onnx_type(dtype: str) -> str:
    return f"tensor({ {'float32': 'float', 'float64': 'double'}.get(dtype, dtype) })"


def formal_types(one: Case) -> list[str]:
    """The type or type variable of each input of a case."""
    formals = list(onnx.defs.get_schema(one.op_type, one.opset, one.domain).inputs)
    return [formals[min(i, len(formals) - 1)].type_str for i in range(len(one.inputs))]


def allowed(one: Case, variable: str) -> set[str]:
    schema = onnx.defs.get_schema(one.op_type, one.opset, one.domain)
    return {
        kind
        for constraint in schema.type_constraints
        if constraint.type_param_str == variable
        for kind in constraint.allowed_type_strs
    }


# Operators whose further operands have a type of their own, which the result has too.
TOGETHER = ("RMSNormalization",)


def typed(one: Case, dtype: str) -> Case | None:
    """The case with its data in another type; None where ONNX has no such operator."""
    formals = formal_types(one)
    if onnx_type(dtype) not in allowed(one, formals[0]):
        later = replace(one, opset=22)  # has bfloat16 in more operators
        return typed(later, dtype) if dtype == "bfloat16" and one.opset == OPSET else None
    whole = "int" in dtype
    if whole and one.op_type == "Gemm" and {"alpha", "beta"} & one.attributes.keys():
        return None  # fractions of integers
    if one.attributes.get("reduction", "none") != "none" and dtype not in REDUCED:
        return None  # refused, or a rounding per update, for which there is no other answer
    weighted = one.op_type in ("Resize", "Upsample") and one.attributes.get("mode", "nearest") != "nearest"
    if weighted and (whole or dtype in ("bool", "float64")):
        return None  # sums of weighted elements are of floats, and refused of others
    inputs = []
    for i, (x, formal) in enumerate(zip(one.inputs, formals, strict=True)):
        if x is not None and (formal == formals[0] or one.op_type in TOGETHER):
            # onnxruntime stops the process where integers are divided by zero, or the least one by -1
            x = divisor(x, dtype) if one.op_type == "Div" and i == 1 else replace(x, dtype=dtype)
            if whole and one.op_type in SATURATED:
                x = replace(x, kind="small")
            if one.op_type == "ReduceMin":  # the least of unsigned numbers would be 0, whatever is done
                x = replace(x, kind="positive")
            if whole and x.kind == "value" and one.op_type == "Clip":
                x = replace(x, value=bound(x, dtype))
        inputs.append(x)
    return replace(one, inputs=tuple(inputs), note=f"{one.note}{dtype}")


def divisor(x: Input, dtype: str) -> Input:
    values = np.random.default_rng(7).choice([2, 3, 5, 7, 11], int(np.prod(x.shape))).tolist()
    return replace(x, dtype=dtype, kind="value", value=values)


def bound(x: Input, dtype: str) -> list[int] | int:
    """A bound between -1 and 1 as an integer, which it would be 0 of."""
    info = np.iinfo(dtype)
    low, high = max(info.min, -(2**53)), min(info.max, 2**53)  # of float32 are none of the ends of int64
    whole: list[int] | int = np.clip(np.asarray(x.value) * 40, low, high).astype(dtype).tolist()
    return whole


def named(mapping: OpMapping) -> tuple[str, ...]:
    return MOVABLE if mapping.dtypes == ("any",) else mapping.dtypes


def wanted(mapping: OpMapping) -> Iterator[Case]:
    """Small cases of a mapped operator in its types other than float32."""
    small = [
        one
        for one in CASES
        if (one.domain, one.op_type) == (mapping.domain, mapping.op_type)
        if one.device == "npu2" and one.answer is None and one.inputs[0]
        if one.inputs[0].dtype == "float32" and "special" not in one.id
        if sum(int(np.prod(x.shape)) for x in one.inputs if x) <= MOST_ELEMENTS
    ]
    small.sort(key=lambda one: -len(one.inputs[0].shape if one.inputs[0] else ()))
    for dtype in named(mapping):
        if dtype != "float32":
            made = [found for one in small if (found := typed(one, dtype)) is not None]
            yield from made[:: max(1, len(made) // EACH)][:EACH]


# Rows that fill no words, extents of 0, ranks from 0 to 6.
ODD = [
    *(case(op, f32(*a), f32(*b)) for op in ("Add", "Mul") for a, b in [
        ((), ()), ((3, 0), (1,)), ((1,), (5,)), ((3, 511), (511,)), ((2, 1, 5), (3, 1)),
        ((2, 1, 2, 1, 3, 5), (2, 1, 3, 1)),
    ]),
    *(case("Relu", f32(*shape)) for shape in [(), (2, 0, 5), (1,), (3, 511), (2, 1, 2, 1, 2, 3)]),
    *(case("Concat", f32(*a), f32(*b), axis=axis) for a, b, axis in [
        ((1,), (0,), 0), ((3, 5), (3, 511), 1), ((2, 1, 3), (2, 2, 3), 1),
        ((2, 1, 2, 1, 2, 3), (2, 1, 2, 1, 2, 1), 5),
    ]),
    case("Flatten", f32(3, 5), axis=0),
    case("Flatten", f32(2, 511), axis=2),
    *(case("Transpose", f32(*shape), perm=perm) for shape, perm in [
        ((3, 0), [1, 0]), ((511, 3), [1, 0]), ((2, 3, 5), [2, 0, 1]),
        ((2, 3, 2, 1, 2, 5), [5, 4, 3, 2, 1, 0]),
    ]),
    *(case("MaxPool", f32(*shape), kernel_shape=kernel, pads=pads) for shape, kernel, pads in [
        ((1, 2, 1), [1], [0, 0]), ((2, 1, 511), [3], [1, 1]), ((1, 3, 3, 5), [2, 3], [0, 1, 1, 1]),
    ]),
    *(case("ReduceSum", f32(*shape), value(axes, "int64"), keepdims=0) for shape, axes in [
        ((0,), [0]), ((3, 0), [0]), ((1,), [0]), ((3, 511), [1]), ((5, 3), [0]), ((2, 1, 2, 1, 2, 5), [4, 5]),
    ]),
    *(case("MatMul", f32(*a), f32(*b)) for a, b in [
        ((5,), (5,)), ((3, 0), (0, 5)), ((511,), (511, 3)), ((3, 511), (511, 1)),
        ((2, 1, 2, 1, 3, 5), (2, 1, 5, 3)),
    ]),
]  # fmt: skip
TYPED = [
    *(one for mapping in all_mappings() if not mapping.domain and onnx.defs.has(mapping.op_type)
      for one in wanted(mapping)),
    *(one for mapping in all_mappings() for odd in ODD if odd.op_type == mapping.op_type
      for dtype in DTYPES.values() if str(dtype.numpy) in named(mapping) and dtype.name != "f32"
      if (one := typed(odd, str(dtype.numpy))) is not None),
]  # fmt: skip


def answer(one: Case) -> Array:
    """The first output: onnxruntime's where it has the kernel."""
    if any(x is not None and x.dtype == "bfloat16" for x in one.inputs):
        if one.op_type == "Softmax":
            return softmax_in_steps(one)
        newer = onnx.defs.get_schema(one.op_type, one.opset).since_version > 22  # there is none before
        opset = one.opset if newer else min(one.opset, OPSET)
        wide = replace(widened("bfloat16", "float32", one), opset=opset)
        found = run_onnxruntime(wide.model, wide.feed)[0]
        short = found.dtype == np.float32 and one.op_type != "Cast"
        return found.astype(BFLOAT16) if short else found
    if one.op_type in ("Resize", "Upsample") and one.attributes.get("mode", "nearest") == "nearest":
        return placed(one)
    try:
        return run_onnxruntime(one.model, one.feed)[0]
    except (NotImplemented, InvalidGraph, Fail):
        if one.op_type == "Pad" and one.inputs[0]:  # whose reference knows no negative pads
            narrow = one.inputs[0].dtype
            wide = widened(narrow, "float64", one)
            return run_onnxruntime(wide.model, wide.feed)[0].astype(narrow)
        with np.errstate(all="ignore"):
            found = np.asarray(ReferenceEvaluator(one.model).run(None, one.feed)[0])
        # NumPy widens sums, which ONNX does not
        declared = one.model.graph.output[0].type.tensor_type.elem_type
        return found.astype(helper.tensor_dtype_to_np_dtype(declared))


def softmax_in_steps(one: Case) -> Array:
    """Every step of ONNX's function body in the type itself, sums wide: onnxruntime has no such kernel."""
    (x,), axis = one.arrays, one.attributes.get("axis", -1)
    assert x is not None
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    total = powers.astype(np.float32).sum(axis=axis, keepdims=True).astype(x.dtype)
    return np.asarray(powers / total)


def placed(one: Case) -> Array:
    """Of operators that only move elements, and of which neither onnxruntime nor onnx's reference has all
    types: where onnxruntime puts the numbers of the elements."""
    x, data = one.inputs[0], one.arrays[0]
    assert x is not None and data is not None
    numbers = np.arange(data.size, dtype=np.float32).reshape(data.shape)
    numbered = replace(x, dtype="float32", kind="value", value=numbers.tolist())
    moved = replace(one, inputs=(numbered, *one.inputs[1:]))
    (found,) = run_onnxruntime(moved.model, moved.feed)
    taken: Array = data.reshape(-1)[found.astype(np.int64)]
    return taken


def widened(narrow: str, dtype: str, one: Case) -> Case:
    """The same values in a type that has all of those of the ``narrow`` one."""
    inputs = [
        Input(x.shape, dtype, "value", x.const, array.astype(dtype).tolist())
        if x is not None and array is not None and x.dtype == narrow
        else x
        for x, array in zip(one.inputs, one.arrays, strict=True)
    ]
    made = one.result
    if made is not None and made.dtype == narrow:
        made = replace(made, dtype=dtype)
    return replace(one, inputs=tuple(inputs), result=made)
