# SPDX-License-Identifier: Apache-2.0
"""What two cost records differ in: totals, operator by operator, and nodes that moved to the host or back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onedispatch.dispatch.tools.cost_record import CostRecord, HostNode, OperatorCost
from onedispatch.transactions.base.text import counted

SLOWER, FASTER, SAME, APPEARED, VANISHED = "slower", "faster", "", "appeared", "vanished"


@dataclass(frozen=True)
class Amount:
    """A quantity of both records, such as cycles. ``beyond``: it differs by more than the tolerance."""

    what: str
    before: float
    after: float
    beyond: bool

    @classmethod
    def of(cls, what: str, before: float, after: float, tolerance: float) -> Amount:
        """``tolerance``: a share of ``before``."""
        return cls(what, before, after, _beyond(before, after, tolerance))

    @property
    def change(self) -> float | None:
        """(after - before) / before, infinite where there was nothing before; None where neither has any."""
        return _change(self.before, self.after)

    @property
    def worse(self) -> bool:
        """True if there is more of it, beyond the tolerance."""
        return self.beyond and self.after > self.before


@dataclass(frozen=True)
class OperatorChange:
    """An operator of both records, or of one: None is the other's cycles."""

    name: str
    op_type: str
    nodes: tuple[str, ...]
    before: int | None
    after: int | None
    verdict: str

    @property
    def change(self) -> float | None:
        """See ``Amount``; None for an operator of one record."""
        return None if self.before is None or self.after is None else _change(self.before, self.after)

    @property
    def cycles(self) -> int:
        """How many more it takes."""
        return (self.after or 0) - (self.before or 0)


