# SPDX-License-Identifier: Apache-2.0
"""Models that are no ONNX are refused, with the node and what it should have been; valid ones are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onedispatch
from onedispatch import ModelError
from onedispatch.dispatch.frontend.operator_checks import CHECKS
from onedispatch.dispatch.frontend.schemas import runtime_has
from onedispatch.operators.declarations.registry import all_mappings
from tests.ops.case import Array, run_onnxruntime

NEWEST = onnx.defs.onnx_opset_version()


def model(
    op_type: str, *arrays: Array, opset: int = 17, const: Sequence[int] = (), ir: int = 8, **attributes: Any
) -> onnx.ModelProto:
    """One node "n" of inputs x0, x1, ...; those of ``const`` are initializers."""
    names = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(op_type, names, ["y"], "n", **attributes)
    infos, constants = [], []
    for i, (name, array) in enumerate(zip(names, arrays, strict=True)):
        if i in const:
            constants.append(onnx.numpy_helper.from_array(array, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            infos.append(helper.make_tensor_value_info(name, kind, array.shape))
    outputs = [onnx.ValueInfoProto(name="y")]
    graph = helper.make_graph([node], "g", infos, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def f(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


INVALID: list[tuple[str, tuple[Array, ...], dict[str, Any], str]] = [
    ("Conv", (f(1, 5, 8, 8), f(4, 3, 3, 3)), {}, "5 channels; accepted: 3"),
    ("GroupNormalization", (f(1, 6, 8), f(6), f(6)), {"num_groups": 4, "opset": 21}, "'num_groups': given 4"),
    (
        "GroupNormalization",
        (f(1, 6, 8), f(2), f(6)),
        {"num_groups": 2, "opset": 21},
        r"'x1'.*\[6\] at opset 21",
    ),
    ("InstanceNormalization", (f(1, 6, 8), f(6), f(5)), {}, r"'x2'.*\[5\]; accepted: \[6\]"),
    ("LpNormalization", (f(3, 4),), {"p": 3}, "'p': given 3; accepted: 1 or 2"),
    ("LpNormalization", (f(3, 4),), {"axis": 2}, "'axis': given 2"),
    ("CumSum", (f(3, 4), ints(2)), {"const": (1,)}, "'x1'.*given 2; accepted: -2 to 1"),
    ("CumSum", (f(3, 4), ints(0, 1)), {"const": (1,)}, "accepted: one axis"),
    ("Conv", (f(1, 3, 8, 8), f(4, 3, 3, 3)), {"kernel_shape": [2, 2]}, r"\[2, 2\]; accepted: \[3, 3\]"),
    ("Conv", (f(1, 3, 8, 8), f(4, 3, 3, 3), f(5)), {}, r"'x2'.*\[5\]; accepted: \[4\]"),
    ("Cast", (f(3),), {"to": 10, "round_mode": "BOGUS", "opset": 24}, "'BOGUS'; accepted: up, down, nearest"),
    ("Conv", (f(1, 3, 8, 8), f(4, 3, 3, 3)), {"auto_pad": "BOGUS"}, "'BOGUS'; accepted: NOTSET"),
    ("Conv", (f(1, 3, 8, 8), f(4, 3, 3, 3)), {"auto_pad": "VALID", "pads": [1] * 4}, "not both"),
    ("Conv", (f(1, 3, 8, 8), f(4, 3, 3, 3)), {"group": 0}, "'group': given 0"),
    ("Conv", (f(1, 4, 8, 8), f(5, 2, 3, 3)), {"group": 2}, "a divisor of 5"),
    ("Conv", (f(1, 3, 2, 8), f(4, 3, 3, 3)), {}, "3 values; accepted: at most 2"),
    ("Conv", (f(1, 3, 8, 8), f(4, 3, 3, 3)), {"strides": [0, 1]}, "'strides'|stride"),
    ("GatherElements", (f(3, 4), ints(0).reshape(1, 1)), {"axis": 2}, "'axis': given 2"),
    ("GatherND", (f(3, 4), ints(0).reshape(1, 1)), {"batch_dims": 2}, "'batch_dims': given 2"),
    ("GatherElements", (f(3, 4), ints(0, 1)), {}, "rank 1; accepted: rank 2, that of the data|rank"),
    ("GatherElements", (f(), np.array(0)), {}, "a scalar; accepted: rank 1 or more"),
    (
        "GatherND",
        (f(3, 4), ints(0, 1).reshape(2, 1)),
        {"batch_dims": 1},
        r"\[2, 1\]; accepted: \[3\] in front",
    ),
    (
        "GatherND",
        (f(3, 4), ints(0, 0, 0)),
        {},
        r"\[3\]; accepted: 2 numbers in a tuple|indices|Last dimension",
    ),
    ("GatherElements", (f(3, 4), np.zeros((3, 5), np.int64)), {}, r"\[3, 5\]; accepted: \[3, 4\] at most"),
    ("LpNormalization", (f(),), {}, "a scalar; accepted: rank 1 or more"),
    ("MaxPool", (f(1, 1, 4),), {"kernel_shape": [2], "storage_order": 2}, "'storage_order': given 2"),
    ("ScatterElements", (f(3), ints(0, 1), f(3)), {}, r"'x2'.*\[3\]; accepted: \[2\]"),
    ("ScatterND", (f(3, 4), ints(0).reshape(1, 1), f(2, 4)), {}, r"'x2'.*\[2, 4\]; accepted: \[1, 4\]"),
    ("ScatterND", (f(3), ints(0, 1).reshape(1, 2), f(1)), {}, "accepted: 1 number in a tuple"),
    ("ScatterND", (f(3), ints().reshape(0, 1), f(1)), {}, r"'x2'.*\[1\]; accepted: \[0\]"),
    ("OneHot", (ints(0, 1), ints(3), f(2)), {"axis": 2, "const": (1,)}, "'axis': given 2; accepted: -2 to 1"),
    (
        "OneHot",
        (ints(0, 1), ints(-3), f(2)),
        {"const": (1,)},
        r"input 1 \('x1'\): given -3; accepted: 0 or more",
    ),
    ("OneHot", (ints(0, 1), np.full(1, np.nan, np.float32), f(2)), {}, r"given nan; accepted: 0 or more"),
    ("OneHot", (ints(0, 1), ints(-3), f(2)), {}, r"input 1 \('x1'\): given -3; accepted: 0 or more"),
    (
        "ReverseSequence",
        (f(3, 4), ints(1, 2, 3)),
        {"batch_axis": 2},
        "'batch_axis': given 2; accepted: 0 or 1",
    ),
    ("ReverseSequence", (f(3, 4), ints(1, 2, 3)), {}, r"'x1'.*\[3\]; accepted: \[4\], one length per batch"),
    (
        "ReverseSequence",
        (f(3, 4), ints(1, 2, 3, 4)),
        {"const": (1,)},
        r"'x1'\): given 4; accepted: lengths in",
    ),
    (
        "ReverseSequence",
        (f(3, 4), ints(1, -2, 3, 0)),
        {"const": (1,)},
        r"'x1'\): given -2; accepted: lengths in",
    ),
    ("ReverseSequence", (f(3, 4), ints(1, 2, 3)), {"batch_axis": 0}, "'time_axis': given 0; accepted: 1"),
    ("BitShift", (ints(1).astype(np.uint8),) * 2, {"direction": "UP"}, "'UP'; accepted: 'LEFT', 'RIGHT'"),
    ("Mod", (f(3), f(3)), {"fmod": 2}, "'fmod': given 2; accepted: 0, 1"),
    ("Mod", (f(3), f(3)), {}, "'fmod': given 0; accepted: 1 for float32, before opset 28"),
    ("ArgMin", (f(),), {}, "rank 1 or more|axis"),
    ("ArgMax", (f(),), {"axis": -1, "opset": 12}, "rank 1 or more|axis"),
    ("RMSNormalization", (f(3), f(7, 2, 3)), {"opset": 23}, r"'x1'.*\[7, 2, 3\]; accepted: a shape that"),
    ("LayerNormalization", (f(2, 3), f(3), f(2)), {}, r"'x2'.*\[2\]; accepted: a shape that broadcasts"),
    ("ConvTranspose", (f(1, 3, 4, 4), f(2, 3, 3, 3)), {}, "3 channels; accepted: 2"),
    ("ConvTranspose", (f(1, 3, 4, 4), f(3, 2, 3, 3), f(3)), {}, r"'x2'.*\[3\]; accepted: \[2\]"),
    ("ConvTranspose", (f(1, 4, 4), f(4, 2, 3)), {"group": 3}, "a divisor of 4"),
    ("ConvTranspose", (f(1, 3, 4, 4), f(3, 2, 3, 3)), {"strides": [0, 1]}, "'strides'|stride"),
    ("ConvTranspose", (f(1, 3, 4, 4), f(3, 2, 3, 3)), {"auto_pad": "BOGUS"}, "'BOGUS'; accepted: NOTSET"),
    ("MaxUnpool", (f(1, 1, 2, 2), ints(1, 2)), {"kernel_shape": [2, 2]}, r"\[2\]; accepted: \[1, 1, 2, 2\]"),
    ("Col2Im", (f(1, 5, 5), ints(5, 5), ints(2, 5)), {"const": [1, 2], "opset": 18}, "a multiple of 10"),
    ("Einsum", (f(2, 3), f(4, 5)), {"equation": "ij,jk->ik"}, "4 for label 'j'; accepted: 3|imension"),
    ("Einsum", (f(2, 3),), {"equation": "ijk->ik"}, "rank|imension"),
    ("Gelu", (f(3),), {"approximate": "erf", "opset": 20}, "'erf'; accepted: 'none', 'tanh'"),
    ("PRelu", (f(2, 3), f(2)), {}, r"\[2\]; accepted: a shape that broadcasts to \[2, 3\]"),
    ("Gemm", (f(3, 5), f(5, 4), f(2)), {}, r"'x2'.*\[2\]; accepted: .*\[3, 4\]"),
    ("GridSample", (f(1, 1, 3, 3), f(1, 2, 2, 2)), {"padding_mode": "BOGUS"}, "'BOGUS'; accepted: zeros"),
    ("LSTM", (f(3, 2, 5), f(1, 16, 5), f(1, 16, 4)), {"direction": "BOGUS"}, "'BOGUS'; accepted: forward"),
    (
        "RNN",
        (f(3, 2, 5), f(1, 4, 5), f(1, 4, 4), f(1, 8), np.array([3, 4], np.int32)),
        {"const": [4], "hidden_size": 4},
        r"'x4'.*\[3, 4\]; accepted: lengths in 0 to 3",
    ),
    ("LSTM", (f(3, 2, 5), f(1, 16, 6), f(1, 16, 4)), {"hidden_size": 4}, r"'x1'.*\[1, 16, 6\]; accepted"),
    ("GRU", (f(3, 2, 5), f(1, 12, 5), f(1, 12, 4)), {"hidden_size": 5}, "given 5; accepted: 4, as R says"),
    ("RNN", (f(3, 2, 5), f(1, 4, 5), f(1, 4, 4)), {"activations": ["Sine"]}, "'Sine'; accepted: Relu"),
    ("RNN", (f(3, 2, 5), f(1, 4, 5), f(1, 4, 4)), {"activations": ["Relu"] * 2}, "accepted: 1 of them"),
    ("Resize", (f(1, 3), f(0), f(2)), {"mode": "BOGUS"}, "'BOGUS'; accepted: 'nearest', 'linear', 'cubic'"),
    ("Gemm", (f(3, 5), f(6, 4)), {}, "5 rows"),
    ("Transpose", (f(2, 3),), {"perm": [0]}, r"\[0\]; accepted: a permutation of 0 to 1"),
    ("Transpose", (f(2, 3),), {"perm": [1, 1]}, "a permutation"),
    ("BatchNormalization", (f(1, 6, 4), f(6), f(6), f(7), f(6)), {}, r"'x3'.*\[7\]; accepted: \[6\]"),
    ("BatchNormalization", (f(2, 3, 4), *[f(3)] * 4), {"spatial": 0, "opset": 8}, r"accepted: \[3, 4\]"),
    ("Softmax", (f(2, 3),), {"axis": 1 << 40}, "'axis': given 1099511627776; accepted: -2 to 1"),
    ("Softmax", (f(2, 3),), {"axis": 2, "opset": 9}, "'axis': given 2; accepted: -2 to 1"),
    ("Softmax", (f(3),), {"opset": 9}, "'axis': given 1"),
    ("Squeeze", (f(1, 3),), {"axes": [-5], "opset": 9}, r"\[-5\]; accepted: -2 to 1"),
    ("Squeeze", (f(1, 3),), {"axes": [1], "opset": 9}, "axes of size 1"),
    ("Unsqueeze", (f(1, 3),), {"axes": [7], "opset": 9}, r"\[7\]; accepted: -3 to 2"),
    ("Unsqueeze", (f(1, 3),), {"axes": [0, 0], "opset": 9}, "each axis once"),
    ("ReduceSum", (f(1, 3),), {"axes": [2], "opset": 9}, r"\[2\]; accepted: -2 to 1"),
    ("ReduceSum", (f(1, 3), np.array(1)), {"const": [1]}, "rank 0; accepted: a list"),
    ("Concat", (f(1, 3), f(1, 3, 1)), {"axis": 0}, r"\[1, 3, 1\]"),
    ("Concat", (f(1, 3), f(1, 3)), {"axis": 2, "opset": 9}, "'axis'"),
    ("Flatten", (f(1, 3),), {"axis": 3}, "'axis': given 3"),
    ("Reshape", (f(2, 3), ints(4, 2)), {"const": [1]}, r"\[4, 2\]; accepted: 6 elements"),
    ("Reshape", (f(6), np.array(6)), {"const": [1]}, "rank 0; accepted: a list"),
    ("Reshape", (f(2, 3), ints(-1, -1)), {"const": [1]}, "-1 once"),
    ("MaxPool", (f(1, 1, 4, 4),), {"kernel_shape": [2, 2], "pads": [2, 0, 0, 0]}, "less than the kernel"),
    ("MaxPool", (f(1, 1, 4, 4),), {"kernel_shape": [2]}, "rank 3"),
    ("Clip", (f(2, 3), f(2)), {}, "a scalar"),
    (
        "Slice",
        (f(4, 5), ints(0, 1), ints(2)),
        {"const": [1, 2]},
        r"ends: given \[2\]; accepted: 2 numbers|sizes",
    ),
    ("Slice", (f(4, 5), ints(0), ints(2), ints(2)), {"const": [1, 2, 3]}, "-2 to 1|out of range"),
    ("Slice", (f(4, 5), ints(0, 0), ints(2, 2), ints(1, -1)), {}, "each axis once"),
    ("Slice", (f(4, 5), ints(0), ints(2), ints(1), ints(0)), {}, "numbers other than 0|step"),
    ("Slice", (f(4, 5),), {"opset": 9, "starts": [0], "ends": [1, 2]}, "starts|lengths"),
    ("Split", (f(4, 5), ints(1, 1)), {"axis": 1}, "5 together|1 size"),
    ("Split", (f(4, 5),), {"axis": 1, "split": [2, 2], "opset": 11}, "1 size|split"),
    ("Split", (f(4, 5),), {"axis": 2, "opset": 11}, "'axis': given 2; accepted: -2 to 1"),
    ("Pad", (f(4, 5), ints(1, 1, 1)), {}, "4 numbers"),
    ("Pad", (f(4, 5), ints(0, -3, 0, -3)), {}, "at least -5 for dimension 1"),
    ("Pad", (f(4, 5), ints(0, 0, 0, 0)), {"mode": "BOGUS"}, "'BOGUS'; accepted: constant, reflect, edge"),
    ("Pad", (f(4, 0), ints(0, 1, 0, 0)), {"mode": "edge"}, "to be repeated"),
    ("Pad", (f(4, 5), ints(1, 1), np.float32(0), ints(2)), {"opset": 18, "const": [2, 3]}, "-2 to 1|range"),
    ("Tile", (f(4, 5), ints(1, 2, 3)), {}, "2 numbers of 0 or more"),
    ("Tile", (f(4, 5), ints(1, -2)), {}, "2 numbers of 0 or more"),
    ("DepthToSpace", (f(1, 6, 2, 2),), {"blocksize": 2}, "square divides 6 channels"),
    ("DepthToSpace", (f(1, 4, 2, 2),), {"blocksize": 2, "mode": "BOGUS"}, "'BOGUS'; accepted: DCR, CRD"),
    ("DepthToSpace", (f(1, 4, 2, 2),), {"blocksize": 0}, "'blocksize'"),
    ("SpaceToDepth", (f(1, 4, 2, 3),), {"blocksize": 2}, r"\[2, 3\]"),
    ("SpaceToDepth", (f(4, 2, 3),), {"blocksize": 2}, "rank 4"),
    ("Trilu", (f(3),), {}, "rank 2 or more"),
    (
        "MaxPool",
        (np.ones((1, 1, 5), np.uint8),),
        {"kernel_shape": [2], "strides": [2], "ceil_mode": 1, "opset": 10},
        "in operator set 10 ",
    ),
    ("EyeLike", (f(3),), {}, "a matrix|rank"),
    ("ConstantOfShape", (ints(3, -1),), {"opset": 9}, "0 or more"),
    ("Range", tuple(np.array(n, np.float32) for n in (0, 3, 0)), {}, "step other than 0"),
    ("Range", tuple(np.array(n, np.float32) for n in (0, np.inf, 1)), {}, "accepted: finite numbers"),
    ("Range", tuple(np.array(n) for n in (-(2**62), 2**62, 1)), {}, r"a length below 2\^63"),
    ("MatMul", (f(), f(2)), {}, "rank 1 or more|rank"),
    ("MatMul", (f(2, 3), f(2, 3)), {}, "hape"),
    ("Sum", (f(2, 3), f(3)), {"opset": 7}, "nothing is broadcast"),
    ("Dropout", (f(2, 3), np.float32(1.5) * f()), {"const": [1]}, "below 1"),
    ("Add", (f(2, 3), f(2, 4)), {}, "hape"),
    ("Add", (f(2, 3), ints(1, 2, 3)), {}, "(?i)type"),
    ("Relu", (f(2, 3),), {"alpha": 0.5}, "attribute 'alpha'; accepted: no attributes"),
    ("LeakyRelu", (f(2, 3),), {"alpha": 1}, "'alpha': given type INT; accepted: type FLOAT"),
    ("LRN", (f(1, 2, 3, 4),), {}, "no attribute 'size'"),
    ("MaxPool", (f(1, 1, 4),), {"kernel_shape": [2], "kernel_shapes": [2]}, "Did you mean 'kernel_shape'"),
    ("Relu", (f(2, 3), f(2, 3)), {}, "2 inputs; accepted: 1 input"),
]


@pytest.mark.parametrize("fallback", ["cpu", "error"])
@pytest.mark.parametrize(
    ("op_type", "arrays", "options", "said"), INVALID, ids=[f"{i}-{row[0]}" for i, row in enumerate(INVALID)]
)
def test_no_runtime_takes_it_and_neither_do_we(
    op_type: str, arrays: tuple[Array, ...], options: dict[str, Any], said: str, fallback: str
) -> None:
    proto = model(op_type, *arrays, **options)
    const = options.get("const", ())
    feed = {f"x{i}": array for i, array in enumerate(arrays) if i not in const}
    if options.get("axis") != 1 << 40:  # of which onnxruntime keeps the lower 32 bits
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            run_onnxruntime(proto, feed)
    with pytest.raises(ModelError, match=said) as caught:
        onedispatch.InferenceSession(proto, fallback=fallback).run(None, feed)
    assert "n (" in str(caught.value) or "node name: n" in str(caught.value)


@pytest.mark.parametrize("fallback", ["cpu", "error"])
@pytest.mark.parametrize("const", [(), (1,)], ids=["computed", "constant"])
def test_topk_of_fewer_than_none(const: tuple[int, ...], fallback: str) -> None:
    proto, feed = model("TopK", f(4), ints(-1), const=const), {"x0": f(4), "x1": ints(-1)}
    proto.graph.node[0].output.append("places")
    for i in const:
        del feed[f"x{i}"]
    with pytest.raises(ModelError, match=r"n \(TopK\), input 1 \('x1'\): given -1; accepted: 0 or more"):
        onedispatch.InferenceSession(proto, fallback=fallback).run(None, feed)


def test_channels_are_those_of_rank_4() -> None:
    """onnxruntime leaves those of the axes out that the data has not."""
    with pytest.raises(ModelError, match="rank 2; accepted: rank 4 or more: the axes are 0, 2 and 3"):
        onedispatch.compile(model("MeanVarianceNormalization", f(2, 3)))


def test_remainders_of_floats_have_either_sign_since_opset_28() -> None:
    x, y = np.array([-3.5, 3.5], np.float32), np.array([2, -2], np.float32)
    (z,) = onedispatch.InferenceSession(model("Mod", x, y, opset=28)).run(None, {"x0": x, "x1": y})
    np.testing.assert_array_equal(z, [0.5, -0.5])


def test_range_takes_lists_of_one_value() -> None:
    """Of which inference has something to say only where it knows the values."""
    proto = model("Range", *(np.array([n], np.int64) for n in (1, 7, 2)), const=(0,))
    feed = {"x1": ints(7), "x2": ints(2)}
    (y,) = onedispatch.InferenceSession(proto).run(None, feed)
    np.testing.assert_array_equal(y, [1, 3, 5])


@pytest.mark.parametrize("opset", [0, -1, NEWEST + 1, 999])
def test_operator_sets_that_nobody_knows(opset: int) -> None:
    with pytest.raises(ModelError, match=rf"version {opset}; accepted: 1 to {NEWEST}"):
        onedispatch.compile(model("Relu", f(2), opset=opset))


@pytest.mark.parametrize("ir", [onnx.IR_VERSION + 1, 99])
def test_ir_versions_that_nobody_knows(ir: int) -> None:
    with pytest.raises(ModelError, match=rf"given {ir}; accepted: 1 to {onnx.IR_VERSION}"):
        onedispatch.compile(model("Relu", f(2), ir=ir))


def test_foreign_domains_pass() -> None:
    """No schema, no rule: such nodes are the host's affair."""
    node = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", alpha=2.0)
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 2]) for n in "ab"]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    (y,) = onedispatch.InferenceSession(proto).run(None, {"a": f(2, 2), "b": f(2, 2)})
    assert (y == 4).all()


