# SPDX-License-Identifier: Apache-2.0
"""Convolution of integers: sums of 32 bits, as they are or narrow by a scale; of 64 where x has 16 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, DType
from onedispatch.operators.interface.merge import Merge
from onedispatch.operators.interface.operator import TensorSpec, Unsupported
from onedispatch.operators.kernels.conv import Array, Conv, Planes
from onedispatch.operators.kernels.matmul import is_wide, requantised
from onedispatch.operators.kernels.table import ENTRIES, Table, table_of
from onedispatch.operators.kernels.window import Window
from onedispatch.operators.scheduling.index_space import (
    F32,
    Access,
    K,
    Operand,
    Packed,
    PackedPart,
    contiguous_strides,
)
from onedispatch.transactions import Device
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.text import counted

I8, I32, I64 = DTYPES["i8"], DTYPES["i32"], DTYPES["i64"]
WHOLE = {"out_zero": 1, "table": ENTRIES}  # constants that are the same for all output channels
NARROW_TAPS = 128  # of a depthwise window whose sums int32 holds where x has 16 bits


@dataclass(frozen=True)
class RequantParams:
    """What the integers of a convolution stand for, as far as its sums need it: the zero point of x ([1]) and
    of the weights ([1] or [M]), what sums are multiplied by ([1] or [M], float32), and the zero point of what
    that gives ([1]). None: zeros, and sums that stay int32."""

    x_zero: TensorSpec | None = None
    w_zero: TensorSpec | None = None
    scale: TensorSpec | None = None
    out_zero: TensorSpec | None = None
    table: TensorSpec | None = None

    @property
    def operands(self) -> dict[str, TensorSpec]:
        """Those that are there, by the names of the kernel's operands."""
        return {name: tensor for name, tensor in vars(self).items() if tensor is not None}

    @property
    def known_early(self) -> tuple[TensorSpec | None, ...]:
        """What must be constant for weights to be packed; what x has for its zero need not be."""
        return self.w_zero, self.scale, self.out_zero, self.table


def _looks_up(_: Any, reader: Any) -> bool:
    return isinstance(reader, Table)


def _with_table(conv: Any, reader: Any) -> Any:
    """``conv`` that looks its results up."""
    x, entries, before = reader.inputs[0], reader.entries, conv.meaning.table
    if not conv.packs:
        raise Unsupported(f"weights or scales of {conv.name} are no constants", "constants")
    if reader.output.shape != x.shape or reader.output.dtype != x.dtype or conv.x.element.itemsize != 1:
        raise Unsupported(f"{reader.output} of {x}", "bytes of one type, each of one")
    if before is not None:
        entries = reader.tabulated({x.name: before.value})
    table = table_of(reader.output, entries)
    inputs = [tensor for tensor in conv.inputs if tensor is not before]
    known = replace(conv.meaning, table=table)
    return conv.replaced(inputs=(*inputs, table), output=reader.output, meaning=known)


# A function of its results, 256 at most, while the kernel still holds them.
TABULATED = Merge("table", _looks_up, _with_table)


