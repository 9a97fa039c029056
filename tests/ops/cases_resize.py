# SPDX-License-Identifier: Apache-2.0
"""Cases of Resize and Upsample: modes, coordinate transformations, scales and sizes, axes, element types."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from tests.ops.case import Case, Input, Tolerance, case, f32, value
from tests.ops.strategies import DEVICES

# Two roundings per axis and tap; onnxruntime goes along both axes at once.
NEAR = Tolerance(scale=2e-6)
HALF = Tolerance(scale=2e-3)  # onnxruntime rounds weights, too
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
CORNERS = {"coordinate_transformation_mode": "align_corners"}


def resized(x: Input, *, scales: Any = None, sizes: Any = None, roi: Any = None, **attributes: Any) -> Case:
    """Of opset 11 or later. Nearest ones are equal, others near."""
    operands = [x, None if roi is None else value(roi)]
    operands += [value(scales)] if scales is not None else [None, value(sizes, "int64")]
    exact = attributes.get("mode", "nearest") == "nearest"
    return case("Resize", *operands, tolerance=None if exact else NEAR, **attributes)


def by_reference(one: Case) -> Case:
    """For what onnxruntime has no kernel for: onnx's own evaluator."""
    (answer,) = ReferenceEvaluator(one.model).run(None, one.feed)
    return replace(one, answer=answer)


def nearest() -> list[Case]:
    x = f32(1, 2, 5, 7)
    cases = [
        resized(x, scales=[1, 1, 2, 3], nearest_mode=mode, coordinate_transformation_mode=at)
        for mode, at in [
            ("floor", "asymmetric"),
            ("ceil", "half_pixel"),
            ("round_prefer_floor", "align_corners"),
            ("round_prefer_ceil", "half_pixel"),
        ]
    ]
    return [
        *cases,
        resized(x, sizes=[1, 2, 3, 11], nearest_mode="round_prefer_ceil"),
        resized(f32(2, 64, 13, 17), scales=[1, 1, 2, 2], nearest_mode="floor"),
        resized(Input((2, 3, 5, 7), "uint8"), scales=[1, 1, 2, 2]),
        resized(Input((2, 3, 5, 7), "int8"), scales=[1, 1, 1.7, 0.6]),
        resized(Input((3, 1), "uint8"), sizes=[3, 9]),
        by_reference(resized(Input((2, 3, 5), "float16"), sizes=[2, 5, 7])),
        by_reference(resized(Input((2, 5, 3), "int64"), sizes=[2, 9, 3])),
        resized(f32(2, 2, 3, 2, 2, 3), scales=[2, 1, 2, 2, 1, 2]),
        resized(f32(1, 1, 9, 9, kind="special"), scales=[1, 1, 0.5, 3]),
        case("Resize", f32(1, 2, 5, 7), value([1, 1, 2, 1.5]), opset=10),
        case("Resize", f32(1, 2, 9, 7), value([1, 1, 0.6, 2]), opset=10),
        case("Upsample", f32(1, 2, 5, 7), value([1, 1, 2, 3]), opset=9),
        case("Upsample", f32(1, 2, 5, 7), opset=7, scales=[1.0, 1.0, 1.5, 2.0]),
        *resized(f32(1, 3, 29, 31), scales=[1, 1, 2, 2]).on("npu1", "npu2_1col"),
    ]


def weighted() -> list[Case]:
    x = f32(1, 2, 5, 7)
    cases = [
        resized(x, sizes=[1, 2, 10, 11], mode=mode, coordinate_transformation_mode=at)
        for mode in ("linear", "cubic")
        for at in COORDINATES
    ]
    # The resized length is the scale times the length, a fraction; onnxruntime cuts it off.
    cases.append(by_reference(resized(x, scales=[1, 1, 2, 1.5], mode="linear", **CORNERS)))
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}
    return [
        *cases,
        resized(x, sizes=[1, 2, 3, 4], mode="linear"),
        resized(
            f32(1, 2, 6, 7), sizes=[1, 2, 1, 1], mode="cubic", coordinate_transformation_mode=COORDINATES[1]
        ),
        resized(x, sizes=[1, 2, 9, 4], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1),
        resized(x, sizes=[1, 2, 3, 3], mode="linear", roi=[0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7], **crop),
        resized(x, sizes=[1, 2, 4, 8], mode="cubic", roi=[0, 0, -0.4, 0.1, 1, 1, 0.9, 0.8], **crop),
        resized(x, sizes=[1, 2, 3, 3], mode="nearest", roi=[0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7], **crop),
        resized(x, sizes=[1, 2, 2, 3], mode="linear", antialias=1),
        resized(f32(1, 1, 12, 12), sizes=[1, 1, 5, 5], mode="cubic", antialias=1, exclude_outside=1),
        *(
            resized(f32(1, 3, 16, 12), sizes=sizes, mode="linear", axes=axes, keep_aspect_ratio_policy=policy)
            for sizes, axes, policy in [([7, 8], [2, 3], "not_larger"), ([9, 6], [3, 2], "not_smaller")]
        ),
        resized(f32(1, 2, 4, 5, 6), scales=[1, 1, 2, 1.5, 0.5], mode="linear"),
        resized(f32(1, 32, 40, 40), scales=[1, 1, 2, 2], mode="linear"),
        # Rounded by the last pass, which goes along rows; rows of an odd length are rounded behind it.
        *(
            replace(resized(Input((2, 3, 5, w), "float16"), scales=[1, 1, 2, 2], mode=mode), tolerance=HALF)
            for w, mode in ((6, "linear"), (6, "cubic"), (3, "linear"))
        ),
        # Made of floats that are exact, and cut towards 0.
        *(
            resized(Input((2, 3, 5, 7), kind), scales=[1, 1, 2, 4], mode="linear")
            for kind in ("uint8", "int8")
        ),
        resized(Input((2, 3, 6, 9), "int32"), scales=[1, 1, 0.5, 2], mode="linear"),
        by_reference(
            resized(f32(1, 1, 4, 4), scales=[1, 1, 1.3, 2.4], mode="linear",
                    coordinate_transformation_mode="half_pixel_symmetric")
        ),
        case("Upsample", x, value([1, 1, 2, 3]), opset=9, mode="linear", tolerance=NEAR),
        *resized(f32(1, 3, 29, 31), scales=[1, 1, 2, 2], mode="linear").on("npu1", "npu2_1col"),
    ]  # fmt: skip


@st.composite
def resize(draw: st.DrawFn) -> Case:
    side = st.one_of(st.integers(1, 9), st.integers(1, 70))
    x = (1, draw(st.integers(1, 4)), draw(side), draw(side))
    sizes = (*x[:2], draw(side), draw(side))
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    at = draw(st.sampled_from(COORDINATES))
    rounding = draw(st.sampled_from(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]))
    more = {"nearest_mode": rounding} if mode == "nearest" else {}
    more |= {"device": draw(DEVICES)}
    return resized(f32(*x), sizes=sizes, mode=mode, coordinate_transformation_mode=at, **more)


CASES = [*nearest(), *weighted()]
FAMILIES = {"resize": resize()}
