# SPDX-License-Identifier: Apache-2.0
"""Cases of ConvInteger and QLinearConv: bit for bit as onnxruntime; by its formula where it has no kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from onedispatch.operators.kernels.matmul import requantised
from tests.ops.case import EXACT, Array, Case, Input, case, integers, value
from tests.ops.strategies import DEVICES

SMALL_DEVICES = ("npu1", "npu2_1col")
PAIRS = [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"), ("int8", "uint8")]
SAME = {"pads": [1, 1, 1, 1]}


def sums_of(
    x: Array, w: Array, zeros: tuple[Array, Array], bias: Array | None, attributes: dict[str, Any]
) -> Array:
    """Sums [N, M, ...] over two dimensions, one output element at a time."""
    pads, group = attributes.get("pads", [0] * 4), attributes.get("group", 1)
    (sh, sw), (dh, dw) = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    wide = x.astype(np.int64) - int(zeros[0].reshape(-1)[0])
    wide = np.pad(wide, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    weights = w.astype(np.int64) - zeros[1].astype(np.int64).reshape(-1, 1, 1, 1)
    made, inside, kh, kw = weights.shape
    oh = (wide.shape[2] - (kh - 1) * dh - 1) // sh + 1
    ow = (wide.shape[3] - (kw - 1) * dw - 1) // sw + 1
    found = np.zeros((x.shape[0], made, oh, ow), np.int64)
    for m in range(made):
        first = m // (made // group) * inside
        for i, j in np.ndindex(kh, kw):
            seen = wide[:, first : first + inside, i * dh :, j * dw :]
            seen = seen[:, :, : (oh - 1) * sh + 1 : sh, : (ow - 1) * sw + 1 : sw]
            found[:, m] += np.tensordot(seen, weights[m, :, i, j], ([1], [0]))
    return found if bias is None else found + bias.astype(np.int64).reshape(-1, 1, 1)


def answered(one: Case) -> Case:
    """``one`` with the formula's answer."""
    if one.op_type == "ConvInteger":
        x, w, *zeros = one.arrays
        assert x is not None and w is not None
        both = [z if z is not None else np.zeros(1, np.int64) for z in (*zeros, None, None)][:2]
        return replace(one, answer=sums_of(x, w, (both[0], both[1]), None, one.attributes).astype(np.int32))
    x, xs, xz, w, ws, wz, ys, yz, *bias = (a for a in one.arrays if a is not None)
    sums = sums_of(x, w, (xz, wz), bias[0] if bias else None, one.attributes).astype(np.int32)
    scale = (xs * ws / ys).astype(np.float32).reshape(-1, 1, 1)
    return replace(one, answer=requantised(sums, scale, int(yz.reshape(-1)[0]), yz.dtype))


def quantised(
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    types: tuple[str, str, str] = ("uint8", "int8", "uint8"),
    zeros: tuple[int, Any, int] = (7, 0, 3),
    scales: Any = 0.01,
    bias: bool = True,
    computed: tuple[int, ...] = (0,),
    note: str = "",
    **attributes: Any,
) -> Case:
    """A QLinearConv whose inputs are constant but for ``computed``; sums reach over the output's range."""
    made, size = w[0], float(np.sqrt(np.prod(w[1:])))
    inputs = [
        *(integers(types[0], *x), value(0.02), value(zeros[0], types[0])),
        *(integers(types[1], *w), value(scales), value(zeros[1], types[1])),
        *(value(0.9 * size * float(np.mean(scales))), value(zeros[2], types[2])),
        *([value(np.arange(made) * 431 % 1999 - 999, "int32")] if bias else []),
    ]
    given = [replace(one, const=i not in computed) for i, one in enumerate(inputs)]
    return case("QLinearConv", *given, note=note, **attributes)


