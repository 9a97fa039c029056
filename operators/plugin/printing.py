# SPDX-License-Identifier: Apache-2.0
"""``t.print`` of a Python body: ``t.print("v=%bf at %d", v, i)``, or with the member in front.

The text is made by the formatter that compiled kernels have (``onedispatch/plugin_print.h``):
a listener is handed the format and plain Python values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from onedispatch.operators.declarations.kernel import Kernel
from onedispatch.operators.plugin.refusals import refusal
from onedispatch.transactions.base.text import counted


class Listener(Protocol):
    """Takes what bodies print."""

    def print(self, member: Sequence[int], text: str, values: Sequence[Any]) -> None: ...


def say(
    kernel: Kernel,
    listener: Listener | None,
    given: Sequence[Any],
    origin: Sequence[int],
    space: Sequence[int],
) -> None:
    """One line of a call whose first member is ``origin``, in an index space ``space``.

    ``given``: a format and its values; a member's coordinates may come first. Raises ``KernelError`` for a
    kernel that does not declare that it prints, for more than one value where it declares that, and for what
    is no format or no member.
    """
    if kernel.prints == "no":
        accepted = "od.kernel(..., prints=True), since printing takes time"
        raise refusal("parameter_invalid", f"{kernel.name} prints", "a declaration without it", accepted)
    member: Sequence[int] = origin
    if given and not isinstance(given[0], str):
        member, given = _member(given[0], space), given[1:]
    if not given or not isinstance(given[0], str):
        what = type(given[0]).__name__ if given else "nothing"
        accepted = 't.print("v=%f", v), or t.print((i, j), "v=%f", v)'
        raise refusal("parameter_invalid", "the format of t.print", what, accepted)
    text, *values = given
    if kernel.prints == "one" and len(values) > 1:
        accepted = "at most one: its declaration says prints='strict'"
        raise refusal(
            "parameter_invalid",
            f"{kernel.name} prints",
            f"{counted(len(values), 'value')} in a line",
            accepted,
        )
    if listener is not None:
        listener.print(tuple(member), text, [_plain(value) for value in values])


def _member(given: Any, space: Sequence[int]) -> tuple[int, ...]:
    """Global coordinates, of which a whole number alone is one."""
    found = tuple(np.atleast_1d(np.asarray(given)).tolist())
    inside = len(found) == len(space) and all(
        isinstance(at, int) and 0 <= at < size for at, size in zip(found, space, strict=True)
    )
    if not inside:
        raise refusal("parameter_invalid", "the member of t.print", given, f"a member of {list(space)}")
    return found


def _plain(value: Any) -> Any:
    """A number or text as Python has it; vectors are printed by a loop, so they stay what they are."""
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        plain = value.item()
        return plain if isinstance(plain, int | float | str) else value
    return value
