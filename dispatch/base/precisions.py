# SPDX-License-Identifier: Apache-2.0
"""Values of the option ``precision``, with the type in which each computes float32 tensors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

PRECISIONS: dict[str, np.dtype[Any]] = {"fp32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}
EXACT = "fp32"  # computes in the types of the model
