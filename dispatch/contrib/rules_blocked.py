# SPDX-License-Identifier: Apache-2.0
"""Why convolutions in blocks of channels are refused: onnxruntime saves them for one machine.

Weights lie in blocks of 8 or 16 channels, as wide as that machine's registers, and nothing in a model says
which of the two.
"""

from __future__ import annotations

from typing import Any

from onedispatch.dispatch.sources.api import frontend
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import SourceNode

blocked = frontend("onnx", domain="com.microsoft.nchwc")


@blocked.expand(
    *"Conv MaxPool AveragePool GlobalMaxPool GlobalAveragePool ReorderInput ReorderOutput Upsample".split(),
    inherit=False,
)
def in_blocks(g: Builder, n: SourceNode) -> Any:
    raise Refused(
        "its layout is that of the machine that saved the model: "
        "save it with graph_optimization_level ORT_ENABLE_EXTENDED or less"
    )
