# SPDX-License-Identifier: Apache-2.0
"""Random graphs through all phases: nothing is searched in vain, errors are typed, answers those of ONNX."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device
from tests.host_nodes import on_host

UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Identity", "LeakyRelu", "host")
BINARY = ("Add", "Mul", "Sub", "Max")
CHANNELS = 8


class Counting:
    """The search, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def select(self, problem: Problem, device: Device) -> Solution:
        self.asked += 1
        return SEARCH.select(problem, device)


def random_model(seed: int, batch: int) -> onnx.ModelProto:
    """A dozen nodes over tensors of one shape: chains, several readers, the same tensor twice, dead ends,
    copies of nodes, and outputs in the middle, of inputs too."""
    rng = np.random.default_rng(seed)
    shape = [batch, CHANNELS, 5, 4]
    names, nodes, constants = ["x"], [], []
    for i in range(int(rng.integers(1, 13))):
        recent = names[-3:] if rng.random() < 0.6 else names
        first, second = (str(rng.choice(recent)) for _ in range(2))
        made, kind = f"t{i}", rng.random()
        whole = [node for node in nodes if node.op_type != "Cast"]  # of those there are two in a row
        if whole and kind < 0.1:
            node = onnx.NodeProto.FromString(whole[int(rng.integers(len(whole)))].SerializeToString())
            node.name, node.output[0] = f"n{i}", made
        elif kind < 0.55:
            op_type = str(rng.choice(UNARY))
            if op_type == "host":
                wide, node = on_host(first, made, f"n{i}")
                nodes.append(wide)
            else:
                node = helper.make_node(op_type, [first], [made], f"n{i}")
        elif kind < 0.75:
            node = helper.make_node(str(rng.choice(BINARY)), [first, second], [made], f"n{i}")
        elif kind < 0.9:
            weights = rng.standard_normal((CHANNELS, CHANNELS, 1, 1)) / CHANNELS
            constants.append(numpy_helper.from_array(weights.astype(np.float32), f"w{i}"))
            node = helper.make_node("Conv", [first, f"w{i}"], [made], f"n{i}")
        else:
            values = [*rng.standard_normal((3, CHANNELS)), rng.random(CHANNELS) + 0.5]
            constants += [numpy_helper.from_array(np.float32(v), f"c{i}{j}") for j, v in enumerate(values)]
            reads = [first, *(f"c{i}{j}" for j in range(4))]
            node = helper.make_node("BatchNormalization", reads, [made], f"n{i}")
        nodes.append(node)
        names.append(made)
    outputs = sorted({names[-1], *(str(rng.choice(names)) for _ in range(int(rng.integers(0, 3))))})
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", *outputs)]
    graph = helper.make_graph(nodes, f"random {seed}", infos[:1], infos[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.daily(3)
@pytest.mark.parametrize("seed", range(80))
def test_random_graphs_pass_all_phases(seed: int) -> None:
    batch = 0 if seed % 8 == 3 else 1 + seed % 2
    model, counting = random_model(seed, batch), Counting()
    od.compile(model, selector=counting, groups="off")
    once = counting.asked
    compiled = od.compile(model, selector=counting)
    steps = [step for program in compiled.executables.values() for step in program.device_steps]
    nests = sum(len(op.schedule) for step in steps for op in step.ops)
    assert once == nests and counting.asked - once <= 2 * nests  # those of groups once more
    x = np.random.default_rng(seed).standard_normal((batch, CHANNELS, 5, 4)).astype(np.float32)
    got = od.InferenceSession(compiled).run(None, {"x": x})
    wanted = [x] * len(got)  # ONNX Runtime refuses some of the nodes for no elements
    if batch:
        wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
