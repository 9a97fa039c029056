# SPDX-License-Identifier: Apache-2.0
"""The XRT-shaped API under hostile use: typed errors, never a crash."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onedispatch as od
from onedispatch import xrt
from onedispatch.operators.emission.overlay import overlay_transaction
from tests.outcomes import refused_or_taken

CLASSES = {name: thing for name in xrt.__all__ if isinstance(thing := getattr(xrt, name), type)}
BOUND = {name: cls for name, cls in CLASSES.items() if not hasattr(cls, "__members__")}  # all but enums
BOUND["xclbinkernel"] = xrt.xclbin.xclbinkernel
ODD: list[Any] = [
    None, -1, 1 << 63, 1 << 64, 1 << 70, 1.5, float("nan"), "", "npu9", "a\0b", b"", b"abc", [], {}, len,
    object(), np.int64(-1), np.float32(1), np.zeros((2, 2)), np.array("a"), memoryview(b"abcd"), xrt.bo,
    Ellipsis,
]  # fmt: skip


def methods(cls: type) -> Iterator[str]:
    for name, member in vars(cls).items():
        if (
            (name == "__call__" or not name.startswith("_"))
            and callable(member)
            and not isinstance(member, type)
        ):
            yield name


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    device = xrt.device(0, "npu2_1col")
    overlay = overlay_transaction(od.transactions.find_device("npu2_1col"))
    binary = xrt.xclbin(od.transactions.Xclbin("npu2_1col", {0: overlay}).to_bytes())
    device.register_xclbin(binary)
    context = xrt.hw_context(device, binary.get_uuid())
    kernel = xrt.kernel(context, binary.get_kernels()[0].get_name())
    return {
        "device": device,
        "xclbin": binary,
        "uuid": binary.get_uuid(),
        "hw_context": context,
        "kernel": kernel,
        "run": xrt.run(kernel),
        "runlist": xrt.runlist(context),
        "bo": xrt.bo(device, 64, xrt.bo.host_only, 0),
        "xclbinkernel": binary.get_kernels()[0],
    }


@pytest.mark.parametrize("name", BOUND)
def test_an_object_that_was_never_constructed_is_refused(name: str) -> None:
    """``run.__new__(run).wait()`` read memory that was not written."""
    cls = BOUND[name]
    ghost = cls.__new__(cls)
    for method in methods(cls):
        for args in ((), (1,), (1, 2)):
            with pytest.raises(od.InputError):
                getattr(ghost, method)(*args)
    for attribute in (n for n, m in vars(cls).items() if isinstance(m, property)):
        with pytest.raises(od.OneDispatchError):
            getattr(ghost, attribute)


# In a process of its own, which a mistake ends. A ghost is an object of a class of C++ without ``__init__``.
GHOSTS = """
import copy, inspect, pickle
from onedispatch import xrt
from onedispatch.cpp_ext import _core
from onedispatch.transactions.format import _native

def classes(holder, seen):
    for name, one in inspect.getmembers(holder, inspect.isclass):
        made_by_cpp = type(one).__name__ == "pybind11_type" and not one.__name__.startswith("pybind11_")
        if made_by_cpp and one not in seen:
            seen.append(one)
            classes(one, seen)
    return seen

DEEDS = (memoryview, bytes, bytearray, len, int, float, complex, bool, iter, hash, repr, str, list, dir, vars,
         copy.copy, copy.deepcopy, pickle.dumps, abs, lambda o: o == o, lambda o: o != 1, lambda o: o < o,
         lambda o: o[0], lambda o: o(), lambda o: o(1), lambda o: o | 1, lambda o: 1 & o, lambda o: ~o)
found = classes(_core, classes(_native, classes(xrt, [])))
for cls in found:
    def refused(deed):
        try:
            deed(cls.__new__(cls))
        except Exception as error:
            return type(error).__name__
    for deed in DEEDS:
        refused(deed)
    assert refused(memoryview) == "TypeError", cls
    for name in dir(cls):
        if name in ("__new__", "__class__", "__init__", "__init_subclass__", "__subclasshook__"):
            continue
        for given in ((), (1,), (1, 2), (cls.__new__(cls),), ("a", "b", "c"), ([0], "x", [])):
            refused(lambda ghost: getattr(ghost, name)(*given))
    print(cls.__name__)
