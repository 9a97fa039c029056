# SPDX-License-Identifier: Apache-2.0
"""Fusions of several nodes: which matches they replace, in which order, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import onedispatch as od
from tests.integration.foreign_models import (
    FLOAT,
    X,
    explained,
    fuse_gate,
    model,
    node,
    run,
)

pytestmark = pytest.mark.usefixtures("no_plugins")

GATED = [node("Sigmoid", ["x"], ["s"], ""), node("Mul", ["s", "x"], ["y"], ""), node("Neg", ["y"], ["z"], "")]


def test_a_fusion_is_on_or_off_by_name() -> None:
    silu, relu = -X / (1 + np.exp(-X)), -np.maximum(X, 0)
    fuse_gate("Gated", general=False)
    np.testing.assert_allclose(run(model(GATED, {"z": FLOAT}))[0], silu, rtol=1e-5)
    np.testing.assert_array_equal(run(model(GATED, {"z": FLOAT}), fusions=["Gated"])[0], relu)
    fuse_gate("Always")
    np.testing.assert_array_equal(run(model(GATED, {"z": FLOAT}))[0], relu)
    np.testing.assert_allclose(run(model(GATED, {"z": FLOAT}), fusions=["-Always"])[0], silu, rtol=1e-5)
    with pytest.raises(od.InputError, match=r"'Alwais'.*Did you mean"):
        run(model(GATED, {"z": FLOAT}), fusions=["Alwais"])


def test_a_fusion_of_several_roots() -> None:
    @od.fusion("Both")
    def both(p: Any) -> Any:
        p.find("Mul(e, const(k))", "Neg(e)", E="Exp(a)")
        p.where("k of 2", lambda m: float(m["k"].constant) == 2)
        return lambda g, m: (g.Relu(m["e"]), g.Abs(m["e"]))

    nodes = [
        node("Mul", ["x", "two"], ["y"], ""),
        node("Neg", ["x"], ["z"], ""),
        node("Add", ["y", "z"], ["w"], ""),
    ]
    (w,) = run(model(nodes, {"w": FLOAT}, two=np.float32(2)))
    np.testing.assert_array_equal(w, np.maximum(X, 0) + np.abs(X))
    (w,) = run(model(nodes, {"w": FLOAT}, two=np.float32(3)))
    np.testing.assert_allclose(w, 3 * X - X, rtol=1e-5)


def test_roots_that_depend_on_each_other_outside_are_not_fused() -> None:
    @od.fusion("Both")
    def both(p: Any) -> Any:
        p.find("Exp(a)", "Neg(b)")
        return lambda g, m: (g.Exp(m["a"]), g.Neg(m["b"]))

    nodes = [node("Exp", ["x"], ["e"], ""), node("Abs", ["e"], ["f"], ""), node("Neg", ["f"], ["y"], "")]
    given = model(nodes, {"y": FLOAT})
    np.testing.assert_allclose(run(given)[0], -np.exp(X), rtol=1e-5)
    assert "on a path" in explained(given, "Neg_y")[0]["refused"]


def test_the_first_fusion_has_a_node_and_the_overlap_is_reported() -> None:
    fuse_gate("First")

    @od.fusion("Pair")
    def pair(p: Any) -> Any:
        p.find("Relu(Relu(a))")
        return lambda g, m: g.Relu(m["a"])

    chain = [node("Relu", ["x" if i == 0 else f"r{i - 1}"], [f"r{i}"], "") for i in range(3)]
    given = model(chain, {"r2": FLOAT})
    np.testing.assert_array_equal(run(given)[0], np.maximum(X, 0))
    refused = [step["refused"] for step in explained(given, "Relu_r2") if step["refused"]]
    assert refused == ["Relu_r1 is in its match at Relu_r1 already"]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (lambda p: p.find("Mul(a,"), "Mul(a,"),
        (lambda p: p.find("a"), "the root 'a'"),
        (lambda p: None, "no pattern"),
        (lambda p: p.find("Neg(a)"), "a function (g, m)"),
        (lambda p: p.gone(), "gone"),
    ],
)
def test_a_wrong_fusion_is_refused_with_file_and_line(pattern: Any, text: str) -> None:
    with pytest.raises(od.RuleError) as refused:
        od.fusion("Wrong")(pattern)
    assert text in str(refused.value) and refused.value.file == __file__
    assert not od.plugins.loaded()


def test_what_a_fusion_writes_is_checked() -> None:
    @od.fusion("Wrong")
    def wrong(p: Any) -> Any:
        p.find("Mul(a, Sigmoid(a))")
        return lambda g, m: m["gone"]

    with pytest.raises(od.RuleError, match=r"node Mul_y.*fusion Wrong.*'gone'"):
        run(model(GATED, {"z": FLOAT}))


def test_a_condition_that_is_no_truth_value_is_named() -> None:
    @od.fusion("Wrong")
    def wrong(p: Any) -> Any:
        p.find("Mul(a, Sigmoid(a))")
        p.where("it is so", lambda m: np.array([True, False]))
        return lambda g, m: m["a"]

    with pytest.raises(od.RuleError, match=r"fusion Wrong: condition 'it is so', node Mul_y.*ambiguous"):
        run(model(GATED, {"z": FLOAT}))


def test_what_a_fusion_gives_is_cast_to_what_was_there() -> None:
    @od.fusion("Bools")
    def bools(p: Any) -> Any:
        p.find("Mul(a, Sigmoid(a))")
        return lambda g, m: g.Greater(m["a"], np.float32(0))

    np.testing.assert_array_equal(run(model(GATED[:2], {"y": FLOAT}))[0], X > 0)


def test_the_domain_that_fusions_use_may_be_in_a_model() -> None:
    fuse_gate("Silu")
    given = model([*GATED, node("Own", ["x"], ["w"], "onedispatch.fusion")], {"z": FLOAT, "w": FLOAT})
    given.opset_import.append(helper.make_opsetid("onedispatch.fusion", 1))
    with pytest.raises(od.UnknownOperatorError, match="Own_w"):
        run(given)
