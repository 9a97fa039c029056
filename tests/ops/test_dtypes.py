# SPDX-License-Identifier: Apache-2.0
"""Every mapped operator in every element type that its mapping lists and ONNX allows there.

Cases are those of the table in another type. The answers are onnxruntime's, or those of onnx's reference
evaluator where onnxruntime has no such kernel; bfloat16 is onnxruntime's float32, rounded once.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

import onedispatch
import onedispatch.cpp_ext._core as core
from onedispatch.operators.declarations.dtypes import DTYPES, OPEN
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.params import DTYPE_SHIFT
from onedispatch.operators.declarations.registry import mapping_for
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import KERNEL as ELTWISE_KERNEL
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.transactions import find_device
from tests.ops.case import EXACT, Array, Case, case, check, f32, integers, weight
from tests.ops.lowered import evaluate, reference
from tests.ops.typed import BFLOAT16, SLOW, TYPED, answer, onnx_type, typed
from tests.tables import each_case, operator_and_device, operator_and_types, sampled

EVERY = 24  # of further cases of an operator in a type one in so many; `make nightly` runs all


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


@pytest.mark.daily(2)
@each_case(sampled(TYPED, operator_and_types, EVERY), group=operator_and_device)
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
    moved, wide = {"int64", "uint64", "float64"}, {"int64"}
    integers_too = dict.fromkeys(("Add", "Mul", "ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"), wide)
    further = {"Concat": moved, "Transpose": moved, **integers_too}.get(op_type, set())
    assert (
        shown
        == {str(r.numpy) for r in OPEN.values() if onnx_type(str(r.numpy)) in kinds} - {"float32"} | further
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_convolutions_with_computed_weights(dtype: str) -> None:
    """Rounded once, as those with constant weights."""
    for wide in (
        case("Conv", f32(2, 6, 9, 11), f32(4, 3, 3, 3), f32(4), group=2, pads=[1, 0, 2, 1]),
        case("Conv", f32(1, 5, 7, 3), f32(5, 1, 3, 1), group=5, strides=[2, 1]),
        case("Conv", f32(1, 3, 31), f32(2, 3, 4)),
        case("Conv", f32(1, 3, 5, 5), weight(7, 3, 1, 1), f32(7)),
    ):
        one = typed(wide, dtype)
        assert one is not None
        session = onedispatch.InferenceSession(one.model, fallback="error")
        compare(session.run(None, one.feed)[0], answer(one), one)


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
    return np.frombuffer(op.parameter_blocks[0], np.uint32).tolist(), "npu2"


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
