# SPDX-License-Identifier: Apache-2.0
"""Records that the user pressed Ctrl-C: an error after that, of a half-done import say, is an interrupt."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

INTERRUPTED = 130  # 128 + SIGINT, the exit code of shells and of Typer
_AGAIN = 0.05  # seconds after which an interrupt that was lost comes again
_received: list[int] = []


def listen() -> None:
    """Records interrupts, which still raise; leaves the caller's own handler, or SIG_IGN, in place."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)
        if sys.unraisablehook is sys.__unraisablehook__:
            sys.unraisablehook = _lost


def listen_while_importing() -> None:
    """Has the console script, which imports this package before ``cli.main`` runs, end by one line on Ctrl-C.

    In every other program nothing changes.
    """
    if os.path.basename(sys.argv[0] if hasattr(sys, "argv") and sys.argv else "") == "onedispatch":
        listen()
        sys.excepthook = _end


def interrupted() -> None:
    """Ends the process at once: threads that compute for it need not come to their end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sys.stdout.flush()
        print("onedispatch: interrupted", file=sys.stderr, flush=True)
    except (OSError, AttributeError):  # nothing reads any more, or the streams are closed
        pass
    os._exit(INTERRUPTED)


def _end(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if issubclass(kind, KeyboardInterrupt) or pressed():  # an error of a half-done import, too
        interrupted()
    sys.__excepthook__(kind, error, trace)


def _lost(error: Any) -> None:
    """Sends an interrupt again that was raised where nothing may raise: in finalizers and weak references."""
    if issubclass(error.exc_type, KeyboardInterrupt):
        again = threading.Timer(_AGAIN, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(error)


def pressed() -> bool:
    """True if SIGINT has arrived."""
    return bool(_received)


def _note(number: int, frame: Any) -> None:
    _received.append(number)
    signal.default_int_handler(number, frame)
