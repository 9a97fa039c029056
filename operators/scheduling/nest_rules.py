# SPDX-License-Identifier: Apache-2.0
"""What a kernel makes of a nest: checked where the nest is declared.

A chunk in a core's memory has no coordinates of its own. A kernel therefore reads each operand in one of
four ways (``Tensor.walk``), and a declaration that means something else would give wrong values without
a word:

- ``affine`` (results of element-wise kernels): member ``i`` takes the one element ``a*i + start``, which
  lies in the view; ``fraction`` (what those read): the one element ``floor(a*i/den) + start``;
- ``unit`` (matrix products, reductions, rows): member ``i`` takes the element ``i``, or all of a
  dimension that follows none of the index;
- ``interval`` (windows): intervals of several elements, over the border too, where the kernel knows what
  padding is. What their arguments walk beyond the interval, the core refuses.
"""

from __future__ import annotations

from onedispatch.operators.declarations.kernel import MAX_DIMS, WHOLE, FunctionTable, Scalar, Tensor
from onedispatch.operators.declarations.params import MAX_ALIGN, MAX_DENOMINATOR, MAX_NUMERATOR
from onedispatch.operators.scheduling.index_space import Access, LoopNest, Operand
from onedispatch.transactions.base.errors import OperatorError
from onedispatch.transactions.base.text import counted, span


def check_nest(nest: LoopNest) -> None:
    """Raises ``OperatorError`` for what the kernel does not declare, or would take for something else."""
    if len(nest.dims) > MAX_DIMS:
        raise _error(nest, "its dimensions", counted(len(nest.dims), "dimension"), f"{MAX_DIMS} at most")
    _check_numbers(nest)
    _check_bindings(nest)
    if nest.is_empty:
        return
    tensors, members = {tensor.name: tensor for tensor in nest.kernel.tensors}, nest.kernel.members
    for operand in nest.strided:
        tensor = tensors[operand.name]
        _check_view(nest, operand)
        for position, access in enumerate(operand.access):
            _check_access(nest, operand, position, access, tensor)
            if operand.output is not None and access.a != 1 and access.dim is not None and not members:
                given = f"every {access.a}-th element"
                _refuse(nest, operand, position, given, "a = 1, and strides of the view")
    for output in nest.outputs:
        _check_once(nest, output)
        _check_padding(nest, output)


def _check_numbers(nest: LoopNest) -> None:
    """Extents, multiples, roles and scalars mean something, though a problem may have been read from data."""
    for what, value, least in (
        *((f"dimension {dim.name!r}, extent", dim.extent, 0) for dim in nest.dims),
        *((f"dimension {dim.name!r}, multiple", dim.multiple, 1) for dim in nest.dims),
        *((f"dimension {dim.name!r}, largest tile", dim.max_tile, 1) for dim in nest.dims),
        ("its reduction, extent", nest.k_extent, 0),
        ("its reduction, multiple", nest.k_multiple, 1),
    ):
        if value < least:
            raise _error(nest, what, str(value), f"{least} or more")
    for role, dim in nest.roles.items():
        if not 0 <= dim < len(nest.dims):
            raise _error(
                nest, f"role {role!r}", str(dim), f"one of its {counted(len(nest.dims), 'dimension')}"
            )
    for scalar in nest.kernel.scalars:
        given = nest.scalars.get(scalar.name, 0)
        if scalar.table is None and isinstance(given, str):
            raise _error(nest, f"scalar {scalar.name!r}", repr(given), "a number")
        if (
            scalar.table is None
            and not scalar.hidden
            and scalar.name in nest.scalars
            and not (scalar.takes(given) or (scalar.is_unbounded and given != given))  # NaN of a model
        ):
            raise _error(nest, f"scalar {scalar.name!r}", repr(given), scalar.accepted)
        if scalar.table is not None and not _names_row(scalar.table, given):
            known = ", ".join(row.name for row in scalar.table.rows)
            raise _error(nest, f"scalar {scalar.name!r}", repr(given), known)


