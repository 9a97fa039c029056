# SPDX-License-Identifier: Apache-2.0
"""Whether somebody pressed Ctrl-C: what fails after that, an import half done say, failed for it."""

from __future__ import annotations

import signal
from typing import Any

_seen: list[int] = []


def listen() -> None:
    """Remember interrupts, which are raised as ever; whoever ignores or handles them goes on to do so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)


def pressed() -> bool:
    return bool(_seen)


def _note(number: int, frame: Any) -> None:
    _seen.append(number)
    signal.default_int_handler(number, frame)