"""


def test_no_class_of_cpp_ends_the_process_with_what_was_never_constructed() -> None:
    done = subprocess.run([sys.executable, "-c", GHOSTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"bo", "flags", "KernelHost", "ert_cmd_state", "xclbinkernel"} <= set(done.stdout.split())


@pytest.mark.parametrize("name", BOUND)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_parts_of_this_process_cannot_be_pickled(objects: dict[str, Any], name: str, protocol: int) -> None:
    with pytest.raises(TypeError, match=f"cannot pickle .*{name}"):
        pickle.dumps(objects[name], protocol)
    for enum in (xrt.ert_cmd_state.ERT_CMD_STATE_COMPLETED, xrt.bo.host_only):
        assert pickle.loads(pickle.dumps(enum, protocol)) == enum


def test_a_buffer_of_a_class_of_ones_own() -> None:
    class Mine(xrt.bo):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

    with pytest.raises(TypeError, match="__init__"):
        Mine()
    with pytest.raises(TypeError, match="whose __init__ never ran"):
        memoryview(Mine.__new__(Mine))
    assert len(memoryview(xrt.bo(xrt.device(0, "npu2_1col"), 64, xrt.bo.host_only, 0))) == 64


def test_ghosts_as_arguments(objects: dict[str, Any]) -> None:
    ghosts = {name: cls.__new__(cls) for name, cls in BOUND.items()}
    for call in (
        lambda: xrt.run(ghosts["kernel"]),
        lambda: xrt.kernel(ghosts["hw_context"], "MLIR_AIE"),
        lambda: xrt.hw_context(ghosts["device"], ghosts["uuid"]),
        lambda: xrt.bo(ghosts["device"], 64),
        lambda: xrt.bo(ghosts["bo"], 64, 0),
        lambda: xrt.runlist(ghosts["hw_context"]),
        lambda: objects["device"].register_xclbin(ghosts["xclbin"]),
        lambda: objects["runlist"].add(ghosts["run"]),
        lambda: objects["kernel"](3, ghosts["bo"], 0),
        lambda: objects["run"].set_arg(0, ghosts["bo"]),
    ):
        with pytest.raises(od.InputError):
            call()


@pytest.mark.parametrize("name", BOUND)
def test_odd_arguments(name: str, objects: dict[str, Any]) -> None:
    for odd in ODD:
        for count in range(4):
            refused_or_taken(partial(BOUND[name], *[odd] * count))
    one = objects[name]
    for method in methods(BOUND[name]):
        if method in ("wait", "wait2", "start", "execute", "set_event_limit", "set_threads"):
            continue  # of a run without arguments: they have tests of their own
        for odd in ODD:
            for args in ((odd,), (odd, odd), (0, odd), (odd, 0)):
                refused_or_taken(partial(getattr(one, method), *args))


def test_sizes_and_numbers(objects: dict[str, Any], tmp_path: Path) -> None:
    device = objects["device"]
    for size in (0, -1, 1 << 41, 1 << 64):
        with pytest.raises((od.InputError, od.DeviceError)):
            xrt.bo(device, size)
    buffer = xrt.bo(device, np.int64(64), np.uint32(xrt.bo.host_only), np.int32(0))
    assert buffer.size() == 64
    part = xrt.bo(buffer, np.int32(16), np.uint8(4))
    assert part.size() == 16
    buffer.write(b"abcd", np.int64(8))
    assert bytes(part.read(np.int16(4), np.int16(4))) == b"abcd"
    objects["run"].set_arg(np.int64(2), np.uint32(7))
    for path in (tmp_path, tmp_path / "absent", ""):
        with pytest.raises(od.OneDispatchError) as caught:
            xrt.xclbin(path)
        assert not isinstance(caught.value, od.InternalError)


def test_what_is_told_of_a_wrong_call(objects: dict[str, Any]) -> None:
    with pytest.raises(od.InputError, match=r"bo.sync: given .*'up'.*accepted: sync\(") as caught:
        objects["bo"].sync("up")
    assert isinstance(caught.value.__cause__, TypeError)
    assert inspect.isfunction(xrt.bo.sync)
