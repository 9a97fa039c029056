# SPDX-License-Identifier: Apache-2.0
"""Custom kernels in Python: a decorated class, and how its methods are asked for an instance."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.plugin import body
from onedispatch.operators.plugin.counting import box_of, counted_work
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import Interval, KernelInstance
from onedispatch.operators.plugin.instance_checks import (
    check_index_space,
    declared_shapes,
    index_space_of,
)
from onedispatch.operators.plugin.node import Made, Node, as_intervals
from onedispatch.operators.plugin.plugin_kernel import PluginKernel
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.operators.plugin.twin import compiled_body
from onedispatch.operators.plugin.watchdog import asked
from onedispatch.transactions.base.cached import cached_property


class PythonKernel(PluginKernel):
    """A kernel that a decorated class makes; its methods get the node, ``body`` a tile."""

    def __init__(self, kernel: CustomKernel, cls: type) -> None:
        self.kernel, self.cls = kernel, cls
        self.origin = origin_of(cls)
        if not kernel.library and not callable(getattr(cls, "body", None)):
            accepted = "a method body(self, t), or library= with the compiled body"
            raise refusal("declaration_invalid", f"kernel {kernel.name}", "no body", accepted)
        self.instance = asked(cls, f"kernel {kernel.name}, the class")
        if kernel.library:
            _ = self.functions

    @cached_property
    def functions(self) -> Mapping[str, Any]:
        if self.kernel.library:
            return compiled_body(self.kernel, self.origin)
        own = self.method("body")
        assert own is not None  # a library has its own functions, above
        return body.functions(self.kernel, own, {one.name: one.dtypes for one in self.kernel.scratch_tensors})

    def method(self, name: str) -> Callable[..., Any] | None:
        """A method of the class, None where it has none of that name."""
        found = getattr(self.instance, name, None)
        return found if callable(found) else None

    @property
    def has_reference(self) -> bool:
        return self.method("reference") is not None or super().has_reference

    def reference(self, node: Node, *arrays: Any) -> Any:
        own = self.method("reference")
        return super().reference(node, *arrays) if own is None else self._asked(own, node, *arrays)

    def _ask(self, name: str, node: Node) -> Any:
        """What a method answers; None where there is none."""
        method = self.method(name)
        if method is None:
            return None
        return self._asked(method, node)

    # -- an instance -----------------------------------------------------------------------

    def infer(self, node: Node) -> dict[str, Made]:
        answer = self._ask("infer", node)
        if self.method("infer") is None:
            answer = declared_shapes(self.kernel, node)
        return self._made(node, answer)

    def instantiate(self, node: Node) -> KernelInstance:
        verdict = self._ask("verify", node)
        if isinstance(verdict, str):
            raise node.refuse("layer_configuration", "verify", verdict, "what the kernel's verify accepts")
        if verdict is False:
            raise node.refuse("layer_configuration", "verify", "False", "what the kernel's verify accepts")
        outputs = self.infer(node)
        space = self._ask("index_space", node)
        if self.method("index_space") is None:
            space = node[self.kernel.outputs[0].name].shape
        sizes = index_space_of(node, space)
        node.set_index_space(sizes)
        if all(0 not in made.shape for made in outputs.values()):
            check_index_space(node, sizes)
        access = self._access(node)
        work = self._ask("work", node)
        if isinstance(work, Mapping):
            node.work(**work)
        self._set_scalars(node)
        node.checked_scalars()  # what is missing is said before what is too much
        node.check_attributes()
        return self._bound(node, outputs, access, self.kernel.in_place)

    def _counted(self, node: Node, instance: KernelInstance) -> float | None:
        own = self._counted_body(node)
        if own is None:
            return None
        given = {one.name: node.given(one.name) for one in self.kernel.inputs}
        arrays = {name: np.zeros(x.shape, x.dtype) for name, x in given.items() if x is not None}
        box = box_of(instance.index_space)

        def call(watch: Callable[[Any], Any]) -> int:
            body.call_once(self.kernel, own, instance, arrays, box, watch)
            return math.prod(box)

        dtype, _ = instance.outputs[self.kernel.outputs[0].name]
        return counted_work(call, DTYPES[dtype], node.target)

    def _counted_body(self, node: Node) -> Callable[..., Any] | None:
        """The body that work is counted on, as it runs for a node."""
        return self.method("body")

    def _access(self, node: Node) -> dict[str, tuple[Interval, ...]]:
        answer = self._ask("access", node)
        if self.method("access") is None:
            return node.elementwise()
        if not isinstance(answer, Mapping):
            accepted = "intervals by operand, as n.elementwise() and n.access() make them"
            raise node.refuse("parameter_invalid", "access", repr(answer), accepted)
        found = {}
        for name, intervals in answer.items():
            if not isinstance(intervals, Sequence):
                accepted = "an interval per dimension"
                raise node.refuse("parameter_invalid", f"access of {name}", repr(intervals), accepted)
            found[name] = as_intervals(intervals)
        return found

    def _set_scalars(self, node: Node) -> None:
        answer = self._ask("scalars", node) or {}
        if not isinstance(answer, Mapping):
            accepted = "numbers by scalar: {'a': 1.0}"
            raise node.refuse("scalar_argument", "method scalars", repr(answer), accepted)
        known = {one.name: one for one in self.kernel.own_scalars}
        unknown = sorted(set(answer) - set(known))
        if unknown:
            raise node.refuse("scalar_argument", "scalars", ", ".join(unknown), ", ".join(known) or "none")
        for name, value in answer.items():
            node.scalars[name] = node.checked_scalar(known[name], value, "method scalars")


def origin_of(target: Any) -> str:
    """The file that a class or function stands in, or its module's name."""
    module = sys.modules.get(getattr(target, "__module__", ""), None)
    file = getattr(module, "__file__", None)
    return str(Path(file).resolve()) if file else getattr(target, "__module__", "") or "?"
