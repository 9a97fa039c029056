# SPDX-License-Identifier: Apache-2.0
"""Random quantised models: nodes between DequantizeLinear and QuantizeLinear, as a quantiser writes them."""

from __future__ import annotations

import random

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onedispatch.operators.declarations.registry import all_mappings
from tests.fuzz.maker import Array, Draft, Maker, Tensor
from tests.fuzz.models import Model, attributes_of, described, recipe

_SCALES = (1 / 3, 0.1, 0.05, 1 / 7, 0.02, 0.25)
_LEAST_OPSET = 13


class _Writer:
    """Drafts of floats as nodes between integers."""

    def __init__(self, make: Maker) -> None:
        self.make = make
        self.nodes: list[onnx.NodeProto] = []
        self.feed: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.outputs: list[str] = []

    def _numbers(self, name: str) -> list[str]:
        """A scale and a zero point, int8 or uint8."""
        make, kind = self.make, self.make.rng.choice((np.int8, np.uint8))
        zero = 0 if make.chance(0.4) else make.rng.randint(*((-9, 9) if kind is np.int8 else (110, 140)))
        self.constants[f"{name}_scale"] = np.asarray(make.rng.choice(_SCALES), np.float32)
        self.constants[f"{name}_zero"] = np.asarray(zero, kind)
        return [f"{name}_scale", f"{name}_zero"]

    def _floats(self, name: str, tensor: Tensor) -> str:
        """Integers of any value for floats of the recipe, dequantised."""
        scale, zero = self._numbers(name)
        kind = self.constants[zero].dtype
        numbers = np.random.default_rng(self.make.rng.getrandbits(32))
        info = np.iinfo(kind)
        values = numbers.integers(info.min, info.max, tensor.array.shape, kind, endpoint=True)
        (self.constants if tensor.const else self.feed)[name] = values
        self.nodes.append(helper.make_node("DequantizeLinear", [name, scale, zero], [f"{name}_f"]))
        return f"{name}_f"

    def add(self, draft: Draft, index: int) -> str:
        """Returns the name of the floats behind the node."""
        names = []
        for position, x in enumerate(draft.inputs):
            name = f"x{index}_{position}"
            if isinstance(x, Tensor) and x.array.dtype == np.float32:
                names.append(self._floats(name, x))
            elif isinstance(x, Tensor):
                (self.constants if x.const else self.feed)[name] = x.array
                names.append(name)
            else:
                names.append(x or "")
        node = helper.make_node(draft.op_type, names, [f"y{index}"], f"n{index}")
        node.attribute.extend(attributes_of(draft.attributes))
        scale, zero = self._numbers(f"q{index}")
        self.nodes += [
            node,
            helper.make_node("QuantizeLinear", [f"y{index}", scale, zero], [f"q{index}"]),
            helper.make_node("DequantizeLinear", [f"q{index}", scale, zero], [f"y{index}_f"]),
        ]
        self.outputs.append(f"q{index}")
        return f"y{index}_f"

    def proto(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in self.feed.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        constants = [numpy_helper.from_array(x, name) for name, x in self.constants.items()]
        last = {name for node in self.nodes for name in node.input}
        nodes = [n for n in self.nodes if n.op_type != "DequantizeLinear" or n.output[0] in last]
        graph = helper.make_graph(nodes, "quantised", inputs, outputs, constants)
        opsets = [helper.make_opsetid("", self.make.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def generate(data: bytes) -> Model:
    """The model that ``data`` stands for: one or two nodes."""
    rng = random.Random(b"quantised " + data)
    make = Maker(rng)
    make.opset = rng.randint(_LEAST_OPSET, 24)
    writer = _Writer(make)
    for index in range(rng.choice((1, 1, 2))):
        op_type = rng.choice([m.op_type for m in all_mappings() if not m.domain and onnx.defs.has(m.op_type)])
        make.opset = max(make.opset, onnx.defs.get_schema(op_type).since_version)
        if op_type in ("QuantizeLinear", "DequantizeLinear"):
            op_type = "Relu"
        draft = recipe(op_type)(make, op_type)
        for x in draft.inputs:
            if isinstance(x, Tensor):
                x.const = make.chance(0.4)
        draft.outputs = 1
        floats = writer.add(draft, index)
        shape = _shape(writer.proto(), f"q{index}")
        make.known = {} if shape is None else {floats: shape}
    proto = writer.proto()
    words = "; ".join(described(node, writer.feed, writer.constants) for node in proto.graph.node)
    return Model(proto, writer.feed, f"opset {make.opset}: {words}")


def _shape(proto: onnx.ModelProto, name: str) -> tuple[int, ...] | None:
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError):
        return None
    for info in inferred.graph.output:
        if info.name == name and info.type.tensor_type.HasField("shape"):
            sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in info.type.tensor_type.shape.dim]
            return None if -1 in sizes else tuple(sizes)
    return None
