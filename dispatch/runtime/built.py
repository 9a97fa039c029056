# SPDX-License-Identifier: Apache-2.0
"""Checks that the C++ library has the kernels as Python declares them: one of a checkout may be older."""

from __future__ import annotations

from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.plugins.files import refused
from onedispatch.operators.declarations.kernel import declared
from onedispatch.operators.emission.image import Image


def require_built(image: Image) -> None:
    """Raises ``KernelNotFoundError`` if ``image`` has kernels that were declared otherwise since the build.

    Only kernels of the project count, as this process declares them.
    """
    built = dict(core.kernels())
    ours = {kernel.name: kernel.digest for kernel in declared()}
    changed = [
        one.name
        for one in image.linked
        if ours.get(one.name) == one.digest and built.get(one.name) != one.digest
    ]
    if changed:
        raise refused(
            "the C++ library of onedispatch",
            f"other declarations of {', '.join(sorted(changed))} than Python has now",
            "a library built from the same declarations",
            "they changed since the build: run `make generate`, then `make .venv/stamps/dev`",
        )
