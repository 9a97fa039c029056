# SPDX-License-Identifier: Apache-2.0
"""Rules for onnxruntime's operators: each has cases, optimised models run, what is refused says why."""

from __future__ import annotations

from dataclasses import replace
from math import erf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onedispatch as od
from onedispatch.dispatch.contrib import domain
from onedispatch.dispatch.frontend.schemas import runtime_has
from onedispatch.dispatch.sources import registry
from onedispatch.dispatch.tools import zoo
from onedispatch.operators.declarations.registry import MICROSOFT, mapping_for
from tests.integration.foreign_models import FLOAT, X, in_an_if, node, run
from tests.integration.foreign_models import model as foreign
from tests.ops.case import Case, check, run_onnxruntime
from tests.ops.contrib_cases import CASES, attention, contrib, f32, grouped, ints, weight
from tests.tables import each_case, operator_and_device, operator_and_types, sampled

Array = np.ndarray[Any, Any]
# onnxruntime has these for no CPU, and of a Range of constants nothing is left: said here.
SAID_HERE = {"BiasAdd", "BiasSplitGelu", "Range"}
OF_ORT = (MICROSOFT, 1)
LIGHT = Path(__file__).parents[2] / "models" / "light"

pytestmark = pytest.mark.usefixtures("no_plugins")


def ours() -> set[str]:
    domain.load_rules()
    return {rule.op_type for rule in registry.rules() if rule.ours and rule.domain == MICROSOFT}


def test_every_rule_has_a_case() -> None:
    assert ours() - {one.op_type for one in CASES} == SAID_HERE


@each_case(sampled(CASES, operator_and_types, 4), group=operator_and_device)
def test_a_rule_computes_what_onnxruntime_does(case: Case) -> None:
    session = od.InferenceSession(case.model, device=case.device, fallback="error")
    for _ in range(2):
        outputs = session.run(None, case.feed)
        assert session.last_run is not None and session.last_run.dispatches == 1
        for actual, expected in zip(outputs, case.expected, strict=True):
            check(actual, expected, case.allowed)


def test_every_rule_is_for_an_operator_of_onnxruntime_that_has_no_mapping() -> None:
    assert [name for name in ours() if not runtime_has(name, MICROSOFT)] == []
    assert [name for name in ours() if mapping_for(MICROSOFT, name) is not None] == []


def one_node(op_type: str, *inputs: str, **constants: Any) -> onnx.ModelProto:
    made = foreign([node(op_type, inputs, ["y"], MICROSOFT)], {"y": FLOAT}, **constants)
    made.opset_import.append(helper.make_opsetid(*OF_ORT))
    return made


def test_operators_that_onnxruntime_has_for_no_cpu() -> None:
    bias, skip = np.float32([1, 2, 3, 4]), np.float32(np.ones((2, 3, 4)))
    (y,) = run(one_node("BiasAdd", "x", "bias", "skip", bias=bias, skip=skip))
    np.testing.assert_allclose(y, X + bias + skip, rtol=1e-6)
    (y,) = run(one_node("BiasSplitGelu", "x", "bias", bias=bias))
    linear, gate = np.split(X + bias, 2, axis=-1)
    bell = np.vectorize(lambda x: 0.5 * x * (1 + erf(x / sqrt(2))))(gate)
    np.testing.assert_allclose(y, linear * bell, rtol=1e-5, atol=1e-6)


def test_a_range_of_constants_is_one() -> None:
    steps = node("Range", ["first", "end", "step"], ["r"], MICROSOFT)
    made = foreign(
        [steps, node("Add", ["x", "r"], ["y"], "")],
        {"y": FLOAT},
        first=np.float32(0),
        end=np.float32(2),
        step=np.float32(0.5),
    )
    made.opset_import.append(helper.make_opsetid(*OF_ORT))
    np.testing.assert_allclose(run(made)[0], X + np.float32([0, 0.5, 1, 1.5]), rtol=1e-6)


# -- models that onnxruntime has optimised ------------------------------------------------------------


