# SPDX-License-Identifier: Apache-2.0
"""How pytest-xdist's workers share the tests: whole files, but tables by group; what takes longest first."""

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
    """Hands a worker a file, or an item of the files in ``BY_ITEM``, in the order of collection.

    The tables of ``tests/ops`` have the same cases: a worker gets all that they do with one group. The search
    then solves each problem once, and onnxruntime answers once.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, name = nodeid.partition("::")
        if path not in BY_ITEM:
            return path
        group = name.partition("[")[2]
        return f"tests/ops[{group}" if group and path.startswith("tests/ops/") else nodeid


def longest_first(item: pytest.Item, root: object) -> tuple[int, int, int]:
    """Returns what to sort items by: rooms of fast answers, then of long files; tables fill the end, the
    groups with the fewest cases last."""
    parts = item.path.relative_to(str(root)).parts
    room = parts[1] if len(parts) > 1 else ""
    by_item = "/".join(parts) in BY_ITEM and room != "e2e"
    cases = len(getattr(_group(item), "cases", ())) if by_item else 0
    return by_item, ROOMS.index(room) if room in ROOMS else len(ROOMS), -cases


def _group(item: pytest.Item) -> object:
    """Returns the group of a table that an item runs, if it does (``tests/tables.py``)."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("group")
