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
from onedispatch.operators.plugin.declared import Declared, Placement
from onedispatch.operators.plugin.instance import PluginKernel
from onedispatch.operators.plugin.native import native
from onedispatch.operators.plugin.node import Made, Node
from onedispatch.operators.plugin.placement import check_placement
from onedispatch.operators.plugin.plugin import checked_outputs, is_empty, with_basis, work_of
from onedispatch.transactions.base.errors import KernelError
from onedispatch.transactions.base.host import kernel_seconds


class LibraryKernel(PluginKernel):
    """Plug-in ``number`` of the library at ``origin``."""

    def __init__(self, path: str, number: int, declared: Declared) -> None:
        self.origin, self.number, self.declared = path, number, declared
        _ = self.kernel  # refused here, not at its first node

    @cached_property
    def functions(self) -> Mapping[str, Any]:
        return {"library": self.origin, "index": self.number}

    def infer(self, node: Node) -> dict[str, Made]:
        return self._told(node, self._instance(node))

    def place(self, node: Node) -> Placement:
        made = self._instance(node)
        outputs = self._told(node, made)
        space = tuple(made["index_space"]) or (1,)  # one member makes a scalar
        node.tell_index_space(space)
        node.scalars.update(data.scalars_of(self.declared, node, made))
        node.work_terms.update(made["work"] or {})
        first_output = len(self.declared.inputs)
        placement = Placement(
            {name: (one.dtype, one.shape) for name, one in outputs.items()},
            space,
            data.access_of(self.declared, node, made),
            node.checked_scalars(),
            data.aux_of(self.declared, node, made),
            data.scratch_of(self.declared, made),
            data.edges_of(self.declared.inputs, 0, made),
            data.edges_of(self.declared.outputs, first_output, made),
            work_of(self.declared, node),
            made["preferred_split"],
            data.in_place_of(self.declared, made),
        )
        if not is_empty(placement):
            check_placement(self.declared, node, placement)
        return with_basis(placement, None)

    def _told(self, node: Node, made: Mapping[str, Any]) -> dict[str, Made]:
        outputs = checked_outputs(self.declared, node, data.outputs_of(self.declared, made))
        node.tell_outputs(outputs)
        node.check_outputs_alike()
        return outputs

    def _instance(self, node: Node) -> dict[str, Any]:
        """What the library says of the node; its refusals name the node."""
        handed = data.node_data(self.declared, node)
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
