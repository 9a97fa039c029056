# SPDX-License-Identifier: Apache-2.0
"""What is said of mistakes in plug-ins: which node, which kernel, and what its author can do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onedispatch as od
from onedispatch.operators.interface.operator import Lowering, NodeSpec
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.operators.plugin import registrations
from tests import plugins
from tests.plugins import value

DOMAIN = "mistaken"


pytestmark = pytest.mark.usefixtures("no_plugins")


def model(op_type: str, dtype: Any = np.float32, **attributes: Any) -> onnx.ModelProto:
    nodes = [
        helper.make_node(op_type, ["x"], ["t"], "n", domain=DOMAIN, **attributes),
        helper.make_node("Identity", ["t"], ["y"], "end"),
    ]
    return plugins.model(nodes, [value("x", [4, 8], dtype)], [value("y", [4, 8], dtype)])


X = np.ones((4, 8), np.float32)


class Like:
    def infer(self, n: Any) -> Any:
        return {"z": n["x"].like()}


def test_a_body_that_raises_is_for_its_author_to_correct() -> None:
    @od.maps("Raises", domain=DOMAIN)
    @od.kernel(f"{DOMAIN}::raises", inputs="x", outputs="z")
    class Raises(Like):
        def body(self, t: Any) -> None:
            raise KeyError("no such row")

    with pytest.raises(od.KernelError) as caught:
        od.InferenceSession(model("Raises"), fallback="error").run(None, {"x": X})
    text = str(caught.value)
    assert "node 'n" in text and "no such row" in text and "overlay" not in text
    assert "Correct it in test_plugin_errors.py: `onedispatch kernel check`" in text


@pytest.mark.parametrize("fallback", ["cpu", "error"])
def test_an_attribute_that_the_kernel_does_not_know(fallback: str) -> None:
    @od.maps("Scales", domain=DOMAIN)
    @od.kernel(f"{DOMAIN}::scales", inputs="x", outputs="z", scalars={"alpha": ("f32", 1.0)})
    class Scales(Like):
        def verify(self, n: Any) -> bool:
            return n.attr("mode", "plain") == "plain"

        def body(self, t: Any) -> None:
            t.z[:] = t.alpha * t.x

    (z,) = od.InferenceSession(model("Scales", alpha=2.0, mode="plain"), fallback=fallback).run(
        None, {"x": X}
    )
    assert (z == 2).all()
    with pytest.raises(od.KernelError, match=r"'alhpa': given 2.0; accepted: alpha, mode: .*mean 'alpha'\?"):
        od.InferenceSession(model("Scales", alhpa=2.0), fallback=fallback)


@pytest.mark.parametrize("fallback", ["cpu", "error"])
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_what_neither_device_nor_host_takes_is_unsupported(fallback: str, dtype: Any) -> None:
    """A mapping function knows the operator alone: the reason why it refuses a node is the reason given."""

    @od.maps("Squares", domain=DOMAIN, like=0)
    def squares(node: NodeSpec, lowering: Lowering) -> None:
        (x,), (y,) = node.inputs, node.outputs
        assert x is not None and y is not None
        lowering.emit(Eltwise(node.name, "mul", [x, x], y, lowering.device))

    with pytest.raises(od.UnsupportedModelError) as caught:
        od.InferenceSession(model("Squares", dtype), fallback=fallback)
    (line,) = [one for one in caught.value.nodes if one.startswith("n (Squares)")]
    assert np.dtype(dtype).name in line and "nearest: float32" in line
    if fallback == "cpu":
        assert "no host engine has mistaken.Squares" in line


def test_a_mapping_function_of_onnx_sends_other_types_to_the_host() -> None:
    @od.maps("Cos", override=True)
    def cos(node: NodeSpec, lowering: Lowering) -> None:
        (x,), (y,) = node.inputs, node.outputs
        assert x is not None and y is not None
        lowering.emit(Eltwise(node.name, "copy", [x], y, lowering.device))

    try:
        proto = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (double[4, 8] x) => (double[4, 8] y) { y = Cos(x) }'
        )
        session = od.InferenceSession(proto)
        (y,) = session.run(None, {"x": X.astype(np.float64)})
        np.testing.assert_allclose(y, np.cos(X.astype(np.float64)))
        (row,) = session.placement
        assert row.device == "cpu" and "float64" in row.reason
    finally:
        registrations.withdraw_mapping("", "Cos")


# -- mapping functions ---------------------------------------------------------------------------


def added(node: NodeSpec, lowering: Lowering) -> None:
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    lowering.emit(Eltwise(node.name, "add", [x, x], y, lowering.device))


def refused(kind: type[od.OneDispatchError], op_type: str, **attributes: Any) -> str:
    """What compiling a node of this operator says; it names the node and a function of this file."""
    with pytest.raises(kind) as caught:
        od.compile(model(op_type, **attributes), fallback="error")
    text = str(caught.value)
    assert f"node n ({op_type})" in text and "test_plugin_errors.py:" in text
    assert "mistake of OneDispatch" not in text
    return text


def test_a_mapping_function_that_makes_a_value_twice() -> None:
    @od.maps("Twice", domain=DOMAIN, like=0)
    def twice(node: NodeSpec, lowering: Lowering) -> None:
        added(node, lowering)
        added(node, lowering)

    assert "make 't' twice; accepted: every value made once" in refused(od.InternalError, "Twice")


def test_a_mapping_function_that_makes_what_the_model_has() -> None:
    @od.maps("Another", domain=DOMAIN, like=0)
    def another(node: NodeSpec, lowering: Lowering) -> None:
        added(node, lowering)
        (x,) = node.inputs
        assert x is not None
        lowering.emit(Eltwise(node.name, "add", [x, x], replace(x, name="y"), lowering.device))

    assert "make 'y', which other nodes or the model make" in refused(od.InternalError, "Another")


@pytest.mark.parametrize(
    "said",
    ["x", 3, None, [3], [("float99", (4, 8))], [(np.float32, (-5,))], [(np.float32, (1.5,))], [(None, ())]],
    ids=str,
)
def test_an_infer_that_gives_no_types_and_shapes(said: Any) -> None:
    def infer(node: NodeSpec) -> Any:
        return said

    od.maps("Infers", domain=DOMAIN, infer=infer)(added)
    text = refused(od.InternalError, "Infers")
    assert f"infer gives {said!r}; accepted: a list with (dtype, shape)" in text


def test_an_infer_may_give_the_type_of_numbers_and_a_wrong_size_names_the_function() -> None:
    od.maps("Infers", domain=DOMAIN, infer=lambda node: [(np.float32, (4, 8))])(added)
    (y,) = od.InferenceSession(model("Infers"), fallback="error").run(None, {"x": X})
    assert (y == 2).all()
    od.maps("Wrong", domain=DOMAIN, infer=lambda node: [(np.float32, (4, 9))])(added)
    text = refused(od.OperatorError, "Wrong")
    assert "added (" in text and "nest of" in text and "the shapes that its infer= gives" in text


@pytest.mark.parametrize("fallback", ["cpu", "error"])
def test_an_attribute_that_a_mapping_function_never_reads(fallback: str) -> None:
    @od.maps("Scaled", domain=DOMAIN, infer=lambda node: [(np.float32, (node.attr("rows", 4), 8))])
    def scaled(node: NodeSpec, lowering: Lowering) -> None:
        node.attr("alpha", 1.0)
        added(node, lowering)

    od.compile(model("Scaled", alpha=2.0, rows=4), fallback=fallback)
    text = refused(od.ModelError, "Scaled", alhpa=2.0, rows=4)
    assert "attribute 'alhpa'; accepted: alpha, rows: what that function reads" in text
    assert "Did you mean 'alpha'?" in text


@pytest.mark.parametrize(
    "look",
    [
        lambda node: dict(node.attributes),
        lambda node: {**node.attributes},
        lambda node: list(node.attributes),
        lambda node: sorted(node.attributes.items()),
        lambda node: replace(node, attributes={**node.attributes, "more": 1}),
        lambda node: bool(node.attributes),
    ],
)
def test_a_mapping_function_that_looks_at_all_attributes_takes_any(look: Any) -> None:
    @od.maps("Looks", domain=DOMAIN, like=0)
    def looks(node: NodeSpec, lowering: Lowering) -> None:
        look(node)
        added(node, lowering)

    od.compile(model("Looks", alpha=2.0, beta="b"), fallback="error")


def test_an_operator_that_keeps_its_node_may_read_attributes_later() -> None:
    class Keeps(Eltwise):
        node: NodeSpec

    @od.maps("Keeps", domain=DOMAIN, like=0)
    def keeps(node: NodeSpec, lowering: Lowering) -> None:
        (x,), (y,) = node.inputs, node.outputs
        assert x is not None and y is not None
        op = Keeps(node.name, "add", [x, x], y, lowering.device)
        op.node = node
        lowering.emit(op)

    od.compile(model("Keeps", alpha=2.0), fallback="error")


def test_a_mapping_function_of_onnx_may_leave_attributes_of_the_schema() -> None:
    od.maps("LeakyRelu", override=True, like=0)(added)
    try:
        proto = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[4, 8] x) => (float[4, 8] y)'
            " { y = LeakyRelu <alpha = 0.5> (x) }"
        )
        od.compile(proto, fallback="error")
    finally:
        registrations.withdraw_mapping("", "LeakyRelu")


def test_a_mapping_function_does_not_end_the_process() -> None:
    @od.maps("Exits", domain=DOMAIN, like=0)
    def exits(node: NodeSpec, lowering: Lowering) -> None:
        raise SystemExit(3)

    assert "SystemExit: 3" in refused(od.InternalError, "Exits")

    @od.maps("Interrupted", domain=DOMAIN, like=0)
    def interrupted(node: NodeSpec, lowering: Lowering) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        od.compile(model("Interrupted"), fallback="error")
