# SPDX-License-Identifier: Apache-2.0
"""What the host side of Python and of C++ must agree on; C++ has it by ``genheader``."""

from __future__ import annotations

import os
from typing import Any

from onedispatch.transactions.base.errors import InputError

MOST_THREADS = 1024  # host threads that a caller may ask for: a guard against mistakes, no machine has more
KERNEL_MILLISECONDS = (
    60_000  # that a call of a kernel from outside may take: a guard against bodies that never end
)
LEAST_KERNEL_MILLISECONDS = 1
MOST_KERNEL_MILLISECONDS = 86_400_000
KERNEL_SECONDS = "ONEDISPATCH_KERNEL_SECONDS"  # environment: what holds where nobody says it


def kernel_seconds(value: Any = None) -> float:
    """Seconds of the host that a call of a kernel from outside may take: ``value``, or what the environment
    says, or a minute.

    Raises:
        InputError: no number, or one outside of 0.001 to 86400.
    """
    where = "kernel_seconds"
    if value is None:
        value = os.environ.get(KERNEL_SECONDS) or KERNEL_MILLISECONDS / 1000
        where = KERNEL_SECONDS if KERNEL_SECONDS in os.environ else where
    least, most = LEAST_KERNEL_MILLISECONDS / 1000, MOST_KERNEL_MILLISECONDS / 1000
    try:
        seconds = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = float("nan")
    if not least <= seconds <= most:
        raise InputError(where, repr(value), f"a number of seconds from {least:g} to {most:g}")
    return seconds
