# SPDX-License-Identifier: Apache-2.0
"""Options that a caller asks for; a compiled model was made with its own, and refuses others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.compiler.executable import HostStep
from onedispatch.dispatch.compiler.options import ImportOptions, check_choices
from onedispatch.transactions import find_device
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.machine.device import DeviceName

_AGAIN = "compile the ONNX file again"
READING = ("frontend", "outputs", "fusions")  # how a model is read
CHOICES = frozenset(("precision", "fallback", "cast_policy", "sums", "groups"))
SELECTING = ("selector", "catalog", "pins")  # who chooses solutions


@dataclass(frozen=True)
class RequestedOptions:
    """Options of ``compile``. None: its default, or what a compiled model has."""

    device: DeviceName | None = None
    precision: str | None = None
    fallback: str | None = None
    cast_policy: str | None = None
    sums: str | None = None
    groups: str | None = None
    frontend: str | None = None
    outputs: Sequence[str] | None = None
    fusions: Sequence[str] | None = None
    selector: Any = None
    catalog: Any = None
    pins: Sequence[str] | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Those that are not None, as keyword arguments of ``compile_model``."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in every.items() if value is not None}

    @property
    def reading(self) -> ImportOptions:
        """How the model is read."""
        return ImportOptions.checked(
            self.frontend, self.outputs, self.fusions, strict=self.fallback == "error"
        )

    def require(self, model: CompiledModel, *, command: bool = False) -> None:
        """Raises ``InputError`` where ``model`` was compiled with others, and for unknown choices.

        ``command``: they were options of a command, and are called so.
        """

        def called(name: str) -> str:
            return f"--{name.replace('_', '-')}" if command else name

        for name in (*READING, *SELECTING):
            if getattr(self, name) is not None:
                raise InputError(
                    called(name), repr(getattr(self, name)), "nothing: it is compiled already", _AGAIN
                )
        check_choices(**{name: value for name, value in self.given.items() if name in CHOICES})
        if self.device is not None and find_device(self.device) != model.target:
            accepted = f"{model.device!r} as it was when the model was compiled for it"
            raise InputError(called("device"), repr(self.device), accepted, _AGAIN)
        for name in sorted(CHOICES - {"fallback"}):
            wanted, own = getattr(self, name), getattr(model, name)
            if wanted not in (None, own):
                raise InputError(
                    called(name), repr(wanted), f"{own!r}, which the model was compiled for", _AGAIN
                )
        if self.fallback == "error" and model.fallback != "error" and _may_use_host(model):
            accepted = "'cpu', which the model was compiled for: nodes of it run on the host, or may"
            raise InputError(called("fallback"), "'error'", accepted, f"{_AGAIN}, with fallback='error'")


def _may_use_host(model: CompiledModel) -> bool:
    """True if a step of it runs on the host, or shapes that are still to come could lead to one."""
    steps = (step for executable in model.executables.values() for step in executable.steps)
    return model.source is not None or any(isinstance(step, HostStep) for step in steps)
