# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators with broadcasting: one kernel, its functions are data."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import dtype_of
from onedispatch.operators.declarations.functions import ACTIVATIONS, ELTWISE, Activation
from onedispatch.operators.declarations.kernel import MAX_DIMS, Kernel, Scalar, Tensor, chooses, declare
from onedispatch.operators.declarations.registry import maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec, Operator, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim, Operand, contiguous_strides
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device
from onedispatch.transactions.base.phrases import counted

Array = np.ndarray[Any, Any]

# The scalars of every kernel that applies an activation to its results.
ACTIVATION_SCALARS = (
    chooses("act", ACTIVATIONS),
    Scalar("act_alpha", "f32", default=0.0),
    Scalar("act_beta", "f32", default=0.0),
)


def streaming_cost(words: e.Expr, slow: e.Expr) -> e.Expr:
    """A call that moves ``words`` through the vector unit and evaluates ``slow`` slow functions."""
    return (
        e.device("call_cycles")
        + words / e.device("words_per_cycle")
        + slow * e.device("special_cycles_per_element")
    )


_MOVED = "f32 i32 u32"  # copies move the bits of any 4-byte type
KERNEL = declare(
    Kernel(
        "od::eltwise@1",
        inputs=tuple(Tensor(f"x{i}", "...", _MOVED, optional=True, walk="affine") for i in range(3)),
        outputs=(Tensor("out", "...", _MOVED, walk="affine"),),
        scalars=(
            chooses("func", ELTWISE),
            Scalar("alpha", "f32", default=1.0),
            Scalar("beta", "f32", default=1.0),
            *ACTIVATION_SCALARS,
        ),
        cost=streaming_cost(
            e.ELEMENTS * (1 + e.present("x0") + e.present("x1") + e.present("x2")),
            e.ELEMENTS * (e.weight("func") + e.weight("act")),
        ),
        summary="act(func(inputs)) over a box of up to five dimensions; inputs are strided or broadcast",
    )
)


MAX_PARTS = 64  # nests that one operator may become


class View:
    """Where a tensor lies for an element-wise nest: strides per index dimension, and an offset."""

    def __init__(self, strides: Sequence[int], offset: int = 0) -> None:
        self.strides = tuple(strides)
        self.offset = offset


def collapse(shape: Sequence[int], views: Sequence[View]) -> tuple[list[int], list[list[int]]]:
    """Join neighbouring dimensions that all views walk alike; returns (shape, strides per view)."""
    dims = [d for d in range(len(shape)) if shape[d] != 1]
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in views]
    for d in dims:
        joins = bool(sizes) and all(
            held[-1] == view.strides[d] * shape[d] for held, view in zip(strides, views, strict=True)
        )
        if joins:
            sizes[-1] *= shape[d]
            for held, view in zip(strides, views, strict=True):
                held[-1] = view.strides[d]
        else:
            sizes.append(shape[d])
            for held, view in zip(strides, views, strict=True):
                held.append(view.strides[d])
    if not sizes:
        return [1], [[0 if i < len(views) - 1 else 1] for i in range(len(views))]
    return sizes, strides


def peel(
    sizes: list[int], strides: list[list[int]], most: int
) -> list[tuple[list[int], list[list[int]], list[int]]]:
    """(sizes, strides per view, offset per view) of parts with at most ``most`` dimensions.

    The smallest dimensions are walked by one nest after the other. Raises ``Unsupported`` when
    that takes more than ``MAX_PARTS``.
    """
    if len(sizes) <= most:
        return [(sizes, strides, [0] * len(strides))]
    cut = min(range(len(sizes)), key=lambda d: sizes[d])
    rest = [size for d, size in enumerate(sizes) if d != cut]
    inner = peel(rest, [[s for d, s in enumerate(view) if d != cut] for view in strides], most)
    if sizes[cut] * len(inner) > MAX_PARTS:
        raise Unsupported(
            f"{counted(len(sizes), 'dimension')} {sizes} that cannot be joined",
            f"at most {most} after joining neighbours, or small ones",
        )
    return [
        (part, views, [offset + i * view[cut] for offset, view in zip(offsets, strides, strict=True)])
        for i in range(sizes[cut])
        for part, views, offsets in inner
    ]


