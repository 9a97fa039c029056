# SPDX-License-Identifier: Apache-2.0
"""Bodies in Python that do not end are ended, on the thread that they run on; others are left alone."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress

import pytest

from onedispatch import KernelError
from onedispatch.operators.plugin import watchdog
from onedispatch.operators.plugin.watchdog import BodyInterrupt, watched


def loop() -> None:
    while True:
        pass


def catching() -> None:
    """Catches what every body may catch."""
    while True:
        try:
            loop()
        except Exception:  # noqa: BLE001 - that is what it is for
            continue


def stubborn() -> None:
    """Catches what should not be caught."""
    caught: list[int] = []
    while True:
        try:
            loop()
        except BaseException:  # noqa: BLE001 - that is what it is for
            if len(caught) > 2:
                return
            caught.append(1)


@pytest.mark.parametrize("body", [loop, catching])
def test_a_body_that_does_not_end(body: object) -> None:
    with pytest.raises(KernelError, match=r"no end within 0\.2 seconds") as caught:
        watched(body, 0.2)  # type: ignore[arg-type]
    assert type(caught.value).__name__ == "KernelTimeoutError"
    assert watched(lambda: 5, 0.2) == 5


def test_profilers_go_on_after_a_body_that_was_ended() -> None:
    with pytest.raises(KernelError):
        watched(loop, 0.1)
    seen: list[str] = []
    sys.setprofile(lambda frame, event, argument: seen.append(event))
    try:
        isolated()
    finally:
        sys.setprofile(None)
    assert "call" in seen


def isolated() -> int:
    """A function of Python: its first instruction looks whether something is to be raised."""
    return 5


def test_a_body_that_catches_everything_is_asked_again() -> None:
    watched(stubborn, 0.1)


def test_on_another_thread_while_others_go_on() -> None:
    caught: list[BaseException] = []

    def other() -> None:
        try:
            watched(loop, 0.2)
        except KernelError as error:
            caught.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    count = 0
    while thread.is_alive():
        count += watched(lambda: 1, 60.0)
    thread.join()
    assert len(caught) == 1 and count > 0


def test_ctrl_c_on_another_thread_than_the_main_one() -> None:
    came = [0]

    def body() -> None:
        came[0] = 1
        loop()

    with pytest.raises(BodyInterrupt):
        watched(body, 60.0, interrupts=lambda: came[0])


def test_the_end_of_a_body_wins_over_the_clock() -> None:
    """Whatever happens at the moment of its end, nothing is raised behind it."""
    for _ in range(20):
        with suppress(KernelError):
            watched(time.sleep, 0.06, 0.05)
        sum(range(1000))
    assert not watchdog._WATCH.running


def test_what_a_body_raises_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        watched(lambda: 1 / 0, 1.0)
