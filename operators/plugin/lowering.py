# SPDX-License-Identifier: Apache-2.0
"""From an instance of a kernel to loop nests of the engine.

An index dimension is *cut* over cores and calls where every output follows it once, each member with elements
of its own side by side. Others are not: all their members are in every call, and what follows them is there
whole. Where the last member overhangs a tensor, or the rows of narrow elements do not end with a member, what
is left has a nest of its own, so that no chunk holds elements of two tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.members import MemberAxis
from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Lowering, Operator
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import KernelInstance
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.plugin_kernel import PluginKernel
from onedispatch.operators.scheduling.candidates import check_fits, smallest
from onedispatch.operators.scheduling.index_space import OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.members import Members
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.resources import resources
from onedispatch.operators.scheduling.select import select
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import SolutionError
from onedispatch.transactions.base.text import counted


def lower(plugin: PluginKernel, node: Node, lowering: Lowering) -> None:
    """Emit the operator that runs ``plugin`` for ``node``.

    Raises ``KernelError`` where the node or its instance is refused, ``Unsupported`` where the device cannot.
    """
    check_device(plugin.kernel, lowering.device)
    lowering.emit(member_operator(plugin, node, plugin.instantiate(node), lowering))


def check_device(kernel: CustomKernel, device: Device) -> None:
    """Raises ``Unsupported`` where a kernel is not for a device."""
    if not kernel.runs_on(device.name):
        raise Unsupported(f"{kernel.name} is not for {device.name}", ", ".join(kernel.devices or ()))


def member_operator(
    plugin: PluginKernel, node: Node, instance: KernelInstance, lowering: Lowering
) -> MemberOperator:
    """The operator that runs an instance of ``plugin`` for ``node``; its class is the kernel's to say."""
    kernel = plugin.kernel
    inputs = {one.name: node.given(one.name) for one in kernel.inputs}
    tensors = {name: tensor for name, tensor in inputs.items() if tensor is not None}
    constants = {name: lowering.const(values) for name, values in instance.aux.items()}
    outputs = {}
    for i, one in enumerate(kernel.outputs):
        dtype, shape = instance.outputs[one.name]
        stated = node.spec.outputs[i] if i < len(node.spec.outputs) else None
        outputs[one.name] = stated or lowering.temp(DTYPES[dtype].numpy, shape)
        check_made(node, one.name, outputs[one.name], dtype, shape)
    made = plugin.operator_class or MemberOperator
    operator: MemberOperator = made(plugin, node, instance, tensors | constants, outputs, lowering.device)
    return operator.settled()


def check_made(node: Node, name: str, stated: TensorSpec, dtype: str, shape: tuple[int, ...]) -> None:
    """Raises ``KernelError`` where the model says otherwise of an output than the kernel."""
    if stated.dtype != DTYPES[dtype].numpy:
        raise node.refuse("dtype", f"dtype of output {name}", dtype, f"{stated.dtype}, as the model says")
    if stated.shape != shape:
        given, accepted = list(shape), f"{list(stated.shape)}, as the model says"
        raise node.refuse("output_size", f"shape of output {name}", given, accepted)


@dataclass(frozen=True)
class Cut:
    """One nest's part of an index dimension: ``count`` members from ``first`` on, in tiles of multiples of
    ``multiple``. ``last``: the part ends with the tensors, so that chunks of it are whole."""

    first: int
    count: int
    multiple: int = 1
    whole: bool = False
    last: bool = False


