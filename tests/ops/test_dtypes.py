# SPDX-License-Identifier: Apache-2.0
"""Every mapped operator in every element type that its mapping lists and ONNX allows there.

Cases are those of the table in another type. The answers are onnxruntime's, or those of onnx's reference
evaluator where onnxruntime has no such kernel; bfloat16 is onnxruntime's float32, rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, NotImplemented

import onedispatch
import onedispatch.cpp_ext._core as core
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.functions import ACTIVATIONS, ELTWISE, Activation
from onedispatch.operators.declarations.params import DTYPE_SHIFT
from onedispatch.operators.declarations.registry import Mapping, all_mappings, mapping_for
from onedispatch.operators.families.elementwise import KERNEL as ELTWISE_KERNEL
from onedispatch.operators.families.elementwise import Eltwise
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.transactions import find_device
from tests.ops.case import EXACT, OPSET, Array, Case, Input, case, check, integers, run_onnxruntime
from tests.ops.cases import CASES
from tests.ops.lowered import evaluate, reference

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
EACH = 3  # cases of an operator in a type
MOST_ELEMENTS = 3000
MOVABLE = (*(str(row.numpy) for row in DTYPES.values()), "int64", "uint64", "float64")
# onnxruntime saturates where ONNX's reference wraps, as here: no values that get so far.
SATURATED = ("ReduceProd", "ReduceSumSquare", "Gemm")
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


def typed(one: Case, dtype: str) -> Case | None:
    """The case with its data in another type; None where ONNX has no such operator."""
    formals = formal_types(one)
    if onnx_type(dtype) not in allowed(one, formals[0]):
        later = replace(one, opset=22)  # has bfloat16 in more operators
        return typed(later, dtype) if dtype == "bfloat16" and one.opset == OPSET else None
    whole = "int" in dtype
    if whole and one.op_type == "Gemm" and {"alpha", "beta"} & one.attributes.keys():
        return None  # fractions of integers
    inputs = []
    for i, (x, formal) in enumerate(zip(one.inputs, formals, strict=True)):
        if x is not None and formal == formals[0]:
            # onnxruntime stops the process where integers are divided by zero, or the least one by -1
            x = divisor(x, dtype) if one.op_type == "Div" and i == 1 else replace(x, dtype=dtype)
            if whole and one.op_type in SATURATED:
                x = replace(x, kind="small")
        inputs.append(x)
    return replace(one, inputs=tuple(inputs), note=f"{one.note}{dtype}")


def divisor(x: Input, dtype: str) -> Input:
    values = np.random.default_rng(7).choice([2, 3, 5, 7, 11], int(np.prod(x.shape))).tolist()
    return replace(x, dtype=dtype, kind="value", value=values)


def wanted(mapping: Mapping) -> Iterator[Case]:
    """Small cases of a mapped operator in its types other than float32."""
    small = [
        one
        for one in CASES
        if one.op_type == mapping.op_type and one.device == "npu2" and one.answer is None and one.inputs[0]
        if one.inputs[0].dtype == "float32" and "special" not in one.id
        if sum(int(np.prod(x.shape)) for x in one.inputs if x) <= MOST_ELEMENTS
    ]
    small.sort(key=lambda one: -len(one.inputs[0].shape if one.inputs[0] else ()))
    names = MOVABLE if mapping.dtypes == ("any",) else mapping.dtypes
    for dtype in names:
        if dtype != "float32":
            made = [found for one in small if (found := typed(one, dtype)) is not None]
            yield from made[:: max(1, len(made) // EACH)][:EACH]


TYPED = [one for mapping in all_mappings() if not mapping.domain for one in wanted(mapping)]


def answer(one: Case) -> Array:
    """The first output: onnxruntime's where it has the kernel."""
    if any(x is not None and x.dtype == "bfloat16" for x in one.inputs):
        wide = replace(in_float32(one), opset=min(one.opset, OPSET))
        widened = run_onnxruntime(wide.model, wide.feed)[0]
        return widened.astype(BFLOAT16) if widened.dtype == np.float32 else widened
    try:
        return run_onnxruntime(one.model, one.feed)[0]
    except (NotImplemented, InvalidGraph, Fail):
        with np.errstate(all="ignore"):
            found = np.asarray(ReferenceEvaluator(one.model).run(None, one.feed)[0])
        # NumPy widens sums; ONNX's output has the type of the input
        data = one.arrays[0]
        return found.astype(data.dtype) if found.dtype.kind in "iuf" and data is not None else found


def in_float32(one: Case) -> Case:
    """The same values in float32."""
    inputs = [
        Input(x.shape, "float32", "value", x.const, array.astype(np.float32).tolist())
        if x is not None and array is not None and x.dtype == "bfloat16"
        else x
        for x, array in zip(one.inputs, one.arrays, strict=True)
    ]
    return replace(one, inputs=tuple(inputs))


def compare(actual: Array, expected: Array, one: Case) -> None:
    """Bit for bit where nothing is approximated; else one rounding of a two-byte float more."""
    if expected.dtype not in (BFLOAT16, np.float16):
        check(actual, expected, one.allowed)
        return
    assert actual.dtype == expected.dtype
    a, e = actual.astype(np.float32), expected.astype(np.float32)
    if one.allowed == EXACT and one.op_type not in SLOW:
        check(a, e, EXACT)
        return
    np.testing.assert_array_equal(np.isnan(a), np.isnan(e))
    finite = np.isfinite(e)
    np.testing.assert_array_equal(a[~finite & ~np.isnan(e)], e[~finite & ~np.isnan(e)])
    unit = float(ml_dtypes.finfo(actual.dtype).eps)
    scale = np.abs(e[finite]).max(initial=0) * one.allowed.scale
    bound = (
        unit * np.abs(e[finite]) + one.allowed.absolute + scale + float(ml_dtypes.finfo(actual.dtype).tiny)
    )
    assert (np.abs(a[finite] - e[finite]) <= bound).all()


