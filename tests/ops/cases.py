# SPDX-License-Identifier: Apache-2.0
"""The table: every operator case, one list."""

from __future__ import annotations

from tests.ops import cases_elementwise, cases_movement, cases_products, cases_rows, cases_windows
from tests.ops.case import Case

CASES: list[Case] = [
    *cases_products.CASES,
    *cases_windows.CASES,
    *cases_elementwise.CASES,
    *cases_movement.CASES,
    *cases_rows.CASES,
]
