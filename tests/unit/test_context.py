# SPDX-License-Identifier: Apache-2.0
"""What holds within a block alone is gone behind it, wherever a signal handler raises."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from types import FrameType
from typing import Any

from onedispatch.transactions.base.context import setting

VARIABLE: ContextVar[int | None] = ContextVar("tested", default=None)


class Late(Exception):
    """What a signal handler raises."""


def _interrupted(at: int) -> tuple[int, bool]:
    """Functions that a block calls, at number ``at`` of which an exception comes, and whether it did: where
    handlers run, at the begin of Python's functions and behind C's."""
    seen = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal seen
        seen += event in ("call", "c_return")
        if seen == at and event in ("call", "c_return"):
            raise Late

    sys.setprofile(count)
    try:
        with setting(VARIABLE, 1) as value:
            assert value == VARIABLE.get()
    except Late:
        return seen, True
    finally:
        sys.setprofile(None)
    return seen, False


def test_the_value_of_before_is_back_wherever_an_exception_comes() -> None:
    points, _ = _interrupted(-1)
    assert points > 5
    for at in range(1, points + 1):
        _interrupted(at)
        assert VARIABLE.get() is None, at


def test_blocks_inside_of_each_other() -> None:
    with setting(VARIABLE, 1):
        with setting(VARIABLE, 2):
            assert VARIABLE.get() == 2
        assert VARIABLE.get() == 1
    assert VARIABLE.get() is None
