# SPDX-License-Identifier: Apache-2.0
"""Rules that operators of many kinds share."""

from __future__ import annotations

from onedispatch.dispatch.frontend.facts import Facts, NodeCheck, Shape
from onedispatch.dispatch.frontend.graph import type_name_of
from onedispatch.dispatch.frontend.schemas import onnx_schema
from onedispatch.transactions.base.text import span


def listed(facts: Facts, name: str, index: int) -> list[int] | None:
    """The integers of an attribute, or of an operand whose value is known."""
    value = facts.value(index)
    if value is not None:
        return [int(v) for v in value.reshape(-1)]
    given = facts.attr(name)
    return None if given is None else [int(v) for v in given]


def types_of_version(facts: Facts) -> None:
    """The first input has a type of the node's version, where inference is that of a newer one."""
    dtype, schema = facts.dtype(0), onnx_schema(facts.node.op_type, "", facts.opset)
    if dtype is None or schema is None:
        return
    accepted = sorted(schema.inputs[0].types)
    if type_name_of(dtype) not in accepted:
        version = f"in operator set {schema.since_version}"
        facts.refuse(facts.input_name(0), type_name_of(dtype), f"{version} {', '.join(accepted)}")


def axis_in_range(default: int, *, end: bool = False, no_scalars: int | None = None) -> NodeCheck:
    """Attribute ``axis`` names a dimension of the first input; ``end``: or the place behind the last.

    -1 and 0 name the one element of a scalar, as if it were a list, until the opset ``no_scalars``.
    """

    def check(facts: Facts) -> None:
        axis, shape = facts.attr("axis", default), facts.shape(0)
        if shape is None:
            return
        rank = len(shape)
        most = rank if end else rank - 1
        if rank == 0 and no_scalars is not None and facts.opset >= no_scalars:
            facts.refuse(facts.input_name(0), "a scalar", "rank 1 or more, with a dimension for the axis")
        if not -rank <= axis <= most and not (rank == 0 and axis in (-1, 0)):
            facts.refuse("attribute 'axis'", axis, f"{span(-rank, most)} for rank {rank}")

    return check


def fits_first(*indices: int, since: int = 1) -> NodeCheck:
    """These inputs broadcast to the first, not the other way round; older operator sets say it otherwise."""

    def check(facts: Facts) -> None:
        shape = facts.shape(0)
        for index in indices if shape is not None and facts.opset >= since else ():
            given = facts.shape(index)
            if given is not None and shape is not None and not broadcasts(given, shape):
                facts.refuse(
                    facts.input_name(index), list(given), f"a shape that broadcasts to {list(shape)}"
                )

    return check


def broadcasts(given: Shape, shape: Shape) -> bool:
    """Whether an operand of shape ``given`` broadcasts to ``shape``, which stays as it is."""
    ends = shape[len(shape) - len(given) :] if len(given) <= len(shape) else None
    return ends is not None and all(own in (1, size) for own, size in zip(given, ends, strict=True))


def one_of(name: str, *accepted: str) -> NodeCheck:
    """Attribute ``name`` is one of ``accepted``; left out, it is the first."""

    def check(facts: Facts) -> None:
        given = facts.attr(name, accepted[0])
        if given not in accepted:
            facts.refuse(f"attribute {name!r}", repr(given), ", ".join(map(repr, accepted)))

    return check


def flags(*names: str) -> NodeCheck:
    """Attributes that are 0 or 1."""

    def check(facts: Facts) -> None:
        for name in names:
            if facts.attr(name, 0) not in (0, 1):
                facts.refuse(f"attribute {name!r}", facts.attr(name, 0), "0, 1")

    return check
