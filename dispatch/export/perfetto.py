# SPDX-License-Identifier: Apache-2.0
"""A timeline as Perfetto's protobuf: tracks in groups, nested slices, counters; nanoseconds.

The classes of its messages come from the package ``perfetto``, which is imported when one is written.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

from onedispatch.dispatch.export.timeline import Arg, Counter, Slice, Timeline, Track
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import encodable

_SEQUENCE = 1  # all packets are one writer's
_PROCESS = 1
_CLEARED = 1  # SEQ_INCREMENTAL_STATE_CLEARED


def perfetto_trace(timeline: Timeline) -> bytes:
    """Returns the file. Raises ``InputError`` without the package ``perfetto``."""
    return _Writer(timeline).whole()


def _messages() -> Any:
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise InputError(
            "writing a trace of Perfetto's protobuf",
            "a Python without perfetto, whose protobuf classes it takes",
            "one that has perfetto, or FILE.json",
            "install it: pip install onedispatch[perfetto] (or: pip install perfetto)",
        ) from error
    return perfetto_trace_pb2


class _Writer:
    """Packets one after the other: all at once would take several times the memory."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._messages = _messages()
        self._file = io.BytesIO()
        self._tracks = _PROCESS

    def whole(self) -> bytes:
        self._process()
        for group, tracks in self._timeline.groups().items():
            parent = self._described(group, _PROCESS) if group else _PROCESS
            for track in tracks:
                self._slices(track, self._described(track.name, parent))
        for counter in self._timeline.counters:
            self._counter(counter)
        return self._file.getvalue()

    def _process(self) -> None:
        packet = self._packet(0)
        packet.sequence_flags = _CLEARED
        described = packet.track_descriptor
        described.uuid = _PROCESS
        described.process.pid = _PROCESS
        described.process.process_name = encodable(self._timeline.process)
        described.child_ordering = self._messages.TrackDescriptor.EXPLICIT
        self._write(packet)
        if self._timeline.notes:
            self._slices(
                Track("notes", [Slice("notes", 0, self._timeline.cycles, "", self._timeline.notes)]),
                self._described("notes", _PROCESS),
            )

    def _described(self, name: str, parent: int, unit: str | None = None) -> int:
        """A new track: its number."""
        self._tracks += 1
        packet = self._packet(0)
        described = packet.track_descriptor
        described.uuid, described.parent_uuid, described.name = self._tracks, parent, encodable(name)
        described.sibling_order_rank = self._tracks
        described.child_ordering = self._messages.TrackDescriptor.EXPLICIT
        if unit is not None:
            described.counter.unit_name = unit
        self._write(packet)
        return self._tracks

    def _slices(self, track: Track, number: int) -> None:
        kinds = self._messages.TrackEvent
        open_ends: list[int] = []
        for one in track.slices:
            self._end(open_ends, one.start, number)
            packet = self._packet(one.start)
            event = packet.track_event
            event.type, event.track_uuid, event.name = kinds.TYPE_SLICE_BEGIN, number, encodable(one.name)
            if one.category:
                event.categories.append(encodable(one.category))
            _annotate(event, one.args)
            self._write(packet)
            open_ends.append(one.end)
        self._end(open_ends, self._timeline.cycles, number, last=True)

    def _end(self, open_ends: list[int], start: int, number: int, *, last: bool = False) -> None:
        """Ends the slices that have ended by ``start``, inner ones first."""
        while open_ends and (last or open_ends[-1] <= start):
            packet = self._packet(open_ends.pop())
            packet.track_event.type = self._messages.TrackEvent.TYPE_SLICE_END
            packet.track_event.track_uuid = number
            self._write(packet)

    def _counter(self, counter: Counter) -> None:
        number = self._described(counter.name, _PROCESS, counter.unit)
        for cycle, value in counter.samples:
            packet = self._packet(cycle)
            event = packet.track_event
            event.type, event.track_uuid = self._messages.TrackEvent.TYPE_COUNTER, number
            event.double_counter_value = value
            self._write(packet)

    def _packet(self, cycle: int) -> Any:
        packet = self._messages.TracePacket()
        packet.timestamp = round(cycle * 1e9 / self._timeline.array_hz)
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _write(self, packet: Any) -> None:
        data = packet.SerializeToString()
        self._file.write(b"\x0a" + _varint(len(data)) + data)  # field 1 of Trace: packet


def _annotate(event: Any, args: Mapping[str, Arg]) -> None:
    for name, value in args.items():
        one = event.debug_annotations.add()
        one.name = encodable(name)
        if isinstance(value, str):
            one.string_value = encodable(value)
        elif isinstance(value, int):
            one.int_value = value
        else:
            one.double_value = value


def _varint(number: int) -> bytes:
    return bytes(_groups(number))


def _groups(number: int) -> Iterator[int]:
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number
