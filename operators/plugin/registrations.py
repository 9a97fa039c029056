# SPDX-License-Identifier: Apache-2.0
"""Which kernels and mappings plug-ins brought, and the file that each came from.

Registering is all or nothing per plug-in: what a file registers while it is loaded is collected
(``collecting``), judged as a whole and taken in one step (``commit``). What a program registers outside of
any file that is loaded (a script, a notebook) is committed at once. The same origin again is no conflict: a
file that is also imported as a module, or a cell that is run once more, replaces what it registered before.

A class in Python with a compiled body, and the
library that has the body, are one plug-in too, whichever comes first: what Python declares holds.

Two plug-ins with one kernel name, or with mappings of one ONNX operator, are a conflict: an error that names
both files, or, with ``on_conflict="first"``, the first one stays and ``skipped`` names the other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from onedispatch.operators.declarations import registry
from onedispatch.operators.declarations.registry import OpMapping
from onedispatch.operators.declarations.statuses import CODES
from onedispatch.operators.plugin.plugin_kernel import PluginKernel
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions.base.context import setting
from onedispatch.transactions.base.errors import InputError, KernelError, RuleError

OnConflict = Literal["error", "first"]
ON_CONFLICT: tuple[str, ...] = get_args(OnConflict)
OURS = "od"  # the namespace of the kernels that the package brings

TAKEN = CODES["name_conflict"]


@dataclass(frozen=True)
class Bound:
    """An ONNX operator that a plug-in maps. ``override``: it is meant to take the place of another one."""

    mapping: OpMapping
    kernel: str = ""  # the name of the kernel that it stands on; "": none
    override: bool = False

    @property
    def name(self) -> str:
        return spelled(self.mapping)


class Extra(Protocol):
    """What else a plug-in may register: mapping rules of source frameworks, fusions.

    ``origin`` is the plug-in, ``place`` the file and line; what has the same place is the same thing again.
    """

    @property
    def origin(self) -> str: ...

    @property
    def place(self) -> object: ...

    @property
    def name(self) -> str: ...

    def clashes(self, other: object) -> bool: ...


@dataclass
class Batch:
    """What one plug-in registered, and once it is committed what of that was skipped."""

    origin: str
    kernels: list[PluginKernel] = field(default_factory=list)
    mappings: list[Bound] = field(default_factory=list)
    extras: list[Extra] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # one line each


_KERNELS: dict[str, PluginKernel] = {}
_MAPPINGS: dict[tuple[str, str], Bound] = {}
_EXTRAS: list[Extra] = []
_COVERED: dict[tuple[str, str], OpMapping] = {}  # ours, where a plug-in's took their place
_LOCK = threading.RLock()
_COLLECTING: ContextVar[Batch | None] = ContextVar("collecting", default=None)


def _in_child() -> None:
    global _LOCK
    _LOCK = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_in_child)


def spelled(mapping: OpMapping) -> str:
    """``acme.ScaleAdd``; ONNX's own operators without a domain."""
    return f"{mapping.domain}.{mapping.op_type}" if mapping.domain else mapping.op_type


def camel_case(name: str) -> str:
    """``ScaleAdd`` of ``scale_add``: the operator of a kernel that names none."""
    return "".join(word.capitalize() for word in name.split("_"))


# -- registering ----------------------------------------------------------------------------------


def add_kernel(kernel: PluginKernel) -> None:
    """Registers a kernel: with the file that is being loaded, or else at once.

    Raises ``KernelLibraryError`` where its name is taken, or is in our namespace.
    """
    batch = _COLLECTING.get()
    if batch is not None:
        batch.kernels.append(kernel)
        return
    commit(Batch(kernel.origin, kernels=[kernel]))


def add_mapping(mapping: OpMapping, kernel: str = "", *, override: bool = False) -> None:
    """Registers a mapping whose ``origin`` is the file or module that it came from; as ``add_kernel``."""
    bound = Bound(mapping, kernel, override)
    batch = _COLLECTING.get()
    if batch is not None:
        batch.mappings.append(bound)
        return
    commit(Batch(mapping.origin, mappings=[bound]))


def add_extra(extra: Extra) -> None:
    """Registers a mapping rule or a fusion; as ``add_kernel``.

    Raises ``RuleError`` where another one has its key: both places are named.
    """
    batch = _COLLECTING.get()
    if batch is not None:
        _check_extra(extra, batch.extras, again=False)
        batch.extras.append(extra)
        return
    commit(Batch(extra.origin, extras=[extra]))


