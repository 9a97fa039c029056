# SPDX-License-Identifier: Apache-2.0
"""Random element-wise nests: what a declared access says is what the array computes, or it is refused.

The declaration is read here the slow way: member by member, interval by interval.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from onedispatch import OperatorError
from onedispatch.operators.interface.operator import TensorSpec
from onedispatch.operators.kernels.elementwise import KERNEL, Eltwise, Layout
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import find_device
from tests.ops.case import Array
from tests.ops.host import execute

RANDOM_NESTS = 180
DEVICE = find_device("npu2")


class Declared(Eltwise):
    """An author's own element-wise operator: a copy or a sum over one declared nest."""

    def __init__(self, inputs: Sequence[Operand], output: Operand, extents: Sequence[int]) -> None:
        specs = [TensorSpec(f"x{i}", np.dtype(np.float32), (_elements(x),)) for i, x in enumerate(inputs)]
        target = TensorSpec("y", np.dtype(np.float32), (_elements(output),))
        func = "add" if len(inputs) == 2 else "copy"
        super().__init__("declared", func, specs, target, DEVICE, layout=Layout([]))
        self.operands, self.target, self.extents = tuple(inputs), output, tuple(extents)

    def _check(self) -> None:
        pass

    def nests(self) -> list[Nest]:
        dims = tuple(Dim(f"i{d}", extent) for d, extent in enumerate(self.extents))

        return [Nest(KERNEL, dims, self.operands, (self.target,), scalars={"func": self.func})]


def _elements(operand: Operand) -> int:
    """A tensor that just holds the view, a multiple of nothing in particular."""
    return 1 + operand.offset + sum((n - 1) * s for n, s in zip(operand.shape, operand.strides, strict=False))


def touched(operand: Operand, at: Sequence[int]) -> list[int] | None:
    """Element numbers that member ``at`` of the index touches; None where some lie outside the view."""
    ranges = []
    for access, size in zip(operand.access, operand.shape, strict=True):
        if access.dim is None:
            ranges.append(range(size))
            continue
        i = at[access.dim]
        step = access.a * i // access.den
        low, high = step + access.start, step + access.end
        if low < 0 or high >= size or high < low:
            return None
        ranges.append(range(low, high + 1))
    return [
        operand.offset + sum(c * s for c, s in zip(coordinates, operand.strides, strict=False))
        for coordinates in product(*ranges)
    ]


def meaning(op: Declared, arrays: Sequence[Array]) -> Array | None:
    """What the declaration says; None where it says nothing that an element-wise kernel can do."""
    out = np.full(op.output.size, np.nan, np.float32)
    written: set[int] = set()
    for at in product(*map(range, op.extents)):
        elements = [touched(operand, at) for operand in (*op.operands, op.target)]
        if any(e is None or len(e) != 1 for e in elements):
            return None
        *sources, target = (e[0] for e in elements if e is not None)
        if target in written:
            return None
        written.add(target)
        out[target] = sum(array[source] for array, source in zip(arrays, sources, strict=False))
    return out


def judge(op: Declared, seed: int) -> bool:
    """Runs what means something, and expects the rest to be refused; whether it ran."""
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(t.size).astype(np.float32) for t in op.inputs]
    expected = meaning(op, arrays)
    try:
        op.schedules  # noqa: B018  where declarations are checked
    except OperatorError:
        return False
    assert expected is not None, "taken, though it means nothing"
    actual = execute(op, arrays)
    held = ~np.isnan(expected)
    np.testing.assert_array_equal(actual[held], expected[held])
    return True


def random_access(
    rng: random.Random, dim: int, extent: int, sound: bool, dens: Sequence[int] = (1, 1, 1, 2, 3)
) -> tuple[Access, int]:
    """An access that follows ``dim``, and the size of the view's dimension."""
    if sound:
        a, start, den = rng.choice((1, 1, 1, 2, 3)), rng.choice((0, 0, 1, 2, 5)), rng.choice(dens)
        size = a * (extent - 1) // den + start + 1 + rng.choice((0, 0, 3))
        return Access(dim, a, start, start, den=den), size
    a, start = rng.choice((-1, 0, 1, 1, 2)), rng.choice((-2, -1, 0, 1))
    return Access(dim, a, start, start + rng.choice((-1, 0, 0, 1, 2))), max(1, extent + rng.randint(-1, 3))


def random_operand(
    rng: random.Random, name: str, tensor: int, extents: Sequence[int], sound: bool
) -> Operand:
    dims = list(range(len(extents)))
    if tensor != OUTPUT:
        dims = [d for d in dims if rng.random() < 0.8]
        rng.shuffle(dims)
    dens = (1, 1, 1, 2, 3) if tensor != OUTPUT or not sound else (1,)
    pairs = [random_access(rng, d, extents[d], sound or rng.random() < 0.7, dens) for d in dims]
    if tensor == OUTPUT:
        pairs = [(Access(a.dim, 1, a.start, a.end), n) if sound else (a, n) for a, n in pairs]
    pairs = pairs or [(Access(None), 1 if sound else rng.choice((1, 2)))]
    sizes, strides, step = [n for _, n in pairs], [], 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= size + rng.choice((0, 0, 1))
    return Operand(
        name, tensor, F32, tuple(sizes), tuple(strides), tuple(a for a, _ in pairs), rng.choice((0, 0, 4))
    )


