# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators with broadcasting: one kernel, its functions are data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import erf, inf, prod
from typing import Any

import numpy as np

from onedispatch.operators.base import Lowering, NodeSpec, Operator, TensorSpec, Unsupported
from onedispatch.operators.cost import eltwise_cycles
from onedispatch.operators.index_space import (
    MAX_DIMS,
    OUTPUT,
    Access,
    Dim,
    Nest,
    Operand,
    contiguous_strides,
)
from onedispatch.operators.params import ELTWISE_FUNCS, Activation, f32
from onedispatch.operators.registry import maps
from onedispatch.operators.schedule import Schedule
from onedispatch.transactions import Device
from onedispatch.transactions.phrases import counted

Array = np.ndarray[Any, Any]

BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
UNARY = {
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Exp": "exp",
    "Sqrt": "sqrt",
    "Erf": "erf",
    "Abs": "abs",
    "Neg": "neg",
    "Log": "log",
    "Reciprocal": "reciprocal",
}


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
            _operand(f"x{i}", tensor, sizes, strides[i], view.offset)
            for i, (tensor, view) in enumerate(zip(tensors, views, strict=True))
        )
        output = _operand("out", OUTPUT, sizes, strides[-1], out_view.offset)
        dims = tuple(Dim(f"i{d}", size) for d, size in enumerate(sizes))
        device, n_in, act = self.device, len(inputs), self.activation.code

        def cycles(tiles: Sequence[Any], _k: Any) -> Any:
            return eltwise_cycles(device, tiles, n_in, act, self.func)

        return Nest("ELTWISE", dims, inputs, output, self._args, cycles)

    def _args(self, schedule: Schedule) -> Mapping[str, int | list[int]]:
        words: list[int] = []
        for operand in schedule.nest.strided_inputs:
            by_dim = [0] * MAX_DIMS
            for access, axis in zip(operand.access, schedule.axes(operand.name), strict=True):
                if access.dim is not None:
                    by_dim[access.dim] += axis.stride * access.a  # a diagonal follows one twice
            words += [schedule.ref(operand.name), *by_dim, 0, 0]
        return {
            "func": ELTWISE_FUNCS[self.func],
            "n_in": len(schedule.nest.inputs),
            "alpha": f32(self.alpha),
            "beta": f32(self.beta),
            "act": self.activation.words(),
            "inputs": words,
        }

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
            result = _FUNCTIONS[self.func](self.alpha, self.beta, *seen)
            result = apply_activation(self.activation, np.broadcast_to(result, self.shape))
        return np.asarray(result, self.output.dtype)


def _operand(name: str, tensor: int, sizes: Sequence[int], strides: Sequence[int], offset: int) -> Operand:
    """Dimensions that are walked with stride 0 are broadcast: the view leaves them out.

    View dimensions are ordered by falling stride, so that chunks are read as they lie.
    """
    order = sorted((d for d in range(len(sizes)) if strides[d]), key=lambda d: -strides[d])
    if name == "out":  # the kernel writes its chunk in index order
        order = [d for d in range(len(sizes)) if strides[d]] or [0]
    return Operand(
        name,
        tensor,
        4,
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


_FUNCTIONS: Mapping[str, Any] = {
    "copy": lambda a, b, x: x,
    "add": lambda a, b, x, y: np.float32(a) * x + np.float32(b) * y,
    "sub": lambda a, b, x, y: x - y,
    "mul": lambda a, b, x, y: x * y,
    "div": lambda a, b, x, y: x / y,
    "muladd": lambda a, b, x, y, z: x * y + z,
    "fill": lambda a, b: np.float32(a),
    "max": lambda a, b, x, y: np.maximum(x, y),
    "min": lambda a, b, x, y: np.minimum(x, y),
}
_ACTIVATIONS: Mapping[str, Any] = {
    "none": lambda x, a, b: x,
    "relu": lambda x, a, b: np.maximum(x, 0),
    "leakyrelu": lambda x, a, b: np.where(x < 0, np.float32(a) * x, x),
    "clip": lambda x, a, b: np.minimum(np.maximum(x, np.float32(a)), np.float32(b)),
    "sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "tanh": lambda x, a, b: np.tanh(x),
    "exp": lambda x, a, b: np.exp(x),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "erf": lambda x, a, b: np.vectorize(erf, otypes=[np.float32])(x) if x.size else x,
    "abs": lambda x, a, b: np.abs(x),
    "neg": lambda x, a, b: -x,
    "log": lambda x, a, b: np.log(x),
    "reciprocal": lambda x, a, b: 1 / x,
}


def apply_activation(activation: Activation, x: Array) -> Array:
    """``activation`` in NumPy."""
    result: Array = _ACTIVATIONS[activation.code](x, activation.alpha, activation.beta)
    return result


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


@maps("Add", "Sub", "Mul", "Div", notes="broadcasting; opset 7 or later")
def map_binary(node: NodeSpec, lowering: Lowering) -> None:
    inputs, output = tensors_of(node)
    if node.opset < 7:
        raise Unsupported(f"{node.op_type} of opset {node.opset} broadcasts by attribute", "opset 7")
    lowering.emit(Eltwise(node.name, BINARY[node.op_type], inputs, output, lowering.device))


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


@maps(*UNARY)
def map_unary(node: NodeSpec, lowering: Lowering) -> None:
    emit_activation(node, lowering, Activation(UNARY[node.op_type]))


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
