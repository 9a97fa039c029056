# SPDX-License-Identifier: Apache-2.0
"""The API boundary: every failure leaves the package as a ``OneDispatchError``.

``public`` wraps a function that users call. Errors of the package pass through it unchanged;
any other exception is a defect of this package and becomes an ``InternalError`` with a location and
the original exception as its cause. ``attributed_to`` does the same around plug-in code (operators,
mapping functions) and names that code. KeyboardInterrupt, SystemExit and exceptions raised by the
caller's signal handlers pass unchanged.

No other code converts exceptions: each stage raises the typed error it means.
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
from onedispatch.transactions.base.handlers import reraise_from_handler

P = ParamSpec("P")
R = TypeVar("R")

_REPORT = "This is a mistake of OneDispatch: please report it, with the traceback and the model"
_PLUGIN_REPORT = "The author of that function can fix it; the traceback shows what it did"
_OF_MODELS = ("onnx", "onnxruntime")  # packages that models need, and compiled ones do not
_LONGEST = 500  # characters of a foreign error's text
_PACKAGE = Path(__file__).parents[2]  # as the code objects name it: links are not followed


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Returns ``function`` wrapped so that it raises only ``OneDispatchError``.

    Other exceptions become an ``InputError`` where an argument does not match the signature, a
    ``ResourceError`` where memory or the stack is exhausted, or else an ``InternalError``. A call that
    succeeds costs no checks.
    """
    name = function.__qualname__

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            reraise_from_handler(error)
            if isinstance(error, OneDispatchError):
                raise
            raise_for_argument(name, error, (*args, *kwargs.values()))
            misfit = signature.first_mismatch(function, args, kwargs)
            if misfit is not None:
                given, accepted = misfit
                raise InputError(name, given, accepted) from error
            raise typed_error(name, error) from error

    return call


@contextmanager
def attributed_to(
    function: Callable[..., Any],
    about: str,
    meant: type[Exception] | tuple[type[Exception], ...] = OneDispatchError,
) -> Iterator[None]:
    """Attributes exceptions of the block to ``function`` and its file; ``about`` names the node or step.

    ``meant`` lists the exceptions that the function may raise by its contract; they pass.
    """
    try:
        yield
    except OneDispatchError:
        raise
    except meant:
        raise
    except (MemoryError, RecursionError) as error:
        raise typed_error(about, error) from error
    except Exception as error:
        raise plugin_failure(function, about, error_line(error)) from error


def plugin_failure(function: Callable[..., Any], about: str, given: str) -> InternalError:
    """Returns the error for a defect in plug-in code: an operator or a mapping function."""
    return InternalError(f"{about}, {source_of(function)}", given, "", _PLUGIN_REPORT)


def typed_error(where: str, error: Exception) -> OneDispatchError:
    """Returns the typed equivalent of ``error``; the caller raises it ``from error``."""
    if isinstance(error, MemoryError):
        return ResourceError(
            where, "a need for more memory than there is", "", f"use smaller tensors{_detail(error)}"
        )
    if isinstance(error, RecursionError):
        return ResourceError(where, "a model or value nested too deeply", "", "flatten it")
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if missing in _OF_MODELS:
        given = f"an ONNX model, without the {missing} package"
        accepted = f"compiled models, which run without it, or any where {missing} is installed"
        return InputError(where, given, accepted, f"install it: pip install {missing}")
    return InternalError(f"{where}{_line(error.__traceback__)}", error_line(error), "", _REPORT)


def raise_for_argument(where: str, error: Exception, given: Iterable[Any]) -> None:
    """Raises an ``InputError`` if ``error`` comes from ``__fspath__``, ``__array__`` or another special
    method of an argument or of a container item."""
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
            text = f"a {type(own).__name__} whose {code.co_name} raises {error_line(error)}"
            raise InputError(where, text, "an object that works", f"fix {called}") from error
        trace = trace.tb_next


def _items(value: Any) -> Iterable[Any]:
    """Returns the items of a built-in container; iterating over any other would run foreign code again."""
    if type(value) is dict:
        return value.values()
    return value if type(value) in (list, tuple) else ()


def error_line(error: BaseException) -> str:
    """Returns a foreign exception as one line of bounded length."""
    try:
        text = error.statement() if isinstance(error, OneDispatchError) else str(error)
    except Exception as failed:  # noqa: BLE001 (a foreign __str__ may raise anything)
        reraise_from_handler(failed)
        text = f"its text raises {type(failed).__name__}"
    text = " ".join(text.split())
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def source_of(function: Callable[..., Any]) -> str:
    """Returns ``name (file:line)`` of a function or class, as far as Python knows it."""
    name = getattr(function, "__qualname__", repr(function))
    target = inspect.unwrap(function)
    try:
        file = inspect.getsourcefile(target) or "?"
        line = inspect.getsourcelines(target)[1]
    except (OSError, TypeError):
        return name
    return f"{name} ({_short(file)}:{line})"


def guarded(cls: type[R]) -> type[R]:
    """Wraps every public method that ``cls`` itself defines in ``public``, in place, and returns ``cls``.

    C++ classes are supported too: their bindings raise TypeError for values they cannot convert.
    """
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        if isinstance(member, FunctionType):
            setattr(cls, name, public(member))
        elif isinstance(member, classmethod):
            setattr(cls, name, classmethod(public(member.__func__)))
        elif type(cls) is not type and isinstance(member, property) and member.fget is not None:
            setattr(cls, name, property(_native(member.fget, cls, name)))  # C++ properties are read-only
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
            reraise_from_handler(error)
            if isinstance(error, OneDispatchError):
                raise
            raise_for_argument(called, error, (*args, *kwargs.values()))
            if not isinstance(error, TypeError | OverflowError | ValueError | BufferError):
                raise typed_error(called, error) from error
            given = [signature.bounded_repr(value) for value in args]
            given += [f"{key}={signature.bounded_repr(value)}" for key, value in kwargs.items()]
            accepted = (function.__doc__ or "").strip().splitlines()
            raise InputError(
                called, f"({', '.join(given)})", accepted[0] if accepted else error_line(error), _hint(error)
            ) from error

    return call


def _hint(error: Exception) -> str:
    text = str(error)
    return "" if "incompatible" in text else error_line(error)


def _line(trace: TracebackType | None) -> str:
    """Returns the innermost line of this package in ``trace``."""
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
