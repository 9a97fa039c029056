# SPDX-License-Identifier: Apache-2.0
"""The compiled body of a class: ``od.kernel(..., library="libacme.so")``.

The class says what the library says too; wherever they differ, blocks made from the one would be read by the
other in another way. So each difference is an error before a node is placed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onedispatch.operators.declarations.kernel import Scalar, Tensor
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.library_data import declared_of
from onedispatch.operators.plugin.native import native
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions.base.files import real_path
from onedispatch.transactions.base.host import kernel_seconds


def compiled_body(kernel: CustomKernel, origin: str) -> dict[str, Any]:
    """Where the body is, as ``_core.register_kernel`` takes it: ``{"library": path, "index": i}``.

    ``origin`` is the file of the class: the library is looked for beside it, then in the working directory.
    Raises ``KernelNotFoundError`` where there is no such library, or no such kernel in it, and
    ``KernelDeclarationInvalidError`` where class and library differ.
    """
    path = found_at(kernel, origin)
    kernels = [declared_of(said, path) for said in native().load_plugins(path, kernel_seconds())]
    for index, own in enumerate(kernels):
        if own.name == kernel.name:
            _insist_alike(kernel, own, path)
            return {"library": path, "index": index}
    known = ", ".join(own.name for own in kernels) or "no kernels"
    raise refusal("not_found", f"kernel {kernel.name}: library {path}", "no kernel of that name", known)


def found_at(kernel: CustomKernel, origin: str) -> str:
    """The library's file. Raises ``KernelNotFoundError`` with the places that were tried."""
    places = [folder / kernel.library for folder in (Path(origin).parent, Path.cwd())]
    for place in places:
        if place.is_file():
            return real_path(place)
    tried = " or ".join(dict.fromkeys(str(place) for place in places))
    raise refusal(
        "not_found", f"kernel {kernel.name}: library", kernel.library, f"a file {tried}", "build it first"
    )


def _insist_alike(python: CustomKernel, library: CustomKernel, path: str) -> None:
    for what, given, accepted in differences(python, library):
        where = f"kernel {python.name}: {what}, in the class"
        remedy = "change the class or the library, so that both say the same"
        raise refusal("declaration_invalid", where, given, f"{accepted}, as library {path} says", remedy)


def differences(python: CustomKernel, library: CustomKernel) -> Iterator[tuple[str, object, object]]:
    """What the two say differently: what, the one, the other."""
    if python.prints != library.prints:
        yield "prints", python.prints, library.prints
    for what, one, other in (
        ("inputs", python.inputs, library.inputs),
        ("outputs", python.outputs, library.outputs),
        ("auxiliary tensors", python.aux, library.aux),
        ("scratch", python.scratch_tensors, library.scratch_tensors),
        ("scalars", python.own_scalars, library.own_scalars),
    ):
        names = _names(one), _names(other)
        if names[0] != names[1]:
            yield what, *names
            return
    for tensor, its_twin in zip(python.typed_tensors, library.typed_tensors, strict=True):
        yield from _differing(_facts(tensor), _facts(its_twin), tensor.name)
    for scalar, twin in zip(python.own_scalars, library.own_scalars, strict=True):
        parts = ("type", "bounds", "default")
        mine, its = ({part: getattr(one, part) for part in parts} for one in (scalar, twin))
        yield from _differing(mine, its, f"scalar {scalar.name}")


def _names(rows: Sequence[Tensor] | Sequence[Scalar]) -> str:
    return ", ".join(row.name for row in rows) or "none"


def _facts(tensor: Tensor) -> dict[str, object]:
    facts: dict[str, object] = {"dtypes": " ".join(sorted(tensor.dtype_names))}
    facts |= {part: getattr(tensor, part) for part in ("rank", "quantised", "pad", "fill", "optional")}
    # Of one element type all are alike.
    return facts | ({"like": tensor.like or "none"} if len(tensor.dtype_names) > 1 else {})


def _differing(
    one: Mapping[str, object], other: Mapping[str, object], name: str
) -> Iterator[tuple[str, object, object]]:
    """The facts that differ; ``other`` has those of ``one`` where their element types agree."""
    for part, given in one.items():
        if given != other.get(part, given):
            yield f"{part} of {name}", given, other[part]
