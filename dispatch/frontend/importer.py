# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX models as ``Graph``; no other file reads them.

Any defect of a model is a ``ModelError``. The protobuf is not modified, and is released when the import ends.
Large initializers stay where they are, in the bytes or in the mapped file: ``weights``, ``mapped``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, TypeProto, numpy_helper

from onedispatch.dispatch.base.mapped import view_file
from onedispatch.dispatch.frontend.external_data import embed, external_array
from onedispatch.dispatch.frontend.graph import (
    NO_VERSION,
    Array,
    Dimension,
    Folded,
    Graph,
    ModelMetadata,
    Node,
    Value,
    prune,
    sort_nodes,
)
from onedispatch.dispatch.frontend.local_functions import inlined
from onedispatch.dispatch.frontend.model_limits import check_model
from onedispatch.dispatch.frontend.protobuf import parsed, readable
from onedispatch.dispatch.frontend.schemas import domain_of
from onedispatch.dispatch.frontend.validity import check_valid
from onedispatch.dispatch.frontend.walk import bodies_of
from onedispatch.dispatch.frontend.weights import Values, parse_model
from onedispatch.transactions.base.errors import ModelError
from onedispatch.transactions.base.files import read_file, real_path
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.text import counted

# Any message: a ModelProto, or a GraphDef, which dispatch/tensorflow reads.
ModelLike: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | Message


def import_model(model: ModelLike) -> Graph:
    """Reads, checks and converts a model: a path, its bytes, or a ModelProto (left unchanged).

    Raises:
        ModelError: no such file, not ONNX, a broken graph, unsafe external data.
    """
    proto, folder, values = _read(model)
    check_model(proto)
    embed(proto, folder)  # a given ModelProto has no folder: its references are refused, not replaced
    if proto.functions:
        proto = inlined(proto)
    try:
        return _Importer(proto, folder, values).graph()
    except ModelError:
        raise
    except (ValueError, TypeError, KeyError, RuntimeError, MemoryError, OverflowError) as error:
        reraise_from_handler(error)
        raise ModelError("the model", f"{type(error).__name__}: {error}", "a valid ONNX model") from error


def _read(model: ModelLike) -> tuple[ModelProto, Path | None, Values]:
    """Returns the model as a proto, the folder of its external data, None if it was not a path, and values
    that the proto lacks."""
    if isinstance(model, ModelProto):
        return _whole(model, "the given ModelProto"), None, {}  # nothing below writes to it
    if isinstance(model, bytes | bytearray | memoryview):
        proto, values = _parse(bytes(model), "the given bytes")
        return proto, None, values
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        proto, values = _parse(view_file(path, "an ONNX file that can be read"), str(path))
        return proto, Path(real_path(path)).parent, values
    raise ModelError(
        "the model", f"a {type(model).__name__}", "a path, the bytes of a model, or an onnx.ModelProto"
    )


def read_proto(path: Path) -> ModelProto:
    """Returns an ONNX file as it is, weights included, but for external data. Raises ``ModelError``."""
    data = read_file(path, ModelError, "an ONNX file that can be read")
    given = f"{counted(len(data), 'byte')} that are no ONNX protobuf"
    return _whole(parsed(ModelProto(), data, str(path), given, "an ONNX model"), str(path))


def _parse(data: bytes | memoryview, where: str) -> tuple[ModelProto, Values]:
    size = counted(len(data), "byte")
    given = f"{size} that are no ONNX protobuf"
    proto, values = readable(lambda: parse_model(memoryview(data)), where, given, "an ONNX model")
    return _whole(proto, f"{where} ({size})"), values


def _whole(proto: ModelProto, where: str) -> ModelProto:
    if not proto.HasField("graph") or not proto.opset_import or proto.ir_version <= 0:
        raise ModelError(
            where,
            "a model without graph, operator set or IR version",
            "an ONNX model",
            "check that the file is complete; a GraphDef of TensorFlow is read with frontend='tensorflow'",
        )
    return proto