def _names_row(table: FunctionTable, value: float | str) -> bool:
    """Whether it is the name of a row, or its code."""
    if isinstance(value, str):
        return any(row.name == value for row in table.rows)
    return value in range(len(table.rows))


def _check_padding(nest: LoopNest, output: Operand) -> None:
    """Only the members that fill up the words of an output's rows may be missing in inputs."""
    unit, last = output.dtype.per_word, len(nest.dims) - 1
    for d, dim in enumerate(nest.dims):
        if not 0 <= dim.padding < (min(unit, dim.extent) if d == last else 1):
            given = f"{dim.padding} members of {dim.name}"
            accepted = f"fewer than {unit}, of the last dimension alone: words of {output.dtype}"
            raise _error(nest, "its padding", given, accepted)


def _check_bindings(nest: LoopNest) -> None:
    """Roles, operands, element types and scalars are those of the kernel's declaration."""
    kernel, bound = nest.kernel, nest.bound
    if set(nest.roles) != set(kernel.dims):
        raise _error(nest, "its roles", str(sorted(nest.roles)), str(sorted(kernel.dims)))
    known = [t.name for t in kernel.tensors] + [s.name for s in kernel.scalars]
    unknown = sorted((set(bound) | set(nest.scalars)) - set(known))
    if unknown:
        raise _error(nest, "its operands and scalars", ", ".join(unknown), ", ".join(known))
    for tensor in kernel.tensors:
        operand = bound.get(tensor.name)
        if operand is None and not tensor.optional:
            raise _error(nest, f"operand {tensor.name!r}", "nothing", "it must be there")
        if operand is not None:
            _check_dtype(nest, tensor, operand.dtype.name)
    _check_types(nest)
    for scalar in kernel.scalars:
        if scalar.table is not None and kernel.seen_by(scalar).name in bound:
            _check_function(nest, scalar, bound[kernel.seen_by(scalar).name].dtype.name)


def _check_dtype(nest: LoopNest, tensor: Tensor, given: str) -> None:
    accepted = tensor.dtypes.split()
    like = nest.bound.get(tensor.like)
    if like is not None:
        accepted = [like.dtype.name]
    if given not in accepted:
        what = f"element type of operand {tensor.name!r}"
        wanted = f"{accepted[0]}, that of {tensor.like!r}" if like is not None else ", ".join(accepted)
        raise _error(nest, what, given, wanted)


def _check_types(nest: LoopNest) -> None:
    """The element types of the operands that are there stand together in a row of the declaration."""
    given = {name: operand.dtype.name for name, operand in nest.bound.items()}
    rows = nest.kernel.type_rows
    if rows and not any(all(dtype in row.get(name, ()) for name, dtype in given.items()) for row in rows):
        found = ", ".join(f"{name} {dtype}" for name, dtype in given.items())
        accepted = "; ".join(
            ", ".join(f"{name} {'|'.join(row[name])}" for name in given if name in row) for row in rows
        )
        raise _error(nest, "its element types together", found, accepted)


def _check_function(nest: LoopNest, scalar: Scalar, dtype: str) -> None:
    """The chosen function is defined for the elements that it sees."""
    assert scalar.table is not None
    row = nest.function(scalar)
    if not row.takes(dtype):
        accepted = ", ".join(r.name for r in scalar.table.rows if r.takes(dtype))
        raise _error(nest, f"scalar {scalar.name!r} for elements of {dtype}", row.name, accepted)


def _error(nest: LoopNest, what: str, given: str, accepted: str) -> OperatorError:
    return OperatorError(f"nest of {nest.kernel.name}, {what}", given, accepted)


def _refuse(nest: LoopNest, operand: Operand, position: int, given: str, accepted: str) -> None:
    what = f"operand {operand.name!r}, dimension {position} of its view"
    raise _error(nest, what, given, accepted)


