# SPDX-License-Identifier: Apache-2.0
"""A kernel library in plain C, built against the headers and run on the simulated array.

Its kernel asks for what ours do not: five inputs, two outputs, an auxiliary tensor, 32 scalars, scratch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onedispatch import KernelLibraryError, OneDispatchError, SimulationError
from onedispatch.cpp_ext import _core
from onedispatch.operators.codegen.genheader import specs_header
from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations import kernel as declarations
from onedispatch.operators.declarations.functions import ACTIVATIONS
from onedispatch.operators.declarations.kernel import MAX_CYCLES, Kernel, Scalar, Tensor, chooses
from onedispatch.operators.declarations.params import HEADER
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.operators.declarations.statuses import STATUSES, error_class
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.emission.context import context
from onedispatch.operators.emission.image import Image, merged
from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand, contiguous_strides
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import ArgKind, Device, find_device
from onedispatch.transactions.analysis.check import check_bytes
from onedispatch.transactions.machine import registers as reg
from tests.devices import device_of
from tests.ops import libraries
from tests.ops.case import Array
from tests.ops.host import buffers_of, overlay_for, run_buffers

SHAPE = (3, 4, 5, 6, 14)
BLEND = Kernel(
    "test::blend@1",
    inputs=tuple(Tensor(f"x{i}", "...", walk="affine") for i in range(5)),
    aux=(Tensor("table", "*entries", shape=(16,), values=lambda scalars: np.arange(16) * scalars["w31"]),),
    outputs=(Tensor("total", "...", walk="affine"), Tensor("spread", "...", walk="affine")),
    scalars=tuple(Scalar(f"w{i}", "f32", default=0.0) for i in range(32)),
    scratch=4 * e.ELEMENTS,
    code_bytes=2048,
    cost=e.device("call_cycles") + 8 * e.ELEMENTS,
)
DEVICE = find_device("npu2")


class Blend(Operator):
    """``BLEND`` over a box; input i lies with its dimensions turned by i."""

    def __init__(
        self,
        shape: Sequence[int],
        weights: Sequence[float],
        device: Device = DEVICE,
        kernel: Kernel = BLEND,
    ) -> None:
        self.shape, self.weights, self.kernel = tuple(shape), tuple(weights), kernel
        specs = [TensorSpec(f"x{i}", np.dtype(np.float32), self.turned(i)) for i in range(5)]
        first, second = (TensorSpec(name, np.dtype(np.float32), self.shape) for name in ("total", "spread"))
        super().__init__("blend", specs, first, device, further_outputs=[second])

    def turned(self, i: int) -> tuple[int, ...]:
        return self.shape[i:] + self.shape[:i]

    def nests(self) -> list[Nest]:
        def operand(name: str, tensor: int, turn: int) -> Operand:
            sizes = self.turned(turn)
            access = tuple(Access((d + turn) % 5) for d in range(5))
            return Operand(name, tensor, F32, sizes, contiguous_strides(sizes), access)

        inputs = tuple(operand(f"x{i}", i, i) for i in range(5))
        outputs = (operand("total", OUTPUT, 0), operand("spread", OUTPUT - 1, 0))
        scalars = {f"w{i}": weight for i, weight in enumerate(self.weights)}
        return [
            Nest(
                self.kernel,
                tuple(Dim(f"d{i}", n) for i, n in enumerate(self.shape)),
                inputs,
                outputs,
                scalars=scalars,
            )
        ]


EDGES = Kernel(
    "test::edges@1",
    inputs=(Tensor("x", "...", walk="interval", pad=-2.5),),
    outputs=(Tensor("y", "...", fill=7.25),),
    cost=e.device("call_cycles") + 4 * e.ELEMENTS,  # three loads and a store, what is filled too
    code_bytes=512,
)


class Edges(Operator):
    """``EDGES`` along the last of five dimensions."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        x, y = (TensorSpec(name, np.dtype(np.float32), shape) for name in "xy")
        super().__init__("edges", [x], y, DEVICE)

    def nests(self) -> list[Nest]:
        shape = self.output.shape
        lies = F32, shape, contiguous_strides(shape)
        plain = tuple(Access(d) for d in range(4))
        x = Operand("x", 0, *lies, (*plain, Access(4, start=-1, end=1)))
        y = Operand("y", OUTPUT, *lies, (*plain, Access(4)))
        return [Nest(EDGES, tuple(Dim(f"d{i}", n) for i, n in enumerate(shape)), (x,), (y,))]


