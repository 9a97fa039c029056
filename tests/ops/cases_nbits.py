# SPDX-License-Identifier: Apache-2.0
"""Cases of MatMulNBits: float32 and float16 as onnxruntime, bfloat16 as a product of rounded weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from tests.ops.case import SUMS, Array, Case, Input, Tolerance, case, f32, value
from tests.ops.strategies import DEVICES

# A rounding of the result, and sums in another order.
NARROW = {"float16": Tolerance(ulp=1, scale=2e-5), "bfloat16": Tolerance(ulp=1, scale=2e-5)}


def nibbles(levels: Array, bits: int) -> Array:
    """Numbers of ``bits`` bits [..., members] as bytes, the first ones lowest."""
    if bits == 8:
        return levels.astype(np.uint8)
    padded = np.pad(levels, [(0, 0)] * (levels.ndim - 1) + [(0, levels.shape[-1] % 2)])
    return (padded[..., 0::2] | padded[..., 1::2] << 4).astype(np.uint8)


def product(
    shape: tuple[int, ...],
    n: int,
    bits: int = 4,
    block: int = 32,
    dtype: str = "float32",
    zeros: str = "",  # "", "packed" or "float"
    bias: bool = False,
    flat: bool = False,  # scales and zero points as lists
    powers: bool = False,  # scales that are powers of two
    **attributes: Any,
) -> Case:
    """A product of data of ``shape`` with weights [K, n]."""
    rng = np.random.default_rng(n + bits + block)
    k = shape[-1]
    blocks = -(-k // block)
    levels = rng.integers(0, 1 << bits, (n, blocks, block))
    drawn = rng.uniform(0.01, 0.03, (n, blocks))
    scales = (np.exp2(np.rint(np.log2(drawn))) if powers else drawn).astype(dtype)
    points = (
        rng.integers(0, 1 << bits, (n, blocks))
        if zeros == "packed"
        else rng.uniform(0, 1 << bits, (n, blocks))
    )
    points = nibbles(points, bits) if zeros == "packed" else points.astype(dtype)
    inputs: list[Input | None] = [
        f32(*shape) if dtype == "float32" else Input(shape, dtype),
        value(nibbles(levels, bits), "uint8"),
        value(scales.reshape(-1) if flat else scales, dtype),
        value(points.reshape(-1) if flat else points, points.dtype.name) if zeros else None,
        None,
        Input((n,), dtype, const=True) if bias else None,
    ]
    while inputs[-1] is None:
        inputs.pop()
    given = {"K": k, "N": n, "bits": bits, "block_size": block, **attributes}
    allowed = NARROW.get(dtype, SUMS)
    made = Input((*shape[:-1], n), dtype)
    one = case(
        "MatMulNBits", *inputs, domain="com.microsoft", tolerance=allowed, note=zeros, result=made, **given
    )
    return one if dtype == "float32" else replace(one, answer=answer(one, levels))


def answer(one: Case, levels: Array) -> Array:
    """The formula. onnxruntime has no bfloat16, and adds up float16 by its own rules on each machine."""
    a, _, scales, zeros, *rest = [*one.arrays, None]
    assert a is not None and scales is not None
    n, blocks, _ = levels.shape
    bits = one.attributes["bits"]
    points = np.full((n, blocks), 1 << (bits - 1), np.float32)
    if zeros is not None and zeros.dtype == np.uint8:
        packed = zeros.reshape(n, -1)
        apart = packed if bits == 8 else np.stack([packed & 15, packed >> 4], -1).reshape(n, -1)
        points = apart[:, :blocks].astype(np.float32)
    elif zeros is not None:
        points = zeros.reshape(n, blocks).astype(np.float32)
    weights = (levels - points[..., None]) * scales.reshape(n, blocks, 1).astype(np.float32)
    weights = weights.reshape(n, -1)[:, : a.shape[-1]].astype(np.float32)
    if a.dtype == ml_dtypes.bfloat16:
        weights = weights.astype(ml_dtypes.bfloat16).astype(np.float32)
    y = a.astype(np.float64) @ weights.T.astype(np.float64)
    bias = next((x for x in rest if x is not None), None)
    return np.asarray(y if bias is None else y + bias.astype(np.float64)).astype(a.dtype)


CASES = [
    *(product((5, 96), 24, bits, block, zeros=zeros, bias=bool(zeros)) for bits in (4, 8)
      for block in (16, 32, 64) for zeros in ("", "packed")),
    *(product((9, 160), 40, bits, 32, dtype, zeros, bias=bool(zeros)) for dtype in NARROW
      for bits in (4, 8) for zeros in ("", "packed", "float")),
    product((5, 96), 24, zeros="float", bias=True),
    product((5, 96), 24, zeros="packed", flat=True),
    # One row, as language models have it token by token; batches; one column; columns that fill no word.
    product((1, 256), 64, block=128),
    product((1, 512), 33, 8, 256),
    product((2, 3, 64), 7),
    product((4, 64), 1),
    product((3, 64), 11, dtype="bfloat16"),
    product((3, 64), 11, 8, dtype="float16"),
    # A last block that is not full, of three blocks: half a byte of zero points is left over.
    product((3, 70), 12, zeros="packed"),
    product((2, 2, 41), 12, block=16, dtype="bfloat16", zeros="packed"),
    product((3, 20), 12, block=64),
    # Longer than a core's memory holds at once, in every type.
    *(
        product((70, 1024), 130, bits, 64, dtype)
        for bits, dtype in ((4, "float32"), (8, "float16"), (4, "bfloat16"))
    ),
    *product((33, 128), 50, zeros="packed", bias=True).on("npu1", "npu2_1col"),
    *(product((4, 64), 8, accuracy_level=level) for level in (0, 1)),
]  # fmt: skip


@st.composite
def products(draw: st.DrawFn) -> Case:
    block = draw(st.sampled_from((16, 32, 64, 128)))
    shape = (*draw(st.sampled_from(((), (1,), (2, 3)))), draw(st.integers(1, 40)), draw(st.integers(1, 300)))
    return product(
        shape,
        draw(st.integers(1, 70)),
        draw(st.sampled_from((4, 8))),
        block,
        draw(st.sampled_from(("float32", *NARROW))),
        draw(st.sampled_from(("", "packed"))),
        draw(st.booleans()),
        draw(st.booleans()),
        device=draw(DEVICES),
    )


FAMILIES = {"MatMulNBits": products()}
