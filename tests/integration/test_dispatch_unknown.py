# SPDX-License-Identifier: Apache-2.0
"""Operators that nothing declares, and damaged names: plug-ins are looked up before a model is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import helper

from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.transactions.base.errors import ModelError
from tests.unit.test_dispatch_importer import info, model


def test_unknown_operators_and_bad_attributes() -> None:
    with pytest.raises(ModelError, match="Nonsense"):
        import_model(model([helper.make_node("Nonsense", ["x"], ["y"])], [info("x")], [info("y")]))
    node = helper.make_node("Relu", ["x"], ["y"], colour=3)
    with pytest.raises(ModelError, match="colour"):
        import_model(model([node], [info("x")], [info("y")]))


@example(cut=111, flips=[(128, 1)])  # an operator of another name
@settings(max_examples=60, deadline=None)
@given(
    cut=st.integers(0, 400), flips=st.lists(st.tuples(st.integers(0, 399), st.integers(1, 255)), max_size=4)
)
def test_damaged_bytes_import_or_raise_a_model_error(cut: int, flips: list[tuple[int, int]]) -> None:
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    data = bytearray(
        model(
            [helper.make_node("Add", ["x", "w"], ["y"])], [info("x")], [info("y")], w=weights
        ).SerializeToString()
    )
    for at, change in flips:
        data[at % len(data)] ^= change
    try:
        import_model(bytes(data[: min(cut, len(data))]))
    except ModelError as error:
        assert str(error)
