# SPDX-License-Identifier: Apache-2.0
"""Python's collector of cycles, while a model is compiled.

Compiling makes objects by the hundred thousand and next to no cycles: the collector would go through all that
imports have made, time and again, for a twentieth of the time that compiling takes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def resting_collector() -> Iterator[None]:
    """Collects no cycles in the block. Of several threads the first to leave such a block lets it go on."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
