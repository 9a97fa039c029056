# SPDX-License-Identifier: Apache-2.0
"""The onnx package's own node tests, through ``onedispatch.backend``, every node on the device."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onedispatch import UnsupportedModelError, backend
from tests.onnx_node.expected import AT_LEAST, by_body, refusal, rounding_of
from tests.ops.case import OPERATORS


def _load() -> tuple[dict[str, Any], set[str]]:
    """Node tests whose operators are all ours, by name; and every operator that the package has one of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package computes its own edge cases while loading
        from onnx.backend.test.loader import load_model_tests

        tests = load_model_tests(kind="node")
    ours, tested = {}, set()
    for test in tests:
        if test.model is None:
            continue  # named by a file, which node tests are not
        ops = {(node.domain, node.op_type) for node in test.model.graph.node}
        tested.update(op for _, op in ops)
        if ops and all(domain in ("", "ai.onnx") and op in OPERATORS for domain, op in ops):
            ours[test.name] = test
    return ours, tested


TESTS, TESTED = _load()
REASONS = {name: reason for name, test in TESTS.items() if (reason := refusal(test))}
STRICT = sorted(TESTS.keys() - REASONS.keys())
# What a function body may do all the same is tried in ``test_bodies``.
REFUSED = {name: reason for name, reason in REASONS.items() if not by_body(TESTS[name])}


def test_as_many_run_as_should() -> None:
    assert len(STRICT) >= AT_LEAST


@pytest.mark.parametrize("op_type", sorted(OPERATORS & TESTED))
def test_every_registered_operator_has_node_tests_that_run(op_type: str) -> None:
    named = [name for name in STRICT if any(n.op_type == op_type for n in TESTS[name].model.graph.node)]
    assert named, f"no node test of onnx runs {op_type} on the device"


@pytest.mark.parametrize("name", STRICT)
def test_runs_in_strict_mode(name: str) -> None:
    test = TESTS[name]
    run_data_sets(test, test.model, test.data_sets)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_is_refused_with_the_listed_reason(name: str) -> None:
    with pytest.raises(UnsupportedModelError, match=REFUSED[name]):
        prepared = backend.prepare(TESTS[name].model, "CPU", fallback="error")
        for inputs, _ in TESTS[name].data_sets:  # sequences are refused when their length is known
            prepared.run([x if isinstance(x, list) else _array(x) for x in inputs])


def run_data_sets(test: Any, model: onnx.ModelProto, data_sets: Sequence[Any]) -> None:
    """Runs the model on each data set and compares by the test's own tolerances (see ``rounding_of``)."""
    prepared = backend.prepare(model, "CPU", fallback="error")
    assert data_sets
    for inputs, expected in data_sets:
        outputs = prepared.run([_array(x) for x in inputs])
        # a model without nodes for the device (all of it constant) would prove nothing
        report = prepared.session.last_run
        assert report is not None and report.dispatches == 1
        assert len(outputs) == len(expected)
        for actual, wanted in zip(outputs, expected, strict=True):
            wanted = _array(wanted)
            assert actual.dtype == wanted.dtype and actual.shape == wanted.shape
            rtol = max(test.rtol, rounding_of(model))
            np.testing.assert_allclose(actual, wanted, rtol=rtol, atol=test.atol)


def _array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value)
