# SPDX-License-Identifier: Apache-2.0
"""Rules of quantised models: DequantizeLinear -> operator -> QuantizeLinear becomes one integer operator.

Three tables. ``GROUPS``: operators that have a quantised form, of ONNX or onnxruntime, with the operands of
both. ``MOVERS``: operators that move or select elements without changing them, so that integers pass through
unchanged. ``BOUNDS``: operators that clamp their input, which integers are by a clamp or by saturation.

Operands of a group's operator have the names of its quantised form (``frontend/quantised_operands.py``), in
their own order: ``x`` comes from a DequantizeLinear, ``?c`` is optional, ``=c`` is passed on unchanged, and
``*x`` stands for all that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Graph, Node
from onedispatch.dispatch.frontend.quantised_operands import OPERATORS, QuantisedOperator
from onedispatch.dispatch.rules.match import attribute
from onedispatch.dispatch.rules.pattern import Condition
from onedispatch.operators.declarations.dtypes import saturated
from onedispatch.operators.declarations.registry import MICROSOFT
from onedispatch.transactions.base.cached import cached_property


@dataclass(frozen=True)
class Edge:
    """A quantised edge: the integers that DequantizeLinear ``node`` reads, or QuantizeLinear makes."""

    node: Node
    tensor: str
    dtype: np.dtype[Any]
    scale: str
    zero: str  # "": none
    axis: int  # of several scales; negative counts from the last
    block: int

    def several(self, graph: Graph) -> bool:
        """True if there is more than one scale, or their number is unknown."""
        value = graph.value(self.scale)
        return not value.is_concrete or np.prod(value.concrete_shape, dtype=int) != 1

    def numbers(self, graph: Graph) -> tuple[Array, Array] | None:
        """Returns scales and zero points, None if one is not constant."""
        scale = graph.constants.get(self.scale)
        zero = graph.constants.get(self.zero) if self.zero else np.zeros(1, self.dtype)
        return None if scale is None or zero is None else (scale, zero)

    def orders(self, graph: Graph) -> bool:
        """True if the integers are ordered as the floats that they represent, and differ if those differ.

        In float32 different integers of 8 or 16 bits are different floats, in narrower floats they may
        coincide; computed scales may be negative.
        """
        known = self.numbers(graph)
        if known is None or known[0].dtype != np.float32 or self.dtype.itemsize > 2:
            return False
        return bool(np.all(known[0] >= np.finfo(np.float32).tiny))

    def equals(self, other: Edge, graph: Graph) -> bool:
        """True if equal integers represent equal floats on both edges, each with one scale."""
        if self.dtype != other.dtype or self.block or other.block:
            return False
        if self.several(graph) or other.several(graph):
            return False
        if (self.scale, self.zero) == (other.scale, other.zero):
            return True
        mine, others = self.numbers(graph), other.numbers(graph)
        if mine is None or others is None:
            return False
        pairs = zip(mine, others, strict=True)
        return all(a.dtype == b.dtype and a.reshape(-1)[0] == b.reshape(-1)[0] for a, b in pairs)


@dataclass(frozen=True)
class Fit:
    """A node that a group may take, with its quantised edges by name of operand and result."""

    graph: Graph
    node: Node
    edges: Mapping[str, Edge]
    plain: Mapping[str, str]  # operands that do not come from a DequantizeLinear

    def constant(self, name: str) -> Array | None:
        """Returns the array of a constant value, None for any other."""
        return self.graph.constants.get(name)

    def shape(self, index: int) -> tuple[int, ...]:
        """Returns the shape of an operand; ``()`` if it is unknown."""
        return self.graph.value(self.node.inputs[index]).concrete_shape


@dataclass(frozen=True)
class Group:
    """Replaces ``op_type`` between integers by ``target``, which keeps its attributes except ``drops``.

    ``sums``: the target makes int32 sums, which are scaled by the product of the operands' scales.
    ``floats``: it makes floats, since it gets no scale of a result. In both cases no QuantizeLinear follows.
    ``derive`` computes operands from the fit: the name of a value, or a constant.
    """

    op_type: str
    operands: str
    target: str
    domain: str = ""
    where: tuple[Condition, ...] = ()
    derive: Mapping[str, Callable[[Fit], str | Array]] = field(default_factory=dict)
    drops: tuple[str, ...] = ()
    adds: Mapping[str, Callable[[Fit], Any]] = field(default_factory=dict)
    sums: bool = False
    floats: bool = False

    @property
    def name(self) -> str:
        """The name in placements and remarks."""
        return f"rule {self.target}"

    @cached_property
    def form(self) -> QuantisedOperator:
        """The operands of the target."""
        return OPERATORS[self.domain, self.target]

    @cached_property
    def result(self) -> str:
        """The name of the result; "" unless it is an integer with a scale of its own."""
        return "" if self.floats else self.made

    @cached_property
    def made(self) -> str:
        """The name of the result if the target can make integers with a scale of their own, else ""."""
        scales = (one.scale for one in self.form.said if one.made)
        return next((self.form.names[at].removesuffix("_scale") for at in scales if at is not None), "")


def _per_tensor(*names: str) -> Condition:
    def holds(fit: Fit) -> bool:
        return not any(
            e.several(fit.graph) for name, e in fit.edges.items() if name.rstrip("0123456789") in names
        )

    return Condition(f"one scale for all of {', '.join(names)}", holds)


def _along(name: str, index: int, wanted: Callable[[Fit, int], int], what: str) -> Condition:
    """Requires that several scales of operand ``index`` lie along axis ``wanted(fit, rank)``."""

    def holds(fit: Fit) -> bool:
        edge, rank = fit.edges[name], len(fit.shape(index))
        return not edge.several(fit.graph) or edge.axis % max(rank, 1) == wanted(fit, rank)

    return Condition(f"scales of {name} for {what}", holds)


_LOST = 1 / 16  # of a step of the result: what rounding a constant bias may change


def _one_type(fit: Fit) -> bool:
    return len({edge.dtype for edge in fit.edges.values()}) == 1


def _bias_fits(fit: Fit, x: str, w: str, bias: str) -> bool:
    """True if there is none, or it is quantised with the product of the scales, or a constant that can be."""
    if bias not in fit.edges and not fit.plain.get(bias):
        return True
    if any(fit.edges[one].numbers(fit.graph) is None for one in (x, w)):
        return False
    return _in_units(fit, x, w, bias) or _bias_units(fit, x, w, bias) is not None


def _in_units(fit: Fit, x: str, w: str, bias: str) -> bool:
    """True if the bias is int32, quantised with the product of the scales.

    onnxruntime uses int32 as they are: another scale of the bias would give other sums.
    """
    edge = fit.edges.get(bias)
    own = edge.numbers(fit.graph) if edge is not None else None
    if edge is None or own is None or edge.dtype != np.int32 or np.any(own[1]) or edge.block:
        return False
    rank = len(fit.graph.value(edge.tensor).concrete_shape)
    if edge.several(fit.graph) and edge.axis % rank != rank - 1:
        return False
    wanted = _product(fit, x, w)
    return bool(np.allclose(np.broadcast_arrays(own[0].reshape(-1), wanted)[0], wanted, rtol=1e-4, atol=0.0))


def _bias_floats(fit: Fit, bias: str) -> Array | None:
    """Returns the values of a constant bias, which may have been quantised for another product."""
    edge = fit.edges.get(bias)
    if edge is None:
        constant = fit.constant(fit.plain.get(bias, ""))
        return constant if constant is not None and constant.dtype == np.float32 else None
    integers, own = fit.constant(edge.tensor), edge.numbers(fit.graph)
    if integers is None or own is None or own[0].dtype != np.float32 or edge.block:
        return None
    along = [1] * integers.ndim
    if edge.several(fit.graph):
        along[edge.axis % integers.ndim] = -1
    scale, zero = (one.reshape(along) for one in own)
    return np.asarray((integers.astype(np.int64) - zero.astype(np.int64)).astype(np.float32) * scale)


def _bias_units(fit: Fit, x: str, w: str, bias: str) -> Array | None:
    """Returns a constant bias as int32, in units of the sums; None where these do not hold it, or are too
    coarse beside the steps of the result."""
    values, made = _bias_floats(fit, bias), fit.edges.get("y")
    if values is None:
        return None
    product = _product(fit, x, w).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        units = np.rint(values / product)
        lost = np.abs(units * product - values).max(initial=0.0)
    most, known = np.iinfo(np.int32).max, made.numbers(fit.graph) if made is not None else None
    if not np.all(np.abs(units) <= most) or (known is not None and lost > _LOST * float(np.min(known[0]))):
        return None
    return np.asarray(units, np.int32)


def _product(fit: Fit, x: str, w: str) -> Array:
    """Returns the scale of the int32 sums in float32, per channel if ``w`` has scales per channel."""
    (one, _), (other, _) = (fit.edges[name].numbers(fit.graph) or (np.ones(1), 0) for name in (x, w))
    return np.asarray(one.reshape(-1).astype(np.float32) * other.reshape(-1).astype(np.float32))


def _bias(fit: Fit, x: str, w: str, bias: str) -> str | Array:
    """Returns the bias in units of the sums: the model's own integers, or its floats, rounded."""
    if _in_units(fit, x, w, bias):
        return fit.edges[bias].tensor
    units = _bias_units(fit, x, w, bias)
    return "" if units is None else units


