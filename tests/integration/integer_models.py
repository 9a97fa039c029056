# SPDX-License-Identifier: Apache-2.0
"""Models out of the tables of rules of integers: a node between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onedispatch.dispatch.rules.integers import Group, Mover

Array = np.ndarray[Any, Any]
SHAPE = (2, 4, 6, 8)

# What an operator is given where it is not tensors of ``SHAPE``: shapes by position, attributes, constants.
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "Conv": (SHAPE, (4, 4, 3, 3), (4,)),
    "Gemm": ((4, 6), (6, 8), (8,)),
    "MatMul": ((2, 4, 6), (6, 8)),
}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "AveragePool": {"kernel_shape": [2, 2]},
    "Concat": {"axis": 1},
    "Conv": {"pads": [1, 1, 1, 1]},
    "DepthToSpace": {"blocksize": 2},
    "MaxPool": {"kernel_shape": [2, 2]},
    "ReduceMax": {"axes": [1]},
    "ReduceMin": {"axes": [1]},
    "SpaceToDepth": {"blocksize": 2},
    "Split": {"axis": 1},
}
# Operands behind the data, in order; None is left out.
OPERANDS: dict[str, tuple[Any, ...]] = {
    "Expand": (np.array([2, 4, 6, 8]),),
    "Gather": (np.array([1, 0]),),
    "GatherElements": (np.zeros((1, 1, 1, 2), np.int64),),
    "GatherND": (np.array([[1, 0]]),),
    "Pad": (np.array([0, 0, 1, 1, 0, 0, 1, 1]), None),
    "Reshape": (np.array([2, -1]),),
    "Resize": (None, np.array([1, 1, 2, 2], np.float32)),
    "Slice": (np.array([1]), np.array([3]), np.array([1])),
    "Squeeze": (np.array([0]),),
    "TopK": (np.array([2]),),
    "Tile": (np.array([1, 2, 1, 1]),),
    "Unsqueeze": (np.array([0]),),
}
AXES = {"Conv": ("w", 0), "MatMul": ("b", 1), "Gemm": ("b", 1)}  # that scales of weights lie along
INDICES = ("ArgMax", "ArgMin")  # they make no data
FIRST: dict[str, tuple[int, ...]] = {"Squeeze": (1, 4, 6, 8)}


@dataclass
class Model:
    """Nodes and constants so far; ``dtype`` is that of activations, weights are int8."""

    dtype: Any = np.uint8
    opset: int = 17
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def constant(self, name: str, values: Any) -> str:
        self.constants[name] = np.asarray(values)
        return name

    def node(self, op_type: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op_type, inputs, outputs, f"n_{outputs[0]}", **attributes))

    def scaled(self, name: str, scale: Any, zero: Any, dtype: Any) -> list[str]:
        scales = self.constant(f"{name}_scale", np.asarray(scale, np.float32))
        return [scales, self.constant(f"{name}_zero", np.asarray(zero, dtype))]

    def integers(self, name: str, shape: tuple[int, ...], scale: Any = 0.05, **options: Any) -> str:
        """A tensor that is dequantised: an input, or a constant."""
        dtype, axis = np.dtype(options.get("dtype", self.dtype)), options.get("axis")
        several = axis is not None
        scales = np.linspace(scale, 2 * scale, shape[axis]) if several else scale
        zero = options.get("zero", 0 if dtype.kind == "i" else 128)
        zeros = np.full(np.shape(scales), zero)
        if options.get("constant"):
            values = np.random.default_rng(3).integers(-100, 100, shape).astype(dtype)
            self.constant(f"{name}_integers", values)
        else:
            kind = helper.np_dtype_to_tensor_dtype(dtype)
            self.inputs.append(helper.make_tensor_value_info(f"{name}_integers", kind, shape))
        operands = [f"{name}_integers", *self.scaled(name, scales, zeros, dtype)]
        self.node("DequantizeLinear", operands, [name], **({"axis": axis} if several else {}))
        return name

    def quantised(
        self, name: str, made: str, scale: float = 0.1, zero: Any = None, dtype: Any = None
    ) -> None:
        """``made`` as integers, which leave."""
        dtype = np.dtype(dtype or self.dtype)
        zero = (0 if dtype.kind == "i" else 128) if zero is None else zero
        self.node("QuantizeLinear", [made, *self.scaled(name, scale, zero, dtype)], [name])

    def proto(self, *outputs: str) -> onnx.ModelProto:
        """``outputs`` leave, "name" as floats or "name:dtype"."""
        leaving = []
        for one in outputs:
            name, _, dtype = one.partition(":")
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) if dtype else TensorProto.FLOAT
            leaving.append(helper.make_tensor_value_info(name, kind, None))
        initializers = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "integers", self.inputs, leaving, initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def group_model(group: Group, **changes: Any) -> Model:
    """A model that ``group`` is about; ``changes`` are options of ``Model.integers`` by operand, attributes
    of the node (``attributes``), those of the ``result``."""
    model = Model(changes.get("dtype", np.uint8), changes.get("opset", 17))
    shapes = SHAPES.get(group.op_type, (SHAPE,) * 3)
    names = group.operands.replace("*x", "x0 x1").split()
    given, scales = [], {"dtype": np.int32, "zero": 0, "constant": True}
    for name, shape in zip(names, shapes, strict=False):
        operand = name.lstrip("?=")
        if name.startswith("="):
            model.inputs.append(helper.make_tensor_value_info(operand, TensorProto.BOOL, shape))
            given.append(operand)
            continue
        weights = {"dtype": np.int8, "constant": True} if group.op_type in SHAPES and len(given) else {}
        options = {"scale": 0.05 if not given else 0.02, **(scales if name.startswith("?") else weights)}
        if name.startswith("?"):  # in units of the sums, channel by channel
            several = {"axis": 0} if group.op_type in AXES and AXES[group.op_type][0] in changes else {}
            options |= {"scale": 0.05 * 0.02, **several}
        given.append(model.integers(operand, shape, **{**options, **changes.get(operand, {})}))
    attributes = {**ATTRIBUTES.get(group.op_type, {}), **changes.get("attributes", {})}
    model.node(group.op_type, given, ["made"], **attributes)
    if group.result:
        model.quantised("result", "made", **changes.get("result", {}))
    return model


def mover_model(op_type: str, mover: Mover, **changes: Any) -> Model:
    """``op_type`` between integers of one scale; ``y`` are options of ``Model.quantised``."""
    model = Model()
    shape = FIRST.get(op_type, (2, 4, 6, 8))
    data = ["x0", "x1"] if mover.data < 0 else ["x"]
    given = [model.integers(name, shape, **changes.get(name, {})) for name in data]
    for number, operand in enumerate(changes.get("operands", OPERANDS.get(op_type, ()))):
        given.append("" if operand is None else model.constant(f"operand{number}", operand))
    attributes = {**ATTRIBUTES.get(op_type, {}), **changes.get("attributes", {})}
    outputs = ["made", "other"] if op_type in ("Split", "TopK") else ["made"]
    model.node(op_type, given, outputs, **attributes)
    for name in outputs[:1] if op_type == "TopK" else () if op_type in INDICES else outputs:
        model.quantised(f"y_{name}", name, **{"scale": 0.05, **changes.get("y", {})})
    return model
