# SPDX-License-Identifier: Apache-2.0
"""Shape operands of operators that move data, given at run time: the program is compiled for their values.

What they feed as data is computed by the device, and what is wrong with them names node and operand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onedispatch as od
from tests.ops.case import run_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
X = np.arange(60, dtype=np.float32).reshape(5, 12) + 1
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32}


def model(op_type: str, feed: dict[str, Array], outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    """Node "n", whose operands are all given at run time."""
    names = [f"y{i}" for i in range(outputs)]
    nodes = [helper.make_node(op_type, list(feed), names, "n", **attributes)]
    ends = [
        helper.make_tensor_value_info(name, TYPES[str(array.dtype)], array.shape)
        for name, array in feed.items()
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph(nodes, "g", ends, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def ints(*given: int) -> Array:
    return np.array(given, np.int64)


GIVEN: list[tuple[str, list[dict[str, Array]], dict[str, Any]]] = [
    ("Slice", [
        {"x": X, "starts": ints(1), "ends": ints(4), "axes": ints(0), "steps": ints(1)},
        {"x": X, "starts": ints(-1), "ends": ints(-99), "axes": ints(1), "steps": ints(-3)},
        {"x": X, "starts": ints(99), "ends": ints(100), "axes": ints(1), "steps": ints(1)},
    ], {}),
    ("Split", [{"x": X, "split": ints(2, 10)}, {"x": X, "split": ints(11, 1)}], {"axis": 1, "outputs": 2}),
    ("Pad", [
        {"x": X, "pads": ints(1, 2), "v": np.float32(3), "axes": ints(0)},
        {"x": X, "pads": ints(3, -2), "v": np.float32(-4), "axes": ints(-1)},
        {"x": X, "pads": ints(3, -2), "v": np.float32(5), "axes": ints(-1)},
    ], {}),
    ("Tile", [{"x": X, "repeats": ints(1, 3)}, {"x": X, "repeats": ints(2, 1)}], {}),
    ("Trilu", [{"x": X, "k": np.int64(1)}, {"x": X, "k": np.int64(-2)}], {"upper": 0}),
    ("ConstantOfShape", [{"shape": ints(3, 5)}, {"shape": ints(5, 3)}], {}),
    ("Range", [
        {name: np.array(n, np.int32) for name, n in zip(("start", "limit", "delta"), row, strict=True)}
        for row in [(1, 7, 2), (9, 0, -4), (2, 8, 2)]
    ], {}),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "feeds", "options"), GIVEN, ids=[row[0] for row in GIVEN])
def test_the_program_is_made_for_operands_that_steer(
    op_type: str, feeds: list[dict[str, Array]], options: dict[str, Any]
) -> None:
    proto = model(op_type, {name: np.asarray(array) for name, array in feeds[0].items()}, **options)
    session = od.InferenceSession(proto, fallback="error")
    for feed in [*feeds, feeds[0]]:
        arrays = {name: np.asarray(array) for name, array in feed.items()}
        for mine, theirs in zip(session.run(None, arrays), run_onnxruntime(proto, arrays), strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)
        assert {row.device for row in session.placement} == {"npu"}
    data = ("x", "v", "k")  # no shape follows from the diagonal of Trilu
    decided = [{name: a for name, a in feed.items() if name not in data} for feed in feeds]
    assert len(session.model.executables) == len({str(one) for one in decided})


def test_what_a_range_counts_from_is_read_by_the_device() -> None:
    """Its length is compiled in, its numbers are computed from operands of the transaction."""
    feed = {name: np.array(n, np.int32) for name, n in (("start", 1), ("limit", 7), ("delta", 2))}
    session = od.InferenceSession(model("Range", feed), fallback="error")
    session.run(None, feed)
    (executable,) = session.model.executables.values()
    (step,) = executable.device_steps
    assert {slot.name for slot in step.inputs} == {"start", "delta"}


def test_an_operand_that_steers_is_data_elsewhere() -> None:
    proto = model("Slice", {"x": X, "starts": ints(1), "ends": ints(4)})
    proto.graph.node.append(helper.make_node("Concat", ["starts", "ends"], ["both"], "twice", axis=0))
    proto.graph.output.append(helper.make_empty_tensor_value_info("both"))
    session = od.InferenceSession(proto, fallback="error")
    for bounds in ((1, 4), (2, 3)):
        feed = {"x": X, "starts": ints(bounds[0]), "ends": ints(bounds[1])}
        y, both = session.run(None, feed)
        np.testing.assert_array_equal(y, X[slice(*bounds)])
        np.testing.assert_array_equal(both, bounds)
        step = list(session.model.executables.values())[-1].device_steps[0]
        assert {"starts", "ends"} <= {slot.name for slot in step.inputs}


WRONG: list[tuple[str, dict[str, Array], dict[str, Any], str]] = [
    (
        "Slice",
        {"x": X, "starts": ints(0), "ends": ints(4), "axes": ints(2)},
        {},
        "n.*axes.*|Node name: n|name: n",
    ),
    ("Slice", {"x": X, "starts": ints(0), "ends": ints(4), "axes": ints(1), "steps": ints(0)}, {}, "steps"),
    ("Split", {"x": X, "split": ints(2, 11)}, {"axis": 1, "outputs": 2}, "split"),
    ("Pad", {"x": X, "pads": ints(0, -13, 0, 0)}, {}, "pads"),
    ("Pad", {"x": X, "pads": ints(0, 1, 0)}, {}, "pads"),
    ("Tile", {"x": X, "repeats": ints(1, -1)}, {}, "repeats"),
    ("ConstantOfShape", {"shape": ints(3, -1)}, {}, "shape"),
    ("ConstantOfShape", {"shape": ints(1 << 40, 1 << 40)}, {}, "n \\(ConstantOfShape\\)"),
    ("Range", {n: np.array(v, np.int32) for n, v in (("a", 1), ("b", 5), ("c", 0))}, {}, "'c'"),
]


@pytest.mark.parametrize("fallback", ["cpu", "error"])
@pytest.mark.parametrize(
    ("op_type", "feed", "options", "said"), WRONG, ids=[f"{i}-{row[0]}" for i, row in enumerate(WRONG)]
)
def test_values_out_of_range_name_node_and_operand(
    op_type: str, feed: dict[str, Array], options: dict[str, Any], said: str, fallback: str
) -> None:
    session = od.InferenceSession(model(op_type, feed, **options), fallback=fallback)
    with pytest.raises((od.ModelError, od.InputError), match=said) as caught:
        session.run(None, feed)
    assert "n (" in str(caught.value)
