# SPDX-License-Identifier: Apache-2.0
"""Operators that nothing declares: plug-ins are looked up before a model is refused."""

from __future__ import annotations

import pytest
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
