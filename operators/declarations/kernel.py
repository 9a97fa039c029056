# SPDX-License-Identifier: Apache-2.0
"""Kernel declarations: what a core can compute, once, as data.

A ``Kernel`` says what a call takes (operands, scalars, index dimensions, scratch), what a call costs and
how much program memory it needs. From it come the words of the parameter block, the C structures and
checks (``operators/codegen/genheader.py``), the cost on both sides, and what ``onedispatch kernel show``
prints.

Words of a kernel's part of the block, in this order: one per named dimension (which index dimension
it is); per operand a reference (port, element type and byte offset, or ``ABSENT``), and for inputs five
words per axis (an output's chunk is the tile, row-major over its axes); one per scalar.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from onedispatch.operators.declarations import members
from onedispatch.operators.declarations.dtypes import DTYPES, DType, is_number
from onedispatch.operators.declarations.expressions import NOTHING, Expr, ExprOp
from onedispatch.operators.declarations.function_table import FREE as FREE
from onedispatch.operators.declarations.function_table import INSTRUCTION_BYTES as INSTRUCTION_BYTES
from onedispatch.operators.declarations.function_table import MARK_SHIFT as MARK_SHIFT
from onedispatch.operators.declarations.function_table import ONE_OP as ONE_OP
from onedispatch.operators.declarations.function_table import WORK as WORK
from onedispatch.operators.declarations.function_table import WORK_TERMS as WORK_TERMS
from onedispatch.operators.declarations.function_table import Function as Function
from onedispatch.operators.declarations.function_table import FunctionTable as FunctionTable
from onedispatch.operators.declarations.function_table import KernelDeclarationError as KernelDeclarationError
from onedispatch.operators.declarations.function_table import Work as Work
from onedispatch.operators.declarations.function_table import work as work
from onedispatch.transactions.base.cached import cached_property

MAX_DIMS = 5  # parallel index dimensions
MAX_AXES = MAX_DIMS + 1  # of an operand: all dimensions and the reduction
MAX_OPERANDS = 16
MAX_SCALARS = 32  # that a declaration names
MAX_HIDDEN_SCALARS = 32  # that instances of member kernels need beside
MAX_NAME_BYTES = 64
MAX_STACK = 32  # values that a formula holds at once
MAX_KEPT = 64  # and keeps for what it computes later
MAX_CYCLES = 2**53  # of a call, and of a clock: so far doubles count one by one
AXIS_WORDS = 5
WORDS = 128  # of a parameter block; kernels that need more have longer ones
PIECES = (1, 2, 4)  # in which blocks come; cores have a descriptor for each
MAX_WORDS = PIECES[-1] * WORDS
ARGS_AT = 40  # where the kernel's part begins
K_AXIS = "k"  # the axis along the reduction
WHOLE = "*"  # begins the name of an axis that no index dimension walks: all of it is in every chunk

_NAME = re.compile(r"([a-z][a-z0-9_]*)::([a-z][a-z0-9_]*)@([1-9][0-9]*)")
_NAMED = f"namespace::name@version, lower case, at most {MAX_NAME_BYTES} bytes"
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")

ScalarType = Literal["u32", "i32", "f32", "function"]
Walk = Literal["unit", "affine", "interval", "fraction"]
Prints = Literal["no", "yes", "one"]
Joins = Literal["no", "tiles", "columns", "steps", "panels"]
# Their codes in C are their positions.
SCALAR_TYPES: tuple[str, ...] = get_args(ScalarType)
WALKS: tuple[str, ...] = get_args(Walk)
PRINTS: tuple[str, ...] = get_args(Prints)
JOINS: tuple[str, ...] = get_args(Joins)
ROLES = ("input", "aux", "output")
NO_OPERAND = 255  # in an instruction of a formula
# In C: the dimension of an axis that follows none of the index; of one for which the block says it.
ALONG_BLOCK, ALONG_REDUCTION, ALONG_NOTHING = 253, 254, 255
NO_SCALAR = 255  # in C: no scalar says it
NO_MEMBER = 2**32 - 1  # of a line that is printed: a dimension that the index space does not have
_BOUNDS: dict[str, tuple[float, float]] = {
    "u32": (0, 2**32 - 1),
    "i32": (-(2**31), 2**31 - 1),
    "f32": (-math.inf, math.inf),
}


@dataclass(frozen=True)
class Scalar:
    """A word that stays the same for a whole operation: a number in bounds, or a function.

    ``hidden`` ones are what an instance of a member kernel says beside its own scalars: ``fill_<output>``
    and ``pad_<input>`` (floats; NaN for none) stand for the operand's own, others for what its formulas name.
    """

    name: str
    type: ScalarType = "u32"
    low: float | None = None
    high: float | None = None
    default: float | None = None
    table: FunctionTable | None = None
    of: str = ""  # the operand whose element type a function is for: the first output, unless named
    hidden: bool = False

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest value, ends included."""
        if self.type == "function":
            return 0, len(self.table.rows) - 1 if self.table else 0
        low, high = _BOUNDS[self.type]
        return (low if self.low is None else self.low), (high if self.high is None else self.high)

    @property
    def is_unbounded(self) -> bool:
        """True for a float of any value."""
        return self.bounds == (-math.inf, math.inf)

    def takes(self, value: Any) -> bool:
        """Whether ``value`` is a number, and one of the scalar's."""
        low, high = self.bounds
        within = is_number(value) and low <= value <= high
        return within and (self.type == "f32" or float(value).is_integer())

    @property
    def accepted(self) -> str:
        """What ``takes`` is true of, in words."""
        low, high = self.bounds
        kind = "a number" if self.type == "f32" else "a whole number"
        return kind if self.is_unbounded else f"{kind} from {low:g} to {high:g}"


