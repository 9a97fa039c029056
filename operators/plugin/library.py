# SPDX-License-Identifier: Apache-2.0
"""Kernels of shared objects that were built against ``onedispatch/plugin.h`` or ``plugin_cpp.h``.

A library declares its kernels and places their nodes; layout, digest and cost are made here of what it says,
as they are of a class in Python. So a compiled body and its Python twin have one declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onedispatch.operators.plugin import library_data as data
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import KernelInstance
from onedispatch.operators.plugin.native import native
from onedispatch.operators.plugin.node import Made, Node
from onedispatch.operators.plugin.plugin_kernel import PluginKernel
from onedispatch.operators.plugin.refusals import relocated
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import KernelError
from onedispatch.transactions.base.host import kernel_seconds


class LibraryKernel(PluginKernel):
    """Plug-in ``number`` of the library at ``origin``."""

    def __init__(self, path: str, number: int, kernel: CustomKernel) -> None:
        self.origin, self.number, self.kernel = path, number, kernel

    @cached_property
    def functions(self) -> Mapping[str, Any]:
        return {"library": self.origin, "index": self.number}

    def infer(self, node: Node) -> dict[str, Made]:
        return self._made(node, data.outputs_of(self.kernel, self._instance(node)))

    def instantiate(self, node: Node) -> KernelInstance:
        made = self._instance(node)
        outputs = self._made(node, data.outputs_of(self.kernel, made))
        node.set_index_space(tuple(made["index_space"]) or (1,))  # one member makes a scalar
        node.scalars.update(data.scalars_of(self.kernel, node, made))
        node.work_terms.update(made["work"] or {})
        access = data.access_of(self.kernel, node, made)
        node.arrays.update(data.aux_of(self.kernel, node, made))
        node.scratch_bytes.update(data.scratch_of(self.kernel, made))
        node.pads.update(data.edges_of(self.kernel.inputs, 0, made))
        node.fills.update(data.edges_of(self.kernel.outputs, len(self.kernel.inputs), made))
        node.preferred_split = made["preferred_split"]
        return self._bound(node, outputs, access, data.in_place_of(self.kernel, made))

    def _instance(self, node: Node) -> dict[str, Any]:
        """What the library says of the node; its refusals name the node."""
        handed = data.node_data(self.kernel, node)
        try:
            return native().instantiate(self.origin, self.number, handed, kernel_seconds())
        except KernelError as error:
            where = f"node {node.name} ({node.op_type}), {error.where}"
            raise relocated(error, where, node.name) from error


def read(path: str | Path) -> list[LibraryKernel]:
    """The kernels of a library, in its order; it stays loaded for the rest of the process.

    Raises ``KernelError`` for what is no library of plug-ins (``KernelNotFoundError``), is of another version
    (``KernelAbiVersionError``), or declares what could not be run (``KernelDeclarationInvalidError``).
    """
    resolved = str(Path(path).resolve())
    found = []
    for number, said in enumerate(native().load_plugins(resolved, kernel_seconds())):
        try:
            found.append(LibraryKernel(resolved, number, data.declared_of(said, resolved)))
        except KernelError as error:
            raise relocated(error, f"kernel library {resolved}: {error.where}") from error
    return found
