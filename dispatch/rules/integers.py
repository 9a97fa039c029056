# SPDX-License-Identifier: Apache-2.0
"""Rules of quantised models: DequantizeLinear -> operator -> QuantizeLinear is one operator on integers.

Three tables. ``GROUPS`` are operators that have a quantised form, ONNX's or onnxruntime's, with the operands
of both; ``MOVERS`` move elements or choose among them and change none, so that integers may go through as
they are; ``BOUNDS`` bound their input, as integers may be, or are by saturation.

Operands of a group's operator have the names that they have in its quantised form
(``frontend/quantised_operands.py``), in their own order: ``x`` is made by a DequantizeLinear, ``?c`` may be
absent, ``=c`` stays as it is, ``*x`` are all that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from onedispatch.dispatch.frontend.graph import Array, Graph, Node
from onedispatch.dispatch.frontend.quantised_operands import OPERATORS, QuantisedOperator
from onedispatch.dispatch.rules.match import attribute
from onedispatch.dispatch.rules.pattern import Condition
from onedispatch.operators.declarations.dtypes import saturated
from onedispatch.operators.declarations.registry import MICROSOFT


@dataclass(frozen=True)
class Edge:
    """Integers that stand for floats: what DequantizeLinear ``node`` reads, or QuantizeLinear makes."""

    node: Node
    tensor: str
    dtype: np.dtype[Any]
    scale: str
    zero: str  # "": none
    axis: int  # that several scales lie along; may count from behind
    block: int

    def several(self, graph: Graph) -> bool:
        """Whether there is more than one scale, or it is not known that there is one."""
        value = graph.value(self.scale)
        return not value.is_concrete or np.prod(value.concrete_shape, dtype=int) != 1

    def numbers(self, graph: Graph) -> tuple[Array, Array] | None:
        """Scales and zero points, where they are known."""
        scale = graph.constants.get(self.scale)
        zero = graph.constants.get(self.zero) if self.zero else np.zeros(1, self.dtype)
        return None if scale is None or zero is None else (scale, zero)

    def orders(self, graph: Graph) -> bool:
        """Whether integers are ordered as their floats are, and differ where those do.

        float32 has no two integers of 8 or 16 bits at one place, narrower floats may; scales that are
        computed may be negative.
        """
        known = self.numbers(graph)
        if known is None or known[0].dtype != np.float32 or self.dtype.itemsize > 2:
            return False
        return bool(np.all(known[0] >= np.finfo(np.float32).tiny))

    def equals(self, other: Edge, graph: Graph) -> bool:
        """Whether the same integers stand for the same floats on both: one scale for all elements."""
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
    """A node of a group with the integers around it, by names of operands and of the result."""

    graph: Graph
    node: Node
    edges: Mapping[str, Edge]
    plain: Mapping[str, str]  # operands that no DequantizeLinear makes

    def constant(self, name: str) -> Array | None:
        return self.graph.constants.get(name)

    def shape(self, index: int) -> tuple[int, ...]:
        """Of an operand; ``()`` where it is not known."""
        return self.graph.value(self.node.inputs[index]).concrete_shape


@dataclass(frozen=True)
class Group:
    """``op_type`` between integers becomes ``target``, which has its attributes but those that it drops.

    ``sums``: it makes int32 sums, which are floats by the product of the operands' scales, ``floats``: it
    makes floats where it has no scale of a result; nothing quantises the result of either. ``derive`` are
    operands that are made of the fit: the name of a value, or a constant.
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
        return f"rule {self.target}"

    @cached_property
    def form(self) -> QuantisedOperator:
        """The operands of ``target``."""
        return OPERATORS[self.domain, self.target]

    @cached_property
    def result(self) -> str:
        """The name of what ``target`` makes; "" where that is no integer with a scale of its own."""
        return "" if self.floats else self.made

    @cached_property
    def made(self) -> str:
        """The name of what ``target`` makes, where it can make integers with a scale of their own."""
        scales = (one.scale for one in self.form.said if one.made)
        return next((self.form.names[at].removesuffix("_scale") for at in scales if at is not None), "")


def _per_tensor(*names: str) -> Condition:
    def holds(fit: Fit) -> bool:
        return not any(
            e.several(fit.graph) for name, e in fit.edges.items() if name.rstrip("0123456789") in names
        )

    return Condition(f"one scale for all of {', '.join(names)}", holds)


def _along(name: str, index: int, wanted: Callable[[Fit, int], int], what: str) -> Condition:
    """Scales of operand ``index``, where there are several, lie along axis ``wanted`` of (fit, its rank)."""

    def holds(fit: Fit) -> bool:
        edge, rank = fit.edges[name], len(fit.shape(index))
        return not edge.several(fit.graph) or edge.axis % max(rank, 1) == wanted(fit, rank)

    return Condition(f"scales of {name} for {what}", holds)


def _one_type(fit: Fit) -> bool:
    return len({edge.dtype for edge in fit.edges.values()}) == 1


