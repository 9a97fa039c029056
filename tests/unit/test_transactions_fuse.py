# SPDX-License-Identifier: Apache-2.0
"""Fusing: what changes, that nothing else does, and what is refused."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onedispatch.transactions import (
    ArgKind,
    ArgMap,
    Bindings,
    ShimBd,
    Transaction,
    TransactionBuilder,
    TransactionError,
    fuse,
    tile_address,
)
from onedispatch.transactions.format import spec

SHIM_BD0 = tile_address(0, 0, 0x1D000)


def op(
    patches: Sequence[tuple[int, int]],
    version: spec.Version = spec.V0_1,
    columns: int = 4,
    generation: int = 4,
    words: int = 4,
) -> Transaction:
    """A transaction with one BD write of ``words`` words before each (argument, offset) patch."""
    made = TransactionBuilder(generation, columns, version)
    for argument, offset in patches:
        made.blockwrite(SHIM_BD0, ShimBd.at(0, words).to_words())
        made.ddr_patch(SHIM_BD0 + 4, argument, offset)
    return Transaction.from_bytes(made.to_bytes())


def patches(transaction: Transaction) -> list[tuple[int, int]]:
    return [(o.arg_index, o.arg_offset) for o in transaction.ops if o.name == "DDR_PATCH"]


ALL_KINDS = [
    ArgMap(ArgKind.OUTPUT, 0, 2, 0, 256),
    ArgMap(ArgKind.INPUT, 1, 0, 0, 128, padding_offset=16),
    ArgMap(ArgKind.INPUT, 1, 1, 128, 128),
    ArgMap(ArgKind.CONST_INPUT, 2, 0, 0, 512),
    ArgMap(ArgKind.CONST_KERNEL_PARAM_INPUT, 3, 0, 0, 512),
    ArgMap(ArgKind.SCRATCH_PAD, 4, 0, 0, 64),
    ArgMap(ArgKind.CTRL_PKT_BIN, 5, 0, 0, 64),
]
TENSORS = {0: (0, 32), 1: (2, 4096), 2: (1, 0)}
BINDINGS = Bindings(TENSORS, const=1024, params=2048, scratch=8192, ctrl=64)


@pytest.mark.parametrize("version", spec.VERSIONS)
def test_every_row_of_the_rule(version: spec.Version) -> None:
    given_patches = [(0, 4), (1, 8), (1, 128), (1, 132), (2, 12), (3, 16), (4, 20), (5, 24)]
    fused = fuse([(op(given_patches, version), ALL_KINDS, BINDINGS)])
    assert patches(fused) == [
        (1, 4),
        (0, 32 + 8 - 16),
        (2, 4096),
        (2, 4100),
        (3, 1036),
        (4, 2064),
        (2, 8212),
        (5, 88),
    ]
    in_params = dataclasses.replace(BINDINGS, ctrl_argument=4)
    assert patches(fuse([(op([(5, 0)], version), ALL_KINDS, in_params)])) == [(4, 64)]


def test_parts_are_joined_and_the_header_counts() -> None:
    first, second = op([(0, 0)]), op([(0, 4), (0, 8)])
    entry = [ArgMap(ArgKind.INPUT, 0, 0, 0, 64)]
    fused = fuse([(first, entry, Bindings({0: (0, 0)})), (second.to_bytes(), entry, Bindings({0: (2, 64)}))])
    assert patches(fused) == [(0, 0), (2, 68), (2, 72)]
    assert fused.header.op_count == 6 and fused.header.byte_size == len(fused.to_bytes())
    again = Transaction.from_bytes(fused.to_bytes())
    assert again == fused and again.offsets.tolist() == fused.offsets.tolist()
    assert fused.validate() == []


def test_a_bare_transaction_passes_through() -> None:
    one = op([(3, 12)])
    assert fuse([one]) == one and fuse([one.to_bytes()]) == one
    assert patches(fuse([one, one])) == [(3, 12)] * 2


@pytest.mark.amd_data
def test_only_patches_change_in_real_files(amd_files: list[Path]) -> None:
    for path in amd_files:
        if path.name.endswith(("_param.bin", "_ctrl.bin")):
            continue
        before = Transaction.from_bytes(path.read_bytes())
        used = sorted({argument for argument, _ in patches(before)})
        args = [ArgMap(ArgKind.INPUT, argument, argument, 0, 1 << 40) for argument in used]
        after = fuse([(before, args, Bindings(dict.fromkeys(used, (2, 4096))))])
        assert patches(after) == [(2, offset + 4096) for _, offset in patches(before)], path.name
        back = fuse([(after, [ArgMap(ArgKind.INPUT, 2, 0, 0, 1 << 41)], Bindings({0: (9, 0)}))])
        for old, new in zip(before.ops, back.ops, strict=True):
            assert new.raw == old.raw or old.name == "DDR_PATCH", path.name


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000).map(lambda o: 4 * o)), max_size=20),
    st.integers(0, 1 << 30).map(lambda o: 4 * o),
    st.sampled_from(spec.VERSIONS),
)
def test_fusing_with_identity_bindings_changes_offsets_only(
    given_patches: list[tuple[int, int]], base: int, version: spec.Version
) -> None:
    args = [ArgMap(ArgKind.INPUT, i, i, 0, 8192) for i in range(4)]
    fused = fuse([(op(given_patches, version), args, Bindings({i: (i, base) for i in range(4)}))])
    assert patches(fused) == [(argument, offset + base) for argument, offset in given_patches]
    if base == 0:
        assert fused == op(given_patches, version)


def test_ten_thousand_patches_take_milliseconds() -> None:
    one = op([(0, 4 * i) for i in range(10_000)])
    part = (one, [ArgMap(ArgKind.INPUT, 0, 0, 0, 1 << 20)], Bindings({0: (0, 256)}))
    fuse([part])
    started = time.perf_counter()
    fused = fuse([part], sizes={0: 1 << 20})
    assert time.perf_counter() - started < 0.25  # about 2 ms on a laptop
    assert patches(fused)[-1] == (0, 256 + 4 * 9999)


ENTRY = ArgMap(ArgKind.INPUT, 0, 0, 0, 64)
BOUND = Bindings({0: (0, 0), 1: (1, 0)})


@pytest.mark.parametrize(
    ("parts", "sizes", "says"),
    [
        ([], None, "one transaction or more"),
        ([op([]), op([], columns=8)], None, "columns 8; accepted: 4, as part 0 has"),
        ([op([]), op([], generation=3)], None, "device_generation 3"),
        ([op([]), op([], spec.V1_0)], None, "version (1, 0)"),
        ([(op([(1, 0)]), [ENTRY], BOUND)], None, "argument 1 offset 0"),
        ([(op([(0, 64)]), [ENTRY], BOUND)], None, "past the end of its region"),
        ([(op([(0, 0)]), [], BOUND)], None, "no argument"),
        ([(op([(0, 0)]), [dataclasses.replace(ENTRY, offset=32)], BOUND)], None, "0: 32 to 96"),
        ([(op([(0, 0)]), [dataclasses.replace(ENTRY, onnx_arg_idx=7)], BOUND)], None, "no tensor 7"),
        ([(op([(0, 0)]), [dataclasses.replace(ENTRY, padding_offset=4)], BOUND)], None, "before the start"),
        ([(op([(0, 0)]), [ENTRY, dataclasses.replace(ENTRY, offset=32)], BOUND)], None, "do not overlap"),
        ([(op([(0, 52)]), [ENTRY], BOUND)], {0: 64}, "past the end of its fused buffer"),
        ([(op([(0, 0)]), [ENTRY], BOUND)], {1: 64}, "past the end of its fused buffer"),
        (
            [(op([]), [ENTRY, ArgMap(ArgKind.OUTPUT, 1, 1, 0, 64)], Bindings({0: (2, 0), 1: (2, 32)}))],
            None,
            "OUTPUT 32 to 96 over INPUT 0 to 64 of fused argument 2",
        ),
        (
            [
                (
                    op([]),
                    [ArgMap(ArgKind.SCRATCH_PAD, 0, 0, 0, 64), ArgMap(ArgKind.OUTPUT, 1, 1, 0, 64)],
                    Bindings({1: (2, 0)}),
                )
            ],
            None,
            "SCRATCH_PAD 0 to 64 over OUTPUT",
        ),
    ],
)
def test_fuse_errors(parts: list[object], sizes: dict[int, int] | None, says: str) -> None:
    with pytest.raises(TransactionError) as caught:
        fuse(parts, sizes)  # type: ignore[arg-type]
    assert says in str(caught.value)


def test_a_patch_outside_a_bd_write_names_its_op() -> None:
    made = TransactionBuilder(4, 4)
    made.noop()
    made.ddr_patch(SHIM_BD0 + 4, 0)
    alone = Transaction.from_bytes(made.to_bytes())
    with pytest.raises(TransactionError, match="was not written") as caught:
        fuse([(alone, [ENTRY], BOUND)])
    assert (caught.value.op_index, caught.value.byte_offset) == (1, 20)


def test_in_place_outputs_are_allowed_when_bound_so() -> None:
    args = [ENTRY, ArgMap(ArgKind.OUTPUT, 1, 1, 0, 64)]
    bound = Bindings({0: (2, 0), 1: (2, 0)}, in_place=True)
    assert patches(fuse([(op([(0, 0), (1, 0)]), args, bound)])) == [(2, 0), (2, 0)]


@pytest.mark.parametrize("name", ["xrt_arg_idx", "onnx_arg_idx", "offset", "size", "padding_offset"])
def test_arg_maps_have_no_negative_numbers(name: str) -> None:
    with pytest.raises(TransactionError, match=name):
        dataclasses.replace(ENTRY, **{name: -1})
