# SPDX-License-Identifier: Apache-2.0
"""Cases of mapping rules and fusions: nodes as plain data, and the graphs that are made of them.

    {"op": "TopKV2",
     "inputs": [{"name": "x", "dtype": "float32", "shape": [3, 4]},
                {"name": "k", "dtype": "int32", "value": 2}],
     "outputs": ["values", "indices"],
     "attributes": {"sorted": True}}

An input with ``value`` is a constant of the model, one with ``data`` is fed; others get seeded numbers
(``"constant": True``: as a constant). ``expected`` has the outputs, ``version`` the version of the operator
set, ``threshold`` how far results may be off, as a share of the largest number. A fusion's case says
``"fusion": "NAME"`` and its ``nodes`` in place of ``op`` and ``attributes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper

from onedispatch.dispatch.base.json_files import read_json
from onedispatch.dispatch.frontend.graph import Array, Graph, Node, Value, sort_nodes, type_name_of
from onedispatch.dispatch.sources.targets import OPSET, Target, written
from onedispatch.dispatch.tensorflow.reader import DOMAIN, edge
from onedispatch.dispatch.tensorflow.signatures import ELEMENT_TYPES, Signature, signature_of
from onedispatch.transactions.base.boundary import error_line
from onedispatch.transactions.base.errors import InputError, ModelError
from onedispatch.transactions.base.text import did_you_mean

SEED = 2025
THRESHOLD = 1e-4  # of the largest number: what functions of the device may be off; integers are exact
TENSORFLOW_VERSION = 1882  # a producer of TensorFlow 2, where a rule is for any
_KEYS = (
    *("op", "to", "fusion", "framework", "domain", "name", "nodes", "inputs", "outputs", "attributes"),
    *("expected", "version", "threshold"),
)
_INPUT_KEYS = ("name", "dtype", "shape", "value", "data", "constant")
_NODE_KEYS = ("op", "name", "inputs", "outputs", "attributes")


@dataclass(frozen=True)
class Tensor:
    """An input: ``array`` are its values; a constant of the model, or fed."""

    name: str
    array: Array
    constant: bool


@dataclass(frozen=True)
class NodeData:
    """A node of a case; inputs and outputs are names."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] | None  # None: as many as the operator has
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """What a rule or fusion is run on. ``outputs`` is None where the operator says how many there are."""

    name: str
    op: str
    fusion: str
    nodes: tuple[NodeData, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...] | None
    dtypes: Mapping[str, np.dtype[Any]] = field(default_factory=dict)  # of outputs, as far as they are said
    expected: tuple[Array, ...] | None = None
    plain: bool = False  # ``expected`` are numbers without a type
    version: int | None = None
    threshold: float = THRESHOLD
    to: str = ""
    framework: str = ""

    @property
    def feed(self) -> dict[str, Array]:
        """The values of the inputs that are no constants."""
        return {one.name: one.array for one in self.inputs if not one.constant}


# -- reading ---------------------------------------------------------------------------------------


def read_prototype(path: Path) -> list[Any]:
    """Returns the cases of a JSON file, as data: one, or a list. Raises ``InputError``."""
    found = read_json(path, "a prototype in JSON", 'write {"op": ...}')
    return found if isinstance(found, list) else [found]


def case_of(given: Any, where: str) -> Case:
    """Returns a case from plain data. Raises ``InputError`` for what is none: ``where`` names it."""
    data = _checked(given, where, _KEYS)
    fusion, op = str(data.get("fusion", "")), str(data.get("op", ""))
    if bool(fusion) is bool(op):
        accepted = '"op": the operator of a rule, or "fusion": the name of a fusion'
        raise InputError(where, f"op={op!r}, fusion={fusion!r}", accepted)
    inputs = tuple(
        _tensor(one, f"{where}, input {number}", number)
        for number, one in enumerate(_list(data.get("inputs", []), f"{where}, inputs"))
    )
    _distinct([one.name for one in inputs], where)
    names, dtypes = _outputs(data.get("outputs"), where)
    nodes = _nodes(data, inputs, names, where)
    return Case(
        str(data.get("name") or fusion or op),
        op,
        fusion,
        nodes,
        inputs,
        names,
        dtypes,
        _expected(data.get("expected"), where),
        "expected" in data and not any(isinstance(one, np.ndarray) for one in data["expected"] or ()),
        _whole(data.get("version"), f"{where}, version"),
        _share(data.get("threshold", THRESHOLD), f"{where}, threshold"),
        str(data.get("to", "")),
        str(data.get("framework", "")),
    )