def _check_view(nest: LoopNest, operand: Operand) -> None:
    ranks = {len(operand.shape), len(operand.strides), len(operand.access)}
    if len(ranks) > 1:
        raise _error(
            nest,
            f"operand {operand.name!r}",
            f"sizes {operand.shape}, strides {operand.strides}, {counted(len(operand.access), 'access')}",
            "one of each per dimension of the view",
        )
    for position, (size, stride) in enumerate(zip(operand.shape, operand.strides, strict=True)):
        if size > 1 and stride < 1:
            accepted = "1 or more: DMAs walk forwards, and a broadcast dimension is left out of the view"
            _refuse(nest, operand, position, f"stride {stride}", accepted)
    if operand.offset < 0:
        _refuse(nest, operand, 0, f"offset {operand.offset}", "0 or more")
    if operand.dtype.per_word > 1:
        _check_whole_words(nest, operand)


def _check_whole_words(nest: LoopNest, operand: Operand) -> None:
    """Chunks of elements narrower than a word begin and end with words, as DMAs move them."""
    unit, last = operand.dtype.per_word, len(operand.shape) - 1
    for position, (size, stride, access) in enumerate(
        zip(operand.shape, operand.strides, operand.access, strict=True)
    ):
        if position < last and size > 1 and stride % unit:
            _refuse(
                nest,
                operand,
                position,
                f"stride {stride}",
                f"a multiple of {unit}, a word of {operand.dtype}",
            )
        if position == last and (stride != 1 or size % unit):
            accepted = f"stride 1 and a multiple of {unit}: whole words of {operand.dtype}"
            _refuse(nest, operand, position, f"{counted(size, 'element')} with stride {stride}", accepted)
        if position == last and access.dim is not None and not _in_words(nest, operand, access):
            accepted = f"an alignment of {unit}, or tiles and extents that are multiples of it"
            _refuse(nest, operand, position, f"aligned to {access.align}", accepted)
    if operand.tensor < 0 and operand.offset % unit:
        _refuse(
            nest, operand, last, f"offset {operand.offset}", f"a multiple of {unit}: outputs are whole words"
        )


def _in_words(nest: LoopNest, operand: Operand, access: Access) -> bool:
    unit = operand.dtype.per_word
    if access.align % unit == 0 and operand.tensor >= 0:
        return True
    if nest.kernel.members and operand.output is not None and access.dim is not None:
        return _members_in_words(nest, operand, access)
    if access.dim is None or (access.a, access.den, access.start % unit) != (1, 1, 0):
        return False
    if access.dim < 0:
        return nest.k_multiple % unit == 0 and nest.k_extent % unit == 0
    if not access.dim < len(nest.dims):
        return True  # refused elsewhere
    dim = nest.dims[access.dim]
    return (dim.multiple % unit == 0 or dim.whole) and dim.extent % unit == 0


def _members_in_words(nest: LoopNest, operand: Operand, access: Access) -> bool:
    """Whether every tile of an output of a member kernel, ``a`` elements per member, is whole words."""
    assert access.dim is not None
    unit, dim = operand.dtype.per_word, nest.dims[access.dim]
    if (access.start, access.end, access.den) != (0, access.a - 1, 1):
        return False
    return dim.whole or (dim.multiple * access.a % unit == 0 and dim.extent * access.a % unit == 0)


def _check_access(nest: LoopNest, operand: Operand, position: int, access: Access, tensor: Tensor) -> None:
    size = operand.shape[position]
    if access.dim is None:
        whole = any(axis.startswith(WHOLE) for axis in tensor.axis_names)
        if operand.tensor >= 0 and size == operand.dtype.per_word and position == len(operand.shape) - 1:
            return  # the word around one element, which lies at the offset
        if size > 1 and tensor.walk in ("affine", "fraction") and not whole:
            given = f"all {counted(size, 'element')}"
            _refuse(nest, operand, position, given, "one element per member of the index")
        return
    if not -1 <= access.dim < len(nest.dims):
        accepted = f"{span(0, len(nest.dims) - 1)}, or K"
        _refuse(nest, operand, position, f"index dimension {access.dim}", accepted)
    if [other.dim for other in operand.access].count(access.dim) > 1:
        accepted = "one dimension of the view per index dimension; a diagonal is one whose stride is the sum"
        _refuse(nest, operand, position, f"index dimension {access.dim} again", accepted)
    interval = _interval(access)
    if not 1 <= access.a <= MAX_NUMERATOR or access.end < access.start:
        accepted = f"a of 1 or more (at most {MAX_NUMERATOR}), and an end not before the start"
        _refuse(nest, operand, position, interval, accepted)
    if not (1 <= access.den <= MAX_DENOMINATOR and 1 <= access.align <= MAX_ALIGN):
        given = f"{interval} aligned to {access.align}"
        accepted = f"a denominator of {span(1, MAX_DENOMINATOR)}, an alignment of {span(1, MAX_ALIGN)}"
        _refuse(nest, operand, position, given, accepted)
    _check_walk(nest, operand, position, access, tensor)


