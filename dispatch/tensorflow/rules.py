# SPDX-License-Identifier: Apache-2.0
"""Our mapping rules for TensorFlow, written as rules from outside are: read them as examples.

In a plug-in, ``frontend`` and ``Refused`` are ``od.frontend`` and ``od.Refused`` of ``import onedispatch as
od``; a rule of a plug-in goes before ours. This file has book-keeping, the others what computes.
"""

from __future__ import annotations

from typing import Any

from onedispatch.dispatch.sources.api import frontend
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.node import SourceNode
from onedispatch.dispatch.tensorflow import (
    rules_elementwise,
    rules_images,
    rules_indices,
    rules_movement,
    rules_products,
    rules_shapes,
    rules_windows,
)

FAMILIES = (
    rules_elementwise,
    rules_images,
    rules_indices,
    rules_movement,
    rules_products,
    rules_shapes,
    rules_windows,
)

tf = frontend("tensorflow")

# Data that passes: the result is the input, under another name. What these check or print is no part of it.


@tf.expand(
    *"Identity StopGradient Snapshot PreventGradient CheckNumerics CheckNumericsV2 Print EnsureShape".split(),
    "PlaceholderWithDefault",
    inherit=False,
)
def identity(g: Builder, n: SourceNode) -> Any:
    n.ignore("message", "first_n", "summarize", "shape")
    return n.inputs[0]


@tf.expand("IdentityN", inherit=False)
def identity_of_several(g: Builder, n: SourceNode) -> Any:
    return tuple(n.inputs)


@tf.expand("Assert", "NoOp", inherit=False)
def nothing(g: Builder, n: SourceNode) -> Any:
    n.ignore("summarize")
    return ()
