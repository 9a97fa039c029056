# SPDX-License-Identifier: Apache-2.0
"""What follows a convolution and belongs to it.

Bias and activation behind products are merged when operators are absorbed (``compiler.mapping.absorb``),
BatchNormalization behind a convolution too.
"""

from __future__ import annotations

import numpy as np

from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.rules.match import Match
from onedispatch.dispatch.rules.pattern import Condition, Rule


def _by_channel(match: Match) -> bool:
    """Channels are the second dimension of what the convolution makes; all others of the bias are 1."""
    bias, made = match.constant("bias"), match.shape("made")
    if bias is None or len(made) < 3 or bias.ndim > len(made):
        return False
    whole = (1,) * (len(made) - bias.ndim) + bias.shape
    return bool(whole == (1, made[1], *(1 for _ in made[2:])))


def _flat(match: Match) -> Array:
    return np.ascontiguousarray(np.asarray(match.constant("bias")).reshape(-1))


PRODUCTS = (
    Rule(
        "conv_bias",
        "Conv",
        ("Add((made := Conv(x, w)), bias)",),
        "Conv(x, w, flat)",
        1,
        where=(Condition("a constant with one value for each channel", _by_channel),),
        derive={"flat": _flat},
        like="made",
    ),
)
