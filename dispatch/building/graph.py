# SPDX-License-Identifier: Apache-2.0
"""``od.Graph``: a model built layer by layer, of ONNX's operators and of what plug-ins bring.

    g = od.Graph()
    x = g.input("x", (1, 3, 64, 64))
    y = g.add_layer("acme::crop", [x], params={"top": 2, "size": [40, 48]})
    y = g.add_layer("Unsqueeze", [y, np.array([0])])
    g.output(y, "y")
    session = od.InferenceSession(g.to_onnx())

Types and shapes of results are inferred when a layer is added, by what compiles the model: ONNX's inference
for its operators, ``infer`` or ``shape`` for others. So a layer that is wrong is refused in its own line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.defs import OpSchema

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.building.infer import inferred
from onedispatch.dispatch.frontend.graph import Array, Dimension, Value, type_name_of
from onedispatch.dispatch.frontend.schemas import onnx_operators, runtime_operators
from onedispatch.dispatch.sources.targets import OPSET, Target, as_attribute, written
from onedispatch.operators.declarations import registry
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.registry import MICROSOFT
from onedispatch.operators.plugin.registrations import camel_case, spelled
from onedispatch.transactions import find_device
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import InputError, ModelError, UnknownOperatorError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted, did_you_mean, span

IR_VERSION = 10  # of onnx 1.16, the first with operator set 21
_MANY = 1 << 16  # what schemas call variadic has no bound
_TYPES = f"{', '.join(DTYPES)}, or a NumPy type"


@dataclass(frozen=True, eq=False)
class GraphValue:
    """A tensor of a graph. ``shape`` has text where a size is open, None where nothing is known of it; both
    ``shape`` and ``dtype`` ("f32") are None where a layer does not say them. ``value``: of a constant."""

    graph: Graph = field(repr=False)
    name: str
    known: Value = field(repr=False)
    value: Array | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[Dimension, ...] | None:
        return self.known.shape

    @property
    def dtype(self) -> str | None:
        numpy = self.known.dtype
        return None if numpy is None else _name_of(numpy)

    @property
    def is_static(self) -> bool:
        """Whether every size is a number."""
        return self.known.is_concrete

    def __repr__(self) -> str:
        return f"GraphValue({self.known})"


Given = GraphValue | Array | float | Sequence[Any] | None
"""An operand: a value of the graph, numbers that become a constant, or None for one that is left out"""
Stated = Sequence[str | tuple[str | None, Sequence[int | str] | None, Any] | None]
"""What is said of results: a name, or (name, shape, dtype); None of it is inferred"""


class Graph:
    """A model under construction.

    Args:
        name: of the model.
        opset: the version of ONNX's operator set.
        device: for which layers are asked for their results.
    """

    @public
    def __init__(self, name: str = "graph", *, opset: int = OPSET, device: str = "npu2") -> None:
        self.name = _text("name", name)
        newest = onnx.defs.onnx_opset_version()
        self.opset = arguments.integer("opset", opset, 7, newest)
        self._device = find_device(device)
        self._nodes: list[NodeProto] = []
        self._inputs: list[GraphValue] = []
        self._outputs: list[tuple[GraphValue, str]] = []
        self._values: dict[str, GraphValue] = {}
        self._layers: set[str] = set()
        self._elements: dict[str, Array] = {}  # of small results that are known: shapes may follow from them

    # -- building ------------------------------------------------------------------------------

    @public
    def input(self, name: str, shape: Sequence[int | str], dtype: Any = "f32") -> GraphValue:
        """An input of the model. Sizes that are text are open: models with one are dynamic.

        Raises ``InputError`` for a name that is taken, a wrong size or an unknown type.
        """
        where = f"input {name!r}"
        value = Value(self._fresh(where, name), _type_of(where, dtype), _shape_of(where, shape))
        made = self._add(value)
        self._inputs.append(made)
        return made

    @public
    def constant(self, values: Any, name: str | None = None) -> GraphValue:
        """A constant: an array in its own type, Python's whole numbers as i64, others as f32.

        Raises ``InputError`` for what is no array of numbers.
        """
        array = _array_of(values)
        own = self._unique("constant") if name is None else self._fresh(f"constant {name!r}", name)
        return self._add(Value(own, type_name_of(array.dtype), array.shape), array)

    @public
    def add_layer(
        self,
        op: str,
        inputs: Sequence[Given],
        params: Mapping[str, Any] | None = None,
        outputs: Stated | int | None = None,
        name: str | None = None,
    ) -> Any:
        """Adds a node of an operator of ONNX (``"Add"``), or of another domain: ``"acme::crop"``.

        Args:
            inputs: values of this graph, numbers or arrays, None for one that is left out.
            params: attributes of the node.
            outputs: how many results, or what is said of each; None: as many as the operator has at least.
            name: of the node.

        Returns:
            The result, or a tuple of them.

        Raises:
            UnknownOperatorError: neither ONNX nor a plug-in has it.
            InputError: operands, parameters or results of other kinds; a statement that is not so.
            ModelError, KernelError: what the operator or layer refuses.
        """
        target = self._target(op)
        layer = self._layer_name(target, name)
        where = f"layer {layer} ({target})"
        operands = [self._operand(where, i, one) for i, one in enumerate(_listed(where, "inputs", inputs))]
        while operands and operands[-1] is None:
            operands.pop()
        stated = self._stated(where, target, outputs)
        names = [said.name or self._unique(f"{layer}_{i}") for i, said in enumerate(stated)]
        node = self._node(where, target, layer, operands, names, params or {})
        reads = [self._with_elements(one) for one in operands if one is not None]
        found = inferred(node, reads, self._opsets([node]), self._device)
        if outputs is None and found.count > len(names):
            return self.add_layer(op, inputs, params, found.count, name)
        pairs = zip(names, stated, strict=True)
        values = [self._agreed(where, one, said, found.values) for one, said in pairs]
        self._elements |= found.elements
        self._nodes.append(node)
        self._layers.add(layer)
        made = tuple(self._add(value) for value in values)
        return made[0] if len(made) == 1 else made

    @public
    def output(self, value: GraphValue, name: str | None = None) -> None:
        """Makes a value an output of the model, under its own name or another.

        Raises ``InputError`` for what is no value of this graph, or a name that is taken.
        """
        self._own("output", value)
        known = value.name if name is None else _text("output", name)
        taken = known in (one for _, one in self._outputs) or (known != value.name and known in self._values)
        if taken:
            raise InputError(f"output {known!r}", "a name that is taken", "another name")
        self._outputs.append((value, known))

    @public
    def to_onnx(self) -> ModelProto:
        """The model. Raises ``ModelError`` without outputs."""
        if not self._outputs:
            accepted = "one or more: g.output(value)"
            raise ModelError(f"graph {self.name}", "no outputs", accepted)
        nodes = [*self._renamed(), *self._copies()]
        graph = helper.make_graph(
            nodes,
            self.name,
            [_info(one.known) for one in self._inputs],
            [_info(Value(name, value.known.type, value.shape)) for value, name in self._outputs],
            self._read_constants(),
        )
        opsets = [helper.make_opsetid(*one) for one in self._opsets(self._nodes).items()]
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="onedispatch"
        )

    # -- inside --------------------------------------------------------------------------------

    def _opsets(self, nodes: Sequence[NodeProto]) -> dict[str, int]:
        domains = sorted({node.domain for node in nodes} - {""})
        return {"": self.opset, **dict.fromkeys(domains, 1)}

    def _renamed(self) -> list[NodeProto]:
        """The nodes, with results under the names that they have as outputs."""
        last = {value.name: name for value, name in self._outputs}
        nodes = []
        for node in self._nodes:
            own = NodeProto()
            own.CopyFrom(node)
            for names in (own.input, own.output):
                names[:] = [self._inner(last, name) for name in names]
            nodes.append(own)
        return nodes

    def _inner(self, last: Mapping[str, str], name: str) -> str:
        """The name of a value inside of the model: its last one as an output, if a node makes it."""
        return last.get(name, name) if self._is_made(name) else name

    def _is_made(self, name: str) -> bool:
        value = self._values.get(name)
        return value is not None and value.value is None and value not in self._inputs

    def _copies(self) -> list[NodeProto]:
        """Outputs under other names of what has its name already."""
        last = {value.name: name for value, name in self._outputs}
        inner = [(self._inner(last, value.name), name) for value, name in self._outputs]
        return [
            helper.make_node("Identity", [source], [name], f"{name}_output")
            for source, name in inner
            if source != name
        ]

    def _read_constants(self) -> list[TensorProto]:
        read = {name for node in self._nodes for name in node.input}
        read |= {value.name for value, _ in self._outputs}
        given = {name: one.value for name, one in self._values.items() if name in read}
        return [numpy_helper.from_array(x, name) for name, x in given.items() if x is not None]

    def _add(self, value: Value, array: Array | None = None) -> GraphValue:
        made = GraphValue(self, value.name, value, array)
        self._values[value.name] = made
        return made

    def _with_elements(self, value: GraphValue) -> GraphValue:
        known = self._elements.get(value.name)
        return value if known is None else replace(value, value=known)

    def _fresh(self, where: str, name: str) -> str:
        given = _text(where, name)
        if not given or given in self._values:
            raise InputError(where, "a name that is taken" if given else "no name", "a name of its own")
        return given

    def _unique(self, what: str) -> str:
        number = 0
        while (name := f"{what}_{number}" if number else what) in self._values:
            number += 1
        return name

    def _layer_name(self, target: Target, name: str | None) -> str:
        if name is not None:
            if _text("name of a layer", name) in self._layers:
                raise InputError(f"layer {name!r}", "a name that is taken", "a name of its own")
            return name
        number = 0
        while (made := f"{target.op_type}_{number}") in self._layers:
            number += 1
        return made

    def _target(self, op: str) -> Target:
        where, accepted = f"add_layer({bounded_repr(op)})", 'an operator: "Add", "acme::crop"'
        try:
            target = Target.parsed(op)
        except (ValueError, AttributeError) as error:
            raise InputError(where, bounded_repr(op), accepted) from error
        if target.domain and registry.mapping_for(target.domain, target.op_type) is None:
            target = Target(target.domain, camel_case(target.op_type)) if target.op_type.islower() else target
        if target.schema(self.opset) is None and registry.mapping_for(target.domain, target.op_type) is None:
            brought = [spelled(row).replace(".", "::") for row in registry.all_mappings() if row.origin]
            known = [*onnx_operators(), *brought]
            if target.domain == MICROSOFT:
                known += [f"{MICROSOFT}::{one}" for one in runtime_operators(MICROSOFT)]
            remedy = (
                did_you_mean(str(target), known) or "load the plug-in that brings it: od.plugins.load(path)"
            )
            raise UnknownOperatorError(
                where, f"{target}, which is not there", "an operator of ONNX or of a plug-in", remedy
            )
        return target

    def _own(self, where: str, value: Any) -> GraphValue:
        if not isinstance(value, GraphValue):
            raise InputError(where, bounded_repr(value), "a value of this graph")
        if value.graph is not self:
            raise InputError(where, f"{value.name} of graph {value.graph.name}", f"a value of {self.name}")
        return value

    def _operand(self, where: str, index: int, given: Given) -> GraphValue | None:
        if given is None:
            return None
        if isinstance(given, GraphValue):
            return self._own(f"{where}, input {index}", given)
        if isinstance(given, str):
            raise InputError(
                f"{where}, input {index}", repr(given), "a value of this graph, numbers, or None"
            )
        return self.constant(given)

    def _node(
        self,
        where: str,
        target: Target,
        layer: str,
        operands: Sequence[GraphValue | None],
        names: Sequence[str],
        params: Mapping[str, Any],
    ) -> NodeProto:
        schema = target.schema(self.opset)
        inputs = ["" if one is None else one.name for one in operands]
        node = helper.make_node(target.op_type, inputs, names, layer, domain=target.domain)
        if not isinstance(params, Mapping):
            raise InputError(f"{where}, params", bounded_repr(params), "values by name")
        known = _parameters(target, schema)
        for name, value in params.items():
            about = f"{where}, parameter {name!r}"
            if known is not None and name not in known:
                accepted = ", ".join(known) or "no parameters"
                raise InputError(about, bounded_repr(value), accepted, did_you_mean(str(name), known))
            try:
                node.attribute.append(_written(schema, name, value))
            except OverflowError as error:
                raise InputError(about, bounded_repr(value), "numbers that float32 holds") from error
            except (TypeError, ValueError) as error:
                kind = "" if schema is None else str(schema.attributes[name].type).rpartition(".")[2]
                accepted = f"its kind, {kind}" if kind else "numbers, text, lists of them, arrays"
                raise InputError(about, bounded_repr(value), accepted) from error
        return node

    def _stated(self, where: str, target: Target, outputs: Stated | int | None) -> list[Value]:
        """What is said of each result."""
        schema = target.schema(self.opset)
        least, most = (1, _MANY) if schema is None else (max(schema.min_output, 1), schema.max_output)
        custom = registry.custom_mapping(target)
        if custom is not None:
            plugin = custom.plugin
            least = most = len(plugin.kernel.outputs) - len(plugin.dynamic_results)
        if outputs is None or (isinstance(outputs, int) and not isinstance(outputs, bool)):
            count = least if outputs is None else outputs
            said: Sequence[Any] = [None] * max(0, min(count, _MANY + 1))
        else:
            said = _listed(where, "outputs", outputs)
        if not least <= len(said) <= most:
            raise InputError(f"{where}, outputs", counted(len(said), "result"), span(least, min(most, _MANY)))
        found = [self._said(f"{where}, output {i}", one) for i, one in enumerate(said)]
        names = [one.name for one in found if one.name]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{where}, outputs", f"the name {twice!r} twice", "a name of its own for each")
        return found

    def _said(self, where: str, given: Any) -> Value:
        if given is None or isinstance(given, str):
            given = (given, None, None)
        if not isinstance(given, tuple | list) or len(given) != 3:
            raise InputError(where, bounded_repr(given), "a name, (name, shape, dtype), or None")
        name, shape, dtype = given
        return Value(
            "" if name is None else self._fresh(where, name),
            "" if dtype is None else _type_of(where, dtype),
            None if shape is None else _shape_of(where, shape),
        )

    @staticmethod
    def _agreed(where: str, name: str, said: Value, found: Mapping[str, Value]) -> Value:
        """A result as it is inferred, and stated where inference knows nothing."""
        known = found.get(name, Value(name))
        about = f"{where}, output {name!r}"
        if said.type and known.type and said.type != known.type:
            raise InputError(about, f"{said.type}, as stated", f"{known.type}, as it is inferred")
        if said.shape is not None and known.shape is not None and not _fits(said.shape, known.shape):
            given, accepted = (
                str(Value("shape", "", one)).partition("unknown")[2] for one in (said.shape, known.shape)
            )
            raise InputError(about, f"shape {given}, as stated", f"{accepted}, as it is inferred")
        if known.shape is None:
            shape = said.shape
        elif said.shape is None:
            shape = known.shape
        else:
            shape = tuple(
                a if isinstance(a, int) else b for a, b in zip(known.shape, said.shape, strict=True)
            )
        return Value(name, known.type or said.type, shape)


def _written(schema: OpSchema | None, name: str, value: Any) -> AttributeProto:
    """An attribute. Raises ``TypeError`` or ``ValueError`` for what ONNX cannot hold, ``OverflowError`` for a
    number that is beyond float32, which it would be."""
    made = written(schema, name, as_attribute(schema, name, value))
    floats = np.asarray([made.f, *made.floats], np.float64)
    if not np.isfinite(floats).all() and np.isfinite(np.asarray(value, np.float64)).all():
        raise OverflowError(value)
    return made


def _text(where: str, value: Any) -> str:
    """Text that files and messages can hold."""
    if arguments.text(where, value) and not value.isprintable():
        raise InputError(where, f"the name {bounded_repr(value)}", "text that can be printed")
    return str(value)


def _parameters(target: Target, schema: OpSchema | None) -> list[str] | None:
    """The names of an operator's parameters; None where nothing says which it has."""
    if schema is not None:
        return sorted(schema.attributes)
    mapping = registry.custom_mapping(target)
    names: list[str] | None = None if mapping is None else mapping.plugin.parameter_names
    return names


