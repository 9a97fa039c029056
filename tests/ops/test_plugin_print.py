# SPDX-License-Identifier: Apache-2.0
"""Bodies that print: labelled by node, kernel, core and member, in order, in bounded room, per session."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch import InputError, KernelError
from onedispatch.cpp_ext import _core
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.plugins import engine
from onedispatch.operators.codegen.kernel_text import formulas
from onedispatch.operators.declarations.kernel import Kernel
from onedispatch.operators.plugin import registrations
from tests import plugins
from tests.devices import device_file
from tests.ops.libraries import built

SHAPE = (6, 40)
# Every format; what comes of them is checked against C elsewhere (tests/integration/test_plugin_print.py).
EVERY = "%bf %hf %f %hhd %hhu %hd %hu %d %u %x %s %5.1f|%-4d|%%"


def values(v: float, i: int) -> list[Any]:
    return [v, v, v, i - 3, i - 3, i - 300, i - 300, i - 70000, i - 70000, i, "row", v, i]


class Rows:
    def infer(self, n: Any) -> Any:
        return {"z": n["x"].like()}

    def index_space(self, n: Any) -> Any:
        return n["x"].shape[:1]

    def access(self, n: Any) -> Any:
        return n.access("x", 0, None) | n.access("z", 0, None)


class Wrong(Rows):
    def body(self, t: Any) -> None:
        if t.how == 0:
            t.print((1, 2), "two coordinates")
        elif t.how == 1:
            t.print((6,), "behind the last member")
        elif t.how == 2:
            t.print()
        else:
            t.print("before it fails")
            raise ValueError("it was told to fail")


class Elsewhere(Rows):
    """For another device than the tests run on."""

    def body(self, t: Any) -> None:
        t.print("members: %d", t.shape[0])
        t.z[:] = t.x


@pytest.fixture(scope="module", autouse=True)
def kernels() -> Iterator[None]:
    """Kernels of this file, gone when it ends."""

    @od.kernel("say::formats", inputs="x", outputs="z")
    class Formats(Rows):
        """A line per member, in every format."""

        def body(self, t: Any) -> None:
            for k in range(t.shape[0]):
                i = t.origin[0] + k
                t.print((i,), EVERY, *values(t.x[k, 0], i))
            t.z[:] = t.x

    @od.kernel("say::lines", inputs="x", outputs="z", scalars={"lines": "u32"})
    class Lines(Rows):
        def body(self, t: Any) -> None:
            for i in range(t.lines):
                t.print("line %d of %d, from member %d on", i, t.lines, t.origin[0])
            t.z[:] = t.x

    @od.kernel("say::one", inputs="x", outputs="z", scalars={"count": "u32"}, prints="strict")
    class One(Rows):
        def body(self, t: Any) -> None:
            t.print("%d " * t.count, *range(t.count))
            t.z[:] = t.x

    @od.kernel("say::nested", inputs="x", outputs="z")
    class Nested(Rows):
        def body(self, t: Any) -> None:
            _ = [t.print("%d", i) for i in range(2)]
            t.z[:] = t.x

    def told(t: Any) -> None:
        t.print("from a helper")

    @od.kernel("say::helped", inputs="x", outputs="z")
    class Helped(Rows):
        """Nothing in its body's code names what it does."""

        def body(self, t: Any) -> None:
            told(t)
            t.z[:] = t.x

    od.kernel("say::elsewhere", inputs="x", outputs="z", devices="npu1")(Elsewhere)
    od.kernel("say::wrong", inputs="x", outputs="z", scalars={"how": "u32"})(Wrong)

    made = [Formats, Lines, One, Nested, Helped, Wrong, Elsewhere]
    for one in made:
        od.maps(one.__name__, domain="say")(one)
    yield
    for name in [o.kernel.name for o in registrations.kernels() if o.kernel.name.startswith("say::")]:
        registrations.withdraw_kernel(name)
    engine.unregister_kernels()


def model(*ops: str, shape: tuple[int, ...] = SHAPE, **attributes: Any) -> ModelProto:
    """Nodes of the domain ``say`` one after the other."""
    names = ["x", *(f"t{i}" for i in range(len(ops)))]
    nodes = [
        helper.make_node(op, [names[i]], [names[i + 1]], name=f"node{i}", domain="say", **given)
        for i, op in enumerate(ops)
        for given in [{} if op in ("Formats", "Elsewhere") else attributes]
    ]
    return plugins.model(nodes, [plugins.value(names[0], shape)], [plugins.value(names[-1], shape)])


