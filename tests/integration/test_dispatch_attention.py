# SPDX-License-Identifier: Apache-2.0
"""Attributes of attention and rotary embedding that ONNX forbids are refused, by node and attribute."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import TensorProto, helper

import onedispatch as od

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

FOUR = [(1, 4, 5, 8)] * 3
TABLES = [(1, 5, 4)] * 2


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes", "said"),
    [
        ("Attention", FOUR, {"qk_matmul_output_mode": 4}, "qk_matmul_output_mode'.*given 4"),
        ("Attention", FOUR, {"softcap": -1.0}, "softcap'.*given -1"),
        ("Attention", [(1, 4, 5, 8), (1, 3, 5, 8), (1, 3, 5, 8)], {}, "heads of queries.*given 4"),
        ("Attention", [(1, 5, 9)] * 3, {"q_num_heads": 2, "kv_num_heads": 2}, "q_num_heads'.*given 2"),
        ("RotaryEmbedding", [(1, 4, 5, 8), *TABLES], {"rotary_embedding_dim": 3}, "embedding_dim'.*given 3"),
        ("RotaryEmbedding", [(1, 5, 9), *TABLES], {"num_heads": 2}, "num_heads'.*given 2"),
    ],
)
def test_what_onnx_forbids(op_type: str, shapes: Any, attributes: dict[str, Any], said: str) -> None:
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(op_type, names, ["y"], name="here", **attributes)
    kind = TensorProto.FLOAT
    ins = [helper.make_tensor_value_info(n, kind, s) for n, s in zip(names, shapes, strict=True)]
    graph = helper.make_graph([node], "g", ins, [helper.make_tensor_value_info("y", kind, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    with pytest.raises(od.ModelError, match=f"node here.*{said}"):
        od.InferenceSession(model)
