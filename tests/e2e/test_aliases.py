# SPDX-License-Identifier: Apache-2.0
"""Parts of tensors that lie together in device memory are read where they are: no operator copies them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from tests.ops.case import run_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
X = np.linspace(-3, 3, 4 * 6 * 5, dtype=np.float32).reshape(4, 6, 5)


class Builder:
    """Nodes that are added one by one; an operand that is a list is a constant."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, op_type: str, *reads: str | list[int], outputs: int = 1, **attributes: Any) -> list[str]:
        names = []
        for read in reads:
            if not isinstance(read, str):
                tensor = numpy_helper.from_array(np.array(read, np.int64), f"c{len(self.constants)}")
                self.constants.append(tensor)
                read = tensor.name
            names.append(read)
        made = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, names, made, f"n{len(self.nodes)}", **attributes))
        return made

    def model(self, outputs: list[str], dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
        ends = [helper.make_tensor_value_info("x", dtype, list(X.shape))]
        made = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", ends, made, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def operators(model: onnx.ModelProto, x: Array = X, fallback: str = "error") -> list[str]:
    """Kinds of the operators that ran; the answers are onnxruntime's, twice."""
    session = od.InferenceSession(model, fallback=fallback)
    for feed in ({"x": x}, {"x": x[::-1].copy()}):
        for mine, theirs in zip(session.run(None, feed), run_onnxruntime(model, feed), strict=True):
            assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    report = session.last_run
    assert report is not None
    return [op.op_type for op in report.ops]


def test_a_split_of_what_lies_together_costs_nothing() -> None:
    b = Builder()
    (y,) = b.add("Relu", "x")
    parts = b.add("Split", y, [1, 2, 1], outputs=3, axis=0)
    (one,) = b.add("Add", parts[0], parts[1])
    (two,) = b.add("Mul", parts[1], parts[2])
    assert operators(b.model([one, two])) == ["eltwise"] * 3


def test_parts_of_parts_and_their_reshapes() -> None:
    b = Builder()
    (inner,) = b.add("Slice", "x", [1], [3], [0])
    (row,) = b.add("Slice", inner, [1], [2], [0])
    (flat,) = b.add("Reshape", row, [3, -1])
    (rest,) = b.add("Slice", flat, [1], [3], [0])
    (y,) = b.add("Neg", rest)
    assert operators(b.model([y])) == ["eltwise"]


def test_a_part_that_leaves_is_copied_and_so_is_one_that_is_read_too() -> None:
    b = Builder()
    (y,) = b.add("Relu", "x")
    first, second = b.add("Split", y, outputs=2, axis=0, num_outputs=2)
    (z,) = b.add("Neg", second)
    assert sorted(operators(b.model([first, z, y, second]))) == ["eltwise", "eltwise", "move", "move"]


def test_what_lies_apart_is_moved() -> None:
    b = Builder()
    first, second = b.add("Split", "x", outputs=2, axis=1, num_outputs=2)
    (y,) = b.add("Add", first, second)
    assert operators(b.model([y])) == ["move", "move", "eltwise"]


def test_rows_of_bytes_begin_where_words_do() -> None:
    b = Builder()
    first, second = b.add("Split", "x", [1, 3], outputs=2, axis=0)
    (y,) = b.add("Concat", second, first, axis=0)
    (inside,) = b.add("Slice", "x", [1], [5], [2])
    x = (X * 20).astype(np.int8)
    assert operators(b.model([y, inside], TensorProto.INT8), x)[:1] == ["move"]


def test_a_part_that_the_host_reads() -> None:
    b = Builder()
    (y,) = b.add("Relu", "x")
    first, _ = b.add("Split", y, outputs=2, axis=0, num_outputs=2)
    (z,) = b.add("NonZero", first)
    (w,) = b.add("Neg", first)
    operators(b.model([z, w]), fallback="cpu")


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_random_parts(data: st.DataObject) -> None:
    """Parts of parts, read and handed on in any way."""
    b, known = Builder(), {"x": list(X.shape)}
    for _ in range(data.draw(st.integers(1, 5))):
        name = data.draw(st.sampled_from(sorted(known)))
        shape = known[name]
        axis = data.draw(st.integers(0, 2))
        start = data.draw(st.integers(0, shape[axis] - 1))
        end = data.draw(st.integers(start + 1, shape[axis]))
        match data.draw(st.sampled_from(["slice", "slice", "split", "neg"])):
            case "slice":
                (made,) = b.add("Slice", name, [start], [end], [axis])
                known[made] = [*shape[:axis], end - start, *shape[axis + 1 :]]
            case "split" if start:
                one, two = b.add("Split", name, [start, shape[axis] - start], outputs=2, axis=axis)
                known[one] = [*shape[:axis], start, *shape[axis + 1 :]]
                known[two] = [*shape[:axis], shape[axis] - start, *shape[axis + 1 :]]
            case _:
                (made,) = b.add("Neg", name)
                known[made] = shape
    made = sorted(known.keys() - {"x"})
    wanted = data.draw(st.lists(st.sampled_from(made), min_size=1, max_size=4, unique=True))
    operators(b.model(wanted))
