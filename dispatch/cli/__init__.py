# SPDX-License-Identifier: Apache-2.0
"""The commands of ``onedispatch``, one file each. Here: the console script and what ends it."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from onedispatch.dispatch.base import ctrl_c


def main() -> None:
    """Errors of ours are one message and exit code 1, Ctrl-C is one line and 130; no tracebacks."""
    _open_streams()
    try:
        ctrl_c.listen()
        # Imported here: it takes a while, and Ctrl-C is handled by now.
        from onedispatch.dispatch.cli.commands import run

        run()
    except KeyboardInterrupt:
        ctrl_c.interrupted()
    except SystemExit as end:
        if end.code == ctrl_c.INTERRUPTED or (end.code and ctrl_c.pressed()):
            ctrl_c.interrupted()
        # All is said and done. Python hands SIGINT back to the system while it takes itself down, some
        # tenths of a second with libraries as large as these: Ctrl-C then would look like a failure.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise
    except BaseException:
        if ctrl_c.pressed():
            ctrl_c.interrupted()
        raise


def _open_streams() -> None:
    """Opens standard streams that the caller closed, so that no file takes their place.

    What is printed to a closed output fails, as it does elsewhere.
    """
    for number, name, flags in (
        (0, "stdin", os.O_RDONLY),
        (1, "stdout", os.O_RDONLY),
        (2, "stderr", os.O_RDWR),
    ):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, flags)  # as ``number``, which is the lowest that is free
            setattr(sys, name, os.fdopen(nowhere, "w" if number else "r"))


def __getattr__(name: str) -> Any:
    """``app``, with all commands."""
    if name != "app":
        raise AttributeError(name)
    from onedispatch.dispatch.cli.commands import app

    return app
