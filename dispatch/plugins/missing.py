# SPDX-License-Identifier: Apache-2.0
"""Kernels that a program image names and no plug-in brings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.plugins import discovery
from onedispatch.dispatch.plugins.files import refused
from onedispatch.operators.declarations.function_sets import ALL_TABLES
from onedispatch.operators.emission.image import Image, Linked, names_in
from onedispatch.operators.plugin import registrations


def check_known(
    where: str,
    images: Iterable[Image],
    texts: Iterable[str] = (),
    origins: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Raises ``KernelNotFoundError`` with names, digests and where plug-ins came from, unless every kernel
    of the images is there, and of the images that ``texts`` tell of. ``origins``: the file that each came
    from when the model was compiled."""
    wanted = {one.digest: one for image in images for one in image.linked}
    names = {name for text in texts for name in names_in(text)}
    if not _missing(wanted, names, origins):
        return
    discovery.ensure()
    missing = _missing(wanted, names, origins)
    if missing:
        raise refused(
            where,
            "; ".join(missing),
            f"kernels of onedispatch and of plug-ins ({discovery.searched()})",
            "name the plug-in that brings it: plugins=[...], --plugin FILE or ONEDISPATCH_PLUGIN_PATH",
        )


def _missing(wanted: Mapping[int, Linked], names: set[str], origins: Mapping[str, str]) -> list[str]:
    """A text for each kernel that is not there."""
    known = {row[1]: row[0] for row in core.kernels()}
    known |= {one.kernel.digest: one.kernel.name for one in registrations.kernels()}
    known |= {digest: name for table in ALL_TABLES for digest, name in table.later.items()}
    lacking = [one for digest, one in sorted(wanted.items()) if digest not in known]
    named = {one.name: f"{_named(one.name, origins, one.digest)}, {_why(one.name)}" for one in lacking}
    unknown = {name: f"{_named(name, origins)}, {_why(name)}" for name in sorted(names - set(known.values()))}
    return list((unknown | named).values())


def _named(name: str, origins: Mapping[str, str], digest: int | None = None) -> str:
    text = f"kernel {name}" + ("" if digest is None else f" (digest 0x{digest:08X})")
    return f"{text} of {origins[name]}" if origins.get(name) else text


def _why(name: str) -> str:
    other = registrations.named(name)
    if other is None:
        return "which no plug-in brings"
    return f"which {other.origin} declares otherwise (digest 0x{other.kernel.digest:08X})"
