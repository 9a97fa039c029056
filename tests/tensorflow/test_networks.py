# SPDX-License-Identifier: Apache-2.0
"""Networks of TensorFlow as one dispatch on the simulated device, against the evaluator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import onedispatch as od
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.sources.layouts import arrange
from onedispatch.dispatch.sources.mincut import smallest_cut
from onedispatch.dispatch.sources.translate import translate
from onedispatch.dispatch.tensorflow.framework import TENSORFLOW, load_rules
from onedispatch.dispatch.tensorflow.reader import read_graphdef
from tests.tensorflow.evaluator import evaluate
from tests.tensorflow.networks import NETWORKS

Array = np.ndarray[Any, Any]
# Transposes that are left: the image comes with channels last; what is flattened goes out so.
TRANSPOSES = {"mnist": 2, "inception": 2, "mobile": 1, "ssd": 6}


@pytest.mark.daily(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_one_dispatch(name: str) -> None:
    graphdef, outputs, feed = NETWORKS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error", od.RuleWarning)
        session = od.InferenceSession(graphdef, outputs=outputs, device="npu2", fallback="error")
    _check(session, graphdef, outputs, feed)
    free = [one.name for one in session.get_inputs() if not isinstance(one.shape[0], int)]
    if free:
        _check(session, graphdef, outputs, {key: np.concatenate([x, -x, x + 1]) for key, x in feed.items()})


def test_layer_normalisation_is_one_operator() -> None:
    graphdef, outputs, feed = NETWORKS["transformer"]()
    session = od.InferenceSession(graphdef, outputs=outputs, device="npu2")
    session.run(None, feed)
    assert [one.op_type for one in session.last_run.ops].count("normalise") == 2


def _check(session: Any, graphdef: Any, outputs: list[str], feed: dict[str, Array]) -> None:
    made = session.run(None, feed)
    assert session.last_run.dispatches == 1
    for one, expected in zip(made, evaluate(graphdef, feed, outputs), strict=True):
        assert (one.dtype, one.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)


def translated(name: str) -> Graph:
    graphdef, outputs, _ = NETWORKS[name]()
    load_rules()
    return arrange(translate(read_graphdef(graphdef, outputs), TENSORFLOW))


@pytest.mark.parametrize("name", TRANSPOSES)
def test_few_transposes_are_left(name: str) -> None:
    graph = translated(name)
    moved = [node.name for node in graph.nodes if node.name in graph.layouts]
    assert len(moved) <= TRANSPOSES[name], moved


def test_of_equal_cuts_the_one_is_taken_that_leaves_a_bias_to_its_convolution() -> None:
    assert smallest_cut([(frozenset("a"), True, False), (frozenset("a"), False, True)]) == {"a"}
    graph = translated("ssd")
    last = [node for node in graph.nodes if graph.layouts.get(node.name) == ("NCHW", "NHWC")]
    makers = {name: node for node in graph.nodes for name in node.writes}
    assert len(last) == 4 and {makers[node.inputs[0]].op_type for node in last} == {"Add"}
