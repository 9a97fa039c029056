# SPDX-License-Identifier: Apache-2.0
"""Kernel declarations and nests: what cannot be run is refused where it is declared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from onedispatch.operators.codegen.genheader import specs_header
from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.dtypes import DTYPES, EVERY
from onedispatch.operators.declarations.functions import ACTIVATIONS
from onedispatch.operators.declarations.kernel import (
    K_AXIS,
    MARK_SHIFT,
    Function,
    FunctionTable,
    Kernel,
    KernelDeclarationError,
    Scalar,
    Tensor,
    chooses,
    declare,
    work,
)
from onedispatch.operators.declarations.params import ABSENT, WORDS, Axis, ParamBlock
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.operators.kernels.elementwise import KERNEL as ELTWISE
from onedispatch.operators.kernels.matmul import GEMM
from onedispatch.operators.scheduling.index_space import F32, OUTPUT, Access, Dim, Operand
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.transactions import find_device
from onedispatch.transactions.base.errors import OperatorError


def kernel(**changes: Any) -> Kernel:
    facts: dict[str, Any] = {
        "name": "acme::twice@1",
        "dims": ("r",),
        "inputs": (Tensor("x", "r"),),
        "outputs": (Tensor("y", "r"),),
        "code_bytes": 256,
        "cost": e.device("call_cycles") + e.tile("r"),
    }
    return Kernel(**{**facts, **changes})


def nested(depth: int) -> e.Expr:
    """A formula that holds one value more at every level."""
    return e.tile("r") if depth == 0 else e.tile("r") + nested(depth - 1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": "twice"}, "namespace::name@version"),
        ({"name": "acme::" + "x" * 64 + "@1"}, "64 bytes"),
        ({"dims": ("r", "s", "t", "u", "v", "w")}, "dimensions: given 6; accepted: at most 5"),
        ({"inputs": (Tensor("x", "q"),)}, "axis of x: given q"),
        ({"inputs": (Tensor("x", "k"),)}, "axis of x: given k"),
        ({"inputs": (Tensor("y", "r"),)}, "stands twice"),
        ({"inputs": (Tensor("x", "r", "f64"),)}, "element types of x"),
        ({"inputs": (Tensor("x", "r", like="z"),)}, "operand that x is like: given z"),
        ({"scalars": (chooses("f", ACTIVATIONS, of="z"),)}, "operand of scalar f: given z"),
        ({"outputs": ()}, "one output or more"),
        (
            {"scalars": tuple(Scalar(f"s{i}") for i in range(33))},
            "scalars: given 33, of which 's32' is one too many; accepted: at most 32",
        ),
        ({"scalars": (Scalar("a", low=3, high=2),)}, "bounds of scalar a"),
        ({"scalars": (Scalar("a", low=3, high=5, default=9),)}, "default of scalar a: given 9"),
        ({"scalars": (Scalar("a", "function"),)}, "a table"),
        ({"cost": e.tile("q")}, "cost: given tile(q)"),
        ({"cost": e.work("x", "x")}, "cost: given work(x, x)"),
        ({"cost": e.device("lanes", "z")}, "cost: given z's lanes"),
        ({"cost": e.tile("r") * float("nan")}, "cost: given the number nan; accepted: finite numbers"),
        ({"scratch": e.as_expr(float("inf"))}, "scratch: given the number inf"),
        (
            {
                "inputs": tuple(Tensor(f"x{i}", "r *a *b *c *d *e") for i in range(15)),
                "scalars": tuple(Scalar(f"s{i}") for i in range(32)),
            },
            "words of the parameter block: given 539; accepted: at most 512",
        ),
        (
            {"inputs": tuple(Tensor(f"x{i}", "r") for i in range(16))},
            "operands: given 17; accepted: at most 16",
        ),
        ({"inputs": (Tensor("x", "r *a *b *c *d *e *f"),)}, "axes of x: given 7; accepted: at most 6"),
        ({"scratch": e.K_COUNT * 4}, "scratch: given k; accepted: quantities that all calls"),
        ({"scratch": e.LAST * e.device("f")}, "scratch: given last"),
        ({"keeps_scratch": True, "reduces": True}, "keeps_scratch: given True"),
        ({"joins": "rows"}, "joins: given 'rows'; accepted: 'no', 'tiles', 'columns', 'steps', 'panels'"),
        ({"joins": "steps"}, "joins: given 'steps'; accepted: that with a reduction"),
        ({"keeps_scratch": True, "scratch": e.as_expr(4)}, "with scratch and a reduction"),
        ({"sums": e.tile("r") * 4}, "accepted: sums of one output in scratch that is kept"),
        ({"sums": e.K_COUNT * 4}, "scratch: given k; accepted: quantities that all calls"),
        ({"cost": e.device_of_sums("lanes", "z")}, "cost: given z's and its sums' lanes"),
        ({"cost": nested(40)}, "cost: given a stack of 41; accepted: at most 32"),
        ({"aux": (Tensor("t", "*n", shape=(4,)),)}, "auxiliary tensor t"),
        ({"aux": (Tensor("t", "r", shape=(4,), values=np.zeros),)}, "axes *name, an extent for each"),
        ({"aux": (Tensor("t", "*n", shape=(0,), values=np.zeros),)}, "extents of 1 or more"),
        ({"aux": (Tensor("t", "*n", "f32 i8", shape=(4,), values=np.zeros),)}, "one element type"),
        ({"inputs": (Tensor("x", "r", shape=(4,)),)}, "shape or values of x"),
    ],
)
def test_declarations_that_cannot_stand_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelDeclarationError) as refusal:
        kernel(**changes)
    assert says in str(refusal.value)


@pytest.mark.parametrize("times", [-1, float("nan"), float("inf")])
def test_work_is_counted_in_numbers(times: float) -> None:
    with pytest.raises(KernelDeclarationError, match="accepted: finite numbers from 0 on"):
        work(exp=times)


def rates(found: Kernel, name: str) -> set[str]:
    """Whose constants may hold for an operand: where it is absent, those of the first output."""
    tensor = found.tensor(name)
    absent = tensor.optional or K_AXIS in tensor.axis_names
    dtypes = tensor.dtypes.split() + (found.outputs[0].dtypes.split() if absent else [])
    return {DTYPES[dtype].rates for dtype in dtypes}


def constants_of(found: Kernel) -> Iterator[str]:
    """Every constant that some call's cost or scratch may name."""
    for leaf in (*found.cost.leaves(), *found.scratch.leaves()):
        if leaf.op is e.ExprOp.DEVICE:
            yield leaf.name
        elif leaf.op is e.ExprOp.DEVICE_BY_DTYPE:
            seconds = {f"{rate}_" for rate in rates(found, leaf.other)} if leaf.other else {""}
            yield from (
                f"{rate}_{second}{leaf.name}" for rate in rates(found, leaf.part) for second in seconds
            )
        elif leaf.op in (e.ExprOp.WORK, e.ExprOp.FINISH):
            table = found.scalar(leaf.name).table
            terms = {term for row in table.rows for term, _ in (*row.work, *row.finish)} if table else ()
            yield from (f"{rate}_{term}_cycles" for rate in rates(found, leaf.part) for term in terms)


