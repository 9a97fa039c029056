# SPDX-License-Identifier: Apache-2.0
"""Tables of cases run in groups: one item for an operator on a device, which names every case that fails.

    @each_case(CASES, group=operator_and_device)
    def test_device_equals_onnxruntime(case: Case) -> None: ...

is called for each case as by ``parametrize``. An item of its own for each would cost pytest more than
most cases take. ``pytest FILE --case TEXT`` runs those alone whose name contains the text.
"""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:  # it imports onnxruntime
    from tests.ops.case import Case

T = TypeVar("T")
NIGHTLY = bool(os.environ.get("ONEDISPATCH_NIGHTLY"))  # `make nightly`: whole tables, no samples
MOST_TRACEBACKS = 8  # of a group; further cases that fail are named only
SECONDS = 300  # of a group, and one more for each case
OWN = ("group", "subtests", "record_property")


@dataclass(frozen=True)
class Group:
    """Cases that one item runs, by name."""

    name: str
    cases: tuple[tuple[str, Any], ...]

    def containing(self, text: str) -> tuple[tuple[str, Any], ...]:
        """Returns the cases whose names contain ``text``."""
        return tuple(pair for pair in self.cases if text in pair[0])


def operator_of(case: Case) -> str:
    """Returns a case's operator, with its domain."""
    return f"{case.domain}{'.' if case.domain else ''}{case.op_type}"


def operator_and_device(case: Case) -> str:
    """Returns the name of a case's group."""
    return f"{operator_of(case)}-{case.device}"


def operator_and_types(case: Case) -> str:
    """Returns what a sample must have: the operator and the types of its operands."""
    types = ",".join(x.dtype for x in case.inputs if x is not None)
    return f"{operator_of(case)}-{types}"


def sampled(cases: Sequence[T], key: Callable[[T], str], every: int) -> list[T]:
    """Returns the first case of each ``key`` and one of ``every`` others; all of them in `make nightly`."""
    seen: set[str] = set()
    chosen = []
    for number, case in enumerate(cases):
        if NIGHTLY or number % every == 0 or key(case) not in seen:
            chosen.append(case)
        seen.add(key(case))
    return chosen


def examples(count: int) -> int:
    """Returns how many random examples a test draws: ``count`` in `make nightly`, else a 32nd."""
    return count if NIGHTLY else (count + 31) // 32


def grouped(cases: Iterable[T], name: Callable[[T], str], group: Callable[[T], str]) -> list[Group]:
    """Returns the cases by group, in the order of the first of each."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for case in cases:
        found.setdefault(group(case), []).append((name(case), case))
    return [Group(key, tuple(pairs)) for key, pairs in found.items()]


def each_case(
    cases: Iterable[Any], group: Callable[[Any], str], name: Callable[[Any], str] = lambda case: str(case.id)
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs a test for each of ``cases``, its first parameter; further parameters are fixtures."""
    table = [
        pytest.param(one, id=one.name, marks=pytest.mark.timeout(SECONDS + len(one.cases)))
        for one in grouped(cases, name, group)
    ]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(request: pytest.FixtureRequest, **given: Any) -> None:
            one, subtests, record = (given.pop(key) for key in OWN)
            wanted = one.containing(request.config.getoption("--case"))
            failed, skipped = _failing(test, wanted, subtests, given)
            record("cases", len(wanted) - skipped)
            if failed:
                pytest.fail(_summary(request.node.nodeid, one, failed, len(wanted)), pytrace=False)

        fixtures = list(inspect.signature(test).parameters)[1:]
        parameters = [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY) for each in ("request", *OWN, *fixtures)
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
        run.__module__ = test.__module__
        marked: Callable[..., None] = pytest.mark.parametrize("group", table)(run)
        return marked

    return decorate


def _failing(
    test: Callable[..., None], wanted: Sequence[tuple[str, Any]], subtests: pytest.Subtests, fixtures: Any
) -> tuple[list[str], int]:
    """Runs the cases; returns the names of those that fail and how many skip. Either become subtests."""
    failed, skipped = [], 0
    for name, case in wanted:
        print(name, flush=True)  # the last one is that in which a timer or a signal ended the item
        try:
            test(case, **fixtures)
        except Exception:
            failed.append(name)
            if len(failed) <= MOST_TRACEBACKS:
                with subtests.test(name):
                    raise
        except pytest.skip.Exception:
            skipped += 1
            with subtests.test(name):
                raise
    return failed, skipped


def _summary(nodeid: str, group: Group, failed: Sequence[str], count: int) -> str:
    alone = shlex.join(["pytest", "-n", "0", nodeid.partition("[")[0], "--case", failed[0]])
    return f"{len(failed)} of {count} cases of {group.name} fail:\n" + "\n".join(
        [*(f"  {name}" for name in failed), f"one alone: {alone}"]
    )
