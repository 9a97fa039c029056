# SPDX-License-Identifier: Apache-2.0
"""Runs the tests in stages and counts: quick Python, C++ (ctest), the rest of Python.

``--nightly`` runs whole tables where others sample, what is marked ``nightly``, and the sanitized C++
tests, with every C++ file compiled alone. Standard library only. Every stage runs even when an earlier
one failed; the exit code is 1 when any test failed or any stage could not run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
REPORTS = BUILD / "reports"
SLOW_FIRST = ("tests/sim", "tests/e2e")  # few tests that take long: at the end one worker would wait for them
PARTS = 16  # processes that run the C++ tests: sanitized, one takes longer to begin than most tests
QUICK = ("tests/arch", "tests/unit")
NIGHTLY = "ONEDISPATCH_NIGHTLY"  # tests/tables.py and tests/conftest.py read it


@dataclass(frozen=True)
class CppBuild:
    """One way to build and run the C++ tests, in a build directory of its own."""

    name: str
    kind: str  # CMAKE_BUILD_TYPE
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


CPP_BUILDS = {
    "cpp": CppBuild("C++", "Release", ("ONEDISPATCH_SANITIZE=OFF",)),
    "sanitize": CppBuild(
        "C++ sanitized",
        "RelWithDebInfo",
        ("ONEDISPATCH_SANITIZE=ON",),
        environment=(
            ("ASAN_OPTIONS", "detect_leaks=1:strict_string_checks=1"),
            ("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1"),
        ),
    ),
    # Built with the files that use threads alone, and portable kernels. Not the forks: ThreadSanitizer starts
    # no thread in the child of a process with threads.
    "tsan": CppBuild(
        "C++ with ThreadSanitizer",
        "RelWithDebInfo",
        ("ONEDISPATCH_TSAN=ON", "ONEDISPATCH_SIMD="),
        environment=(
            ("TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1"),
            ("GTEST_FILTER", "-*Fork*"),
        ),
    ),
}


@dataclass
class Stage:
    """What one stage did: counts from its JUnit report, and whether it came to its end."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    cases: int = 0  # of tables, which groups of tests/tables.py checked
    ok: bool = True

    def __str__(self) -> str:
        words = [f"{self.passed} passed"]
        words += [f"{self.failed} failed"] if self.failed else []
        words += [f"{self.skipped} skipped"] if self.skipped else []
        words += [f"{self.cases:,} cases of tables checked in them"] if self.cases else []
        words += [] if self.ok or self.failed else ["did not come to its end"]
        return f"{self.name}: {', '.join(words)}"


def run(command: Sequence[str], extra_env: Mapping[str, str] | None = None) -> int:
    """Runs ``command`` in the root and returns its exit code; output goes through."""
    print(f"$ {' '.join(command)}", flush=True)
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **(extra_env or {})}, check=False).returncode


