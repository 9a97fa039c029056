# SPDX-License-Identifier: Apache-2.0
"""Kernels in machine code that do what they must not: an error with kernel, tile and members; all goes on."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onedispatch import InputError, KernelError, SimulationError
from onedispatch.cpp_ext import _core
from onedispatch.operators.codegen.genheader import specs_header
from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations import kernel as declarations
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand, contiguous_strides
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import find_device
from onedispatch.transactions.base.host import kernel_seconds
from tests.ops.case import Array
from tests.ops.host import buffers_of, output_of, overlay_for, run_buffers
from tests.ops.libraries import compiled

DEVICE = find_device("npu2")
LIMIT = 0.5  # seconds
SHAPE = (4, 40)
WRONG = Kernel(
    "test::wrong@1",
    inputs=(Tensor("x", "..."),),
    outputs=(Tensor("y", "..."),),
    scalars=(Scalar("mode", "u32"),),
    cost=e.device("call_cycles") + e.ELEMENTS,
    code_bytes=512,
)
MODES = (
    "fine writes_input writes_behind writes_before writes_far reads_far null divides aborts throws "
    "throws_number loops sleeps locks garbage no_end recurses traps rounds prepare_loops "
    "prepare_throws prepare_crashes release_crashes check_throws"
).split()


class Wrong(Operator):
    """``WRONG`` over a matrix."""

    def __init__(self, mode: str, kernel: Kernel = WRONG) -> None:
        self.mode, self.kernel = mode, kernel
        x, y = (TensorSpec(name, np.dtype(np.float32), SHAPE) for name in "xy")
        super().__init__("wrong", [x], y, DEVICE)

    def nests(self) -> list[Nest]:
        lies = F32, SHAPE, contiguous_strides(SHAPE), tuple(Access(d) for d in range(2))
        operands = (Operand("x", 0, *lies),), (Operand("y", OUTPUT, *lies),)
        dims = tuple(Dim(f"d{i}", n) for i, n in enumerate(SHAPE))
        return [Nest(self.kernel, dims, *operands, scalars={"mode": MODES.index(self.mode)})]


def built(folder: Path, name: str) -> Path:
    """The library with its kernel called ``name``, as an author builds it: g++ and the headers."""
    symbol = name.partition("@")[0].replace("::", "_")
    (folder / f"{symbol}_specs.h").write_text(specs_header([replace(WRONG, name=name)], f"{symbol}_specs"))
    source = (Path(__file__).parent / "kernels" / "wrong.cpp").read_text()
    source = source.replace("test_wrong", symbol).replace("TEST_WRONG", symbol.upper())
    (folder / f"{symbol}.cpp").write_text(source.replace('"wrong_specs.h"', f'"{symbol}_specs.h"'))
    return compiled(folder / f"{symbol}.cpp", folder / f"lib{symbol}.so", "-w", f"-I{folder}")


def kernel_of(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = WRONG.name) -> Kernel:
    """The kernel, loaded and declared under ``name`` for the length of a test."""
    kernel = replace(WRONG, name=name)
    library = folder / f"lib{name.partition('@')[0].replace('::', '_')}.so"
    _core.load_kernel_library(str(library if library.exists() else built(folder, name)))
    monkeypatch.setitem(declarations._KERNELS, name, kernel)
    return kernel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wrong")


@pytest.fixture
def kernel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return kernel_of(folder, monkeypatch)


def executed(mode: str, kernel: Kernel) -> tuple[Array, Array]:
    """(x, y)"""
    op = Wrong(mode, kernel)
    x = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    after = run_buffers(DEVICE, op.transaction(), buffers_of(op, [x]), overlay_for(op), LIMIT)
    return x, output_of(op, after[0])


def goes_on(kernel: Kernel) -> None:
    x, y = executed("fine", kernel)
    np.testing.assert_array_equal(x, y)


def refused(mode: str, kernel: Kernel) -> KernelError:
    with pytest.raises(KernelError) as caught:
        executed(mode, kernel)
    error = caught.value
    assert isinstance(error, SimulationError) and kernel.name in str(error)
    assert re.fullmatch(r"c\d+ r\d+", error.tile)
    return error


# What it does -> the class of the error, and what is said beside kernel, tile and members.
OUTSIDE = {
    "writes_input": ("KernelAccessError", r"wrote outside .* at byte \+8 of input x"),
    "writes_behind": ("KernelAccessError", r"wrote outside .* byte \+0 behind the end of output y"),
    "writes_before": ("KernelAccessError", r"wrote outside .* (before the begin of output y|of input x)"),
    "writes_far": ("KernelAccessError", r"wrote beyond the core's memory, at byte \+\d+ behind the end of"),
    "reads_far": ("KernelAccessError", r"read beyond the core's memory, at byte -\d+ before the begin of"),
    "null": ("KernelCrashError", r"crashed \(SIGSEGV at address 0x0 .a null pointer.* of libtest_wrong"),
    "divides": ("KernelCrashError", r"crashed \(SIGFPE\)"),
    "aborts": ("KernelCrashError", r"aborted \(SIGABRT\)"),
    "recurses": ("KernelCrashError", r"crashed \(SIGSEGV at address"),
    "traps": ("KernelCrashError", r"crashed \(SIGILL\)"),
    "throws": ("KernelRuntimeFailureError", r"threw std::runtime_error: no such row"),
    "throws_number": ("KernelRuntimeFailureError", r"threw int"),
    "garbage": ("KernelRuntimeFailureError", r"function run returned 4711, which is no status"),
    "no_end": ("KernelParameterInvalidError", r"test::wrong@1: x{1024}; in member"),
}  # fmt: skip


@pytest.mark.parametrize("mode", OUTSIDE)
def test_what_a_body_must_not_do(kernel: Kernel, mode: str) -> None:
    name, said = OUTSIDE[mode]
    error = refused(mode, kernel)
    assert type(error).__name__ == name
    text = str(error)
    assert re.search(said, text), text
    assert re.search(r"in members? \[\d+, \d+\]", text), text
    goes_on(kernel)


def test_what_other_functions_must_not_do(kernel: Kernel) -> None:
    for mode, said in (
        ("prepare_throws", "prepare threw std::out_of_range: no such column"),
        ("prepare_crashes", "prepare crashed .SIGSEGV"),
        ("check_throws", "check threw std::length_error: too long"),
    ):
        assert said.replace(".SIGSEGV", "(SIGSEGV") in str(refused(mode, kernel))
        goes_on(kernel)
    executed("release_crashes", kernel)
    goes_on(kernel)


@pytest.mark.daily(2)
@pytest.mark.parametrize("mode", ["loops", "sleeps", "locks", "prepare_loops"])
def test_a_call_that_does_not_end(folder: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    kernel = kernel_of(folder, monkeypatch, f"test::wrong_{mode}@1")
    error = refused(mode, kernel)
    assert type(error).__name__ == "KernelTimeoutError" and "did not end within 0.5 seconds" in str(error)
    again = refused("fine", kernel)  # whatever it held, it may hold still
    assert "not called again in this process" in str(again) and "did not end" in str(again)
    goes_on(kernel_of(folder, monkeypatch))


def test_rounding_stays_the_thread_s_own(kernel: Kernel) -> None:
    before = np.float32(1) + np.float32(2**-24)
    executed("rounds", kernel)
    assert np.float32(1) + np.float32(2**-24) == before == 1


def test_others_go_on_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> None:
    looping = kernel_of(folder, monkeypatch, "test::wrong_beside@1")
    done: list[int] = []
    over = threading.Event()

    def others() -> None:
        while not over.is_set():
            goes_on(kernel)
            done.append(1)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        refused("loops", looping)
        for mode in ("null", "writes_far", "throws", "writes_behind"):
            refused(mode, kernel)
    finally:
        over.set()
        thread.join()
    assert done


def test_ctrl_c_ends_a_body(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(folder, monkeypatch, "test::wrong_interrupted@1")
    monkeypatch.setattr("tests.ops.test_guard.LIMIT", 60.0)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        executed("loops", kernel)
    goes_on(kernel)


def test_handlers_that_were_there_get_what_is_not_of_a_body(kernel: Kernel) -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGFPE, lambda number, frame: got.append(number))
    enabled = faulthandler.is_enabled()
    try:
        refused("divides", kernel)
        os.kill(os.getpid(), signal.SIGFPE)
        assert got == [signal.SIGFPE]
        assert faulthandler.is_enabled() == enabled
    finally:
        signal.signal(signal.SIGFPE, before)


# What runs when the object is loaded, or asked for its table -> what is said of the child that tried.
LOADED = {
    "crashes": ("static int s = *(volatile int*)nullptr;", "ended with Segmentation fault"),
    "aborts": (
        'static int s = (std::fputs("no licence", stderr), std::abort(), 1);',
        "Aborted; its last words: no licence",
    ),
    "throws": ("static int s = [] { throw 5; return 1; }();", "terminate called after throwing"),
    "exits": ("static int s = (_exit(3), 1);", "ended with exit code 3, without a word"),
    "loops": (
        "volatile bool on = true; static int s = [] { while (on) {} return 1; }();",
        "within 300 milliseconds",
    ),
    "table": ('extern "C" void* od_kernel_library() { throw 5; }', "terminate called after throwing"),
    "nowhere": ('extern "C" void* od_kernel_library() { return (void*)0x1234; }', "ended with Segmentation"),
}


@pytest.mark.parametrize("case", LOADED)
def test_an_object_that_does_not_survive_its_loading(tmp_path: Path, case: str) -> None:
    source, said = LOADED[case]
    (tmp_path / "load.cpp").write_text(
        f"#include <cstdio>\n#include <cstdlib>\n#include <unistd.h>\n{source}\n"
    )
    library = tmp_path / "libload.so"
    command = ["g++", "-w", "-fPIC", "-shared", str(tmp_path / "load.cpp"), "-o", str(library)]
    subprocess.run(command, check=True)
    with pytest.raises(KernelError, match=r"libload\.so: a process that loaded it") as caught:
        _core.load_kernel_library(str(library), 0.3)
    assert said in str(caught.value)


def test_how_long_a_call_may_take_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_seconds() == 60 and kernel_seconds(2) == 2
    monkeypatch.setenv("ONEDISPATCH_KERNEL_SECONDS", "1.5")
    assert kernel_seconds() == 1.5
    for wrong in ("soon", -1, 0, float("nan"), True, 1e9):
        with pytest.raises(InputError, match="a number of seconds"):
            kernel_seconds(wrong)
    monkeypatch.setenv("ONEDISPATCH_KERNEL_SECONDS", "soon")
    with pytest.raises(InputError, match="ONEDISPATCH_KERNEL_SECONDS"):
        kernel_seconds()
