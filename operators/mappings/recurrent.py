# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN: x times its weights for all steps, then ``Recurrent``, then what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import FLOATS
from onedispatch.operators.declarations.functions import ACTIVATIONS, Activation
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.kernels import recurrent
from onedispatch.operators.kernels.elementwise import Eltwise, Layout, View, numpy_names
from onedispatch.operators.kernels.matmul import MatMul, ProductOptions
from onedispatch.operators.kernels.movement import Move, StridedCopy
from onedispatch.operators.kernels.recurrent import SLOTS, Cell, Layer, Recurrent
from onedispatch.operators.lowering.convert import emit_converted, in_float32
from onedispatch.operators.lowering.position import emit_counts

Array = np.ndarray[Any, Any]
F = np.dtype(np.float32)

TAKEN = numpy_names(FLOATS)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
# ONNX's names of activations, with the alpha and beta that stand where a node gives none, as onnxruntime has
# them; () takes none.
FUNCTIONS: dict[str, tuple[str, tuple[float, ...]]] = {
    "relu": ("relu", ()),
    "tanh": ("tanh", ()),
    "sigmoid": ("sigmoid", ()),
    "softsign": ("softsign", ()),
    "softplus": ("softplus", ()),
    "leakyrelu": ("leakyrelu", (0.01,)),
    "thresholdedrelu": ("thresholded_relu", (0.0,)),
    "elu": ("elu", (1.0,)),
    "affine": ("affine", (0.0, 0.0)),
    "scaledtanh": ("scaled_tanh", (0.0, 0.0)),
    "hardsigmoid": ("hardsigmoid", (0.2, 0.5)),
}
# ASSUMPTION: a transaction of so many calls is as long as a host would hand over at once.
MOST_CALLS = 8192


def _functions(node: NodeSpec, directions: int) -> list[tuple[Activation, ...]]:
    """f, g and h of every direction; alphas and betas go to those that have them, one after the other."""
    count = len(DEFAULTS[node.op_type])
    names = list(node.attr("activations") or DEFAULTS[node.op_type] * directions)
    if len(names) != count * directions:
        raise Unsupported(f"{len(names)} activations", f"{count} for each of the directions")
    alphas, betas = (list(node.attr(f"activation_{which}") or []) for which in ("alpha", "beta"))
    found = []
    for name in names:
        row, defaults = FUNCTIONS.get(name.lower(), ("", ()))
        if row not in [function.name for function in ACTIVATIONS.rows]:
            raise Unsupported(f"{node.op_type} with activation {name}", ", ".join(sorted(FUNCTIONS)))
        pairs = zip((alphas, betas), defaults, strict=False)
        values = [float(given.pop(0)) if given else default for given, default in pairs]
        found.append(Activation(row, *values))
    return [tuple(found[d * count : (d + 1) * count]) for d in range(directions)]


def _kind(node: NodeSpec) -> str:
    if node.op_type == "GRU":
        return "gru" if node.attr("linear_before_reset", 0) else "gru_gates"
    coupled = node.op_type == "LSTM" and node.attr("input_forget", 0)
    return "lstm_coupled" if coupled else node.op_type.lower()


