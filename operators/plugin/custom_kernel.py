# SPDX-License-Identifier: Apache-2.0
"""The declaration of a custom kernel, for any node: a member kernel whose author is not this package.

What its author does not say follows from what is said: element types of operands that are like others, what a
call costs, and hidden scalars, which every instance gives (where scratch begins, pads and fills, the work of
a member). The declaration alone decides which there are, so that a Python body and its compiled twin have one
digest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, OPEN, DType
from onedispatch.operators.declarations.expressions import NOTHING, Expr
from onedispatch.operators.declarations.formulas import ENTRY, ROW, accesses, busiest, chunk, filling
from onedispatch.operators.declarations.kernel import (
    MAX_NAME_BYTES,
    ONE_OP,
    SCALAR_TYPES,
    WORK,
    Joins,
    Kernel,
    Scalar,
    Tensor,
    Work,
)
from onedispatch.operators.plugin.operands import Aux, In, Out, Scratch
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions import find_device
from onedispatch.transactions.base.errors import DeviceError, KernelError
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.machine.device import device_names, vocabulary

MAX_AUX = 16
# ASSUMPTION: 128 instructions where a declaration says nothing: a loop over vectors with its set-up.
CODE_BYTES = 2048
RESERVED = frozenset({"origin", "shape", "index_space", "first", "print"})  # what a tile has of its own
HIDDEN = ("at_", "work_", "fill_", "pad_")  # begin the names of hidden scalars
RANK = "rank"  # of the first output's tensor, as a hidden scalar
SCRATCH_BYTES = "scratch_bytes"


@dataclass(frozen=True)
class CustomKernel(Kernel):
    """A custom kernel (from a plug-in). ``@1`` is added to a ``name`` without a version.

    ``devices``: names that it runs on, None for all. ``work``: element operations per member.
    ``deterministic``: the same bits whenever it runs. ``in_place``: outputs that may lie where an input lay.
    ``library``: the shared object that holds the compiled body.
    Raises ``KernelDeclarationInvalidError`` for declarations that cannot be run.
    """

    named_dtypes: ClassVar[Mapping[str, DType]] = OPEN
    scalar_types: ClassVar[Sequence[str]] = [name for name in SCALAR_TYPES if name != "function"]

    cost: Expr = field(init=False, default=NOTHING)
    dims: tuple[str, ...] = field(init=False, default=())
    scratch: Expr = field(init=False, default=NOTHING)
    keeps_scratch: bool = field(init=False, default=False)
    sums: Expr = field(init=False, default=NOTHING)
    types: tuple[Mapping[str, str], ...] = field(init=False, default=(), hash=False)
    reduces: bool = field(init=False, default=False)
    code_bytes: int = CODE_BYTES
    members: bool = field(init=False, default=True)
    joins: Joins = field(init=False, default="no")
    ulp: int = field(init=False, default=1)
    scratch_tensors: tuple[Tensor, ...] = ()
    devices: tuple[str, ...] | None = None
    work: Work = ()
    deterministic: bool = True
    in_place: Mapping[str, str] = field(default_factory=dict, hash=False)
    reference: Callable[..., Any] | None = field(default=None, hash=False, compare=False)
    library: str = ""

    def __post_init__(self) -> None:
        self._check_written_name()
        self._derive(name=self.name if "@" in self.name else f"{self.name}@1")
        self._check_kinds()
        self._check_unique(tensor.name for tensor in self.typed_tensors)
        self._derive(
            inputs=tuple(map(self._resolved, self.inputs)), outputs=tuple(map(self._resolved, self.outputs))
        )
        self._derive(scalars=(*self.scalars, *_hidden(self)))
        if self.outputs:  # else refused below
            self._derive(cost=_cost(self))
        if self.scratch_tensors:
            self._derive(scratch=e.scalar(SCRATCH_BYTES))
        super().__post_init__()
        self._check_rest()

    def _derive(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    # -- what others ask -------------------------------------------------------------------

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def typed_tensors(self) -> tuple[Tensor, ...]:
        return (*self.tensors, *self.scratch_tensors)

    @property
    def work_per_member(self) -> Work:
        """What a member's work is counted in, with the numbers that hold where a node says nothing."""
        return self.work or ONE_OP

    def runs_on(self, device: str) -> bool:
        """Whether ``device``, or the device that it is a column partition of, is one of ``devices``."""
        if self.devices is None:
            return True
        parts = [one.partition("_") for one in self.devices]
        names = [find_device(name).name + "".join(columns) for name, *columns in parts]
        return any(device == name or device.startswith(f"{name}_") for name in names)

    # -- checks ----------------------------------------------------------------------------

    def _refuse(self, what: str, given: object, accepted: str) -> KernelError:
        return refusal("declaration_invalid", f"kernel {self.name}: {what}", given, accepted)

    def _check_written_name(self) -> None:
        """The name is text that is short enough as the author writes it, version or none."""
        accepted = f"namespace::name or namespace::name@version, lower case, at most {MAX_NAME_BYTES} bytes"
        if not isinstance(self.name, str):
            raise refusal("declaration_invalid", "a kernel's name", repr(self.name), accepted)
        size = len(self.name.encode())
        if size > MAX_NAME_BYTES:
            given = f"{self.name!r}, {counted(size, 'byte')}"
            raise refusal("declaration_invalid", "a kernel's name", given, accepted)

    def _check_kinds(self) -> None:
        """What annotations promise: authors may write anything."""
        for what, given, kind in (
            ("inputs", self.inputs, In),
            ("outputs", self.outputs, Out),
            ("scalars", self.scalars, Scalar),
            ("aux", self.aux, Aux),
            ("scratch", self.scratch_tensors, Scratch),
            ("devices", self.devices or (), str),
        ):
            for one in given:
                if not isinstance(one, kind):
                    raise self._refuse(what, repr(one), f"text, or {kind.__name__} objects")
        for name in (*(t.name for t in self.typed_tensors), *(s.name for s in self.scalars)):
            if not isinstance(name, str):
                raise self._refuse("a name", repr(name), "text")
            if name in RESERVED or name.startswith(HIDDEN):
                taken = ", ".join((*sorted(RESERVED), *(f"{begin}..." for begin in HIDDEN)))
                raise self._refuse("a name", repr(name), f"others than tiles have themselves: {taken}")
        hidden = [one.name for one in self.scalars if one.hidden]
        if hidden:
            raise self._refuse("hidden scalars", ", ".join(hidden), "scalars that nodes give")
        for tensor in self.typed_tensors:
            if not isinstance(tensor.dtypes, str):
                raise self._refuse(f"dtypes of {tensor.name}", repr(tensor.dtypes), "text: 'f32|bf16'")
            for what, accepted in (("optional", (False, True)), ("quantised", (None, False, True))):
                given = getattr(tensor, what)
                if not any(given is one for one in accepted):
                    raise self._refuse(f"{what} of {tensor.name}", repr(given), ", ".join(map(str, accepted)))
            if len(tensor.rank) != 2 or not all(isinstance(one, int) for one in tensor.rank):
                raise self._refuse(f"rank of {tensor.name}", repr(tensor.rank), "one, or (least, largest)")
        if not isinstance(self.code_bytes, int):
            raise self._refuse("code_bytes", repr(self.code_bytes), "a whole number")
        if not isinstance(self.deterministic, bool):
            raise self._refuse("deterministic", repr(self.deterministic), "True or False")
        if not isinstance(self.library, str):
            raise self._refuse("library", repr(self.library), "the path of a shared object, as text")
        if self.reference is not None and not callable(self.reference):
            raise self._refuse("reference", repr(self.reference), "a function (node, *arrays)")

    def _resolved(self, one: Tensor) -> Tensor:
        """The operand with its element types named."""
        facts = {part.name: getattr(one, part.name) for part in fields(Tensor)}
        return Tensor(**facts | {"dtypes": self._dtypes_of(one)})

    def _dtypes_of(self, one: Tensor, seen: tuple[str, ...] = ()) -> str:
        """Its own element types, or those of the operand that it is like."""
        others = {other.name: other for other in self.operands if other.name != one.name}
        if one.like and (one.like not in others or one.like in seen):
            accepted = f"{', '.join(others) or 'another operand'}, not in a circle"
            raise self._refuse(f"operand that {one.name} is like", repr(one.like), accepted)
        if one.dtypes or not one.like:
            return one.dtypes or "f32"
        return self._dtypes_of(others[one.like], (*seen, one.name))

    def _check_rest(self) -> None:
        count = len(self.aux) + len(self.scratch_tensors)
        if count > MAX_AUX:
            raise self._refuse("auxiliary tensors, scratch among them", count, f"at most {MAX_AUX}")
        for one in self.scratch_tensors:
            if len(one.dtype_names) != 1:
                raise self._refuse(f"element types of {one.name}", one.dtypes or "none", "one, of scratch")
        unknown = sorted(name for name in self.devices or () if not _is_device(name))
        if unknown:
            raise self._refuse("devices", ", ".join(unknown), ", ".join(device_names()))
        for dtype in self.outputs[0].dtype_names if self.work else ():
            known = [term for term in WORK if f"kernel.{DTYPES[dtype].rates}_{term}_cycles" in vocabulary()]
            uncounted = [term for term, _ in self.work if term not in known]
            if uncounted:
                raise self._refuse(f"work on {dtype}", ", ".join(uncounted), ", ".join(known))
        outputs, inputs = {one.name for one in self.outputs}, {one.name for one in self.inputs}
        for out, source in self.in_place.items():
            if out not in outputs or source not in inputs:
                raise self._refuse("in_place", f"{out}: {source}", "an input for an output, by name")


