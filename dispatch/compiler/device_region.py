# SPDX-License-Identifier: Apache-2.0
"""A device region before it is emitted: its operators in order, and where each output's bytes come from.

Its operators have their solutions and have said what they hand over; one transaction is made of them next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from onedispatch.dispatch.compiler.arg_maps import (
    checked_arg_map,
    explanation_of,
    macs_of,
    parameters_of,
    transaction_of,
)
from onedispatch.dispatch.compiler.copies import Copies
from onedispatch.dispatch.compiler.mapping import Specs, held
from onedispatch.dispatch.compiler.partition import Region
from onedispatch.dispatch.frontend.graph import Array, Node
from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Alias, Operator
from onedispatch.operators.plugin.watchdog import asked_of
from onedispatch.operators.scheduling.packing import PackedCopy
from onedispatch.transactions import ArgKind, ArgMap
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import InternalError, OperatorError
from onedispatch.transactions.base.text import counted

T = TypeVar("T")


def named(nodes: Sequence[Node]) -> str:
    """The nodes in words."""
    return f"{'node' if len(nodes) == 1 else 'nodes'} {', '.join(node.name for node in nodes)}"


@dataclass(frozen=True, eq=False)
class PlacedOperator:
    """An operator of the region, with the nodes that it stands for."""

    operator: Operator
    nodes: tuple[Node, ...]

    @property
    def where(self) -> str:
        """The operator, its class and its nodes, for messages."""
        return f"operator {self.operator.name} ({type(self.operator).__name__}) of {named(self.nodes)}"

    def ask(self, question: Callable[[Operator], T]) -> T:
        """What the operator answers; ``InternalError`` that names it for what no operator may raise."""
        return asked_of(self.operator, self.where, lambda: question(self.operator))

    @cached_property
    def activations(self) -> tuple[TensorSpec, ...]:
        return self.ask(lambda op: op.activations)

    @cached_property
    def entries(self) -> list[ArgMap]:
        return checked_arg_map(self.operator, named(self.nodes))

    @cached_property
    def params(self) -> bytes:
        return parameters_of(self.operator, named(self.nodes), self.entries)

    @cached_property
    def transaction(self) -> bytes:
        return transaction_of(self.operator, named(self.nodes))

    @cached_property
    def schedule(self) -> tuple[str, ...]:
        return explanation_of(self.operator, named(self.nodes))

    @cached_property
    def macs(self) -> int:
        return macs_of(self.operator, named(self.nodes))

    @cached_property
    def const_bytes(self) -> int:
        return int(self.ask(lambda op: op.const_bytes))

    def constant_copies(self) -> list[PackedCopy] | None:
        """The copies that make the operator's constants of zeros; None of operators that format their own."""
        method = getattr(self.operator.format_const_params, "__func__", None)
        if method is not Operator.format_const_params:
            return None
        return self.ask(lambda op: list(op.constant_copies()))

    def write_constants(self, out: Array) -> None:
        """Formats the operator's constants into ``out`` (uint8, zeroed), where no copies do so."""
        made = self.ask(lambda op: op.format_const_params(out))
        if made is out:
            return
        fits = isinstance(made, np.ndarray) and made.dtype == np.uint8 and made.shape == out.shape
        if not fits:
            given = f"{made.dtype}{list(made.shape)}" if isinstance(made, np.ndarray) else repr(made)
            accepted = f"{counted(out.size, 'byte')} (uint8), those of `out` as a rule"
            raise OperatorError(f"{self.where}: format_const_params", given, accepted)
        if not np.shares_memory(made, out):
            out[:] = made

    def tensor(self, entry: ArgMap) -> TensorSpec:
        """The tensor that an INPUT or OUTPUT entry of the arg map stands for."""
        if entry.kind is ArgKind.OUTPUT:
            return self.operator.outputs[entry.onnx_arg_idx - len(self.activations)]
        return self.activations[entry.onnx_arg_idx]


