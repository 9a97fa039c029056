# SPDX-License-Identifier: Apache-2.0
"""A device region to one fused transaction over five buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.base.lendable import lendable
from onedispatch.dispatch.base.mapped import forget_pages
from onedispatch.dispatch.compiler import memory
from onedispatch.dispatch.compiler.device_region import DeviceRegion, PlacedOperator
from onedispatch.dispatch.compiler.executable import (
    BUFFERS,
    ConstantCopy,
    DeviceStep,
    OpInfo,
    Reload,
    Slot,
)
from onedispatch.dispatch.compiler.mapping import held
from onedispatch.dispatch.compiler.origins import Origins
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.emission.image import Image
from onedispatch.operators.emission.overlay import reload_packets, reload_transaction
from onedispatch.operators.scheduling.index_space import OUTPUT
from onedispatch.operators.scheduling.packing import PackedCopy, whole_copy
from onedispatch.transactions import ArgKind, ArgMap, Bindings, Device, TransactionBuilder, fuse
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.fusion.ahead import written_ahead
from onedispatch.transactions.fusion.fuse import FusePart

IN, OUT, SCRATCH, CONST, PARAMS = range(5)
_END = 64  # bytes


@dataclass
class _Storage:
    """Where every tensor of the region lives: fused argument and byte offset, by root name."""

    at: dict[str, tuple[int, int]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=lambda: [0] * len(BUFFERS))


@dataclass(frozen=True)
class Images:
    """What program memory holds: before and after a region, and for each of its operators."""

    overlay: Image
    of: tuple[Image, ...]

    def reloads(self) -> dict[int, Image]:
        """What is loaded before operators, by number; last, where needed, what the overlay brought."""
        sequence = (self.overlay, *self.of, self.overlay)
        borders = enumerate(pairwise(sequence))
        return {number: after for number, (before, after) in borders if after != before}


def emit_region(region: DeviceRegion, device: Device, images: Images, origins: Origins) -> DeviceStep:
    """The region as a device step; ``origins`` name what its constants are copies of.

    Raises ``ModelError`` when its buffers are beyond ``limits.BUFFER_BYTES``.
    """
    step = _Emitter(region, device, images, origins).step()
    step.verify()
    return step


class _Emitter:
    def __init__(self, region: DeviceRegion, device: Device, images: Images, origins: Origins) -> None:
        self.region = region
        self.images = images
        self.reloads: list[Reload] = []
        self.packets_at: dict[Image, int] = {}  # the byte of the parameters at which images lie as packets
        self.device = device
        self.spec = region.spec
        self.ops = region.operators
        self.delivered = region.delivered
        self.root = region.root
        self.constants = _Constants(origins)
        self.taken: dict[str, str] = {}  # intermediates in the memory of another
        self.within = region.within

    def step(self) -> DeviceStep:
        storage = _Storage()
        inputs = self._inputs(storage)
        outputs = self._outputs(storage)
        bound = self._scratch(storage)
        const_at = self._const(storage)
        params, params_at = self._params(storage)
        fused, infos = self._fuse(storage, const_at, params_at)
        return DeviceStep(
            fused,
            (storage.sizes[0], storage.sizes[1], storage.sizes[2], storage.sizes[3], storage.sizes[4]),
            self.constants.image(),
            params,
            inputs,
            outputs,
            tuple(infos),
            bound,
            self.images.overlay,
            tuple(self.reloads),
            tuple(self.constants.starts),
            tuple(self.constants.copies),
        )

    # -- buffers ---------------------------------------------------------------------------

    def _inputs(self, storage: _Storage) -> tuple[Slot, ...]:
        read = {self.root(t.name) for p in self.ops for t in p.activations}
        wanted = [n for n in self.region.inputs if n in read and self.spec[n].size]
        plan = memory.pack((n, self._bytes(n)) for n in wanted)
        storage.sizes[IN] = plan.size
        storage.at.update({n: (IN, at) for n, at in plan.offsets.items()})
        return tuple(_slot(self.spec[n], plan.offsets[n]) for n in wanted)

    def _outputs(self, storage: _Storage) -> tuple[Slot, ...]:
        wanted = [n for n in self.region.outputs if self.spec[n].size]
        plan = memory.pack((n, self._bytes(self.delivered[n])) for n in wanted)
        storage.sizes[OUT] = plan.size
        storage.at.update({self.delivered[n]: (OUT, plan.offsets[n]) for n in wanted})
        empty = tuple(_slot(self.spec[n], 0) for n in self.region.outputs if not self.spec[n].size)
        return tuple(_slot(self.spec[n], plan.offsets[n]) for n in wanted) + empty

    def _scratch(self, storage: _Storage) -> int:
        """Intermediates, and scratch pads of operators; returns the least bytes possible."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for index, placed in enumerate(self.ops):
            op = placed.operator
            for number, made in enumerate(op.outputs):
                if made.size and made.name not in storage.at and OUTPUT - number not in op.kept_buffers:
                    first[made.name] = last[made.name] = index
            for tensor in placed.activations:
                root = self.root(tensor.name)
                if root in first:
                    last[root] = index
            for entry in placed.entries:
                if entry.kind is ArgKind.SCRATCH_PAD and entry.size:
                    first[_pad_name(index)] = last[_pad_name(index)] = index
        for name in self.within:
            holder, _ = held(self.within, name)
            if holder in first:
                first[holder] = min(first[holder], first[name])
                last[holder] = max(last[holder], last[name])
        self.taken = self._in_place(first, last)
        alone = [n for n in first if n not in self.taken and n not in self.within]
        plan = memory.plan([memory.Interval(n, self._bytes(n), first[n], last[n]) for n in alone])
        storage.sizes[SCRATCH] = plan.size
        storage.at.update({n: (SCRATCH, at) for n, at in plan.offsets.items()})
        storage.at.update({n: storage.at[source] for n, source in self.taken.items()})
        for name in self.within:
            holder, at = held(self.within, name)
            argument, begin = storage.at[holder]
            storage.at[name] = argument, begin + at
        return plan.lower_bound

    def _in_place(self, first: dict[str, int], last: dict[str, int]) -> dict[str, str]:
        """Intermediates that take the memory of another, which nothing reads after the operator that makes
        them; ``last`` of that one becomes theirs."""
        taken: dict[str, str] = {}
        for index, placed in enumerate(self.ops):
            free = self._read_once(placed)
            for name, source in placed.operator.in_place.items():
                root = self.root(source)
                owner = taken.get(root, root)
                ends = last.get(root) == index and self._bytes(name) == self._bytes(root)
                apart = self.within.keys().isdisjoint((name, root))
                if apart and root in free and ends and name in first and owner in first:
                    free.remove(root)  # two results of one operator have a memory each
                    taken[name] = owner
                    last[owner] = last[name]
        return taken

    def _read_once(self, placed: PlacedOperator) -> set[str]:
        """Memories that one input of an operator lies in. Where two do, it may read by the one what it has
        written over the other: what ``in_place`` says is of one."""
        read = Counter(held(self.within, self.root(tensor.name))[0] for tensor in placed.activations)
        return {root for root, count in read.items() if count == 1}

    def _bytes(self, name: str) -> int:
        """Bytes that the tensor needs: its own, or what an operator asks for beyond."""
        return max(self._wanted.get(name, 0), self.spec[name].device_bytes if name in self.spec else 0)

    @cached_property
    def _wanted(self) -> dict[str, int]:
        wanted: dict[str, int] = {}
        for index, placed in enumerate(self.ops):
            for entry in placed.entries:
                at = 0
                if entry.kind in (ArgKind.INPUT, ArgKind.OUTPUT):
                    name, at = self.region.place(placed.tensor(entry).name)
                elif entry.kind is ArgKind.SCRATCH_PAD:
                    name = _pad_name(index)
                else:
                    continue
                name, begin = held(self.within, name)
                wanted[name] = max(wanted.get(name, 0), begin + at + entry.size)
        return wanted

    def _const(self, storage: _Storage) -> list[int]:
        """Packed constants of each operator, and constants that are read as they are."""
        offsets = []
        total = sum(p.const_bytes for p in self.ops)
        whole = {self.root(t.name) for p in self.ops for t in p.activations}
        plain = [n for n in whole if n not in storage.at and self.spec[n].is_const and self.spec[n].size]
        total += sum(self.spec[n].device_bytes for n in plain)
        limits.BUFFER_BYTES.check("the model on the device", sum(storage.sizes) + total)
        self.constants.reserve(total + memory.ALIGNMENT * (len(self.ops) + len(plain)))
        for placed in self.ops:
            if not placed.const_bytes:
                offsets.append(0)
                continue
            offsets.append(self._packed(placed))
            forget_pages()  # of the model's file: what is packed is not read again
        for name in sorted(plain):
            storage.at[name] = (CONST, self.constants.add(self.spec[name]))
            forget_pages()
        storage.sizes[CONST] = self.constants.size
        return offsets

    def _packed(self, placed: PlacedOperator) -> int:
        """Byte offset of an operator's packed constants."""
        return self.constants.fill(placed.const_bytes, placed.write_constants, placed.operator.inputs)

    def _params(self, storage: _Storage) -> tuple[bytes, list[int]]:
        blob = bytearray()
        offsets = []
        for placed in self.ops:
            offsets.append(len(blob))
            blob += placed.params
            blob += bytes(-len(blob) % memory.ALIGNMENT)
        for image in dict.fromkeys(self.images.reloads().values()):
            self.packets_at[image] = len(blob)
            blob += reload_packets(self.device, image)
            blob += bytes(-len(blob) % memory.ALIGNMENT)
        storage.sizes[PARAMS] = len(blob)
        return bytes(blob), offsets

    # -- fusion ----------------------------------------------------------------------------

    def _fuse(
        self, storage: _Storage, const_at: Sequence[int], params_at: Sequence[int]
    ) -> tuple[bytes, list[OpInfo]]:
        """One transaction with a timer mark before the first operator, after each, and after reloads."""
        loads = self.images.reloads()
        parts: list[FusePart] = [timer_mark(self.device, 0)]
        names: dict[int, str] = {}  # of parts that are operators
        infos = []
        for index, placed in enumerate(self.ops):
            parts += self._reload(index, loads)
            op = placed.operator
            entries = placed.entries
            tensors = {
                e.onnx_arg_idx: self._place(storage, placed.tensor(e).name)
                for e in entries
                if e.kind in (ArgKind.INPUT, ArgKind.OUTPUT)
            }
            pad = storage.at.get(_pad_name(index), (SCRATCH, 0))[1]
            in_place = bool(op.elided) or any(made.name in self.taken for made in op.outputs)
            bindings = Bindings(tensors, const_at[index], params_at[index], pad, in_place=in_place)
            # Tensors without elements have no bytes and no place; their operator has no work.
            entries = [e for e in entries if e.size]
            names[len(parts)] = placed.where
            parts.append((placed.transaction, entries, bindings))
            parts.append(timer_mark(self.device, index + 1))
            nodes = tuple(node.name for node in placed.nodes)
            lines = tuple(_describe(placed, e, bindings) for e in entries)
            kind = op.kind or type(op).__name__
            said = placed.schedule, op.work_basis, placed.macs
            infos.append(OpInfo(op.name, kind, nodes, index + 1, lines, *said))
        parts += self._reload(len(self.ops), loads)
        fused = fuse(parts, dict(enumerate(storage.sizes)), names)
        return written_ahead(fused).to_bytes(), infos

    def _place(self, storage: _Storage, name: str) -> tuple[int, int]:
        """Fused argument and byte offset of a tensor; where it has no bytes, any."""
        root, offset = self.region.place(name)
        argument, at = storage.at.get(root, (SCRATCH, 0))
        return argument, at + offset

    def _reload(self, index: int, loads: Mapping[int, Image]) -> list[FusePart]:
        if index not in loads:
            return []
        image, number = loads[index], len(self.ops) + 1 + len(self.reloads)
        since = self.reloads[-1].before if self.reloads else 0
        columns = max((_columns(placed) for placed in self.ops[since:index]), default=0)
        self.reloads.append(Reload(index, number, image.nbytes, str(image)))
        size = len(reload_packets(self.device, image))
        load = reload_transaction(self.device, size, columns)
        entries = [ArgMap(ArgKind.CTRL_PKT_BIN, 0, 0, 0, size)]
        bound = Bindings(ctrl=self.packets_at[image], ctrl_argument=PARAMS)
        return [(load, entries, bound), timer_mark(self.device, number)]


