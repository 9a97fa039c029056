# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the integration tests, which need a session or the extension and no more than a small model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onedispatch.dispatch.compiler import group_costs
from onedispatch.operators.plugin import registrations
from tests.integration.custom import ORIGIN, Bring, bring_kernel


@pytest.fixture
def bring() -> Iterator[Bring]:
    """Maps an operator of domain acme to a kernel."""
    yield bring_kernel
    registrations.forget(ORIGIN)


@pytest.fixture
def whatever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups keep what can be kept at any cost."""
    monkeypatch.setattr(group_costs, "_cycles", lambda schedule, known: 1.0 - 0.3 * sum(schedule.kept))
