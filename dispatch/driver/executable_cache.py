# SPDX-License-Identifier: Apache-2.0
"""The executables of one model: compiled on first sight of their shapes, as many kept as it says."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onedispatch.dispatch.artifact.model import MOST_EXECUTABLES, CompiledModel
from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.forks import ForkLock
from onedispatch.dispatch.base.host_work import HostWork, timed
from onedispatch.dispatch.base.mapped import unchanged_files
from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.compiler.executable import Executable, executable_key
from onedispatch.dispatch.compiler.used_kernels import declared_again, declared_as
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.frontend.input_shapes import bind_shapes
from onedispatch.transactions.base import host
from onedispatch.transactions.base.errors import InputError, KernelLibraryError

Shapes = Mapping[str, tuple[int, ...]]


class ExecutableCache:
    """Executables of ``model``, the least recently used dropped; used from several threads."""

    def __init__(self, model: CompiledModel) -> None:
        self._given = model
        self._executables: OrderedDict[str, Executable] = OrderedDict(model.executables)
        self._declared: dict[str, tuple[Executable, tuple[Any, ...]]] = {}
        self._named: tuple[Shapes, str] = {}, ""  # the last shapes and their key: most runs repeat them
        self._lock = ForkLock()

    @property
    def model(self) -> CompiledModel:
        """The model with the executables that are there now."""
        with self._lock.guard:
            now = dict(self._executables)
            known = self._given.executables
            if list(now) == list(known) and all(now[key] is known[key] for key in now):
                return self._given
            self._given = replace(self._given, executables=now)
            return self._given

    def executable(
        self, shapes: Shapes, values: Mapping[str, Array], kernel_seconds: float | None = None
    ) -> tuple[str, Executable, tuple[HostWork, ...]]:
        """Returns the executable for these input shapes, its key, and what the host did for it just now.

        ``kernel_seconds`` is what a call of a custom kernel may take while it is compiled: see ``host``.
        Raises ``UnsupportedModelError`` in strict mode, ``InputError`` for shapes that a model saved without
        its source was not compiled for, and what ``compile_graph`` raises.
        """
        key = self._key(shapes, values)
        with self._lock.guard:
            known, work = self._as_declared(key), tuple[HostWork, ...]()
            if known is not None:
                found = known
            else:
                found, seconds = timed(lambda: self._compile(shapes, self._deciding(values), kernel_seconds))
                self._executables[key] = found
                work = (*found.evaluated, HostWork("compile", key, seconds))
                self._declared_for(key, found)
                while len(self._executables) > self._given.cache_size:
                    dropped, _ = self._executables.popitem(last=False)
                    self._declared.pop(dropped, None)
            self._executables.move_to_end(key)
            return key, found, work

    def _deciding(self, values: Mapping[str, Array]) -> dict[str, Array]:
        return {name: array for name, array in values.items() if name in self._given.deciding}

    def _key(self, shapes: Shapes, values: Mapping[str, Array]) -> str:
        if self._given.deciding:
            return executable_key(shapes, self._deciding(values))
        named, key = self._named
        if shapes != named:
            key = executable_key(shapes, {})
            self._named = dict(shapes), key
        return key

    def _as_declared(self, key: str) -> Executable | None:
        """The executable of a key; None where it is to be compiled, for the first time or again."""
        found = self._executables.get(key)
        if found is None or not found.kernels:
            return found
        again = declared_again(found, self._declared_for(key, found))
        if again and self._given.source is None and self._given.recompiled_from is None:
            raise KernelLibraryError(
                f"kernel {', '.join(again)}",
                "declared again since this model was compiled",
                "the kernels that it was compiled with",
                "compile the model again, or open a new session for it",
            )
        return None if again else found

    def _declared_for(self, key: str, executable: Executable) -> tuple[Any, ...]:
        """The kernels as they were declared when the executable was made, or first seen here."""
        known, kernels = self._declared.get(key, (None, ()))
        if known is not executable:
            kernels = declared_as(executable)
            self._declared[key] = (executable, kernels)
        return kernels

    def _compile(
        self, shapes: Shapes, values: Mapping[str, Array], kernel_seconds: float | None
    ) -> Executable:
        model = self._given
        source = model.source if model.source is not None else model.recompiled_from
        if source is None:
            raise InputError(
                "the compiled model",
                f"shapes {dict(shapes)}",
                f"the shapes that it was compiled for: {'; '.join(self._executables)}",
                f"{model.left_out}: with it, the file's graph is compiled for these"
                if model.left_out
                else "compile it again for these",
            )
        from onedispatch.dispatch.compile import compile_graph

        with host.kernel_limit(kernel_seconds), unchanged_files(core, source.constants):
            return compile_graph(source, shapes, values, model.options, reversed(self._executables.values()))


def with_profiles(model: CompiledModel, profiles: Sequence[Mapping[str, Sequence[int]]]) -> CompiledModel:
    """Returns ``model`` compiled for each of these sets of shapes too; it keeps as many executables.

    Raises ``InputError`` for a set that leaves dimensions open, and where values of inputs decide shapes.
    """
    if not profiles:
        return model
    if model.deciding:
        given = f"inputs whose values decide shapes: {', '.join(sorted(model.deciding))}"
        raise InputError("profiles", given, "inputs whose shapes are all that is open", "freeze these inputs")
    cache = ExecutableCache(replace(model, cache_size=max(model.cache_size, _count(model, profiles))))
    for number, shapes in enumerate(profiles):
        bound = bind_shapes(model.inputs, arguments.shapes(shapes))
        if bound is None:
            left = [str(v) for v in model.inputs if v.name not in shapes and not v.is_concrete]
            accepted = f"the shapes of all inputs with open dimensions, also of {', '.join(left)}"
            raise InputError(f"profiles[{number}]", str(dict(shapes)), accepted)
        cache.executable(bound, {})
    return cache.model


def _count(model: CompiledModel, profiles: Sequence[Mapping[str, Sequence[int]]]) -> int:
    return min(len(model.executables) + len(profiles), MOST_EXECUTABLES)


def prepared(model: CompiledModel, shapes: Mapping[str, Sequence[int]] | None) -> CompiledModel:
    """Returns ``model`` compiled for ``shapes`` too, where they are given and no values decide others."""
    given = arguments.shapes(shapes)
    bound = bind_shapes(model.inputs, given) if given else None
    if bound is None or model.deciding:
        return model
    cache = ExecutableCache(model)
    cache.executable(bound, {})
    return cache.model
