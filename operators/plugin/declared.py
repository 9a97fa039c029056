# SPDX-License-Identifier: Apache-2.0
"""What a kernel from outside says of itself, whatever the node: operands, scalars, scratch, code and work.

``Declared`` is checked whole where it is made; ``Placement`` is what an instance adds for one node (shapes,
index space, access), checked in ``placement.py``. Both are plain data: a Python class and a shared object
end in the same two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, OPEN
from onedispatch.operators.declarations.kernel import (
    INSTRUCTION_BYTES,
    MAX_DIMS,
    MAX_NAME_BYTES,
    MAX_OPERANDS,
    MAX_SCALARS,
    ONE_OP,
    SCALAR_TYPES,
    WORK,
    KernelDeclarationError,
    Scalar,
    Work,
)
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions.base.errors import KernelError
from onedispatch.transactions.base.text import counted, span
from onedispatch.transactions.machine.device import device_names, vocabulary

MAX_RANK = MAX_DIMS
MAX_AUX = 16
# ASSUMPTION: 128 instructions where a declaration says nothing: a loop over vectors with its set-up.
CODE_BYTES = 2048
RESERVED = frozenset({"origin", "shape", "index_space", "first", "print"})  # what a tile has of its own
HIDDEN = ("at_", "work_", "fill_", "pad_")  # begin the names of scalars that the engine adds

_NAME = re.compile(r"([a-z][a-z0-9_]*::[a-z][a-z0-9_]*)(@[1-9][0-9]*)?")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")
_NUMBERS = [name for name in SCALAR_TYPES if name != "function"]


@dataclass(frozen=True)
class In:
    """An input. ``dtypes``: one or more of ``DTYPES``, with spaces or ``|`` between; where it says nothing,
    those of the operand that it is ``like``, or f32. ``rank``: one, or (least, largest). ``pad``: what is
    read outside of the tensor (0). ``like``: an operand that must have the same dtype. ``quantised``: True
    where the tensor must have scale and zero point, False where it must not, None where all is well."""

    name: str
    dtypes: str = ""
    rank: int | tuple[int, int] = (0, MAX_RANK)
    pad: float | None = None
    optional: bool = False
    like: str = ""
    quantised: bool | None = None


@dataclass(frozen=True)
class Out:
    """An output: as ``In``. ``fill``: what elements hold that no member writes; without one every element of
    the tensor must be some member's."""

    name: str
    dtypes: str = ""
    rank: int | tuple[int, int] = (0, MAX_RANK)
    fill: float | None = None
    like: str = ""
    quantised: bool | None = None


@dataclass(frozen=True)
class Aux:
    """A constant tensor of the kernel's own (a table, reciprocals); each instance gives its values."""

    name: str
    dtype: str = "f32"


@dataclass(frozen=True)
class Scratch:
    """Memory of the core that a call may use as it likes; each instance says how much."""

    name: str
    dtype: str = "f32"


@dataclass(frozen=True)
class Interval:
    """What member ``i`` of index dimension ``dim`` touches along one dimension of a tensor:
    ``[floor(a*i) + start, floor(a*i) + end]``, both ends included. ``dim=None``: anything of it.

    ``a`` is a whole number or a ``Fraction`` (``Fraction(1, 2)``: two members share an element).
    """

    dim: int | None = None
    a: int | Fraction = 1
    start: int = 0
    end: int = 0

    @property
    def whole(self) -> bool:
        return self.dim is None

    @property
    def span(self) -> int:
        """Coordinates that one member touches."""
        return self.end - self.start + 1

    def first(self, member: int) -> int:
        """The first coordinate that ``member`` touches."""
        return math.floor(Fraction(self.a) * member) + self.start

    def __str__(self) -> str:
        if self.whole:
            return "whole"
        step = f"i{self.dim}" if self.a == 1 else f"{self.a}*i{self.dim}"
        return f"[{step}{self.start:+d}, {step}{self.end:+d}]" if self.start or self.end else f"[{step}]"


WHOLE_DIMENSION = Interval()


@dataclass(frozen=True)
class Placement:
    """A kernel instance for one node: everything that lowering needs, and nothing of the graph.

    ``outputs``: (dtype, shape) by name; ``access``: an ``Interval`` per tensor dimension, by operand;
    ``scratch``: bytes; ``work``: element operations per member, by term, and ``basis`` where these come from:
    the declaration, a count, or an assumption. ``preferred_split``: the index
    dimension that is best cut first. ``in_place``: outputs that may lie where an input lay, by name.
    """

    outputs: Mapping[str, tuple[str, tuple[int, ...]]]
    index_space: tuple[int, ...]
    access: Mapping[str, tuple[Interval, ...]]
    scalars: Mapping[str, float] = field(default_factory=dict)
    aux: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    scratch: Mapping[str, int] = field(default_factory=dict)
    pads: Mapping[str, float] = field(default_factory=dict)
    fills: Mapping[str, float] = field(default_factory=dict)
    work: Mapping[str, float] = field(default_factory=dict)
    preferred_split: int | None = None
    in_place: Mapping[str, str] = field(default_factory=dict)
    basis: Literal["declared", "counted", "assumed"] = "assumed"


