# SPDX-License-Identifier: Apache-2.0
"""Random ONNX models of one to three nodes, valid and nearly valid, and data for them.

Operators come from the registry of mappings; what a node may look like comes from its schema and, for
shapes that must fit each other, from a recipe. ``generate(data)`` is a function of its bytes alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onedispatch.operators.declarations.registry import all_mappings
from tests.fuzz.maker import DTYPES, NEWEST, ODD_INTS, SIZES, SMALL_INTS, Array, Draft, Maker, Tensor
from tests.fuzz.recipes import TYPED

# -- recipes: nodes that should be valid -------------------------------------------------------------


def elementwise(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input()
    schema = onnx.defs.get_schema(op_type, make.opset)
    if schema.max_input < 2:
        return Draft(op_type, [x])
    other = [1 if make.chance(0.3) else size for size in shape][make.rng.randrange(len(shape) + 1) :]
    pair: list[Tensor | str | None] = [x, make.tensor(*other)]
    if make.chance(0.3):
        pair.reverse()
    return Draft(op_type, pair)


def reduction(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input()
    draft = Draft(op_type, [x])
    if make.chance(0.6):
        draft.attributes["keepdims"] = make.rng.randrange(2)
    if make.chance(0.8):
        schema = onnx.defs.get_schema(op_type, make.opset)
        if "axes" in schema.attributes:
            draft.attributes["axes"] = make.axes(len(shape))
        else:
            draft.inputs.append(make.ints(make.axes(len(shape))))
            if make.chance(0.2):
                draft.attributes["noop_with_empty_axes"] = make.rng.randrange(2)
    return draft


def along_axis(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1)
    return Draft(op_type, [x], {"axis": make.axis(len(shape))} if make.chance(0.8) else {})


def concat(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1)
    axis = make.axis(len(shape))
    inputs: list[Tensor | str | None] = [x]
    for _ in range(make.rng.randint(0, 2)):
        other = list(shape)
        other[axis] = make.rng.choice(SIZES)
        inputs.append(make.tensor(*other))
    return Draft(op_type, inputs, {"axis": axis})


def transpose(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input()
    order = list(range(len(shape)))
    make.rng.shuffle(order)
    return Draft(op_type, [x], {"perm": order} if make.chance(0.8) else {})


def reshape(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input()
    target, rest = [], prod(shape)
    for divisor in (2, 3, 5, 7):
        if rest and rest % divisor == 0 and make.chance(0.6):
            target.append(divisor)
            rest //= divisor
    target.append(rest)
    if make.chance(0.3):
        target[make.rng.randrange(len(target))] = -1
    return Draft(op_type, [x, make.ints(target)])


def squeeze(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input()
    ones = [d for d, size in enumerate(shape) if size == 1]
    axes = [a - len(shape) if make.chance(0.4) else a for a in ones if make.chance(0.7)]
    if make.opset < 13:
        return Draft(op_type, [x], {"axes": axes} if make.chance(0.8) else {})
    return Draft(op_type, [x, make.ints(axes)] if make.chance(0.8) else [x])


def unsqueeze(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(0, 4)
    count = make.rng.randint(1, 2)
    rank = len(shape) + count
    axes = [a - rank if make.chance(0.4) else a for a in make.rng.sample(range(rank), count)]
    return Draft(op_type, [x], {"axes": axes}) if make.opset < 13 else Draft(op_type, [x, make.ints(axes)])


def flatten(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input()
    return Draft(op_type, [x], {"axis": make.rng.randint(-len(shape), len(shape))})


def matmul(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1, 4)
    n = make.rng.choice(SIZES)
    batch = [1 if make.chance(0.3) else s for s in shape[:-2]][make.rng.randint(0, len(shape)) :]
    other = (shape[-1],) if make.chance(0.1) else (*batch, shape[-1], n)
    return Draft(op_type, [x, make.tensor(*other, const=0.5)])


def gemm(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(2, 2)
    n = make.rng.choice(SIZES)
    attributes: dict[str, Any] = {"transA": make.rng.randrange(2), "transB": make.rng.randrange(2)}
    m, k = reversed(shape) if attributes["transA"] else shape
    inputs: list[Tensor | str | None] = [x]
    inputs.append(make.tensor(*((n, k) if attributes["transB"] else (k, n)), const=0.5))
    if make.opset < 11 or make.chance(0.7):
        inputs.append(make.tensor(*make.rng.choice([(m, n), (n,), (1, n), (m, 1), (1,), ()]), const=0.5))
    if make.chance(0.4):
        attributes.update(alpha=make.rng.choice((0.5, 1.0, -2.0)), beta=make.rng.choice((0.0, 1.0, 0.5)))
    return Draft(op_type, inputs, attributes)


def matmul_integer(make: Maker, op_type: str) -> Draft:
    m, k, n = (make.rng.choice(SIZES) for _ in range(3))
    kinds = make.rng.choice(("int8", "uint8")), make.rng.choice(("int8", "uint8"))
    inputs: list[Tensor | str | None] = [make.tensor(m, k, dtype=kinds[0]), make.tensor(k, n, dtype=kinds[1])]
    if make.chance(0.6):
        inputs.append(make.tensor(*make.rng.choice([(), (1,), (m,)]), dtype=kinds[0]))
        if make.chance(0.6):
            inputs.append(make.tensor(*make.rng.choice([(), (1,), (n,)]), dtype=kinds[1]))
    return Draft(op_type, inputs)


def window_attributes(make: Maker, kernel: list[int]) -> dict[str, Any]:
    rank, attributes = len(kernel), dict[str, Any]()
    if make.chance(0.6):
        attributes["strides"] = [make.rng.randint(1, 3) for _ in range(rank)]
    if make.chance(0.3):
        attributes["dilations"] = [make.rng.randint(1, 2) for _ in range(rank)]
    if make.chance(0.5):
        attributes["pads"] = [make.rng.randrange(size) for size in [*kernel, *kernel]]
    elif make.chance(0.5):
        attributes["auto_pad"] = make.rng.choice(("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
    return attributes


def pool(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(3, 5)
    kernel = [make.rng.randint(1, min(4, max(size, 1))) for size in shape[2:]]
    attributes = {"kernel_shape": kernel, **window_attributes(make, kernel)}
    if make.chance(0.5):
        attributes["ceil_mode"] = 1
    if op_type == "AveragePool" and make.chance(0.5):
        attributes["count_include_pad"] = 1
    known = onnx.defs.get_schema(op_type, make.opset).attributes
    return Draft(op_type, [x], {k: v for k, v in attributes.items() if k in known})


def conv_transpose(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(3, 5)
    kernel = [make.rng.randint(1, 3) for _ in shape[2:]]
    attributes = window_attributes(make, kernel)
    attributes.pop("pads", None)  # of small data nothing would be left
    return Draft(op_type, [x, make.tensor(shape[1], make.rng.randint(1, 3), *kernel, const=0.7)], attributes)


def einsum(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(1, 4)
    labels = "abcd"[: len(shape)]
    kept = make.rng.sample([*labels[:-1], "z"], make.rng.randint(1, len(labels)))
    equation = {"equation": f"{labels},{labels[-1]}z->{''.join(kept)}"}
    return Draft(op_type, [x, make.tensor(shape[-1], make.rng.randint(1, 4))], equation)


def conv(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(3, 5)
    kernel = [make.rng.randint(1, min(3, max(size, 1))) for size in shape[2:]]
    divisors = [g for g in range(1, shape[1] + 1) if shape[1] % g == 0] or [1]
    group = make.rng.choice(divisors)
    outputs = group * make.rng.randint(1, 3)
    attributes = window_attributes(make, kernel)
    if make.chance(0.4):
        attributes["kernel_shape"] = kernel
    if group > 1 or make.chance(0.3):
        attributes["group"] = group
    inputs: list[Tensor | str | None] = [x, make.tensor(outputs, shape[1] // group, *kernel, const=0.7)]
    if make.chance(0.5):
        inputs.append(make.tensor(outputs, const=0.7))
    return Draft(op_type, inputs, attributes)


def batch_normalization(make: Maker, op_type: str) -> Draft:
    x, shape = make.data_input(2)
    constant = make.rng.choice((0.0, 1.0))
    each = make.opset < 9 and make.chance(0.3)  # a mean for each element of a sample, not each channel
    sizes = shape[1:] if each else shape[1:2]
    parameters: list[Tensor | str | None] = [make.tensor(*sizes, const=constant) for _ in range(4)]
    for tensor in parameters[3:]:
        if isinstance(tensor, Tensor):
            tensor.array = np.asarray(np.abs(tensor.array) + np.float32(0.5))
    attributes: dict[str, Any] = {"epsilon": 1e-3} if make.chance(0.4) else {}
    return Draft(op_type, [x, *parameters], {**attributes, "spatial": 0} if each else attributes)


def lrn(make: Maker, op_type: str) -> Draft:
    x, _ = make.data_input(4, 4)
    return Draft(op_type, [x], {"size": make.rng.choice((1, 3, 5)), "alpha": 0.5})


def global_pool(make: Maker, op_type: str) -> Draft:
    return Draft(op_type, [make.data_input(3, 5)[0]])


def clip(make: Maker, op_type: str) -> Draft:
    x, _ = make.data_input()
    if make.opset < 11:
        return Draft(op_type, [x], {"min": -0.5} if make.chance(0.6) else {})
    low = make.tensor(const=0.6) if make.chance(0.7) else None
    return Draft(op_type, [x, low, *([make.tensor(const=0.6)] if make.chance(0.6) else [])])


RECIPES: dict[str, Callable[[Maker, str], Draft]] = {
    "AveragePool": pool, "BatchNormalization": batch_normalization, "Clip": clip, "Concat": concat,
    "Conv": conv, "Flatten": flatten, "Gemm": gemm, "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool, "LRN": lrn, "LogSoftmax": along_axis, "MatMul": matmul,
    "MatMulInteger": matmul_integer, "MaxPool": pool, "Reshape": reshape, "Softmax": along_axis,
    "ConvTranspose": conv_transpose, "Einsum": einsum, "GlobalLpPool": global_pool, "LpPool": pool,
    "Squeeze": squeeze, "Transpose": transpose, "Unsqueeze": unsqueeze, **TYPED,
}  # fmt: skip


def recipe(op_type: str) -> Callable[[Maker, str], Draft]:
    """How nodes of a registered operator are made; element-wise where nothing else is known."""
    return RECIPES.get(op_type) or (reduction if op_type.startswith("Reduce") else elementwise)


# -- changes: nodes that are nearly valid ------------------------------------------------------------


def _other_int(make: Maker, name: str) -> int:
    # Only axes may be huge: memory that sizes ask for, and flags beyond 32 bits, are another test's matter.
    return make.rng.choice(ODD_INTS if name in ("axis", "axes", "perm") else SMALL_INTS)


def change_attribute(make: Maker, draft: Draft) -> None:
    """An attribute of the operator, with another value."""
    if not draft.attributes:
        return add_attribute(make, draft)
    name = make.rng.choice(sorted(draft.attributes))
    old = draft.attributes[name]
    if isinstance(old, list):
        changed = list(old)
        action = make.rng.randrange(3)
        if action == 0 and changed:
            changed[make.rng.randrange(len(changed))] = _other_int(make, name)
        elif action == 1 and changed:
            changed.pop()
        else:
            changed.append(_other_int(make, name))
        draft.attributes[name] = changed
    elif isinstance(old, str):
        draft.attributes[name] = make.rng.choice(("BOGUS", "", "valid", "SAME_UPPER"))
    elif isinstance(old, float):
        draft.attributes[name] = make.rng.choice((0.0, -1.0, 1e30, 1))
    else:
        draft.attributes[name] = make.rng.choice((_other_int(make, name), 1.5))


def add_attribute(make: Maker, draft: Draft) -> None:
    """An attribute of the operator's schema, of any version, or one that no operator has."""
    values: dict[str, Any] = {
        "axis": _other_int(make, "axis"), "axes": [_other_int(make, "axes")], "perm": [0],
        "auto_pad": make.rng.choice(("SAME_UPPER", "BOGUS")), "group": make.rng.choice((0, 2, 3)),
        "kernel_shape": [2, 2], "keepdims": 0, "ceil_mode": 1, "pads": [1, 1, 1, 1], "strides": [2, 2],
        "dilations": [2], "bogus": 1, "storage_order": 1, "count_include_pad": 1, "allowzero": 1,
        "training_mode": 1, "noop_with_empty_axes": 1, "alpha": 0.5, "to": 1, "spatial": 0,
    }  # fmt: skip
    try:
        own = [name for name in onnx.defs.get_schema(draft.op_type, make.opset).attributes if name in values]
    except onnx.defs.SchemaError:
        own = []
    name = make.rng.choice(own) if own and make.chance(0.7) else make.rng.choice(sorted(values))
    draft.attributes[name] = values[name]


