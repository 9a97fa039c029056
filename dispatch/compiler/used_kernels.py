# SPDX-License-Identifier: Apache-2.0
"""The custom kernels that an executable runs: a saved model names them and must find them again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

from onedispatch.dispatch.compiler.executable import Executable, HostStep, Step, UsedKernel
from onedispatch.dispatch.frontend.graph import Node
from onedispatch.dispatch.plugins import discovery
from onedispatch.dispatch.plugins.files import is_library
from onedispatch.operators.declarations import registry
from onedispatch.operators.emission.image import names_in
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.refusals import refusal


def used_kernels(steps: Iterable[Step]) -> tuple[UsedKernel, ...]:
    """The custom kernels that steps run, by name."""
    brought: dict[str, Any] = {}
    hosted: dict[str, list[str]] = {}
    for step in steps:
        if isinstance(step, HostStep):
            for node in step.graph.nodes:
                for kernel in host_kernels(node):
                    brought[kernel.kernel.name] = kernel
                    hosted.setdefault(kernel.kernel.name, []).append(node.name)
            continue
        names = {name for reload in step.reloads for name in names_in(reload.kernels)}
        for name in names | {linked.name for linked in step.image.linked}:
            offered = registrations.named(name)
            if offered is not None:
                brought[name] = offered
    return tuple(
        UsedKernel(name, one.kernel.digest, short_origin(one), tuple(hosted.get(name, ())))
        for name, one in sorted(brought.items())
    )


def host_kernels(node: Node) -> list[Any]:
    """The custom kernels that a node needs on the host: its own, and those of nodes in its bodies."""
    rows = [registry.mapping_for(*one) for one in [(node.domain, node.op_type), *node.inner]]
    return [row.custom.plugin for row in rows if row is not None and row.custom is not None]


def declared_as(executable: Executable) -> tuple[Any, ...]:
    """The kernels that its digests name now: others than before where a class was declared again since."""
    return tuple(registrations.by_digest(used.digest) for used in executable.kernels)


def declared_again(executable: Executable, before: tuple[Any, ...]) -> list[str]:
    """Kernels whose body, access or tables are not those that the executable was made with.

    Digests know operands and scalars alone. Kernels that are gone do not count: programs keep them; nor do
    those that were loaded again from the same file.
    """
    now = declared_as(executable)
    return [
        used.name
        for used, was, one in zip(executable.kernels, before, now, strict=True)
        if None not in (was, one) and one is not was and not _same_file(one, was)
    ]


def _same_file(one: Any, other: Any) -> bool:
    """Whether both are the compiled kernel of one library: an object that was loaded stays as it is."""
    return bool(one.origin == other.origin) and is_library(Path(one.origin))


def short_origin(kernel: Any) -> str:
    """The name of the file, without its folder: a compiled model is the same wherever a plug-in lies."""
    return PurePath(kernel.origin).name


def notes_on(name: str) -> list[str]:
    """Warnings of a kernel's declaration, for the reader of ``inspect``."""
    brought = registrations.named(name)
    if brought is None or not isinstance(kernel := brought.kernel, CustomKernel):
        return []
    notes = []
    if not kernel.deterministic:
        notes.append("warning: it is declared not to be deterministic: other runs may give other bits")
    for output, source in kernel.in_place.items():
        notes.append(
            f"{output} takes the memory of {source} where nothing else reads that, and no member another's"
        )
    return notes


def check_host_kernels(where: str, executables: Iterable[Executable]) -> None:
    """Raises ``KernelNotFoundError`` where nodes of the host lack the kernel that they were compiled with."""
    for executable in executables:
        nodes = [n for s in executable.steps if isinstance(s, HostStep) for n in s.graph.nodes]
        there = {(n.name, k.kernel.name, k.kernel.digest) for n in nodes for k in host_kernels(n)}
        for used in executable.kernels:
            missing = [name for name in used.nodes if (name, used.name, used.digest) not in there]
            if missing:
                raise refusal(
                    "not_found",
                    where,
                    f"kernel {used.name} (digest 0x{used.digest:08X}) of {used.origin}, which no plug-in "
                    f"brings for {missing[0]}, a node of the host",
                    f"the plug-in that the model was compiled with ({discovery.searched()})",
                    "name it: plugins=[...], --plugin FILE or ONEDISPATCH_PLUGIN_PATH",
                    node=missing[0],
                )
