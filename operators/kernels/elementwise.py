# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators with broadcasting: one kernel, its functions are data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, EVERY, DType
from onedispatch.operators.declarations.formulas import F32_SCALED, SPLIT, either, mapped, vectors
from onedispatch.operators.declarations.functions import ACTIVATIONS, ELTWISE, Activation
from onedispatch.operators.declarations.kernel import (
    MAX_DIMS,
    FunctionTable,
    Kernel,
    Scalar,
    Tensor,
    chooses,
    declare,
)
from onedispatch.operators.interface.merge import ACTIVATION, RESIDUAL, Merge
from onedispatch.operators.interface.operator import Operator, TensorSpec, Unsupported
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim, Operand, contiguous_strides
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device
from onedispatch.transactions.base.text import counted

Array = np.ndarray[Any, Any]

# The scalars of every kernel that applies an activation to its results.
ACTIVATION_SCALARS = (
    chooses("act", ACTIVATIONS),
    Scalar("act_alpha", "f32", default=0.0),
    Scalar("act_beta", "f32", default=0.0),
)


def _cost() -> e.Expr:
    """Rows are as long as all operands go with one step each; a loop over vectors for each.

    f32 is split into parts vector by vector; what stays along a row once for the row, and the scales of sums
    once for the call.
    """
    scales = e.present("x1") * (e.differs(e.scalar("alpha"), 1) + e.differs(e.scalar("beta"), 1))  # of sums
    # No other type multiplies at the price of f32, so the price tells it.
    floats = e.named("f32", 1 - e.differs(e.device("mul_cycles", "out"), e.device("f32_mul_cycles")))
    summed = scales * either(floats, F32_SCALED, e.device("mul_cycles", "out"))
    once = e.named("split once", floats * _multiplies() * _stays())
    less = once * (e.device("f32_mul_cycles") - F32_SCALED)
    function = e.work("func", "out") - less + summed + e.work("act", "out")

    def rows_of(rows: e.Expr, run: e.Expr) -> e.Expr:
        return floats * scales * SPLIT + rows * (vectors(run, "out") * function + once * SPLIT)

    return mapped(("x0", "x1", "x2"), rows_of)


def _multiplies() -> e.Expr:
    """1 where the function takes one product, of the first two operands, else 0."""
    codes = (ELTWISE.code(name) for name in ("mul", "muladd", "prelu"))
    return sum((1 - e.differs(e.scalar("func"), code) for code in codes), e.as_expr(0))


def _stays() -> e.Expr:
    """1 where one of the first two operands is one element along a row, else 0."""
    return e.largest(*(1 - e.differs(e.step(name), 0) for name in ("x0", "x1")))


KERNEL = declare(
    Kernel(
        "od::eltwise@1",
        inputs=tuple(
            Tensor(f"x{i}", "...", EVERY, optional=True, walk="fraction", like="out") for i in range(3)
        ),
        outputs=(Tensor("out", "...", EVERY, walk="affine"),),
        scalars=(
            chooses("func", ELTWISE),
            Scalar("alpha", "f32", default=1.0),
            Scalar("beta", "f32", default=1.0),
            *ACTIVATION_SCALARS,
        ),
        cost=_cost(),
        joins="tiles",
        # ASSUMPTION: 112 instructions: a loop and its edges, about 4 per sealed function.
        code_bytes=1792,
        summary="act(func(inputs)) over a box of up to five dimensions; inputs are strided or broadcast",
    )
)


_SKIPPED = 4  # words apart up to which all that lies between is read
MAX_PARTS = 64  # nests that one operator may become


class View:
    """Where a tensor lies for an element-wise nest: strides per index dimension, and an offset."""

    def __init__(self, strides: Sequence[int], offset: int = 0) -> None:
        self.strides = tuple(strides)
        self.offset = offset

    def of(self, image: Array, shape: Sequence[int]) -> Array:
        """The elements of a flat ``image`` that the view walks over ``shape``, not copied."""
        strides = [s * image.itemsize for s in self.strides]
        return np.lib.stride_tricks.as_strided(image[self.offset :], tuple(shape), strides)