def read_node(proto: NodeProto, opsets: Mapping[str, int], ir_version: int) -> Node | Array:
    """Returns a node of a subgraph, checked like those of the main graph; for a Constant its value."""
    model = ModelProto(ir_version=ir_version)
    for domain, version in opsets.items():
        model.opset_import.append(onnx.helper.make_opsetid(domain, version))
    model.graph.node.append(proto)
    check_valid(model)
    importer = _Importer(model, None)
    constant = importer.constant(proto)
    return importer.node(proto, proto.name) if constant is None else constant


def read_array(tensor: TensorProto | onnx.SparseTensorProto) -> Array:
    """Returns the values of an initializer of a subgraph."""
    if isinstance(tensor, TensorProto):
        return _Importer(ModelProto(), None).array(tensor)
    return _dense(tensor)


def read_nodes(
    named: Iterable[tuple[str, bytes]], opsets: Mapping[str, int], ir_version: int
) -> tuple[Node, ...]:
    """Returns the nodes of a saved graph, given as (name, serialised ONNX node), checked like a model's.

    Raises ``ModelError`` for an invalid node.
    """
    model, names = ModelProto(ir_version=ir_version), []
    for domain, version in opsets.items():
        model.opset_import.append(onnx.helper.make_opsetid(domain, version))
    for name, data in named:
        names.append(name)
        parsed(model.graph.node.add(), data, f"node {name}", "a damaged node", "an ONNX node")
    check_model(model)
    check_valid(model)
    importer = _Importer(model, None)
    return tuple(importer.node(proto, name) for name, proto in zip(names, model.graph.node, strict=True))


