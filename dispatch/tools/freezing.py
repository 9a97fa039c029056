# SPDX-License-Identifier: Apache-2.0
"""ONNX models whose inputs become constants, for runtimes that read the same file as we do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import ModelProto, numpy_helper

from onedispatch.dispatch.frontend.frozen import frozen_values
from onedispatch.dispatch.frontend.importer import value_of


def frozen_model(model: ModelProto, values: Mapping[str, Any]) -> ModelProto:
    """Returns a copy of ``model`` with these inputs as initializers; the model itself where there are none.

    Raises ``InputError`` as ``frontend.frozen`` does.
    """
    if not values:
        return model
    made = ModelProto()
    made.CopyFrom(model)
    constants = {tensor.name for tensor in made.graph.initializer}
    inputs = {info.name: value_of(info) for info in made.graph.input if info.name not in constants}
    arrays = frozen_values(inputs, constants, values)
    kept = [info for info in made.graph.input if info.name not in arrays]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return made