def _interval(access: Access) -> str:
    step = f"{access.a}*i" if access.den == 1 else f"{access.a}*i/{access.den}"
    return f"[{step} + {access.start}, {step} + {access.end}]"


def _check_walk(nest: LoopNest, operand: Operand, position: int, access: Access, tensor: Tensor) -> None:
    """The kernel finds each member's elements where the access says they are, inside the view."""
    size, interval = operand.shape[position], _interval(access)
    along = access.dim if access.dim is not None else 0
    extent = nest.k_extent if along < 0 else nest.dims[along].extent - nest.dims[along].padding
    if tensor.walk == "interval" or not extent:
        return
    if access.start != access.end:
        _refuse(nest, operand, position, interval, "an interval of one element: this kernel takes one")
    if access.den != 1 and (tensor.walk != "fraction" or along < 0):
        _refuse(nest, operand, position, interval, "no denominator: this kernel walks whole steps")
    if tensor.walk == "unit" and (access.a, access.start) != (1, 0):
        _refuse(nest, operand, position, interval, "[i, i]: this kernel takes element i for member i")
    last = access.a * (extent - 1) // access.den + access.end
    if access.start < 0 or last >= size:
        given, accepted = f"{interval} for i of {span(0, extent - 1)}", f"elements {span(0, size - 1)}"
        _refuse(nest, operand, position, given, accepted)


def _check_once(nest: LoopNest, output: Operand) -> None:
    """No two members write one element: whose value stayed would be chance."""
    named = [access.dim for access in output.access if access.dim is not None]
    for d, dim in enumerate(nest.dims):
        if nest.kernel.members and dim.whole:
            continue  # all of its members are in every call, and its instance was checked
        if dim.extent > 1 and named.count(d) != 1:
            raise _error(
                nest,
                f"operand {output.name!r}",
                f"{counted(named.count(d), 'dimension')} following index dimension {d} ({dim.name!r})",
                "one: every member writes elements of its own",
            )
    if named != sorted(named) and not nest.kernel.members:
        raise _error(
            nest,
            f"operand {output.name!r}",
            f"index dimensions in the order {named}",
            "the order of the index: kernels write it row-major, and the view's strides say where to",
        )
    walked = sorted(
        (stride, size) for stride, size in zip(output.strides, output.shape, strict=True) if size > 1
    )
    reach = 1
    for stride, size in walked:
        if stride < reach:
            raise _error(
                nest,
                f"operand {output.name!r}",
                f"strides {list(output.strides)} over {list(output.shape)}, which overlap",
                f"a stride of {reach} or more there",
            )
        reach = stride * (size - 1) + reach


def check_inside(nest: LoopNest, operand: Operand, elements: int) -> None:
    """Raises ``OperatorError`` unless the view lies in a tensor of so many ``elements``."""
    reach = sum((size - 1) * stride for size, stride in zip(operand.shape, operand.strides, strict=True))
    first = operand.offset - operand.offset % operand.dtype.per_word  # chunks begin with words
    if 0 not in operand.shape and first + reach >= elements:
        raise _error(
            nest,
            f"operand {operand.name!r}",
            f"offset {operand.offset}, strides {list(operand.strides)} over {list(operand.shape)}",
            f"elements {span(0, elements - 1)} of its tensor",
        )
