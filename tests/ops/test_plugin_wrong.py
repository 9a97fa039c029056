# SPDX-License-Identifier: Apache-2.0
"""Bodies in Python that do what they must not: an error with kernel, tile and members; others go on."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onedispatch as od
from tests.plugins import node_model

FILE = Path(__file__).parent / "kernels" / "mistaken.py"
X = np.random.default_rng(2).standard_normal((4, 9)).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def plugins() -> Iterator[None]:
    od.plugins.reset()
    od.plugins.load(str(FILE))
    yield
    od.plugins.reset()


def session_of(op_type: str, shape: tuple[int, ...] = X.shape, **options: Any) -> od.InferenceSession:
    model = node_model(op_type, shape, "wrong", name="custom")
    return od.InferenceSession(model, fallback="error", **options)


def blurred(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    padded = np.pad(x, ((0, 0), (1, 1)))
    return padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]


# Operator -> (class of the error, what is said beside kernel, tile and members).
WRONG = {
    "Raises": ("KernelRuntimeFailureError", r"it raised KeyError: 'table'"),
    "Shapes": ("KernelOutputSizeError", r"could not broadcast"),
    "Loops": ("KernelTimeoutError", r"no end within 0\.5 seconds"),
}


@pytest.mark.parametrize("op_type", WRONG)
def test_a_body_that_is_wrong_while_another_session_runs(op_type: str) -> None:
    name, said = WRONG[op_type]
    wrong, fine = session_of(op_type, kernel_seconds=0.5), session_of("Blur")
    over, done = threading.Event(), []

    def others() -> None:
        while not over.is_set():
            np.testing.assert_array_equal(fine.run(None, {"x": X})[0], blurred(X))
            done.append(1)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for _ in range(2):
            with pytest.raises(od.KernelError, match=said) as caught:
                wrong.run(None, {"x": X})
            error = caught.value
            assert type(error).__name__ == name and isinstance(error, od.SimulationError)
            assert re.fullmatch(r"c\d+ r\d+", error.tile) and f"wrong::{op_type.lower()}@1" in str(error)
            assert re.search(r"in members? \[\d+, \d+\]", str(error)), error
            assert str(error).count("given") == str(error).count("accepted") == 1, error
    finally:
        over.set()
        thread.join()
    assert len(done) > 0
    np.testing.assert_array_equal(fine.run(None, {"x": X})[0], blurred(X))


@pytest.mark.daily(2)
@pytest.mark.parametrize("threads", [1, None])
def test_ctrl_c_ends_a_body_wherever_it_runs(threads: int | None) -> None:
    session = session_of("Loops", kernel_seconds=60.0, threads=threads)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        session.run(None, {"x": X})
    timer.join()
    fine = session_of("Blur")
    np.testing.assert_array_equal(fine.run(None, {"x": X})[0], blurred(X))


def test_ctrl_c_that_the_process_ignores_ends_nothing() -> None:
    session = session_of("Loops", kernel_seconds=1.0)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(od.KernelTimeoutError):  # and not the interrupt
            timer.start()
            session.run(None, {"x": X})
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="kernels have no threads of their own")
def test_ctrl_c_ends_a_body_on_a_thread_of_the_simulator() -> None:
    session = session_of("LoopsElsewhere", (64, 512), kernel_seconds=60.0)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        while True:  # until a call of it is taken by such a thread
            session.run(None, {"x": np.zeros((64, 512), np.float32)})
    timer.join()


def test_seconds_are_checked() -> None:
    for wrong in (0, -1, "long", True):
        with pytest.raises(od.InputError, match="kernel_seconds"):
            session_of("Blur", kernel_seconds=wrong)
