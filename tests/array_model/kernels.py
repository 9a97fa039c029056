# SPDX-License-Identifier: Apache-2.0
"""Kernels in plain NumPy: what a core computes in one call. Some of those that there are, as examples.

A kernel reads chunks from the in slots, and writes its tile into the out slot in the order of
the index dimensions. It sees the core's own memory and the parameter block, nothing else. What a
parameter block asks for and the kernel here never looks at is refused (``check_all_read``), so that
no result is right by leaving something out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from onedispatch.operators.declarations import params
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.kernel import AXIS_WORDS, MARK_SHIFT, Function, Kernel, Scalar
from onedispatch.operators.kernels.elementwise import KERNEL as ELTWISE
from onedispatch.operators.kernels.matmul import GEMM
from onedispatch.operators.kernels.recurrent import RECURRENT
from onedispatch.operators.kernels.top_k import TOP_K
from onedispatch.transactions.machine.registers import CORE_VIEW_MEMORY
from tests.array_model.memory import UNMODELLED, Memory, ModelFault

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
    read: set[str] = field(default_factory=set)  # operands and scalars that an op's calls have looked at

    def word(self, kernel: Kernel, name: str) -> int:
        self.read.add(name)
        return self.words[kernel.layout[name]]

    def present(self, kernel: Kernel, name: str) -> bool:
        return self.word(kernel, name) != params.ABSENT

    def dtype(self, kernel: Kernel, name: str) -> np.dtype[Any]:
        """The element type of an operand. Refuses those that NumPy lacks: they are rounded otherwise."""
        code = self.word(kernel, name) >> params.DTYPE_SHIFT & 0xFF
        found = np.dtype(NUMPY[code])
        if found.kind not in "fiub" or found == np.float16:
            raise ModelFault(UNMODELLED, f"{kernel.name}: {name} of {found} is not modelled")
        return found

    def scratch(self) -> int:
        """Byte in own memory at which scratch begins."""
        return self.words[params.HEADER["scratch"]] - CORE_VIEW_MEMORY

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


def check_all_read(kernel: Kernel, words: list[int], read: set[str]) -> None:
    """Refuses an operation with an operand, or a scalar that is not its default, that no call looked at."""
    for tensor in kernel.tensors:
        if tensor.name not in read and words[kernel.layout[tensor.name]] != params.ABSENT:
            raise ModelFault(UNMODELLED, f"{kernel.name}: operand {tensor.name} is given, and not modelled")
    for scalar in kernel.scalars:
        word, default = words[kernel.layout[scalar.name]], unused_word(scalar)
        if scalar.name not in read and word != default:
            raise ModelFault(
                UNMODELLED, f"{kernel.name}: scalar {scalar.name} is {word:#x}, and not modelled"
            )


def unused_word(scalar: Scalar) -> int:
    """The word of a scalar that asks for nothing."""
    default = 0 if scalar.default is None or scalar.table is not None else scalar.default
    kind = np.float32 if scalar.type == "f32" else np.int64
    return int(np.array([default], kind).view(np.uint32)[0])


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
        return cls.of(call.words[kernel.layout[name] :])

    @classmethod
    def of(cls, words: list[int]) -> LocalAxis:
        w = words[:AXIS_WORDS]
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


def activate(call: Call, kernel: Kernel, x: npt.NDArray[Any], name: str = "act") -> npt.NDArray[Any]:
    """The activation that the kernel's ``act`` scalars choose, or those of another ``name``."""
    function = call.function(kernel, name).reference
    assert function is not None
    with np.errstate(all="ignore"):
        y = function(x, call.scalar_f32(kernel, f"{name}_alpha"), call.scalar_f32(kernel, f"{name}_beta"))
    return np.asarray(y, x.dtype)


def eltwise(call: Call) -> None:
    """act(func(inputs)) over a box of five dimensions; a stride of 0 repeats an element.

    Members that an input lacks fill up the words of the output's rows: they are zero.
    """
    sizes = [call.tile(d) for d in range(5)]
    index = np.indices(sizes).reshape(5, -1)
    function = call.function(ELTWISE, "func")
    dtype = call.dtype(ELTWISE, "out")
    if any(call.dtype(ELTWISE, f"x{i}") != dtype for i in range(function.inputs)):
        raise ModelFault(UNMODELLED, "od::eltwise: operands of several types are not modelled")
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
    """C = act(alpha * A @ B + bias) in f32; (A - a_zero) @ (B - b_zero) + bias from bytes to int32, or where
    there is a scale its product with that, rounded half to even, plus out_zero, saturated.

    Sums that are narrower in the end wait in scratch.
    """
    dm, dn = call.word(GEMM, "dim_m"), call.word(GEMM, "dim_n")
    m, n, om, on = call.tile(dm), call.tile(dn), call.origins[dm], call.origins[dn]
    k, count = call.k_first, max(0, call.k_count)
    a_type, b_type, out_type = (call.dtype(GEMM, name) for name in ("a", "b", "out"))
    floats, scaled = out_type == np.float32, call.present(GEMM, "scale")
    check_types(a_type, b_type, out_type, scaled)
    a = matrix(call, "a", ("a_m", "a_k"), (om, k), (m, count), a_type)
    b = matrix(call, "b", ("b_k", "b_n"), (k, on), (count, n), b_type)
    if floats:
        total = a @ b
    else:
        a_zero = vector(call, "a_zero", "a_zero_m", om, m, a_type).astype(np.int32)
        b_zero = vector(call, "b_zero", "b_zero_n", on, n, b_type).astype(np.int32)
        total = (a.astype(np.int32) - a_zero[:, None]) @ (b.astype(np.int32) - b_zero)
    waits = call.scratch() if out_type.itemsize < 4 else call.out
    if not call.is_first:
        total = total + call.memory.block(waits, m * n, total.dtype).reshape(m, n)
    if not call.is_last:
        call.memory.store_block(waits, total)
        return
    if floats:
        total = call.scalar_f32(GEMM, "alpha") * total
    total = total + vector(call, "bias", "bias_n", on, n, total.dtype)
    if scaled:
        product = total.astype(np.float32) * vector(call, "scale", "scale_n", on, n, np.float32)
        zero = vector(call, "out_zero", "out_zero_n", on, n, out_type).astype(np.int64)
        ends = np.iinfo(out_type)
        total = np.clip(np.rint(product).astype(np.int64) + zero, ends.min, ends.max).astype(out_type)
    total = activate(call, GEMM, total) if floats else total
    call.memory.store_block(call.out, total)


