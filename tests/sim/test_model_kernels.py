# SPDX-License-Identifier: Apache-2.0
"""Kernels of the independent model beside the simulator, byte for byte; what the model lacks it refuses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from onedispatch.cpp_ext import _core
from onedispatch.operators.codegen.spec_data import spec_data
from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.kernels.matmul import GEMM, MatMul, ProductOptions
from onedispatch.operators.kernels.top_k import TopK
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.lowering import MemberOperator
from onedispatch.operators.plugin.operands import In, Out
from onedispatch.operators.plugin.python_kernel import PythonKernel
from onedispatch.transactions import Device, find_device
from tests.array_model.compare import run_model
from tests.array_model.kernels import check_all_read
from tests.array_model.member_kernel import element_wise
from tests.array_model.memory import UNMODELLED, ModelFault
from tests.array_model.super_kernel import load_program
from tests.ops.case import case, value
from tests.ops.libraries import node_of
from tests.ops.lowered import lower
from tests.sim.test_model_operators import Array, buffers_of, check, force, spec, whole

Made = tuple[Operator, list[Array]]
SHAPES = {"a": (4, 8), "b": (8, 4), "out": (4, 4)}
DEVICES = ("npu2_1col", "npu1_2col", "npu1", "npu2")


def quantised(choose: random.Random, rng: np.random.Generator, device: Device) -> Made:
    """Products of bytes with a scale for the tensor or for every column, and zero points."""
    m, k, n = choose.randint(1, 12), choose.randint(1, 19), 4 * choose.randint(1, 4)
    types = [choose.choice([np.int8, np.uint8]) for _ in range(2)]
    made = np.dtype(choose.choice([np.int8, np.uint8, np.int16]))
    a, b = whole(rng, m, k, dtype=types[0]), whole(rng, k, n, dtype=types[1])
    columns = choose.choice([1, n])
    fixed = {
        "a_zero": np.array([3], types[0]),
        "b_zero": np.array([2], types[1]),
        "scale": rng.uniform(0.01, 0.9, columns).astype(np.float32),
        "out_zero": np.array([5], made),
    }
    if choose.random() < 0.3:
        del fixed["a_zero"], fixed["out_zero"]
    bias = rng.integers(-40, 40, n).astype(np.int32) if choose.random() < 0.5 else None
    constant = choose.random() < 0.5
    inputs = spec("a", m, k, dtype=types[0]), spec("b", k, n, dtype=types[1], value=b if constant else None)
    others: dict[str, Any] = {name: spec(name, *x.shape, dtype=x.dtype, value=x) for name, x in fixed.items()}
    if bias is not None and constant:
        others["bias"] = bias
    operator = MatMul("op", *inputs, spec("out", m, n, dtype=made), device, ProductOptions(**others))
    return operator, [a, b, *fixed.values()]


def best(choose: random.Random, rng: np.random.Generator, device: Device) -> Made:
    """Two outputs, each in its part of the out chunk: values and their places."""
    shape = tuple(choose.randint(1, 9) for _ in range(3))
    axis, dtype = choose.randrange(3), np.dtype(choose.choice([np.float32, np.int32]))
    made = list(shape)
    made[axis] = choose.randint(1, shape[axis])
    outputs = spec("values", *made, dtype=dtype), spec("places", *made, dtype=np.int64)
    largest = choose.random() < 0.5
    return TopK("op", spec("x", *shape, dtype=dtype), *outputs, axis, largest, device), [
        whole(rng, *shape, dtype=dtype)
    ]


@pytest.mark.daily(6)
@pytest.mark.parametrize("make", [quantised, best])
@pytest.mark.parametrize("seed", range(16))
def test_kernels_with_forced_schedules(make: Any, seed: int) -> None:
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    operator, arrays = make(choose, rng, find_device(DEVICES[seed % len(DEVICES)]))
    force(operator, choose)
    check(operator, arrays, shuffle=seed if seed % 3 == 0 else None)


def refused(operator: Operator, arrays: list[Array], kind: str = UNMODELLED) -> str:
    device = operator.device
    overlay, buffers = overlay_transaction(device, operator.image), buffers_of(operator, arrays)
    model = run_model(device, overlay, operator.transaction(), buffers, load_program, None)
    assert model.kind == kind, model.text
    return model.text


def test_a_kernel_that_is_not_modelled_is_refused(rng: np.random.Generator) -> None:
    node = case("Softmax", value(rng.standard_normal((3, 8)), "float32", False))
    ((_, operator),) = lower(node).ops
    assert "kernel od::softmax@1 is not modelled" in refused(operator, [node.arrays[0]])


class Fma:
    """z[i][j] = x[i][j] + 2 y[j]"""

    def infer(self, n: Any) -> Any:
        return {"z": n["x"].like()}

    def index_space(self, n: Any) -> Any:
        return n["x"].shape

    def access(self, n: Any) -> Any:
        n.work(op=2)
        return {**n.access("y", n.dim(1)), **n.elementwise("x", "z")}

    def body(self, t: Any) -> None:
        t.z[:] = t.x + 2 * t.y

    def reference(self, n: Any, x: Array, y: Array) -> Array:
        return np.asarray(x + 2 * y)


FMA = PythonKernel(CustomKernel("model::fma", (In("x"), In("y")), (Out("z"),)), Fma)


@contextmanager
def known_to_the_simulator(kernel: PythonKernel) -> Iterator[None]:
    _core.register_kernel(spec_data(kernel.kernel), dict(kernel.functions))
    try:
        yield
    finally:
        _core.unregister_kernel(kernel.kernel.name)


@pytest.mark.parametrize("shape", [(5, 7), (1, 40), (33, 3), (16, 64)])
@pytest.mark.parametrize("device", ["npu2_1col", "npu1"])
def test_a_member_kernel(device: str, shape: tuple[int, int], rng: np.random.Generator) -> None:
    """Members along both dimensions, one of whose inputs has one of them alone."""
    found = find_device(device)
    tensors = {"x": spec("x", *shape), "y": spec("y", shape[1])}
    node = node_of(FMA, list(tensors.values()), device=found)
    operator = MemberOperator(FMA, node, FMA.instantiate(node), tensors, {"z": spec("z", *shape)}, found)
    arrays = [whole(rng, *shape), whole(rng, shape[1])]
    own = ((FMA.kernel, element_wise(FMA.kernel, lambda x, y: x + 2 * y)),)
    with known_to_the_simulator(FMA):
        check(operator, arrays, loader=partial(load_program, own=own))
        assert "is unknown" in refused(operator, arrays, "core")


def words_of(operator: Operator) -> list[int]:
    """Its only parameter block."""
    (block,) = operator._emitted.blocks
    words: list[int] = np.frombuffer(block, np.uint32).tolist()
    return words


def small(dtype: Any, **others: Any) -> MatMul:
    tensors = [spec(name, *shape, dtype=dtype) for name, shape in SHAPES.items()]
    return MatMul("op", *tensors, find_device("npu2_1col"), ProductOptions(**others))


@pytest.mark.parametrize(
    ("device", "steps", "batch", "hidden"),
    [("npu2", 4, 1, 33), ("npu1", 3, 2, 40), ("npu2_1col", 4, 1, 35), ("npu1_2col", 3, 3, 37)],
)
def test_a_layer_whose_weights_stay_in_cores(device: str, steps: int, batch: int, hidden: int) -> None:
    """All steps of a plain recurrent layer; whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(hidden)
    shapes = ((steps, batch, 5), (1, hidden, 5), (1, hidden, hidden))
    x, w, r = (value(rng.integers(-2, 3, shape), "float32", i > 0) for i, shape in enumerate(shapes))
    node = case("RNN", x, w, r, hidden_size=hidden, activations=["Relu"], device=device)
    operator = next(op for _, op in lower(node).ops if op.kind == "recurrent")
    assert any(schedule.in0_resident for schedule in operator.schedules)
    arrays = [whole(rng, *t.shape) % 3 if t.value is None else t.value for t in operator.inputs]
    check(operator, arrays)


