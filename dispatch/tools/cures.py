# SPDX-License-Identifier: Apache-2.0
"""What would cure a node's own error: float32 in place of a narrower type, or another scale.

Every statement is measured: the node computed in float32 on the same numbers, the numbers that lie beyond a
scale, the steps of a scale that they take, the error of rounding beside that of the node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onedispatch.dispatch.base.precisions import EXACT
from onedispatch.dispatch.tools.node_errors import NodeErrors, Row
from onedispatch.dispatch.tools.sides import Feed
from onedispatch.dispatch.tools.tally import Noise
from onedispatch.transactions.base.text import counted

_COARSE = 0.5  # a scale of which numbers take fewer of the steps
_ROUNDING = 1.5  # times that of rounding: an error that rounding explains


@dataclass(frozen=True)
class Cure:
    """Of the node that writes ``value``: ``kind`` is "precision", "scale", "bits" or "floats"."""

    value: str
    kind: str
    text: str
    own: float | None = None  # the largest own error with it, as a share of the largest number
    scale: float | None = None


def cures(errors: NodeErrors, rows: Sequence[Row], feeds: Iterable[Feed]) -> list[Cure]:
    """Returns what is known to cure the own errors of ``rows``, which come from ``feeds``."""
    found = [cure for row in rows if (cure := _of_scale(row)) is not None]
    options = errors.sides.like.options
    if options.precision != EXACT or options.sums != "exact":
        found += _of_precision(errors, [row for row in rows if row.quantised is None], feeds)
    return found


def _of_precision(errors: NodeErrors, rows: Sequence[Row], feeds: Iterable[Feed]) -> list[Cure]:
    if not rows:
        return []
    exact = replace(
        errors.sides.like, options=replace(errors.sides.like.options, precision=EXACT, sums="exact")
    )
    session = errors.sides.cut(exact)
    noises = {row.value: Noise() for row in rows}
    for feed in feeds:
        given = errors.sides.given(feed)
        alone = errors.sides.alone(feed, given, session)
        for name, noise in noises.items():
            noise.add(alone[name], given[name])
    return [cure for row in rows if (cure := _exact(row, noises[row.value])) is not None]


def _exact(row: Row, noise: Noise) -> Cure | None:
    here, there = row.tally.relative(row.tally.own), row.tally.relative(noise)
    if here is None or there is None or there * 2 > here:
        return None  # it is not the type that makes the error
    text = f"in float32 its own error is {there:.2g} of the largest number, here {here:.2g}"
    return Cure(row.value, "precision", text, own=there)


def _of_scale(row: Row) -> Cure | None:
    """Of a value with one scale: whether that clips, is coarse, or makes the error by its rounding alone."""
    if row.quantised is None or row.quantised.axis is not None or not row.span.count:
        return None
    span, scale, bounds = row.span, row.quantised.scale[0], np.iinfo(row.dtype)
    covers, of = _covering(row), f"{span.low:.4g} to {span.high:.4g}"
    if span.beyond:
        count = f"{counted(span.beyond, 'number')} of {span.count:,}"
        text = f"scale {scale:.4g} clips {count}: {covers:.4g} covers {of}"
        return Cure(row.value, "scale", text, scale=covers)
    if 0 < covers < _COARSE * scale:
        every = int(bounds.max) - int(bounds.min)
        steps = f"{covers / scale * every:.0f} of {counted(every, 'step')}"
        text = f"scale {scale:.4g} is coarse: {of} takes {steps}; {covers:.4g} covers it"
        return Cure(row.value, "scale", text, scale=covers)
    return _of_rounding(row, scale)


def _covering(row: Row) -> float:
    """The least scale that covers all numbers of the reference."""
    span, bounds = row.span, np.iinfo(row.dtype)
    if row.quantised is not None and row.quantised.zero_point[0] == 0 and bounds.min < 0:
        return max(-span.low, span.high) / bounds.max  # around zero: both sides have the larger one
    return (span.high - span.low) / (bounds.max - bounds.min)


def _of_rounding(row: Row, scale: float) -> Cure | None:
    if row.tally.own is None:
        return None
    rounding, own = scale / math.sqrt(12), math.sqrt(row.tally.own.squares / row.span.count)
    beside = f"root mean square {own:.3g}, of which rounding to scale {scale:.4g} makes {rounding:.3g}"
    if own <= _ROUNDING * rounding:
        return Cure(row.value, "bits", f"{beside}: 16 bits have finer steps")
    return Cure(row.value, "floats", f"{beside}: weights and inputs of more bits, or floats")