@dataclass(frozen=True, eq=False)
class DeviceRegion:
    """Operators that run one after the other as one transaction.

    ``source`` has the aliases by name, ``spec`` holds every tensor that the region touches,
    ``delivered`` names, for each output, the tensor whose bytes leave under its name.
    """

    region: Region
    operators: tuple[PlacedOperator, ...]
    source: Mapping[str, Alias]
    spec: Mapping[str, TensorSpec]
    delivered: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.region.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.region.outputs

    def root(self, name: str) -> str:
        """The tensor whose bytes ``name`` is."""
        return self.place(name)[0]

    def place(self, name: str) -> tuple[str, int]:
        """The tensor whose bytes ``name`` is, and from which byte on."""
        return held(self._places, name)

    @cached_property
    def _places(self) -> dict[str, tuple[str, int]]:
        return {name: (alias.source.name, alias.offset) for name, alias in self.source.items()}

    @cached_property
    def within(self) -> dict[str, tuple[str, int]]:
        """The tensors that lie in the result of a Concat, or of bands: in which, and from which byte on."""
        made = (placed.operator for placed in self.operators)
        return {name: (op.output.name, at) for op in made for name, at in op.holds.items()}

    @cached_property
    def parted(self) -> list[str]:
        """Tensors of ``within`` that none of these operators makes."""
        made = {tensor.name for placed in self.operators for tensor in placed.operator.outputs}
        return sorted(self.within.keys() - made)

    def verify(self) -> None:
        """Raises ``InternalError`` where an operator reads what none before makes, or an output lacks."""
        known = {self.root(name) for name in self.inputs} | {n for n, s in self.spec.items() if s.is_const}
        made: set[str] = set()
        for placed in self.operators:
            missing = {self.root(t.name) for t in placed.activations if t.size} - known
            if missing:
                raise _wrong(placed.operator.name, f"it reads {sorted(missing)} before anything made it")
            outputs = {t.name for t in placed.operator.outputs}
            if outputs & made:
                raise _wrong(placed.operator.name, f"{sorted(outputs & made)} are written twice")
            made |= outputs
            known |= outputs
        if self.parted:
            raise _wrong("results that hold others", f"no operator writes {self.parted}, which lie there")
        late = [n for n in self.outputs if self.spec[n].size and self.delivered.get(n) not in made]
        if late:
            raise _wrong("its outputs", f"no operator writes {late}")


def _wrong(what: str, given: str) -> InternalError:
    return InternalError(f"device region, {what}", given, "", "Please report this mistake of OneDispatch")


def device_region(region: Region, specs: Specs, copies: Copies) -> DeviceRegion:
    """``region`` with its operators listed, and copies added for outputs that need bytes of their own.

    Raises ``OperatorError`` for an output that an operator writes and that the device cannot copy.
    """
    source: dict[str, Alias] = {}
    spec: dict[str, TensorSpec] = {}
    operators: list[PlacedOperator] = []
    for unit in region.units:
        if unit.alias is not None:
            output, renamed, _ = unit.alias
            source[output.name], spec[output.name] = unit.alias, output
            spec.setdefault(renamed.name, renamed)
        if unit.operator is not None:
            operators.append(PlacedOperator(unit.operator, unit.nodes))
            spec.update({tensor.name: tensor for tensor in unit.operator.outputs})
            for tensor in unit.operator.inputs:
                spec.setdefault(tensor.name, tensor)
    for name in (*region.inputs, *region.outputs):
        if name not in spec:
            spec[name] = specs.of(name)
    plain = DeviceRegion(region, tuple(operators), source, spec)
    added, delivered = _own_outputs(plain, spec, copies)
    return replace(plain, operators=(*operators, *added), delivered=delivered)


def _own_outputs(
    region: DeviceRegion, spec: dict[str, TensorSpec], copies: Copies
) -> tuple[list[PlacedOperator], dict[str, str]]:
    """Gives every output bytes of its own that an operator writes: copies where needed.

    Copies come last; operators of the region go on reading the original.
    """
    made = {t.name for placed in region.operators for t in placed.operator.outputs}
    taken: set[str] = set()
    added: list[PlacedOperator] = []
    delivered: dict[str, str] = {}
    # An operator's own output name first; then the first alias of a root.
    for name in sorted(region.outputs, key=lambda n: n in region.source):
        root, wanted = region.root(name), spec[name]
        whole = spec[root].device_bytes == wanted.device_bytes
        if wanted.size == 0 or (root in made and root not in taken and whole):
            taken.add(root)
            delivered[name] = root
            continue
        nodes = tuple(n for unit in region.region.units if name in unit.writes for n in unit.nodes)
        copy = _copy(wanted, nodes, copies)
        spec[copy.output.name] = copy.output
        delivered[name] = copy.output.name
        added.append(PlacedOperator(copy, nodes))
    return added, delivered


def _copy(tensor: TensorSpec, nodes: Sequence[Node], copies: Copies) -> Operator:
    try:
        return copies.of(tensor)
    except Unsupported as error:  # ``settle_copies`` has moved what can be moved to the host
        about = f"output {tensor.name} of {[n.name for n in nodes]}"
        remedy = "let an operator write it by itself"
        raise OperatorError(about, error.reason, error.nearest, remedy) from error
