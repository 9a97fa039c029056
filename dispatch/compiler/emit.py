# SPDX-License-Identifier: Apache-2.0
"""A device region to one fused transaction over five buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.base.mapped import forget_pages
from onedispatch.dispatch.compiler import memory
from onedispatch.dispatch.compiler.const_buffer import ConstBuffer, Content, device_image
from onedispatch.dispatch.compiler.device_region import DeviceRegion, PlacedOperator
from onedispatch.dispatch.compiler.executable import (
    BUFFERS,
    DeviceStep,
    OpInfo,
    Reload,
    Slot,
)
from onedispatch.dispatch.compiler.mapping import held
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.emission.image import Image
from onedispatch.operators.emission.overlay import reload_packets, reload_transaction
from onedispatch.operators.scheduling.index_space import OUTPUT
from onedispatch.transactions import ArgKind, ArgMap, Bindings, Device, TransactionBuilder, fuse
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.fusion.ahead import written_ahead
from onedispatch.transactions.fusion.fuse import FusePart

IN, OUT, SCRATCH, CONST, PARAMS = range(5)
_SMALL = 1 << 16  # bytes


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


def emit_region(region: DeviceRegion, device: Device, images: Images, constants: ConstBuffer) -> DeviceStep:
    """The region as a device step; ``constants`` is its const buffer, still empty.

    Raises ``ModelError`` when its buffers are beyond ``limits.BUFFER_BYTES``.
    """
    step = _Emitter(region, device, images, constants).step()
    step.verify()
    return step


class _Emitter:
    def __init__(self, region: DeviceRegion, device: Device, images: Images, constants: ConstBuffer) -> None:
        self.region = region
        self.images = images
        self.reloads: list[Reload] = []
        self.packets_at: dict[Image, int] = {}  # the byte of the parameters at which images lie as packets
        self.device = device
        self.spec = region.spec
        self.ops = region.operators
        self.delivered = region.delivered
        self.root = region.root
        self.constants = constants
        self.small: list[str] = []  # constants among the parameters
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
            tuple(self.constants.parts),
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
        self.small = sorted(n for n in plain if self._is_small(n))
        plain = [n for n in plain if n not in self.small]
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

    def _is_small(self, name: str) -> bool:
        """Whether it lies among the parameters: a constant of these shapes, which would keep others of the
        model from having the same const buffer."""
        spec = self.spec[name]
        return spec.device_bytes <= _SMALL and not self.constants.has_original(spec)

    def _packed(self, placed: PlacedOperator) -> int:
        """Byte offset of an operator's packed constants."""
        copies = placed.constant_copies()
        content = Content(placed.const_bytes, placed.write_constants, copies, placed.operator.inputs)
        return self.constants.fill(content)

    def _params(self, storage: _Storage) -> tuple[bytes, list[int]]:
        blob = bytearray()
        offsets = []
        for placed in self.ops:
            offsets.append(len(blob))
            blob += placed.params
            blob += bytes(-len(blob) % memory.ALIGNMENT)
        for name in self.small:
            storage.at[name] = (PARAMS, len(blob))
            blob += device_image(self.spec[name]).tobytes()
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