def qlinear() -> list[Case]:
    byte, signed, mixed = ("uint8",) * 3, ("int8",) * 3, ("uint8", "int8", "uint8")
    every = tuple(range(9))
    per_channel: Any = [0.003 * (i + 1) for i in range(10)]
    cases = [
        quantised(
            *shapes,
            types=types,
            zeros=zeros,
            computed=computed,
            note="" if any(zeros) else "zero",
            **attributes,
        )
        for shapes, attributes in [
            (((1, 5, 9, 11), (10, 5, 3, 3)), SAME),
            (((2, 12, 8, 7), (8, 12, 1, 1)), {}),
            (((1, 6, 9, 7), (6, 1, 3, 3)), {**SAME, "group": 6, "strides": [2, 2]}),
        ]
        for types, zeros in [
            (byte, (128, 113, 121)),
            (signed, (3, 0, -5)),
            (mixed, (7, -3, 0)),
            (byte, (0, 0, 0)),
        ]
        for computed in ((0,), every)
    ]
    cases += [
        quantised((1, 5, 9, 11), (10, 5, 3, 3), scales=per_channel, zeros=(7, [0] * 10, 3), **SAME),
        quantised(
            (1, 5, 9, 11), (10, 5, 3, 3), scales=per_channel, zeros=(7, [0] * 10, 3), computed=every, **SAME
        ),
        quantised((1, 131, 7, 7), (67, 131, 3, 3), **SAME),
        quantised((1, 64, 28, 28), (96, 64, 1, 1)),
        quantised((1, 64, 13, 15), (32, 64, 1, 1), strides=[2, 2]),
        quantised((1, 3, 31, 33), (8, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3]),
        quantised((2, 12, 9, 9), (8, 3, 3, 3), group=4, pads=[1, 0, 2, 1]),
        quantised((1, 8, 9, 9), (16, 1, 3, 3), group=8, dilations=[2, 1], strides=[1, 3]),
        quantised((1, 40, 14, 14), (40, 1, 5, 5), group=40, pads=[2, 2, 2, 2]),
        quantised((1, 6, 4, 4), (8, 6, 3, 3), dilations=[5, 5], pads=[5, 5, 5, 5]),  # one tap meets data
        quantised((1, 12, 2, 1), (12, 1, 3, 3), group=12, pads=[1, 1, 1, 1]),
        quantised((1, 4, 9, 9), (6, 4, 3, 2), auto_pad="SAME_UPPER", strides=[2, 2], bias=False),
        quantised((1, 4, 9, 9), (6, 4, 3, 2), auto_pad="SAME_LOWER", bias=False),
        quantised((1, 4, 37), (6, 4, 5), pads=[2, 1], strides=[2]),
        quantised((1, 6, 37), (6, 1, 4), group=6, computed=every),
        quantised((1, 3, 5, 6, 7), (4, 3, 3, 3, 3), pads=[1] * 6),
        quantised((2, 4, 5, 6, 7), (6, 4, 1, 1, 1)),
        quantised((1, 4, 5, 6, 7), (6, 4, 3, 2, 3), computed=every, pads=[1, 0, 1, 1, 0, 1]),
        quantised((2, 4, 5, 6, 7), (4, 1, 1, 3, 3), group=4, pads=[0, 1, 1, 0, 1, 1]),
        quantised((0, 3, 9, 9), (2, 3, 3, 3)),
    ]
    cases += quantised((1, 5, 9, 11), (10, 5, 3, 3), **SAME).on(*SMALL_DEVICES)
    cases += quantised((1, 6, 9, 7), (6, 1, 3, 3), group=6, **SAME).on(*SMALL_DEVICES)
    return cases


def unknown() -> list[Case]:
    """What onnxruntime has no kernel for."""
    byte = ("uint8",) * 3
    return [
        *(
            answered(quantised((1, 5, 6, 7), (10, 5, 3, 3), types=(*pair, y), zeros=(5, 4, 3), **SAME))
            for pair in PAIRS
            for y in ("int8", "uint8")
            if y != pair[0] or pair == ("int8", "uint8")
        ),
        answered(
            quantised(
                (1, 5, 6, 7), (10, 5, 3, 3), types=byte, zeros=(5, list(range(10)), 3), note="zeros", **SAME
            )
        ),
        answered(
            quantised(
                (1, 8, 6, 7),
                (8, 4, 3, 3),
                types=byte,
                zeros=(5, list(range(8)), 3),
                computed=tuple(range(9)),
                group=2,
            )
        ),
    ]


