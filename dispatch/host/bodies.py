# SPDX-License-Identifier: Apache-2.0
"""Operator classes for bodies of If and Loop that onnx's reference evaluator runs.

They fill gaps of the evaluator, and compute nodes of custom kernels, which onnxruntime has no way to run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.dispatch.host.own_kernel import OwnKernel
from onedispatch.operators.declarations import registry
from onedispatch.transactions import Device

# Operators whose bodies may have custom kernels; compiler/early.py refuses them in the bodies of others.
RUN_HERE = ("If", "Loop")


def body_operators(graph: Graph, node: Node, device: Device | None, seconds: float | None) -> list[Any]:
    """Returns the classes that onnx's reference evaluator needs for the bodies of ``node``.

    These are Loop, and one for each operator in the bodies that a custom kernel computes on ``device``.
    """
    if not node.has_subgraph:
        return []
    mapped = [
        (domain, op) for domain, op in node.inner if (row := registry.mapping_for(domain, op)) and row.custom
    ]
    if device is None:
        return [_loop()]
    return [_loop(), *(_operator(graph, domain, op_type, device, seconds) for domain, op_type in mapped)]


def _operator(graph: Graph, domain: str, op_type: str, device: Device, seconds: float | None) -> Any:
    from onnx.reference.op_run import OpRun

    from onedispatch.dispatch.frontend.importer import read_node

    class InBody(OpRun):
        op_domain = domain
        op_schema = None  # ONNX may have an operator of the same name

        def _load_attributes(self) -> None:
            self.has_linked_attribute, self.attributes_names_ = False, set()
            self.own = read_node(self.onnx_node, graph.opsets, graph.ir_version)

        def run(self, *arrays: Any, **_: Any) -> tuple[Any, ...]:
            # A body has names of its own: shapes and constants of the outer graph do not apply.
            inside = Graph("body", (), (), (), {}, {}, graph.opsets, graph.ir_version)
            assert isinstance(self.own, Node)
            given = [*arrays, *[None] * (len(self.own.inputs) - len(arrays))]
            return tuple(OwnKernel(inside, self.own, (), {}, device, seconds).compute(given))

        def _run(self, *arrays: Any, **_: Any) -> tuple[Any, ...]:
            return self.run(*arrays)

    InBody.__name__ = op_type
    return InBody


def _loop() -> Any:
    """Returns a class for Loop as ONNX defines it.

    The evaluator's own takes an absent condition for a false one, and concatenates scan outputs along an
    existing dimension in place of stacking them.
    """
    from onnx.reference.ops.op_loop import Loop as Base

    class Loop(Base):
        def _run(self, M: Any, cond: Any, *carried: Any, context: Any = None, **more: Any) -> tuple[Any, ...]:
            names, rounds = self.body.input_names, 0  # type: ignore[attr-defined]
            more.pop("body", None)
            values, given = list(carried), cond is None or bool(cond)
            scanned: list[list[Any]] = [[] for _ in range(self.K)]
            while given and (M is None or rounds < M.item()):
                inputs = dict(
                    zip(names, [np.asarray(rounds, np.int64), np.asarray(given), *values], strict=True)
                )
                results = self._run_body({**(context or {}), **inputs}, **more)  # type: ignore[attr-defined]
                given, values = bool(results[0]), list(results[1 : 1 + self.N])
                for collected, one in zip(scanned, results[1 + self.N :], strict=True):
                    collected.append(np.asarray(one))
                rounds += 1
            if rounds == 0 and self.K:
                raise RuntimeError("a Loop of no rounds has no shapes for what its rounds give")
            return (*values, *(np.stack(collected) for collected in scanned))

    return Loop