@pytest.mark.parametrize("one", TYPED, ids=lambda one: one.id)
def test_every_type_that_is_listed(one: Case) -> None:
    expected = answer(one)
    one.__dict__["expected"] = [expected]  # what lowering takes the output's type from
    session = onedispatch.InferenceSession(one.model, fallback="error")
    compare(session.run(None, one.feed)[0], expected, one)
    compare(evaluate(one, reference), expected, one)


@pytest.mark.parametrize(
    "op_type",
    [
        *("Add", "Mul", "Relu", "Concat", "Transpose", "MatMul", "Gemm", "MaxPool", "AveragePool"),
        *(f"Reduce{mode}" for mode in ("Sum", "Max", "Min", "Mean", "Prod")),
    ],
)
def test_all_types_of_these_are_shown(op_type: str) -> None:
    """Whatever ONNX allows there and the array's kernels have."""
    schema = onnx.defs.get_schema(op_type, 22)
    kinds = {kind for c in schema.type_constraints for kind in c.allowed_type_strs}
    shown = {one.inputs[0].dtype for one in TYPED if one.op_type == op_type and one.inputs[0]}
    assert shown == {str(r.numpy) for r in DTYPES.values() if onnx_type(str(r.numpy)) in kinds} - {
        "float32"
    } | ({"int64", "uint64", "float64"} if op_type in ("Concat", "Transpose") else set())


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_division_never_traps(dtype: str) -> None:
    """What has no quotient is zero; the least number by -1 wraps. onnxruntime does not survive these."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([7, least, most, 0, least, 1, most], dtype)
    y = np.array([0, most, 0, 0, most if least == 0 else -1, 2, most], dtype)
    quotients = [0, -1 if least else 0, 0, 0, least, 0, 1]
    one = case("Div", integers(dtype, 7), integers(dtype, 7))
    session = onedispatch.InferenceSession(one.model, fallback="error")
    np.testing.assert_array_equal(session.run(None, {"x0": x, "x1": y})[0], np.array(quotients, dtype))


@pytest.mark.parametrize("shape", [(1 << 16, 5), (3, 1 << 17), (70001,), (5, 7, 3001)], ids=str)
def test_long_and_odd_rows(shape: tuple[int, ...]) -> None:
    """Rows longer than a core's memory, and many short ones."""
    for one in (
        case("Add", integers("uint8", *shape), integers("uint8", shape[-1])),
        case("Concat", integers("int8", *shape), integers("int8", *shape[:-1], 3), axis=-1),
        case("Transpose", integers("int16", *shape), perm=list(reversed(range(len(shape))))),
        case("Flatten", integers("uint8", *shape), axis=0),
    ):
        session = onedispatch.InferenceSession(one.model, fallback="error")
        np.testing.assert_array_equal(session.run(None, one.feed)[0], one.expected[0])


def test_a_type_that_does_not_map_says_what_would() -> None:
    node = NodeSpec(
        "n",
        "Exp",
        "",
        21,
        [TensorSpec("x", np.dtype("int32"), (3,))],
        [TensorSpec("y", np.dtype("int32"), (3,))],
    )
    mapping = mapping_for("", "Exp")
    assert mapping is not None
    lowering = Lowering(find_device("npu2"))
    lowering.begin(node)
    with pytest.raises(Unsupported, match=r"Exp of int32 \(x\) \(nearest: float32, bfloat16, float16\)"):
        mapping.function(node, lowering)


def param_block(func: str, act: str) -> tuple[list[int], str]:
    """The words of an addition's parameter block, or a copy's, in float32."""
    tensors = [TensorSpec(name, np.dtype("float32"), (16,)) for name in ("a", "b", "y")]
    inputs = tensors[:1] if func == "copy" else tensors[:2]
    op = Eltwise("op", func, inputs, tensors[2], find_device("npu2"), activation=Activation(act))
    return np.frombuffer(op.super_kernel_params(), np.uint32).tolist(), "npu2"


def test_the_cores_check_element_types_too() -> None:
    """A block that says otherwise than the declaration is refused by the array, word by word."""
    as_i32 = DTYPES["i32"].code << DTYPE_SHIFT
    words, device = param_block("add", "none")
    assert core.charged_cycles(np.array(words, np.uint32).tobytes(), device, most=1)
    words[ELTWISE_KERNEL.layout["x1"]] |= as_i32
    with pytest.raises(ValueError, match=r"x1 element type.*with out as it is, accepted: 0 .f32"):
        core.charged_cycles(np.array(words, np.uint32).tobytes(), device, most=1)
    words, device = param_block("copy", "exp")
    for name in ("x0", "out"):
        words[ELTWISE_KERNEL.layout[name]] |= as_i32
    with pytest.raises(ValueError, match=r"act of i32 .exp.*it is defined for 0 .f32"):
        core.charged_cycles(np.array(words, np.uint32).tobytes(), device, most=1)
