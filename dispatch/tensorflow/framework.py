# SPDX-License-Identifier: Apache-2.0
"""TensorFlow as a source framework of the translation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from onedispatch.dispatch.sources.translate import Framework
from onedispatch.dispatch.tensorflow.reader import DOMAIN
from onedispatch.dispatch.tensorflow.signatures import signature_of

RULES = "onedispatch.dispatch.tensorflow.rules"


@cache
def _defaults(op_type: str) -> Mapping[str, Any] | None:
    """Defaults of an operator, but for unknown shapes, which say nothing."""
    signature = signature_of(op_type)
    if signature is None:
        return None
    return {name: value for name, value in signature.defaults.items() if value is not None}


TENSORFLOW = Framework("tensorflow", DOMAIN, _defaults)


def load_rules() -> None:
    """Makes our rules for TensorFlow known."""
    import_module(RULES)
