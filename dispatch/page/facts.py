# SPDX-License-Identifier: Apache-2.0
"""What a page shows, as plain data that JSON takes. The page draws it and adds nothing to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Edge = tuple[int, int]


@dataclass(frozen=True)
class ExecutableFacts:
    """A model for one set of input shapes.

    Attributes:
        inspected: as ``onedispatch inspect --json`` has it: key, placement, grouping, kernels, dispatches.
        members: for each dispatch, the nodes that each operator computes, as indices into the placement.
        edges: from a node to one that reads its results, as indices into the placement.
        profile: ``Profile.as_dict()``; None where the time is not known, ``unprofiled`` says why.
        verdict: one sentence, the first thing on the page; "" leaves it out.
        scratch: for each dispatch, bytes of scratch that hold a tensor while each of its operators runs.
    """

    inspected: Mapping[str, Any]
    members: Sequence[Sequence[Sequence[int]]]
    edges: Sequence[Edge] = ()
    profile: Mapping[str, Any] | None = None
    unprofiled: str = ""
    verdict: str = ""
    scratch: Sequence[Sequence[int]] = ()


@dataclass(frozen=True)
class PageFacts:
    """A compiled model. ``model`` are facts in words, as (what, said); the title is that of the document."""

    title: str
    executables: Sequence[ExecutableFacts]
    model: Sequence[tuple[str, str]] = ()
