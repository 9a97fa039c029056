# SPDX-License-Identifier: Apache-2.0
"""Kernels in plain NumPy: what a core computes in one call. Two of the eight, as examples.

A kernel reads chunks from the in slots, and writes its tile into the out slot in the order of
the index dimensions. It sees the core's own memory and the parameter block, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onedispatch.operators.declarations import params
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.kernel import AXIS_WORDS, MARK_SHIFT, Function, Kernel
from onedispatch.operators.families.elementwise import KERNEL as ELTWISE
from onedispatch.operators.families.matmul import GEMM
from tests.array_model.memory import Memory, ModelFault

NUMPY = {row.code: row.numpy for row in DTYPES.values()}


@dataclass(frozen=True)
class Call:
    """One call: where the chunks are, which tile it is, and which part of the reduction."""

    memory: Memory
    words: list[int]
    inputs: tuple[int, int]
    out: int
    origins: tuple[int, ...]
    k_first: int
    k_count: int
    is_first: bool
    is_last: bool

    def word(self, kernel: Kernel, name: str) -> int:
        return self.words[kernel.layout[name]]

    def scalar_f32(self, kernel: Kernel, name: str) -> np.float32:
        return as_f32(self.word(kernel, name))

    def function(self, kernel: Kernel, name: str) -> Function:
        """The row of its table that scalar ``name`` chooses."""
        table = kernel.scalar(name).table
        assert table is not None
        return table.rows[self.word(kernel, name) & (1 << MARK_SHIFT) - 1]

    def tile(self, dim: int) -> int:
        return self.words[params.HEADER["dims"] + 4 * dim + 1]

    def byte(self, port_ref: int) -> int:
        """Where in own memory a PortRef points now."""
        return self.inputs[port_ref >> params.PORT_SHIFT] + (port_ref & 0xFFFF)

    def load(self, byte: int, dtype: npt.DTypeLike) -> Any:
        return self.memory.block(byte, 1, dtype)[0]


def as_f32(word: int) -> np.float32:
    value: np.float32 = np.array([word], np.uint32).view(np.float32)[0]
    return value


@dataclass(frozen=True)
class LocalAxis:
    """Five words: how a chunk lies along one tensor dimension."""

    extent: int
    chunk: int
    stride: int
    a: int
    den: int
    align: int
    b: int

    @classmethod
    def at(cls, call: Call, kernel: Kernel, name: str) -> LocalAxis:
        w = call.words[kernel.layout[name] :][:AXIS_WORDS]
        b = w[4] - 2**32 if w[4] >> 31 else w[4]
        return cls(w[0], w[1], w[2], w[3] & 0xFFFF, w[3] >> 16 & 0xFF, w[3] >> 24, b)

    def first(self, origin: int) -> int:
        """The coordinate that member ``origin`` of the index dimension touches first."""
        return self.a * origin // self.den + self.b

    def local(self, origin: int, coordinate: int) -> int:
        """Element offset of ``coordinate`` in the chunk of the tile (or step) at ``origin``."""
        if self.stride == 0:
            return 0
        wanted = self.first(origin)
        wanted -= wanted % self.align
        first = min(max(wanted, 0), self.extent - self.chunk)
        if not first <= coordinate < first + self.chunk:
            raise ModelFault("core", f"coordinate {coordinate} is not in the chunk [{first}, +{self.chunk})")
        return (coordinate - first) * self.stride


def activate(call: Call, kernel: Kernel, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The activation that the kernel's ``act`` scalars choose."""
    function = call.function(kernel, "act").reference
    assert function is not None
    with np.errstate(all="ignore"):
        y = function(x, call.scalar_f32(kernel, "act_alpha"), call.scalar_f32(kernel, "act_beta"))
    return np.asarray(y, x.dtype)


