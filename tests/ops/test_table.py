# SPDX-License-Identifier: Apache-2.0
"""What the tables of cases hold: every registered operator, here and for C++."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from onedispatch.operators.declarations.registry import all_mappings
from tests.cpp.make_cases import all_cases, parted, registered
from tests.ops.case import OPERATORS
from tests.ops.cases import CASES
from tests.ops.lowered import lower


@pytest.mark.parametrize("op_type", sorted(OPERATORS))
def test_the_table_has_cases_of_every_registered_operator(op_type: str) -> None:
    count = sum(case.op_type == op_type for case in CASES)
    assert count >= 3, f"{op_type} has {count} cases: add rows to tests/ops/cases_*.py"


def test_the_table_has_no_case_twice() -> None:
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids)), sorted({x for x in ids if ids.count(x) > 1})
    assert {case.op_type for case in CASES} <= {m.op_type for m in all_mappings()}


def kinds_of(op_type: str) -> set[str]:
    """Kinds of the device operators that the cases become, where each becomes several, aliases counted."""
    made = [lower(case) for case in CASES if case.op_type == op_type]
    several = min(len(one.ops) + len(one.aliases) for one in made) > 1
    return {op.kind for one in made for _, op in one.ops} if several else {"one"}


@cache
def kinds_in_cpp() -> set[str]:
    """Kinds of the device operators that GoogleTest runs."""
    return {op.kind for case in all_cases() for _, op in lower(case).ops} | {
        step.op.kind for step in parted()
    }


@cache
def operators_in_cpp() -> tuple[set[str], set[str]]:
    """Operators that C++ has cases of, and those whose cases all run by a test that names none."""
    return {case.op_type for case in all_cases()}, {case.op_type for case in registered()}


@pytest.mark.parametrize("op_type", sorted(OPERATORS))
def test_every_registered_operator_has_a_test_in_cpp(op_type: str, repository: Path) -> None:
    """Cases that GoogleTest runs without Python, by a test that names them or with all that none names.

    What is always made of several device operators is there by these.
    """
    if kinds_of(op_type) <= kinds_in_cpp():
        return
    there, unnamed = operators_in_cpp()
    assert op_type in there, (
        f"no case of {op_type} in tests/ops/cases_*.py is one or more device operators with a finite answer"
    )
    if op_type in unnamed:
        return
    sources = "".join(p.read_text() for p in (repository / "tests/cpp/operators").glob("*.cpp"))
    assert f'"{op_type}"' in sources, f"no test of {op_type} in tests/cpp/operators"