def change_shape(make: Maker, draft: Draft) -> None:
    """Another size or rank of one input."""
    own = [x for x in draft.inputs if isinstance(x, Tensor)]
    if not own:
        return
    tensor = make.rng.choice(own)
    sizes = list(tensor.array.shape)
    if sizes and make.chance(0.6):
        at = make.rng.randrange(len(sizes))
        sizes[at] = max(0, sizes[at] + make.rng.choice((-1, 1, 2)))
    elif sizes and make.chance(0.5):
        sizes.pop(make.rng.randrange(len(sizes)))
    else:
        sizes.insert(make.rng.randint(0, len(sizes)), make.rng.choice((1, 2)))
    tensor.array = make.data(tuple(sizes), str(tensor.array.dtype))


def change_values(make: Maker, draft: Draft) -> None:
    """Another value in an operand of axes or sizes."""
    own = [x for x in draft.inputs if isinstance(x, Tensor) and x.array.dtype == np.int64 and x.array.size]
    if own:
        tensor = make.rng.choice(own)
        tensor.array = tensor.array.copy()
        tensor.array.reshape(-1)[make.rng.randrange(tensor.array.size)] = make.rng.choice(SMALL_INTS)


def change_dtype(make: Maker, draft: Draft) -> None:
    own = [x for x in draft.inputs if isinstance(x, Tensor)]
    if own:
        dtype = make.rng.choice(DTYPES)
        for tensor in own if make.chance(0.6) else [make.rng.choice(own)]:
            tensor.array = make.data(tensor.array.shape, dtype)