def timer_mark(device: Device, number: int) -> bytes:
    """What stands between the operators of a transaction: reports count cycles from mark to mark."""
    builder = TransactionBuilder.for_device(device)
    builder.record_timer(number)
    return builder.to_bytes()


class _Constants:
    """The const buffer: equal content is stored once. ``copies``: what the graph's constants have of it."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self.copies: list[ConstantCopy] = []
        self._buffer = np.zeros(0, np.uint8)
        self._known: dict[tuple[int, bytes], list[int]] = {}  # size and ends -> offsets
        self.starts: list[int] = []
        self.size = 0

    def reserve(self, size: int) -> None:
        self._buffer = lendable(size)  # pages that stay unused cost nothing

    def add(self, spec: TensorSpec) -> int:
        """Byte offset of a constant's device image in the buffer."""
        blob, value = device_image(spec), spec.value

        def write(out: Array) -> list[PackedCopy]:
            out[:] = blob
            return [] if value is None or value.nbytes != blob.size else [whole_copy(value)]

        return self.fill(blob.size, write)

    def fill(
        self,
        size: int,
        write: Callable[[Array], Iterable[PackedCopy]],
        read: Iterable[TensorSpec] = (),
    ) -> int:
        """Byte offset of ``size`` bytes that ``write`` puts into zeroed memory, by the copies that it returns
        as far as there are some; they are made of what is ``read``."""
        at = self.size
        copies = write(self._buffer[at : at + size])
        place = self._taken(at, size)
        if place == at:
            self.copies += self._origins.named((each.moved(at) for each in copies), read)
        return place

    def _taken(self, at: int, size: int) -> int:
        """Where the bytes at ``at`` stay: there, or where the same ones are already."""
        blob = self._buffer[at : at + size]
        alike = self._known.setdefault((size, _ends(blob)), [])
        for known in alike:
            if np.array_equal(_words(self._buffer[known : known + size]), _words(blob)):
                blob[:] = 0
                return known
        alike.append(at)
        self.starts += [at] if at else []
        self.size = memory.aligned(at + size)
        return at

    def image(self) -> Array:
        image = self._buffer[: self.size]
        image.flags.writeable = False
        return image


