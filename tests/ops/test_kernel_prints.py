# SPDX-License-Identifier: Apache-2.0
"""What a kernel behind the plain interface prints: by core and member, in order, in bounded room, charged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onedispatch import DeviceError, SimulationError, xrt
from onedispatch.cpp_ext import _core
from onedispatch.operators.codegen.genheader import specs_header
from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations import kernel as declarations
from onedispatch.operators.declarations.kernel import Kernel, KernelDeclarationError, Scalar, Tensor
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand, contiguous_strides
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Xclbin, find_device
from tests.ops.host import FIRST_BUFFER, OPCODE, buffers_of, overlay_for
from tests.ops.libraries import UNUSED, compiled

DEVICE = find_device("npu2")
SHAPE = (2, 3, 4, 40, 64)
SPEAK = Kernel(
    "test::speak@1",
    inputs=(Tensor("x", "..."),),
    outputs=(Tensor("y", "..."),),
    scalars=(Scalar("lines"), Scalar("fails", high=1)),
    cost=e.device("call_cycles") + e.ELEMENTS,
    code_bytes=512,
    prints="yes",
)
ONE, MUTE = (
    replace(SPEAK, name="test::speak_one@1", prints="one"),
    replace(SPEAK, name="test::mute@1", prints="no"),
)
RING = _core.PRINT_BYTES


class Speak(Operator):
    """``SPEAK`` over a box."""

    def __init__(
        self, shape: tuple[int, ...] = SHAPE, lines: int = 0, fails: int = 0, kernel: Kernel = SPEAK
    ):
        x, y = (TensorSpec(name, np.dtype(np.float32), shape) for name in "xy")
        self.scalars, self.kernel = {"lines": lines, "fails": fails}, kernel
        super().__init__("speak", [x], y, DEVICE)

    def nests(self) -> list[Nest]:
        shape = self.output.shape
        lies = F32, shape, contiguous_strides(shape)
        along = tuple(Access(d) for d in range(5))
        operands = (Operand("x", 0, *lies, along),), (Operand("y", OUTPUT, *lies, along),)
        dims = tuple(Dim(f"d{i}", n) for i, n in enumerate(shape))
        return [Nest(self.kernel, dims, *operands, scalars=self.scalars)]


@pytest.fixture(scope="module", autouse=True)
def library(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every kernel of this file, from one source each."""
    source = (Path(__file__).parent / "kernels" / "speak.cpp").read_text()
    for kernel in (SPEAK, ONE, MUTE):
        folder = tmp_path_factory.mktemp(kernel.short_name)
        symbol = f"test_{kernel.short_name}"
        (folder / "speak_specs.h").write_text(specs_header([kernel], "speak_specs"))
        text = source.replace("test_speak", symbol).replace("TEST_SPEAK", symbol.upper())
        (folder / "speak.cpp").write_text(text)
        target = compiled(
            folder / "speak.cpp", folder / "libspeak.so", *UNUSED, "-Wno-unused-variable", f"-I{folder}"
        )
        _core.load_kernel_library(str(target))


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for kernel in (SPEAK, ONE, MUTE):
        monkeypatch.setitem(declarations._KERNELS, kernel.name, kernel)
    yield


class Ran:
    """One run of an operator: cycles, what was printed, what went wrong."""

    def __init__(self, op: Operator, threads: int = 0, print_bytes: int | None = None) -> None:
        npu = xrt.device.from_description(op.device.description())
        npu.set_threads(threads)
        if print_bytes is not None:
            npu.set_print_bytes(print_bytes)
        binary = xrt.xclbin(Xclbin(op.device.name, {0: overlay_for(op)}).to_bytes())
        npu.register_xclbin(binary)
        kernel = xrt.kernel(xrt.hw_context(npu, binary.get_uuid()), binary.get_kernels()[0].get_name())
        transaction = op.transaction()
        code = xrt.bo(npu, len(transaction), xrt.bo.cacheable, kernel.group_id(1))
        code.write(transaction, 0)
        x = np.random.default_rng(3).standard_normal(op.output.shape).astype(np.float32)
        held = []
        for data in buffers_of(op, [x]):
            held.append(xrt.bo(npu, len(data), xrt.bo.host_only, kernel.group_id(FIRST_BUFFER)))
            held[-1].write(data, 0)
        run = kernel(OPCODE, code, len(transaction), *held)
        self.error: SimulationError | None = None
        try:
            run.wait()
        except SimulationError as error:
            self.error = error
        self.cycles = run.report().get("cycles", 0)
        self.prints: list[Any] = run.prints()
        self.x = x

    @property
    def texts(self) -> list[str]:
        return [text for *_, (_, _, lines) in self.prints for _, text in lines]