def whole() -> list[Case]:
    """ConvInteger."""
    x, w = (1, 5, 9, 11), (10, 5, 3, 3)
    few: list[Input | None] = [value(3, "uint8", const=False), None]
    cases = [
        case("ConvInteger", integers(a, *x), integers(b, *w, const=const), **SAME)
        for a, b in PAIRS
        for const in (True, False)
    ]
    cases += [
        case(
            "ConvInteger",
            integers("uint8", *x),
            integers(b, *w, const=const),
            *few,
            zero,
            note=str(const),
            **SAME,
        )
        for few in ([value(131, "uint8")], [value(131, "uint8", const=False)])
        for b, zero in (("uint8", value(100, "uint8")), ("int8", value(-7, "int8")))
        for const in (True, False)
    ]
    cases += [
        case("ConvInteger", integers("uint8", *x), integers("uint8", *w, const=True), few[0], **SAME),
        case(
            "ConvInteger",
            integers("uint8", 1, 16, 12, 12),
            integers("uint8", 24, 16, 1, 1, const=True),
            few[0],
        ),
        case(
            *("ConvInteger", integers("uint8", 1, 6, 9, 11), integers("int8", 6, 1, 3, 3, const=True)),
            *(few[0], value(5, "int8")),
            **{**SAME, "group": 6},
        ),
        answered(
            case(
                *("ConvInteger", integers("uint8", *x), integers("uint8", *w, const=True)),
                *(few[0], value(np.arange(10) * 20, "uint8")),
                **SAME,
            )
        ),
        case(
            "ConvInteger",
            integers("uint8", 2, 3, 17),
            integers("int8", 4, 3, 4, const=True),
            value(9, "uint8"),
        ),
        # No window reaches beyond the planes: what lies around them is read by none.
        case("ConvInteger", integers("uint8", 1, 2, 5, 4, 3), integers("uint8", 3, 2, 3, 1, 1), few[0]),
    ]
    cases += case("ConvInteger", integers("uint8", *x), integers("int8", *w), few[0], **SAME).on(
        *SMALL_DEVICES
    )
    return cases


@st.composite
def integer_convolutions(draw: st.DrawFn) -> Case:
    """Any window, group and stride; sums as they are, or narrow."""
    group = draw(st.sampled_from([1, 1, 2, 5]))
    inside, made = draw(st.integers(1, 9)), group * draw(st.integers(1, 7))
    kernel, sizes = [draw(st.integers(1, 4)) for _ in range(2)], [draw(st.integers(1, 14)) for _ in range(2)]
    steps = {name: [draw(st.integers(1, 3)) for _ in range(2)] for name in ("strides", "dilations")}
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    for d in range(2):
        assume(sizes[d] + pads[d] + pads[d + 2] > (kernel[d] - 1) * steps["dilations"][d])
    types = draw(st.sampled_from([("uint8",) * 3, ("int8",) * 3, ("uint8", "int8", "uint8")]))
    zero = draw(st.integers(-9, 9)) if types[1] == "int8" else draw(st.integers(0, 200))
    computed = draw(st.sampled_from([(0,), (0,), tuple(range(9)), (0, 2)]))
    shapes = (draw(st.integers(1, 2)), group * inside, *sizes), (made, inside, *kernel)
    zeros = (draw(st.integers(0, 100)), zero, draw(st.integers(0, 100)))
    options = {**steps, "pads": pads, "group": group}
    one = quantised(*shapes, types=types, zeros=zeros, computed=computed, bias=draw(st.booleans()), **options)
    if draw(st.booleans()):
        one = case("ConvInteger", *(one.inputs[i] for i in (0, 3, 2, 5)), **options)
    return replace(one, device=draw(DEVICES))


CASES = [*qlinear(), *unknown(), *whole()]
assert all(one.allowed == EXACT for one in CASES)
FAMILIES = {"integer_convolutions": integer_convolutions()}
