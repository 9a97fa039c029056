# SPDX-License-Identifier: Apache-2.0
"""The cost of Python bodies that declare no work: NumPy operations counted, or an assumption reported."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper as h

import onedispatch as od
from onedispatch.operators.plugin import registrations
from onedispatch.transactions import find_device
from tests.plugins import node_model

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

X = np.ones((64, 256), np.float32)
DEVICE = find_device("npu2")


pytestmark = pytest.mark.usefixtures("no_plugins")


def report_of(body: Callable[[Any], None], **declared: Any) -> Any:
    """``last_run`` of a network whose one node runs ``body``."""
    methods = {"body": lambda self, t: body(t), "infer": lambda self, n: {"z": n["x"].like()}}
    od.maps("Op", domain="test")(
        od.kernel("test::op", inputs="x y", outputs="z", **declared)(type("Op", (), methods))
    )
    session = od.InferenceSession(node_model("Op", X.shape, "test", inputs="x y"), fallback="error")
    session.run(None, {"x": X, "y": X})
    return session.last_run


def repeated(times: int) -> Callable[[Any], None]:
    def body(t: Any) -> None:
        y = t.x
        for _ in range(times):
            y = y * np.float32(1.001) + t.y
        t.z[:] = y

    return body


def price(term: str) -> float:
    """Cycles that one element of float32 takes."""
    return DEVICE.constant(f"kernel.f32_{term}_cycles") / DEVICE.constant("kernel.f32_lanes")


def test_a_body_costs_what_its_operations_cost() -> None:
    few, many = report_of(repeated(10)), report_of(repeated(2010))
    assert few.ops[0].work_basis == many.ops[0].work_basis == "counted"
    each = X.size / (DEVICE.columns * DEVICE.core_rows)  # of a core
    assert many.cycles - few.cycles == pytest.approx(2000 * each * (price("mul") + price("op")), rel=0.01)


COUNTED: dict[str, tuple[Callable[[Any], Any], dict[str, float]]] = {
    "exp": (lambda t: np.exp(t.x) + t.y, {"exp": 1, "op": 1}),
    "where": (lambda t: np.where(t.x > 0, t.x, t.y), {"compare": 1, "op": 1}),
    "sum": (lambda t: t.x - t.x.sum(axis=-1, keepdims=True) + t.y, {"op": 3}),
    "in place": (lambda t: np.add(t.x, t.y, out=t.z), {"op": 1}),
    "square root": (lambda t: np.sqrt(t.x * t.y), {"mul": 1, "sqrt": 1}),
    "converted": (lambda t: (t.x.astype(np.float64) / t.y).astype(np.float32), {"op": 2, "div": 1}),
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_counted(name: str) -> None:
    compute, terms = COUNTED[name]

    def body(t: Any) -> None:
        t.z[:] = compute(t)

    device = catalog_work(body)
    # Elements of one row are 16 in the box that is counted: a sum adds an operation for each.
    assert device == pytest.approx(sum(n * price(term) for term, n in terms.items()) / price("op"))


def catalog_work(body: Callable[[Any], None]) -> float:
    """Operations per member, in those of float32, that an instance of ``body`` is charged."""
    report = report_of(body)
    assert report.ops[0].work_basis == "counted"
    (kernel,) = [one for one in registrations.kernels() if one.kernel.name == "test::op@1"]
    from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec
    from onedispatch.operators.plugin.node import Node

    tensors = [TensorSpec(name, X.dtype, X.shape) for name in "xyz"]
    spec = NodeSpec("n", "Op", "test", 1, tensors[:2], tensors[2:])
    return float(kernel.instantiate(Node(kernel.kernel, spec, DEVICE)).work["op"])  # type: ignore[union-attr]


def taken_out(t: Any) -> None:
    for at in np.ndindex(t.x.shape):
        t.z[at] = float(t.x[at]) + 1


def sorted_rows(t: Any) -> None:
    t.z[:] = np.sort(t.x, axis=-1)


def refuses_ones(t: Any) -> None:
    if isinstance(t.x, np.ndarray) and type(t.x) is not np.ndarray:
        raise ValueError("ones")
    t.z[:] = t.x


def never_ends_on_ones(t: Any) -> None:
    while type(t.x) is not np.ndarray:
        pass
    t.z[:] = t.x


@pytest.mark.parametrize("body", [taken_out, sorted_rows, refuses_ones, never_ends_on_ones])
def test_a_report_says_what_was_assumed(body: Callable[[Any], None]) -> None:
    report = report_of(body)
    assert report.ops[0].work_basis == "assumed"
    assert "test::op@1 (work assumed)" in str(report)


def test_declared_work_is_taken_as_it_is() -> None:
    report = report_of(repeated(100), work={"op": 3})
    assert report.ops[0].work_basis == "declared" and "assumed" not in str(report)


def test_a_saved_model_keeps_where_its_cost_comes_from() -> None:
    report_of(sorted_rows)
    x, y, z = (h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, X.shape) for name in "xyz")
    graph = h.make_graph([h.make_node("Op", ["x", "y"], ["z"], domain="test")], "g", [x, y], [z])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 20), h.make_opsetid("test", 1)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.od"
        od.compile(model, fallback="error").save(path)
        session = od.InferenceSession(od.load(path))
    session.run(None, {"x": X, "y": X})
    assert session.last_run is not None and session.last_run.ops[0].work_basis == "assumed"
