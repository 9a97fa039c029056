# SPDX-License-Identifier: Apache-2.0
"""What a signal handler of the caller raises reaches the caller as it is, whatever it interrupts."""

from __future__ import annotations

import _thread
import functools
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onedispatch as od
from onedispatch.dispatch.base import forks
from onedispatch.transactions.base.boundary import public
from tests.host_nodes import on_host

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

pytestmark = pytest.mark.usefixtures("no_plugins")

DIGITS = str(Path(__file__).parents[2] / "models" / "digits.onnx")
PACKAGE = str(Path(od.__file__).parent)
POINTS = 60  # of each phase


class Late(TimeoutError):
    """Most code that catches errors of files catches it."""


class Odd(ValueError):
    """Most code that tries what foreign code makes of a value catches it."""


def _raised(cls: type[BaseException], number: int, frame: object) -> None:
    raise cls


def _unnamed(cls: type[BaseException], *given: Any) -> None:
    raise cls


@contextmanager
def handling(handler: Callable[..., None], number: int = signal.SIGUSR1) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, before)


class Trip:
    """``-trip`` notes a signal, as C's own handler does: Python's runs where the interpreter next looks.

    A call of ``signal.raise_signal`` would run it at once, in the profiler: what a profiler raises ends
    functions where no signal does, and CPython 3.11 may crash later on.
    """

    __neg__ = staticmethod(functools.partial(_thread.interrupt_main, signal.SIGUSR1))


def events(work: Callable[[], object], at: int | None = None) -> int:
    """How often functions are called and left during ``work``; a signal comes at event ``at``."""
    seen = 0
    trip = Trip()

    def count(frame: FrameType, event: str, called: object) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            sys.setprofile(None)  # a later call of this function would be the one that is interrupted
            _ = -trip  # the last operation: behind a call the interpreter would look here

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


def raising(kind: type[BaseException], foreign: list[bool]) -> Callable[[int, FrameType], None]:
    """A handler that raises; ``foreign`` gets whether what it interrupts, or called that, is not the
    package's.
    """

    def handler(number: int, frame: FrameType) -> None:
        near = [one for one in (frame, frame.f_back) if one is not None]
        foreign.append(any(not one.f_code.co_filename.startswith(PACKAGE) for one in near))
        raise kind

    return handler


def alarm(after: float) -> None:
    """An alarm after so many seconds, and every two more: Python drops what a handler raises while it takes
    an object down, and its standard library what is an ``OSError`` while it looks at a path.
    """
    signal.setitimer(signal.ITIMER_REAL, after, 2)


def held(lock: Any) -> bool:
    """Whether this thread holds a re-entrant lock."""
    return bool(lock._is_owned())


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[], object]]:
    """Each phase of a model's life; nothing is remembered from one call to the next."""
    saved = tmp_path_factory.mktemp("saved") / "digits.od"
    model = od.compile(DIGITS)
    model.save(saved)
    feed = {"image": np.ones((1, 1, 8, 8), np.float32)}
    run = od.InferenceSession(model)
    mixed = on_host_model()
    session = od.InferenceSession(mixed)
    return {
        "compile": lambda: od.compile(DIGITS),
        "load": lambda: od.load(saved),
        "save": lambda: model.save(saved),
        "run": lambda: run.run(None, feed),
        "host": lambda: session.run(None, {"x": np.ones((2, 4), np.float32)}),
        "open": lambda: od.InferenceSession(mixed).run(None, {"x": np.ones((2, 4), np.float32)}),
    }


