# SPDX-License-Identifier: Apache-2.0
"""Mapping rules for nodes in bodies, and what is said of models around rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import onedispatch as od
from tests.integration.foreign_models import FLOAT, X, acme, command, in_an_if, model, node, run

pytestmark = pytest.mark.usefixtures("no_plugins")


def test_a_rule_writes_operators_of_onnxruntime() -> None:
    acme().op("Fast", to="com.microsoft::FastGelu")
    acme().op("Product", to="com.microsoft::FusedMatMul").default(alpha=0.5, transB=1)
    nodes = [node("Fast", ["x"], ["a"]), node("Product", ["x", "x"], ["y"])]
    session = od.InferenceSession(model(nodes, {"a": FLOAT, "y": FLOAT}))
    a, y = session.run(None, {"x": X})
    np.testing.assert_allclose(y, X @ X.transpose(0, 2, 1) / 2, rtol=1e-3, atol=1e-3)
    assert a.shape == X.shape


def test_a_mistake_of_the_model_beside_a_rule_is_its_own() -> None:
    acme().op("Fine", to="Neg")
    nodes = [node("Fine", ["x"], ["a"]), node("Add", ["a", "k"], ["y"], "")]
    with pytest.raises(od.ModelError, match="Add_y"):
        run(model(nodes, {"y": FLOAT}, k=np.float64(1)))


def test_a_constant_around_a_body_is_known_in_it() -> None:
    acme().op("Leaky", to="LeakyRelu").attr_from_input(1, "alpha")
    session = od.InferenceSession(in_an_if(node("Leaky", ["x", "slope"], ["t"])))
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.where(X > 0, X, X / 4), rtol=1e-6)


def test_a_rule_writes_bodies_that_rules_map() -> None:
    acme().expand("Same")(lambda g, n: n.inputs[0])
    acme().op("Minus", to="Neg")

    @acme().expand("Choice")
    def choice(g: Any, n: Any) -> Any:
        twice, branches = g.Add(n.inputs[0], n.inputs[0]), {}
        for name, read in (("then_branch", "a"), ("else_branch", str(twice))):
            end = helper.make_tensor_value_info(name, FLOAT, None)
            branches[name] = helper.make_graph([node("Minus", [read], [name])], name, [], [end])
        above = g.Greater(g.ReduceMax(n.inputs[0], keepdims=0), n.inputs[1])
        return twice, g.If(above, **branches)

    nodes = [node("Same", ["x"], ["a"]), *(node("Choice", ["a", k], [k + "2", k + "y"]) for k in "kl")]
    ends = ("ky", "ly", "k2")
    session = od.InferenceSession(model(nodes, dict.fromkeys(ends, FLOAT), k=np.float32(0), l=np.float32(9)))
    for found, factor in zip(session.run(None, {"x": X}), (-1, -2, 2), strict=True):
        np.testing.assert_allclose(found, factor * X)


def test_what_a_rule_refuses_in_a_body_is_said() -> None:
    acme().op("Leaky", to="LeakyRelu").attr_from_input(1, "alpha")
    given = in_an_if(node("Leaky", ["x", "m"], ["t"]))
    with pytest.raises(
        od.UnknownOperatorError, match=r"in a body of If_y: acme.Leaky.*refused it: input 1 \(m\)"
    ):
        od.InferenceSession(given)
    found = command("check", given)
    assert found["unmapped"] == ["If_y"]
    assert "in its body: no rule, no kernel for acme::Leaky" in found["nodes"][-1]["how"]


def test_check_knows_host_implementations() -> None:
    od.host("acme::Sorted", like=0)(lambda n, x: np.sort(x))
    for given in (
        model([node("Sorted", ["x"], ["y"])], {"y": FLOAT}),
        in_an_if(node("Sorted", ["x"], ["t"])),
    ):
        assert command("check", given)["unmapped"] == []


def test_a_saved_model_without_its_host_implementation_says_so(tmp_path: Path) -> None:
    od.host("acme::Sorted", like=0)(lambda n, x: np.sort(x))
    given = model([node("Sorted", ["x"], ["y"])], {"y": FLOAT})
    od.compile(given, fallback="cpu").save(tmp_path / "net.odm")
    od.plugins.reset()
    with pytest.raises(od.ModelError, match=r"node Sorted_y.*Load the plug-in.*od\.host"):
        od.InferenceSession(tmp_path / "net.odm").run(None, {"x": X})


def test_operands_that_nothing_writes_are_refused() -> None:
    acme().expand("Bad")(lambda g, n: g.Add("nothing", n.inputs[0]))
    with pytest.raises(od.RuleError, match="Add: the operand 'nothing', which nothing writes"):
        run(model([node("Bad", ["x"], ["y"])], {"y": FLOAT}))
