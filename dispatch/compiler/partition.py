# SPDX-License-Identifier: Apache-2.0
"""Device regions and host regions: as few partitions as the order of the graph allows.

Every unit goes as early as its inputs permit, where a change of place costs one step. The
number of steps is the longest chain of changes along any path, which no partition into
regions run one after the other can beat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from onedispatch.dispatch.base.levels import levels
from onedispatch.dispatch.compiler.mapping import Refusal, Unit, to_host

Place = Literal["npu", "cpu"]


@dataclass(frozen=True)
class Region:
    """Units that run together in one place, in topological order.

    ``inputs`` are graph inputs or made by other regions; ``outputs`` are read by others or by the caller.
    """

    place: Place
    units: tuple[Unit, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def partition(units: Sequence[Unit], graph_outputs: Sequence[str]) -> list[Region]:
    """The regions in the order in which they run."""
    settled = settle_aliases(units)
    on_host = [place_of(unit) == "cpu" for unit in settled]
    plans = [levels(settled, on_host, first) for first in (False, True)]
    plan = min(plans, key=lambda plan: len(set(plan)))
    groups: dict[int, list[Unit]] = {}
    for unit, level in zip(settled, plan, strict=True):
        groups.setdefault(level, []).append(unit)
    ordered = [groups[level] for level in sorted(groups)]
    wanted = set(graph_outputs)
    regions = []
    for group in reversed(ordered):
        regions.append(_region(group, wanted))
        wanted.update(name for unit in group for name in unit.reads)
    return regions[::-1]


def place_of(unit: Unit) -> Place:
    return "cpu" if unit.kind == "host" else "npu"


def settle_aliases(units: Sequence[Unit]) -> list[Unit]:
    """Moves aliases to the host where all their neighbours are there: no trip for a new name."""
    # One pass is enough: where all neighbours are on the host, none is an alias that waits for this one.
    settled = list(units)
    makers = {name: index for index, unit in enumerate(settled) for name in unit.writes}
    readers: dict[str, list[int]] = {}
    for index, unit in enumerate(settled):
        for name in unit.reads:
            readers.setdefault(name, []).append(index)
    parts = Counter(node for unit in settled for node in unit.nodes)
    for index, unit in enumerate(settled):
        if unit.kind != "alias" or [parts[node] for node in unit.nodes] != [1]:
            continue
        around = [makers[name] for name in unit.reads if name in makers]
        around += [reader for name in unit.writes for reader in readers.get(name, ())]
        if around and all(settled[neighbour].kind == "host" for neighbour in around):
            settled[index] = to_host(unit, Refusal("it only renames data that is on the host"))
    return settled


def _region(group: Sequence[Unit], wanted: Collection[str]) -> Region:
    """``wanted`` are names that later regions read, and the model's outputs."""
    made = {name for unit in group for name in unit.writes}
    inputs = dict.fromkeys(n for unit in group for n in unit.reads if n not in made)
    outputs = dict.fromkeys(n for unit in group for n in unit.writes if n in wanted)
    return Region(place_of(group[0]), tuple(group), tuple(inputs), tuple(outputs))
