# SPDX-License-Identifier: Apache-2.0
"""Every form of every rule fires, and does not where it must not; the models come from the rules."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onedispatch as od
from onedispatch.dispatch import rules
from onedispatch.dispatch.compiler import rewriter
from onedispatch.dispatch.compiler.fold import specialise
from onedispatch.dispatch.compiler.rewrite import rewrite, unmapped_rules
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.frontend.schemas import schema_of
from onedispatch.dispatch.rules import pattern as p
from onedispatch.dispatch.rules.table import NARROWED, PACKED, RULES
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.kernels.normalise import Normalise
from onedispatch.transactions import find_device
from tests.integration.rule_models import SHAPE, Builder, builder, numbers, variants
from tests.rule_validation import validated

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
    monkeypatch.setattr(rewriter, "refusals_of", lambda *_: {})


def rewritten(model: onnx.ModelProto, *rules: p.Rule, shape: tuple[int, ...] = SHAPE) -> Graph:
    graph = import_model(model)
    graph = specialise(graph, {value.name: value.concrete_shape or shape for value in graph.inputs}, {})
    return rewrite(graph, find_device("npu2"), rules or RULES)


def left(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes if the_rules(node.name)]


def the_rules(node: str) -> bool:
    """Whether a node of ``rule_models`` is one that a rule is about."""
    return node != "end" and not node.startswith("table_")


def written_by(call: p.NodeTemplate) -> list[str]:
    """The operators of a call, each behind its operands."""
    inner = [op for one in call.operands if isinstance(one, p.NodeTemplate) for op in written_by(one)]
    return [*inner, call.op_type]


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(("rule", "form"), FORMS)
@pytest.mark.parametrize("flip", [False, True])
def test_fires(rule: p.Rule, form: p.NodePattern, flip: bool) -> None:
    graph = rewritten(builder(rule, form, flip=flip).model(form), rule)
    assert left(graph) == written_by(rule.target)
    origin = next(iter(graph.origins.values()))
    assert origin.how == f"rule {rule.name}" and len(origin.nodes) > 1


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(("rule", "form"), FIRST)
def test_does_not_fire_where_an_inner_value_is_an_output(rule: p.Rule, form: p.NodePattern) -> None:
    written = builder(rule, form)
    written.model(form)
    inner, node = written.nodes[0].output[0], written.nodes[0].name
    graph = rewritten(builder(rule, form).model(form, inner), rule)
    assert not graph.origins
    assert any(f"{inner} (of {node}) is an output of the model" in text for text in graph.remarks.values())


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(("rule", "form"), FIRST)
def test_does_not_fire_where_an_inner_value_has_another_reader(rule: p.Rule, form: p.NodePattern) -> None:
    written = builder(rule, form)
    model = written.model(form, "z")
    inner = written.nodes[0].output[0]
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
def test_does_not_fire_for_other_numbers(rule: p.Rule, form: p.NodePattern, wrong: int) -> None:
    written = builder(rule, form, wrong=wrong)
    model = written.model(form)
    if all(weight == 0 for name, weight in written.weights.items() if name == f"c{wrong + 1}"):
        return  # a percent of nothing
    assert rule.target.op_type not in left(rewritten(model, rule))


NORMS = [one for one in FIRST if "ReduceMean" in str(one.values[1])]


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(("rule", "form"), NORMS)
def test_norms_do_not_fire_over_other_axes(rule: p.Rule, form: p.NodePattern) -> None:
    shape = (2, 8, 8)
    graph = rewritten(Builder(axes=(1,), shape=shape).model(form), rule, shape=shape)
    assert not graph.origins
    assert any("over the same last axes" in text for text in graph.remarks.values())


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(("rule", "form"), NORMS)
def test_norms_do_not_fire_where_reduced_axes_go(rule: p.Rule, form: p.NodePattern) -> None:
    shape = (8, 8, 8)
    graph = rewritten(Builder(keepdims=0, shape=shape).model(form), rule, shape=shape)
    assert not graph.origins


REDUCED = [one for one in FORMS if "Reduce" in str(one.values[1])]


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("attribute", [{"axes": [1]}, {"keepdims": 0}], ids=str)
@pytest.mark.parametrize(("rule", "form"), REDUCED)
def test_every_reduction_of_a_rule_is_looked_at(
    rule: p.Rule, form: p.NodePattern, attribute: dict[str, Any]
) -> None:
    model = Builder(shape=(8, 8, 8), opset=12).model(form)
    for number, node in enumerate(model.graph.node):
        if not node.op_type.startswith("Reduce"):
            continue
        other = onnx.ModelProto.FromString(model.SerializeToString())
        kept = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        other.graph.node[number].CopyFrom(
            onnx.helper.make_node(node.op_type, node.input, node.output, node.name, **{**kept, **attribute})
        )
        assert not rewritten(other, rule, shape=(8, 8, 8)).origins, f"another {attribute} of {node.name}"


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


def attention(**changes: Any) -> tuple[p.Rule, onnx.ModelProto]:
    (rule,) = (rule for rule in RULES if rule.name == "attention")
    return rule, Builder(shape=(2, 4, 4, 8), **changes).model(next(variants(rule)))


def stops(rule: p.Rule, model: onnx.ModelProto, reason: str) -> None:
    graph = rewritten(model, rule, shape=(2, 4, 4, 8))
    assert not graph.origins
    assert any(f"rule {rule.name} did not fire: {reason}" in text for text in graph.remarks.values())


@pytest.mark.usefixtures("all_maps")
def test_attention_wants_the_last_axis() -> None:
    rule, model = attention()
    (softmax,) = (node for node in model.graph.node if node.op_type == "Softmax")
    softmax.attribute[0].i = 2
    stops(rule, model, "Softmax over the last axis")


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("divisor", [0.0, np.inf, np.nan, 1e-39])
def test_attention_wants_a_scale(divisor: float) -> None:
    rule, model = attention()
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == "divisor")
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(divisor, np.float32), "divisor"))
    stops(rule, model, "a scale that is a number other than 0")


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(("opset", "fires"), [(12, False), (13, True)])
def test_an_axis_that_is_left_out_means_what_it_does_in_its_operator_set(opset: int, fires: bool) -> None:
    rule, model = attention(opset=opset)
    (softmax,) = (node for node in model.graph.node if node.op_type == "Softmax")
    del softmax.attribute[:]  # 1 before opset 13, the last one from there on
    if fires:
        assert left(rewritten(model, rule, shape=(2, 4, 4, 8))) == ["Attention"]
    else:
        stops(rule, model, "Softmax over the last axis")


@pytest.mark.usefixtures("all_maps")
def test_attention_with_a_computed_mask_wants_many_scores() -> None:
    rule, model = attention()
    (mask,) = (tensor for tensor in model.graph.initializer if tensor.name == "mask")
    model.graph.initializer.remove(mask)
    model.graph.input.append(onnx.helper.make_tensor_value_info("mask", onnx.TensorProto.FLOAT, [1, 4]))
    stops(rule, model, "a constant mask, or at least 65,536 scores")


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        (
            "c",
            np.arange(32, dtype=np.float32).reshape(1, 1, 4, 8),
            "constant tables whose halves are the same",
        ),
        ("c", np.array(2, np.float32), "constant tables whose halves are the same"),
        ("high_start", np.array([0]), "the second half of the last axis"),
    ],
)
def test_rotary_embedding_wants_halves(name: str, array: Any, reason: str) -> None:
    (rule,) = (rule for rule in RULES if rule.name == "rotary_embedding")
    model = Builder(shape=(2, 4, 4, 8)).model(next(variants(rule)))
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, name))
    if name == "high_start":
        (end,) = (tensor for tensor in model.graph.initializer if tensor.name == "high_end")
        end.CopyFrom(onnx.numpy_helper.from_array(np.array([4]), "high_end"))
    graph = rewritten(model, rule, shape=(2, 4, 4, 8))
    assert not graph.origins and any(reason in text for text in graph.remarks.values())


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("shape", [(1,), (4, 1), (4, 4, 8), (2, 4, 1, 1)])
def test_a_bias_of_a_convolution_has_one_value_for_each_channel(shape: tuple[int, ...]) -> None:
    (rule,) = (rule for rule in RULES if rule.name == "conv_bias")
    model = Builder(shape=(2, 4, 4, 8)).model(next(variants(rule)))
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == "bias")
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.ones(shape, np.float32), "bias"))
    stops(rule, model, "a constant with one value for each channel")


@pytest.mark.usefixtures("all_maps")
@pytest.mark.parametrize("shape", [(40, 2, 8), (40, 2, 21), (3, 2, 3), (0, 2, 3)], ids=str)
def test_integers_are_made_before_a_transpose_where_rows_are_long(shape: tuple[int, ...]) -> None:
    (rule,) = (rule for rule in RULES if rule.name == "quantise_after_transpose")
    form = next(variants(rule))
    graph = rewritten(builder(rule, form, shape=shape).model(form), rule)
    assert left(graph) == ["QuantizeLinear", "Transpose"]


@pytest.mark.parametrize("name", ["conv_factor", "conv_bias_factor", "batch_norm_factor"])
@pytest.mark.parametrize("factor", [np.inf, -np.inf, np.nan, 1e38])
@pytest.mark.usefixtures("all_maps")
def test_factors_that_overflow_stay_apart(name: str, factor: float) -> None:
    (rule,) = (rule for rule in RULES if rule.name == name)
    form = next(variants(rule))
    model = builder(rule, form).model(form)
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == "factor")
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.full((4, 1, 1), factor, np.float32), "factor"))
    stops(rule, model, "constants that stay finite")


@pytest.mark.parametrize(("follows", "merged"), [("Relu", True), ("Softmax", False)])
def test_bias_and_activation_are_part_of_a_product(follows: str, merged: bool) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[4,8] x) => (float[4,8] y)
    {{ p = MatMul(x, w)\n s = Add(p, b)\n y = {follows}(s) }}"""
    model = onnx.parser.parse_model(text)
    for name, shape in (("w", (8, 8)), ("b", (8,))):
        weights = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    rows = {row.op_type: row.reason for row in od.InferenceSession(model, fallback="error").placement}
    assert ("together with Add_1, " in rows["MatMul"]) == merged
    assert rows["Add"].startswith("as matmul together with MatMul_0")