def _checked(given: Any, where: str, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(where, f"a {type(given).__name__}", f"a dict with some of {', '.join(known)}")
    for key in given:
        if key not in known:
            raise InputError(where, f"the key {key!r}", ", ".join(known), did_you_mean(str(key), known))
    return given


def _list(given: Any, where: str) -> list[Any]:
    if not isinstance(given, list | tuple):
        raise InputError(where, repr(given)[:80], "a list")
    return list(given)


def _whole(given: Any, where: str) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    raise InputError(where, repr(given)[:80], "a whole number, 0 or more")


def _share(given: Any, where: str) -> float:
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < np.inf:
        return float(given)
    raise InputError(where, repr(given)[:80], "a number above 0")


def _distinct(names: Sequence[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(where, f"the name {name!r} of two tensors", "each name once")


def dtype_named(given: Any, where: str) -> np.dtype[Any]:
    """Returns an element type by its name. Raises ``InputError``."""
    try:
        found = np.dtype(ELEMENT_TYPES[given]) if given in ELEMENT_TYPES else np.dtype(given)
        type_name_of(found)
    except (TypeError, ModelError) as error:
        known = ", ".join(ELEMENT_TYPES)
        raise InputError(
            where, f"the dtype {given!r}"[:80], known, did_you_mean(str(given), ELEMENT_TYPES)
        ) from error
    return found


def _tensor(given: Any, where: str, number: int) -> Tensor:
    data = _checked(given, where, _INPUT_KEYS)
    name = str(data.get("name") or f"x{number}")
    where = f"{where} ({name})"
    said = data.get("dtype")
    dtype = None if said is None else dtype_named(said, where)
    for key in ("value", "data"):
        if key in data:
            array = _array(data[key], dtype, where)
            if "shape" in data and array.ndim == 0:
                array = np.full(_shape(data["shape"], where), array)
            return Tensor(name, array, key == "value")
    if "shape" not in data:
        raise InputError(where, "neither a shape nor a value", '"shape": [3, 4], or "value": 2')
    made = made_values(dtype or np.dtype(np.float32), _shape(data["shape"], where), SEED + number, where)
    return Tensor(name, made, bool(data.get("constant")))


def _shape(given: Any, where: str) -> tuple[int, ...]:
    sizes = _list(given, f"{where}, shape")
    return tuple(_whole(size, f"{where}, shape") or 0 for size in sizes)


def _array(given: Any, dtype: np.dtype[Any] | None, where: str) -> Array:
    try:
        array = np.array(given, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(where, error_line(error), f"numbers of {dtype or 'one type'}") from error
    if dtype is None and array.dtype == np.float64:
        array = array.astype(np.float32)
    array.flags.writeable = False
    return array


def made_values(dtype: np.dtype[Any], shape: Sequence[int], seed: int, where: str) -> Array:
    """Returns seeded numbers: normal floats, small whole numbers. Raises ``InputError`` for strings."""
    if dtype.hasobject:
        raise InputError(where, "text without values", 'values: "data": ["a", "b"]')
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu" or "int" in dtype.name:
        return rng.integers(0, 3, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _outputs(given: Any, where: str) -> tuple[tuple[str, ...] | None, dict[str, np.dtype[Any]]]:
    """Names of outputs, and their types as far as they are said. A number is that many."""
    if given is None:
        return None, {}
    if isinstance(given, int) and not isinstance(given, bool) and 0 < given < 1000:
        return tuple(f"output{number}" for number in range(given)), {}
    names, dtypes = [], {}
    for number, one in enumerate(_list(given, f"{where}, outputs")):
        data = (
            {"name": one}
            if isinstance(one, str)
            else _checked(one, f"{where}, outputs", ("name", "dtype", "shape"))
        )
        names.append(str(data.get("name") or f"output{number}"))
        if data.get("dtype") is not None:
            dtypes[names[-1]] = dtype_named(data["dtype"], f"{where}, output {names[-1]}")
    _distinct(names, where)
    return tuple(names) or None, dtypes


def _nodes(
    data: Mapping[str, Any], inputs: Sequence[Tensor], outputs: tuple[str, ...] | None, where: str
) -> tuple[NodeData, ...]:
    if data.get("op"):
        if "nodes" in data:
            raise InputError(where, "nodes beside op", '"nodes" of a fusion alone')
        attributes = _attributes(data.get("attributes", {}), where)
        return (NodeData(str(data["op"]), "node", tuple(one.name for one in inputs), outputs, attributes),)
    found = []
    for number, one in enumerate(_list(data.get("nodes", []), f"{where}, nodes")):
        at = f"{where}, node {number}"
        node = _checked(one, at, _NODE_KEYS)
        reads, writes = (_list(node.get(key, []), f"{at}, {key}") for key in ("inputs", "outputs"))
        if not node.get("op") or not writes:
            raise InputError(at, "no operator, or no outputs", '"op", "inputs" and "outputs" by name')
        name = str(node.get("name") or f"node{number}")
        made = _attributes(node.get("attributes", {}), at)
        found.append(NodeData(str(node["op"]), name, tuple(map(str, reads)), tuple(map(str, writes)), made))
    if not found or outputs is None:
        raise InputError(where, "no nodes, or no outputs", '"nodes": [{"op": ..., ...}], "outputs": ["y"]')
    return tuple(found)


def _attributes(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(f"{where}, attributes", repr(given)[:80], 'a dict: {"axis": 1}')
    return {str(name): _attribute(value, f"{where}, attribute {name!r}") for name, value in given.items()}


def _attribute(given: Any, where: str) -> Any:
    """``{"type": "int32"}`` is an element type, ``{"shape": [2]}`` a shape, ``{"value": ...}`` an array."""
    if not isinstance(given, Mapping):
        return given
    match dict(given):
        case {"type": name}:
            return dtype_named(name, where)
        case {"shape": sizes}:
            return tuple(_list(sizes, where))
        case {"value": values, **rest} if set(rest) <= {"dtype"}:
            said = rest.get("dtype")
            return _array(values, None if said is None else dtype_named(said, where), where)
    accepted = 'a value, {"type": "int32"}, {"shape": [2, 3]} or {"value": [1, 2], "dtype": "int64"}'
    raise InputError(where, repr(given)[:80], accepted)


def _expected(given: Any, where: str) -> tuple[Array, ...] | None:
    if given is None:
        return None
    at = f"{where}, expected"
    return tuple(
        np.asarray(one) if isinstance(one, np.ndarray) else _array(one, None, at) for one in _list(given, at)
    )


# -- graphs ----------------------------------------------------------------------------------------


def graph_of(case: Case, version: int | None = None) -> Graph:
    """Returns the graph of a case of TensorFlow, as the reader of GraphDefs makes it."""
    values = {
        one.name: Value(one.name, type_name_of(one.array.dtype), one.array.shape) for one in case.inputs
    }
    types = {one.name: one.array.dtype for one in case.inputs}
    nodes = []
    for data in case.nodes:
        attributes, made = _typed(data, types)
        signature = signature_of(data.op)
        count = signature.count(attributes, case.name) if signature is not None else 1
        outputs = (
            data.outputs if data.outputs is not None else tuple(edge(data.name, n) for n in range(count))
        )
        nodes.append(Node(data.name, data.op, DOMAIN, data.inputs, outputs, attributes))
        for name, dtype in zip(outputs, made, strict=False):
            if dtype is not None:
                types[name], values[name] = dtype, Value(name, type_name_of(dtype))
    names = case.outputs if case.outputs is not None else nodes[-1].outputs
    fed = tuple(values[one.name] for one in case.inputs if not one.constant)
    constants = {one.name: one.array for one in case.inputs if one.constant}
    opsets = {DOMAIN: version or case.version or TENSORFLOW_VERSION, "": OPSET}
    ordered = sort_nodes(nodes, [one.name for one in case.inputs])
    outputs_ = tuple(values.get(name, Value(name)) for name in names)
    order = tuple(node.name for node in ordered)
    return Graph("case", ordered, fed, outputs_, constants, values, opsets, 10, (), order)


def _typed(
    data: NodeData, types: Mapping[str, np.dtype[Any]]
) -> tuple[dict[str, Any], list[np.dtype[Any] | None]]:
    """The attributes with the element types and counts that the inputs say, and the types of the outputs."""
    attributes, signature = dict(data.attributes), signature_of(data.op)
    if signature is None:
        return attributes, []
    for name in {port.type for port in (*signature.input_ports, *signature.output_ports)}:
        if isinstance(attributes.get(name), str) and attributes[name] in ELEMENT_TYPES:
            attributes[name] = ELEMENT_TYPES[attributes[name]]
    for port, names in ports_of(signature, data.inputs, attributes):
        said = [types[name] for name in names if name in types]
        if port.count:
            attributes.setdefault(port.count, len(names))
        if said and port.type not in ELEMENT_TYPES:
            attributes.setdefault(port.type, said if port.listed else said[0])
    return attributes, signature.types(attributes)


def ports_of(
    signature: Signature, inputs: Sequence[str], attributes: Mapping[str, Any]
) -> list[tuple[Any, list[str]]]:
    """Returns each input port with the inputs that it has; a list takes those that no other port needs."""
    rest, found = list(inputs), []
    for place, port in enumerate(signature.input_ports):
        behind = sum(1 for one in signature.input_ports[place + 1 :] if not one.many)
        given = attributes.get(port.count) if port.count else None
        count = given if isinstance(given, int) else len(rest) - behind if port.many else 1
        found.append((port, rest[:count]))
        rest = rest[count:]
    return found


def model_of(case: Case, domain: str, version: int | None = None) -> ModelProto:
    """Returns the ONNX model of a case; nodes without a domain of their own are of ``domain``."""
    opsets = {"": OPSET}
    nodes = []
    for data in case.nodes:
        own = Target.parsed(data.op) if "::" in data.op else Target(domain, data.op)
        outputs = data.outputs if data.outputs is not None else _made(own, version or OPSET)
        proto = helper.make_node(own.op_type, data.inputs, outputs, name=data.name, domain=own.domain)
        proto.attribute.extend(written(None, name, value) for name, value in data.attributes.items())
        opsets[own.domain] = version or case.version or (1 if own.domain else OPSET)
        nodes.append(proto)
    names = case.outputs if case.outputs is not None else tuple(nodes[-1].output)
    ends = [helper.make_empty_tensor_value_info(name) for name in names]
    for end in ends:
        if end.name in case.dtypes:
            end.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(case.dtypes[end.name])
    constants = [numpy_helper.from_array(one.array, one.name) for one in case.inputs if one.constant]
    graph = helper.make_graph(nodes, "case", _fed(case), ends, constants)
    imports = [helper.make_opsetid(name, number) for name, number in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _made(target: Target, opset: int) -> tuple[str, ...]:
    schema = target.schema(opset)
    return tuple(f"output{number}" for number in range(schema.min_output if schema is not None else 1))


def _fed(case: Case) -> list[ValueInfoProto]:
    kind = helper.np_dtype_to_tensor_dtype
    return [
        helper.make_tensor_value_info(one.name, kind(one.array.dtype), one.array.shape)
        for one in case.inputs
        if not one.constant
    ]
