# SPDX-License-Identifier: Apache-2.0
"""Functions of one byte by table: what any function of quantised data with constant scales is.

Whatever is computed between integers of 8 bits has 256 results at most. They are computed once, where the
transaction is compiled (or by an operator, where scales are computed), and looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.formulas import accesses, mapped, vectors, words
from onedispatch.operators.declarations.kernel import Kernel, Tensor, declare
from onedispatch.operators.interface.merge import Merge
from onedispatch.operators.interface.operator import TensorSpec, Unsupported
from onedispatch.operators.kernels.elementwise import Array, Eltwise
from onedispatch.operators.scheduling.index_space import Access, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import Device

BYTES = "i8 u8"
ENTRIES = 256
# Look-ups at once, each from a copy in banks of its own: so AMD's AIE API lays out its look-up tables.
COPIES = 4


# Cycles of looking up a vector of words and making it narrow.
LOOKED_UP = e.device("i32_lanes") / e.device("lookups_per_cycle") + e.device("i32_convert_cycles")


def laid_out(table: str) -> e.Expr:
    """Cycles of storing a table in all its copies."""
    return COPIES * accesses(e.as_expr(ENTRIES), table)


def looked_up(members: e.Expr, of: str) -> e.Expr:
    """Cycles of making so many bytes words, looking them up and making bytes again, on both load units."""
    return vectors(members, of) * e.device("convert_cycles", of) + words(members) * LOOKED_UP


def _cost() -> e.Expr:
    """Look-ups take both load units, so that loading what is looked up comes on top."""

    def rows_of(rows: e.Expr, run: e.Expr) -> e.Expr:
        return rows * (accesses(run, "x0") / e.device("loads_per_cycle") + looked_up(run, "x0"))

    return laid_out("x1") + mapped(("x0",), rows_of)


TABLE = declare(
    Kernel(
        "od::table@1",
        inputs=(Tensor("x0", "...", BYTES, walk="affine"), Tensor("x1", "*entries", BYTES, like="out")),
        outputs=(Tensor("out", "...", BYTES, walk="affine"),),
        cost=_cost(),
        scratch=e.as_expr(COPIES * ENTRIES),
        joins="tiles",
        # ASSUMPTION: 48 instructions: a loop that lays out the copies, one that looks up.
        code_bytes=768,
        summary="x1[x0]: one of 256 elements for every byte, i8 as the u8 of its bits",
    )
)


def _follows(table: Any, reader: Any) -> bool:
    """Whether ``reader`` makes of every byte of ``table``, and of what that read, another one."""
    known = (table.inputs[0].name, table.output.name)
    return bool(reader.tabulates) and all(t.name in known for t in reader.inputs if not t.is_const)


def _of_one_byte(table: Any, reader: Any) -> Any:
    """The function of one byte that both are together."""
    x, entries = table.inputs[0], table.entries
    if any(t.shape != x.shape for t in (*reader.inputs, reader.output) if not t.is_const):
        raise Unsupported(f"{reader.output} of {x}", "every element once")
    both = reader.tabulated({x.name: every_byte(x.dtype), table.output.name: entries})
    return Table(reader.name, x, table_of(reader.output, both), reader.output, table.device)


# A function of a table's results, and of what it read, as in x * sigmoid(x), is one of what it read.
COMPOSED = Merge("composed", _follows, _of_one_byte)


class Table(Eltwise):
    """``table[x]``; inputs x and the table, 256 elements of the output's type: where x is int8, the results
    of 0 to 127 come first, then those of -128 to -1."""

    kind = "table"
    applies_activation = False
    tabulates = True
    merges: ClassVar[tuple[Merge, ...]] = (COMPOSED,)
    kernel: ClassVar[Kernel] = TABLE

    def __init__(
        self, name: str, x: TensorSpec, table: TensorSpec, output: TensorSpec, device: Device
    ) -> None:
        super().__init__(name, "", [x, table], output, device)

    def _check(self) -> None:
        self._check_types()
        self.nests()

    @property
    def scalars(self) -> dict[str, float | str]:
        return {}

    @property
    def held(self) -> tuple[Operand, ...]:
        return (Operand("x1", 1, self.output.element, (ENTRIES,), (1,), (Access(None),)),)

    def nests(self) -> list[Nest]:
        if not self.output.size:
            return []
        return self.part_nests(self.shape, self.views[:1], self.out_view, [0])

    @property
    def entries(self) -> Array:
        """The constant table. Raises ``Unsupported`` for a computed one."""
        table = self.inputs[1]
        if table.value is None:
            raise Unsupported(f"{table.name} is computed", "a constant table")
        return np.asarray(table.value)

    def tabulated(self, of: Mapping[str, Array]) -> Array:
        return np.asarray(self.entries[of[self.inputs[0].name].view(np.uint8)])

    def reference(self, *arrays: Array) -> Array:
        x, table = arrays
        return np.asarray(table[x.view(np.uint8)]).reshape(self.output.shape)


def every_byte(dtype: np.dtype[Any]) -> Array:
    """The 256 numbers of ``dtype`` (int8 or uint8) in the order of a table."""
    return np.arange(ENTRIES, dtype=np.uint8).view(dtype)


def table_of(output: TensorSpec, entries: Array) -> TensorSpec:
    """The 256 ``entries`` as a constant, of which elements of ``output`` are made."""
    return TensorSpec(f"{output.name}//table", output.dtype, (ENTRIES,), entries)