def _biased(x: str, w: str, bias: str) -> tuple[Condition, dict[str, Callable[[Fit], str | Array]]]:
    condition = Condition(
        f"a constant bias, or int32 whose scale is that of {x} times that of {w}",
        lambda fit: _bias_fits(fit, x, w, bias),
    )
    return condition, {bias: lambda fit: _bias(fit, x, w, bias)}


def _plain_or_alone(fit: Fit) -> bool:
    """True if there is no bias, so that beta has no effect and alpha only scales, or both are 1."""
    biased = "c" in fit.edges or bool(fit.plain.get("c"))
    return not biased or all(attribute(fit.graph, fit.node, name) == 1.0 for name in ("alpha", "beta"))


_CONV_BIAS, _CONV_DERIVE = _biased("x", "w", "B")
_GEMM_BIAS, _GEMM_DERIVE = _biased("a", "b", "c")
# A vector has no columns: several scales would lie along the reduction.
_COLUMNS = _along("b", 1, lambda _, rank: rank - 1 if rank > 1 else -1, "the columns of b")


def _unary(
    op_type: str, *where: Condition, drops: tuple[str, ...] = (), **adds: Callable[[Fit], Any]
) -> Group:
    return Group(
        op_type,
        "x",
        f"QLinear{op_type}",
        MICROSOFT,
        (_per_tensor("x", "y"), Condition("x and y of one type", _one_type), *where),
        drops=drops,
        adds=adds,
    )


