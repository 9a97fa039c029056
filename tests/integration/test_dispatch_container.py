# SPDX-License-Identifier: Apache-2.0
"""The file of a compiled model: whole or refused."""

from __future__ import annotations

import operator
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import reduce
from io import BytesIO
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import onnx
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onedispatch.dispatch.artifact.container import MAGIC, VERSION, Reader, joined, parted
from onedispatch.dispatch.artifact.frames import FRAME
from onedispatch.dispatch.artifact.loading import load
from onedispatch.dispatch.driver.compile_model import compile_model
from onedispatch.dispatch.driver.executable_cache import ExecutableCache
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.transactions.base.errors import CompiledModelError, InputError
from tests.host_nodes import on_host


def small(batch: int | str = 2) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
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
    ((key, one),), ((other_key, two),) = first.executables.items(), again.executables.items()
    assert key == other_key
    np.testing.assert_array_equal(one.device_steps[0].const, two.device_steps[0].const)
    assert one.device_steps[0].params == two.device_steps[0].params
    assert one.device_steps[0].inputs == two.device_steps[0].inputs
    assert one.device_steps[0].ops == two.device_steps[0].ops


def test_open_dimensions_take_their_graph_along(tmp_path: Path) -> None:
    compile_model(small("N")).save(tmp_path / "m.od")
    again = load(tmp_path / "m.od")
    assert not again.executables
    _, executable, _ = ExecutableCache(again).executable({"x": (5, 4)}, {})
    assert executable.outputs[0].shape in ((5, 3), ("N", 3))
    assert [p.device for p in executable.placement] == ["npu", "npu"]


def test_a_static_model_refuses_other_shapes(tmp_path: Path) -> None:
    compile_model(small()).save(tmp_path / "m.od")
    with pytest.raises(InputError, match="Compile it again"):
        ExecutableCache(load(tmp_path / "m.od")).executable({"x": (5, 4)}, {})


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


def mixed_model() -> onnx.ModelProto:
    """Device, host, device."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in ("x", "y")]
    ends_of = helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["b"], ["y"])
    nodes = [ends_of[0], *on_host("a", "b"), ends_of[1]]
    graph = helper.make_graph(nodes, "mixed", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("mixed") / "m.od"
    compile_model(mixed_model()).save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A graph, and an executable whose constants are copies of the graph's."""
    path = tmp_path_factory.mktemp("laid_out") / "m.od"
    compile_model(small("N"), shapes={"x": (2, 4)}).save(path)
    return path.read_bytes()


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_a_model_is_the_same_file_in_every_process(
    mixed: bytes, tmp_path: Path, repository: Path, seed: str
) -> None:
    here = "tests.integration.test_dispatch_container"
    code = f"from {here} import *; compile_model(mixed_model()).save(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.od")],
        env={
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join([str(repository), *sys.path]),
        },
        check=True,
        timeout=120,
    )
    assert (tmp_path / "m.od").read_bytes() == mixed


ODD = [None, -1, 1 << 40, (1 << 64) - 1, "x", "", [], {}, [[1]], b"abc", 1.5, True, [None]]


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a description but the whole of it."""
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield (*path, key)
        yield from places(tree[key], (*path, key))


@pytest.mark.parametrize("file", ["mixed", "laid_out"])
def test_a_valid_frame_with_any_value_exchanged_is_refused_or_runs(
    file: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With a right CRC anything may be written below it."""
    text, blobs = parted(request.getfixturevalue(file))
    path, refused, ran = tmp_path / "odd.od", 0, 0
    for index, place in enumerate(places(msgpack.unpackb(text))):
        tree = msgpack.unpackb(text)
        holder = reduce(operator.getitem, place[:-1], tree)
        holder[place[-1]] = ODD[index % len(ODD)]
        path.write_bytes(joined(msgpack.packb(tree), blobs))
        try:
            model = load(path)
        except CompiledModelError as error:
            assert str(path) in str(error)
            refused += 1
            continue
        session = InferenceSession(model)
        assert isinstance(session.placement, list)
        session.run(None, {"x": np.ones((2, 4), np.float32)})
        ran += 1
    assert refused > 100 and ran > 5, "names that nothing refers to are harmless, all else is not"


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "source": (lambda p: p.update(sources=["nobody"]), "'nobody'"),
    "no source": (lambda p: p.update(sources=[]), "0 sources"),
    "other source": (lambda p: p.update(sources=["x", "y"]), "2 sources"),
    "order": (lambda p: p["steps"].reverse(), "step 0"),
    "missing step": (lambda p: p["steps"].pop(1), "step 1"),
    "host input": (lambda p: p["steps"][1].update(inputs=[]), "which nothing defines"),
    "host output": (lambda p: p["steps"][1].update(outputs=["z"]), "'z'"),
    "host node": (lambda p: p["steps"][1]["graph"]["nodes"][0].__setitem__(1, b"abc"), "damaged node"),
    "host opset": (lambda p: p["steps"][1]["graph"]["opsets"].update({"": 99}), "99"),
    "host nodes twice": (lambda p: p["steps"][1]["graph"]["nodes"].extend(
        p["steps"][1]["graph"]["nodes"]), "once"),
    "host type": (lambda p: p["steps"][1]["graph"]["values"][0].__setitem__(1, "tensor(x)"), "ONNX has"),
    "host rank": (lambda p: p["steps"][1]["graph"]["values"][0].__setitem__(2, [None]), "input 'a'"),
    "slot dtype": (lambda p: p["steps"][0]["inputs"][0].__setitem__(1, "tensor(int32)"), "int32"),
    "slot shape": (lambda p: p["steps"][0]["inputs"][0].__setitem__(2, [2, 3]), r"\[2, 3\]"),
    "slot offset": (lambda p: p["steps"][0]["outputs"][0].__setitem__(3, 1 << 20), "within"),
    "slot pitch": (lambda p: p["steps"][0]["outputs"][0].__setitem__(4, 3), "rows of 4"),
    "negative": (lambda p: p["steps"][0]["inputs"][0].__setitem__(2, [-2, -4]), "whole number"),
    "const": (lambda p: p["steps"][0]["sizes"].__setitem__(3, 4), "constants"),
    "blob": (lambda p: p["steps"][0].update(transaction=99), "blob 99"),
    "placement": (lambda p: p["placement"][0].__setitem__(2, "gpu"), "npu, cpu or folded"),
    "shape": (lambda p: p["inputs"][0].__setitem__(2, [2, 5]), "known shape"),
}  # fmt: skip


