# SPDX-License-Identifier: Apache-2.0
"""The declaration of a custom kernel as text, for ``onedispatch kernel show``."""

from __future__ import annotations

from typing import Any

from onedispatch.operators.declarations.kernel import Scalar
from onedispatch.operators.plugin.declared import CODE_BYTES, Declared, In, Out, accepted_by, ranks_of
from onedispatch.transactions.base.text import counted

OPERANDS = ("operand", "role", "ranks", "element types", "access of member i", "outside, or not written")
SCALARS = ("scalar", "type", "accepted", "default")
_PER_NODE = "per node: the kernel says it for each"


def head(declared: Declared, digest: int, origin: str) -> list[str]:
    """Where it is from, what it takes of memory, and its index space."""
    assumed = ", assumed: the declaration does not say" if declared.code_bytes == CODE_BYTES else ""
    devices = "every device" if declared.devices is None else ", ".join(declared.devices)
    lines = [
        f"from {origin}" + (f", body in {declared.library}" if declared.library else ""),
        f"digest 0x{digest:08X}, {counted(declared.code_bytes, 'byte')} of program memory{assumed}",
        f"runs on {devices}",
        f"index space: {_PER_NODE}; i counts members of a dimension",
    ]
    if not declared.deterministic:
        lines.append("the same inputs may give other bits")
    for output, source in declared.in_place.items():
        lines.append(f"{output} may lie where {source} lay")
    return lines


def operand_rows(declared: Declared) -> list[tuple[object, ...]]:
    """The columns of ``OPERANDS``."""
    rows = [_operand(declared, one) for one in declared.operands]
    rows += [(one.name, "aux", "", one.dtype, "all", "") for one in declared.aux]
    return rows + [(one.name, "scratch", "", one.dtype, "of each call's own", "") for one in declared.scratch]


def _operand(declared: Declared, one: In | Out) -> tuple[object, ...]:
    least, most = ranks_of(one)
    kind, value = ("pad", one.pad) if isinstance(one, In) else ("fill", one.fill)
    optional = isinstance(one, In) and one.optional
    return (
        one.name + (" (optional)" if optional else ""),
        "input" if isinstance(one, In) else "output",
        f"{least} to {most}" if least < most else least,
        " ".join(declared.dtypes_of(one)) + (f", that of {one.like}" if one.like else "") + _quantised(one),
        _PER_NODE.partition(":")[0],
        "" if value is None else f"{kind} {value:g}",
    )


def _quantised(one: In | Out) -> str:
    if one.quantised is None:
        return ""
    return ", with scale and zero point" if one.quantised else ", without scale and zero point"


def scalar_row(scalar: Scalar) -> tuple[object, ...]:
    """The columns of ``SCALARS``."""
    default = "" if scalar.default is None else f"{scalar.default:g}"
    return scalar.name, scalar.type, accepted_by(scalar), default


def cost(declared: Declared) -> list[str]:
    """What a call costs, and what of that is assumed."""
    work = " + ".join(f"{times:g} {term}" for term, times in declared.work)
    assumed = "as NumPy operations of a Python body count, else 1 op for each touched element (ASSUMPTION)"
    said = work or assumed
    scratch = ", ".join(one.name for one in declared.scratch)
    lines = [f"bytes of scratch ({scratch}): per node"] if scratch else []
    return [
        *lines,
        "cycles per call: entry and rows, and the longest of loads of chunks, stores of chunks, and work",
        f"  work of a member = {said}, each at the device's price per vector",
    ]


def described(declared: Declared, digest: int, origin: str) -> dict[str, Any]:
    """The declaration as plain data."""

    def operand(one: In | Out) -> dict[str, Any]:
        value = {"pad": one.pad, "optional": one.optional} if isinstance(one, In) else {"fill": one.fill}
        return {
            "name": one.name,
            "dtypes": list(declared.dtypes_of(one)),
            "ranks": list(ranks_of(one)),
            "like": one.like,
            "quantised": one.quantised,
            **value,
        }

    return {
        "name": declared.name,
        "summary": declared.summary,
        "digest": digest,
        "file": origin,
        "devices": None if declared.devices is None else list(declared.devices),
        "inputs": [operand(one) for one in declared.inputs],
        "aux": [{"name": one.name, "dtype": one.dtype} for one in declared.aux],
        "scratch": [{"name": one.name, "dtype": one.dtype} for one in declared.scratch],
        "outputs": [operand(one) for one in declared.outputs],
        "scalars": [
            {"name": s.name, "type": s.type, "accepted": accepted_by(s), "default": s.default}
            for s in declared.scalars
        ],
        "work": dict(declared.work),
        "code_bytes": declared.code_bytes,
        "deterministic": declared.deterministic,
        "in_place": dict(declared.in_place),
        "library": declared.library,
    }
