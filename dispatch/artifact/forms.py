# SPDX-License-Identifier: Apache-2.0
"""The form of a compiled model's description: which fields, of which types, in which ranges.

``MODEL`` and what it is made of is the one table of fields. ``CompiledModel.save`` holds what it
writes against it, ``load`` what it reads, before anything is built. Which names and sizes must fit
each other is in ``consistency``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onedispatch.dispatch.base import limits
from onedispatch.dispatch.frontend.graph import dtype_of, known_type
from onedispatch.operators.declarations.params import MAX_CARRIED
from onedispatch.operators.scheduling.packing import MOST_STEPS
from onedispatch.transactions.base.signature import bounded_repr

Form = Callable[[Any, str], None]
"""(value, where it stands) -> None, or ``Misfit``"""

_LARGEST = (1 << 63) - 1


class Misfit(ValueError):
    """A value that does not have its form, or does not fit others."""

    def __init__(self, where: str, given: str, accepted: str) -> None:
        super().__init__(f"{where}: {given} (expected: {accepted})")


# -- ways of making forms -----------------------------------------------------------------------


def which(accepted: str, fits: Callable[[Any], bool]) -> Form:
    def check(value: Any, where: str) -> None:
        if not fits(value):
            raise Misfit(where, bounded_repr(value), accepted)

    return check


def integer(least: int, most: int = _LARGEST) -> Form:
    """A whole number; True is none."""
    return which(
        f"a whole number from {least} to {most}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
    )


def listed(item: Form, most: int | None = None) -> Form:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list | tuple) or (most is not None and len(value) > most):
            raise Misfit(
                where, bounded_repr(value), "a list" + (f" of at most {most}" if most is not None else "")
            )
        for index, one in enumerate(value):
            item(one, f"{where}[{index}]")

    return check


def mapped(item: Form) -> Form:
    """A map of names."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise Misfit(where, bounded_repr(value), "a map")
        for key, one in value.items():
            TEXT(key, f"a key of {where}")
            item(one, f"{where}[{key!r}]")

    return check


def row(**fields: Form) -> Form:
    """A list with one entry per field, in this order."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list | tuple) or len(value) != len(fields):
            raise Misfit(where, bounded_repr(value), f"a list of {', '.join(fields)}")
        for one, (name, form) in zip(value, fields.items(), strict=True):
            form(one, f"{where}.{name}")

    return check


def record(**fields: Form) -> Form:
    """A map with exactly these fields."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict) or value.keys() != fields.keys():
            raise Misfit(where, bounded_repr(value), f"a map of {', '.join(fields)}")
        for name, form in fields.items():
            form(value[name], f"{where}.{name}")

    return check


def optional(form: Form) -> Form:
    def check(value: Any, where: str) -> None:
        if value is not None:
            form(value, where)

    return check


def either(field: str, there: Form, otherwise: Form) -> Form:
    """``there`` for maps that have this field."""

    def check(value: Any, where: str) -> None:
        (there if isinstance(value, dict) and field in value else otherwise)(value, where)

    return check


# -- the table ----------------------------------------------------------------------------------

TEXT = which("text", lambda value: isinstance(value, str))
TEXTS = listed(TEXT)
NAT = integer(0)
INTEGER = integer(-_LARGEST - 1)
NUMBER = which("a finite number", lambda value: isinstance(value, float) and math.isfinite(value))
TYPE = which("a type that ONNX has", lambda value: isinstance(value, str) and known_type(value))
NUMBERS = which(
    "the type of a tensor of numbers",
    lambda v: isinstance(v, str) and (dtype := dtype_of(v)) is not None and not dtype.hasobject,
)
SHAPE = listed(NAT, limits.RANK.most)
DIMENSION = which(
    "a size, a name or nothing",
    lambda v: v is None or isinstance(v, str) or (type(v) is int and 0 <= v <= _LARGEST),
)