def copies_of(executable: dict[str, Any]) -> list[Any]:
    found: list[Any] = executable["steps"][0]["const_copies"]
    assert found
    return found


COPIES_DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "name": (lambda p: copies_of(p)[0].__setitem__(0, "other"), "no such constant"),
    "source": (lambda p: copies_of(p)[0].__setitem__(2, 1 << 40), "inside 48 bytes"),
    "target": (lambda p: copies_of(p)[0].__setitem__(3, 1 << 40), "inside 48 bytes"),
    "negative": (lambda p: copies_of(p)[0][4][0].__setitem__(1, -4), "whole number"),
    "itemsize": (lambda p: copies_of(p)[0].__setitem__(1, 3), "1, 2, 4 or 8"),
    "times": (lambda p: copies_of(p)[0][4][0].__setitem__(0, 1 << 50), "each byte once"),
    "dimensions": (lambda p: copies_of(p)[0].__setitem__(4, [[1, 0, 0]] * 99), "at most 24"),
    "twice": (lambda p: copies_of(p).extend(copies_of(p) * 9), "each byte once"),
    "factors": (lambda p: copies_of(p)[0].__setitem__(5, p["steps"][0]["transaction"]), "factor|size|dtype"),
    "own": (lambda p: copies_of(p)[0].__setitem__(6, 99), "blob 99"),
    "part": (lambda p: p["steps"][0]["const_parts"].append([0, 64]), "the bytes that are stored"),
    "size": (lambda p: p["steps"][0]["sizes"].__setitem__(3, 1 << 33), "the most"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "name"), [("laid_out", n) for n in COPIES_DAMAGE] + [("mixed", n) for n in DAMAGE]
)
def test_parts_that_do_not_fit_each_other(
    file: str, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    change, said = {"laid_out": COPIES_DAMAGE, "mixed": DAMAGE}[file][name]
    text, blobs = parted(request.getfixturevalue(file))
    tree = msgpack.unpackb(text)
    change(tree["executables"][0][1])
    (tmp_path / "odd.od").write_bytes(joined(msgpack.packb(tree), blobs))
    with pytest.raises(CompiledModelError, match=said):
        load(tmp_path / "odd.od")


def test_foreign_files_and_versions(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.od"
    for data, text in (
        (b"", "starts with"),
        (small().SerializeToString(), "starts with"),
        (saved[:8] + b"\x06\x00\x00\x00" + saved[12:], f"version 6; accepted: version {VERSION}"),
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
    path = tmp_path / "odd.od"
    path.write_bytes(joined(b"\x81" + key + b"\x01", b""))
    with pytest.raises(CompiledModelError):
        load(path)


COPIES = 1 << 11  # of a frame, 2 GiB


def bomb(text: bytes) -> bytes:
    """A small file of a description, a frame of zeros, and thousands of copies of it; its checksum fits."""
    start, end = text.ljust(-(-len(text) // 64) * 64, b"\0"), (COPIES + 1) * FRAME
    packed = zstandard.compress(bytes(FRAME))
    head = struct.pack("<8sIIQ", MAGIC, VERSION, len(text), len(start) + end)
    first = struct.pack("<II", len(start), len(start)) + start
    frame = struct.pack("<II", FRAME, len(packed)) + packed
    data = head + first + frame + struct.pack("<IIQ", FRAME, 0, len(start)) * COPIES + bytes(8)
    return data + struct.pack("<I", zlib.crc32(data))


TABLES: dict[str, tuple[bytes, str]] = {
    "no description": (bytes(100), "not msgpack"),
    "no table": (msgpack.packb({}), "blobs"),
    "no blobs": (msgpack.packb({"blobs": []}), "of which the description lists 0"),
    "one blob": (msgpack.packb({"blobs": [(0, 64)]}), "the description lists 64"),
    "beyond": (msgpack.packb({"blobs": [(0, 1 << 40)]}), "blob 0 at 0 with"),
    "one in the other": (msgpack.packb({"blobs": [(0, FRAME), (0, FRAME)]}), "blob 1 at 0 with 1,048,576"),
    "apart": (msgpack.packb({"blobs": [(0, 64), (COPIES * FRAME, FRAME)]}), f"blob 1 at {COPIES * FRAME}"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_small_file_that_unpacks_to_gigabytes_is_refused_unread(name: str) -> None:
    text, told = TABLES[name]
    data = bomb(text)
    file = BytesIO(data)
    with pytest.raises(CompiledModelError, match=told):
        Reader(file, len(data), "bomb.od")
    assert file.tell() < 200 and len(data) > 16 * COPIES
