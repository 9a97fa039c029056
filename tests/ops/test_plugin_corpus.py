# SPDX-License-Identifier: Apache-2.0
"""Kernels in Python as public libraries have them: against NumPy references, on one core and on all."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import onedispatch as od
from onedispatch.operators.declarations.registry import mapping_for
from onedispatch.operators.plugin.plugin import plugin_of
from tests.devices import device_file
from tests.ops.plugin_case import Case

FILES = sorted((Path(__file__).parent / "plugins").glob("[a-z]*.py"))
CASES: list[Case] = [
    case for path in FILES for case in importlib.import_module(f"tests.ops.plugins.{path.stem}").CASES
]


@pytest.fixture(autouse=True)
def mapped() -> None:
    """Tests of other files that ran before may have taken mappings back."""
    for case in CASES:
        if mapping_for("corpus", case.op) is None:
            od.maps(case.op, domain="corpus")(case.kernel)


@pytest.mark.daily(3)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_kernel_gives_what_its_reference_does_on_any_number_of_cores(case: Case, tmp_path: Path) -> None:
    arrays = case.arrays()
    expected = case.reference(arrays)
    model = case.model(arrays, len(expected))
    feed = {f"x{i}": array for i, array in enumerate(arrays)}
    made = []
    for device in (str(device_file(tmp_path, "one")), "npu2"):
        session = od.InferenceSession(model, device=device, fallback="error")
        made.append(session.run(None, feed))
        assert [row.device for row in session.placement] == ["npu"]
    for alone, together, wanted in zip(*made, expected, strict=True):
        assert alone.dtype == together.dtype == wanted.dtype
        if case.close:
            np.testing.assert_allclose(alone, wanted, rtol=case.close)
            np.testing.assert_allclose(together, wanted, rtol=case.close)
        else:
            np.testing.assert_array_equal(alone, wanted)
            np.testing.assert_array_equal(together, wanted)


def test_every_kernel_has_cases_and_is_short() -> None:
    """On average at most 30 lines, decorators and reference included."""
    kernels = {case.kernel for case in CASES}
    assert len(kernels) >= 15
    for path in FILES:
        module = importlib.import_module(f"tests.ops.plugins.{path.stem}")
        declared = {v for v in vars(module).values() if isinstance(v, type) and plugin_of(v) is not None}
        assert declared <= kernels, path.name
    lines = sum(len(path.read_text().splitlines()) for path in FILES)
    assert lines / len(kernels) <= 30
