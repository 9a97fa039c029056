# SPDX-License-Identifier: Apache-2.0
"""What is known of the tensors of a graph while it is translated: types, shapes, constants, sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import onnx
from onnx import helper
from onnx.defs import OpSchema

from onedispatch.dispatch.frontend.exporter import type_proto
from onedispatch.dispatch.frontend.graph import Array, Dimension, Graph, Value, type_name_of
from onedispatch.dispatch.frontend.importer import value_of
from onedispatch.dispatch.sources.elements import LIMIT, Elements, elements_of, shape_from
from onedispatch.dispatch.sources.targets import OPSET
from onedispatch.operators.declarations.registry import mapping_for
from onedispatch.operators.interface.operator import NodeSpec, TensorSpec, Unsupported

_ERRORS = (
    *(onnx.shape_inference.InferenceError, onnx.checker.ValidationError),
    *(RuntimeError, ValueError, TypeError, KeyError),
)
Shape = tuple[Dimension, ...] | None
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
        if schema is not None and not all(self.values[name].is_concrete for name in proto.output):
            if isinstance(schema, OpSchema):
                self._by_onnx(schema, proto)
            else:
                self._by_runtime(schema, proto)
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

    def _by_runtime(self, schema: Any, proto: onnx.NodeProto) -> None:
        """Of an operator of onnxruntime: types by its schema, shapes as its mapping has them."""
        given = [self.value(name) if name else None for name in proto.input]
        types = {
            formal.typeStr: one.type
            for formal, one in zip(schema.inputs, given, strict=False)
            if one is not None and one.type
        }
        shapes = _shapes_by_mapping(proto, given)
        for name, formal, shape in zip_longest(proto.output, schema.outputs[: len(proto.output)], shapes):
            if not name or formal is None:
                continue
            known = self.values[name]
            declared = formal.typeStr if formal.typeStr.startswith("tensor(") else ""
            kind = known.type or types.get(formal.typeStr, declared)
            self.values[name] = Value(name, kind, shape if known.shape is None else known.shape)

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


def _shapes_by_mapping(proto: onnx.NodeProto, given: Sequence[Value | None]) -> list[Shape]:
    """Shapes of results, as a mapping's ``like`` or ``infer`` has them; where sizes are open, ranks."""
    mapping = mapping_for(proto.domain, proto.op_type)
    like = 0 if not proto.domain else -1 if mapping is None else mapping.like  # ONNX's: normalisations
    if 0 <= like < len(given):
        one = given[like]
        return [None if one is None else one.shape]
    if mapping is None or mapping.infer is None:
        return []
    if not all(one is None or (one.dtype is not None and one.shape is not None) for one in given):
        return []
    attributes = {one.name: helper.get_attribute_value(one) for one in proto.attribute}
    found = list[tuple[list[tuple[int, ...]], dict[int, Dimension]]]()
    for first in _FIRST_SIZES:  # sizes that are open are any: what follows from them differs
        sizes = _Sizes(first)
        inputs = [None if one is None else sizes.spec(one) for one in given]
        results: list[TensorSpec | None] = [None] * len(proto.output)
        node = NodeSpec(proto.name, proto.op_type, proto.domain, 1, inputs, results, attributes)
        try:
            made = mapping.infer(node)
        except (Unsupported, ValueError, TypeError, IndexError, KeyError):
            return []  # the node is refused when it is mapped
        found.append(([shape for _, shape in made], sizes.names))
    (ones, names), (others, again) = found
    return [
        tuple(
            a if a == b else names[a] if a in names and names[a] == again.get(b) else None
            for a, b in zip(one, other, strict=True)
        )
        for one, other in zip(ones, others, strict=True)
    ]


_FIRST_SIZES = (10_007, 20_011)  # no size of a model: open sizes are these and the next ones


class _Sizes:
    """Numbers in place of open sizes: one for each symbol, and for each that has no name."""

    def __init__(self, first: int) -> None:
        self.next, self.names = first, dict[int, Dimension]()
        self._of = dict[str, int]()

    def spec(self, value: Value) -> TensorSpec:
        assert value.dtype is not None and value.shape is not None
        return TensorSpec(value.name, value.dtype, tuple(map(self._number, value.shape)))

    def _number(self, size: Dimension) -> int:
        if isinstance(size, int):
            return size
        if size not in self._of:
            self.names[self.next] = size
            self._of[size or f"//{self.next}"] = self.next
            self.next += 1
        return self._of[size] if size else self.next - 1