def compiled(folder: Path, header: str, source: Path) -> Path:
    """The shared object of a C file that includes ``header``, every warning an error."""
    (folder / f"{source.stem}_specs.h").write_text(header)
    return libraries.compiled(source, folder / f"lib{source.stem}.so", *libraries.UNUSED, f"-I{folder}")


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """``BLEND`` is known for the length of a test: other tests' cores do not carry it."""
    monkeypatch.setitem(declarations._KERNELS, BLEND.name, BLEND)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(__file__).parent / "kernels" / "blend.c"
    return compiled(tmp_path_factory.mktemp("library"), specs_header([BLEND], "blend_specs"), source)


def blend_as(name: str, header: str, folder: Path) -> Path:
    """The library of blend.c with kernel ``name``, whose declaration is in ``header``."""
    symbol = name.partition("@")[0].replace("::", "_")
    source = (Path(__file__).parent / "kernels" / "blend.c").read_text()
    renamed = source.replace("test_blend", symbol).replace("TEST_BLEND", symbol.upper())
    (folder / "blend.c").write_text(renamed)
    return compiled(folder, header, folder / "blend.c")


def executed(
    op: Blend, arrays: Sequence[Array], overlay: bytes | None = None, scratch_at: int | None = None
) -> tuple[Array, Array]:
    """(total, spread); with scratch at another byte of data memory than behind the slots."""
    overlay = overlay or overlay_for(op)
    buffers = buffers_of(op, arrays)
    if scratch_at is not None:
        entry = next(entry for entry in op.arg_map() if entry.kind is ArgKind.CONST_KERNEL_PARAM_INPUT)
        sent = buffers[entry.xrt_arg_idx]
        buffers[entry.xrt_arg_idx] = with_scratch(op, sent, reg.CORE_VIEW_MEMORY + scratch_at)
    after = run_buffers(op.device, op.transaction(), buffers, overlay)
    total, spread = (np.frombuffer(data[: op.output.device_bytes], np.float32) for data in after[:2])
    return total.reshape(op.shape), spread.reshape(op.shape)


def with_scratch(op: Blend, sent: bytes, at: int) -> bytes:
    """What shims bring, with scratch at another address in the parameter block."""
    changed, (block,) = bytearray(sent), op.parameter_blocks
    struct.pack_into("<I", changed, sent.index(block[: 4 * HEADER["scratch"]]) + 4 * HEADER["scratch"], at)
    return bytes(changed)


def inputs_of(op: Blend) -> list[Array]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal(t.shape).astype(np.float32) for t in op.inputs]


