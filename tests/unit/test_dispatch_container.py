# SPDX-License-Identifier: Apache-2.0
"""The file of a compiled model: whole or refused."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import msgpack
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onedispatch.dispatch import container
from onedispatch.dispatch.model import compile_model, load
from onedispatch.transactions.errors import CompiledModelError, InputError

Make = Callable[..., onnx.ModelProto]


def small(batch: int | str = 2) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Det", ["s"], ["unused"])]
    nodes = [nodes[0], helper.make_node("Relu", ["a"], ["y"])]
    w = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    graph = helper.make_graph(nodes, "small", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "m.od"
    compile_model(small()).save(path)
    return path.read_bytes()


def test_round_trip(tmp_path: Path) -> None:
    first = compile_model(small(), device="npu1")
    first.save(tmp_path / "m.od")
    again = load(tmp_path / "m.od")
    assert again.transaction == first.transaction
    assert again.placement == first.placement
    assert (again.device, again.inputs, again.outputs) == ("npu1", first.inputs, first.outputs)
    ((key, one),), ((other_key, two),) = first.programs.items(), again.programs.items()
    assert key == other_key
    np.testing.assert_array_equal(one.device_steps[0].const, two.device_steps[0].const)
    assert one.device_steps[0].params == two.device_steps[0].params
    assert one.device_steps[0].inputs == two.device_steps[0].inputs
    assert one.device_steps[0].ops == two.device_steps[0].ops


def test_open_dimensions_take_their_graph_along(tmp_path: Path) -> None:
    compile_model(small("N")).save(tmp_path / "m.od")
    again = load(tmp_path / "m.od")
    assert not again.programs
    _, program = again.program({"x": (5, 4)}, {})
    assert program.outputs[0].shape in ((5, 3), ("N", 3))
    assert [p.device for p in program.placement] == ["npu", "npu"]


def test_a_static_model_refuses_other_shapes(tmp_path: Path) -> None:
    compile_model(small()).save(tmp_path / "m.od")
    with pytest.raises(InputError, match="Compile it again"):
        load(tmp_path / "m.od").program({"x": (5, 4)}, {})


def test_loading_needs_neither_onnx_nor_onnxruntime(tmp_path: Path) -> None:
    compile_model(small()).save(tmp_path / "m.od")
    code = (
        "import sys, onedispatch as od; m = od.load(sys.argv[1]); od.InferenceSession(m); "
        "assert m.transaction; bad = {'onnx', 'onnxruntime'} & set(sys.modules); assert not bad, bad"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.od")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_truncation_at_every_place_is_an_error(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.od"
    for size in [*range(64), *range(64, len(saved), max(1, len(saved) // 50))]:
        path.write_bytes(saved[:size])
        with pytest.raises(CompiledModelError):
            load(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**9), st.integers(1, 255))
def test_one_changed_byte_is_an_error(saved: bytes, tmp_path: Path, at: int, change: int) -> None:
    data = bytearray(saved)
    data[at % len(data)] ^= change
    (tmp_path / "flip.od").write_bytes(data)
    with pytest.raises(CompiledModelError):
        load(tmp_path / "flip.od")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_valid_frame_with_nonsense_inside_is_an_error(
    saved: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    """Whoever can compute a CRC can also write anything below it."""
    length = struct.unpack_from("<Q", saved, 24)[0]
    plain = msgpack.unpackb(saved[32 : 32 + length])
    key = data.draw(st.sampled_from(sorted(plain)))
    plain[key] = data.draw(st.sampled_from([None, -1, "x", [], {}, [[1]], [["k", {}]], {"a": 1}]))
    text = msgpack.packb(plain)
    base = -(-(32 + len(text)) // 64) * 64
    old = -(-(32 + length) // 64) * 64
    body = text + bytes(base - 32 - len(text)) + saved[old:]
    tail = struct.pack("<QQ", 32 + len(body), len(text)) + body
    (tmp_path / "odd.od").write_bytes(
        container.MAGIC + struct.pack("<II", container.VERSION, zlib.crc32(tail)) + tail
    )
    with contextlib.suppress(CompiledModelError):
        load(tmp_path / "odd.od")


def test_foreign_files_and_versions(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.od"
    for data, text in (
        (b"", "starts with"),
        (small().SerializeToString(), "starts with"),
        (saved[:8] + b"\x07\x00\x00\x00" + saved[12:], "version 7"),
    ):
        path.write_bytes(data)
        with pytest.raises(CompiledModelError, match=text):
            load(path)
    with pytest.raises(CompiledModelError):
        load(tmp_path / "absent.od")
    with pytest.raises(CompiledModelError):
        compile_model(small()).save(tmp_path / "no" / "such" / "folder.od")


@pytest.mark.parametrize("key", [b"\x91\x01", b"\x80", b"\x01", b"\xc0"], ids=["list", "map", "int", "nil"])
def test_a_description_with_keys_that_are_no_text(saved: bytes, tmp_path: Path, key: bytes) -> None:
    text = b"\x81" + key + b"\x01"
    body = text + bytes(64 - 32 - len(text))
    tail = struct.pack("<QQ", 32 + len(body), len(text)) + body
    path = tmp_path / "odd.od"
    path.write_bytes(container.MAGIC + struct.pack("<II", container.VERSION, zlib.crc32(tail)) + tail)
    with pytest.raises(CompiledModelError):
        load(path)
