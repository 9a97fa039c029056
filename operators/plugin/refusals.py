# SPDX-License-Identifier: Apache-2.0
"""How custom kernels, and the nodes that they compute, are refused: one way for all of the package."""

from __future__ import annotations

from onedispatch.operators.declarations.statuses import CODES, error_class
from onedispatch.transactions.base.errors import KernelError


def refusal(
    status: str, where: str, given: object, accepted: str, remedy: str = "", *, node: str = ""
) -> KernelError:
    """The error of a row of ``statuses.py``: its class says what kind, ``.expected`` and ``.given`` the rest.

    ``node`` names the node of the model, where it is about one.
    """
    code = CODES[status]
    return error_class(code)(where, str(given), accepted, remedy, status=code, node=node)


def relocated(error: KernelError, where: str, node: str = "") -> KernelError:
    """The same error, which happened at ``where``."""
    cls = error_class(error.status)
    return cls(where, error.given, error.accepted, error.remedy, status=error.status, node=node)
