# SPDX-License-Identifier: Apache-2.0
"""How pytest-xdist's workers share the tests: whole files, but tables by group; what takes longest first."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

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

    def remove_node(self, node: WorkerController) -> str | None:
        """Hands on what a worker that died has not run, and returns what it died of, which is not run again.

        xdist itself hands on units that are done, too: a worker that gets one waits for ever.
        """
        workload = self.assigned_work.pop(node)
        left = [(scope, item) for scope, unit in workload.items() for item, done in unit.items() if not done]
        if not left:
            return None
        scope, crashed = left[0]
        workload[scope][crashed] = True
        self.workqueue.update({scope: unit for scope, unit in workload.items() if not all(unit.values())})
        for other in self.nodes:
            self._reschedule(other)
        return str(crashed)

    def _reschedule(self, node: WorkerController) -> None:
        """A worker begins a test when it knows the next one, or that there is none."""
        super()._reschedule(node)
        if node.shutting_down:
            return
        while self.workqueue and self._waiting(node) < 2:
            self._assign_work_unit(node)
        if not self.workqueue and self._waiting(node) < 2:
            node.shutdown()

    def _waiting(self, node: WorkerController) -> int:
        return int(self._pending_of(self.assigned_work[node]))


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