def change_inputs(make: Maker, draft: Draft) -> None:
    action = make.rng.randrange(4)
    if action == 0 and draft.inputs:
        draft.inputs.pop()
    elif action == 1:
        draft.inputs.append(make.tensor(*make.shape(0, 2)))
    elif action == 2 and draft.inputs:
        draft.inputs[make.rng.randrange(len(draft.inputs))] = None
    else:
        draft.outputs = make.rng.choice((2, 3, 5))


def change_operator(make: Maker, draft: Draft) -> None:
    draft.op_type = make.rng.choice([m.op_type for m in all_mappings()] + ["Bogus"])


CHANGES = (
    change_attribute, change_attribute, add_attribute, change_shape, change_shape, change_shape,
    change_values, change_values, change_dtype, change_inputs, change_operator,
)  # fmt: skip


# -- the model ---------------------------------------------------------------------------------------


@dataclass
class Model:
    """A model and its feed; ``told`` names what is in it."""

    proto: onnx.ModelProto
    feed: dict[str, Array]
    told: str


def generate(data: bytes, wide: bool = False) -> Model:
    """The model that ``data`` stands for: the same for the same bytes.

    ``wide``: every opset from 7 to 26, data of other types too, up to four nodes, seldom changed, and any
    operand may be constant.
    """
    rng = random.Random(data)
    make = Maker(rng, wide)
    names = [m.op_type for m in all_mappings() if not m.domain and onnx.defs.has(m.op_type)]
    drafts: list[Draft] = []
    changed = make.chance(0.1 if wide else 0.55)
    count = rng.choice((1, 1, 2, 2, 3, 4) if wide else (1, 1, 2, 3))
    spoiled = rng.randrange(count) if changed else -1
    writer = _Writer(make)
    for index in range(count):
        op_type = rng.choice(names)
        since = onnx.defs.get_schema(op_type).since_version
        try:
            onnx.defs.get_schema(op_type, make.opset)
        except onnx.defs.SchemaError:
            make.opset = since
        draft = recipe(op_type)(make, op_type)
        if index == spoiled:
            for _ in range(rng.choice((1, 1, 2))):
                rng.choice(CHANGES)(make, draft)
        if wide:
            _constants_anywhere(make, draft)
        drafts.append(draft)
        writer.add(draft, index)
    return writer.model(odd_version=changed and make.chance(0.08))


