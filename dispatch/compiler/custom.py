# SPDX-License-Identifier: Apache-2.0
"""Nodes of other domains than ONNX's: their shapes and types, and the casts that they need.

ONNX has no schema for them, so their kernel is asked: its ``infer``, or else what the model declares of
their outputs; of what we map ourselves, the row in the table of mappings; of onnxruntime's own operators,
some of which are in ONNX's domain, onnxruntime. Where a kernel lacks an element
type, ``cast_policy="f32"`` has it compute in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import onnx

from onedispatch.dispatch.compiler.mapping_functions import inferred
from onedispatch.dispatch.compiler.options import CastPolicy
from onedispatch.dispatch.compiler.quantised import Source, quantisation, sources
from onedispatch.dispatch.frontend.exporter import cast_node, rewired
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value, type_name_of
from onedispatch.dispatch.frontend.schemas import onnx_schema, runtime_has, runtime_schema
from onedispatch.dispatch.frontend.validity import check_nodes
from onedispatch.dispatch.host.inference import inferred_by_runtime
from onedispatch.dispatch.sources.host import implementation
from onedispatch.operators.declarations import registry
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.dtypes import dtype_of as row_of
from onedispatch.operators.declarations.kernel import Kernel, Tensor
from onedispatch.operators.declarations.registry import custom_mapping
from onedispatch.operators.declarations.statuses import KernelTimeoutError
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions import Device
from onedispatch.transactions.base.boundary import attributed_to
from onedispatch.transactions.base.errors import KernelError, ModelError

_F32 = DTYPES["f32"]
_LARGEST = 1 << 24  # up to here f32 holds every whole number


@cache
def _onnx_domains() -> frozenset[str]:
    return frozenset(domain for domain, _ in onnx.helper.OP_SET_ID_VERSION_MAP) | {""}


def _refused(status: str, node: Node, what: str, given: str, accepted: str, remedy: str) -> KernelError:
    where = f"node {node.name} ({node.domain}.{node.op_type}): {what}"
    return refusal(status, where, given, accepted, remedy, node=node.name)


@dataclass(frozen=True)
class _Casts:
    """Inputs of a node, by position, that are cast to f32; its f32 outputs go back to ``dtype``."""

    inputs: tuple[int, ...]
    dtype: np.dtype[Any]
    outputs: tuple[int, ...]


@dataclass
class CustomNodes:
    """The ``OwnInference`` of a graph on a device; ``declared`` is what the model says of its values."""

    graph: Graph
    device: Device
    policy: CastPolicy = "error"
    declared: Mapping[str, Value] = field(init=False)
    _said: Mapping[str, Source] = field(init=False)
    _casts: dict[str, _Casts] = field(default_factory=dict)  # by node
    _refused: dict[str, KernelError] = field(default_factory=dict)  # by node
    _by_runtime: dict[tuple[str, tuple[Value, ...]], dict[str, Value]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.declared = dict(self.graph.values)
        self._said = sources(self.graph)

    # -- inference ---------------------------------------------------------------------------

    def takes(self, node: Node) -> bool:
        opset = self.graph.opset_of(node)
        if onnx_schema(node.op_type, node.domain, opset) is not None:
            return False
        mapping = registry.mapping_for(node.domain, node.op_type)
        if mapping is not None or implementation(node.domain, node.op_type) is not None:
            return True
        return runtime_schema(node.op_type, node.domain, opset) is not None

    def infer(self, node: Node, known: Callable[[str], Value], constants: Mapping[str, Array]) -> list[Value]:
        """Types and shapes of the outputs; their types alone where those of an input are not known yet.

        What the kernel refuses may be right once more of the graph is folded: it is kept for ``inserted``.
        """
        self._refused.pop(node.name, None)
        self._casts.pop(node.name, None)
        try:
            return self._inferred(node, known, constants)
        except KernelTimeoutError:
            raise
        except KernelError as error:
            host = implementation(node.domain, node.op_type)
            if host is not None:  # strict mode refuses the node when it is mapped
                return host.outputs(node, self.graph, known)
            self._refused[node.name] = error
            return self._types(node, known)

    def _types(self, node: Node, known: Callable[[str], Value]) -> list[Value]:
        """What the model says, or else the kernel's declaration: one type, or that of an input."""
        kernel = custom_mapping(node).plugin.kernel
        inputs = dict(zip((one.name for one in kernel.inputs), node.inputs, strict=False))
        found = []
        for name, one in zip(node.outputs, kernel.outputs, strict=False):
            kind = self.declared.get(name, Value(name)).type
            if not kind and one.like in inputs:
                kind = known(inputs[one.like]).type
            elif not kind and len(one.dtype_names) == 1:
                kind = type_name_of(DTYPES[one.dtypes].numpy)
            found += [Value(name, kind)] if name else []
        return found

    def _inferred(
        self, node: Node, known: Callable[[str], Value], constants: Mapping[str, Array]
    ) -> list[Value]:
        inputs = [known(name) if name else None for name in node.inputs]
        sizes = self._named_sizes(known)
        outputs = [_resolved(self.declared.get(name, Value(name)), sizes) for name in node.outputs]
        if custom_mapping(node) is None:  # the mapping says it, or onnxruntime, or the model
            mapped = self._as_mapped(node, inputs, outputs, constants) or _as_input(node, inputs)
            _check_types(node, mapped, {value.name: value for value in outputs})
            host = implementation(node.domain, node.op_type)
            if not mapped and host is not None:
                found = host.outputs(node, self.graph, known)
                return found or [value for value in outputs if value.name]
            return mapped or self._as_runtime(node, inputs, outputs, constants)
        if any(value is not None and not value.is_concrete for value in inputs):
            return self._types(node, known)
        mapping = custom_mapping(node)
        kernel = mapping.plugin.kernel
        spec = self.spec(node, inputs, outputs, constants)
        casts = self._needed(kernel, node, spec)
        made = infer_outputs(mapping, _cast(spec, casts), self.device, node)
        self._check_dynamic(mapping, node, spec)
        found = []
        for index, (declared, (dtype, shape)) in enumerate(zip(outputs, made, strict=False)):
            if not declared.name:
                continue
            if casts and dtype == "f32" and declared.dtype != _F32.numpy:
                casts = replace(casts, outputs=(*casts.outputs, index))
                dtype = type_name_of(casts.dtype)
            else:
                dtype = type_name_of(DTYPES[dtype].numpy)
            value = Value(declared.name, dtype, tuple(shape))
            stated = self.declared.get(declared.name, declared)
            _check_declared(node, kernel.name, value, stated)
            found.append(value)
        if casts:
            self._casts[node.name] = casts
        return found

    def _check_dynamic(self, mapping: Any, node: Node, spec: NodeSpec) -> None:
        """Raises ``KernelDynamicShapeError`` for rows or columns that the model leaves open, where the layer
        takes none."""
        for name in node.reads:
            value = self.declared.get(name)
            open_sizes = [size for size in ((value and value.shape) or ())[-2:] if not isinstance(size, int)]
            if open_sizes and not mapping.plugin.takes_dynamic(mapping.node(spec, self.device)):
                given = f"{value}, with sizes that are open"
                accepted = "fixed sizes in the last two dimensions: can_h_w_dynamic is False"
                raise _refused("dynamic_shape", node, f"input {name}", given, accepted, "")

    def _named_sizes(self, known: Callable[[str], Value]) -> dict[str, int]:
        """Dimensions by name, as the model's inputs have them; those with several sizes are left out."""
        found: dict[str, set[int]] = {}
        for value in self.graph.inputs:
            for name, size in zip(value.shape or (), known(value.name).shape or (), strict=False):
                if isinstance(name, str) and isinstance(size, int):
                    found.setdefault(name, set()).add(size)
        return {name: sizes.pop() for name, sizes in found.items() if len(sizes) == 1}

    def _as_mapped(
        self,
        node: Node,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        constants: Mapping[str, Array],
    ) -> list[Value]:
        """The outputs as the mapping infers them; nothing where it does not, knows too little yet, or
        refuses the node, as it will say itself.

        Raises ``ModelError`` for a node that breaks the rules, of which nothing could be inferred.
        """
        mapping = registry.mapping_for(node.domain, node.op_type)
        if mapping is None or mapping.infer is None:
            return []
        if any(value is not None and not value.is_concrete for value in inputs):
            return []
        known = {value.name: value for value in inputs if value is not None}
        check_nodes(replace(self.graph, values={**self.graph.values, **known}), [node])
        try:
            spec = self.spec(node, inputs, outputs, constants)
            made = inferred(mapping, spec)
        except Unsupported:
            return []
        return [
            Value(name, type_name_of(dtype), shape)
            for name, (dtype, shape) in zip(node.outputs, made, strict=False)
            if name
        ]

    def _as_runtime(
        self,
        node: Node,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        constants: Mapping[str, Array],
    ) -> list[Value]:
        """The outputs as onnxruntime infers them; what it leaves open is as the model declares it."""
        given = {value.name: value for value in inputs if value is not None}
        key = node.name, tuple(given.values())
        if key not in self._by_runtime:
            self._by_runtime[key] = inferred_by_runtime(self.graph, node, given, constants)
        found = self._by_runtime[key]
        return [_completed(found.get(value.name, value), value) for value in outputs if value.name]

    def spec(
        self,
        node: Node,
        inputs: Iterable[Value | None],
        outputs: Iterable[Value],
        constants: Mapping[str, Array],
    ) -> NodeSpec:
        tensors = [None if value is None else self._tensor(value, constants) for value in inputs]
        known = [self._tensor(v, constants) if v.name and v.is_concrete else None for v in outputs]
        opset = self.graph.opset_of(node)
        return NodeSpec(node.name, node.op_type, node.domain, opset, tensors, known, node.attributes)

    def _tensor(self, value: Value, constants: Mapping[str, Array]) -> TensorSpec:
        dtype = value.dtype
        assert dtype is not None  # concrete values have one
        said = self._said.get(value.name)
        quantised = None if said is None else quantisation(value, constants, *said)
        return TensorSpec(value.name, dtype, value.concrete_shape, constants.get(value.name), quantised)

    # -- casts -------------------------------------------------------------------------------

    def _needed(self, kernel: Kernel, node: Node, spec: NodeSpec) -> _Casts | None:
        """The casts that make the kernel's element types do. Raises ``KernelDtypeError`` where f32 would
        not hold what an input may be."""
        if self.policy != "f32":
            return None
        operands = list(zip(kernel.inputs, spec.inputs, strict=False))
        lacking = {one.name for one, tensor in operands if tensor and not _takes(one, tensor.dtype)}
        groups = {_group(kernel, name) for name in lacking}
        chosen = tuple(
            i
            for i, (one, tensor) in enumerate(operands)
            if tensor is not None
            and tensor.dtype != _F32.numpy
            and _group(kernel, one.name) in groups
            and "f32" in one.dtype_names
        )
        for i in chosen:
            _check_held(node, spec.inputs[i])
        if not chosen:
            return None
        first = spec.inputs[chosen[0]]
        assert first is not None
        return _Casts(chosen, first.dtype, ())

    def raise_refused(self, graph: Graph) -> None:
        """Raises what a kernel of ``graph`` refused when it was asked for its results."""
        for node in graph.nodes:
            if node.name in self._refused:
                raise self._refused[node.name]

    def inserted(self, graph: Graph) -> Graph:
        """``graph`` with the casts that ``infer`` found to be needed; ``inserted`` of it names them.

        Raises ``KernelError`` where a kernel refuses its node, or says otherwise than the model.
        """
        self.raise_refused(graph)
        if not self._casts:
            return graph
        nodes: list[Node] = []
        new = _Insertion(dict(graph.values), dict(graph.constants), {})
        order: list[str] = []
        around: dict[str, list[str]] = {}
        for node in graph.nodes:
            casts = self._casts.get(node.name)
            pieces = [node] if casts is None else new.around(graph, node, casts)
            nodes += pieces
            around[node.name] = [piece.name for piece in pieces]
        for name in graph.order:
            order += around.get(name, [name])
        opsets = {"": onnx.defs.onnx_opset_version(), **graph.opsets}
        changed = replace(graph, values=new.values, order=tuple(order), opsets=opsets, inserted=new.why)
        return changed.with_nodes(nodes, constants=new.constants)