def optimised(model: onnx.ModelProto, folder: Path, level: str = "EXTENDED") -> onnx.ModelProto:
    """The model as onnxruntime's optimiser saves it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "optimised.onnx")


@pytest.mark.daily(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("mobilenet_v2", {"FusedConv"}),
        ("vit_small", {"FusedMatMul", "SkipLayerNormalization"}),
        ("llama_step", {"QuickGelu"}),
    ],
)
def test_an_optimised_network_in_one_dispatch(name: str, operators: set[str], tmp_path: Path) -> None:
    plain = zoo.randomised(zoo.find_model(str(LIGHT / f"{name}.onnx")), seed=3)
    model, feed = optimised(plain, tmp_path), zoo.random_input(plain, seed=4)
    assert operators <= {one.op_type for one in model.graph.node if one.domain == MICROSOFT}
    session = od.InferenceSession(model, fallback="error")
    for ours, theirs in zip(session.run(None, feed), run_onnxruntime(plain, feed), strict=True):
        assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()
    assert session.last_run is not None and session.last_run.dispatches == 1


def test_a_layout_of_one_machine_is_refused_with_what_to_do() -> None:
    info = helper.make_tensor_value_info("x", FLOAT, [1, 16, 8, 8])
    y = helper.make_tensor_value_info("y", FLOAT, None)
    blocks = node("MaxPool", ["x"], ["y"], "com.microsoft.nchwc", kernel_shape=[2, 2])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft.nchwc", 1)]
    made = helper.make_model(
        helper.make_graph([blocks], "net", [info], [y]), opset_imports=opsets, ir_version=10
    )
    with pytest.raises(od.UnsupportedModelError, match="ORT_ENABLE_EXTENDED or less"):
        od.compile(made, fallback="error")


# -- what is refused -----------------------------------------------------------------------------------

REFUSED = [
    (attention(do_rotary=1), "rotary embedding or a shared buffer"),
    (contrib("Attention", f32(2, 5, 16), weight(16, 47), num_heads=4), "three blocks of columns"),
    (attention(ints([1, 2, 3])), "a mask of 3 numbers for a batch of 2"),
    (attention(ints(np.ones((2, 1, 5, 5)))), "of rank 4, where 1 to 3 are known"),
    (contrib("MultiHeadAttention", f32(2, 5, 16), num_heads=4), "where 3, 3, 3"),
    (grouped(5, None, [5, 5], smooth_softmax=1), "smooth_softmax"),
    (grouped(5, None, [5, 5], local_window_size=0), "no key is seen"),
    (grouped(5, None, [5, 5], k_quant_type="PER_TENSOR"), "a cache of integers"),
    (contrib("CDist", f32(4, 5), f32(3, 5), metric="cosine"), "metric 'cosine', where"),
    (
        contrib("MultiHeadAttention", f32(2, 5, 16), *[f32(2, 7, 16)] * 2, num_heads=4, unidirectional=1),
        "causal order of queries",
    ),
    (contrib("FusedMatMul", f32(5, 5), f32(5), transA=1), "a vector beside a factor"),
    (attention(ints(np.ones((2, 5))), mask_filter_value=-np.inf), "would be no numbers"),
    (
        contrib(
            "Attention", f32(2, 5, 16), weight(16, 28), num_heads=2, qkv_hidden_sizes=[8, 8, 12], outputs=2
        ),
        "in one tensor",
    ),
    (contrib("FusedConv", f32(1, 4, 8, 8), weight(6, 4, 3, 3), activation="Swoosh"), "activation 'Swoosh'"),
    (
        contrib("FusedConv", f32(1, 4, 8, 8), weight(6, 4, 3, 3), activation="Clip", activation_params=[1.0]),
        "a minimum and a maximum",
    ),
]


@pytest.mark.parametrize(("given", "said"), REFUSED, ids=lambda one: one.id if isinstance(one, Case) else "")
def test_what_onnx_cannot_say_is_refused_with_the_reason(given: Case, said: str) -> None:
    with pytest.raises(od.UnsupportedModelError, match=said):
        od.compile(given.model, fallback="error")


def test_what_is_refused_runs_on_the_host() -> None:
    """The length of a cache that is data of the run: no shape follows from it."""
    given = grouped(1, 6, [7, 7])
    total = given.inputs[6]
    assert total is not None
    inputs = (*given.inputs[:6], replace(total, const=False))
    given = replace(given, inputs=inputs)
    session = od.InferenceSession(given.model)
    for made, wanted in zip(session.run(None, given.feed), given.expected, strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)
    assert [(row.op_type, row.device) for row in session.placement] == [("GroupQueryAttention", "cpu")]


# -- beside rules and kernels of others ----------------------------------------------------------------


def test_a_rule_of_yours_goes_before_ours() -> None:
    od.frontend("onnx", domain=MICROSOFT).op("Gelu", to="Neg")
    np.testing.assert_array_equal(run(one_node("Gelu", "x"))[0], -X)


def test_a_rule_of_yours_may_write_what_ours_map() -> None:
    od.frontend("onnx", domain="acme").op("Fast", to=f"{MICROSOFT}::QuickGelu").default(alpha=1.0)
    (y,) = run(foreign([node("Fast", ["x"], ["y"])], {"y": FLOAT}))
    np.testing.assert_allclose(y, X / (1 + np.exp(-X)), rtol=1e-5)


def test_nodes_in_bodies_are_mapped_too() -> None:
    made = in_an_if(node("QuickGelu", ["x"], ["t"], MICROSOFT, alpha=1.0))
    made.opset_import.append(helper.make_opsetid(*OF_ORT))
    (y,) = od.InferenceSession(made).run(None, {"x": X})
    np.testing.assert_allclose(y, X / (1 + np.exp(-X)), rtol=1e-5)


def test_open_sizes() -> None:
    """A batch and a sequence of any size: what follows from them is known when shapes are."""
    x = helper.make_tensor_value_info("x", FLOAT, ["batch", "sequence", 16])
    mask = helper.make_tensor_value_info("mask", TensorProto.INT32, ["batch", "sequence"])
    y = helper.make_tensor_value_info("y", FLOAT, ["batch", "sequence", 16])
    rng = np.random.default_rng(7)
    held = {"w": rng.standard_normal((16, 48)), "b": rng.standard_normal(48), "g": rng.random(16)}
    nodes = [
        node("Attention", ["x", "w", "b", "mask"], ["a"], MICROSOFT, num_heads=4, unidirectional=1),
        node("SkipLayerNormalization", ["a", "x", "g"], ["n"], MICROSOFT),
        node("FastGelu", ["n"], ["y"], MICROSOFT),
    ]
    constants = [onnx.numpy_helper.from_array(np.float32(one), name) for name, one in held.items()]
    graph = helper.make_graph(nodes, "net", [x, mask], [y], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(*OF_ORT)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = od.InferenceSession(made, fallback="error")
    for batch, length in ((1, 3), (2, 7)):
        feed = {
            "x": rng.standard_normal((batch, length, 16)).astype(np.float32),
            "mask": rng.integers(0, 2, (batch, length)).astype(np.int32),
        }
        (found,), (wanted,) = session.run(None, feed), run_onnxruntime(made, feed)
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
