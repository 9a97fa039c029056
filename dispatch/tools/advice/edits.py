# SPDX-License-Identifier: Apache-2.0
"""Edits that may help a model: each changes the ONNX model, or an option of ``compile``.

None is believed: ``trials`` compiles the model with each, and says what it gains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from onedispatch.dispatch.compiler.executable import Executable, HostStep
from onedispatch.dispatch.frontend.exporter import type_proto
from onedispatch.dispatch.frontend.graph import Graph, Value
from onedispatch.dispatch.frontend.walk import attributes, bodies, bodies_of, subgraphs, tensors
from onedispatch.dispatch.tools import recipes
from onedispatch.dispatch.tools.freezing import frozen_model
from onedispatch.transactions.base.text import counted

# Element types that cores have no kernels for, and those in which the same is computed there.
_NARROWER: Mapping[int, int] = {
    TensorProto.INT64: TensorProto.INT32,
    TensorProto.DOUBLE: TensorProto.FLOAT,
}
_WORDS: Mapping[int, str] = {TensorProto.INT32: "tensor(int32)", TensorProto.FLOAT: "tensor(float)"}
_COMPARISONS = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
# In the order in which they are taken together: what gives up least comes first.
TAKEN = ("freeze", "narrow", "cast", "cut", "precision")
KINDS = (*TAKEN, "int8", "device")  # of which accuracy, and the NPU, are the user's to judge
_INT8 = next(recipe for recipe in recipes.RECIPES if recipe.name == "int8")
_QUANTISED = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
_MOST_VALUES = 4  # that an input is frozen to, each in its turn
_MOST_CASTS = 12  # nodes, those that make the most bytes first


@dataclass(frozen=True)
class Edit:
    """A change: of the model (``change`` returns a new one), or of options of ``compile``.

    ``kind`` is one of ``KINDS``. ``node`` is the node on the host that it is for, ``input`` the input that it
    freezes, "" for none. ``caution``: what it gives up.
    """

    kind: str
    text: str
    change: Callable[[ModelProto], ModelProto] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    input: str = ""
    caution: str = ""


def edits_of(
    model: ModelProto,
    executable: Executable,
    options: Mapping[str, str],
    devices: Iterable[str],
    frozen: Collection[str] = (),
) -> list[Edit]:
    """Returns the edits that are worth a trial: the inputs' values, the nodes on the host, the options.

    Inputs in ``frozen`` have values already.
    """
    hosted = _Hosted(executable)
    return [
        *(edit for edit in freezes(model) if edit.input not in frozen),
        *(_narrowed(model) if hosted else ()),
        *hosted.casts(model),
        *hosted.cuts(model),
        *_precisions(model, options),
        *_integers(model, executable),
        *(
            Edit("device", f"device {name}", options={"device": name})
            for name in devices
            if name != options.get("device")
        ),
    ]


# -- inputs that are numbers -----------------------------------------------------------------------


def freezes(model: ModelProto) -> Iterator[Edit]:
    """Inputs of one number, frozen to values that the model compares them with; truths to either."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    for info in model.graph.input:
        if info.name in constants or not _is_number(info):
            continue
        for value in _values(model, info, constants):
            yield Edit(
                "freeze",
                f"set {info.name}={value}",
                _Freeze(info.name, value),
                input=info.name,
                caution=f"{info.name} is no input any more, and results for other values are gone",
            )


def _is_number(info: ValueInfoProto) -> bool:
    kind = info.type.tensor_type
    whole = kind.elem_type in (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)
    return whole and all(dim.dim_value == 1 for dim in kind.shape.dim)


def _values(
    model: ModelProto, info: ValueInfoProto, constants: Mapping[str, TensorProto]
) -> Sequence[int | bool]:
    if info.type.tensor_type.elem_type == TensorProto.BOOL:
        return (True, False)
    found: dict[int, None] = {}
    for node in model.graph.node:
        if node.op_type not in _COMPARISONS or info.name not in node.input:
            continue
        for other in node.input:
            if other in constants:
                found |= dict.fromkeys(int(v) for v in numpy_helper.to_array(constants[other]).flat)
    return list(found)[:_MOST_VALUES]


@dataclass(frozen=True)
class _Freeze:
    name: str
    value: int | bool

    def __call__(self, model: ModelProto) -> ModelProto:
        return frozen_model(model, {self.name: self.value})


# -- nodes on the host ---------------------------------------------------------------------------


