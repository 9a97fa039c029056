# SPDX-License-Identifier: Apache-2.0
"""Random small graphs of which all that can stay in memory tiles does, whole or in bands: the same bits,
played or not.

Values are small whole numbers but behind a Softmax, so that few sums depend on the order of tiles.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.dispatch.compiler import depth_first, group_costs
from onedispatch.operators.scheduling.schedule import Schedule
from tests.ops.case import check_beside_onnxruntime
from tests.timing import modelled

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

DEVICES = ("npu1", "npu2", "npu1_2col", "npu2_4col")
SIDES = (8, 10, 12, 14)
CHANNELS = (8, 12, 16, 20)
DAILY = range(28)  # seeds of graphs that `make test` has; `make nightly` has more
KINDS = "wide deep window same row channel pool move cut scores rename rows".split()


@dataclass
class Draft:
    """An image graph that grows node by node."""

    rng: random.Random
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def constant(self, *shape: int) -> str:
        values = np.random.default_rng(self.rng.getrandbits(32)).integers(-1, 2, shape)
        self.constants.append(numpy_helper.from_array(values.astype(np.float32), f"w{len(self.constants)}"))
        return self.constants[-1].name

    def shape(self, *sizes: int) -> str:
        self.constants.append(numpy_helper.from_array(np.array(sizes), f"w{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, op: str, reads: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, reads, [name], **attributes))
        self.shapes[name] = shape
        return name

    def grow(self, x: str) -> str:
        shape = self.shapes[x]
        n, c, h, w = shape
        alike = [name for name, other in self.shapes.items() if other == shape]
        kind = self.rng.choice(KINDS)
        if kind in ("wide", "window"):
            made, side = self.rng.choice(CHANNELS), 3 if kind == "window" else 1
            weights = self.constant(made, c, side, side)
            y = self.node("Conv", [x, weights], (n, made, h, w), pads=[side // 2] * 4)
            return self.node("Clip", [y, "low", "high"], (n, made, h, w))
        if kind == "deep":
            y = self.node("Conv", [x, self.constant(c, 1, 3, 3)], shape, pads=[1] * 4, group=c)
            return self.node("Clip", [y, "low", "high"], shape)
        if kind == "same":
            y = self.node(self.rng.choice(("Add", "Sub", "Max")), [x, self.rng.choice(alike)], shape)
            return self.node("Clip", [y, "low", "high"], shape)
        if kind in ("row", "channel"):
            return self.node("Mul", [x, self.constant(w) if kind == "row" else self.constant(c, 1, 1)], shape)
        if kind == "pool":
            return self.node("MaxPool", [x], shape, kernel_shape=[3, 3], pads=[1] * 4)
        if kind in ("move", "scores"):
            turned = self.node("Transpose", [x], (n, c, w, h), perm=[0, 1, 3, 2])
            if kind == "move":
                return turned
            y = self.node("MatMul", [x, turned], (n, c, h, h))
            return self.node("Clip", [y, "low", "high"], (n, c, h, h))
        if kind == "rename":
            return self.node("Reshape", [x, self.shape(n, c, w, h)], (n, c, w, h))
        if kind == "rows":
            return self.node("Softmax", [x], shape, axis=self.rng.choice((1, 2, 3)))
        return self.node("Relu", [x], shape)


def generate(seed: int) -> onnx.ModelProto:
    rng = random.Random(f"groups {seed}")
    shape = (1, rng.choice(CHANNELS), rng.choice(SIDES), rng.choice(SIDES))
    draft = Draft(rng, shapes={"x": shape})
    last = "x"
    for _ in range(rng.randint(3, 6)):
        last = draft.grow(last if rng.random() < 0.8 else rng.choice([*draft.shapes]))
    read = {name for node in draft.nodes for name in node.input}
    ends = [name for name in draft.shapes if name not in read or (name != "x" and rng.random() < 0.1)]
    bounds = [numpy_helper.from_array(np.float32(v), n) for n, v in (("low", -8), ("high", 8))]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        draft.nodes,
        "g",
        [value("x", TensorProto.FLOAT, shape)],
        [value(name, TensorProto.FLOAT, draft.shapes[name]) for name in ends],
        [*bounds, *draft.constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds(model: onnx.ModelProto) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    for seed in range(3):  # a first run, one that is recorded, one that is played
        yield {"x": np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)}


def staying(schedule: Schedule, known: float | None) -> float:
    return 1.0 - 0.3 * sum(schedule.kept)


def check_same(seed: int) -> tuple[od.CompiledModel, od.CompiledModel]:
    """The graph without groups and with them, which compute the same."""
    model, device = generate(seed), DEVICES[seed % len(DEVICES)]
    precision = ("fp32", "bf16")[seed // 2 % 2]
    off, on = (od.compile(model, device, precision, groups=how) for how in ("off", "on"))
    plain, engine = (od.InferenceSession(one, record=False) for one in (off, on))
    played = od.InferenceSession(on, record="on", threads=1 + seed % 3)
    for feed in feeds(model):
        results = plain.run(None, feed)
        if precision == "fp32" or seed in DAILY:  # bf16 rounds whole numbers beyond 256
            check_beside_onnxruntime(model, feed, results, precision)
        wanted = [y.tobytes() for y in results]
        for session in (engine, played):
            assert [y.tobytes() for y in session.run(None, feed)] == wanted, (seed, device, precision)
            assert modelled(session.last_run) == modelled(on.timing()), (seed, device, precision)
    return off, on


def seeds(daily: range, more: range) -> list[Any]:
    """Four seeds from each of ``daily`` on; in `make nightly` also eight from each of ``more``."""
    nightly = (pytest.param(range(at, at + 8), marks=pytest.mark.nightly) for at in more)
    return [*(range(at, at + 4) for at in daily), *nightly]


@pytest.mark.parametrize("some", seeds(range(0, 12, 4), range(12, 404, 8)), ids=str)
def test_grouped_graphs_compute_the_same(monkeypatch: pytest.MonkeyPatch, some: range) -> None:
    monkeypatch.setattr(group_costs, "_cycles", staying)
    pairs = (check_same(seed) for seed in some)
    fewer = sum(on.timing().ddr_bytes_read < off.timing().ddr_bytes_read for off, on in pairs)
    assert fewer >= 2, "something stays in most of them"


def between(bands: Any) -> list[int]:
    """Units whose results others read, instead of those that are too large."""
    planner = bands.planner
    return [i for i, one in planner.costs.operators.items() if one.output.name in planner.readers]


@pytest.mark.daily(2)
@pytest.mark.parametrize("some", seeds(range(20, 28, 4), range(28, 220, 8)), ids=str)
def test_graphs_in_bands_compute_the_same(monkeypatch: pytest.MonkeyPatch, some: range) -> None:
    """All chains that can run in bands do, at any cost."""
    monkeypatch.setattr(depth_first._Bands, "_too_large", property(between))
    monkeypatch.setattr(depth_first._Bands, "_now", lambda *_: 1e12)
    monkeypatch.setattr(depth_first, "_cost_less", lambda *_: True)
    pairs = (check_same(seed) for seed in some)
    chains = sum(len(on.latest[1].grouping.banded) for _, on in pairs)  # type: ignore[index,union-attr]
    assert chains >= 2, "several run in bands"
