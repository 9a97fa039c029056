# SPDX-License-Identifier: Apache-2.0
"""Counted work as formulas: what declarations of kernels put their costs together from.

Work is counted in vectors: how many a core loads, stores and computes on, partial ones whole, and how
often an inner loop begins. Prices are constants of the device (``[kernel]`` of its file, each with its
source): cycles per vector, by element type and, where it matters, by function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from onedispatch.operators.declarations import expressions as e
from onedispatch.operators.declarations.expressions import Expr

ENTRY = e.device("call_cycles")
ROW = e.device("row_cycles")
SPLIT = e.device("f32_pack_cycles")  # of a vector of f32 factors that stay: once for all products with them
F32_SCALED = e.device("f32_scale_cycles")  # a vector of f32 times such factors
WORD_BYTES = 4  # of what kernels compute in
PAIR = 7  # additions of a float32 to a pair of them: both parts of the sum, exact, and the lower ones
_HELD = 256  # products of integers of 16 and 8 bits that 32 bits hold the sum of


def vectors(members: Expr, operand: str) -> Expr:
    """Vectors that an operation on ``members`` neighbours of ``operand``'s type takes."""
    return e.ceiling(members / e.device("lanes", operand))


def accesses(members: Expr, operand: str) -> Expr:
    """Vector loads, or stores, of ``members`` neighbours of ``operand``'s type."""
    return e.ceiling(members * e.item_bytes(operand) / e.device("vector_bytes"))


def words(members: Expr) -> Expr:
    """Vectors of ``members`` sums, which are f32 or have 32 bits whatever becomes of them."""
    return e.ceiling(members / e.device("i32_lanes"))


def many(value: Expr) -> Expr:
    """1 where a step or a stride is beyond 1, else 0."""
    return e.differs(e.largest(value, 1), 1)


def either(condition: Expr, yes: Expr | float, no: Expr | float) -> Expr:
    """``yes`` where the condition is 1, ``no`` where it is 0."""
    return condition * yes + (1 - condition) * no


def read(rows: Expr, run: Expr, operand: str, step: Expr | None = None) -> Expr:
    """Cycles of reading ``rows`` walks of ``run`` members of ``operand``, at ``step``: the one that it has.

    Neighbours come as whole vectors, several in a cycle; members apart take a load and a shuffle for
    every vector that they touch, at most one per member; one member for all is loaded once per row.
    Members that repeat (a step between 0 and 1) take a load and a shuffle for every vector of results.
    """
    step = e.step(operand) if step is None else step
    moving = e.differs(step, 0)
    reach = run * e.largest(step, moving)
    touched = e.largest(e.smallest(run, accesses(reach, operand)), 1)
    apart = moving * e.differs(step, 1)
    price = either(apart, e.device("gather_cycles"), 1 / e.device("loads_per_cycle"))
    return e.named(f"read({operand})", rows * touched * price)


def busiest(loads: Expr, stores: Expr, operations: Expr) -> Expr:
    """Cycles of pipelined loops: the units work side by side."""
    return e.largest(e.largest(loads, stores), operations)


def mapped(inputs: Iterable[str], operations: Callable[[Expr, Expr], Expr]) -> Expr:
    """Cycles of a function of neighbours over a box: rows are as long as all operands go with one step each.

    ``operations``: cycles of so many rows of so many members.
    """
    names, run = list(inputs), e.run("out")
    for name in names:
        run = e.smallest(run, e.run(name))
    run = e.named("run", run)
    rows = e.named("rows", e.ELEMENTS / run)
    loads: Expr = e.as_expr(0)
    for name in names:
        loads = loads + e.present(name) * read(rows, run, name)
    return ENTRY + rows * ROW + busiest(loads, rows * accesses(run, "out"), operations(rows, run))


def packed(operand: str, members: Expr) -> Expr:
    """Cycles of making a chunk of ``members`` ready for native products.

    Descriptors lay the blocks of a native product out on the way, as they do for the published kernels.
    Types without one are split into parts here; and where the chunk lies crosswise, its blocks are
    transposed: a load and a shuffle per vector.
    """
    run = e.run(operand)
    split = members / run * vectors(run, operand) * e.device("pack_cycles", operand)
    crosswise = many(e.step(operand)) * accesses(members, operand) * e.device("gather_cycles")
    return e.named(f"pack({operand})", split + crosswise)


def parts_bytes(operand: str, members: Expr) -> Expr:
    """Bytes of scratch for ``members`` elements of ``operand`` that a call splits into parts: once for all of
    its products, so that all of them lie there at once. 0 for types that native products take as they are."""
    splits = e.differs(e.device("pack_cycles", operand), 0)
    return e.named(f"parts({operand})", splits * (members * e.device("part_bytes", operand)))


