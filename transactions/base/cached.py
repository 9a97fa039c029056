# SPDX-License-Identifier: Apache-2.0
"""Properties and methods that are computed once and kept, without a lock, as Python has them from 3.12 on.

Before, each ``functools.cached_property`` has one lock for all objects of its class and holds it while it
computes: threads wait for each other, and a fork leaves it taken in the child. Without it two threads may
compute a value twice; what ours compute is equal then.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

Asked = TypeVar("Asked", bound=Hashable)
Found = TypeVar("Found")

if TYPE_CHECKING or sys.version_info >= (3, 12):
    cached_property = functools.cached_property  # noqa: TID251
else:

    class cached_property(functools.cached_property):  # noqa: TID251
        """``functools.cached_property`` of Python 3.12."""

        def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
            if instance is None:
                return self
            value = self.func(instance)
            instance.__dict__[self.attrname] = value
            return value


def cached_method(method: Callable[[Any, Asked], Found]) -> Callable[[Any, Asked], Found]:
    """A method of one argument whose answers each object keeps."""
    name = f"_{method.__name__}_kept"

    @functools.wraps(method)
    def found(self: Any, asked: Asked) -> Found:
        kept: dict[Asked, Found] = self.__dict__.setdefault(name, {})
        if asked not in kept:
            kept[asked] = method(self, asked)
        return kept[asked]

    return found
