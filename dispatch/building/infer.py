# SPDX-License-Identifier: Apache-2.0
"""Types and shapes of the results of one node, as the compiler infers them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol

import onnx
from onnx import NodeProto, helper, numpy_helper

from onedispatch.dispatch.compiler import mapping_functions
from onedispatch.dispatch.compiler.custom import CustomNodes, is_onnx_domain
from onedispatch.dispatch.compiler.evaluate import asks_shape, evaluate, may_evaluate
from onedispatch.dispatch.frontend.exporter import infer_values
from onedispatch.dispatch.frontend.graph import Array, Graph, Value
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.frontend.validity import check_nodes
from onedispatch.operators.declarations.registry import custom_mapping, mapping_for
from onedispatch.operators.declarations.statuses import KernelNonStaticInputError
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import ModelError

_SMALL = 1024  # elements of constants whose values shapes may follow from
_PREFIX = re.compile(r"^.*\[\w+Error\] (\(op_type:[^)]*\): )?")


class Operand(Protocol):
    """What is known of an input: ``value`` of a constant."""

    name: str
    known: Value
    value: Array | None


@dataclass(frozen=True)
class Results:
    """What is known of the results of a node by name: types and shapes, and elements of small ones.

    ``count``: how many its mapping infers, 0 where that says nothing.
    """

    values: Mapping[str, Value]
    elements: Mapping[str, Array]
    count: int = 0


def inferred(node: NodeProto, operands: Sequence[Any], opsets: Mapping[str, int], device: Device) -> Results:
    """What is known of the results of ``node``.

    Raises ``ModelError`` for a node that ONNX does not allow, ``KernelError`` for one that its layer refuses.
    """
    unique = {one.name: one for one in operands}
    values = {name: one.value for name, one in unique.items() if one.value is not None}
    small = {name: array for name, array in values.items() if array.size <= _SMALL}
    inputs = [_info(one.known) for name, one in unique.items() if name not in small]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    tensors = [numpy_helper.from_array(array, name) for name, array in small.items()]
    graph = helper.make_graph([node], "one layer", inputs, outputs, tensors)
    imports = [helper.make_opsetid(*one) for one in opsets.items()]
    with _naming(node, [one.known for one in operands]):
        read = import_model(helper.make_model(graph, opset_imports=imports, ir_version=10))
        own = CustomNodes(read, device)
        found = infer_values(read, {value.name: value for value in read.inputs}, {}, own=own)
        read = replace(read, values={**read.values, **found})
        check_nodes(read, read.nodes)
    try:
        own.raise_refused(read)
        _instantiate(own, read)
    except KernelNonStaticInputError:
        if all(one.value is not None for one in operands):
            raise
    named = {size for one in operands for size in one.known.shape or () if isinstance(size, str)}
    results = {name: _without_made_up(read.value(name), named) for name in node.output}
    return Results(results, _elements(read), _count(own, read))


@contextmanager
def _naming(node: NodeProto, reads: Sequence[Value]) -> Iterator[None]:
    """Names the node, and what it reads, in errors of ONNX's inference, which have neither."""
    try:
        yield
    except ModelError as error:
        if node.name in error.where:
            raise
        text = _PREFIX.sub("", " ".join(error.given.split()))
        given = f"({', '.join(map(str, reads))}): {text}"
        raise ModelError(f"node {node.name} ({node.op_type})", given, error.accepted, error.remedy) from error


def _count(own: CustomNodes, read: Graph) -> int:
    """How many results a mapping function infers of the node."""
    for node in read.nodes:
        mapping = mapping_for(node.domain, node.op_type)
        values = [read.value(name) if name else None for name in node.inputs]
        known = all(value is None or value.is_concrete for value in values)
        if mapping is not None and mapping.origin and mapping.infer is not None and known:
            with suppress(Unsupported):
                return len(mapping_functions.inferred(mapping, own.spec(node, values, (), read.constants)))
    return 0


def _instantiate(own: CustomNodes, read: Graph) -> None:
    """Has a custom kernel check all of its node, attributes that it does not have among them."""
    for node in read.nodes:
        mapping = custom_mapping(node)
        values = [read.value(name) if name else None for name in node.inputs]
        if mapping is None or any(value is not None and not value.is_concrete for value in values):
            continue
        if mapping.plugin.parameter_names is not None:
            continue  # a layer: what it knows by name is checked, and its sizes may be those of a run
        spec = own.spec(node, values, (), read.constants)
        mapping.plugin.instantiate(mapping.node(spec, own.device))


def _without_made_up(value: Value, named: Set[str]) -> Value:
    """Without the names that ONNX's inference gives to sizes that it does not know."""
    shape = value.shape and tuple(
        one if isinstance(one, int) or one in named else None for one in value.shape
    )
    return replace(value, shape=shape)


def _elements(read: Graph) -> dict[str, Array]:
    """The elements of small results that do not depend on a run: shapes of later nodes follow from them."""
    known = {name: array for name, array in read.constants.items() if name in read.output_names}
    for node in read.nodes:
        results = [read.value(name) for name in node.writes]
        small = all(value.is_concrete and prod(value.concrete_shape) <= _SMALL for value in results)
        given = read.constants.keys() >= set(node.reads)
        given = given or (asks_shape(node) and read.value(node.inputs[0]).is_concrete)
        if small and given and may_evaluate(node) and is_onnx_domain(node.domain):
            known |= evaluate(read, [node], read.constants, frozenset(node.writes))[0]
    return known


def _info(value: Value) -> onnx.ValueInfoProto:
    if value.dtype is None:
        return onnx.ValueInfoProto(name=value.name)
    return helper.make_tensor_value_info(
        value.name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
    )
