# SPDX-License-Identifier: Apache-2.0
"""What every test shares: where data lies, fixed seeds, and a check that imports stay clean.

A hung test is ended by the timers in pyproject.toml: pytest-timeout fails it by name; where
C++ holds the interpreter, the faulthandler watchdog prints every stack and ends pytest.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer.testing
from hypothesis import settings

from tests.scheduling import longest_first
from tests.tables import NIGHTLY

ROOT = Path(__file__).resolve().parent.parent
# Runs of a device are made from their recordings too, and compared; also in processes that tests start.
os.environ.setdefault("ONEDISPATCH_RECORD", "off" if NIGHTLY else "verify")
# Commands keep no compiled models in the home folder.
os.environ.setdefault("ONEDISPATCH_CACHE", "off")
# Typer's runner makes all commands anew for each call, which takes longer than most of them.
_runner = vars(typer.testing)
if "_get_command" in _runner:
    _runner["_get_command"] = functools.cache(_runner["_get_command"])
# A busy machine is no failure.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
# What a shell runs in the background ignores Ctrl-C; the tests of it are not about that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
_NO_CASES = SimpleNamespace(params={})
# Thousands of modules and tests lie in memory, which each collection would walk through: a tenth of all time.
gc.disable()
FOLDERS = ("dispatch", "operators", "transactions", "cpp_ext")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return ROOT


def amd_folder(name: str) -> Path:
    """A folder of AMD's public Strix files; skips where it is absent (ONEDISPATCH_SHARED says where)."""
    shared = Path(os.environ.get("ONEDISPATCH_SHARED", ROOT.parent / "shared"))
    data = shared / "data" / name
    if not data.is_dir():
        pytest.skip(f"AMD's transaction files are not at ../shared/data/{name}")
    return data


@pytest.fixture(scope="session")
def amd_transactions() -> Path:
    """One file of every family, with parameters and control packets."""
    return amd_folder("amd-transactions")


@pytest.fixture(scope="session")
def amd_more() -> Path:
    """Files whose BDs cross the borders of memory tiles, and whose locks are flags."""
    return amd_folder("amd-transactions-more")


@pytest.fixture(scope="session", params=["amd-transactions", "amd-transactions-more"])
def amd_files(request: pytest.FixtureRequest) -> list[Path]:
    """All binary files of one of these folders."""
    return sorted(amd_folder(request.param).rglob("*.bin"))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that depend on the test's name only, not on which tests ran before."""
    return np.random.default_rng(list(request.node.nodeid.encode()))


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "of the tables (tests/tables.py), only the cases whose name contains TEXT, and no other test"
    parser.addoption("--case", default="", metavar="TEXT", help=text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The fastest answers first: structure, then units; of the rest, what takes longest."""
    items.sort(key=lambda item: longest_first(item, ROOT))
    text = config.getoption("--case")
    if text:
        keep(config, items, lambda item: has_case(item, text))
    if not NIGHTLY:
        keep(config, items, lambda item: item.get_closest_marker("nightly") is None)
        chosen = set(daily(items))
        keep(config, items, lambda item: item in chosen)


def pytest_collection_finish() -> None:
    """What is there now stays to the end: collections need not look at it."""
    gc.collect()
    gc.freeze()
    gc.enable()


def keep(config: pytest.Config, items: list[pytest.Item], wanted: Callable[[pytest.Item], bool]) -> None:
    """Deselects all other items."""
    others = [item for item in items if not wanted(item)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if wanted(item)]


def daily(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Of a test marked ``daily(n)`` one item of n, by turns of its parameters; all other items."""
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("daily")
        number, of = seen[(name := item.nodeid.partition("[")[0])], mark.args[0] if mark else 1
        seen[name] += 1
        if number % of == number // of % of:  # of the next so many the next
            yield item


def has_case(item: pytest.Item, text: str) -> bool:
    """Whether an item is a group of a table that has such a case."""
    group = getattr(item, "callspec", _NO_CASES).params.get("group")
    return hasattr(group, "containing") and bool(group.containing(text))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under `--dist loadfile`, what makes balance better (tests/scheduling.py)."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.scheduling import Scheduling

    return Scheduling(config, log)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says how many cases the groups of tables checked: they are fewer items."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    found = [dict(r.user_properties)["cases"] for r in reports if "cases" in dict(r.user_properties)]
    if found:
        terminalreporter.write_line(f"{sum(found):,} cases of tables in {len(found):,} tests")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A bare import of a source folder is a second copy of the package: two registries."""
    copies = [name for name in FOLDERS if name in sys.modules]
    if copies:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        sys.stderr.write(
            f"\nimported from the source folders, not as onedispatch.*: {', '.join(copies)}; "
            "write `from onedispatch.<folder> import ...`\n"
        )


@pytest.fixture
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No plug-in is loaded before and after the test, and none is searched for."""
    for variable in ("ONEDISPATCH_PLUGIN_PATH", "ONEDISPATCH_PLUGIN_CONFLICT"):
        monkeypatch.delenv(variable, raising=False)
    import onedispatch as od
    from onedispatch.operators.plugin import registrations

    od.plugins.reset()
    yield
    od.plugins.reset()
    assert registrations.kernels() == [] == registrations.mappings()