class MemberOperator(Operator):
    """A custom kernel on concrete tensors; ``tensors`` are inputs and auxiliary ones by name."""

    applies_activation = False

    def __init__(
        self,
        plugin: PluginKernel,
        node: Node,
        instance: KernelInstance,
        tensors: Mapping[str, TensorSpec],
        outputs: Mapping[str, TensorSpec],
        device: Device,
    ) -> None:
        first, *further = outputs.values()
        super().__init__(node.name, list(tensors.values()), first, device, further_outputs=further)
        self.plugin, self.node, self.instance = plugin, node, instance
        self.named = {**tensors, **outputs}
        self.numbers = {name: i for i, name in enumerate(tensors)}
        self.numbers |= {name: OUTPUT - i for i, name in enumerate(outputs)}
        self.made = tuple(outputs)

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The kernel's name, as reports show it."""
        return self.plugin.kernel.name

    @property
    def kernel(self) -> CustomKernel:
        return self.plugin.kernel

    @property
    def work_basis(self) -> str:
        return self.instance.basis

    @property
    def in_place(self) -> dict[str, str]:  # type: ignore[override]
        """Results in the memory of an input, where the declaration says so, no member reads another's and
        none is computed twice: the second time it would read what it has written."""
        if not self.instance.in_place or any(schedule.redoes for schedule in self.schedules):
            return {}
        return {
            self.named[out].name: self.named[source].name
            for out, source in self.instance.in_place.items()
            if source in self.named
            and (self.named[out].dtype, self.named[out].shape)
            == (self.named[source].dtype, self.named[source].shape)
            and not self.instance.hazard(source, out)
        }

    def reference(self, *arrays: Any) -> Any:
        """The kernel's own reference, if it has one; it sees no auxiliary tensors."""
        given = dict(zip(self.numbers, arrays, strict=False))
        return self.plugin.reference(self.node, *(given.get(one.name) for one in self.kernel.inputs))

    def settled(self) -> MemberOperator:
        """The operator with all that depends on its tiles; itself, where nothing does."""
        return self

    # -- nests -----------------------------------------------------------------------------

    def nests(self) -> list[Nest]:
        if all(self.named[name].size == 0 for name in self.made):
            return []
        for name, tensor in self.named.items():
            if tensor.size == 0:
                raise Unsupported(f"{name} has no elements", "tensors with elements, or no output with any")
        parts = [self.parts(d) for d in range(len(self.instance.index_space))]
        nests = [self._nest(cuts) for cuts in product(*parts)]
        preferred = self.instance.preferred_split
        if preferred is None:
            return nests
        others = [_cut_along(nest, preferred) for nest in nests]
        return others if all(_fits(nest, self.device) for nest in others) else nests

    def check_fits(self) -> None:
        """Raises ``Unsupported`` that names the operand which takes the most."""
        try:
            super().check_fits()
        except Unsupported as error:
            raise self._largest_operand(error) from error
        for nest in self._nests:  # dimensions that are not cut may be too much for memory tiles
            try:
                select(nest, self.device)
            except SolutionError as error:
                raise Unsupported(error.given, error.accepted) from error

    def _largest_operand(self, error: Unsupported) -> Unsupported:
        if not self._nests:
            return error
        nest, limits = self._nests[0], resources(self.device)
        tiles, k_tile = smallest(nest)
        sizes = {x.name: 4 * int(x.chunk_words(nest, tiles, k_tile)) for x in nest.strided}
        largest = max(sizes, key=lambda name: sizes[name])
        scratch = sum(self.instance.scratch.values())
        if scratch and scratch > limits.buffer_bytes - min(sizes.values()):
            given = f"its scratch takes {counted(scratch, 'byte')}; a core holds {limits.buffer_bytes}"
            return Unsupported(given, "scratch that leaves room for its operands")
        doubled = sum(2 * size for name, size in sizes.items() if name not in self.made)
        need = doubled + sum(sizes[name] for name in self.made) + scratch
        if need <= limits.buffer_bytes:
            return error
        access = ", ".join(map(str, self.instance.access.get(largest, ()))) or "whole"
        others = need - sizes[largest] * (1 if largest in self.made else 2)
        fits = max(0, (limits.buffer_bytes - others) // (1 if largest in self.made else 2))
        return Unsupported(
            f"operand {largest} (access {access}) needs {counted(sizes[largest], 'byte')} in every call, "
            f"{counted(need, 'byte')} with the others (inputs twice); a core holds {limits.buffer_bytes}",
            f"at most {counted(fits, 'byte')} of {largest} per call: intervals that follow an index "
            "dimension, not all of a dimension",
        )

    # -- index dimensions --------------------------------------------------------------------

    def parts(self, dim: int) -> list[Cut]:
        """The nests' parts of an index dimension."""
        members = self.instance.index_space[dim]
        uncut = [Cut(0, members, whole=True)]
        follows = [self._follows(name, dim) for name in self.made]
        if members == 1 or dim in self.instance.uncut or None in follows:
            return uncut
        sizes = [found for found in follows if found is not None]
        reach = {-(-size // a) for a, size, _ in sizes}
        if len(reach) > 1 or max(reach) > members:
            return uncut
        there = max(reach)  # members that write something
        pitches = {Fraction(-(-size // unit) * unit, a) for a, size, unit in sizes}
        granule = math.lcm(*(unit // math.gcd(unit, a) for a, _, unit in sizes))
        if len(pitches) == 1 and (pitch := pitches.pop()).denominator == 1 and pitch % granule == 0:
            return [Cut(0, int(pitch), granule)]
        step = math.lcm(granule, *self._denominators(dim))
        full = min(size // a for a, size, _ in sizes) // step * step
        parts = [Cut(0, full, granule)] if full else []
        return [*parts, Cut(full, there - full, last=True)] if full < there else parts

    def _follows(self, name: str, dim: int) -> tuple[int, int, int] | None:
        """(elements per member, size, elements per word) where an output follows ``dim`` so that it may be
        cut; None elsewhere."""
        tensor, access = self.named[name], self.instance.access[name]
        found = [(d, it) for d, it in enumerate(access) if it.dim == dim]
        if len(found) != 1:
            return None
        ((d, it),) = found
        a = Fraction(it.a)
        if a.denominator != 1 or a != it.span or it.start != 0:
            return None
        unit = tensor.element.per_word if d == len(access) - 1 else 1
        return int(a), tensor.shape[d], unit

    def _denominators(self, dim: int) -> Iterator[int]:
        for intervals in self.instance.access.values():
            yield from (Fraction(it.a).denominator for it in intervals if it.dim == dim)

    # -- one nest ------------------------------------------------------------------------------

    def uncut(self) -> Nest:
        """All members in one call, whatever fits a core: how the host runs it."""
        return self._nest([Cut(0, members, whole=True) for members in self.instance.index_space])

    def _nest(self, cuts: Sequence[Cut]) -> Nest:
        dims = tuple(
            Dim(f"i{d}", 1) if cut.whole else Dim(f"i{d}", cut.count, cut.last, cut.multiple)
            for d, cut in enumerate(cuts)
        )
        bound = {name: self._view(name, cuts) for name in self.named}
        axes = {name: axes for name, (_, axes) in bound.items()}
        operands = {name: operand for name, (operand, _) in bound.items()}
        members = Members(
            tuple(cut.first for cut in cuts),
            self.instance.index_space,
            tuple(cut.whole for cut in cuts),
            axes,
        )
        return Nest(
            self.kernel,
            dims,
            tuple(operands[name] for name in self.named if name not in self.made),
            tuple(operands[name] for name in self.made),
            {},
            self._scalars(cuts),
            members=members,
        )

    def _view(self, name: str, cuts: Sequence[Cut]) -> tuple[Operand, tuple[MemberAxis, ...]]:
        """The view of a tensor that a nest walks, and what its block says of the whole tensor."""
        tensor = self.named[name]
        is_output = name in self.made
        intervals = self.instance.intervals(name)
        unit, last = tensor.element.per_word, len(tensor.shape) - 1
        shape, access, axes = list(tensor.device_shape), [], []
        offset, seen = 0, set()
        for d, it in enumerate(intervals):
            align = unit if d == last and not is_output else 1
            cut = None if it.dim is None else cuts[it.dim]
            axis = it.axis(shape[d], cut.first if cut else 0, shape[d] - tensor.shape[d], align)
            axes.append(axis)
            if is_output and cut is not None and not cut.whole:
                begin = cut.first * axis.a
                shape[d] = shape[d] - begin if cut.last else cut.count * axis.a
                offset += begin * tensor.strides[d]
                walked = not cut.last  # of the last part all that is left, row padding too
            else:
                walked = cut is not None and not (cut.whole or it.a <= 0 or it.dim in seen)
            if walked and it.dim is not None:
                seen.add(it.dim)
                start, end = (0, axis.a - 1) if is_output else (axis.b, axis.b + it.span - 1)
                access.append(Access(it.dim, axis.a, start, end, align, axis.den))
            else:
                access.append(Access(None))
        if not intervals:  # a scalar: the word that it lies in
            shape, access = [unit], [Access(None)]
        strides = tensor.strides or (1,)
        row = tensor.element
        operand = Operand(name, self.numbers[name], row, tuple(shape), strides, tuple(access), offset)
        return operand, tuple(axes)

    def _scalars(self, cuts: Sequence[Cut]) -> dict[str, float]:
        """Those of the kernel, and the hidden ones of this nest."""
        instance, kernel = self.instance, self.kernel
        values = {**instance.scalars, **instance.hidden_scalars(kernel)}
        factor = math.prod(cut.count for cut in cuts if cut.whole)  # members that the engine counts as one
        counts = dict(instance.work) or {"op": self._default_work()}
        values |= {f"work_{term}": counts.get(term, 0.0) * factor for term, _ in kernel.work_per_member}
        for out in kernel.outputs:
            tensor = self.named[out.name]
            if instance.edge(out) is None and tensor.row_pitch != tensor.row:
                values[f"fill_{out.name}"] = 0.0  # of words that fill up rows
        return values

    def _default_work(self) -> float:
        """Elements that a member touches; see ``work_of``."""
        total = 0
        for name, intervals in self.instance.access.items():
            shape = self.named[name].shape
            if intervals and all(it.whole for it in intervals):
                total += 1
                continue
            total += math.prod(
                size if it.whole else min(it.span, size) for it, size in zip(intervals, shape, strict=True)
            )
        return float(total)


def _cut_along(nest: Nest, preferred: int) -> Nest:
    """The same, cut along one index dimension alone."""
    dims = tuple(dim if d == preferred else replace(dim, whole=True) for d, dim in enumerate(nest.dims))
    return replace(nest, dims=dims)


def _fits(nest: Nest, device: Device) -> bool:
    try:
        check_fits(nest, device)
    except Unsupported:
        return False
    return True
