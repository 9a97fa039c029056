# SPDX-License-Identifier: Apache-2.0
"""Runs fuzz targets for a while each, and says what came of it; see README.md.

    python -m tests.fuzz.campaign --seconds 600 [--target decode]
    python -m tests.fuzz.campaign --runs 2000
    python -m tests.fuzz.campaign --target decode --input FILE

Everything lies in build/fuzz: seeds, the corpus of each target (kept from run to run), logs, and
``findings``. With ``--runs`` a campaign starts from the seeds alone and does the same
every time. Exit code 1 when a target crashed, hung, took too much memory or did not run.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from tests.fuzz import seeds
from tests.fuzz.targets import TARGETS
from tests.served import forks

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "fuzz"
# The build of the sanitized tests: kernels are compiled once for both.
BUILD = ROOT / "build" / "sanitize"
CPP = {
    "cpp-txn": "transactions",
    "cpp-decode": "transactions",
    "cpp-run": "runs",
    "cpp-replay": "transactions",
    "cpp-packets": "packets",
    "cpp-xclbin": "containers",
}
"""C++ target -> folder of seeds; the program is ``fuzz_NAME``."""
# An input has 16 KB at most. One allocation of 64 MB, or an input of ten seconds, is a finding; half a minute
# where an input is compiled and run, since other work may have the machine.
SECONDS, SLOW_SECONDS = 10, 30
LIMITS = ["-rss_limit_mb=1024", "-malloc_limit_mb=64", "-print_final_stats=1"]
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:quarantine_size_mb=32",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}
ADDR_NO_RANDOMIZE = 0x0040000
"""personality(2): libFuzzer learns from what the code compares, pointers too."""
PR_SET_PDEATHSIG = 1
"""prctl(2): a target ends with the campaign, however that one ends."""
INTERRUPTED = 130
_STAT = re.compile(r"stat::(\w+):\s+(\d+)")
_COVERAGE = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")


@dataclass(frozen=True)
class Outcome:
    name: str
    runs: int
    per_second: int
    covered: str
    problem: str

    def __str__(self) -> str:
        line = f"{self.name:<12} {self.runs:>10,} runs {self.per_second:>8,}/s   {self.covered}"
        return f"{line}   {self.problem}" if self.problem else line


PYTHON = (sys.executable, "-m", "tests.fuzz.python_target")


def command(name: str, python: Sequence[str] = PYTHON) -> list[str]:
    """What runs a target; ``python``: what runs those of Python."""
    if name in CPP:
        return [str(BUILD / f"fuzz_{name.removeprefix('cpp-')}")]
    return [*python, name]


def build(jobs: int) -> None:
    """The C++ targets."""
    found = subprocess.run(
        [ROOT / ".ci" / "bootstrap", "libfuzzer"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    configure = ["cmake", "-S", "cpp_ext", "-B", str(BUILD), "-G", "Ninja", "-DONEDISPATCH_PYTHON=OFF"]
    configure += ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DONEDISPATCH_SANITIZE=ON", "-DONEDISPATCH_FUZZ=ON"]
    configure.append(f"-DONEDISPATCH_FUZZ_RUNTIME={found.stdout.strip()}")
    make = ["cmake", "--build", str(BUILD), "-j", str(jobs), "--target", "onedispatch_fuzz"]
    for step in (configure, make):
        done = subprocess.run(step, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(step)}\n{done.stdout[-4000:]}")


def environment() -> dict[str, str]:
    return {**os.environ, **SANITIZERS, "PYTHONHASHSEED": "0"}


def begin(same_addresses: bool) -> None:
    """For a process before it becomes a target, or what targets are forked from."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if same_addresses:  # memory at the same places in every run, where the system lets us
        libc.personality(ADDR_NO_RANDOMIZE)


