# SPDX-License-Identifier: Apache-2.0
"""Runs custom kernels on the host: their reference if they have one, else the body that the cores run.

The body, Python or compiled, gets the same parameter block and is called through ``onedispatch/kernel.h``
as on the simulated array, with all members in one call and every operand whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.dispatch.host.printed import printing
from onedispatch.dispatch.plugins.engine import register_kernels
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.registry import custom_mapping
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec
from onedispatch.operators.plugin.on_host import REFERENCE, engine_of, host_call
from onedispatch.transactions import Device
from onedispatch.transactions.base.boundary import attributed_to
from onedispatch.transactions.base.host import kernel_limit, kernel_seconds

Array = np.ndarray[Any, Any]


class OwnKernel:
    """The custom kernel of a node as an engine of host regions.

    ``constants`` are the constants among the node's inputs; ``seconds`` limits a call of the body.
    """

    def __init__(
        self,
        graph: Graph,
        node: Node,
        outputs: Sequence[str],
        constants: Mapping[str, Array],
        device: Device,
        seconds: float | None = None,
    ) -> None:
        self._mapping = custom_mapping(node)
        self.name = engine_of(self._mapping.plugin)
        self._graph, self._node, self._device = graph, node, device
        self._outputs, self._constants, self._seconds = list(outputs), constants, seconds

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        """Returns the outputs. Raises ``KernelError`` if the kernel refuses the shapes or its body fails."""
        arrays = [feed[name] if name else None for name in self._node.inputs]
        made = self.compute(arrays)
        known = dict(zip(self._node.outputs, made, strict=False))
        return [known[name] for name in self._outputs]

    def compute(self, arrays: Sequence[Array | None]) -> list[Array]:
        """Returns the node's outputs, in the order of the declaration."""
        with kernel_limit(self._seconds):
            return self._compute(arrays)

    def _compute(self, arrays: Sequence[Array | None]) -> list[Array]:
        plugin = self._mapping.plugin
        node = self._mapping.node(self._spec(arrays), self._device)
        if plugin.dynamic_results:
            accepted = "the device: on the host nothing says how much there is of a result"
            raise node.refuse("not_supported", "a shape that data decides", "the host", accepted)
        about = f"node {self._node.name} ({self._node.op_type}) on the host"
        with attributed_to(type(plugin), about):
            if plugin.has_reference:
                made = plugin.infer(node)
                results = plugin.reference(node, *arrays)
                results = results if isinstance(results, tuple | list) else (results,)
                return _checked(node, made, results)
            instance = plugin.instantiate(node)
        outputs = instance.outputs.values()
        if all(0 in shape for _, shape in outputs):
            return [np.empty(shape, DTYPES[dtype].numpy) for dtype, shape in outputs]
        names = (one.name for one in plugin.kernel.inputs)
        given = {name: array for name, array in zip(names, arrays, strict=False) if array is not None}
        call = host_call(plugin, node, instance, given, self._device)
        register_kernels()
        with printing(self._node.name) as listener:
            core.run_kernel(
                plugin.kernel.digest, call.words, call.images, call.scratch_bytes, kernel_seconds(), *listener
            )
        return call.results(plugin.kernel)

    def _spec(self, arrays: Sequence[Array | None]) -> NodeSpec:
        """Returns the node with the shapes of this run."""
        node, graph = self._node, self._graph
        inputs = [
            None
            if array is None
            else TensorSpec(
                name, array.dtype, array.shape, self._constants.get(name), graph.quantised.get(name)
            )
            for name, array in zip(node.inputs, arrays, strict=True)
        ]
        values = [graph.value(name) for name in node.outputs]
        outputs = [
            TensorSpec(v.name, v.dtype, v.concrete_shape) if v.name and v.is_concrete and v.dtype else None
            for v in values
        ]
        opset = graph.opsets.get(node.domain, 1)
        return NodeSpec(node.name, node.op_type, node.domain, opset, inputs, outputs, node.attributes)


def _checked(
    node: Any, made: Mapping[str, tuple[str, tuple[int, ...]]], results: Sequence[Any]
) -> list[Array]:
    """Returns the arrays of a reference. Raises ``KernelError`` if ``infer`` says other types or shapes."""
    if len(results) != len(made):
        raise node.refuse(
            "output_count", f"outputs of {REFERENCE}", len(results), f"{len(made)}, as infer says"
        )
    found = []
    for (name, (dtype, shape)), result in zip(made.items(), results, strict=True):
        array = np.asarray(result)
        if array.dtype != DTYPES[dtype].numpy or array.shape != tuple(shape):
            accepted = f"{DTYPES[dtype].numpy}{list(shape)}, as infer says"
            given = f"{array.dtype}{list(array.shape)}"
            raise node.refuse("output_size", f"output {name} of {REFERENCE}", given, accepted)
        found.append(np.ascontiguousarray(array).reshape(shape))
    return found
