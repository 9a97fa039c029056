# SPDX-License-Identifier: Apache-2.0
"""Models with nodes of a custom domain, and kernels for them that the device never takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from onnx import ModelProto, NodeProto, helper

from onedispatch.operators.declarations.kernel import Scalar
from onedispatch.operators.declarations.registry import OpMapping
from onedispatch.operators.declarations.tensor import NodeSpec, Unsupported
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import KernelInstance
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.operands import In, Out
from onedispatch.operators.plugin.plugin_kernel import PluginKernel
from onedispatch.transactions import Device
from tests.plugins import model, value

Array = np.ndarray[Any, Any]
ORIGIN = "tests of custom domains"


@dataclass(eq=False)
class Kernel(PluginKernel):
    """A kernel that the device never takes: ``a * x + y``, or what ``told`` and ``computed`` say."""

    kernel: CustomKernel
    told: Callable[[Node], dict[str, Any]]
    computed: Callable[..., Any]
    asked: list[Node] = field(default_factory=list)
    has_reference = True  # type: ignore[assignment]
    origin: str = ORIGIN

    functions: ClassVar[dict[str, Any]] = {}

    def instantiate(self, node: Node) -> KernelInstance:
        raise Unsupported("this test's device takes no such node")

    def infer(self, node: Node) -> dict[str, Any]:
        self.asked.append(node)
        return self.told(node)

    def reference(self, node: Node, *arrays: Array) -> Any:
        return self.computed(node, *arrays)

    def node(self, spec: NodeSpec, device: Device) -> Node:
        return Node(self.kernel, spec, device)


@dataclass(eq=False)
class Mapped:
    plugin: Kernel

    def node(self, spec: NodeSpec, device: Device) -> Node:
        return Node(self.plugin.kernel, spec, device)


def refuse(spec: NodeSpec, lowering: Any) -> None:
    raise Unsupported("this test's device takes no such node")


def scaled(node: Node, x: Array, y: Array) -> Array:
    return (np.float32(node.a) * x + y).astype(x.dtype)


Bring = Callable[..., Kernel]


def acme(inputs: str, outputs: str, op_type: str = "ScaleAdd", **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), domain="acme", **attributes)


def chain(shape: Sequence[int | str] = (3, 5), declared: Sequence[int | str] | None = None) -> ModelProto:
    nodes = [acme("x y", "z", name="first", a=2.0), helper.make_node("Add", ["z", "y"], ["w"], name="add")]
    nodes.append(acme("w x", "v", name="last", a=-1.0))
    return model(nodes, [value("x", shape), value("y", shape)], [value("v", declared)])


def feed(*shape: int) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    return {name: rng.integers(-8, 8, shape).astype(np.float32) for name in ("x", "y")}


def answer(x: Array, y: Array) -> Array:
    return -(2 * x + y + y) + x


def bring_kernel(
    op_type: str = "ScaleAdd",
    inputs: tuple[In, ...] = (In("x"), In("y", like="x")),
    outputs: tuple[Out, ...] = (Out("z", like="x"),),
    told: Callable[[Node], dict[str, Any]] = lambda n: {"z": n["x"].like()},
    computed: Callable[..., Any] = scaled,
) -> Kernel:
    """Maps an operator of domain acme to a kernel, which comes back."""
    kernel = CustomKernel(
        f"acme::{op_type.lower()}", inputs, outputs, scalars=(Scalar("a", "f32", default=1.0),)
    )
    brought = Kernel(kernel, told, computed)
    row = OpMapping("acme", op_type, ("float32",), "", refuse, origin=ORIGIN, custom=Mapped(brought))
    registrations.add_mapping(row)
    return brought