@pytest.mark.parametrize("device", ["npu1", "npu2"])
def test_every_constant_of_kernels_is_read(device: str) -> None:
    # Of blocks and prints, whatever the kernel.
    ours = ("parameter_word_cycles", "op_setup_cycles", "print_byte_cycles")
    named = {*ours, *(name for found in all_kernels() for name in constants_of(found))}
    given = {key.partition(".")[2] for key in find_device(device).constants if key.startswith("kernel.")}
    assert not given - named


def test_a_name_is_declared_once() -> None:
    with pytest.raises(KernelDeclarationError, match="declared twice"):
        declare(kernel(name=GEMM.name))


def test_digests_tell_declarations_apart() -> None:
    assert kernel().digest == kernel(summary="other words", cost=e.tile("r")).digest
    others = [
        kernel(inputs=(Tensor("x", "r", walk="affine"),)),
        kernel(inputs=(Tensor("x", "r", like="y"),)),
        kernel(scalars=(chooses("f", ACTIVATIONS),)),
        kernel(scalars=(chooses("f", ACTIVATIONS, of="x"),)),
        kernel(name="acme::twice@2"),
        kernel(reduces=True),
        kernel(reduces=True, scratch=e.as_expr(4)),
        kernel(reduces=True, scratch=e.as_expr(4), keeps_scratch=True),
        kernel(scalars=(Scalar("a"),)),
    ]
    assert len({kernel().digest, *(k.digest for k in others)}) == 1 + len(others)
    assert len({k.digest for k in all_kernels()}) == len(all_kernels())


