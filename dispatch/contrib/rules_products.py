# SPDX-License-Identifier: Apache-2.0
"""Rules for products and convolutions with transposes, factors, residuals and activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onedispatch.dispatch.contrib.domain import contrib, given, number
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import Operand, SourceNode

# Activations by name, with the names of their parameters in the order in which they are given.
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Relu": (), "Sigmoid": (), "Tanh": (), "Softplus": (), "Softsign": (), "HardSwish": (), "Gelu": (),
    "LeakyRelu": ("alpha",), "Elu": ("alpha",), "ThresholdedRelu": ("alpha",),
    "Selu": ("alpha", "gamma"), "HardSigmoid": ("alpha", "beta"), "Clip": (),
}  # fmt: skip


def _activated(
    g: Builder, x: Any, name: str | bytes | None, parameters: Sequence[float], like: Operand
) -> Any:
    """The activation that an attribute names, of a result. Raises ``Refused`` for another one."""
    kind = name.decode() if isinstance(name, bytes) else name
    if not kind:
        return x
    if kind not in _ACTIVATIONS:
        raise Refused(f"activation {kind!r}, where {', '.join(_ACTIVATIONS)} are known")
    if kind == "Clip":
        if len(parameters) != 2:
            raise Refused(
                f"Clip with {len(parameters)} parameters, where a minimum and a maximum are expected"
            )
        low, high = (float(one) for one in parameters)
        if g.opset < 11:
            return g.Clip(x, min=low, max=high)
        return g.Clip(x, *(number(g, one, like) for one in (low, high)))
    pairs = zip(_ACTIVATIONS[kind], parameters, strict=False)
    said: dict[str, Any] = {one: float(value) for one, value in pairs if value is not None}
    return g.op(kind, x, **said)


@contrib.expand("FusedConv")
def fused_conv(g: Builder, n: SourceNode) -> Any:
    """A convolution, a tensor that is added to it, an activation."""
    name, parameters = n.attr("activation", ""), n.attr("activation_params", ())
    made, more = g.Conv(*n.inputs[:3]), given(n, 3)
    return _activated(g, made if more is None else g.Add(made, more), name, parameters, n.inputs[0])


@contrib.expand("FusedGemm")
def fused_gemm(g: Builder, n: SourceNode) -> Any:
    name = n.attr("activation", "")
    said = {one: n.attr(f"activation_{one}", None) for one in ("alpha", "beta", "gamma")}
    kind = name.decode() if isinstance(name, bytes) else name
    parameters = [said[one] for one in _ACTIVATIONS.get(kind, ())]
    return _activated(g, g.Gemm(*n.inputs), name, parameters, n.inputs[0])


contrib.op("ConvTransposeWithDynamicPads", to="ConvTranspose").auto().attr_from_input(2, "pads")

# What four bits stand for in bitsandbytes, as multiples of the largest of a block: floats of 4 bits, the
# first of which is the sign, and quantiles of the normal distribution (QLoRA, arXiv 2305.14314, appendix E).
_HALF_OF_FP4 = [0.0, 0.005208333333, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25]
_FP4 = [*_HALF_OF_FP4, *(-one for one in _HALF_OF_FP4)]
_NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023,
    1.0,
]  # fmt: skip


@contrib.expand("MatMulBnb4", inherit=False)
def matmul_of_four_bits(g: Builder, n: SourceNode) -> Any:
    """Weights are constants: they are floats from here on."""
    packed, largest = (n.inputs[i].constant for i in (1, 2))
    rows, columns, block = (int(n.attr(name)) for name in ("N", "K", "block_size"))
    if packed is None or largest is None or not n.attr("transB", 1) or n.attr("training_mode", 0):
        raise Refused("weights that are computed, laid out for transB=0, or trained")
    bits = np.stack([packed.reshape(-1) >> 4, packed.reshape(-1) & 15], axis=-1).reshape(-1)[: rows * columns]
    scales = np.repeat(largest.reshape(-1).astype(np.float32), block)[: rows * columns]
    floats = np.array(_NF4 if n.attr("quant_type") else _FP4, np.float32)[bits] * scales
    return g.MatMul(n.inputs[0], g.constant(floats.reshape(rows, columns).T, largest.dtype))


@contrib.expand("FusedMatMul", "TransposeMatMul", inherit=False)
def fused_matmul(g: Builder, n: SourceNode) -> Any:
    """Either matrix may be transposed, and its rows may stand before the batches."""
    turned = [n.attr(name, 0) for name in ("transA", "transB", "transBatchA", "transBatchB")]
    if any(turned) and 1 in [one.rank for one in n.inputs]:
        raise Refused("a vector beside a factor that is transposed")
    a, b = (
        _laid(g, one, bool(n.attr(f"trans{side}", 0)), bool(n.attr(f"transBatch{side}", 0)))
        for one, side in zip(n.inputs, "AB", strict=True)
    )
    made, alpha = g.MatMul(a, b), float(n.attr("alpha", 1.0))
    return made if alpha == 1 else g.Mul(made, number(g, alpha, n.inputs[0]))


def _laid(g: Builder, x: Operand, turned: bool, batches_inside: bool) -> Any:
    """A factor as MatMul takes it."""
    if not turned and not batches_inside:
        return x
    if x.rank is None:
        raise Refused(f"{x}, which is transposed, has unknown rank")
    order = list(range(x.rank))
    if batches_inside and x.rank > 2:
        order = [*order[1:-1], 0, order[-1]]
    if turned and x.rank > 1:
        order[-2:] = order[:-3:-1]
    return x if order == list(range(x.rank)) else g.Transpose(x, perm=order)
