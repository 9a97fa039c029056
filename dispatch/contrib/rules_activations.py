# SPDX-License-Identifier: Apache-2.0
"""Rules for activations, alone or behind a bias."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

from onedispatch.dispatch.contrib.domain import contrib, given, number, parted
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import SourceNode

_ROOT_HALF, _ROOT_OF_CURVE, _CUBED = sqrt(0.5), sqrt(2 / pi), 0.044715


def gelu(g: Builder, x: Any) -> Any:
    """ONNX's from operator set 20 on; before, as exporters wrote it, which a rewrite rule finds."""
    if g.opset >= 20:
        return g.Gelu(x)
    half, one, scale = (number(g, value, x) for value in (0.5, 1, _ROOT_HALF))
    return g.Mul(g.Mul(x, g.Add(g.Erf(g.Mul(x, scale)), one)), half)


def gelu_by_tanh(g: Builder, x: Any) -> Any:
    if g.opset >= 20:
        return g.Gelu(x, approximate="tanh")
    half, one, scale, cubed = (number(g, value, x) for value in (0.5, 1, _ROOT_OF_CURVE, _CUBED))
    inner = g.Mul(g.Add(x, g.Mul(g.Mul(x, g.Mul(x, x)), cubed)), scale)
    return g.Mul(g.Mul(x, g.Add(g.Tanh(inner), one)), half)


@contrib.expand("Gelu")
def gelu_alone(g: Builder, n: SourceNode) -> Any:
    return gelu(g, n.inputs[0])


@contrib.expand("BiasGelu")
def bias_gelu(g: Builder, n: SourceNode) -> Any:
    return gelu(g, g.Add(*n.inputs))


@contrib.expand("FastGelu")
def fast_gelu(g: Builder, n: SourceNode) -> Any:
    """By tanh; the bias may be left out."""
    bias = given(n, 1)
    return gelu_by_tanh(g, n.inputs[0] if bias is None else g.Add(n.inputs[0], bias))


@contrib.expand("QuickGelu")
def quick_gelu(g: Builder, n: SourceNode) -> Any:
    """x sigmoid(alpha x): with alpha 1 what others call SiLU or Swish."""
    x, alpha = n.inputs[0], float(n.attr("alpha", 1.702))
    return g.Mul(x, g.Sigmoid(x if alpha == 1 else g.Mul(x, number(g, alpha, x))))


@contrib.expand("BiasSplitGelu")
def bias_split_gelu(g: Builder, n: SourceNode) -> Any:
    """Half of the channels, times Gelu of the others."""
    total = g.Add(*n.inputs)
    width = n.inputs[1].shape[0] if n.inputs[1].shape else None
    if not isinstance(width, int):
        raise Refused(f"a bias of shape {n.inputs[1].shape}, where its size has to be known")
    linear, gate = parted(g, total, [width // 2] * 2, -1)
    return g.Mul(linear, gelu(g, gate))


@contrib.expand("BiasAdd")
def bias_add(g: Builder, n: SourceNode) -> Any:
    x, bias, skip = n.inputs
    return g.Add(g.Add(x, bias), skip)
