# SPDX-License-Identifier: Apache-2.0
"""How kernels from outside, and the nodes that they run, are refused: one way for all of this folder."""

from __future__ import annotations

from onedispatch.operators.declarations.statuses import STATUSES, error_class
from onedispatch.transactions.base.errors import KernelError

_CODES = {status.name: status.code for status in STATUSES}


def refusal(
    status: str, where: str, given: object, accepted: str, remedy: str = "", *, node: str = ""
) -> KernelError:
    """The error of a row of ``statuses.py``: its class says what kind, ``.expected`` and ``.given`` the rest.

    ``node`` names the node of the model, where it is about one.
    """
    code = _CODES[status]
    return error_class(code)(where, str(given), accepted, remedy, status=code, node=node)
