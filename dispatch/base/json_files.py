# SPDX-License-Identifier: Apache-2.0
"""JSON files that users write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onedispatch.transactions.base.boundary import error_line
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import read_file


def read_json(path: Path, accepted: str, remedy: str = "") -> Any:
    """Returns what a file has. Raises ``InputError``, with what is ``accepted``, where it is no JSON."""
    try:
        return json.loads(read_file(path, InputError, accepted).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"no JSON ({error_line(error)})", accepted, remedy) from error
