# SPDX-License-Identifier: Apache-2.0
"""What is known of the tensors of a graph while it is translated: types, shapes, constants, sizes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import onnx
from onnx import helper
from onnx.defs import OpSchema

from onedispatch.dispatch.frontend.exporter import type_proto
from onedispatch.dispatch.frontend.graph import Array, Graph, Value, type_name_of
from onedispatch.dispatch.frontend.importer import value_of
from onedispatch.dispatch.sources.elements import LIMIT, Elements, elements_of, shape_from
from onedispatch.dispatch.sources.targets import OPSET

_ERRORS = (
    *(onnx.shape_inference.InferenceError, onnx.checker.ValidationError),
    *(RuntimeError, ValueError, TypeError, KeyError),
)
_SMALL = 1024  # elements of numbers up to which a constant takes part in shape inference


@dataclass
class Tensors:
    """Tensors by name; ``same`` has results that are another value under their own name."""

    graph: Graph
    opsets: dict[str, int] = field(init=False)
    values: dict[str, Value] = field(init=False)
    constants: dict[str, Array] = field(init=False)
    same: dict[str, str] = field(default_factory=dict)
    _elements: dict[str, Elements] = field(default_factory=dict)  # of what is computed from shapes

    def __post_init__(self) -> None:
        self.opsets = {"": OPSET, **self.graph.opsets}
        self.values = {value.name: value for value in self.graph.inputs}
        self.constants = dict(self.graph.constants)

    def resolved(self, name: str) -> str:
        """Returns the value that a name stands for."""
        while name in self.same:
            name = self.same[name]
        return name

    def value(self, name: str) -> Value:
        """Returns type and shape of a tensor, as far as they are known."""
        name = self.resolved(name)
        array = self.constants.get(name)
        if array is not None:
            return Value(name, type_name_of(array.dtype), array.shape)
        return self.values.get(name) or self.graph.value(name)

    def constant(self, name: str) -> Array | None:
        """Returns the values of a constant, and of what is computed from sizes that are all known."""
        name = self.resolved(name)
        found, dtype = self._elements.get(name), self.value(name).dtype
        if found is None or dtype is None or None in found.ravel().tolist():
            return self.constants.get(name)
        return found.astype(dtype)

    def elements(self, name: str) -> Elements | None:
        """Returns whole numbers one by one, None where one is unknown; None of tensors without any."""
        name = self.resolved(name)
        array = self.constants.get(name)
        if array is None:
            return self._elements.get(name)
        return array.astype(object) if array.dtype.kind in "iub" and array.size <= LIMIT else None

    def infer(self, schema: object, proto: onnx.NodeProto) -> None:
        """Notes what is known of the results of a node; of operators that ONNX has by their ``schema``."""
        for name in proto.output:
            known = self.graph.values.get(name)
            self.values.setdefault(name, known if known is not None else Value(name))
        if isinstance(schema, OpSchema) and not all(self.values[name].is_concrete for name in proto.output):
            self._by_onnx(schema, proto)
        self._follow_sizes(proto)

    def _by_onnx(self, schema: OpSchema, proto: onnx.NodeProto) -> None:
        types, data = {}, {}
        for name in proto.input:
            value = self.value(name)
            if name and not value.type:
                return
            if name:
                types[name] = type_proto(value.type, value.shape)
                array = self.constant(name)
                if array is not None and array.dtype.kind in "iuf" and array.size <= _SMALL:
                    data[name] = onnx.numpy_helper.from_array(array, name)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema, proto, types, data, opset_imports=opsets, ir_version=self.graph.ir_version
            )
        except _ERRORS:
            return  # what is wrong with the node is said when it is checked with all shapes
        for name, kind in found.items():
            info = onnx.ValueInfoProto(name=name)
            info.type.CopyFrom(kind)
            self.values[name] = value_of(info)

    def _follow_sizes(self, proto: onnx.NodeProto) -> None:
        """Notes what is known of numbers that a node computes from shapes, and of a shape that these are."""
        if not proto.output or not proto.input:
            return
        made = self.values[proto.output[0]]
        given = [self.elements(name) if name else None for name in proto.input]
        found = elements_of(proto, given, [self.value(name).shape for name in proto.input])
        if found is not None and made.dtype is not None and made.dtype.kind in "iu":
            self._elements[made.name] = found
        shape = shape_from(proto, given, self.value(proto.input[0]).shape)
        if shape is not None and not made.is_concrete:
            self.values[made.name] = replace(made, shape=tuple(shape))