def test_nodes_in_subgraphs_are_checked() -> None:
    inner = helper.make_node("Relu", ["x"], ["z"], "inner", bogus=1)
    branch = helper.make_graph([inner], "b", [], [onnx.ValueInfoProto(name="z")])
    node = helper.make_node("If", ["c"], ["y"], "n", then_branch=branch, else_branch=branch)
    infos = [
        helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2]),
    ]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ModelError, match=r"inner .*'bogus'"):
        onedispatch.compile(proto)


def test_rules_are_of_operators_that_exist() -> None:
    schemas = onnx.defs.get_all_schemas()
    known = {schema.name for schema in schemas}
    assert all(name in known or runtime_has(name, "") for name in CHECKS)
    # Operators without attributes, or with numbers alone, have little that inference does not see.
    plain = {s.name for s in schemas if {a.type.name for a in s.attributes.values()} <= {"FLOAT"}}
    missing = {m.op_type for m in all_mappings() if not m.domain} - set(CHECKS) - plain
    assert not missing, f"{missing}: say in operator_checks.py what their attributes and shapes may be"


@pytest.mark.parametrize("opset", [10, 11, 12, 18, 19, 21, 22])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_ceil_mode_counts_no_window_that_begins_behind_the_data(op_type: str, opset: int) -> None:
    if op_type == "LpPool" and opset < 18:
        pytest.skip("LpPool has ceil_mode since opset 18")
    x = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    proto = model(
        op_type, x, opset=opset, ceil_mode=1, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    (expected,) = run_onnxruntime(proto, {"x0": x})
    assert expected.shape == (1, 1, 2, 2)
    for fallback in ("cpu", "error")[: 1 if op_type == "LpPool" else 2]:
        (y,) = onedispatch.InferenceSession(proto, fallback=fallback).run(None, {"x0": x})
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize("opset", [7, 9, 10, 13, 19])
@pytest.mark.parametrize(("scale", "length"), [(0.7, 10), (2.3, 30), (3.3, 11), (1.1, 90), (0.9, 10)])
def test_resized_lengths_are_products_of_float32(scale: float, length: int, opset: int) -> None:
    """Of two resizings, where the second one's length follows from that of the first."""
    x = np.arange(2 * length, dtype=np.float32).reshape(1, 1, 2, length)
    scales = np.array([1, 1, 1, max(scale, 1.0) if opset < 10 else scale], np.float32)
    op_type = "Upsample" if opset < 10 else "Resize"
    names = {7: (), 9: ("s",), 10: ("s",)}.get(opset, ("", "s"))
    more = {"scales": scales.tolist()} if opset == 7 else {}
    nodes = [
        helper.make_node(op_type, [a, *names], [b], mode="nearest", **more)
        for a, b in (("x", "half"), ("half", "y"))
    ]
    ends = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape), onnx.ValueInfoProto(name="y")
    constants = [onnx.numpy_helper.from_array(scales, "s")] if names else []
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    (expected,) = run_onnxruntime(proto, {"x": x})
    for fallback in ("cpu", "error"):
        (y,) = onedispatch.InferenceSession(proto, fallback=fallback).run(None, {"x": x})
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -2.0, 1e30])
def test_scales_that_make_no_length_are_refused(scale: float) -> None:
    x = np.zeros((1, 1, 2, 3), np.float32)
    proto = model("Resize", x, np.zeros(0, np.float32), np.array([1, 1, 1, scale], np.float32), const=[1, 2])
    with pytest.raises((ModelError, onedispatch.UnsupportedModelError)):
        onedispatch.InferenceSession(proto, fallback="error")


