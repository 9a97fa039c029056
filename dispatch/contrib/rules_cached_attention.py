# SPDX-License-Identifier: Apache-2.0
"""The rule for GroupQueryAttention: attention over a cache of which each batch has filled its own part.

``seqlens_k`` says for each batch at which place of the cache its last key is. New keys stand behind the old
ones of their batch; each query sees those up to its own place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.dispatch.contrib.domain import (
    by_head,
    by_place,
    contrib,
    counted,
    given,
    number,
    parted,
    refuse_given,
    sizes,
    unsqueezed,
    wants,
)
from onedispatch.dispatch.contrib.rules_attention import scaled_scores
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import Operand, SourceNode
from onedispatch.operators.declarations.registry import MICROSOFT

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)


def _refuse_rare(n: SourceNode) -> None:
    refuse_given(n, head_sink=11, k_scale=12, v_scale=13, q_norm_weight=14, k_norm_weight=15)
    refuse_given(n, query_seqlens=16)
    if wants(n, 3) or n.attr("qk_output", 0):
        raise Refused("scores are asked for (output_qk)")
    if n.attr("smooth_softmax", -1) > 0 or n.attr("sliding_window_cache", 0) or not n.attr("causal", 1):
        raise Refused("smooth_softmax, sliding_window_cache or causal=0")
    if n.attr("local_window_size", -1) == 0:
        raise Refused("local_window_size 0, in which no key is seen")
    for name in ("k_quant_type", "v_quant_type"):
        if n.attr(name, b"NONE") not in (b"NONE", "NONE"):
            raise Refused(f"{name}={n.attr(name)!r}: a cache of integers")
    n.ignore("kv_cache_bit_width", "qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon")


@contrib.expand("GroupQueryAttention", inherit=False)
def group_query_attention(g: Builder, n: SourceNode) -> Any:
    """Heads of queries that share one of keys are more rows of its products: no key is repeated."""
    _refuse_rare(n)
    heads, shared = int(n.attr("num_heads")), int(n.attr("kv_num_heads"))
    q, k, v = _apart(g, n, heads, shared)
    rows = sizes(g, q, 1)
    last = g.Cast(g.Reshape(n.inputs[5], g.constant([-1], np.int64)), to=_INT64)
    start = g.Sub(g.Add(last, g.constant([1], np.int64)), rows)
    start = _at_least(g, start, g.constant([0], np.int64))
    at = g.Add(unsqueezed(g, start, [1]), counted(g, rows))
    if n.attr("do_rotary", 0):
        q, k = (_turned(g, n, one, at, count) for one, count in ((q, heads), (k, shared)))
    n.ignore("rotary_interleaved")
    end = g.Cast(g.Reshape(n.inputs[6], g.constant([1], np.int64)), to=_INT64)
    k, v = (_cached(g, one, given(n, i), start, end, shared) for one, i in ((k, 3), (v, 4)))
    q = by_head(g, q, heads)
    spread = g.Concat(*(g.constant([0, heads], np.int64), rows, g.constant([-1], np.int64)), axis=0)
    scores = g.Reshape(scaled_scores(g, n, _folded(g, q, heads, shared), k), spread)
    cap = float(n.attr("softcap", 0.0))
    if cap:
        scores = g.Mul(g.Tanh(g.Div(scores, number(g, cap, q))), number(g, cap, q))
    keys = sizes(g, k, 2)
    weights = g.Softmax(_biased(g, n, scores, at, keys, q), axis=-1)
    found = g.MatMul(_folded(g, weights, heads, shared), v)
    return by_place(g, g.Reshape(found, spread)), k, v


def _folded(g: Builder, x: Any, heads: int, shared: int) -> Any:
    """[batch, heads, rows, n] -> [batch, shared, heads / shared * rows, n]."""
    if heads == shared:
        return x
    last = sizes(g, x, 3)
    shape = g.Concat(g.constant([0, shared, -1], np.int64), last, axis=0)
    return g.Reshape(x, shape)


def _apart(g: Builder, n: SourceNode, heads: int, shared: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values: packed they are columns of one tensor."""
    query, key, value = n.inputs[0], given(n, 1), given(n, 2)
    if key is not None and value is not None:
        return query, key, value
    width = query.shape[-1] if query.shape else None
    if key is not None or not isinstance(width, int) or width % (heads + 2 * shared):
        raise Refused(f"packed queries, keys and values of shape {query.shape}")
    size = width // (heads + 2 * shared)
    q, k, v = parted(g, query, [heads * size, shared * size, shared * size], 2)
    return q, k, v


