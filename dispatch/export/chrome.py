# SPDX-License-Identifier: Apache-2.0
"""A timeline as JSON of Chrome's trace events, for ui.perfetto.dev and chrome://tracing: microseconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from onedispatch.dispatch.export.timeline import Timeline, Track

_PROCESS = 1


def chrome_json(timeline: Timeline) -> bytes:
    """Returns the file. Slices nest by time; ``args`` have cycles, which add up as those of the report do."""
    return json.dumps(chrome(timeline), separators=(",", ":")).encode()


def chrome(timeline: Timeline) -> dict[str, Any]:
    events = [*_names(timeline)]
    for number, track in enumerate(timeline.tracks, 1):
        events += _slices(track, number, 1e6 / timeline.array_hz)
    events += _counters(timeline)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": dict(timeline.notes)}


def _names(timeline: Timeline) -> Iterator[dict[str, Any]]:
    yield _meta("process_name", 0, {"name": timeline.process})
    for number, track in enumerate(timeline.tracks, 1):
        yield _meta("thread_name", number, {"name": track.name})
        yield _meta("thread_sort_index", number, {"sort_index": number})


def _meta(name: str, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": _PROCESS, "tid": thread, "args": args}


def _slices(track: Track, number: int, us: float) -> Iterator[dict[str, Any]]:
    for one in track.slices:
        place = {"pid": _PROCESS, "tid": number, "ts": one.start * us, "dur": one.cycles * us}
        yield {"name": one.name, "cat": one.category, "ph": "X", **place, "args": dict(one.args)}


def _counters(timeline: Timeline) -> Iterator[dict[str, Any]]:
    us = 1e6 / timeline.array_hz
    for counter in timeline.counters:
        name = f"{counter.name} ({counter.unit})"
        for cycle, value in counter.samples:
            yield {"name": name, "ph": "C", "pid": _PROCESS, "ts": cycle * us, "args": {counter.unit: value}}
