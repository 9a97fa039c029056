# SPDX-License-Identifier: Apache-2.0
"""Chains of operators in bands, depth-first: all of them for some rows of the last result, then for the next.

What lies between two operators has the rows of one band alone, and those beside them that windows reach (a
halo, which each band computes itself). The last operator of a band writes its rows where the whole result has
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm

from onedispatch.dispatch.compiler.mapping import Unit, op_unit
from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported
from onedispatch.operators.interface.band import Band, JoinedBands
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.scheduling.bands import BandedNest, Stripe, cut_into_rows
from onedispatch.operators.scheduling.index_space import OUTPUT
from onedispatch.operators.scheduling.keeping import check_order, in_steps_of
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import OperatorError
from onedispatch.transactions.base.text import counted


@dataclass(frozen=True)
class Chain:
    """Units ``first`` to ``last`` of a model: operators of which only the last one's result is read outside,
    and others, which can come first. ``roots``: see ``roots_of``."""

    first: int
    last: int
    members: tuple[Unit, ...]
    beside: tuple[Unit, ...]  # that read nothing of what members make
    renamed: tuple[Unit, ...]  # aliases of what lies between members
    roots: Mapping[str, str]

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        return tuple(unit.operator for unit in self.members if unit.operator is not None)

    @cached_property
    def between(self) -> dict[str, Operator]:
        """What makes each tensor that lies between operators."""
        return {operator.output.name: operator for operator in self.operators[:-1]}

    @property
    def result(self) -> TensorSpec:
        return self.operators[-1].output

    def inputs(self, operator: Operator) -> list[str]:
        """The tensors whose bytes an operator reads."""
        return [self.roots.get(tensor.name, tensor.name) for tensor in operator.inputs]

    @cached_property
    def links(self) -> tuple[tuple[int, ...], ...]:
        """Which member makes each input of each; -1: none."""
        number = {name: i for i, name in enumerate(self.between)}
        return tuple(tuple(number.get(name, -1) for name in self.inputs(one)) for one in self.operators)

    @cached_property
    def bytes_at_once(self) -> int:
        """The most that lies between operators while one of them runs, were there one band."""
        sizes = [one.output.device_bytes for one in self.operators[:-1]]
        return max((a + b for a, b in zip(sizes, (*sizes[1:], 0), strict=True)), default=0)

    def periods(self) -> list[int]:
        """Elements of the last result of which bands may have rows, as operators walk them; longest first."""
        (out,) = self.operators[-1].plain_nests[0].outputs
        total = max(n * step for n, step in zip(out.shape, out.strides, strict=True))
        made = (operator.plain_nests[0].outputs[0] for operator in self.operators)
        walked = {n * step for x in made for n, step in zip(x.shape, x.strides, strict=True) if n > 1}
        return sorted((period for period in walked if total % period == 0), reverse=True)

    def bands(self, period: int, number: int) -> list[BandedNest]:
        """The last operator's nest in at most ``number`` bands.

        Raises ``Unsupported`` where it cannot be parted, and where that is one band.
        """
        nest, rows = cut_into_rows(self.operators[-1].plain_nests[0], period)
        extent, least = nest.dims[rows.dim].extent, nest.dims[rows.dim].multiple
        least = lcm(least, *(max(step // rows.step, 1) for step in self._steps(period)))
        walked = (access for x in nest.strided_inputs for access in x.access if access.dim == rows.dim)
        least = lcm(least, *(access.den for access in walked))
        each = -(-extent // (least * number)) * least
        if each >= extent:
            raise Unsupported(f"one band of {extent}", "several bands")
        begins = range(0, extent, each)
        return [BandedNest(nest, rows.dim, begin, min(begin + each, extent)) for begin in begins]

    def in_bands(self, bands: Sequence[BandedNest]) -> tuple[Unit, ...]:
        """Units that run the chain in bands. Raises ``Unsupported`` where an operator cannot."""
        made = [self.units_of(number, band) for number, band in enumerate(bands)]
        results = [units[-1].operator.output for units in made if units[-1].operator is not None]
        nodes = dict.fromkeys(node for unit in (*self.renamed, self.members[-1]) for node in unit.nodes)
        joined = JoinedBands(self.operators[-1], results, self._said(bands))
        return (*(unit for units in made for unit in units), op_unit(tuple(nodes), joined))

    def _said(self, bands: Sequence[BandedNest]) -> str:
        rows, last = (one.end - one.begin for one in (bands[0], bands[-1]))
        less = "" if rows == last else f", {last} in the last"
        names, whole = ", ".join(one.name for one in self.operators), counted(bands[-1].end, "row")
        return f"{names} run in {counted(len(bands), 'band')}: {rows} of {whole}{less}"

    def _steps(self, period: int) -> Iterator[int]:
        """Elements from row to row, of operators whose results have rows in such a period."""
        for operator in self.operators:
            try:
                yield cut_into_rows(operator.plain_nests[0], period)[1].step
            except (Unsupported, OperatorError):
                continue

    def units_of(self, number: int, last: BandedNest) -> list[Unit]:
        """The chain for the rows that ``last`` makes."""
        parts, needed = {self.result.name: last}, dict[str, Stripe]()
        for operator in reversed(self.operators):
            name = operator.output.name
            if name in self.between:
                parts[name], needed[name] = _made(operator, needed[name])
            roots = self.inputs(operator)
            for operand in parts[name].nest.strided_inputs:
                read = roots[operand.tensor]
                if read in self.between:
                    needed[read] = parts[name].reads(operand).beside(needed.get(read))
        specs = {name: _stripe(self.between[name].output, one, number) for name, one in needed.items()}
        whole = self.result
        specs[whole.name] = TensorSpec(f"{whole.name}//band {number}", whole.dtype, whole.shape)
        return [self._part(unit, number, parts, needed, specs) for unit in self.members]

    def _part(
        self,
        unit: Unit,
        number: int,
        parts: Mapping[str, BandedNest],
        needed: Mapping[str, Stripe],
        specs: Mapping[str, TensorSpec],
    ) -> Unit:
        """One operator of a band."""
        whole = unit.operator
        assert whole is not None
        name, roots = whole.output.name, self.inputs(whole)
        stripes = {n: needed[root] for n, root in enumerate(roots) if root in needed}
        stripes |= {OUTPUT: needed[name]} if name in needed else {}
        nest = in_steps_of(parts[name].made(stripes), whole.schedules[0])
        inputs = [specs.get(root, tensor) for root, tensor in zip(roots, whole.inputs, strict=True)]
        band = Band(whole, number, inputs, specs[name], nest)
        # Its sums are those of the whole operator; what it runs by is chosen where it is to run.
        return op_unit(unit.nodes, band.replaced(schedules=whole.schedules))


def chain_of(
    units: Sequence[Unit], first: int, last: int, roots: Mapping[str, str], outside: frozenset[str]
) -> Chain | None:
    """Units ``first`` to ``last`` as a chain, None where they are none; ``outside`` are the tensors that
    units before or behind read or that have to be in device memory."""
    final = units[last].operator
    if final is None:
        return None
    members, beside, renamed, between = [], [], [], set[str]()
    for unit in units[first : last + 1]:
        inside = not between.isdisjoint(roots.get(name, name) for name in unit.reads)
        operator = unit.operator
        if operator is None and inside:
            renamed.append(unit)
        elif operator is None or (operator is not final and operator.output.name in outside):
            if inside:
                return None
            beside.append(unit)
        elif not _runs_in_bands(operator):
            return None
        else:
            members.append(unit)
            between.update(() if operator is final else (operator.output.name,))
    chain = Chain(first, last, tuple(members), tuple(beside), tuple(renamed), roots)
    read = {name for one in chain.operators for name in chain.inputs(one)}
    return chain if len(members) > 1 and between <= read else None


def check_sums(units: Sequence[Unit]) -> None:
    """Raises ``Unsupported`` where an operator of a band adds up in another order than the whole one."""
    for unit in units:
        if isinstance(unit.operator, Band):
            check_order(unit.operator.whole.schedules[0], unit.operator.schedules[0])


def _runs_in_bands(operator: Operator) -> bool:
    able = operator.runs_in_bands and operator.may_keep
    single = able and len(operator.plain_nests) == 1 == len(operator.outputs)
    return single and not (operator.in_place or operator.actual_sizes or operator.elided or operator.holds)


def _made(operator: Operator, stripe: Stripe) -> tuple[BandedNest, Stripe]:
    """The part of an operator's nest that makes a stripe of its result, and what it makes: whole steps."""
    nest, rows = cut_into_rows(operator.plain_nests[0], stripe.period)
    least = rows.step * nest.dims[rows.dim].multiple
    begin, end = stripe.begin // least * least, min(-(-stripe.end // least) * least, stripe.period)
    part = BandedNest(nest, rows.dim, begin // rows.step, end // rows.step)
    return part, Stripe(stripe.period, begin, end)


def _stripe(tensor: TensorSpec, stripe: Stripe, number: int) -> TensorSpec:
    """A stripe as a tensor of its own."""
    periods = tensor.device_bytes // (tensor.dtype.itemsize * stripe.period)
    spec = TensorSpec(f"{tensor.name}//band {number}", tensor.dtype, (periods, stripe.size))
    if spec.row_pitch != spec.row:
        raise Unsupported(f"rows of {stripe.size} elements of {tensor.dtype}", "whole words")
    return spec
