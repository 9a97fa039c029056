# SPDX-License-Identifier: Apache-2.0
"""Custom kernels with any instance: on the simulated array, and member by member in NumPy.

What a member computes depends on every element that it may touch, on where that lies in its interval, and on
the coordinate that it writes; so an element from a wrong place, a pad in the wrong spot or a member that ran
on half of its elements gives another result. All values are small whole numbers, exact in every dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from onedispatch.cpp_ext import _core
from onedispatch.operators.codegen.spec_data import spec_data
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import Interval, KernelInstance
from onedispatch.operators.plugin.instance_checks import check_instance
from onedispatch.operators.plugin.lowering import MemberOperator
from onedispatch.operators.plugin.node import Made, Node
from onedispatch.operators.plugin.plugin_kernel import PluginKernel
from onedispatch.operators.scheduling.candidates import candidates
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.search import every_mapping
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.operators.scheduling.solution_rules import check_solution
from onedispatch.transactions import ArgKind, Device
from onedispatch.transactions.base.errors import SolutionError
from tests.ops.host import buffers_of, overlay_for, run_buffers

Array = np.ndarray[Any, Any]
Box = list[tuple[int, int]]  # first and last coordinate of each dimension
Read = Callable[[tuple[int, ...]], float]
MODULI = {"f32": 4093, "bf16": 251, "f16": 2039, "i8": 113, "u8": 251, "i16": 30011, "bool": 2, "i32": 99991}


class Placed(PluginKernel):
    """A kernel whose instance is given."""

    origin = "tests"

    def __init__(self, kernel: CustomKernel, instance: KernelInstance) -> None:
        self.kernel, self.instance = kernel, instance

    def infer(self, node: Node) -> dict[str, Made]:
        return {name: Made(*told) for name, told in self.instance.outputs.items()}

    def instantiate(self, node: Node) -> KernelInstance:
        node.set_outputs(self.infer(node))
        check_instance(self.kernel, node, self.instance)
        return self.instance


def member_sum(boxes: Sequence[tuple[Box, Read]]) -> int:
    """What a member makes of its inputs: each element counts by its place in the box."""
    total = 0
    for number, (box, read) in enumerate(boxes):
        ranges = [range(first, last + 1) for first, last in box]
        for place, at in enumerate(product(*ranges)):
            total += (1 + (place + number) % 7) * int(read(at))
    return total


def element(total: int, at: Sequence[int], modulus: int) -> int:
    """What it writes at a coordinate."""
    return (total + sum((d + 3) * c for d, c in enumerate(at))) % modulus


def box_of(intervals: Sequence[Interval], shape: Sequence[int], member: Sequence[int]) -> Box:
    found = []
    for it, size in zip(intervals, shape, strict=True):
        if it.dim is None or it.a < 0:  # what runs backwards is whole
            found.append((0, size - 1))
            continue
        first = math.floor(Fraction(it.a) * member[it.dim]) + it.start
        found.append((first, first + it.end - it.start))
    return found


def emulated(kernel: CustomKernel, instance: KernelInstance, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Every member by itself."""
    fills = {one.name: instance.fills.get(one.name, one.fill) or 0 for one in kernel.outputs}
    made = {n: np.full(shape, fills[n], DTYPES[d].numpy) for n, (d, shape) in instance.outputs.items()}
    pads = {one.name: instance.pads.get(one.name, one.pad) or 0 for one in kernel.inputs}

    def reader(name: str) -> Read:
        array = arrays[name]

        def read(at: tuple[int, ...]) -> float:
            inside = all(0 <= c < size for c, size in zip(at, array.shape, strict=True))
            return float(array[at]) if inside else pads[name]

        return read

    for member in product(*map(range, instance.index_space)):
        boxes = [(box_of(instance.access[n], arrays[n].shape, member), reader(n)) for n in arrays]
        total = member_sum(boxes)
        for name, (dtype, shape) in instance.outputs.items():
            box = box_of(instance.access[name], shape, member)
            for at in product(
                *[range(max(0, lo), min(size - 1, hi) + 1) for (lo, hi), size in zip(box, shape, strict=True)]
            ):
                made[name][at] = element(total, at, MODULI[dtype])
    return made


# -- the same from a core's chunks ---------------------------------------------------------------


