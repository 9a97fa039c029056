# SPDX-License-Identifier: Apache-2.0
"""Every merge fires, and does not where it must not; ``inspect`` says which took a node, or what failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onedispatch as od
from onedispatch.dispatch.compiler import mapping
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.kernels.conv import Conv
from onedispatch.operators.kernels.conv_integer import IntegerConv
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.operators.kernels.matmul import MatMul
from onedispatch.operators.kernels.normalise import Normalise
from onedispatch.operators.kernels.quantise import Dequantise
from onedispatch.operators.kernels.reduce import Reduce
from onedispatch.operators.kernels.table import Table

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

# With merges of their own.
OPERATORS = (Eltwise, MatMul, Conv, IntegerConv, Reduce, Dequantise, Normalise, Table)
# Operands: x, r, m of the run; w, k and the like are constants.
SHAPES = {
    "x": (4, 8), "r": (4, 8), "m": (8, 8), "w": (8, 8), "k": (4, 8), "b": (8,), "o": (4, 1), "c": (), "z": (),
    "u": (1, 1, 1), "image": (1, 4, 6, 6), "kernel": (3, 4, 3, 3), "filters": (3, 4, 3, 3), "s": (3,),
    "byte_odd": (4, 6), "t": (6,), "byte_k": (4, 8), "f": (),
    "byte_image": (1, 4, 6, 6), "byte_kernel": (3, 4, 3, 3), "byte_own": (4, 1, 3, 3),
    "byte_filters": (3, 4, 3, 3),
    "byte_x": (4, 8), "byte_w": (8, 8), "byte_m": (8, 8), "byte_z": (), "d": (), "e": (8,), "g": (),
    "half_x": (4, 8), "half_w": (8, 8), "half_image": (1, 4, 6, 2), "half_rows": (1, 4, 6, 1),
}  # fmt: skip
# By what they are called; all others are float32.
TYPES = {"half": np.float16, "byte": np.uint8}
OF_THE_RUN = (
    *("x", "r", "m", "d", "e", "image", "filters"),
    *("byte_x", "byte_m", "byte_odd", "byte_image", "byte_filters", "half_x", "half_image", "half_rows"),
)

SIGMOID, LEAKY = ("com.microsoft.QLinear" + name for name in ("Sigmoid", "LeakyRelu<alpha=0.2>"))
TIMES, PLUS = ("com.microsoft.QLinear" + name for name in ("Mul", "Add"))
ONE = "c, byte_z, g, byte_z"  # scales and zero points of a function
WEIGHED = "f, byte_z, byte_kernel, f, byte_z, c, byte_z"  # of a convolution, and its weights

# By merge: nodes that it takes, and nodes that it does not, with the condition that fails.
FIRES = {
    "matmul_bias": ["p = MatMul(x, w)\n y = Add(p, b)", "p = MatMul(x, w)\n y = Add(b, p)"],
    "matmul_factor": [
        "p = MatMul(x, m)\n y = Mul(p, c)",
        "p = MatMul(x, w)\n y = Div(p, c)",
        "p = MatMul(x, w)\n q = Add(p, b)\n y = Mul(c, q)",
    ],
    "matmul_activation": ["p = MatMul(x, m)\n y = Relu(p)", "p = MatMul(x, w)\n q = Add(p, b)\n y = Tanh(q)"],
    "dequantise_activation": ["p = DequantizeLinear(byte_x, c, byte_z)\n y = Tanh(p)"],
    "dequantise_table": [
        "q = DequantizeLinear(byte_x, c, byte_z)\n p = Tanh(q)\n y = QuantizeLinear(p, g, byte_z)",
        "q = DequantizeLinear(byte_x, c)\n p = Exp(q)\n y = QuantizeLinear(p, g)",
        "p = DequantizeLinear(byte_x, c)\n y = QuantizeLinear(p, g, byte_z)",
    ],
    "dequantise_integers": [
        "p = DequantizeLinear(byte_x, c, byte_z)\n y = LayerNormalization(p, b, b)",
        "p = DequantizeLinear(byte_x, c)\n y = MeanVarianceNormalization<axes=[1]>(p)",
    ],
    "normalise_quantise": [
        "p = LayerNormalization(x, b, b)\n y = QuantizeLinear(p, g, byte_z)",
        "q = DequantizeLinear(byte_x, c)\n p = LayerNormalization(q, b)\n y = QuantizeLinear(p, g)",
        "q = Add(x, r)\n p = LayerNormalization(q, b)\n y = QuantizeLinear(p, g)",
    ],
    "table_composed": [
        f"p = {SIGMOID}(byte_x, {ONE})\n y = {TIMES}(byte_x, c, byte_z, p, g, byte_z, f, byte_z)",
        f"p = {SIGMOID}(byte_x, {ONE})\n y = {TIMES}(p, g, byte_z, byte_x, c, byte_z, f, byte_z)",
        f"p = {SIGMOID}(byte_x, {ONE})\n y = {PLUS}(p, g, byte_z, byte_z, c, byte_z, f, byte_z)",
        f"p = {LEAKY}(byte_x, {ONE})\n y = {SIGMOID}(p, g, byte_z, f, byte_z)",
    ],
    "integer_conv_table": [
        f"p = QLinearConv(byte_image, {WEIGHED})\n y = {SIGMOID}(p, {ONE})",
        f"p = QLinearConv(byte_image, {WEIGHED})\n q = {LEAKY}(p, {ONE})\n y = {SIGMOID}(q, {ONE})",
        f"p = QLinearConv<group=4>(byte_image, {WEIGHED.replace('kernel', 'own')})\n "
        f"q = {SIGMOID}(p, {ONE})\n y = {TIMES}(p, c, byte_z, q, g, byte_z, f, byte_z)",
    ],
    "matmul_as_floats": ["p = MatMulInteger(byte_x, byte_w, byte_z)\n y = Cast<to=1>(p)"],
    "matmul_scale": [
        "q = MatMulInteger(byte_x, byte_w, byte_z, byte_z)\n p = Cast<to=1>(q)\n y = Mul(p, d)",
        "q = MatMulInteger(byte_x, byte_m)\n p = Cast<to=1>(q)\n y = Mul(e, p)",
        "q = MatMulInteger(byte_x, byte_w)\n p = Cast<to=1>(q)\n y = Mul(b, p)",
    ],
    "matmul_float32": [
        "p = MatMul(half_x, half_w)\n y = Cast<to=1>(p)",
        "p = MatMul(half_x, half_w)\n q = Relu(p)\n y = Cast<to=1>(q)",
    ],
    "conv_batch_norm": ["p = Conv(image, kernel)\n y = BatchNormalization(p, s, s, s, s)"],
    "conv_activation": [
        "p = Conv(image, filters)\n y = Sigmoid(p)",
        "p = Conv(image, kernel)\n q = BatchNormalization(p, s, s, s, s)\n y = Relu(q)",
    ],
    "eltwise_activation": ["p = Add(x, r)\n y = Relu(p)"],
    "reduce_activation": ["p = ReduceMax<axes=[1]>(x)\n y = Tanh(p)"],
    "reduce_joined": [
        "p = GlobalAveragePool(half_image)\n y = Flatten(p)",
        "p = ReduceMax<axes=[2, 3]>(half_image)\n y = Flatten(p)",
    ],
    "eltwise_residual": [
        "p = Add(x, r)\n y = LayerNormalization(p, b, b)",
        "p = Add(x, k)\n y = LayerNormalization(p, b)",
        "p = Add(image, image)\n y = MeanVarianceNormalization<axes=[2, 3]>(p)",
    ],
}
# Merges after which others may have the value between them, and nodes that need it.
KEEPS = {
    "eltwise_residual": [
        "p = Add(x, r)\n q = LayerNormalization(p, b, b)\n y = Add(q, p)",
        "p = Add(x, r)\n q = LayerNormalization(p, b)\n s = Relu(p)\n y = Add(q, s)",
        "p = Add(x, r)\n q = LayerNormalization(p, b)\n s = LayerNormalization(p, b, b)\n y = Add(s, q)",
        "p = Add(x, r)\n q = LayerNormalization(p, b)\n s = Add(q, p)\n y = LayerNormalization(s, b)",
    ],
}
KINDS = {
    "eltwise_residual": "normalise",
    "dequantise_table": "table",
    "dequantise_integers": "normalise",
    "integer_conv_table": "integer_conv",
}  # what both become, where it is not of the producer's kind
STOPS = [
    ("matmul_bias", "p = MatMul(x, w)\n y = Add(p, r)", "r is no constant: a product would get a residual"),
    ("matmul_bias", "p = MatMul(x, m)\n y = Add(p, b)", "m is no constant matrix"),
    ("matmul_bias", "p = MatMul(x, w)\n y = Add(p, o)", "o: float32[4, 1] beside columns of p"),
    ("matmul_bias", "p = MatMul(x, w)\n q = Add(p, b)\n y = Add(q, b)", "MatMul_0 has a bias already"),
    ("matmul_bias", "p = MatMul(x, w)\n q = Relu(p)\n y = Add(q, b)", "relu is applied to the result"),
    ("matmul_bias", "p = MatMul(x, w)\n q = Add(p, b)\n y = Add(q, p)", "(of MatMul_0) is read by Add_2 too"),
    ("matmul_factor", "p = MatMul(x, w)\n y = Div(p, z)", "z is 0 (nearest: factors of 1e-30 to 1e+30)"),
    ("matmul_factor", "p = MatMul(x, w)\n q = Relu(p)\n y = Mul(q, c)", "relu is applied to the result"),
    ("matmul_activation", "p = MatMul(x, w)\n q = Relu(p)\n y = Tanh(q)", "relu is applied to the result"),
    ("matmul_activation", "p = MatMul(x, w)\n q = Relu(p)\n y = Add(q, p)", "(of MatMul_0) is read by Add_2"),
    ("dequantise_activation", "p = DequantizeLinear(byte_x, c)\n q = Relu(p)\n y = Tanh(q)", "relu is"),
    (
        "dequantise_table",
        "p = DequantizeLinear(byte_x, d)\n y = QuantizeLinear(p, g)",
        "one constant scale and one constant zero point",
    ),
    ("dequantise_integers", "p = DequantizeLinear(byte_x, d)\n y = LayerNormalization(p, b)", "one constant"),
    (
        "dequantise_integers",
        "p = DequantizeLinear(byte_x, c)\n q = Relu(p)\n y = LayerNormalization(q, b)",
        "relu is applied to the result of dequantise already",
    ),
    (
        "dequantise_integers",
        "p = DequantizeLinear(byte_odd, c)\n y = LayerNormalization(p, t)",
        "rows of whole words",
    ),
    ("normalise_quantise", "p = LayerNormalization(x, b)\n y = QuantizeLinear(p, d)", "one constant scale"),
    (
        "table_composed",
        f"p = {SIGMOID}(byte_x, {ONE})\n y = {PLUS}(p, g, byte_z, byte_k, c, byte_z, f, byte_z)",
        "byte_k: uint8[4, 8] beside bytes (nearest: one number)",
    ),
    (
        "integer_conv_table",
        f"p = QLinearConv(byte_image, {WEIGHED.replace('kernel', 'filters')})\n y = {SIGMOID}(p, {ONE})",
        "are no constants",
    ),
    (
        "matmul_as_floats",
        "p = MatMulInteger(byte_x, byte_w)\n q = Neg(p)\n s = Cast<to=1>(p)\n "
        "t = Cast<to=1>(q)\n y = Add(s, t)",
        "p (of MatMulInteger_0) is read by Neg_1 too",
    ),
    (
        "matmul_scale",
        "p = MatMulInteger(byte_x, byte_w)\n q = Cast<to=1>(p)\n y = Mul(q, o)",
        "o: float32[4, 1] beside columns of q",
    ),
    (
        "matmul_scale",
        "p = MatMulInteger(byte_x, byte_w)\n q = Cast<to=1>(p)\n s = Mul(q, d)\n y = Mul(s, e)",
        "has a bias or a scale already",
    ),
    (
        "matmul_float32",
        "p = MatMul(half_x, half_w)\n q = Cast<to=1>(p)\n s = Relu(p)\n t = Cast<to=1>(s)\n y = Add(q, t)",
        "(of MatMul_0) is read by",
    ),
    ("reduce_activation", "p = ReduceMax<axes=[1]>(x)\n q = Relu(p)\n y = Tanh(q)", "relu is applied to the"),
    ("reduce_joined", "p = ReduceMax<axes=[2]>(half_rows)\n y = Flatten(p)", "rows that stay as they are"),
    ("conv_batch_norm", "p = Conv(image, filters)\n y = BatchNormalization(p, s, s, s, s)", "no constants"),
    ("matmul_factor", "p = MatMul(x, w)\n y = Mul(p, u)", "u: float32[1, 1, 1] adds dimensions"),
    (
        "conv_activation",
        "p = Conv(image, kernel)\n q = Relu(p)\n y = Tanh(q)",
        "relu is applied to the result of conv already",
    ),
    (
        "conv_batch_norm",
        "p = Conv(image, kernel)\n q = Relu(p)\n y = BatchNormalization(q, s, s, s, s)",
        "relu is applied to the result of conv already",
    ),
    ("eltwise_residual", "p = Add(x, b)\n y = LayerNormalization(p, b)", "two of one shape"),
    (
        "eltwise_residual",
        "p = Add(x, r)\n q = Relu(p)\n y = LayerNormalization(q, b)",
        "relu is applied to the sum first",
    ),
    (
        "eltwise_residual",
        "p = Add(x, r)\n q = Relu(p)\n s = LayerNormalization(p, b, b)\n y = Add(q, s)",
        "p (of Add_0) is read by Relu_1 before",
    ),
    ("eltwise_activation", "p = Add(x, r)\n q = Relu(p)\n y = Tanh(q)", "relu is applied to the result"),
]  # fmt: skip


def dtype_of(name: str) -> type[np.generic]:
    return TYPES.get(name.partition("_")[0], np.float32)


def drawn(rng: np.random.Generator, name: str, shape: Sequence[int], around: int = 0) -> np.ndarray[Any, Any]:
    """Numbers of a tensor: of bytes all, of floats normal ones, or those ``around`` a number."""
    dtype = dtype_of(name)
    if dtype is np.uint8:
        return np.asarray(rng.integers(0, 256, shape), dtype)
    return np.asarray(rng.random(shape) - 0.5 + around if around else rng.standard_normal(shape), dtype)


def model(nodes: str, *outputs: str) -> onnx.ModelProto:
    """``nodes`` make y; ``outputs`` are values that leave too."""
    head = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
    proto = onnx.parser.parse_model(f"{head} g (float[1] x) => (float[1] y) {{ {nodes} }}")
    del proto.graph.input[:], proto.graph.output[:]
    made = {name for node in proto.graph.node for name in node.output}
    rng = np.random.default_rng(7)
    for name in dict.fromkeys(n for node in proto.graph.node for n in node.input if n not in made):
        if name in OF_THE_RUN:
            kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype_of(name)))
            info = onnx.helper.make_tensor_value_info(name, kind, SHAPES[name])
            proto.graph.input.append(info)
        else:
            array = drawn(rng, name, SHAPES[name], around=1) if name != "z" else np.zeros((), np.float32)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in ("y", *outputs))
    return proto


def compared(proto: onnx.ModelProto) -> list[od.NodePlacement]:
    """The placement of a model whose results are those of onnxruntime."""
    session = od.InferenceSession(proto, fallback="error")
    rng = np.random.default_rng(8)
    feed = {}
    for one in session.get_inputs():
        feed[one.name] = drawn(rng, one.name, one.shape)
    halves = any(array.dtype == np.float16 for array in feed.values())
    within = 1e-3 if halves else 2e-5  # onnxruntime rounds to float16 once more
    theirs = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feed)
    for mine, other in zip(session.run(None, feed), theirs, strict=True):
        if other.dtype == np.uint8:  # float functions between integers are as near as the integers
            of_bytes = all("QLinear" in node.op_type for node in proto.graph.node)
            np.testing.assert_allclose(mine.astype(int), other.astype(int), rtol=0, atol=0 if of_bytes else 1)
            continue
        np.testing.assert_allclose(mine, other, rtol=within, atol=within)
    return list(session.placement)


@pytest.mark.parametrize(("merge", "nodes"), [(name, one) for name, some in FIRES.items() for one in some])
def test_a_merge_takes_nodes_and_is_named(merge: str, nodes: str) -> None:
    rows = compared(model(nodes))
    names = [row.node for row in rows]
    for row in rows:
        others = ", ".join(name for name in names if name != row.node)
        kind = KINDS.get(merge, merge.partition("_")[0])
        assert row.reason.startswith(f"as {kind} together with {others}: merge ")
        assert row.reason.endswith(f"merge {merge}") and "did not fire" not in row.remark


@pytest.mark.parametrize(("merge", "nodes", "condition"), STOPS)
def test_a_merge_says_what_failed(merge: str, nodes: str, condition: str) -> None:
    rows = compared(model(nodes))
    (told,) = (
        row for row in rows if f"merge {merge} did not fire: " in row.remark and condition in row.remark
    )
    assert f"merge {merge}" not in told.reason


@pytest.mark.parametrize("merge", sorted(FIRES))
def test_a_value_that_leaves_the_model_is_not_merged_away(merge: str) -> None:
    proto = model(FIRES[merge][0], "p")
    at = next(i for i, node in enumerate(proto.graph.node) if "p" in node.output)
    maker, reader = compared(proto)[at : at + 2]
    told = f"merge {merge} did not fire: p (of {maker.node}) is an output of the model"
    assert (told in reader.remark) == (merge not in KEEPS)
    assert (f"merge {merge}" in reader.reason) == (merge in KEEPS)


@pytest.mark.parametrize(("merge", "nodes"), [(name, one) for name, some in KEEPS.items() for one in some])
@pytest.mark.parametrize("outputs", [(), ("p",)], ids=["inside", "leaves"])
def test_a_value_that_others_need_is_written_too(merge: str, nodes: str, outputs: tuple[str, ...]) -> None:
    first, second, *others = compared(model(nodes, *outputs))
    kind = KINDS[merge]
    assert first.reason == f"as {kind} together with {second.node}: merge {merge}"
    assert second.reason == f"as {kind} together with {first.node}: merge {merge}"
    assert not any(first.node in row.reason for row in others)


def classes(one: type[Operator]) -> Iterator[type[Operator]]:
    yield one
    for other in one.__subclasses__():
        yield from classes(other)


def test_every_merge_has_nodes_that_it_takes_and_nodes_that_it_does_not() -> None:
    own = {f"{one.kind}_{merge.name}" for one in OPERATORS for merge in one.merges}
    others = {merge.name for one in classes(Operator) for merge in one.merges} - {
        merge.name for one in OPERATORS for merge in one.merges
    }
    assert not others and own == set(FIRES) == {name for name, *_ in STOPS}
    keeping = (f"{one.kind}_{merge.name}" for one in OPERATORS for merge in one.merges if merge.keep)
    assert set(keeping) == set(KEEPS)


def test_a_rule_and_a_merge_are_told_together() -> None:
    rows = {
        row.op_type: row.reason
        for row in compared(model("p = MatMul(x, w)\n q = Sigmoid(p)\n y = Mul(p, q)"))
    }
    told = "rule silu, with Mul_2: Swish as matmul together with MatMul_0: merge matmul_activation"
    assert rows["Sigmoid"] == told


def test_what_does_not_fit_together_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = Operator.check_fits

    def check(self: Operator) -> None:
        if self.activation.code == "relu" and self.kind == "matmul":
            raise mapping.Unsupported("together they are too large")
        fits(self)

    monkeypatch.setattr(Operator, "check_fits", check)
    *_, row = compared(model("p = MatMul(x, w)\n y = Relu(p)"))
    assert row.remark == "merge matmul_activation did not fire: together they are too large"


def test_what_refuses_late_says_that_it_was_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = Operator.transaction

    def late(self: Operator) -> bytes:
        if self.activation.code == "relu" and self.kind == "matmul":
            raise mapping.Unsupported("too much of it")
        return transaction(self)

    monkeypatch.setattr(Operator, "transaction", late)
    first, row = compared(model("p = MatMul(x, w)\n y = Relu(p)"))
    assert first.reason == "as matmul" and not first.remark
    assert row.remark == "merge matmul_activation did not fire: too much of it"


def test_one_value_of_many_readers_is_told_quickly() -> None:
    """Each reader names one other, not all of them."""
    readers = "\n ".join(f"y{i} = Relu(p)" for i in range(40))
    rows = compared(model(f"p = MatMul(x, w)\n y = Abs(p)\n {readers}", *(f"y{i}" for i in range(40))))
    assert all(row.remark.count(" is read by ") == 1 for row in rows[1:])
