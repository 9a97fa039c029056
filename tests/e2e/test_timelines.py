# SPDX-License-Identifier: Apache-2.0
"""Runs over time: what is on the tracks adds up to what the report says, in both forms of the file."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.export.chrome import chrome
from onedispatch.dispatch.export.perfetto import perfetto_trace
from onedispatch.dispatch.export.timeline import Slice, Timeline, Track, between
from onedispatch.dispatch.export.tracks import timeline_of
from onedispatch.transactions.base.files import protecting_files
from tests.e2e.test_recording import NETWORKS, feed, network

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

HOSTILE = 'a"b\\</script>\n\t\x1b[31m{}\u202e\u2028name%s€𝄞'


def timed(name: str, trace: bool | int = True) -> tuple[od.RunReport, Timeline]:
    report = od.compile(network(name), fallback="error").timing(trace=trace)
    timeline = timeline_of(report)
    assert timeline is not None
    return report, timeline


def track(timeline: Timeline, name: str) -> Track:
    (found,) = (one for one in timeline.tracks if one.name == name)
    return found


def of(slices: Any, *categories: str) -> list[Slice]:
    return [one for one in slices if one.category in categories]


def cycles(slices: Any) -> int:
    return sum(one.cycles for one in slices)


def check_nested(slices: Any, end: int) -> None:
    """Each slice begins within those that are open, and ends within them."""
    assert [one.start for one in slices] == sorted(one.start for one in slices)
    open_ends = [end]
    for one in slices:
        while open_ends and open_ends[-1] <= one.start and len(open_ends) > 1:
            open_ends.pop()
        assert one.start >= 0 and one.cycles >= 0 and one.end <= open_ends[-1]
        open_ends.append(one.end)


@pytest.mark.parametrize("name", NETWORKS)
def test_operators_add_up_to_the_run(name: str) -> None:
    report, timeline = timed(name)
    assert timeline.process == "npu2 (modelled)" and timeline.cycles == report.cycles
    slices = track(timeline, "operators").slices
    (dispatch,) = of(slices, "dispatch")
    assert (dispatch.start, dispatch.cycles) == (0, report.cycles)
    rows = [one for one in slices if one.category != "dispatch"]
    assert cycles(rows) == report.cycles
    assert all(one.end == two.start for one, two in pairwise(rows))  # no gap without a name
    by_name = {one.name: one for one in rows}
    for op in report.ops:
        assert by_name[op.name].cycles == by_name[op.name].args["cycles"] == op.cycles
        assert by_name[op.name].category == op.op_type
        assert [by_name[op.name].args[f"nest {n}"] for n in range(len(op.schedule))] == list(op.schedule)
    assert rows[0].name == "launch" and Counter(one.category for one in rows)["reload"] == len(report.reloads)
    for one in timeline.tracks:
        check_nested(one.slices, report.cycles)


@pytest.mark.parametrize("name", NETWORKS)
def test_tracks_of_cores_channels_and_memory_add_up_to_the_report(name: str) -> None:
    report, timeline = timed(name)
    tracks = {(one.group, one.name): one.slices for one in timeline.tracks}
    for core in report.cores:
        slices = tracks["cores", f"core c{core.column} r{core.row}"]
        assert cycles(of(slices, "kernel")) == core.busy and len(of(slices, "kernel")) == core.calls
        assert cycles(of(slices, "lock")) == core.lock
        assert {one.name for one in of(slices, "lock")} <= {"LOCK_STALL"}
    kinds = {0: ("shim", "shims"), 1: ("memory tile", "memory tiles")}
    for channel in report.channels:
        kind, group = kinds.get(channel.row, ("core", "cores"))
        title = f"{kind} c{channel.column} r{channel.row} {channel.direction}{channel.channel}"
        slices = tracks[f"DMA channels of {group}", title]
        assert sum(one.args.get("bytes", 0) for one in slices) == channel.bytes
        if tasks := of(slices, "task"):
            assert cycles(tasks) <= channel.busy + channel.stall
        assert cycles(of(slices, "lock")) <= channel.lock
    requests = tracks["device memory", "requests"]
    assert sum(one.args["bytes"] for one in requests) == report.ddr_burst_bytes
    assert all(one.end <= two.start for one, two in pairwise(requests))


def test_spans_have_the_sums_of_the_report_and_the_names_of_mlir_aie() -> None:
    report, timeline = timed("image")
    assert report.trace is not None
    spans = report.trace.spans
    channels, cores = report.channels, report.cores
    assert spans["task"].cycles == sum(one.busy + one.stall for one in channels)
    assert spans["lock"].cycles == sum(one.lock for one in channels) + sum(one.lock for one in cores)
    names = {one.name for track in timeline.tracks for one in track.slices}
    assert {"DMA_MM2S_0_STALLED_LOCK", "DMA_S2MM_0_STREAM_STARVATION"} <= names
    assert "DMA_MM2S_SEL0_STREAM_BACKPRESSURE" in names and "LOCK_STALL" in names
    ends = {one.args["ends"] for track in timeline.tracks for one in of(track.slices, "task")}
    assert "DMA_S2MM_0_FINISHED_TASK" in ends and "DMA_S2MM_SEL0_FINISHED_TASK" in ends
    assert any("control packets" in name for name in names)


@pytest.mark.parametrize("name", NETWORKS)
def test_when_no_core_computes_has_a_name(name: str) -> None:
    report, timeline = timed(name)
    assert report.trace is not None and report.profile is not None
    computing = np.zeros(report.cycles, bool)
    for call in report.trace.calls:
        computing[call.start : call.start + call.cycles] = True
    gaps = track(timeline, "no core computes").slices
    for gap in gaps:
        assert not computing[gap.start : gap.end].any()
    assert cycles(gaps) + int(computing.sum()) == report.cycles
    assert {gap.name for gap in gaps} <= {*report.profile.parts, "launch", "reload", "end"} - {"compute"}
    assert gaps[0].name == "launch"


def test_the_controller_is_busy_or_waits() -> None:
    report, timeline = timed("image")
    slices = track(timeline, "controller").slices
    assert cycles(slices) == report.cycles and all(a.end == b.start for a, b in pairwise(slices))
    waits = of(slices, "wait")
    assert waits and all(one.name == "waits for tokens" and "shim" in one.args["of"] for one in waits)


@pytest.mark.parametrize("name", NETWORKS)
def test_counters_are_the_bytes_and_cycles_of_the_report(name: str) -> None:
    report, timeline = timed(name)
    integrals = {}
    for counter in timeline.counters:
        pairs = pairwise(counter.samples)
        integrals[counter.name] = sum(value * (end - start) for (start, value), (end, _) in pairs)
        assert counter.samples[-1] == (report.cycles, 0.0)
    gigabytes = timeline.array_hz / 1e9
    assert integrals["device memory read"] / gigabytes == pytest.approx(report.ddr_bytes_read)
    assert integrals["device memory written"] / gigabytes == pytest.approx(report.ddr_bytes_written)
    assert integrals["busy cores"] == pytest.approx(sum(core.busy for core in report.cores))


def test_a_run_and_a_clock_trace_the_same() -> None:
    session = od.InferenceSession(network("image"), fallback="error", trace=True)
    for seed in range(2):
        session.run(None, feed("image", seed))
        run, clock = session.last_run, session.model.timing(trace=True)
        assert run is not None and run.trace is not None and run.profile == clock.profile
        assert run.trace.spans == clock.trace.spans
        assert [(c.core, c.start, c.cycles) for c in run.trace.calls] == [
            (c.core, c.start, c.cycles) for c in clock.trace.calls
        ]
        assert run.recorded == ("kernel calls are traced",)
    assert session.model.timing().trace is None


def test_dispatches_follow_each_other(tmp_path: Path) -> None:
    graph = od.Graph()
    x = graph.input("x", (8, 64))
    cubes = graph.add_layer("Reshape", [graph.add_layer("Relu", [x]), np.array([8, 8, 8])])
    middle = graph.add_layer("Det", [cubes])
    graph.output(graph.add_layer("Relu", [graph.add_layer("Add", [middle, middle])]), "y")
    session = od.InferenceSession(graph, trace=True)
    session.run(None, {"x": np.ones((8, 64), np.float32)})
    report = session.last_run
    assert report is not None and report.profile is not None
    timeline = timeline_of(report)
    assert timeline is not None
    first, second = of(track(timeline, "operators").slices, "dispatch")
    assert first.end == second.start and second.end == report.cycles
    requests = track(timeline, "requests").slices
    assert any(one.start >= second.start for one in requests) and requests[-1].end <= report.cycles
    for one in timeline.tracks:
        check_nested(one.slices, report.cycles)
    assert sum(one.args["bytes"] for one in requests) == report.ddr_burst_bytes


def test_chrome_events_are_one_process_with_named_tracks(tmp_path: Path) -> None:
    report, timeline = timed("parts")
    od.write_trace(report, tmp_path / "t.JSON")
    found = json.loads((tmp_path / "t.JSON").read_bytes())
    assert found == json.loads(json.dumps(chrome(timeline)))
    events = found["traceEvents"]
    assert {one["pid"] for one in events} == {1}
    (process,) = (one["args"]["name"] for one in events if one["name"] == "process_name")
    assert process == "npu2 (modelled)"
    names = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert list(names.values()) == [one.name for one in timeline.tracks]
    spent: dict[str, list[Any]] = defaultdict(list)
    for one in events:
        if one["ph"] == "X":
            spent[names[one["tid"]]].append(one)
    assert sum(one["args"]["cycles"] for one in spent["operators"][1:]) == report.cycles
    us = sum(one["dur"] for one in spent["operators"][1:])
    assert us == pytest.approx(report.seconds * 1e6)
    assert any(one["ph"] == "C" and one["name"] == "busy cores (of 32 cores)" for one in events)


class Decoded:
    """A trace of Perfetto's protobuf, read by its own classes."""

    def __init__(self, data: bytes) -> None:
        protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
        trace = protos.Trace.FromString(data)
        kinds = protos.TrackEvent
        self.tracks: dict[int, Any] = {}
        self.slices: dict[int, list[tuple[str, int, int, dict[str, Any]]]] = defaultdict(list)
        self.counters: dict[int, list[tuple[int, float]]] = defaultdict(list)
        stacks: dict[int, list[tuple[str, int, dict[str, Any]]]] = defaultdict(list)
        at: dict[int, int] = defaultdict(int)
        for packet in trace.packet:
            assert packet.trusted_packet_sequence_id
            if packet.HasField("track_descriptor"):
                one = packet.track_descriptor
                assert one.uuid not in self.tracks and (one.parent_uuid or one.uuid == 1)
                self.tracks[one.uuid] = one
                continue
            event, time = packet.track_event, packet.timestamp
            assert event.track_uuid in self.tracks and time >= at[event.track_uuid]
            at[event.track_uuid] = time
            if event.type == kinds.TYPE_SLICE_BEGIN:
                args = {a.name: getattr(a, a.WhichOneof("value")) for a in event.debug_annotations}
                stacks[event.track_uuid].append((event.name, time, args))
            elif event.type == kinds.TYPE_SLICE_END:
                name, start, args = stacks[event.track_uuid].pop()
                self.slices[event.track_uuid].append((name, start, time, args))
            else:
                assert event.type == kinds.TYPE_COUNTER
                self.counters[event.track_uuid].append((time, event.double_counter_value))
        assert not any(stacks.values())

    def named(self, name: str) -> int:
        (found,) = (uuid for uuid, one in self.tracks.items() if one.name == name)
        return found


