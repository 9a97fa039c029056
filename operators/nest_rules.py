# SPDX-License-Identifier: Apache-2.0
"""What a kernel makes of a declared access: checked where a nest is declared.

A chunk in a core's memory has no coordinates of its own. A kernel therefore reads each operand in one of
three ways, and a declaration that means something else would give wrong values without a word:

- ``POINTS`` (ELTWISE): member ``i`` takes the one element ``a*i + start``, which lies in the view;
- ``COORDINATES`` (matrix products, reductions, rows): member ``i`` takes the element ``i``, or all of a
  dimension that follows none of the index;
- ``WINDOWS`` (CONV, DWCONV, POOL): intervals of several elements, over the border too, where the kernel
  knows what padding is. What their arguments walk beyond the interval, the core refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onedispatch.transactions.errors import OperatorError
from onedispatch.transactions.phrases import counted, span

if TYPE_CHECKING:
    from onedispatch.operators.index_space import Access, Nest, Operand

POINTS, COORDINATES, WINDOWS = "points", "coordinates", "windows"
READS = {
    "ELTWISE": POINTS,
    "GEMM": COORDINATES,
    "REDUCE": COORDINATES,
    "SOFTMAX": COORDINATES,
    "LRN": COORDINATES,
    "CONV": WINDOWS,
    "DWCONV": WINDOWS,
    "POOL": WINDOWS,
}
"""Kernel -> how it reads. A kernel that is not here is held to what every kernel needs."""


def check_nest(nest: Nest) -> None:
    """Raises ``OperatorError`` for an access that the kernel or the DMAs would take for another one."""
    for operand in nest.strided_inputs:
        _check_view(nest, operand)
        for position, access in enumerate(operand.access):
            _check_access(nest, operand, position, access, READS.get(nest.kernel, WINDOWS))
    _check_view(nest, nest.output)
    whole = READS.get(nest.kernel) == COORDINATES  # rows are written as a whole
    for position, access in enumerate(nest.output.access):
        if access.dim is not None or not whole:
            _check_access(nest, nest.output, position, access, POINTS)
        if access.a != 1:
            _refuse(
                nest, nest.output, position, f"every {access.a}-th element", "a = 1, and strides of the view"
            )
    _check_once(nest)


def _refuse(nest: Nest, operand: Operand, position: int, given: str, accepted: str) -> None:
    raise OperatorError(
        f"nest {nest.kernel}, operand {operand.name!r}, dimension {position} of its view", given, accepted
    )


def _check_view(nest: Nest, operand: Operand) -> None:
    ranks = {len(operand.shape), len(operand.strides), len(operand.access)}
    if len(ranks) > 1:
        raise OperatorError(
            f"nest {nest.kernel}, operand {operand.name!r}",
            f"sizes {operand.shape}, strides {operand.strides}, {counted(len(operand.access), 'access')}",
            "one of each per dimension of the view",
        )
    for position, (size, stride) in enumerate(zip(operand.shape, operand.strides, strict=True)):
        if size > 1 and stride < 1:
            accepted = "1 or more: DMAs walk forwards, and a broadcast dimension is left out of the view"
            _refuse(nest, operand, position, f"stride {stride}", accepted)
    if operand.offset < 0:
        _refuse(nest, operand, 0, f"offset {operand.offset}", "0 or more")


def _check_access(nest: Nest, operand: Operand, position: int, access: Access, reads: str) -> None:
    size = operand.shape[position]
    if access.dim is None:
        if reads == POINTS and size > 1:
            _refuse(
                nest,
                operand,
                position,
                f"all {counted(size, 'element')}",
                "one element per member of the index",
            )
        return
    if not -1 <= access.dim < len(nest.dims):
        _refuse(
            nest, operand, position, f"index dimension {access.dim}", f"{span(0, len(nest.dims) - 1)}, or K"
        )
    extent = nest.k_extent if access.dim < 0 else nest.dims[access.dim].extent
    interval = f"[{access.a}*i + {access.start}, {access.a}*i + {access.end}]"
    if access.a < 1 or access.end < access.start:
        _refuse(nest, operand, position, interval, "a of 1 or more, and an end not before the start")
    if reads == WINDOWS or not extent:
        return
    if access.start != access.end:
        _refuse(nest, operand, position, interval, "an interval of one element: this kernel takes one")
    if reads == COORDINATES and (access.a, access.start) != (1, 0):
        _refuse(nest, operand, position, interval, "[i, i]: this kernel takes element i for member i")
    last = access.a * (extent - 1) + access.end
    if access.start < 0 or last >= size:
        _refuse(
            nest,
            operand,
            position,
            f"{interval} for i of {span(0, extent - 1)}",
            f"elements {span(0, size - 1)}",
        )


def _check_once(nest: Nest) -> None:
    """No two members write one element: whose value stayed would be chance."""
    named = [access.dim for access in nest.output.access if access.dim is not None]
    for d, dim in enumerate(nest.dims):
        if dim.extent > 1 and named.count(d) != 1:
            raise OperatorError(
                f"nest {nest.kernel}, operand {nest.output.name!r}",
                f"{counted(named.count(d), 'dimension')} following index dimension {d} ({dim.name!r})",
                "one: every member writes elements of its own",
            )
    if named != sorted(named):
        raise OperatorError(
            f"nest {nest.kernel}, operand {nest.output.name!r}",
            f"index dimensions in the order {named}",
            "the order of the index: kernels write it row-major, and the view's strides say where to",
        )
    walked = sorted(
        (stride, size)
        for stride, size in zip(nest.output.strides, nest.output.shape, strict=True)
        if size > 1
    )
    reach = 1
    for stride, size in walked:
        if stride < reach:
            raise OperatorError(
                f"nest {nest.kernel}, operand {nest.output.name!r}",
                f"strides {list(nest.output.strides)} over {list(nest.output.shape)}, which overlap",
                f"a stride of {reach} or more there",
            )
        reach = stride * (size - 1) + reach


def check_inside(nest: Nest, operand: Operand, elements: int) -> None:
    """Raises ``OperatorError`` unless the view lies in a tensor of so many ``elements``."""
    reach = sum((size - 1) * stride for size, stride in zip(operand.shape, operand.strides, strict=True))
    if 0 not in operand.shape and operand.offset + reach >= elements:
        raise OperatorError(
            f"nest {nest.kernel}, operand {operand.name!r}",
            f"offset {operand.offset}, strides {list(operand.strides)} over {list(operand.shape)}",
            f"elements {span(0, elements - 1)} of its tensor",
        )
