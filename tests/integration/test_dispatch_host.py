# SPDX-License-Identifier: Apache-2.0
"""Host regions: onnxruntime, and onnx's reference evaluator where that has no kernel."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onedispatch as od
from onedispatch.dispatch.compiler.fold import specialise
from onedispatch.dispatch.frontend.graph import Value
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.host import engines
from onedispatch.dispatch.host import regions as host
from onedispatch.dispatch.host.regions import HostRegion
from onedispatch.operators.declarations import registry


@pytest.fixture(autouse=True)
def no_device_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "mapping_for", lambda domain, op: None)


def model(*nodes: onnx.NodeProto, kind: int = TensorProto.FLOAT, out: int | None = None) -> onnx.ModelProto:
    ends = [
        helper.make_tensor_value_info("x", kind, [2, 3]),
        helper.make_tensor_value_info("y", out or kind, [2, 3]),
    ]
    graph = helper.make_graph(list(nodes), "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_region_runs_as_one_model() -> None:
    proto = model(helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"]))
    graph = specialise(import_model(proto), {"x": (2, 3)}, {})
    region = HostRegion(graph, graph.nodes, ["y"])
    assert region.inputs == ("x",) and "onnxruntime" in region.where
    np.testing.assert_array_equal(region.run({"x": X})["y"], -X)


def test_a_type_without_kernel_goes_to_the_reference() -> None:
    cast = helper.make_node("Cast", ["x"], ["a"], to=TensorProto.FLOAT8E4M3FN)
    back = helper.make_node("Cast", ["a"], ["y"], to=TensorProto.FLOAT)
    (y,) = od.InferenceSession(model(cast, back)).run(None, {"x": X})
    np.testing.assert_array_equal(y, X)


def test_results_of_the_reference_have_their_declared_type() -> None:
    """NumPy makes float32 of float16 times a float32 scale."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT16, [64]),
        helper.make_tensor_value_info("training", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [64])]
    half = helper.make_tensor("ratio", TensorProto.FLOAT, [], [0.5])
    node = helper.make_node("Dropout", ["x", "ratio", "training"], ["y"], seed=7)
    graph = helper.make_graph([node], "g", inputs, outputs, [half])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = od.InferenceSession(proto)
    feed = {"x": np.ones(64, np.float16), "training": np.array(True)}
    first, again = (session.run(None, feed)[0] for _ in range(2))
    assert first.dtype == np.float16 and set(first.tolist()) == {0.0, 2.0}
    np.testing.assert_array_equal(first, again)  # the seed says which


def test_transforms_go_to_the_reference_between_nodes_of_onnxruntime() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Unsqueeze", ["a", "axes"], ["b"]),
        helper.make_node("DFT", ["b"], ["c"], name="transform", axis=1),
        helper.make_node("Identity", ["c"], ["y"]),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [2])
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 3]), ("y", None))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [axes])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = od.InferenceSession(proto)
    (y,) = session.run(None, {"x": X})
    wanted = np.fft.fft(-X)
    np.testing.assert_array_equal(y, np.stack([wanted.real, wanted.imag], -1).astype(np.float32))
    told = {p.node: p.engine for p in session.placement}
    assert told["transform"] == f"on {engines.REFERENCE}: {engines.PREFERRED['DFT']}"
    assert [told[name] for name in told if name != "transform"] == ["on onnxruntime"] * 3


def test_host_sessions_report_no_dispatch() -> None:
    session = od.InferenceSession(model(helper.make_node("Relu", ["x"], ["y"])))
    session.run(None, {"x": X})
    report = session.last_run
    assert report is not None and report.dispatches == 0 and report.cycles == 0
    assert {p.device for p in session.placement} == {"cpu"}


def test_subgraphs_read_outer_values() -> None:
    """If with branches that use a value of the graph around them."""

    def branch(name: str, op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])
        return helper.make_graph([helper.make_node(op, ["r"], [name])], name, [], [out])

    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "Neg"), else_branch=branch("e", "Abs")),
    ]
    session = od.InferenceSession(model(*nodes))
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)
    np.testing.assert_array_equal(session.run(None, {"x": X * 0})[0], X * 0)


def test_an_operator_that_nobody_runs_is_a_typed_error() -> None:
    proto = model(helper.make_node("Mystery", ["x"], ["y"], domain="nowhere", name="m"))
    proto.opset_import.append(helper.make_opsetid("nowhere", 1))
    with pytest.raises(od.ModelError, match="Mystery"):
        od.InferenceSession(proto).run(None, {"x": X})
    with pytest.raises(od.UnsupportedModelError, match="Mystery"):
        od.InferenceSession(proto, fallback="error")


