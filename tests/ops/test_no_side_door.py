# SPDX-License-Identifier: Apache-2.0
"""The answers come from the transaction on the array: with anything in it changed they are gone.

Each test changes one thing of a transaction (or of the overlay) that computes the right answer,
and the run must end with a typed error or with another answer. Where a change may not matter (a
route that the operator does not use), the tests state exactly which ones matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onedispatch
from onedispatch import OneDispatchError, SimulationError
from onedispatch.dispatch.compiler.executable import DeviceStep
from onedispatch.dispatch.runtime.device import DeviceSession
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.transactions import Device, Transaction, find_device
from onedispatch.transactions.machine import registers
from tests.ops import edits
from tests.ops.case import Array, Case, case, check, f32, run_onnxruntime, single_model, weight
from tests.ops.host import FILL, buffers_of, output_of, overlay_for, run_buffers, run_in_turn
from tests.ops.lowered import lower

SMALL = {
    "Add": case("Add", f32(37, 20), f32(37, 20)),  # one core, six tiles: see OneCore
    "MatMul": case("MatMul", f32(37, 64), f32(64, 48)),  # four cores, broadcast, reduction steps
    "Conv": case("Conv", f32(1, 3, 9, 9), weight(4, 3, 3, 3), weight(4), pads=[1, 1, 1, 1]),  # one tile
}
SAME, DIFFERENT = "same", "different"


class OneCore:
    """Tiles of 124 elements, one after the other on one core."""

    def select(self, problem: Problem, device: Device) -> Solution:
        return Solution(problem.kernel, Mapping(None, None, 1, frozenset(), False, (0,)), (124,), 1)


@dataclass
class Bench:
    """One operator whose right answer is known, to run with wrong transactions."""

    op: Operator
    transaction: bytes
    overlay: bytes
    buffers: list[bytes]
    right: bytes

    def outcome(
        self, transaction: bytes | None = None, overlay: bytes | None = None, params: bytes | None = None
    ) -> str:
        """ "same", "different", or the name of the error."""
        try:
            after = run_buffers(
                self.op.device,
                self.transaction if transaction is None else transaction,
                self.buffers if params is None else [*self.buffers[:-1], params],
                overlay or self.overlay,
            )
        except OneDispatchError as error:
            return type(error).__name__
        return SAME if after[0] == self.right else DIFFERENT

    def outcomes_sent(self, field: str, change: Callable[[int], int | None]) -> dict[str, set[str]]:
        """The ids of changed descriptors of memory tiles and cores by outcome; there is at least one."""
        found: dict[str, set[str]] = defaultdict(set)
        for edit in edits.sent_descriptors(self.buffers[-1], field, change):
            found[self.outcome(params=edit.transaction)].add(edit.id)
        assert found
        return found

    def outcomes(self, changes: Iterable[edits.Edit], overlay: bool = False) -> dict[str, set[str]]:
        """The ids of ``changes`` by outcome; there is at least one."""
        found: dict[str, set[str]] = defaultdict(set)
        for edit in changes:
            outcome = self.outcome(overlay=edit.transaction) if overlay else self.outcome(edit.transaction)
            found[outcome].add(edit.id)
        assert found
        return found


def make_bench(case: Case) -> Bench:
    ((_, op),) = lower(case).ops
    op = op.selected(OneCore()) if case is SMALL["Add"] else op
    arrays = [case.arrays[i] for i in range(len(op.inputs))]
    buffers = buffers_of(op, [a for a in arrays if a is not None])
    transaction = op.transaction()
    overlay = overlay_for(op)
    right = run_buffers(op.device, transaction, buffers, overlay)[0]
    check(output_of(op, right), case.expected[0], case.allowed)
    return Bench(op, transaction, overlay, buffers, right)


@pytest.fixture(scope="module", params=list(SMALL))
def bench(request: pytest.FixtureRequest) -> Bench:
    return make_bench(SMALL[request.param])


@pytest.fixture(scope="module")
def add() -> Bench:
    return make_bench(SMALL["Add"])


# -- the transaction -----------------------------------------------------------------------------


def test_the_same_bytes_give_the_same_answer(bench: Bench) -> None:
    assert bench.outcome(edits.rebuilt(bench.transaction, lambda op: op.raw)) == SAME
    assert bench.outcome(overlay=edits.rebuilt(bench.overlay, lambda op: op.raw)) == SAME


def test_every_patched_argument_matters(bench: Bench) -> None:
    found = bench.outcomes(edits.patched_arguments(bench.transaction, len(bench.buffers)))
    assert not found[SAME]


def test_every_descriptor_one_word_shorter_matters(bench: Bench) -> None:
    assert not bench.outcomes(edits.descriptors(bench.transaction, "length", lambda n: n - 1))[SAME]
    assert not bench.outcomes_sent("length", lambda n: n - 1)[SAME]


def test_every_descriptor_one_word_longer_matters(bench: Bench) -> None:
    assert not bench.outcomes(edits.descriptors(bench.transaction, "length", lambda n: n + 1))[SAME]
    assert not bench.outcomes_sent("length", lambda n: n + 1)[SAME]


def lengths_and_repeats(transaction: bytes, columns: int) -> Iterator[edits.Edit]:
    """Each BD a word longer or shorter, each task a turn more or less."""
    field = {field.name: field for field in registers.QUEUE_FIELDS}["repeat"]
    mask = (1 << field.width) - 1

    def repeated(word: int, more: int) -> int:
        turns = (word >> field.lsb & mask) + more
        return word & ~(mask << field.lsb) | turns << field.lsb if 0 <= turns <= mask else word

    for more in (1, -1):
        yield from edits.descriptors(transaction, "length", lambda n, more=more: n + more)
        for block, column in product(("DMA_S2MM_QUEUE", "DMA_MM2S_QUEUE"), range(columns)):
            change = partial(repeated, more=more)
            yield from edits.register_writes(transaction, block, column, change)


def test_a_wrong_run_never_spoils_the_next_one(bench: Bench) -> None:
    """It fails itself, naming what it leaves behind, or leaves nothing."""
    unfinished = 0
    for edit in lengths_and_repeats(bench.transaction, bench.op.device.columns):
        wrong, right = run_in_turn(
            bench.op.device, [edit.transaction, bench.transaction], bench.buffers, bench.overlay
        )
        assert not isinstance(right, OneDispatchError), f"{edit.id}: the next run fails: {right}"
        assert right[0] == bench.right, f"{edit.id}: the next run gives another answer"
        unfinished += isinstance(wrong, SimulationError) and wrong.kind == "unfinished"
    assert unfinished, "nothing was left behind"


def test_every_acquire_matters(bench: Bench) -> None:
    """A BD that waits for two more than there are (acquire-greater-equal of 3) never runs."""
    assert not bench.outcomes_sent("acquire_value", lambda v: 0x7D if v else None)[SAME]


def test_every_release_matters(add: Bench) -> None:
    assert not add.outcomes_sent("release_value", lambda v: 0 if v else None)[SAME]


def test_every_base_address_matters(bench: Bench) -> None:
    """Buffers moved by one word in one BD: what one side writes is not what the other reads."""
    assert not bench.outcomes_sent("base", lambda at: at + 1)[SAME]


@pytest.mark.parametrize("name", ["WRITE", "BLOCKWRITE", "DDR_PATCH", "TCT"])
def test_no_operation_can_be_left_out(add: Bench, name: str) -> None:
    ops = Transaction.from_bytes(add.transaction).ops
    changes = [
        edits.Edit(f"op{op.index} {op.register}", edits.one_op(add.transaction, op.index, None))
        for op in ops
        if op.name == name
    ]
    assert not add.outcomes(changes)[SAME]


def test_an_empty_transaction_gives_no_answer(bench: Bench) -> None:
    after = run_buffers(bench.op.device, edits.emptied(bench.transaction), bench.buffers)
    assert after == [bytes(data) for data in bench.buffers]
    assert set(after[0]) == {FILL}


def test_parameters_matter(bench: Bench) -> None:
    """The super kernel does what the parameter block says; without one it refuses."""
    buffers = list(bench.buffers)
    buffers[-1] = bytes(len(buffers[-1]))
    with pytest.raises(SimulationError):
        run_buffers(bench.op.device, bench.transaction, buffers)


# -- the overlay ---------------------------------------------------------------------------------

# What a single-core operator with one input port uses of column 0; parameters go to all four cores.
ROUTES = {
    "shim0-NORTH_0", "shim0-NORTH_1", "shim0-SOUTH_2", "shim0-SOUTH_0",  # feed 0, parameters, drain, tokens
    "mem1-DMA_0", "mem1-DMA_1", "mem1-NORTH_0", "mem1-NORTH_1",  # in; column broadcast, lane of core 0
    "mem1-DMA_2", "mem1-SOUTH_0",  # out
    "core2-DMA_0", "core2-DMA_1", "core2-SOUTH_0",
    "shim0-NORTH_5", "mem1-CONTROL", "mem1-NORTH_5", "core2-CONTROL",  # control packets
}  # fmt: skip
CORE_LOCKS = {"core2-0", "core2-6", "core2-14", "core3-14", "core4-14", "core5-14"}
PARAMETER_LOCKS = {"mem1-62"}


def _broken(found: dict[str, set[str]]) -> set[str]:
    """Registers ("tile-name") whose change is not without effect."""
    return {edit.rsplit("-", 1)[0] for outcome, ids in found.items() if outcome != SAME for edit in ids}


def test_the_routes_that_data_takes_matter_and_no_others(add: Bench) -> None:
    found = add.outcomes(edits.register_writes(add.overlay, "SWITCH_MASTER", 0, lambda v: 0), overlay=True)
    broken = _broken(found)
    assert broken >= ROUTES
    # a broadcast waits for all its targets: every core's parameters are part of the road
    ports = ("DMA_1", "NORTH_0", "CONTROL", "NORTH_5")
    assert broken - ROUTES <= {f"core{row}-{port}" for row in (2, 3, 4, 5) for port in ports}
    assert found[SAME]


def test_the_locks_in_use_matter_and_no_others(add: Bench) -> None:
    """Empty slots that do not exist stop the road; full ones that are not let garbage through."""
    emptied = _broken(
        add.outcomes(edits.register_writes(add.overlay, "LOCK_VALUE", 0, lambda v: 0), overlay=True)
    )
    assert {name for name in emptied if "core" in name} == CORE_LOCKS
    assert emptied >= PARAMETER_LOCKS
    filled = edits.register_writes(add.overlay, "LOCK_VALUE", 0, lambda v: v + 1 if v == 0 else v)
    broken = _broken(add.outcomes(filled, overlay=True))
    # not the memory tile's: there the parameters may be in place before anyone asks for them
    for name in CORE_LOCKS:
        tile, lock = name.split("-")
        assert f"{tile}-{int(lock) + 1}" in broken  # the full side of the pair


def test_the_locks_of_the_memory_tile_matter(add: Bench) -> None:
    """Rings start empty because the overlay or the transaction says so; without slots nothing flows."""
    found: set[str] = set()
    for data, overlay in ((add.overlay, True), (add.transaction, False)):
        changes = list(edits.register_writes(data, "LOCK_VALUE", 0, lambda v: 0))
        if changes:
            found |= _broken(add.outcomes(changes, overlay=overlay))
    rings = {name for name in found if name.startswith("mem1-")} - PARAMETER_LOCKS
    assert len(rings) >= 2, "one ring inwards, one outwards"


@pytest.mark.parametrize("every", [True, False], ids=["all", "one"])
def test_without_a_core_program_nothing_runs(bench: Bench, every: bool) -> None:
    assert bench.outcome(overlay=edits.without_program(bench.overlay, every)) == "SimulationError"


def test_an_empty_overlay_runs_nothing(bench: Bench) -> None:
    assert bench.outcome(overlay=edits.emptied(bench.overlay)) == "SimulationError"


# -- a fused model -------------------------------------------------------------------------------


@dataclass
class Fused:
    """A small network as one device step."""

    step: DeviceStep
    feed: dict[str, Array]
    expected: Array
    name: str

    def outcome(self, transaction: bytes) -> str:
        step = type(self.step)(**{**self.step.__dict__, "transaction": transaction})
        loaded = DeviceSession(find_device("npu2")).load(step)
        try:
            (actual,) = loaded.run(self.feed).values()
        except OneDispatchError as error:
            return type(error).__name__
        near = np.allclose(actual, self.expected, rtol=1e-4, atol=1e-5 * np.abs(self.expected).max())
        return SAME if near else DIFFERENT


@pytest.fixture(scope="module")
def fused() -> Fused:
    model = _network()
    rng = np.random.default_rng(11)
    feed = {"x": rng.standard_normal((2, 3, 10, 10)).astype(np.float32)}
    session = onedispatch.InferenceSession(model, fallback="error")
    expected = run_onnxruntime(model, feed)[0]
    check(session.run(None, feed)[0], expected, SMALL["Conv"].allowed)
    _, executable = session.model.used_last()
    (step,) = executable.device_steps
    made = Fused(step, feed, expected, "network")
    assert made.outcome(step.transaction) == SAME
    return made


def _network() -> onnx.ModelProto:
    rng = np.random.default_rng(7)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (200, 10), "b2": (10,)}
    constants = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 3, name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["g"]),
        helper.make_node("Sigmoid", ["g"], ["y"]),
    ]
    image = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3, 10, 10])
    return single_model(nodes, [image], ["y"], constants)


def test_every_patched_argument_of_a_network_matters(fused: Fused) -> None:
    """Outputs that were not written are an error; other arguments hold other data."""
    for edit in edits.patched_arguments(fused.step.transaction, 5):
        assert fused.outcome(edit.transaction) != SAME, edit.id


def test_descriptors_of_a_network_matter(fused: Fused) -> None:
    changes = list(edits.descriptors(fused.step.transaction, "length", lambda n: n - 1))
    for edit in _some(changes, 40):
        assert fused.outcome(edit.transaction) != SAME, edit.id


def test_an_emptied_network_gives_no_answer(fused: Fused) -> None:
    assert fused.outcome(edits.emptied(fused.step.transaction)) == "SimulationError"


def test_a_network_without_its_end_gives_no_answer(fused: Fused) -> None:
    """Cut behind the first half of its operations."""
    count = len(Transaction.from_bytes(fused.step.transaction))
    cut = edits.rebuilt(fused.step.transaction, lambda op: op.raw if op.index < count // 2 else None)
    assert fused.outcome(cut) == "SimulationError"


def _some(changes: list[edits.Edit], most: int) -> Iterator[edits.Edit]:
    yield from changes[:: max(1, len(changes) // most)]
