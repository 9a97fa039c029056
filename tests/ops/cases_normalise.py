# SPDX-License-Identifier: Apache-2.0
"""Cases of the normalisations: layers, instances, groups, lengths, and any axes."""

from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tests.ops.case import Array, Case, Input, Tolerance, case, f32, value, weight
from tests.ops.strategies import DEVICES, shapes

CLOSE = Tolerance(scale=2e-6, absolute=2e-6)  # sums in another order, then values around zero
# onnxruntime adds up long rows in float32 one after the other
LONG = Tolerance(scale=2e-5, absolute=2e-5)


@st.composite
def layer_norm(draw: st.DrawFn) -> Case:
    shape = draw(shapes(4, empty=False).filter(lambda s: len(s) > 0))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    assume(np.prod(shape[axis:]) > 1)  # of one value the variance is 0: what is left is epsilon's
    made = st.sampled_from([f32, weight])
    if draw(st.booleans()):
        scale = draw(made)(*shape[axis:])
        return case(
            "RMSNormalization",
            f32(*shape), scale, axis=axis, opset=23, tolerance=CLOSE, device=draw(DEVICES),
        )  # fmt: skip
    parameters = [draw(made)(*shape[axis:]) for _ in range(draw(st.integers(1, 2)))]
    return case(
        "LayerNormalization", f32(*shape), *parameters, axis=axis, tolerance=CLOSE, device=draw(DEVICES)
    )


@st.composite
def group_norm(draw: st.DrawFn) -> Case:
    """Planes by channels or by groups of them, lengths and any axes."""
    n, groups, each = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(1, 6))
    inner = draw(st.lists(st.integers(1, 20), min_size=1, max_size=3))
    op = draw(st.sampled_from(["InstanceNormalization", "GroupNormalization", "Lp", "Mean"]))
    shape, device = (n, groups * each, *inner), draw(DEVICES)
    if op == "Lp":
        attributes = {"axis": draw(st.integers(-len(shape), len(shape) - 1)), "p": draw(st.integers(1, 2))}
        return case("LpNormalization", f32(*shape), tolerance=CLOSE, device=device, **attributes)
    if op == "Mean":
        axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
        assume(np.prod([shape[a] for a in axes]) > 3)
        return case("MeanVarianceNormalization", f32(*shape), axes=axes, tolerance=CLOSE, device=device)
    assume(np.prod(inner) > 3)
    if op == "InstanceNormalization":
        given = [weight(shape[1]), draw(st.sampled_from([f32, weight]))(shape[1])]
        return case(op, f32(*shape), *given, tolerance=CLOSE, device=device)
    opset, count = draw(st.sampled_from([(18, groups), (21, groups * each)]))
    given = [draw(st.sampled_from([f32, weight]))(count) for _ in range(2)]
    return case(op, f32(*shape), *given, num_groups=groups, opset=opset, tolerance=CLOSE, device=device)


def norm(shape: tuple[int, ...], axis: int = -1, bias: bool = True, epsilon: float = 1e-5) -> Case:
    parameters = [weight(*shape[axis:])] * (1 + bias)
    return case("LayerNormalization", f32(*shape), *parameters, axis=axis, epsilon=epsilon, tolerance=CLOSE)


def layers() -> list[Case]:
    return [
        *(norm(shape) for shape in [(7,), (37, 10), (3, 5, 7), (2, 64, 768), (1031, 3), (5, 1009)]),
        norm((37, 10), bias=False),
        norm((37, 10), epsilon=0.1),
        norm((2, 3, 4, 5), 2),
        norm((2, 3, 4, 5), 0),
        case("LayerNormalization", f32(9, 31), f32(31), f32(31), tolerance=CLOSE),
        norm((3, 20011)),  # longer than a core holds
        *(
            spread((2, 7, 5, 3), *shapes)
            for shapes in [
                ((1, 1, 1),),
                ((1,), (1,)),
                ((7, 1, 3), (3,)),
                ((), (2, 1, 1, 1)),
                ((1, 3), (5, 1)),
            ]
        ),
        spread((3, 3), (3, 1), axis=-1),  # as many elements as a row has, one for each row
        spread((4, 3, 5), (3, 1), (5,), axis=1),
        spread((4, 3, 5), (5,), dtype="float16"),
        spread((4, 3, 5), (1,), dtype="float16"),
        *norm((37, 61)).on("npu1", "npu2_1col"),
    ]


def spread(shape: tuple[int, ...], *parameters: tuple[int, ...], axis: int = -1, dtype: str = "") -> Case:
    """Scale and bias that broadcast."""
    given = [Input(p, dtype or "float32") for p in (shape, *parameters)]
    allowed = Tolerance(scale=1e-3) if dtype else CLOSE
    return case("LayerNormalization", *given, axis=axis, tolerance=allowed)