def with_rows(found: Kernel, table: FunctionTable, *rows: Function) -> Kernel:
    """``found`` with these rows in place of the table's."""
    changed = replace(table, rows=rows)
    scalars = tuple(replace(s, table=changed) if s.table is table else s for s in found.scalars)
    return replace(found, scalars=scalars)


USES = [(found, s.table) for found in all_kernels() for s in found.scalars if s.table is not None]


@pytest.mark.parametrize(("found", "table"), USES, ids=[f"{k.name} {t.name}" for k, t in USES])
def test_digests_know_the_rows_that_were_there_first(found: Kernel, table: FunctionTable) -> None:
    """Later rows change nothing for what was compiled; a row that is gone, or another, does."""
    rows, new = table.rows[: table.sealed], Function("newest", dtypes="f32")
    assert found.digest == with_rows(found, table, *table.rows, new).digest
    assert found.digest == with_rows(found, table, *table.rows, new, Function("other")).digest
    assert found.digest == with_rows(found, table, *rows).digest
    others = [rows[:-1], rows[1:], (new, *rows), (rows[1], rows[0], *rows[2:])]
    others += [(*rows[:i], replace(row, name="other"), *rows[i + 1 :]) for i, row in enumerate(rows)]
    others += [(*rows[:i], replace(row, dtypes="i32"), *rows[i + 1 :]) for i, row in enumerate(rows)]
    others += [(*rows[:i], *rows[i + 1 :]) for i in range(len(rows))]
    assert found.digest not in {with_rows(found, table, *other).digest for other in others}


def test_later_rows_are_known_by_marks() -> None:
    """A table with another row appended at the same place is another one, though the digest is the same."""
    tables = [replace(ACTIVATIONS, rows=(*ACTIVATIONS.rows, Function(n, dtypes=t)))
              for n, t in (("newest", "f32"), ("other", "f32"), ("newest", "bf16"))]  # fmt: skip
    code = len(ACTIVATIONS.rows)
    assert {table.code(table.rows[-1].name) for table in tables} == {code}
    assert len({table.mark(code) for table in tables}) == 3 and all(table.mark(code) for table in tables)
    for row in ACTIVATIONS.rows:
        assert tables[0].word(row.name) == ACTIVATIONS.word(row.name)
    for i, row in enumerate(ACTIVATIONS.rows[: ACTIVATIONS.sealed]):
        assert ACTIVATIONS.word(row.name) == i
    assert tables[0].word("newest") == code | tables[0].mark(code) << MARK_SHIFT
    later = with_rows(GEMM, ACTIVATIONS, *ACTIVATIONS.rows, Function("newest", dtypes="f32", code_bytes=48))
    digest = tables[0].digest(code)
    assert digest >> MARK_SHIFT == tables[0].mark(code)
    assert f"1u, {digest}u, 48u}}}};" in specs_header([later], "later_specs")  # what a library compares with
    whole = FunctionTable("whole", (Function("a"), Function("b")))
    assert [whole.mark(i) for i in (0, 1)] == [0, 0]  # where nothing is said the digest knows all rows


def test_the_layout_has_no_word_twice() -> None:
    for found in all_kernels():
        used = sorted(found.layout.values())
        assert len(used) == len(set(used)) and used[-1] < found.words_used <= WORDS


def test_blocks_hold_what_was_set() -> None:
    block = ParamBlock(GEMM)
    block.set_operand("a", 5, F32.code, [Axis(9, 3, 1, a=2, b=-1, align=4, den=3), Axis(8, 8, 3)])
    block.set_scalar("act", "relu")
    at = GEMM.layout["a"]
    assert block.words[at : at + 6] == [5 | F32.code << 16, 9, 3, 1, 2 | 3 << 16 | 4 << 24, 0xFFFFFFFF]
    assert block.words[GEMM.layout["act"]] == ACTIVATIONS.code("relu")
    assert block.words[GEMM.layout["bias"]] == ABSENT
    with pytest.raises(KeyError, match="known: none, relu"):
        block.set_scalar("act", "nothing")


def operand(name: str, tensor: int, access: Access, size: int = 8) -> Operand:
    return Operand(name, tensor, F32, (size,), (1,), (access,))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Access(0, start=1, end=2), "an interval of one element"),
        (Access(0, a=3, den=2), "elements 0 to 7"),
        (Access(3), "index dimension 3"),
        (Access(0, den=0), "a denominator of 1 to 255"),
        (Access(0, den=256), "a denominator of 1 to 255"),
        (Access(0, align=0), "an alignment of 1 to 255"),
        (Access(0, a=1 << 16), "at most 65535"),
        (Access(0, start=3, end=2), "an end not before the start"),
    ],
)
def test_nests_that_a_kernel_cannot_walk_are_refused(given: Access, says: str) -> None:
    with pytest.raises(OperatorError) as refusal:
        Nest(ELTWISE, (Dim("i", 8),), (operand("x0", 0, given),), (operand("out", OUTPUT, Access(0)),))
    assert says in str(refusal.value)