@dataclass(frozen=True)
class Declared:
    """A kernel from outside. ``@1`` is added to a ``name`` without a version.

    ``devices``: names that it runs on, None for all. ``code_bytes``: program memory that it takes.
    ``work``: element operations per member. ``deterministic``: the same bits whenever it runs.
    ``in_place``: outputs that may lie where an input lay. ``library``: the shared object that holds the
    compiled body. ``prints``: 0 never, 1 yes, 2 one variable per line.
    Raises ``KernelDeclarationInvalidError`` for whatever could not be run.
    """

    name: str
    inputs: tuple[In, ...]
    outputs: tuple[Out, ...]
    scalars: tuple[Scalar, ...] = ()
    aux: tuple[Aux, ...] = ()
    scratch: tuple[Scratch, ...] = ()
    devices: tuple[str, ...] | None = None
    code_bytes: int = CODE_BYTES
    work: Work = ()
    deterministic: bool = True
    in_place: Mapping[str, str] = field(default_factory=dict, hash=False)
    reference: Callable[..., Any] | None = field(default=None, hash=False, compare=False)
    library: str = ""
    summary: str = ""
    prints: int = 0

    def __post_init__(self) -> None:
        self._check_name()
        self._check_kinds()
        if not _NAME.fullmatch(self.name)[2]:  # type: ignore[index]
            object.__setattr__(self, "name", f"{self.name}@1")
        self._check_names()
        self._check_counts()
        for operand in self.operands:
            self._check_operand(operand)
        self._check_aux()
        for scalar in self.scalars:
            self._check_scalar(scalar)
        self._check_rest()

    # -- what others ask -------------------------------------------------------------------

    @property
    def operands(self) -> tuple[In | Out, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)

    def operand(self, name: str) -> In | Out:
        return next(one for one in self.operands if one.name == name)

    @property
    def work_per_member(self) -> Work:
        """What a member's work is counted in, with the numbers that hold where a node says nothing."""
        return self.work or ONE_OP

    def dtypes_of(self, operand: In | Out) -> tuple[str, ...]:
        """The dtypes that an operand may have, in the order of its declaration."""
        if not operand.dtypes and operand.like:
            return self.dtypes_of(self.operand(operand.like))
        return tuple(dict.fromkeys(operand.dtypes.replace("|", " ").split())) or ("f32",)

    # -- checks ----------------------------------------------------------------------------

    def _refuse(self, what: str, given: object, accepted: str) -> KernelError:
        return refusal("declaration_invalid", f"kernel {self.name}: {what}", given, accepted)

    def _check_name(self) -> None:
        accepted = f"namespace::name or namespace::name@version, lower case, at most {MAX_NAME_BYTES} bytes"
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise refusal("declaration_invalid", "a kernel's name", repr(self.name), accepted)
        size = len(self.name.encode())
        if size > MAX_NAME_BYTES:
            raise refusal(
                "declaration_invalid", "a kernel's name", f"{self.name!r}, {counted(size, 'byte')}", accepted
            )

    def _check_kinds(self) -> None:
        """What no annotation holds a stranger to."""
        for what, kind in (("inputs", In), ("outputs", Out), ("scalars", Scalar)):
            self._check_each(what, kind)
        self._check_each("aux", Aux)
        self._check_each("scratch", Scratch)
        self._check_each("devices", str)
        for operand in self.operands:
            if not isinstance(operand.dtypes, str):
                raise self._refuse(f"dtypes of {operand.name}", repr(operand.dtypes), "text: 'f32|bf16'")
            rank = operand.rank if isinstance(operand.rank, tuple) else (operand.rank,) * 2
            if len(rank) != 2 or not all(isinstance(one, int) for one in rank):
                raise self._refuse(f"rank of {operand.name}", repr(operand.rank), "one, or (least, largest)")
        if not isinstance(self.code_bytes, int):
            raise self._refuse("code_bytes", repr(self.code_bytes), "a whole number")
        if not isinstance(self.library, str):
            raise self._refuse("library", repr(self.library), "the path of a shared object, as text")
        if self.reference is not None and not callable(self.reference):
            raise self._refuse("reference", repr(self.reference), "a function (node, *arrays)")

    def _check_each(self, what: str, kind: type) -> None:
        for one in getattr(self, what) or ():
            if not isinstance(one, kind):
                raise self._refuse(what, repr(one), f"text, or {kind.__name__} objects")

    def _check_names(self) -> None:
        named = [*self.operands, *self.aux, *self.scratch, *self.scalars]
        names = [one.name for one in named]
        for name in names:
            if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
                raise self._refuse("a name", repr(name), "lower-case letters, digits and underscores")
            if names.count(name) > 1:
                raise self._refuse("a name that stands twice", repr(name), "every name once")
            if name in RESERVED or name.startswith(HIDDEN):
                taken = ", ".join((*sorted(RESERVED), *(f"{begin}..." for begin in HIDDEN)))
                raise self._refuse("a name", repr(name), f"others than tiles have themselves: {taken}")

    def _check_counts(self) -> None:
        if not self.outputs:
            raise self._refuse("outputs", "none", "one output or more")
        if len(self.scalars) > MAX_SCALARS:
            given = f"{len(self.scalars)}, of which {self.scalars[MAX_SCALARS].name!r} is one too many"
            raise self._refuse("scalars", given, f"at most {MAX_SCALARS}")
        if len(self.operands) + len(self.aux) > MAX_OPERANDS:
            count = len(self.operands) + len(self.aux)
            raise self._refuse("inputs, outputs and auxiliary tensors", count, f"at most {MAX_OPERANDS}")
        if len(self.aux) + len(self.scratch) > MAX_AUX:
            count = len(self.aux) + len(self.scratch)
            raise self._refuse("auxiliary tensors, scratch among them", count, f"at most {MAX_AUX}")

    def _check_operand(self, operand: In | Out) -> None:
        name = operand.name
        least, most = ranks = ranks_of(operand)
        if not 0 <= least <= most <= MAX_RANK:
            raise self._refuse(f"rank of {name}", ranks, f"ranks of {span(0, MAX_RANK)}")
        like, seen = operand.like, [name]
        while like:
            others = [one.name for one in self.operands]
            if like not in others or like in seen:
                accepted = ", ".join(one for one in others if one != name) + ", not in a circle"
                raise self._refuse(f"operand that {name} is like", repr(like), accepted)
            seen.append(like)
            like = self.operand(like).like if not self.operand(seen[-2]).dtypes else ""
        unknown = [dtype for dtype in self.dtypes_of(operand) if dtype not in OPEN]
        if unknown:
            raise self._refuse(f"dtypes of {name}", ", ".join(unknown), ", ".join(OPEN))
        what, value = ("pad", operand.pad) if isinstance(operand, In) else ("fill", operand.fill)
        for dtype in self.dtypes_of(operand) if value is not None else ():
            if not holds(dtype, value):
                raise self._refuse(f"{what} of {name}", value, f"a value of {dtype}, which it may have")

    def _check_aux(self) -> None:
        constants: tuple[Aux | Scratch, ...] = (*self.aux, *self.scratch)
        for one in constants:
            if one.dtype not in OPEN:
                raise self._refuse(f"dtype of {one.name}", repr(one.dtype), ", ".join(OPEN))

    def _check_scalar(self, scalar: Scalar) -> None:
        if scalar.type not in _NUMBERS:
            raise self._refuse(f"type of scalar {scalar.name}", repr(scalar.type), ", ".join(_NUMBERS))
        low, high = scalar.bounds
        if not low <= high:
            raise self._refuse(f"bounds of scalar {scalar.name}", f"{low} to {high}", "least, then largest")
        if scalar.default is not None and not fits(scalar, scalar.default):
            raise self._refuse(f"default of scalar {scalar.name}", scalar.default, accepted_by(scalar))

    def _check_rest(self) -> None:
        if self.code_bytes <= 0 or self.code_bytes % INSTRUCTION_BYTES:
            raise self._refuse("code_bytes", self.code_bytes, f"a multiple of {INSTRUCTION_BYTES}, above 0")
        unknown = sorted({name.partition("_")[0] for name in self.devices or ()} - set(device_names()))
        if unknown:
            raise self._refuse("devices", ", ".join(unknown), ", ".join(device_names()))
        for dtype in self.dtypes_of(self.outputs[0]) if self.work else ():
            known = [term for term in WORK if f"kernel.{DTYPES[dtype].rates}_{term}_cycles" in vocabulary()]
            uncounted = [term for term, _ in self.work if term not in known]
            if uncounted:
                raise self._refuse(f"work on {dtype}", ", ".join(uncounted), ", ".join(known))
        outputs, inputs = {one.name for one in self.outputs}, {one.name for one in self.inputs}
        for out, source in self.in_place.items():
            if out not in outputs or source not in inputs:
                raise self._refuse("in_place", f"{out}: {source}", "an input for an output, by name")


