# SPDX-License-Identifier: Apache-2.0
"""What ``precision`` of a model may be: the type that its float32 tensors are computed in."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

PRECISIONS: dict[str, np.dtype[Any]] = {"fp32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}
EXACT = "fp32"  # what the model says