def test_fractions_round_down_and_their_chunks_suffice() -> None:
    for a, den in ((1, 2), (3, 2), (2, 3), (1, 1)):
        access = Access(0, a=a, den=den, end=1)
        for tile in range(1, 9):
            held = access.chunk(1000, tile, 1000)
            for origin in range(20):
                touched = [a * i // den + step for i in range(origin, origin + tile) for step in (0, 1)]
                assert max(touched) - a * origin // den < held
    assert np.ceil(e.multiple(e.tile("r"), 8).evaluate(lambda leaf: 17)) == 24


def test_origins_of_chunks_are_the_same_one_by_one_and_at_once() -> None:
    for axis in (Axis(50, 7, 1, a=2, den=3, b=-2), Axis(50, 8, 1, align=4, b=5), Axis(9, 9, 1)):
        alone = [int(axis.origin(o)) for o in range(40)]
        assert axis.origin(np.arange(40)).tolist() == alone
        assert all(0 <= origin <= axis.extent - axis.chunk for origin in alone)
    assert Axis(50, 7, 1, a=1, den=2).origin(9) == 4


def test_scalars_of_unknown_functions_and_names_are_refused() -> None:
    with pytest.raises(OperatorError, match="gamma"):
        Nest(
            ELTWISE,
            (Dim("i", 8),),
            (operand("x0", 0, Access(0)),),
            (operand("out", OUTPUT, Access(0)),),
            scalars={"gamma": 1.0},
        )
    assert chooses("f", ACTIVATIONS).bounds == (0, len(ACTIVATIONS.rows) - 1)


def nest_of(name: str, **changes: Any) -> Nest:
    """A copy of 12 elements of a type; ``changes`` are fields of its input."""
    row = DTYPES[name]
    facts = {"dtype": row, "shape": (12,), "strides": (1,), "access": (Access(0, align=row.per_word),)}
    x = Operand("x0", 0, **{**facts, **changes})  # type: ignore[arg-type]
    out = Operand("out", OUTPUT, row, (12,), (1,), (Access(0),))
    return Nest(ELTWISE, (Dim("i", 12, multiple=row.per_word),), (x,), (out,))


@pytest.mark.parametrize("dtype", EVERY.split())
def test_every_element_type_is_copied(dtype: str) -> None:
    assert nest_of(dtype).outputs[0].dtype.name == dtype


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dtype": DTYPES["u8"]}, "given u8; accepted: i8, that of 'out'"),
        ({"shape": (13,)}, "13 elements with stride 1; accepted: stride 1 and a multiple of 4"),
        ({"strides": (2,)}, "with stride 2; accepted: stride 1"),
        ({"access": (Access(0, start=1, end=1),), "shape": (16,)}, "an alignment of 4"),
        (
            {"shape": (12, 4), "strides": (6, 1), "access": (Access(0), Access(None))},
            "stride 6; accepted: a multiple of 4",
        ),
    ],
)
def test_chunks_of_narrow_elements_are_whole_words(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(OperatorError) as refusal:
        nest_of("i8", **changes)
    assert says in str(refusal.value)


def test_padding_is_less_than_a_word() -> None:
    x = Operand("x0", 0, DTYPES["i8"], (12,), (1,), (Access(0, align=4),))
    out = Operand("out", OUTPUT, DTYPES["i8"], (16,), (1,), (Access(0),))
    with pytest.raises(OperatorError, match="4 members of i; accepted: fewer than 4"):
        Nest(ELTWISE, (Dim("i", 16, multiple=4, padding=4),), (x,), (out,))


def test_functions_say_which_elements_they_take() -> None:
    x = Operand("x0", 0, DTYPES["i32"], (8,), (1,), (Access(0),))
    out = Operand("out", OUTPUT, DTYPES["i32"], (8,), (1,), (Access(0),))
    with pytest.raises(OperatorError, match="elements of i32: given exp; accepted: none, relu, abs, neg"):
        Nest(ELTWISE, (Dim("i", 8),), (x,), (out,), scalars={"act": "exp"})
