# SPDX-License-Identifier: Apache-2.0
"""Rows of catalogs for tests: products and element-wise nests of many sizes, as the search solves them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from onedispatch.operators.catalog.build import merged, write
from onedispatch.operators.catalog.log import Tuned
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.search import best_with_cost
from onedispatch.transactions import Device, find_device
from tests.integration.test_operators_solution import product

NPU1, NPU2 = find_device("npu1"), find_device("npu2")
DEVICES = {device.identity: device for device in (NPU1, NPU2)}


@cache
def _base(device: Device, activation: str) -> Problem:
    return Problem.of(product(activation=activation, device=device), device)


def resized(m: int, k: int, n: int, device: Device = NPU2, activation: str = "none") -> Problem:
    """The problem of a product of f32 matrices; quickly, which tests of thousands need."""
    base = _base(device, activation)
    (a, b), (out,) = base.inputs, base.outputs
    dims = tuple(replace(dim, extent=size) for dim, size in zip(base.dims, (m, n), strict=True))
    inputs = replace(a, shape=(m, k), strides=(k, 1)), replace(b, shape=(k, n), strides=(n, 1))
    return replace(
        base, dims=dims, inputs=inputs, outputs=(replace(out, shape=(m, n), strides=(n, 1)),), k_extent=k
    )


def problems(count: int, seed: int = 0) -> Iterator[Problem]:
    """Products of random sizes on two devices, half of them with an activation that costs more."""
    rng = random.Random(seed)
    for number in range(count):
        m, k, n = (rng.randrange(1, 400) for _ in range(3))
        yield resized(m, k, n, (NPU1, NPU2)[number % 2], ("none", "tanh")[number // 2 % 2])


@cache
def rows(count: int = 24) -> tuple[Tuned, ...]:
    """What a tuner that only searched would log."""
    found = []
    for problem in problems(count):
        solution, cycles = best_with_cost(problem.nest, DEVICES[problem.device])
        found.append(Tuned(problem, solution, round(1.1 * cycles), cycles, "test"))
    return tuple(found)


def written(folder: Path, *, lazy: bool, form: str = "msgpack") -> Path:
    """A folder with the catalogs of ``rows``."""
    write(merged(rows()), folder, lazy=lazy, form=form)  # type: ignore[arg-type]
    return folder
