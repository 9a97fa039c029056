# SPDX-License-Identifier: Apache-2.0
"""An operator of one nest, made of a problem: what a solution is measured by. It computes nothing of use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from onedispatch.operators.declarations.kernel import Scalar
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.scheduling.index_space import OUTPUT, Operand, Packed
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.resources import resources
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.operators.scheduling.solution_rules import check_solution
from onedispatch.transactions import Device
from onedispatch.transactions.base.errors import SolutionError


class Alone(Operator):
    """The nest of a problem as a solution says, ``times`` in a row. Every operand is a tensor of its own.

    Raises ``SolutionError`` where the solution does not fit, for another device than the problem's, for
    kernels that are not declared, and for custom ones.
    """

    kind = "alone"

    def __init__(self, problem: Problem, solution: Solution, device: Device, times: int = 1) -> None:
        nest = _complete(problem, device)
        schedule = Schedule(nest, device, solution)
        check_solution(schedule)
        output, *others = map(_tensor, nest.outputs)
        super().__init__(
            "measured", [_tensor(x) for x in nest.strided_inputs], output, device, further_outputs=others
        )
        self.kept_buffers = {x.tensor: x.buffer for x in nest.strided if x.buffer is not None}
        self.schedules = [schedule] * times
        self.plain_nests = self._nests = [nest] * times


def _complete(problem: Problem, device: Device) -> Nest:
    """The problem's nest with all that it leaves out: where tensors lie, and scalars that nothing prices."""
    problem.check_device(device)
    nest = problem.nest
    if nest.kernel.members:
        remedy = "time a model that has it: CompiledModel.timing()"
        raise SolutionError(f"problem of {problem.kernel}", "a custom kernel", "one of the package's", remedy)
    places = _places(nest, 4 * resources(device).mem_words)
    numbers = {x.name: i for i, x in enumerate(nest.strided_inputs)}
    inputs = (x if isinstance(x, Packed) else _at(x, numbers[x.name], places) for x in nest.inputs)
    outputs = (_at(x, OUTPUT - i, places) for i, x in enumerate(nest.outputs))
    free = {s.name: _harmless(s) for s in nest.kernel.scalars}
    return replace(nest, inputs=tuple(inputs), outputs=tuple(outputs), scalars=free | dict(nest.scalars))


def _harmless(scalar: Scalar) -> float | str:
    """A value that the declaration takes."""
    if scalar.table is not None:
        return scalar.table.rows[0].name
    low, high = scalar.bounds
    return min(max(0.0, low), high) if scalar.default is None else scalar.default


def _places(nest: Nest, end: int) -> dict[str, int]:
    """Bytes of a memory tile, which ends at ``end``, at which the buffers of operands begin: as far as what
    they occupy together has no room for all, in one place. So are operands of one tensor, and results that
    take the place of one."""
    places, at = dict[str, int](), end
    for operand in nest.strided:
        if operand.buffer is not None:
            size = 4 * operand.buffer.words
            at = at - size if at - size >= end - 4 * nest.occupied else end - size
            places[operand.name] = at
    return places


def _at(operand: Operand, tensor: int, places: Mapping[str, int]) -> Operand:
    """``operand`` as that tensor, of which it touches the first element."""
    low, _ = _reach(operand)
    per_word = operand.dtype.per_word
    held = operand.buffer and replace(operand.buffer, at=places[operand.name])
    return replace(operand, tensor=tensor, offset=-(low // per_word) * per_word, buffer=held)


def _reach(operand: Operand) -> tuple[int, int]:
    """The elements that a view touches, from its offset on: the first, and the one behind the last."""
    steps = [stride * (size - 1) for stride, size in zip(operand.strides, operand.shape, strict=True)]
    return sum(min(0, step) for step in steps), sum(max(0, step) for step in steps) + 1


def _tensor(operand: Operand) -> TensorSpec:
    """Bytes: as many as the view touches, in whole words."""
    _, end = _reach(operand)
    size = -(-(operand.offset + end) * operand.itemsize // 4) * 4
    return TensorSpec(f"tensor {operand.tensor}", np.dtype(np.uint8), (size,))
