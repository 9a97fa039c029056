# SPDX-License-Identifier: Apache-2.0
"""Every form of every rule fires, and does not where it must not; the models come from the rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onedispatch as od
from onedispatch.dispatch.compiler import rewrite as rewriting
from onedispatch.dispatch.compiler.fold import specialise
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.rules import pattern as p
from onedispatch.dispatch.rules.table import RULES
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.families.layer_norm import LayerNorm
from onedispatch.transactions import find_device
from tests.unit.rule_models import SHAPE, Builder, numbers, opset_for, variants

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

FORMS = [
    pytest.param(rule, form, id=f"{rule.name}-{number}")
    for rule in RULES
    for number, form in enumerate(variants(rule))
]
FIRST = [pytest.param(rule, next(variants(rule)), id=rule.name) for rule in RULES]


@pytest.fixture
def all_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are judged by their form alone, whatever maps by now."""
    monkeypatch.setattr(rewriting, "refusals_of", lambda *_: {})


def rewritten(model: onnx.ModelProto, *rules: p.Rule, shape: tuple[int, ...] = SHAPE) -> Graph:
    graph = specialise(import_model(model), {"x": shape}, {})
    return rewriting.rewrite(graph, find_device("npu2"), rules or RULES)


def left(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes if node.name != "end"]


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(("rule", "form"), FORMS)
@pytest.mark.parametrize("flip", [False, True])
def test_fires(rule: p.Rule, form: p.Op, flip: bool) -> None:
    graph = rewritten(Builder(opset=opset_for(form), flip=flip).model(form), rule)
    assert left(graph) == [rule.target[0]]
    (origin,) = graph.origins.values()
    assert origin.how == f"rule {rule.name}" and len(origin.nodes) > 1


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(("rule", "form"), FIRST)
def test_does_not_fire_where_an_inner_value_is_an_output(rule: p.Rule, form: p.Op) -> None:
    builder = Builder(opset=opset_for(form))
    builder.model(form)
    inner = builder.nodes[0].output[0]
    graph = rewritten(Builder(opset=opset_for(form)).model(form, inner), rule)
    assert not graph.origins
    assert any(f"{inner} (of {inner}) is an output of the model" in text for text in graph.remarks.values())


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(("rule", "form"), FIRST)
def test_does_not_fire_where_an_inner_value_has_another_reader(rule: p.Rule, form: p.Op) -> None:
    model = Builder(opset=opset_for(form)).model(form, "z")
    inner = model.graph.node[0].output[0]
    model.graph.node.append(onnx.helper.make_node("Abs", [inner], ["z"], name="other"))
    graph = rewritten(model, rule)
    assert not graph.origins
    assert any(f"{inner} (of {inner}) is read by other too" in text for text in graph.remarks.values())


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(
    ("rule", "form", "wrong"),
    [
        pytest.param(*one.values, wrong, id=f"{one.id}-{wrong}")
        for one in FORMS
        for wrong in range(numbers(one.values[1]))  # type: ignore[arg-type]
    ],
)
def test_does_not_fire_for_other_numbers(rule: p.Rule, form: p.Op, wrong: int) -> None:
    builder = Builder(opset=opset_for(form), wrong=wrong)
    model = builder.model(form)
    if all(weight == 0 for name, weight in builder.weights.items() if name == f"c{wrong + 1}"):
        return  # a percent of nothing
    assert left(rewritten(model, rule)) != [rule.target[0]]


NORMS = [one for one in FIRST if "ReduceMean" in str(one.values[1])]


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(("rule", "form"), NORMS)
def test_norms_do_not_fire_over_other_axes(rule: p.Rule, form: p.Op) -> None:
    shape = (2, 8, 8)
    graph = rewritten(Builder(axes=(1,), shape=shape).model(form), rule, shape=shape)
    assert not graph.origins
    assert any("over the same last axes" in text for text in graph.remarks.values())


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(("rule", "form"), NORMS)
def test_norms_do_not_fire_where_reduced_axes_go(rule: p.Rule, form: p.Op) -> None:
    shape = (8, 8, 8)
    graph = rewritten(Builder(keepdims=0, shape=shape).model(form), rule, shape=shape)
    assert not graph.origins


@pytest.mark.usefixtures("all_maps")
def test_constants_that_add_axes_stop_a_rule() -> None:
    (rule,) = (rule for rule in RULES if rule.name == "gelu_erf")
    model = Builder().model(next(variants(rule)))
    for tensor in model.graph.initializer:
        tensor.dims[:] = [1] * 5
    del model.graph.value_info[:]
    graph = rewritten(model, rule)
    assert not graph.origins
    assert any("in place of" in text for text in graph.remarks.values())


def test_near_misses_are_told() -> None:
    (rule,) = (rule for rule in RULES if rule.name == "gelu_erf")
    graph = rewritten(Builder(wrong=0).model(next(variants(rule))), rule)
    (text,) = graph.remarks.values()
    assert text.startswith("rule gelu_erf did not fire: ") and "is 1.42836, not 1.41421" in text


@pytest.mark.usefixtures("all_maps")
def test_what_does_not_look_like_a_rule_says_nothing() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2,6,8] x) => (float[2,6,8] y) { y = Erf(x) }'
    )
    assert not rewritten(proto).remarks


# -- what they compute -----------------------------------------------------------------------------------

MAPPED = [one for one in FORMS if one.values[0].name not in rewriting.unmapped_rules()]  # type: ignore[union-attr]


@pytest.fixture
def data() -> Iterator[Any]:
    yield np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32) * 3


@pytest.mark.parametrize(("rule", "form"), MAPPED)
def test_computes_the_same(rule: p.Rule, form: p.Op, data: Any) -> None:
    model = Builder(opset=opset_for(form)).model(form)
    session = od.InferenceSession(model, fallback="error")
    (mine,) = session.run(None, {"x": data})
    (other,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": data})
    np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-6)
    told = [row.reason for row in session.placement if row.node != "end"]
    assert all(reason.startswith("rule ") for reason in told), told


def test_a_node_of_a_newer_operator_set_keeps_its_meaning() -> None:
    """Softmax of opset 13 in a model of opset 10, where it would mean all axes from there on."""
    (rule,) = (rule for rule in RULES if rule.name == "softmax")
    builder = Builder(opset=10, axes=(1,))
    model = builder.model(next(variants(rule)))
    session = od.InferenceSession(model, fallback="error")
    x = np.random.default_rng(5).standard_normal(SHAPE).astype(np.float32)
    (mine,) = session.run(None, {"x": x})
    (other,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-6)
    assert all(row.reason.startswith("rule softmax") for row in session.placement if row.node != "end")


def test_what_refuses_late_runs_on_the_host_as_the_model_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's operator set has no LayerNormalization: the host gets the nodes that it stands for."""

    def refuse(self: Any, selector: Any) -> Any:
        raise Unsupported("too late", "something else")

    monkeypatch.setattr(LayerNorm, "selected", refuse)
    (rule,) = (rule for rule in RULES if rule.name == "layer_norm_alone")
    model = Builder(opset=13).model(next(variants(rule)))
    session = od.InferenceSession(model, fallback="cpu")
    x = np.random.default_rng(5).standard_normal(SHAPE).astype(np.float32)
    (mine,) = session.run(None, {"x": x})
    (other,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-6)
    rows = [row for row in session.placement if row.node != "end"]
    assert {row.device for row in rows} == {"cpu"}
    assert all("of which not all maps: LayerNormalization: too late" in row.reason for row in rows)
    with pytest.raises(od.UnsupportedModelError, match=r"LayerNormalization.*: too late"):
        od.InferenceSession(model, fallback="error")
