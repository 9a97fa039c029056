# SPDX-License-Identifier: Apache-2.0
"""What a pass is, and how a list of passes runs. ``dispatch/compile.py`` has the list.

A pass takes a value and returns another: a graph first, then what ``phases`` makes of it. It names the
properties that it requires of the one and ensures of the other; tests check them after every pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from onedispatch.dispatch.base.collector import paused_collector
from onedispatch.dispatch.base.mapped import forget_pages
from onedispatch.dispatch.frontend.graph import Array, Graph
from onedispatch.transactions.base.context import setting

if TYPE_CHECKING:  # commands observe passes before they compile
    from onedispatch.dispatch.compiler.custom import CustomNodes
    from onedispatch.dispatch.compiler.executable import Executable
    from onedispatch.dispatch.compiler.options import CompileOptions, ImportOptions


@dataclass(frozen=True)
class Context:
    """What passes read beside the value: shapes of inputs, values of those that decide shapes, options."""

    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, Array]
    options: CompileOptions
    custom: CustomNodes
    constants: Mapping[str, Array] = field(default_factory=dict)  # of the graph as it was imported
    earlier: tuple[Executable, ...] = ()  # of that graph, for other shapes
    expanded: dict[int, tuple[Graph, Graph]] = field(default_factory=dict)  # id of a graph -> it, with bodies


@dataclass(frozen=True)
class ImportContext:
    """What passes of a model, before any shape is known, read beside it."""

    options: ImportOptions


@dataclass(frozen=True)
class Property:
    """Something that holds of a value between passes. ``broken`` says where it does not, or ""."""

    name: str
    broken: Callable[[Any], str]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Pass:
    """One step of compiling. ``when`` tells whether it has anything to do under these options."""

    name: str
    summary: str
    run: Callable[[Any, Any], Any]  # the value, and the context
    requires: tuple[Property, ...] = ()
    ensures: tuple[Property, ...] = ()
    when: Callable[[Any], bool] = lambda _: True  # options of the context


class PassObserver(Protocol):
    """Sees every pass that ran in this thread while it was observing."""

    def after(self, ran: Pass, before: Any, result: Any, seconds: float) -> None: ...


@runtime_checkable
class PassAnnouncer(Protocol):
    """An observer that sees a pass before it runs, too."""

    def before(self, runs: Pass) -> None: ...


_OBSERVERS: ContextVar[tuple[PassObserver, ...]] = ContextVar("observers", default=())


@contextmanager
def observed(observer: PassObserver) -> Iterator[None]:
    """Shows ``observer`` the passes that run inside, in this thread."""
    with setting(_OBSERVERS, (*_OBSERVERS.get(), observer)):
        yield


def run_passes(passes: Sequence[Pass], value: Any, context: Context | ImportContext | None = None) -> Any:
    """Returns what the last of ``passes`` makes. Without ``context`` all of them run."""
    observers = _OBSERVERS.get()
    announcers = [one for one in observers if isinstance(one, PassAnnouncer)]
    with paused_collector():
        for one in passes:
            if context is not None and not one.when(context.options):
                continue
            for announcer in announcers:
                announcer.before(one)
            before, start = value, time.perf_counter()
            value = one.run(value, context)
            forget_pages()  # of weights that the pass looked at: none needs all of them
            seconds = time.perf_counter() - start
            for observer in observers:
                observer.after(one, before, value, seconds)
    return value
