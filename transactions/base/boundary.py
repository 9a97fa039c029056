# SPDX-License-Identifier: Apache-2.0
"""The border of the package: whatever goes wrong inside leaves it as a ``OneDispatchError``.

``public`` marks a function that users call. Errors of the package pass through it unchanged;
anything else is a mistake of ours and becomes an ``InternalError`` that says where, with what was
raised as its cause. ``blamed_on`` does the same around code of others (operators, mapping
functions), which it names. KeyboardInterrupt and SystemExit are no errors and pass, and so does
whatever a signal handler of the caller raises.

Nothing is caught anywhere else to make it typed: a stage raises what it means.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, ParamSpec, TypeVar

from onedispatch.transactions.base import signature
from onedispatch.transactions.base.errors import InputError, InternalError, OneDispatchError, ResourceError
from onedispatch.transactions.base.handlers import let_through

P = ParamSpec("P")
R = TypeVar("R")

_REPORT = "This is a mistake of OneDispatch: please report it, with the traceback and the model"
_PLUGIN_REPORT = "Whoever wrote that function can mend it; the traceback says what it did"
_LONGEST = 500  # characters of a foreign error's text
_PACKAGE = Path(__file__).parents[2]  # as the code objects name it: links are not followed


def public(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, raising nothing but ``OneDispatchError``.

    Errors that are not typed yet become an ``InputError`` where an argument is not what the
    signature says, a ``ResourceError`` where memory or recursion run out, or else an
    ``InternalError``. Nothing is checked while all goes well.
    """
    name = function.__qualname__

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            let_through(error)
            if isinstance(error, OneDispatchError):
                raise
            blame_argument(name, error, (*args, *kwargs.values()))
            misfit = signature.misfit(function, args, kwargs)
            if misfit is not None:
                given, accepted = misfit
                raise InputError(name, given, accepted) from error
            raise typed(name, error) from error

    return call


@contextmanager
def blamed_on(
    function: Callable[..., Any],
    about: str,
    meant: type[Exception] | tuple[type[Exception], ...] = OneDispatchError,
) -> Iterator[None]:
    """Names ``function`` and its file for what goes wrong within; ``about`` says for what it ran.

    ``meant`` is what the function may raise by its contract, and passes.
    """
    try:
        yield
    except OneDispatchError:
        raise
    except meant:
        raise
    except (MemoryError, RecursionError) as error:
        raise typed(about, error) from error
    except Exception as error:
        raise broken(function, about, told(error)) from error


def broken(function: Callable[..., Any], about: str, given: str) -> InternalError:
    """A mistake in code that brought itself along: an operator, a mapping function."""
    return InternalError(f"{about}, {source_of(function)}", given, "", _PLUGIN_REPORT)


def typed(where: str, error: Exception) -> OneDispatchError:
    """What stands for ``error`` outside; the caller raises it ``from error``."""
    if isinstance(error, MemoryError):
        return ResourceError(
            where, "a need for more memory than there is", "", f"use smaller tensors{_detail(error)}"
        )
    if isinstance(error, RecursionError):
        return ResourceError(where, "a model or value nested too deeply", "", "flatten it")
    return InternalError(f"{where}{_line(error.__traceback__)}", told(error), "", _REPORT)


def blame_argument(where: str, error: Exception, given: Iterable[Any]) -> None:
    """Raises an ``InputError`` where ``error`` comes from ``__fspath__``, ``__array__`` or another special
    method of an argument, or of an item of one."""
    arguments = [one for value in given for one in (value, *_items(value))]
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        special = code.co_argcount and code.co_name.startswith("__")
        own = trace.tb_frame.f_locals.get(code.co_varnames[0]) if special else None
        method = inspect.getattr_static(type(own), code.co_name, None)
        ours = Path(code.co_filename).is_relative_to(_PACKAGE)
        if not ours and getattr(method, "__code__", None) is code and any(own is one for one in arguments):
            called = f"{type(own).__name__}.{code.co_name}"
            text = f"a {type(own).__name__} whose {code.co_name} raises {told(error)}"
            raise InputError(where, text, "an object that works", f"mend {called}") from error
        trace = trace.tb_next


def _items(value: Any) -> Iterable[Any]:
    """What a built-in container holds; others would run their own code again."""
    if type(value) is dict:
        return value.values()
    return value if type(value) in (list, tuple) else ()


def told(error: BaseException) -> str:
    """A foreign error in one bounded line."""
    text = " ".join((error.statement() if isinstance(error, OneDispatchError) else str(error)).split())
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def source_of(function: Callable[..., Any]) -> str:
    """``name (file:line)`` of a function or class, as far as Python knows it."""
    name = getattr(function, "__qualname__", repr(function))
    target = inspect.unwrap(function)
    try:
        file = inspect.getsourcefile(target) or "?"
        line = inspect.getsourcelines(target)[1]
    except (OSError, TypeError):
        return name
    return f"{name} ({_short(file)}:{line})"


def guarded(cls: type[R]) -> type[R]:
    """``cls`` with every public method of its own made ``public``, in place.

    Classes of C++ are taken too: their bindings raise TypeError for what they cannot convert.
    """
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        if isinstance(member, FunctionType):
            setattr(cls, name, public(member))
        elif isinstance(member, classmethod):
            setattr(cls, name, classmethod(public(member.__func__)))
        elif type(cls) is not type and isinstance(member, property) and member.fget is not None:
            setattr(cls, name, property(_native(member.fget, cls, name)))  # none of C++ can be set
        elif type(cls) is not type and callable(member) and not isinstance(member, type):
            setattr(cls, name, _native(member, cls, name))
    return cls


def _native(function: Callable[..., Any], cls: type, name: str) -> Callable[..., Any]:
    called = cls.__name__ if name == "__init__" else f"{cls.__name__}.{name}"

    @wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except Exception as error:
            let_through(error)
            if isinstance(error, OneDispatchError):
                raise
            blame_argument(called, error, (*args, *kwargs.values()))
            if not isinstance(error, TypeError | OverflowError | ValueError | BufferError):
                raise typed(called, error) from error
            given = [signature.shown(value) for value in args]
            given += [f"{key}={signature.shown(value)}" for key, value in kwargs.items()]
            accepted = (function.__doc__ or "").strip().splitlines()
            raise InputError(
                called, f"({', '.join(given)})", accepted[0] if accepted else told(error), _hint(error)
            ) from error

    return call


def _hint(error: Exception) -> str:
    text = str(error)
    return "" if "incompatible" in text else told(error)


def _line(trace: TracebackType | None) -> str:
    """The innermost line of this package."""
    found = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if Path(code.co_filename).is_relative_to(_PACKAGE) and code.co_filename != __file__:
            found = f", {_short(code.co_filename)}:{trace.tb_lineno} ({code.co_name})"
        trace = trace.tb_next
    return found


def _short(file: str) -> str:
    path = Path(file)
    return path.relative_to(_PACKAGE).as_posix() if path.is_relative_to(_PACKAGE) else file


def _detail(error: Exception) -> str:
    text = str(error)
    return f": {text}" if text else ""
