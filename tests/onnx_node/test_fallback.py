# SPDX-License-Identifier: Apache-2.0
"""The backend tests that need not run whole on the device: with fallback, as the page of conformance says.

With test_backend.py and test_bodies.py, every test of the package runs in `make nightly`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.onnx_node import conformance
from tests.onnx_node.suite import KINDS, backend_tests, operators_of
from tests.onnx_node.test_backend import STRICT
from tests.onnx_node.test_bodies import TESTS as BODIES
from tests.tables import each_case, sampled

EVERY = 24  # of an operator the first test and one of so many others; `make nightly` runs all
OTHERS = sorted(backend_tests(*KINDS).keys() - BODIES - set(STRICT))


@each_case(sampled(OTHERS, operators_of, EVERY), group=operators_of, name=str)
def test_passes_where_onnxruntime_or_the_reference_does(name: str) -> None:
    conformance.passes_with_fallback(name)


@pytest.mark.skipif(not conformance.is_of_this_onnx(), reason="the page is of another version of onnx")
def test_the_page_has_all_tests_and_nothing_else() -> None:
    rows, found = conformance.committed(), Counter(map(conformance.operator_of, backend_tests(*KINDS)))
    listed = {(operator, kind) for operator, row in rows.items() for kinds in row.values() for kind in kinds}
    assert listed == found.keys() - {None}, conformance.REMEDY
    page = conformance.PAGE.read_text()
    assert all(f"| {kind} | {len(backend_tests(kind)):,} |" in page for kind in KINDS), conformance.REMEDY
