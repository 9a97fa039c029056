# SPDX-License-Identifier: Apache-2.0
"""Models of the tests of custom kernels: nodes of other domains than ONNX's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, helper

OPSET = 17  # of ONNX's own operators in these models


def value(name: str, shape: Sequence[int | str] | None, kind: Any = np.float32) -> ValueInfoProto:
    """``kind``: a NumPy type, or one of ``TensorProto``."""
    code = kind if isinstance(kind, int) else helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return helper.make_tensor_value_info(name, code, shape)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    imports: Iterable[tuple[str, int]] | None = None,
    **more: Any,
) -> ModelProto:
    """Imports the first operator set of every domain that nodes have, those of inner graphs included."""
    graph = helper.make_graph(nodes, "g", inputs, outputs, **more)
    if imports is None:
        imports = [("", OPSET), *((domain, 1) for domain in sorted(_domains(nodes) - {""}))]
    opsets = [helper.make_opsetid(*one) for one in imports]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _domains(nodes: Iterable[NodeProto]) -> set[str]:
    found = {node.domain for node in nodes}
    return found.union(*(_domains(part.g.node) for node in nodes for part in node.attribute))


def node_model(
    op_type: str,
    shape: Sequence[int | str],
    domain: str = "acme",
    *,
    inputs: str = "x",
    outputs: str = "z",
    kind: Any = np.float32,
    name: str = "n0",
    **attributes: Any,
) -> ModelProto:
    """One node; its inputs and outputs have one shape and element type."""
    node = helper.make_node(op_type, inputs.split(), outputs.split(), name, domain=domain, **attributes)
    ends = [[value(one, shape, kind) for one in names.split()] for names in (inputs, outputs)]
    return model([node], *ends)
