# SPDX-License-Identifier: Apache-2.0
"""What a kernel's Python body sees of a call: a ``Tile``, made from parameter block and chunks alone.

A body is called for one box of members at a time, on any thread, with arrays of what those members declare to
touch. It computes them all at once, as NumPy does, and writes its outputs: ``t.z[:] = t.a * t.x + t.y``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, DType
from onedispatch.operators.declarations.kernel import MAX_DIMS, Kernel, Scalar, Tensor
from onedispatch.operators.declarations.params import scalar_word
from onedispatch.operators.plugin.custom_kernel import SCRATCH_BYTES, CustomKernel
from onedispatch.operators.plugin.instance import KernelInstance
from onedispatch.operators.plugin.printing import say
from onedispatch.operators.plugin.refusals import refusal

Array = np.ndarray[Any, Any]
Body = Callable[["Tile"], Any]
Setup = Mapping[str, Any]
"""What ``_core.register_kernel`` hands to ``prepare``."""

_ROWS = {row.code: row for row in DTYPES.values()}
_OF_A_TILE = ("origin", "shape", "index_space", "first", "print")


class Result(np.ndarray[Any, Any]):
    """An output of a tile. What is written to it must fit: its shape by broadcasting, its dtype in kind."""

    said: str

    def __setitem__(self, at: Any, values: Any) -> None:
        given = np.dtype(object) if values is None else getattr(values, "dtype", None)
        if given is not None and not np.can_cast(given, self.dtype, "same_kind"):
            accepted = f"{self.dtype}, or what rounds to it: values.astype({self.dtype.name!r}) says so"
            raise refusal("dtype", f"output {_name(self)}", f"values of {given}", accepted)
        try:
            super().__setitem__(at, values)
        except ValueError as error:
            accepted = f"what broadcasts to {list(self[at].shape)}"
            raise refusal("output_size", f"output {_name(self)}", error, accepted) from error

    def __array_finalize__(self, source: Any) -> None:
        self.said = getattr(source, "said", "")


def _name(array: Result) -> str:
    return array.said or "of the tile"


@dataclass(frozen=True)
class _Axis:
    """An axis of the block (``od_axis`` of ``onedispatch/kernel.h``)."""

    extent: int
    chunk: int
    stride: int
    a: int
    den: int
    align: int
    b: int
    span: int
    along: int  # -1: any member may touch all
    padding: int

    @property
    def size(self) -> int:
        """Of the tensor."""
        return self.extent - self.padding

    def chunk_origin(self, origin: Sequence[int]) -> int:
        """The first coordinate that the chunk of the tile at ``origin`` holds."""
        tile = 0 if self.along < 0 else origin[self.along]
        wanted = self.a * tile // self.den + self.b
        return min(max(wanted - wanted % self.align, 0), self.extent - self.chunk)

    def touched(self, members: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """(first, end) of the coordinates that members of the nest declare; they may lie outside."""
        if self.along < 0:
            return 0, self.size
        first, count = members[self.along]
        return self._at(first), self._at(first + count - 1) + self.span

    def _at(self, member: int) -> int:
        return self.a * member // self.den + self.b


@dataclass(frozen=True)
class _Operand:
    """How an operand lies, and where a tile's part of it is."""

    name: str
    row: DType
    axes: tuple[_Axis, ...]
    edge: float  # pad of an input, fill of an output; NaN: none

    @classmethod
    def of(cls, name: str, said: Mapping[str, Any] | None, output: bool) -> _Operand | None:
        if said is None:
            return None
        axes = tuple(_Axis(*map(int, axis)) for axis in said["axes"])
        return cls(name, _ROWS[said["dtype"]], axes, said["fill" if output else "pad"])

    @property
    def outside(self) -> Any:
        """The element that stands for what is not in the tensor, or not written."""
        return self.row.numpy.type(0 if self.edge != self.edge else self.edge)

    def lies(self, data: Array) -> Array:
        """The chunk as an array; of a tensor without dimensions one element."""
        itemsize = self.row.itemsize
        elements = data[: len(data) // itemsize * itemsize].view(self.row.numpy)
        shape = tuple(axis.chunk for axis in self.axes) or (1,)
        strides = tuple(axis.stride * itemsize for axis in self.axes) or (itemsize,)
        return np.lib.stride_tricks.as_strided(elements, shape, strides, writeable=data.flags.writeable)

    def box(self, members: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        return [axis.touched(members) for axis in self.axes]

    def parts(
        self, box: Sequence[tuple[int, int]], origin: Sequence[int]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Of what is in the tensor of ``box``: where it is in the chunk, and in an array of the box."""
        there, here = [], []
        for axis, (first, end) in zip(self.axes, box, strict=True):
            low, high = max(first, 0), min(end, axis.size)
            high = max(low, high)
            begin = axis.chunk_origin(origin)
            if low < high and not begin <= low <= high <= begin + axis.chunk:
                given = f"coordinates {low} to {high - 1} of {self.name}"
                accepted = f"{begin} to {begin + axis.chunk - 1}, which the chunk holds"
                raise refusal("layout", "the tile", given, accepted)
            there.append(slice(low - begin, high - begin) if low < high else slice(0, 0))
            here.append(slice(low - first, high - first))
        return tuple(there), tuple(here)


def _is_all(parts: Sequence[slice], box: Sequence[tuple[int, int]]) -> bool:
    return all((p.start, p.stop) == (0, end - first) for p, (first, end) in zip(parts, box, strict=True))


class Tile:
    """One call of a kernel: a box of members.

    By the names of the declaration: inputs and auxiliary tensors as arrays that cannot be written, outputs
    as arrays to write; each of what the members of the box declare to touch, ``t.first(name)`` being the
    tensor's coordinate of its first element. Outside of the tensor inputs hold their pad, and what is written
    there is dropped. Inputs that are absent are None. Scalars are numbers (f32: ``np.float32``), scratch
    is an array with at least as many elements as the instance said, of any contents.

    Attributes:
        origin: the first member, along every index dimension.
        shape: how many members there are along each.
        index_space: members in all, of all calls together.
    """

    def __init__(
        self,
        values: dict[str, Any],
        boxes: dict[str, tuple[int, ...]],
        members: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
        host: Any,
        kernel: Kernel | None = None,
    ) -> None:
        self.__dict__.update(values)
        origin, shape, index_space = members
        more = {"origin": origin, "shape": shape, "index_space": index_space, "_boxes": boxes, "_host": host}
        self.__dict__.update(more, _kernel=kernel)

    def first(self, name: str) -> tuple[int, ...]:
        """The tensor's coordinate of the first element of an operand's array; below 0 where that is pad.

        Raises ``KernelError`` for what is no operand, or absent.
        """
        if name not in self._boxes:
            raise refusal("parameter_invalid", f"first({name!r})", name, ", ".join(self._boxes))
        found: tuple[int, ...] = self._boxes[name]
        return found

    def print(self, *line: Any) -> None:
        """Print ``t.print("v=%bf at %d", v, i)``, or of one member ``t.print((i, j), "v=%bf", v)``.

        Formats are C's, with those of short types (``onedispatch/plugin_print.h``); a value that does not go
        with its format is marked in the text. Lines are of the first member, unless they name one by global
        coordinates. They come out as ``session.last_run.prints``.
        """
        say(self._kernel, self._host, line, self.origin, self.index_space)

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(x for x in self.__dict__ if not x.startswith("_"))
        raise AttributeError(f"a tile has no {name!r}; it has {known}, {', '.join(_OF_A_TILE[3:])}")

    def __setattr__(self, name: str, values: Any) -> None:
        """``t.z = values`` is ``t.z[:] = values``; everything else stays as it is."""
        array = self.__dict__.get(name)
        if not isinstance(array, Result):
            written = [x for x, value in self.__dict__.items() if isinstance(value, Result)]
            accepted = f"values for {' or '.join(written)}; a body keeps nothing in its tile"
            raise refusal("parameter_invalid", f"t.{name} = ...", type(values).__name__, accepted)
        if array is not values:  # t.z += 1 has written it already
            array[...] = values


class _Plan:
    """A body prepared for one nest: everything that the block says, read once."""

    def __init__(self, kernel: Kernel, body: Body, scratch: Mapping[str, str], setup: Setup) -> None:
        self.kernel, self.body, self.setup = kernel, body, setup
        outputs = {t.name for t in kernel.outputs}
        names = [t.name for t in kernel.tensors]
        self.operands = [
            (name, name in outputs, _Operand.of(name, said, name in outputs))
            for name, said in zip(names, setup["operands"], strict=True)
        ]
        words = dict(zip((s.name for s in kernel.scalars), setup["scalars"], strict=True))
        self.scalars = {s.name: _number(s, words[s.name]) for s in kernel.scalars if not s.hidden}
        self.scratch = _scratch_parts(scratch, words)
        self.first: tuple[int, ...] = setup["first"]
        followed = [axis.along for _, _, one in self.operands if one for axis in one.axes]
        many = [d for d in range(MAX_DIMS) if setup["total"][d] > 1]
        self.rank = 1 + max([0, *followed, *many])

    def __call__(
        self,
        origin: Sequence[int],
        member: Sequence[int],
        count: Sequence[int],
        chunks: Sequence[Array | None],
        scratch: Array | None,
        host: Any,
        watch: Callable[[Array], Array] = lambda array: array,
    ) -> None:
        """Runs the body on a box of members; ``watch`` gives what it sees of each input."""
        if 0 in count:  # members that only fill up words of rows
            return
        members = [(m - f, n) for m, f, n in zip(member, self.first, count, strict=True)]
        values: dict[str, Any] = dict(self.scalars)
        boxes: dict[str, tuple[int, ...]] = {}
        later: list[tuple[Array, Array]] = []
        for (name, output, operand), data in zip(self.operands, chunks, strict=True):
            if operand is None or data is None:
                values[name] = None
                continue
            box = operand.box(members)
            boxes[name] = tuple(low for low, _ in box)
            chunk = operand.lies(data)
            if output:
                values[name] = self._output(operand, chunk, box, origin, later)
            else:
                values[name] = watch(self._input(operand, chunk, box, origin))
        for name, (first, end, row) in self.scratch.items():
            assert scratch is not None
            values[name] = scratch[first : end if end else None].view(row.numpy)
        rank = self.rank
        space = tuple(self.setup["total"][:rank])
        tile = Tile(values, boxes, (tuple(member[:rank]), tuple(count[:rank]), space), host, self.kernel)
        with np.errstate(all="ignore"):  # infinities are values, not warnings
            answer = self.body(tile)
        if answer is not None and not isinstance(answer, Result):  # np.add(..., out=t.z) gives t.z
            accepted = "nothing: outputs are written, t.z[:] = ..."
            raise refusal("parameter_invalid", "what the body returns", type(answer).__name__, accepted)
        for chunk, written in later:
            chunk[...] = written

    @staticmethod
    def _input(
        operand: _Operand,
        chunk: Array,
        box: Sequence[tuple[int, int]],
        origin: Sequence[int],
    ) -> Array:
        there, here = operand.parts(box, origin)
        array = chunk[there]
        if not _is_all(here, box):
            whole = np.full([end - first for first, end in box], operand.outside, operand.row.numpy)
            whole[here] = array
            array = whole
        array.flags.writeable = False
        return array

    @staticmethod
    def _output(
        operand: _Operand,
        chunk: Array,
        box: Sequence[tuple[int, int]],
        origin: Sequence[int],
        later: list[tuple[Array, Array]],
    ) -> Array:
        there, here = operand.parts(box, origin)
        inside = chunk[there]
        if operand.edge != operand.edge:  # nothing was filled: the memory holds earlier data
            inside[...] = operand.outside
        array = inside
        if not _is_all(here, box):
            array = np.full([end - first for first, end in box], operand.outside, operand.row.numpy)
            array[here] = inside
            later.append((inside, array[here]))
        result = array.view(Result)
        result.said = operand.name
        return result


def _number(scalar: Scalar, word: int) -> Any:
    """A scalar's word as the number that it is."""
    if scalar.type == "f32":
        return np.float32(struct.unpack("<f", struct.pack("<I", word))[0])
    return word - (1 << 32) if scalar.type == "i32" and word >> 31 else word


def _scratch_parts(scratch: Mapping[str, str], words: Mapping[str, int]) -> dict[str, tuple[int, int, DType]]:
    """(first byte, end, dtype) of every scratch, one after the other; the last one ends with all."""
    found = {}
    for name, dtype in scratch.items():
        first = words[f"at_{name}"]
        behind = [words[f"at_{other}"] for other in scratch if words[f"at_{other}"] > first]
        end = min(behind, default=words["scratch_bytes"])
        found[name] = (
            first,
            first + (end - first) // DTYPES[dtype].itemsize * DTYPES[dtype].itemsize,
            DTYPES[dtype],
        )
    return found


def functions(kernel: Kernel, body: Body, scratch: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What ``_core.register_kernel`` runs for a kernel with a Python body; ``scratch``: dtypes by name."""

    def prepare(setup: Setup) -> _Plan:
        return _Plan(kernel, body, scratch or {}, setup)

    return {"prepare": prepare}


# -- a call on the host, to count what the body does -----------------------------------------------------


def call_once(
    kernel: CustomKernel,
    body: Body,
    instance: KernelInstance,
    arrays: Mapping[str, Array],
    members: Sequence[int],
    watch: Callable[[Array], Array],
) -> None:
    """One call of an instance's body for the first ``members`` along each index dimension.

    ``arrays``: inputs that are there, by name; ``watch`` gives what the body sees of each input.
    """
    outputs = {
        name: np.zeros(shape, DTYPES[dtype].numpy) for name, (dtype, shape) in instance.outputs.items()
    }
    for one in kernel.outputs:
        outputs[one.name][...] = outputs[one.name].dtype.type(instance.edge(one) or 0)
    given = {name: np.ascontiguousarray(array) for name, array in {**arrays, **instance.aux}.items()}
    there = {**given, **outputs}
    arrays_of = [there.get(tensor.name) for tensor in kernel.tensors]
    values = {**instance.scalars, **instance.hidden_scalars(kernel)}
    none = (0,) * MAX_DIMS
    setup = {
        "operands": tuple(
            None if array is None else _said(instance, tensor, array)
            for tensor, array in zip(kernel.tensors, arrays_of, strict=True)
        ),
        "scalars": tuple(scalar_word(s, values.get(s.name, 0)) for s in kernel.scalars),
        "first": none,
        "total": _to_all_dims(instance.index_space),
    }
    plan = _Plan(kernel, body, {one.name: one.dtypes for one in kernel.scratch_tensors}, setup)
    chunks = [None if array is None else array.reshape(-1).view(np.uint8) for array in arrays_of]
    scratch = np.zeros(int(values.get(SCRATCH_BYTES, 0)), np.uint8)
    plan(none, none, _to_all_dims(members), chunks, scratch, None, watch)


def _to_all_dims(sizes: Sequence[int]) -> tuple[int, ...]:
    return (*sizes, *[1] * (MAX_DIMS - len(sizes)))


def _said(instance: KernelInstance, tensor: Tensor, array: Array) -> dict[str, Any]:
    """An operand whose chunk is the whole tensor, as a setup says it."""
    axes = []
    for size, stride, it in zip(array.shape, array.strides, instance.intervals(tensor.name), strict=True):
        axes.append(it.axis(size).fields(size, stride // array.itemsize))
    edge = instance.edge(tensor)
    value = math.nan if edge is None else float(edge)
    code = next(row.code for row in DTYPES.values() if row.numpy == array.dtype)
    return {"dtype": code, "axes": tuple(axes), "pad": value, "fill": value}