class _Hosted:
    """The nodes of a model that its executable leaves to the host."""

    def __init__(self, executable: Executable) -> None:
        named = {row.node for row in executable.placement if row.device == "cpu"}
        self._graphs = [step.graph for step in executable.steps if isinstance(step, HostStep)]
        self._outputs = {
            name: node.name
            for graph in self._graphs
            for node in graph.nodes
            if node.name in named
            for name in node.outputs
            if name
        }

    def __bool__(self) -> bool:
        return bool(self._outputs)

    def name_of(self, node: NodeProto) -> str:
        """The name that the placement has for a node; "" where it is not on the host."""
        return next((self._outputs[name] for name in node.output if name in self._outputs), "")

    def _types(self) -> dict[str, Value]:
        return {name: graph.value(name) for graph in self._graphs for name in _names(graph) if name}

    def casts(self, model: ModelProto) -> Iterator[Edit]:
        """Each node on the host that computes in a type without kernels, in a narrower one between casts."""
        kinds = {name: _element(graph, name) for graph in self._graphs for name in _names(graph)}
        opsets = {one.domain: one.version for one in model.opset_import}
        found = []
        for node in model.graph.node:
            name = self.name_of(node)
            if not name or node.op_type in ("Cast", "Constant"):
                continue
            changed = _castable(node, kinds, opsets.get(node.domain, 1))
            if changed:
                types = ", ".join(
                    sorted({helper.tensor_dtype_to_np_dtype(to).name for to in changed.values()})
                )
                caution = "numbers beyond its range or precision change"
                found.append(
                    Edit(
                        "cast",
                        f"cast {name} to {types}",
                        _Cast(node.output[0], changed),
                        node=name,
                        caution=caution,
                    )
                )
        yield from found[:_MOST_CASTS]

    def cuts(self, model: ModelProto) -> Iterator[Edit]:
        """The model without the nodes on the host at its end, or at its beginning."""
        nodes = list(model.graph.node)
        hosted = [bool(self.name_of(node)) for node in nodes]
        if not any(hosted) or all(hosted):
            return
        fed = _fed(model)
        work = {i for i, node in enumerate(nodes) if fed.intersection(node.output)}
        for side in ("end", "beginning"):
            dropped = _without_constants(model, _closed(nodes, hosted, side), hosted, work)
            if not dropped or 2 * len(work & dropped) > len(work):
                continue  # less than half of the work would be left
            cut = _Cut(frozenset(dropped), self._types())
            if fed.isdisjoint(cut.ends(model)[1]):
                continue  # nothing but constants would be left
            first = next(self.name_of(nodes[i]) for i in sorted(dropped) if hosted[i])
            text = f"cut {counted(len(dropped), 'node')} of {len(nodes):,} off its {side}, from {first}"
            where = "behind" if side == "end" else "before"
            caution = f"what they compute is left to the caller, {where} the model"
            yield Edit("cut", text, cut, node=first, caution=caution)


def _fed(model: ModelProto) -> set[str]:
    """Names of all that depends on an input of the model; the rest are constants."""
    constants = {tensor.name for tensor in model.graph.initializer}
    fed = {one.name for one in model.graph.input} - constants
    for node in model.graph.node:
        if fed & _read(node):
            fed.update(name for name in node.output if name)
    return fed


def _without_constants(
    model: ModelProto, dropped: Collection[int], hosted: Sequence[bool], work: Collection[int]
) -> set[int]:
    """``dropped`` without constants that a node which is left reads, and with those that none reads."""
    nodes, found = list(model.graph.node), set(dropped)
    read = {one.name for one in model.graph.output}
    for i in reversed(range(len(nodes))):
        if i not in work and not hosted[i]:
            (found.discard if read & set(nodes[i].output) else found.add)(i)
        if i not in found:
            read |= _read(nodes[i])
    return found


def _closed(nodes: Sequence[NodeProto], hosted: Sequence[bool], side: str) -> set[int]:
    """Indices of the nodes on the host, and of all after them ("end") or before them ("beginning")."""
    makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    near: list[set[int]] = [set() for _ in nodes]
    for i, node in enumerate(nodes):
        for maker in {makers[name] for name in _read(node) if name in makers}:
            one, other = (i, maker) if side == "end" else (maker, i)
            near[one].add(other)
    taken: set[int] = set()
    for i in range(len(nodes)) if side == "end" else reversed(range(len(nodes))):
        if hosted[i] or near[i] & taken:
            taken.add(i)
    return taken


