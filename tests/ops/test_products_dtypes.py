# SPDX-License-Identifier: Apache-2.0
"""Products with narrow results or mixed types: operators alone, against NumPy in onnxruntime's arithmetic.

QLinearMatMul shows the byte types through ONNX (``cases_products``); ONNX has no operator for the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.interface.operator import TensorSpec
from onedispatch.operators.kernels.matmul import GEMM, MatMul, ProductOptions, requantised
from onedispatch.transactions import find_device
from onedispatch.transactions.base.errors import OperatorError
from tests.ops.case import Array
from tests.ops.host import execute

DEVICE = find_device("npu2")
SCALED = [
    (a, b, out)
    for row in GEMM.type_rows
    if "scale" in row
    for a in row["a"]
    for b in row["b"]
    for out in row["out"]
]
INTEGERS = [types for types in SCALED if not DTYPES[types[2]].is_float]
FLOATS = [types for types in SCALED if DTYPES[types[2]].is_float]
SIZES = pytest.mark.parametrize(
    ("sizes", "per_column", "const"),
    [
        ((1, 1, 1), False, False),
        ((5, 7, 10), True, False),
        ((37, 61, 29), True, True),
        ((33, 64, 128), False, True),
    ],
    ids=str,
)


def drawn(random: np.random.Generator, dtype: str, *shape: int) -> Array:
    numpy = DTYPES[dtype].numpy
    if numpy.kind in "iu":
        info = np.iinfo(numpy)
        return random.integers(info.min, info.max, shape, endpoint=True, dtype=np.int64).astype(numpy)
    return random.standard_normal(shape).astype(numpy)


def spec(name: str, array: Array, const: bool = False) -> TensorSpec:
    return TensorSpec(name, array.dtype, array.shape, array if const else None)


def product(
    types: tuple[str, str, str], sizes: tuple[int, int, int], seed: int, *, const: bool = False, **extra: Any
) -> tuple[MatMul, list[Array]]:
    """The operator and its arrays; a name of a keyword that is a tensor's gives its array."""
    random = np.random.default_rng(seed)
    m, k, n = sizes
    a, b = drawn(random, types[0], m, k), drawn(random, types[1], k, n)
    tensors = {name: extra.pop(name) for name in ("a_zero", "b_zero", "scale", "out_zero") if name in extra}
    specs = {name: spec(name, array) for name, array in tensors.items()}
    output = TensorSpec("y", DTYPES[types[2]].numpy, (m, n))
    op = MatMul("op", spec("a", a), spec("b", b, const), output, DEVICE, ProductOptions(**specs, **extra))
    return op, [a, b, *tensors.values()]


@pytest.mark.daily(3)
@pytest.mark.parametrize("types", INTEGERS, ids="-".join)
@SIZES
def test_sums_are_requantised(
    types: tuple[str, str, str], sizes: tuple[int, int, int], per_column: bool, const: bool
) -> None:
    """Scales that bring results into range, beyond it on either side, and to halves exactly."""
    m, k, n = sizes
    random = np.random.default_rng(n)
    top = float(np.iinfo(DTYPES[types[0]].numpy).max) * float(np.iinfo(DTYPES[types[1]].numpy).max) * k**0.5
    reach = min(float(np.iinfo(DTYPES[types[2]].numpy).max), 1e6)
    scale = (random.uniform(0.2, 3.0, n if per_column else 1) * reach / top).astype(np.float32)
    scale[0] = 2.0 ** np.round(np.log2(scale[0]))
    zeros = {
        "a_zero": drawn(random, types[0], *([m] if per_column else [1])),
        "b_zero": drawn(random, types[1], *([n] if per_column else [1])),
    }
    info = np.iinfo(DTYPES[types[2]].numpy)
    out_zero = np.array([random.integers(max(info.min, -99), min(info.max, 99))], DTYPES[types[2]].numpy)
    op, arrays = product(types, sizes, seed=k, const=const, scale=scale, out_zero=out_zero, **zeros)
    expected = op.reference(*arrays)
    np.testing.assert_array_equal(execute(op, arrays), expected)
    if m * n > 300:
        assert len(np.unique(expected)) > 20  # not all saturated


@pytest.mark.parametrize("types", FLOATS, ids="-".join)
@SIZES
def test_sums_become_floats(
    types: tuple[str, str, str], sizes: tuple[int, int, int], per_column: bool, const: bool
) -> None:
    """Sums are exact, scaled and rounded, and a bias is added and rounded; then the activation."""
    m, k, n = sizes
    random = np.random.default_rng(n)
    scale = random.uniform(1e-4, 1e-3, n if per_column else 1).astype(np.float32)
    zeros = {"a_zero": drawn(random, types[0], 1), "b_zero": drawn(random, types[1], n if per_column else 1)}
    more: dict[str, Any] = (
        {"bias": drawn(random, "f32", n), "activation": Activation("relu")} if const else {}
    )
    scales = {"scale": scale} if m > 1 else {}
    op, arrays = product(types, sizes, seed=k, const=const, **scales, **zeros, **more)
    np.testing.assert_array_equal(execute(op, arrays), op.reference(*arrays))


def test_halves_are_rounded_to_even_and_saturated() -> None:
    sums = np.array([[1, 3, 5, -1, -3, 255, 257, 1 << 24]], np.int32)
    got = requantised(sums, np.array([0.5], np.float32), 0, np.dtype(np.int8))
    assert got.tolist() == [[0, 2, 2, 0, -2, 127, 127, 127]]


@pytest.mark.parametrize(
    "types",
    [("i16", "i8", "i32"), ("i32", "i32", "i32"), ("u32", "u32", "u32"), ("i8", "u8", "i32")],
    ids="-".join,
)
def test_sums_wrap(types: tuple[str, str, str]) -> None:
    """Over many steps too: the largest numbers of a type, as often as it takes."""
    op, arrays = product(types, (3, 70001, 5), seed=1)
    top = [np.full_like(x, np.iinfo(x.dtype).max) for x in arrays]
    expected = op.reference(*top)
    np.testing.assert_array_equal(execute(op, top), expected)
    exact = 70001 * int(top[0].flat[0]) * int(top[1].flat[0])
    assert int(expected.flat[0]) == (exact + (1 << 31)) % (1 << 32) - (1 << 31) or expected.dtype.kind == "u"
    assert exact > np.iinfo(expected.dtype).max


@pytest.mark.parametrize("narrow", ["bf16", "f16"])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (37, 61, 29), (64, 300, 130)], ids=str)
def test_short_floats_are_summed_in_float32(narrow: str, wide: bool, sizes: tuple[int, int, int]) -> None:
    """One rounding: half a unit in the last place of the result, and the sums' own in float32."""
    op, arrays = product((narrow, narrow, "f32" if wide else narrow), sizes, seed=2)
    exact = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    got = execute(op, arrays).astype(np.float64)
    bits = 24 if wide else 8 if narrow == "bf16" else 11
    bound = np.abs(exact) * 2.0**-bits + np.abs(exact).max() * 2.5e-6
    assert (np.abs(got - exact) <= bound).all()


def test_types_that_do_not_go_together_are_refused() -> None:
    for types in (("i8", "i8", "bf16"), ("f32", "bf16", "f32"), ("i32", "i8", "i32"), ("u8", "i16", "i32")):
        op, _ = product(types, (3, 4, 5), seed=3)
        with pytest.raises(OperatorError, match=r"nest of od::gemm@1, .*element type"):
            op.nests()
