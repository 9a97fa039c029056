# SPDX-License-Identifier: Apache-2.0
"""What stays in memory tiles and what does not, as the rows of two tables, on the terminal and on a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GROUP_TITLES = (
    "operators",
    "kept tensors",
    "bytes saved",
    "bytes of each memory tile",
    "cycles saved, estimated",
)
BANDED_TITLES = ("operators", "bands", "cycles saved, estimated")
PASSED_TITLES = ("tensor", "bytes", "why")


def group_rows(grouping: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row for each group of a ``Grouping`` as a dictionary; operators and tensors line by line."""
    numbers = ("saved_bytes", "tile_bytes", "saved_cycles")
    return [
        ("\n".join(one["operators"]), "\n".join(one["tensors"]), *(f"{one[key]:,}" for key in numbers))
        for one in grouping["groups"]
    ]


def banded_rows(grouping: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row for each chain in bands; operators line by line."""
    return [
        ("\n".join(one["operators"]), f"{one['bands']:,}", f"{one['saved_cycles']:,}")
        for one in grouping["banded"]
    ]


def passed_rows(grouping: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row for each tensor that passes device memory."""
    return [(one["tensor"], f"{one['nbytes']:,}", one["reason"]) for one in grouping["passed"]]
