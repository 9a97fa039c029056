# SPDX-License-Identifier: Apache-2.0
"""Many threads and processes at once: answers stay what they are, and nothing hangs or crashes."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from tests.host_nodes import on_host
from tests.tables import NIGHTLY

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
THREADS = 16
SECONDS = 20 if NIGHTLY else 4  # of the stress, which takes all cores; everything in it is finite


def model(width: int, host: bool = False, batch: int | str = 32) -> onnx.ModelProto:
    """Two products with a Relu between; ``host``: then what stays there."""
    rng = np.random.default_rng(width)
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        *(on_host("c", "y") if host else [helper.make_node("Relu", ["c"], ["y"])]),
    ]
    weights = [
        numpy_helper.from_array(rng.standard_normal((width, width), np.float32), name) for name in ("v", "w")
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, width])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def data(width: int, batch: int = 32) -> dict[str, Array]:
    return {"x": np.random.default_rng(3).standard_normal((batch, width), np.float32)}


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Raises what a thread raised first."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_threads_that_save_to_one_path_leave_a_whole_file(tmp_path: Path) -> None:
    models = [od.compile(model(width)) for width in (16, 24, 32)]
    known = {m.transaction for m in models}

    def save(number: int) -> None:
        for _ in range(10):
            models[number % 3].save(tmp_path / "m.od")
            assert od.load(tmp_path / "m.od").transaction in known

    in_threads(THREADS, save)
    assert [path.name for path in tmp_path.iterdir()] == ["m.od"]


@pytest.mark.timeout(600)
def test_stress(tmp_path: Path) -> None:
    """Sessions shared and own, compiling, saving, loading, buffers and runs of XRT, all at once."""
    widths = (16, 48, 96)
    feeds = {width: data(width) for width in widths}
    expected = {(w, host): od.InferenceSession(model(w, host)).run(None, feeds[w])[0]
                for w in widths for host in (False, True)}  # fmt: skip
    shared = {key: od.InferenceSession(model(*key)) for key in expected}
    varying = od.InferenceSession(model(16, batch="N"), cache_size=2)
    device = od.xrt.device(0, "npu2")
    whole = od.xrt.bo(device, THREADS * 64, od.xrt.bo.host_only, 0)
    end = time.monotonic() + SECONDS

    def run_shared(rng: random.Random, number: int) -> None:
        key = rng.choice(list(shared))
        assert np.array_equal(shared[key].run(None, feeds[key[0]])[0], expected[key])

    def compile_and_save(rng: random.Random, number: int) -> None:
        key = rng.choice(list(expected))
        od.compile(model(*key)).save(tmp_path / f"{rng.randrange(3)}.od")

    def load_and_run(rng: random.Random, number: int) -> None:
        path = tmp_path / f"{rng.randrange(3)}.od"
        if path.exists():
            session = od.InferenceSession(od.load(path), threads=rng.choice([None, 1, 2]))
            width = session.get_inputs()[0].shape[1]
            answer = session.run(None, feeds[int(width)])[0]
            assert any(np.array_equal(answer, expected[int(width), host]) for host in (False, True))

    def vary(rng: random.Random, number: int) -> None:
        batch = rng.randrange(1, 6)
        assert varying.run(None, data(16, batch))[0].shape == (batch, 16)

    def buffers(rng: random.Random, number: int) -> None:
        part = od.xrt.bo(whole, 64, number * 64)
        content = bytes([rng.randrange(256)]) * 64
        part.write(content)
        part.sync(od.xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE)
        assert bytes(part.read(64, 0)) == content and bytes(part.map()) == content

    kinds = (run_shared, run_shared, compile_and_save, load_and_run, vary, buffers)

    def work(number: int) -> None:
        rng = random.Random(number)
        while time.monotonic() < end:
            rng.choice(kinds)(rng, number)

    in_threads(THREADS, work)


def test_arguments_change_while_a_run_starts() -> None:
    """A run takes its arguments as they are when it starts; what is replaced may have no other owner."""
    compiled = od.compile(model(16))
    transaction, image = compiled.transaction, next(iter(compiled.executables.values())).device_steps[0].image
    device = od.xrt.device(0, "npu2")
    from onedispatch.operators.emission.overlay import overlay_transaction
    from onedispatch.transactions import Xclbin, find_device

    binary = od.xrt.xclbin(Xclbin("npu2", {0: overlay_transaction(find_device("npu2"), image)}).to_bytes())
    device.register_xclbin(binary)
    kernel = od.xrt.kernel(od.xrt.hw_context(device, binary.get_uuid()), binary.get_kernels()[0].get_name())
    instructions = od.xrt.bo(device, len(transaction), od.xrt.bo.cacheable, 1)
    instructions.write(transaction)
    run = od.xrt.run(kernel)
    for index, value in enumerate((3, instructions, len(transaction))):
        run.set_arg(index, value)

    def buffer() -> Any:
        made = od.xrt.bo(device, 1 << 16, od.xrt.bo.host_only, 0)
        made.write(bytes(1 << 16))
        return made

    for index in range(3, 8):
        run.set_arg(index, buffer())
    done: list[bool] = []

    def work(number: int) -> None:
        for _ in range(40):
            if number == 0:
                run.start()
                done.append(run.state() is not None)
            else:
                run.set_arg(3 + number % 5, buffer())

    in_threads(4, work)
    assert len(done) == 40


# -- processes -------------------------------------------------------------------------------


BATCH = {False: 32, True: 1024}
"""So large that a host region gets threads of onnxruntime."""


def child_exit(body: Callable[[], bool]) -> int:
    """The exit status of a forked child that runs ``body`` and then ends as Python does."""
    code = os.fork()
    if code == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(120)
        try:
            good = body()
        except BaseException as error:  # noqa: BLE001 - told by the exit status
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            good = False
        os._exit(0 if good else 1)
    return os.waitstatus_to_exitcode(os.waitpid(code, 0)[1])


@pytest.mark.parametrize("host", [False, True], ids=["device", "host"])
def test_a_child_runs_what_its_parent_ran(host: bool) -> None:
    feed = data(96, BATCH[host])
    session = od.InferenceSession(model(96, host, BATCH[host]))
    expected = session.run(None, feed)[0]
    assert child_exit(lambda: np.array_equal(session.run(None, feed)[0], expected)) == 0
    assert np.array_equal(session.run(None, feed)[0], expected)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("host", [False, True], ids=["device", "host"])
def test_a_fork_during_runs_of_other_threads(host: bool) -> None:
    proto = model(96, host, "N")
    session = od.InferenceSession(proto)
    expected = session.run(None, data(96))[0]
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            session.run(None, data(96))
            od.compile(model(24, host))
            session.run(None, data(96, random.randrange(1, 100)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(6):
            time.sleep(0.05)
            assert child_exit(lambda: np.array_equal(session.run(None, data(96))[0], expected)) == 0
            assert child_exit(lambda: bool(od.compile(model(24)).transaction)) == 0
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_forks_while_other_threads_begin_runs() -> None:
    """A run that begins takes a lock with the interpreter's held; the handlers of a fork take both, too."""
    feed, session = data(24), od.InferenceSession(model(24))
    session.run(None, feed)
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            session.run(None, feed)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300 if NIGHTLY else 80):
            assert child_exit(lambda: True) == 0
    finally:
        over.set()
        for thread in threads:
            thread.join()


