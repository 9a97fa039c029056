# SPDX-License-Identifier: Apache-2.0
"""Work in a child of this process, which may crash, hang or leave: what it found until then is kept.

The child is forked, so that it has the kernels of notebooks and scripts too. It tells what it finds as lines
of JSON through a pipe; what it prints is kept for its last words.
"""

from __future__ import annotations

import faulthandler
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

_BEAT = 0.25  # seconds between two signs of life
_LAST_WORDS = 600  # characters


class Teller:
    """The child's end of the pipe."""

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe, self._beaten = pipe, 0.0
        self._kinds: set[str] = set()  # of what was found of the kernel that is checked
        self._kernel = ""

    def _tell(self, line: dict[str, Any]) -> None:
        self._pipe.write(json.dumps(line) + "\n")
        self._pipe.flush()

    def beat(self) -> None:
        """A sign of life."""
        now = time.monotonic()
        if now - self._beaten > _BEAT:
            self._beaten = now
            self._tell({})

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Work without a sign of life, which the limit of the whole check alone ends."""
        self._tell({"quiet": True})
        yield
        self._tell({"quiet": False})

    def case(self, kernel: str, case: str) -> None:
        """What is checked from here on."""
        if kernel != self._kernel:
            self._kernel, self._kinds = kernel, set()
        self._tell({"kernel": kernel, "case": case})

    def told(self, kind: str) -> bool:
        """Whether a finding of a kind was told of the kernel that is checked."""
        return kind in self._kinds

    def found(self, kernel: str, finding: Finding) -> None:
        self._kinds.add(finding.kind)
        self._tell({"kernel": kernel, "found": {k: v for k, v in finding.as_dict().items() if k != "level"}})

    def refused(self, kernel: str, case: str, why: str) -> None:
        """A made case that the kernel does not take."""
        self._tell({"kernel": kernel, "refused": case, "why": why})

    def end(self) -> None:
        """All work is done: a child that leaves before that was made to."""
        self._tell({"end": True})

    def failed(self, error: OneDispatchError) -> None:
        """Nothing could be checked."""
        self._tell(
            {"failed": [error.where, error.given, error.accepted, error.remedy], "type": type(error).__name__}
        )


@dataclass
class Checked:
    """What was found of one kernel. Of findings that are alike the first stay; ``more`` counts others."""

    cases: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # case -> why
    findings: list[Finding] = field(default_factory=list)
    more: int = 0

    def add(self, finding: Finding) -> None:
        alike = [one for one in self.findings if (one.kind, one.operand) == (finding.kind, finding.operand)]
        if len(alike) < KEPT:
            self.findings.append(finding)
        else:
            self.more += 1


@dataclass
class Told:
    """All that a child told. ``failed``: why nothing could be checked, as the four parts of an error."""

    kernels: dict[str, Checked] = field(default_factory=dict)
    failed: tuple[str, str, str, str] | None = None
    last: tuple[str, str] = ("", "")  # kernel and case that were under way
    died: bool = False  # the child did, at these
    ended: bool = False  # it came to the end of its work
    late: bool = False  # the limit of the whole check ended it
    quiet: bool = False  # it said that it will be silent

    @property
    def findings(self) -> list[Finding]:
        return [one for checked in self.kernels.values() for one in checked.findings]

    def take(self, line: dict[str, Any]) -> None:
        self.ended = self.ended or "end" in line
        self.quiet = line.get("quiet", self.quiet)
        if "failed" in line:
            self.failed = tuple(line["failed"])
        if "kernel" not in line:
            return
        checked = self.kernels.setdefault(line["kernel"], Checked())
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
class Clock:
    """What all of a check may take, however many children it takes."""

    seconds: float = CHECK_SECONDS
    start: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        return self.start + self.seconds - time.monotonic()

    @property
    def text(self) -> str:
        return (
            f"was ended: the check has a limit of {self.seconds:g} seconds in all (check_seconds, --seconds)"
        )


def told_by_child(
    work: Callable[[Teller], None], silence: float, told: Told | None = None, *, clock: Clock | None = None
) -> Told:
    """What ``work`` tells, run in a child that is ended after ``silence`` seconds without a sign of life, and
    when ``clock`` has run out.

    A child that crashes, leaves or is ended is a finding of the case that it was at. ``told``: what is known
    before, which grows.
    """
    told, clock = told or Told(), clock or Clock()
    told.ended = told.quiet = False
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as said:
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
            _live(work, writing, said)
        os.close(writing)
        try:
            ended = _listen(reading, told, silence, clock)
        finally:
            os.close(reading)
            _end(child)
        status = _STATUS.pop(child)
        how = clock.text if told.late else _how(ended, status, silence)
        if not how and not told.ended:
            how = "ended with exit code 0, before its work did"
        told.died = bool(how)
        if how:
            kernel, case = told.last
            text = f"the process that ran it {how}{_words(said)}"
            kind = "crash" if ended else "timeout"
            told.kernels.setdefault(kernel or "the file", Checked()).add(Finding(kind, text, case))
        return told


def _live(work: Callable[[Teller], None], writing: int, said: IO[bytes]) -> None:
    """The child's life; nothing that its parent registered for its end runs."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
        faulthandler.enable(said)  # of a crash the last words are where it was
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        sys.stdout, sys.stderr = (open(fd, "w", buffering=1, closefd=False) for fd in (1, 2))  # noqa: SIM115 - for life
        with os.fdopen(writing, "w") as pipe:
            teller = Teller(pipe)
            work(teller)
            teller.end()
        code = 0
    except SystemExit as error:
        print(f"SystemExit({error.code!r})", file=sys.stderr)
    except BaseException:  # noqa: BLE001 - its last words
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _listen(reading: int, told: Told, silence: float, clock: Clock) -> bool:
    """Whether the pipe came to its end."""
    rest = b""
    while True:
        left = clock.left()
        patience = left if told.quiet else min(silence, left)
        if left <= 0 or not select.select([reading], [], [], patience)[0]:
            told.late = clock.left() <= 0
            return False
        data = os.read(reading, 65536)
        if not data:
            return True
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            told.take(json.loads(line))


