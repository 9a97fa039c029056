# SPDX-License-Identifier: Apache-2.0
"""One table makes the codes of C, the classes of errors and the page; each is understood."""

from __future__ import annotations

import pickle
import re

import pytest

import onedispatch as od
from onedispatch.operators.codegen.gendocs import page
from onedispatch.operators.codegen.headers import include_folder
from onedispatch.operators.declarations.statuses import (
    ERRORS,
    OK,
    STATUSES,
    Status,
    error_class,
    run_error_class,
)

FAILURES = [row for row in STATUSES if row.code != OK]


def test_codes_are_fixed_once() -> None:
    assert len({row.code for row in STATUSES}) == len({row.name for row in STATUSES}) == len(STATUSES)
    assert [(row.name, row.code) for row in STATUSES[:4]] == [
        ("ok", 0), ("not_supported", -1), ("parameter_invalid", -2), ("runtime_failure", -3)
    ]  # fmt: skip


def test_the_codes_of_c_and_the_page_are_those_of_the_table() -> None:
    text = (include_folder() / "onedispatch" / "kernel_codes.h").read_text()
    found = dict(re.findall(r"#define OD_(\w+) \((-?\d+)\)", text))
    assert found == {row.name.upper(): str(row.code) for row in STATUSES}
    for row in FAILURES:
        assert f"| OD_{row.name.upper()} | {row.code} | {row.summary} | `onedispatch.{row.error}` |" in page()


@pytest.mark.parametrize("row", FAILURES, ids=lambda row: row.name)
def test_every_status_is_a_class(row: Status) -> None:
    cls = getattr(od, row.error)
    assert cls is ERRORS[row.code] is error_class(row.code)
    assert row.error in od.__all__ and row.summary in cls.__doc__
    assert issubclass(cls, od.KernelError) and issubclass(cls, od.OneDispatchError)
    assert issubclass(cls, od.KernelLibraryError) == row.library
    error = cls("kernel acme::x@1", "3 inputs", "2", "give two", node="n0")
    assert (error.status, error.node, error.expected, error.given) == (row.code, "n0", "2", "3 inputs")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls and vars(again) == vars(error) and str(again) == str(error)


@pytest.mark.parametrize("row", FAILURES, ids=lambda row: row.name)
def test_in_a_run_it_is_an_error_of_the_simulation_too(row: Status) -> None:
    cls = run_error_class(row.code)
    error = cls("program of core", "x", "y", tile="c1 r2", op_index=4)
    assert isinstance(error, getattr(od, row.error)) and isinstance(error, od.SimulationError)
    assert (error.status, error.tile, error.op_index) == (row.code, "c1 r2", 4)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls and vars(again) == vars(error) and str(again) == str(error)


def test_a_code_without_a_row_is_a_kernel_error_all_the_same() -> None:
    assert error_class(-12345) is od.KernelError and issubclass(run_error_class(7), od.SimulationError)
