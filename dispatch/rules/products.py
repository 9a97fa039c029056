# SPDX-License-Identifier: Apache-2.0
"""Rules that fold a bias or a batch normalisation into the convolution before it.

Other epilogues have no ONNX node to write: a bias behind a product, a batch normalisation behind a
convolution and functions behind either are fused when operators are mapped (``compiler.mapping.merged``).
A transposed convolution may become several operators, so its weights are scaled here, before mapping.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.rules.match import Match, attribute
from onedispatch.dispatch.rules.pattern import Condition, Rule
from onedispatch.operators.mappings.channel_norm import scale_and_shift

# -- bias ------------------------------------------------------------------------------------------------


def _constant(match: Match) -> bool:
    return match.constant("bias") is not None


def _by_channel(match: Match) -> bool:
    """True if the bias has one value per channel, the second dimension, and size 1 along all others."""
    bias, made = match.constant("bias"), match.shape("made")
    return bias is not None and len(made) >= 3 and one_each(bias.shape, made)


def one_each(shape: tuple[int, ...], made: tuple[int, ...]) -> bool:
    """True if a constant has a value for each channel, the second dimension of ``made``, and none beside."""
    whole = (1,) * (len(made) - len(shape)) + shape
    return whole == (1, made[1], *(1 for _ in made[2:]))


def _flat(match: Match) -> Array:
    return np.ascontiguousarray(np.asarray(match.constant("bias")).reshape(-1))


def _bias(name: str, op_type: str) -> Rule:
    return Rule(
        name,
        op_type,
        (f"Add((made := {op_type}(x, w)), bias)",),
        f"{op_type}(x, w, flat)",
        1,
        where=(
            Condition(
                "a constant: a convolution would get a residual again with every step of its reduction",
                _constant,
            ),
            Condition("a constant with one value for each channel", _by_channel),
        ),
        derive={"flat": _flat},
        like="made",
    )


# -- batch normalisation -------------------------------------------------------------------------------

PARAMETERS = ("scale", "shift", "mean", "variance")


def is_inference(match: Match, name: str = "normed") -> bool:
    """True if the batch normalisation that makes a value reads its mean and variance."""
    graph, node = match.graph, match.maker(name)
    old = graph.opset_of(node) < 7 and not attribute(graph, node, "is_test")
    return not old and not attribute(graph, node, "training_mode")


def _known(match: Match) -> bool:
    given = ("given",) if "given" in match.values else ()
    arrays = [match.constant(name) for name in ("w", *PARAMETERS, *given)]
    return all(array is not None and array.dtype == np.float32 for array in arrays)


def _each_channel(match: Match) -> bool:
    made = match.shape("made")
    return len(made) >= 3 and all(match.shape(name) == (made[1],) for name in PARAMETERS)


def _affine(match: Match) -> tuple[Array, Array]:
    """Returns factor and addend of the normalisation for each channel, in float64 [M]."""
    return scale_and_shift([match.constant(name) for name in PARAMETERS], epsilon_of(match, "normed"))


def epsilon_of(match: Match, name: str) -> float:
    """Returns what the batch normalisation that makes a value adds to its variance."""
    return float(attribute(match.graph, match.maker(name), "epsilon"))


def _by_output(match: Match) -> Array:
    """Returns the weights [M, C/groups, ...] of a convolution, scaled for each output channel."""
    weights = np.asarray(match.constant("w"))
    return (weights * _affine(match)[0].reshape(-1, *[1] * (weights.ndim - 1))).astype(np.float32)


def _scaled(match: Match) -> Array:
    """Returns the weights [C, M/groups, ...], scaled for each output channel of each group."""
    weights = np.asarray(match.constant("w"))
    groups = int(attribute(match.graph, match.maker("made"), "group"))
    apart = weights.reshape(groups, weights.shape[0] // groups, *weights.shape[1:])
    factor = _affine(match)[0].reshape(groups, 1, weights.shape[1], *[1] * (weights.ndim - 2))
    return np.ascontiguousarray((apart * factor).astype(np.float32).reshape(weights.shape))


def _shifted(match: Match) -> Array:
    factor, added = _affine(match)
    given = match.constant("given")
    return (added if given is None else added + np.asarray(given, np.float64) * factor).astype(np.float32)


def _batch_norm(name: str, op_type: str, scaled: Callable[[Match], Array]) -> Rule:
    return Rule(
        name,
        op_type,
        ("(normed := BatchNormalization(MADE, scale, shift, mean, variance))",),
        f"{op_type}(x, scaled, shifted)",
        1,
        {"MADE": f"(made := {op_type}(x, w) | {op_type}(x, w, given))"},
        where=(
            Condition("a batch normalisation for inference", is_inference),
            Condition("weights, bias and parameters that are float32 constants", _known),
            Condition("parameters with one value for each channel", _each_channel),
        ),
        derive={"scaled": scaled, "shifted": _shifted},
        like="made",
    )


PRODUCTS = (
    _bias("conv_bias", "Conv"),
    _bias("conv_transpose_bias", "ConvTranspose"),
    _batch_norm("conv_transpose_batch_norm", "ConvTranspose", _scaled),
)
CONV_BATCH_NORM = _batch_norm("conv_batch_norm", "Conv", _by_output)