def count(stage: Stage, report: Path) -> Stage:
    """Adds the counts of a JUnit file, or of GoogleTest's; a missing or empty file makes the stage fail."""
    try:
        root = ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError) as error:
        print(f"no report of {stage.name}: {error}", file=sys.stderr)
        stage.ok = False
        return stage
    stage.cases += sum(
        int(each.get("value", 0)) for each in root.iter("property") if each.get("name") == "cases"
    )
    for suite in root.iter("testsuite"):
        total = int(suite.get("tests", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
        stage.failed += failed
        stage.skipped += skipped
        stage.passed += total - failed - skipped
    stage.ok = stage.ok and stage.failed == 0
    return stage


def pytest_stage(name: str, arguments: Sequence[str], jobs: int) -> Stage:
    report = REPORTS / f"{name}.xml"
    # The console script, not `python -m pytest`: that would put the root on sys.path.
    command = [str(Path(sys.executable).with_name("pytest")), *arguments, f"--junitxml={report}"]
    if jobs > 1:
        command += [
            "-n",
            str(jobs),
            "--dist",
            "loadfile",  # a file keeps what its cases share
            "--no-loadscope-reorder",
        ]
    code = run(command)
    stage = count(Stage(f"Python, {name}"), report)
    stage.ok = stage.ok and code == 0
    return stage


def quick_stage(jobs: int) -> Stage:
    present = [path for path in QUICK if (ROOT / path).is_dir()]
    return pytest_stage("quick", present, jobs)


def find_browser() -> None:
    """Tests of the HTML page take the browser of ``ONEDISPATCH_BROWSER``, and skip where there is none."""
    if "ONEDISPATCH_BROWSER" in os.environ:
        return
    try:
        os.environ["ONEDISPATCH_BROWSER"] = prefix_of("browser")
    except subprocess.CalledProcessError:
        print("pages are not looked at in a browser", file=sys.stderr)


def rest_stage(jobs: int) -> Stage:
    find_browser()
    # Benchmarks never pass or fail: they have `make bench`.
    left_out = (*QUICK, "tests/bench")
    folders = sorted({f"tests/{path.parent.name}" for path in (ROOT / "tests").glob("*/test_*.py")})
    wanted = [folder for folder in folders if folder not in left_out]
    return pytest_stage("rest", sorted(wanted, key=lambda folder: folder not in SLOW_FIRST), jobs)


def prefix_of(library: str) -> str:
    """The prefix that CMake must search, "" when the system has the library; the path of the browser."""
    done = subprocess.run(
        [ROOT / ".ci" / "bootstrap", library], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def libraries_options(which: str) -> list[str]:
    """Where CMake finds GoogleTest, and google-benchmark, where that can be had.

    The benchmarks are compiled with the tests, so that they follow what they call; ``make bench`` alone runs
    them.
    """
    prefixes, bench = [prefix_of("googletest")], "OFF"
    if which == "cpp":
        try:
            prefixes.append(prefix_of("benchmark"))
            bench = "ON"
        except subprocess.CalledProcessError:
            print("the C++ benchmarks are not compiled", file=sys.stderr)
    return [f"-DONEDISPATCH_BENCH={bench}", f"-DCMAKE_PREFIX_PATH={';'.join(filter(None, prefixes))}"]


@contextmanager
def cases_made() -> Iterator[dict[str, str]]:
    """Operator cases for the C++ tests, where their generator exists: environment for ctest.

    They are written while the block builds: one process, which does not wait for compilers. In CI, where
    nothing changes between its steps, those of the first build serve the others too.
    """
    if not (ROOT / "tests" / "cpp" / "make_cases.py").exists():
        yield {}
        return
    cases, complete = BUILD / "cases", BUILD / "cases.complete"
    making = None
    if not (os.environ.get("CI") and complete.exists()):
        complete.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.cpp.make_cases", str(cases)]
        print(f"$ {' '.join(command)} &", flush=True)
        making = subprocess.Popen(command, cwd=ROOT)
    try:
        yield {"ONEDISPATCH_CASES": str(cases)}
    except BaseException:
        if making is not None:
            making.kill()
        raise
    finally:
        failed = making is not None and making.wait() != 0
    if failed:
        raise subprocess.CalledProcessError(1, "tests.cpp.make_cases")
    complete.touch()


def built_libraries(which: str) -> list[str]:
    """The C++ tests take the libraries that make built the package from, by the same flags."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    found = sorted(BUILD.glob(f"{tag}-*/libonedispatch_sim.a")) if which == "cpp" else []
    return [f"-DONEDISPATCH_LIBRARIES={found[0].parent if found else ''}"]


def simd_levels() -> str:
    """What sanitized kernels are compiled for: all in `make nightly`, else the most that this machine has."""
    cpu = Path("/proc/cpuinfo")
    has_avx512 = cpu.exists() and " avx512_vnni" in cpu.read_text()
    return "avx2;avx512" if os.environ.get(NIGHTLY) else "avx512" if has_avx512 else "avx2"


def cpp_stage(jobs: int, which: str) -> Stage:
    """Builds and runs the C++ tests in one of the ways of ``CPP_BUILDS``."""
    chosen = CPP_BUILDS[which]
    build = BUILD / which
    reports = build / "reports"  # one of each process
    stage = Stage(chosen.name)
    configure = ["cmake", "-S", "cpp_ext", "-B", str(build), "-G", "Ninja"]
    configure += ["-DONEDISPATCH_TESTS=ON", "-DONEDISPATCH_PYTHON=OFF"]
    configure += built_libraries(which)
    configure.append(f"-DONEDISPATCH_TEST_PARTS={PARTS}")
    configure.append(f"-DONEDISPATCH_UNITY={'OFF' if os.environ.get(NIGHTLY) else 'ON'}")
    configure += [f"-DONEDISPATCH_SIMD={simd_levels()}"] if which == "sanitize" else []
    configure += [f"-DCMAKE_BUILD_TYPE={chosen.kind}", *(f"-D{option}" for option in chosen.options)]
    ctest = ["ctest", "--test-dir", str(build), "--output-on-failure", "--no-tests=error"]
    ctest += ["--timeout", "600", "-j", str(jobs)]
    try:
        configure += libraries_options(which)
        with cases_made() as env:
            for command in (configure, ["cmake", "--build", str(build), "-j", str(jobs)]):
                if run(command) != 0:
                    raise subprocess.CalledProcessError(1, command)
    except subprocess.CalledProcessError as error:
        print(f"{chosen.name}: {error}", file=sys.stderr)
        stage.ok = False
        return stage
    shutil.rmtree(reports, ignore_errors=True)
    code = run(ctest, {**env, "GTEST_FILTER": "*", **dict(chosen.environment)})
    for part in range(1, PARTS + 1):  # a process that ends before its tests do has written none
        stage = count(stage, reports / f"part_{part}.xml")
    stage.ok = stage.ok and code == 0 and stage.passed > 0
    return stage


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--only", choices=["quick", "rest", *CPP_BUILDS], help="one stage alone")
    parser.add_argument("--nightly", action="store_true", help="whole tables, and what is marked nightly")
    options = parser.parse_args()
    if options.nightly:
        os.environ[NIGHTLY] = "1"
    REPORTS.mkdir(parents=True, exist_ok=True)
    all_stages: dict[str, Callable[[], Stage]] = {
        "quick": lambda: quick_stage(options.jobs),
        "rest": lambda: rest_stage(options.jobs),
        **{name: partial(cpp_stage, options.jobs, name) for name in CPP_BUILDS},
    }
    whole = ["quick", *CPP_BUILDS, "rest"] if options.nightly else ["quick", "cpp", "rest"]
    wanted = [options.only] if options.only else whole
    for name in wanted:  # those of other stages stay: their durations are what the next change is measured by
        (REPORTS / f"{name}.xml").unlink(missing_ok=True)
    started = time.monotonic()
    stages = [all_stages[name]() for name in wanted]
    seconds = time.monotonic() - started
    print("\n" + "\n".join(str(stage) for stage in stages))
    total = Stage(
        "all tests",
        passed=sum(stage.passed for stage in stages),
        failed=sum(stage.failed for stage in stages),
        skipped=sum(stage.skipped for stage in stages),
        cases=sum(stage.cases for stage in stages),
        ok=all(stage.ok for stage in stages),
    )
    print(f"{'PASSED' if total.ok else 'FAILED'}  {total} in {seconds:.0f} s", flush=True)
    return 0 if total.ok else 1


if __name__ == "__main__":
    sys.exit(main())