@dataclass
class _Insertion:
    """What casts add to a graph."""

    values: dict[str, Value]
    constants: dict[str, Array]
    why: dict[str, str]

    def around(self, graph: Graph, node: Node, casts: _Casts) -> list[Node]:
        """Casts of inputs, the node between other edges, casts of outputs."""
        before: list[Node] = []
        after: list[Node] = []
        inputs, outputs = list(node.inputs), list(node.outputs)
        for i in casts.inputs:
            inputs[i] = f"{node.name}//{node.inputs[i]} as f32"
            value = graph.value(node.inputs[i])
            self._tell(inputs[i], "tensor(float)", value)
            constant = graph.constants.get(node.inputs[i])
            if constant is not None:
                self.constants[inputs[i]] = constant.astype(np.float32)
            elif all(cast.outputs[0] != inputs[i] for cast in before):
                before.append(self._cast(node, node.inputs[i], inputs[i], _F32.numpy, value.type))
        for i in casts.outputs:
            outputs[i] = f"{node.name}//{node.outputs[i]} as f32"
            self._tell(outputs[i], "tensor(float)", graph.value(node.outputs[i]))
            after.append(self._cast(node, outputs[i], node.outputs[i], casts.dtype, "tensor(float)"))
        return [*before, rewired(node, inputs, outputs), *after]

    def _tell(self, name: str, kind: str, like: Value) -> None:
        self.values[name] = Value(name, kind, like.shape)

    def _cast(self, node: Node, source: str, target: str, dtype: np.dtype[Any], given: str) -> Node:
        name = f"{node.name}//Cast {target if dtype == _F32.numpy else source}"
        to = type_name_of(dtype)
        self.why[name] = f"inserted by cast_policy='f32' for {node.name}: {given} to {to}"
        return cast_node(name, source, target, dtype)