def withdraw_extra(extra: Extra) -> None:
    """Takes back what is written wrongly."""
    batch = _COLLECTING.get()
    with _LOCK:
        for listed in (_EXTRAS, batch.extras if batch is not None else []):
            listed[:] = [one for one in listed if one is not extra]


@contextmanager
def collecting(origin: str) -> Iterator[Batch]:
    """What this thread registers within belongs to the plug-in ``origin``; it is known once committed."""
    with setting(_COLLECTING, Batch(origin)) as batch:
        yield batch


def commit(batch: Batch, on_conflict: OnConflict = "error") -> None:
    """Takes all of ``batch``, or nothing.

    With ``on_conflict="first"`` what is taken already stays, and ``batch.skipped`` says so; a skipped
    kernel takes its mappings along. Raises ``KernelNameConflictError``, and
    ``KernelDeclarationInvalidError`` for kernels in our own namespace and what is registered twice.
    """
    with _LOCK:
        kernels, skipped = _chosen_kernels(batch, on_conflict)
        mappings = _chosen_mappings(batch, on_conflict, skipped)
        extras = _chosen_extras(batch, on_conflict)
        for kernel in kernels:
            _KERNELS[kernel.kernel.name] = kernel
        for bound in mappings:
            key = (bound.mapping.domain, bound.mapping.op_type)
            replaced = registry.override(bound.mapping)
            if replaced is not None and key not in _MAPPINGS:
                _COVERED[key] = replaced
            _MAPPINGS[key] = bound
        kept = [one for one in _EXTRAS if not any(extra.clashes(one) for extra in extras)]
        _EXTRAS[:] = [*kept, *extras]


def _chosen_extras(batch: Batch, on_conflict: OnConflict) -> list[Extra]:
    chosen = []
    for extra in batch.extras:
        try:
            _check_extra(extra, _EXTRAS)
        except RuleError as error:
            if on_conflict == "error":
                raise
            batch.skipped.append(error.statement())
            continue
        chosen.append(extra)
    return chosen


def _check_extra(extra: Extra, others: list[Extra], *, again: bool = True) -> None:
    """Raises ``RuleError`` where one of ``others`` has what ``extra`` registers.

    ``again``: unless it is the same one, run once more, or of a notebook.
    """
    for other in others:
        same = again and (other.place == extra.place or _of_notebook(extra))
        if other.clashes(extra) and not same:
            raise RuleError(
                f"{extra.name} of {extra.place}",
                f"a second one: {other.name} of {other.place} is there already",
                "one for each operator and version, one fusion of each name",
                "remove one of the two, or load the first of them: on_conflict='first'",
                conflict=True,
            )


def _of_notebook(extra: Extra) -> bool:
    """Whether it comes from a cell or prompt, where what is written last holds."""
    return "ipython-input" in extra.origin or "ipykernel" in extra.origin or extra.origin == "<stdin>"


def _chosen_kernels(batch: Batch, on_conflict: OnConflict) -> tuple[list[PluginKernel], set[str]]:
    chosen: dict[str, PluginKernel] = {}
    skipped = set()
    for kernel in batch.kernels:
        name = kernel.kernel.name
        if name.partition("::")[0] == OURS:
            raise _wrong(batch, f"kernel {name}", f"other namespaces than {OURS!r}, which is ours")
        if name in chosen:
            raise _wrong(batch, f"kernel {name} twice", "each name once")
        other = _holder(kernel)
        if other is None or other.origin == kernel.origin or other.origin == _body(kernel):
            chosen[name] = kernel
        elif _body(other) == kernel.origin:
            batch.skipped.append(f"kernel {name}: {other.origin} declares it, and runs this body")
            skipped.add(name)
        else:
            text = f"kernel {name} (digest 0x{kernel.kernel.digest:08X})"
            _conflict(batch, text, other.origin, on_conflict)
            skipped.add(name)
    return list(chosen.values()), skipped


def _body(kernel: PluginKernel) -> str:
    """The library with its compiled body; "" of a body in Python."""
    return str(kernel.functions.get("library", ""))


def _holder(kernel: PluginKernel) -> PluginKernel | None:
    """The kernel that has its name, or its digest."""
    named = _KERNELS.get(kernel.kernel.name)
    if named is not None:
        return named
    return next((other for other in _KERNELS.values() if other.kernel.digest == kernel.kernel.digest), None)


