# SPDX-License-Identifier: Apache-2.0
"""Check mode on kernels with a mistake each: who did what to which coordinate, and what was declared."""

from __future__ import annotations

import gc
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.check import child
from onedispatch.dispatch.check.child import CheckReport, run_in_child
from onedispatch.dispatch.check.kernels import check_file
from onedispatch.dispatch.cli.kernel import app
from onedispatch.operators.plugin import watchdog
from onedispatch.operators.plugin.boxes import MemberBox, partitions, singles
from onedispatch.operators.plugin.check import Options
from onedispatch.operators.plugin.findings import failed
from tests import plugins

FILE = Path(__file__).parent / "kernels" / "mistaken.py"
OPTIONS = Options(seconds=1.0)

# Kernel -> (kind, what the finding says), or nothing to find.
EXPECTED = {
    "wrong::four_rows": ("gap", "leaves z at"),
    "wrong::softmax_rows": ("wide", "has 64 members, of which 60 touch nothing of any output"),
    "wrong::race": ("race", "members 0 and 1 of index dimension 0 write the same elements"),
    "wrong::counts": ("state", "the same call gives other bits of z"),
    "wrong::boxes": ("order", "gives other bits of z at"),
    "wrong::wide": ("wide", "of x and touches 7 times less"),
    "wrong::leaves": ("crash", "ended with exit code 3; its last words: no licence"),
    "wrong::loops": ("timeout", "no end within 1 seconds"),
    "wrong::loops_elsewhere": None,
    "wrong::reads_a_global": ("host", "the body reads TABLE of the host's memory (float32[8])"),
    "wrong::reads_itself": ("host", "the body reads self.weights of the host's memory (a list of 32)"),
    "fine::constants": None,
    "wrong::raises": ("failed", "raised KeyError: 'table'"),
    "wrong::shapes": ("failed", "could not broadcast"),
    "wrong::takes_nothing": ("refused", "none of the cases"),
    "fine::blur": None,
}
WARNINGS = ("wrong::softmax_rows", "wrong::wide")


@pytest.fixture(scope="module")
def report() -> CheckReport:
    return check_file(str(FILE), OPTIONS)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_mistake_is_found(report: CheckReport, name: str) -> None:
    findings = report.kernels[f"{name}@1"].findings
    expected = EXPECTED[name]
    if expected is None:
        assert findings == [] and len(report.kernels[f"{name}@1"].cases) > 1
        return
    kind, said = expected
    found = [one for one in findings if one.kind == kind]
    assert found, [str(one) for one in findings]
    if name == "wrong::four_rows":
        first = min(found, key=lambda one: one.coordinate)
        assert first.coordinate[1] % 4 == 1 and len(first.member) == 3
        assert "4 times what it writes" in first.text and f"declared of z: {first.declared}" in first.text
    else:
        assert any(said in str(one) for one in found), [str(one) for one in found]
    assert failed(findings) == (name not in WARNINGS)


def test_all_kernels_of_the_file_are_checked(report: CheckReport) -> None:
    assert set(report.kernels) == {f"{name}@1" for name in EXPECTED}


def test_the_command_ends_as_scripts_expect() -> None:
    run = CliRunner().invoke
    clean = run(app, ["check", str(FILE), "--kernel", "fine::blur"])
    assert clean.exit_code == 0 and "fine::blur@1: clean (" in clean.stdout, clean.output
    warned = run(app, ["check", str(FILE), "--kernel", "wrong::wide"])
    assert warned.exit_code == 0 and "warning: wide: x=f32[3, 20]: member [" in warned.stdout
    wrong = run(
        app, ["check", str(FILE), "--kernel", "wrong::race", "--json", "--order", "plain", "--seed", "3"]
    )
    assert wrong.exit_code == 1
    report = json.loads(wrong.stdout)
    (row,) = report["kernels"]
    assert (
        report["clean"] is False
        and row["findings"][0]["level"] == "error"
        and row["findings"][0]["kind"] == "race"
    )
    case = run(
        app, ["check", str(FILE), "--kernel", "wrong::boxes", "--case", "x=f32[9]", "--partitions", "3"]
    )
    assert case.exit_code == 1 and "x=f32[9]" in case.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.py"], "none.py"),
        ([str(FILE), "--kernel", "wrong::none"], "fine::blur@1"),
        ([str(FILE), "--order", "sideways"], "shuffle, plain"),
        ([str(FILE), "--partitions", "0"], "1 to 1024"),
        ([str(FILE), "--kernel", "fine::blur", "--case", "x=?"], "--case: given 'x=?'"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["check", *arguments])
    assert result.exit_code != 0
    assert said in (result.output + str(result.exception))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("y=f32[4,5]", "'y=f32[4,5]': given y; accepted: x: the inputs"),
        ("x=f32[4,5] y=f32[4,5]", "'y=f32[4,5]': given y; accepted: x: the inputs"),
        ("x=f32[4,5] x=f32[4,6]", "'x=f32[4,6]': given x once more; accepted: each name once"),
        ("x=f32[4,5] a=1 a=2", "'a=2': given a once more; accepted: each name once"),
        ("x=2", "'x=2': given a number for the input x; accepted: a tensor: x=f32[4,5]"),
        ("x=[4,5] a=1e", "--case: given 'a=1e'; accepted: tensors and numbers"),
    ],
)
def test_a_case_with_names_that_the_kernel_does_not_have(case: str, said: str) -> None:
    result = CliRunner().invoke(app, ["check", str(FILE), "--kernel", "fine::blur", "--case", case])
    assert result.exit_code == 1
    assert said in " ".join(result.output.split()), result.output


