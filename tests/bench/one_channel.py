# SPDX-License-Identifier: Apache-2.0
"""Products as published matrix-vector kernels are laid out: one channel of a shim brings their weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from onedispatch.operators.emission import emitter
from onedispatch.operators.scheduling import cost_model, schedule
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.resources import Resources
from onedispatch.operators.scheduling.solution import Mapping

_BOTH = schedule.takes_both_channels


def _unless_it_reduces(nest: Nest, mapping: Mapping, limits: Resources) -> bool:
    return not nest.reduces and _BOTH(nest, mapping, limits)


@contextmanager
def one_channel() -> Iterator[None]:
    """What is compiled inside, by a new ``Search``, reads weights by one channel."""
    rule = "takes_both_channels"
    programs = patch.object(emitter, "_PROGRAMS", {})  # equal nests are emitted once
    with (
        patch.object(schedule, rule, _unless_it_reduces),
        patch.object(cost_model, rule, _unless_it_reduces),
        programs,
    ):
        yield
