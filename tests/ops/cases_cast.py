# SPDX-License-Identifier: Apache-2.0
"""Cases of Cast and CastLike: to every type, through words where rows of both ends are padded."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
from hypothesis import strategies as st
from onnx import helper

from onedispatch.operators.declarations.dtypes import DTYPES
from tests.ops.case import Case, Input, case, f32, value
from tests.ops.strategies import DEVICES, shapes

TO = {str(row.numpy): helper.np_dtype_to_tensor_dtype(row.numpy) for row in DTYPES.values()}
SIGNED = ("int8", "int16", "int32", "int64", "float16", "float32", "bool")  # floats below 0 are none other
HUGE = [2**63 - 1, -(2**63), 2**40 + 3, -(2**40) - 3, 2**32, 0, -1]  # words alone would be others


@st.composite
def cast(draw: st.DrawFn) -> Case:
    to, wide = TO[draw(st.sampled_from(SIGNED))], draw(st.booleans())
    x = Input(draw(shapes()), "int64") if wide else f32(*draw(shapes()), kind="wide")
    return case("Cast", x, to=to, device=draw(DEVICES))


def to_bfloat16(one: Case) -> Case:
    """onnxruntime's Python face has no bfloat16."""
    (x,) = one.arrays
    assert x is not None
    return replace(one, answer=x.astype(ml_dtypes.bfloat16))


CASES = [
    *(case("Cast", f32(*shape, kind="wide"), to=TO[to]) for to in SIGNED for shape in [(37, 11), (5,), ()]),
    *(case("Cast", f32(3, 7, kind="positive"), to=to) for name, to in TO.items() if name != "bfloat16"),
    *(to_bfloat16(case("Cast", f32(*shape, kind="wide"), to=TO["bfloat16"])) for shape in [(37, 11), (2, 8)]),
    *(case("Cast", f32(*shape, kind="wide"), to=TO["int8"]) for shape in [(3, 5), (2, 3, 1, 5), (0, 3)]),
    *(
        case("Cast", Input(shape, "int64"), to=TO[to])
        for to in ("bool", "int8", "float16", "uint32")
        for shape in [(3, 5), ()]
    ),
    *(
        case("Cast", value(HUGE, "int64", const=False), to=TO[to])
        for to in ("int16", "uint32", "float32", "bool")
    ),
    *(
        case("Cast", Input((2, 3, 7), kind), to=TO["int64"])
        for kind in ("bool", "int8", "uint16", "int32", "float16")
    ),
    case("Cast", Input((5, 33), "int64"), to=TO["float32"], device="npu1_1col"),
    case("CastLike", f32(3, 5, kind="wide"), Input((1,), "int64")),
    case("CastLike", f32(3, 5, kind="wide"), Input((1,), "int8")),
    case("CastLike", f32(3, 5), Input((1,), "float16")),
    case("CastLike", f32(2, 3, 4), Input((), "int32")),
    *case("Cast", f32(37, 61, kind="wide"), to=TO["float16"]).on("npu1", "npu2_1col"),
]
FAMILIES = {"cast": cast()}