def _read(node: NodeProto) -> set[str]:
    """Names that a node reads, and its bodies."""
    names = {name for name in node.input if name}
    for body, _ in bodies_of(subgraphs(node)):
        names.update(name for one in body.node for name in one.input if name)
        names.update(one.name for one in body.output if isinstance(body, GraphProto))
    return names


def _names(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        yield from (*node.inputs, *node.outputs)


def _element(graph: Graph, name: str) -> int:
    """The element type of an edge as ONNX counts it; 0 where it is not known."""
    dtype = graph.value(name).dtype if name else None
    return helper.np_dtype_to_tensor_dtype(dtype) if dtype is not None else 0


def _castable(node: NodeProto, kinds: Mapping[str, int], version: int) -> dict[str, int]:
    """The edges of a node in types without kernels, and the types to cast them to: where its schema takes
    those, of all its operands of one type together."""
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return {}
    allowed = {one.type_param_str: one.allowed_type_strs for one in schema.type_constraints}
    changed: dict[str, int] = {}
    for names, formals in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for index, name in enumerate(names):
            formal = formals[min(index, len(formals) - 1)]
            to = _NARROWER.get(kinds.get(name, 0))
            if to is not None and _WORDS[to] in allowed.get(formal.type_str, ()):
                changed[name] = to
    return changed


@dataclass(frozen=True)
class _Cast:
    output: str  # of the node
    changed: Mapping[str, int]

    def __call__(self, model: ModelProto) -> ModelProto:
        made = _copy(model)
        nodes = list(made.graph.node)
        at = next(i for i, node in enumerate(nodes) if self.output in node.output)
        node, before, after = nodes[at], [], []
        for i, name in enumerate(node.input):
            if name in self.changed:
                node.input[i] = f"{self.output}/cast_{i}"
                before.append(helper.make_node("Cast", [name], [node.input[i]], to=self.changed[name]))
        for i, name in enumerate(node.output):
            if name in self.changed:
                wide = next(w for w, narrow in _NARROWER.items() if narrow == self.changed[name])
                node.output[i] = f"{self.output}/narrow_{i}"
                after.append(helper.make_node("Cast", [node.output[i]], [name], to=wide))
        del made.graph.node[:]
        made.graph.node.extend([*nodes[:at], *before, node, *after, *nodes[at + 1 :]])
        return made


def _narrowed(model: ModelProto) -> Iterator[Edit]:
    """All of float64 as float32, where the model's own inputs and outputs have no float64."""
    ends = (*model.graph.input, *model.graph.output)
    if any(one.type.tensor_type.elem_type == TensorProto.DOUBLE for one in ends):
        return
    given = attributes(model.graph)
    constants = [*model.graph.initializer, *(one.t for one in given if one.HasField("t"))]
    doubles = [one for one in constants if one.data_type == TensorProto.DOUBLE]
    if not all(map(_in_float_range, doubles)):  # what masks are filled with would be infinite
        return
    if doubles or any(_is_double(node) for node in model.graph.node):
        caution = "24 bits of mantissa instead of 53"
        yield Edit("narrow", "compute in float32 what is float64", _narrow, caution=caution)


def _in_float_range(tensor: TensorProto) -> bool:
    """Whether no finite element is beyond float32."""
    array = numpy_helper.to_array(tensor)
    with np.errstate(over="ignore"):
        return not np.isinf(array.astype(np.float32)[np.isfinite(array)]).any()


def _is_double(node: NodeProto) -> bool:
    return any(
        (one.name in ("to", "dtype") and one.i == TensorProto.DOUBLE)
        or (one.HasField("t") and one.t.data_type == TensorProto.DOUBLE)
        for one in node.attribute
    )


def _narrow(model: ModelProto) -> ModelProto:
    made = _copy(model)
    for tensor in made.graph.initializer:
        _narrow_tensor(tensor)
    for node in made.graph.node:
        for one in node.attribute:
            if one.name in ("to", "dtype") and one.i == TensorProto.DOUBLE:
                one.i = TensorProto.FLOAT
            if one.HasField("t"):
                _narrow_tensor(one.t)
    del made.graph.value_info[:]
    return made


def _narrow_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.DOUBLE:
        array = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


@dataclass(frozen=True)
class _Cut:
    dropped: Collection[int]
    types: Mapping[str, Value]  # of edges of nodes on the host, as they were compiled

    def __call__(self, model: ModelProto) -> ModelProto:
        made = _inferred(model)
        nodes = list(made.graph.node)
        known = {one.name: one for one in (*made.graph.value_info, *made.graph.input, *made.graph.output)}
        kept = [node for i, node in enumerate(nodes) if i not in self.dropped]
        constants = {tensor.name for tensor in made.graph.initializer}
        inputs, outputs = self.ends(made)
        reads = set().union(*map(_read, kept))
        del made.graph.node[:], made.graph.input[:], made.graph.output[:]
        made.graph.node.extend(kept)
        made.graph.input.extend(known.get(name) or self._info(name) for name in inputs)
        made.graph.output.extend(known.get(name) or self._info(name) for name in outputs)
        unused = [one for one in made.graph.initializer if one.name in constants - reads - set(outputs)]
        for tensor in unused:
            made.graph.initializer.remove(tensor)
        return made

    def ends(self, model: ModelProto) -> tuple[list[str], list[str]]:
        """Names of the inputs and outputs that are left; no constant that only what is cut off reads."""
        graph, fed = model.graph, _fed(model)
        kept = [node for i, node in enumerate(graph.node) if i not in self.dropped]
        gone = [graph.node[i] for i in sorted(self.dropped)]
        makes = [name for node in kept for name in node.output if name in fed]
        read_by_gone = set().union(*map(_read, gone))
        made_by_gone = dict.fromkeys(name for node in gone for name in node.output if name)
        outputs = [one.name for one in graph.output if one.name not in made_by_gone]
        outputs += [name for name in makes if name in read_by_gone and name not in outputs]
        reads = set().union(*map(_read, kept))
        inputs = [one.name for one in graph.input if one.name in reads]
        return inputs + [name for name in made_by_gone if name in reads], outputs

    def _info(self, name: str) -> ValueInfoProto:
        """What shape inference does not know, as it was compiled."""
        value = self.types.get(name, Value(name))
        kind = type_proto(value.type, value.shape) if value.dtype is not None else None
        return ValueInfoProto(name=name, type=kind)


# -- options -------------------------------------------------------------------------------------


def _precisions(model: ModelProto, options: Mapping[str, str]) -> Iterator[Edit]:
    if options.get("precision", "fp32") == "fp32" and _has_floats(model):
        yield Edit("precision", "precision bf16", options={"precision": "bf16"}, caution="8 bits of mantissa")


def _has_floats(model: ModelProto) -> bool:
    """Whether a tensor is float32: an input, a result that says so, a weight wherever it is kept."""
    graph = model.graph
    known = (one.type.tensor_type.elem_type for one in (*graph.input, *graph.output, *graph.value_info))
    if TensorProto.FLOAT in known:
        return True
    found = [body for body, _ in bodies(model)]
    weights = (tensor.data_type for body in found for tensor in tensors(body))
    return TensorProto.FLOAT in weights or any(
        _makes_floats(one) for body in found for one in attributes(body)
    )


def _makes_floats(attribute: AttributeProto) -> bool:
    """Whether it makes its node's result float32: the type of a Cast, the numbers of a Constant."""
    return attribute.name in ("value_float", "value_floats") or (
        attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT
    )


def _integers(model: ModelProto, executable: Executable) -> Iterator[Edit]:
    """The model in int8, for its time alone: it is calibrated with random numbers."""
    types = {node.op_type for node in model.graph.node}
    if types.isdisjoint(recipes.PRODUCTS) or types & _QUANTISED:
        return
    numbers = (one.dtype is not None and not one.dtype.hasobject for one in executable.inputs)
    if all(one.is_concrete for one in executable.inputs) and all(numbers):
        shapes = {one.name: (one.concrete_shape, one.dtype) for one in executable.inputs}
        caution = "accuracy: onedispatch quantize measures it on data of yours"
        yield Edit("int8", "int8, by onnxruntime's quantiser", _Int8(shapes), caution=caution)


@dataclass(frozen=True)
class _Int8:
    inputs: Mapping[str, tuple[tuple[int, ...], np.dtype[Any] | None]]

    def __call__(self, model: ModelProto) -> ModelProto:
        rng, feed = np.random.default_rng(0), {}
        for name, (shape, dtype) in self.inputs.items():
            feed[name] = rng.standard_normal(shape).astype(dtype)
        return recipes.made(_INT8, recipes.prepared(model), [feed])


def _inferred(model: ModelProto) -> ModelProto:
    """A copy with the types and shapes that ONNX infers, where it does."""
    try:
        return onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):  # also beyond 2 GiB
        return _copy(model)


def _copy(model: ModelProto) -> ModelProto:
    made = ModelProto()
    made.CopyFrom(model)
    return made
