# SPDX-License-Identifier: Apache-2.0
"""What a Python body sees of a call, and how its mistakes are told: setups and chunks made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onedispatch import KernelError
from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations import formulas
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.kernel import Kernel, Scalar, Tensor
from onedispatch.operators.plugin.body import Tile, functions

Array = np.ndarray[Any, Any]
NAN = float("nan")
KERNEL = Kernel(
    "test::body@1",
    inputs=(
        Tensor("x", "", "f32 bf16 i8", walk="interval", rank=(0, 2)),
        Tensor("extra", "", "f32", walk="interval", rank=(1, 1), optional=True),
    ),
    outputs=(Tensor("z", "", "f32 bf16 i8", walk="interval", rank=(0, 2)),),
    scalars=(
        Scalar("a", "f32"),
        Scalar("shift", "i32"),
        Scalar("scratch_bytes", hidden=True),
        Scalar("at_sums", hidden=True),
        Scalar("at_marks", hidden=True),
    ),
    scratch=e.scalar("scratch_bytes"),
    cost=formulas.ENTRY + formulas.filling("z", ("t0", "t1")),
    code_bytes=512,
    members=True,
)
WORDS = (0x3F000000, 0xFFFFFFFE, 96, 0, 64)  # 0.5, -2, scratch


def axis(size: int, stride: int, along: int, b: int = 0, span: int = 1, **other: int) -> tuple[int, ...]:
    said = {"extent": size, "chunk": size, "a": 1, "den": 1, "padding": 0} | other
    return (
        said["extent"], said["chunk"], stride, said["a"], said["den"], 1, b, span, along, said["padding"]
    )  # fmt: skip


def run(
    body: Callable[[Tile], None],
    x: Array,
    z: Array,
    *,
    x_axes: tuple[tuple[int, ...], ...],
    z_axes: tuple[tuple[int, ...], ...],
    total: tuple[int, ...],
    member: tuple[int, ...] = (),
    count: tuple[int, ...] = (),
    fill: float = NAN,
) -> Array:
    """``z`` after one call for ``count`` members from ``member`` on: all of them, unless said."""
    code = next(row.code for row in DTYPES.values() if row.numpy == x.dtype)
    setup = {
        "operands": (
            {"dtype": code, "axes": x_axes, "pad": 5.0, "fill": NAN},
            None,
            {"dtype": code, "axes": z_axes, "pad": NAN, "fill": fill},
        ),
        "scalars": WORDS,
        "first": (0,) * 5,
        "total": (*total, *[1] * (5 - len(total))),
    }
    call = functions(KERNEL, body, {"sums": "f32", "marks": "i8"})["prepare"](setup)
    at = (*member, *[0] * (5 - len(member)))
    many = (*(count or total), *[1] * (5 - len(total)))
    given = x.reshape(-1).view(np.uint8)
    given.flags.writeable = False
    call(at, at, many, [given, None, z.reshape(-1).view(np.uint8)], np.zeros(96, np.uint8), None)
    return z


def windows(body: Callable[[Tile], None], dtype: str = "f32", **more: Any) -> Array:
    """Member (i, j) of 4 x 6 touches x[i, j - 1 to j + 1] and z[i, j]."""
    row = DTYPES[dtype].numpy
    x, z = np.arange(24).astype(row).reshape(4, 6), np.full((4, 6), 9, row)
    x_axes = (axis(4, 6, 0), axis(6, 1, 1, b=-1, span=3))
    return run(body, x, z, x_axes=x_axes, z_axes=(axis(4, 6, 0), axis(6, 1, 1)), total=(4, 6), **more)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_arrays_are_the_declared_range_with_pads_outside(dtype: str) -> None:
    def body(t: Tile) -> None:
        assert (t.origin, t.shape, t.index_space) == ((0, 0), (4, 6), (4, 6))
        assert t.first("x") == (0, -1) and t.first("z") == (0, 0) and t.extra is None
        assert type(t.a) is np.float32 and t.shift == -2
        assert t.x.shape == (4, 8) and t.x.dtype == DTYPES[dtype].numpy and not t.x.flags.writeable
        t.z[:] = t.a * (t.x[:, :-2] + t.x[:, 2:])

    padded = np.pad(np.arange(24.0).reshape(4, 6), ((0, 0), (1, 1)), constant_values=5)
    wanted = (0.5 * (padded[:, :-2] + padded[:, 2:])).astype(DTYPES[dtype].numpy)
    np.testing.assert_array_equal(windows(body, dtype), wanted)


def test_a_part_of_the_members_sees_and_writes_its_part() -> None:
    def body(t: Tile) -> None:
        assert t.first("x") == (1, 2) and t.x.shape == (2, 4) and t.index_space == (4, 6)
        t.z = t.x[:, 1:-1]  # the mistake that works

    z = windows(body, member=(1, 3), count=(2, 2))
    wanted = np.full((4, 6), 9.0)
    wanted[1:3, 3:5] = np.arange(24.0).reshape(4, 6)[1:3, 3:5]
    np.testing.assert_array_equal(z, wanted)


def test_what_is_written_outside_is_dropped_and_fills_stay() -> None:
    """Member i writes z[3*i - 1 to 3*i]; z ends with padding of its row, and has been filled with 7."""

    def body(t: Tile) -> None:
        assert t.z.shape == (8,) and t.first("z") == (-1,)
        for i in range(3):
            t.z[3 * i : 3 * i + 2] = i + 1

    z = np.array([7, 7, 7, 7, 7, 7, 0, 0], np.int8)
    z_axes = (axis(8, 1, 0, b=-1, span=2, a=3, padding=2),)
    got = run(body, np.zeros(3, np.int8), z, x_axes=(axis(3, 1, 0),), z_axes=z_axes, total=(3,), fill=7.0)
    assert got.tolist() == [1, 7, 2, 2, 7, 3, 0, 0]


def test_fractions_whole_tensors_and_scalars() -> None:
    def body(t: Tile) -> None:
        assert t.x.shape == (1,) and t.first("x") == () and t.shape == (3,)
        t.z[:] = t.x

    whole = run(
        body,
        np.array(4.0, np.float32),
        np.zeros(3, np.float32),
        x_axes=(),
        z_axes=(axis(3, 1, 0),),
        total=(3,),
    )
    assert whole.tolist() == [4, 4, 4]

    def halves(t: Tile) -> None:
        assert t.first("x") == (1,) and t.x.tolist() == [1, 2, 3]
        t.z[:] = t.x[(np.arange(3, 7) // 2) - 1]

    x = np.arange(4, dtype=np.float32)
    x_axes, z_axes = (axis(4, 1, 0, den=2),), (axis(8, 1, 0),)
    found = run(
        halves, x, np.zeros(8, np.float32), x_axes=x_axes, z_axes=z_axes, total=(8,), member=(3,), count=(4,)
    )
    assert found.tolist() == [0, 0, 0, 1, 2, 2, 3, 0]


def test_scratch_has_its_dtype_and_its_place() -> None:
    def body(t: Tile) -> None:
        assert t.sums.dtype == np.float32 and t.sums.shape == (16,)
        assert t.marks.dtype == np.int8 and t.marks.shape == (32,)
        t.sums[:6], t.marks[:] = 1.5, 3
        t.z[:] = t.sums[:6] * t.marks[0]

    assert windows(body).tolist() == [[4.5] * 6] * 4


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (lambda t: t.z.__setitem__(slice(None), t.x), -19, r"output z: .*\(4,8\).*broadcasts to \[4, 6\]"),
        (lambda t: t.z.__setitem__(slice(None), 1j * t.x[:, 2:]), -12, "output z: .*complex64.*float32"),
        (lambda t: setattr(t, "z", np.ones(5)), -19, r"output z: .*\[4, 6\]"),
        (lambda t: setattr(t, "x", 3), -2, "t.x = ...: given int; accepted: values for z"),
        (lambda t: setattr(t, "kept", 3), -2, "a body keeps nothing in its tile"),
        (lambda t: t.first("q"), -2, r"first\('q'\).*x, z"),
    ],
)
def test_mistakes_are_told(body: Callable[[Tile], None], status: int, says: str) -> None:
    with pytest.raises(KernelError, match=says) as told:
        windows(body)
    assert told.value.status == status


def test_what_is_not_there_and_what_cannot_be_written() -> None:
    with pytest.raises(AttributeError, match="a tile has no 'y'; it has a, shift, x, extra, z"):
        windows(lambda t: t.y)
    with pytest.raises(ValueError, match="read-only"):
        windows(lambda t: t.x.__setitem__(0, 1))