@dataclass
class RecurrentNode:
    """A node on its way to device operators."""

    node: NodeSpec
    lowering: Lowering
    x: TensorSpec
    cells: list[Cell]
    reverse: tuple[bool, ...]

    def __post_init__(self) -> None:
        node, (first, second, self.inputs) = self.node, self.x.shape
        self.layout = bool(node.attr("layout", 0))
        self.steps, self.batch = (second, first) if self.layout else (first, second)
        weights = node.input(2)
        if weights is None:
            raise Unsupported(f"{node.op_type} without R", "weights of the state")
        self.hidden, self.directions = weights.shape[-1], len(self.reverse)
        self.columns = GATES[node.op_type] * self.hidden  # of all gates

    def input(self, index: int) -> TensorSpec | None:
        """In float32."""
        tensor = self.node.input(index)
        return None if tensor is None else in_float32(self.node.name, tensor, self.lowering)

    def temp(self, *shape: int) -> TensorSpec:
        return self.lowering.temp(F, shape)

    def move(
        self, inputs: Sequence[TensorSpec], target: TensorSpec, parts: Sequence[StridedCopy]
    ) -> TensorSpec:
        self.lowering.emit(Move(self.node.name, inputs, target, self.lowering.device, parts))
        return target

    def each(
        self, func: str, tensors: Sequence[TensorSpec], views: Sequence[View], target: TensorSpec,
        shape: Sequence[int], out: View, activation: Activation | None = None,
    ) -> TensorSpec:  # fmt: skip
        self.lowering.emit(
            Eltwise(
                self.node.name, func, tensors, target, self.lowering.device,
                layout=Layout(views, shape, out), activation=activation,
            )
        )  # fmt: skip
        return target

    # -- what comes before the steps -----------------------------------------------------------

    def transposed(self, index: int, joined: bool) -> TensorSpec:
        """W or R as [directions, k, columns]; ``joined``: as [k, directions * columns]."""
        tensor, d, c = self.input(index), self.directions, self.columns
        if tensor is None:
            raise Unsupported(f"{self.node.op_type} without W or R", "both")
        k = tensor.shape[-1]
        shape, row, step = ((k, d * c), d * c, c) if joined else ((d, k, c), c, k * c)
        if tensor.value is not None:
            turned = tensor.value.transpose((2, 0, 1) if joined else (0, 2, 1))
            return self.lowering.const(turned.reshape(shape))
        parts = [StridedCopy(0, (k, c), View((1, k), i * c * k), View((row, 1), i * step)) for i in range(d)]
        return self.move([tensor], self.temp(*shape), parts)

    def product(self) -> tuple[TensorSpec, TensorSpec | None]:
        """x times its weights, bias added, and the bias of which the reset gate scales a part."""
        weights, bias = self.transposed(1, joined=True), self.input(3)
        width, scaled = self.directions * self.columns, self.cells[0].kind == "gru"
        result, constant = self.temp(*self.x.shape[:2], width), None
        added = np.ones(self.columns, np.float32)
        if scaled:
            added[2 * self.hidden :] = 0
        # Products add a bias to weights that are packed with it, which only constants are.
        packed = bias.value if bias is not None and weights.value is not None else None
        if packed is not None:
            halves = packed.reshape(self.directions, 2, self.columns)
            constant = (halves[:, 0] + halves[:, 1] * added).reshape(-1)
        self.multiplied(weights, result, constant)
        if bias is not None and packed is None:
            result = self.with_bias(result, bias, added)
        return result, bias if scaled else None

    def multiplied(self, weights: TensorSpec, result: TensorSpec, bias: Array | None) -> None:
        """Emits ``result``: x times ``weights`` [k, directions * columns], and a bias packed with them."""
        x = in_float32(self.node.name, self.x, self.lowering)
        self.lowering.emit(
            MatMul(self.node.name, x, weights, result, self.lowering.device, ProductOptions(bias=bias))
        )

    def with_bias(self, product: TensorSpec, bias: TensorSpec, added: Array) -> TensorSpec:
        """The same plus a bias that is not packed; ``added``: what of the second half counts."""
        d, c = self.directions, self.columns
        total = self.temp(d, c)
        views = [View((2 * c, 1), c), View((0, 1)), View((2 * c, 1))]
        self.each("muladd", [bias, self.lowering.const(added), bias], views, total, (d, c), View((c, 1)))
        shape, whole = (self.steps * self.batch, d * c), View((d * c, 1))
        target = self.temp(*product.shape)
        return self.each("add", [product, total], [whole, View((0, 1))], target, shape, whole)

    def mask(self) -> TensorSpec | None:
        """1 where a step is inside its sequence, else 0: [steps, batch]."""
        lengths, steps = self.node.input(4), np.arange(self.steps, dtype=np.float32)
        if lengths is None:
            return None
        if lengths.value is not None:
            inside = steps[:, None] < lengths.value.reshape(1, -1)
            return None if inside.all() else self.lowering.const(inside.astype(np.float32))
        whole = emit_counts(self.node.name, lengths, self.steps, self.lowering)
        counts, times = in_float32(self.node.name, whole, self.lowering), self.lowering.const(steps)
        shape, views, bounds = (
            (self.steps, self.batch),
            [View((0, 1)), View((1, 0))],
            Activation("clip", 0, 1),
        )
        out = View((self.batch, 1))
        return self.each("sub", [counts, times], views, self.temp(*shape), shape, out, bounds)

    def initial(self, mask: TensorSpec | None) -> TensorSpec:
        """The state before the first step: [directions, parts, batch, hidden]. That of a sequence of no steps
        is what it ends with: zeros, as in onnxruntime."""
        first, (d, b, n) = self._given_state(), (self.directions, self.batch, self.hidden)
        empty = mask is not None and (mask.value is None or not np.all(mask.value[0]))
        if mask is None or not empty or (first.value is not None and not np.any(first.value)):
            return first
        shape, whole = (d * self.cells[0].parts, b, n), View((b * n, n, 1))
        return self.each(
            "mul", [first, mask], [whole, View((0, 1, 0))], self.temp(*first.shape), shape, whole
        )

    def _given_state(self) -> TensorSpec:
        parts, d, b, n = self.cells[0].parts, self.directions, self.batch, self.hidden
        shape = (b, d, n) if self.layout else (d, b, n)
        zeros = np.zeros(shape, np.float32)
        given = [self.input(5 + i) or self.lowering.const(zeros) for i in range(parts)]
        if all(tensor.value is not None for tensor in given):
            values = [np.asarray(tensor.value) for tensor in given]
            ordered = [value.transpose(1, 0, 2) if self.layout else value for value in values]
            return self.lowering.const(np.ascontiguousarray(np.stack(ordered, axis=1), np.float32))
        seen = View((n, d * n, 1)) if self.layout else View((b * n, n, 1))
        moved = [
            StridedCopy(i, (d, b, n), seen, View((parts * b * n, n, 1), i * b * n)) for i in range(parts)
        ]
        return self.move(given, self.temp(d, parts, b, n), moved)

    # -- the steps -----------------------------------------------------------------------------

    def layer(self) -> tuple[TensorSpec, recurrent.SequenceView, TensorSpec | None]:
        """Emits all steps: the states, where they lie, and the mask."""
        (x, bias), mask = self.product(), self.mask()
        first = self.initial(mask)
        cell, d, b, n, c = self.cells[0], self.directions, self.batch, self.hidden, self.columns
        tensors = [x, self.transposed(2, joined=False), first]
        numbers = {}
        more, lies = (bias, (2 * c, c + 2 * n)) if bias else (self.input(7), (3 * n, 0))
        for name, tensor in (("more", more), ("mask", mask)):
            if tensor is not None:
                numbers[name] = len(tensors)
                tensors.append(tensor)
        states, view = self.states(mask)
        several = cell.kind == "gru_gates" or mask is not None
        seen, row = recurrent.SequenceView, d * c  # of x: what all directions have of a step
        along = (
            (self.steps * row, row) if self.layout else (row, b * row)
        )  # from one of the batch, one step on
        layer = Layer(
            self.steps, b, n, self.reverse,
            x=seen(0, (along[0], n, 1), along[1], c),
            r=seen(1, (c, n, 1), 0, n * c),
            state=view,
            initial=seen(2, (b * n, n, 1), 0, cell.parts * b * n),
            more=seen(numbers["more"], (n, 1), 0, *lies) if "more" in numbers else None,
            rows=1 if bias else 3,
            mask=seen(numbers["mask"], (1,), b, 0) if "mask" in numbers else None,
            between=seen(-2, (b * n, n, 1), 0, SLOTS * b * n) if several else None,
        )  # fmt: skip
        between = self.temp(d, SLOTS, b, n) if several else None
        device = self.lowering.device
        self.lowering.emit(Recurrent(self.node.name, tensors, states, device, self.cells, layer, between))
        return states, view, mask

    def states(self, mask: TensorSpec | None) -> tuple[TensorSpec, recurrent.SequenceView]:
        """The tensor of all states: Y itself, where it has just those."""
        parts, d, b, n = self.cells[0].parts, self.directions, self.batch, self.hidden
        y = self.node.outputs[0]
        if y is not None and y.dtype == F and mask is None and parts == 1:
            if self.layout:
                return y, recurrent.SequenceView(
                    -1, (b * self.steps * d * n, self.steps * d * n, 1), d * n, n
                )
            return y, recurrent.SequenceView(-1, (b * n, n, 1), d * b * n, b * n)
        view = recurrent.SequenceView(-1, (b * n, n, 1), d * parts * b * n, parts * b * n)
        return self.temp(self.steps, d, parts, b, n), view

    # -- what is asked for ---------------------------------------------------------------------

    def results(self) -> None:
        """Emits the node: all states, the last one, and of an LSTM the last of its cell."""
        states, view, mask = self.layer()
        y, *last = (*self.node.outputs, None, None, None)[: 1 + self.cells[0].parts]
        if y is not None and y is not states:
            self.finished(y, partial(self.sequence, states, view, mask))
        for part, output in enumerate(last):
            if output is not None:
                self.finished(output, partial(self.last, states, view, part))

    def finished(self, output: TensorSpec, emit: Callable[[TensorSpec], TensorSpec]) -> None:
        """``emit`` into ``output``, by way of float32 where it has another type."""
        if output.dtype == F:
            emit(output)
        else:
            emit_converted(self.node.name, emit(self.temp(*output.shape)), output, self.lowering)

    def sequence(
        self, states: TensorSpec, view: recurrent.SequenceView, mask: TensorSpec | None, target: TensorSpec
    ) -> TensorSpec:
        """The hidden states of all steps; zeros behind the end of a sequence."""
        t, d, b, n = shape = (self.steps, self.directions, self.batch, self.hidden)
        seen = View((view.step, view.direction, n, 1))
        out = View((d * n, n, t * d * n, 1) if self.layout else (d * b * n, b * n, n, 1))
        if mask is None:
            return self.move([states], target, [StridedCopy(0, shape, seen, out)])
        return self.each("mul", [states, mask], [seen, View((b, 0, 1, 0))], target, shape, out)

    def last(
        self, states: TensorSpec, view: recurrent.SequenceView, part: int, target: TensorSpec
    ) -> TensorSpec:
        """A part of the state behind the last step of every direction."""
        d, b, n = self.directions, self.batch, self.hidden
        parts = []
        for i, reverse in enumerate(self.reverse):
            at = view.at(0 if reverse else self.steps - 1, i, 0, part)
            out = View((d * n, 1), i * n) if self.layout else View((n, 1), i * b * n)
            parts.append(StridedCopy(0, (b, n), View((view.strides[1], 1), at), out))
        return self.move([states], target, parts)