class _Importer:
    """One import; ``proto`` is not modified. Of its initializers, ``values`` are elsewhere."""

    def __init__(self, proto: ModelProto, folder: Path | None, values: Values | None = None) -> None:
        self.proto = proto
        self.folder = folder
        self.values = values or {}
        self.constants: dict[str, Array] = {}
        self.folded: list[Folded] = []
        self.order: list[str] = []

    def graph(self) -> Graph:
        """Converts and checks the whole model."""
        source = self.proto.graph
        self._take_initializers()
        check_valid(self.proto)
        inputs = [value_of(v) for v in source.input if v.name not in self.constants]
        outputs = [value_of(v) for v in source.output]
        nodes = self._nodes(source.node)
        known = [*(v.name for v in inputs), *self.constants]
        _unique((v.name for v in inputs), "graph inputs")
        _unique((v.name for v in outputs), "graph outputs")
        nodes_sorted = sort_nodes(nodes, known)
        defined = set(known).union(*(node.writes for node in nodes_sorted))
        for value in outputs:
            if value.name not in defined:
                raise ModelError(f"graph output {value.name!r}", "a name that nothing defines")
        values = {v.name: v for v in (value_of(p) for p in source.value_info)}
        values.update({v.name: v for v in (*inputs, *outputs)})
        opsets = {domain_of(o.domain): int(o.version) for o in self.proto.opset_import}
        graph = Graph(
            source.name or "model",
            nodes_sorted,
            tuple(inputs),
            tuple(outputs),
            self.constants,
            values,
            opsets,
            int(self.proto.ir_version),
            tuple(self.folded),
            tuple(self.order),
            annotations=_annotations(source),
            metadata=_metadata(self.proto),
        )
        return prune(graph.with_nodes(graph.nodes))

    def _take_initializers(self) -> None:
        """Reads the initializers, which IR versions below 4 also list as inputs."""
        source = self.proto.graph
        for number, tensor in enumerate(source.initializer):
            if not tensor.name or tensor.name in self.constants:
                raise ModelError("an initializer", f"the name {tensor.name!r}", "a unique name")
            self.constants[tensor.name] = self.array(tensor, self.values.get(number))
        for sparse in source.sparse_initializer:
            self.constants[sparse.values.name] = _dense(sparse)

    def array(self, tensor: TensorProto, raw: memoryview | None = None) -> Array:
        """Returns the values of a tensor, read-only. ``raw``: they are these."""
        try:
            if raw is not None:
                dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
                array = np.frombuffer(raw, dtype).reshape(tuple(tensor.dims))
            elif tensor.data_location == TensorProto.EXTERNAL:
                array = external_array(tensor, self.folder)
            else:
                array = numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError) as error:
            reraise_from_handler(error)
            raise ModelError(
                f"tensor {tensor.name!r}", str(error), "a tensor whose data fits its shape"
            ) from error
        if array.flags.writeable:
            array.flags.writeable = False
        return array

    def _nodes(self, protos: Iterable[NodeProto]) -> list[Node]:
        nodes = []
        protos = list(protos)
        for name, proto in zip(node_names(protos), protos, strict=True):
            self.order.append(name)
            constant = self.constant(proto)
            if constant is None:
                nodes.append(self.node(proto, name))
            else:
                self.constants[proto.output[0]] = constant
                self.folded.append(Folded(name, "Constant", "a constant of the model"))
        return nodes

    def constant(self, proto: NodeProto) -> Array | None:
        """Returns the value of a Constant node, dense if it is sparse; None for other nodes."""
        if proto.op_type != "Constant" or domain_of(proto.domain):
            return None
        if not proto.attribute:
            raise ModelError(f"node {proto.name or proto.output[:1]} (Constant)", "no value", "one attribute")
        attribute = proto.attribute[0]
        match attribute.name:
            case "value":
                return self.array(attribute.t)
            case "sparse_value":
                return _dense(attribute.sparse_tensor)
            case "value_float":
                return np.asarray(attribute.f, np.float32)
            case "value_int":
                return np.asarray(attribute.i, np.int64)
            case "value_floats":
                return np.asarray(attribute.floats, np.float32)
            case "value_ints":
                return np.asarray(attribute.ints, np.int64)
            case "value_string":
                return np.asarray(attribute.s.decode(), np.object_)
            case "value_strings":
                return np.asarray([s.decode() for s in attribute.strings], np.object_)
        return None

    def node(self, proto: NodeProto, name: str) -> Node:
        """Converts a node, under the given name."""
        graphs = [a for a in proto.attribute if a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS)]
        captured = dict.fromkeys(n for a in graphs for g in (a.g, *a.graphs) for n in _captures(g))
        return Node(
            name,
            proto.op_type,
            domain_of(proto.domain),
            tuple(proto.input),
            tuple(proto.output),
            {a.name: self._attribute(a) for a in proto.attribute if a not in graphs},
            tuple(captured),
            bool(graphs),
            _foreign(graphs),
            proto.SerializeToString(),
        )

    def _attribute(self, proto: AttributeProto) -> Any:
        match proto.type:
            case AttributeProto.TENSOR:
                return self.array(proto.t)
            case AttributeProto.STRING:
                return proto.s.decode("utf-8", "replace")
            case AttributeProto.STRINGS:
                return [s.decode("utf-8", "replace") for s in proto.strings]
            case AttributeProto.TENSORS:
                return [self.array(t) for t in proto.tensors]
        value = onnx.helper.get_attribute_value(proto)
        return list(value) if isinstance(value, list | tuple) else value


def _foreign(attributes: Iterable[AttributeProto]) -> tuple[tuple[str, str], ...]:
    """Returns the operators of other domains than ONNX's in subgraphs."""
    graphs = [graph for a in attributes for graph in (a.g, *a.graphs)]
    nodes = (node for body, _ in bodies_of(graphs) for node in body.node)
    return tuple(dict.fromkeys((domain_of(n.domain), n.op_type) for n in nodes if domain_of(n.domain)))


def _metadata(model: ModelProto) -> ModelMetadata:
    """Returns what the model says of itself; of equal keys the last one counts."""
    return ModelMetadata(
        model.producer_name,
        model.graph.name,
        model.domain,
        model.doc_string,
        model.graph.doc_string,
        int(model.model_version) if model.HasField("model_version") else NO_VERSION,
        {one.key: one.value for one in model.metadata_props},
    )


