# SPDX-License-Identifier: Apache-2.0
"""The operator interface: arg map, constants, transaction, super-kernel parameters.

A device operator declares its loop nests (``nests()``: an index space, and for every
tensor how a tile of that space touches it) and gets the rest from the shared scheduler.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Map
from copy import copy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from onedispatch.operators.declarations.functions import Activation
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.emission.emitter import BoundNest, emit_nests
from onedispatch.operators.emission.image import Image, merged
from onedispatch.operators.emission.programs import NestProgram
from onedispatch.operators.interface.merge import ACTIVATION, Merge
from onedispatch.operators.scheduling.buffer import Buffer
from onedispatch.operators.scheduling.candidates import check_fits
from onedispatch.operators.scheduling.feeds import ConstantOffsets
from onedispatch.operators.scheduling.index_space import AUX, OUTPUT
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.nest_rules import check_inside
from onedispatch.operators.scheduling.packing import PackedCopy, packed_copies
from onedispatch.operators.scheduling.reordered import Order, reordered
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.operators.scheduling.select import Selector, select
from onedispatch.transactions import ArgKind, ArgMap, Device
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import OperatorError
from onedispatch.transactions.base.text import counted

__all__ = ["Alias", "Lowering", "NodeSpec", "Operator", "TensorSpec", "Unsupported"]

MOST_ARGUMENTS = 256  # of a transaction: DDR_PATCH names one in a byte


class Operator:
    """One device operator with concrete shapes on one device; valid once constructed.

    ``inputs`` are activations first to last as ``reference`` takes them; constants among
    them carry their value and reach the device formatted, through ``format_const_params``.
    Raises ``Unsupported`` on construction when shapes or attributes are out of bounds, and from
    ``check_fits`` (which ``Lowering.emit`` and merging ask) when no tile fits a core.
    """

    kind: ClassVar[str] = ""
    adds_residual: ClassVar[bool] = False  # `with_residual` gives the operator that adds to its first input
    reads_integers: ClassVar[bool] = False  # `of_integers` gives the operator that makes its own floats
    tabulates: ClassVar[bool] = False  # `tabulated` gives its results where each is one of bytes
    runs_in_bands: ClassVar[bool] = False  # neither results nor operands are positions in tensors
    merges: ClassVar[tuple[Merge, ...]] = (ACTIVATION,)  # how it takes in its only reader
    kept_buffers: Map[int, Buffer] = MappingProxyType({})  # of what stays in memory tiles, by nests' numbers
    # By names of tensors: results that may take an input's memory, and what holds a result's actual sizes.
    in_place: Map[str, str] = MappingProxyType({})
    actual_sizes: Map[str, str] = MappingProxyType({})
    elided: tuple[WholeCopy, ...] = ()  # of ``whole_copies``, those whose input is written there by its maker
    holds: Map[str, int] = MappingProxyType({})  # tensors that lie in the output, and from which byte on
    # By numbers of tensors as nests have them: where elements lie in another order.
    orders: Map[int, Order] = MappingProxyType({})
    _turned: bool = False  # every second one of a model takes other descriptors of shims: see ``emit_nests``

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        device: Device,
        activation: Activation | None = None,
        further_outputs: Sequence[TensorSpec] = (),
    ) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.output = output
        self.further_outputs = tuple(further_outputs)
        self.device = device
        self.activation = activation or Activation()

    # -- what an operator declares -------------------------------------------------------

    def nests(self) -> list[Nest]:
        """The loop nests, run one after the other. Tensors are named by index: 0..n-1 inputs."""
        raise NotImplementedError

    def reference(self, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What the operator computes, in NumPy. ``arrays`` are all inputs in order."""
        raise NotImplementedError

    def references(self, *arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """``reference`` of every output: operators with several override it."""
        return [self.reference(*arrays)]

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Every tensor that the operator makes: ``output``, then further ones."""
        return (self.output, *self.further_outputs)

    @property
    def is_activation(self) -> bool:
        """True for ``act(x)`` alone, which a producer can apply to its own result."""
        return False

    @property
    def applies_activation(self) -> bool:
        """Whether ``activation`` is in what cores run: in every nest that writes the output.

        Nests prove it, where the transaction is made of them. A class whose own transaction applies it says
        so with a class attribute of this name.
        """
        if self.owns_transaction:
            return False
        wanted = self.activation.scalars.items()
        writers = [nest for nest in self._nests if any(out.output == 0 for out in nest.outputs)]
        return bool(writers) and all(wanted <= nest.scalars.items() for nest in writers)

    @property
    def takes_activation(self) -> bool:
        """Whether the kernel applies ``activation``, and none is set yet."""
        return self.applies_activation and self.activation.code == "none"

    def replaced(self, **fields: Any) -> Operator:
        """A copy with other ``fields``; nothing that was derived from the old ones is kept."""
        other = copy(self)
        derived = {
            name
            for cls in type(self).__mro__
            for name, v in vars(cls).items()
            if isinstance(v, functools.cached_property)  # noqa: TID251 - that of others, too
        }
        other.__dict__ = {k: v for k, v in self.__dict__.items() if k not in derived} | fields
        return other

    def count_macs(self) -> int:
        """Multiply-accumulates of its products, from shapes: those with padding too; 0 where it has none."""
        return 0

    def in_narrow_sums(self) -> Operator:
        """The same with sums that wait in the type of its results, rounded after every step; or itself."""
        return self

    def packed_parts(self, operand: str) -> Sequence[np.ndarray[Any, Any]]:
        """What the parts of a packed constant operand are made of, as ``packed_copies`` takes them."""
        raise NotImplementedError

    @property
    def transposition(self) -> Order | None:
        """Where the elements of the result lie in the one input, if this is a copy of all of them in another
        order and nothing else."""
        return None

    @property
    def whole_copies(self) -> tuple[WholeCopy, ...]:
        """The copies that fill the output, where nothing else does and each is of a whole input."""
        return ()

    # -- what the dispatcher asks --------------------------------------------------------

    @cached_property
    def activations(self) -> tuple[TensorSpec, ...]:
        """The inputs that the transaction reads as they are: all but packed constants.

        Constants may be among them (``is_const``); the dispatcher puts those, row-major, into
        the constant buffer.
        """
        return tuple(t for i, t in enumerate(self.inputs) if i in self._read_inputs)

    def not_constant(self, operand: str) -> OperatorError:
        """What ``pack`` raises for an operand without a value."""
        return OperatorError(f"operator {self.name}", f"{operand} without a value", "constants to pack")

    def check_fits(self) -> None:
        """Raises ``Unsupported`` where a nest cannot run on the device. Nothing is chosen yet."""
        for nest in self._nests:
            check_fits(nest, self.device)
        room, need = self.device.count("core.program_memory_bytes"), self.image.nbytes
        if need > room:
            raise Unsupported(
                f"its code ({self.image}, and what runs it) needs {counted(need, 'byte')} of program memory",
                f"at most {room}",
            )
        most = MOST_ARGUMENTS - 2 - len(self.outputs)  # constants and parameters are others
        if len(self.activations) > most:
            raise Unsupported(f"{len(self.activations)} tensors are read by one operator", f"at most {most}")

    def selected(self, selector: Selector) -> Operator:
        """This operator, its nests solved by ``selector``. Raises ``SolutionError``: see ``select``."""
        found = [select(nest, self.device, selector) for nest in self._nests]
        return self.replaced(schedules=found, _nests=self._nests, plain_nests=self.plain_nests)

    def keeping(self, buffers: Map[int, Buffer], schedules: Sequence[Schedule]) -> Operator:
        """This operator with ``buffers`` of its tensors, as the nests of ``schedules`` have them."""
        return self.replaced(
            schedules=[*schedules],
            kept_buffers=buffers,
            plain_nests=self.plain_nests,
            _nests=[schedule.nest for schedule in schedules],
        )

    def in_turn(self, turned: bool) -> Operator:
        """The same, ``turned`` or not."""
        if turned == self._turned:
            return self
        other = copy(self)
        other.__dict__ = {k: v for k, v in self.__dict__.items() if k != "_emitted"} | {"_turned": turned}
        return other

    @property
    def owns_transaction(self) -> bool:
        """Whether its transaction is one of its own and not made of loop nests."""
        return type(self).transaction is not Operator.transaction

    @property
    def may_keep(self) -> bool:
        """Whether its nests may be cut anew, for tensors that stay in memory tiles: its arguments are then
        those of the nests, which a class with answers of its own does not know of."""
        return all(getattr(type(self), name) is getattr(Operator, name) for name in _MADE_OF_NESTS)

    @cached_property
    def image(self) -> Image:
        """The least that program memory must hold to run it."""
        return merged(image for nest in self._nests for image in _images(nest))

    @cached_property
    def schedules(self) -> list[Schedule]:
        """How each nest runs: as selected, or as the search says."""
        return [select(nest, self.device) for nest in self._nests]

    def arg_map(self) -> list[ArgMap]:
        """Own argument order: outputs, then one per activation, then constants, then params.

        ``onnx_arg_idx`` counts activations, then constants, then outputs.
        """
        reads, made = self.activations, len(self.outputs)
        entries = [
            ArgMap(ArgKind.OUTPUT, i, len(reads) + i, 0, t.device_bytes)
            for i, t in enumerate(self.outputs)
            if OUTPUT - i not in self.kept_buffers
        ]
        entries += [ArgMap(ArgKind.INPUT, made + i, i, 0, t.device_bytes) for i, t in enumerate(reads)]
        consts = made + len(reads)
        if self.const_bytes:
            entries.append(ArgMap(ArgKind.CONST_INPUT, consts, 0, 0, self.const_bytes))
        params = len(self.super_kernel_params())
        if params:
            entries.append(ArgMap(ArgKind.CONST_KERNEL_PARAM_INPUT, consts + 1, 0, 0, params))
        return entries

    @cached_property
    def const_bytes(self) -> int:
        """Size of the formatted constants, known without formatting them."""
        return sum(bound.feeds.const_bytes for bound in self._bound)

    def format_const_params(self, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """The constant blob in device layout, ``const_bytes`` of uint8; in ``out`` (zeroed) where given."""
        blob = np.zeros(self.const_bytes, np.uint8) if out is None else out
        for each in self.constant_copies():
            each.run(blob)
        return blob

    def constant_copies(self) -> Iterator[PackedCopy]:
        """The constant blob as copies."""
        for bound in self._bound:
            for operand, at, _ in bound.feeds.packed:
                schedule = bound.schedule
                aux = (values for _, values in schedule.nest.aux_values())
                parts = list(aux) if operand == AUX else self.packed_parts(operand)
                yield from packed_copies(schedule, schedule.packed(operand), parts, at)

    def transaction(self) -> bytes:
        """The operator's own transaction; empty work gives a header without ops."""
        return self._emitted.transaction

    def super_kernel_params(self) -> bytes:
        """What shims bring of each nest: control packets, and the parameter block behind them."""
        return self._emitted.params

    @property
    def parameter_blocks(self) -> tuple[bytes, ...]:
        """The parameter blocks alone, one per nest."""
        return self._emitted.blocks

    @property
    def work_basis(self) -> str:
        """Where a custom kernel's work comes from: ``declared``, ``counted`` or ``assumed``; "" for ours."""
        return ""

    def explain(self) -> list[str]:
        """A line for each tensor that lies in the result, then one for each nest: the tiling, the mapping to
        cores, and why cores idle."""
        held = [f"{name} lies in {self.output.name} from byte {at:,} on" for name, at in self.holds.items()]
        return [*held, *(schedule.explain() for schedule in self.schedules)]

    # -- inside ----------------------------------------------------------------------------

    @cached_property
    def _nests(self) -> list[Nest]:
        return self.plain_nests

    @cached_property
    def plain_nests(self) -> list[Nest]:
        """Those of tensors in device memory."""
        nests = [self._reordered(nest) for nest in self.nests() if not nest.is_empty]
        for nest in nests:
            for operand in nest.strided:
                made = operand.output
                tensor = self.inputs[operand.tensor] if made is None else self.outputs[made]
                check_inside(nest, operand, tensor.device_bytes // operand.itemsize)
        return nests

    def _reordered(self, nest: Nest) -> Nest:
        found = reordered(nest, self.orders) if self.orders else nest
        if found is None:
            raise Unsupported(f"{self.name} walks several dimensions in one", "views of single dimensions")
        return found

    @cached_property
    def _read_inputs(self) -> frozenset[int]:
        """Indices of inputs. A nest may also read what earlier ones have written: an output."""
        read = {op.tensor for nest in self._nests for op in nest.strided_inputs if op.output is None}
        return frozenset(read - self.kept_buffers.keys())

    @cached_property
    def _bound(self) -> list[BoundNest]:
        nests, const_at = [], 0
        first, places = len(self.outputs), ConstantOffsets()
        argument = {i: first + n for n, i in enumerate(sorted(self._read_inputs))}
        for schedule in self.schedules:
            bound = BoundNest(schedule, argument, first + len(argument), const_at, places)
            const_at += bound.feeds.const_bytes
            nests.append(bound)
        return nests

    @cached_property
    def _emitted(self) -> NestProgram:
        arguments = len(self.outputs) + len(self._read_inputs) + 1
        return emit_nests(self._bound, self.device, params_argument=arguments, turned=self._turned)


# What an operator answers from its nests, unless its class overrides it.
_MADE_OF_NESTS = ("transaction", "activations", "arg_map", "schedules")


def _images(nest: Nest) -> Iterator[Image]:
    """Its kernel for the type of its results, and the functions that it calls beside."""
    kernel = nest.kernel
    yield Image.of(kernel, nest.bound[kernel.outputs[0].name].dtype.name)
    for scalar in kernel.scalars:
        seen = nest.bound.get(kernel.seen_by(scalar).name)
        if scalar.table is not None and scalar.name in nest.scalars and seen is not None:
            yield Image.of_function(scalar.table, str(nest.scalars[scalar.name]), seen.dtype.name)


class Alias(NamedTuple):
    """``output`` is another name for bytes of ``source``, from byte ``offset`` on."""

    output: TensorSpec
    source: TensorSpec
    offset: int = 0


class WholeCopy(NamedTuple):
    """All bytes of input ``number``, one after the other, in the output from byte ``offset`` on."""

    number: int
    offset: int


@dataclass
class Lowering:
    """Collects what mapping functions emit for one graph."""

    device: Device
    ops: list[tuple[NodeSpec, Operator]] = field(default_factory=list)
    aliases: list[Alias] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # on the node in hand, for placements
    _node: NodeSpec | None = None
    _counter: int = 0

    def begin(self, node: NodeSpec) -> None:
        """Everything emitted from here on belongs to ``node``."""
        self._node = node
        self.remarks.clear()

    def remark(self, text: str) -> None:
        """Says something on the node in hand that its placement shows."""
        self.remarks.append(text)

    def emit(self, op: Operator) -> None:
        """Take ``op``. Raises ``Unsupported`` when it cannot run on the device."""
        if self._node is None:
            raise OperatorError("Lowering.emit", "no node", "a node in hand", "call begin(node) first")
        op.check_fits()
        self.ops.append((self._node, op))

    def alias(self, output: TensorSpec, source: TensorSpec, offset: int = 0) -> None:
        """``output`` holds bytes of ``source``, from byte ``offset`` on: no data moves."""
        self.aliases.append(Alias(output, source, offset))

    def temp(self, dtype: np.dtype[Any], shape: Sequence[int]) -> TensorSpec:
        """A new intermediate tensor of the node in hand."""
        self._counter += 1
        owner = self._node.name if self._node else "graph"
        return TensorSpec(f"{owner}//{self._counter}", np.dtype(dtype), tuple(shape))

    def const(self, value: np.ndarray[Any, Any]) -> TensorSpec:
        """A new compile-time constant."""
        self._counter += 1
        owner = self._node.name if self._node else "graph"
        return TensorSpec(f"{owner}//{self._counter}", value.dtype, value.shape, value)
