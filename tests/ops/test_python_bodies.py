# SPDX-License-Identifier: Apache-2.0
"""Kernels whose body is Python, on the simulated array: bits, cycles, threads, mistakes, the end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import numpy as np
import pytest

import onedispatch as od
from tests.plugins import node_model

Array = np.ndarray[Any, Any]
X = np.random.default_rng(3).standard_normal((24, 130)).astype(np.float32)


def brought(op: str, body: Any, **declared: Any) -> None:
    """Operator ``op`` is a kernel with that body, element-wise in the shape of x."""
    cls = type(op, (), {"body": lambda self, t: body(t), "infer": lambda self, n: {"z": n["x"].like()}})
    scalars = {"a": "f32"}
    made = od.kernel(f"test::{op.lower()}", inputs="x", outputs="z", scalars=scalars, **declared)(cls)
    od.maps(op, domain="test")(made)


def session(op: str, **options: Any) -> od.InferenceSession:
    model = node_model(op, X.shape, "test", a=1.5)
    return od.InferenceSession(model, fallback="error", **options)


pytestmark = pytest.mark.usefixtures("no_plugins")


def ran(one: od.InferenceSession) -> Array:
    (z,) = one.run(None, {"x": X})
    return np.asarray(z)


def test_bits_and_cycles_do_not_depend_on_threads_or_sessions() -> None:
    seen = set()

    def body(t: Any) -> None:
        seen.add(threading.get_ident())
        t.z[:] = t.a * t.x + t.x * t.x

    brought("Poly", body)
    wanted = np.float32(1.5) * X + X * X
    sessions = [session("Poly", threads=n) for n in (1, 2, 8)]
    cycles = set()
    for one in sessions:
        np.testing.assert_array_equal(ran(one), wanted)
        assert one.last_run is not None
        cycles.add(one.last_run.cycles)
    assert len(cycles) == 1
    found: list[Array] = []
    threads = [threading.Thread(target=lambda s=one: found.append(ran(s))) for one in sessions * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 6 and all(np.array_equal(z, wanted) for z in found)


def test_what_a_body_raises_ends_its_run_alone() -> None:
    def body(t: Any) -> None:
        if t.origin[0] >= 12:
            raise LookupError("no such entry")
        t.z[:] = t.x

    brought("Raises", body)
    brought("Sound", lambda t: t.z.__setitem__(slice(None), t.x))
    broken, sound = session("Raises"), session("Sound")
    for _ in range(2):
        with pytest.raises(
            od.KernelError, match=r"test::raises@1: it raised LookupError: no such entry; in members? \["
        ) as caught:
            ran(broken)
        assert isinstance(caught.value, od.SimulationError) and caught.value.tile.startswith("c")
        assert isinstance(caught.value.__cause__, LookupError)
        np.testing.assert_array_equal(ran(sound), X)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (lambda t: t.z.__setitem__(slice(None), np.ones((7, 3))), -19, "output z: .*broadcasts to"),
        (lambda t: t.z.__setitem__(slice(None), t.x * 1j), -12, "output z: .*complex"),
        (lambda t: t.y, -3, "a tile has no 'y'"),
        (lambda t: sys.exit(3), -3, "it raised SystemExit: 3"),
        (lambda t: t.x.__setitem__(slice(None), 0), -3, "read-only"),
    ],
)
def test_mistakes_have_their_status_and_members(body: Any, status: int, says: str) -> None:
    brought("Mistaken", body)
    with pytest.raises(od.KernelError, match=rf"test::mistaken@1: .*{says}.*in member") as caught:
        ran(session("Mistaken"))
    assert caught.value.status == status


def test_a_body_that_loops_is_ended() -> None:
    def body(t: Any) -> None:
        while True:
            try:
                time.sleep(0.001)
            except Exception:  # noqa: BLE001 - the clock's is none of these
                continue

    brought("Loops", body)
    started = time.monotonic()
    with pytest.raises(
        od.KernelError, match=r"test::loops@1: .*no end within 0\.2 seconds.*in member"
    ) as caught:
        ran(session("Loops", kernel_seconds=0.2))
    assert caught.value.status == -31 and time.monotonic() - started < 60


def test_a_body_that_calls_back_is_refused() -> None:
    held: list[od.InferenceSession] = []

    def body(t: Any) -> None:
        held[0].run(None, {"x": X})

    brought("Again", body)
    held.append(session("Again"))
    with pytest.raises(
        od.KernelError, match=r"it raised DeviceError: .*from inside a kernel's Python function"
    ):
        ran(held[0])


def test_a_cell_that_runs_once_more_replaces_the_body() -> None:
    brought("Cell", lambda t: t.z.__setitem__(slice(None), t.x + 1))
    one = session("Cell")
    np.testing.assert_array_equal(ran(one), X + 1)
    brought("Cell", lambda t: t.z.__setitem__(slice(None), t.x + 2))
    np.testing.assert_array_equal(ran(session("Cell")), X + 2)
    np.testing.assert_array_equal(ran(one), X + 2)  # of the next run on


HEAD = """
    import os, sys, threading, time
    import numpy as np
    sys.path.insert(0, {root!r})
    from tests.ops.test_python_bodies import X, brought, ran, session
"""


def child(script: str, expected: int = 0) -> str:
    """What a process of its own prints."""
    root = os.fspath(__import__("pathlib").Path(__file__).resolve().parents[2])
    text = textwrap.dedent(HEAD.format(root=root)) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == expected, done.stderr
    return done.stdout


def test_a_process_ends_while_a_body_runs_on_another_thread() -> None:
    out = child(
        """
        def body(t):
            time.sleep(0.05)
            t.z[:] = t.x
        brought("Slow", body)
        one = session("Slow", threads=8)
        threading.Thread(target=ran, args=(one,), daemon=True).start()
        time.sleep(0.3)
        print("ends")
        """
    )
    assert out == "ends\n"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_for_bodies_and_both_sides_go_on() -> None:
    out = child(
        """
        def body(t):
            time.sleep(0.002)
            t.z[:] = t.x
        brought("Forks", body)
        one, other = session("Forks", threads=8), session("Forks", threads=8)
        ran(one), ran(other)  # what is imported with the first run is there
        thread = threading.Thread(target=lambda: [ran(one) for _ in range(2)])
        thread.start()
        for _ in range(4):
            time.sleep(0.02)
            pid = os.fork()
            if pid == 0:
                os._exit(0 if np.array_equal(ran(other), X) else 1)
            assert os.waitpid(pid, 0)[1] == 0
        thread.join()
        print(np.array_equal(ran(other), X))
        """
    )
    assert out == "True\n"


def test_ctrl_c_ends_a_run_whose_bodies_loop() -> None:
    out = child(
        """
        import signal
        def body(t):
            while threading.current_thread() is not threading.main_thread():
                time.sleep(0.001)
            t.z[:] = t.x
        brought("Endless", body)
        one = session("Endless", threads=8)
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        try:
            while True:
                ran(one)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert out == "interrupted\n"
