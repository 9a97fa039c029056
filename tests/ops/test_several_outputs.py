# SPDX-License-Identifier: Apache-2.0
"""An operator with several outputs on the dispatcher's road: mapped, planned, fused, run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onedispatch as od
from onedispatch.operators.declarations import registry
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec
from onedispatch.operators.interface.operator import Lowering, Operator
from onedispatch.operators.kernels.elementwise import KERNEL
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

SIZES = (24, 40, 16)


class Pieces(Operator):
    """A vector cut into pieces: one operator, an output for each."""

    def __init__(self, source: TensorSpec, outputs: Sequence[TensorSpec], device: Device) -> None:
        first, *further = outputs
        super().__init__("pieces", [source], first, device, further_outputs=further)

    def nests(self) -> list[Nest]:
        found, at = [], 0
        for i, tensor in enumerate(self.outputs):
            (size,) = tensor.shape
            x = Operand("x0", 0, F32, (size,), (1,), (Access(0),), at)
            out = Operand("out", OUTPUT - i, F32, (size,), (1,), (Access(0),))
            found.append(Nest(KERNEL, (Dim("i", size),), (x,), (out,), scalars={"func": "copy"}))
            at += size
        return found


def split(node: NodeSpec, lowering: Lowering) -> None:
    source, outputs = node.input(0), [tensor for tensor in node.outputs if tensor is not None]
    assert source is not None
    lowering.emit(Pieces(source, outputs, lowering.device))


@pytest.mark.parametrize("kept", [("a", "s"), ("a", "b", "c", "s")], ids=["some", "all"])
def test_one_operator_makes_all_outputs_of_its_node(
    kept: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mapping = registry.OpMapping("", "Split", ("float32",), "", split)
    monkeypatch.setitem(registry._MAPPINGS, ("", "Split"), mapping)
    registry._load_all()
    sizes = helper.make_tensor("sizes", TensorProto.INT64, [3], SIZES)
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["a", "b", "c"]),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("Concat", ["c", "r"], ["s"], axis=0),
    ]
    shapes = {"a": 24, "b": 40, "c": 16, "s": 56}
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [shapes[name]]) for name in kept]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [80])
    graph = helper.make_graph(nodes, "g", [given], made, [sizes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = od.InferenceSession(model, fallback="error")
    x = np.random.default_rng(3).standard_normal(80).astype(np.float32)
    pieces: dict[str, Any] = dict(zip("abc", np.split(x, [24, 64]), strict=True))
    pieces["s"] = np.concatenate([pieces["c"], np.maximum(pieces["b"], 0)])
    for name, value in zip(kept, session.run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(value, pieces[name])
    assert {placement.device for placement in session.placement} == {"npu"}
