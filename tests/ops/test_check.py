# SPDX-License-Identifier: Apache-2.0
"""Our own transactions are clean: no error, no warning, for every operator case and every device.

Here the first case of an operator and one of 48 others are compiled for one device, in turns;
`make nightly` compiles each for all. Networks are checked where they are run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.tools.checking import check_for_overlay, check_model, check_step
from onedispatch.operators.declarations.params import HEADER, MAGIC, WORDS
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.operators.emission.context import lock_use
from onedispatch.transactions import FindingKind, Transaction, device_names, find_device
from onedispatch.transactions.machine import registers as reg
from tests.array_model.super_kernel import LATER, Carried, super_kernel
from tests.ops.case import Case, case, f32, weight
from tests.ops.cases import CASES
from tests.tables import NIGHTLY, each_case, operator_and_device, operator_of, sampled

DEVICES = sorted({find_device(name).name for name in device_names()})
EVERY = 48
IN_TURNS = [
    (case, device)
    for number, case in enumerate(sampled(CASES, operator_of, EVERY))
    for device in (DEVICES if NIGHTLY else [DEVICES[number % len(DEVICES)]])
]


@pytest.mark.daily(2)
@each_case(
    IN_TURNS,
    group=lambda one: operator_and_device(one[0]),
    name=lambda one: f"{one[0].id} for {one[1]}",
)
def test_an_operator_is_clean(one: tuple[Case, str]) -> None:
    case, device = one
    found = check_model(od.compile(case.model, device=device, fallback="error"))
    assert [str(finding) for finding in found] == []


@pytest.fixture(scope="module")
def digits(repository: Path) -> od.CompiledModel:
    return od.compile(repository / "models" / "digits.onnx", shapes={"image": (1, 1, 8, 8)})


def _without(transaction: Transaction, *ops: int) -> bytes:
    lines = transaction.text().splitlines()
    kept = [line for line in lines if line.split()[0] not in map(str, ops)]
    return Transaction.from_text("\n".join(kept)).to_bytes()


def _waits(transaction: Transaction) -> list[int]:
    return [op.index for op in transaction.ops if op.name in ("TCT", "MASKPOLL", "MERGE_SYNC")]


def test_without_a_wait_the_warnings_are_back(digits: od.CompiledModel) -> None:
    assert check_model(digits) == []
    transaction = Transaction.from_bytes(digits.transaction)
    ordering = _waits(transaction)
    assert ordering
    for op in ordering:
        found = check_model(digits.with_transaction(_without(transaction, op)))
        assert found and {f.kind for f in found} == {FindingKind.HAZARD}, op
        assert all(f.op_index is not None and f.op_index >= op for f in found)


def test_an_output_that_nobody_waits_for_is_a_warning(digits: od.CompiledModel) -> None:
    """The host may read before the last words are there; only this clock knows better."""
    last = _waits(Transaction.from_bytes(digits.transaction))[-1]
    found = check_model(digits.with_transaction(_without(Transaction.from_bytes(digits.transaction), last)))
    assert found
    assert all("no wait has seen it end" in f.message for f in found)


def test_waits_within_an_operator_order_its_descriptors() -> None:
    """Queues that are refilled: the tokens of a channel say which of its BDs is free."""
    product = case("MatMul", f32(300, 777), weight(777, 600))
    model = od.compile(product.model, device="npu2_1col", fallback="error")
    assert check_model(model) == []
    transaction = Transaction.from_bytes(model.transaction)
    *ordering, _ = _waits(transaction)
    assert len(ordering) > 50
    # Four tasks at a time use six descriptors: two waits less and each is still free in time.
    for first in range(0, len(ordering) - 8, 9):
        fewer = [_without(transaction, *ordering[first : first + count]) for count in (2, 3)]
        enough, too_few = (check_model(model.with_transaction(data)) for data in fewer)
        assert enough == []
        assert too_few and {f.kind for f in too_few} == {FindingKind.HAZARD}, first


def _begins(sent: np.ndarray[Any, Any]) -> list[int]:
    """Where parameter blocks begin among the words that shims bring."""
    return [int(at) - HEADER["magic"] for at in np.flatnonzero(sent == MAGIC)]


def test_parameter_blocks_decide(digits: od.CompiledModel) -> None:
    """A core that takes fewer chunks than it is sent leaves a task behind."""
    (executable,) = digits.executables.values()
    (step,) = executable.device_steps
    assert check_step(step, find_device(digits.device)) == []
    blocks = np.frombuffer(step.params, "<u4").copy()
    first = _begins(blocks)[0]
    blocks[first + HEADER["dims"] + 3] -= 1  # of the first operator, which has two tiles in dimension 0
    words = blocks.tobytes()
    assert words != step.params
    found = check_for_overlay(step.transaction, digits.device, dict(enumerate(step.sizes)), words)
    assert {f.kind for f in found} == {FindingKind.HAZARD}
    blocks[first + HEADER["magic"]] += 1
    unreadable = check_for_overlay(step.transaction, digits.device, None, blocks.tobytes())
    assert len(unreadable) >= len(found) > 0
    # Without them control packets are not known either: only of shims is it known what waits.
    unknown = check_for_overlay(step.transaction, digits.device, None, None)
    assert {f.kind for f in unknown} == {FindingKind.HAZARD}


def test_the_command_knows_the_overlay_of_a_model(digits: od.CompiledModel, tmp_path: Path) -> None:
    (executable,) = digits.executables.values()
    (step,) = executable.device_steps
    digits.save(tmp_path / "digits.od")
    (tmp_path / "digits.bin").write_bytes(step.transaction)
    (tmp_path / "params.bin").write_bytes(step.params)

    def lines(*arguments: str) -> str:
        shown = CliRunner().invoke(app, ["txn", "check", *arguments])
        assert shown.exit_code == 0, shown.output
        return str(shown.output).splitlines()[-1]

    bare = str(tmp_path / "digits.bin")
    known = [bare, "--overlay", digits.device, "--params", str(tmp_path / "params.bin")]
    assert lines(str(tmp_path / "digits.od")) == lines(*known) == "0 errors, 0 warnings"
    assert lines(bare) != "0 errors, 0 warnings"
    assert lines(bare, "--overlay", digits.device) != "0 errors, 0 warnings", "cores may do anything"
    shown = CliRunner().invoke(app, ["txn", "check", bare, "--params", str(tmp_path / "params.bin")])
    assert isinstance(shown.exception, od.InputError) or "--overlay" in shown.output


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(4, 1 << 20), st.integers(0, 31)), min_size=1, max_size=8))
def test_damaged_transactions_are_checked_in_their_overlay(
    digits: od.CompiledModel, flips: list[tuple[int, int]]
) -> None:
    """Any bits of it: findings, and no other exception."""
    (executable,) = digits.executables.values()
    (step,) = executable.device_steps
    words = np.frombuffer(step.transaction, "<u4").copy()
    for at, bit in flips:
        words[4 + at % (len(words) - 4)] ^= np.uint32(1 << bit)
    check_for_overlay(words.tobytes(), digits.device, dict(enumerate(step.sizes)), step.params)


class _Counting:
    """A core whose locks are always there: it counts what the model of the executable does."""

    def __init__(self, words: np.ndarray, row: int) -> None:
        self.column, self.row, self.name = 0, row, "core"
        self.room = reg.CORE.memory_bytes
        self.words = words
        self.taken: dict[int, int] = {}
        self.given: dict[int, int] = {}

    @property
    def memory(self) -> _Counting:
        return self

    def block(self, at: int, words: int, dtype: type) -> np.ndarray:
        return self.words[:words]

    def acquire(self, lock: int) -> Iterator[bool]:
        own = lock - reg.CORE_VIEW_LOCKS
        self.taken[own] = self.taken.get(own, 0) + 1
        yield True

    def release(self, lock: int) -> Iterator[bool]:
        own = lock - reg.CORE_VIEW_LOCKS
        self.given[own] = self.given.get(own, 0) + 1
        yield True


def test_lock_counts_are_those_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the checker counts per block is what the loop does, walked step by step."""
    monkeypatch.setattr("tests.array_model.super_kernel.check_all_read", lambda *_: None)
    everything: Carried = {
        **{kernel.digest: (kernel, 0xFFFFFFFF) for kernel in all_kernels()},
        **dict.fromkeys(LATER, (None, 0xFFFFFFFF)),  # functions linked by themselves
    }
    seen = 0
    for other in CASES[::17]:
        for compiled in od.compile(other.model, fallback="error").executables.values():
            for step in compiled.device_steps:
                blocks = np.frombuffer(step.params, "<u4")
                for at in _begins(blocks):
                    for row in range(4):
                        core = _Counting(blocks[at : at + WORDS], row)
                        steps = super_kernel(core, everything, _NoKernels())  # type: ignore[arg-type]
                        while not core.given.get(14):
                            next(steps)
                        use = lock_use(tuple(int(w) for w in core.words), 0, row)
                        assert use is not None
                        full = core.taken.pop(15)
                        assert (full, core.taken, core.given) == (1, use.acquired, use.released), other.id
                        seen += 1
    assert seen > 100


class _NoKernels(dict[int, object]):
    def get(self, key: int, default: object = None) -> object:
        return lambda call: None
