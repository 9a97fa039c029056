# SPDX-License-Identifier: Apache-2.0
"""Cases of our rules for TensorFlow. Every operator that has a rule has one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.tensorflow.rule_case import Case, Fed, case, data, fed, flags, whole
from tests.tensorflow.rule_cases_windows import CASES as WINDOWS


def _unary() -> list[Case]:
    x, positive = fed(3, 5), Fed(np.abs(data(3, 5)) + np.float32(0.25))
    inside = Fed(np.tanh(data(3, 5)) * np.float32(0.9))
    names = "Abs Ceil Cos Cosh Elu Erf Erfc Exp Expm1 Floor Neg Reciprocal Inv Relu Relu6 Rint Round Selu"
    cases = [case(name, x) for name in names.split()]
    cases += [
        case(name, x) for name in "Sigmoid Sign Sin Sinh Softplus Softsign Square Tanh Asinh Atan".split()
    ]
    cases += [case(name, positive) for name in "Log Log1p Sqrt Rsqrt".split()]
    cases += [case(name, inside) for name in "Acos Asin Atanh Tan".split()]
    cases += [case("Acosh", Fed(np.abs(data(3, 5)) + np.float32(1.5))), case("LeakyRelu", x, alpha=0.3)]
    cases += [
        case(name, whole(3, 5), note="int32") for name in "Abs Neg Square Sign Round Relu Invert".split()
    ]
    odd = Fed(np.array([[0.0, np.inf, -np.inf], [np.nan, 1.0, -2.5]], np.float32))
    cases += [case(name, odd) for name in "IsFinite IsInf IsNan".split()]
    cases += [case(name, x) for name in "Softmax LogSoftmax ZerosLike OnesLike L2Loss".split()]
    cases += [case("ZerosLike", fed(2, 3, free=True), note="free"), case("LeakyRelu", x, note="default")]
    return [*cases, case("LogicalNot", flags(3, 4)), case("Bucketize", x, boundaries=[-1.0, 0.0, 0.5])]


def _binary() -> list[Case]:
    x, y, row = fed(3, 5), fed(3, 5, seed=1), data(5, seed=2)
    i, j = whole(3, 5), Fed(np.where(data(3, 5, seed=1) > 0, 3, -4).astype(np.int32))
    names = "Add AddV2 Sub Mul RealDiv Div Maximum Minimum SquaredDifference Atan2 FloorDiv FloorMod"
    cases = [case(name, x, y) for name in f"{names} Mod TruncateMod".split()]
    cases += [case(name, x, row, note="row") for name in "AddV2 Mul Sub RealDiv Maximum".split()]
    cases += [
        case(name, i, j, note="int32") for name in "Div FloorDiv FloorMod TruncateDiv Mod TruncateMod".split()
    ]
    cases += [
        case(name, i, j, note="int32") for name in "Add Mul Maximum BitwiseAnd BitwiseOr BitwiseXor".split()
    ]
    cases += [case("Pow", Fed(np.abs(data(3, 5))), y), case("Pow", x, np.float32(2), note="square")]
    some = Fed(np.where(data(3, 5, seed=3) > 0, data(3, 5), 0).astype(np.float32))
    cases += [case("DivNoNan", x, some), case("MulNoNan", x, some), case("Xdivy", some, y)]
    high = Fed(np.abs(data(3, 5)) + np.float32(0.5))
    cases += [case("Xlogy", some, high), case("Xlog1py", some, high)]
    axes = np.array([[0, 1, 0, -1, 0], [2, 0, -2, 0, 1]], np.float32)
    cases += [case("Atan2", Fed(axes), Fed(axes[::-1].copy()), note="axes")]
    near = Fed(np.round(data(3, 5)).astype(np.float32))
    comparisons = "Less LessEqual Greater GreaterEqual Equal NotEqual".split()
    cases += [case(name, near, Fed(np.round(data(3, 5, seed=1)))) for name in comparisons]
    cases += [case("Equal", i, j, note="int32"), case("ApproximateEqual", x, near, tolerance=0.2)]
    cases += [case(name, flags(3, 4), flags(3, 4, seed=1)) for name in ("LogicalAnd", "LogicalOr")]
    unsigned = whole(3, 4, dtype=np.uint32)
    return cases + [
        case(name, unsigned, whole(3, 4, seed=1, dtype=np.uint32)) for name in ("LeftShift", "RightShift")
    ]


def _several() -> list[Case]:
    x, y, z = fed(3, 5), fed(3, 5, seed=1), fed(3, 5, seed=2)
    return [
        case("AddN", [x]),
        case("AddN", [x, y, z], note="three"),
        case("AddN", [whole(4), whole(4, seed=1)], note="int32"),
        case("AccumulateNV2", [x, y], shape=(3, 5)),
        case("ClipByValue", x, np.float32(-0.5), np.float32(0.5)),
        case("ClipByValue", x, data(5) - 1, data(5) + 1, note="rows"),
        case("Select", flags(3, 5), x, y),
        case("Select", flags(3), x, y, note="vector"),
        case("Select", Fed(np.array(True)), x, y, note="scalar"),
        case("SelectV2", flags(5), x, np.float32(1)),
        case("Cast", x, DstT=np.int32),
        case("Cast", whole(3, 4), DstT=np.float32, note="to float"),
        case("Cast", whole(3, 4), DstT=bool, note="to bool"),
        case("FakeQuantWithMinMaxArgs", x, min=-1.3, max=2.1),
        case("FakeQuantWithMinMaxVars", x, np.float32(-1.1), np.float32(2), narrow_range=True),
        case(
            "FakeQuantWithMinMaxVarsPerChannel", x, -np.arange(1, 6) / 4.0, np.arange(1, 6) / 3.0, num_bits=4
        ),
    ]


def _products() -> list[Case]:
    sorted_ = np.array([0, 0, 1, 3, 3], np.int32)
    cases = [
        case("MatMul", fed(3, 4, free=True), data(4, 5)),
        case("MatMul", fed(4, 3), fed(5, 4), transpose_a=True, transpose_b=True, note="both"),
        case("MatMul", fed(3, 4), data(5, 4), transpose_b=True, note="constant"),
        case("BatchMatMul", fed(2, 3, 4), fed(2, 4, 5)),
        case("BatchMatMulV2", fed(2, 3, 4), fed(2, 1, 5, 4), adj_y=True),
        case("BatchMatMulV2", fed(2, 4, 3), data(4, 5), adj_x=True, note="constant"),
        case("BatchMatMulV3", fed(2, 3, 4), fed(4, 5), Tout=np.float32),
        case("Einsum", [fed(2, 3, 4), data(4, 2, 5)], equation="abc,cde->abde"),
        case("Einsum", [fed(2, 3, 3)], equation="aii->ai", note="diagonal"),
        case("TopK", fed(3, 7), k=3),
        case("TopKV2", fed(3, 7), 3),
        case("TopKV2", fed(2, 3, 7), 1, index_type=np.int64, note="int64"),
        case("Cumsum", fed(3, 5), 1),
        case("Cumsum", fed(3, 5), 0, exclusive=True, reverse=True, note="exclusive"),
        *(case(f"Segment{name}", fed(5, 3), sorted_) for name in "Max Mean Min Prod Sum".split()),
        case("SegmentMax", whole(5), Fed(sorted_), note="computed"),
        case("UnsortedSegmentSum", fed(5, 3), np.array([2, 0, -1, 3, 2], np.int32), 5),
    ]
    for name in "Max Mean Min Prod Sum EuclideanNorm".split():
        cases += [case(name, fed(2, 3, 4), [1, 2], keep_dims=True), case(name, fed(2, 3, 4), -1, note="last")]
    cases += [case("Sum", fed(2, 3), np.zeros(0, np.int32), note="no axes")]
    cases += [case("Sum", fed(2, 3), Fed(np.array([1], np.int32)), note="computed axes")]
    cases += [
        case("Mean", whole(2, 3, 4), [1], note="int32"),
        case("Mean", fed(2, 3, free=True), 0, note="free"),
    ]
    for name in ("All", "Any"):
        cases += [case(name, flags(3, 4), 1), case(name, flags(3, 4), [0], keep_dims=True, note="keep")]
    for name in ("ArgMax", "ArgMin"):
        cases += [case(name, fed(3, 4), 1), case(name, fed(3, 4), 0, output_type=np.int32, note="int32")]
    return cases


def _shapes() -> list[Case]:
    x = fed(2, 3, 4, free=True)
    return [
        case("Shape", x),
        case("Shape", fed(2, 3), out_type=np.int64, note="int64"),
        case("ShapeN", [x, fed(3, 1)]),
        case("Size", x),
        case("Rank", x),
        case("Reshape", x, [-1, 6]),
        case("Reshape", fed(2, 3), Fed(np.array([3, 2], np.int64)), note="computed"),
        case("EnsureShape", x, shape=(None, 3, 4)),
        case("ExpandDims", x, 1),
        case("ExpandDims", x, [-1], note="list"),
        case("Squeeze", fed(2, 1, 3, 1), squeeze_dims=[1, -1]),
        case("Squeeze", fed(2, 1, 3, 1), note="all"),
        case("BroadcastTo", fed(3, 1), [2, 3, 4]),
        case("BroadcastArgs", Fed(np.array([3, 1, 2], np.int32)), Fed(np.array([4, 1], np.int32))),
        case("Fill", [2, 3], np.float32(1.5)),
        case("Fill", Fed(np.array([2, 3], np.int32)), np.int32(7), note="computed"),
        case("Range", 1, Fed(np.array(9, np.int32)), 3),
        case("Range", np.float32(0), np.float32(2), Fed(np.array(0.5, np.float32)), note="floats"),
        case("Range", *(np.float16(i) for i in (0, 2, 0.5)), note="short"),
        case("LinSpace", Fed(np.array(1, np.float32)), np.float32(3), 5),
        case("OneHot", Fed(np.array([0, 3, -1, 7], np.int32)), 4, np.float32(2), np.float32(-1)),
        case(
            "OneHot",
            Fed(np.array([[0, 3], [2, 1]], np.int64)),
            4,
            np.float32(1),
            np.float32(0),
            axis=1,
            note="axis",
        ),
        case("MatrixBandPart", fed(2, 4, 5), np.int64(1), np.int64(2)),
        case("MatrixBandPart", fed(4, 5), np.int64(-1), np.int64(0), note="lower"),
        case("MatrixDiag", fed(2, 3)),
        case("MatrixDiagPart", fed(2, 3, 4)),
        case("MatrixDiagPart", fed(3, 3), note="square"),
        case("MatrixSetDiag", fed(2, 3, 3), fed(2, 3)),
        case("InvertPermutation", Fed(np.array([2, 0, 3, 1], np.int32))),
        case("InvertPermutation", np.array([2, 0, 3, 1], np.int32), note="constant"),
    ]


def _indices() -> list[Case]:
    x, at = fed(4, 5, 6), np.array([[3, 0], [1, 2]], np.int32)
    computed = Fed(np.array([1, 0, 2], np.int32))
    places = Fed(np.array([[2], [0], [3]], np.int32))
    rows = fed(3, 2)
    cases = [
        case("Slice", x, [1, 0, 2], [2, -1, 3]),
        case("Slice", x, [0, 0, 0], [-1, -1, -1], note="all"),
        case("Slice", x, computed, [2, -1, 3], note="computed"),
        case("StridedSlice", x, [1, 0, 5], [3, 4, 0], [1, 2, -2]),
        case("StridedSlice", x, [0, 1], [0, 0], [1, 1], begin_mask=1, end_mask=3, note="masks"),
        case(
            "StridedSlice",
            x,
            [0, 0, -1],
            [0, 0, 0],
            [1, 1, 1],
            ellipsis_mask=1,
            new_axis_mask=2,
            shrink_axis_mask=4,
            note="ellipsis",
        ),
        case(
            "StridedSlice",
            x,
            [1, 0, 2],
            [2, 0, 3],
            [1, 1, 1],
            new_axis_mask=2,
            shrink_axis_mask=5,
            note="new",
        ),
        case(
            "StridedSlice", x, computed, [3, 4, 5], [1, 1, 1], shrink_axis_mask=1, end_mask=4, note="computed"
        ),
        case(
            "StridedSlice", Fed(np.arange(5, dtype=np.int32)), [-1], [0], [1], shrink_axis_mask=1, note="last"
        ),
        case("Gather", x, at),
        case("GatherV2", x, Fed(at), -1),
        case("GatherV2", x, Fed(at.astype(np.int64)), 0, note="first"),
        case("GatherV2", fed(2, 5, 6), Fed(at), 1, batch_dims=1, note="batch"),
        case("GatherV2", fed(2, 3, 6, 2), Fed(at), 2, batch_dims=1, note="batch and axis"),
        case("GatherNd", x, Fed(np.array([[3, 0], [1, 2], [0, 4]], np.int32))),
        case("ScatterNd", Fed(np.array([[2], [0], [2]], np.int32)), rows, np.array([4, 2], np.int32)),
        case("TensorScatterUpdate", fed(4, 2), places, rows),
        case(
            "DynamicStitch",
            [np.array([2, 0], np.int32), np.array([[1, 3]], np.int32)],
            [fed(2, 3), fed(1, 2, 3, seed=1)],
        ),
        case("Where", flags(3, 4)),
        case("Unique", Fed(np.array([3.0, 1.0, 3.0, 2.0], np.float32))),
    ]
    for name in "Add Sub Max Min".split():
        cases.append(case(f"TensorScatter{name}", fed(4, 2), places, rows))
    return cases


def _movement() -> list[Case]:
    x, y = fed(2, 3, 4), fed(2, 3, 4, seed=1)
    image = fed(2, 4, 6, 8)
    paddings = np.array([[1, 0], [0, 2], [1, 1]], np.int32)
    return [
        case("Transpose", x, [2, 0, 1]),
        case("ConjugateTranspose", x, [1, 0, 2]),
        case("Tile", x, [2, 1, 3]),
        case("Concat", 1, [x, y]),
        case("ConcatV2", [x, y, data(2, 3, 1)], -1),
        case("Pack", [x, y], axis=-1),
        case("Pack", [fed(free=False)], note="scalar"),
        case("Unpack", x, num=3, axis=1),
        case("Unpack", x, num=4, axis=-1, note="last"),
        case("DynamicPartition", x, Fed(np.array([1, 0], np.int32)), num_partitions=2),
        case("Split", 2, x, num_split=2),
        case("Split", 2, x, num_split=1, note="one"),
        case("SplitV", x, [1, -1], 2, num_split=2),
        case("SplitV", x, np.array([2, 1], np.int64), 1, num_split=2, note="sizes"),
        case("SplitV", fed(4, 2, free=True), [1, -1], 0, num_split=2, note="free"),
        case("Pad", x, paddings),
        case("Pad", x, Fed(paddings), note="computed"),
        case("PadV2", x, paddings, np.float32(1.5)),
        case("MirrorPad", x, paddings, mode="REFLECT"),
        case("MirrorPad", x, paddings, mode="SYMMETRIC", note="symmetric"),
        case("Reverse", x, np.array([True, False, True])),
        case("ReverseV2", x, [1, -1]),
        case("ReverseSequence", x, np.array([1, 3], np.int64), seq_dim=1, batch_dim=0),
        case(
            "ReverseSequence", x, Fed(np.array([1, 3, 2, 0], np.int32)), seq_dim=1, batch_dim=2, note="moved"
        ),
        case("Roll", x, [1, -2], [0, 2]),
        case("Roll", x, 4, 1, note="scalar"),
        case("Roll", fed(5, 2, free=True), [-12], [0], note="free"),
        case("SpaceToDepth", image, block_size=2),
        case("SpaceToDepth", fed(2, 8, 4, 6), block_size=2, data_format="NCHW", note="first"),
        case("DepthToSpace", image, block_size=2),
        case("DepthToSpace", fed(2, 8, 4, 6), block_size=2, data_format="NCHW", note="first"),
        case("SpaceToBatch", image, [[0, 0], [1, 1]], block_size=2),
        case("BatchToSpace", fed(8, 2, 3, 2), [[0, 1], [1, 0]], block_size=2),
        case("SpaceToBatchND", image, [2, 3], [[1, 1], [0, 0]]),
        case("SpaceToBatchND", fed(2, 5, 3, free=True), [3], [[1, 0]], note="free"),
        case("BatchToSpaceND", fed(12, 2, 3, 2), [2, 3], [[1, 0], [0, 2]]),
        case("BatchToSpaceND", fed(6, 4, 2, free=True), [3], [[0, 1]], note="free"),
    ]


def _images() -> list[Case]:
    x, cases = fed(2, 4, 5, 3), []
    for name in ("ResizeBilinear", "ResizeNearestNeighbor"):
        cases += [
            case(name, x, [8, 10]),
            case(name, x, [7, 3], align_corners=True, note="corners"),
            case(name, x, [8, 15], half_pixel_centers=True, note="half pixels"),
            case(name, x, Fed(np.array([3, 9], np.int32)), note="computed"),
        ]
    cases.append(case("ResizeBilinear", Fed(data(1, 4, 4, 2, dtype=np.uint8)), [8, 8], note="uint8"))
    boxes = np.array([[0.1, 0.2, 0.8, 0.9], [0.5, -0.2, 1.2, 0.6], [0.9, 0.8, 0.1, 0.2]], np.float32)
    of = np.array([0, 1, 1], np.int32)
    cases += [
        case("CropAndResize", x, Fed(boxes), of, [3, 4], extrapolation_value=0.5),
        case("CropAndResize", x, boxes, Fed(of), [2, 1], method="nearest", note="nearest"),
    ]
    corners = np.abs(data(12, 2)) / 3
    rectangles = np.concatenate([corners, corners + 0.3 + np.abs(data(12, 2, seed=1)) / 5], 1).astype(
        np.float32
    )
    given = (Fed(rectangles), Fed(np.abs(data(12, seed=2))), 5)
    low, high = np.float32(0.3), np.float32(0.4)
    return [
        *cases,
        case("NonMaxSuppression", *given, iou_threshold=0.3),
        case("NonMaxSuppressionV2", *given, low),
        case("NonMaxSuppressionV3", *given, low, high),
        case("NonMaxSuppressionV4", *given, low, high),
        case("NonMaxSuppressionV4", *given[:2], 11, low, high, pad_to_max_output_size=True, note="padded"),
        case("NonMaxSuppressionV5", *given, low, high, np.float32(0)),
        case(
            "NonMaxSuppressionV5",
            *given[:2],
            11,
            low,
            high,
            np.float32(0),
            pad_to_max_output_size=True,
            note="padded",
        ),
    ]


def _book_keeping() -> list[Case]:
    x = fed(2, 3)
    cases = [case(name, x) for name in "Identity StopGradient Snapshot".split()]
    cases += [case(name, x, message="m") for name in "PreventGradient CheckNumerics CheckNumericsV2".split()]
    return [*cases, case("IdentityN", [x, whole(3)]), case("Print", x, [whole(2)], message="m")]


CASES: Sequence[Case] = [
    *_unary(),
    *_binary(),
    *_several(),
    *_products(),
    *WINDOWS,
    *_shapes(),
    *_indices(),
    *_movement(),
    *_images(),
    *_book_keeping(),
]
WITHOUT_RESULT = {"Assert", "NoOp"}
"""They have rules and no result: graphs of ``test_rules`` have them beside others."""