@dataclass(frozen=True)
class Chunk:
    """An operand in core memory, as its part of the parameter block describes it."""

    data: Array
    axes: Sequence[tuple[int, ...]]
    origins: tuple[int, ...]
    pad: float

    @classmethod
    def of(cls, lies: Mapping[str, Any], data: Array, origin: Sequence[int]) -> Chunk:
        dtype = next(row.numpy for row in DTYPES.values() if row.code == lies["dtype"])
        origins = []
        for extent, chunk, _, a, den, align, b, _, along, _ in lies["axes"]:
            wanted = b + (a * origin[along] // den if along >= 0 else 0)
            origins.append(min(max(wanted - wanted % align, 0), extent - chunk))
        pad = lies["pad"]
        return cls(data.view(dtype), lies["axes"], tuple(origins), 0 if math.isnan(pad) else pad)

    def sizes(self) -> list[int]:
        return [axis[0] - axis[9] for axis in self.axes]

    def at(self, coordinate: Sequence[int]) -> int:
        """Where an element lies; it must be there."""
        place = 0
        for c, origin, (_, chunk, stride, *_) in zip(coordinate, self.origins, self.axes, strict=True):
            assert 0 <= c - origin < chunk, f"coordinate {c} of a chunk of {chunk} from {origin} on"
            place += (c - origin) * stride
        return place

    def read(self, coordinate: tuple[int, ...]) -> float:
        inside = all(0 <= c < size for c, size in zip(coordinate, self.sizes(), strict=True))
        return float(self.data[self.at(coordinate)]) if inside else self.pad

    def box(self, member: Sequence[int], first: Sequence[int]) -> Box:
        found = []
        for (*_, a, den, _, b, span, along, _), size in zip(self.axes, self.sizes(), strict=True):
            begin = b + a * (member[along] - first[along]) // den if along >= 0 else 0
            found.append((begin, begin + (span if along >= 0 else size) - 1))
        return found


def prepare_for(kernel: CustomKernel) -> Callable[[Mapping[str, Any]], Callable[..., None]]:
    """A body that walks members one by one, straight from the parameter block."""
    inputs = len(kernel.inputs) + len(kernel.aux)

    def prepare(setup: Mapping[str, Any]) -> Callable[..., None]:
        operands, first = setup["operands"], setup["first"]

        def call(origin: Any, member: Any, count: Any, chunks: Any, scratch: Any, host: Any) -> None:
            there = [
                Chunk.of(lies, data, origin) if lies else None
                for lies, data in zip(operands, chunks, strict=True)
            ]
            reads = [chunk for chunk in there[:inputs] if chunk is not None]
            writes = [chunk for chunk in there[inputs:] if chunk is not None]
            for own in product(*[range(m, m + n) for m, n in zip(member, count, strict=True)]):
                total = member_sum([(chunk.box(own, first), chunk.read) for chunk in reads])
                for chunk in writes:
                    box, sizes = chunk.box(own, first), chunk.sizes()
                    inside = [
                        range(max(0, lo), min(size - 1, hi) + 1)
                        for (lo, hi), size in zip(box, sizes, strict=True)
                    ]
                    for at in product(*inside):
                        name = next(n for n, row in DTYPES.items() if row.numpy == chunk.data.dtype)
                        chunk.data[chunk.at(at)] = element(total, at, MODULI[name])

        return call

    return prepare


def operator_of(
    kernel: CustomKernel, instance: KernelInstance, arrays: Mapping[str, Array], device: Device
) -> MemberOperator:
    plugin = Placed(kernel, instance)
    tensors = {n: TensorSpec(n, a.dtype, a.shape) for n, a in arrays.items()}
    outputs = {n: TensorSpec(n, DTYPES[d].numpy, shape) for n, (d, shape) in instance.outputs.items()}
    inputs = [tensors.get(one.name) for one in kernel.inputs]
    spec = NodeSpec("n", "K", "acme", 1, inputs, list(outputs.values()))
    node = Node(kernel, spec, device)
    plugin.instantiate(node)
    aux = {n: TensorSpec(n, v.dtype, v.shape, v) for n, v in instance.aux.items()}
    return MemberOperator(plugin, node, instance, tensors | aux, outputs, device)


def executed(op: MemberOperator, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Every output of ``op`` as the simulated array computes it."""
    op.check_fits()
    kernel = op.kernel
    _core.register_kernel(spec_data(kernel), {"prepare": prepare_for(op.kernel)})
    try:
        after = run_buffers(
            op.device, op.transaction(), buffers_of(op, list(arrays.values())), overlay_for(op)
        )
    finally:
        _core.unregister_kernel(kernel.name)
    entries = [entry for entry in op.arg_map() if entry.kind is ArgKind.OUTPUT]
    found = {}
    for name, tensor, entry in zip(op.made, op.outputs, entries, strict=True):
        image = np.frombuffer(after[entry.xrt_arg_idx][: tensor.device_bytes], tensor.dtype)
        found[name] = tensor.gathered(image)
    return found


def whole_numbers(rng: np.random.Generator, dtype: str, shape: Sequence[int]) -> Array:
    return rng.integers(0, 2 if dtype == "bool" else 9, shape).astype(DTYPES[dtype].numpy)


class AnyFitting:
    """A selector that takes some solution which fits, whether it is good or not."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def select(self, problem: Problem, device: Device) -> Solution:
        nest = problem.nest
        mappings, (axes, _) = list(every_mapping(nest, device)), candidates(nest)
        for _ in range(30):
            mapping = mappings[self.rng.integers(len(mappings))]
            tiles = tuple(int(self.rng.choice(axis.reshape(-1))) for axis in axes)
            solution = Solution(nest.kernel.name, mapping, tiles, 1)
            try:
                check_solution(Schedule(nest, device, solution))
            except SolutionError:
                continue
            return solution
        return SEARCH.select(problem, device)
