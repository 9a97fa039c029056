# SPDX-License-Identifier: Apache-2.0
"""Layouts of translated graphs: the same numbers with fewer transposes, and no more than a search finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.dispatch.frontend.exporter import sub_model
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.sources.layouts import arrange
from onedispatch.dispatch.sources.mincut import smallest_cut
from onedispatch.dispatch.sources.translate import ONNX, translate
from tests.tables import examples

FLOAT = TensorProto.FLOAT
DOMAIN = "nhwc"


@pytest.fixture(autouse=True)
def rules() -> Any:
    """Operators of a domain of channels last."""
    nhwc = od.frontend("onnx", domain=DOMAIN)
    nhwc.op("Conv").format(1, "HWCN").default(auto_pad="SAME_UPPER")
    nhwc.op("MaxPool").auto().default(auto_pad="SAME_UPPER")
    yield
    od.plugins.reset()


class Net:
    """Writes a network of channels last; every value has the shape [2, 4, 6, 4]."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def const(self, *shape: int) -> str:
        name = f"c{len(self.constants)}"
        array = self.rng.uniform(-1, 1, shape).astype(np.float32)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *values: int) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def op(self, op_type: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        made = [f"v{len(self.nodes)}_{index}" for index in range(outputs)]
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, made, name=name, domain=domain, **attributes))
        return made[0] if outputs == 1 else made

    def conv(self, x: str, channels: int = 4) -> str:
        w = self.const(3, 3, channels, 4)
        return self.op("Conv", x, w, domain=DOMAIN, data_format="NHWC")  # type: ignore[no-any-return]

    def model(self, outputs: dict[str, list[int]]) -> ModelProto:
        x = helper.make_tensor_value_info("x", FLOAT, [2, 4, 6, 4])
        made = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self.nodes, "net", [x], made, self.constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


STEPS: dict[str, Callable[[Net, str, str], str]] = {
    "conv": lambda n, x, _: n.conv(x),
    "pool": lambda n, x, _: n.op("MaxPool", x, domain=DOMAIN, kernel_shape=[2, 2], data_format="NHWC"),
    "relu": lambda n, x, _: n.op("Relu", x),
    "bias": lambda n, x, _: n.op("Add", x, n.const(4)),
    "scale": lambda n, x, _: n.op("Mul", n.const(1, 6, 1), x),
    "add": lambda n, x, y: n.op("Add", x, y),
    "concat": lambda n, x, y: n.conv(n.op("Concat", x, y, axis=3), 8),
    "concat_rows": lambda n, x, y: n.op("MaxPool", n.op("Concat", x, y, axis=-3), domain=DOMAIN,
                                        kernel_shape=[2, 1], strides=[2, 1], data_format="NHWC"),
    "softmax": lambda n, x, _: n.op("Softmax", x),
    "mean": lambda n, x, y: n.op("Add", y, n.op("ReduceMean", x, n.ints(1, 2))),
    "mean_channels": lambda n, x, y: n.op("Mul", y, n.op("ReduceMean", x, n.ints(-1), keepdims=1)),
    "pad": lambda n, x, _: n.op("MaxPool", n.op("Pad", x, n.ints(0, 1, 0, 0, 0, 3, 0, 0)), domain=DOMAIN,
                                kernel_shape=[2, 1], strides=[2, 1], data_format="NHWC"),
    "flip": lambda n, x, _: n.op("Transpose", n.op("Transpose", x, perm=[0, 2, 1, 3]), perm=[0, 2, 1, 3]),
    "halves": lambda n, x, _: n.op("Concat", *n.op("Split", x, outputs=2, axis=3, num_outputs=2), axis=3),
}  # fmt: skip


def translated(model: ModelProto) -> Graph:
    return translate(import_model(model), ONNX)


def computed(graph: Graph, x: np.ndarray[Any, Any]) -> list[Any]:
    model = sub_model(graph, graph.nodes, graph.inputs, graph.outputs, graph.constants)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


