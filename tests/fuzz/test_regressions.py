# SPDX-License-Identifier: Apache-2.0
"""What fuzzing has found, as the few lines that build it."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onedispatch as od
from onedispatch.dispatch.tools.replay import replay
from onedispatch.transactions import MemBd, ShimBd, Transaction, TransactionBuilder, queue_word, tile_address
from onedispatch.transactions.format import codec, spec

TOKEN = 1 << 31


def v1(ops: Sequence[bytes], columns: int = 8) -> Transaction:
    body = b"".join(ops)
    header = codec.Header(spec.V1_0, columns=columns, op_count=len(ops), byte_size=16 + len(body))
    return Transaction.from_bytes(header.to_bytes() + body)


def write(address: int, value: int) -> bytes:
    return struct.pack("<III", 0, address, value)


def test_a_field_with_the_name_of_an_attribute_is_listed() -> None:
    op = codec.encode_op(10, spec.V1_0, {"usage": 1, "scratch_size": 2, "scratch_offset": 3})
    read = v1([op])
    assert read.ops[0].scratch_offset == 3 and read.ops[0].offset == spec.HEADER_SIZE
    assert Transaction.from_text(read.text()) == read


def test_half_an_address_to_read_is_checked_and_listed() -> None:
    read = v1([struct.pack("<IIIII", 130, 20, 1, 0, 7)])
    assert read.ops[0].words == () and read.check()
    assert Transaction.from_text(read.text()) == read


def test_an_error_during_the_last_operation_leaves_the_replay_finished() -> None:
    """The second BD, without address, starts while the controller is busy with its last, long write."""
    made = TransactionBuilder(4, 1)
    made.blockwrite(tile_address(0, 0, 0x1D000), ShimBd.at(0, 64, next_bd=1).to_words())
    made.blockwrite(tile_address(0, 0, 0x1D020), ShimBd.at(0, 64).to_words())
    made.ddr_patch(tile_address(0, 0, 0x1D004), 0)
    made.write(tile_address(0, 0, 0x1D214), queue_word("shim", 0))
    made.blockwrite(tile_address(0, 1, 0), list(range(1 << 16)))
    report = replay(made.to_bytes())
    assert report.stop is not None and report.stop.kind == "ddr"
    assert report.executed == report.operations and report.finished and not report.complete


def test_a_lock_value_that_no_lock_reaches_is_refused() -> None:
    """An unseen partner was asked for 64 again and again, 20 million times; a lock holds 63."""
    request = tile_address(0, 1, 0xD0000 + 0x200 + 4 * 64)  # lock 0, acquire -64
    started = time.monotonic()
    report = replay(v1([struct.pack("<IIII", 4, request, 1, 1)]).to_bytes())
    assert report.stop is not None and report.stop.kind == "endless_wait"
    assert time.monotonic() - started < 5


def test_token_waits_of_impossible_size_are_checked_at_once() -> None:
    """255 x 255 tiles per wait took minutes; so did many waits for many tasks."""
    waits = [struct.pack("<IIII", 128, 16, 1, 0xFFFFFF00)] * 5000
    pushes = [write(tile_address(0, 1, 0xA0634), TOKEN)] * 5000
    each = [struct.pack("<IIII", 128, 16, 1 | 1 << 8, 0x00010100)] * 5000
    merges = [struct.pack("<IIII", 132, 16, 0x0101, 0)] * 5000
    bd = struct.pack("<III", 1, tile_address(0, 1, 0xA0000), 12 + 32)
    bd += struct.pack("<8I", *MemBd.at(0, 100).to_words())
    started = time.monotonic()
    assert v1(waits).check()
    v1([bd, *pushes, *each, *merges]).check()
    assert time.monotonic() - started < 10


def _single(op_type: str, constants: dict[str, np.ndarray], given: dict[str, np.ndarray]) -> onnx.ModelProto:  # type: ignore[type-arg]
    node = helper.make_node(op_type, [*given, *constants], ["y"])
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in given.items()
    ]
    held = [numpy_helper.from_array(x, name) for name, x in constants.items()]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("op_type", ["Gather", "GatherElements", "GatherND"])
@pytest.mark.parametrize("const", [True, False])
@pytest.mark.parametrize("index", [2, -3])
def test_indices_outside_are_refused(op_type: str, const: bool, index: int) -> None:
    """onnx's reference evaluator, asked after onnxruntime had failed, wrapped or cut them."""
    data, at = (
        np.ones((2, 3), np.float32),
        {"i": np.array([[index, 0, 0][: 2 if op_type == "GatherND" else 3]])},
    )
    model = _single(op_type, at if const else {}, {"x": data, **({} if const else at)})
    with pytest.raises(od.OneDispatchError):
        od.InferenceSession(model, fallback="cpu").run(None, {"x": data, **({} if const else at)})


def test_nodes_of_constants_are_checked_before_the_reference_evaluator_folds_them() -> None:
    """LpNormalization of a scalar that was folded itself: onnxruntime refuses it."""
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["": 22]> g (float[2] x) => (float[2] y)
  <float c = {0.5}> { t = Tanh(c) n = LpNormalization(t) y = Add(x, n) }
""")
    with pytest.raises(od.OneDispatchError, match="scalar"):
        od.InferenceSession(model, fallback="cpu").run(None, {"x": np.ones(2, np.float32)})


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
def test_extremes_of_nothing_are_infinities_in_quantised_models_too(op_type: str) -> None:
    """In integers they were the ends of the type, which another scale made other numbers of."""
    model = onnx.parser.parse_model(f"""
<ir_version: 8, opset_import: ["": 20]> g (uint8[2, 0] x) => (uint8[2, 1] y)
  <float s = {{0.1}}, float r = {{0.05}}, uint8 z = {{3}}, uint8 t = {{7}}, int64[1] axes = {{1}}> {{
  f = DequantizeLinear(x, s, z)
  m = {op_type}(f, axes)
  y = QuantizeLinear(m, r, t)
}}
""")
    (y,) = od.InferenceSession(model, fallback="error").run(None, {"x": np.zeros((2, 0), np.uint8)})
    assert (y == (0 if op_type == "ReduceMax" else 255)).all()
