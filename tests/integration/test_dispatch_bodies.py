# SPDX-License-Identifier: Apache-2.0
"""Nodes that run by their function bodies: when, what the rows say, and that nothing else does."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.dispatch.compiler import expand
from onedispatch.dispatch.compiler.executable import NodePlacement
from onedispatch.operators.declarations import registry

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

X = np.linspace(-3, 3, 64).astype(np.float32).reshape(2, 4, 8)


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Takes the mapping of operators away, so that these tests do not change with what maps."""
    find = registry.mapping_for

    def hidden(*op_types: str) -> None:
        def lookup(domain: str, op_type: str) -> Any:
            return None if op_type in op_types and not domain else find(domain, op_type)

        monkeypatch.setattr(registry, "mapping_for", lookup)

    return hidden


def model(
    nodes: list[onnx.NodeProto], opset: int = 18, kind: int = TensorProto.FLOAT, **weights: np.ndarray
) -> onnx.ModelProto:
    ins = [helper.make_tensor_value_info("x", kind, X.shape)]
    outs = [helper.make_tensor_value_info("y", kind, None)]
    tensors = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "g", ins, outs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(proto: onnx.ModelProto, fallback: str = "error") -> tuple[dict[str, NodePlacement], od.RunReport]:
    """Compares with onnxruntime; rows by node, and the report."""
    session = od.InferenceSession(proto, fallback=fallback)
    kind = np.float64 if proto.graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE else np.float32
    (mine,) = session.run(None, {"x": X.astype(kind)})
    (other,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": X.astype(kind)})
    np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    assert session.last_run is not None
    return {row.node: row for row in session.placement}, session.last_run


def mish(reads: str = "x", writes: str = "y", name: str = "m") -> onnx.NodeProto:
    return helper.make_node("Mish", [reads], [writes], name=name)


def test_a_node_without_a_mapping_runs_by_its_body(hide: Any) -> None:
    hide("Mish")
    rows, report = run(model([mish()]))
    assert list(rows) == ["m"] and rows["m"].op_type == "Mish" and rows["m"].device == "npu"
    assert rows["m"].reason.startswith("by its function body: ")
    assert report.dispatches == 1 and report.host_seconds == 0


def test_what_is_read_is_looked_up_once_for_all_nodes(hide: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each of them: that would take the square of their number."""
    hide("Mish")
    looked_up, wanted = [], expand._wanted

    def counting(graph: Any) -> Any:
        looked_up.append(len(graph.nodes))
        return wanted(graph)

    monkeypatch.setattr(expand, "_wanted", counting)
    names = ["x", *(f"t{i}" for i in range(11)), "y"]
    run(model([mish(a, b, f"m{i}") for i, (a, b) in enumerate(pairwise(names))]))
    assert looked_up.count(12) < 4


def test_bodies_in_bodies(hide: Any) -> None:
    hide("Mish", "Softplus")
    rows, _ = run(
        model(
            [
                mish(),
            ]
        )
    )
    assert rows["m"].reason.startswith("by its function body: ")


def test_its_own_mapping_goes_first() -> None:
    rows, _ = run(model([helper.make_node("Softmax", ["x"], ["y"], name="s")]))
    assert not rows["s"].reason.startswith("by its function body")


def test_two_of_a_kind_keep_their_names_apart(hide: Any) -> None:
    hide("Mish")
    nodes = [mish("x", "a", "m"), mish("a", "b", "n"), helper.make_node("Relu", ["b"], ["y"], name="m/n")]
    rows, _ = run(model(nodes))
    assert list(rows) == ["m", "n", "m/n"]


def test_a_node_stays_whole_where_an_inner_one_does_not_map(hide: Any) -> None:
    hide("Mish", "Softplus", "Log")
    rows, _ = run(model([mish()]), fallback="cpu")
    assert list(rows) == ["m"] and rows["m"].device == "cpu"
    assert "no device operator for ai.onnx.Mish" in rows["m"].reason
    assert "its function body: Softplus: no device operator" in rows["m"].reason
    assert "its function body: Log: no device operator for ai.onnx.Log" in rows["m"].reason
    with pytest.raises(od.UnsupportedModelError, match="its function body: Softplus: no device operator"):
        od.InferenceSession(model([mish()]), fallback="error")


def test_types_that_do_not_map_are_named(hide: Any) -> None:
    hide("Mish")
    proto = model([mish()], kind=TensorProto.DOUBLE)
    with pytest.raises(od.UnsupportedModelError, match=r"its function body: .*float64"):
        od.InferenceSession(proto, fallback="error")


def test_shapes_that_only_the_body_knows_reach_its_readers(hide: Any) -> None:
    hide("GroupNormalization")
    weights = {"s": np.linspace(1, 2, 4, dtype=np.float32), "b": np.ones(4, np.float32)}
    nodes = [
        helper.make_node("GroupNormalization", ["x", "s", "b"], ["n"], name="n", num_groups=2),
        helper.make_node("Relu", ["n"], ["y"], name="r"),
    ]
    rows, report = run(model(nodes, 21, **weights))
    assert list(rows) == ["n", "r"] and {row.device for row in rows.values()} == {"npu"}
    assert report.dispatches == 1


def test_attributes_take_their_defaults(hide: Any) -> None:
    hide("Celu")
    rows, _ = run(model([helper.make_node("Celu", ["x"], ["y"], name="c")]), fallback="cpu")
    assert "no value" not in rows["c"].reason


def test_nothing_of_the_run_is_folded(hide: Any) -> None:
    hide("Mish")
    rows, _ = run(model([mish()]))
    assert all(row.device != "folded" for row in rows.values())
    assert expand.BY_BODY in rows["m"].reason


def test_a_saved_model_keeps_the_rows(hide: Any, tmp_path: Any) -> None:
    hide("Mish")
    compiled = od.compile(model([mish()]))
    compiled.save(tmp_path / "m.od")
    assert od.load(tmp_path / "m.od").placement == compiled.placement


@pytest.mark.parametrize("shape", [(0,), (0, 1)], ids=str)
def test_a_body_that_does_not_fit_its_node_is_refused(shape: tuple[int, ...]) -> None:
    """onnx's body of LayerNormalization makes one element of none."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    scale = numpy_helper.from_array(np.zeros(shape, np.float32), "scale")
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y"], "norm", axis=0)
    graph = helper.make_graph([node], "g", [x], [y], [scale])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(od.UnsupportedModelError, match=r"LayerNormalization of shape .* at least one"):
        od.InferenceSession(proto, fallback="error")