def products(m: Expr, k: Expr, n: Expr, a: str, b: str) -> Expr:
    """Cycles of ``m`` x ``k`` x ``n`` multiply-accumulates, in whole native products."""
    rows, inner, columns = (
        e.multiple(size, e.device(f"native_{name}", a)) for size, name in ((m, "m"), (k, "k"), (n, "n"))
    )
    return e.named("products", rows * inner * columns / e.device("macs_per_cycle", a, b))


def kept(out: str) -> Expr:
    """1 where sums wait for further steps in scratch: ``out`` is narrower than they are; else 0."""
    return e.named("kept", e.differs(e.item_bytes(out), WORD_BYTES) * many(e.STEPS))


def sums_bytes(members: Expr, out: str, of: str = "") -> Expr:
    """Bytes of scratch for the sums of ``members`` results that ``out`` is too narrow for: words, or what
    sums of products of ``of``'s type take."""
    size = e.device("sum_bytes", of) if of else WORD_BYTES
    return kept(out) * (size * members)


def wide(a: str, out: str) -> Expr:
    """1 where sums of products of ``a``'s type have 64 bits: narrow results of integers of 16; else 0."""
    narrow = e.differs(e.item_bytes(out), WORD_BYTES)
    return e.named("wide sums", e.differs(e.device("sum_bytes", a), WORD_BYTES) * narrow)


def widened(m: Expr, k: Expr, n: Expr, a: str, b: str, out: str) -> Expr:
    """Cycles of adding accumulators of 32 bits to sums of 64, where ``k`` products of 16 and 8 bits need it.

    ASSUMPTION: such products have accumulators of 32 bits, as those of bytes do, which hold 2^8 of them, and
    those of 16 and 16 bits have accumulators of 64. A sum of 64 bits takes three operations on words: both
    halves, and the carry.
    """
    held = k / _HELD
    beyond = many(e.largest(e.STEPS, held)) * (2 - e.item_bytes(b))
    added = e.ceiling(held) * words(m * n) * (3 * e.device("i32_op_cycles"))
    return e.named("widened", wide(a, out) * beyond * added)


def accumulated(m: Expr, n: Expr, a: str, out: str, waiting: Expr | None = None) -> Expr:
    """Cycles of a call for itself and for loading and storing accumulators of whole native products.

    Sums that are kept cost what a product with results as wide as they are costs, in every step; the last
    one makes narrow results of them as well. Those of 64 bits cost twice what those of 32 do.
    ``waiting`` says whether they are, where ``kept`` does not.
    """
    waiting = kept(out) if waiting is None else waiting
    rows, columns = (e.multiple(size, e.device(f"native_{name}", a)) for size, name in ((m, "m"), (n, "n")))
    outputs = rows * columns
    results = e.device("product_call_cycles", a, out) + outputs * e.device("output_cycles", a, out)
    sums = e.device_of_sums("product_call_cycles", a) + outputs * e.device_of_sums("output_cycles", a)
    long = e.device("sum_bytes", a) / WORD_BYTES
    return e.named("accumulators", either(waiting, long * sums + e.LAST * results, results))


def chunk(operand: str, axes: Iterable[str]) -> Expr:
    """Elements of ``operand``'s chunk."""
    product = e.as_expr(1)
    for i, axis in enumerate(axes):
        size = e.count(operand, axis)
        product = product * size if i else size
    return product


def filling(operand: str, axes: Iterable[str]) -> Expr:
    """Cycles of filling a chunk of a member kernel's output before a call: vectors stored in a row."""
    return e.named(f"fill({operand})", e.filled(operand) * (ROW + accesses(chunk(operand, axes), operand)))


def operations(operand: str) -> Expr:
    """Cycles of one simple operation on a vector of ``operand``'s type."""
    return e.device("op_cycles", operand)


def scaled(operand: str) -> Expr:
    """Cycles of multiplying a vector of ``operand``'s floats, or of f32 that its whole numbers became, by a
    number that stays: its parts were made before, at the price of ``SPLIT``."""
    return e.device("scale_cycles", operand)


def moves(operand: str) -> Expr:
    """Cycles of shifting, shuffling or selecting in a vector of ``operand``'s type: its bits alone."""
    return e.device("move_cycles", operand)


def comparisons(operand: str) -> Expr:
    """Cycles of taking the larger of two vectors of ``operand``'s type, element by element."""
    return e.device("compare_cycles", operand)


def summed(operand: str) -> Expr:
    """Cycles of adding a vector of ``operand``'s type to wide sums."""
    return e.device("sum_cycles", operand)


def combined(lanes: Expr, operand: str, combine: Expr) -> Expr:
    """Cycles of making one value of a vector: it is shuffled and ``combine``d by halves."""
    return e.halvings(e.smallest(lanes, e.device("lanes", operand))) * (moves(operand) + combine)
