# SPDX-License-Identifier: Apache-2.0
"""A kernel's instance for one node, checked whole before anything is made of it.

Two things are decided here, statically. A *race*: two members that write one element of an output. A *gap*:
an element of an output that no member writes, which needs a fill.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from operator import index
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, open_dtype_of
from onedispatch.operators.declarations.kernel import MAX_DIMS, WORK, KernelDeclarationError, work
from onedispatch.operators.declarations.params import MAX_DENOMINATOR, MAX_NUMERATOR
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import Interval, KernelInstance
from onedispatch.operators.plugin.node import Made, Node
from onedispatch.transactions.base.text import counted, span

MAX_MEMBERS = 2**31 - 1  # along an index dimension
MAX_REACH = 2**31 - 1  # of an interval's start and end


def check_instance(kernel: CustomKernel, node: Node, instance: KernelInstance) -> None:
    """Raises ``KernelError`` that names the part of ``instance`` that cannot be run."""
    check_index_space(node, instance.index_space)
    shapes = {one.name: node[one.name].shape for one in kernel.inputs if node[one.name].present}
    outputs = {name: shape for name, (_, shape) in instance.outputs.items()}
    _check_operands(node, instance.access, shapes | outputs)
    for name, shape in (shapes | outputs).items():
        _check_intervals(node, instance, name, len(shape))
    for one in kernel.outputs:
        _check_race(node, instance, one.name, outputs[one.name])
        if instance.edge(one) is None:
            _check_gap(node, instance, one.name, outputs[one.name])
    _check_values(kernel, node, instance)


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


def _check_intervals(node: Node, instance: KernelInstance, name: str, rank: int) -> None:
    intervals, dims = instance.access[name], len(instance.index_space)
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


def _check_race(node: Node, instance: KernelInstance, name: str, shape: tuple[int, ...]) -> None:
    """Members that differ along an index dimension write different coordinates of some tensor dimension."""
    if 0 in shape:
        return
    for d, members in enumerate(instance.index_space):
        if members == 1 or any(_apart(it) for it in instance.access[name] if it.dim == d):
            continue
        follow = [str(it) for it in instance.access[name] if it.dim == d]
        given = f"{', '.join(follow)}: members 0 and 1 of index dimension {d} write the same elements"
        if not follow:
            given = f"nothing that follows index dimension {d}: its {members} members write the same elements"
        accepted = f"intervals along i{d} that do not overlap, of one dimension of {name}"
        raise node.refuse("access", f"access of output {name}, a race", given, accepted)


def _apart(it: Interval) -> bool:
    """Whether no two members touch one coordinate."""
    return math.floor(abs(Fraction(it.a))) >= it.span


def _check_gap(node: Node, instance: KernelInstance, name: str, shape: tuple[int, ...]) -> None:
    for position, (it, size) in enumerate(zip(instance.access[name], shape, strict=True)):
        if it.dim is None or 0 in shape:
            continue
        missed = first_missed(it, instance.index_space[it.dim], size)
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


def _check_values(kernel: CustomKernel, node: Node, instance: KernelInstance) -> None:
    missing = [one.name for one in kernel.aux if one.name not in instance.aux]
    if missing:
        accepted = "values: n.aux(name, array)"
        raise node.refuse("parameter_invalid", f"auxiliary tensor {missing[0]}", "nothing", accepted)
    for one in kernel.aux:
        rank = instance.aux[one.name].ndim
        if rank > MAX_DIMS:
            raise node.refuse("rank", f"auxiliary tensor {one.name}", f"rank {rank}", span(0, MAX_DIMS))
    unsaid = [one.name for one in kernel.scratch_tensors if one.name not in instance.scratch]
    if unsaid:
        accepted = "a size: n.scratch(name, shape)"
        raise node.refuse("parameter_invalid", f"scratch {unsaid[0]}", "nothing", accepted)
    for operand in kernel.operands:
        value = {**instance.pads, **instance.fills}.get(operand.name)
        if value is not None and not DTYPES[node[operand.name].dtype].holds(value):
            accepted = f"a value of {node[operand.name].dtype}"
            raise node.refuse("parameter_invalid", f"pad or fill of {operand.name}", value, accepted)
    try:
        work(**instance.work)
    except KernelDeclarationError as error:
        accepted = f"counts of {', '.join(WORK)}"
        raise node.refuse("parameter_invalid", "work", dict(instance.work), accepted) from error
    split = instance.preferred_split
    if split is not None and not 0 <= split < len(instance.index_space):
        accepted = span(0, len(instance.index_space) - 1)
        raise node.refuse("parameter_invalid", "preferred_split", split, accepted)


# -- what methods of a kernel answer ------------------------------------------------------------


def index_space_of(node: Node, answer: Any) -> tuple[int, ...]:
    """What ``index_space`` answered, as sizes; one member where a tensor without dimensions gave them."""
    sizes = [answer] if isinstance(answer, int) else answer
    try:
        return tuple(index(size) for size in sizes) or (1,)
    except (TypeError, ValueError):
        accepted = "members along each index dimension, such as n['x'].shape"
        raise node.refuse("parameter_invalid", "index space", repr(answer), accepted) from None


def declared_shapes(kernel: CustomKernel, node: Node) -> dict[str, Made]:
    """What the model says of its outputs, for kernels without ``infer``."""
    found = {}
    for i, one in enumerate(kernel.outputs):
        stated = node.spec.outputs[i] if i < len(node.spec.outputs) else None
        row = None if stated is None else open_dtype_of(stated.dtype)
        if stated is None:
            accepted = "a shape that the model declares, or a method infer"
            raise node.refuse("dynamic_shape", f"shape of output {one.name}", "nothing known", accepted)
        found[one.name] = Made(str(stated.dtype) if row is None else row.name, stated.shape)
    return found


def checked_outputs(kernel: CustomKernel, node: Node, answer: Any) -> dict[str, Made]:
    """``infer``'s answer in the order of the outputs. Raises ``KernelError`` for names, dtypes, ranks."""
    names = [one.name for one in kernel.outputs]
    if not isinstance(answer, Mapping) or set(answer) != set(names):
        given = ", ".join(map(str, answer)) if isinstance(answer, Mapping) else repr(answer)
        raise node.refuse(
            "output_count", "infer", given or "nothing", f"dtype and shape of {', '.join(names)}"
        )
    found = {}
    for one in kernel.outputs:
        dtype, shape = _stated(node, one.name, answer[one.name], one.dtype_names)
        if dtype not in one.dtype_names:
            accepted = " or ".join(one.dtype_names)
            raise node.refuse("dtype", f"dtype of output {one.name}, as infer says", repr(dtype), accepted)
        node.check_rank("output", one, shape)
        found[one.name] = Made(dtype, shape)
    return found


