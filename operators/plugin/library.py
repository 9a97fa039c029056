# SPDX-License-Identifier: Apache-2.0
"""Kernels of shared objects that were built against ``onedispatch/plugin.h`` or ``plugin_cpp.h``.

A library declares its kernels and places their nodes; layout, digest and cost are made here of what it says,
as they are of a class in Python. So a compiled body and its Python twin have one declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from onedispatch.operators.declarations.statuses import error_class
from onedispatch.operators.plugin import library_data as data
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import KernelInstance
from onedispatch.operators.plugin.instance_checks import check_instance, checked_outputs, with_basis, work_of
from onedispatch.operators.plugin.native import native
from onedispatch.operators.plugin.node import Made, Node
from onedispatch.operators.plugin.plugin_kernel import PluginKernel
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
        return self._told(node, self._instance(node))

    def instantiate(self, node: Node) -> KernelInstance:
        made = self._instance(node)
        outputs = self._told(node, made)
        space = tuple(made["index_space"]) or (1,)  # one member makes a scalar
        node.tell_index_space(space)
        node.scalars.update(data.scalars_of(self.kernel, node, made))
        node.work_terms.update(made["work"] or {})
        first_output = len(self.kernel.inputs)
        instance = KernelInstance(
            {name: (one.dtype, one.shape) for name, one in outputs.items()},
            space,
            data.access_of(self.kernel, node, made),
            node.checked_scalars(),
            data.aux_of(self.kernel, node, made),
            data.scratch_of(self.kernel, made),
            data.edges_of(self.kernel.inputs, 0, made),
            data.edges_of(self.kernel.outputs, first_output, made),
            work_of(self.kernel, node),
            made["preferred_split"],
            data.in_place_of(self.kernel, made),
        )
        if not instance.is_empty:
            check_instance(self.kernel, node, instance)
        return with_basis(instance, None)

    def _told(self, node: Node, made: Mapping[str, Any]) -> dict[str, Made]:
        outputs = checked_outputs(self.kernel, node, data.outputs_of(self.kernel, made))
        node.tell_outputs(outputs)
        node.check_outputs_alike()
        return outputs

    def _instance(self, node: Node) -> dict[str, Any]:
        """What the library says of the node; its refusals name the node."""
        handed = data.node_data(self.kernel, node)
        try:
            return native().instantiate(self.origin, self.number, handed, kernel_seconds())
        except KernelError as error:
            where = f"node {node.name} ({node.op_type}), {error.where}"
            cls = error_class(error.status)
            raise cls(
                where, error.given, error.accepted, error.remedy, status=error.status, node=node.name
            ) from error


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
            cls = error_class(error.status)
            where = f"kernel library {resolved}: {error.where}"
            raise cls(where, error.given, error.accepted, error.remedy, status=error.status) from error
    return found