def _words(blob: Array) -> Array:
    """The bytes as words where they are some, which are faster to go through."""
    return blob.view(np.uint64) if blob.size % 8 == 0 else blob


def _ends(blob: Array) -> bytes:
    """What equal bytes share, and few others."""
    return blob[:_END].tobytes() + blob[-_END:].tobytes()


def device_image(spec: TensorSpec) -> Array:
    """A constant's bytes as they lie in device memory, rows padded to whole words."""
    assert spec.value is not None
    return spec.laid(spec.value).view(np.uint8)


def _columns(placed: PlacedOperator) -> int:
    """How many columns an operator works in, from the first on."""
    return placed.ask(lambda op: max((s.mapping.columns for s in op.schedules), default=0))


def _slot(spec: TensorSpec, offset: int) -> Slot:
    return Slot(spec.name, spec.dtype, spec.shape, offset, spec.row_pitch)


def _pad_name(index: int) -> str:
    return f"//scratch pad of op {index}"


_NAMES = {ArgKind.CONST_INPUT: "constants", ArgKind.SCRATCH_PAD: "scratch"}


def _describe(placed: PlacedOperator, entry: ArgMap, bindings: Bindings) -> str:
    """One arg map entry after fusion, for people."""
    if entry.kind in (ArgKind.INPUT, ArgKind.OUTPUT):
        argument, at = bindings.tensors[entry.onnx_arg_idx]
        what = str(placed.tensor(entry))
    else:
        argument = int(entry.kind)
        what = _NAMES.get(entry.kind, "parameters")
        at = {CONST: bindings.const, PARAMS: bindings.params}.get(argument, bindings.scratch)
    return f"arg {entry.xrt_arg_idx} {entry.kind.name}: {BUFFERS[argument]}[{at}:{at + entry.size}] {what}"