def ranks_of(operand: In | Out) -> tuple[int, int]:
    """The least and the largest rank of an operand."""
    return operand.rank if isinstance(operand.rank, tuple) else (operand.rank, operand.rank)


def holds(dtype: str, value: Any) -> bool:
    """Whether ``value`` is a number that elements of ``dtype`` can be: integers neither round nor wrap."""
    return is_number(value) and DTYPES[dtype].holds(float(value))


def is_number(value: Any) -> bool:
    """Whether it is one that a float can be."""
    if not isinstance(value, int | float | np.number | np.bool_) or isinstance(value, np.complexfloating):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def fits(scalar: Scalar, value: Any) -> bool:
    """Whether ``value`` is a number, and one of the scalar's."""
    low, high = scalar.bounds
    return is_number(value) and low <= value <= high and (scalar.type == "f32" or float(value).is_integer())


def accepted_by(scalar: Scalar) -> str:
    low, high = scalar.bounds
    kind = "a number" if scalar.type == "f32" else "a whole number"
    return kind if (low, high) == (-math.inf, math.inf) else f"{kind} from {low:g} to {high:g}"


def declaration_refused(name: str, error: KernelDeclarationError) -> KernelError:
    """What the engine says against a declaration, as this folder says it."""
    where, _, said = str(error).partition(": given ")
    given, _, accepted = said.partition("; accepted: ")
    return refusal("declaration_invalid", where or f"kernel {name}", given, accepted)


