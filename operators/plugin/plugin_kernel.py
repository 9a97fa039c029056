# SPDX-License-Identifier: Apache-2.0
"""A custom kernel with its code, in whichever language: what ``od.kernel`` and kernel libraries bring."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import KernelInstance
from onedispatch.operators.plugin.node import Made, Node
from onedispatch.operators.plugin.watchdog import asked


class PluginKernel(ABC):
    """A custom kernel: a declaration, and the code that makes an instance of it for a node.

    ``origin`` is the file that it came from, or the module's name.
    """

    kernel: CustomKernel
    origin: str

    @cached_property
    @abstractmethod
    def functions(self) -> Mapping[str, Any]:
        """Its body, as ``_core.register_kernel`` takes it: a function, or the shared object that has one."""

    @property
    def has_reference(self) -> bool:
        """Whether there is a NumPy function that computes the same."""
        return self.kernel.reference is not None

    def reference(self, node: Node, *arrays: Any) -> Any:
        """What it computes, in NumPy: the inputs in order, None where absent; an array, or one per output."""
        assert self.kernel.reference is not None
        return self._asked(self.kernel.reference, node, *arrays)

    def _asked(self, function: Callable[..., Any], node: Node, *arrays: Any) -> Any:
        """What a function of the kernel's answers for a node; it is ended where it does not end."""
        about = f"node {node.name} ({node.op_type}), kernel {self.kernel.name}"
        return asked(function, about, node, *arrays)

    @abstractmethod
    def infer(self, node: Node) -> dict[str, Made]:
        """Dtype and shape of every output. Raises ``KernelError`` where it says what cannot be."""

    @abstractmethod
    def instantiate(self, node: Node) -> KernelInstance:
        """The instance for a node, checked. Raises ``KernelError`` for what could not be run."""
