# SPDX-License-Identifier: Apache-2.0
"""Every unary function of the table behind a product and a sum: applied by the kernel that made its input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch
from onedispatch.dispatch.compiler import phases
from onedispatch.dispatch.compiler.fold import fold_constants, specialise
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.operators.declarations.functions import ACTIVATIONS
from onedispatch.transactions import find_device
from tests.ops.case import DECLARED, OPSET, TOLERANCES, Tolerance, check, run_onnxruntime, single_model

NPU2 = find_device("npu2")
UNIT = ("Asin", "Acos", "Atanh")  # between -1 and 1
NEWER = {"Swish": 24}  # operators that came later than the operator set of other tests


def behind(producer: str, op_type: str) -> tuple[Any, dict[str, Any]]:
    """A model of two nodes, and its feed: values of both signs where the function is defined for them."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (9, 16)).astype(np.float32)
    steep = np.float32(0.06 if op_type in UNIT else 1)
    other = steep * rng.uniform(-1, 1, (16, 16) if producer == "MatMul" else (16,)).astype(np.float32)
    x *= np.float32(0.8 if op_type in UNIT else 1)
    if op_type in ("Acosh", "Log", "Sqrt", "Reciprocal"):
        x, other = np.abs(x) + 8, np.abs(other) + np.float32(0.01)
    nodes = [helper.make_node(producer, ["x", "w"], ["h"]), helper.make_node(op_type, ["h"], ["y"])]
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    opset = NEWER.get(op_type, OPSET)
    return single_model(nodes, infos, ["y"], [numpy_helper.from_array(other, "w")], opset), {"x": x}


@pytest.mark.daily(3)
@pytest.mark.parametrize("producer", ["MatMul", "Add"])
@pytest.mark.parametrize("op_type", sorted(ACTIVATIONS.by_onnx))
def test_kernels_apply_it_to_their_results(producer: str, op_type: str) -> None:
    model, feed = behind(producer, op_type)
    session = onedispatch.InferenceSession(model, fallback="error")
    (y,) = session.run(None, feed)
    (expected,) = run_onnxruntime(model, feed)
    own = TOLERANCES.get(op_type) or DECLARED[op_type]
    # What is added up in another order first is magnified by the steepest of them.
    allowed = Tolerance(ulp=own.ulp, scale=own.scale + 3e-6, absolute=own.absolute + 1e-6)
    check(y, expected, allowed)
    assert len(set(y.reshape(-1).tolist())) > 1
    graph = specialise(fold_constants(import_model(model)), {"x": feed["x"].shape}, {})
    assert [unit.kind for unit in phases.merge_operators(phases.map_nodes(graph, NPU2)).units] == ["op"]
