# SPDX-License-Identifier: Apache-2.0
"""Host regions: onnxruntime, and onnx's reference evaluator where that has no kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onedispatch as od
from onedispatch.dispatch.fold import specialise
from onedispatch.dispatch.host import HostRegion
from onedispatch.dispatch.importer import import_model
from onedispatch.operators import registry


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


def test_strings_pass_through_host_regions() -> None:
    proto = model(helper.make_node("StringConcat", ["x", "x"], ["y"]), kind=TensorProto.STRING)
    texts = np.array([["a", "b", "c"], ["d", "e", "f"]])
    for given in (texts, texts.astype(object)):
        (y,) = od.InferenceSession(proto).run(None, {"x": given})
        assert y[1, 2] == "ff"
