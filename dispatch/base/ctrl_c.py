# SPDX-License-Identifier: Apache-2.0
"""Records that the user pressed Ctrl-C: an error after that, of a half-done import say, is an interrupt."""

from __future__ import annotations

import signal
from typing import Any

_received: list[int] = []


def listen() -> None:
    """Records interrupts, which still raise; leaves the caller's own handler, or SIG_IGN, in place."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)


def pressed() -> bool:
    """True if SIGINT has arrived."""
    return bool(_received)


def _note(number: int, frame: Any) -> None:
    _received.append(number)
    signal.default_int_handler(number, frame)
