# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C: every long command ends soon, with one line, and leaves nothing; a session goes on."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onedispatch as od
from onedispatch.dispatch.base.interruptible import interruptible
from onedispatch.dispatch.base.processes import mapped
from onedispatch.dispatch.tools import zoo
from tests.tables import NIGHTLY

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

SOON = 30  # seconds; it is one on an idle machine
LONGEST = 4.0 if NIGHTLY else 2.0  # seconds before an interrupt: a command has begun its work by then
LINE = "onedispatch: interrupted"


class Interrupt(KeyboardInterrupt):
    """What the handler of these tests raises, so that pytest's own Ctrl-C stays another."""


@contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    def handler(number: int, frame: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, handler)
    over = threading.Event()

    def send() -> None:
        if not over.wait(seconds):
            os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        time.sleep(0)  # one that came late is handled here
        signal.signal(signal.SIGUSR1, before)


def interrupted(work: Callable[[], object], seconds: float) -> bool:
    """Whether the interrupt came before the end of ``work``."""
    try:
        with interrupt_after(seconds):
            work()
    except Interrupt:
        return True
    return False


@pytest.fixture(scope="module")
def session() -> tuple[od.InferenceSession, dict[str, Any]]:
    proto = zoo.randomised(zoo.find_model("light_squeezenet"))
    return od.InferenceSession(proto, fallback="error"), zoo.random_input(proto)


@pytest.mark.timeout(600)
def test_a_session_goes_on_after_an_interrupt(session: tuple[od.InferenceSession, dict[str, Any]]) -> None:
    run = session[0]
    start = time.perf_counter()
    expected = run.run(None, session[1])
    once = time.perf_counter() - start
    cycles = run.last_run.cycles
    rng = random.Random(1)
    stopped = 0
    for _ in range(12):
        stopped += interrupted(lambda: run.run(None, session[1]), rng.random() * once)
        again = run.run(None, session[1])
        assert all(np.array_equal(a, b) for a, b in zip(expected, again, strict=True))
        assert run.last_run.cycles == cycles
    assert stopped > 3