class Eltwise(Operator):
    """``act(func(inputs))`` over the output's shape; inputs are broadcast, moved or permuted views."""

    kind = "eltwise"

    def __init__(
        self,
        name: str,
        func: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        device: Device,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        activation: Activation | None = None,
        views: Sequence[View] | None = None,
        shape: Sequence[int] | None = None,
        out_view: View | None = None,
    ) -> None:
        super().__init__(name, inputs, output, device, activation)
        self.func, self.alpha, self.beta = func, alpha, beta
        self.shape = tuple(output.shape if shape is None else shape)
        self.views = list(views) if views is not None else [broadcast(t, self.shape) for t in inputs]
        self.out_view = out_view or View(contiguous_strides(self.shape))
        self._check()

    def _check(self) -> None:
        for tensor in (*self.inputs, self.output):
            if tensor.dtype.itemsize != 4:
                raise Unsupported(f"{tensor.name} is {tensor.dtype}", "4-byte elements (float32)")
        self._parts(self.shape, self.views, self.out_view)

    def nests(self) -> list[Nest]:
        if prod(self.shape) == 0:
            return []
        return self.part_nests(self.shape, self.views, self.out_view, range(len(self.inputs)))

    @staticmethod
    def _parts(
        shape: Sequence[int], views: Sequence[View], out_view: View
    ) -> list[tuple[list[int], list[View]]]:
        """The index space in pieces that a nest can walk: shape, and the views with the output's last."""
        every = [*views, out_view]
        sizes, strides = collapse(shape, every)
        return [
            (part, [View(s, v.offset + at) for s, v, at in zip(steps, every, offsets, strict=True)])
            for part, steps, offsets in peel(sizes, strides, MAX_DIMS)
        ]

    def part_nests(
        self, shape: Sequence[int], views: Sequence[View], out_view: View, tensors: Sequence[int]
    ) -> list[Nest]:
        """As ``nest``, for index spaces of any rank."""
        return [
            self.nest(part, seen[:-1], seen[-1], tensors)
            for part, seen in self._parts(shape, views, out_view)
        ]

    def nest(
        self, shape: Sequence[int], views: Sequence[View], out_view: View, tensors: Sequence[int]
    ) -> Nest:
        """The nest that moves ``tensors`` (input indices) through ``views`` to ``out_view``."""
        sizes, strides = collapse(shape, [*views, out_view])
        inputs = tuple(
            _operand(f"x{i}", self.inputs[tensor], tensor, sizes, strides[i], view.offset)
            for i, (tensor, view) in enumerate(zip(tensors, views, strict=True))
        )
        output = _operand("out", self.output, OUTPUT, sizes, strides[-1], out_view.offset)
        dims = tuple(Dim(f"i{d}", size) for d, size in enumerate(sizes))
        scalars = {"func": self.func, "alpha": self.alpha, "beta": self.beta, **self.activation.scalars}
        return Nest(KERNEL, dims, inputs, (output,), scalars=scalars)

    @property
    def is_activation(self) -> bool:
        return (
            self.func == "copy"
            and self.activation.code != "none"
            and len(self.inputs) == 1
            and self.inputs[0].shape == self.output.shape == self.shape
            and all(
                a == b
                for a, b, n in zip(self.views[0].strides, self.out_view.strides, self.shape, strict=True)
                if n > 1
            )
        )

    def reference(self, *arrays: Array) -> Array:
        seen = [_gather(x, view, self.shape) for x, view in zip(arrays, self.views, strict=True)]
        with np.errstate(all="ignore"):
            function = ELTWISE[self.func].reference
            if function is None:
                raise NotImplementedError(self.func)
            result = function(self.alpha, self.beta, *seen)
            result = self.activation.apply(np.broadcast_to(result, self.shape))
        return np.asarray(result, self.output.dtype)


def _operand(
    name: str, spec: TensorSpec, tensor: int, sizes: Sequence[int], strides: Sequence[int], offset: int
) -> Operand:
    """Dimensions that are walked with stride 0 are broadcast: the view leaves them out.

    View dimensions are ordered by falling stride, so that chunks are read as they lie.
    """
    order = sorted((d for d in range(len(sizes)) if strides[d]), key=lambda d: -strides[d])
    if name == "out":  # the kernel writes its chunk in index order
        order = [d for d in range(len(sizes)) if strides[d]] or [0]
    dtype = dtype_of(spec.dtype)
    if dtype is None:
        raise Unsupported(f"{spec.name} is {spec.dtype}", "4-byte elements")
    return Operand(
        name,
        tensor,
        dtype,
        tuple(sizes[d] for d in order) or (1,),
        tuple(strides[d] for d in order) or (1,),
        tuple(Access(d) for d in order) or (Access(None),),
        offset,
    )


