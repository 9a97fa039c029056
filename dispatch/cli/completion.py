# SPDX-License-Identifier: Apache-2.0
"""What shells complete beside commands and options: values of options, and names of light models."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from onedispatch.transactions.machine.device import device_names


def among(values: Iterable[str]) -> Callable[[str], list[str]]:
    """Returns what completes one of ``values``."""
    known = tuple(values)

    def complete(incomplete: str) -> list[str]:
        return [value for value in known if value.startswith(incomplete)]

    return complete


def devices(incomplete: str) -> list[str]:
    return among(device_names())(incomplete)


def models(incomplete: str) -> list[str]:
    """Light models; for all else the shell completes files."""
    if not incomplete.startswith("light_"):
        return []
    from onedispatch.dispatch.tools.zoo import light_models

    return among(light_models())(incomplete)
