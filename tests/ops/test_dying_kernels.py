# SPDX-License-Identifier: Apache-2.0
"""Functions of custom kernels that end the process, or do not end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onedispatch as od
from onedispatch.dispatch.check.child import Reporter, TimeLimit, run_in_child
from onedispatch.dispatch.check.kernels import check_file
from onedispatch.operators.plugin.check import Options
from tests.ops.kernels.dying import PLACES

FILE = Path(__file__).parent / "kernels" / "dying.py"
FEED = {"x": np.ones((2, 4), np.float32)}
ASKED = [place for place in PLACES if place not in ("body", "reference")]  # while a model is compiled


def model(*op_types: str) -> onnx.ModelProto:
    """A chain of operators of the file, or Relu."""
    kind = TensorProto.FLOAT
    names = ["x", *(f"v{i}" for i in range(1, len(op_types))), "z"]
    ends = [helper.make_tensor_value_info(name, kind, [2, 4]) for name in ("x", "z")]
    nodes = [
        helper.make_node(op, [names[i]], [names[i + 1]], name=f"n{i}", domain="" if op == "Relu" else "dying")
        for i, op in enumerate(op_types)
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("dying", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def session(*op_types: str, **options: Any) -> od.InferenceSession:
    return od.InferenceSession(model(*op_types), plugins=[FILE], **options)


# -- functions that do not end --------------------------------------------------------------------


@pytest.mark.parametrize("place", [*ASKED, "mapping", "results"])
def test_a_function_that_does_not_end_is_ended_while_a_model_is_compiled(place: str) -> None:
    start = time.monotonic()
    with pytest.raises(od.KernelTimeoutError, match=r"node n0 .*no end within 0\.3 seconds") as caught:
        session(f"{place}_loop", kernel_seconds=0.3)
    assert "dying.py:" in str(caught.value) and "kernel_seconds" in str(caught.value)
    assert time.monotonic() - start < 10


def test_the_limit_of_a_compilation_without_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    od.plugins.load(str(FILE))
    monkeypatch.setenv("ONEDISPATCH_KERNEL_SECONDS", "0.3")
    with pytest.raises(od.KernelTimeoutError, match=r"no end within 0\.3 seconds"):
        od.compile(model("infer_loop"))


def test_a_reference_that_does_not_end() -> None:
    from onedispatch.dispatch.frontend.importer import import_model
    from onedispatch.dispatch.host.own_kernel import OwnKernel
    from onedispatch.transactions import find_device

    od.plugins.load(str(FILE))
    graph = import_model(model("reference_loop"))
    own = OwnKernel(graph, graph.nodes[0], ["z"], {}, find_device("npu2"), 0.3)
    with pytest.raises(od.KernelTimeoutError, match=r"reference.*no end within 0\.3 seconds"):
        own.run(FEED)


@pytest.mark.parametrize("place", ["infer", "body"])
def test_check_mode_of_a_file_finds_what_does_not_end(place: str) -> None:
    report = check_file(str(FILE), Options(seconds=0.3), kernel=f"dying::{place}_loop")
    kinds = [one.kind for one in report.findings]
    assert kinds == ["timeout"] and "no end within 0.3 seconds" in report.findings[0].text


@pytest.mark.daily(2)
@pytest.mark.parametrize("place", ["infer", "body"])
def test_check_mode_ends_a_call_that_never_returns_to_the_interpreter(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No limit of this process ends one: the child that runs it is killed."""
    start = time.monotonic()
    monkeypatch.setattr("onedispatch.dispatch.check.kernels.GRACE", 1.0)
    monkeypatch.setattr("onedispatch.dispatch.check.model.GRACE", 1.0)
    told = check_file(str(FILE), Options(seconds=0.3), kernel=f"dying::{place}_block")
    (finding,) = told.findings
    assert finding.kind == "timeout" and "gave no sign of life" in finding.text
    with pytest.raises(od.KernelTimeoutError, match=r"no sign of life|a limit of 3 seconds in all"):
        session(f"{place}_block", check="access", kernel_seconds=0.3, check_seconds=3).run(None, FEED)
    assert time.monotonic() - start < 30


# -- functions that end the process ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("crash", "ended with SIGSEGV in string_at"),
        ("abort", "ended with SIGABRT in at (dying.py"),
        ("leave", "exit code 0"),
    ],
)
@pytest.mark.parametrize("place", ["infer", "body"])
def test_check_mode_of_a_file_contains_a_crash(place: str, how: str, said: str) -> None:
    report = check_file(str(FILE), Options(seconds=5), kernel=f"dying::{place}_{how}")
    assert [one.kind for one in report.findings] == ["crash"]
    assert said in report.findings[0].text, report.findings[0].text
    if how == "crash":
        assert "called by crash (dying.py:" in report.findings[0].text


@pytest.mark.parametrize("how", ["crash", "abort", "leave"])
@pytest.mark.parametrize("place", ["infer", "access"])
def test_a_session_with_check_mode_contains_a_crash_while_it_compiles(place: str, how: str) -> None:
    with pytest.raises(od.KernelCrashError, match=r"crash: the process that ran it ended"):
        session(f"{place}_{how}", check="access")


@pytest.mark.parametrize("how", ["crash", "abort", "leave"])
def test_a_session_with_check_mode_contains_a_crash_while_it_runs(how: str) -> None:
    """The second kernel's input is computed by the first one: it takes a run to know it."""
    for chain in ([f"body_{how}"], [f"body_{how}", "reference_loop"], ["Relu", f"body_{how}"]):
        run = session(*chain, check="access")
        with pytest.raises(od.KernelCrashError, match=r"crash: .*process that ran it ended"):
            run.run(None, FEED)


def test_a_session_with_check_mode_has_a_limit_over_all() -> None:
    start = time.monotonic()
    run = session("body_loop", check="access", kernel_seconds=60, check_seconds=2)
    with pytest.raises(od.KernelTimeoutError, match="a limit of 2 seconds in all"):
        run.run(None, FEED)
    with pytest.raises(od.KernelTimeoutError, match="a limit of 2 seconds in all"):
        session("infer_loop", check="access", kernel_seconds=60, check_seconds=2)
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("seconds", [0, -1, "x", float("nan"), None, True])
def test_a_limit_that_is_none(seconds: Any) -> None:
    with pytest.raises(od.InputError, match="check_seconds"):
        session("reference_loop", check="access", check_seconds=seconds)


def test_signs_of_life_do_not_outlast_the_limit() -> None:
    def work(reporter: Reporter) -> None:
        while True:
            time.sleep(0.05)
            reporter.beat()

    start = time.monotonic()
    report = run_in_child(work, 5.0, limit=TimeLimit(0.5))
    assert report.late and time.monotonic() - start < 5
    assert "a limit of 0.5 seconds in all" in str(report.findings[0])


@pytest.mark.parametrize(("how", "died"), [("crash", -11), ("abort", -6)])
def test_a_crash_of_a_run_names_its_kernel(how: str, died: int) -> None:
    """A jump out of the interpreter is not possible: the process ends, and says of what."""
    code = f"from tests.ops.test_dying_kernels import *\nsession('body_{how}', threads=1).run(None, FEED)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == died, done.stderr
    assert f"the Python body of kernel dying::body_{how}@1 crashed" in done.stderr
    assert "kernel check" in done.stderr
