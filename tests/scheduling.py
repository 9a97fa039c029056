# SPDX-License-Identifier: Apache-2.0
"""How pytest-xdist's workers share the tests: whole files, but tables by item; what takes longest first."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling

# Files whose items share no fixture that takes time: their items go to whichever worker is free.
BY_ITEM = (
    "tests/e2e/test_networks.py",
    "tests/onnx_node/test_backend.py",
    "tests/onnx_node/test_bodies.py",
    "tests/onnx_node/test_fallback.py",
    "tests/ops/test_check.py",
    "tests/ops/test_dtypes.py",
    "tests/ops/test_operators.py",
    "tests/ops/test_reference.py",
    "tests/ops/test_search.py",
)
ROOMS = ("arch", "unit", "e2e", "sim", "integration", "examples", "fuzz", "replay")  # then all others


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist is not typed
    """Hands a worker a file, or an item of the files in ``BY_ITEM``, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return nodeid if path in BY_ITEM else path


def longest_first(item: pytest.Item, root: object) -> tuple[int, int]:
    """Returns what to sort items by: rooms of fast answers, then of long files; tables fill the end."""
    parts = item.path.relative_to(str(root)).parts
    room = parts[1] if len(parts) > 1 else ""
    by_item = "/".join(parts) in BY_ITEM and room != "e2e"
    return by_item, ROOMS.index(room) if room in ROOMS else len(ROOMS)