class Targets:
    """The targets that run, so that an interrupt can end them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._over = False

    def run(self, arguments: list[str], out: TextIO, same_addresses: bool, timeout: int) -> int:
        """The exit code; -1 where the target did not come to its end."""

        with self._lock:
            if self._over:
                return -1
            child = subprocess.Popen(
                arguments, cwd=ROOT, env=environment(), stdout=out, stderr=subprocess.STDOUT, text=True,
                preexec_fn=partial(begin, same_addresses),
            )  # fmt: skip
            self._running.add(child)
        try:
            return child.wait(timeout)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            child.kill()
            child.wait()
            with self._lock:
                self._running.discard(child)

    def end(self) -> None:
        with self._lock:
            self._over = True
            for child in self._running:
                child.kill()


RUNNING = Targets()


def fuzz(name: str, seconds: int, runs: int, python: Sequence[str] = PYTHON) -> Outcome:
    """One target, for ``runs`` or, where these are 0, ``seconds``; it prints into build/fuzz/logs."""
    corpus, findings = WORK / ("again" if runs else "corpus") / name, WORK / "findings"
    log = WORK / "logs" / f"{name}.txt"
    if runs:
        shutil.rmtree(corpus, ignore_errors=True)
    for folder in (corpus, findings, log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    slow = TARGETS[name].slow if name in TARGETS else 1
    runs = -(-runs // slow)
    given = WORK / "seeds" / (CPP.get(name) or TARGETS[name].seeds)
    bound = [f"-runs={runs}", "-seed=1"] if runs else [f"-max_total_time={seconds}"]
    limit = f"-timeout={SECONDS if slow == 1 else SLOW_SECONDS}"
    options = [*bound, limit, *LIMITS, f"-artifact_prefix={findings}/{name}-"]
    if name in CPP:
        options.append("-max_len=16384")
    mine = f"{name}-*"  # targets run side by side
    before = set(findings.glob(mine))
    with log.open("w") as out:
        arguments = [*command(name, python), *options, str(corpus), str(given)]
        code = RUNNING.run(arguments, out, bool(runs), 2 * (runs or seconds) + 120)
    return outcome(name, log, code, sorted(set(findings.glob(mine)) - before))


def outcome(name: str, log: Path, code: int, found: Sequence[Path]) -> Outcome:
    text = log.read_text(errors="replace")
    stats = {key: int(value) for key, value in _STAT.findall(text)}
    coverage = _COVERAGE.findall(text)
    covered = "cov {}, features {}, corpus {}".format(*coverage[-1]) if coverage else "not guided"
    problem = ""
    if code or found:
        inputs = "".join(f"\n  make fuzz-one TARGET={name} INPUT={path}" for path in found)
        last = "\n".join(f"  | {line}" for line in _told(text))
        problem = f"FINDING, exit code {code}, log {log}{inputs}\n{last}"
    elif not stats.get("number_of_executed_units"):
        problem = f"DID NOT RUN, log {log}"
    runs, speed = stats.get("number_of_executed_units", 0), stats.get("average_exec_per_sec", 0)
    return Outcome(name, runs, speed, covered, problem)


def _told(text: str) -> list[str]:
    """The lines of a log that say what happened."""
    lines = text.splitlines()
    signs = ("ERROR", "runtime error", "Uncaught Python exception", "Traceback")
    at = next((i for i, line in enumerate(lines) if any(sign in line for sign in signs)), len(lines) - 15)
    return [line for line in lines[max(at, 0) : at + 15] if line.strip()]


def one(name: str, file: str) -> int:
    """Runs a target on one input, with everything that it prints."""
    path = str(Path(file).resolve())
    options = [path] if name in CPP else ["--plain", path]
    return subprocess.run([*command(name), *options], cwd=ROOT, env=environment(), check=False).returncode


def main() -> int:
    names = [*CPP, *TARGETS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="per target")
    parser.add_argument("--runs", type=int, default=0, help="per target, instead of a time; repeatable")
    parser.add_argument("--target", choices=names, help="only this one")
    parser.add_argument("--input", help="run the target on this file alone")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    options = parser.parse_args()
    if options.input and not options.target:
        parser.error("--input needs --target")
    wanted = [options.target] if options.target else names
    if any(name in CPP for name in wanted):
        build(options.jobs)
    if options.input:
        return one(options.target, options.input)
    seeds.write(WORK / "seeds")
    if sum(name in TARGETS for name in wanted) < 2:
        return campaign(wanted, options, PYTHON)
    same = partial(begin, bool(options.runs))
    with forks("tests.fuzz.python_target:prepared", same, environment()) as python:
        return campaign(wanted, options, python)


def campaign(wanted: Sequence[str], options: argparse.Namespace, python: Sequence[str]) -> int:
    """Some targets side by side."""
    outcomes = []
    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            for result in pool.map(lambda name: fuzz(name, options.seconds, options.runs, python), wanted):
                print(result, flush=True)
                outcomes.append(result)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            RUNNING.end()
            raise
    return int(any(result.problem for result in outcomes))


def cli() -> None:
    """Ctrl-C is one line."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("fuzz: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    cli()