def recurrent_of(node: NodeSpec) -> tuple[TensorSpec, list[Cell], tuple[bool, ...]]:
    """x, the cell of every direction, and which of them run backwards. Raises ``Unsupported``."""
    x = node.input(0)
    if x is None or str(x.dtype) not in TAKEN:
        raise Unsupported(f"{node.op_type} of {x.dtype if x else 'nothing'}", ", ".join(TAKEN))
    reverse = DIRECTIONS.get(node.attr("direction", "forward"))
    if reverse is None:
        raise Unsupported(f"{node.op_type} with direction {node.attr('direction')}", ", ".join(DIRECTIONS))
    calls = len(reverse) * x.shape[1 if node.attr("layout", 0) else 0]
    if 0 in x.shape or calls > MOST_CALLS:
        accepted = f"up to {MOST_CALLS} steps, and no empty extent"
        raise Unsupported(f"{node.op_type} of shape {list(x.shape)}", accepted)
    kind, clip = _kind(node), float(node.attr("clip", 0.0))
    cells = [Cell(kind, functions, clip) for functions in _functions(node, len(reverse))]
    return x, cells, reverse


@maps("GRU", "LSTM", "RNN", dtypes=TAKEN, notes="every direction, activation and layout; computed in float32")
def map_recurrent(node: NodeSpec, lowering: Lowering) -> None:
    RecurrentNode(node, lowering, *recurrent_of(node)).results()