def broadcast(tensor: TensorSpec, shape: Sequence[int]) -> View:
    """The view of ``tensor`` broadcast to ``shape`` by ONNX's (NumPy's) rule."""
    lead = len(shape) - len(tensor.shape)
    own = contiguous_strides(tensor.shape)
    strides = [0] * lead + [s if n != 1 else 0 for n, s in zip(tensor.shape, own, strict=True)]
    return View(strides)


def _gather(array: Array, view: View, shape: Sequence[int]) -> Array:
    flat = np.ascontiguousarray(array).reshape(-1)
    bytes_ = [s * flat.itemsize for s in view.strides]
    return np.lib.stride_tricks.as_strided(flat[view.offset :], tuple(shape), bytes_)


# -- ONNX --------------------------------------------------------------------------------------


def need_float(node: NodeSpec, *tensors: TensorSpec | None) -> None:
    """Raise ``Unsupported`` unless every present tensor is float32."""
    for tensor in tensors:
        if tensor is not None and tensor.dtype != np.float32:
            raise Unsupported(f"{node.op_type} of {tensor.dtype} ({tensor.name})", "float32")


def tensors_of(node: NodeSpec) -> tuple[list[TensorSpec], TensorSpec]:
    """All inputs and the first output, all float32."""
    inputs = [x for x in node.inputs if x is not None]
    output = node.outputs[0]
    need_float(node, *inputs, output)
    if output is None:
        raise Unsupported(f"{node.op_type} without its first output")
    return inputs, output


@maps(*ELTWISE.by_onnx, notes="broadcasting; opset 7 or later")
def map_binary(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = tensors_of(node)
    if node.opset < 7:
        raise Unsupported(f"{node.op_type} of opset {node.opset} broadcasts by attribute", "opset 7")
    lowering.emit(Eltwise(node.name, ELTWISE.by_onnx[node.op_type], inputs, output, lowering.device))


@maps("Sum", notes="one input or more, broadcasting")
def map_sum(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = tensors_of(node)
    if len(inputs) == 1:
        lowering.emit(Eltwise(node.name, "copy", inputs, output, lowering.device))
        return
    total = inputs[0]
    for i, tensor in enumerate(inputs[1:]):
        last = i == len(inputs) - 2
        shape = np.broadcast_shapes(total.shape, tensor.shape)
        target = output if last else lowering.temp(output.dtype, shape)
        lowering.emit(Eltwise(node.name, "add", [total, tensor], target, lowering.device))
        total = target


def emit_activation(node: NodeSpec, lowering: Lowering, activation: Activation) -> None:
    inputs, output = tensors_of(node)
    op = Eltwise(node.name, "copy", inputs[:1], output, lowering.device, activation=activation)
    lowering.emit(op)


@maps(*ACTIVATIONS.by_onnx)
def map_unary(node: NodeSpec, lowering: Lowering) -> None:
    emit_activation(node, lowering, Activation(ACTIVATIONS.by_onnx[node.op_type]))


@maps("LeakyRelu")
def map_leaky_relu(node: NodeSpec, lowering: Lowering) -> None:
    emit_activation(node, lowering, Activation("leakyrelu", float(node.attr("alpha", 0.01))))


_FINITE = float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)


@maps("Clip", notes="bounds constant or computed")
def map_clip(node: NodeSpec, lowering: Lowering) -> None:
    low, high = _FINITE
    if node.opset < 11:
        low, high = float(node.attr("min", low)), float(node.attr("max", high))
        emit_activation(node, lowering, Activation("clip", low, high))
        return
    bounds = [node.input(1), node.input(2)]
    if any(b is not None and b.value is None for b in bounds):
        _computed_bounds(node, lowering, bounds)
        return
    values = [
        d if b is None or b.value is None else float(b.value.reshape(()))
        for b, d in zip(bounds, (low, high), strict=True)
    ]
    emit_activation(node, lowering, Activation("clip", *values))


def _computed_bounds(node: NodeSpec, lowering: Lowering, bounds: Sequence[TensorSpec | None]) -> None:
    """Bounds that are only known at run time: a maximum, then a minimum.

    The bound that is left out is the greatest or smallest finite number, as it is for constant ones.
    """
    inputs, output = tensors_of(node)
    value = inputs[0]
    steps = [(f, b) for f, b in zip(("max", "min"), bounds, strict=True) if b is not None]
    rest = None
    if len(steps) == 1:
        only_high = bounds[0] is None
        rest = Activation("clip", _FINITE[0] if only_high else -inf, inf if only_high else _FINITE[1])
    for i, (func, bound) in enumerate(steps):
        target = output if i == len(steps) - 1 else lowering.temp(output.dtype, output.shape)
        lowering.emit(Eltwise(node.name, func, [value, bound], target, lowering.device, activation=rest))
        value = target