def collapse(
    shape: Sequence[int], views: Sequence[View], padding: int = 0
) -> tuple[list[int], list[list[int]]]:
    """Join neighbouring dimensions that all views walk alike; returns (shape, strides per view).

    A last dimension whose end is row padding stays by itself.
    """
    if padding and prod(shape[:-1]) > 1:
        outer, steps = collapse(shape[:-1], [View(view.strides[:-1]) for view in views])
        last = [view.strides[-1] for view in views]
        return [*outer, shape[-1]], [[*own, step] for own, step in zip(steps, last, strict=True)]
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
    sizes: list[int], strides: list[list[int]], most: int, keep: int = 0
) -> list[tuple[list[int], list[list[int]], list[int]]]:
    """(sizes, strides per view, offset per view) of parts with at most ``most`` dimensions.

    The smallest dimensions but the last ``keep`` are walked by one nest after the other. Raises
    ``Unsupported`` when that takes more than ``MAX_PARTS``.
    """
    if len(sizes) <= most:
        return [(sizes, strides, [0] * len(strides))]
    cut = min(range(len(sizes) - keep), key=lambda d: sizes[d])
    rest = [size for d, size in enumerate(sizes) if d != cut]
    inner = peel(rest, [[s for d, s in enumerate(view) if d != cut] for view in strides], most, keep)
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


@dataclass(frozen=True)
class Layout:
    """How tensors lie beside each other: a view of each input over ``shape``, and one of the output.

    Without ``shape`` it is the output's, without ``out_view`` the output is contiguous.
    """

    views: Sequence[View]
    shape: Sequence[int] | None = None
    out_view: View | None = None


