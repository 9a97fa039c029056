# SPDX-License-Identifier: Apache-2.0
"""What a model is compiled to: an ``Executable``, steps that run in order, for concrete shapes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from onedispatch.dispatch.base.host_work import HostWork
from onedispatch.dispatch.compiler.grouping import Grouping
from onedispatch.dispatch.frontend.graph import Array, Graph, Value
from onedispatch.operators.emission.image import EMPTY, Image
from onedispatch.operators.scheduling.packing import ByteCopy
from onedispatch.transactions.base.errors import InternalError
from onedispatch.transactions.base.text import counted

BUFFERS = ("in", "out", "scratch", "const", "params")  # the five fused arguments, in order


@dataclass(frozen=True)
class NodePlacement:
    """Where a node of the model runs, and why there.

    ``device`` is ``npu``, ``cpu`` or ``folded`` (computed at compile time). ``reason`` says it all; of it,
    ``nearest`` is what would map where the node does not, ``remark`` which rules and bodies were tried and
    what failed there, ``engine`` what computes it on the host (known once a session has been asked).
    ``operators`` are the device operators that it is part of, by the names that reports have.
    """

    node: str
    op_type: str
    device: Literal["npu", "cpu", "folded"]
    reason: str
    nearest: str = ""
    remark: str = ""
    engine: str = ""
    operators: tuple[str, ...] = ()


@dataclass(frozen=True)
class Slot:
    """A tensor in a fused buffer; sub-word rows are padded to whole words (``row_pitch``)."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int  # bytes from the start of its buffer
    row_pitch: int  # elements from one row to the next

    @property
    def rows(self) -> int:
        return prod(self.shape[:-1]) if self.shape else 1

    @property
    def row(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def is_padded(self) -> bool:
        """Whether rows in device memory are longer than the tensor's."""
        return self.row_pitch != self.row

    @property
    def nbytes(self) -> int:
        """Bytes in device memory."""
        return self.rows * self.row_pitch * self.dtype.itemsize

    def view(self, buffer: Array) -> Array:
        """The tensor's rows in a uint8 image of the buffer: [rows, row], writes go through."""
        raw = buffer[self.offset : self.offset + self.nbytes].view(self.dtype)
        return raw.reshape(self.rows, self.row_pitch)[:, : self.row]


@dataclass(frozen=True)
class OpInfo:
    """One device operator of a step, for reports. ``timer`` is the id of its end mark."""

    name: str
    op_type: str
    nodes: tuple[str, ...]
    timer: int
    arguments: tuple[str, ...] = ()  # its arg map after fusion, one line per entry
    schedule: tuple[str, ...] = ()
    work_basis: str = ""  # of a custom kernel: where its counted work comes from
    macs: int = 0  # multiply-accumulates of its products


@dataclass(frozen=True)
class Reload:
    """A change of what program memory holds, between operators. ``timer`` is the id of its end mark."""

    before: int  # the operator that follows; their number: the step ends with it
    timer: int
    nbytes: int  # into each core
    kernels: str  # that are there from then on, with "; " in between


class ConstantCopy(NamedTuple):
    """What a constant of the graph has in the const buffer, and where. ``factors`` scale the members of its
    first axis before, where there are some; then it is float32. ``own``: the bytes of what is none of the
    graph's, in its place.
    """

    constant: str
    copy: ByteCopy
    factors: Array | None = None
    own: Array | None = None


@dataclass(frozen=True)
class CopiedPart:
    """``size`` bytes of a const buffer from ``at`` on that ``copies`` alone make of zeros."""

    at: int
    size: int
    copies: tuple[ConstantCopy, ...]

    def is_like(self, other: CopiedPart | None) -> bool:
        """Whether ``other`` has the same bytes in the same place, made of constants of the same graph."""
        if other is None or (self.at, self.size) != (other.at, other.size):
            return False
        return len(self.copies) == len(other.copies) and all(
            mine[:2] == theirs[:2] and all(map(_same, mine[2:], theirs[2:]))
            for mine, theirs in zip(self.copies, other.copies, strict=True)
        )


def _same(one: Array | None, other: Array | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


@dataclass(frozen=True)
class DeviceStep:
    """One fused transaction over five buffers: one kernel run.

    ``image`` is what program memory holds before it and after it; ``reloads`` are those in between.
    """

    transaction: bytes = field(repr=False)
    sizes: tuple[int, int, int, int, int]  # bytes, in the order of ``BUFFERS``
    const: Array = field(repr=False)  # uint8
    params: bytes = field(repr=False)
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    ops: tuple[OpInfo, ...] = field(repr=False)
    scratch_bound: int = 0  # most bytes of intermediates alive at once
    image: Image = EMPTY
    reloads: tuple[Reload, ...] = ()
    const_starts: tuple[int, ...] = ()  # where one constant of ``const`` ends and another begins
    copies: tuple[ConstantCopy, ...] = field(default=(), repr=False)  # by which parts of ``const`` are made
    parts: tuple[CopiedPart, ...] = field(default=(), repr=False, compare=False)  # none of a loaded model

    @property
    def program_bytes(self) -> int:
        """What it takes of each core's program memory at most."""
        return max(self.image.nbytes, *(reload.nbytes for reload in self.reloads), 0)

    @property
    def reloads_in_order(self) -> bool:
        """Whether each comes before another operator than those before it, or at the end."""
        before = [reload.before for reload in self.reloads]
        return before == sorted(set(before)) and all(at <= len(self.ops) for at in before)

    def verify(self) -> None:
        """Raises ``InternalError`` where its parts do not belong together."""
        for buffer, slots in ((0, self.inputs), (1, self.outputs)):
            for slot in slots:
                if slot.offset + slot.nbytes > self.sizes[buffer]:
                    raise _wrong(f"{slot.name} ends at {slot.offset + slot.nbytes}", self.sizes[buffer])
        for buffer, size in ((3, self.const.nbytes), (4, len(self.params))):
            if size != self.sizes[buffer]:
                raise _wrong(f"{counted(size, 'byte')} for buffer {BUFFERS[buffer]!r}", self.sizes[buffer])
        if [op.timer for op in self.ops] != list(range(1, len(self.ops) + 1)):
            raise _wrong(f"timers {[op.timer for op in self.ops]}", len(self.ops))
        if not self.reloads_in_order:
            raise _wrong(f"reloads before operators {[r.before for r in self.reloads]}", len(self.ops))


def _wrong(given: str, wanted: int) -> InternalError:
    return InternalError("device step", given, str(wanted), "Please report this mistake of OneDispatch")


@dataclass(frozen=True)
class HostStep:
    """Nodes that run on the host: a graph of their own."""

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


Step = DeviceStep | HostStep


@dataclass(frozen=True)
class UsedKernel:
    """A custom kernel that an executable runs, and the name of the file or module that it came from.

    ``nodes`` are those that it computes on the host.
    """

    name: str
    digest: int
    origin: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Executable:
    """A model for concrete input shapes.

    ``sources`` names, for each output, the value that it is. ``constants`` are
    outputs of the model that no step makes, since they are known already
    (only where the host may take part). ``kernels`` are the custom ones. ``grouping`` is there
    where groups were asked for. ``actual`` names, for a source of which a run decides how much there is, the
    value with its sizes; the source itself is as large as planned.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    sources: tuple[str, ...]
    steps: tuple[Step, ...]
    placement: tuple[NodePlacement, ...]
    constants: Mapping[str, Array] = field(default_factory=dict, repr=False)
    kernels: tuple[UsedKernel, ...] = ()
    evaluated: tuple[HostWork, ...] = ()  # while it was compiled, for values of shape operands
    grouping: Grouping | None = None
    actual: Mapping[str, str] = field(default_factory=dict)

    def results(self, values: Mapping[str, Array]) -> list[Array]:
        """The model's outputs from what the steps of a run have made."""
        if not self.actual:
            return [values[source] for source in self.sources]
        return [_cut(values[source], values.get(self.actual.get(source, ""))) for source in self.sources]

    @property
    def device_steps(self) -> tuple[DeviceStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, DeviceStep))

    def with_transaction(self, transaction: bytes) -> Executable:
        """The executable with the transaction of its only device step replaced."""
        steps = tuple(
            replace(s, transaction=transaction) if isinstance(s, DeviceStep) else s for s in self.steps
        )
        return replace(self, steps=steps)


def _cut(array: Array, sizes: Array | None) -> Array:
    """What there is of a result; all of one whose size was not for the run to decide."""
    return array if sizes is None else array[tuple(slice(0, int(n)) for n in sizes[: array.ndim])]


def executable_key(shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Array]) -> str:
    """A name for one set of shapes, and of values where these decide shapes."""
    parts = [f"{name}{list(shape)}" for name, shape in sorted(shapes.items())]
    for name, array in sorted(values.items()):
        data = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
        parts.append(f"{name}={hashlib.blake2b(data, digest_size=8).hexdigest()}")
    return " ".join(parts)
