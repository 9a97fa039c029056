# SPDX-License-Identifier: Apache-2.0
"""``--plugin`` and ``--plugin-conflict``, of every command that takes models or tells of kernels."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from onedispatch.dispatch.plugins import discovery
from onedispatch.operators.plugin.registrations import check_policy

Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin", help="A kernel library (.so), a Python file with kernels, or a folder. Repeatable."
    ),
]
Conflict = Annotated[
    str | None,
    typer.Option(
        "--plugin-conflict",
        help="Two plug-ins with one name: error, or first, which leaves the first one that is named.",
    ),
]


def takes_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with these two options, whose plug-ins are loaded before it runs."""
    form = inspect.signature(command, eval_str=True)

    @wraps(command)
    def run(*args: Any, plugin: list[str] | None, plugin_conflict: str | None, **kwargs: Any) -> None:
        policy = None if plugin_conflict is None else check_policy("--plugin-conflict", plugin_conflict)
        discovery.set_policy(policy)
        discovery.load(plugin or (), "--plugin")
        command(*args, **kwargs)

    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in (("plugin", Plugins), ("plugin_conflict", Conflict))
    ]
    run.__signature__ = form.replace(parameters=[*form.parameters.values(), *more])  # type: ignore[attr-defined]
    run.__annotations__ = {name: one.annotation for name, one in run.__signature__.parameters.items()}  # type: ignore[attr-defined]
    return run