def _bias_fits(fit: Fit, x: str, w: str, bias: str) -> bool:
    """onnxruntime takes int32 as they are; scales that are others would give other sums."""
    edge, name = fit.edges.get(bias), fit.plain.get(bias, "")
    scales = [fit.edges[one].numbers(fit.graph) for one in (x, w)]
    if not edge and not name:
        return True
    if scales[0] is None or scales[1] is None:
        return False
    wanted = _product(fit, x, w)
    if edge is None:
        constant = fit.constant(name)
        return constant is not None and constant.dtype == np.float32
    own, rank = edge.numbers(fit.graph), len(fit.graph.value(edge.tensor).concrete_shape)
    if own is None or edge.dtype != np.int32 or np.any(own[1]) or edge.block:
        return False
    if edge.several(fit.graph) and edge.axis % rank != rank - 1:
        return False
    return bool(np.allclose(np.broadcast_arrays(own[0].reshape(-1), wanted)[0], wanted, rtol=1e-4, atol=0.0))


def _product(fit: Fit, x: str, w: str) -> Array:
    """Float32: what one of the int32 sums stands for, by channel where ``w`` has scales by channel."""
    (one, _), (other, _) = (fit.edges[name].numbers(fit.graph) or (np.ones(1), 0) for name in (x, w))
    return np.asarray(one.reshape(-1).astype(np.float32) * other.reshape(-1).astype(np.float32))


def _bias(fit: Fit, x: str, w: str, bias: str) -> str | Array:
    """The bias in units of the sums: the model's own integers, or floats that are rounded to such."""
    if bias in fit.edges:
        return fit.edges[bias].tensor
    values = fit.constant(fit.plain.get(bias, ""))
    if values is None:
        return ""
    units = np.rint(np.asarray(values, np.float32) / _product(fit, x, w))
    return saturated(units.astype(np.float64), np.dtype(np.int32))


def _biased(x: str, w: str, bias: str) -> tuple[Condition, dict[str, Callable[[Fit], str | Array]]]:
    condition = Condition(
        f"a constant bias, or int32 whose scale is that of {x} times that of {w}",
        lambda fit: _bias_fits(fit, x, w, bias),
    )
    return condition, {bias: lambda fit: _bias(fit, x, w, bias)}


def _plain_or_alone(fit: Fit) -> bool:
    """Without a bias there is nothing that beta would be for, and alpha is one factor of the result's."""
    biased = "c" in fit.edges or bool(fit.plain.get("c"))
    return not biased or all(attribute(fit.graph, fit.node, name) == 1.0 for name in ("alpha", "beta"))


_CONV_BIAS, _CONV_DERIVE = _biased("x", "w", "B")
_GEMM_BIAS, _GEMM_DERIVE = _biased("a", "b", "c")
# A vector has no columns: several scales of it lie along what is summed over.
_COLUMNS = _along("b", 1, lambda _, rank: rank - 1 if rank > 1 else -1, "the columns of b")


def _unary(op_type: str, **adds: Callable[[Fit], Any]) -> Group:
    return Group(
        op_type,
        "x",
        f"QLinear{op_type}",
        MICROSOFT,
        (_per_tensor("x", "y"), Condition("x and y of one type", _one_type)),
        adds=adds,
    )


def _binary(op_type: str) -> Group:
    return Group(
        op_type,
        "a b",
        f"QLinear{op_type}",
        MICROSOFT,
        (_per_tensor("a", "b", "c"), Condition("a, b and c of one type", _one_type)),
    )


def _gemm(floats: bool = False) -> Group:
    integers = Condition("a bias that is quantised, or none", lambda fit: not fit.plain.get("c"))
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
            *([integers] if floats else []),  # onnxruntime rounds floats only where the result is rounded
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
    _unary("AveragePool"),
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
    """Whether every element is one of the tensor: cropping puts a float beside it."""
    crops = node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return bool(attribute(graph, node, "mode") == "nearest") and not crops


def _nothing_between(graph: Graph, node: Node) -> bool:
    """Whether what is padded has elements of the tensor, or zeros."""
    return bool(attribute(graph, node, "mode") != "constant") or _filled(graph, node)


def _filled(graph: Graph, node: Node) -> bool:
    """Whether padding is 0: what the zero point stands for."""
    if len(node.inputs) < 2:
        return False  # before operator set 11 pads and values are attributes
    name = node.inputs[2] if len(node.inputs) > 2 else ""
    value = graph.constants.get(name)
    return not name or (value is not None and bool(np.all(value == 0)))


def _of_something(graph: Graph, node: Node) -> bool:
    """Whether there are elements: of none the result is an infinity, which integers have not."""
    x = graph.value(node.inputs[0])
    return not x.is_concrete or 0 not in x.concrete_shape


@dataclass(frozen=True)
class Mover:
    """What moves elements of its data operands, the first ``data`` (-1: all), or picks some of them.

    ``where`` is what must hold of a (graph, node); ``fills`` the operand that is put between elements, by
    the zero point; ``orders``: it picks by size, which integers have as their floats have.
    """

    data: int = 1
    where: Callable[[Graph, Node], bool] | None = None
    accepted: str = ""  # what ``where`` wants
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
"""Least and largest of what a node makes; None where they are not known."""


def ends(edge: Edge, low: float, high: float, graph: Graph) -> tuple[Array, Array] | None:
    """The integers of ``edge`` that stand for two floats, of its type; None where its scale is not known, or
    a bound is no number, which bounds nothing.

    QuantizeLinear orders as floats do: what is bounded in floats is what is bounded by these, and saturation
    alone does it where they are the ends of the type.
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
