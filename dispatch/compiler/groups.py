# SPDX-License-Identifier: Apache-2.0
"""Layer groups: tensors that stay in memory tiles from the operator that makes them to their last reader.

What an operator writes and others read need not pass device memory, where every column can have a share of it
that its own cores make and take. Operators are gone through in order, with a few of the best plans so far: of
each a result goes to device memory, or is kept in one of several ways. A plan costs what the model says that
chooses solutions: of makers and readers, laid over the columns as shares are, and of what runs meanwhile with
less room in memory tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf, isfinite, lcm

from onedispatch.dispatch.compiler.group_costs import OperatorCosts, Shapes
from onedispatch.dispatch.compiler.grouping import Group, Grouping, Passed
from onedispatch.dispatch.compiler.mapping import Unit, elsewhere
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.scheduling.buffer import Buffer
from onedispatch.operators.scheduling.index_space import Operand, Packed
from onedispatch.operators.scheduling.resources import Resources
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.select import Selector
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.text import counted

PLANS = 3  # that are followed at a time
LEAST_SAVED = 0.01  # of the cycles of a group's operators
UNSEEN = 2000  # cycles that a group saves beyond what the cost model sees
MOST_LOST = 0.2  # of the cycles of those that make and read a tensor, by keeping it alone
FEWER = 4  # up to one column in so many may be left out, where a tensor has shares for the others alone
ROOM = 8192  # words: what is taken of memory tiles is rounded up to it, so that few problems differ


@dataclass(frozen=True)
class KeptTensor:
    """A tensor in memory tiles from unit ``maker`` to unit ``last``, its end ``top`` words below theirs."""

    tensor: TensorSpec
    buffer: Buffer
    maker: int
    last: int
    top: int

    @property
    def bottom(self) -> int:
        """Words between the end of memory tiles and its own end."""
        return self.top - self.buffer.words

    def overlaps(self, other: KeptTensor) -> bool:
        return self.bottom < other.top and other.bottom < self.top


def refusal(units: Sequence[Unit], limits: Resources) -> str:
    """Why no tensor of the model can stay; "" where some may."""
    hosts = [unit.nodes[0].name for unit in units if unit.kind == "host"]
    if hosts:
        names = ", ".join(hosts[:3]) + (" ..." if hosts[3:] else "")
        return f"{counted(len(hosts), 'node')} on the host: {names}"
    if limits.sharers > 1:
        return f"rows of cores share lanes on {limits.device.name}"
    return f"{limits.device.name} has one column" if limits.device.columns == 1 else ""


_Settled = tuple[int, tuple[tuple[int, Buffer], ...], int]  # unit, buffers in their places, words taken
_Living = tuple[tuple[int, Buffer, int], ...]  # maker, buffer and top of what is in memory tiles


@dataclass(frozen=True)
class Plan:
    """What stays, as far as units were gone through, which of that still does, and what those cost."""

    kept: tuple[KeptTensor, ...] = ()
    living: tuple[KeptTensor, ...] = ()
    cost: float = 0.0

    @property
    def key(self) -> _Living:
        return tuple((k.maker, k.buffer, k.top) for k in self.living)


@dataclass
class Planner:
    units: Sequence[Unit]
    outputs: frozenset[str]
    limits: Resources
    selector: Selector
    _kept_forms: dict[int, list[KeptTensor]] = field(default_factory=dict)
    _taken_over: dict[tuple[int, Buffer], bool] = field(default_factory=dict)
    _settled_so: dict[_Settled, tuple[Schedule, ...] | None] = field(default_factory=dict)

    @cached_property
    def costs(self) -> OperatorCosts:
        return OperatorCosts(self.units, self.limits.device, self.selector)

    def cycles(self, plan: Plan, units: Iterable[int] | None = None) -> float:
        """Modelled cycles of all operators, or those of ``units``, where a plan is followed."""
        numbers = self.costs.operators if units is None else units
        return sum(self.cost(i, alive_at(plan.kept, i)) for i in numbers)

    def grouped(self, plan: Plan) -> tuple[Unit, ...]:
        """The units with what a plan keeps."""
        return tuple(
            unit
            if unit.operator is None
            else replace(unit, operator=self.operator_with(i, unit.operator, plan.kept))
            for i, unit in enumerate(self.units)
        )

    def grouping(self, plan: Plan) -> Grouping:
        """What a plan comes to, for reports."""
        return Grouping(tuple(self.groups(plan.kept)), tuple(self.passed(plan.kept)))

    def best(self) -> Plan:
        """The cheapest plan for which memory tiles have descriptors enough."""
        while True:
            plan = self._worthwhile(self._cheapest())
            settled = [self._settled(i, alive_at(plan.kept, i)) for i in self.costs.operators]
            if None not in settled:
                return plan  # else others, without any of those that lack them

    def _worthwhile(self, plan: Plan) -> Plan:
        """A plan without the groups that save next to nothing: models are not that near to what runs cost."""
        for first, last in _runs(plan.kept):
            units = [i for i in self.costs.operators if first <= i <= last]
            plain = sum(self.cost(i, ()) for i in units)
            saved = plain - sum(self.cost(i, alive_at(plan.kept, i)) for i in units)
            if saved < LEAST_SAVED * plain - UNSEEN:
                plan = replace(plan, kept=tuple(k for k in plan.kept if k.maker not in units))
        return plan

    def _cheapest(self) -> Plan:
        plans = [Plan()]
        for i in self.costs.operators:
            ways = ((plan, (None, *self._places(plan, self._forms(i)))) for plan in plans)
            cheapest = self._after(i, ways)
            # One that leaves nothing there can always go on.
            plans = [*islice(cheapest.values(), PLANS)]
            plans += [] if cheapest[()] in plans else [cheapest[()]]
        return plans[0]

    def cycles_if_all_stay(self) -> float:
        """The least modelled cycles of all operators where every result stays but those that leave; infinity
        where they cannot all stay."""
        plans = [Plan()]
        for i, operator in self.costs.operators.items():
            stays = operator.output.name not in self.outputs
            forms = self._cut_forms(i) if stays else ()
            ways = ((plan, self._places(plan, forms) if stays else (None,)) for plan in plans)
            plans = [*islice(self._after(i, ways).values(), PLANS)]
        return plans[0].cost if plans else inf

    def _after(self, i: int, ways: Iterable[tuple[Plan, Iterable[KeptTensor | None]]]) -> dict[_Living, Plan]:
        """Plans with unit ``i`` done, the cheapest first: its result in device memory, or kept. Of those that
        leave the same in memory tiles, one goes on."""
        following = [after for plan, kept in ways for after in self._following(plan, i, kept)]
        cheapest: dict[_Living, Plan] = {}
        for plan in sorted(following, key=lambda plan: plan.cost):
            cheapest.setdefault(plan.key, plan)
        return cheapest

    def _following(self, plan: Plan, i: int, kept: Iterable[KeptTensor | None]) -> Iterator[Plan]:
        for one in kept:
            made = () if one is None else (one,)
            living = *plan.living, *made
            cost = self.cost(i, living)
            if isfinite(cost):
                left = tuple(k for k in living if k.last > i)
                yield Plan((*plan.kept, *made), left, plan.cost + cost)

    def operator_with(self, i: int, operator: Operator, kept: Sequence[KeptTensor]) -> Operator:
        """A unit's operator where ``kept`` stay."""
        alive = alive_at(kept, i)
        return (
            operator.keeping(self._buffers_at(i, alive), self._settled(i, alive) or ()) if alive else operator
        )

    def _settled(self, i: int, alive: Sequence[KeptTensor]) -> tuple[Schedule, ...] | None:
        """How a unit's nests run beside ``alive``; None where memory tiles have too few descriptors."""
        if not alive:
            return tuple(self.costs.operators[i].schedules)
        buffers, (shapes, occupied) = self._buffers_at(i, alive), self._around(i, alive)
        key = i, tuple(buffers.items()), occupied
        if key not in self._settled_so:
            self._settled_so[key] = self.costs.settled(i, shapes, occupied, buffers)
        return self._settled_so[key]

    def _buffers_at(self, i: int, alive: Sequence[KeptTensor]) -> dict[int, Buffer]:
        """The buffers of a unit's tensors in their places, by the numbers that its nest calls them by."""
        end = 4 * self.limits.mem_words
        held = {k.tensor.name: replace(k.buffer, at=end - 4 * k.top) for k in alive}
        return {n: held[name] for name, n in self.costs.numbers[i] if name in held}

    # -- ways to keep a result ------------------------------------------------------------------

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, unit in enumerate(self.units):
            read = unit.operator.inputs if unit.operator else ()
            for name in dict.fromkeys(self.costs.root(tensor) for tensor in read):
                found.setdefault(name, []).append(i)
        return found

    @cached_property
    def elsewhere(self) -> frozenset[str]:
        return elsewhere(self.units, self.outputs, self.costs.roots)

    @cached_property
    def _holders(self) -> dict[str, str]:
        """The tensors that each lie in another, with its name."""
        made = (unit.operator for unit in self.units if unit.operator is not None)
        return {name: operator.output.name for operator in made for name in operator.holds}

    def lacks_room(self, plan: Plan, i: int) -> bool:
        """Whether a unit's result could stay, were there room beside what a plan keeps meanwhile."""
        forms = self._forms(i)
        taken = [k for one in forms[:1] for k in plan.kept if k.maker <= one.last and k.last >= i]
        return bool(forms) and all(self._place(taken, one) is None for one in forms)

    def _places(self, plan: Plan, forms: Iterable[KeptTensor]) -> Iterator[KeptTensor]:
        """Ways to keep a result, where they have room beside what a plan keeps."""
        for one in forms:
            place = self._place(plan.living, one)
            if place is not None:
                yield place

    def _forms(self, i: int) -> list[KeptTensor]:
        """Ways to keep a unit's result that its maker and every reader could take, were it the only tensor
        that stays."""
        if i not in self._kept_forms:
            self._kept_forms[i] = [one for one in self._cut_forms(i) if self._all_take(one)]
        return self._kept_forms[i]

    def _cut_forms(self, i: int) -> list[KeptTensor]:
        """Ways that the loops of the maker and of all readers can be cut by: equal shares for as many columns
        as have some, and unequal shares for more columns, which fewer tile sizes divide."""
        found: list[KeptTensor] = []
        for columns in self._widths(i):
            forms = [one for one in self._all_forms(i, columns) if self._all_cut(one)]
            found += forms
            if any(one.buffer.is_even for one in forms):
                break
        return found

    def _widths(self, i: int) -> range:
        """Numbers of columns that may share a unit's result: all, else as many as it has shares for.

        Not where constants come to those that share it: each column would fetch all of them.
        """
        columns, users = self.limits.device.columns, [self.costs.operators[j] for j in self._users(i)]
        nests = (nest for operator in users if operator.may_keep for nest in operator.plain_nests)
        constants = any(isinstance(x, Packed) for nest in nests for x in nest.inputs)
        return range(columns, columns - (0 if constants else columns // FEWER) - 1, -1)

    def _all_forms(self, i: int, columns: int) -> Iterator[KeptTensor]:
        operator = self.costs.operators[i]
        tensor = operator.output
        readers = self.readers.get(tensor.name, [])
        if len(operator.outputs) > 1 or not readers or tensor.name in self.elsewhere:
            return
        for buffer in self._buffers(i, columns):
            yield KeptTensor(tensor, buffer, i, readers[-1], buffer.words)

    def _buffers(self, i: int, columns: int) -> Iterator[Buffer]:
        """Ways of cutting a unit's result into shares of columns, as its maker and readers walk it."""
        operator = self.costs.operators[i]
        views = self._views(i, operator.output.name)
        if not views:
            return
        name, out = operator.output.name, views[0]
        views += [x for reader in self.readers.get(name, []) for x in self._views(reader, name)]
        total = max(n * stride for n, stride in zip(out.shape, out.strides, strict=True))
        periods = {total, *(stride for x in views for stride in x.strides)}
        for period in sorted(n for n in periods if n > 1 and total % n == 0):
            member = lcm(*(_widest_step(x, period) for x in views))
            share = -(-period // (member * columns)) * member
            one = Buffer(period, share, total // period * share * out.itemsize // 4)
            whole_words = share % out.dtype.per_word == 0
            if whole_words and one.columns == columns and one.words < self.limits.mem_words:
                yield one

    def _views(self, i: int, name: str) -> list[Operand]:
        """How the nest of a unit walks a tensor."""
        operator = self.costs.operators[i]
        if not operator.may_keep or len(operator.plain_nests) != 1:
            return []
        tensors = [*operator.inputs, *reversed(operator.outputs)]  # as operands number them
        return [x for x in operator.plain_nests[0].strided if self.costs.root(tensors[x.tensor]) == name]

    def _all_cut(self, one: KeptTensor) -> bool:
        """Whether the loops of all that make or read a tensor can be cut so; nothing is searched."""
        return not any(self._refusal_by(i, (one,)) for i in self._users(one.maker))

    def _all_take(self, one: KeptTensor) -> bool:
        """Whether all that make or read a tensor can run so, and not at a cost that no other tensor beside it
        makes up for."""
        users, more = self._users(one.maker), 0.0
        plain = {i: self.cost(i, ()) for i in users}
        most = MOST_LOST * sum(plain.values())
        return all((more := more + self.cost(i, (one,)) - plain[i]) <= most for i in users)

    def _users(self, i: int) -> tuple[int, ...]:
        """The unit that makes a result, and those that read it."""
        return i, *self.readers.get(self.costs.operators[i].output.name, ())

    def _refusal_by(self, i: int, alive: Sequence[KeptTensor]) -> str:
        """Why the loop nest of a unit's operator cannot be cut as ``alive`` are; "" where it can."""
        return self.costs.refusal(i, self._around(i, alive)[0])

    def _place(self, taken: Sequence[KeptTensor], one: KeptTensor) -> KeptTensor | None:
        """``one`` with a place: that of an operand that its maker is the last to read, or words that are free
        beside what is ``taken``."""
        for before in taken:
            here = replace(one, top=before.top)
            if (
                self._replaces(one, before)
                and self._in_reach(here)
                and not any(here.overlaps(k) for k in taken if k is not before)
            ):
                return here
        beyond = max(self.limits.mem_words - self.limits.mem_view.shared.stop // 4, 0)
        tops = [one.buffer.words, *(k.top + one.buffer.words for k in taken)]
        tops += [beyond + one.buffer.words] if beyond else []
        free = (replace(one, top=top) for top in sorted(tops) if top < self.limits.mem_words)
        fits = (here for here in free if not any(here.overlaps(k) for k in taken))
        return next(filter(self._in_reach, fits), None)

    def _in_reach(self, one: KeptTensor) -> bool:
        """Whether all columns that take what a neighbour has of a tensor can name it where it is."""
        end, shared = 4 * self.limits.mem_words, self.limits.mem_view.shared
        seen = shared.start <= end - 4 * one.top and end - 4 * one.bottom <= shared.stop
        return seen or not self._neighbours_take(one.maker, one.buffer)

    def _neighbours_take(self, i: int, buffer: Buffer) -> bool:
        """Whether columns take what their neighbours have of a unit's result in such a buffer."""
        if (i, buffer) not in self._taken_over:
            name, users = self.costs.operators[i].output.name, self._users(i)
            held = ((j, tuple((n, buffer) for x, n in self.costs.numbers[j] if x == name)) for j in users)
            self._taken_over[i, buffer] = any(self.costs.takes_of_neighbours(*one) for one in held)
        return self._taken_over[i, buffer]

    def _replaces(self, one: KeptTensor, before: KeptTensor) -> bool:
        """Whether the maker of ``one`` reads ``before`` last, each element before it writes the same one."""
        operator = self.costs.operators[one.maker]
        # Cores of a column with a smaller share compute tiles twice: the second time they would read results.
        if before.last != one.maker or before.buffer != one.buffer or not one.buffer.is_even:
            return False
        nest = operator.plain_nests[0]
        roots = [self.costs.root(tensor) for tensor in operator.inputs]
        read = [x for x in nest.strided_inputs if roots[x.tensor] == before.tensor.name]
        alike = len(read) == 1 and _walk(read[0]) == _walk(nest.outputs[0])
        return alike and not nest.kernel.dims and not nest.kernel.members and not nest.reduces

    # -- what it costs ---------------------------------------------------------------------------

    def cost(self, i: int, alive: Sequence[KeptTensor]) -> float:
        """Modelled cycles of a unit's operator beside ``alive``; infinity where it cannot run so."""
        return self.costs.cycles(i, *self._around(i, alive))

    def _around(self, i: int, alive: Sequence[KeptTensor]) -> tuple[Shapes, int]:
        """The buffers of a unit's tensors, wherever they lie, and the words of memory tiles that are taken
        while it runs."""
        occupied = -(-max((k.top for k in alive), default=0) // ROOM) * ROOM
        held = {k.tensor.name: k.buffer for k in alive}
        return tuple((n, held[name]) for name, n in self.costs.numbers[i] if name in held), occupied

    # -- what it came to ---------------------------------------------------------------------------

    def groups(self, kept: Sequence[KeptTensor]) -> Iterator[Group]:
        """Runs of units that tensors stay between, in order."""
        for first, last in _runs(kept):
            units = range(first, last + 1)
            there = [(i, op) for i in units if (op := self.units[i].operator) is not None]
            here = [k for k in kept if k.maker in units]
            yield Group(
                tuple(op.name for _, op in there),
                tuple(k.tensor.name for k in here),
                sum(k.tensor.device_bytes * (1 + len(self.readers[k.tensor.name])) for k in here),
                4 * max(k.top for k in here),
                round(sum(self.cost(i, ()) - self.cost(i, alive_at(kept, i)) for i, _ in there)),
            )

    def passed(self, kept: Sequence[KeptTensor]) -> Iterator[Passed]:
        """What operators make that does not stay."""
        names = {k.tensor.name for k in kept}
        for i, unit in enumerate(self.units):
            for tensor in unit.operator.outputs if unit.operator is not None else ():
                if tensor.name not in names:
                    yield Passed(tensor.name, tensor.device_bytes, self._why_not(i, tensor, kept))

    def _why_not(self, i: int, tensor: TensorSpec, kept: Sequence[KeptTensor]) -> str:
        """Why a tensor that unit ``i`` makes does not stay."""
        readers = self.readers.get(tensor.name, [])
        users, operators = (i, *readers), self.costs.operators
        columns, room = self.limits.device.columns, self.limits.mem_words
        words = -(-tensor.device_bytes // (4 * columns))
        buffers = [one for n in self._widths(i) for one in self._buffers(i, n)] if readers else []
        if tensor.name in self.elsewhere:
            names = {tensor.name, *(name for name, root in self.costs.roots.items() if root == tensor.name)}
            holder = self._holders.get(tensor.name)
            if names & self.outputs:
                return "an output of the model"
            return f"it lies in {holder}" if holder else "parts of it have names of their own"
        if not readers:
            return "nothing reads it"
        if len(operators[i].outputs) > 1:
            return f"{operators[i].name} has several results"
        if words >= room:
            return f"too large: {counted(words, 'word')} of every memory tile, which has {room:,}"
        if not buffers:
            refused = [said for j in users if (said := self._refusal_by(j, ()))]
            widths = " or ".join(map(str, self._widths(i)[1:]))
            fewer = f", or for {widths}" if widths else ""
            uneven = f"no shares of whole words for {counted(columns, 'column')}{fewer}"
            return next(iter(refused), uneven)
        ways = [KeptTensor(tensor, one, i, readers[-1], one.words) for one in buffers]
        return self._why_not_in(ways, users, kept)

    def _why_not_in(
        self, ways: Sequence[KeptTensor], users: Sequence[int], kept: Sequence[KeptTensor]
    ) -> str:
        """Why a tensor stays in none of ``ways``; ``users`` make it and read it."""
        said = [self._refusal_of(one, users) for one in ways]
        if all(text for _, text in said):
            return max(said)[1]  # of the way that most of them could take
        taken = [k for k in kept if k.maker <= ways[0].last and k.last >= ways[0].maker]
        plain = [one for one, refusal in zip(ways, said, strict=True) if not refusal[1]]
        fitting = [one for one in plain if self._place(taken, one) is not None]
        if not fitting and not taken:
            return f"neighbours take of it what descriptors of {self.limits.device.name} do not reach"
        if not fitting:
            beside = ", ".join(k.tensor.name for k in taken)
            return f"no room for {counted(4 * ways[0].buffer.words, 'byte')} beside {beside}"
        for i in users:
            if not any(isfinite(self.cost(i, (one,))) for one in fitting):
                return f"{self.costs.operators[i].name} has no solution beside it"
        return "no plan that keeps it costs less"

    def _refusal_of(self, one: KeptTensor, users: Sequence[int]) -> tuple[int, str]:
        """The first of ``users`` that cannot be cut as ``one`` is, and why; "" where all can."""
        asked = ((n, self._refusal_by(i, (one,))) for n, i in enumerate(users))
        return next(((n, text) for n, text in asked if text), (len(users), ""))


def _runs(kept: Sequence[KeptTensor]) -> list[tuple[int, int]]:
    """First and last units of runs: what is made where another tensor is read goes on with its run."""
    runs: list[tuple[int, int]] = []
    for k in sorted(kept, key=lambda k: k.maker):
        if runs and k.maker <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(runs[-1][1], k.last)
        else:
            runs.append((k.maker, k.last))
    return runs


def alive_at(kept: Iterable[KeptTensor], at: int) -> tuple[KeptTensor, ...]:
    """What is in memory tiles while unit ``at`` runs."""
    return tuple(k for k in kept if k.maker <= at <= k.last)


def _widest_step(view: Operand, period: int) -> int:
    """Elements between members of the dimension of a view that columns would share."""
    return max((s for n, s in zip(view.shape, view.strides, strict=True) if n > 1 and s < period), default=1)


def _walk(operand: Operand) -> tuple[object, ...]:
    return operand.dtype, operand.shape, operand.strides, operand.access, operand.offset
