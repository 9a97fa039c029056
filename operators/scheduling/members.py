# SPDX-License-Identifier: Apache-2.0
"""What the parameter block of a member kernel says beside what every nest's does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onedispatch.operators.declarations.members import MemberAxis


@dataclass(frozen=True)
class Members:
    """The index space of an instance, and this nest's part of it.

    ``first`` is the member that the nest begins with, ``total`` how many there are in all, along each
    dimension; of ``whole`` ones all members are in every call. ``axes``: per operand, those of its tensor.
    """

    first: tuple[int, ...]
    total: tuple[int, ...]
    whole: tuple[bool, ...]
    axes: Mapping[str, tuple[MemberAxis, ...]]