@pytest.mark.parametrize("inside", ["read", "output"])
def test_a_product_that_is_read_elsewhere_keeps_its_bias_apart(inside: str) -> None:
    extra = "z = Abs(p)" if inside == "read" else "z = Identity(p)"
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[4,8] x) => (float[4,8] y, float[4,8] z)
    {{ p = MatMul(x, w)\n y = Add(p, b)\n {extra} }}"""
    model = onnx.parser.parse_model(text)
    for name, shape in (("w", (8, 8)), ("b", (8,))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    rows = {row.op_type: row.reason for row in od.InferenceSession(model, fallback="error").placement}
    assert rows["MatMul"] == "as matmul" and "MatMul" not in rows["Add"]


# -- what they compute -----------------------------------------------------------------------------------

MAPPED = [one for one in FORMS if one.values[0].name not in unmapped_rules()]  # type: ignore[union-attr]


@pytest.mark.daily(5)
@pytest.mark.parametrize(("rule", "form"), MAPPED)
def test_computes_the_same(rule: p.Rule, form: p.NodePattern) -> None:
    model = builder(rule, form).model(form)
    session = od.InferenceSession(model, fallback="error")
    rng = np.random.default_rng(3)
    feed = {one.name: 3 * rng.standard_normal(one.shape).astype(np.float32) for one in session.get_inputs()}
    (mine,) = session.run(None, feed)
    (other,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-6)
    told = [row.reason for row in session.placement if the_rules(row.node)]
    assert all(reason.startswith("rule ") for reason in told), told


def test_a_node_of_a_newer_operator_set_keeps_its_meaning() -> None:
    """Softmax of opset 13 in a model of opset 10, where it would mean all axes from there on."""
    (rule,) = (rule for rule in RULES if rule.name == "softmax")
    model = Builder(opset=10, axes=(1,)).model(next(variants(rule)))
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

    monkeypatch.setattr(Normalise, "selected", refuse)
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


# -- mistakes in rules ---------------------------------------------------------------------------------

SOUND = p.Rule("sound", "Sigmoid", ("Mul(x, S)",), "Swish(x)", 24, {"S": "Sigmoid(x)"})
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a missing parenthesis": ({"forms": ("Mul(x, Sigmoid(x)",)}, "never closed"),
    "a missing parenthesis in a part": ({"parts": {"S": "Sigmoid(x"}}, "never closed"),
    "a misspelt operator": ({"forms": ("Mull(x, S)",)}, "the operator 'Mull'"),
    "a form that is a value": ({"forms": ("x",)}, "the form 'x'"),
    "an anchor in no form": ({"anchor": "Tanh"}, "the anchor 'Tanh'"),
    "an anchor not in every form": ({"forms": ("Mul(x, S)", "Mul(x, x)")}, "the anchor 'Sigmoid'"),
    "a misspelt part": ({"forms": ("Mul(S, T)",)}, "the name 'T'"),
    "a part before its own": (
        {"forms": ("Mul(x, S)",), "parts": {"S": "Sigmoid(T)", "T": "Neg(x)"}},
        "the part 'T'",
    ),
    "a form without x": ({"forms": ("Mul(y, Sigmoid(y))",), "parts": {}}, "a form without 'x'"),
    "too many operands": ({"forms": ("Mul(x, S, x)",)}, "Mul with 3 operands"),
    "a misspelt attribute": ({"forms": ("Mul(x, Sigmoid(x, alpah=1))",)}, "attribute 'alpah' of Sigmoid"),
    "no forms": ({"forms": ()}, "no forms"),
    "a misspelt result": ({"to": "Swiss(x)"}, "the operator 'Swiss'"),
    "a result of a newer operator set": ({"opset": 23}, "the operator 'Swish'"),
    "a result of no value": ({"to": "Swish(z)"}, "the name 'z'"),
    "a result with an underived attribute": ({"to": "Swish(x, alpha=alpha)"}, "the name 'alpha'"),
    "a result with a misspelt attribute": ({"to": "Swish(x, alpah=1.0)"}, "attribute 'alpah' of Swish"),
    "a result that is no call": ({"to": "x"}, "'x' in 'x'"),
    "like a value that no form has": ({"like": "made"}, "a form without 'made'"),
    "an attribute that is no literal": ({"forms": ("Mul(x, Sigmoid(x, alpha=a))",)}, "alpha=a"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_rule_names_the_rule(mistake: str) -> None:
    changes, given = MISTAKES[mistake]
    with pytest.raises(od.InternalError, match="rule sound: ") as caught:
        validated([replace(SOUND, **changes)])
    assert given in caught.value.given


def test_two_rules_of_one_name_are_refused() -> None:
    assert validated([SOUND]) == (SOUND,)
    with pytest.raises(od.InternalError, match="the name 'sound'"):
        validated([SOUND, SOUND])


@pytest.mark.parametrize("rules", [PACKED, RULES, NARROWED], ids=["packed", "patterns", "narrowed"])
def test_rules_have_no_mistakes(rules: tuple[p.Rule, ...]) -> None:
    assert validated(rules) == rules


def test_targets_of_other_domains_have_schemas() -> None:
    """Which ``validated`` does not look at."""
    for rule in (*PACKED, *RULES, *NARROWED):
        if rule.target.domain:
            schema = schema_of(rule.target.op_type, rule.target.domain, 1)
            assert schema is not None, rule.name
            assert schema.min_input <= len(rule.target.operands) <= schema.max_input, rule.name
            assert rule.target.attributes.keys() <= schema.attributes.keys(), rule.name


def test_every_rule_of_the_folder_is_entered() -> None:
    applied = {rule.name for rule in (*PACKED, *RULES, *NARROWED)}
    for module in pkgutil.iter_modules(rules.__path__, f"{rules.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            for rule in value if isinstance(value, tuple) else (value,):
                if isinstance(rule, p.Rule):
                    assert rule.name in applied, f"{module.name}.{name}: enter {rule.name} in rules/table.py"