def test_protobuf_has_the_same_tracks_slices_and_counters(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    report, timeline = timed("image")
    od.write_trace(report, tmp_path / "t.pftrace")
    found = Decoded((tmp_path / "t.pftrace").read_bytes())
    assert found.tracks[1].process.process_name == "npu2 (modelled)"
    for one in timeline.tracks:
        uuid = found.named(one.name)
        parent = found.tracks[found.tracks[uuid].parent_uuid]
        assert (parent.name if one.group else parent.uuid) == (one.group or 1)
        slices = found.slices[uuid]
        assert Counter(name for name, *_ in slices) == Counter(slice_.name for slice_ in one.slices)
        assert sum(args["cycles"] for *_, args in slices if "cycles" in args) == sum(
            slice_.args.get("cycles", 0) for slice_ in one.slices
        )
    operators = found.slices[found.named("operators")]
    (whole,) = (one for one in operators if one[0] == "dispatch 0")
    assert whole[2] - whole[1] == pytest.approx(report.seconds * 1e9, abs=1)
    for counter in timeline.counters:
        uuid = found.named(counter.name)
        assert found.tracks[uuid].counter.unit_name == counter.unit
        assert [value for _, value in found.counters[uuid]] == [value for _, value in counter.samples]


def hostile_network() -> Any:
    text = "g (float[4, 64] x) => (float[4, 64] y) { t = Exp(x) y = Sin(t) }"
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for number, node in enumerate(proto.graph.node):
        node.name = HOSTILE + str(number)
    return proto


def test_names_of_any_kind_come_through() -> None:
    report = od.compile(hostile_network(), fallback="error").timing(trace=True)
    timeline = timeline_of(report)
    assert timeline is not None
    text = json.dumps(chrome(timeline))
    assert text.isascii()
    names = {one["name"] for one in json.loads(text)["traceEvents"]}
    assert {op.name for op in report.ops} <= names and any(HOSTILE in name for name in names)
    pytest.importorskip("perfetto")
    found = Decoded(perfetto_trace(timeline))
    operators = {name for name, *_ in found.slices[found.named("operators")]}
    assert {op.name for op in report.ops} <= operators


def test_text_that_utf8_lacks_is_escaped() -> None:
    pytest.importorskip("perfetto")
    slices = [Slice("a\udc80", 0, 5, "b\udc81", {"c\udc82": "d\udc83", "e": 1 << 62, "f": 0.5})]
    found = Decoded(perfetto_trace(Timeline("p\udc84", 1e9, 5, [Track("t", slices)])))
    ((name, start, end, args),) = found.slices[found.named("t")]
    assert (name, start, end) == ("a\\udc80", 0, 5)
    assert args == {"c\\udc82": "d\\udc83", "e": 1 << 62, "f": 0.5}


@pytest.mark.parametrize("kept", [0, 1, 7])
def test_as_much_is_kept_as_is_asked_for(kept: int) -> None:
    whole, _ = timed("image")
    report, timeline = timed("image", kept)
    assert report.trace is not None and whole.trace is not None
    assert len(report.trace.calls) == kept and "counted only" in report.trace.note
    for kind, spans in report.trace.spans.items():
        every = whole.trace.spans[kind]
        assert (spans.count, spans.cycles) == (every.count, every.cycles)
        assert spans.cut == every.count - min(kept, every.count) and len(spans.kept) <= kept
    assert timeline.notes["not kept"] == report.trace.note
    slices = sum(len(one.slices) for one in timeline.tracks)
    assert slices <= 8 * kept + 4 * len(report.ops) + 20
    for one in timeline.tracks:
        check_nested(one.slices, report.cycles)


def test_a_report_without_trace_has_operators_and_counters() -> None:
    report, timeline = timed("image", False)
    assert report.trace is None
    assert [one.name for one in timeline.tracks] == ["operators"] and len(timeline.counters) == 3


def test_what_lies_between() -> None:
    slices = [Slice("", 5, 3), Slice("", 2, 4), Slice("", 12, 20)]
    assert list(between(slices, 0, 15)) == [(0, 2), (8, 12)]
    assert list(between([], 3, 4)) == [(3, 4)] and list(between(slices, 12, 15)) == []


def test_writing_refuses_what_it_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = timed("image", False)
    with pytest.raises(od.InputError, match="pftrace"):
        od.write_trace(report, tmp_path / "t.txt")
    graph = od.Graph()
    graph.output(graph.add_layer("Det", [graph.input("x", (8, 8))]), "y")
    with pytest.raises(od.InputError, match="without device steps"):
        od.write_trace(od.compile(graph).timing(), tmp_path / "t.json")
    for name in [name for name in sys.modules if name.split(".")[0] == "perfetto"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "perfetto", None)
    with pytest.raises(od.InputError, match=r"pip install onedispatch\[perfetto\]"):
        od.write_trace(report, tmp_path / "t.pftrace")
    assert not list(tmp_path.iterdir())


def test_commands_write_timelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(network("image").SerializeToString())
    for command in (["time", "m.onnx"], ["profile", "m.onnx"], ["run", "m.onnx", "--random"]):
        done = CliRunner().invoke(app, [*command, "--trace", "t.json"])
        assert done.exit_code == 0, done.output
        events = json.loads(Path("t.json").read_bytes())["traceEvents"]
        Path("t.json").unlink()
        assert {"operators", "controller", "requests"} <= {
            one["args"]["name"] for one in events if one["name"] == "thread_name"
        }
    assert "od::conv" in CliRunner().invoke(app, ["time", "m.onnx", "--trace", "-"]).output
    with pytest.raises(od.InputError, match="--trace"):
        CliRunner().invoke(app, ["time", "m.onnx", "--trace", "t.txt"], catch_exceptions=False)
    with pytest.raises(od.InputError, match="several combinations"):
        command = ["time", "m.onnx", "--devices", "npu1,npu2", "--trace", "t.json"]
        CliRunner().invoke(app, command, catch_exceptions=False)
    Path("m.json").write_bytes(Path("m.onnx").read_bytes())
    before = Path("m.json").read_bytes()
    with protecting_files():
        done = CliRunner().invoke(app, ["time", "m.json", "--frontend", "onnx", "--trace", "m.json"])
    assert done.exit_code != 0 and Path("m.json").read_bytes() == before