def _turned(g: Builder, n: SourceNode, x: Any, at: Any, heads: int) -> Any:
    """Rotary embedding, at the places that are given or follow from the cache."""
    cosines, sines, places = given(n, 7), given(n, 8), given(n, 9)
    if cosines is None or sines is None:
        raise Refused("do_rotary without cos_cache and sin_cache")
    columns = cosines.shape[-1] if cosines.shape else None
    if not isinstance(columns, int):
        raise Refused(f"cos_cache of shape {cosines.shape}")
    return g.op(
        f"{MICROSOFT}::RotaryEmbedding", x, at if places is None else places, cosines, sines,
        num_heads=heads, interleaved=int(n.attr("rotary_interleaved", 0)), rotary_embedding_dim=2 * columns,
    )  # fmt: skip


def _cached(g: Builder, x: Any, past: Operand | None, start: Any, end: Any, heads: int) -> Any:
    """Keys or values by head in the cache, which is as long as the longest sequence, or as it was.

    Rows of [batch, sequence, heads * size] from ``start`` of each batch on are new: each place of the cache
    picks its own, or keeps what it has.
    """
    if past is None or (past.shape is not None and len(past.shape) == 4 and past.shape[2] == 0):
        return by_head(g, x, heads)
    if end.elements is None:
        raise Refused("total_sequence_length is neither a constant nor the size of a tensor")
    zero = g.constant([0], np.int64)
    length, rows = sizes(g, past, 2), sizes(g, x, 1)
    more = _at_least(g, g.Sub(end, length), zero)
    kept = g.Pad(past, g.Concat(g.constant([0] * 6, np.int64), more, zero, axis=0))
    places = g.Sub(counted(g, sizes(g, kept, 2)), unsqueezed(g, start, [1]))
    inside = g.And(g.Less(places, rows), g.Not(g.Less(places, zero)))
    row = g.Where(inside, places, zero)
    known = g.known(rows)
    if known is None or int(known[0]) > 1:
        x = g.GatherND(x, unsqueezed(g, row, [2]), batch_dims=1)
    mine = by_head(g, x, heads)
    return g.Where(unsqueezed(g, inside, [1, 3]), mine, kept)


def _at_least(g: Builder, x: Any, least: Any) -> Any:
    return g.Where(g.Less(x, least), least, x)


def _biased(g: Builder, n: SourceNode, scores: Any, at: Any, keys: Any, q: Any) -> Any:
    """Scores of keys up to each query's place, with the bias; of others -inf."""
    bias, window = given(n, 10), int(n.attr("local_window_size", -1))
    places = unsqueezed(g, g.Cast(at, to=_INT32), [1, 3])
    here = g.Cast(counted(g, keys), to=_INT32)
    seen = g.Not(g.Greater(here, places))
    if window > 0:
        seen = g.And(seen, g.Greater(here, g.Sub(places, g.constant(window, _INT32))))
    if bias is not None:
        missing = g.Sub(keys, sizes(g, bias, 3))
        scores = g.Add(scores, g.Pad(bias, g.Concat(g.constant([0] * 7, np.int64), missing, axis=0)))
    return g.Add(scores, g.Where(seen, number(g, 0, q), number(g, -np.inf, q)))
