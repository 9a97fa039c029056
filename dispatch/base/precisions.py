# SPDX-License-Identifier: Apache-2.0
"""Values of the option ``precision``, with the type in which each computes float32 tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

PRECISIONS: dict[str, np.dtype[Any]] = {"fp32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}
EXACT = "fp32"  # computes in the types of the model
Array = np.ndarray[Any, Any]
_MARK = "//"  # between the name of a tensor and the type that it has in another


def narrow_name(name: str, precision: str) -> str:
    """What a float32 tensor is called in the type of ``precision``."""
    return f"{name}{_MARK}{precision}"


def rounded(values: Array, dtype: np.dtype[Any]) -> Array:
    """Float32 constants in a narrower type, to nearest even.

    What is finite stays so: masks are made of the lowest float32, which would be an infinity in bfloat16,
    and that times 0 is no number.
    """
    largest = np.float32(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    bounded = np.where(np.isfinite(values), np.clip(values, -largest, largest), values)
    return np.asarray(bounded, np.float32).astype(dtype)


def wide_name(name: str) -> str:
    """What a tensor of ``narrow_name`` is called in float32; "" for another name."""
    own, _, precision = name.rpartition(_MARK)
    return own if precision in PRECISIONS else ""


def narrowed(name: str, constants: Mapping[str, Array]) -> Array | None:
    """The constant that ``lower_precision`` makes under this name; None for a name of another kind.

    Files of compiled models have only what it is made of: another rounding asks for another version of them.
    """
    given = constants.get(wide_name(name))
    if given is None or given.dtype != np.float32:
        return None
    return rounded(given, PRECISIONS[name.rpartition(_MARK)[2]])