def test_what_a_kernel_is_asked_beside_is_refused(rng: np.random.Generator) -> None:
    """Of what a parameter block says, all must have been looked at: operands that are there, scalars."""
    half = np.array([0.5], np.float32)
    operator = small(np.int8, scale=spec("scale", 1, value=half))
    arrays = [whole(rng, 4, 8, dtype=np.int8), whole(rng, 8, 4, dtype=np.int8)]
    check(operator, [*arrays, half])
    block = words_of(operator)
    known = {*(t.name for t in GEMM.tensors), *(s.name for s in GEMM.scalars)}
    check_all_read(GEMM, block, known)
    with pytest.raises(ModelFault, match="operand scale is given, and not modelled"):
        check_all_read(GEMM, block, known - {"scale", "bias"})
    block = words_of(operator.in_narrow_sums())
    with pytest.raises(ModelFault, match="scalar narrow_sums is 0x2, and not modelled"):
        check_all_read(GEMM, block, known - {"narrow_sums"})
    assert "int8 by int8 into int8 is not modelled" in refused(operator.in_narrow_sums(), arrays)


def test_types_that_are_not_modelled_are_refused(rng: np.random.Generator) -> None:
    arrays = [whole(rng, 4, 8, dtype=np.float16), whole(rng, 8, 4, dtype=np.float16)]
    assert "od::gemm@1: a of float16 is not modelled" in refused(small(np.float16), arrays)