def test_a_file_that_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import onedispatch as od\nraise RuntimeError('half written')\n")
    with pytest.raises(od.OneDispatchError, match="half written"):
        check_file(str(tmp_path / "broken.py"), OPTIONS)
    (tmp_path / "leaves.py").write_text("import os\nos.abort()\n")
    report = check_file(str(tmp_path / "leaves.py"), OPTIONS)
    (finding,) = report.findings
    assert finding.kind == "crash" and "ended with SIGABRT" in finding.text


def test_a_child_that_leaves_as_if_all_were_well() -> None:
    report = run_in_child(lambda reporter: os._exit(0), 5.0)
    assert [one.kind for one in report.findings] == ["crash"]
    assert "exit code 0, before its work did" in report.findings[0].text


def slow_to_exit(seconds: float) -> Callable[[object], None]:
    """What flushes for so long when its process exits."""

    class Slow(io.StringIO):
        def flush(self) -> None:
            time.sleep(seconds)

    def work(reporter: object) -> None:
        sys.stdout = Slow()

    return work


@pytest.mark.parametrize(("seconds", "patience"), [(1.0, 10.0), (60.0, 0.2)])
def test_a_child_that_takes_its_time_to_exit_did_its_work(
    seconds: float, patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the kernel takes down a large process slowly."""

    monkeypatch.setattr(child, "_EXIT", patience)
    report = run_in_child(slow_to_exit(seconds), 5.0)
    assert report.findings == [] and report.ended and not report.died


def test_exiting_takes_no_longer_than_the_check_may() -> None:
    start = time.monotonic()
    report = run_in_child(slow_to_exit(60.0), 60.0, limit=child.TimeLimit(1.0))
    assert report.findings == [] and time.monotonic() - start < 5


def test_a_process_that_a_kernel_left_behind_is_not_waited_for() -> None:
    """It holds the pipe open; the work is done all the same."""

    def work(reporter: object) -> None:
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)

    report = run_in_child(work, 0.5)
    assert report.findings == [] and report.ended


def test_a_child_leaves_the_garbage_of_its_parent_alone() -> None:
    """A session of onnxruntime waits at its end for its threads, which a child does not have."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    relu = plugins.model(
        [helper.make_node("Relu", ["x"], ["z"])], [plugins.value("x", (4,))], [plugins.value("z", (4,))]
    )
    ring: list[object] = [onnxruntime.InferenceSession(relu.SerializeToString(), options)]
    ring.append(ring)
    time.sleep(0.3)  # its thread sleeps then
    del ring
    report = run_in_child(lambda reporter: print(gc.collect()), 5.0)
    assert report.findings == [] and report.ended


def test_a_child_needs_no_lock_that_the_watch_of_its_parent_holds() -> None:
    """Its thread looks at bodies that run twenty times a second, and may do so while another one forks."""
    watch, release = watchdog._WATCH, threading.Event()

    def look() -> None:
        with watch.lock:
            held.set()
            release.wait()

    held, looking = threading.Event(), threading.Thread(target=look)
    looking.start()
    held.wait()
    try:
        report = run_in_child(lambda reporter: watchdog.watched(lambda: None, 5.0), 5.0)
    finally:
        release.set()
        looking.join()
    assert report.findings == [] and report.ended
    assert watchdog.watched(lambda: 3, 5.0) == 3