class Eltwise(Operator):
    """``act(func(inputs))`` over the output's shape; inputs are broadcast, moved or permuted views.

    ``alpha`` and ``beta`` scale the terms of ``add``, ``fill`` writes ``alpha``; other functions ignore both.
    The kernel's declaration says which element types go together. Views count elements of device memory,
    row padding included; the index space is the output's ``device_shape`` unless ``shape`` gives another,
    so the padding of an output's rows is computed like the rest of them, where inputs have it too.
    """

    kind = "eltwise"
    runs_in_bands = True
    merges: ClassVar[tuple[Merge, ...]] = (RESIDUAL, ACTIVATION)
    kernel: ClassVar[Kernel] = KERNEL
    functions: ClassVar[FunctionTable] = ELTWISE

    def __init__(
        self,
        name: str,
        func: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        device: Device,
        *,
        alpha: float = 1.0,
        activation: Activation | None = None,
        layout: Layout | None = None,
    ) -> None:
        super().__init__(name, inputs, output, device, activation)
        self.func, self.alpha, self.beta = func, alpha, 1.0
        layout = layout or Layout([broadcast(t, output) for t in inputs])
        self.shape = tuple(output.device_shape if layout.shape is None else layout.shape)
        self.views = list(layout.views)
        self.out_view = layout.out_view or View(contiguous_strides(self.shape))
        self._check()

    def _check(self) -> None:
        self._check_types()
        self._parts(self.shape, self.views, self.out_view, self.padding)

    def _check_types(self) -> None:
        """Raises ``Unsupported`` unless the declaration has the types, and the functions take them."""
        tensors = {f"x{i}": tensor for i, tensor in enumerate(self.inputs)} | {"out": self.output}
        for name, tensor in tensors.items():
            operand, row = self.kernel.tensor(name), self.row_of(tensor)
            if operand.like and row != self.row_of(tensors[operand.like]):
                raise Unsupported(
                    f"{tensor} beside {tensors[operand.like]}", "one element type for all of them"
                )
            if row.name not in operand.dtypes.split():
                raise Unsupported(f"{self.kind} of {tensor}", ", ".join(numpy_names(operand.dtypes)))
        for scalar in self.kernel.scalars:
            if scalar.table is None:
                continue
            tensor = tensors[self.kernel.seen_by(scalar).name]
            function = scalar.table[str(self.scalars[scalar.name])]
            if not function.takes(self.row_of(tensor).name):
                raise Unsupported(f"{function.name} of {tensor}", ", ".join(numpy_names(function.dtypes)))

    def row_of(self, tensor: TensorSpec) -> DType:
        """The kernel's name for the elements of ``tensor``."""
        return tensor.element

    @property
    def padding(self) -> int:
        """Members that end the output's rows and are theirs alone: 0 where all rows are padded alike."""
        widths = {self.row_of(tensor).per_word for tensor in (*self.inputs, self.output)}
        return self.output.row_pitch - self.output.row if len(widths) > 1 else 0

    def nests(self) -> list[Nest]:
        if prod(self.shape) == 0:
            return []
        tensors = range(len(self.inputs))
        return self.part_nests(self.shape, self.views, self.out_view, tensors, self.padding)

    def _parts(
        self, shape: Sequence[int], views: Sequence[View], out_view: View, padding: int = 0
    ) -> list[tuple[list[int], list[View]]]:
        """The index space in pieces that a nest can walk: shape, and the views with the output's last."""
        every = [*views, out_view]
        sizes, strides = collapse(shape, every, padding)
        whole_rows = int(self.row_of(self.output).per_word > 1)
        return [
            (part, [View(s, v.offset + at) for s, v, at in zip(steps, every, offsets, strict=True)])
            for part, steps, offsets in peel(sizes, strides, MAX_DIMS, keep=whole_rows)
        ]

    def part_nests(
        self,
        shape: Sequence[int],
        views: Sequence[View],
        out_view: View,
        tensors: Sequence[int],
        padding: int = 0,
    ) -> list[Nest]:
        """As ``nest``, for index spaces of any rank."""
        return [
            self.nest(part, seen[:-1], seen[-1], tensors, padding)
            for part, seen in self._parts(shape, views, out_view, padding)
        ]

    def nest(
        self,
        shape: Sequence[int],
        views: Sequence[View],
        out_view: View,
        tensors: Sequence[int],
        padding: int = 0,
    ) -> Nest:
        """The nest that moves ``tensors`` (input indices) through ``views`` to ``out_view``.

        The inputs lack the last ``padding`` members of the last dimension, unless they repeat one.
        """
        sizes, strides = collapse(shape, [*views, out_view], padding)
        there = [*sizes[:-1], sizes[-1] - padding]
        inputs = tuple(
            _input(f"x{i}", tensor, self.row_of(self.inputs[tensor]), there, View(strides[i], view.offset))
            for i, (tensor, view) in enumerate(zip(tensors, views, strict=True))
        )
        row = self.row_of(self.output)
        output = _output(row, sizes, View(strides[-1], out_view.offset))
        dims = [Dim(f"i{d}", size) for d, size in enumerate(sizes)]
        if row.per_word > 1:
            dims[-1] = replace(dims[-1], multiple=row.per_word, padding=padding)
        return Nest(self.kernel, tuple(dims), (*inputs, *self.held), (output,), scalars=self.scalars)

    @property
    def held(self) -> tuple[Operand, ...]:
        """Operands beside those that are walked: all of each in every core."""
        return ()

    @property
    def scalars(self) -> dict[str, float | str]:
        return {"func": self.func, "alpha": self.alpha, "beta": self.beta, **self.activation.scalars}

    @property
    def is_activation(self) -> bool:
        return (
            self.func == "copy"
            and self.activation.code != "none"
            and len(self.inputs) == 1
            and self.inputs[0].shape == self.output.shape
            and self.shape == self.output.device_shape
            and all(
                a == b
                for a, b, n in zip(self.views[0].strides, self.out_view.strides, self.shape, strict=True)
                if n > 1
            )
        )

    @property
    def summands(self) -> tuple[TensorSpec, ...]:
        """What it adds up, element by element, where it does nothing else but an activation."""
        if self.func != "add" or len(self.inputs) != 2 or (self.alpha, self.beta) != (1.0, 1.0):
            return ()
        usual = [*(broadcast(t, self.output) for t in self.inputs), View(contiguous_strides(self.shape))]
        seen = [*self.views, self.out_view]
        plain = all(
            (one.strides, one.offset) == (other.strides, other.offset)
            for one, other in zip(seen, usual, strict=True)
        )
        return self.inputs if plain and self.shape == self.output.device_shape else ()

    def reference(self, *arrays: Array) -> Array:
        images = [t.laid(x) for t, x in zip(self.inputs, arrays, strict=True)]
        shape = (*self.shape[:-1], self.shape[-1] - self.padding)
        seen = [view.of(x, shape) for x, view in zip(images, self.views, strict=True)]
        dtype = self.output.dtype
        with np.errstate(all="ignore"):
            result = rounded(self.compute, dtype, *seen)
            result = rounded(lambda x: self.activation.apply(x), dtype, np.broadcast_to(result, shape))
        laid = np.zeros(self.shape, dtype)
        laid[..., : shape[-1]] = result
        return self.output.gathered(laid)

    def compute(self, *seen: Array) -> Array:
        """The function in NumPy."""
        function = self.functions[self.func].reference
        if function is None:
            raise NotImplementedError(self.func)
        result: Array = function(*self.numbers, *seen)
        return result

    @property
    def numbers(self) -> tuple[float, ...]:
        """What the function gets before its inputs."""
        return self.alpha, self.beta


