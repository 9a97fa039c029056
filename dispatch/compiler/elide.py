# SPDX-License-Identifier: Apache-2.0
"""Concats that copy nothing: an input that a device operator makes is written where the result has it.

Such an input and the result are one piece of device memory, as long as either is read. An input that is a
Concat's result itself brings its own inputs along, so chains of them (DenseNet) lie in the last one's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from onedispatch.dispatch.compiler.mapping import Unit, held, roots_of
from onedispatch.operators.interface.operator import Operator, WholeCopy
from onedispatch.transactions.base.cached import cached_property

WORD = 4  # bytes: DMAs begin at whole ones


def elide_copies(units: Sequence[Unit], outputs: frozenset[str]) -> tuple[Unit, ...]:
    """The units without copies that makers of inputs spare; what is changed has no solutions yet."""
    planner = _Planner(units, outputs)
    return tuple(planner.elided(unit) for unit in units)


@dataclass
class _Planner:
    units: Sequence[Unit]
    outputs: frozenset[str]
    # What holds a tensor, and from which byte on.
    _places: dict[str, tuple[str, int]] = field(default_factory=dict)

    @cached_property
    def _roots(self) -> Mapping[str, str]:
        return roots_of(self.units)

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        """Bytes of what operators make whose arguments are those of their nests, and which stays here."""
        operators = (unit.operator for unit in self.units if unit.operator is not None)
        made = {t.name: t.device_bytes for op in operators if op.may_keep for t in op.outputs}
        leaving = self.outputs.union(self._roots.get(name, name) for name in self.outputs)
        return {name: size for name, size in made.items() if name not in leaving}

    def elided(self, unit: Unit) -> Unit:
        """A unit without the copies that the makers of its inputs spare it."""
        operator = unit.operator
        if operator is None:
            return unit
        holds: dict[str, int] = {}
        spared = tuple(copy for copy in operator.whole_copies if self._lies_there(operator, copy, holds))
        return replace(unit, operator=operator.replaced(elided=spared, holds=holds)) if spared else unit

    def _lies_there(self, operator: Operator, copy: WholeCopy, holds: dict[str, int]) -> bool:
        """Whether an input lies, from now on, where the result has it; ``holds``: what was put there."""
        holder, at = self._place_of(operator, copy)
        begin, result = copy.offset - at, operator.output
        if holder == result.name:
            return begin == 0
        size = self._sizes.get(holder)
        if size is None or begin % WORD or not 0 <= begin <= result.device_bytes - size:
            return False
        for other in operator.whole_copies:
            end = other.offset + operator.inputs[other.number].device_bytes
            apart = end <= begin or begin + size <= other.offset
            if not apart and self._place_of(operator, other) != (holder, other.offset - begin):
                return False  # what else lies with the input is no part of the result, or elsewhere in it
        self._places[holder], holds[holder] = (result.name, begin), begin
        return True

    def _place_of(self, operator: Operator, copy: WholeCopy) -> tuple[str, int]:
        """What holds an input, itself if nothing else does, and from which byte on."""
        name = operator.inputs[copy.number].name
        return held(self._places, self._roots.get(name, name))