_STATUS: dict[int, int] = {}


def _end(child: int) -> None:
    """Reaps the child, which is ended where it lives."""
    for _ in range(50):  # one that closed its pipe is about to end
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            _STATUS[child] = status
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    _STATUS[child] = os.waitpid(child, 0)[1]


def _how(ended: bool, status: int, silence: float) -> str:
    if not ended:
        return f"gave no sign of life for {silence:g} seconds"
    if os.WIFSIGNALED(status):
        return f"ended with {signal.Signals(os.WTERMSIG(status)).name}"
    code = os.waitstatus_to_exitcode(status)
    return f"ended with exit code {code}" if code else ""


# What faulthandler says of the thread that crashed: its innermost frames first.
_CRASH = re.compile(r"^Fatal Python error: |^onedispatch: the Python body of ", re.M)
_STACK = re.compile(r"^Current thread .*:\n(?P<frames>(?:  File .*\n)+)", re.M)
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)\n')
_FRAMES = 3


def _words(said: IO[bytes]) -> str:
    """How the child ended, as the end of a sentence: where it crashed, and what it printed last."""
    said.seek(0)
    text = said.read().decode(errors="replace")
    stack, crash = _STACK.search(text), _CRASH.search(text)
    where = ""
    if stack is not None:
        frames = [frame.groupdict() for frame in _FRAME.finditer(stack["frames"])][:_FRAMES]
        named = [f"{one['name']} ({Path(one['file']).name}:{one['line']})" for one in frames]
        where = f" in {', called by '.join(named)}"
    if crash is not None:
        text = text[: crash.start()]
    words = text.strip()[-_LAST_WORDS:]
    return f"{where}; its last words: {words}" if words else where or ", without a word"
