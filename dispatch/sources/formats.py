# SPDX-License-Identifier: Apache-2.0
"""Formats of tensors by their letters, and those that ONNX's operators ask for.

N is the batch, or of a filter the output channels; C channels, of a filter the input channels; D, H and W
are spatial. ``ND`` says nothing of its dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FORMATS = ("ND", "NCW", "NWC", "WCN", "NCHW", "NHWC", "HWCN", "NCDHW", "NDHWC", "DHWCN")
_BY_LETTERS = {frozenset(name): name for name in ("NCW", "NCHW", "NCDHW")}


def current_of(origin: str) -> str:
    """Returns the format of ONNX with the letters of ``origin``: channels before what is spatial."""
    return "ND" if origin == "ND" else _BY_LETTERS[frozenset(origin)]


def permutation(origin: str, current: str) -> tuple[int, ...]:
    """Returns ``perm`` of the Transpose from one format to another with the same letters."""
    return tuple(origin.index(letter) for letter in current)


@dataclass(frozen=True)
class Ports:
    """Inputs and outputs of an operator that have channels before what is spatial, by position."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...] = (0,)
    data: frozenset[int] = field(default=frozenset({0}))  # inputs in the format of the node's data_format


_DATA = Ports((0,))
_FILTERED = Ports((0, 1))
SENSITIVE: Mapping[str, Ports] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "ConvInteger"), _FILTERED),
    **dict.fromkeys(
        (
            "MaxPool",
            "AveragePool",
            "LpPool",
            "GlobalAveragePool",
            "GlobalMaxPool",
            "BatchNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "LRN",
            "Resize",
            "DepthToSpace",
            "SpaceToDepth",
        ),
        _DATA,
    ),
}
"""Operators of ONNX that read and write channels before what is spatial."""
