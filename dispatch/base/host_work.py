# SPDX-License-Identifier: Apache-2.0
"""The work of the host for a run, launching aside: a value in reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class HostWork:
    """One piece of work of the host for one run.

    Attributes:
        kind: ``"compile"``: an executable, for input shapes or values of shape operands seen for the first
            time; ``"evaluate"``: sizes computed from values of the run; ``"repack"``: rows of a narrow type
            padded to whole words, or cut to their length; ``"region"``: nodes that do not map.
        what: the executable's key, the names of nodes, or the name of the tensor.
        seconds: wall-clock seconds on this machine.
        modelled_seconds: the modelled host's seconds; 0.0 except for ``"repack"``, whose sum is
            ``RunReport.repack_seconds``.
        nbytes: bytes that ``"repack"`` moved; 0 for other kinds.
    """

    kind: Literal["compile", "evaluate", "repack", "region"]
    what: str
    seconds: float
    modelled_seconds: float = 0.0
    nbytes: int = 0


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Returns the result of ``work`` and the wall-clock seconds that it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start
