# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onedispatch.operators.plugin import catalog
from tests.unit.custom import ORIGIN, Bring, bring_kernel


@pytest.fixture
def bring() -> Iterator[Bring]:
    """Maps an operator of domain acme to a kernel."""
    yield bring_kernel
    catalog.forget(ORIGIN)
