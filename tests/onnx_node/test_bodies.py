# SPDX-License-Identifier: Apache-2.0
"""Node tests of operators that do not map but have a function body: by it on the device, or refused so.

What maps grows, and so do the bodies that do: operators that are mapped by now are ``test_backend``'s.
"""

from __future__ import annotations

from typing import Any

import pytest

from onedispatch import UnsupportedModelError
from onedispatch.dispatch.bodies.function_bodies import has_operator_body
from tests.onnx_node.conformance import passes_with_fallback
from tests.onnx_node.expected import by_body
from tests.onnx_node.suite import backend_tests, model_of, operators_of
from tests.onnx_node.test_backend import TESTS as MAPPED
from tests.onnx_node.test_backend import run_strictly
from tests.ops.case import OPERATORS
from tests.tables import each_case

# Operators of which every test runs.
WHOLE = frozenset("Mish RMSNormalization Softplus".split())


def _load() -> set[str]:
    """Node tests that have an operator which can only run by its body."""
    found = {name for name, test in backend_tests("node").items() if _by_body(test.model)}
    return found | {name for name, test in MAPPED.items() if by_body(test)}


def _by_body(model: Any) -> bool:
    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 1)
    others = {node.op_type for node in model.graph.node} - set(OPERATORS)
    tensors = all(value.type.HasField("tensor_type") for value in model.graph.input)
    plain = all(node.domain in ("", "ai.onnx") for node in model.graph.node)
    return plain and tensors and bool(others) and all(has_operator_body(op, "", opset) for op in others)


TESTS = _load()


@pytest.mark.daily(4)
@each_case(sorted(TESTS), group=operators_of, name=str)
def test_runs_by_its_body_or_says_what_does_not_map(name: str) -> None:
    try:
        run_strictly(name)
    except UnsupportedModelError as error:
        assert not WHOLE.issuperset(node.op_type for node in model_of(name).graph.node), error.nodes
        assert all("its function body: " in line for line in error.nodes)
        passes_with_fallback(name)