@dataclass(frozen=True)
class CostDiff:
    """``before`` and ``after``, and what lies between: rows of operators are in their order.

    ``unlike`` says in what the records differ beside their costs, so that they are not of the same question;
    ``notes`` are what may explain a difference. ``to_host`` are nodes that were on the device before.
    """

    before: CostRecord
    after: CostRecord
    tolerance: float
    totals: tuple[Amount, ...]
    operators: tuple[OperatorChange, ...]
    to_host: tuple[HostNode, ...]
    to_device: tuple[HostNode, ...]
    unlike: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def changed(self) -> list[OperatorChange]:
        """Operators that differ by more than the tolerance, those first that take most cycles more."""
        return sorted((one for one in self.operators if one.verdict), key=lambda one: -one.cycles)

    @property
    def differs(self) -> bool:
        """True if anything is beyond the tolerance."""
        moved = self.to_host or self.to_device
        return bool(moved or self.changed or any(one.beyond for one in self.totals))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it; of the records, what is not in the rows."""
        return {
            "before": _head(self.before),
            "after": _head(self.after),
            "tolerance": self.tolerance,
            "differs": self.differs,
            "unlike": list(self.unlike),
            "notes": list(self.notes),
            "totals": [asdict(one) | {"change": one.change} for one in self.totals],
            "operators": [asdict(one) | {"change": one.change} for one in self.operators],
            "to_host": [asdict(one) for one in self.to_host],
            "to_device": [asdict(one) for one in self.to_device],
        }


def compare_costs(before: CostRecord, after: CostRecord, tolerance: float = 0.0) -> CostDiff:
    """Returns what differs; ``tolerance`` is a share of what was before: 0.02 for two percent."""
    return CostDiff(
        before,
        after,
        tolerance,
        tuple(_totals(before, after, tolerance)),
        tuple(_row(*pair, tolerance) for pair in _paired(before.operators, after.operators)),
        _moved(before, after),
        _moved(after, before),
        tuple(_unlike(before, after)),
        tuple(_notes(before, after)),
    )


def _head(record: CostRecord) -> dict[str, Any]:
    return {"model": record.model, "device": record.device, "onedispatch": record.onedispatch}


def _change(before: float, after: float) -> float | None:
    if not before:
        return float("inf") if after else None
    return (after - before) / before


def _beyond(before: float, after: float, tolerance: float) -> bool:
    return abs(after - before) > tolerance * before


def _totals(before: CostRecord, after: CostRecord, tolerance: float) -> Iterator[Amount]:
    amounts: dict[str, Callable[[CostRecord], float]] = {
        "cycles": lambda r: r.cycles,
        "microseconds": lambda r: r.us,
        "DDR bytes": lambda r: r.ddr_bytes,
        "DDR bytes in bursts": lambda r: r.ddr_burst_bytes,
        "reload cycles": lambda r: r.reload_cycles,
        "dispatches": lambda r: r.dispatches,
    }
    if before.placement is not None and after.placement is not None:
        amounts["nodes on the host"] = lambda r: (r.placement or {}).get("cpu", 0)
    for what, of in amounts.items():
        yield Amount.of(what, of(before), of(after), tolerance)


_Pair = tuple[OperatorCost | None, OperatorCost | None]


def _paired(before: Sequence[OperatorCost], after: Sequence[OperatorCost]) -> list[_Pair]:
    """Operators of one name, then those of one type that share a node; at last those that have no partner."""
    left, partners = list(before), dict[int, OperatorCost]()

    def match(same: Callable[[OperatorCost, OperatorCost], bool]) -> None:
        for index, new in enumerate(after):
            old = next((old for old in left if index not in partners and same(old, new)), None)
            if old is not None:
                partners[index] = old
                left.remove(old)

    match(lambda old, new: (old.name, old.op_type, old.nodes) == (new.name, new.op_type, new.nodes))
    match(lambda old, new: old.name == new.name)
    match(lambda old, new: old.op_type == new.op_type and not set(old.nodes).isdisjoint(new.nodes))
    return [(partners.get(index), new) for index, new in enumerate(after)] + [(old, None) for old in left]


def _row(old: OperatorCost | None, new: OperatorCost | None, tolerance: float) -> OperatorChange:
    shown = new or old
    assert shown is not None  # a pair has one of them at least
    cycles = (None if old is None else old.cycles, None if new is None else new.cycles)
    return OperatorChange(shown.name, shown.op_type, shown.nodes, *cycles, _verdict(*cycles, tolerance))


def _verdict(before: int | None, after: int | None, tolerance: float) -> str:
    if before is None:
        return APPEARED
    if after is None:
        return VANISHED
    if not _beyond(before, after, tolerance):
        return SAME
    return SLOWER if after > before else FASTER


def _moved(before: CostRecord, after: CostRecord) -> tuple[HostNode, ...]:
    """Nodes on the host in ``after`` and not in ``before``; none where either does not say."""
    if before.placement is None or after.placement is None:
        return ()
    known = {one.node for one in before.host_nodes}
    return tuple(one for one in after.host_nodes if one.node not in known)


def _unlike(before: CostRecord, after: CostRecord) -> Iterator[str]:
    """Device, options and shapes of inputs that differ, as far as both records say them."""
    if before.device != after.device:
        yield f"the device: {before.device}, now {after.device}"
    elif before.identity and after.identity and before.identity != after.identity:
        yield f"the description of the device {after.device}, which has changed"
    for option in sorted(before.options.keys() & after.options.keys()):
        if before.options[option] != after.options[option]:
            yield f"--{option.replace('_', '-')}: {before.options[option]}, now {after.options[option]}"
    if before.inputs and after.inputs and dict(before.inputs) != dict(after.inputs):
        yield f"the inputs: {_shapes(before)}, now {_shapes(after)}"


def _shapes(record: CostRecord) -> str:
    return " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in record.inputs.items())


def _notes(before: CostRecord, after: CostRecord) -> Iterator[str]:
    if before.digest and after.digest and before.digest != after.digest:
        yield f"the model's file differs: {before.model}, now {after.model}"
    versions = (before.onedispatch, after.onedispatch)
    if all(versions) and versions[0] != versions[1]:
        yield f"OneDispatch {versions[0]}, now {versions[1]}"
    unsaid = [one.model for one in (before, after) if one.placement is None]
    if unsaid:
        records = f"{counted(len(unsaid), 'record')} without placement ({', '.join(unsaid)})"
        yield f"{records}: nodes that moved to the host do not show"
