# SPDX-License-Identifier: Apache-2.0
"""What phases hand on can be checked: a damaged value says which phase, which field, what would be right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.dispatch.compiler import phases
from onedispatch.dispatch.compiler.fold import fold_constants, specialise
from onedispatch.dispatch.compiler.mapping import Refusal, Unit
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.transactions import find_device

NPU2, NPU1 = find_device("npu2"), find_device("npu1")


def model() -> onnx.ModelProto:
    """Two products that merge with their activations, a new name, a node of the host, and a sum."""
    rng = np.random.default_rng(2)
    weights = {name: rng.standard_normal((16, 16)) for name in ("v", "w")}
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Reshape", ["b", "shape"], ["c"], "reshape"),
        helper.make_node("Det", ["b"], ["d"], "det"),
        helper.make_node("MatMul", ["c", "w"], ["e"], "second"),
        helper.make_node("Add", ["e", "d"], ["y"], "sum"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in
            (("x", (16, 16)), ("y", (1, 16, 16)))]  # fmt: skip
    constants = [numpy_helper.from_array(np.float32(a), name) for name, a in weights.items()]
    constants.append(numpy_helper.from_array(np.array([1, 16, 16], np.int64), "shape"))
    graph = helper.make_graph(nodes, "phases", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@cache
def stages() -> dict[str, Any]:
    graph = specialise(fold_constants(import_model(model())), {"x": (16, 16)}, {})
    mapped = phases.merge_operators(phases.map_nodes(graph, NPU2))
    selected = phases.select(mapped, SEARCH)
    emitted = phases.emit(selected)
    partitioned = phases.partition_graph(emitted, strict=False)
    return {"map": mapped, "select": selected, "emit": emitted, "partition": partitioned}


@pytest.mark.parametrize("phase", ["map", "select", "emit", "partition"])
def test_what_phases_hand_on_is_sound(phase: str) -> None:
    value = stages()[phase]
    value.verify()
    assert {unit.kind for unit in value.units} == {"op", "alias", "host"}


def with_unit(of: str, /, **fields: Any) -> Callable[[tuple[Unit, ...]], tuple[Unit, ...]]:
    """The first unit ``of`` a kind with other fields."""

    def change(units: tuple[Unit, ...]) -> tuple[Unit, ...]:
        at = next(i for i, unit in enumerate(units) if unit.kind == of)
        return (*units[:at], replace(units[at], **fields), *units[at + 1 :])

    return change


def on_host(units: tuple[Unit, ...]) -> tuple[Unit, ...]:
    return tuple(replace(unit, kind="host") for unit in units)


UNITS: dict[str, tuple[Callable[[tuple[Unit, ...]], Any], str]] = {
    "nothing": (lambda units: None, "units: None; accepted: a tuple of Unit"),
    "none": (lambda units: (), "units: nothing that stands for .*units for every node"),
    "list": (list, "units: .*; accepted: a tuple of Unit"),
    "number": (lambda units: 7, "units: 7; accepted: a tuple of Unit"),
    "other items": (lambda units: ("first", *units[1:]), r"units\[0\]: 'first'; accepted: a Unit"),
    "one lost": (lambda units: units[:-1], "nothing that stands for"),
    "one twice": (lambda units: (*units, units[0]), r"units\[\d+\]: one that is there already"),
    "all twice": (lambda units: units * 2, "one that is there already; accepted: each once"),
    "a copy": (lambda units: (*units, replace(units[0])), r"makes \['b'\] again; accepted: every value"),
    "backwards": (lambda units: units[::-1], r"reads \[.*\] before anything makes them; accepted: values in"),
    "swapped": (lambda units: (units[1], units[0], *units[2:]), r"units\[0\]: reads \['b'\] before"),
    "no operator": (
        with_unit("op", operator=None),
        r"units\[0\]\.operator: None; accepted: an? Operator",
    ),
    "no alias": (with_unit("alias", alias=None), r"units\[\d\]\.alias: None; accepted: a tuple"),
    "no reason": (with_unit("host", refusal=None), r"units\[\d\]\.refusal: None; accepted: a Refusal"),
    "another kind": (
        with_unit("op", kind="gpu"),
        r"units\[0\]\.kind: 'gpu'; accepted: op, alias",
    ),
    "all of the host": (on_host, r"units\[0\]\.operator: .* in a unit of kind 'host'; accepted: None"),
    "reason too many": (with_unit("op", refusal=Refusal("why")), r"units\[0\]\.refusal: Refusal"),
    "no nodes": (with_unit("op", nodes=()), r"units\[0\]\.nodes: \[\]; accepted: the nodes"),
    "no reads": (with_unit("op", reads=()), r"units\[0\]\.reads: \(\); accepted: .*\['x'\]"),
    "other writes": (with_unit("host", writes=("z",)), r"units\[\d\]\.writes: \('z',\)"),
}


@pytest.mark.parametrize("phase", ["map", "select", "emit"])
@pytest.mark.parametrize("name", UNITS)
def test_damaged_units_are_told(name: str, phase: str) -> None:
    damage, message = UNITS[name]
    value = stages()[phase]
    with pytest.raises(od.InternalError, match=f"{phase}, .*{message}"):
        replace(value, units=damage(value.units)).verify()


PLACED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"regions": None}, "regions: None; accepted: a tuple of Region or DeviceRegion"),
    "none": ({"regions": ()}, "regions: not the nodes of the units: .*; accepted: regions that run"),
    "doubled": ({"regions": lambda r: r * 2}, r"regions\[\d\]: one that is there already"),
    "one lost": ({"regions": lambda r: r[:-1]}, "regions: not the nodes of the units"),
    "backwards": ({"regions": lambda r: r[::-1]}, r"regions\[0\]: reads \[.*\] before anything"),
    "other items": ({"regions": ("a",)}, r"regions\[0\]: 'a'; accepted: a Region or DeviceRegion"),
    "no sources": ({"sources": ()}, "sources: 0 names; accepted: a value for each of 1 output"),
    "unknown source": ({"sources": ("z",)}, r"sources: \['z'\], which nothing makes"),
    "text for sources": ({"sources": "y"}, "sources: 'y'; accepted: a tuple of str"),
    "two sources": ({"sources": ("y", "y")}, "sources: 2 names"),
    "no units": ({"units": None}, "units: None; accepted: a tuple of Unit"),
    "units twice": ({"units": lambda units: units * 2}, "units.*one that is there already"),
    "refusals": ({"refusals": None}, "refusals: None; accepted: a tuple of str"),
    "graph": ({"graph": None}, "graph: None; accepted: a Graph"),
}


@pytest.mark.parametrize("name", PLACED)
def test_damaged_places_are_told(name: str) -> None:
    changes, message = PLACED[name]
    partitioned = stages()["partition"]
    made = {
        key: change(getattr(partitioned, key)) if callable(change) else change
        for key, change in changes.items()
    }
    with pytest.raises(od.InternalError, match=f"partition, {message}"):
        replace(partitioned, **made).verify()


@pytest.mark.parametrize("phase", ["map", "select", "emit", "partition"])
def test_operators_of_another_device_are_told(phase: str) -> None:
    message = rf"{phase}, units\[0\]\.operator\.device: an operator for npu2; accepted: npu1"
    with pytest.raises(od.InternalError, match=message):
        replace(stages()[phase], device=NPU1).verify()


@pytest.mark.parametrize("phase", ["map", "select", "emit", "partition"])
@pytest.mark.parametrize("field", ["graph", "device"])
def test_fields_of_another_kind_are_told(phase: str, field: str) -> None:
    with pytest.raises(od.InternalError, match=rf"{phase}, {field}: 3; accepted: a {field.title()}"):
        replace(stages()[phase], **{field: 3}).verify()


@pytest.mark.parametrize("phase", ["select", "emit"])
def test_operators_without_solutions_are_told(phase: str) -> None:
    """Nothing is searched to find that out."""
    value = stages()[phase]
    with pytest.raises(od.InternalError, match=rf"{phase}, units\[0\]\.operator\.schedules: none"):
        replace(value, units=stages()["map"].units).verify()
    with pytest.raises(od.InternalError, match=f"{phase}, selector: None"):
        replace(value, selector=None).verify()


@pytest.mark.parametrize("phase", ["select", "emit"])
def test_schedules_of_others_are_told(phase: str) -> None:
    value = stages()[phase]
    operator = value.units[0].operator
    (own,) = operator.schedules
    for schedules, message in (
        ([], "none; accepted: one for each of 1 nest"),
        ([own, own], "2 schedules"),
        ([Schedule(replace(own.nest), NPU2, own.solution)], "1 schedule"),
        ([replace(own, device=NPU1)], "one for npu1; accepted: npu2 alone"),
    ):
        changed = operator.replaced(schedules=schedules, _nests=operator._nests)
        with pytest.raises(od.InternalError, match=f"schedules: {message}"):
            replace(value, units=with_unit("op", operator=changed)(value.units)).verify()
    unfit = replace(own, solution=replace(own.solution, tiles=(0, 0)))
    changed = operator.replaced(schedules=[unfit], _nests=operator._nests)
    with pytest.raises(od.SolutionError, match="tile of m: given 0"):
        replace(value, units=with_unit("op", operator=changed)(value.units)).verify()


class SubtractsItself(Eltwise):
    """An operator whose second operand is bound to the number of the first."""

    def nests(self) -> list[Nest]:
        (nest,) = super().nests()
        return [replace(nest, inputs=tuple(replace(one, tensor=0) for one in nest.inputs))]


def test_an_input_that_no_nest_reads_is_refused() -> None:
    @od.maps("Apart", domain="acme", like=0)
    def apart(node: Any, lowering: Any) -> None:
        lowering.emit(SubtractsItself(node.name, "sub", node.inputs, node.outputs[0], lowering.device))

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16]) for name in "abd"]
    node = helper.make_node("Apart", ["a", "b"], ["d"], "apart", domain="acme")
    graph = helper.make_graph([node], "net", ends[:2], ends[2:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    given = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    try:
        with pytest.raises(od.InternalError, match=r"inputs \['b'\] of apart \(SubtractsItself\)"):
            od.compile(given)
    finally:
        od.plugins.reset()
