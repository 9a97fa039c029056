# SPDX-License-Identifier: Apache-2.0
"""The evaluator against the examples of TensorFlow's pages, NumPy, and what holds of any numbers."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onedispatch.dispatch.tensorflow.signatures import signature_of
from tests.tensorflow.evaluator import FUNCTIONS, evaluate, evaluate_all
from tests.tensorflow.graphdefs import GraphBuilder
from tests.tensorflow.networks import NETWORKS, operators_of

RNG = np.random.default_rng(7)


def run(op_type: str, *operands: Any, **attributes: Any) -> Any:
    """The outputs of one node, an array if it has one."""
    b = GraphBuilder()
    made = b.op(op_type, *operands, name="y", **attributes)
    names = [made] if isinstance(made, str) else list(made)
    found = evaluate(b.graphdef(), {}, names)
    signature = signature_of(op_type)
    given = {name: value for name, value in attributes.items() if value is not None}
    if signature is not None and not signature.output_ports[0].many:
        assert len(found) == signature.count(given)
    return found[0] if len(found) == 1 else found


def image(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


# From the pages of tf.raw_ops: operator, operands, attributes, result.
EXAMPLES: list[tuple[str, list[Any], dict[str, Any], Any]] = [
    ("TruncateDiv", [[-7, 7], [5, -5]], {}, [-1, -1]),
    ("Div", [[-7, 7], [5, 2]], {}, [-1, 3]),
    ("FloorDiv", [[-7, 7], [5, 2]], {}, [-2, 3]),
    ("FloorMod", [[-7, 7], [5, -5]], {}, [3, -3]),
    ("TruncateMod", [[-7, 7], [5, -5]], {}, [-2, 2]),
    ("Round", [[0.5, 1.5, 2.5, -0.5]], {}, [0, 2, 2, 0]),
    ("DivNoNan", [[1.0, 2.0], [0.0, 4.0]], {}, [0, 0.5]),
    ("Xlogy", [[0.0, 1.0], [0.0, 1.0]], {}, [0, 0]),
    ("SquaredDifference", [[3, 4], [1, 6]], {}, [4, 4]),
    ("LeakyRelu", [[-10.0, 5.0]], {}, [-2, 5]),
    ("Relu6", [[-1.0, 3.0, 8.0]], {}, [0, 3, 6]),
    ("ClipByValue", [[-1, 3, 8], 0, 6], {}, [0, 3, 6]),
    ("Cast", [[1.8, -2.2]], {"DstT": "int32"}, [1, -2]),
    ("Bucketize", [[[-5, 10000], [150, 10], [5, 100]]], {"boundaries": [0.0, 10.0, 100.0]},
     [[0, 3], [3, 2], [1, 3]]),
    ("Select", [[True, False], [[1, 2], [3, 4]], [[5, 6], [7, 8]]], {}, [[1, 2], [7, 8]]),
    ("SelectV2", [[True, False], [[1, 2], [3, 4]], [[5, 6], [7, 8]]], {}, [[1, 6], [3, 8]]),
    ("FakeQuantWithMinMaxArgs", [[-7.0, 0.0, 7.0]], {}, [-6.0235295, 0, 5.9764705]),
    ("Cumsum", [[1, 2, 3], 0], {}, [1, 3, 6]),
    ("Cumsum", [[1, 2, 3], 0], {"exclusive": True}, [0, 1, 3]),
    ("Cumsum", [[1, 2, 3], 0], {"reverse": True}, [6, 5, 3]),
    ("Cumsum", [[1, 2, 3], 0], {"exclusive": True, "reverse": True}, [5, 3, 0]),
    ("Cumprod", [[2, 3, 4], 0], {"exclusive": True, "reverse": True}, [12, 4, 1]),
    ("TopKV2", [[1, 4, 3, 4], 3], {}, ([4, 4, 3], [1, 3, 2])),
    ("ArgMax", [[[1, 26, 26], [166, 32, 62]], 1], {}, [1, 0]),
    ("Mean", [[[1, 2], [4, 6]], 1], {}, [1, 5]),
    ("Mean", [[[1.0, 2.0], [4.0, 6.0]], [-1]], {"keep_dims": True}, [[1.5], [5]]),
    ("L2Loss", [[1.0, 2.0]], {}, 2.5),
    ("SegmentSum", [[[1, 2, 3, 4], [4, 3, 2, 1], [5, 6, 7, 8]], [0, 0, 1]], {}, [[5, 5, 5, 5], [5, 6, 7, 8]]),
    ("InvertPermutation", [[3, 4, 0, 2, 1]], {}, [2, 4, 3, 0, 1]),
    ("SplitV", [[1, 2, 3, 4, 5], [2, -1], 0], {"num_split": 2}, ([1, 2], [3, 4, 5])),
    ("Slice", [[1, 2, 3, 4], [1], [-1]], {}, [2, 3, 4]),
    ("GatherV2", [[[1, 2], [3, 4]], [[1, 0], [0, 0]], 1], {"batch_dims": 1}, [[2, 1], [3, 3]]),
    ("GatherNd", [[[1, 2], [3, 4]], [[0, 1], [1, 0]]], {}, [2, 3]),
    ("GatherNd", [[[1, 2], [3, 4]], [[1], [0]]], {}, [[3, 4], [1, 2]]),
    ("ScatterNd", [[[4], [3], [1], [7]], [9, 10, 11, 12], [8]], {}, [0, 11, 0, 10, 9, 0, 0, 12]),
    ("TensorScatterUpdate", [[0, 0, 0], [[2], [0]], [5, 6]], {}, [6, 0, 5]),
    ("TensorScatterAdd", [[1, 1, 1], [[2], [2]], [5, 6]], {}, [1, 1, 12]),
    ("DynamicStitch", [[[0, 2], [1]], [[10, 30], [20]]], {}, [10, 20, 30]),
    ("DynamicPartition", [[10, 20, 30], [1, 0, 1]], {"num_partitions": 2}, ([20], [10, 30])),
    ("Unique", [[1, 1, 2, 4, 4, 4, 7, 8, 8]], {}, ([1, 2, 4, 7, 8], [0, 0, 1, 2, 2, 2, 3, 4, 4])),
    ("OneHot", [[0, 2, -1], 3, 5.0, 0.0], {}, [[5, 0, 0], [0, 0, 5], [0, 0, 0]]),
    ("OneHot", [[0, 2, -1], 3, 5.0, 0.0], {"axis": 0}, [[5, 0, 0], [0, 0, 0], [0, 5, 0]]),
    ("MirrorPad", [[[1, 2, 3], [4, 5, 6]], [[1, 1], [2, 2]]], {"mode": "SYMMETRIC"},
     [[2, 1, 1, 2, 3, 3, 2], [2, 1, 1, 2, 3, 3, 2], [5, 4, 4, 5, 6, 6, 5], [5, 4, 4, 5, 6, 6, 5]]),
    ("MirrorPad", [[1, 2, 3], [[2, 1]]], {"mode": "REFLECT"}, [3, 2, 1, 2, 3, 2]),
    ("PadV2", [[1, 2], [[1, 2]], 9], {}, [9, 1, 2, 9, 9]),
    ("Tile", [[1, 2], [2]], {}, [1, 2, 1, 2]),
    ("Roll", [[0, 1, 2, 3, 4], 2, 0], {}, [3, 4, 0, 1, 2]),
    ("ReverseSequence", [[[1, 2, 3], [4, 5, 6]], [2, 3]], {"seq_dim": 1}, [[2, 1, 3], [6, 5, 4]]),
    ("ReverseV2", [[[1, 2], [3, 4]], [-1]], {}, [[2, 1], [4, 3]]),
    ("MatrixBandPart", [[[0, 1, 2], [-1, 0, 1], [-2, -1, 0]], 1, -1], {},
     [[0, 1, 2], [-1, 0, 1], [0, -1, 0]]),
    ("MatrixDiag", [[1, 2]], {}, [[1, 0], [0, 2]]),
    ("MatrixDiagPart", [[[1, 2], [3, 4]]], {}, [1, 4]),
    ("MatrixSetDiag", [[[1, 2], [3, 4]], [5, 6]], {}, [[5, 2], [3, 6]]),
    ("Range", [3, 18, 3], {}, [3, 6, 9, 12, 15]),
    ("LinSpace", [10.0, 12.0, 3], {}, [10, 11, 12]),
    ("Fill", [[2, 3], 9], {}, [[9] * 3] * 2),
    ("Where", [[[True, False], [True, False]]], {}, [[0, 0], [1, 0]]),
    ("Unpack", [[[1, 2], [3, 4]]], {"num": 2, "axis": 1}, ([1, 3], [2, 4])),
    ("Split", [1, [[1, 2], [3, 4]]], {"num_split": 2}, ([[1], [3]], [[2], [4]])),
    ("BroadcastArgs", [[3, 1], [1, 4]], {}, [3, 4]),
    ("Bitcast", [[1.0]], {"type": "int32"}, [0x3F800000]),
    ("SpaceToBatchND", [[[[[1], [2]], [[3], [4]]]], [2, 2], [[0, 0], [0, 0]]], {},
     [[[[1]]], [[[2]]], [[[3]]], [[[4]]]]),
    ("SpaceToDepth", [[[[[1], [2]], [[3], [4]]]]], {"block_size": 2}, [[[[1, 2, 3, 4]]]]),
    ("DepthToSpace", [[[[[1, 2, 3, 4]]]]], {"block_size": 2}, [[[[1], [2]], [[3], [4]]]]),
    ("ResizeNearestNeighbor", [[[[[1], [2]]]], [1, 4]], {}, [[[[1], [1], [2], [2]]]]),
    ("ResizeBilinear", [[[[[1.0], [3.0]]]], [1, 4]], {}, [[[[1], [2], [3], [3]]]]),
    ("ResizeBilinear", [[[[[1.0], [3.0]]]], [1, 4]], {"half_pixel_centers": True},
     [[[[1], [1.5], [2.5], [3]]]]),
    ("ResizeBilinear", [[[[[1.0], [4.0]]]], [1, 4]], {"align_corners": True}, [[[[1], [2], [3], [4]]]]),
    ("MatMul", [[[1.0, 2.0]], [[3.0, 4.0]]], {"transpose_b": True}, [[11]]),
    ("Erf", [[0.0, 1.0]], {}, [0, 0.84270079]),
    ("Softmax", [[0.0, 0.0]], {}, [0.5, 0.5]),
    ("BiasAdd", [[[1.0, 2.0], [3.0, 4.0]], [10.0, 20.0]], {}, [[11, 22], [13, 24]]),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(EXAMPLES)), ids=lambda i: f"{EXAMPLES[i][0]}-{i}")
def test_examples(index: int) -> None:
    op_type, operands, attributes, wanted = EXAMPLES[index]
    lists = op_type == "DynamicStitch"  # its operands are lists of tensors of several lengths
    b = GraphBuilder()
    given = [[b.const(f"{i}{j}", np.array(v, np.int32)) for j, v in enumerate(one)] for i, one in
             enumerate(operands)] if lists else operands  # fmt: skip
    made = b.op(op_type, *given, name="y", **attributes)
    found = evaluate(b.graphdef(), {}, [made] if isinstance(made, str) else list(made))
    for one, right in zip(found, wanted if isinstance(wanted, tuple) else [wanted], strict=True):
        assert one.shape == np.shape(right)
        np.testing.assert_allclose(one, right, rtol=1e-6)


def test_nothing_of_the_evaluator_imports_what_it_checks() -> None:
    folder = Path(__file__).parent
    for path in [folder / "evaluator.py", *(folder / "kernels").glob("*.py")]:
        tree = ast.parse(path.read_text())
        names = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        names += [alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names]
        tops = {name.partition(".")[0] for name in names}
        assert tops.isdisjoint({"onedispatch", "onnx", "onnxruntime"}), path
        assert all(name.startswith("tests.tensorflow.kernels") for name in names if name.startswith("tests"))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_numbers(name: str) -> None:
    graphdef, outputs, feed = NETWORKS[name]()
    assert set(operators_of(graphdef)) <= {*FUNCTIONS, "Const", "Placeholder"}
    found, everything = evaluate(graphdef, feed, outputs), evaluate_all(graphdef, feed)
    for tensor, one in zip(outputs, found, strict=True):
        np.testing.assert_array_equal(one, everything[tensor])
        assert one.dtype == np.float32 and np.isfinite(one).all() and one.std() > 1e-3
    again, _, _ = NETWORKS[name]()
    assert again == graphdef


def test_what_the_evaluator_refuses() -> None:
    b = GraphBuilder()
    x = b.placeholder("x", "float32", [2])
    b.op("NoSuch", x, name="y")
    b.op("Relu", "b", name="a")
    b.op("Relu", "a", name="b")
    with pytest.raises(KeyError, match="placeholder x"):
        evaluate(b.graphdef(), {}, ["y"])
    with pytest.raises(NotImplementedError, match="NoSuch of node y"):
        evaluate(b.graphdef(), {"x": [1, 2]}, ["y"])
    with pytest.raises(ValueError, match="needs itself"):
        evaluate(b.graphdef(), {}, ["b"])
    np.testing.assert_array_equal(evaluate(b.graphdef(), {"a": [3.0]}, ["b"])[0], [3.0])  # fed inside


# -- slices --------------------------------------------------------------------------------------


def test_strided_slices_with_masks() -> None:
    x = np.arange(120).reshape(2, 3, 4, 5)

    def cut(begin: Any, end: Any, strides: Any, **masks: int) -> Any:
        return run("StridedSlice", x, begin, end, strides, **masks)

    np.testing.assert_array_equal(cut([0, 1], [1, 3], [1, 1]), x[0:1, 1:3])
    np.testing.assert_array_equal(cut([1, 0], [9, 2], [1, 1], shrink_axis_mask=1), x[1, 0:2])
    np.testing.assert_array_equal(cut([-1], [0], [1], shrink_axis_mask=1), x[-1])
    np.testing.assert_array_equal(cut([7, 7], [7, 7], [1, 2], begin_mask=3, end_mask=3), x[:, ::2])
    np.testing.assert_array_equal(cut([0, 3], [0, 0], [1, -1], ellipsis_mask=1), x[..., 3:0:-1])
    np.testing.assert_array_equal(
        cut([0, 0, 1], [0, 0, 2], [1, 1, 1], ellipsis_mask=1, new_axis_mask=2), x[..., None, 1:2]
    )
    np.testing.assert_array_equal(cut([5, 0], [-9, 0], [-2, 1], end_mask=2), x[5:-9:-2, 0:])


def test_splits_of_space_come_back() -> None:
    x = image(2, 6, 8, 3)
    pads = [[1, 1], [0, 4]]
    batch = run("SpaceToBatchND", x, [2, 3], pads)
    assert batch.shape == (12, 4, 4, 3)
    np.testing.assert_array_equal(run("BatchToSpaceND", batch, [2, 3], pads), x)
    for form, given in (("NHWC", x), ("NCHW", np.moveaxis(x, -1, 1))):
        deep = run("SpaceToDepth", given, block_size=2, data_format=form)
        np.testing.assert_array_equal(run("DepthToSpace", deep, block_size=2, data_format=form), given)


# -- images and boxes ----------------------------------------------------------------------------


def test_crops() -> None:
    x = image(2, 5, 6, 3)
    boxes = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [0.25, 0.2, 0.75, 0.8]], np.float32)
    which = np.array([1, 0, 1], np.int32)
    whole = run("CropAndResize", x, boxes[:2], which[:2], [5, 6])
    np.testing.assert_allclose(whole[0], x[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole[1], x[0, ::-1, ::-1], rtol=1e-5, atol=1e-6)
    part = run("CropAndResize", x, boxes[2:], which[2:], [3, 4])
    np.testing.assert_allclose(part[0], x[1, 1:4, 1:5], rtol=1e-4, atol=1e-5)
    outside = run("CropAndResize", x, boxes[:1] + 2, which[:1], [2, 2], extrapolation_value=7.0)
    assert (outside == 7).all()
    middle = run("CropAndResize", x, boxes[:1], which[:1], [1, 1], method="nearest")
    assert middle[0, 0, 0].tolist() in x[1, 2].tolist()


BOXES = np.array(
    [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [1, 1.1, 0, 0.1], [0, 10, 1, 11], [0, 10.1, 1, 11.1]], np.float32
)
SCORES = np.array([0.9, 0.75, 0.6, 0.95, 0.5], np.float32)


def test_suppression_of_boxes() -> None:
    assert run("NonMaxSuppression", BOXES, SCORES, 3, iou_threshold=0.5).tolist() == [3, 0]
    assert run("NonMaxSuppressionV2", BOXES, SCORES, 1, 0.5).tolist() == [3]
    assert run("NonMaxSuppressionV3", BOXES, SCORES, 5, 0.9, 0.7).tolist() == [3, 0, 1]
    chosen, count = run("NonMaxSuppressionV4", BOXES, SCORES, 4, 0.5, 0.0, pad_to_max_output_size=True)
    assert chosen.tolist() == [3, 0, 0, 0] and count == 2
    chosen, kept, count = run("NonMaxSuppressionV5", BOXES, SCORES, 5, 0.5, 0.0, 0.0)
    assert chosen.tolist() == [3, 0] and count == 2
    np.testing.assert_allclose(kept, [0.95, 0.9])
    chosen, kept, _ = run("NonMaxSuppressionV5", BOXES, SCORES, 5, 1.0, 0.0, 0.5)
    share = 0.9 / 1.1
    assert chosen[:2].tolist() == [3, 0] and len(chosen) == 5
    np.testing.assert_allclose(kept[2], 0.75 * np.exp(-(share**2)), rtol=1e-5)
