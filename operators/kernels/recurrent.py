# SPDX-License-Identifier: Apache-2.0
"""Recurrent networks: one step of RNN, GRU or LSTM as a product and its gates in one kernel call.

A layer is one operator with a nest per step and direction. A step reads the state that the step before has
written, in device memory: nests of an operator end when their results have arrived there. Constant weights of
the state of which every core can hold its part are brought once, and stay there for the steps that follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.formulas import (
    ROW,
    accumulated,
    comparisons,
    operations,
    packed,
    parts_bytes,
    products,
    vectors,
)
from onedispatch.operators.declarations.functions import ACTIVATIONS, CELLS, Activation
from onedispatch.operators.declarations.kernel import (
    Kernel,
    Scalar,
    Tensor,
    chooses,
    declare,
)
from onedispatch.operators.interface.operator import Operator, TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import KERNEL
from onedispatch.operators.scheduling.index_space import F32, Access, Dim, K, Operand, Packed, PackedPart
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.search import estimated
from onedispatch.operators.scheduling.select import select
from onedispatch.transactions import Device
from onedispatch.transactions.base.cached import cached_property

Array = np.ndarray[Any, Any]

_GATES = e.count("r", "*gates")


def _cost() -> e.Expr:
    """The product of the state and the weights of all gates; in the last step the gates of every vector."""
    b, n, k = e.tile("b"), e.tile("n"), e.K_COUNT
    columns = e.named("columns", _GATES * n)
    product = packed("h", b * k) + packed("r", k * columns) + products(b, k, columns, "h", "r")
    rows = e.named("vectors", b * vectors(n, "out"))
    op, mul = operations("out"), e.device("mul_cycles", "out")
    sums = _GATES * (op + e.differs(e.scalar("clip"), 0) * 2 * comparisons("out"))
    gates = (_GATES - 1) * e.work("f", "out") + e.work("g", "out") + e.work("h_act", "out")
    more = e.present("more") * e.count("more", "*rows") * (mul + op)
    cell = b * ROW + rows * (sums + gates + e.work("cell", "out") + more)
    return product + accumulated(b, columns, "h", "out") + e.named("last step", e.LAST * cell)


def _scratch() -> e.Expr:
    """The sums of all gates, which wait for the last step, then the parts of both factors."""
    b, n, k = e.tile("b"), e.tile("n"), e.K_TILE
    return 4 * (b * n * _GATES) + parts_bytes("h", b * k) + parts_bytes("r", k * n * _GATES)


def _activation(name: str, short: str) -> tuple[Scalar, ...]:
    return (
        chooses(name, ACTIVATIONS, of="out"),
        Scalar(f"{short}_alpha", "f32", default=0.0),
        Scalar(f"{short}_beta", "f32", default=0.0),
    )


RECURRENT = declare(
    Kernel(
        "od::recurrent@1",
        dims=("part", "b", "n"),
        reduces=True,
        inputs=(
            Tensor("h", "b k"),
            Tensor("r", "k *gates n"),
            Tensor("x", "b *gates n"),
            Tensor("prev", "*kept b n", optional=True),
            Tensor("more", "*rows n", optional=True),  # a GRU's bias, or the peepholes of an LSTM
        ),
        outputs=(Tensor("out", "part b n"),),
        scalars=(
            chooses("cell", CELLS, of="out"),
            *_activation("f", "f"),
            *_activation("g", "g"),
            *_activation("h_act", "h"),
            Scalar("clip", "f32", low=0.0, default=0.0),  # 0: none
        ),
        cost=_cost(),
        scratch=_scratch(),
        keeps_scratch=True,
        joins="panels",
        # ASSUMPTION: 224 instructions: a product as gemm's, and the gates of six cells.
        code_bytes=3584,
        summary=(
            "one step of a recurrent layer: cell(x[b][g][n] + sum_k h[b][k] * r[k][g][n]); the last gate is "
            "g's, those before f's"
        ),
    )
)


# Parts of what calls of a step leave for the next one: the gates of a GRU from 0 on, a state that a mask may
# refuse, and how it differs from the one before.
FRESH, MOVED, SLOTS = 3, 5, 7


@dataclass(frozen=True)
class Cell:
    """What a layer computes: the cell, its activations f, g and h, and the bound of what they are given."""

    kind: str
    functions: tuple[Activation, ...]
    clip: float = 0.0

    @property
    def gates(self) -> int:
        return {"rnn": 1, "gru": 3, "gru_gates": 3, "lstm": 4, "lstm_coupled": 4}[self.kind]

    @property
    def parts(self) -> int:
        """Tensors that the state consists of: the hidden one, of an LSTM also the cell's."""
        return 2 if self.kind.startswith("lstm") else 1

    def scalars(self, kind: str) -> dict[str, float | str]:
        """What the nests of one call of a step say; ``kind``: a row of ``CELLS``. The last gate is g's."""
        none = Activation()
        f, g, h = (*self.functions, none, none)[:3]
        if kind == "rnn":
            f, g = none, f
        elif kind == "gru_gates":
            g = f
        elif kind == "gru_update":
            f = none
        found: dict[str, float | str] = {"cell": kind, "clip": self.clip}
        for name, short, function in (("f", "f", f), ("g", "g", g), ("h_act", "h", h)):
            found |= {name: function.code, f"{short}_alpha": function.alpha, f"{short}_beta": function.beta}
        return found


