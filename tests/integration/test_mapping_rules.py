# SPDX-License-Identifier: Apache-2.0
"""Mapping rules as data and host implementations: what they make, and what they refuse."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli.commands import app
from tests.integration.foreign_models import (
    FLOAT,
    INT32,
    INT64,
    X,
    acme,
    command,
    explained,
    fuse_gate,
    here,
    model,
    node,
    run,
)

pytestmark = pytest.mark.usefixtures("no_plugins")


# -- one node to one ---------------------------------------------------------------------------------


def test_attributes_are_taken_over_defaulted_and_computed() -> None:
    acme().op("Leaky", to="LeakyRelu").compute(alpha=lambda n: n.attr("slope") / 2)
    acme().op("SoftMax", to="Softmax").auto().default(axis=0)
    soft = [node("SoftMax", ["x"], ["s"]), node("SoftMax", ["x"], ["t"], axis=1)]
    y, s, t = run(model([node("Leaky", ["x"], ["y"], slope=0.5), *soft], dict.fromkeys("yst", FLOAT)))
    np.testing.assert_allclose(y, np.where(X > 0, X, X / 4), rtol=1e-6)
    for found, axis in ((s, 0), (t, 1)):
        e = np.exp(X)
        np.testing.assert_allclose(found, e / e.sum(axis, keepdims=True), rtol=1e-5)


def test_top_k_of_a_scalar_in_int32_gives_indices_as_the_model_says() -> None:
    acme().op("TopKV2", to="TopK").auto().default(largest=1, axis=-1)
    top = node("TopKV2", ["x", "k"], ["v", "i"], sorted=1)
    values, indices = run(model([top], {"v": FLOAT, "i": INT32}, k=np.int32(2)))
    order = np.argsort(-X, axis=-1, kind="stable")[..., :2]
    np.testing.assert_array_equal(indices, order)
    assert indices.dtype == np.int32
    np.testing.assert_array_equal(values, np.take_along_axis(X, order, -1))


@pytest.mark.parametrize("inputs", [["x", "j"], ["x", "", "j"]])
def test_renamed_moved_and_dropped_in_old_versions_alone(inputs: list[str]) -> None:
    old = acme().op("OldName", to="ReduceSum", versions=(1, 6))
    old.rename(keep_dims="keepdims").input_from_attr("axis", 1).drop_input(2)
    given = [node("OldName", inputs, ["y"], axis=[1], keep_dims=0)]
    (y,) = run(model(given, {"y": FLOAT}, version=6, j=np.float32(0)))
    np.testing.assert_allclose(y, X.sum(1), rtol=1e-6)
    with pytest.raises(od.UnknownOperatorError, match="acme::OldName versions 1 to 6"):
        run(model(given, {"y": FLOAT}, version=7, j=np.float32(0)))


def test_versions_choose_among_rules() -> None:
    acme().op("Step", to="Relu", versions=(1, 3))
    acme().op("Step", to="Neg", versions=(4, None))
    given = [node("Step", ["x"], ["y"])]
    np.testing.assert_array_equal(run(model(given, {"y": FLOAT}, version=3))[0], np.maximum(X, 0))
    np.testing.assert_array_equal(run(model(given, {"y": FLOAT}, version=40))[0], -X)


def test_inputs_become_attributes_and_are_reordered_and_added() -> None:
    acme().op("Cast2", to="LeakyRelu").attr_from_input(1, "alpha")
    acme().op("RSub", to="Sub").reorder([1, 0])
    acme().op("Twice", to="Mul").add_input(1, lambda n: np.float32(2))
    nodes = [
        node("Cast2", ["x", "a"], ["y"]),
        node("RSub", ["y", "x"], ["z"]),
        node("Twice", ["z"], ["w"]),
    ]
    (w,) = run(model(nodes, {"w": FLOAT}, a=np.float32(0.25)))
    np.testing.assert_allclose(w, 2 * (X - np.where(X > 0, X, X / 4)), rtol=1e-6)


def test_a_variadic_port_has_as_many_edges_as_it_says() -> None:
    acme().op("Join", to="Concat").default(axis=0).variadic("values", count="n")
    (y,) = run(model([node("Join", ["x", "x", "x"], ["y"], n=3)], {"y": FLOAT}))
    np.testing.assert_array_equal(y, np.concatenate([X] * 3))
    wrong = model([node("Join", ["x", "x", "x"], ["y"], n=2)], {"y": FLOAT})
    with pytest.raises(od.UnknownOperatorError) as refused:
        run(wrong)
    said = "refused it: n=2 for values, which asks for 2 inputs; the node has 3"
    assert "Join_y: acme.Join" in str(refused.value) and said in str(refused.value)


def test_a_target_of_another_domain_is_mapped_on_by_its_own_rule() -> None:
    acme().op("Bucketize", to="other::Bucketize").variadic("values", count="n", others=1)

    @od.frontend("onnx", domain="other").expand("Bucketize")
    def bucketize(g: Any, n: Any) -> Any:
        *values, edge = n.inputs
        return tuple(g.Cast(g.Greater(value, edge), to=np.dtype(np.float32)) for value in values)

    given = model(
        [node("Bucketize", ["x", "x", "e"], ["y", "z"], n=2)], {"y": FLOAT, "z": FLOAT}, e=np.float32(1)
    )
    for found in run(given):
        np.testing.assert_array_equal(found, (X > 1).astype(np.float32))


@pytest.mark.parametrize("count", range(2, 10))
def test_expanded(count: int) -> None:
    @acme().expand("AddN")
    def addn(g: Any, n: Any) -> Any:
        assert (n.name, n.op_type, len(n.outputs)) == ("AddN_y", "AddN", 1)
        assert n.inputs[0].shape == (2, 3, 4) and n.inputs[0].dtype == np.float32
        total = n.inputs[0]
        for one in n.inputs[1:]:
            total = g.Add(total, one)
        return total

    session = od.InferenceSession(model([node("AddN", ["x"] * count, ["y"])], {"y": FLOAT}), fallback="error")
    np.testing.assert_allclose(session.run(None, {"x": X})[0], count * X, rtol=1e-6)
    names = [row.node for row in session.placement]
    assert names[0] == "AddN_y" and all(name.startswith("AddN_y/Add") for name in names[1:])


def test_what_an_expansion_writes_inherits_attributes() -> None:
    @acme().expand("ScaledElu")
    def inherits(g: Any, n: Any) -> Any:
        return g.Mul(g.Elu(n.inputs[0]), n.attr("scale"))

    @acme().expand("PlainElu", inherit=False)
    def plain(g: Any, n: Any) -> Any:
        assert n.attr("alpha") == 3.0
        return g.Elu(n.inputs[0])

    nodes = [node("ScaledElu", ["x"], ["y"], alpha=3.0, scale=2.0), node("PlainElu", ["x"], ["z"], alpha=3.0)]
    y, z = run(model(nodes, dict.fromkeys("yz", FLOAT)))
    np.testing.assert_allclose(y, 2 * np.where(X > 0, X, 3 * np.expm1(X)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(z, np.where(X > 0, X, np.expm1(X)), rtol=1e-5, atol=1e-6)


def test_a_result_may_be_an_input_or_a_constant() -> None:
    @acme().expand("Same", "Two")
    def written(g: Any, n: Any) -> Any:
        return n.inputs[0] if n.op_type == "Same" else g.constant(2.0, np.float32)

    nodes = [node("Same", ["x"], ["y"]), node("Two", ["x"], ["c"]), node("Mul", ["y", "c"], ["z"], domain="")]
    y, z = run(model(nodes, dict.fromkeys("yz", FLOAT)))
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(z, 2 * X)


def test_a_body_reads_what_a_rule_says_is_another_value() -> None:
    acme().expand("Same")(lambda g, n: n.inputs[0])
    branches = [
        helper.make_graph(
            [node(op, ["y"], [f"{op}_out"], "")],
            op,
            [],
            [helper.make_tensor_value_info(f"{op}_out", FLOAT, None)],
        )
        for op in ("Neg", "Abs")
    ]
    nodes = [
        node("Same", ["x"], ["y"]),
        node("ReduceSum", ["x"], ["s"], "", keepdims=0),
        node("Greater", ["s", "zero"], ["c"], ""),
        node("If", ["c"], ["z"], "", then_branch=branches[0], else_branch=branches[1]),
    ]
    session = od.InferenceSession(model(nodes, {"z": FLOAT}, zero=np.float32(1e9)))
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.abs(X))


def test_rules_map_nodes_in_bodies() -> None:
    acme().op("Leaky", to="LeakyRelu").rename(slope="alpha")

    @acme().expand("Twice")
    def twice(g: Any, n: Any) -> Any:
        return g.Add(g.Relu(n.inputs[0]), g.Neg(n.inputs[0]))

    body = helper.make_graph(
        [
            node("Identity", ["more"], ["still"], ""),
            node("Leaky", ["state"], ["a"], slope=0.5),
            node("Twice", ["a"], ["b"]),
            node("Add", ["b", "x"], ["next"], ""),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("more", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", FLOAT, [2, 3, 4]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", FLOAT, [2, 3, 4]),
        ],
    )
    loop = node("Loop", ["n", "", "x"], ["y"], "", body=body)
    found = model([node("Twice", ["x"], ["b"]), loop], {"y": FLOAT, "b": FLOAT}, n=np.int64(3))
    y, b = od.InferenceSession(found).run(None, {"x": X})
    wanted = X
    for _ in range(3):
        leaky = np.where(wanted > 0, wanted, wanted / 2)
        wanted = np.maximum(leaky, 0) - leaky + X
    np.testing.assert_allclose(y, wanted, rtol=1e-6)
    np.testing.assert_allclose(b, np.maximum(X, 0) - X, rtol=1e-6)
    assert {step["node"] for step in explained(found, "Twice_b")} == {"Twice_b"}


def test_rules_may_rewrite_operators_of_onnx_with_these_themselves() -> None:
    @od.frontend("onnx").expand("Relu")
    def relu(g: Any, n: Any) -> Any:
        return g.Neg(g.Relu(n.inputs[0]))

    (y,) = run(model([node("Relu", ["x"], ["y"], domain="")], {"y": FLOAT}))
    np.testing.assert_array_equal(y, -np.maximum(X, 0))


# -- attributes that no rule mentions ----------------------------------------------------------------


def test_a_misspelt_attribute_warns_and_is_refused_in_strict_mode() -> None:
    acme().op("Leaky", to="LeakyRelu").auto()
    given = model([node("Leaky", ["x"], ["y"], alhpa=0.5)], {"y": FLOAT})
    with pytest.warns(od.RuleWarning, match=r"Leaky_y \(acme.Leaky\): alhpa=0.5"):
        od.InferenceSession(given)
    with pytest.raises(od.UnsupportedModelError, match=r"alhpa=0.5; acme::Leaky -> LeakyRelu"):
        od.InferenceSession(given, fallback="error")
    od.plugins.reset()
    acme().op("Leaky", to="LeakyRelu").auto().ignore("alhpa")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        od.InferenceSession(given, fallback="error")


def test_how_many_edges_there_are_and_no_padding_need_no_mention() -> None:
    @acme().expand("AddN")
    def addn(g: Any, n: Any) -> Any:
        return g.Sum(*n.inputs)

    (y,) = run(model([node("AddN", ["x"] * 3, ["y"], N=3, padding="VALID")], {"y": FLOAT}))
    np.testing.assert_allclose(y, 3 * X, rtol=1e-6)
    with pytest.raises(od.UnsupportedModelError, match=r"N=2, padding='SAME'"):
        run(model([node("AddN", ["x"] * 3, ["y"], N=2, padding="SAME")], {"y": FLOAT}))


# -- what is refused where a rule is written -----------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda a: a.op("A", to="TopKay"), "the target TopKay, which ONNX does not have"),
        (lambda a: a.op("A", to="acme:Foo"), "the target 'acme:Foo'"),
        (lambda a: a.op("A", to="Relu").default(alpha=1), "'alpha'"),
        (lambda a: a.op("A", to="LeakyRelu").rename(slope="alhpa"), "Did you mean"),
        (lambda a: a.op("A", to="Conv").format(1, "HWNC"), "'HWNC'"),
        (lambda a: a.op("A", to="Conv").format(2, "NHWC"), "input 2 of Conv"),
        (lambda a: a.op("A", to="Relu").format(0, "NHWC"), "no format of any input"),
        (lambda a: a.op("A", to="Relu").drop_input(-1), "-1"),
        (lambda a: a.op("A", to="Elu").compute(alpha=3), "a function of the node"),
        (lambda a: a.op("A", versions=(6, 1)), "versions=(6, 1)"),
        (lambda a: a.op(""), "''"),
    ],
)
def test_a_wrong_rule_is_refused_with_file_and_line(write: Any, text: str) -> None:
    with pytest.raises(od.RuleError) as refused:
        write(acme())
    assert text in str(refused.value)
    assert refused.value.file == __file__ and refused.value.line > 0
    assert f"{__file__}, line {refused.value.line}" in str(refused.value)
    acme().op("A", to="Relu")  # what was wrong is not kept


def test_two_rules_for_one_key_name_both_places() -> None:
    acme().op("A", to="Relu", versions=(1, 5))
    first = here() - 1
    with pytest.raises(od.RuleError) as refused:
        acme().op("A", to="Elu", versions=(5, None))
    assert f"line {here() - 1}" in str(refused.value) and f"line {first}" in str(refused.value)
    acme().op("A", to="Elu", versions=(6, None))


def test_frameworks_are_known_ones() -> None:
    with pytest.raises(od.InputError, match=r"'tensorfolw'.*Did you mean"):
        od.frontend("tensorfolw")
    with pytest.raises(od.InputError, match="domain"):
        od.frontend("tensorflow", domain="acme")


# -- callbacks that fail -----------------------------------------------------------------------------


def _raises(g: Any, n: Any) -> Any:
    raise ValueError("no luck")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_raises, "no luck"),
        (lambda g, n: None, "NoneType as a result"),
        (lambda g, n: (n.inputs[0], 3), "int as a result"),
        (lambda g, n: n.inputs[0], "1 result of a node with 2 outputs"),
        (lambda g, n: ("nothing", "else"), "'nothing', which nothing writes"),
        (lambda g, n: g.Foo(n.inputs[0]), "lacks"),
        (lambda g, n: g.Relu(n.inputs[0], alpha=1), "attribute 'alpha'"),
        (lambda g, n: g.Elu(n.inputs[0], alpha="x"), "'x', which is no FLOAT"),
        (lambda g, n: g.Relu(object()), "a object"),
        (
            lambda g, n: (g.Mul(g.Cast(n.inputs[0], to=INT32), 0.5), n.inputs[0]),
            "0.5 (expected: numbers of int32",
        ),
        (lambda g, n: (g.Relu(), n.inputs[0]), "Relu"),
        (lambda g, n: n.attr("gone"), "attribute 'gone'"),
        (lambda g, n: n.nonsense, "nonsense"),
    ],
)
def test_a_callback_that_fails_is_named_with_its_node(function: Any, text: str) -> None:
    acme().expand("Bad")(function)
    given = model([node("Bad", ["x"], ["y", "z"])], dict.fromkeys("yz", FLOAT))
    for fallback in ("cpu", "error"):
        with pytest.raises(od.RuleError) as refused:
            od.InferenceSession(given, fallback=fallback)
        message = str(refused.value)
        assert text in message and "node Bad_y" in message and "rule for acme::Bad" in message
        assert refused.value.file == __file__


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("error", [Mute, SystemExit, RecursionError, MemoryError, StopIteration])
def test_odd_exceptions_of_callbacks_are_told_as_others(error: type[BaseException]) -> None:
    def fails(*_: Any) -> Any:
        raise error

    def fused(p: Any) -> Any:
        p.find("Neg(a)")
        p.where("it is so", fails)
        return fails

    bad = model([node("Bad", ["x"], ["y"])], {"y": FLOAT})
    acme().expand("Bad")(fails)
    with pytest.raises(od.RuleError, match=f"node Bad_y.*{error.__name__}"):
        od.InferenceSession(bad)
    od.plugins.reset()
    od.fusion("Wrong")(fused)
    with pytest.raises(od.RuleError, match=f"'it is so', node Neg_y.*{error.__name__}"):
        od.InferenceSession(model([node("Neg", ["x"], ["y"], "")], {"y": FLOAT}))
    od.plugins.reset()
    with pytest.raises(od.RuleError, match=f"fusion Wrong.*{error.__name__}"):
        od.fusion("Wrong")(fails)
    od.host("acme::Bad", infer=fails)(lambda n, x: x)
    with pytest.raises(od.RuleError, match=f"node Bad_y.*{error.__name__}"):
        od.InferenceSession(bad)
    od.plugins.reset()
    od.host("acme::Bad", like=0)(fails)
    with pytest.raises(od.RuleError, match=f"node Bad_y.*{error.__name__}"):
        od.InferenceSession(bad).run(None, {"x": X})


def test_a_wrong_attribute_names_the_rule_once() -> None:
    acme().op("Bad", to="other::Target").default(a=[])
    with pytest.raises(od.RuleError, match=r"node Bad_y.*acme::Bad -> other::Target.*from empty") as refused:
        od.InferenceSession(model([node("Bad", ["x"], ["y"])], {"y": FLOAT}))
    assert str(refused.value).count(__file__) == 1


def test_a_computed_attribute_that_fails_is_named_too() -> None:
    acme().op("Bad", to="Elu").compute(alpha=lambda n: n.attr("gone"))
    with pytest.raises(od.RuleError, match=r"node Bad_y.*'gone'.*beta"):
        od.InferenceSession(model([node("Bad", ["x"], ["y"], beta=1.0)], {"y": FLOAT}))


def test_rules_in_a_circle() -> None:
    acme().op("A", to="acme::B")
    acme().op("B", to="acme::A")
    with pytest.raises(od.RuleError, match=r"acme.A -> acme.B -> acme.A"):
        od.InferenceSession(model([node("A", ["x"], ["y"])], {"y": FLOAT}))


def test_a_callback_that_never_ends() -> None:
    @acme().expand("Loops")
    def loops(g: Any, n: Any) -> Any:
        while True:
            pass

    with pytest.raises(od.OneDispatchError, match="Loops"):
        od.InferenceSession(model([node("Loops", ["x"], ["y"])], {"y": FLOAT}), kernel_seconds=0.5)


# -- plug-in files -----------------------------------------------------------------------------------

RULES = """
import onedispatch as od
acme = od.frontend("onnx", domain="acme")
acme.op("A", to="Relu")
"""


def test_a_file_brings_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(RULES)
    (plugin,) = od.plugins.load(tmp_path / "rules.py")
    assert plugin.rules == ("rule for acme::A",)
    given = model([node("A", ["x"], ["y"])], {"y": FLOAT})
    np.testing.assert_array_equal(run(given)[0], np.maximum(X, 0))
    compiled = od.compile(given, fallback="error")
    compiled.save(tmp_path / "a.od")
    od.plugins.reset()
    session = od.InferenceSession(od.load(tmp_path / "a.od"))  # needs no rule any more
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.maximum(X, 0))


def test_two_files_with_one_rule(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(RULES)
    od.plugins.load(tmp_path / "one.py")
    with pytest.raises(od.RuleError, match=r"two.py, line 4.*one.py, line 4"):
        od.plugins.load(tmp_path / "two.py")
    (plugin,) = od.plugins.load(tmp_path / "two.py", on_conflict="first")
    assert not plugin.rules and "one.py" in plugin.skipped[0]


def test_a_file_with_a_wrong_rule_registers_nothing(tmp_path: Path) -> None:
    file = tmp_path / "rules.py"
    file.write_text(RULES + 'acme.op("B", to="Reluu")\n')
    with pytest.raises(od.RuleError, match=r"Reluu.*line 5|line 5.*Reluu"):
        od.plugins.load(file)
    with pytest.raises(od.UnknownOperatorError):
        run(model([node("A", ["x"], ["y"])], {"y": FLOAT}))


# -- host implementations ------------------------------------------------------------------------------


def test_a_host_implementation_computes_what_the_device_does_not() -> None:
    @od.host("acme::Cube", like=0)
    def cube(n: Any, x: Any) -> Any:
        return (x**3 * np.float32(n.attr("scale", 1.0))).astype(x.dtype)

    nodes = [node("Cube", ["x"], ["c"], scale=2.0), node("Neg", ["c"], ["y"], "")]
    session = od.InferenceSession(model(nodes, {"y": FLOAT}))
    np.testing.assert_allclose(session.run(None, {"x": X})[0], -2 * X**3, rtol=1e-5)
    assert [(row.device, row.engine) for row in session.placement] == [
        ("cpu", "on its host implementation"),
        ("npu", ""),
    ]
    with pytest.raises(od.UnsupportedModelError, match="Cube"):
        od.InferenceSession(model(nodes, {"y": FLOAT}), fallback="error")


def test_a_kernel_that_refuses_a_type_has_its_host_implementation() -> None:
    @od.kernel("acme::twice", inputs="x", outputs="y")
    class Twice:
        def body(self, t: Any) -> None:
            t.y[:] = t.x + t.x

    od.maps("Twice", domain="acme")(Twice)
    nodes = [node("Cast", ["x"], ["i"], "", to=INT32), node("Twice", ["i"], ["y"])]
    with pytest.raises(od.KernelDtypeError):
        od.InferenceSession(model(nodes, {"y": INT32}))
    od.host("acme::Twice", like=0)(lambda n, x: x + x)
    session = od.InferenceSession(model(nodes, {"y": INT32}))
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X.astype(np.int32))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda n, x: x.astype(np.float64), "float64 as output y"),
        (lambda n, x: None, "NoneType"),
        (lambda n, x: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_a_host_implementation_that_fails_is_named(function: Any, text: str) -> None:
    od.host("acme::Bad", like=0)(function)
    session = od.InferenceSession(model([node("Bad", ["x"], ["y"])], {"y": FLOAT}))
    with pytest.raises(od.RuleError, match=rf"node Bad_y.*{text}"):
        session.run(None, {"x": X})


def test_a_host_implementation_neither_changes_nor_shares_arrays() -> None:
    @od.host("acme::Sorts", like=0)
    def sorts(n: Any, x: Any) -> Any:
        x.sort()
        return x

    session = od.InferenceSession(model([node("Sorts", ["x"], ["y"])], {"y": FLOAT}))
    before = X.copy()
    with pytest.raises(od.RuleError, match=r"node Sorts_y.*read-only"):
        session.run(None, {"x": X})
    np.testing.assert_array_equal(X, before)

    kept = np.zeros_like(X)

    @od.host("acme::Keeps", like=0)
    def keeps(n: Any, x: Any) -> Any:
        kept[:] = x
        return kept

    nodes = [node("Keeps", ["x"], ["a"]), node("Neg", ["a"], ["b"], ""), node("Keeps", ["b"], ["y"])]
    a, y = od.InferenceSession(model(nodes, dict.fromkeys("ay", FLOAT))).run(None, {"x": X})
    np.testing.assert_array_equal(a, X)
    np.testing.assert_array_equal(y, -X)


# -- the command line ------------------------------------------------------------------------------------


def test_check_lists_what_is_mapped_and_what_is_not() -> None:
    acme().op("OldName", to="Relu", versions=(1, 6))
    nodes = [
        node("OldName", ["x"], ["y"]),
        node("OldNane", ["y"], ["z"]),
        node("Neg", ["z"], ["w"], ""),
        node("StringNormalizer", ["w"], ["v"], ""),
    ]
    found = command("check", model(nodes, {"v": FLOAT}))
    rows = {row["node"]: row for row in found["nodes"]}
    assert found["unmapped"] == ["OldNane_z"]
    assert rows["OldName_y"]["where"] == "device" and "-> Relu" in rows["OldName_y"]["how"]
    assert rows["OldNane_z"]["nearest"] == ["a rule for acme::OldName versions 1 to 6"]
    assert rows["Neg_w"]["where"] == "device"
    assert rows["StringNormalizer_v"]["where"] == "host"


def test_the_map_has_every_kind() -> None:
    acme().op("OldName", to="Relu", versions=(1, 6))
    line = here() - 1
    fuse_gate("Gated")
    result = CliRunner().invoke(app, ["ops", "map", "--json"])
    rows = json.loads(result.stdout)
    own = next(row for row in rows if row["source"] == "acme::OldName")
    assert own == {
        "framework": "onnx",
        "source": "acme::OldName",
        "versions": "1-6",
        "target": "Relu",
        "kind": "1:1",
        "file": __file__,
        "line": line,
        "ours": False,
    }
    assert {"1:1", "N:1", "N:M", "device"} <= {row["kind"] for row in rows}
    assert any(row["framework"] == "tensorflow" and row["ours"] for row in rows)
