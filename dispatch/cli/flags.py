# SPDX-License-Identifier: Apache-2.0
"""Groups of options that commands share: a dataclass each, of whose fields a command gets one value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any


def expands_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Returns ``command`` with the fields of its dataclass parameters as options of their own."""
    form = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: one.annotation for name, one in form.parameters.items() if is_dataclass(one.annotation)
    }

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    expanded: list[inspect.Parameter] = []
    for name, parameter in form.parameters.items():
        if name in groups:
            group = inspect.signature(groups[name], eval_str=True).parameters.values()
            expanded += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in group]
        else:
            expanded.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    run.__signature__ = form.replace(parameters=expanded)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in expanded}
    return run
