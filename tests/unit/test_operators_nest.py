# SPDX-License-Identifier: Apache-2.0
"""What a nest may bind to a kernel's scalars."""

from __future__ import annotations

import numpy as np
import pytest

from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.operators.kernels.moments import MOMENTS
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import find_device
from onedispatch.transactions.base.errors import OperatorError


def moments(**scalars: float) -> Nest:
    x = Operand("x", 0, F32, (8, 16), (16, 1), (Access(0), Access(None)))
    mean = Operand("mean", OUTPUT, F32, (8,), (1,), (Access(0),))
    spread = Operand("spread", OUTPUT - 1, F32, (8,), (1,), (Access(0),))
    return Nest(MOMENTS, (Dim("o", 8),), (x,), (mean, spread), {"o": 0}, scalars)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("count", 0.0, "1 to inf"),
        ("epsilon", float("nan"), "0 to inf"),
        ("centre", 2, "0 to 1"),
        ("centre", 0.5, "0 to 1"),
    ],
)
def test_scalars_are_within_the_bounds_of_their_declaration(name: str, given: float, said: str) -> None:
    with pytest.raises(OperatorError, match=f"scalar '{name}'.*{said}"):
        moments(**{name: given})


def test_scalars_may_be_left_to_their_defaults() -> None:
    assert moments(count=1.0).scalars == {"count": 1.0}


def test_a_float_without_bounds_may_be_nan() -> None:
    """An attribute of a model may be: LeakyRelu with alpha = NaN has results that are NaN."""
    x, device = TensorSpec("x", np.dtype(np.float32), (2, 3)), find_device("npu2")
    leaky = Activation("leakyrelu", float("nan"))
    (nest,) = Eltwise("y", "copy", [x], x, device, activation=leaky).nests()
    assert np.isnan(nest.scalars["act_alpha"])  # type: ignore[arg-type]