def test_who_waits_for_a_session_can_be_interrupted(
    session: tuple[od.InferenceSession, dict[str, Any]],
) -> None:
    run, feed = session
    over = threading.Event()

    def others() -> None:
        while not over.is_set():
            run.run(None, feed)

    threads = [threading.Thread(target=others) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert any(interrupted(lambda: [run.run(None, feed) for _ in range(5)], 0.05) for _ in range(5))
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_handler_may_not_run_the_session_that_it_interrupts(
    session: tuple[od.InferenceSession, dict[str, Any]],
) -> None:
    run, feed = session
    said: list[Exception] = []

    def handler(number: int, frame: object) -> None:
        try:
            run.run(None, feed)
        except od.OneDispatchError as error:
            said.append(error)

    expected = run.run(None, feed)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        for _ in range(50):
            timer = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            answer = run.run(None, feed)
            timer.join()
            assert np.array_equal(answer[0], expected[0])
            if said:
                break
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert said and isinstance(said[0], od.DeviceError)


def test_compiling_can_be_interrupted_anywhere() -> None:
    proto = zoo.randomised(zoo.find_model("light_squeezenet"))
    rng = random.Random(2)
    assert any(interrupted(lambda: od.compile(proto), rng.random()) for _ in range(5))
    assert od.compile(proto, fallback="error").transaction


def test_a_region_on_onnxruntime_is_left_at_once() -> None:
    """Loop runs on the host: some seconds in one call of onnxruntime."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["more"], ["on"]), helper.make_node("MatMul", ["a", "a"], ["b"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("more", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [256, 256]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [256, 256]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
        "g",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [256, 256]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [256, 256])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    loop = od.InferenceSession(proto)
    x = np.eye(256, dtype=np.float32)
    start = time.monotonic()
    assert interrupted(lambda: loop.run(None, {"n": np.array(10**9), "x": x}), 0.2)
    assert time.monotonic() - start < SOON
    assert np.array_equal(loop.run(None, {"n": np.array(3), "x": x})[0], x)


def test_work_on_another_thread_keeps_its_results_and_errors() -> None:
    assert interruptible(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)
    stopped = threading.Event()
    assert interrupted(lambda: interruptible(lambda: stopped.wait(SOON), stopped.set), 0.05)
    assert stopped.is_set()


def test_leaving_worker_processes_ends_them() -> None:
    start = time.monotonic()
    assert list(mapped(abs, 2, [-1, 2, -3])) == [1, 2, 3]
    results = mapped(time.sleep, 2, [0, 0, SOON * 3, SOON * 3])
    next(results)
    results.close()
    assert time.monotonic() - start < SOON
    with pytest.raises(od.OneDispatchError, match="ended without an answer"):
        list(mapped(os._exit, 2, [3, 3]))


# -- the command line ------------------------------------------------------------------------

WRAPPED = (
    "import sys; from onedispatch.dispatch.cli import main; print('ready', flush=True); "
    "sys.argv[0] = 'onedispatch'; main()"
)


def processes_of(group: int) -> list[str]:
    """Command lines of what lives in a process group."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append((path / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def heed_interrupts() -> None:
    """What a shell runs in the background ignores SIGINT, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt_process(command: list[str], seconds: float, to: Callable[[int, int], None]) -> tuple[int, str]:
    """Exit code and standard error of a command that got SIGINT so long after it began."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(seconds)
        to(process.pid, signal.SIGINT)
        start = time.monotonic()
        _, said = process.communicate(timeout=SOON * 4)
        assert time.monotonic() - start < SOON, said
        for _ in range(100):
            left = processes_of(process.pid)
            if not left:
                break
            time.sleep(0.1)
        assert not left, left
    return process.returncode, said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Transactions for some seconds, and a compiled model."""
    folder = tmp_path_factory.mktemp("files")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64, 56, 56])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx"
    )
    compiled = od.compile(str(folder / "m.onnx"), fallback="error")
    compiled.save(folder / "m.od")
    (folder / "all").mkdir()
    (folder / "all" / "0.bin").write_bytes(compiled.transaction)
    for i in range(1, 400):
        shutil.copy(folder / "all" / "0.bin", folder / "all" / f"{i}.bin")
    return folder


COMMANDS = {
    "run": ["run", "light_resnet50", "--random"],
    "compile": ["compile", "light_resnet50", "-o", "{folder}/out/made.od"],
    "inspect": ["inspect", "light_resnet50"],
    "bench": ["bench", "light_squeezenet", "--runs", "1000"],
    "tune": ["tune", "light_squeezenet", "--log", "{folder}/tuned.log"],
    "tune in processes": ["tune", "light_squeezenet", "--log", "{folder}/tuned.log", "--processes"],
    "replay": ["txn", "replay", "{folder}/all/0.bin"],
    "survey": ["txn", "survey", "{folder}/all", "--jobs", "2"],
    "survey alone": ["txn", "survey", "{folder}/all", "--jobs", "1"],
}


def told(text: str) -> list[str]:
    """The lines of a standard error, without spinners and progress bars."""
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", text).splitlines()
    return [
        line
        for line in lines
        if line.strip() and not re.search("compiling|survey|running|simulating|measur|tuning", line)
    ]


@pytest.mark.daily(3)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_with_one_line(name: str, folder: Path) -> None:
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / "made.od").write_bytes(b"before")
    arguments = [text.format(folder=folder) for text in COMMANDS[name]]
    rng = random.Random(name)
    codes = []
    for longest, to in ((0.2, os.kill), (LONGEST, os.kill), (LONGEST, os.killpg)):
        seconds = rng.random() * longest
        code, said = interrupt_process([sys.executable, "-c", WRAPPED, *arguments], seconds, to)
        codes.append(code)
        if code == 130:
            assert told(said) == [LINE], said
            assert (folder / "out" / "made.od").read_bytes() == b"before"
        else:
            assert code == 0, said  # it was through before
        assert [path.name for path in (folder / "out").iterdir()] == ["made.od"]
        (folder / "out" / "made.od").write_bytes(b"before")
    assert 130 in codes


def test_an_interrupt_in_a_finalizer_is_not_lost() -> None:
    """Python prints what is raised there, and goes on: so does an import that collects its lock just then."""
    program = """
import os, time
from onedispatch.dispatch.base import ctrl_c
class Last:
    def __del__(self):
        os.kill(os.getpid(), 2)
        time.sleep(0)
ctrl_c.listen()
try:
    Last()
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=heed_interrupts, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_an_interrupt_while_python_ends_changes_nothing() -> None:
    """What was said was said: it comes when the modules are torn down, after all handlers are gone."""
    late = "class Late:\n def __del__(self, kill=os.kill, to=os.getpid()): kill(to, 2)\n"
    command = [sys.executable, "-c", f"import os\n{late}late = Late()\n{WRAPPED}", "devices"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=heed_interrupts, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "npu2" in done.stdout


def test_workers_die_with_their_parent(folder: Path) -> None:
    command = [sys.executable, "-c", WRAPPED, "txn", "survey", str(folder / "all"), "--jobs", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        deadline = time.monotonic() + SOON
        while len(processes_of(process.pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(processes_of(process.pid)) >= 3
        process.kill()
        process.wait()
        deadline = time.monotonic() + SOON
        while processes_of(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = processes_of(process.pid)
    assert not left


@pytest.mark.nightly
def test_a_campaign_of_fuzzing_ends_with_one_line() -> None:
    code = "from tests.fuzz import campaign; print('ready', flush=True); campaign.cli()"
    command = [sys.executable, "-c", code, "--target", "decode", "--seconds", "60", "--jobs", "1"]
    for to in (os.kill, os.killpg):
        code_, said = interrupt_process(command, 3, to)
        assert (code_, said.strip()) == (130, "fuzz: interrupted")