def moves(graph: Graph) -> int:
    return sum(node.name in graph.layouts for node in graph.nodes)


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), max_size=8),
    st.booleans(),
)
def test_random_networks_compute_the_same(steps: list[tuple[str, int, int]], several: bool) -> None:
    net = Net(0)
    values = ["x", net.conv("x")]
    for step, one, other in steps:
        values.append(STEPS[step](net, values[-1 - one % len(values)], values[-1 - other % len(values)]))
    ends = [values[-1], *(values[1:2] if several and len(values) > 2 else [])]
    before = translated(net.model({name: [2, 4, 6, 4] for name in ends}))
    after = arrange(before)
    x = np.random.default_rng(1).uniform(-1, 1, (2, 4, 6, 4)).astype(np.float32)
    for mine, theirs in zip(computed(after, x), computed(before, x), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert moves(after) <= moves(before)
    assert [v.name for v in after.outputs] == ends


def test_a_chain_keeps_one_transpose_at_each_end() -> None:
    net = Net(0)
    x = net.conv("x")
    for _ in range(3):
        x = net.op("Relu", net.op("Add", net.conv(net.op("Relu", x)), x))
    graph = arrange(translated(net.model({x: [2, 4, 6, 4]})))
    assert moves(graph) == 2
    remarks = [graph.remarks[node.name] for node in graph.nodes if node.name in graph.layouts]
    assert remarks[0].startswith("NHWC to NCHW for Conv_0")
    assert remarks[1] == "NCHW to NHWC for the model"


def test_a_mean_over_rows_and_columns_needs_none() -> None:
    net = Net(0)
    mean = net.op("ReduceMean", net.conv("x"), net.ints(1, 2), keepdims=0)
    graph = arrange(translated(net.model({mean: [2, 4]})))
    assert moves(graph) == 1  # of x


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_a_softmax_that_flattens_keeps_its_order(axis: int) -> None:
    net = Net(0)
    end = net.conv(net.op("Softmax", net.conv("x"), axis=axis))
    model = net.model({end: [2, 4, 6, 4]})
    model.opset_import[0].version = 12
    before = translated(model)
    x = np.random.default_rng(1).uniform(-1, 1, (2, 4, 6, 4)).astype(np.float32)
    (mine,), (theirs,) = computed(arrange(before), x), computed(before, x)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("more", [False, True])
def test_what_a_body_reads_keeps_its_name(more: bool) -> None:
    net = Net(0)
    value = net.op("Relu", net.conv("x"))
    ends = {net.conv(value): [2, 4, 6, 4]} if more else {}
    branches = {}
    for name, op_type in (("then_branch", "Neg"), ("else_branch", "Abs")):
        end = helper.make_tensor_value_info(name, FLOAT, None)
        branch = [helper.make_node(op_type, [value], [name])]
        branches[name] = helper.make_graph(branch, name, [], [end])
    net.constants.append(numpy_helper.from_array(np.array(0, np.float32), "zero"))
    above = net.op("Greater", net.op("ReduceSum", "x", keepdims=0), "zero")
    ends[net.op("If", above, **branches)] = [2, 4, 6, 4]
    before = translated(net.model(ends))
    x = np.random.default_rng(1).uniform(-1, 1, (2, 4, 6, 4)).astype(np.float32)
    for mine, theirs in zip(computed(arrange(before), x), computed(before, x), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_an_output_may_be_an_input_moved_there_and_back() -> None:
    @od.frontend("onnx", domain=DOMAIN).expand("Moves")
    def moves_of(g: Any, n: Any) -> Any:
        there = g.relayout(n.inputs[0], "NHWC", "NCHW")
        return there, there, g.relayout(there, "NCHW", "NHWC"), g.relayout(n.inputs[0], "NHWC", "NCHW")

    net = Net(0)
    ends = net.op("Moves", "x", outputs=4, domain=DOMAIN)
    graph = arrange(translated(net.model({name: [] for name in ends})))
    graph = replace(graph, outputs=tuple(replace(one, shape=None) for one in graph.outputs))
    x = np.random.default_rng(1).uniform(-1, 1, (2, 4, 6, 4)).astype(np.float32)
    first = x.transpose(0, 3, 1, 2)
    for found, expected in zip(computed(graph, x), (first, first, x, first), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert len({node.name for node in graph.nodes}) == len(graph.nodes)


def test_a_rule_for_the_transposes_themselves() -> None:
    @od.frontend("onnx").expand("Transpose")
    def transpose(g: Any, n: Any) -> Any:
        return g.Neg(g.Neg(g.Transpose(n.inputs[0])))

    net = Net(0)
    end = net.conv(net.conv("x"))
    before = translated(net.model({end: [2, 4, 6, 4]}))
    x = np.random.default_rng(1).uniform(-1, 1, (2, 4, 6, 4)).astype(np.float32)
    (mine,), (theirs,) = computed(arrange(before), x), computed(before, x)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_format_that_the_model_cannot_mean_is_refused() -> None:
    nhwc = od.frontend("onnx", domain=DOMAIN)
    nhwc.op("Said", to="MaxPool").auto().format(0, attr="layout")
    for layout, text in (("ABCD", "layout='ABCD', where one of ND, "), ("NWC", "rank 4, where format NWC")):
        net = Net(0)
        end = net.op("Said", "x", domain=DOMAIN, kernel_shape=[1, 1], layout=layout)
        with pytest.raises(od.UnknownOperatorError, match=f"refused it: .*{text}"):
            od.InferenceSession(net.model({end: [2, 4, 6, 4]}))


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.frozensets(st.integers(0, 4), max_size=4), st.booleans(), st.booleans()), max_size=7
    )
)
def test_the_cut_is_the_smallest(edges: list[tuple[frozenset[int], bool, bool]]) -> None:
    def cost(first: set[int]) -> int:
        return sum(
            bool(first & vertices or one) and bool(vertices - first or other)
            for vertices, one, other in edges
        )

    found = smallest_cut(edges)
    best = min(cost({v for v, side in enumerate(sides) if side}) for sides in product((0, 1), repeat=5))
    assert cost(found) == best