def infer_outputs(
    mapping: Any, spec: NodeSpec, device: Device, node: Node
) -> list[tuple[str, tuple[int, ...]]]:
    """(element type, shape) of each output that the kernel declares, as it infers them."""
    with attributed_to(type(mapping.plugin), f"node {node.name} ({node.op_type})"):
        made = mapping.plugin.infer(mapping.node(spec, device))
    return [tuple(made[one.name]) for one in mapping.plugin.kernel.outputs]


def _as_input(node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """The outputs, of which the mapping says that they are as one of the inputs; else nothing."""
    mapping = registry.mapping_for(node.domain, node.op_type)
    like = None if mapping is None or not 0 <= mapping.like < len(inputs) else inputs[mapping.like]
    if like is None or not like.type:
        return []
    return [replace(like, name=name) for name in node.outputs if name]


def _completed(inferred: Value, declared: Value) -> Value:
    """What is inferred of a value, and of its type and sizes that stay open what is declared."""
    shape = inferred.shape
    if shape is None or (declared.is_concrete and not inferred.is_concrete):
        shape = declared.shape
    return Value(inferred.name, inferred.type or declared.type, shape)


def _resolved(value: Value, sizes: Mapping[str, int]) -> Value:
    """``value`` with the sizes of named dimensions. They are hints still: a kernel may infer others."""
    if value.shape is None:
        return value
    shape = tuple(sizes.get(size, size) if isinstance(size, str) else size for size in value.shape)
    return replace(value, shape=shape)


def _cast(spec: NodeSpec, casts: _Casts | None) -> NodeSpec:
    """The node as its kernel sees it behind the casts."""
    if casts is None:
        return spec
    inputs = list(spec.inputs)
    for i in casts.inputs:
        tensor = inputs[i]
        assert tensor is not None
        value = None if tensor.value is None else tensor.value.astype(np.float32)
        inputs[i] = TensorSpec(tensor.name, _F32.numpy, tensor.shape, value)
    outputs = [None if t is None else replace(t, dtype=_F32.numpy) for t in spec.outputs]
    return replace(spec, inputs=inputs, outputs=outputs)


def _takes(operand: Tensor, dtype: np.dtype[Any]) -> bool:
    row = row_of(dtype)
    return row is not None and row.name in operand.dtype_names


def _group(kernel: Kernel, name: str) -> str:
    """The operand that others are ``like``, from one of them: they are cast together or not at all."""
    seen = {name}
    while (like := kernel.tensor(name).like) and like not in seen:
        seen.add(name := like)
    return name


def _check_held(node: Node, tensor: TensorSpec | None) -> None:
    """f32 holds integers of 16 bits and the smaller floats; of wider types constants that it holds."""
    assert tensor is not None
    if np.can_cast(tensor.dtype, np.float32) or row_of(tensor.dtype) in (DTYPES["bf16"], DTYPES["f16"]):
        return
    value = tensor.value
    if value is not None and tensor.dtype.kind in "iuf" and np.array_equal(value, value.astype(np.float32)):
        return
    held = f"whole numbers up to {_LARGEST}" if tensor.dtype.kind in "iu" else "24 bits of precision"
    raise _refused(
        "dtype",
        node,
        f"input {tensor.name}, cast_policy='f32'",
        str(tensor.dtype),
        f"a type that f32 holds all values of: it has {held}",
        "cast it in the model where that is meant",
    )


def _check_types(node: Node, made: Iterable[Value], declared: Mapping[str, Value]) -> None:
    """Raises ``ModelError`` for a result of another type than the model declares, as onnxruntime does."""
    for value in made:
        kind = declared[value.name].type
        if kind and value.type and kind != value.type:
            raise ModelError(
                f"node {node.name} ({node.domain}.{node.op_type}): output {value.name!r}",
                f"{value.type}, declared as {kind}",
                "declared types that are those of the results",
                f"declare it as {value.type} in the model's outputs or value_info",
            )


def _check_declared(node: Node, kernel: str, inferred: Value, declared: Value) -> None:
    """Numbers and types bind; names of dimensions are hints, as everywhere."""
    remedy = "mend one of the two: the model's value_info, or infer"
    if declared.type and declared.type != inferred.type:
        raise _refused(
            "dtype",
            node,
            f"output {inferred.name!r}, as {kernel} infers it",
            inferred.type,
            f"{declared.type}, as the model declares it",
            remedy,
        )
    wanted, shape = declared.shape, inferred.shape or ()
    if wanted is None:
        return
    fits = [not isinstance(size, int) or size == given for size, given in zip(wanted, shape, strict=False)]
    if len(wanted) != len(shape) or not all(fits):
        raise _refused(
            "output_size",
            node,
            f"shape of output {inferred.name!r}, as {kernel} infers it",
            str(list(shape)),
            f"{[d if d is not None else '?' for d in wanted]}, as the model declares it",
            remedy,
        )


def is_onnx_domain(domain: str) -> bool:
    """True of a domain that the onnx package defines."""
    return domain in _onnx_domains()


def missing_operators(graph: Graph) -> list[tuple[str, str, str]]:
    """(node, domain, op_type) of operators that neither ONNX, nor onnxruntime, nor a plug-in has."""
    foreign = [
        (node.name, node.domain, node.op_type)
        for node in graph.nodes
        if node.domain not in _onnx_domains() and registry.mapping_for(node.domain, node.op_type) is None
    ]
    inner = ((f"in a body of {node.name}", *one) for node in graph.nodes for one in node.inner)
    foreign += [row for row in inner if row[1] not in _onnx_domains() and is_unmapped(*row[1:])]
    return [row for row in foreign if not runtime_has(row[2], row[1]) and implementation(*row[1:]) is None]


def on_host(node: Node) -> bool:
    """True if a host engine may know the node: of ONNX's domains, onnxruntime's own, or a custom kernel's, or
    one with a host implementation."""
    known = node.domain in _onnx_domains() or runtime_has(node.op_type, node.domain)
    known = known or implementation(node.domain, node.op_type) is not None
    return known or not is_unmapped(node.domain, node.op_type)


def is_unmapped(domain: str, op_type: str) -> bool:
    """True if no custom kernel computes it."""
    mapping = registry.mapping_for(domain, op_type)
    return mapping is None or mapping.custom is None
