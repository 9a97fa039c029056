# SPDX-License-Identifier: Apache-2.0
"""Validity checks of gathers and scatters: axes, batches, ranks and equal positions."""

from __future__ import annotations

from onedispatch.dispatch.frontend.facts import Facts, NodeCheck
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.frontend.shared_checks import axis_in_range, one_of
from onedispatch.transactions.base.text import counted, span

_REDUCTION = one_of("reduction", "none", "add", "mul", "max", "min")


def batches(facts: Facts) -> None:
    """GatherND: the dimensions in front that data and indices share are fewer than either has."""
    given, ranks = facts.attr("batch_dims", 0), [facts.shape(i) for i in (0, 1)]
    known = [len(shape) for shape in ranks if shape is not None]
    least = min(known, default=given + 1)
    if not 0 <= given < least:
        facts.refuse("attribute 'batch_dims'", given, f"{span(0, least - 1)} for these ranks")


def as_many_dimensions(facts: Facts) -> None:
    """GatherElements, ScatterElements: an index for an element of the data, an update for an index."""
    shape, indices, updates = (facts.shape(i) for i in range(3))
    if shape is not None and indices is not None and len(indices) != len(shape):
        facts.refuse(facts.input_name(1), f"rank {len(indices)}", f"rank {len(shape)}, that of the data")
    if shape is not None and indices is not None:
        axis = facts.attr("axis", 0) % len(shape)
        if any(d != axis and own > size for d, (own, size) in enumerate(zip(indices, shape, strict=True))):
            accepted = f"{list(shape)} at most, but for axis {axis}"
            facts.refuse(facts.input_name(1), list(indices), accepted)
    if indices is not None and updates is not None and updates != indices:
        facts.refuse(facts.input_name(2), list(updates), f"{list(indices)}, an update for each index")


def indices_within(facts: Facts) -> None:
    """Gather and its kin along an axis: constant indices name elements, from the end where below zero."""
    shape, indices, axis = facts.shape(0), facts.value(1), facts.attr("axis", 0)
    if shape and indices is not None and -len(shape) <= axis < len(shape):
        _within(facts, indices, shape[axis])


def tuples_within(facts: Facts) -> None:
    """GatherND, ScatterND: each number of a constant tuple is within its dimension."""
    shape, indices, first = facts.shape(0), facts.value(1), facts.attr("batch_dims", 0)
    if shape is not None and indices is not None and indices.ndim:
        for d, size in enumerate(shape[first : first + indices.shape[-1]]):
            _within(facts, indices[..., d], size)


def _within(facts: Facts, indices: Array, size: int) -> None:
    wrong = indices[(indices < -size) | (indices >= size)]
    if wrong.size:
        accepted = f"indices in {span(-size, size - 1)}" if size else "none: there are no elements"
        facts.refuse(facts.input_name(1), wrong.flat[0], accepted)


def gathered_tuples(facts: Facts) -> None:
    """GatherND: batches that data and indices share, and tuples no longer than the dimensions behind."""
    shape, indices, batches = facts.shape(0), facts.shape(1), facts.attr("batch_dims", 0)
    if shape is None or indices is None:
        return
    if indices[:batches] != shape[:batches]:
        accepted = f"{list(shape[:batches])} in front, the batches of the data"
        facts.refuse(facts.input_name(1), list(indices), accepted)
    _tuples(facts, len(shape) - batches)


def scattered_tuples(facts: Facts) -> None:
    """ScatterND: tuples no longer than the rank, and for each an update of what is behind them."""
    shape, indices, updates = (facts.shape(i) for i in range(3))
    if shape is None or indices is None:
        return
    _tuples(facts, len(shape))
    wanted = indices[:-1] + shape[indices[-1] :]
    if updates is not None and updates != wanted:
        facts.refuse(facts.input_name(2), list(updates), f"{list(wanted)}, an update for each index")


def _tuples(facts: Facts, most: int) -> None:
    """The last dimension of the indices is the length of a tuple."""
    indices = facts.shape(1)
    if indices is not None and (not indices or indices[-1] > most):
        given = list(indices) if indices else "a scalar"
        facts.refuse(facts.input_name(1), given, f"{counted(most, 'number')} in a tuple at most")


def one_hot_axis(facts: Facts) -> None:
    """OneHot: a place for the new dimension among those of the indices."""
    shape, axis = facts.shape(0), facts.attr("axis", -1)
    if shape is not None and not -len(shape) - 1 <= axis <= len(shape):
        accepted = f"{span(-len(shape) - 1, len(shape))} for indices of rank {len(shape)}"
        facts.refuse("attribute 'axis'", axis, accepted)


def not_negative(facts: Facts) -> None:
    """OneHot's depth (cut towards 0), TopK's k: how many, also where only the run computes it."""
    given = facts.value(1)
    if given is not None and given.size == 1 and not -1 < given.item() < 2**63:  # NaN is no count either
        facts.refuse(facts.input_name(1), given.item(), "0 or more")


def reversed_axes(facts: Facts) -> None:
    """ReverseSequence: batches along one of the first two dimensions, time along the other."""
    batch, time = facts.attr("batch_axis", 1), facts.attr("time_axis", 0)
    for name, given in (("batch_axis", batch), ("time_axis", time)):
        if given not in (0, 1):
            facts.refuse(f"attribute {name!r}", given, "0 or 1")
    if batch == time:
        facts.refuse("attribute 'time_axis'", time, f"{1 - batch}, where batch_axis is {batch}")
    shape, lengths = facts.shape(0), facts.shape(1)
    if shape is not None and lengths is not None and len(shape) > 1 and lengths != (shape[batch],):
        facts.refuse(facts.input_name(1), list(lengths), f"[{shape[batch]}], one length per batch")


def reversed_lengths(facts: Facts) -> None:
    """ReverseSequence: what is turned round lies within the axis; computed lengths say so in the run."""
    shape, lengths, time = facts.shape(0), facts.value(1), facts.attr("time_axis", 0)
    if shape is None or lengths is None or len(shape) < 2:
        return
    wrong = lengths[(lengths < 0) | (lengths > shape[time])]
    if wrong.size:
        facts.refuse(facts.input_name(1), wrong.flat[0], f"lengths in {span(0, shape[time])}")


INDEXED: dict[str, tuple[NodeCheck, ...]] = {
    "Gather": (axis_in_range(0), indices_within),
    "GatherElements": (axis_in_range(0, no_scalars=1), as_many_dimensions, indices_within),
    "GatherND": (batches, gathered_tuples, tuples_within),
    "OneHot": (one_hot_axis, not_negative),
    "ReverseSequence": (reversed_axes, reversed_lengths),
    "Scatter": (axis_in_range(0, no_scalars=1), as_many_dimensions, indices_within),
    "ScatterElements": (axis_in_range(0, no_scalars=1), as_many_dimensions, indices_within, _REDUCTION),
    "ScatterND": (scattered_tuples, tuples_within, _REDUCTION),
    "TensorScatter": (axis_in_range(-2), one_of("mode", "linear", "circular")),
    "TopK": (axis_in_range(-1), not_negative),
}
