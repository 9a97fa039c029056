# SPDX-License-Identifier: Apache-2.0
"""Runs work in a forked child, which may crash, hang or exit; the parent keeps what it reported before.

Forking gives the child the kernels of notebooks and scripts. The child sends its findings through a pipe,
one JSON object a line; its output goes to a temporary file, whose end the parent quotes after a crash.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import re
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from onedispatch.operators.plugin.findings import KEPT, Finding
from onedispatch.transactions.base.errors import OneDispatchError, ResourceError
from onedispatch.transactions.base.host import CHECK_SECONDS

_HEARTBEAT = 0.25  # seconds between two heartbeats
_QUOTED = 600  # characters of the child's output
# Seconds that a child has to exit: taking down gigabytes on a busy machine may take one. The first, where the
# limit of the check is near.
_LEAST_EXIT, _EXIT = 0.5, 10.0


class Reporter:
    """The child's end of the pipe."""

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe, self._last_beat = pipe, 0.0
        self._kinds: set[str] = set()  # of the findings about the current kernel
        self._kernel = ""

    def _send(self, line: dict[str, Any]) -> None:
        self._pipe.write(json.dumps(line) + "\n")
        self._pipe.flush()

    def beat(self) -> None:
        """Sends a heartbeat, unless the last one is recent."""
        now = time.monotonic()
        if now - self._last_beat > _HEARTBEAT:
            self._last_beat = now
            self._send({})

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Suspends heartbeats: only the time limit of the whole check ends the work inside."""
        self._send({"quiet": True})
        yield
        self._send({"quiet": False})

    def case(self, kernel: str, case: str) -> None:
        """Names the kernel and the case that are checked from here on."""
        if kernel != self._kernel:
            self._kernel, self._kinds = kernel, set()
        self._send({"kernel": kernel, "case": case})

    def reported(self, kind: str) -> bool:
        """True if a finding of this kind was reported for the current kernel."""
        return kind in self._kinds

    def found(self, kernel: str, finding: Finding) -> None:
        """Sends a finding about ``kernel``."""
        self._kinds.add(finding.kind)
        self._send({"kernel": kernel, "found": {k: v for k, v in finding.as_dict().items() if k != "level"}})

    def refused(self, kernel: str, case: str, why: str) -> None:
        """Sends that the kernel refuses a generated case."""
        self._send({"kernel": kernel, "refused": case, "why": why})

    def end(self) -> None:
        """Sends that all work is done; a child that exits without this ended early."""
        self._send({"end": True})

    def failed(self, error: OneDispatchError) -> None:
        """Sends the error that kept the child from checking anything."""
        self._send(
            {"failed": [error.where, error.given, error.accepted, error.remedy], "type": type(error).__name__}
        )


@dataclass
class KernelResult:
    """Findings about one kernel: the first ``KEPT`` of each kind and operand; ``more`` counts the rest."""

    cases: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # case -> reason
    findings: list[Finding] = field(default_factory=list)
    more: int = 0

    def add(self, finding: Finding) -> None:
        alike = [one for one in self.findings if (one.kind, one.operand) == (finding.kind, finding.operand)]
        if len(alike) < KEPT:
            self.findings.append(finding)
        else:
            self.more += 1


@dataclass
class CheckReport:
    """What children reported; ``failed``: the four parts of the error that kept a child from checking."""

    kernels: dict[str, KernelResult] = field(default_factory=dict)
    failed: tuple[str, str, str, str] | None = None
    last: tuple[str, str] = ("", "")  # the kernel and the case that were checked last
    died: bool = False  # the child ended before its work, at ``last``
    ended: bool = False  # the child finished its work
    late: bool = False  # the time limit of the whole check ended the child
    quiet: bool = False  # the child suspended its heartbeats

    @property
    def findings(self) -> list[Finding]:
        """The findings about all kernels."""
        return [one for checked in self.kernels.values() for one in checked.findings]

    def take(self, line: dict[str, Any]) -> None:
        """Adds one line that a child sent."""
        self.ended = self.ended or "end" in line
        self.quiet = line.get("quiet", self.quiet)
        if "failed" in line:
            self.failed = tuple(line["failed"])
        if "kernel" not in line:
            return
        checked = self.kernels.setdefault(line["kernel"], KernelResult())
        if "case" in line:
            checked.cases.append(line["case"])
            self.last = line["kernel"], line["case"]
        elif "refused" in line:
            checked.refused[line["refused"]] = line["why"]
        elif "found" in line:
            given: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in line["found"].items()
            }
            checked.add(Finding(**given))


@dataclass(frozen=True)
class TimeLimit:
    """The seconds that a whole check may take, over all of its children."""

    seconds: float = CHECK_SECONDS
    start: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Returns the seconds that are left."""
        return self.start + self.seconds - time.monotonic()

    @property
    def text(self) -> str:
        """How a finding words that the limit ended the child."""
        return (
            f"was ended: the check has a limit of {self.seconds:g} seconds in all (check_seconds, --seconds)"
        )


