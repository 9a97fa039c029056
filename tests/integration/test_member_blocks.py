# SPDX-License-Identifier: Apache-2.0
"""Parameter blocks of member kernels, made by hand, as the core program reads and charges them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onedispatch import KernelError
from onedispatch.cpp_ext import _core
from onedispatch.operators.codegen.spec_data import spec_data
from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations import formulas
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.kernel import Kernel, KernelDeclarationError, Scalar, Tensor
from onedispatch.operators.declarations.members import MemberAxis
from onedispatch.operators.declarations.params import (
    CADENCE_TILE,
    DIM_FIELDS,
    DIM_WORDS,
    HEADER,
    LOCK_BASE,
    PORT_FIELDS,
    ParamBlock,
    packed,
    port_ref,
)
from onedispatch.transactions import find_device
from onedispatch.transactions.machine.registers import CORE_VIEW_MEMORY

NPU2 = find_device("npu2")
EDITS = Callable[[ParamBlock], None]


def kernel(**changes: Any) -> Kernel:
    """x[i, j-1..j+1] -> z[i, j], in tiles of members."""
    declared: dict[str, Any] = {
        "inputs": (Tensor("x", "", "f32 bf16", walk="interval", rank=(1, 5), pad=0),),
        "outputs": (Tensor("z", "", "f32 bf16", walk="interval", rank=(1, 2), fill=2.0),),
        "scalars": (Scalar("a", "f32"), Scalar("fill_z", "f32", hidden=True)),
        "cost": formulas.ENTRY + 3 * e.ELEMENTS + formulas.filling("z", ("t0", "t1")),
        "code_bytes": 512,
        "members": True,
    } | changes
    return Kernel("test::member@1", **declared)


def block_of(declared: Kernel, dtype: str = "f32", padding: int = 0) -> ParamBlock:
    """Two tiles of 2 x 8 members, of 4 x 8 of which the nest begins with (1, 0)."""
    block = ParamBlock(declared)
    block.put(HEADER["row_mask"], [1, 1])
    at = CORE_VIEW_MEMORY + 4 * declared.block_words
    for port, (offset, size) in {"in0": (0, 80), "out": (256, 64)}.items():
        locks = (LOCK_BASE, LOCK_BASE + 1)
        facts = (at + offset, size, 1, *locks, CADENCE_TILE, size)
        block.put(HEADER[f"port_{port}"], packed("port", PORT_FIELDS, *facts))
    for d, (extent, tile, count) in enumerate(((4, 2, 2), (8, 8, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1))):
        along = packed("dim", DIM_FIELDS, extent, tile, 0, 0, 1, count)
        block.put(HEADER["dims"] + DIM_WORDS * d, along)
    block.put(HEADER["k_extent"], [0, 1, 0x43210, 0])
    block.set_members([1, 0], [5, 8 - padding])
    code = DTYPES[dtype].code
    x = [MemberAxis(5, 0, 0, 1, 1, 1, 1), MemberAxis(10, 0, 1, 1, 1, -1, 3)]
    block.set_member_operand("x", port_ref(0, 0), code, x, (2, 10))
    z = [MemberAxis(5, 0, 0, 1, 1, 1, 1), MemberAxis(8, padding, 1, 1, 1, 0, 1)]
    block.set_member_operand("z", port_ref(2, 0), code, z, (2, 8))
    block.set_scalar("a", 0.5)
    block.set_scalar("fill_z", 7.0)
    return block


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    _core.unregister_kernel("test::member@1")


def read(declared: Kernel, block: ParamBlock) -> tuple[list[int], list[dict[str, Any]]]:
    """The cycles that the block is charged, and what the kernel was told of it."""
    told: list[dict[str, Any]] = []

    def prepare(setup: dict[str, Any]) -> Callable[..., None]:
        told.append(setup)
        return lambda *call: None

    _core.register_kernel(spec_data(declared), {"prepare": prepare})
    return _core.charged_cycles(block.to_bytes(), "npu2"), told


def test_what_a_block_says_reaches_the_kernel() -> None:
    cycles, (setup,) = read(kernel(), block_of(kernel()))
    assert setup["kernel"] == "test::member@1" and setup["dims"][:2] == ((4, 2), (8, 8))
    assert setup["first"] == (1, 0, 0, 0, 0) and setup["total"] == (5, 8, 1, 1, 1) and not any(setup["whole"])
    x, z = setup["operands"]
    assert x["axes"] == ((5, 2, 10, 1, 1, 1, 1, 1, 0, 0), (10, 10, 1, 1, 1, 1, -1, 3, 1, 0))
    assert (x["pad"], z["fill"]) == (0.0, 7.0) and z["axes"][1] == (8, 8, 1, 1, 1, 1, 0, 1, 1, 0)
    fill = NPU2.constant("kernel.row_cycles") + -(-64 // NPU2.constant("kernel.vector_bytes"))
    assert cycles[1:] == [NPU2.constant("kernel.call_cycles") + 3 * 16 + fill] * 2


@pytest.mark.parametrize(
    ("name", "at", "word", "says"),
    [
        ("members", 0, 5, "first member.*0 to 4"),
        ("members", 1, 0, "members .bits 0..30.*1 or more"),
        ("members", 1, 1 << 31 | 5, "first member.*accepted: 0"),
        ("x", 1, 6 << 28 | 0x0FFFFF10, "x: rank.*1 to 5"),
        ("z", 1, 3 << 28 | 0x0FFFF210, "z: rank.*1 to 2"),
        ("x", 1, 2 << 28 | 0x0FFFFF60, "x along t1.*index dimensions 0 to 4, or 15"),
        ("x", 1, 2 << 28 | 0x00FFFF10, "dimensions beyond its rank"),
        ("x_t1", 5, 0, "x along t1: elements that a member touches.*1 or more"),
        ("x_t1", 5, 3 | 10 << 28, "padding.*less than the extent 10"),
        ("z_t0", 2, 9, "z along t0: stride.*row-major; accepted: 8"),
        ("z_t1", 1, 0, "z along t1: chunk extent.*1 or more"),
        ("x_t0", 0, 1, "x along t0: chunk extent"),
    ],
)
def test_a_block_that_means_nothing_is_refused(name: str, at: int, word: int, says: str) -> None:
    block = block_of(kernel())
    block.put(kernel().layout[name] + at, [word])
    with pytest.raises(ValueError, match=f"test::member@1.*{says}"):
        read(kernel(), block)


def test_registering_again_replaces_and_older_digests_stay() -> None:
    first, second = (
        kernel(),
        kernel(scalars=(Scalar("a", "f32"), Scalar("b"), Scalar("fill_z", "f32", hidden=True))),
    )
    assert first.digest != second.digest
    read(first, block_of(first))
    read(second, block_of(second))
    listed = [row for row in _core.kernel_origins() if row[0] == first.name]
    assert listed == [(first.name, second.digest, "this process")]
    assert _core.unregister_kernel(first.name) and not _core.unregister_kernel(first.name)
    assert first.name not in dict(_core.kernels())


def test_names_of_ours_and_bad_declarations_are_refused() -> None:
    spec = spec_data(kernel())
    with pytest.raises(KernelError, match="has the name or the digest of od::gemm@1"):
        _core.register_kernel(spec | {"name": "od::gemm@1"}, {"prepare": print}, "here.py")
    with pytest.raises(KernelError, match=r"here.py, kernel test::member@1: .*cost has nothing for filling"):
        _core.register_kernel(spec | {"cost": [(0, 0, 0, 0, 1.0)]}, {"prepare": print}, "here.py")
    with pytest.raises(KernelError, match=r"none\.so"):
        _core.register_kernel(spec, {"library": "none.so", "index": 0})


def test_what_prepare_raises_is_said_with_the_kernel() -> None:
    def prepare(setup: dict[str, Any]) -> None:
        raise LookupError("no table")

    _core.register_kernel(spec_data(kernel()), {"prepare": prepare})
    with pytest.raises(ValueError, match="test::member@1: it raised LookupError: no table"):
        _core.charged_cycles(block_of(kernel()).to_bytes(), "npu2")
    _core.register_kernel(spec_data(kernel()), {"prepare": lambda setup: 3})
    with pytest.raises(ValueError, match=r"prepare\(\) returned 3"):
        _core.charged_cycles(block_of(kernel()).to_bytes(), "npu2")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"members": False}, "rank: given .1, 5.; accepted: axes, unless of a member kernel"),
        ({"inputs": (Tensor("x", "", walk="interval", rank=(1, 6)),)}, "rank of x: given .1, 6."),
        ({"inputs": (Tensor("x", "", walk="interval", rank=(3, 2)),)}, "rank of x: given .3, 2."),
        ({"inputs": (Tensor("x", "d0", walk="interval", rank=(1, 2)),)}, "x: axes and walk"),
        ({"inputs": (Tensor("x", "", rank=(1, 2)),)}, "x: axes and walk: given '', 'unit'"),
        ({"dims": ("m",)}, "has the index space of each instance"),
        ({"cost": formulas.ENTRY}, "formulas.filling"),
        ({"aux": (Tensor("t", "", "f32 i8", walk="interval", rank=(1, 1)),)}, "auxiliary tensor t"),
        ({"scalars": tuple(Scalar(f"s{i}") for i in range(33))}, "scalars: given 33"),
        ({"scalars": tuple(Scalar(f"s{i}", hidden=True) for i in range(33))}, "hidden scalars: given 33"),
    ],
)
def test_declarations_of_member_kernels(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelDeclarationError, match=says):
        kernel(**changes)