EXITS = """
import os, sys, numpy as np, onedispatch as od
session = od.InferenceSession(sys.argv[1])
feed = {"x": np.ones((int(sys.argv[2]), 96), np.float32)}
y = session.run(None, feed)[0]
if os.fork() == 0:
    assert np.array_equal(session.run(None, feed)[0], y)
    sys.exit(7)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.parametrize("host", [False, True], ids=["device", "host"])
def test_a_child_ends_as_python_does(host: bool, tmp_path: Path) -> None:
    onnx.save(model(96, host, BATCH[host]), tmp_path / "m.onnx")
    command = [sys.executable, "-c", EXITS, str(tmp_path / "m.onnx"), str(BATCH[host])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 7, done.stderr


def run_in_process(path: str) -> Array:
    session = od.InferenceSession(path)
    answer: Array = session.run(None, data(48))[0]
    return answer


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_of_processes(method: str, tmp_path: Path) -> None:
    onnx.save(model(48, host=True), tmp_path / "m.onnx")
    expected = run_in_process(str(tmp_path / "m.onnx"))
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        for answer in pool.map(run_in_process, [str(tmp_path / "m.onnx")] * 4):
            assert np.array_equal(answer, expected)
    with context.Pool(2) as workers:
        for answer in workers.map(run_in_process, [str(tmp_path / "m.onnx")] * 4):
            assert np.array_equal(answer, expected)


NO_THREADS = """
import resource, sys, threading, numpy as np
import onedispatch as od
session = od.InferenceSession(sys.argv[1], fallback="error")
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
import os
from tests.host_nodes import on_host
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    threading.Thread(target=print).start()
    sys.exit("threads can be started here")
except RuntimeError:
    pass
session.run(None, {"x": np.ones((32, 96), np.float32)})
print("ran")
"""


def test_a_run_goes_on_where_no_thread_can_be_started(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the limit is set for another user, which takes root")
    onnx.save(model(96), tmp_path / "m.onnx")
    command = [sys.executable, "-c", NO_THREADS, str(tmp_path / "m.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    if "can be started here" in done.stderr:
        pytest.skip("this system has no limit on threads")
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


FIRST_CALLS = """
import sys, threading, numpy as np, onnx
import onedispatch as od
session = od.InferenceSession(sys.argv[1], fallback="error", threads=1, record=False)
x = np.random.default_rng(1).standard_normal((1, 1, 576)).astype(np.float32)
answers = []
def work():
    answers.extend(session.run(None, {"x": x})[0] for _ in range(2))
for _ in range(3):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
assert all((one == answers[1]).all() for one in answers)
"""


def test_first_calls_of_threads_are_like_later_ones(tmp_path: Path) -> None:
    """Kernels' memory of a thread grows with its first calls; what is freed does not look like zeros."""
    text = "g (float[1, 1, 576] x) => (float[1, 258, 3] y) { y = Conv <strides = [128]> (x, w) }"
    proto: onnx.ModelProto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    weights = np.random.default_rng(0).standard_normal((258, 1, 256)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, tmp_path / "m.onnx")
    command = [sys.executable, "-c", FIRST_CALLS, str(tmp_path / "m.onnx")]
    env = {**os.environ, "MALLOC_PERTURB_": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, env=env)
    assert done.returncode == 0, done.stderr
