# SPDX-License-Identifier: Apache-2.0
"""Every rewrite rule that is applied, in order: rules that take more nodes come first.

A rule of another module of this folder is applied only if it is entered here.
"""

from __future__ import annotations

from onedispatch.dispatch.rules.activations import ACTIVATIONS
from onedispatch.dispatch.rules.attention import ATTENTION
from onedispatch.dispatch.rules.norms import NORMS
from onedispatch.dispatch.rules.products import PRODUCTS
from onedispatch.dispatch.rules.rotary import ROTARY
from onedispatch.dispatch.rules.validation import validated

RULES = validated((*NORMS, *ACTIVATIONS, *ROTARY, *ATTENTION, *PRODUCTS))