def _constants_anywhere(make: Maker, draft: Draft) -> None:
    """Which operands are constant, whatever the recipe says: what is packed, and what is not, shows then."""
    share = make.rng.choice((None, 0.0, 0.5, 1.0))
    own = [x for x in draft.inputs if isinstance(x, Tensor)]
    for tensor in own if share is not None else ():
        tensor.const = make.chance(share or 0.0)
    if len(own) == len(draft.inputs) > 0 and all(x.const for x in own) and make.chance(0.9):
        make.rng.choice(own).const = False


class _Writer:
    """Drafts to protobuf."""

    def __init__(self, make: Maker) -> None:
        self.make = make
        self.nodes: list[onnx.NodeProto] = []
        self.feed: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.outputs: list[str] = []
        self.read: set[str] = set()

    def add(self, draft: Draft, index: int) -> None:
        names = []
        for position, x in enumerate(draft.inputs):
            if isinstance(x, Tensor):
                name = f"x{index}_{position}"
                (self.constants if x.const else self.feed)[name] = x.array
                names.append(name)
            else:
                names.append(x or "")
                self.read.add(x or "")
        outputs = [f"y{index}_{i}" for i in range(draft.outputs)]
        self.outputs += outputs
        node = helper.make_node(draft.op_type, names, outputs, f"n{index}")
        node.attribute.extend(attributes_of(draft.attributes))
        self.nodes.append(node)
        self._learn(outputs[0])

    def _learn(self, output: str) -> None:
        """The shape of a float output, for later nodes."""
        try:
            inferred = onnx.shape_inference.infer_shapes(self._proto(8), strict_mode=True, data_prop=True)
        except (onnx.shape_inference.InferenceError, RuntimeError):  # nearly valid models have none
            return
        for info in inferred.graph.output:
            kind = info.type.tensor_type
            dtype = helper.np_dtype_to_tensor_dtype(np.dtype(self.make.dtype))
            if info.name == output and kind.elem_type == dtype and kind.HasField("shape"):
                sizes = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim)
                if -1 not in sizes and prod(sizes) <= 20_000:
                    self.make.known[output] = sizes

    def _proto(self, ir_version: int) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.feed.items()
        ]
        # Inner values are outputs too, now and then: what two nodes make of them shows in each.
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "model", inputs, outputs, constants)
        opsets = [helper.make_opsetid("", self.make.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)

    def model(self, odd_version: bool) -> Model:
        make = self.make
        if make.chance(0.7):
            self.outputs = [name for name in self.outputs if name not in self.read] or self.outputs
        proto = self._proto(8)
        if odd_version and make.chance(0.5):
            proto.opset_import[0].version = make.rng.choice((0, -1, 1, 5, NEWEST + 1, 999))
        elif odd_version:
            proto.ir_version = make.rng.choice((1, 3, onnx.IR_VERSION + 1, 99))
        if make.chance(0.25):
            _open_dimensions(make, proto)
        opset, ir = proto.opset_import[0].version, proto.ir_version
        told = "; ".join(described(node, self.feed, self.constants) for node in self.nodes)
        return Model(proto, self.feed, f"opset {opset} ir {ir}: {told}")


def attributes_of(given: dict[str, Any]) -> list[onnx.AttributeProto]:
    """Attributes as they are written; empty lists are lists of integers."""
    return [
        helper.make_attribute(name, value, attr_type=onnx.AttributeProto.INTS if value == [] else None)
        for name, value in given.items()
    ]


def _open_dimensions(make: Maker, proto: onnx.ModelProto) -> None:
    for info in proto.graph.input:
        for d, dim in enumerate(info.type.tensor_type.shape.dim):
            if make.chance(0.5):
                dim.dim_param = f"{info.name}_{d}"


def described(node: onnx.NodeProto, feed: dict[str, Array], constants: dict[str, Array]) -> str:
    def shown(name: str) -> str:
        array = feed.get(name, constants.get(name))
        if array is None:
            return name or "-"
        kind = "const " if name in constants else ""
        value = array.tolist() if array.dtype == np.int64 and array.size < 9 else list(array.shape)
        return f"{kind}{array.dtype}{value}"

    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return f"{node.op_type}({', '.join(map(shown, node.input))}) {attributes or ''} -> {len(node.output)}"
