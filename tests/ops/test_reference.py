# SPDX-License-Identifier: Apache-2.0
"""Every operator's NumPy ``reference()`` is onnxruntime's answer, and its transaction is sound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onedispatch.operators.declarations import params
from onedispatch.operators.declarations.registry import all_mappings
from onedispatch.transactions import ArgKind, Transaction
from tests.cpp.make_cases import CASES as CPP_CASES
from tests.cpp.make_cases import REGISTERED, parted
from tests.ops.case import OPERATORS, Case, check
from tests.ops.cases import CASES
from tests.ops.lowered import evaluate, lower, reference
from tests.tables import each_case, operator_and_device


@pytest.mark.parametrize("op_type", sorted(OPERATORS))
def test_the_table_has_cases_of_every_registered_operator(op_type: str) -> None:
    count = sum(case.op_type == op_type for case in CASES)
    assert count >= 3, f"{op_type} has {count} cases: add rows to tests/ops/cases_*.py"


def test_the_table_has_no_case_twice() -> None:
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids)), sorted({x for x in ids if ids.count(x) > 1})
    assert {case.op_type for case in CASES} <= {m.op_type for m in all_mappings()}


PARTS = parted()


def kinds_of(op_type: str) -> set[str]:
    """Kinds of the device operators that the cases become, where each becomes several, aliases counted."""
    made = [lower(case) for case in CASES if case.op_type == op_type]
    several = min(len(one.ops) + len(one.aliases) for one in made) > 1
    return {op.kind for one in made for _, op in one.ops} if several else {"one"}


@pytest.mark.parametrize("op_type", sorted(OPERATORS))
def test_every_registered_operator_has_a_test_in_cpp(op_type: str, repository: Path) -> None:
    """Cases that GoogleTest runs without Python, by a test that names them or with all that none names.

    What is always made of several device operators is there by these.
    """
    alone = {op.kind for case in CPP_CASES for _, op in lower(case).ops}
    if kinds_of(op_type) <= alone | {step.op.kind for step in PARTS}:
        return
    assert any(case.op_type == op_type for case in CPP_CASES), (
        f"no case of {op_type} in tests/ops/cases_*.py is one or more device operators with a finite answer"
    )
    if any(case.op_type == op_type for case in REGISTERED):
        return
    sources = "".join(p.read_text() for p in (repository / "tests/cpp/operators").glob("*.cpp"))
    assert f'"{op_type}"' in sources, f"no test of {op_type} in tests/cpp/operators"


@each_case(CASES, group=operator_and_device)
def test_reference_equals_onnxruntime(case: Case) -> None:
    check(evaluate(case, reference), case.expected[0], case.allowed)


@each_case(CASES, group=operator_and_device)
def test_transaction_reads_and_validates(case: Case) -> None:
    """Decodes, has no finding against the arg map's sizes, and the arg map is consistent."""
    for _, op in lower(case).ops:
        entries = op.arg_map()
        sizes = {entry.xrt_arg_idx: entry.offset + entry.size for entry in entries}
        transaction = Transaction.from_bytes(op.transaction())
        assert not transaction.validate(sizes)
        assert transaction.header.columns <= op.device.columns
        assert (len(transaction) > 0) == bool(op.schedules)
        kinds = [entry.kind for entry in entries]
        assert kinds.count(ArgKind.OUTPUT) == len(op.outputs)
        assert kinds.count(ArgKind.INPUT) == len(op.activations)
        consts = op.format_const_params()
        assert consts.dtype == np.uint8 and consts.nbytes == op.const_bytes
        by_kind = {entry.kind: entry.size for entry in entries}
        assert by_kind.get(ArgKind.CONST_INPUT, 0) == consts.nbytes
        assert by_kind.get(ArgKind.CONST_KERNEL_PARAM_INPUT, 0) == len(op.super_kernel_params())
        assert len(op.parameter_blocks) == len(op.schedules)
        assert all(len(block) % params.BYTES == 0 for block in op.parameter_blocks)
        assert all(block in op.super_kernel_params() for block in op.parameter_blocks)