def check_types(a: np.dtype[Any], b: np.dtype[Any], out: np.dtype[Any], scaled: bool) -> None:
    """Refuses products of other types than those that ``gemm`` knows."""
    of_bytes = {a.itemsize, b.itemsize} == {1} and "f" not in (a.kind, b.kind)
    floats = {a, b, out} == {np.dtype(np.float32)} and not scaled
    sums = of_bytes and out == np.int32 and not scaled
    narrow = of_bytes and out.itemsize < 4 and scaled
    if not (floats or sums or narrow):
        with_scale = " with a scale" if scaled else ""
        raise ModelFault(UNMODELLED, f"od::gemm: {a} by {b} into {out}{with_scale} is not modelled")


def top_k(call: Call) -> None:
    """The n best of x along the reduction, best first, and their places; what steps before found comes first
    among equals."""
    o, n, i = (call.word(TOP_K, f"dim_{name}") for name in "oni")
    (to, tn, ti), dtype = (call.tile(d) for d in (o, n, i)), call.dtype(TOP_K, "x")
    axes = [LocalAxis.at(call, TOP_K, f"x_{name}") for name in "oki"]
    base, largest = call.byte(call.word(TOP_K, "x")), call.word(TOP_K, "largest") != 0
    places_at = call.out + (call.word(TOP_K, "places") & 0xFFFF)
    call.word(TOP_K, "values")
    before = min(tn, call.k_first)
    values = np.zeros((to, tn, ti), dtype)
    places = np.zeros((to, tn, ti), np.int64)
    if before:
        values[:] = kept(call.memory, call.out, values)
        places[:] = kept(call.memory, places_at, places)
    for at_o in range(to):
        for at_i in range(ti):
            found = [(values[at_o, j, at_i], int(places[at_o, j, at_i])) for j in range(before)]
            for k in range(call.k_first, call.k_first + call.k_count):
                where = (call.origins[o] + at_o, k, call.origins[i] + at_i)
                starts = (call.origins[o], call.k_first, call.origins[i])
                element = sum(axis.local(s, w) for axis, s, w in zip(axes, starts, where, strict=True))
                found.append((call.load(base + dtype.itemsize * element, dtype), k))
            found.sort(key=lambda one: (-float(one[0]) if largest else float(one[0]), one[1]))
            for j, (value, place) in enumerate(found[:tn]):
                values[at_o, j, at_i], places[at_o, j, at_i] = value, place
    call.memory.store_block(call.out, values)
    call.memory.store_block(places_at, places)


def recurrent(call: Call) -> None:
    """One step of a plain recurrent layer: h' = g(x + h @ R), whose sums wait in scratch. No other cell."""
    if call.function(RECURRENT, "cell").name != "rnn":
        raise ModelFault(UNMODELLED, "od::recurrent: a cell other than rnn is not modelled")
    b, n = call.word(RECURRENT, "dim_b"), call.word(RECURRENT, "dim_n")
    (rows, columns), (ob, on) = (call.tile(b), call.tile(n)), (call.origins[b], call.origins[n])
    call.dtype(RECURRENT, "out")
    k, count = call.k_first, max(0, call.k_count)
    total = np.zeros((rows, columns), np.float32)
    if not call.is_first:
        total = call.memory.block(call.scratch(), rows * columns, np.float32).reshape(rows, columns)
    axes = {name: LocalAxis.at(call, RECURRENT, name) for name in ("h_b", "h_k", "r_k", "r_n", "x_b", "x_n")}

    def at(name: str, first: tuple[str, int, int], second: tuple[str, int, int]) -> np.float32:
        """A member of an operand: each axis with its tile's origin and the coordinate."""
        local = sum(axes[f"{name}_{axis}"].local(start, where) for axis, start, where in (first, second))
        value: np.float32 = call.load(call.byte(call.word(RECURRENT, name)) + 4 * local, np.float32)
        return value

    for i, j in np.ndindex(rows, columns):
        for step in range(k, k + count):
            product = at("h", ("b", ob, ob + i), ("k", k, step)) * at("r", ("k", k, step), ("n", on, on + j))
            total[i, j] += product
    if not call.is_last:
        call.memory.store_block(call.scratch(), total)
        return
    for i, j in np.ndindex(rows, columns):
        total[i, j] += at("x", ("b", ob, ob + i), ("n", on, on + j))
    clip = call.scalar_f32(RECURRENT, "clip")
    if clip:
        total = np.clip(total, -clip, clip)
    call.memory.store_block(call.out, activate(call, RECURRENT, total, "g"))


def kept(memory: Memory, at: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What an out chunk holds of earlier steps."""
    found: npt.NDArray[Any] = memory.block(at, like.size, like.dtype).reshape(like.shape)
    return found


KERNELS: Mapping[int, Callable[[Call], None]] = {
    ELTWISE.digest: eltwise,
    GEMM.digest: gemm,
    TOP_K.digest: top_k,
    RECURRENT.digest: recurrent,
}