def _chosen_mappings(batch: Batch, on_conflict: OnConflict, skipped: set[str]) -> list[Bound]:
    chosen: dict[tuple[str, str], Bound] = {}
    for bound in batch.mappings:
        key = (bound.mapping.domain, bound.mapping.op_type)
        if key in chosen:
            raise _wrong(batch, f"operator {bound.name} mapped twice", "each operator once")
        if bound.kernel in skipped:
            batch.skipped.append(f"operator {bound.name}, which stands on {bound.kernel}")
            continue
        known = registry.mapping_for(*key)
        if known is not None and not bound.override and not _same_plugin(batch, bound, known.origin):
            _conflict(batch, f"operator {bound.name}", known.origin or "onedispatch itself", on_conflict)
            continue
        chosen[key] = bound
    return list(chosen.values())


def _same_plugin(batch: Batch, bound: Bound, origin: str) -> bool:
    """Whether what ``origin`` mapped is of the same plug-in as ``bound``."""
    if origin in ("", bound.mapping.origin):  # "": ours
        return origin != ""
    kernels = (*batch.kernels, *_KERNELS.values())
    return any(_body(one) == origin for one in kernels if one.kernel.name == bound.kernel)


def _conflict(batch: Batch, what: str, other: str, on_conflict: OnConflict) -> None:
    if on_conflict == "first":
        batch.skipped.append(f"{what}: {other} has it already")
        return
    raise refusal(
        "name_conflict",
        f"plug-in {batch.origin}",
        f"{what}, which {other} has already",
        "each name from one plug-in",
        "load one of the two, or ask for the first of them: on_conflict='first', --plugin-conflict first, "
        "ONEDISPATCH_PLUGIN_CONFLICT=first; a mapping that is meant to replace another says override=True",
    )


def _wrong(batch: Batch, given: str, accepted: str) -> KernelError:
    return refusal("declaration_invalid", f"plug-in {batch.origin}", given, accepted)


def check_policy(where: str, value: object) -> OnConflict:
    """``value`` if it says what to do about conflicts. Raises ``InputError``."""
    if value == "error":
        return "error"
    if value == "first":
        return "first"
    raise InputError(where, repr(value), ", ".join(map(repr, ON_CONFLICT)))


# -- asking ---------------------------------------------------------------------------------------


# Without the lock, which an exception of a signal handler could leave held: copies are made in one step.


def kernels() -> list[PluginKernel]:
    """Every kernel that plug-ins brought, by name."""
    found = dict(_KERNELS)
    return [found[name] for name in sorted(found)]


def named(name: str) -> PluginKernel | None:
    """The kernel of this full name, ``acme::scale_add@1``."""
    return _KERNELS.get(name)


def by_digest(digest: int) -> PluginKernel | None:
    """The kernel that program images and parameter blocks name so."""
    return next((one for one in kernels() if one.kernel.digest == digest), None)


def mappings() -> list[Bound]:
    """Every mapping that plug-ins brought, by domain and operator."""
    found = dict(_MAPPINGS)
    return [found[key] for key in sorted(found)]


def extras() -> list[Extra]:
    """Every mapping rule and fusion of plug-ins, in the order in which they were registered."""
    return list(_EXTRAS)


def forget(origin: str | None = None) -> None:
    """Takes back what an origin registered, or everything: for tests, and for files that failed to load."""
    with _LOCK:
        for name in [n for n, one in _KERNELS.items() if origin in (None, one.origin)]:
            withdraw_kernel(name)
        for key in [k for k, one in _MAPPINGS.items() if origin in (None, one.mapping.origin)]:
            withdraw_mapping(*key)
        _EXTRAS[:] = [one for one in _EXTRAS if origin not in (None, one.origin)]


def withdraw_kernel(name: str) -> None:
    """Takes one kernel back, mappings of it aside."""
    with _LOCK:
        del _KERNELS[name]


def withdraw_mapping(domain: str, op_type: str) -> None:
    """Takes one mapping back: the operator is mapped as it was before."""
    with _LOCK:
        del _MAPPINGS[domain, op_type]
        registry.restore(domain, op_type, _COVERED.pop((domain, op_type), None))


def loading() -> bool:
    """Whether a plug-in's file is being loaded by this thread: what registers now belongs to it."""
    return _COLLECTING.get() is not None
