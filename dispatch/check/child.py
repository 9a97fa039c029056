# SPDX-License-Identifier: Apache-2.0
"""Work in a child of this process, which may crash, hang or leave: what it found until then is kept.

The child is forked, so that it has the kernels of notebooks and scripts too. It tells what it finds as lines
of JSON through a pipe; what it prints is kept for its last words.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any

from onedispatch.operators.plugin.findings import KEPT, Finding
from onedispatch.transactions.base.errors import OneDispatchError, ResourceError

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

    @property
    def findings(self) -> list[Finding]:
        return [one for checked in self.kernels.values() for one in checked.findings]

    def take(self, line: dict[str, Any]) -> None:
        self.ended = self.ended or "end" in line
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


def told_by_child(work: Callable[[Teller], None], silence: float, told: Told | None = None) -> Told:
    """What ``work`` tells, run in a child that is ended after ``silence`` seconds without a sign of life.

    A child that crashes, leaves or is ended is a finding of the case that it was at. ``told``: what is known
    before, which grows.
    """
    told = told or Told()
    told.ended = False
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
            ended = _listen(reading, told, silence)
        finally:
            os.close(reading)
            _end(child)
        status = _STATUS.pop(child)
        how = _how(ended, status, silence) or (
            "" if told.ended else "ended with exit code 0, before its work did"
        )
        told.died = bool(how)
        if how:
            kernel, case = told.last
            words = _words(said)
            last = f"; its last words: {words}" if words else ", without a word"
            text = f"the process that ran it {how}{last}"
            kind = "crash" if ended else "timeout"
            told.kernels.setdefault(kernel or "the file", Checked()).add(Finding(kind, text, case))
        return told


def _live(work: Callable[[Teller], None], writing: int, said: IO[bytes]) -> None:
    """The child's life; nothing that its parent registered for its end runs."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
        faulthandler.disable()
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


def _listen(reading: int, told: Told, silence: float) -> bool:
    """Whether the pipe came to its end."""
    rest = b""
    while select.select([reading], [], [], silence)[0]:
        data = os.read(reading, 65536)
        if not data:
            return True
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            told.take(json.loads(line))
    return False


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


def _words(said: IO[bytes]) -> str:
    said.seek(0)
    text = said.read().decode(errors="replace").strip()
    return text[-_LAST_WORDS:]