# -- short forms ---------------------------------------------------------------------------------


def operands(
    kind: type[In] | type[Out], given: Any, first: In | None = None, dtypes: str = ""
) -> tuple[Any, ...]:
    """Operands as they may be written: ``"x y"``, ``"x:f32|bf16 y z?"``, or a list of ``In`` or ``Out``.

    In text, ``:`` names dtypes and ``?`` an operand that may be absent. One without dtypes has those of the
    first input (``first``, of ``outputs``), and must have the same one; the first has ``dtypes``, or f32.
    """
    if isinstance(given, In | Out):
        given = [given]
    if not isinstance(given, str):
        found = tuple(given) if isinstance(given, Sequence) else (given,)
        wrong = [one for one in found if not isinstance(one, kind)]
        if wrong:
            accepted = f"text such as 'x y', or od.{kind.__name__} objects"
            raise refusal("declaration_invalid", f"{kind.__name__} operands", repr(wrong[0]), accepted)
        return found
    found = ()
    for token in given.replace(",", " ").split():
        name, _, said = token.partition(":")
        optional = token.endswith("?")
        name, said = name.rstrip("?"), said.rstrip("?") or ("" if first else dtypes)
        more = {"optional": True} if optional and kind is In else {}
        if optional and kind is Out:
            raise refusal("declaration_invalid", "outputs", token, "outputs without '?': all are always made")
        one = kind(name, said, like="" if said or first is None else first.name, **more)
        first = first or (one if isinstance(one, In) else None)
        found = (*found, one)
    return found


def scalars(given: Any) -> tuple[Scalar, ...]:
    """Scalars as they may be written: a list of ``od.Scalar``, or types by name, with a default or not:
    ``{"a": "f32", "n": ("u32", 1), "m": od.Scalar("m", "i32", low=0)}``."""
    if not isinstance(given, Mapping):
        return tuple(given) if isinstance(given, Sequence) else (given,)
    found = []
    for name, said in given.items():
        if isinstance(said, Scalar):
            found.append(said)
        elif isinstance(said, str):
            found.append(Scalar(name, said))  # type: ignore[arg-type]
        elif isinstance(said, tuple) and 1 <= len(said) <= 2:
            found.append(Scalar(name, said[0], default=said[1] if len(said) > 1 else None))
        else:
            accepted = 'a type ("f32"), a type and a default (("f32", 1.0)), or od.Scalar'
            raise refusal("declaration_invalid", f"scalar {name}", repr(said), accepted)
    return tuple(found)


def typed_names(kind: type[Aux] | type[Scratch], given: Any) -> tuple[Any, ...]:
    """Auxiliary tensors or scratch as they may be written: ``"table recip:bf16"``, or a list of objects."""
    if not isinstance(given, str):
        return tuple(given) if isinstance(given, Sequence) else (given,)
    parts = (token.partition(":") for token in given.replace(",", " ").split())
    return tuple(kind(name, dtype or "f32") for name, _, dtype in parts)