_WEIGHTS = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 1, 4, 4)
_SAME = {"strides": [3, 2], "output_padding": [2, 1]}


@pytest.mark.parametrize("opset", [11, 12, 13, 22])
@pytest.mark.parametrize(
    ("op_type", "second", "attributes"),
    [
        ("GatherND", ints(0, 0, -1, 2), {}),
        ("ConvTranspose", _WEIGHTS, {"auto_pad": "SAME_UPPER", **_SAME}),
        ("ConvTranspose", _WEIGHTS[..., :1], {"auto_pad": "SAME_LOWER", **_SAME}),
        ("ConvTranspose", _WEIGHTS, {"output_shape": [3, 8]}),
        ("ConvTranspose", _WEIGHTS, {"output_shape": [2, 3], "auto_pad": "SAME_UPPER", "strides": [1, 2]}),
    ],
)
def test_shapes_are_those_that_onnxruntime_computes(
    op_type: str, second: Array, attributes: dict[str, Any], opset: int
) -> None:
    x = np.linspace(-3, 2, 20, dtype=np.float32).reshape(1, 1, 4, 5)
    proto = model(op_type, x, second, opset=opset, const=[1] * (op_type != "GatherND"), **attributes)
    feed = {"x0": x} | ({"x1": second} if op_type == "GatherND" else {})
    (expected,) = run_onnxruntime(proto, feed)
    for fallback in ("cpu", "error"):
        (y,) = onedispatch.InferenceSession(proto, fallback=fallback).run(None, feed)
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12])
@pytest.mark.parametrize(
    ("op_type", "axes"),
    [("Squeeze", [-2]), ("Squeeze", [-4, 2]), ("Squeeze", []), ("Unsqueeze", [-1]), ("Unsqueeze", [-1, 0])],
)
def test_axes_from_the_end_in_every_operator_set(op_type: str, axes: list[int], opset: int) -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 1, 3)
    proto = model(op_type, x, opset=opset)
    proto.graph.node[0].attribute.append(
        helper.make_attribute("axes", axes, attr_type=onnx.AttributeProto.INTS)
    )
    (expected,) = run_onnxruntime(proto, {"x0": x})
    for fallback in ("cpu", "error"):
        (y,) = onedispatch.InferenceSession(proto, fallback=fallback).run(None, {"x0": x})
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("op_type", ["Sum", "Mean", "Max"])
def test_inputs_of_a_series_are_all_there(op_type: str) -> None:
    """onnxruntime ends with a segmentation fault."""
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op_type, ["x", ""], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ModelError, match="input 1 without a name"):
        onedispatch.compile(model)
