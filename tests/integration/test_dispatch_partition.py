# SPDX-License-Identifier: Apache-2.0
"""Placement: as few regions as possible, each one closed, every host node with its reason."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.compiler.executable import DeviceStep, HostStep
from onedispatch.dispatch.compiler.mapping import Refusal, Unit, _unknown
from onedispatch.dispatch.compiler.partition import partition, place_of
from onedispatch.dispatch.driver.compile_model import compile_model
from onedispatch.dispatch.frontend.graph import Node
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.operators.declarations import registry
from onedispatch.transactions.base.errors import UnsupportedModelError


def unit(kind: str, name: str, reads: Sequence[str]) -> Unit:
    node = Node(name, kind, "", tuple(reads), (name,))
    refusal = Refusal("no operator") if kind == "host" else None
    return Unit(kind, (node,), tuple(reads), (name,), refusal=refusal)  # type: ignore[arg-type]


@st.composite
def graphs(draw: st.DrawFn) -> list[Unit]:
    units: list[Unit] = []
    for index in range(draw(st.integers(1, 25))):
        names = ["x", *(u.writes[0] for u in units)]
        reads = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        units.append(unit(draw(st.sampled_from(["op", "host", "alias"])), f"v{index}", reads))
    return units


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_regions_run_in_order_and_every_input_exists_by_then(units: list[Unit]) -> None:
    outputs = [units[-1].writes[0]]
    regions = partition(units, outputs)
    known = {"x"}
    for region in regions:
        assert set(region.inputs) <= known
        inside = set(region.inputs)
        for u in region.units:
            assert set(u.reads) <= inside
            inside.update(u.writes)
            assert place_of(u) == region.place
        known |= set(region.outputs)
    assert outputs[0] in known
    assert sum(len(r.units) for r in regions) == len(units)
    assert all(a.place != b.place for a, b in itertools.pairwise(regions))


def test_parallel_branches_share_regions() -> None:
    branches = []
    for b in range(4):
        branches += [
            unit("op", f"a{b}", ["x"]),
            unit("host", f"b{b}", [f"a{b}"]),
            unit("op", f"c{b}", [f"b{b}"]),
        ]
    regions = partition(branches, [f"c{b}" for b in range(4)])
    assert [r.place for r in regions] == ["npu", "cpu", "npu"]


def test_an_alias_between_host_nodes_stays_there() -> None:
    units = [unit("host", "a", ["x"]), unit("alias", "b", ["a"]), unit("host", "c", ["b"])]
    assert [r.place for r in partition(units, ["c"])] == ["cpu"]


# -- whole models, with the mapping of some operators hidden ---------------------------------


def chain(*op_types: str, shape: Sequence[int | str] = (4, 8)) -> onnx.ModelProto:
    nodes = [
        helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], name=f"{op.lower()}{i}")
        for i, op in enumerate(op_types)
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("v0", f"v{len(nodes)}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device does not know Tanh, Exp and Floor; the last is part of no rule."""
    real = registry.mapping_for
    monkeypatch.setattr(
        registry,
        "mapping_for",
        lambda domain, op: None if op in ("Tanh", "Exp", "Floor") else real(domain, op),
    )


def steps_of(compiled: CompiledModel) -> list[str]:
    (executable,) = compiled.executables.values()
    return ["npu" if isinstance(step, DeviceStep) else "cpu" for step in executable.steps]


@pytest.mark.usefixtures("hide")
def test_fallback_places_what_does_not_map_on_the_host() -> None:
    compiled = compile_model(chain("Relu", "Tanh", "Sigmoid"))
    assert steps_of(compiled) == ["npu", "cpu", "npu"]
    assert [(p.node, p.device) for p in compiled.placement] == [
        ("relu0", "npu"),
        ("tanh1", "cpu"),
        ("sigmoid2", "npu"),
    ]
    assert "no device operator" in compiled.placement[1].reason


@pytest.mark.usefixtures("hide")
def test_strict_mode_lists_every_node_at_once() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        compile_model(chain("Relu", "Tanh", "Sigmoid", "Exp"), fallback="error")
    assert len(caught.value.nodes) == 2
    text = str(caught.value)
    assert "tanh1 (Tanh)" in text and "exp3 (Exp)" in text and "nearest" in text


def test_what_does_not_map_is_not_advised_by_spelling() -> None:
    """Every operator without a mapping: LpPool is spelled like Loop and computes something else."""
    mapped = {row.op_type for row in registry.all_mappings() if not row.domain}
    missing = {one.name for one in onnx.defs.get_all_schemas() if not one.domain} - mapped
    assert {"Loop", "Det"} <= missing
    graph = import_model(chain("Relu"))
    for op_type in sorted(missing):
        refusal = _unknown(graph, Node("n", op_type, "", (), ()))
        listed = set(re.findall(r"\w+", refusal.nearest)) & mapped
        assert listed <= {"Split", "Concat", "MatMul"}, refusal
    assert "unrolled" in _unknown(graph, Node("n", "Loop", "", (), ())).nearest


@pytest.mark.usefixtures("hide")
def test_strict_mode_speaks_before_shapes_are_known() -> None:
    with pytest.raises(UnsupportedModelError, match="floor0"):
        compile_model(chain("Floor", shape=("N", 8)), fallback="error")


def test_a_model_of_known_operators_is_one_step() -> None:
    compiled = compile_model(chain("Relu", "Tanh", "Sigmoid", "Exp"), fallback="error")
    assert steps_of(compiled) == ["npu"]
    assert {p.device for p in compiled.placement} == {"npu"}
    assert compiled.transaction[:2] == b"\x00\x01"


def test_constants_fold_in_strict_mode_too() -> None:
    nodes = [
        helper.make_node("NonZero", ["w"], ["i"], name="count"),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT, name="cast"),
        helper.make_node("Add", ["x", "f"], ["y"], name="add"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    w = numpy_helper.from_array(np.array([1, 0, 2, 3], np.float32), "w")
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = compile_model(proto, fallback="error")
    assert [(p.node, p.device) for p in compiled.placement] == [
        ("count", "folded"),
        ("cast", "folded"),
        ("add", "npu"),
    ]


def test_a_host_only_model_has_host_steps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "mapping_for", lambda domain, op: None)
    compiled = compile_model(chain("Relu", "Tanh"))
    (executable,) = compiled.executables.values()
    assert len(executable.steps) == 1 and isinstance(executable.steps[0], HostStep)