def _stated(node: Node, name: str, said: Any, dtypes: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """A ``Made``, a pair, or a shape alone where there is one dtype."""
    accepted = 'n["x"].like(...), a pair ("f32", shape), or a shape where there is one dtype'
    if isinstance(said, Sequence) and all(map(is_size, said)) and len(dtypes) == 1:
        said = (dtypes[0], said)
    if not (isinstance(said, Sequence) and len(said) == 2 and isinstance(said[1], Sequence)):
        raise node.refuse("output_size", f"output {name}, as infer says", repr(said), accepted)
    dtype, shape = said
    if isinstance(shape, str) or not all(is_size(size) and size >= 0 for size in shape):
        accepted = "whole numbers from 0 on"
        raise node.refuse("output_size", f"shape of output {name}, as infer says", repr(shape), accepted)
    return dtype if isinstance(dtype, str) else _name_of(dtype), tuple(int(size) for size in shape)


def is_size(size: Any) -> bool:
    """Whether it is a whole number, NumPy's included."""
    return isinstance(size, int | np.integer) and not isinstance(size, bool)


def _name_of(dtype: Any) -> str:
    """A NumPy type by our name."""
    row = open_dtype_of(dtype)
    return str(dtype) if row is None else row.name


def work_of(kernel: CustomKernel, node: Node) -> dict[str, float]:
    """Element operations of a member, as the node says, or the declaration; {} where neither does.

    Those of Python bodies are counted then. ASSUMPTION, where they cannot be: one operation for each element
    of each operand that a member touches; tables, which are whole in all dimensions, count one.
    """
    known = dict(kernel.work_per_member)
    unknown = sorted(set(node.work_terms) - set(known))
    if unknown:
        accepted = f"{', '.join(known)}: others are declared, work={{'{unknown[0]}': 1}} of od.kernel"
        raise node.refuse("parameter_invalid", "work", ", ".join(unknown), accepted)
    return known | node.work_terms if node.work_terms or kernel.work else {}
