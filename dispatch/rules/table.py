# SPDX-License-Identifier: Apache-2.0
"""Every rewrite rule that is applied, by pass and in order: rules that take more nodes come first.

A rule of another module of this folder is applied only if it is entered here. Mistakes in rules, such as
misspelt operators, which would never match in silence, are found by ``tests/rule_validation.py``.
"""

from __future__ import annotations

from onedispatch.dispatch.rules import packed, products
from onedispatch.dispatch.rules.activations import ACTIVATIONS
from onedispatch.dispatch.rules.attention import ATTENTION
from onedispatch.dispatch.rules.layouts import LAYOUTS
from onedispatch.dispatch.rules.norms import NORMS
from onedispatch.dispatch.rules.rotary import ROTARY
from onedispatch.dispatch.rules.scale_layers import SCALE_LAYERS

# Of pass pack-weights, before constants become floats.
PACKED = (packed.PACKED_WEIGHTS,)
# Of pass rewrite-patterns.
RULES = (*NORMS, *ACTIVATIONS, *ROTARY, *ATTENTION, *SCALE_LAYERS, *products.PRODUCTS, *LAYOUTS)
# Of pass lower-precision, before constants become narrower: their product is rounded once.
NARROWED = (products.CONV_BATCH_NORM,)
