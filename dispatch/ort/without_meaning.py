# SPDX-License-Identifier: Apache-2.0
"""What scripts for onnxruntime set that means nothing here: named once in a process, then accepted."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn, TypeVar

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.ort.enums import LoggingLevel
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import InputError

C = TypeVar("C", bound=type)
_PACKAGE = Path(__file__).parents[2]
_named: set[str] = set()
_severity = LoggingLevel.WARNING  # of what is warned of, where options say nothing else


class IgnoredOptionWarning(UserWarning):
    """An option of onnxruntime that is accepted and means nothing here."""


@public
def set_default_logger_severity(severity: int) -> None:
    """Sets from which severity on the process warns: from 3 on no ``IgnoredOptionWarning``."""
    global _severity
    where = "set_default_logger_severity"
    _severity = LoggingLevel(arguments.integer(where, severity, LoggingLevel.VERBOSE, LoggingLevel.FATAL))


def name_once(kind: str, text: str, severity: int = -1) -> None:
    """Warns of what ``text`` says, once for each kind. ``severity``: of the options; -1: of the process."""
    quiet = (_severity if severity < 0 else severity) > LoggingLevel.WARNING
    if kind not in _named and not quiet:
        _named.add(kind)
        warnings.warn(text, IgnoredOptionWarning, stacklevel=_outside())


def _outside() -> int:
    """The level of the first frame that is none of this package, for ``warnings.warn`` of its caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


def refusing(names: Mapping[str, str]) -> Callable[[C], C]:
    """Gives a class methods that raise ``InputError``, whose remedy is the name's text."""

    def decorated(cls: C) -> C:
        for name, remedy in names.items():
            setattr(cls, name, _refused(f"{cls.__name__}.{name}", remedy))
        return cls

    return decorated


def _refused(where: str, remedy: str) -> Callable[..., NoReturn]:
    def refused(*args: object, **kwargs: object) -> NoReturn:
        raise InputError(where, "a call", "nothing: there is no such thing here", remedy)

    refused.__name__ = refused.__qualname__ = where.rpartition(".")[2]
    refused.__doc__ = f"Refused: {remedy}."
    return refused
