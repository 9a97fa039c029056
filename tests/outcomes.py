# SPDX-License-Identifier: Apache-2.0
"""How calls with odd arguments may end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onedispatch as od


def refused_or_taken(call: Callable[[], Any]) -> None:
    """Calls it: an error of ours that says something, or none; a mistake of ours goes through."""
    try:
        call()
    except od.InternalError:
        raise
    except od.OneDispatchError as error:
        assert str(error)
