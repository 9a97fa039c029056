# SPDX-License-Identifier: Apache-2.0
"""What is said of mistakes in plug-ins: which node, which kernel, and what its author can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onedispatch as od
from onedispatch.operators.families.elementwise import Eltwise
from onedispatch.operators.interface.operator import Lowering, NodeSpec
from onedispatch.operators.plugin import catalog

DOMAIN = "mistaken"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    for row in [one for one in catalog.registry.all_mappings() if one.domain == DOMAIN]:
        catalog.withdraw_mapping(row.domain, row.op_type)
    for kernel in [one for one in catalog.kernels() if one.kernel.name.startswith(f"{DOMAIN}::")]:
        catalog.withdraw_kernel(kernel.kernel.name)


def model(op_type: str, dtype: Any = np.float32, **attributes: Any) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x, y = (helper.make_tensor_value_info(name, kind, [4, 8]) for name in "xy")
    node = helper.make_node(op_type, ["x"], ["t"], "n", domain=DOMAIN, **attributes)
    graph = helper.make_graph([node, helper.make_node("Identity", ["t"], ["y"], "end")], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


X = np.ones((4, 8), np.float32)


class Like:
    def infer(self, n: Any) -> Any:
        return {"z": n["x"].like()}


def test_a_body_that_raises_is_for_its_author_to_correct() -> None:
    @od.maps("Raises", domain=DOMAIN)
    @od.kernel(f"{DOMAIN}::raises", inputs="x", outputs="z")
    class Raises(Like):
        def body(self, t: Any) -> None:
            raise KeyError("no such row")

    with pytest.raises(od.KernelError) as caught:
        od.InferenceSession(model("Raises"), fallback="error").run(None, {"x": X})
    text = str(caught.value)
    assert "node 'n" in text and "no such row" in text and "overlay" not in text
    assert "Correct it in test_plugin_errors.py: `onedispatch kernel check`" in text


@pytest.mark.parametrize("fallback", ["cpu", "error"])
def test_an_attribute_that_the_kernel_does_not_know(fallback: str) -> None:
    @od.maps("Scales", domain=DOMAIN)
    @od.kernel(f"{DOMAIN}::scales", inputs="x", outputs="z", scalars={"alpha": ("f32", 1.0)})
    class Scales(Like):
        def verify(self, n: Any) -> bool:
            return n.attr("mode", "plain") == "plain"

        def body(self, t: Any) -> None:
            t.z[:] = t.alpha * t.x

    (z,) = od.InferenceSession(model("Scales", alpha=2.0, mode="plain"), fallback=fallback).run(
        None, {"x": X}
    )
    assert (z == 2).all()
    with pytest.raises(od.KernelError, match=r"'alhpa': given 2.0; accepted: alpha, mode: .*mean 'alpha'\?"):
        od.InferenceSession(model("Scales", alhpa=2.0), fallback=fallback)


@pytest.mark.parametrize("fallback", ["cpu", "error"])
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_what_neither_device_nor_host_takes_is_unsupported(fallback: str, dtype: Any) -> None:
    """A mapping function knows the operator alone: the reason why it refuses a node is the reason given."""

    @od.maps("Squares", domain=DOMAIN, like=0)
    def squares(node: NodeSpec, lowering: Lowering) -> None:
        (x,), (y,) = node.inputs, node.outputs
        assert x is not None and y is not None
        lowering.emit(Eltwise(node.name, "mul", [x, x], y, lowering.device))

    with pytest.raises(od.UnsupportedModelError) as caught:
        od.InferenceSession(model("Squares", dtype), fallback=fallback)
    (line,) = [one for one in caught.value.nodes if one.startswith("n (Squares)")]
    assert np.dtype(dtype).name in line and "nearest: float32" in line
    if fallback == "cpu":
        assert "no host engine has mistaken.Squares" in line


def test_a_mapping_function_of_onnx_sends_other_types_to_the_host() -> None:
    @od.maps("Cos", override=True)
    def cos(node: NodeSpec, lowering: Lowering) -> None:
        (x,), (y,) = node.inputs, node.outputs
        assert x is not None and y is not None
        lowering.emit(Eltwise(node.name, "copy", [x], y, lowering.device))

    try:
        proto = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (double[4, 8] x) => (double[4, 8] y) { y = Cos(x) }'
        )
        session = od.InferenceSession(proto)
        (y,) = session.run(None, {"x": X.astype(np.float64)})
        np.testing.assert_allclose(y, np.cos(X.astype(np.float64)))
        (row,) = session.placement
        assert row.device == "cpu" and "float64" in row.reason
    finally:
        catalog.withdraw_mapping("", "Cos")