def eltwise(call: Call) -> None:
    """act(func(inputs)) over a box of five dimensions; a stride of 0 repeats an element.

    Members that an input lacks fill up the words of the output's rows: they are zero.
    """
    sizes = [call.tile(d) for d in range(5)]
    index = np.indices(sizes).reshape(5, -1)
    function = call.function(ELTWISE, "func")
    dtype = NUMPY[call.word(ELTWISE, "out") >> params.DTYPE_SHIFT & 0xFF]
    held = np.ones(index.shape[1], bool)
    x: list[npt.NDArray[Any]] = []
    for i in range(function.inputs):
        axes = [LocalAxis.at(call, ELTWISE, f"x{i}_d{d}") for d in range(5)]
        base = call.byte(call.word(ELTWISE, f"x{i}"))
        values = np.zeros(index.shape[1], dtype)
        for number, member in enumerate(index.T):
            places = list(zip(axes, call.origins, (int(at) for at in member), strict=True))
            if any(axis.stride and axis.first(o + at) >= axis.extent for axis, o, at in places):
                held[number] = False
                continue
            element = sum(axis.local(o, axis.first(o + at)) for axis, o, at in places)
            values[number] = call.load(base + dtype.itemsize * element, dtype)
        x.append(values)
    alpha, beta = call.scalar_f32(ELTWISE, "alpha"), call.scalar_f32(ELTWISE, "beta")
    assert function.reference is not None
    with np.errstate(all="ignore"):
        result = np.broadcast_to(np.asarray(function.reference(alpha, beta, *x), dtype), index.shape[1:])
    call.memory.store_block(call.out, np.where(held, activate(call, ELTWISE, result), dtype.type(0)))


def matrix(
    call: Call,
    name: str,
    axes: tuple[str, str],
    origins: tuple[int, int],
    counts: tuple[int, int],
    dtype: npt.DTypeLike,
) -> npt.NDArray[Any]:
    """The part of a matrix that one call reads, element by element."""
    base = call.byte(call.word(GEMM, name))
    rows, columns = (LocalAxis.at(call, GEMM, axis) for axis in axes)
    size = np.dtype(dtype).itemsize
    result = np.zeros(counts, dtype)
    for i in range(counts[0]):
        for j in range(counts[1]):
            element = rows.local(origins[0], origins[0] + i) + columns.local(origins[1], origins[1] + j)
            result[i, j] = call.load(base + element * size, dtype)
    return result


def vector(
    call: Call, name: str, axis: str, origin: int, count: int, dtype: npt.DTypeLike
) -> npt.NDArray[Any]:
    """A bias or zero points along one dimension; zeros where the block says "absent"."""
    if call.word(GEMM, name) == params.ABSENT:
        return np.zeros(count, dtype)
    base = call.byte(call.word(GEMM, name))
    along = LocalAxis.at(call, GEMM, axis)
    size = np.dtype(dtype).itemsize
    return np.array([call.load(base + along.local(origin, origin + i) * size, dtype) for i in range(count)])


def gemm(call: Call) -> None:
    """C = act(alpha * A @ B + bias) in f32, or (A - a_zero) @ (B - b_zero) from bytes to int32."""
    dm, dn = call.word(GEMM, "dim_m"), call.word(GEMM, "dim_n")
    m, n, om, on = call.tile(dm), call.tile(dn), call.origins[dm], call.origins[dn]
    k, count = call.k_first, max(0, call.k_count)
    codes = (call.word(GEMM, name) >> params.DTYPE_SHIFT & 0xFF for name in ("a", "b", "out"))
    a_type, b_type, out_type = (NUMPY[code] for code in codes)
    floats = out_type == np.float32
    a = matrix(call, "a", ("a_m", "a_k"), (om, k), (m, count), a_type)
    b = matrix(call, "b", ("b_k", "b_n"), (k, on), (count, n), b_type)
    if floats:
        total = a @ b
    else:
        a_zero = vector(call, "a_zero", "a_zero_m", om, m, a_type).astype(np.int32)
        b_zero = vector(call, "b_zero", "b_zero_n", on, n, b_type).astype(np.int32)
        total = (a.astype(np.int32) - a_zero[:, None]) @ (b.astype(np.int32) - b_zero)
    if not call.is_first:
        total = total + call.memory.block(call.out, m * n, total.dtype).reshape(m, n)
    if call.is_last:
        if floats:
            total = call.scalar_f32(GEMM, "alpha") * total
        total = total + vector(call, "bias", "bias_n", on, n, total.dtype)
        total = activate(call, GEMM, total) if floats else total
    call.memory.store_block(call.out, total)


KERNELS: Mapping[int, Callable[[Call], None]] = {
    ELTWISE.digest: eltwise,
    GEMM.digest: gemm,
}
