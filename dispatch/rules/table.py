# SPDX-License-Identifier: Apache-2.0
"""Every rule, in the order in which they are tried: those that take more nodes come first."""

from __future__ import annotations

from onedispatch.dispatch.rules.activations import ACTIVATIONS
from onedispatch.dispatch.rules.attention import ATTENTION
from onedispatch.dispatch.rules.norms import NORMS
from onedispatch.dispatch.rules.products import PRODUCTS
from onedispatch.dispatch.rules.rotary import ROTARY

RULES = (*NORMS, *ACTIVATIONS, *ROTARY, *ATTENTION, *PRODUCTS)