def run_in_child(
    work: Callable[[Reporter], None],
    silence: float,
    report: CheckReport | None = None,
    *,
    limit: TimeLimit | None = None,
) -> CheckReport:
    """Runs ``work`` in a forked child and returns its report.

    The parent kills the child after ``silence`` seconds without a heartbeat, and when ``limit`` has run out.
    A child that crashes, exits early or is killed becomes a finding about the case that it was checking.
    New findings are added to ``report``.
    """
    report, limit = report or CheckReport(), limit or TimeLimit()
    report.ended = report.quiet = False
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as output:
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            child = os.fork()
        except OSError as error:
            os.close(reading)
            os.close(writing)
            raise ResourceError(
                "check mode", f"no child process ({error})", "", "end other programs"
            ) from error
        if child == 0:
            os.close(reading)
            _run_child(work, writing, output)
        os.close(writing)
        ended = False
        try:
            ended = _listen(reading, report, silence, limit)
        finally:
            os.close(reading)
            status = _reap(child, min(_EXIT, max(limit.left(), _LEAST_EXIT)) if ended else 0.0)
        how = limit.text if report.late else _how_it_ended(ended, status, silence)
        if report.ended and (not ended or status == signal.SIGKILL):
            how = ""  # all work was done, and exiting is no part of it
        elif not how and not report.ended:
            how = "ended with exit code 0, before its work did"
        report.died = bool(how)
        if how:
            kernel, case = report.last
            text = f"the process that ran it {how}{_last_output(output)}"
            kind = "crash" if ended else "timeout"
            report.kernels.setdefault(kernel or "the file", KernelResult()).add(Finding(kind, text, case))
        return report


def _run_child(work: Callable[[Reporter], None], writing: int, output: IO[bytes]) -> None:
    """Runs ``work`` in the child and exits; the parent's exit handlers do not run."""
    code = 1
    gc.freeze()  # the parent's garbage: a session of onnxruntime would wait for threads that are not here
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent kills the child
        faulthandler.enable(output)  # writes where the child crashed
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        sys.stdout, sys.stderr = (open(fd, "w", buffering=1, closefd=False) for fd in (1, 2))  # noqa: SIM115 - until the child exits
        with os.fdopen(writing, "w") as pipe:
            reporter = Reporter(pipe)
            work(reporter)
            reporter.end()
        code = 0
    except SystemExit as error:
        print(f"SystemExit({error.code!r})", file=sys.stderr)
    except BaseException:  # noqa: BLE001 - the parent quotes the traceback
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _listen(reading: int, report: CheckReport, silence: float, limit: TimeLimit) -> bool:
    """Adds what the child sends to ``report``; returns True if the child closed its pipe in time."""
    rest = b""
    while True:
        left = limit.left()
        patience = left if report.quiet else min(silence, left)
        if left <= 0 or not select.select([reading], [], [], patience)[0]:
            report.late = limit.left() <= 0
            return False
        data = os.read(reading, 65536)
        if not data:
            return True
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            report.take(json.loads(line))


def _reap(child: int, patience: float) -> int:
    """Waits for the child, kills it after ``patience`` seconds, and returns its status."""
    end = time.monotonic() + patience
    try:
        while time.monotonic() < end:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return status
            time.sleep(0.01)
    except BaseException:  # Ctrl-C, which the child ignores
        _kill(child)
        raise
    return _kill(child)


def _kill(child: int) -> int:
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _how_it_ended(ended: bool, status: int, silence: float) -> str:
    """Returns how the child ended, in words; "" if it exited with code 0."""
    if not ended:
        return f"gave no sign of life for {silence:g} seconds"
    if os.WIFSIGNALED(status):
        return f"ended with {signal.Signals(os.WTERMSIG(status)).name}"
    code = os.waitstatus_to_exitcode(status)
    return f"ended with exit code {code}" if code else ""


# What faulthandler prints of the thread that crashed: its innermost frames first.
_CRASH = re.compile(r"^Fatal Python error: |^onedispatch: the Python body of ", re.M)
_STACK = re.compile(r"^Current thread .*:\n(?P<frames>(?:  File .*\n)+)", re.M)
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)\n')
_FRAMES = 3


def _last_output(output: IO[bytes]) -> str:
    """Returns where the child crashed and what it printed last, as the end of a sentence."""
    output.seek(0)
    text = output.read().decode(errors="replace")
    stack, crash = _STACK.search(text), _CRASH.search(text)
    where = ""
    if stack is not None:
        frames = [frame.groupdict() for frame in _FRAME.finditer(stack["frames"])][:_FRAMES]
        named = [f"{one['name']} ({Path(one['file']).name}:{one['line']})" for one in frames]
        where = f" in {', called by '.join(named)}"
    if crash is not None:
        text = text[: crash.start()]
    words = text.strip()[-_QUOTED:]
    return f"{where}; its last words: {words}" if words else where or ", without a word"