def chooses(name: str, table: FunctionTable, of: str = "") -> Scalar:
    """A scalar that names one of ``table``'s functions; they see elements of operand ``of``."""
    return Scalar(name, "function", default=0, table=table, of=of)


@dataclass(frozen=True)
class Tensor:
    """An operand. ``axes``: names of the kernel's dimensions, ``k``, or ``*name`` for a whole extent.

    ``"..."`` stands for all five index dimensions. ``optional`` operands may be absent; without
    ``k`` members all inputs along the reduction may be. ``walk``: how the kernel finds what member
    ``i`` of an index dimension touches, ``[a*i/den + start, a*i/den + end]``: coordinate ``i`` alone
    (unit), ``a*i + start`` alone (affine), ``a*i/den + start`` alone (fraction), or any interval.
    ``like`` names an operand that must have the same element type. ``pad`` stands for elements outside of
    an input, ``fill`` for elements of an output that the kernel computes nothing for; the kernel finds
    both in its declaration.

    Operands of member kernels name no axes but the least and the largest ``rank`` of their tensors: axis
    ``t0`` is the tensor's first dimension, or the one element of a tensor without dimensions.
    ``quantised``: True where the tensor must have scale and zero point, False where it must not.
    """

    name: str
    axes: str
    dtypes: str = "f32"
    optional: bool = False
    walk: Walk = "unit"
    like: str = ""
    pad: float | None = None
    fill: float | None = None
    # Of auxiliary tensors: the extent along every axis, and the values for given scalars.
    shape: tuple[int, ...] = ()
    values: Callable[[Mapping[str, Any]], Any] | None = None
    rank: tuple[int, int] = (0, 0)
    quantised: bool | None = None

    def computed(self, scalars: Mapping[str, Any]) -> Any:
        """An auxiliary tensor's values. Raises ``KernelDeclarationError`` for another shape."""
        assert self.values is not None  # what the declaration was checked for
        found = np.asarray(self.values(scalars), DTYPES[self.dtypes].numpy)
        if found.shape != self.shape:
            raise KernelDeclarationError(
                f"auxiliary tensor {self.name}: values of shape {found.shape}; accepted: {self.shape}"
            )
        return found

    @cached_property
    def axis_names(self) -> tuple[str, ...]:
        if self.axes == "...":
            return tuple(f"d{i}" for i in range(MAX_DIMS))
        if not self.axes:
            return tuple(f"t{i}" for i in range(max(self.rank[1], 1)))
        return tuple(self.axes.split())

    @property
    def dtype_names(self) -> tuple[str, ...]:
        """The element types that it may have, in the order of the declaration."""
        return tuple(self.dtypes.split())

    @property
    def accepted_walk(self) -> str:
        """What of the tensor member ``i`` of an index dimension may touch."""
        return {
            "unit": "i",
            "affine": "a*i + start",
            "fraction": "floor(a*i/den) + start",
            "interval": "floor(a*i/den) + start to + end",
        }[self.walk]

    @property
    def words(self) -> int:
        """Words of the operand in the block, as an input."""
        return 1 + AXIS_WORDS * len(self.axis_names)


