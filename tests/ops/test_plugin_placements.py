# SPDX-License-Identifier: Apache-2.0
"""Custom kernels with any index space and access: the array computes what members alone compute."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, prod
from typing import Any

import numpy as np
import pytest

from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import Interval, KernelInstance
from onedispatch.operators.plugin.operands import Aux, In, Out
from onedispatch.transactions import Device, find_device
from tests.devices import device_of
from tests.ops.members import AnyFitting, emulated, executed, operator_of, whole_numbers

I = Interval  # noqa: E741
Tensors = dict[str, tuple[str, tuple[int, ...]]]
Access = dict[str, tuple[Interval, ...]]
DEVICES = ["npu2", "npu1", "one", "two", "six", "tall", "scarce", "ten", "quartered"]
DTYPES = ["f32", "i8", "bf16", "u8", "f16", "bool", "i16"]


def find(name: str) -> Device:
    return find_device(name) if name.startswith("npu") else device_of(name)


def check(
    inputs: Tensors,
    outputs: Tensors,
    space: tuple[int, ...],
    access: Access,
    *,
    device: str = "npu2",
    seed: int = 0,
    chosen: bool = False,
    pads: dict[str, float] | None = None,
    fills: dict[str, float] | None = None,
) -> int:
    """Runs one instance, with any solution unless ``chosen``; the number of nests."""
    kernel = CustomKernel(
        "acme::placed",
        tuple(In(name, dtype, pad=(pads or {}).get(name)) for name, (dtype, _) in inputs.items()),
        tuple(Out(name, dtype, fill=(fills or {}).get(name)) for name, (dtype, _) in outputs.items()),
    )
    rng = np.random.default_rng(seed)
    arrays = {name: whole_numbers(rng, dtype, shape) for name, (dtype, shape) in inputs.items()}
    instance = KernelInstance(outputs, space, access)
    op = operator_of(kernel, instance, arrays, find(device))
    op.check_fits()
    made = executed(op if chosen else op.selected(AnyFitting(seed)), arrays)  # type: ignore[arg-type]
    for name, expected in emulated(kernel, instance, arrays).items():
        assert np.array_equal(made[name], expected), (name, np.argwhere(made[name] != expected)[:5])
    return len(op.nests())


NAMED: dict[str, tuple[Tensors, Tensors, tuple[int, ...], Access, dict[str, Any]]] = {
    "broadcast": (
        {"x": ("f32", (10, 20)), "y": ("f32", (20,))},
        {"z": ("f32", (10, 20))},
        (10, 20),
        {"x": (I(0), I(1)), "y": (I(1),), "z": (I(0), I(1))},
        {},
    ),
    "box filter": (
        {"x": ("f32", (12, 20))},
        {"z": ("f32", (12, 20))},
        (12, 20),
        {"x": (I(0, 1, -1, 1), I(1, 1, -2, 2)), "z": (I(0), I(1))},
        {"pads": {"x": 3}},
    ),
    "down-sampling": (
        {"x": ("f32", (13, 21))},
        {"z": ("f32", (7, 11))},
        (7, 11),
        {"x": (I(0, 2, 0, 1), I(1, 2, 0, 1)), "z": (I(0), I(1))},
        {"pads": {"x": 2}},
    ),
    "up-sampling": (
        {"x": ("f32", (7, 5))},
        {"z": ("f32", (14, 15))},
        (14, 15),
        {"x": (I(0, Fraction(1, 2)), I(1, Fraction(1, 3))), "z": (I(0), I(1))},
        {},
    ),
    "rows": (
        {"x": ("f32", (9, 30))},
        {"z": ("f32", (9, 30)), "s": ("f32", (9,))},
        (9,),
        {"x": (I(0), I()), "z": (I(0), I()), "s": (I(0),)},
        {},
    ),
    "columns": (
        {"x": ("f32", (9, 30))},
        {"z": ("f32", (9, 30))},
        (30,),
        {"x": (I(), I(0)), "z": (I(), I(0))},
        {},
    ),
    "product": (
        {"x": ("f32", (9, 8)), "y": ("f32", (8, 14))},
        {"z": ("f32", (9, 14))},
        (9, 14),
        {"x": (I(0), I()), "y": (I(), I(1)), "z": (I(0), I(1))},
        {},
    ),
    "reversed": (
        {"x": ("f32", (12,))},
        {"z": ("f32", (12,))},
        (12,),
        {"x": (I(0, -1, 11, 11),), "z": (I(0),)},
        {},
    ),
    "diagonal": (
        {"x": ("f32", (12, 12))},
        {"z": ("f32", (12,))},
        (12,),
        {"x": (I(0), I(0)), "z": (I(0),)},
        {},
    ),
    "gaps": (
        {"x": ("f32", (9,))},
        {"z": ("f32", (20,))},
        (9,),
        {"x": (I(0),), "z": (I(0, 2, 1, 1),)},
        {"fills": {"z": 5}},
    ),
    "two dtypes": (
        {"x": ("f32", (9, 30))},
        {"z": ("f32", (9, 30)), "q": ("i8", (9, 30))},
        (9, 30),
        {"x": (I(0), I(1)), "z": (I(0), I(1)), "q": (I(0), I(1))},
        {},
    ),
    "no dimension": (
        {"x": ("i8", ()), "y": ("i8", (3,))},
        {"z": ("i8", (3,))},
        (3,),
        {"x": (), "y": (I(0),), "z": (I(0),)},
        {},
    ),
    "scalars alone": ({"x": ("bf16", ())}, {"z": ("bf16", ())}, (1,), {"x": (), "z": ()}, {}),
    "five dimensions": (
        {"x": ("f32", (2, 3, 4, 3, 6))},
        {"z": ("f32", (6, 3, 4, 3, 2))},
        (2, 3, 4, 3, 6),
        {"x": tuple(map(I, range(5))), "z": tuple(map(I, reversed(range(5))))},
        {},
    ),
}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("chosen", [True, False], ids=["best", "any"])
def test_what_kernels_are_made_of(name: str, chosen: bool) -> None:
    inputs, outputs, space, access, more = NAMED[name]
    check(inputs, outputs, space, access, chosen=chosen, **more)


@pytest.mark.daily(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 2, 3, 21, 101])
def test_vectors_of_64_and_rows_that_they_do_not_divide(dtype: str, columns: int) -> None:
    x: Tensors = {"x": (dtype, (3, columns))}
    z: Tensors = {"z": (dtype, (3, columns))}
    block = I(1, 64, 0, 63)
    check(x, z, (3, ceil(columns / 64)), {"x": (I(0), block), "z": (I(0), block)})
    check(x, z, (3, columns), {"x": (I(0), I(1)), "z": (I(0), I(1))})
    turned: Tensors = {"z": (dtype, (columns, 3))}
    check(x, turned, (3, columns), {"x": (I(0), I(1)), "z": (I(1), I(0))})
    pairs: Tensors = {"z": (dtype, (3, 2 * columns))}
    check(x, pairs, (3, columns), {"x": (I(0), I(1)), "z": (I(0), I(1, 2, 0, 1))})


def random_placement(rng: np.random.Generator) -> tuple[Any, ...]:
    """An index space, outputs that have every index dimension once, and inputs that have what they like."""
    rank = int(rng.integers(1, 6))
    space = tuple(int(n) for n in rng.integers(1, {1: 60, 2: 14, 3: 7, 4: 4, 5: 3}[rank], rank) + 1)
    inputs: Tensors = {}
    outputs: Tensors = {}
    access: Access = {}
    fills: dict[str, float] = {}
    for number in range(int(rng.integers(1, 4))):
        outputs[f"z{number}"], access[f"z{number}"], gaps = random_output(rng, space)
        if gaps:
            fills[f"z{number}"] = 1
    for number in range(int(rng.integers(1, 4))):
        inputs[f"x{number}"], access[f"x{number}"] = random_input(rng, space)
    pads = {name: 1.0 for name in inputs if rng.random() < 0.5}
    return inputs, outputs, space, access, pads, fills


def random_output(rng: np.random.Generator, space: tuple[int, ...]) -> tuple[Any, tuple[Interval, ...], bool]:
    shape, intervals, gaps = [], [], False
    for d in rng.permutation(len(space)):
        a = int(rng.choice([1, 1, 1, 2, 3, 5]))
        covered = a * space[d]
        kind = rng.random()
        size, start, end = covered, 0, a - 1
        if kind < 0.4:  # the last member overhangs
            size = covered - int(rng.integers(0, a))
        elif kind < 0.5:  # members lie apart, or shifted
            start = int(rng.integers(-1, 2))
            end = start + int(rng.integers(0, a))
            gaps = True
        elif kind < 0.55:  # some members have nothing to write, some elements no member
            size, gaps = max(1, covered + int(rng.integers(-3, 4))), True
        shape.append(size)
        intervals.append(I(int(d), a, start, end))
    if len(shape) < 5 and rng.random() < 0.3:
        at = int(rng.integers(0, len(shape) + 1))
        shape.insert(at, int(rng.integers(1, 6)))
        intervals.insert(at, I())
    return (str(rng.choice(DTYPES)), tuple(shape)), tuple(intervals), gaps


def random_input(rng: np.random.Generator, space: tuple[int, ...]) -> tuple[Any, tuple[Interval, ...]]:
    shape, intervals = [], []
    for d in rng.choice(len(space), int(rng.integers(0, len(space) + 1)), replace=bool(rng.random() < 0.2)):
        a = [1, 1, 1, 2, 3, Fraction(1, 2), Fraction(2, 3), -1][int(rng.integers(8))]
        start = int(rng.integers(-2, 3))
        size = max(1, ceil(abs(a) * space[d]) + int(rng.integers(-2, 3)))
        shape.append(size)
        intervals.append(I(int(d), a, start, start + int(rng.integers(0, 3))))
    if len(shape) < 5 and rng.random() < 0.3:
        shape.append(int(rng.integers(1, 6)))
        intervals.append(I())
    return (str(rng.choice(DTYPES)), tuple(shape)), tuple(intervals)


@pytest.mark.daily(6)
@pytest.mark.parametrize("seed", range(90))
def test_random_placements(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs, outputs, space, access, pads, fills = random_placement(rng)
    work = prod(space) * sum(
        prod(shape) if it == () else 1
        for (_, shape), it in zip(inputs.values(), access.values(), strict=False)
    )
    assert work < 100_000
    device = DEVICES[seed % len(DEVICES)]
    try:
        check(inputs, outputs, space, access, device=device, seed=seed, pads=pads, fills=fills)
    except Unsupported as error:
        assert device == "quartered"
        assert "in every call" in error.reason or "the smallest tile needs" in error.reason


def test_auxiliary_tensors_reach_every_member() -> None:
    kernel = CustomKernel("acme::aux", (In("x"),), (Out("z"),), aux=(Aux("table", "i8"), Aux("recip")))
    arrays = {"x": np.arange(40, dtype=np.float32).reshape(8, 5)}
    aux = {"table": np.arange(7, dtype=np.int8), "recip": np.full((2, 3), 4, np.float32)}
    instance = KernelInstance({"z": ("f32", (8, 5))}, (8, 5), {"x": (I(0), I(1)), "z": (I(0), I(1))}, aux=aux)
    op = operator_of(kernel, instance, arrays, find_device("npu2"))
    access = {**instance.access, "table": (I(),), "recip": (I(), I())}
    plain = KernelInstance(instance.outputs, (8, 5), access)
    assert np.array_equal(executed(op, arrays | aux)["z"], emulated(kernel, plain, arrays | aux)["z"])


def test_from_one_core_to_all_of_them_the_bits_are_the_same() -> None:
    _, outputs, space, access, _ = NAMED["box filter"]
    kernel = CustomKernel("acme::placed", (In("x", pad=3),), (Out("z"),))
    arrays = {"x": whole_numbers(np.random.default_rng(0), "f32", (12, 20))}
    made = set()
    for device in ["one", "two", "npu1", "npu2", "ten", "npu2_3col"]:
        op = operator_of(kernel, KernelInstance(outputs, space, access), arrays, find(device))
        for seed in range(2):
            made.add(executed(op.selected(AnyFitting(seed)), arrays)["z"].tobytes())  # type: ignore[arg-type]
    assert len(made) == 1
