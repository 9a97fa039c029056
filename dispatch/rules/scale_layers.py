# SPDX-License-Identifier: Apache-2.0
"""Rules that fold a factor or a bias of each channel into the convolution or batch normalisation before.

Networks from Caffe have a Scale layer behind every batch normalisation, which exporters write as a Mul and
an Add of constants; others scale what a convolution makes. A bias behind a convolution without a bias is
for ``products``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.rules.match import Match
from onedispatch.dispatch.rules.pattern import Condition, Rule
from onedispatch.dispatch.rules.products import PARAMETERS, epsilon_of, is_inference, one_each
from onedispatch.operators.mappings.channel_norm import scale_and_shift

_MOST = 2.0**96  # of folded constants: beyond it sums of their products might overflow, and cancel no more
_Derived = Mapping[str, Callable[[Match], Array]]


def _of_channels(match: Match, name: str) -> Array | None:
    """A constant that has one value for each channel of ``made``, or one for all, as float64 [C]."""
    value, made = match.constant(name), match.shape("made")
    if value is None or value.dtype != np.float32 or len(made) < 2 or value.ndim > len(made):
        return None
    fits = value.size == 1 or one_each(value.shape, made)
    return np.broadcast_to(value.reshape(-1).astype(np.float64), (made[1],)) if fits else None


def _scale_layer(name: str) -> Condition:
    return Condition(
        "a float32 constant with one value for each channel, or one for all",
        lambda match: _of_channels(match, name) is not None,
    )


def _parameters(*names: str) -> Condition:
    """Requires float32 constants that begin with the channels of ``made``."""

    def holds(match: Match) -> bool:
        values, made = [match.constant(name) for name in names], match.shape("made")
        return all(
            v is not None and v.dtype == np.float32 and len(made) >= 2 and v.shape[:1] == made[1:2]
            for v in values
        )

    return Condition("parameters that are float32 constants, for each channel", holds)


def _moderate(derive: _Derived, normed: bool) -> Condition:
    """Requires that what is folded, and what a batch normalisation makes of it, is far from overflow."""

    def holds(match: Match) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            made = [function(match) for function in derive.values()]
            parameters = [match.constant(name) for name in PARAMETERS]
            if normed and all(one is not None for one in parameters):  # else the run computes some
                scale = made[0] if "scaled" in derive else parameters[0]
                made.append(scale_and_shift([scale, *parameters[1:]], epsilon_of(match, "made"))[0])
        return all(bool((np.abs(array) < _MOST).all()) for array in made)

    return Condition("constants that stay finite", holds)


def _scaled(name: str) -> Callable[[Match], Array]:
    """Derives a constant, its first dimension the channels, times the factor of each."""

    def derived(match: Match) -> Array:
        value, factor = np.asarray(match.constant(name)), np.asarray(_of_channels(match, "factor"))
        return np.asarray(value * factor.reshape(-1, *[1] * (value.ndim - 1)), np.float32)

    return derived


def _raised(name: str) -> Callable[[Match], Array]:
    """Derives a constant [C] plus the bias of each channel."""

    def derived(match: Match) -> Array:
        value, bias = np.asarray(match.constant(name)), np.asarray(_of_channels(match, "bias"))
        return np.asarray(value + bias, np.float32)

    return derived


def _behind_batch_norm(name: str, form: str, operand: str, to: str, derive: _Derived) -> Rule:
    return Rule(
        name,
        "BatchNormalization",
        (form,),
        to,
        15,
        {"NORMED": "(made := BatchNormalization(x, scale, shift, mean, variance))"},
        where=(
            Condition("a batch normalisation for inference", lambda match: is_inference(match, "made")),
            _parameters("scale", "shift"),
            _scale_layer(operand),
            _moderate(derive, normed=True),
        ),
        derive={**derive, "epsilon": lambda match: epsilon_of(match, "made")},
        near=False,
    )


def _behind_conv(name: str, form: str, operand: str, to: str, derive: _Derived, *known: str) -> Rule:
    where = (_parameters(*known), _scale_layer(operand), _moderate(derive, normed=False))
    return Rule(name, "Conv", (form,), to, 1, where=where, derive=derive, like="made", near=False)


SCALE_LAYERS = (
    _behind_batch_norm(
        "batch_norm_factor",
        "Mul(NORMED, factor)",
        "factor",
        "BatchNormalization(x, scaled, shifted, mean, variance, epsilon=epsilon)",
        {"scaled": _scaled("scale"), "shifted": _scaled("shift")},
    ),
    _behind_batch_norm(
        "batch_norm_bias",
        "Add(NORMED, bias)",
        "bias",
        "BatchNormalization(x, scale, raised, mean, variance, epsilon=epsilon)",
        {"raised": _raised("shift")},
    ),
    _behind_conv(
        "conv_factor",
        "Mul((made := Conv(x, w)), factor)",
        "factor",
        "Conv(x, scaled)",
        {"scaled": _scaled("w")},
        "w",
    ),
    _behind_conv(
        "conv_bias_factor",
        "Mul((made := Conv(x, w, given)), factor)",
        "factor",
        "Conv(x, scaled, shifted)",
        {"scaled": _scaled("w"), "shifted": _scaled("given")},
        "w",
        "given",
    ),
    _behind_conv(
        "conv_bias_bias",
        "Add((made := Conv(x, w, given)), bias)",
        "bias",
        "Conv(x, w, raised)",
        {"raised": _raised("given")},
        "given",
    ),
)
