# SPDX-License-Identifier: Apache-2.0
"""The compiled body of a class: ``od.kernel(..., library="libacme.so")``.

The class says what the library says too; wherever they differ, blocks made from the one would be read by the
other in another way. So each difference is an error before a node is placed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from onedispatch.operators.plugin.declared import Declared, In, Out, ranks_of
from onedispatch.operators.plugin.library_data import declared_of
from onedispatch.operators.plugin.native import native
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions.base.files import real_path
from onedispatch.transactions.base.host import kernel_seconds


def compiled_body(declared: Declared, origin: str) -> dict[str, Any]:
    """Where the body is, as ``_core.register_kernel`` takes it: ``{"library": path, "index": i}``.

    ``origin`` is the file of the class: the library is looked for beside it, then in the working directory.
    Raises ``KernelNotFoundError`` where there is no such library, or no such kernel in it, and
    ``KernelDeclarationInvalidError`` where class and library differ.
    """
    path = found_at(declared, origin)
    kernels = [declared_of(said, path) for said in native().load_plugins(path, kernel_seconds())]
    for index, own in enumerate(kernels):
        if own.name == declared.name:
            _insist_alike(declared, own, path)
            return {"library": path, "index": index}
    known = ", ".join(own.name for own in kernels) or "no kernels"
    raise refusal("not_found", f"kernel {declared.name}: library {path}", "no kernel of that name", known)


def found_at(declared: Declared, origin: str) -> str:
    """The library's file. Raises ``KernelNotFoundError`` with the places that were tried."""
    places = [folder / declared.library for folder in (Path(origin).parent, Path.cwd())]
    for place in places:
        if place.is_file():
            return real_path(place)
    tried = " or ".join(dict.fromkeys(str(place) for place in places))
    raise refusal(
        "not_found", f"kernel {declared.name}: library", declared.library, f"a file {tried}", "build it first"
    )


def _insist_alike(python: Declared, library: Declared, path: str) -> None:
    for what, given, accepted in differences(python, library):
        where = f"kernel {python.name}: {what}, in the class"
        remedy = "change the class or the library, so that both say the same"
        raise refusal("declaration_invalid", where, given, f"{accepted}, as library {path} says", remedy)


def differences(python: Declared, library: Declared) -> Iterator[tuple[str, object, object]]:
    """What the two say differently: what, the one, the other."""
    if python.prints != library.prints:
        yield "prints", python.prints, library.prints
    for what, one, other in (
        ("inputs", python.inputs, library.inputs),
        ("outputs", python.outputs, library.outputs),
        ("auxiliary tensors", python.aux, library.aux),
        ("scratch", python.scratch, library.scratch),
        ("scalars", python.scalars, library.scalars),
    ):
        names = _names(one), _names(other)
        if names[0] != names[1]:
            yield what, *names
            return
    for mine, its in zip(python.operands, library.operands, strict=True):
        yield from _operand(python, library, mine, its)
    dtypes = _dtypes(python), _dtypes(library)
    yield from (
        (f"dtype of {name}", dtypes[0][name], dtypes[1][name])
        for name in dtypes[0]
        if dtypes[0][name] != dtypes[1][name]
    )
    for scalar, twin in zip(python.scalars, library.scalars, strict=True):
        for part in ("type", "bounds", "default"):
            if getattr(scalar, part) != getattr(twin, part):
                yield f"{part} of scalar {scalar.name}", getattr(scalar, part), getattr(twin, part)


def _dtypes(declared: Declared) -> dict[str, str]:
    """Of auxiliary tensors and scratch."""
    return {one.name: one.dtype for one in declared.aux} | {one.name: one.dtype for one in declared.scratch}


def _names(rows: Sequence[Any]) -> str:
    return ", ".join(row.name for row in rows) or "none"


def _operand(
    python: Declared, library: Declared, mine: In | Out, its: In | Out
) -> Iterator[tuple[str, object, object]]:
    dtypes = set(python.dtypes_of(mine)), set(library.dtypes_of(its))
    edge = "pad" if isinstance(mine, In) else "fill"
    rows = [
        ("dtypes", " ".join(sorted(dtypes[0])), " ".join(sorted(dtypes[1]))),
        ("rank", ranks_of(mine), ranks_of(its)),
        ("quantised", mine.quantised, its.quantised),
        (edge, getattr(mine, edge), getattr(its, edge)),
        ("optional", getattr(mine, "optional", False), getattr(its, "optional", False)),
    ]
    if len(dtypes[0]) > 1:  # of one dtype all are alike
        rows.append(("like", mine.like or "none", its.like or "none"))
    for part, given, accepted in rows:
        if given != accepted:
            yield f"{part} of {mine.name}", given, accepted
