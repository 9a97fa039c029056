# SPDX-License-Identifier: Apache-2.0
"""Constant weights of a recurrent layer's state are brought once, where every core can hold its part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.dispatch.tools.checking import check_model
from onedispatch.operators.scheduling.index_space import F32, Access, Dim, K, Operand, Packed, PackedPart
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import SolutionError
from tests.devices import device_file
from tests.ops.case import case, f32, weight
from tests.ops.lowered import lower

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, WIDTH, HIDDEN = 6, 1, 8, 64


def layer(
    op_type: str = "LSTM", *, steps: int = STEPS, batch: int = BATCH, hidden: int = HIDDEN, seed: int = 0,
    direction: str = "forward", computed: bool = False, lengths: Array | None = None, **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A layer that gives all of its states. ``computed``: R is an input of the model."""
    rng, gates, d = np.random.default_rng(seed), GATES[op_type], 1 + (direction == "bidirectional")
    shapes = {"W": (d, gates * hidden, WIDTH), "R": (d, gates * hidden, hidden), "B": (d, 2 * gates * hidden)}
    values = {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, batch, WIDTH])]
    if computed:
        inputs.append(helper.make_tensor_value_info("R", TensorProto.FLOAT, list(shapes["R"])))
        del values["R"]
    if lengths is not None:
        values["lengths"] = lengths
    given = ["x", "W", "R", "B", *(["lengths"] if lengths is not None else [])]
    node = helper.make_node(op_type, given, ["y"], hidden_size=hidden, direction=direction, **attributes)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [steps, d, batch, hidden])
    constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph([node], "layer", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def run(model: onnx.ModelProto, **options: Any) -> tuple[Any, Array]:
    """What the run told, and its result, which is onnxruntime's."""
    rng = np.random.default_rng(1)
    feeds = {
        given.name: rng.normal(0, 0.5, [d.dim_value for d in given.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for given in model.graph.input
    }
    session = od.InferenceSession(model, fallback="error", **options)
    results = [session.run(None, feeds)[0] for _ in range(2)]
    np.testing.assert_array_equal(*results)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=2e-6)
    return session.last_run, results[0]


def is_resident(told: Any) -> bool:
    (op,) = [op for op in told.ops if op.op_type == "recurrent"]
    assert len(set(op.schedule)) == 1
    return "core-resident" in op.schedule[0]


@pytest.mark.daily(3)
@pytest.mark.parametrize("device", ["npu1", "npu2", "npu2_2col"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", GATES)
def test_results_are_those_of_onnxruntime(op_type: str, direction: str, device: str) -> None:
    attributes = {"linear_before_reset": 1} if op_type == "GRU" else {}
    model = layer(op_type, direction=direction, **attributes)
    told, _ = run(model, device=device)
    assert is_resident(told)
    assert check_model(od.compile(model, device=device)) == []


@pytest.mark.parametrize("hidden", [7, 37, 100, 250])
@pytest.mark.parametrize("batch", [1, 3])
def test_other_extents(hidden: int, batch: int) -> None:
    told, _ = run(layer(hidden=hidden, batch=batch, steps=4), device="npu2")
    assert is_resident(told) or hidden == 7


def test_weights_are_fetched_once() -> None:
    """So many more steps fetch what they read of the state, and nothing of the weights."""
    weights = 4 * HIDDEN * HIDDEN * 4
    few, many = (run(layer(steps=steps), device="npu2")[0] for steps in (4, 14))
    assert few.ddr_bytes_read > weights
    assert many.ddr_bytes_read - few.ddr_bytes_read < 2 * weights


@pytest.mark.parametrize("steps", [4, 14])
def test_what_they_take_of_device_memory_does_not_grow_with_steps(steps: int) -> None:
    inputs = f32(steps, BATCH, WIDTH), weight(2, 4 * HIDDEN, WIDTH), weight(2, 4 * HIDDEN, HIDDEN)
    ops = lower(case("LSTM", *inputs, hidden_size=HIDDEN, direction="bidirectional")).ops
    (recurrent,) = [op for _, op in ops if op.kind == "recurrent"]
    assert len(recurrent.schedules) == 2 * steps
    assert recurrent.const_bytes == 2 * 4 * HIDDEN * HIDDEN * 4


LONG = np.array([STEPS], np.int32)
COMES_AGAIN: dict[str, Callable[[], onnx.ModelProto]] = {
    "one step": lambda: layer(steps=1),
    "computed weights": lambda: layer(computed=True),
    "a mask between the steps": lambda: layer(lengths=LONG - 2),
    "two calls a step": lambda: layer("GRU", linear_before_reset=0),
    "more than cores hold": lambda: layer(hidden=512, steps=2),
}


@pytest.mark.parametrize("name", COMES_AGAIN)
def test_it_comes_again(name: str) -> None:
    told, _ = run(COMES_AGAIN[name](), device="npu2")
    assert "core-resident" not in str([op.schedule for op in told.ops])


@pytest.mark.parametrize(("kilobytes", "op_type", "hidden"), [(256, "LSTM", 256), (128, "RNN", 300)], ids=str)
def test_memory_tiles_have_room_for_the_first_time(
    kilobytes: int, op_type: str, hidden: int, tmp_path: Path
) -> None:
    """What later steps need not bring, the first one must: where it does not fit, steps bring it in parts."""
    device = device_file(tmp_path, "small", {"memory_tile.memory_bytes": kilobytes * 1024})
    run(layer(op_type, hidden=hidden, steps=3), device=str(device))


def test_layers_after_each_other_have_weights_of_their_own() -> None:
    first, second = layer(seed=2), layer(seed=3)
    rng = np.random.default_rng(4)
    w = rng.normal(0, 0.2, (1, 4 * HIDDEN, HIDDEN)).astype(np.float32)
    renamed = onnx.compose.add_prefix(second, "b_")
    node = renamed.graph.node[0]
    node.input[0], node.input[1] = "squeezed", "b_w"
    squeeze = helper.make_node("Squeeze", ["y", "axis"], ["squeezed"])
    constants = [numpy_helper.from_array(w, "b_w"), numpy_helper.from_array(np.array([1]), "axis")]
    graph = helper.make_graph(
        [*first.graph.node, squeeze, node],
        "two",
        first.graph.input,
        renamed.graph.output,
        [*first.graph.initializer, *renamed.graph.initializer, *constants],
    )
    told, _ = run(helper.make_model(graph, opset_imports=first.opset_import, ir_version=9), device="npu2")
    assert [("core-resident" in op.schedule[0]) for op in told.ops if op.op_type == "recurrent"] == [True] * 2


class Changed:
    """The search's solutions, of recurrent nests changed by their number."""

    def __init__(self, change: Callable[[Solution, int], Solution]) -> None:
        self.change, self.asked = change, 0

    def select(self, problem: Problem, device: Device) -> Solution:
        found = SEARCH.select(problem, device)
        if problem.nest.kernel.short_name != "recurrent":
            return found
        self.asked += 1
        return self.change(found, self.asked)


def test_what_lies_elsewhere_is_brought_again() -> None:
    """Nests whose solutions differ do not find what the one before has left."""

    def other(found: Solution, asked: int) -> Solution:
        return replace(found, k_tile=found.k_tile // 2 if asked % 2 else found.k_tile)

    model = layer()
    changed = od.InferenceSession(od.compile(model, device="npu2", selector=Changed(other), fallback="error"))
    x = np.random.default_rng(1).normal(0, 0.5, (STEPS, BATCH, WIDTH)).astype(np.float32)
    (result,) = changed.run(None, {"x": x})
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=2e-6)
    told, _ = run(model, device="npu2")
    assert changed.last_run.ddr_bytes_read > told.ddr_bytes_read + (STEPS - 2) * 4 * HIDDEN * HIDDEN * 4


def test_a_core_has_one_tile() -> None:
    def narrower(found: Solution, asked: int) -> Solution:
        return replace(found, mapping=replace(found.mapping, columns=4))

    with pytest.raises(SolutionError, match="tiles of a core: given 2; accepted: one: cores keep r0"):
        od.compile(layer(hidden=256), device="npu2", selector=Changed(narrower), fallback="error")


# -- the words that say so ------------------------------------------------------------------------


def test_whole_accesses_depend_on_nothing() -> None:
    x = Operand("x", 0, F32, (3, 10), (10, 1), (Access(0), Access(1, whole=True)))
    assert x.depends_on() == {0}
    assert Access(1, whole=True).chunk(10, 4, 10) == 10
    assert Packed("r", (1,), (PackedPart("r", F32, ((K, 10), (1, 0))),)).depends_on() == {1}
    assert Dim("n", 10).padding == 0
