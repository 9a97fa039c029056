# SPDX-License-Identifier: Apache-2.0
"""How many bfloat16 parts numbers have, and how right sums of their products are: what a product costs by."""

from __future__ import annotations

from itertools import product as product_of
from typing import Any

import numpy as np

from onedispatch.operators.kernels.quant_params import fused
from tests.ops.test_counted_work import BFLOAT16


def parts(x: np.ndarray[Any, Any], count: int) -> list[np.ndarray[Any, Any]]:
    """``x`` as a sum of bfloat16 numbers, each the rounded rest."""
    found, rest = [], x
    for _ in range(count):
        found.append(rest.astype(BFLOAT16).astype(np.float32))
        rest = rest - found[-1]
    return found


def test_three_bfloat16_parts_are_f32_and_nine_products_are_exact() -> None:
    random = np.random.default_rng(9)
    a, b = (random.standard_normal(20_000).astype(np.float32) for _ in range(2))
    assert (sum(parts(a, 3)) == a).all()
    exact = a.astype(np.float64) * b
    pairs = product_of(enumerate(parts(a, 3)), enumerate(parts(b, 3)))
    products = {(i, j): x.astype(np.float64) * y for (i, x), (j, y) in pairs}

    def error(most: int) -> float:
        """The largest relative error of the products of parts whose places add up to ``most`` at most."""
        total = sum(product for (i, j), product in products.items() if i + j <= most)
        return float(np.max(np.abs(total - exact) / np.abs(exact)))

    assert error(4) == 0  # all nine
    assert 2**-28 < error(2) < 2**-22  # six
    assert 2**-19 < error(1) < 2**-14  # three


def scale_parts(count: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Scales of a column each, and their three parts."""
    scales = np.random.default_rng(7).uniform(1e-3, 4, (count, 1)).astype(np.float32)
    return scales, *parts(scales, 3)


def test_a_byte_times_the_parts_of_a_scale_is_rounded_once() -> None:
    """In float32, least first: two products come to what float32 holds, and so is the third."""
    values = np.arange(-255, 256, dtype=np.float32)
    assert (parts(values, 1)[0] == values).all()
    scales, first, second, third = scale_parts(2_000)
    low = values * third + values * second
    assert (low == values * (scales - first).astype(np.float64)).all()
    assert (low + values * first == values * scales).all()


def test_eight_additions_round_a_sum_with_it_once_and_accumulators_that_begin_with_one_do_not() -> None:
    values = np.arange(256, dtype=np.float32)
    scales, first, second, third = scale_parts(2_000)
    addend = np.random.default_rng(8).uniform(-300, 300, scales.shape).astype(np.float32)
    high, low = values * first, values * third + values * second
    total = high + addend
    back = total - high
    lost = (high - (total - back)) + (addend - back)
    right = fused(values, scales, addend)
    assert (total + (lost + low) != right).mean() < 1e-5  # the lower parts' own sum is rounded
    accumulated = ((addend + values * third) + values * second) + values * first
    assert (accumulated != right).mean() > 0.1


def wrong(products: list[np.ndarray[Any, Any]], right: np.ndarray[Any, Any]) -> float:
    """How many are, of products that are added up in float32 as they come: a bfloat16 product each."""
    total = products[0]
    for product in products[1:]:
        total = total + product
    return float((total != right).mean())


def test_whole_numbers_of_16_bits_are_two_parts_and_six_products_as_right_as_nine() -> None:
    values = np.arange(-65535, 65536, dtype=np.float32)
    assert (sum(parts(values, 2)) == values).all()
    random = np.random.default_rng(6)
    floats = random.standard_normal(2_000).astype(np.float32)
    scales, *factors = scale_parts(1_000)

    def products(x: np.ndarray[Any, Any], count: int) -> list[np.ndarray[Any, Any]]:
        """Of the parts of ``x`` and of the scales, the least ones first."""
        pairs = product_of(enumerate(parts(x, count)), enumerate(factors))
        return [a * b for (_, a), (_, b) in sorted(pairs, key=lambda pair: -pair[0][0] - pair[1][0])]

    whole = random.choice(values, 2_000)
    six, nine = wrong(products(whole, 2), whole * scales), wrong(products(floats, 3), floats * scales)
    assert 5e-4 < six < 2e-3 and 5e-4 < nine < 2e-3
