# SPDX-License-Identifier: Apache-2.0
"""The fuzz target of recordings has something to find: runs are played, and its changes matter."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import recordings
from tests.fuzz.recordings import KINDS, NETWORKS, Change


@pytest.mark.parametrize("network", NETWORKS)
def test_later_runs_are_played(network: str) -> None:
    machine = recordings.Machine(recordings.step_of(network))
    assert [machine.recorded_in_run(seed) for seed in range(4)][1:] == ["recorded", "played", "played"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "constant of the device"])
def test_changes_matter(kind: str) -> None:
    rng, network = random.Random(kind), "image"
    unchanged = list(recordings.outcomes(Change(network, "constant of the device", 0, 1, 2), 2))
    changes = [Change(network, kind, rng.randrange(1 << 32), rng.randrange(1, 1 << 32), 2) for _ in range(40)]
    assert any(list(recordings.outcomes(one, 2))[-3] != unchanged[-3] for one in changes)


def test_changes_come_back_from_bytes() -> None:
    for data in recordings.seeds().values():
        assert Change.from_bytes(data).to_bytes() == data
    assert Change.from_bytes(b"").runs == 2