@pytest.mark.parametrize("given", [np.zeros((2, 3), np.int64), np.zeros((3, 2), np.float32), 1.0, None])
def test_inputs_are_checked_before_anything_runs(given: Any) -> None:
    session = od.InferenceSession(model(helper.make_node("Relu", ["x"], ["y"])))
    with pytest.raises(od.InputError, match="input 'x'"):
        session.run(None, {"x": given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((X, X), ""),
        ([], ""),
        (X, "a ndarray; accepted: a list, seq"),
        (None, "a NoneType"),
        ([X, X.astype(np.float64)], "element 1: given dtype float64; accepted: float32"),
        ([X, "text"], "element 1: given a str"),
    ],
)
def test_sequences_are_checked_element_by_element(given: Any, said: str) -> None:
    """Otherwise the reference evaluator, which takes anything, would answer, and keep the node."""
    node = helper.make_node("SequenceLength", ["x"], ["y"])
    inputs = [helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT64, [])]
    session = od.InferenceSession(helper.make_model(helper.make_graph([node], "g", inputs, outputs)))
    if said:
        with pytest.raises(od.InputError, match=said):
            session.run(None, {"x": given})
    else:
        assert session.run(None, {"x": given}) == [len(given)]


def test_strings_pass_through_host_regions() -> None:
    proto = model(helper.make_node("StringConcat", ["x", "x"], ["y"]), kind=TensorProto.STRING)
    texts = np.array([["a", "b", "c"], ["d", "e", "f"]])
    for given in (texts, texts.astype(object)):
        (y,) = od.InferenceSession(proto).run(None, {"x": given})
        assert y[1, 2] == "ff"


# -- which engine, and why --------------------------------------------------------------------


def session_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[int]]], *constants: onnx.TensorProto
) -> od.InferenceSession:
    ends = [helper.make_tensor_value_info(n, *given) for n, given in inputs.items()]
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "g", ends, [y], list(constants))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return od.InferenceSession(proto)


def reasons(session: od.InferenceSession) -> dict[str, str]:
    return {row.node: row.reason for row in session.placement}


def without_kernels_for(monkeypatch: pytest.MonkeyPatch, op_type: str) -> None:
    class Lacking(engines.Runtime):
        def __init__(self, model: bytes, *args: Any) -> None:
            if any(node.op_type == op_type for node in onnx.load_from_string(model).graph.node):
                raise engines.EngineRefused(f"no kernel for {op_type}")
            super().__init__(model, *args)

    monkeypatch.setattr(host, "Runtime", Lacking)


GATHER = {"x": (TensorProto.FLOAT, [5, 3]), "i": (TensorProto.INT64, [2])}


def test_a_bad_input_harms_only_its_own_run() -> None:
    nodes = [
        helper.make_node("Sin", ["x"], ["a"], name="s"),
        helper.make_node("Gather", ["a", "i"], ["y"], name="g"),
    ]
    session = session_of(nodes, GATHER)
    x = np.ones((5, 3), np.float32)
    before = reasons(session)
    assert before["g"].endswith("; on onnxruntime") and before["s"].endswith("; on onnxruntime")
    (good,) = session.run(None, {"x": x, "i": np.array([0, 4])})
    for _ in range(2):
        with pytest.raises(od.InputError, match="indices element out of data bounds"):
            session.run(None, {"x": x, "i": np.array([0, 99])})
        assert reasons(session) == before
    np.testing.assert_array_equal(session.run(None, {"x": x, "i": np.array([0, 4])})[0], good)


def test_what_onnxruntime_fails_on_moves_alone_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(engines.Runtime):
        def __init__(self, model: bytes, *args: Any) -> None:
            self.ops = {node.op_type for node in onnx.load_from_string(model).graph.node}
            super().__init__(model, *args)

        def run(self, feed: Any) -> list[Any]:
            if "Abs" in self.ops:
                raise od.InputError("nodes on onnxruntime", "no Abs today")
            return super().run(feed)

    monkeypatch.setattr(host, "Runtime", Failing)
    names = ["Sin", "Neg", "Abs", "Cos", "Exp"]
    edges = ["x", "a", "b", "c", "d", "y"]
    nodes = [helper.make_node(op, [edges[i]], [edges[i + 1]], name=op) for i, op in enumerate(names)]
    session = session_of(nodes, {"x": (TensorProto.FLOAT, [2, 3])})
    with pytest.warns(RuntimeWarning, match="Abs: on onnx's reference evaluator from now on") as caught:
        (y,) = session.run(None, {"x": X})
    assert caught[0].filename == __file__  # the line that ran the session
    np.testing.assert_allclose(y, np.exp(np.cos(np.abs(-np.sin(X)))), rtol=1e-6)
    told = reasons(session)
    assert told["Abs"].endswith(
        "on onnx's reference evaluator: onnxruntime failed on it in a run: no Abs today"
    )
    assert all(told[op].endswith("; on onnxruntime") for op in names if op != "Abs")
    (again,) = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, again)


