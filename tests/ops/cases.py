# SPDX-License-Identifier: Apache-2.0
"""The table: every operator case, one list, from the files ``cases_*.py`` beside this one.

Such a file has ``CASES``, and ``FAMILIES`` where it draws random cases too (see strategies.py).
"""

from __future__ import annotations

import importlib
from pathlib import Path

from hypothesis import strategies as st

from tests.ops import strategies
from tests.ops.case import Case

_FILES = [
    importlib.import_module(f"tests.ops.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("cases_*.py"))
]

CASES: list[Case] = [case for file in _FILES for case in file.CASES]
FAMILIES: dict[str, st.SearchStrategy[Case]] = dict(strategies.FAMILIES)
for _file in _FILES:
    FAMILIES |= getattr(_file, "FAMILIES", {})
