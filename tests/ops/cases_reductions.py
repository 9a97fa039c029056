# SPDX-License-Identifier: Apache-2.0
"""Cases of reductions over any axes, and of sums and products along one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.ops.case import Case, Input, Tolerance, case, f32, integers, value
from tests.ops.strategies import DEVICES, shapes

CLOSE = Tolerance(scale=2.5e-6, absolute=2e-6)
LOGARITHM = Tolerance(ulp=4, absolute=1e-6, scale=1e-6)
FINISHED = {
    "ReduceL1": CLOSE,
    "ReduceL2": CLOSE,
    "ReduceLogSum": LOGARITHM,
    "ReduceLogSumExp": LOGARITHM,
}
EVERY = {
    **FINISHED,
    "ReduceMean": CLOSE,
    "ReduceSum": Tolerance(scale=2.5e-6, absolute=2e-5),
    "ReduceSumSquare": Tolerance(scale=2.5e-6),
    "ReduceMax": None,
    "ReduceMin": None,
}


def kind_of(op: str) -> str:
    return "positive" if op in ("ReduceLogSum", "ReduceSum") else "normal"


def finished() -> list[Case]:
    """Norms and logarithms of sums."""
    cases = []
    for op, allowed in FINISHED.items():
        kind = kind_of(op)
        for shape, axes in [
            ((7,), (0,)), ((37, 10), (1,)), ((37, 10), (0,)), ((3, 5, 7), (0, 2)), ((3, 4099), (1,)),
        ]:  # fmt: skip
            x, listed = f32(*shape, kind=kind), value(list(axes), "int64")
            keepdims, note = len(shape) % 2, "axes" + ",".join(map(str, axes))
            cases.append(case(op, x, listed, keepdims=keepdims, tolerance=allowed, note=note))
        cases += [
            case(op, f32(3, 4, kind=kind), tolerance=allowed),
            case(op, f32(5, 6, kind=kind), axes=[-1], opset=11, tolerance=allowed),
            *case(op, f32(37, 61, kind=kind), value([0], "int64"), tolerance=allowed).on("npu1"),
        ]
        nothing = np.full((3, 1), -np.inf if "Log" in op else 0, np.float32)
        cases.append(case(op, f32(3, 0), value([1], "int64"), answer=nothing, note="nothing"))
    for kind in ("infinite", "wide"):  # onnxruntime takes the maximum out of the sum
        cases.append(case("ReduceLogSumExp", f32(9, 31, kind=kind), value([1], "int64"), tolerance=CLOSE))
    for op in FINISHED:  # of every element by itself
        x, empty = f32(3, 4, kind="positive"), value([], "int64")
        cases.append(case(op, x, empty, noop_with_empty_axes=1, tolerance=LOGARITHM))
    cases.append(case("ReduceL1", integers("int32", 3, 5, 7), value([0, 2], "int64")))
    return cases


def gaps() -> list[Case]:
    """Several reductions: those that leave least go first."""
    cases = []
    for op, allowed in EVERY.items():
        for shape, axes in [((2, 3, 4, 5), (0, 2)), ((3, 2, 5, 1, 7), (0, 2, 4))]:
            x, listed = f32(*shape, kind=kind_of(op)), value(list(axes), "int64")
            keepdims, note = len(shape) % 2, "axes" + ",".join(map(str, axes))
            cases.append(case(op, x, listed, keepdims=keepdims, tolerance=allowed, note=note))
    listed = value([0, 2], "int64")
    cases += [
        case("ReduceProd", f32(3, 4, 5, kind="near one"), listed),
        case("ReduceMean", integers("int32", 3, 4, 5), listed),
        case("ReduceSum", integers("int32", 3, 4, 5, 6), value([1, 3], "int64"), keepdims=0),
        case("ReduceMax", integers("int8", 3, 4, 5, 6), listed, keepdims=0),
        case("ReduceMin", integers("uint8", 3, 4, 6, 8), listed),
        case("ReduceMax", Input((3, 4, 5), "bool"), listed, keepdims=0, opset=20),
        case("ReduceMean", Input((5, 3, 7), "float16"), listed, tolerance=Tolerance(scale=1e-3)),
    ]
    return cases


def few_results() -> list[Case]:
    """Partial results on all cores, and those reduced."""
    cases = []
    long = Tolerance(scale=1e-5)  # onnxruntime's own sums of so many
    for op in ("ReduceSum", "ReduceMean", "ReduceL2", "ReduceMax"):
        allowed = None if op == "ReduceMax" else long
        kind = "positive" if op != "ReduceMax" else "normal"
        cases += [
            case(op, f32(300, 512, kind=kind), keepdims=0, tolerance=allowed),
            case(op, f32(3, 40000, kind=kind), value([1], "int64"), tolerance=allowed),
        ]
    cases += [
        case("ReduceSum", f32(64, 512, 2, kind="positive"), value([0, 1], "int64"), tolerance=long),
        case("ReduceMin", integers("int8", 3, 40000), value([1], "int64")),
        case("ReduceMean", integers("int32", 40000), keepdims=0),
        *case("ReduceSum", f32(40000, kind="positive"), keepdims=0, tolerance=long).on("npu1", "npu2_1col"),
    ]
    return cases


def cumulative() -> list[Case]:
    sums, op, cases = Tolerance(scale=2e-6, absolute=1e-6), "CumSum", []
    flags: dict[str, int]
    for shape, axis, flags in [
        ((7,), 0, {}), ((37, 10), 1, {"exclusive": 1}), ((37, 10), 0, {"reverse": 1}),
        ((3, 5, 7), 1, {"exclusive": 1, "reverse": 1}), ((2, 3, 4, 5), -1, {}), ((0, 4), 1, {}),
        ((3, 1), 1, {"exclusive": 1}),
    ]:  # fmt: skip
        cases.append(case(op, f32(*shape), value(axis, "int64"), tolerance=sums, note=f"axis{axis}", **flags))
    long = Tolerance(scale=2e-5)  # a rounding for every element
    cases += [
        case(op, f32(2, 5003, kind="positive"), value(1, "int64"), tolerance=long),  # no core has a row
        case(op, f32(4096, 3, kind="positive"), value(0, "int64"), reverse=1, exclusive=1, tolerance=long),
        case(op, integers("int32", 3, 5, 7), value(1, "int32"), reverse=1),
        case(op, integers("int32", 2, 4501), value(1, "int64"), exclusive=1),
        *case(op, f32(37, 61), value(0, "int64"), tolerance=sums).on("npu1"),
    ]
    for flags in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):  # by blocks of lines
        x = f32(2, 670, 32) if len(flags) == 1 else integers("int32", 2, 670, 32)
        cases.append(case(op, x, value(1, "int64"), tolerance=long, device="npu1_1col", **flags))
    for shape, axis, flags in [
        ((7,), 0, {}), ((37, 10), 1, {"exclusive": 1}), ((3, 5, 7), 1, {"reverse": 1}), ((2, 4501), 1, {}),
        ((3, 5, 8), -1, {"exclusive": 1, "reverse": 1}), ((700, 512), 0, {"exclusive": 1, "reverse": 1}),
    ]:  # fmt: skip
        cases.append(product(shape, axis, flags))
    return cases


def product(shape: tuple[int, ...], axis: int, flags: dict[str, int]) -> Case:
    """onnxruntime has no CumProd."""
    x = 1 + np.random.default_rng(5).standard_normal(shape).astype(np.float32) / np.float32(64)
    walked = np.flip(x, axis) if flags.get("reverse") else x
    walked = np.moveaxis(walked.astype(np.float64), axis, 0)
    if flags.get("exclusive"):
        walked = np.concatenate([np.ones_like(walked[:1]), walked[:-1]])
    y = np.moveaxis(walked.cumprod(axis=0), 0, axis)
    y = np.flip(y, axis) if flags.get("reverse") else y
    given, allowed = value(x, const=False), Tolerance(scale=1e-4 if max(shape) > 1000 else 2e-6)
    answer = np.ascontiguousarray(y).astype(np.float32)
    return case(
        "CumProd", given, value(axis, "int64"), opset=26, answer=answer, tolerance=allowed,
        note=f"axis{axis}", **flags,
    )  # fmt: skip


def long_integers() -> list[Case]:
    """Of int64, which are exact and wrap: onnxruntime sums them up as floats of 64 bits."""

    def of(op: str, shape: tuple[int, ...], *axes: int, keepdims: int = 1, **more: Any) -> Case:
        x = np.random.default_rng(9).integers(-(2**62), 2**62, shape)
        function = {"ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min}[op]
        answer = function(x, axis=axes or None, keepdims=bool(keepdims))
        listed = [value(list(axes), "int64")] if axes else []
        given = value(x, "int64", const=False)
        return case(op, given, *listed, opset=18, keepdims=keepdims, answer=answer, **more)

    x = np.random.default_rng(9).integers(-(2**62), 2**62, (2, 5000))
    sums = x.cumsum(axis=1)
    return [
        *(of(op, (3, 37, 5), 1) for op in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin")),
        of("ReduceSum", (3, 20, 5), 0, 2, keepdims=0),
        of("ReduceSum", (1, 600), 1, device="npu1_1col"),
        of("ReduceMin", (7, 9)),
        of("ReduceProd", (2, 3, 4, 5), 0, 1, 3, device="npu1"),
        case("ReduceSum", value([[7, -9]], "int64", const=False), noop_with_empty_axes=1, opset=18),
        case("ReduceMax", Input((3, 0, 4), "int64"), value([1], "int64"), opset=20),
        case("CumSum", value(x, "int64", const=False), value(1, "int64"), answer=sums),
    ]


@st.composite
def reduced(draw: st.DrawFn) -> Case:
    shape = draw(shapes(5, 3000, empty=False).filter(lambda s: len(s) > 0))
    op = draw(st.sampled_from(sorted(EVERY)))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    listed, keepdims = value(axes, "int64"), draw(st.integers(0, 1))
    kind = "positive" if op in ("ReduceLogSum", "ReduceSum", "ReduceMean") else "normal"
    if op in ("ReduceMax", "ReduceMin") and draw(st.booleans()):
        x = integers(draw(st.sampled_from(["int8", "uint8", "int32"])), *shape)
    else:
        x = f32(*shape, kind=kind)
    note = f"axes{','.join(map(str, axes))}"
    allowed = EVERY[op] if x.dtype == "float32" else None
    return case(op, x, listed, keepdims=keepdims, tolerance=allowed, device=draw(DEVICES), note=note)


@st.composite
def cumulated(draw: st.DrawFn) -> Case:
    shape = draw(shapes(4, empty=False).filter(lambda s: len(s) > 0))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    flags = {key: draw(st.integers(0, 1)) for key in ("exclusive", "reverse")}
    allowed = Tolerance(scale=2e-5)
    x = integers("int32", *shape) if draw(st.booleans()) else f32(*shape, kind="positive")
    given = value(axis, draw(st.sampled_from(["int32", "int64"])))
    return case("CumSum", x, given, tolerance=allowed, device=draw(DEVICES), note=f"axis{axis}", **flags)


CASES = [*finished(), *gaps(), *few_results(), *cumulative(), *long_integers()]
FAMILIES = {"reduced": reduced(), "cumulated": cumulated()}