@dataclass(frozen=True)
class SequenceView:
    """Where an operand lies: element strides of its axes, of steps and directions, and its first element."""

    tensor: int
    strides: tuple[int, ...]
    step: int = 0
    direction: int = 0
    first: int = 0

    def at(self, step: int, direction: int, axis: int = 0, skip: int = 0) -> int:
        """The first element of a step and direction, ``skip`` members along an axis further on."""
        return self.first + step * self.step + direction * self.direction + skip * self.strides[axis]


@dataclass(frozen=True)
class Layer:
    """A layer's extents and directions, and where its operands lie: the axes that they have behind each."""

    steps: int
    batch: int
    hidden: int
    reverse: tuple[bool, ...]  # per direction
    x: SequenceView  # b, gates, n
    r: SequenceView  # k, gates, n
    state: SequenceView  # parts, b, n; of the output
    initial: SequenceView  # parts, b, n
    more: SequenceView | None = None  # rows, n
    rows: int = 0
    mask: SequenceView | None = None  # b
    between: SequenceView | None = None  # SLOTS parts, b, n: what calls of a step leave for the next one


class Recurrent(Operator):
    """All steps of a recurrent layer, a cell per direction. The output holds the state of every step.

    Inputs are x times its weights, bias added, the recurrent weights, the state at first, then what
    ``layer`` names of them. The mask (0 or 1 per step and batch member) keeps the state where it is 0.
    """

    kind = "recurrent"
    applies_activation = False

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        device: Device,
        cells: Sequence[Cell],
        layer: Layer,
        between: TensorSpec | None = None,
    ) -> None:
        super().__init__(name, inputs, output, device, further_outputs=[between] if between else [])
        self.cells, self.layer = tuple(cells), layer

    def nests(self) -> list[Nest]:
        layer = self.layer
        if 0 in (layer.steps, layer.batch, layer.hidden):
            return []
        return [
            nest
            for d, reverse in enumerate(layer.reverse)  # one after the other: what stays is a direction's
            for step in range(layer.steps)
            for nest in self._step(layer.steps - 1 - step if reverse else step, step == 0, d)
        ]

    def count_macs(self) -> int:
        """Those with the state: x has been multiplied before."""
        layer = self.layer
        return layer.steps * layer.batch * layer.hidden**2 * sum(cell.gates for cell in self.cells)

    @cached_property
    def _resident(self) -> bool:
        """Whether cores keep the recurrent weights from step to step: constants of which each core has its
        part, beside all of the state, while nothing else runs in between."""
        layer = self.layer
        again = layer.steps > 1 and layer.mask is None and all(c.kind != "gru_gates" for c in self.cells)
        if not again or self.inputs[layer.r.tensor].value is None:
            return False
        try:
            found = [select(nest, self.device) for nest in self._first(resident=True)]
        except Unsupported:
            return False
        if not all(schedule.in0_resident for schedule in found):
            return False
        plain = sum(estimated(select(nest, self.device)) for nest in self._first(resident=False))
        first, later = (
            sum(estimated(one, loads_resident) for one in found) for loads_resident in (True, False)
        )
        return first + (layer.steps - 1) * later < layer.steps * plain

    def _first(self, resident: bool) -> list[Nest]:
        """The first step of every direction."""
        initial, directions = self.layer.initial, range(len(self.layer.reverse))
        return [n for d in directions for n in self._cell(0, d, initial, 0, self._out(0, d), resident)]

    def _step(self, t: int, first: bool, d: int) -> Iterator[Nest]:
        layer, parts = self.layer, self.cells[d].parts
        before = t + 1 if layer.reverse[d] else t - 1
        state, at = (layer.initial, 0) if first else (layer.state, before)
        made = layer.state, layer.state.at(t, d)
        if layer.mask is None or layer.between is None:
            yield from self._cell(t, d, state, at, self._out(t, d), self._resident)
            return
        # Where the mask is 0 the state stays as it was: it moves by the mask times the difference.
        between, sizes = layer.between, (parts, layer.batch, layer.hidden)
        fresh, moved = (between.at(0, d, skip=slot) for slot in (FRESH, MOVED))
        yield from self._cell(t, d, state, at, self._parts("out", between, fresh, parts))

        def whole(name: str, view: SequenceView, offset: int) -> Operand:
            return _operand(name, view.tensor, offset, sizes, view.strides, (0, 1, 2))

        old = state.at(at, d)
        yield _each(
            "sub", [whole("x0", between, fresh), whole("x1", state, old)], whole("out", between, moved)
        )
        mask = _operand("x0", layer.mask.tensor, layer.mask.at(t, d), sizes[1:2], layer.mask.strides, (1,))
        terms = [mask, whole("x1", between, moved), whole("x2", state, old)]
        yield _each("muladd", terms, whole("out", *made))

    def _cell(
        self, t: int, d: int, state: SequenceView, at: int, out: Operand, resident: bool = False
    ) -> Iterator[Nest]:
        """The calls that make the state ``out`` of step ``t`` from that of ``at``; where the weights stay,
        all of the state and of what x contributes goes to every core."""
        layer, cell, kind = self.layer, self.cells[d], self.cells[d].kind
        h, last = self._h(state, state.at(at, d)), cell.parts - 1  # of an LSTM the cell's part
        prev = [self._parts("prev", state, state.at(at, d, skip=last), 1)]
        more = []
        if layer.more is not None:
            sizes, strides = (layer.rows, layer.hidden), layer.more.strides
            more = [_operand("more", layer.more.tensor, layer.more.at(0, d), sizes, strides, (None, 2))]
        if kind != "gru_gates" or layer.between is None:
            keeps = [] if kind == "rnn" else prev
            strided = [h, *self._gates(t, d, 0, cell.gates), *keeps, *more]
            inputs: list[Operand | Packed] = [*strided]
            if resident:
                inputs = [self._packed(d) if x.name == "r" else _whole(x) for x in strided]
            yield self._nest(kind, d, inputs, out, resident)
            return
        between = layer.between
        made = self._parts("out", between, between.at(0, d), 3)
        yield self._nest("gru_gates", d, [h, *self._gates(t, d, 0, 2), *prev], made)
        h = self._h(between, between.at(0, d))
        prev = [self._parts("prev", between, between.at(0, d, skip=1), 2)]
        yield self._nest("gru_update", d, [h, *self._gates(t, d, 2, 1), *prev], out)

    def _nest(
        self, kind: str, d: int, inputs: Sequence[Operand | Packed], out: Operand, resident: bool = False
    ) -> Nest:
        batch, hidden, device = self.layer.batch, self.layer.hidden, self.device
        each = -(-hidden // (device.columns * device.core_rows)) if resident else 1
        parts, n = Dim("part", out.shape[0], whole=True), Dim("n", hidden, multiple=each)
        dims = parts, Dim("b", batch), n
        roles, scalars = {dim.name: d for d, dim in enumerate(dims)}, self.cells[d].scalars(kind)
        return Nest(RECURRENT, dims, tuple(inputs), (out,), roles, scalars, hidden)

    # -- operands ------------------------------------------------------------------------------

    def _h(self, state: SequenceView, offset: int) -> Operand:
        sizes = self.layer.batch, self.layer.hidden
        return _operand("h", state.tensor, offset, sizes, state.strides[1:], (1, K))

    def _out(self, t: int, d: int) -> Operand:
        """The state that a step makes."""
        return self._parts("out", self.layer.state, self.layer.state.at(t, d), self.cells[d].parts)

    def _parts(self, name: str, view: SequenceView, offset: int, count: int) -> Operand:
        sizes = count, self.layer.batch, self.layer.hidden
        part = 0 if name == "out" else None
        return _operand(name, view.tensor, offset, sizes, view.strides, (part, 1, 2))

    def _gates(self, t: int, d: int, first: int, count: int) -> Iterator[Operand]:
        """The recurrent weights of ``count`` gates, and what x contributes to them."""
        layer, n = self.layer, self.layer.hidden
        r, x = layer.r, layer.x
        yield _operand("r", r.tensor, r.at(0, d, 1, first), (n, count, n), r.strides, (K, None, 2))
        yield _operand("x", x.tensor, x.at(t, d, 1, first), (layer.batch, count, n), x.strides, (1, None, 2))

    # -- constants -----------------------------------------------------------------------------

    def _packed(self, d: int) -> Packed:
        """The recurrent weights of a direction, chunk after chunk."""
        axes = (K, self.layer.hidden), (None, self.cells[d].gates), (2, 0)
        return Packed(f"r{d}", (2,), (PackedPart("r", F32, axes),), core_resident=True)

    def _weights(self, name: str, array: Array) -> Array:
        """[k, gates, n] of the weights that a packed operand holds."""
        d, n, gates = int(name[1:]), self.layer.hidden, self.cells[int(name[1:])].gates
        own: Array = np.asarray(array, np.float32).reshape(-1, n, self.layer.r.strides[0])[d]
        return own[:, : gates * n].reshape(n, gates, n)

    def packed_parts(self, operand: str) -> list[Array]:
        given = self.inputs[self.layer.r.tensor].value
        if given is None:
            raise self.not_constant(operand)
        return [self._weights(operand, given)]

    # -- reference -----------------------------------------------------------------------------

    def reference(self, *arrays: Array) -> Array:
        return self.references(*arrays)[0]

    def references(self, *arrays: Array) -> list[Array]:
        layer = self.layer
        images = [np.ascontiguousarray(array, np.float32).reshape(-1) for array in arrays]
        states = np.zeros(self.output.size, np.float32)
        between = np.zeros(SLOTS * len(layer.reverse) * layer.batch * layer.hidden, np.float32)
        for nest in self.nests():
            seen = {x.name: _seen(x, nest, [*images, between, states]) for x in nest.strided}
            for name in nest.resident_operands:
                seen["r"] = self._weights(name, arrays[layer.r.tensor]).transpose(1, 0, 2)
            seen["out"][...] = _computed(nest, seen) if nest.kernel is RECURRENT else _added(nest, seen)
        made = [states, between][: len(self.outputs)]
        return [array.reshape(t.shape) for array, t in zip(made, self.outputs, strict=True)]


def _each(func: str, inputs: Sequence[Operand], out: Operand) -> Nest:
    """An element-wise function over the state."""
    dims = tuple(Dim(name, size) for name, size in zip(("part", "b", "n"), out.shape, strict=True))
    scalars = {"func": func, "alpha": 1.0, "beta": 1.0, **Activation().scalars}
    return Nest(KERNEL, dims, tuple(inputs), (out,), scalars=scalars)


def _whole(operand: Operand) -> Operand:
    """The same with all members of n and k in every chunk."""
    access = tuple(replace(one, whole=True) if one.dim in (2, K) else one for one in operand.access)
    return replace(operand, access=access)


def _operand(
    name: str,
    tensor: int,
    offset: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    dims: Sequence[int | None],
) -> Operand:
    """Inputs have their dimensions by falling stride, as their chunks are read."""
    walked = list(zip(sizes, strides, dims, strict=True))
    if name != "out":
        walked.sort(key=lambda one: -one[1])
    shape, steps, along = zip(*walked, strict=True)
    return Operand(name, tensor, F32, shape, steps, tuple(Access(dim) for dim in along), offset)


# The axes that ``_computed`` has: what follows no dimension before b, k and n.
_AXES: dict[int | None, int] = {None: 0, 0: 0, 1: 1, K: 2, 2: 3}


def _seen(operand: Operand, nest: Nest, images: Sequence[Array]) -> Array:
    """An operand's elements, not copied; of the images the last two are the operator's outputs, backwards."""
    image = images[operand.tensor]
    along = {access.dim: d for d, access in enumerate(operand.access)}
    order = sorted(range(len(operand.access)), key=lambda d: _AXES[operand.access[d].dim])
    sizes, steps = [operand.shape[d] for d in order], [operand.strides[d] for d in order]
    if nest.kernel is KERNEL:  # every operand over the whole index space
        sizes = [dim.extent for dim in nest.dims]
        steps = [operand.strides[along[d]] if d in along else 0 for d in range(len(nest.dims))]
    strides = [step * image.itemsize for step in steps]
    return np.lib.stride_tricks.as_strided(image[operand.offset :], sizes, strides)


def _added(nest: Nest, seen: dict[str, Array]) -> Array:
    first, second = seen["x0"], seen["x1"]
    return first - second if nest.scalars["func"] == "sub" else first * second + seen["x2"]


def _computed(nest: Nest, seen: dict[str, Array]) -> Array:
    """One step in NumPy: [parts, b, n]."""
    kind, bound = str(nest.scalars["cell"]), float(nest.scalars["clip"]) or np.inf

    def act(name: str, short: str, value: Array) -> Array:
        row = nest.function(nest.kernel.scalar(name)).name
        alpha, beta = (float(nest.scalars[f"{short}_{which}"]) for which in ("alpha", "beta"))
        given = value if name == "h_act" else np.clip(value, -bound, bound)  # onnxruntime bounds no cell
        return Activation(row, alpha, beta).apply(given.astype(np.float32))

    sums = np.einsum("bk,gkn->gbn", seen["h"], seen["r"])
    x, prev = seen["x"], seen.get("prev")
    if kind in ("rnn", "gru_update"):
        new = act("g", "g", sums[0] + x[0])
        return new[None] if prev is None else np.asarray(prev[0] + prev[1] * new)[None]
    assert prev is not None
    if kind in ("gru", "gru_gates"):
        z, r = (act("f", "f", sums[i] + x[i]) for i in (0, 1))
        if kind == "gru_gates":
            return np.stack([r * prev[0], z * prev[0], 1 - z])
        new = act("g", "g", x[2] + r * (sums[2] + seen.get("more", np.float32(0))))
        return np.asarray((1 - z) * new + z * prev[0]).reshape(1, *z.shape)
    c = prev[-1]
    i_peep, o_peep, f_peep = seen.get("more", np.zeros((3, 1), np.float32))
    i = act("f", "f", sums[0] + x[0] + i_peep * c)
    f = 1 - i if kind == "lstm_coupled" else act("f", "f", sums[2] + x[2] + f_peep * c)
    c = f * c + i * act("g", "g", sums[3] + x[3])
    o = act("f", "f", sums[1] + x[1] + o_peep * c)
    return np.stack([o * act("h_act", "h", c), c])