def on_host_model() -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in ("x", "y")]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        *on_host("a", "b", "host"),
        helper.make_node("Abs", ["b"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.daily(3)
@pytest.mark.parametrize("kind", [Late, Odd, KeyboardInterrupt])
@pytest.mark.parametrize("phase", ["compile", "load", "save", "run", "host", "open"])
def test_what_a_handler_raises_reaches_the_caller(
    monkeypatch: pytest.MonkeyPatch,
    phases: dict[str, Callable[[], object]],
    phase: str,
    kind: type[BaseException],
) -> None:
    work = phases[phase]
    work()
    total, reached = events(work), 0
    for at in range(1, total, max(1, total // POINTS)):
        lost: list[Any] = []
        foreign: list[bool] = []
        # The object that is taken down is not kept: it may be half gone.
        monkeypatch.setattr(sys, "unraisablehook", lambda given, lost=lost: lost.append(given.exc_type))
        with handling(raising(kind, foreign)):
            try:
                events(work, at)
            except BaseException as error:  # noqa: BLE001 - of any class: it is looked at
                assert type(error) is kind or any(foreign), at
            else:  # Python itself drops what is raised while it takes an object down; so may its libraries
                # Counts vary a little from call to call: the last events may not come.
                assert lost or any(foreign) or not foreign, at
        assert not any(held(lock.guard) for lock in list(forks._LOCKS)), at
        reached += bool(foreign)
    assert reached >= POINTS - 5
    work()


@pytest.mark.parametrize("phase", ["compile", "load", "run"])
def test_an_alarm(phases: dict[str, Callable[[], object]], phase: str) -> None:
    def repeated() -> None:
        while True:
            phases[phase]()

    with handling(functools.partial(_unnamed, Late), signal.SIGALRM):
        alarm(0.2)
        with pytest.raises(Late) as caught:
            repeated()
        assert caught.type is Late


@pytest.mark.parametrize("slow", ["body", "infer", "mapping"])
def test_code_of_the_user_is_interrupted_too(slow: str) -> None:
    begun = []

    def pause(where: str) -> None:
        while where == slow:
            begun.append(time.monotonic())

    @od.kernel("alarm::slow", inputs="x", outputs="z")
    class Slow:
        def infer(self, n: Any) -> Any:
            pause("infer")
            return {"z": n["x"].like()}

        def work(self, n: Any) -> Any:
            n.work(op=1)

        def body(self, t: Any) -> None:
            pause("body")
            t.z[:] = t.x

    @od.maps("AlarmSlow", domain="alarm")
    def mapping(node: Any, lowering: Any) -> None:
        pause("mapping")

    od.maps("AlarmKernel", domain="alarm")(Slow)
    op = "AlarmSlow" if slow == "mapping" else "AlarmKernel"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in "xz"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["z"], domain="alarm")], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("alarm", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with handling(functools.partial(_raised, Late), signal.SIGALRM):
        alarm(0.5)
        with pytest.raises(Late) as caught:
            od.InferenceSession(proto).run(None, {"x": np.ones((2, 4), np.float32)})
    assert caught.type is Late and begun


def test_an_error_of_the_package_while_a_handlers_is_handled() -> None:
    """What the caller is handling already is not raised again."""
    with handling(functools.partial(_raised, Late)):
        try:
            signal.raise_signal(signal.SIGUSR1)
        except Late:
            with pytest.raises(od.ModelError):
                od.compile(b"no model")


def test_a_timeout_that_no_handler_raised_is_no_callers() -> None:
    @public
    def broken() -> None:
        raise TimeoutError("of a file system")

    with pytest.raises(od.InternalError, match="TimeoutError: of a file system"):
        broken()


@pytest.mark.parametrize("restored", [False, True])
def test_handlers_of_all_forms(restored: bool) -> None:
    class Handler:
        def __call__(self, number: int, frame: object) -> None:
            if restored:
                signal.signal(number, signal.SIG_DFL)
            raise Late

        def method(self, number: int, frame: object) -> None:
            self(number, frame)

    @public
    def interrupted() -> None:
        signal.raise_signal(signal.SIGUSR1)

    for handler in (
        Handler(),
        Handler().method,
        functools.partial(_raised, Late),
        functools.partial(_unnamed, Late),
    ):
        with handling(handler), pytest.raises(Late):
            interrupted()
