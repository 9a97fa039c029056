# SPDX-License-Identifier: Apache-2.0
"""Models with operators of a domain that mapping rules are for, and what is asked of them."""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli.commands import app

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
X = np.random.default_rng(0).uniform(-2, 2, (2, 3, 4)).astype(np.float32)


def node(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "acme", **attributes: Any
) -> Any:
    name = f"{op_type}_{outputs[0]}"
    return helper.make_node(op_type, inputs, outputs, name=name, domain=domain, **attributes)


def model(
    nodes: Sequence[Any], outputs: dict[str, int], version: int = 1, **constants: Any
) -> onnx.ModelProto:
    """A model with the input x of [2, 3, 4] whose outputs have these types, and any shape."""
    x = helper.make_tensor_value_info("x", FLOAT, [2, 3, 4])
    made = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    held = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(list(nodes), "net", [x], made, held)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("acme", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def in_an_if(*inside: Any) -> onnx.ModelProto:
    """A model whose If has these nodes, the last of which writes t, in one branch."""
    ends = [helper.make_tensor_value_info(name, FLOAT, None) for name in "te"]
    branches = {
        "then_branch": helper.make_graph(list(inside), "then", [], ends[:1]),
        "else_branch": helper.make_graph([node("Neg", ["x"], ["e"], "")], "else", [], ends[1:]),
    }
    nodes = [
        node("ReduceMax", ["x"], ["m"], "", keepdims=0),
        node("Greater", ["m", "zero"], ["c"], ""),
        node("If", ["c"], ["y"], "", **branches),
    ]
    return model(nodes, {"y": FLOAT}, zero=np.float32(0), slope=np.float32(0.25))


def run(given: onnx.ModelProto, **options: Any) -> list[Any]:
    """The outputs, all computed on the device."""
    session = od.InferenceSession(given, fallback="error", **options)
    found = session.run(None, {"x": X})
    assert session.last_run is not None and session.last_run.dispatches == 1
    return found


def acme() -> Any:
    return od.frontend("onnx", domain="acme")


def here() -> int:
    """The line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def fuse_gate(name: str, general: bool = True) -> None:
    @od.fusion(name, general=general)
    def found(p: Any) -> Any:
        p.find("Mul(a, Sigmoid(a))")
        return lambda g, m: g.Relu(m["a"])


def explained(given: onnx.ModelProto, name: str) -> Any:
    """What ``ops explain`` says of a node."""
    return command("explain", given, name)["steps"]


def command(what: str, given: onnx.ModelProto, *more: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(given, path)
        result = CliRunner().invoke(app, ["ops", what, str(path), *more, "--json"])
    assert result.exit_code in (0, 2), result.output
    return json.loads(result.stdout)