def _fits(said: Sequence[Dimension], known: Sequence[Dimension]) -> bool:
    pairs = zip(said, known, strict=False)
    return len(said) == len(known) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs
    )


def _listed(where: str, what: str, given: Any) -> Sequence[Any]:
    if not isinstance(given, list | tuple):
        raise InputError(f"{where}, {what}", bounded_repr(given), "a list")
    return given


def _array_of(values: Any) -> Array:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError("a constant", bounded_repr(values), "numbers, or an array of them") from error
    own = isinstance(values, np.ndarray | np.generic)
    if not own and array.dtype == np.float64:
        with np.errstate(over="ignore"):
            single = array.astype(np.float32)
        if (np.isinf(single) & np.isfinite(array)).any():
            accepted = "numbers that f32 holds, which Python's become"
            raise InputError("a constant", bounded_repr(values), accepted, "give an array of np.float64")
        array = single
    if array.dtype.kind not in "biufcV":
        raise InputError("a constant", f"elements of {array.dtype}", "numbers, or an array of them")
    _type_of("a constant", array.dtype)
    kept = np.array(array, order="C")  # of its own: the caller may write to theirs
    kept.flags.writeable = False
    return kept


def _type_of(where: str, dtype: Any) -> str:
    """ONNX Runtime's spelling of an element type. Raises ``InputError`` for what is none."""
    row = DTYPES.get(dtype) if isinstance(dtype, str) else None
    try:
        found = row.numpy if row is not None else np.dtype(dtype)
        # NumPy's i8 has 8 bytes, ours one: of NumPy's names the long ones alone are taken.
        if dtype is None or (row is None and isinstance(dtype, str) and found.name != dtype):
            raise TypeError
        return type_name_of(found)
    except (TypeError, ValueError, ModelError) as error:
        raise InputError(f"{where}, dtype", bounded_repr(dtype), _TYPES) from error


def _name_of(numpy: np.dtype[Any]) -> str:
    return next((row.name for row in DTYPES.values() if row.numpy == numpy), str(numpy))


def _shape_of(where: str, shape: Any) -> tuple[Dimension, ...]:
    sizes = (shape,) if isinstance(shape, int) else shape
    good = isinstance(sizes, tuple | list) and all(
        (isinstance(one, str) and one and one.isprintable())
        or (isinstance(one, int | np.integer) and not isinstance(one, bool) and 0 <= one < 1 << 63)
        for one in sizes
    )
    if not good:
        raise InputError(f"{where}, shape", bounded_repr(shape), "sizes from 0 on, or names of open ones")
    return tuple(one if isinstance(one, str) else int(one) for one in sizes)


def _info(value: Value) -> onnx.ValueInfoProto:
    """A value as models declare it."""
    if value.dtype is None:
        return onnx.ValueInfoProto(name=value.name)
    code = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(value.name, code, value.shape)
