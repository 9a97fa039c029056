# SPDX-License-Identifier: Apache-2.0
"""Mapping rules as a file may write them, as JSON so that they can be mutated: calls, and a node for them.

{"calls": [["op", {"op_type": "A", "to": "Relu"}], ["auto", {}]],
 "node": {"inputs": ["x"], "outputs": ["y"], "attributes": {"alpha": 0.5}}, "version": 1}
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.sources.layouts import arrange
from onedispatch.dispatch.sources.translate import ONNX, examine, translate

FACTS = (
    "auto rename default compute ignore input_from_attr attr_from_input drop_input add_input reorder format "
    "variadic"
).split()
X, Y = ["x"], ["y"]
SEEDS: Mapping[str, tuple[list[str], list[str], list[Any]]] = {
    "rename": (X, Y, [["op", {"op_type": "A", "to": "LeakyRelu"}], ["rename", {"slope": "alpha"}]]),
    "top": (
        ["x", "k"],
        ["y", "z"],
        [["op", {"op_type": "A", "to": "TopK"}], ["auto", {}], ["default", {"axis": -1}]],
    ),
    "sum": (
        ["x", "", "k"],
        Y,
        [
            ["op", {"op_type": "A", "to": "ReduceSum", "versions": [1, 6]}],
            ["input_from_attr", {"name": "axes", "index": 1}],
            ["drop_input", {"index": 2}],
        ],
    ),
    "conv": (
        ["x", "w"],
        Y,
        [["op", {"op_type": "A", "to": "Conv"}], ["format", {"port": 1, "origin": "HWCN"}]],
    ),
    "concat": (
        ["x", "x"],
        Y,
        [
            ["op", {"op_type": "A", "to": "Concat"}],
            ["variadic", {"name": "v", "count": "n"}],
            ["default", {"axis": 0}],
            ["ignore", {}],
        ],
    ),
    "moves": (
        ["x", "k"],
        Y,
        [
            ["op", {"op_type": "A", "to": "Softmax"}],
            ["attr_from_input", {"index": 1, "name": "axis"}],
            ["add_input", {"index": 1, "value": 1.5}],
            ["reorder", {"order": [0]}],
        ],
    ),
    "expand": (X, Y, [["expand", {"op": "LeakyRelu", "alpha": 0.5, "outputs": 1}]]),
    "fusion": (X, Y, [
        ["op", {"op_type": "A", "to": "Relu"}],
        ["fusion", {"roots": ["Mul(a, P)", "Tanh(b)"], "parts": {"P": "Sigmoid(a) | Relu(a)"}}],
    ]),
}  # fmt: skip
ATTRIBUTES = {"slope": 0.5, "axes": [1], "n": 2, "data_format": "NHWC"}


def seeds() -> dict[str, bytes]:
    """A file for each kind of rule."""
    return {
        name: json.dumps(
            {
                "calls": calls,
                "node": {"inputs": inputs, "outputs": outputs, "attributes": ATTRIBUTES},
                "version": 1,
            }
        ).encode()
        for name, (inputs, outputs, calls) in SEEDS.items()
    }


def run(data: bytes) -> None:
    """Writes the rules, and translates a model with a node for them."""
    try:
        given = json.loads(data)
        calls, said, version = given["calls"], given["node"], int(given.get("version", 1))
        model = _model(said, min(max(version, 1), 100))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise od.InputError("the file", str(error)) from error
    try:
        _write(calls)
        graph = import_model(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", od.RuleWarning)
            assert examine(graph, ONNX).nodes is not None
            made = arrange(translate(graph, ONNX))
        assert {value.name for value in made.outputs} == {value.name for value in graph.outputs}
    finally:
        od.plugins.reset()


def _write(calls: Any) -> None:
    rule: Any = None
    for call in calls if isinstance(calls, list) else ():
        name, arguments = call if isinstance(call, list) and len(call) == 2 else ("", {})
        if not isinstance(arguments, dict):
            raise od.InputError("a call", repr(arguments))
        if name == "op":
            rule = od.frontend("onnx", domain="acme").op(**arguments)
        elif name == "expand":
            _expand(dict(arguments))
        elif name == "fusion":
            _fusion(arguments)
        elif name in FACTS and rule is not None:
            getattr(rule, name)(**arguments)


def _expand(arguments: dict[str, Any]) -> None:
    op, outputs = arguments.pop("op", "Relu"), arguments.pop("outputs", None)

    @od.frontend("onnx", domain="acme").expand("A")
    def expand(g: Any, n: Any) -> Any:
        made = g.op(op, *n.inputs, outputs=outputs, **arguments)
        return (made, made) if isinstance(made, str) else made


def _fusion(arguments: dict[str, Any]) -> None:
    @od.fusion("F")
    def fusion(p: Any) -> Any:
        p.find(*arguments.get("roots", ()), **arguments.get("parts", {}))
        return lambda g, m: tuple(g.Relu(m["a"]) for _ in arguments.get("roots", ()))


def _model(said: Any, version: int) -> ModelProto:
    node = helper.make_node("A", said["inputs"], said["outputs"], "a", domain="acme", **said["attributes"])
    made = [helper.make_tensor_value_info(name, 0, None) for name in said["outputs"]]
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"], "s"),
        helper.make_node("Mul", ["s", "x"], ["x1"], "m"),
        helper.make_node("Neg", ["x1"], ["x2"], "n"),
        helper.make_node("Tanh", ["x"], ["x3"], "t"),
        node,
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 4, 3])]
    rng = np.random.default_rng(0)
    held = [
        numpy_helper.from_array(rng.standard_normal((3, 3, 3, 2)).astype(np.float32), "w"),
        numpy_helper.from_array(np.int32(2), "k"),
    ]
    ends = [*(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x2", "x3")), *made]
    graph = helper.make_graph(nodes, "net", inputs, ends, held)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("acme", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
