# SPDX-License-Identifier: Apache-2.0
"""Predicates hold of what they say, say why of the rest, and are read from data alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onedispatch import CatalogError
from onedispatch.operators.catalog.features import Features
from onedispatch.operators.catalog.predicates import PREDICATES, predicate_of
from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.transactions import find_device

NPU2 = find_device("npu2")


def seen() -> Features:
    a, b, y = (
        TensorSpec(n, np.dtype(np.float32), s)
        for n, s in zip("aby", ((20, 96), (96, 64), (20, 64)), strict=True)
    )
    options = ProductOptions(activation=Activation("tanh"))
    return Features(Problem.of(MatMul("p", a, b, y, NPU2, options).nests()[0], NPU2), NPU2)


GEMM = seen().kernel
TRUE, WIDE, SMALL = {"is": "Always"}, {"is": "Columns", "least": 9}, {"is": "Size", "dim": "m", "most": 8}
CLOCK = {"constant": "clock.array_mhz", "least": 1000, "most": 2000}
ACT = {"scalar": "act", "value": "tanh"}
ROWS_ALL = "a:rows,b:rows,out:rows"
# Data that holds, data that does not, and why.
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, str]] = {
    "Always": ({}, None, ""),
    "And": ({"of": [TRUE]}, {"of": [TRUE, SMALL]}, "m is 20, not 1 to 8"),
    "Or": ({"of": [WIDE, TRUE]}, {"of": [WIDE, SMALL]}, "columns is 8, not 9 or more and m is 20"),
    "Not": ({"of": WIDE}, {"of": TRUE}, "holds"),
    "Hardware": ({"device": NPU2.identity}, {"device": "npu2@0"}, ", not npu2@0"),
    "Columns": ({"least": 8, "most": 8}, {"least": 1, "most": 4}, "columns is 8, not 1 to 4"),
    "Feature": (CLOCK, CLOCK | {"constant": "clock.wrist"}, "no constant 'clock.wrist'"),
    "Operation": ({"name": "ac,cb->ab"}, {"name": "od::conv@1"}, "not od::conv@1"),
    "KernelIs": ({"kernel": GEMM}, {"kernel": "od::gemm@1#0"}, f"the kernel is {GEMM}"),
    "Types": ({"types": ["f32", "f32", "f32"]}, {"types": ["bf16"]}, "types is f32,f32,f32, not bf16"),
    "Layout": ({"layout": ROWS_ALL}, {"layout": "a:view"}, f"the layout is {ROWS_ALL}, not a:view"),
    "Attribute": (ACT, ACT | {"value": "none"}, "act is tanh, not none"),
    "Size": ({"dim": "k", "multiple": 32}, {"dim": "m", "multiple": 8}, "m is 20, no multiple of 8"),
}  # fmt: skip


@pytest.mark.parametrize("name", PREDICATES)
def test_a_predicate_holds_or_says_why_not(name: str) -> None:
    holds, fails, why = ROWS[name]
    one = predicate_of({"is": name} | holds, "here")
    assert one.holds(seen()) and predicate_of(one.to_data(), "here") == one
    if fails is not None:
        other = predicate_of({"is": name} | fails, "here")
        assert why in other.failure(seen()) and not other.holds(seen())


WRONG = {
    "no dictionary": ([], "a dictionary with `is`"),
    "no name": ({"of": []}, "a dictionary with `is`"),
    "unknown": ({"is": "Moon"}, "predicate 'Moon'; accepted: Always, And"),
    "a field too many": ({"is": "Always", "of": []}, "Always with of; accepted: nothing but `is`"),
    "a field too few": ({"is": "Size"}, "Size without dim"),
    "another type": ({"is": "Size", "dim": 3}, r"here\.dim: given 3; accepted: str"),
    "truth for a number": ({"is": "Columns", "least": True}, r"here\.least: given True"),
    "zero to divide by": ({"is": "Size", "dim": "m", "multiple": 0}, r"here\.multiple: given 0; accepted: 1"),
    "no list": ({"is": "And", "of": {"is": "Always"}}, r"here\.of.*a list"),
    "inside": (
        {"is": "And", "of": [{"is": "Not", "of": {"is": "Sun"}}]},
        r"here\.of\[0\]\.of: given predicate",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_data_is_an_error_that_names_the_place(name: str) -> None:
    data, message = WRONG[name]
    with pytest.raises(CatalogError, match=message):
        predicate_of(data, "here")


def test_predicates_inside_of_each_other_end() -> None:
    data: dict[str, Any] = {"is": "Always"}
    for _ in range(100):
        data = {"is": "Not", "of": data}
    with pytest.raises(CatalogError, match="not nested deeper"):
        predicate_of(data, "here")
