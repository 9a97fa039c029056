# SPDX-License-Identifier: Apache-2.0
"""Constants of a model are in memory once, while it is compiled and while it runs. Nothing changes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch import xrt
from onedispatch.dispatch.base.lendable import lendable, with_room_behind
from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.runtime.device import DeviceSession, LoadedStep
from onedispatch.transactions import Transaction

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]

SIDE = 2048
PEAK = """
import resource, sys
import numpy as np
import onedispatch as od
session = od.InferenceSession(od.load(sys.argv[1]) if sys.argv[1].endswith(".od") else sys.argv[1])
for _ in range(3):
    session.run(None, {"x": np.ones((1, int(sys.argv[2])), np.float32)})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def chain(side: int, products: int) -> onnx.ModelProto:
    """Products of one row, each with weights of its own."""
    random = np.random.default_rng(0)
    weights = [random.standard_normal((side, side), np.float32) / side for _ in range(products)]
    names = ["x", *(f"h{i}" for i in range(1, products)), "y"]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(products)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, side]) for name in ("x", "y")]
    tensors = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def peak(path: Path, side: int) -> int:
    """The most bytes that a process had in memory which compiled or loaded the model, and ran it."""
    command = [sys.executable, "-c", PEAK, str(path), str(side)]
    return 1024 * int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.daily(2)
@pytest.mark.parametrize("kind", ["onnx", "od"])
def test_constants_are_in_memory_once(kind: str, tmp_path: Path) -> None:
    paths = {}
    for side in (32, SIDE):
        path = tmp_path / f"{side}.onnx"
        onnx.save(chain(side, 4), path)
        if kind == "od":
            od.compile(path).save(path := path.with_suffix(".od"))
        paths[side] = path
    beside = peak(paths[SIDE], SIDE) - peak(paths[32], 32)
    assert beside < 1.4 * paths[SIDE].stat().st_size


@pytest.fixture(scope="module")
def step() -> Any:
    return od.compile(chain(64, 2), fallback="error").device_step


def behind_constants(step: Any) -> bytes:
    """The step's transaction with its results behind the constants."""
    words = np.frombuffer(step.transaction, np.uint32).copy()
    for op in Transaction.from_bytes(step.transaction).ops:
        at = op.offset // 4 + 8  # low half of the argument index, v0.1; the offset comes two words on
        if op.name == "DDR_PATCH" and words[at] == 1:
            words[at], words[at + 2] = 3, words[at + 2] + step.const.size
    return words.tobytes()


@pytest.mark.parametrize("record", ["off", "on", "verify"])
def test_what_a_transaction_writes_over_constants_stays_in_its_buffer(step: Any, record: str) -> None:
    changed, size = behind_constants(step), step.const.size + 256
    memory = lendable(size)
    memory[:-256] = step.const
    memory.flags.writeable = False
    loaded = LoadedStep(DeviceSession(od.transactions.find_device("npu2"), record=record), step)
    kernel, (opcode, _, _, *buffers) = loaded._session.kernel(step.image), loaded._arguments
    instructions = core.bo(loaded._session.device, len(changed), core.bo.cacheable)
    instructions.write(changed)
    buffers[0].write(np.ones(64, np.float32))
    seen = []
    for number in range(4):
        if number in (0, 3):  # a recording is made of runs over the same buffers
            constants = core.bo.lent(loaded._session.device, with_room_behind(memory), size)
            constants.sync(core.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE)
        run = kernel(opcode, instructions, len(changed), *buffers[:3], constants, *buffers[4:])
        run.wait()
        seen.append((bytes(constants.read()), run.report()["recorded"]))
    wanted = np.ones((1, 64), np.float32)
    for tensor in chain(64, 2).graph.initializer:
        wanted = wanted @ numpy_helper.to_array(tensor)
    left = np.frombuffer(seen[0][0], np.uint8)
    np.testing.assert_allclose(left[-256:].view(np.float32), wanted[0], 1e-3, 1e-5)
    assert np.array_equal(left[:-256], step.const)
    assert len({content for content, _ in seen}) == 1
    assert seen[-1][1] == {"off": "recording is off", "on": "played", "verify": "verified"}[record]
    assert np.array_equal(memory[:-256], step.const) and not memory[-256:].any()


def test_what_the_host_writes_to_a_lent_buffer_stays_in_it() -> None:
    memory = lendable(256)
    memory[:] = np.arange(256, dtype=np.uint8)
    memory.flags.writeable = False
    part = memory[64:192]
    device = core.device(0, "npu2")
    buffer = core.bo.lent(device, with_room_behind(part), 128)
    assert bytes(buffer.read()) == part.tobytes()
    mapped = buffer.map()
    mapped[0] = 9
    buffer.write(b"\x07\x07\x07\x07", 4)
    assert bytes(buffer.read(12)) == bytes([9, 65, 66, 67, 7, 7, 7, 7, 72, 73, 74, 75])
    assert np.array_equal(memory, np.arange(256, dtype=np.uint8))


def test_memory_that_cannot_be_lent_is_refused() -> None:
    device, memory = core.device(0, "npu2"), lendable(1024)
    with pytest.raises(od.InputError, match="64 behind"):
        xrt.bo.lent(device, memory[:256], 256)
    for data, size in ((memory[4:], 256), (memory, 30)):
        with pytest.raises(od.DeviceError, match="whole words, at 0"):
            xrt.bo.lent(device, data, size)
    parts = memory, memory[4:].view(np.uint32), np.zeros(256, np.uint8), np.frombuffer(bytes(256), np.uint8)
    assert [with_room_behind(part) for part in parts] == [None] * 4