def test_only_the_node_without_kernel_leaves_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that may run before or after it is one piece each, whatever the model's order."""
    without_kernels_for(monkeypatch, "Det")
    nodes, heads = [helper.make_node("Det", ["x"], ["d"], name="odd")], []
    for i in range(6):
        nodes += [
            helper.make_node("Sin", ["x"], [f"s{i}"]),
            helper.make_node("Add", [f"s{i}", "d"], [f"t{i}"]),
        ]
        heads.append(f"t{i}")
    nodes.append(helper.make_node("Sum", heads, ["y"]))
    proto = model(*nodes)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 3
    graph = specialise(import_model(proto), {"x": (3, 3)}, {})
    region = HostRegion(graph, graph.nodes, ["y"])
    told = region.engines
    assert told["odd"] == "on onnx's reference evaluator: onnxruntime refuses it: no kernel for Det"
    assert [why for node, why in told.items() if node != "odd"] == ["on onnxruntime"] * 13
    assert len(region._pieces) <= 3
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    expected = 6 * (np.sin(x) + np.linalg.det(x))
    np.testing.assert_allclose(region.run({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)


def test_a_branch_that_does_not_fit_these_shapes_stays_on_onnxruntime() -> None:
    """onnxruntime infers into both branches, also the one for another sampling rate."""

    def branch(name: str, weights: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node("MatMul", ["x", weights], [name])], name, [], [out])

    inner = helper.make_node("If", ["c"], ["n"], then_branch=branch("t", "w3"), else_branch=branch("e", "w4"))
    out = helper.make_tensor_value_info("n", TensorProto.FLOAT, None)
    nested = helper.make_graph([inner], "nested", [], [out])
    node = helper.make_node("If", ["c"], ["y"], then_branch=nested, else_branch=branch("o", "w4"), name="if")
    session = session_of(
        [
            helper.make_node("Cast", ["not_c"], ["n"], to=TensorProto.INT64),
            helper.make_node("Less", ["n", "k"], ["c"]),
            node,
        ],
        {"x": (TensorProto.FLOAT, [2, 3]), "not_c": (TensorProto.BOOL, [])},
        onnx.numpy_helper.from_array(np.ones((3, 2), np.float32), "w3"),
        onnx.numpy_helper.from_array(np.ones((4, 2), np.float32), "w4"),
        onnx.numpy_helper.from_array(np.array(1, np.int64), "k"),
    )
    (y,) = session.run(None, {"x": X, "not_c": np.array(False)})
    np.testing.assert_array_equal(y, X @ np.ones((3, 2), np.float32))
    assert reasons(session)["if"].endswith("; on onnxruntime")


def test_outputs_of_undefined_type_are_inferred() -> None:
    proto = model(helper.make_node("Sin", ["x"], ["y"]))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.UNDEFINED
    (y,) = od.InferenceSession(proto).run(None, {"x": X})
    np.testing.assert_allclose(y, np.sin(X), rtol=1e-6)


def test_many_regions_share_few_threads() -> None:
    """A pool per region: a thread for each CPU but one, with 1,000 regions more than a process may have."""
    graph = specialise(import_model(model(helper.make_node("Sin", ["x"], ["y"]))), {"x": (2, 3)}, {})
    large = specialise(import_model(model(helper.make_node("Sin", ["x"], ["y"]))), {"x": (2, 3)}, {})
    large = replace(large, values={**large.values, "y": Value("y", "tensor(float)", None)})  # work unknown
    before = len(os.listdir("/proc/self/task"))
    regions = [HostRegion(g, g.nodes, ["y"], threads=8) for g in (graph, large) for _ in range(40)]
    waiting = 2  # threads that wait for onnxruntime on behalf of an interruptible caller come and go
    assert len(os.listdir("/proc/self/task")) - before <= max(32, 4 * (os.cpu_count() or 1)) + waiting
    for region in regions:
        np.testing.assert_allclose(region.run({"x": X})["y"], np.sin(X), rtol=1e-6)
    del regions, region
    left = engines.POOLS.take(1 << 20)
    engines.POOLS.give_back(left)
    assert left >= 8  # what ended gave its threads back
