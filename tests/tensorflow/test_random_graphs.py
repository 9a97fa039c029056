# SPDX-License-Identifier: Apache-2.0
"""Random GraphDefs of the builder: what the reader says is what the evaluator computes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onedispatch.dispatch.frontend.graph import Graph, type_name_of
from onedispatch.dispatch.tensorflow.reader import read_graphdef
from onedispatch.transactions.base.errors import ModelError
from tests.tables import examples
from tests.tensorflow.evaluator import evaluate, evaluate_all
from tests.tensorflow.graphdefs import GraphBuilder
from tests.tensorflow.grown import Grown

CONSTANTS = arrays.arrays(
    st.sampled_from("float32 float64 int32 int64 uint8 bool float16 complex64".split()),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)


def check_order(graph: Graph) -> None:
    """Every node stands behind what it reads, and something needs it."""
    known = {*graph.constants, *(v.name for v in graph.inputs)}
    for node in graph.nodes:
        assert known.issuperset(node.reads)
        known.update(node.writes)
    needed = {name for node in graph.nodes for name in node.reads} | graph.output_names
    assert all(needed.intersection(node.writes) for node in graph.nodes)
    assert needed.issuperset(graph.constants)


@settings(max_examples=examples(200))
@given(seed=st.integers(0, 2**32))
def test_a_graph_says_what_is_computed(seed: int) -> None:
    grown = Grown(seed)
    graphdef = grown.b.graphdef()
    graph = read_graphdef(graphdef)
    check_order(graph)
    computed = evaluate_all(graphdef, grown.feed)
    for node in graph.nodes:
        for tensor in node.writes:
            assert graph.value(tensor).type == type_name_of(computed[tensor].dtype)
    for name, array in graph.constants.items():
        np.testing.assert_array_equal(array, computed[name])
    evaluate(graphdef, grown.feed, [v.name for v in graph.outputs])
    asked = random.Random(seed).choice([t for n in graph.nodes for t in n.writes])
    part = read_graphdef(graphdef, [asked])
    check_order(part)
    assert part.output_names == {asked} and len(part.nodes) <= len(graph.nodes)
    assert {n.name for n in part.nodes} | {f.node for f in part.folded} >= {n.name for n in graph.nodes}


@settings(max_examples=examples(200))
@given(seed=st.integers(0, 2**32), data=st.data())
def test_a_graph_in_another_order_says_the_same(seed: int, data: st.DataObject) -> None:
    graphdef = Grown(seed).b.graphdef()
    graph = read_graphdef(graphdef)
    order = data.draw(st.permutations(list(graphdef.node)))
    del graphdef.node[:]
    graphdef.node.extend(order)
    other = read_graphdef(graphdef)
    check_order(other)
    assert {n.name: (n.inputs, n.outputs) for n in other.nodes} == {
        n.name: (n.inputs, n.outputs) for n in graph.nodes
    }
    assert other.output_names == graph.output_names


@settings(max_examples=examples(200))
@given(array=CONSTANTS, typed=st.booleans())
def test_constants_come_back(array: Any, typed: bool) -> None:
    b = GraphBuilder()
    b.const("c", array, typed)
    read = read_graphdef(b.graphdef(), ["c"]).constants["c"]
    assert (read.dtype, read.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(read, array)
    np.testing.assert_array_equal(evaluate(b.graphdef(), {}, ["c"])[0], array)


@settings(max_examples=examples(200))
@given(seed=st.integers(0, 2**32), data=st.data())
def test_a_graph_without_one_node_is_refused_or_does_without(seed: int, data: st.DataObject) -> None:
    graphdef = Grown(seed).b.graphdef()
    at = data.draw(st.integers(0, len(graphdef.node) - 1))
    gone = graphdef.node[at].name
    del graphdef.node[at]
    reads = {name.partition(":")[0] for node in graphdef.node for name in node.input}
    if gone in reads:
        with pytest.raises(ModelError, match="which nothing defines"):
            read_graphdef(graphdef)
    elif any(node.op not in ("Const", "Placeholder") for node in graphdef.node):
        check_order(read_graphdef(graphdef))
