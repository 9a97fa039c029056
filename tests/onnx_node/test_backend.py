# SPDX-License-Identifier: Apache-2.0
"""The onnx package's own node tests, through ``onedispatch.backend``, every node on the device."""

from __future__ import annotations

from typing import Any

import pytest

from onedispatch import UnsupportedModelError, backend
from tests.onnx_node.conformance import told
from tests.onnx_node.expected import AT_LEAST, by_body, refusal
from tests.onnx_node.suite import backend_tests, data_of, failure, model_of, operators_of
from tests.ops.case import OPERATORS
from tests.tables import each_case, sampled

EVERY = 12  # of an operator the first test and one of so many others; `make nightly` runs all


def _load() -> tuple[dict[str, Any], set[str]]:
    """Node tests whose operators are all ours, by name; and every operator that the package has one of."""
    ours, tested = {}, set()
    for name, test in backend_tests("node").items():
        ops = {(node.domain, node.op_type) for node in test.model.graph.node}
        tested.update(op for _, op in ops)
        if ops and all(domain in ("", "ai.onnx") and op in OPERATORS for domain, op in ops):
            ours[name] = test
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


@each_case(sampled(STRICT, operators_of, EVERY), group=operators_of, name=str)
def test_runs_in_strict_mode(name: str) -> None:
    run_strictly(name)


@each_case(sorted(REFUSED), group=operators_of, name=str)
def test_is_refused_with_the_listed_reason(name: str) -> None:
    with pytest.raises(UnsupportedModelError, match=REFUSED[name]):
        prepared = backend.prepare(TESTS[name].model, "CPU", fallback="error")
        for inputs, _ in data_of(name):  # sequences are refused when their length is known
            prepared.run(inputs)


def run_strictly(name: str) -> None:
    """Every node on the device, at which the page of conformance says so."""
    prepared = backend.prepare(model_of(name), "CPU", fallback="error")

    def run(inputs: list[Any]) -> Any:
        outputs = prepared.run(inputs)
        # a model without nodes for the device (all of it constant) would prove nothing
        report = prepared.session.last_run
        assert report is not None and report.dispatches == 1
        return outputs

    assert not (problem := failure(name, run)), problem
    told(name, prepared.session.placement)
