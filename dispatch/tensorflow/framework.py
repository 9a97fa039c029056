# SPDX-License-Identifier: Apache-2.0
"""TensorFlow as a source framework of the translation."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from onedispatch.dispatch.sources.translate import Framework
from onedispatch.dispatch.tensorflow.reader import DOMAIN
from onedispatch.dispatch.tensorflow.signatures import signature_of

RULES = "onedispatch.dispatch.tensorflow.rules"


def _defaults(op_type: str) -> Mapping[str, Any] | None:
    signature = signature_of(op_type)
    return None if signature is None else signature.defaults


TENSORFLOW = Framework("tensorflow", DOMAIN, _defaults)


def load_rules() -> None:
    """Makes our rules for TensorFlow known."""
    import_module(RULES)