def test_a_kernel_in_c_with_all_that_a_declaration_holds(library: Path) -> None:
    assert _core.load_kernel_library(str(library)) == [(BLEND.name, BLEND.digest)]
    again = _core.load_kernel_library(str(library))  # no second one of the same name
    assert again == [(BLEND.name, BLEND.digest)]
    assert BLEND.block_pieces == 2 and len(BLEND.scalars) == 32
    weights = [0.5, -1.0, 2.0, 1.5, 0.25, *np.linspace(-1, 1, 26), 0.125]
    for shape in (SHAPE, (2, 3, 1, 40, 33), (1, 1, 1, 1, 7)):
        op = Blend(shape, weights)
        arrays = inputs_of(op)
        total, spread = executed(op, arrays)
        straight = [a.transpose(*[(d - i) % 5 for d in range(5)]) for i, a in enumerate(arrays)]
        wanted = sum(w * x for w, x in zip(weights, straight, strict=False)) + sum(weights[5:]) + 120 * 0.125
        np.testing.assert_allclose(total, wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(spread, np.max(straight, axis=0) - np.min(straight, axis=0))


class Twice(Blend):
    """The same work again, after which the first one's descriptors hold the second's."""

    def nests(self) -> list[Nest]:
        return 2 * super().nests()


def test_a_block_of_several_pieces_is_followed_to_the_cores(library: Path) -> None:
    """``txn check`` knows what they do with locks by then: no descriptor may still be in use."""
    _core.load_kernel_library(str(library))
    op = Twice(SHAPE, [1.0])
    buffers = buffers_of(op, inputs_of(op))
    known = context(op.device, {len(buffers) - 1: buffers[-1]}, op.image)
    found = check_bytes(op.transaction(), dict(enumerate(map(len, buffers))), known)
    assert [str(finding) for finding in found] == []


def test_scratch_lies_wherever_the_device_has_memory(library: Path) -> None:
    """Beyond what descriptors reach too, but not beyond the device's own size."""
    _core.load_kernel_library(str(library))
    doubled, halved = device_of("cores_doubled"), device_of("halved")
    for device, at, fits in (
        (doubled, 70000, True),
        (doubled, 131072 - doubled.count("core.stack_bytes") - 28, True),
        (doubled, 131072, False),
        (DEVICE, 65536, False),
        (halved, 32768 - 24, False),
    ):
        op = Blend((1, 1, 1, 1, 7), [0.5, -1.0], device)
        arrays = inputs_of(op)
        if fits:
            expected = executed(op, arrays)
            for moved, there in zip(executed(op, arrays, scratch_at=at), expected, strict=True):
                np.testing.assert_array_equal(moved, there)
            continue
        with pytest.raises(SimulationError, match="scratch"):
            executed(op, arrays, scratch_at=at)


def test_slots_leave_what_descriptors_do_not_reach_to_scratch(library: Path) -> None:
    """A doubled core: what every solution takes of it, slots and scratch apart."""
    op = Blend((8, 16, 16, 16, 32), [0.5, -1.0], device_of("cores_doubled"))
    (schedule,) = op.schedules
    slots = sum(schedule.port_words(p) * schedule.port_depth(p) for p in (0, 1))
    slots += schedule.out_words * schedule.out_depth + schedule.nest.longer_block
    assert 4 * slots <= schedule.limits.slot_bytes < 65536
    _core.load_kernel_library(str(library))
    executed(op, inputs_of(op))


def test_what_a_kernel_refuses_is_said_with_its_name(library: Path) -> None:
    errors_by_status = {row.name: error_class(row.code) for row in STATUSES}
    _core.load_kernel_library(str(library))
    no_text = "test::blend@1: w0 is \N{REPLACEMENT CHARACTER}"
    for weight, said in ((13.0, "test::blend@1: w0 is 13"), (14.0, "prepare returned 77"), (15.0, no_text)):
        op = Blend((1, 1, 1, 1, 7), [weight])
        with pytest.raises(SimulationError, match=said) as refused:
            executed(op, inputs_of(op))
        status = "runtime_failure" if weight == 14.0 else "not_supported"
        assert isinstance(refused.value, errors_by_status[status]) and refused.value.tile.startswith("c0 r")


def test_a_block_names_a_kernel_that_the_image_does_not_carry(library: Path) -> None:
    _core.load_kernel_library(str(library))
    op = Blend((1, 1, 1, 1, 7), [1.0])
    # Images are refused by themselves where kernels have no such results, as od::arg's are no floats.
    first, second, absent = [k for k in all_kernels() if "f32" in k.outputs[0].dtypes.split()][:3]
    image = merged(Image.of(kernel, "f32") for kernel in (first, second))
    with pytest.raises(SimulationError) as refused:
        executed(op, inputs_of(op), overlay_transaction(DEVICE, image))
    text = str(refused.value)
    assert f"0x{BLEND.digest:08X} (test::blend@1)" in text
    assert "carries: " in text and all(kernel.name in text for kernel in (first, second))
    assert absent.name not in text


def test_scratch_ends_before_the_stack(library: Path) -> None:
    _core.load_kernel_library(str(library))
    op = Blend((1, 1, 1, 1, 7), [1.0])
    buffers = buffers_of(op, inputs_of(op))
    block = next(e.xrt_arg_idx for e in op.arg_map() if e.kind is ArgKind.CONST_KERNEL_PARAM_INPUT)
    room = DEVICE.count("core.data_memory_bytes") - DEVICE.count("core.stack_bytes")
    last = reg.CORE_VIEW_MEMORY + room - 4 * op.schedules[0].scratch_words
    for at, fits in ((last, True), (last + 4, False), (reg.CORE_VIEW_MEMORY + 0xFFFC, False)):
        buffers[block] = with_scratch(op, buffers[block], at)
        if fits:
            run_buffers(DEVICE, op.transaction(), buffers, overlay_for(op))
            continue
        with pytest.raises(SimulationError, match=f"scratch.*is {at}.*28 bytes.*stack and tables"):
            run_buffers(DEVICE, op.transaction(), buffers, overlay_for(op))


def test_an_image_names_a_kernel_that_no_library_has() -> None:
    unknown = replace(BLEND, name="test::unknown@1")
    op = Blend((1, 1, 1, 1, 7), [1.0])
    with pytest.raises(SimulationError, match=f"0x{unknown.digest:08X}, which no library has"):
        executed(op, inputs_of(op), overlay_transaction(DEVICE, Image.of(unknown)))


def test_declared_kernels_are_those_that_have_code() -> None:
    ours = [row for row in _core.kernels() if row[0].startswith("od::")]
    assert sorted(ours) == sorted((k.name, k.digest) for k in all_kernels() if k is not BLEND)


def test_what_is_no_library(tmp_path: Path) -> None:
    text = tmp_path / "libtext.so"
    text.write_text("not an object")
    (tmp_path / "empty.c").write_text("int nothing;\n")
    empty = compiled(tmp_path, "", tmp_path / "empty.c")
    for path, said in ((tmp_path / "none.so", "none.so"), (text, "libtext.so"), (empty, "od_kernel_library")):
        with pytest.raises(KernelLibraryError, match=said) as refused:
            _core.load_kernel_library(str(path))
        assert refused.value.status < 0


# What is changed in the library's source or in its declaration -> what is said of it.
WRONG = {
    ("{OD_LIBRARY_HEAD, ", "{3, 0, 0, 0, 0, 0, "): "version 3 of the kernel interface; accepted: 4",
    ("{OD_LIBRARY_HEAD, ", "{4, sizeof(od_library), 8, 8, 8, 8, "): "od_kernel has 8 bytes",
    ("prepare, NULL, run, free", "prepare, NULL, NULL, free"): "prepare, run or release is null",
    ("{&test_blend_spec, ", "{NULL, "): "its declaration or its name is null",
    ('"test", kernels, 1', '"test", 0, 1'): "its table of kernels or plug-ins is null",
    ("return &library;", "return 0;"): "kernel library: null",
    ("OD_MUL", "{99, 0, 0, 0, 0}"): "instruction 99 that names nothing",
    ("OD_MUL", "OD_ELEMENTS"): "cost: it leaves 3 values",
    ("OD_ELEMENTS", "OD_ADD"): "too few values before it",
    ("OD_NUMBER(8)", "OD_NUMBER(NAN)"): "step 1: a number that is not finite",
    ("OD_NUMBER(8)", "OD_NUMBER(-INFINITY)"): "1: a number that is not finite",
    ('{"x0", 40', '{"\\xff", 40'): "an operand has a name of other characters than printable ASCII",
    ('{"w0", ', '{"", '): "a scalar has no name",
    ("OD_ELEMENTS", "OD_SCALAR(32)"): f"instruction {e.ExprOp.SCALAR.value} that names nothing",
    ("OD_ELEMENTS", "OD_KEPT(0)"): "value 0, which was not kept before",
    ("OD_MUL", "OD_KEEP(1)"): "values are kept as 0, 1, ...",
    ("OD_ROLE_AUX", "OD_ROLE_OUTPUT + 1"): "table: role 3",
    ("OD_WALK_AFFINE", "7u"): "x0: walk 7",
    ("OD_SCALAR_F32, ", "5u, "): "w0: type 5",
    ("-INFINITY, INFINITY", "2.0, 1.0"): "a lowest value above the highest",
    ('{"x0", 40, 1u', '{"x0", 250, 1u'): "x0: its words lie outside",
    ('{"x0", 40, 1u', '{"x0", 40, 4096u'): "x0: unknown element types",
    ('{"d0", 0}', '{"d0", 5}'): "x0 along d0: dimension 5",
    ("test_blend_operands, 8,", "test_blend_operands, 17,"): "17 operands; accepted: at most 16",
    ("test_blend_scalars, 32,", "test_blend_scalars, 33,"): "33 scalars; accepted: at most 32",
    ("210, 256, 2048,", "210, 600, 2048,"): "600 words; accepted: at most 512",
    ("210, 256, 2048,", "210, 256, 0,"): "0 bytes of code; accepted: multiples of 16",
    ("210, 256, 2048,", "210, 256, 2047,"): "2,047 bytes of code",
    ("OD_PRINT_NO, ", "7u, "): "prints: 7; accepted: 0 to 2",
    ("OD_JOIN_NO}", "7u}"): "joins: 7; accepted: 0 to 4",
    ("test_blend_cost, 5,", "0, 5,"): "a table of its declaration is null",
    ("blend_operands, 8, 0, 0,", "blend_operands, 8, 0, 1,"): "a table of its declaration is null",
    ('"test::blend@1"', '"test::' + "b" * 64 + '@1"'): "a name of more than 64 bytes",
}


@pytest.mark.daily(3)
@pytest.mark.parametrize("change", WRONG, ids=WRONG.values())
def test_libraries_that_are_refused(change: tuple[str, str], tmp_path: Path) -> None:
    source = (Path(__file__).parent / "kernels" / "blend.c").read_text()
    header = specs_header([BLEND], "blend_specs")
    assert change[0] in source + header
    (tmp_path / "blend.c").write_text(source.replace(*change))
    path = compiled(tmp_path, header.replace(*change, 1), tmp_path / "blend.c")
    with pytest.raises(KernelLibraryError, match=WRONG[change]):
        _core.load_kernel_library(str(path))


def test_two_kernels_of_one_name(tmp_path: Path) -> None:
    clash = replace(BLEND, name="od::gemm@1")
    path = blend_as(clash.name, specs_header([clash], "blend_specs"), tmp_path)
    with pytest.raises(KernelLibraryError, match="has the name or the digest of od::gemm@1") as refused:
        _core.load_kernel_library(str(path))
    assert "of library test" in str(refused.value) and "of library onedispatch" in str(refused.value)


# No number of cycles: what the formula gives -> how messages show it.
WRONG_COSTS = {np.nan: "(?i:nan)", -0.25: "-0.25", -1.0: "-1", np.inf: "inf", 2.0**54: "1", 1e30: "1"}


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """``test::priced@1`` costs what its scalar w1 says in the library, and 8 cycles in what is returned."""
    cheap = replace(BLEND, name="test::priced@1", cost=e.as_expr(8))
    header = specs_header([replace(cheap, cost=e.scalar("w1"))], "blend_specs")
    _core.load_kernel_library(str(blend_as(cheap.name, header, tmp_path_factory.mktemp("priced"))))
    return cheap


@pytest.mark.parametrize("cost", WRONG_COSTS, ids=str)
def test_a_cost_that_is_no_number_of_cycles(
    cost: float, priced: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, wrong = [1.0, cost], replace(priced, cost=e.scalar("w1"))
    monkeypatch.setitem(declarations._KERNELS, priced.name, wrong)
    said = f"kernel test::priced@1: cost of a call: given {WRONG_COSTS[cost]}.*; accepted: 0 to {MAX_CYCLES}"
    with pytest.raises(OneDispatchError, match=said):
        Blend((1, 1, 1, 1, 7), weights, kernel=wrong).transaction()
    monkeypatch.setitem(declarations._KERNELS, priced.name, priced)
    op = Blend((1, 1, 1, 1, 7), weights, kernel=priced)
    said = f"test::priced@1: cost of a call is {WRONG_COSTS[cost]}.* cycles; accepted: 0 to {MAX_CYCLES}"
    with pytest.raises(SimulationError, match=said):
        executed(op, inputs_of(op), overlay_transaction(DEVICE, Image.of(priced)))


def test_the_clock_ends_before_it_wraps(priced: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(declarations._KERNELS, priced.name, priced)
    op = Blend((1, 1, 1, 1, 7), [1.0, 2.0**53], kernel=priced)
    with pytest.raises(
        SimulationError, match=f"a kernel call of {MAX_CYCLES + 1} cycles at cycle .* before cycle"
    ):
        executed(op, inputs_of(op), overlay_transaction(DEVICE, Image.of(priced)))


def test_functions_whose_work_is_no_number(tmp_path: Path) -> None:
    chosen = replace(BLEND, name="test::chosen@1", scalars=(*BLEND.scalars[:-1], chooses("w31", ACTIVATIONS)))
    header = specs_header([chosen], "blend_specs")
    row = '{"none", {0'
    assert row in header
    path = blend_as(chosen.name, header.replace(row, '{"none", {0, -1'), tmp_path)
    with pytest.raises(
        KernelLibraryError, match="w31, function none: mul_cycles are counted in finite numbers"
    ):
        _core.load_kernel_library(str(path))


def test_pads_and_fills_are_what_the_declaration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(__file__).parent / "kernels" / "edges.c"
    _core.load_kernel_library(str(compiled(tmp_path, specs_header([EDGES], "edges_specs"), source)))
    monkeypatch.setitem(declarations._KERNELS, EDGES.name, EDGES)
    for shape in ((1, 1, 1, 1, 5), (2, 3, 1, 4, 61), (1, 1, 2, 3, 9000)):
        op = Edges(shape)
        x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
        after = run_buffers(
            op.device, op.transaction(), buffers_of(op, [x]), overlay_transaction(DEVICE, Image.of(EDGES))
        )
        wide = np.pad(x, [*[(0, 0)] * 4, (1, 1)], constant_values=-2.5)
        wanted = wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:]
        wanted[..., 1::2] = 7.25
        found = np.frombuffer(after[0][: op.output.device_bytes], np.float32).reshape(shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