def kernel_named(name: str) -> Kernel:
    return next(row.kernel for row in registrations.kernels() if row.kernel.name == name)


def ran(which: ModelProto, **options: Any) -> od.InferenceSession:
    session = od.InferenceSession(which, fallback="error", **options)
    x = np.resize(X, [int(size) for size in session.get_inputs()[0].shape])
    (z,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(z, x)
    return session


X = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)


def test_every_format_from_every_member() -> None:
    session = ran(model("Formats"))
    lines = session.last_run.prints
    assert {line.member for line in lines} == {(i,) for i in range(SHAPE[0])}
    for line in lines:
        (i,) = line.member
        assert line.text == _core.format_print(EVERY, values(float(X[i, 0]), i))
        assert (line.node, line.kernel, line.lost) == ("node0", "say::formats@1", 0)
        column, row = line.core
        assert column >= 0 and row >= 2
    assert session.prints == list(lines)
    assert str(lines[0]).startswith("[node0 say::formats@1 core c0 r2 member 0] ")


def test_a_compiled_body_prints_the_same(tmp_path: Path) -> None:
    expected = ran(model("Formats")).last_run
    library = built("say.cpp", tmp_path)
    twin = od.kernel("say::formats", inputs="x", outputs="z", library=str(library), prints=True)(
        type("Twin", (Rows,), {})
    )
    od.maps("Twin", domain="say")(twin)
    made = ran(model("Twin")).last_run
    assert made.prints == expected.prints and made.cycles == expected.cycles


def test_kernels_print_on_the_host_too() -> None:
    session = od.InferenceSession(model("Elsewhere", "Lines", lines=1))
    session.run(None, {"x": X})
    assert [row.device for row in session.placement] == ["cpu", "npu"]
    first, *others = session.last_run.prints
    assert (first.node, first.kernel, first.core) == ("node0", "say::elsewhere@1", "host")
    assert first.member == (0,) and first.text == "members: 6"
    assert others and all(line.node == "node1" and line.core != "host" for line in others)
    quiet = od.InferenceSession(model("Elsewhere"), print=None)
    quiet.run(None, {"x": X})
    assert quiet.prints == []


def test_lines_come_by_operator_core_and_sequence_whatever_the_threads() -> None:
    twice = model("Lines", "Lines", shape=(3000, 64), lines=4)
    session = ran(twice, threads=1)
    first = session.last_run
    keys = [(line.node, line.core) for line in first.prints]
    assert keys == sorted(keys) and {node for node, _ in keys} == {"node0", "node1"}
    assert len(set(keys)) > 2  # two cores and more
    for threads in (2, 5):
        again = ran(twice, threads=threads).last_run
        assert again.prints == first.prints and again.cycles == first.cycles


def test_an_overflow_is_marked(tmp_path: Path) -> None:
    one = str(device_file(tmp_path, "one"))
    lines = ran(model("Lines", lines=2000), device=one).last_run.prints
    assert lines[0].lost > 0 and lines[0].text == f"... {lines[0].lost:,} lines lost"
    assert "line 1999 of 2000" in lines[-1].text
    assert sum(len(line.text) + 1 for line in lines[1:]) <= _core.PRINT_BYTES
    small = ran(model("Lines", lines=20), device=one, print_bytes=200).last_run.prints
    assert small[0].lost and len(small) < 10
    assert not any(line.lost for line in ran(model("Lines", lines=20), device=one).last_run.prints)


