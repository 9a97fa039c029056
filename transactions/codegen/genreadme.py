# SPDX-License-Identifier: Apache-2.0
"""Generates the opcode table of ``transactions/README.md`` from ``spec``; a test checks that it is current.

``python -m onedispatch.transactions.codegen.genreadme transactions/README.md`` replaces the text
between the two markers.
"""

from __future__ import annotations

import sys
from pathlib import Path

from onedispatch.transactions.base.files import write_file
from onedispatch.transactions.format import spec
from onedispatch.transactions.format.spec import OpLayout

BEGIN = "<!-- opcodes: generated from spec.py -->"
END = "<!-- end of opcodes -->"


def _layout(layout: OpLayout) -> str:
    size = " or ".join(str(size) for size in layout.sizes)
    if layout.payload_at is not None:
        size += f" + {layout.payload_width}n"
    parts = [f"{field.name} {field.width}@{field.offset}" for field in layout.fields]
    if layout.size_at is not None:
        parts.append(f"*size* 4@{layout.size_at}")
    if layout.payload_at is not None:
        parts.append(f"payload @{layout.payload_at}")
    return f"{size}: " + ", ".join(parts) if parts else size


def opcode_table() -> str:
    """Returns the table as Markdown."""
    lines = ["| code | name | what | v0.1 | v1.0 | evidence |", "|---|---|---|---|---|---|"]
    for op in spec.OPCODES:
        old, new = op.layouts[spec.V0_1], op.layouts[spec.V1_0]
        second = "same" if old is new else _layout(new)
        lines.append(f"| {op.code} | {op.name} | {op.doc} | {_layout(old)} | {second} | {op.evidence} |")
    return "\n".join(lines)


def updated(readme: str) -> str:
    """Returns the README with a current table."""
    head, rest = readme.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{opcode_table()}\n{END}{tail}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    write_file(path, updated(path.read_text(encoding="utf-8")).encode())
