# SPDX-License-Identifier: Apache-2.0
"""Models built by ``od.Graph``: what they compute, what is inferred, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from onnx import helper, numpy_helper

import onedispatch as od
from onedispatch.operators.plugin import registrations

X = np.random.default_rng(0).standard_normal((2, 3, 8, 10)).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def brought() -> Iterator[None]:
    @od.kernel("building::plus", inputs="x", outputs="y", scalars={"by": ("f32", 1.0)})
    class Plus:
        def infer(self, n: Any) -> Any:
            return {"y": n["x"].like()}

        def body(self, t: Any) -> None:
            t.y[:] = t.x + t.by

    od.maps("Plus", domain="building")(Plus)

    class Halves(od.Layer):
        name = "building::halves"
        outputs = "low high"

        class Params:
            at: int

        def shape(self, n: Any) -> Any:
            rows, rest = n["x"].shape[0], n["x"].shape[1:]
            return {
                "low": n["x"].like((self.params.at, *rest)),
                "high": n["x"].like((rows - self.params.at, *rest)),
            }

        def global_(self, g: Any) -> None:
            g.copy(g.low, g.x[: self.params.at])
            g.copy(g.high, g.x[self.params.at :])

    yield
    registrations.forget(__file__)


def test_layers_and_operators_in_one_graph() -> None:
    g = od.Graph("both")
    x = g.input("x", (2, 3, 8, 10))
    low, high = g.add_layer("building::halves", [x], params={"at": 1})
    assert (low.shape, high.dtype) == ((1, 3, 8, 10), "f32")
    y = g.add_layer("Mul", [g.add_layer("building::plus", [low], params={"by": 2.0}), high])
    y = g.add_layer("Clip", [y, None, 0.25])
    parts = g.add_layer("Split", [y], params={"axis": 1, "num_outputs": 3}, outputs=3)
    g.output(parts[0], "first")
    g.output(parts[2])
    session = od.InferenceSession(g, fallback="error")
    first, third = session.run(None, {"x": X})
    wanted = np.minimum((X[:1] + np.float32(2)) * X[1:], np.float32(0.25))
    assert (first == wanted[:, :1]).all() and (third == wanted[:, 2:]).all()
    assert [one.name for one in session.get_outputs()] == ["first", parts[2].name]
    compiled = od.compile(g, "npu1", fallback="error")
    assert (od.InferenceSession(compiled).run(["first"], {"x": X})[0] == first).all()


def test_one_graph_static_and_dynamic() -> None:
    for sizes in ((2, 3, 8, 10), ("n", 3, "rows", 10)):
        g = od.Graph()
        y = g.add_layer("Relu", [g.input("x", sizes)])
        assert y.shape == sizes and y.is_static == (sizes == (2, 3, 8, 10))
        low, _ = g.add_layer("building::halves", [y], params={"at": 1})
        assert low.shape == ((1, 3, 8, 10) if y.is_static else None)
        g.output(g.add_layer("Neg", [low]), "y")
        (made,) = od.InferenceSession(g, fallback="error").run(None, {"x": X})
        assert (made == -np.maximum(X[:1], 0)).all()


def test_the_model_is_onnxs() -> None:
    g = od.Graph("plain", opset=17)
    x = g.input("x", (4, 6))
    y = g.add_layer("Gemm", [x, np.ones((5, 6), np.float32)], params={"transB": 1}, name="product")
    g.add_layer("Add", [y, g.constant(np.ones(5, np.float32), "never read")])
    g.output(y, "y")
    g.output(y, "again")
    model = g.to_onnx()
    onnx.checker.check_model(model, full_check=True)
    assert model.SerializeToString() == g.to_onnx().SerializeToString()
    assert [one.name for one in model.graph.initializer] == ["constant", "never read"]
    feed = {"x": np.arange(24, dtype=np.float32).reshape(4, 6)}
    ours, theirs = (made.run(None, feed) for made in (od.InferenceSession(g), _runtime(model)))
    assert all((a == b).all() for a, b in zip(ours, theirs, strict=True))


def _runtime(model: onnx.ModelProto) -> Any:
    return onnxruntime.InferenceSession(model.SerializeToString())


def test_results_as_they_are_stated() -> None:
    g = od.Graph()
    x = g.input("x", ("n", 4), "i8")
    y = g.add_layer("Abs", [x], outputs=[("y", (3, 4), "i8")])
    assert (y.name, y.shape, y.dtype) == ("y", (3, 4), "i8")  # n was open: what is stated holds
    low, high = g.add_layer(
        "building::halves", [g.input("z", ("n", 2))], {"at": 1}, [None, ("high", (7, 2), None)]
    )
    assert (low.shape, high.shape, high.dtype) == (None, (7, 2), "f32")


def test_shapes_follow_from_values_that_follow_from_shapes() -> None:
    g = od.Graph()
    x = g.input("x", (2, 3, 8, 10))
    rows = g.add_layer("Slice", [g.add_layer("Shape", [x]), np.array([0]), np.array([1])])
    wanted = g.add_layer("Concat", [rows, np.array([-1])], {"axis": 0})
    y = g.add_layer("Reshape", [x, wanted])
    assert y.shape == (2, 240)
    other = od.Graph()
    open_size = other.add_layer("Reshape", [other.input("z", ("n", "m", 4)), np.array([0, -1])])
    assert open_size.shape == ("n", None)  # and no made-up name
    g.output(y)
    (made,) = od.InferenceSession(g, fallback="error").run(None, {"x": X})
    assert (made == X.reshape(2, 240)).all()


def test_constants_are_copies() -> None:
    array = np.ones(10, np.float32)
    g = od.Graph()
    y = g.add_layer("Add", [g.input("x", X.shape), g.constant(array)])
    g.output(g.add_layer("Mul", [y, array]))
    array[:] = 7
    (made,) = od.InferenceSession(g, fallback="error").run(None, {"x": X})
    assert (made == X + 1).all()


def test_as_many_results_as_a_mapping_infers() -> None:
    @od.maps("Twice", domain="building", infer=lambda n: [(n.inputs[0].dtype, n.inputs[0].shape)] * 2)
    def twice(node: Any, lowering: Any) -> None:
        raise AssertionError("nothing is compiled")

    g = od.Graph()
    first, second = g.add_layer("building::Twice", [g.input("x", (2, 3))])
    assert first.shape == second.shape == (2, 3)


def graph() -> tuple[od.Graph, Any]:
    g = od.Graph("wrong")
    return g, g.input("x", (2, 3))


WRONG: dict[str, tuple[Callable[[od.Graph, Any], object], type[Exception], str]] = {
    "operator": (lambda g, x: g.add_layer("Rellu", [x]), od.UnknownOperatorError, "Did you mean 'Relu'"),
    "layer": (lambda g, x: g.add_layer("building::pluss", [x]), od.UnknownOperatorError, "'building::Plus'"),
    "no text": (lambda g, x: g.add_layer(3, [x]), od.InputError, '"acme::crop"'),  # type: ignore[arg-type]
    "too few": (lambda g, x: g.add_layer("Add", [x]), od.ModelError, "Add_0.*1 input"),
    "too many": (lambda g, x: g.add_layer("Add", [x, x, x]), od.ModelError, "Add_0.*3 inputs"),
    "shapes": (lambda g, x: g.add_layer("Add", [x, np.ones((5, 7), np.float32)]), od.ModelError, "Add_0"),
    "types": (lambda g, x: g.add_layer("Add", [x, np.ones(3, np.int8)]), od.ModelError, "Add_0"),
    "parameter": (lambda g, x: g.add_layer("Relu", [x], {"a": 1}), od.InputError, "'a'.*no parameters"),
    "its kind": (lambda g, x: g.add_layer("Concat", [x], {"axis": "q"}), od.InputError, "'axis'.*INT"),
    "missing": (lambda g, x: g.add_layer("Concat", [x, x]), od.ModelError, "Concat_0.*axis"),
    "of a layer": (
        lambda g, x: g.add_layer("building::halves", [x], {"att": 1}),
        od.InputError,
        "Did you mean 'at'",
    ),
    "type of a layer's": (
        lambda g, x: g.add_layer("building::halves", [x], {"at": "q"}),
        od.KernelError,
        "scalar at",
    ),
    "missing in a layer": (
        lambda g, x: g.add_layer("building::halves", [x]),
        od.KernelError,
        "at: given nothing",
    ),
    "what no attribute is": (
        lambda g, x: g.add_layer("building::plus", [x], {"by": object()}),
        od.InputError,
        "by",
    ),
    "no dictionary": (lambda g, x: g.add_layer("Relu", [x], [1]), od.InputError, "params"),  # type: ignore[arg-type]
    "stated shape": (
        lambda g, x: g.add_layer("Relu", [x], outputs=[("q", (2, 4), None)]),
        od.InputError,
        r"Relu_0 .*'q'.*\[2, 4\], as stated; accepted: \[2, 3\], as it is inferred",
    ),
    "stated rank": (
        lambda g, x: g.add_layer("Relu", [x], outputs=[(None, (2,), None)]),
        od.InputError,
        r"\[2\]",
    ),
    "stated type": (
        lambda g, x: g.add_layer("Relu", [x], outputs=[(None, None, "i8")]),
        od.InputError,
        "int8",
    ),
    "stated otherwise": (
        lambda g, x: g.add_layer("Relu", [x], outputs=[("a", (1,))]),
        od.InputError,
        "output 0",
    ),  # type: ignore[list-item]
    "results": (lambda g, x: g.add_layer("Relu", [x], outputs=2), od.InputError, "2 results"),
    "results of a layer": (
        lambda g, x: g.add_layer("building::halves", [x], {"at": 1}, 1),
        od.InputError,
        "1 result",
    ),
    "no list": (lambda g, x: g.add_layer("Relu", x), od.InputError, "inputs.*a list"),
    "text": (lambda g, x: g.add_layer("Relu", ["x"]), od.InputError, "input 0: given 'x'"),
    "objects": (lambda g, x: g.constant(object()), od.InputError, "elements of object"),
    "of another graph": (
        lambda g, x: od.Graph("o").add_layer("Relu", [x]),
        od.InputError,
        "x of graph wrong",
    ),
    "name of an input": (lambda g, x: g.input("x", (1,)), od.InputError, "a name that is taken"),
    "name of a result": (lambda g, x: g.add_layer("Relu", [x], outputs=["x"]), od.InputError, "is taken"),
    "name of a layer": (
        lambda g, x: [g.add_layer("Relu", [x], name="r") for _ in range(2)],
        od.InputError,
        "layer 'r'",
    ),
    "name of an output": (
        lambda g, x: [g.output(g.add_layer("Relu", [x]), "y") for _ in range(2)],
        od.InputError,
        "output 'y'",
    ),
    "size": (lambda g, x: g.input("q", (-1,)), od.InputError, "sizes from 0 on"),
    "dtype": (lambda g, x: g.input("q", (1,), "f99"), od.InputError, "'f99'.*f32, bf16"),
    "no value": (lambda g, x: g.output(3), od.InputError, "a value of this graph"),  # type: ignore[arg-type]
    "no outputs": (lambda g, x: g.to_onnx(), od.ModelError, "no outputs"),
    "parameter of a kernel": (
        lambda g, x: g.add_layer("building::plus", [x], {"byy": 1.0}),
        od.KernelError,
        "Plus_0.*'byy'.*Did you mean 'by'",
    ),
    "beyond float32": (
        lambda g, x: g.add_layer("building::plus", [x], {"by": 1e300}),
        od.InputError,
        "'by': given 1e.300; accepted: numbers that float32 holds",
    ),
    "constant beyond f32": (lambda g, x: g.add_layer("Add", [x, 1e300]), od.InputError, "1e.300.*f32 holds"),
    "elements": (
        lambda g, x: g.add_layer("Reshape", [x, np.array([5, 5])]),
        od.ModelError,
        r"Reshape_0.*given \[5, 5\]; accepted: 6 elements",
    ),
    "parts": (
        lambda g, x: g.add_layer("Split", [x], {"axis": 1, "num_outputs": 3}, outputs=2),
        od.ModelError,
        "Split_0.*num_outputs",
    ),
    "operands are shown": (
        lambda g, x: g.add_layer("MatMul", [x, x]),
        od.ModelError,
        r"^node MatMul_0.*given \(x: tensor\(float\)\[2, 3\], x: tensor\(float\)\[2, 3\]\): Incomp",
    ),
    "True": (lambda g, x: g.add_layer("Relu", [x], outputs=True), od.InputError, "outputs: given True"),
    "many": (lambda g, x: g.add_layer("Relu", [x], outputs=1 << 40), od.InputError, "outputs"),
    "results alike": (
        lambda g, x: g.add_layer("Split", [x], {"axis": 1}, outputs=["a", "a"]),
        od.InputError,
        "Split_0.*'a' twice",
    ),
    "operator of onnxruntime": (
        lambda g, x: g.add_layer("com.microsoft::Geluu", [x]),
        od.UnknownOperatorError,
        "Did you mean 'com.microsoft::Gelu'",
    ),
    "no dtype": (lambda g, x: g.input("q", (1,), None), od.InputError, "dtype: given None"),
    "code of NumPy": (lambda g, x: g.input("q", (1,), "<i8"), od.InputError, "dtype: given '<i8'"),
    "huge": (lambda g, x: g.input("q", (1 << 70,)), od.InputError, "shape: given"),
    "no UTF-8": (lambda g, x: g.input("\ud800", (1,)), od.InputError, "text that can be printed"),
    "needed": (lambda g, x: g.add_layer("Add", [None, x]), od.ModelError, r"Add_0.*input 0 \(A\) without"),
    "opset": (lambda g, x: od.Graph(opset=99), od.InputError, "opset"),
    "device": (lambda g, x: od.Graph(device="npu9"), od.DeviceError, "npu9"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refusals(case: str) -> None:
    wrong, error, said = WRONG[case]
    g, x = graph()
    with pytest.raises(error, match=said):
        wrong(g, x)
    if case not in ("name of an output", "no outputs"):  # nothing of it is left
        g.output(g.add_layer("Neg", [x]), "z")
        assert {node.op_type for node in g.to_onnx().graph.node} <= {"Neg", "Relu"}


STEPS: dict[str, Callable[[Any, np.random.Generator], tuple[list[Any], dict[str, Any]]]] = {
    "Relu": lambda x, rng: ([x], {}),
    "Add": lambda x, rng: ([x, rng.standard_normal(x.shape[-1]).astype(np.float32)], {}),
    "Transpose": lambda x, rng: ([x], {"perm": rng.permutation(len(x.shape)).tolist()}),
    "Concat": lambda x, rng: ([x, x], {"axis": int(rng.integers(len(x.shape)))}),
    "Unsqueeze": lambda x, rng: ([x, np.asarray([int(rng.integers(len(x.shape)))])], {}),
    "ReduceMax": lambda x, rng: ([x, np.asarray([0])], {"keepdims": 1}),
    "Slice": lambda x, rng: ([x, *map(np.asarray, ([0], [max(1, x.shape[0] - 1)], [0]))], {}),
}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=3, max_size=8), st.integers(0, 1000))
def test_chains_are_as_if_written_by_hand(steps: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    g = od.Graph()
    x = g.input("x", (2, 3, 5))
    nodes, constants, last = [], [], "x"
    for number, op in enumerate(steps):
        if len(x.shape) > 4 and op == "Unsqueeze":
            continue
        (_, *others), params = STEPS[op](x, rng)
        x = g.add_layer(op, [x, *others], params)
        names = [f"c{number}_{i}" for i in range(len(others))]
        if op == "Concat":
            names, others = [last], []
        constants += [
            numpy_helper.from_array(array, name) for name, array in zip(names, others, strict=False)
        ]
        nodes.append(helper.make_node(op, [last, *names], [f"v{number}"], **params))
        last = f"v{number}"
    g.output(x, "y")
    shapes = [helper.make_tensor_value_info("x", 1, [2, 3, 5]), helper.make_tensor_value_info(last, 1, None)]
    by_hand = helper.make_graph(nodes, "g", shapes[:1], shapes[1:], constants)
    model = helper.make_model(by_hand, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feed = {"x": rng.standard_normal((2, 3, 5)).astype(np.float32)}
    (wanted,) = _runtime(model).run(None, feed)
    (made,) = od.InferenceSession(g, fallback="error").run(None, feed)
    assert x.shape == wanted.shape and (made == wanted).all()