def _annotations(graph: onnx.GraphProto) -> dict[str, tuple[str, str]]:
    """Returns the names of scale and zero point of each tensor that is annotated with a scale."""
    found = {}
    for annotation in graph.quantization_annotation:
        said = {entry.key: entry.value for entry in annotation.quant_parameter_tensor_names}
        if "SCALE_TENSOR" in said:
            found[annotation.tensor_name] = (said["SCALE_TENSOR"], said.get("ZERO_POINT_TENSOR", ""))
    return found


def node_names(protos: Iterable[NodeProto]) -> list[str]:
    """Returns the names that a graph's nodes have with us: their own, where these are distinct."""
    names: list[str] = []
    used: set[str] = set()
    for index, proto in enumerate(protos):
        name = proto.name or f"{proto.op_type}_{index}"
        names.append(f"{name}#{index}" if name in used else name)
        used.add(names[-1])
    return names


def _unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not name or name in seen:
            raise ModelError(what, f"the name {name!r} twice or empty", "distinct names")
        seen.add(name)


def _captures(graph: onnx.GraphProto) -> list[str]:
    """Returns the outer values that a subgraph reads."""
    local = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    local |= {t.values.name for t in graph.sparse_initializer}
    found: list[str] = []
    for node in graph.node:
        found += [name for name in node.input if name and name not in local]
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                found += [name for name in _captures(inner) if name not in local]
        local.update(node.output)
    found += [v.name for v in graph.output if v.name not in local]
    return found


def _dense(sparse: onnx.SparseTensorProto) -> Array:
    """Returns a sparse tensor as a dense array. Raises ``ModelError`` for bad indices."""
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    shape = tuple(sparse.dims)
    flat = indices.ndim == 1
    columns = [indices] if flat else list(indices.T)
    bounds = [prod(shape)] if flat else list(shape)
    fits = indices.dtype == np.int64 and values.shape == indices.shape[:1] and len(columns) == len(bounds)
    if not fits or not all(np.all((c >= 0) & (c < n)) for c, n in zip(columns, bounds, strict=True)):
        raise ModelError(
            f"sparse tensor {sparse.values.name!r}",
            f"values of shape {list(values.shape)}, {indices.dtype} indices of {list(indices.shape)}",
            f"for each value an int64 index within {list(shape)}",
        )
    array = np.zeros(shape, values.dtype)
    array[np.unravel_index(columns[0], shape) if flat else tuple(columns)] = values
    return array


def value_of(info: onnx.ValueInfoProto) -> Value:
    """Returns a declared value: its type in ONNX Runtime's spelling, its shape with unknown dimensions."""
    kind = info.type
    return Value(info.name, type_text(kind), _shape(kind))


def _shape(kind: TypeProto) -> tuple[Dimension, ...] | None:
    holder = kind.sparse_tensor_type if kind.HasField("sparse_tensor_type") else kind.tensor_type
    if not (kind.HasField("tensor_type") or kind.HasField("sparse_tensor_type")):
        return None
    if not holder.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else (d.dim_param or None)
        for d in holder.shape.dim
    )


def type_text(kind: TypeProto) -> str:
    """Returns a type as text: ``tensor(float)``, ``seq(tensor(int64))``, ``map(int64,tensor(float))``."""
    which = kind.WhichOneof("value")
    if which == "tensor_type" and kind.tensor_type.elem_type == TensorProto.UNDEFINED:
        return ""  # a tensor whose element type inference finds
    if which == "tensor_type":
        return f"tensor({_element(kind.tensor_type.elem_type)})"
    if which == "sparse_tensor_type":
        return f"sparse_tensor({_element(kind.sparse_tensor_type.elem_type)})"
    if which == "sequence_type":
        return f"seq({type_text(kind.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({type_text(kind.optional_type.elem_type)})"
    if which == "map_type":
        key = _element(kind.map_type.key_type)
        return f"map({key},{type_text(kind.map_type.value_type)})"
    return ""


def _element(number: int) -> str:
    try:
        return str(TensorProto.DataType.Name(number)).lower()
    except ValueError as error:
        raise ModelError("a tensor type", f"element type {number}", "one that ONNX has") from error