@dataclass(frozen=True)
class Kernel:
    """One kernel. ``cost``: core cycles of one call, before rounding up.

    ``code_bytes``: program memory that the kernel takes, all of its sealed functions included, for each
    element type of its first output that it is linked for.

    A *member kernel* (``members``) declares neither dimensions nor axes: index space, and what a member
    touches of every dimension of every operand, are said by the parameter block of each instance. Its
    calls take whole boxes of members, and the super kernel fills their output chunks before.

    ``ulp``: how far floats of two bytes may be from exact results that are rounded once, in units of their
    last place; where sums cancel, what float32 leaves of them counts beside it.

    Raises ``KernelDeclarationError`` on construction for whatever could not be run.
    """

    # What declarations of this class may name.
    named_dtypes: ClassVar[Mapping[str, DType]] = DTYPES
    scalar_types: ClassVar[Sequence[str]] = SCALAR_TYPES

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    cost: Expr
    dims: tuple[str, ...] = ()  # named index dimensions, outermost first; () takes them as they come
    scalars: tuple[Scalar, ...] = ()
    aux: tuple[Tensor, ...] = ()  # constants of the kernel's own: tables, reciprocals
    scratch: Expr = NOTHING  # bytes of core memory that a call may use as it likes, what is kept first
    keeps_scratch: bool = False  # what a step leaves in scratch is there in the next one of the same tile
    sums: Expr = (
        NOTHING  # bytes of scratch, its first, where the output's sums wait: the last step alone writes it
    )
    # Element types that go together, by operand; one that a row leaves out is absent there. () : all do.
    types: tuple[Mapping[str, str], ...] = field(default=(), hash=False)
    reduces: bool = False
    code_bytes: int = 0
    prints: Prints = "no"  # "one": at most one value beside the text of a line
    # What one call may compute instead of many, to the same bits, wherever its operands lie: tiles that are
    # neighbours along the index; those and, where inputs of neighbouring results lie together, which are then
    # added up one member after the other, the steps of their reduction ("columns"); those and the steps
    # everywhere, with results that go where their tensor lies ("steps"); the same, also where weights lie in
    # panels, as chunks had them ("panels").
    joins: Joins = "no"
    # Dimensions whose members are positions for the kernel, not only where chunks begin: none is cut in two.
    positions: tuple[str, ...] = ()
    summary: str = ""
    members: bool = False
    ulp: int = 1

    def __post_init__(self) -> None:
        self._check_members()
        self._check_names()
        self._check_types()
        self._check_sizes()
        self._check_scalars()
        self._check_aux()
        self._check_pads()
        self._check_formula("cost", self.cost)
        self._check_formula("scratch", self.scratch)
        self._check_formula("sums", self.sums)
        for leaf in (*self.scratch.leaves(), *self.sums.leaves()):
            if leaf.op in (ExprOp.K, ExprOp.LAST):
                raise self._refuse("scratch", str(leaf), "quantities that all calls of an operation share")
        if self.keeps_scratch and not (self.scratches and self.reduces):
            raise self._refuse("keeps_scratch", "True", "True with scratch and a reduction")
        if self.sums != NOTHING and not (self.keeps_scratch and len(self.outputs) == 1):
            raise self._refuse("sums", str(self.sums), "sums of one output in scratch that is kept")

    # -- checks ----------------------------------------------------------------------------

    def _refuse(self, what: str, given: object, accepted: str) -> Exception:
        return KernelDeclarationError(f"kernel {self.name}: {what}: given {given}; accepted: {accepted}")

    def _check_unique(self, names: Iterable[str]) -> None:
        seen = set[str]()
        for name in names:
            if name in seen:
                raise self._refuse("a name that stands twice", repr(name), "every name once")
            seen.add(name)

    def _check_names(self) -> None:
        # A first version need not be written: it counts for nothing.
        if not _NAME.fullmatch(self.name) or len(self.name.removesuffix("@1").encode()) > MAX_NAME_BYTES:
            raise self._refuse("name", repr(self.name), _NAMED)
        names = [*self.dims, *(t.name for t in self.typed_tensors), *(s.name for s in self.scalars)]
        self._check_unique(names)
        for name in names:
            if not _IDENTIFIER.fullmatch(name):
                raise self._refuse("a name", repr(name), "lower-case letters, digits and underscores")
        if not self.outputs:
            raise self._refuse("outputs", "none", "one output or more")
        known = {*self.dims, K_AXIS} if self.reduces else set(self.dims)
        for tensor in self.tensors:
            for axis in tensor.axes.split() if tensor.axes != "..." else ():
                if axis not in known and not axis.startswith(WHOLE):
                    raise self._refuse(f"axis of {tensor.name}", axis, f"{sorted(known)} or *name")
            if tensor.like and tensor.like not in [t.name for t in self.tensors if t is not tensor]:
                raise self._refuse(f"operand that {tensor.name} is like", tensor.like, "another operand")

    def _check_types(self) -> None:
        """Element types are known; rows name what the operands say, no less and no more."""
        for tensor in self.typed_tensors:
            unknown = [name for name in tensor.dtype_names if name not in self.named_dtypes]
            if unknown:
                accepted = ", ".join(self.named_dtypes)
                raise self._refuse(f"element types of {tensor.name}", ", ".join(unknown), accepted)
        for tensor in self.tensors if self.types else ():
            said = {dtype for row in self.types for dtype in row.get(tensor.name, "").split()}
            if said != set(tensor.dtypes.split()):
                raise self._refuse(f"rows of types, {tensor.name}", sorted(said), tensor.dtypes)
            if not tensor.optional and any(tensor.name not in row for row in self.types):
                raise self._refuse(f"rows of types, {tensor.name}", "none in a row", "some in every row")
        known = {tensor.name for tensor in self.tensors}
        unknown_rows = {name for row in self.types for name in row} - known
        if unknown_rows:
            raise self._refuse("rows of types", sorted(unknown_rows), ", ".join(sorted(known)))

    def _check_sizes(self) -> None:
        if len(self.dims) > MAX_DIMS:
            raise self._refuse("dimensions", len(self.dims), f"at most {MAX_DIMS}")
        if len(self.tensors) > MAX_OPERANDS:
            raise self._refuse("operands", len(self.tensors), f"at most {MAX_OPERANDS}")
        for tensor in self.tensors:
            if len(tensor.axis_names) > MAX_AXES:
                raise self._refuse(f"axes of {tensor.name}", len(tensor.axis_names), f"at most {MAX_AXES}")
        for what, hidden, most in (
            ("scalars", False, MAX_SCALARS),
            ("hidden scalars", True, MAX_HIDDEN_SCALARS),
        ):
            those = [s.name for s in self.scalars if s.hidden is hidden]
            if len(those) > most:
                given = f"{len(those)}, of which {those[most]!r} is one too many"
                raise self._refuse(what, given, f"at most {most}")
        if self.prints not in PRINTS:
            raise self._refuse("prints", repr(self.prints), ", ".join(map(repr, PRINTS)))
        if self.joins not in JOINS:
            raise self._refuse("joins", repr(self.joins), ", ".join(map(repr, JOINS)))
        if self.joins in ("columns", "steps") and not self.reduces:
            raise self._refuse("joins", repr(self.joins), "that with a reduction")
        if not set(self.positions) <= set(self.dims):
            raise self._refuse("positions", ", ".join(self.positions), f"dimensions: {', '.join(self.dims)}")
        if self.code_bytes <= 0 or self.code_bytes % INSTRUCTION_BYTES:
            accepted = f"a multiple of {INSTRUCTION_BYTES}, above 0: what it takes of program memory"
            raise self._refuse("code_bytes", self.code_bytes, accepted)
        if self.words_used > MAX_WORDS:
            raise self._refuse("words of the parameter block", self.words_used, f"at most {MAX_WORDS}")

    def _check_scalars(self) -> None:
        for s in self.scalars:
            if s.type not in self.scalar_types:
                raise self._refuse(f"type of scalar {s.name}", repr(s.type), ", ".join(self.scalar_types))
            low, high = s.bounds
            if not low <= high:
                given = f"{low} to {high}"
                raise self._refuse(f"bounds of scalar {s.name}", given, "least, then largest")
            if s.default is not None and not s.takes(s.default):
                raise self._refuse(f"default of scalar {s.name}", s.default, s.accepted)
            if (s.type == "function") != (s.table is not None):
                raise self._refuse(f"scalar {s.name}", s.type, "a table with type 'function', and only there")
            if s.of and s.of not in [t.name for t in self.tensors]:
                raise self._refuse(f"operand of scalar {s.name}", s.of, "one of the kernel's")

    def _check_pads(self) -> None:
        for tensor in self.tensors:
            for what, value, there in (
                ("pad", tensor.pad, tensor in self.inputs),
                ("fill", tensor.fill, tensor in self.outputs),
            ):
                if value is None:
                    continue
                if not there:
                    raise self._refuse(f"{what} of {tensor.name}", value, "pads of inputs, fills of outputs")
                for name in tensor.dtype_names:
                    if not DTYPES[name].holds(value):
                        accepted = f"a value of {name}, which it may have"
                        raise self._refuse(f"{what} of {tensor.name}", value, accepted)

    def _check_members(self) -> None:
        wrong = members.fault(self)
        if wrong is not None:
            raise self._refuse(*wrong)

    def _check_aux(self) -> None:
        for t in self.aux:
            if self.members:  # geometry and values are the instance's
                if t.shape or t.values is not None or len(t.dtypes.split()) != 1:
                    accepted = "one element type; shape and values come with every instance"
                    raise self._refuse(f"auxiliary tensor {t.name}", f"{t.shape} of {t.dtypes}", accepted)
                continue
            whole = t.axes != "..." and all(axis.startswith(WHOLE) for axis in t.axis_names)
            if not (whole and len(t.shape) == len(t.axis_names) and t.values is not None):
                accepted = "axes *name, an extent for each, and the values"
                raise self._refuse(
                    f"auxiliary tensor {t.name}", f"axes {t.axes!r}, shape {t.shape}", accepted
                )
            if any(extent < 1 for extent in t.shape) or len(t.dtypes.split()) != 1 or t.optional:
                accepted = "extents of 1 or more, one element type, always there"
                raise self._refuse(f"auxiliary tensor {t.name}", f"{t.shape} of {t.dtypes}", accepted)
        for t in (*self.inputs, *self.outputs):
            if t.shape or t.values is not None:
                raise self._refuse(
                    f"shape or values of {t.name}", t.shape, "auxiliary tensors alone have them"
                )

    def _check_formula(self, what: str, formula: Expr) -> None:
        tensors = {t.name: t.axis_names for t in self.tensors}
        scalars = {s.name for s in self.scalars}
        tables = {s.name for s in self.scalars if s.table is not None}
        if formula.depth > MAX_STACK:
            raise self._refuse(what, f"a stack of {formula.depth}", f"at most {MAX_STACK}")
        outputs = {t.name for t in self.outputs}
        known: dict[ExprOp, Callable[[Expr], bool]] = {
            ExprOp.TILE: lambda leaf: leaf.name in self.dims,
            ExprOp.SCALAR: lambda leaf: leaf.name in scalars,
            ExprOp.WORK: lambda leaf: leaf.name in tables and leaf.part in tensors,
            ExprOp.FINISH: lambda leaf: leaf.name in tables and leaf.part in tensors,
            ExprOp.COUNT: lambda leaf: leaf.part in tensors.get(leaf.name, ()),
            ExprOp.STRIDE: lambda leaf: leaf.part in tensors.get(leaf.name, ()),
            ExprOp.RUN: lambda leaf: leaf.name in tensors,
            ExprOp.STEP: lambda leaf: leaf.name in tensors,
            ExprOp.BYTES: lambda leaf: leaf.name in tensors,
            ExprOp.PRESENT: lambda leaf: leaf.name in tensors,
            ExprOp.FILLED: lambda leaf: leaf.name in outputs,
            ExprOp.DEVICE_BY_DTYPE: lambda leaf: leaf.part in tensors and leaf.other in ("", *tensors),
            ExprOp.DEVICE_BY_SUMS: lambda leaf: leaf.part in tensors,
        }
        for leaf in dict.fromkeys(formula.leaves()):
            if leaf.op is ExprOp.NUMBER and not math.isfinite(leaf.value):
                raise self._refuse(what, f"the number {leaf.value}", "finite numbers")
            if leaf.op in known and not known[leaf.op](leaf):
                raise self._refuse(what, str(leaf), "quantities of this kernel")

    # -- layout ----------------------------------------------------------------------------

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs, then auxiliary tensors, then outputs."""
        return (*self.inputs, *self.aux, *self.outputs)

    @property
    def typed_tensors(self) -> tuple[Tensor, ...]:
        """All that the declaration names with element types; custom kernels name their scratch too."""
        return self.tensors

    @property
    def own_scalars(self) -> tuple[Scalar, ...]:
        """Those that the author declares, without hidden ones."""
        return tuple(s for s in self.scalars if not s.hidden)

    def role(self, tensor: Tensor) -> str:
        """One of ``ROLES``."""
        return "output" if tensor in self.outputs else "aux" if tensor in self.aux else "input"

    @property
    def short_name(self) -> str:
        """The name between namespace and version."""
        return self.name.partition("::")[2].partition("@")[0]

    @property
    def namespace(self) -> str:
        return self.name.partition("::")[0]

    @property
    def index_space(self) -> str:
        """The dimensions that calls are made for, outermost first."""
        if self.members:
            return f"up to {MAX_DIMS} dimensions, as each instance says"
        dims = ", ".join(self.dims) or f"up to {MAX_DIMS} dimensions as they come"
        return dims + (f", reduced over {K_AXIS}" if self.reduces else "")

    @property
    def scratches(self) -> bool:
        """Whether calls take scratch."""
        return self.scratch != NOTHING

    @cached_property
    def layout(self) -> Mapping[str, int]:
        """First word of ``dim_<name>``, of every operand, of ``<input>_<axis>``, and of every scalar."""
        if self.members:
            return members.layout(self.tensors, [s.name for s in self.scalars], ARGS_AT)
        at, words = ARGS_AT, {}
        for dim in self.dims:
            words[f"dim_{dim}"] = at
            at += 1
        for tensor in (*self.inputs, *self.aux):
            words[tensor.name] = at
            for i, axis in enumerate(tensor.axis_names):
                words[f"{tensor.name}_{axis.lstrip(WHOLE)}"] = at + 1 + AXIS_WORDS * i
            at += tensor.words
        for tensor in self.outputs:
            words[tensor.name] = at
            at += 1
        for value in self.scalars:
            words[value.name] = at
            at += 1
        return words

    @cached_property
    def words_used(self) -> int:
        """Words of the block that a core reads, header included."""
        if self.members:
            return ARGS_AT + members.words(self.tensors) + len(self.scalars)
        operands = sum(t.words for t in (*self.inputs, *self.aux)) + len(self.outputs)
        return ARGS_AT + len(self.dims) + operands + len(self.scalars)

    @property
    def block_words(self) -> int:
        """Words of the block as it is sent: as many as all nests have, or more where those do not do."""
        return WORDS * self.block_pieces

    @cached_property
    def block_pieces(self) -> int:
        """How many times ``WORDS`` words bring the block: one of ``PIECES``."""
        return next(pieces for pieces in PIECES if pieces * WORDS >= self.words_used)

    @cached_property
    def type_rows(self) -> tuple[Mapping[str, tuple[str, ...]], ...]:
        """``types`` with the names apart."""
        return tuple({name: tuple(dtypes.split()) for name, dtypes in row.items()} for row in self.types)

    @cached_property
    def digest(self) -> int:
        """32 bits that name this declaration in parameter blocks; another declaration has others."""
        parts = [
            self.name,
            *self.dims,
            *(
                f"{t.name} {t.axes} {t.dtypes} {t.optional} {t.walk} {t.like} {self.role(t)} {t.shape} "
                f"{t.pad} {t.fill}"
                for t in self.tensors
            ),
            *(f"{x.name} {x.type} {self._functions(x) or x.bounds}" for x in self.scalars),
            *(" ".join(f"{name}: {dtypes}" for name, dtypes in row.items()) for row in self.types),
            str(self.reduces),
            f"{self.scratch} kept {self.keeps_scratch}",
            *([f"members {[(t.rank[0], len(t.axis_names)) for t in self.tensors]}"] if self.members else []),
        ]
        return int.from_bytes(hashlib.blake2b("\n".join(parts).encode(), digest_size=4).digest(), "little")

    def _functions(self, scalar: Scalar) -> str:
        if scalar.table is None:
            return ""
        rows = [(row.name, row.dtypes) for row in scalar.table.rows[: scalar.table.sealed]]
        return f"{rows} of {self.seen_by(scalar).name}"

    def seen_by(self, scalar: Scalar) -> Tensor:
        """The operand whose element type the functions of ``scalar`` are for."""
        return self.tensor(scalar.of) if scalar.of else self.outputs[0]

    def hidden(self, name: str) -> Scalar | None:
        """The hidden scalar of that name, where there is one."""
        return next((s for s in self.scalars if s.hidden and s.name == name), None)

    def scalar(self, name: str) -> Scalar:
        return next(s for s in self.scalars if s.name == name)

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)


_KERNELS: dict[str, Kernel] = {}


def declare(kernel: Kernel) -> Kernel:
    """Make ``kernel`` known. Raises ``KernelDeclarationError`` where its name or digest is taken."""
    for other in _KERNELS.values():
        if other.name == kernel.name or other.digest == kernel.digest:
            raise KernelDeclarationError(
                f"kernel {kernel.name} is declared twice, or collides with {other.name}"
            )
    _KERNELS[kernel.name] = kernel
    return kernel


def declared() -> list[Kernel]:
    """Every kernel that was declared so far, by name."""
    return [_KERNELS[name] for name in sorted(_KERNELS)]