class IntegerConv(Conv):
    """``(X - x_zero) * (W - w_zero) + bias`` of integers, summed in int32; ``scale`` makes the sums narrow.
    Those of x of 16 bits, which it must make narrow, are exact, in 64 bits.

    What lies around x is its zero point. Constants are packed tile by tile: weights with zero points become
    int8 without where they fit, and what x has for its zero is added up in the bias, if it is known. Weights,
    bias, zero points or scales that are computed are read as they lie, weights as [M, C/groups, taps].
    """

    kind = "integer_conv"
    applies_activation: ClassVar[bool] = False
    merges = (TABULATED,)

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        window: Window,
        groups: int,
        device: Device,
        meaning: RequantParams,
        planes: Planes | None = None,
    ) -> None:
        super().__init__(name, inputs, output, window, groups, device, planes)
        self.meaning = meaning
        for what, tensor in meaning.operands.items():
            many = {"x_zero": 1, **WHOLE}.get(what, self.made)
            if tensor.size not in (1, many):
                accepted = "one" if many == 1 else f"one, or {many}: one per output channel"
                raise Unsupported(f"{what} {tensor.name} of {counted(tensor.size, 'value')}", accepted)
        self.packs = self.packs and all(t is None or t.is_const for t in meaning.known_early)
        self.inputs = (*self.inputs, *meaning.operands.values())
        if self.depthwise and is_wide(self.x) and window.taps > NARROW_TAPS:
            given = f"a depthwise window of {window.taps} taps over {self.x.dtype}"
            raise Unsupported(given, f"at most {NARROW_TAPS} taps, or int8, uint8")

    # -- constants --------------------------------------------------------------------------------

    def _each(self, name: str) -> Array:
        """The values of a constant, one for each output channel."""
        tensor = self.meaning.operands.get(name)
        values = np.zeros(1, np.int64) if tensor is None or tensor.value is None else tensor.value
        return np.broadcast_to(np.asarray(values).reshape(-1), (self.made,))

    @cached_property
    def _coded(self) -> tuple[Array, Array]:
        """Constant weights [M, C/groups * taps], and their zero points [M]: none where they fit int8 so."""
        given, zeros = np.asarray(self.weights.value).reshape(self.made, -1), self._each("w_zero")
        centred = given.astype(np.int64) - zeros.reshape(-1, 1)
        limits = np.iinfo(I8.numpy)
        if zeros.any() and limits.min <= centred.min(initial=0) and centred.max(initial=0) <= limits.max:
            return centred.astype(I8.numpy), np.zeros_like(zeros)
        return given, zeros

    @cached_property
    def _pad(self) -> int | None:
        """What x has for its zero; None where that is computed at run time."""
        zero = self.meaning.x_zero
        return 0 if zero is None else None if zero.value is None else int(zero.value.reshape(-1)[0])

    @cached_property
    def _folded(self) -> Array:
        """The constant bias [M], with what a known zero point of x adds to every sum; int32, which wraps, or
        int64 where sums have 64 bits."""
        given = 0 if self.bias is None else np.asarray(self.bias.value, np.int64).reshape(-1)
        weights, zeros = (x.astype(np.int64) for x in self._coded)
        summed = weights.sum(axis=1) - zeros * weights.shape[1]
        folded = np.asarray(given - (self._pad or 0) * summed, np.int64)
        return folded if is_wide(self.x) else folded.astype(np.int32)

    @cached_property
    def _constants(self) -> dict[str, Array]:
        """What lies behind packed weights, in order: a value for each output channel, or one, or a table."""
        found = {}
        if self._folded.any():
            found["bias"] = self._folded
        if self._coded[1].any():
            found["w_zero"] = self._coded[1].astype(self._coded[0].dtype)
        if self.meaning.scale is not None:
            found["scale"] = np.asarray(self._each("scale"), np.float32)
        if self.meaning.out_zero is not None:
            found["out_zero"] = np.asarray(self.meaning.out_zero.value).reshape(1)
        if self.meaning.table is not None:
            found["table"] = np.asarray(self.meaning.table.value)
        return found

    # -- operands ---------------------------------------------------------------------------------

    @property
    def _scalars(self) -> dict[str, float | str]:
        return {**self.window.scalars_for(self._rows[0]), "pad": (self._pad or 0) if self.packs else 0}

    def _others(self, names: Sequence[str], sizes: Sequence[int], dims: Sequence[int]) -> list[Operand]:
        """Parameters that are read as they lie: one for all output channels, or one for each.

        The channels are ``sizes`` over index dimensions ``dims``.
        """
        found = []
        if len(sizes) > 1 and sizes[0] == 1:  # one group
            sizes, dims = sizes[1:], dims[1:]
        for name, tensor in self.meaning.operands.items():
            if name not in names:
                continue
            index, unit = self.inputs.index(tensor), tensor.element.per_word
            if tensor.size == 1:
                found.append(Operand(name, index, tensor.element, (unit,), (1,), (Access(None),)))
                continue
            if len(sizes) > 1 and sizes[-1] % unit:
                given = f"{name} {tensor.name}, computed for every channel of {counted(sizes[0], 'group')}"
                raise Unsupported(given, f"constants, or groups that fill words: {unit}, {2 * unit}, ...")
            shape = (*sizes[:-1], -(-sizes[-1] // unit) * unit)
            access = [Access(d) for d in dims]
            access[-1] = replace(access[-1], align=unit)
            strides = contiguous_strides(shape)
            found.append(Operand(name, index, tensor.element, shape, strides, tuple(access)))
        return found

    @property
    def _code(self) -> DType:
        """The element type of packed weights."""
        return I8 if self._coded[0].dtype == I8.numpy else self.weights.element

    def _packed(
        self, dims: tuple[int, ...], outputs: int, weights: tuple[tuple[int | None, int], ...]
    ) -> tuple[Operand | Packed, ...]:
        # Channel by channel: what a native product takes of them lies together.
        axes = ((outputs, 0), *(axis for axis in weights if axis[0] != outputs))
        types = {
            "bias": I64 if is_wide(self.x) else I32,
            "scale": F32,
            "w_zero": self._code,
            "out_zero": self.output.element,
            "table": self.output.element,
        }
        parts = [PackedPart("w", self._code, axes)]
        for name in self._constants:
            parts.append(
                PackedPart(name, types[name], ((None, WHOLE[name]) if name in WHOLE else (outputs, 0),))
            )
        return Packed("w", dims, tuple(parts)), *self._others(["x_zero"] if self._pad is None else [], (), ())

    def _parameters(
        self, sizes: Sequence[int], dims: Sequence[int], channels: int
    ) -> tuple[Operand | Packed, ...]:
        outputs, row = [Access(d) for d in dims], self.weights.row_pitch
        shape, access = (*sizes, channels, row), (*outputs, Access(K), Access(None))
        if channels == 1:  # no reduction along weights: one chunk serves all its steps
            shape, access = (*sizes, row), (*outputs, Access(None))
        found = [Operand("w", 1, self.weights.element, shape, contiguous_strides(shape), access)]
        if self.bias is not None:
            strides = contiguous_strides(sizes)
            found.append(Operand("bias", 2, I32, tuple(sizes), strides, tuple(outputs)))
        return *found, *self._others(list(self.meaning.operands), sizes, dims)

    def packed_parts(self, operand: str) -> list[Array]:
        if self.weights.value is None:
            raise self.not_constant(operand)
        beside = [x if name in WHOLE else self._by_group(x) for name, x in self._constants.items()]
        return [self._windows(self._coded[0]), *beside]

    # -- reference --------------------------------------------------------------------------------

    def reference(self, *arrays: Array) -> Array:
        given = dict(
            zip(self.meaning.operands, arrays[len(arrays) - len(self.meaning.operands) :], strict=True)
        )
        zero, w_zero = (
            given.get(name, np.zeros(1, np.int64)).astype(np.int64) for name in ("x_zero", "w_zero")
        )
        weights = arrays[1].reshape(self.made, -1) - w_zero.reshape(-1, 1)
        bias = arrays[2].astype(np.int64) if self.bias is not None else np.zeros(self.made, np.int64)
        # Planes that are one row have the padding of their rows.
        flat = self.x.row_pitch != self.x.row and self.planes.x_plane == (1, prod(self.x.device_shape[2:]))
        x = self.x.laid(arrays[0]) if flat else arrays[0]
        # float64 holds every sum of these products
        sums = self._sums(x - float(zero.reshape(-1)[0]), weights.astype(np.float64))
        sums = sums.astype(np.int64) + bias.reshape(-1, 1, 1, 1)
        sums = sums if is_wide(self.x) else sums.astype(np.int32)
        if "scale" in given:
            out_zero = int(given["out_zero"].reshape(-1)[0]) if "out_zero" in given else 0
            sums = requantised(sums, given["scale"].reshape(-1, 1, 1, 1), out_zero, self.output.dtype)
        if "table" in given:
            sums = given["table"][sums.view(np.uint8)]
        return self.output.gathered(sums.reshape(-1)) if flat else sums.reshape(self.output.shape)