VALUE = row(name=TEXT, type=TYPE, shape=optional(listed(DIMENSION)))
VALUES = listed(VALUE)
ARRAY = either(
    "text",
    record(type=which("tensor(string)", lambda v: v == "tensor(string)"), shape=SHAPE, text=TEXTS),
    record(type=NUMBERS, shape=SHAPE, blob=NAT),
)
NODE = row(name=TEXT, proto=which("bytes", lambda v: isinstance(v, bytes)))
GRAPH = record(
    name=TEXT,
    nodes=listed(NODE, limits.NODES.most),
    inputs=VALUES,
    outputs=VALUES,
    constants=mapped(ARRAY),
    values=VALUES,
    opsets=mapped(integer(-_LARGEST - 1)),  # foreign domains count as they like
    ir_version=integer(1),
    folded=listed(row(node=TEXT, op_type=TEXT, reason=TEXT)),
    order=TEXTS,
    annotations=listed(row(tensor=TEXT, scale=TEXT, zero_point=TEXT)),
    quantised=listed(
        row(tensor=TEXT, scale=listed(NUMBER), zero_point=listed(INTEGER), axis=optional(NAT)),
    ),
)
SLOT = row(name=TEXT, type=NUMBERS, shape=SHAPE, offset=NAT, row_pitch=NAT)
OP = row(
    name=TEXT,
    op_type=TEXT,
    nodes=TEXTS,
    timer=NAT,
    arguments=TEXTS,
    schedule=TEXTS,
    work_basis=TEXT,
    macs=NAT,
)
_WORD = integer(0, (1 << 32) - 1)
LINKED = row(digest=_WORD, types=_WORD, code_bytes=integer(0, 1 << 20), name=TEXT)
RELOAD = row(before=NAT, timer=NAT, nbytes=NAT, kernels=TEXT)
HOST_STEP = record(graph=GRAPH, inputs=TEXTS, outputs=TEXTS)
SIZES = row(**dict.fromkeys(("input", "output", "scratch", "const", "params"), NAT))
COPY = row(
    constant=TEXT,
    itemsize=which("1, 2, 4 or 8", lambda v: type(v) is int and v in (1, 2, 4, 8)),
    source=NAT,
    target=NAT,
    steps=listed(row(times=integer(1), source=NAT, target=NAT), MOST_STEPS),
    factors=optional(NAT),
    own=optional(NAT),
)
DEVICE_STEP = record(
    transaction=NAT,
    sizes=SIZES,
    const=NAT,
    const_starts=listed(NAT),
    const_parts=listed(row(first=NAT, size=NAT)),
    const_copies=listed(COPY),
    params=NAT,
    inputs=listed(SLOT),
    outputs=listed(SLOT),
    ops=listed(OP),
    scratch_bound=NAT,
    image=listed(LINKED, MAX_CARRIED),
    reloads=listed(RELOAD),
)
PLACED = which("npu, cpu or folded", lambda v: isinstance(v, str) and v in ("npu", "cpu", "folded"))
PLACEMENT = row(
    node=TEXT, op_type=TEXT, device=PLACED, reason=TEXT, nearest=TEXT, remark=TEXT, operators=TEXTS
)
GROUP = row(operators=TEXTS, tensors=TEXTS, saved_bytes=NAT, tile_bytes=NAT, saved_cycles=INTEGER)
PASSED = row(tensor=TEXT, nbytes=NAT, reason=TEXT)
BANDED = row(operators=TEXTS, bands=NAT, saved_cycles=INTEGER)
GROUPING = row(groups=listed(GROUP), passed=listed(PASSED), reason=TEXT, banded=listed(BANDED))
EXECUTABLE = record(
    inputs=VALUES,
    outputs=VALUES,
    sources=TEXTS,
    steps=listed(either("graph", HOST_STEP, DEVICE_STEP)),
    placement=listed(PLACEMENT),
    constants=mapped(ARRAY),
    kernels=listed(row(name=TEXT, digest=_WORD, origin=TEXT, nodes=TEXTS)),
    grouping=optional(GROUPING),
    actual=mapped(TEXT),
)
METADATA = record(
    producer_name=TEXT,
    graph_name=TEXT,
    domain=TEXT,
    description=TEXT,
    graph_description=TEXT,
    version=INTEGER,
    custom_metadata_map=mapped(TEXT),
)
BLOBS = listed(row(offset=NAT, size=NAT))


def model_form(
    marker: str,
    precisions: tuple[str, ...],
    fallbacks: tuple[str, ...],
    cast_policies: tuple[str, ...],
    sums: tuple[str, ...],
    groups: tuple[str, ...],
    most: int,
) -> Form:
    """The whole description but its blobs, with the choices that ``model`` has."""

    def one_of(texts: tuple[str, ...]) -> Form:
        return which(" or ".join(texts), lambda value: isinstance(value, str) and value in texts)

    return record(
        format=one_of((marker,)),
        device=TEXT,
        precision=one_of(precisions),
        fallback=one_of(fallbacks),
        cast_policy=one_of(cast_policies),
        sums=one_of(sums),
        groups=one_of(groups),
        inputs=VALUES,
        outputs=VALUES,
        deciding=TEXTS,
        cache_size=integer(1, most),
        frozen=mapped(ARRAY),
        executables=listed(row(key=TEXT, executable=EXECUTABLE)),
        metadata=METADATA,
        source=optional(GRAPH),
        weights=mapped(NAT),
    )
