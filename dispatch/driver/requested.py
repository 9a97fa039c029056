# SPDX-License-Identifier: Apache-2.0
"""Options that a caller asks for; a compiled model was made with its own, and refuses others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.compiler.executable import HostStep
from onedispatch.dispatch.compiler.options import ImportOptions, check_choices
from onedispatch.dispatch.frontend.frozen import frozen_value
from onedispatch.dispatch.frontend.graph import Value, type_name_of
from onedispatch.transactions import find_device
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.machine.device import DeviceName

_AGAIN = "compile the ONNX file again"
READING = ("frontend", "outputs", "fusions", "freeze")  # how a model is read
CHOICES = frozenset(("precision", "fallback", "cast_policy", "sums", "groups"))
_OPTIONS = {"freeze": "set", "selector": "measure"}  # those that commands have under another name
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
    freeze: Mapping[str, Any] | None = None
    selector: Any = None
    catalog: Any = None
    pins: Sequence[str] | None = None
    cache: Any = None  # of a model that is compiled now

    @property
    def given(self) -> dict[str, Any]:
        """Those that are not None, as keyword arguments of ``compile_model``."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in every.items() if value is not None}

    @property
    def reading(self) -> ImportOptions:
        """How the model is read."""
        return ImportOptions.checked(
            self.frontend, self.outputs, self.fusions, self.freeze, strict=self.fallback == "error"
        )

    def require(self, model: CompiledModel, *, command: bool = False) -> None:
        """Raises ``InputError`` where ``model`` was compiled with others, and for unknown choices.

        ``command``: they were options of a command, and are called so.
        """

        def called(name: str) -> str:
            option = _OPTIONS.get(name, name)
            return f"--{option.replace('_', '-')}" if command else name

        if self.freeze is not None:
            self._require_frozen(model, called("freeze"))
        for name in (*READING, *SELECTING):
            if name != "freeze" and getattr(self, name) is not None:
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

    def _require_frozen(self, model: CompiledModel, called: str) -> None:
        """Raises ``InputError`` where inputs of ``model`` were not frozen to these values."""
        for name, given in arguments.by_name(called, self.freeze).items():
            own = model.frozen.get(name)
            if own is None:
                accepted = (
                    f"inputs that were frozen when it was compiled: {', '.join(model.frozen) or 'none'}"
                )
                raise InputError(called, repr(name), accepted, _AGAIN)
            asked = frozen_value(Value(name, type_name_of(own.dtype), own.shape), given)
            if not np.array_equal(asked, own, equal_nan=own.dtype.kind == "f"):
                accepted = f"{bounded_repr(own.tolist())}, which the model was compiled with"
                raise InputError(called, f"{name}={bounded_repr(given)}", accepted, _AGAIN)


def _may_use_host(model: CompiledModel) -> bool:
    """True if a step of it runs on the host, or shapes that are still to come could lead to one."""
    steps = (step for executable in model.executables.values() for step in executable.steps)
    return model.source is not None or any(isinstance(step, HostStep) for step in steps)
