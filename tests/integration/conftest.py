# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the integration tests, which need a session or the extension and no more than a small model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onedispatch.operators.plugin import registrations
from tests.integration.custom import ORIGIN, Bring, bring_kernel


@pytest.fixture
def bring() -> Iterator[Bring]:
    """Maps an operator of domain acme to a kernel."""
    yield bring_kernel
    registrations.forget(ORIGIN)
