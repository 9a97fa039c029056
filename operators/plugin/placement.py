# SPDX-License-Identifier: Apache-2.0
"""What an instance of a kernel says of one node, checked whole before anything is made of it.

Two things are decided here, statically. A *race*: two members that write one element of an output. A *gap*:
an element of an output that no member writes, which needs a fill.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from onedispatch.operators.declarations.kernel import MAX_DIMS, WORK, KernelDeclarationError, work
from onedispatch.operators.declarations.params import MAX_DENOMINATOR, MAX_NUMERATOR
from onedispatch.operators.plugin.declared import Declared, In, Interval, Placement, holds
from onedispatch.operators.plugin.node import Node
from onedispatch.transactions.base.text import counted, span

MAX_MEMBERS = 2**31 - 1  # along an index dimension
MAX_REACH = 2**31 - 1  # of an interval's start and end


def check_placement(declared: Declared, node: Node, placement: Placement) -> None:
    """Raises ``KernelError`` for whatever of ``placement`` could not be run, by name."""
    check_index_space(node, placement.index_space)
    shapes = {one.name: node[one.name].shape for one in declared.inputs if node[one.name].present}
    outputs = {name: shape for name, (_, shape) in placement.outputs.items()}
    _check_operands(node, placement.access, shapes | outputs)
    for name, shape in (shapes | outputs).items():
        _check_intervals(node, placement, name, len(shape))
    fills = {one.name: placement.fills.get(one.name, one.fill) for one in declared.outputs}
    for name, shape in outputs.items():
        _check_race(node, placement, name, shape)
        if fills[name] is None:
            _check_gap(node, placement, name, shape)
    _check_values(declared, node, placement)


def check_index_space(node: Node, sizes: tuple[int, ...]) -> None:
    """Raises ``KernelParameterInvalidError`` for sizes that are no index space."""
    if len(sizes) > MAX_DIMS:
        given = f"{counted(len(sizes), 'dimension')}: {list(sizes)}"
        raise node.refuse("parameter_invalid", "index space", given, f"at most {MAX_DIMS}")
    for d, size in enumerate(sizes):
        if not 1 <= size <= MAX_MEMBERS:
            raise node.refuse("parameter_invalid", f"index space, dimension {d}", size, span(1, MAX_MEMBERS))


def _check_operands(node: Node, access: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    unknown = sorted(set(access) - set(shapes))
    if unknown:
        accepted = f"{', '.join(shapes)}, which are there"
        raise node.refuse("parameter_invalid", "access of", ", ".join(unknown), accepted)
    missing = [name for name in shapes if name not in access]
    if missing:
        accepted = "an interval per dimension, n.elementwise() or n.whole()"
        raise node.refuse("parameter_invalid", f"access of {', '.join(missing)}", "nothing", accepted)


def _check_intervals(node: Node, placement: Placement, name: str, rank: int) -> None:
    intervals, dims = placement.access[name], len(placement.index_space)
    if len(intervals) != rank:
        given = counted(len(intervals), "interval")
        accepted = f"{rank}, one per dimension of {name}"
        raise node.refuse("parameter_invalid", f"access of {name}", given, accepted)
    for position, it in enumerate(intervals):
        where = f"access of {name}, dimension {position}"
        if not isinstance(it, Interval):
            accepted = "od.Interval, the number of an index dimension, or None for all"
            raise node.refuse("parameter_invalid", where, repr(it), accepted)
        if it.whole:
            continue
        if isinstance(it.dim, bool) or not (isinstance(it.dim, int) and 0 <= it.dim < dims):
            raise node.refuse(
                "parameter_invalid", where, f"index dimension {it.dim}", f"{span(0, dims - 1)}, or whole"
            )
        if not isinstance(it.a, int | Fraction):
            raise node.refuse("parameter_invalid", where, f"a = {it.a!r}", "a whole number, or a Fraction")
        a = Fraction(it.a)
        if abs(a.numerator) > MAX_NUMERATOR or a.denominator > MAX_DENOMINATOR:
            accepted = f"a numerator of at most {MAX_NUMERATOR}, a denominator of at most {MAX_DENOMINATOR}"
            raise node.refuse("parameter_invalid", where, f"a = {it.a}", accepted)
        ends = (it.start, it.end)
        if not all(isinstance(end, int) and abs(end) <= MAX_REACH for end in ends) or it.end < it.start:
            given = f"start {it.start}, end {it.end}"
            raise node.refuse(
                "parameter_invalid", where, given, "whole numbers, the end not before the start"
            )


def _check_race(node: Node, placement: Placement, name: str, shape: tuple[int, ...]) -> None:
    """Members that differ along an index dimension write different coordinates of some tensor dimension."""
    if 0 in shape:
        return
    for d, members in enumerate(placement.index_space):
        if members == 1 or any(_apart(it) for it in placement.access[name] if it.dim == d):
            continue
        told = [str(it) for it in placement.access[name] if it.dim == d]
        given = f"{', '.join(told)}: members 0 and 1 of index dimension {d} write the same elements"
        if not told:
            given = f"nothing that follows index dimension {d}: its {members} members write the same elements"
        accepted = f"intervals along i{d} that do not overlap, of one dimension of {name}"
        raise node.refuse("access", f"access of output {name}, a race", given, accepted)


def _apart(it: Interval) -> bool:
    """Whether no two members touch one coordinate."""
    return math.floor(abs(Fraction(it.a))) >= it.span


def _check_gap(node: Node, placement: Placement, name: str, shape: tuple[int, ...]) -> None:
    for position, (it, size) in enumerate(zip(placement.access[name], shape, strict=True)):
        if it.dim is None or 0 in shape:
            continue
        missed = first_missed(it, placement.index_space[it.dim], size)
        if missed is None:
            continue
        given = f"{it} along dimension {position}, which leaves out coordinate {missed} of {size}"
        remedy = "say what such elements hold: fill= of od.Out, or n.fill(name, value)"
        accepted = "every element written by a member, or a fill"
        raise node.refuse("access", f"access of output {name}, a gap", given, accepted, remedy)


def first_missed(it: Interval, members: int, size: int) -> int | None:
    """The first of ``size`` coordinates that no member touches; None where all are touched."""
    a = Fraction(it.a)
    upwards = range(members) if a >= 0 else range(members - 1, -1, -1)
    first, last = it.first(upwards[0]), it.first(upwards[-1]) + it.span
    if math.ceil(abs(a)) <= it.span:  # each member joins the one before
        return 0 if first > 0 else None if last >= size else max(last, 0)
    reach = 0  # all coordinates before it are touched
    below = max(0, math.floor(-(first + it.span) / abs(a)) - 1)  # members that end before coordinate 0
    for member in upwards[below:]:
        if it.first(member) > reach:
            break
        reach = max(reach, it.first(member) + it.span)
    return reach if reach < size else None


def _check_values(declared: Declared, node: Node, placement: Placement) -> None:
    missing = [one.name for one in declared.aux if one.name not in placement.aux]
    if missing:
        accepted = "values: n.aux(name, array)"
        raise node.refuse("parameter_invalid", f"auxiliary tensor {missing[0]}", "nothing", accepted)
    for one in declared.aux:
        rank = placement.aux[one.name].ndim
        if rank > MAX_DIMS:
            raise node.refuse("rank", f"auxiliary tensor {one.name}", f"rank {rank}", span(0, MAX_DIMS))
    unsaid = [one.name for one in declared.scratch if one.name not in placement.scratch]
    if unsaid:
        accepted = "a size: n.scratch(name, shape)"
        raise node.refuse("parameter_invalid", f"scratch {unsaid[0]}", "nothing", accepted)
    for operand in declared.operands:
        edges = placement.pads if isinstance(operand, In) else placement.fills
        value = edges.get(operand.name)
        if value is not None and not holds(node[operand.name].dtype, value):
            accepted = f"a value of {node[operand.name].dtype}"
            raise node.refuse("parameter_invalid", f"pad or fill of {operand.name}", value, accepted)
    try:
        work(**placement.work)
    except KernelDeclarationError as error:
        accepted = f"counts of {', '.join(WORK)}"
        raise node.refuse("parameter_invalid", "work", error, accepted) from error
    split = placement.preferred_split
    if split is not None and not 0 <= split < len(placement.index_space):
        accepted = span(0, len(placement.index_space) - 1)
        raise node.refuse("parameter_invalid", "preferred_split", split, accepted)