def test_lines_come_by_core_and_name_their_members() -> None:
    ran = Ran(Speak(lines=3))
    cores = [(column, row) for column, row, *_ in ran.prints]
    assert len(cores) > 1 and cores == sorted(set(cores))
    said, third = 0, []
    for _, row, since, (kernel, lost, lines) in ran.prints:
        assert (kernel, since, lost) == (SPEAK.name, -1, 0) and row >= 2
        for member, text in lines:
            assert len(member) == 5
            if not text.startswith("tile of"):
                number = int(text.split()[1])
                third += [member[4]] if number == 2 else []
                assert text == f"line {number} of 3"
                continue
            value = ran.x[member].item()
            formats = "%bf %hf %f %hhd %hu %x %s %5.1f%%"
            values = [value, value, value, -1, 65535, 255, "text", 12.25]
            elements = int(text.split()[2].rstrip(":"))
            assert text == f"tile of {elements}: " + _core.format_print(formats, values)
            said += elements
    assert said >= np.prod(SHAPE)  # tiles at the edge are shifted back
    assert min(third) == 2


def test_order_and_lines_do_not_depend_on_threads() -> None:
    op = Speak(lines=5)
    first = Ran(op, threads=1)
    for threads in (2, 7):
        again = Ran(op, threads=threads)
        assert again.prints == first.prints and again.cycles == first.cycles


def test_the_newest_lines_stay_and_the_others_are_counted() -> None:
    whole = Ran(Speak(lines=40))
    small = Ran(Speak(lines=40), print_bytes=500)
    for all_of_it, kept in zip(whole.prints, small.prints, strict=True):
        (_, lost, lines), (_, none, every) = kept[-1], all_of_it[-1]
        assert all_of_it[:3] == kept[:3] and none == 0
        assert lost > 0 and lines == every[lost:]
        assert sum(len(text) + 1 for _, text in lines) <= 500
    (long,) = Ran(Speak((1, 1, 1, 1, 2)), print_bytes=20).texts
    assert len(long) == 19 and long.endswith("...")
    assert Ran(Speak(), print_bytes=0).prints == []


def test_printing_is_charged_by_the_ring_and_not_by_values() -> None:
    """All of the ring leaves each core, once per operation: on the way out of the last tile."""
    shape = (1, 1, 1, 1, 64)
    per_byte = DEVICE.constant("kernel.print_byte_cycles")
    free = Ran(Speak(shape), print_bytes=0).cycles
    half, full = (Ran(Speak(shape), print_bytes=nbytes).cycles for nbytes in (RING // 2, RING))
    assert full - half == per_byte * RING / 2
    assert free < half - per_byte * RING / 4  # less what goes on beside it
    assert Ran(Speak(shape, lines=30)).cycles == full


def test_what_was_printed_before_a_failure_is_there() -> None:
    ran = Ran(Speak(fails=1, lines=1), threads=1)
    assert ran.error is not None and "it was told to fail" in str(ran.error)
    assert ran.texts[0].startswith("tile of") and ran.texts[1].startswith("line 0")


def test_kernels_that_do_not_say_so_print_nothing() -> None:
    error = Ran(Speak(kernel=MUTE)).error
    assert error is not None and "test::mute@1 prints, and its declaration does not say so" in str(error)


def test_one_value_per_line_where_the_kernel_wants_that() -> None:
    ran = Ran(Speak(kernel=ONE))
    assert ran.error is not None and "prints 9 values in a line; accepted: at most one" in str(ran.error)


def test_declarations_of_printing() -> None:
    with pytest.raises(KernelDeclarationError, match="prints: given 'often'; accepted: 'no', 'yes', 'one'"):
        replace(SPEAK, prints="often")  # type: ignore[arg-type]
    assert SPEAK.digest == replace(SPEAK, prints="no").digest


def test_rings_have_bounds() -> None:
    npu = xrt.device("npu2")
    with pytest.raises(DeviceError, match="set_print_bytes"):
        npu.set_print_bytes(_core.MOST_PRINT_BYTES + 1)
    with pytest.raises(DeviceError, match="set_trace"):
        npu.set_trace(True, _core.MOST_TRACED_CALLS + 1)