def root_mean_squares() -> list[Case]:
    def one(shape: tuple[int, ...], axis: int = -1, **attributes: float) -> Case:
        given = f32(*shape), weight(*shape[axis:])
        return case("RMSNormalization", *given, axis=axis, opset=23, tolerance=CLOSE, **attributes)

    def simplified(shape: tuple[int, ...], axis: int = -1, **attributes: float) -> Case:
        given = f32(*shape), weight(*shape[axis:])
        return case("SimplifiedLayerNormalization", *given, axis=axis, tolerance=CLOSE, **attributes)

    return [
        *(simplified(shape) for shape in [(7,), (37, 10), (3, 20011)]),
        simplified((2, 3, 4, 5), 2, epsilon=0.5),
        *(one(shape) for shape in [(7,), (37, 10), (3, 64, 256), (5, 1009), (3, 20011)]),
        one((2, 3, 4, 5), 2),
        one((9, 31), epsilon=0.5),
        case("RMSNormalization", f32(9, 31), f32(31), opset=23, tolerance=CLOSE),
        *one((37, 61)).on("npu1"),
    ]


def instances() -> list[Case]:
    def one(*shape: int, **more: float) -> Case:
        given = f32(*shape), weight(shape[1]), weight(shape[1])
        return case("InstanceNormalization", *given, tolerance=LONG if shape[-1] > 500 else CLOSE, **more)

    return [
        *(one(*shape) for shape in [(2, 3, 5, 7), (1, 67, 9), (2, 3, 4, 5, 6), (3, 1, 31, 33)]),
        one(1, 3, 512, 512),  # planes longer than a core holds
        one(2, 5, 7, 3, epsilon=0.1),
        case("InstanceNormalization", f32(2, 5, 8, 3), f32(5), f32(5), tolerance=CLOSE),
        *one(2, 9, 11, 5).on("npu1", "npu2_2col"),
    ]


def groups() -> list[Case]:
    def one(opset: int, number: int, *shape: int, **more: float) -> Case:
        given = [weight(number if opset < 21 else shape[1]) for _ in range(2)]
        allowed = LONG if shape[-1] > 50 else CLOSE
        return case(
            "GroupNormalization", f32(*shape), *given, num_groups=number, opset=opset,
            tolerance=allowed, **more,
        )  # fmt: skip

    return [
        *(one(21, *of) for of in [(3, 2, 6, 5, 7), (1, 2, 5, 9), (8, 1, 8, 4, 4), (2, 3, 4, 3, 2, 5)]),
        one(21, 4, 1, 32, 64, 64),  # groups longer than a core holds
        *(one(18, *of) for of in [(3, 2, 6, 5, 7), (4, 1, 32, 64, 64)]),
        one(21, 2, 3, 8),  # no positions behind the channels
        one(21, 2, 2, 6, 3, 4, epsilon=0.1),
        case("GroupNormalization", f32(2, 6, 8), f32(6), f32(6), num_groups=2, tolerance=CLOSE),
        *one(21, 2, 3, 8, 5, 3).on("npu1"),
    ]


def mean_variance(x: Array, axes: tuple[int, ...]) -> Array:
    """As ONNX's function body has it, in float64."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=axes, keepdims=True)
    y = centred / (np.sqrt((centred**2).mean(axis=axes, keepdims=True)) + 1e-9)
    return np.asarray(y, np.float32)


def any_axes() -> list[Case]:
    op, cases = "MeanVarianceNormalization", []
    for shape, axes in [
        ((2, 3, 5, 7), (0, 2, 3)), ((2, 3, 5, 7), (2, 3)), ((37, 10), (1,)), ((37, 10), (0,)),
        ((2, 3, 4, 5, 6), (1, 3)), ((3, 30011), (1,)),
    ]:  # fmt: skip
        x = np.random.default_rng(len(cases)).standard_normal(shape).astype(np.float32)
        given, answer = value(x, const=False), mean_variance(x, axes)
        cases.append(case(op, given, axes=list(axes), answer=answer, tolerance=CLOSE, note=str(axes)))
    return [
        *cases,
        case(op, f32(2, 3, 5, 7), axes=[0, 2, 3], tolerance=CLOSE),
        *case(op, f32(2, 3, 5, 7), axes=[2, 3], tolerance=CLOSE).on("npu1"),
    ]


def lengths() -> list[Case]:
    op = "LpNormalization"
    empty = np.zeros((3, 8), np.float32)
    empty[1] = 2
    return [
        *(case(op, f32(*shape), axis=axis, p=p, tolerance=CLOSE) for shape, axis, p in [
            ((7,), -1, 2), ((37, 10), 1, 1), ((37, 10), 0, 2), ((3, 5, 7), 1, 1), ((2, 3, 4, 5), -1, 2),
            ((3, 20011), 1, 2),
        ]),
        case(op, f32(9, 31), tolerance=CLOSE),
        case(op, value(empty, const=False), p=1, note="zeros"),  # whose length is 0: they stay zeros
        *case(op, f32(37, 61), axis=0, tolerance=CLOSE).on("npu1"),
    ]  # fmt: skip


CASES = [*layers(), *root_mean_squares(), *instances(), *groups(), *any_axes(), *lengths()]
FAMILIES = {"layer_norm": layer_norm(), "group_norm": group_norm()}