def test_where_lines_go(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    which = model("Lines", lines=1)
    with caplog.at_level(logging.INFO, "onedispatch.print"):
        lines = [str(line) for line in ran(which, print="stdout").last_run.prints]
    assert capsys.readouterr().out.splitlines() == lines
    assert [record.getMessage() for record in caplog.records if record.name == "onedispatch.print"] == lines
    kept = ran(which)
    assert capsys.readouterr().out == "" and len(kept.last_run.prints) == len(lines)
    silent = ran(which, print=None)
    assert silent.last_run.prints == () and silent.last_run.cycles < kept.last_run.cycles
    for wrong in ({"print": "loud"}, {"print": True}, {"print_bytes": 0}, {"print_bytes": "many"}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            od.InferenceSession(which, **wrong)


def test_time_does_not_depend_on_what_is_printed() -> None:
    assert len({ran(model("Lines", lines=n)).last_run.cycles for n in (0, 1, 50)}) == 1


def test_sessions_keep_their_lines_apart() -> None:
    which = model("Lines", shape=(3000, 64), lines=3)
    alone = ran(which).last_run.prints
    with ThreadPoolExecutor(3) as pool:
        for session in pool.map(lambda _: ran(which), range(6)):
            assert session.last_run.prints == alone


def test_one_value_per_line_where_the_kernel_says_so() -> None:
    assert ran(model("One", count=1)).last_run.prints[0].text == "0 "
    with pytest.raises(KernelError, match=r"2 values in a line.*at most one"):
        ran(model("One", count=2))


def test_what_prints_says_so() -> None:
    printing = {row.kernel.name: row.kernel.prints for row in registrations.kernels()}
    assert printing["say::nested@1"] == "yes" and printing["say::helped@1"] == "no"
    assert printing["say::one@1"] == "one"
    assert any("it prints, at most one value" in line for line in formulas(kernel_named("say::one@1")))
    assert [line.text for line in ran(model("Nested")).last_run.prints[:2]] == ["0", "1"]
    with pytest.raises(KernelError, match=r"say::helped@1 prints.*prints=True"):
        ran(model("Helped"))


def test_mistakes_and_lines_before_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    for how, said in enumerate(("the member of t.print", "the member of t.print", "the format of t.print")):
        with pytest.raises(KernelError, match=said):
            ran(model("Wrong", how=how))
    session = od.InferenceSession(model("Wrong", how=3), fallback="error", print="stdout", threads=1)
    with pytest.raises(KernelError, match="it was told to fail"):
        session.run(None, {"x": X})
    assert [line.text for line in session.prints] == ["before it fails"]
    assert "before it fails" in capsys.readouterr().out


def test_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model("Lines", lines=3), path)
    run = CliRunner().invoke
    shown = run(app, ["run", str(path), "--random", "--print-bytes", "60"])
    assert (
        shown.exit_code == 0 and "lost" in shown.output and "[node0 say::lines@1 core c0 r2" in shown.output
    )
    report = json.loads(run(app, ["run", str(path), "--random", "--json"]).stdout)["report"]
    assert report["prints"][0]["text"].startswith("line 0 of 3")
    for name, begins in (("t.csv", "kernel,calls,"), ("t.json", '{"traceEvents"')):
        done = run(app, ["run", str(path), "--random", "--trace", str(tmp_path / name)])
        assert done.exit_code == 0 and (tmp_path / name).read_text().startswith(begins)
        assert "say::lines@1" in (tmp_path / name).read_text()
    assert "say::lin" in run(app, ["run", str(path), "--random", "--trace", "-"]).output


def test_calls_are_traced_where_asked_for() -> None:
    which = model("Lines", "Formats", lines=1)
    assert ran(which).last_run.trace is None
    whole = ran(which, trace=True)
    trace = whole.last_run.trace
    assert not trace.cut and not trace.note
    rows = {row.kernel: row for row in trace.kernels}
    for name, op in (("say::lines@1", "node0"), ("say::formats@1", "node1")):
        calls = [call for call in trace.calls if call.kernel == name]
        assert {call.op for call in calls} == {op}
        row = rows[name]
        assert row.calls == len(calls) and row.cycles == sum(call.cycles for call in calls)
        assert row.nanoseconds == sum(call.nanoseconds for call in calls) > 0
        assert row.span >= row.cycles and row.average == row.cycles / row.calls
        assert all(0 <= call.start <= whole.last_run.cycles for call in calls)
    assert trace.spans["task"].count > 0 and not trace.spans["task"].cut
    cut = ran(which, trace=3).last_run.trace
    assert len(cut.calls) == 3 and cut.cut == len(trace.calls) - 3 and "counted only" in cut.note
    assert [row.cycles for row in cut.kernels] == [row.cycles for row in trace.kernels]
    with pytest.raises(InputError, match="trace"):
        od.InferenceSession(which, trace=-1)
