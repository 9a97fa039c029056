# SPDX-License-Identifier: Apache-2.0
"""Every operator's NumPy ``reference()`` is onnxruntime's answer, and its transaction is sound."""

from __future__ import annotations

import numpy as np
import pytest

from onedispatch.operators.declarations import params
from onedispatch.transactions import ArgKind, Transaction
from tests.ops.case import Case, check
from tests.ops.cases import CASES
from tests.ops.lowered import evaluate, lower, reference
from tests.tables import each_case, operator_and_device, sampled

EVERY = 24  # of the other cases of an operator and device one in so many; `make nightly` has all


@each_case(CASES, group=operator_and_device)
def test_reference_equals_onnxruntime(case: Case) -> None:
    check(evaluate(case, reference), case.expected[0], case.allowed)


@pytest.mark.daily(2)
@each_case(sampled(CASES, operator_and_device, EVERY), group=operator_and_device)
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