def _dense(fit: Fit) -> bool:
    return all(step == 1 for step in fit.node.attributes.get("dilations", ()))


def _binary(op_type: str) -> Group:
    return Group(
        op_type,
        "a b",
        f"QLinear{op_type}",
        MICROSOFT,
        (_per_tensor("a", "b", "c"), Condition("a, b and c of one type", _one_type)),
    )


def _gemm(floats: bool = False) -> Group:
    exact = Condition(  # floats are not rounded to units of the sums
        "a bias that is quantised for a times b, or none",
        lambda fit: not fit.plain.get("c") and ("c" not in fit.edges or _in_units(fit, "a", "b", "c")),
    )
    return Group(
        "Gemm",
        "a b ?c",
        "QGemm",
        MICROSOFT,
        where=(
            Condition("alpha=1 and beta=1 beside a bias", _plain_or_alone),
            _per_tensor("a", "y"),
            _along("b", 1, lambda fit, _: 1 - fit.node.attributes.get("transB", 0), "the columns of b"),
            _GEMM_BIAS,
            *([exact] if floats else []),  # onnxruntime quantises a float bias only for a quantised result
        ),
        derive=_GEMM_DERIVE,
        drops=("beta",),
        floats=floats,
    )


GROUPS: tuple[Group, ...] = (
    Group(
        "Conv",
        "x w ?B",
        "QLinearConv",
        where=(
            _per_tensor("x", "y"),
            _along("w", 1, lambda *_: 0, "the channels that w makes"),
            _CONV_BIAS,
        ),
        derive=_CONV_DERIVE,
    ),
    Group(
        "MatMul",
        "a b",
        "QLinearMatMul",
        where=(_per_tensor("a", "y"), _COLUMNS),
    ),
    Group(
        "MatMul",
        "a b",
        "MatMulInteger",
        where=(
            _per_tensor("a"),
            _COLUMNS,
            Condition(
                "scales that are constant",
                lambda fit: all(edge.numbers(fit.graph) is not None for edge in fit.edges.values()),
            ),
        ),
        sums=True,
    ),
    _gemm(),
    _gemm(floats=True),
    _binary("Add"),
    _binary("Mul"),
    _unary("Sigmoid"),
    _unary("LeakyRelu"),
    _unary("AveragePool", Condition("a window without dilations", _dense), drops=("dilations",)),
    _unary("GlobalAveragePool", channels_last=lambda _: 0),
    _unary(
        "Softmax",
        opset=lambda fit: fit.graph.opset_of(fit.node),
        axis=lambda fit: attribute(fit.graph, fit.node, "axis"),
    ),
    Group(
        "Concat",
        "*x",
        "QLinearConcat",
        MICROSOFT,
        where=(_per_tensor("x", "y"), Condition("operands and y of one type", _one_type)),
    ),
    Group(
        "Where",
        "=condition x y",
        "QLinearWhere",
        MICROSOFT,
        where=(_per_tensor("x", "y", "z"), Condition("x, y and z of one type", _one_type)),
    ),
)


