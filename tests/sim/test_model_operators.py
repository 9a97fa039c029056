# SPDX-License-Identifier: Apache-2.0
"""Generated operators on the model: right results, and the same bytes as the C++ simulator.

The schedules are forced to many tilings and mappings that the scheduler would not choose for
such small shapes: row broadcast, column broadcast, edge tiles, reductions in steps.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.elementwise import Eltwise, View
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.kernels.movement import Move, StridedCopy
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import every_mapping
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import ArgKind, Device, find_device
from tests.array_model.array import Loader
from tests.array_model.compare import run_cpp, run_model
from tests.array_model.super_kernel import load_program
from tests.devices import device_of

Array = np.ndarray[Any, Any]
F32 = np.dtype(np.float32)
DEVICES = ("npu2_1col", "npu1_2col", "npu1_3col", "npu2_4col", "npu1", "npu2")
# Of files: rows that share lanes, three abreast and in pairs, and memory tiles that end before their window.
OWN = ("tall", "ten", "two", "quartered", "scarce", "doubled")
MAX_STEPS = 150


def spec(name: str, *shape: int, dtype: Any = F32, value: Array | None = None) -> TensorSpec:
    return TensorSpec(name, np.dtype(dtype), shape, value)


def whole(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    """Small whole numbers: sums of their products are exact in f32 in any order."""
    return rng.integers(0 if np.dtype(dtype) == np.uint8 else -8, 8, shape).astype(dtype)


def buffers_of(operator: Operator, arrays: list[Array]) -> list[bytes | int]:
    """The kernel arguments in the order of the arg map; arguments that are not used are small."""
    pairs = zip(operator.inputs, arrays, strict=True)
    read = [tensor.laid(array) for i, (tensor, array) in enumerate(pairs) if i in operator._read_inputs]
    entries = operator.arg_map()
    buffers: list[bytes | int] = [4] * (1 + max(entry.xrt_arg_idx for entry in entries))
    for entry in entries:
        if entry.kind is ArgKind.OUTPUT:
            buffers[entry.xrt_arg_idx] = entry.size
        elif entry.kind is ArgKind.INPUT:
            buffers[entry.xrt_arg_idx] = read[entry.onnx_arg_idx].tobytes()
        elif entry.kind is ArgKind.CONST_KERNEL_PARAM_INPUT:
            buffers[entry.xrt_arg_idx] = operator.super_kernel_params()
        else:
            buffers[entry.xrt_arg_idx] = operator.format_const_params().tobytes()
    return buffers


def check(
    operator: Operator, arrays: list[Array], shuffle: int | None = None, loader: Loader = load_program
) -> None:
    device = operator.device
    overlay, transaction = overlay_transaction(device, operator.image), operator.transaction()
    buffers = buffers_of(operator, arrays)
    model = run_model(device, overlay, transaction, buffers, loader, shuffle)
    assert model.kind == "ok", model.text
    size = operator.output.device_bytes
    result = operator.output.gathered(np.frombuffer(model.buffers[0][:size], operator.output.dtype))
    np.testing.assert_array_equal(result, operator.reference(*arrays), err_msg="\n".join(operator.explain()))
    cpp = run_cpp(device, overlay, transaction, buffers)
    assert cpp.kind == "ok", cpp.text
    assert model.buffers == cpp.buffers, "\n".join(operator.explain())


def force(operator: Operator, choose: random.Random) -> None:
    """Replace the operator's schedules by arbitrary legal ones."""
    forced = []
    for nest in operator._nests:
        mapping = choose.choice(list(every_mapping(nest, operator.device)))
        for _ in range(1000):
            tiles = [choose.randint(1, min(d.max_tile, d.extent)) for d in nest.dims]
            pairs = zip(nest.dims, tiles, strict=True)
            tiles = [d.extent if d.whole or t % d.multiple else t for d, t in pairs]
            k_tile = 1
            if nest.reduces:
                k_tile = choose.randint(1, nest.k_extent)
                k_tile = min(nest.k_extent, -(-k_tile // nest.k_multiple) * nest.k_multiple)
            solution = Solution(nest.kernel.name, mapping, tuple(tiles), k_tile)
            schedule = Schedule(nest, operator.device, solution)
            if schedule.outer_steps * schedule.inner_steps <= MAX_STEPS:
                forced.append(schedule)
                break
        else:
            pytest.skip("no short schedule was found")
    operator.__dict__["schedules"] = forced


def eltwise(choose: random.Random, rng: np.random.Generator, device: Device) -> tuple[Operator, list[Array]]:
    shape = [choose.randint(1, 9) for _ in range(choose.randint(1, 4))]
    other = [n if choose.random() < 0.6 else 1 for n in shape][choose.randrange(len(shape)) :]
    func = choose.choice(["add", "sub", "mul", "max", "muladd"])
    dtype = np.dtype(np.float32 if func == "muladd" else choose.choice(["f4", "f4", "i1", "u2", "i4"]))
    inputs = [spec("a", *shape, dtype=dtype), spec("b", *other, dtype=dtype)]
    arrays = [whole(rng, *shape, dtype=dtype), whole(rng, *other, dtype=dtype)]
    if func == "muladd":
        inputs.append(spec("c", *shape[-1:]))
        arrays.append(whole(rng, *shape[-1:]))
    return Eltwise("op", func, inputs, spec("out", *shape, dtype=dtype), device), arrays


def transposed(
    choose: random.Random, rng: np.random.Generator, device: Device
) -> tuple[Operator, list[Array]]:
    """Bytes of rows that end inside words become other such rows."""
    m, n = choose.randint(1, 13), choose.randint(1, 13)
    x, output = spec("x", m, n, dtype=np.int8), spec("out", n, m, dtype=np.int8)
    part = StridedCopy(
        0, output.device_shape, View(x.strides[::-1]), View(output.strides), output.row_pitch - m
    )
    return Move("op", [x], output, device, [part]), [whole(rng, m, n, dtype=np.int8)]


def matmul(choose: random.Random, rng: np.random.Generator, device: Device) -> tuple[Operator, list[Array]]:
    m, k, n = (choose.randint(1, 17) for _ in range(3))
    a, b = whole(rng, m, k), whole(rng, k, n)
    out = spec("out", m, n)
    form = choose.choice(["plain", "constant", "transposed", "batched"])
    if form == "constant":
        bias = whole(rng, n) if choose.random() < 0.5 else None
        constant = spec("b", k, n, value=b)
        return MatMul("op", spec("a", m, k), constant, out, device, ProductOptions(bias=bias)), [a, b]
    if form == "transposed":
        inputs = spec("a", k, m), spec("b", n, k)
        operator = MatMul("op", *inputs, out, device, ProductOptions(alpha=0.5, trans_a=True, trans_b=True))
        return operator, [np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)]
    if form == "batched":
        x, y = choose.randint(1, 3), choose.randint(1, 3)
        a, b = whole(rng, x, 1, m, k), whole(rng, y, k, n)
        inputs = spec("a", x, 1, m, k), spec("b", y, k, n)
        return MatMul("op", *inputs, spec("out", x, y, m, n), device), [a, b]
    return MatMul("op", spec("a", m, k), spec("b", k, n), out, device), [a, b]


def integers(choose: random.Random, rng: np.random.Generator, device: Device) -> tuple[Operator, list[Array]]:
    m, k, n = choose.randint(1, 12), 4 * choose.randint(1, 4), 4 * choose.randint(1, 4)
    types = [choose.choice([np.int8, np.uint8]) for _ in range(2)]
    a, b = whole(rng, m, k, dtype=types[0]), whole(rng, k, n, dtype=types[1])
    out = spec("out", m, n, dtype=np.int32)
    inputs = spec("a", m, k, dtype=types[0]), spec("b", k, n, dtype=types[1])
    return MatMul("op", *inputs, out, device), [a, b]


@pytest.mark.daily(6)
@pytest.mark.parametrize("device", ["npu2_1col", "npu1_2col", "npu2", *OWN])
def test_small_operators_as_scheduled(device: str, rng: np.random.Generator) -> None:
    found = device_of(device) if device in OWN else find_device(device)
    add = Eltwise("add", "add", [spec("a", 7, 5), spec("b", 7, 1)], spec("out", 7, 5), found)
    check(add, [whole(rng, 7, 5), whole(rng, 7, 1)])
    product = MatMul("product", spec("a", 5, 9), spec("b", 9, 6), spec("out", 5, 6), found)
    check(product, [whole(rng, 5, 9), whole(rng, 9, 6)])
    larger = MatMul("larger", spec("a", 40, 33), spec("b", 33, 50), spec("out", 40, 50), found)
    check(larger, [whole(rng, 40, 33), whole(rng, 33, 50)])


@pytest.mark.daily(8)
@pytest.mark.parametrize("make", [eltwise, transposed, matmul, integers])
@pytest.mark.parametrize("seed", range(18))
def test_operators_with_forced_schedules(make: Any, seed: int) -> None:
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    device = find_device(DEVICES[seed % len(DEVICES)]) if seed < 12 else device_of(OWN[seed % len(OWN)])
    operator, arrays = make(choose, rng, device)
    force(operator, choose)
    check(operator, arrays, shuffle=seed if seed % 3 == 0 else None)
