# SPDX-License-Identifier: Apache-2.0
"""What this folder asks of the C++ extension, which layers above import and provide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from onedispatch.transactions.base.errors import InternalError


class Native(Protocol):
    """Libraries of plug-ins, by the path of their shared object. Functions raise ``KernelError``.

    ``seconds``: what one call of a library's function may take.
    """

    def load_plugins(self, path: str, seconds: float) -> list[dict[str, Any]]:
        """Load a library for the rest of the process; the declarations of its plug-ins, in its order."""
        ...

    def plugin_names(self, path: str, device: str, seconds: float) -> list[str]:
        """What its ``od_kernel_names`` lists for a device."""
        ...

    def instantiate(self, path: str, number: int, node: dict[str, Any], seconds: float) -> dict[str, Any]:
        """What plug-in ``number`` says of a node."""
        ...


_PROVIDED: list[Native] = []
_PROVIDERS: list[Callable[[], object]] = []


def provide(native: Native) -> None:
    """Sets the extension that answers; the last one counts."""
    _PROVIDED[:] = [native]


def provided_by(load: Callable[[], object]) -> None:
    """Sets what calls ``provide`` at the first need; the last one counts."""
    _PROVIDERS[:] = [load]


def native() -> Native:
    """The extension. Raises ``InternalError`` where nothing provides it."""
    if not _PROVIDED:
        for load in _PROVIDERS:
            load()
    if not _PROVIDED:
        accepted = "dispatch/base/native.py, which provides the C++ extension"
        raise InternalError("operators/plugin/native.py", "nothing provided", accepted, "import onedispatch")
    return _PROVIDED[0]