def rounded(function: Callable[..., Any], dtype: np.dtype[Any], *values: Any) -> Array:
    """``function`` as kernels compute it: floats of two bytes in float32, and rounded once."""
    half = dtype.itemsize == 2 and dtype.kind not in "iu"
    wide = [v.astype(np.float32) if half and isinstance(v, np.ndarray) else v for v in values]
    return np.asarray(function(*wide)).astype(dtype)


def _input(name: str, tensor: int, row: DType, sizes: Sequence[int], view: View) -> Operand:
    """Dimensions that are walked with stride 0 are broadcast: the operand leaves them out.

    Its dimensions are ordered by falling stride, so that chunks are read as they lie. Elements narrower
    than a word come in whole words: one dimension may walk inside words; where none does, a word is
    read for every element. Raises ``Unsupported`` where two do. What lies between members a few words apart
    is read with them.
    """
    unit, steps = row.per_word, view.strides
    inside = [d for d in range(len(sizes)) if steps[d] % unit]
    if unit == 1:
        inside = _skipping(sizes, steps)
    outer = sorted((d for d in range(len(sizes)) if steps[d] and d not in inside), key=lambda d: -steps[d])
    shape, strides, access = [sizes[d] for d in outer], [steps[d] for d in outer], [Access(d) for d in outer]
    offset = view.offset
    if len(inside) > 1:
        raise Unsupported(
            f"a view with strides {list(steps)} of {row} elements",
            f"one stride that is no multiple of {unit}",
        )
    if inside:
        (d,), lead = inside, offset % unit
        reach = lead + steps[d] * (sizes[d] - 1) + 1
        shape, strides = [*shape, -(-reach // unit) * unit], [*strides, 1]
        access = [*access, Access(d, steps[d], lead, lead, align=unit)]
        offset -= lead
    elif unit > 1 or not outer:
        shape, strides, access = [*shape, unit], [*strides, 1], [*access, Access(None)]
    return Operand(name, tensor, row, tuple(shape), tuple(strides), tuple(access), offset)


def _skipping(sizes: Sequence[int], steps: Sequence[int]) -> list[int]:
    """The dimension whose members lie a few words apart with nothing else between them, if there is one.

    DMAs read what lies together faster than every second word of it: the kernel passes over the rest.
    """
    walked = sorted((step, d) for d, step in enumerate(steps) if step and sizes[d] > 1)
    if not walked or not 1 < walked[0][0] <= _SKIPPED:
        return []
    step, d = walked[0]
    apart = len(walked) == 1 or walked[1][0] > step * (sizes[d] - 1)
    return [d] if apart else []


def _output(row: DType, sizes: Sequence[int], view: View) -> Operand:
    """The kernel writes its chunk in index order."""
    walked = [d for d in range(len(sizes)) if view.strides[d]] or [0]
    strides = tuple(view.strides[d] for d in walked)
    access = tuple(Access(d) for d in walked)
    return Operand("out", OUTPUT, row, tuple(sizes[d] for d in walked), strides, access, view.offset)


def broadcast(tensor: TensorSpec, output: TensorSpec) -> View:
    """The view of ``tensor`` broadcast to ``output`` by ONNX's (NumPy's) rule, row padding included."""
    lead = len(output.device_shape) - len(tensor.shape)
    strides = [0] * lead + [s if n != 1 else 0 for n, s in zip(tensor.shape, tensor.strides, strict=True)]
    if tensor.row == output.row:
        strides[-1] = 1  # the padding of both is walked alike
    return View(strides)


def numpy_names(dtypes: str) -> tuple[str, ...]:
    """The NumPy names of a declaration's element types."""
    return tuple(str(DTYPES[name].numpy) for name in dtypes.split())