# -- movers ----------------------------------------------------------------------------------------------


def _nearest(graph: Graph, node: Node) -> bool:
    """True if every result is an element of the tensor: cropping adds an extrapolated float."""
    crops = node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return bool(attribute(graph, node, "mode") == "nearest") and not crops


def _nothing_between(graph: Graph, node: Node) -> bool:
    """True if the padding consists of elements of the tensor or of zeros."""
    return bool(attribute(graph, node, "mode") != "constant") or _filled(graph, node)


def _filled(graph: Graph, node: Node) -> bool:
    """True if the padding is 0, which the zero point represents."""
    if len(node.inputs) < 2:
        return False  # before operator set 11 pads and values are attributes
    name = node.inputs[2] if len(node.inputs) > 2 else ""
    value = graph.constants.get(name)
    return not name or (value is not None and bool(np.all(value == 0)))


def _of_something(graph: Graph, node: Node) -> bool:
    """True if there are elements: without any the result is an infinity, which no integer represents."""
    x = graph.value(node.inputs[0])
    return not x.is_concrete or 0 not in x.concrete_shape


@dataclass(frozen=True)
class Mover:
    """An operator that moves or selects elements of its data operands, the first ``data`` (-1: all).

    ``where`` is a condition on (graph, node); ``fills`` the operand with padding values, replaced by the zero
    point; ``orders``: it selects by order, which must be the same for integers and floats.
    """

    data: int = 1
    where: Callable[[Graph, Node], bool] | None = None
    accepted: str = ""  # what ``where`` requires, in words
    fills: int = -1
    orders: bool = False


_PLAIN = (
    "DepthToSpace Expand Flatten Gather GatherElements GatherND Identity Reshape Slice SpaceToDepth Split "
    "Squeeze Tile Transpose Unsqueeze"
)
MOVERS: dict[str, Mover] = {
    **{op_type: Mover() for op_type in _PLAIN.split()},
    "ArgMax": Mover(orders=True),
    "ArgMin": Mover(orders=True),
    "Concat": Mover(data=-1),
    "Max": Mover(data=-1, orders=True),
    "MaxPool": Mover(orders=True),
    "Min": Mover(data=-1, orders=True),
    "Pad": Mover(where=_nothing_between, accepted="padding by 0, or by elements", fills=2),
    "ReduceMax": Mover(where=_of_something, accepted="elements", orders=True),
    "ReduceMin": Mover(where=_of_something, accepted="elements", orders=True),
    "TopK": Mover(orders=True),
    "Resize": Mover(where=_nearest, accepted="mode=nearest inside the tensor"),
}


# -- bounds ----------------------------------------------------------------------------------------------


def _clip(graph: Graph, node: Node) -> tuple[float, float] | None:
    given = []
    for position, (name, none) in enumerate((("min", -np.inf), ("max", np.inf)), 1):
        operand = node.inputs[position] if len(node.inputs) > position else ""
        bound = node.attributes.get(name, none)
        if operand:
            constant = graph.constants.get(operand)
            if constant is None or constant.size != 1:
                return None
            bound = constant.reshape(-1)[0]
        given.append(float(bound))
    return given[0], given[1]


BOUNDS: dict[str, Callable[[Graph, Node], tuple[float, float] | None]] = {
    "Clip": _clip,
    "Relu": lambda *_: (0.0, np.inf),
}
"""Operator -> the least and largest result of a node; None if they are unknown."""


def ends(edge: Edge, low: float, high: float, graph: Graph) -> tuple[Array, Array] | None:
    """Returns the integers of ``edge`` that represent two bounds, in its type.

    None if the scale is unknown, or a bound is NaN, which bounds nothing.

    QuantizeLinear is monotonic: clamping integers to these bounds equals clamping the floats, and saturation
    alone does it if they are the ends of the type.
    """
    known = edge.numbers(graph)
    if known is None or edge.several(graph) or edge.block or edge.dtype.kind not in "iu":
        return None
    if np.isnan(low) or np.isnan(high):
        return None
    scale, zero = (one.reshape(-1)[0] for one in known)
    found = [np.rint(np.float32(one) / np.float32(scale)) + float(zero) for one in (low, high)]
    first, second = (saturated(one, edge.dtype) for one in found)
    return first, second
