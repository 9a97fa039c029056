# SPDX-License-Identifier: Apache-2.0
"""Rules for normalisations of sums, and of embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.dispatch.contrib.domain import contrib, given, sizes, summed, wants
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import SourceNode

_EPSILON = 1e-12


def _without_statistics(n: SourceNode) -> None:
    """Means and deviations are for training: onnxruntime leaves them unwritten on a CPU."""
    if wants(n, 1) or wants(n, 2):
        raise Refused("mean or inv_std_var is asked for, which inference does not compute")


def _sum(g: Builder, n: SourceNode, bias: int) -> Any:
    total, more = g.Add(n.inputs[0], n.inputs[1]), given(n, bias)
    return total if more is None else g.Add(total, more)


@contrib.expand("SkipLayerNormalization", inherit=False)
def skip_layer_norm(g: Builder, n: SourceNode) -> Any:
    """Of the sum of input, skip and bias, which is the last output."""
    _without_statistics(n)
    total = _sum(g, n, 4)
    return _normed(g, n, total, n.inputs[2], given(n, 3)), total, total, total


@contrib.expand("SkipSimplifiedLayerNormalization", inherit=False)
def skip_rms_norm(g: Builder, n: SourceNode) -> Any:
    """The same, by the root of the mean square."""
    _without_statistics(n)
    total = _sum(g, n, 3)
    made = g.SimplifiedLayerNormalization(total, n.inputs[2], axis=-1, epsilon=n.attr("epsilon", _EPSILON))
    return made, total, total, total


def _normed(g: Builder, n: SourceNode, x: Any, gamma: Any, beta: Any) -> Any:
    return g.LayerNormalization(x, gamma, beta, axis=-1, epsilon=n.attr("epsilon", _EPSILON))


@contrib.expand("EmbedLayerNormalization", inherit=False)
def embedded(g: Builder, n: SourceNode) -> Any:
    """Words, places and segments are looked up, added and normalised.

    The second output counts the words that a mask leaves; without a mask it is 0.
    """
    n.ignore("mask_index_type")
    ids, words, places, gamma, beta = (n.inputs[i] for i in (0, 2, 3, 5, 6))
    segments, segment_rows, mask, at = (given(n, i) for i in (1, 4, 7, 8))
    if at is None:
        zero = g.constant([0], np.int64)
        rows = g.Slice(places, zero, sizes(g, ids, 1), zero)
    else:
        rows = g.Gather(places, at)
    total = g.Add(g.Gather(words, ids), rows)
    if segments is not None:
        total = g.Add(total, g.Gather(segment_rows, segments))
    if not wants(n, 1):
        words_left = total
    elif mask is None:
        words_left = g.Expand(g.constant(np.zeros(1, np.int32)), sizes(g, ids, 0))
    else:
        ones = g.Cast(g.Equal(mask, g.constant(1, np.int32)), to=np.dtype(np.int32))
        words_left = summed(g, ones, [1])
    return _normed(g, n, total, gamma, beta), words_left, total