def _is_device(name: str) -> bool:
    """True for a device, or the column partition of one."""
    try:
        find_device(name)
    except DeviceError:
        return False
    return True


# -- what follows from what is said ------------------------------------------------------------


def _hidden(kernel: CustomKernel) -> list[Scalar]:
    hidden = [Scalar(RANK, "u32", hidden=True)]
    hidden += [Scalar(f"work_{term}", "f32", hidden=True) for term, _ in kernel.work_per_member]
    hidden += [Scalar(f"pad_{one.name}", "f32", hidden=True) for one in kernel.inputs]
    hidden += [Scalar(f"fill_{one.name}", "f32", hidden=True) for one in kernel.outputs]
    if kernel.scratch_tensors:
        hidden.append(Scalar(SCRATCH_BYTES, "u32", hidden=True))
        hidden += [Scalar(f"at_{one.name}", "u32", hidden=True) for one in kernel.scratch_tensors]
    return hidden


def _cost(kernel: CustomKernel) -> Expr:
    """Rows of the first output's chunk; every chunk is loaded or stored once beside the members' work.

    ASSUMPTION: a vector is loaded once per call however many members read it.
    """
    first = kernel.outputs[0]
    loads = stores = fills = price = e.as_expr(0)
    for one in kernel.inputs:
        loads = loads + e.present(one.name) * _accesses(one)
    for aux in kernel.aux:
        loads = loads + _accesses(aux)
    for out in kernel.outputs:
        stores = stores + _accesses(out)
        fills = fills + filling(out.name, list(out.axis_names))
    for term, _ in kernel.work_per_member:
        price = price + e.scalar(f"work_{term}") * e.device(f"{term}_cycles", first.name)
    work = e.named("work", e.ELEMENTS * price / e.device("lanes", first.name))
    rows = e.as_expr(1)
    for i, axis in enumerate(first.axis_names):
        inner = e.differs(e.scalar(RANK), i + 1)  # 0 of the last dimension
        rows = rows * (1 + inner * (e.count(first.name, axis) - 1))
    return (
        ENTRY
        + fills
        + e.named("rows", rows) * ROW
        + busiest(loads / e.device("loads_per_cycle"), stores, work)
    )


def _accesses(tensor: Tensor) -> Expr:
    return accesses(chunk(tensor.name, list(tensor.axis_names)), tensor.name)
