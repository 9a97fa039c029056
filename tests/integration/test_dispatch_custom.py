# SPDX-License-Identifier: Apache-2.0
"""Nodes of domains that ONNX does not know: their shapes, and what is said where they are unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onedispatch as od
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.operands import In, Out
from tests.integration.custom import Bring, acme, answer, chain, feed
from tests.plugins import model, value

# -- shapes ---------------------------------------------------------------------------------------


def test_shapes_pass_through_chains_of_custom_and_onnx_nodes(bring: Bring) -> None:
    bring()
    session = od.InferenceSession(chain())
    assert session.get_outputs()[0].name == "v"
    arrays = feed(3, 5)
    (found,) = session.run(None, arrays)
    np.testing.assert_array_equal(found, answer(**arrays))
    rows = {row.node: row for row in session.placement}
    assert [rows[n].device for n in ("first", "add", "last")] == ["cpu", "npu", "cpu"]
    assert "this test's device takes no such node" in rows["first"].reason
    assert "on the kernel's reference" in rows["first"].reason


def test_symbolic_shapes_are_compiled_as_they_come(bring: Bring) -> None:
    kernel = bring()
    session = od.InferenceSession(chain(("N", 4), ("N", 4)))
    assert not kernel.asked
    with pytest.raises(od.InputError, match="nothing yet of the shape"):
        _ = session.placement
    for rows in (2, 6, 2):
        arrays = feed(rows, 4)
        np.testing.assert_array_equal(session.run(None, arrays)[0], answer(**arrays))
    assert {node["x"].shape for node in kernel.asked} == {(2, 4), (6, 4)}


def test_symbolic_shapes_may_be_given_at_once(bring: Bring) -> None:
    bring()
    compiled = od.compile(chain(("N", 4)), shapes={"x": [2, 4], "y": [2, 4]})
    assert len(compiled.executables) == 1 and len(compiled.placement) == 3


def test_every_node_is_inferred_once_per_pass_however_long_the_chain(bring: Bring) -> None:
    kernel = bring()
    nodes = []
    for i in range(20):
        nodes.append(acme(f"x{i} x{i}", f"z{i}"))
        nodes.append(helper.make_node("Relu", [f"z{i}"], [f"x{i + 1}"]))
    od.compile(model(nodes, [value("x0", [2, 2])], [value("x20", [2, 2])]))
    assert len(kernel.asked) <= 40


def test_a_kernel_may_change_shape_and_type(bring: Bring) -> None:
    bring(
        told=lambda n: {"z": n["x"].like(shape=(n["x"].shape[1], 2), dtype="i32")},
        outputs=(Out("z", "i32"),),
        computed=lambda n, x, y: np.stack([x.sum(0), y.sum(0)], 1).astype(np.int32),
    )
    nodes = [acme("x y", "z"), helper.make_node("Transpose", ["z"], ["t"])]
    inputs = [value("x", [3, 5]), value("y", [3, 5])]
    session = od.InferenceSession(model(nodes, inputs, [value("t", None, TensorProto.INT32)]))
    arrays = feed(3, 5)
    np.testing.assert_array_equal(
        session.run(None, arrays)[0], np.stack([arrays["x"].sum(0), arrays["y"].sum(0)])
    )


def test_what_the_model_declares_is_told_to_the_kernel(bring: Bring) -> None:
    kernel = bring(told=lambda n: {"z": n["x"].like(shape=n.spec.outputs[0].shape)})
    inputs = [value("x", [3, 5]), value("y", [3, 5])]
    od.compile(model([acme("x y", "z")], inputs, [value("z", [3, 5])]))
    assert kernel.asked[0].spec.outputs[0].shape == (3, 5)


@pytest.mark.parametrize(
    ("declared", "error", "both"),
    [
        (value("z", [3, 6]), "KernelOutputSizeError", ("[3, 5]", "[3, 6]")),
        (value("z", [15]), "KernelOutputSizeError", ("[3, 5]", "[15]")),
        (value("z", [3, 5], TensorProto.FLOAT16), "KernelDtypeError", ("tensor(float)", "tensor(float16)")),
    ],
)
def test_a_kernel_and_a_model_that_disagree(
    bring: Bring, declared: onnx.ValueInfoProto, error: str, both: tuple[str, str]
) -> None:
    bring()
    inputs = [value("x", [3, 5]), value("y", [3, 5])]
    with pytest.raises(getattr(od, error)) as refused:
        od.compile(model([acme("x y", "z", name="n0")], inputs, [declared]))
    assert refused.value.node == "n0" and refused.value.given == both[0] and both[1] in refused.value.expected
    assert "acme::scaleadd@1" in str(refused.value)


def test_a_name_of_a_dimension_is_a_hint(bring: Bring) -> None:
    bring()
    inputs = [value("x", ["N", 5]), value("y", ["N", 5])]
    session = od.InferenceSession(model([acme("x y", "z")], inputs, [value("z", ["M", 5])]))
    session.run(None, feed(3, 5))


def test_named_dimensions_are_told_as_the_inputs_have_them(bring: Bring) -> None:
    kernel = bring(told=lambda n: {"z": n["x"].like(shape=n.spec.outputs[0].shape)})
    inputs = [value("x", ["N", 5]), value("y", ["N", 5])]
    session = od.InferenceSession(model([acme("x y", "z")], inputs, [value("z", ["N", 5])]))
    for rows in (3, 4):
        session.run(None, feed(rows, 5))
    assert {node.spec.outputs[0].shape for node in kernel.asked if node.spec.outputs[0]} == {(3, 5), (4, 5)}


def test_value_info_between_nodes_binds_too(bring: Bring) -> None:
    bring()
    proto = chain()
    proto.graph.value_info.append(value("z", [4, 4]))
    with pytest.raises(od.KernelOutputSizeError, match=r"'z'.*\[3, 5\].*\[4, 4\]"):
        od.compile(proto)


def test_shapes_that_only_the_run_knows(bring: Bring) -> None:
    """The host takes what it gets: nothing is known behind NonZero before the run."""
    bring(inputs=(In("x", "f32"), In("y", like="x")))
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"]),
        helper.make_node("Cast", ["at"], ["f"], to=TensorProto.FLOAT),
        acme("f f", "z", name="n0", a=2.0),
    ]
    session = od.InferenceSession(model(nodes, [value("x", [4])], [value("z", None)]))
    (found,) = session.run(None, {"x": np.float32([0, 3, 0, 4])})
    np.testing.assert_array_equal(found, [[3.0, 9.0]])


def test_types_are_known_where_shapes_are_not(bring: Bring) -> None:
    bring()
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"]),
        helper.make_node("Cast", ["at"], ["f"], to=TensorProto.FLOAT),
        acme("f f", "z", name="n0", a=2.0),
        helper.make_node("Neg", ["z"], ["m"], name="neg"),
    ]
    session = od.InferenceSession(model(nodes, [value("x", [4])], [value("m", None)]))
    (found,) = session.run(None, {"x": np.float32([0, 3, 0, 4])})
    np.testing.assert_array_equal(found, [[-3.0, -9.0]])
    assert "on onnxruntime" in {row.node: row for row in session.placement}["neg"].reason


def test_a_refusal_is_not_hidden_by_what_follows(bring: Bring) -> None:
    bring()
    nodes = [acme("x x", "z", name="n0"), helper.make_node("Relu", ["z"], ["w"])]
    kind = TensorProto.FLOAT16
    with pytest.raises(od.KernelDtypeError):
        od.compile(model(nodes, [value("x", [4], kind)], [value("w", None, kind)]))
    bring(
        "Broken", told=lambda n: {"z": n["x"].like(shape=(1, 2, 3))}, outputs=(Out("z", "f32", rank=(1, 5)),)
    )
    nodes = [acme("x x", "z", "Broken"), helper.make_node("MatMul", ["z", "x"], ["w"])]
    with pytest.raises(od.KernelOutputSizeError):
        proto = model(nodes, [value("x", [4])], [value("w", None)])
        proto.graph.value_info.append(value("z", [4]))
        od.compile(proto)


def test_operands_that_fold_are_constants_for_the_kernel(bring: Bring) -> None:
    """What a Shape node gives is known before anything runs."""

    def told(n: Node) -> dict[str, Any]:
        if n["y"].value is None:
            raise n.refuse("non_static_input", "y", "a value of the run", "a constant")
        return {"z": n["x"].like(shape=tuple(int(v) for v in n["y"].value))}

    bring(
        inputs=(In("x"), In("y", "i32")),
        told=told,
        computed=lambda n, x, y: np.resize(x, y).astype(np.float32),
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["i"], to=TensorProto.INT32),
        acme("x i", "z"),
    ]
    (found,) = od.InferenceSession(model(nodes, [value("x", [2, 3])], [value("z", [2, 3])])).run(
        None, {"x": np.ones((2, 3), np.float32)}
    )
    assert found.shape == (2, 3)
    inputs = [value("x", [2, 3]), value("y", [2], TensorProto.INT32)]
    with pytest.raises(od.KernelNonStaticInputError, match="y: given a value of the run"):
        od.compile(model([acme("x y", "z")], inputs, [value("z", None)]))


# -- what is missing ------------------------------------------------------------------------------


def test_every_operator_that_nobody_knows_is_named_at_once(bring: Bring) -> None:
    bring()
    nodes = [
        acme("x y", "z", "ScaleAd", name="typo"),
        helper.make_node("Thing", ["z"], ["w"], domain="other.domain", name="thing"),
        acme("w x", "v", name="fine"),
    ]
    inputs = [value("x", [3, 5]), value("y", [3, 5])]
    imports = (("", 17), ("acme", 1), ("other.domain", 3))
    for fallback in ("cpu", "error"):
        with pytest.raises(od.UnknownOperatorError) as refused:
            od.compile(model(nodes, inputs, [value("v", None)], imports), fallback=fallback)
        assert refused.value.nodes == (
            "typo: acme.ScaleAd (nearest: acme.ScaleAdd)",
            "thing: other.domain.Thing",
        )
        assert "--plugin FILE" in str(refused.value) and "plugins=[...]" in str(refused.value)


def test_operators_of_onnxruntime_are_known() -> None:
    node = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    session = od.InferenceSession(model([node], [value("x", [4])], [value("y", [4])]))
    session.run(None, {"x": np.zeros(4, np.float32)})


def test_a_domain_without_an_operator_set(bring: Bring) -> None:
    bring()
    proto = model([acme("x x", "z", name="n0")], [value("x", [2])], [value("z", None)], (("", 17),))
    with pytest.raises(
        od.ModelError, match=r"node n0.*'acme'.*imports no operator set.*make_opsetid\('acme', 1\)"
    ):
        od.compile(proto)


def test_a_model_of_custom_nodes_alone(bring: Bring) -> None:
    bring()
    proto = model([acme("x x", "z", a=2.0)], [value("x", [2])], [value("z", [2])], (("acme", 1),))
    (found,) = od.InferenceSession(proto).run(None, {"x": np.float32([1, 2])})
    np.testing.assert_array_equal(found, [3, 6])


def test_strict_mode_says_why_the_device_does_not_take_it(bring: Bring) -> None:
    bring()
    with pytest.raises(od.UnsupportedModelError) as refused:
        od.compile(chain(), fallback="error")
    assert [line.split(":")[0] for line in refused.value.nodes] == ["first (ScaleAdd)", "last (ScaleAdd)"]
    assert all("this test's device takes no such node" in line for line in refused.value.nodes)