def test_a_child_that_says_nothing_is_ended() -> None:
    def work(reporter: object) -> None:
        while True:
            pass

    report = run_in_child(work, 0.3)
    assert [one.kind for one in report.findings] == ["timeout"]
    assert "no sign of life for 0.3 seconds" in report.findings[0].text


def model(op_type: str, shape: tuple[int, ...] = (4, 9)) -> onnx.ModelProto:
    """Relu, then a node of the domain "wrong"."""
    relu = helper.make_node("Relu", ["x"], ["r"], name="relu")
    node = helper.make_node(op_type, ["r"], ["z"], name="custom", domain="wrong")
    return plugins.model([relu, node], [plugins.value("x", shape)], [plugins.value("z", shape)])


def test_a_session_checks_the_nodes_of_its_model(tmp_path: Path) -> None:
    """On the values that they have there: the first node's results."""
    x = np.random.default_rng(2).standard_normal((4, 9)).astype(np.float32)
    od.plugins.reset()
    try:
        session = od.InferenceSession(model("Blur"), plugins=[str(FILE)], check="access")
        (z,) = session.run(None, {"x": x})
        padded = np.pad(np.maximum(x, 0), ((0, 0), (1, 1)))
        np.testing.assert_array_equal(z, padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:])
        assert session.findings == ()
        session = od.InferenceSession(model("Counts"), check="access")
        with pytest.raises(od.KernelError, match=r"error: state: node custom: member \[") as caught:
            session.run(None, {"x": x})
        assert type(caught.value).__name__ == "KernelAccessError" and session.findings
        with pytest.raises(od.InputError, match="'access'"):
            od.InferenceSession(model("Blur"), check="all")
        onnx.save(model("Counts"), tmp_path / "m.onnx")
        np.save(tmp_path / "x.npy", x)
        given = [
            "check",
            str(FILE),
            "--model",
            str(tmp_path / "m.onnx"),
            "--input",
            f"x={tmp_path / 'x.npy'}",
        ]
        result = CliRunner().invoke(app, given)
        assert result.exit_code == 1 and "error: state: node custom" in result.stdout, result.output
    finally:
        od.plugins.reset()


def test_partitions_cover_every_member_once() -> None:
    for space in ((), (1,), (7,), (5, 6), (2, 3, 4, 5, 6), (100, 3), (1000,)):
        for steps in ((1,) * len(space), (4,) * len(space)):
            seen = np.zeros(space, int)
            parts = partitions(space, 32, steps)
            assert 1 <= len(parts) <= 32
            for box in parts:
                at = tuple(slice(f, f + n) for f, n in zip(box.first, box.count, strict=True))
                seen[at] += 1
                assert all(f % step == 0 for f, step in zip(box.first, steps, strict=True))
            assert (seen == 1).all()


def test_members_alone_come_shuffled_and_bounded() -> None:
    rng = np.random.default_rng(0)
    all_of = singles((5, 6), 512, rng)
    assert sorted(box.first for box in all_of) == [(i, j) for i in range(5) for j in range(6)]
    assert [box.first for box in all_of] != sorted(box.first for box in all_of)
    some = singles((1000, 1000), 50, rng)
    assert len(some) == 50 and MemberBox((0, 0), (1, 1)) in some and MemberBox((999, 999), (1, 1)) in some


def test_why_cases_are_refused_is_shown(tmp_path: Path) -> None:
    """By the kernel's own ``verify``, and by what ``place`` refuses of its index space."""
    source = """
import onedispatch as od

@od.kernel("refuses::small", inputs="x", outputs="z")
class Small:
    def infer(self, n): return {"z": n["x"].like()}
    def index_space(self, n): return tuple(size // 1000 for size in n["x"].shape)
    def body(self, t): t.z[:] = t.x
"""
    file = tmp_path / "refuses.py"
    file.write_text(source)
    result = CliRunner().invoke(app, ["check", str(file)])
    assert "index space, dimension 0: given 0; accepted: 1 to" in result.output, result.output
    assert "more cases" in result.output
    result = CliRunner().invoke(app, ["check", str(FILE), "--kernel", "wrong::takes_nothing"])
    assert result.exit_code == 1 and "something else" in result.output, result.output
