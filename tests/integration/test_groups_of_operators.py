# SPDX-License-Identifier: Apache-2.0
"""Every operator between two others whose tensors stay in memory tiles: the bits that it has ungrouped."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotInOnnxruntime

import onedispatch as od
from tests.ops.case import Case, check, run_onnxruntime
from tests.ops.cases import CASES
from tests.tables import each_case, sampled

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def between_others(case: Case) -> onnx.ModelProto:
    """The case's model with a Neg before each input of floats and behind each such result."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph, (node,) = model.graph, case.model.graph.node
    before, behind, results = [], [], []
    names = {one.name: f"{one.name}_kept" for one in graph.input if is_float(one)}
    for name, kept in names.items():
        before.append(helper.make_node("Neg", [name], [kept], name=f"before_{name}"))
    for one in graph.output:
        result = onnx.ValueInfoProto()
        result.CopyFrom(one)
        if is_float(one):
            result.name = f"{one.name}_read"
            behind.append(helper.make_node("Neg", [one.name], [result.name], name=f"behind_{one.name}"))
        results.append(result)
    moved = onnx.NodeProto()
    moved.CopyFrom(node)
    moved.input[:] = [names.get(name, name) for name in node.input]
    del graph.node[:], graph.output[:]
    graph.node.extend([*before, moved, *behind])
    graph.output.extend(results)
    return model


def is_float(value: onnx.ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type in _FLOATS


def expected(model: onnx.ModelProto, case: Case) -> list[np.ndarray]:
    """onnxruntime's answer; none where it has no Neg of such floats, or a mask's infinities change sign."""
    if any(is_float(one) and not np.isfinite(case.feed[one.name]).all() for one in case.model.graph.input):
        return []
    try:
        return run_onnxruntime(model, case.feed)
    except NotInOnnxruntime:
        return []


@each_case(sampled(CASES, lambda case: case.op_type, 40), group=lambda case: case.op_type)
def test_groups_change_no_bit(case: Case, whatever_fits: None) -> None:
    model, results = between_others(case), []
    for groups in ("on", "off"):
        try:
            session = od.InferenceSession(model, case.device, fallback="error", groups=groups, record=False)
            with np.errstate(all="ignore"):
                results.append(session.run(None, case.feed))
        except od.UnsupportedModelError:
            pytest.skip("what it reads decides a shape, or has no Neg")
    on, off = results
    assert [one.tobytes() for one in on] == [one.tobytes() for one in off]
    if case.answer is None:
        for made, wanted in zip(off, expected(model, case), strict=False):
            check(made, wanted, case.allowed)
