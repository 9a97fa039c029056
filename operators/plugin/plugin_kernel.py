# SPDX-License-Identifier: Apache-2.0
"""A custom kernel with its code, in whichever language: what ``od.kernel`` and kernel libraries bring."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import Interval, KernelInstance
from onedispatch.operators.plugin.instance_checks import check_instance, checked_outputs, work_of
from onedispatch.operators.plugin.node import Made, Node
from onedispatch.operators.plugin.watchdog import asked
from onedispatch.transactions.base.cached import cached_property


class PluginKernel(ABC):
    """A custom kernel: a declaration, and the code that makes an instance of it for a node.

    ``origin`` is the file that it came from, or the module's name.
    """

    kernel: CustomKernel
    origin: str
    operator_class: type[Any] | None = None  # of a kind of kernels with operators of their own

    @cached_property
    @abstractmethod
    def functions(self) -> Mapping[str, Any]:
        """Its body, as ``_core.register_kernel`` takes it: a function, or the shared object that has one."""

    @property
    def host_inputs(self) -> tuple[int, ...]:
        """Positions of the inputs whose values decide shapes."""
        return ()

    @property
    def parameter_names(self) -> list[str] | None:
        """The attributes of its nodes; None where its methods may read others than its scalars."""
        return None

    def takes_dynamic(self, node: Node) -> bool:
        """Whether the last two dimensions of its inputs may differ from run to run."""
        return True

    @property
    def dynamic_results(self) -> Mapping[str, str]:
        """The result that says how much there is of another, by name: of layers whose data decides that."""
        return {}

    @property
    def has_body(self) -> bool:
        """Whether there is something that a core computes."""
        return True

    @property
    def made_up(self) -> Mapping[str, Any]:
        """Attributes for cases that are made, beside its scalars: those without which nodes are refused."""
        return {}

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

    def lowers(self, node: Node, lowering: Any) -> bool:
        """Whether it emitted operators of its own for a node (``Lowering``), which need no more."""
        return False

    @abstractmethod
    def instantiate(self, node: Node) -> KernelInstance:
        """The instance for a node, checked. Raises ``KernelError`` for what could not be run."""

    # -- what both languages have in common --------------------------------------------------

    def _made(self, node: Node, answer: Any) -> dict[str, Made]:
        """The outputs that ``answer`` says, checked; ``node`` knows them from here on."""
        outputs = checked_outputs(self.kernel, node, answer)
        node.set_outputs(outputs)
        node.check_outputs_alike()
        return outputs

    def _bound(
        self,
        node: Node,
        outputs: Mapping[str, Made],
        access: Mapping[str, tuple[Interval, ...]],
        in_place: Mapping[str, str],
    ) -> KernelInstance:
        """The instance for a node that knows everything else, checked."""
        instance = KernelInstance(
            {name: (made.dtype, made.shape) for name, made in outputs.items()},
            node.index_space,
            access,
            node.checked_scalars(),
            dict(node.arrays),
            dict(node.scratch_bytes),
            dict(node.pads),
            dict(node.fills),
            work_of(self.kernel, node),
            node.preferred_split,
            dict(in_place),
        )
        if not instance.is_empty:
            check_instance(self.kernel, node, instance)
        if instance.work:
            return replace(instance, basis="declared")
        counted = None if instance.is_empty else self._counted(node, instance)
        return instance if counted is None else replace(instance, work={"op": counted}, basis="counted")

    def _counted(self, node: Node, instance: KernelInstance) -> float | None:
        """What a member takes by the count of its body's operations; None where they cannot be counted."""
        return None