@pytest.mark.daily(3)
@pytest.mark.parametrize("part", range(6))
def test_random_nests_mean_what_they_say_or_are_refused(part: int) -> None:
    ran = 0
    for number in range(RANDOM_NESTS // 6):
        rng = random.Random(f"{part} {number}")
        sound = rng.random() < 0.6
        extents = [rng.choice((1, 2, 3, 5, 8, 17, 33)) for _ in range(rng.randint(1, 3))]
        inputs = [random_operand(rng, f"x{i}", i, extents, sound) for i in range(rng.randint(1, 2))]
        ran += judge(Declared(inputs, random_operand(rng, "out", OUTPUT, extents, sound), extents), number)
    assert ran > RANDOM_NESTS // 24


def line(n: int, access: Access, size: int, **changes: Any) -> Declared:
    """A copy over one dimension."""
    x = Operand("x0", 0, F32, (size,), (1,), (access,))
    out = Operand("out", OUTPUT, F32, (n,), (1,), (Access(0),))
    return Declared([x], changes.get("out", out), [n])


@pytest.mark.parametrize(("a", "den"), [(1, 2), (2, 3), (3, 2), (1, 7), (5, 3)])
def test_fractions_walk_what_their_interval_says(a: int, den: int) -> None:
    for n in (1, 2, 33, 5000, 20_000):
        assert judge(line(n, Access(0, a, den=den), a * (n - 1) // den + 1), n)


@pytest.mark.parametrize(("up", "down"), [(2, 1), (3, 2), (4, 3)])
@pytest.mark.parametrize("shape", [(3, 5, 7), (16, 28, 28), (2, 61, 90)])
def test_nearest_up_sampling_is_a_copy_at_fractions(shape: tuple[int, ...], up: int, down: int) -> None:
    """Of both spatial dimensions by up/down: element i is element floor(i*down/up) of the source."""
    c, h, w = shape
    sizes = (c, h * up // down, w * up // down)
    access = (Access(0), Access(1, down, den=up), Access(2, down, den=up))
    x = Operand("x0", 0, F32, shape, (h * w, w, 1), access)
    out = Operand("out", OUTPUT, F32, sizes, (sizes[1] * sizes[2], sizes[2], 1), tuple(map(Access, range(3))))
    op = Declared([x], out, sizes)
    source = np.random.default_rng(up).standard_normal(shape).astype(np.float32)
    rows, columns = (np.arange(size) * down // up for size in sizes[1:])
    wanted = source[:, rows][:, :, columns]
    np.testing.assert_array_equal(execute(op, [source.reshape(-1)]).reshape(sizes), wanted)


@pytest.mark.parametrize("shift", [1, 2, 1000])
def test_a_shifted_interval_of_many_elements(shift: int) -> None:
    assert judge(line(100_000, Access(0, 1, shift, shift), 100_000 + shift), shift)


@pytest.mark.parametrize(
    ("access", "said"),
    [
        (Access(0, 1, -1, -1), "elements 0 to 399"),
        (Access(0, 1, 1, 1), "elements 0 to 399"),
        (Access(0, 1, -1, 0), "an interval of one element"),
        (Access(0, 1, 0, 1), "an interval of one element"),
        (Access(0, 1, 1, 0), "an end not before the start"),
        (Access(0, 2, 0, 0), "elements 0 to 399"),
        (Access(0, -1, 399, 399), "a of 1 or more"),
        (Access(0, 0, 3, 3), "a of 1 or more"),
        (Access(0, 3, den=2), "elements 0 to 399"),
        (Access(None), "one element per member"),
        (Access(1), "index dimension 1"),
    ],
)
def test_what_an_element_wise_kernel_cannot_mean(access: Access, said: str) -> None:
    with pytest.raises(OperatorError, match=said):
        line(400, access, 400).nests()


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (Operand("out", OUTPUT, F32, (400,), (1,), (Access(None),)), "one element per member"),
        (Operand("out", OUTPUT, F32, (1,), (1,), (Access(None),)), "every member writes elements of its own"),
        (Operand("out", OUTPUT, F32, (800,), (1,), (Access(0, 2),)), "a = 1"),
        (Operand("out", OUTPUT, F32, (400,), (1,), (Access(0, den=2),)), "no denominator"),
        (Operand("out", OUTPUT, F32, (401,), (1,), (Access(0, 1, 0, 1),)), "an interval of one element"),
        (Operand("out", OUTPUT, F32, (400,), (-1,), (Access(0),)), "stride -1"),
        (Operand("out", OUTPUT, F32, (400,), (0,), (Access(0),)), "stride 0"),
        (Operand("out", OUTPUT, F32, (400,), (1,), (Access(0),), -1), "offset -1"),
        (Operand("out", OUTPUT, F32, (400,), (1, 1), (Access(0),)), "one of each per dimension"),
    ],
)
def test_outputs_that_no_transaction_can_write(out: Operand, said: str) -> None:
    with pytest.raises(OperatorError, match=said):
        line(400, Access(0), 400, out=out).nests()


def test_a_view_beyond_its_tensor() -> None:
    op = line(400, Access(0), 400)
    op.inputs = (TensorSpec("x0", np.dtype(np.float32), (399,)),)
    with pytest.raises(OperatorError, match="elements 0 to 398 of its tensor"):
        op.schedules  # noqa: B018


def test_a_diagonal_is_one_dimension_of_a_view() -> None:
    twice = Operand("x0", 0, F32, (40, 40), (40, 1), (Access(0), Access(0)))
    once = Operand("x0", 0, F32, (40,), (41,), (Access(0),))
    out = Operand("out", OUTPUT, F32, (40,), (1,), (Access(0),))
    with pytest.raises(OperatorError, match="whose stride is the sum"):
        Declared([twice], out, [40]).nests()
    assert judge(Declared([once], out, [40]), 1)
