# SPDX-License-Identifier: Apache-2.0
"""Dropout with its mask, outside of training."""

from __future__ import annotations

import numpy as np

from onedispatch.dispatch.bodies.writer import Body, body


@body("Dropout", since=13)
def dropout(b: Body) -> tuple[str, ...]:
    """Nothing is dropped; the mask is true everywhere."""
    if b.number(2, 0):
        raise b.refusal("training_mode", "false")
    return b.op("Identity", b.input(0)), b.constant(np.ones(b.shape(0), bool))
