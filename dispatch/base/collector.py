# SPDX-License-Identifier: Apache-2.0
"""Python's collector of cycles, while modules are imported and while a model is compiled.

Both make objects by the hundred thousand and next to no cycles: the collector would go through all that is
there, time and again, for a twentieth of the time that they take.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_paused = False  # by a block that runs


@contextmanager
def paused_collector() -> Iterator[None]:
    """Collects no cycles in the block. Of several threads the first to leave such a block lets it go on."""
    global _paused
    enabled = gc.isenabled()
    gc.disable()
    _paused = _paused or enabled
    try:
        yield
    finally:
        if enabled:
            gc.enable()
            _paused = False


def _in_child() -> None:
    """The thread that would let it go on may be the parent's alone."""
    if _paused:
        gc.enable()


os.register_at_fork(after_in_child=_in_child)
