# SPDX-License-Identifier: Apache-2.0
"""Our mapping rules for com.microsoft, written as rules from outside are: a family of operators each file."""

from __future__ import annotations

from onedispatch.dispatch.contrib import (
    rules_activations,
    rules_attention,
    rules_blocked,
    rules_cached_attention,
    rules_lookups,
    rules_norms,
    rules_products,
)

FAMILIES = (
    rules_activations,
    rules_attention,
    rules_blocked,
    rules_cached_attention,
    rules_lookups,
    rules_norms,
    rules_products,
)
