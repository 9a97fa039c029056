# SPDX-License-Identifier: Apache-2.0
"""The answer comes from the transaction: spoil it, and the answer is gone or wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.operators.declarations.params import MAGIC, WORDS
from onedispatch.operators.emission import control
from onedispatch.transactions import Transaction
from onedispatch.transactions.machine.bd import control_packet_header

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
UNUSED_MEM, UNUSED_CORE = 0xA0000 + 0x20 * 20, 0x1D000 + 0x20 * 10  # BDs that no operator here uses


def model() -> onnx.ModelProto:
    rng = np.random.default_rng(1)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [16, 48])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Sigmoid", ["a"], ["y"])]
    w = numpy_helper.from_array(rng.standard_normal((64, 48), np.float32), "w")
    graph = helper.make_graph(nodes, "spoil", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def compiled() -> Any:
    return od.compile(model(), fallback="error")


@pytest.fixture(scope="module")
def data() -> Array:
    return np.random.default_rng(2).standard_normal((16, 64), np.float32)


@pytest.fixture(scope="module")
def answer(compiled: Any, data: Array) -> Array:
    return np.asarray(od.InferenceSession(compiled).run(None, {"x": data})[0])


def spoiled(compiled: Any, data: Array, transaction: bytes) -> Array | None:
    """The answer with another transaction; None for a typed error."""
    return answer_of(compiled.with_transaction(transaction), data)


def spoiled_packet(compiled: Any, data: Array, at: int) -> Array | None:
    """The answer without a control packet; None for a typed error."""
    return answer_of(without_packet(compiled, at), data)


def answer_of(compiled: Any, data: Array) -> Array | None:
    session = od.InferenceSession(compiled)
    try:
        return np.asarray(session.run(None, {"x": data})[0])
    except (od.SimulationError, od.TransactionError) as error:
        assert str(error)
        return None


def changed(transaction: bytes, at: int, value: int) -> bytes:
    words = np.frombuffer(transaction, np.uint32).copy()
    words[at] = value
    return words.tobytes()


def sent(compiled: Any) -> Array:
    """The words that shims bring to memory tiles and cores: control packets, and parameter blocks."""
    ((_, executable),) = compiled.executables.items()
    return np.frombuffer(executable.steps[0].params, np.uint32)


def without_packet(compiled: Any, at: int) -> Any:
    """The model whose control packet with its control header at ``at`` writes what nothing reads."""
    words = sent(compiled).copy()
    unused = UNUSED_MEM if words[at - 1] & 0x1F == control.MEM else UNUSED_CORE
    words[at] = control_packet_header(unused, int(words[at] >> 20 & 3) + 1)
    ((key, executable),) = compiled.executables.items()
    steps = (replace(executable.steps[0], params=words.tobytes()),)
    return replace(compiled, executables={key: replace(executable, steps=steps)})


def operations(transaction: bytes, name: str) -> list[Any]:
    return [op for op in Transaction.from_bytes(transaction).ops if op.name == name]


def test_the_answer_is_right_to_begin_with(answer: Array, data: Array, compiled: Any) -> None:
    weights = numpy_helper.to_array(model().graph.initializer[0])
    np.testing.assert_allclose(answer, 1 / (1 + np.exp(-(data @ weights))), rtol=1e-4, atol=1e-5)
    again = spoiled(compiled, data, compiled.transaction)
    assert again is not None
    np.testing.assert_array_equal(again, answer)


def test_every_ddr_patch_matters(compiled: Any, data: Array, answer: Array) -> None:
    transaction = compiled.transaction
    patches = operations(transaction, "DDR_PATCH")
    assert patches
    for op in patches:
        word = op.offset // 4 + 8  # low half of the argument index, v0.1
        index = int(np.frombuffer(transaction, np.uint32)[word])
        other = spoiled(compiled, data, changed(transaction, word, (index + 1) % 4))
        assert other is None or not np.array_equal(other, answer), op


def test_every_descriptor_length_matters(compiled: Any, data: Array, answer: Array) -> None:
    transaction = compiled.transaction
    words = np.frombuffer(transaction, np.uint32)
    patched = 0
    for op in operations(transaction, "BLOCKWRITE"):
        first = op.offset // 4 + 4
        register = int(words[op.offset // 4 + 2])
        if register >> 20 & 0x1F or not 0x1D000 <= register & 0xFFFFF < 0x1D200:
            continue  # shim descriptors: word 0 is the length
        for length in (int(words[first]) // 2, 0):
            other = spoiled(compiled, data, changed(transaction, first, length))
            assert other is None or not np.array_equal(other, answer), op
        patched += 1
    assert patched


def test_dropped_pushes_matter(compiled: Any, data: Array, answer: Array) -> None:
    """Every write to a shim task queue turned into a write of nothing to a spare lock."""
    transaction = compiled.transaction
    words = np.frombuffer(transaction, np.uint32)
    queues = {0x1D204, 0x1D20C, 0x1D214, 0x1D21C}
    pushes = [
        op
        for op in operations(transaction, "WRITE")
        if int(words[op.offset // 4 + 2]) & 0xFFFFF in queues
        and not int(words[op.offset // 4 + 2]) >> 20 & 0x1F
    ]
    assert pushes
    for op in pushes:
        register = int(words[op.offset // 4 + 2]) & ~0xFFFFF | 0x140F0
        other = spoiled(compiled, data, changed(transaction, op.offset // 4 + 2, register))
        assert other is None or not np.array_equal(other, answer), op


def test_every_control_packet_matters(compiled: Any, data: Array, answer: Array) -> None:
    words, at, packets = sent(compiled), 0, 0
    while at < len(words):
        if (
            words[at] == 0 or words[at + 1] == MAGIC
        ):  # padding; a parameter block, which is a packet for a DMA
            at += 1 if words[at] == 0 else 1 + WORDS
            continue
        other = spoiled_packet(compiled, data, at + 1)
        assert other is None or not np.array_equal(other, answer), hex(words[at + 1])
        at, packets = at + 3 + int(words[at + 1] >> 20 & 3), packets + 1
    assert packets > 30


def test_an_empty_transaction_gives_no_answer(compiled: Any, data: Array) -> None:
    head = bytearray(compiled.transaction[:16])
    head[8:16] = (0).to_bytes(4, "little") + (16).to_bytes(4, "little")
    session = od.InferenceSession(compiled.with_transaction(bytes(head)))
    with pytest.raises(od.SimulationError, match="never wrote"):
        session.run(None, {"x": data})


@pytest.mark.parametrize("size", [0, 3, 16, 100])
def test_rubbish_is_a_typed_error(compiled: Any, data: Array, size: int) -> None:
    rubbish = np.random.default_rng(size).bytes(size)
    for transaction in (rubbish, compiled.transaction[: 16 + size]):
        with pytest.raises((od.TransactionError, od.SimulationError)):
            od.InferenceSession(compiled.with_transaction(transaction)).run(None, {"x": data})


def test_after_an_error_the_session_and_others_go_on(compiled: Any, data: Array, answer: Array) -> None:
    good = od.InferenceSession(compiled)
    bad = od.InferenceSession(compiled.with_transaction(compiled.transaction[:200]))
    for _ in range(2):
        with pytest.raises(od.OneDispatchError):
            bad.run(None, {"x": data})
        np.testing.assert_array_equal(good.run(None, {"x": data})[0], answer)


def test_with_transaction_wants_bytes(compiled: Any) -> None:
    with pytest.raises(od.InputError):
        compiled.with_transaction("text")


def test_a_deadlock_names_its_cause_and_no_core_at_rest(compiled: Any, data: Array) -> None:
    """Of 32 cores most rest between operators, and wait for no one's fault."""
    mem_output = 0xA0634 + 8 * 5  # task queue of MM2S 5 of the memory tile
    (at, *_) = np.flatnonzero(sent(compiled) == control_packet_header(mem_output, 1))
    with pytest.raises(od.SimulationError) as caught:
        od.InferenceSession(without_packet(compiled, int(at))).run(None, {"x": data})
    text = str(caught.value)
    causes = text.count("cause:")  # of columns that are sent the same packets
    assert causes == text.count(" r0 S2MM0: waits for data") >= 1, text
    assert "shim tile c0 r0 S2MM0: waits for data" in text, text
    assert "its program waits" not in text, text
