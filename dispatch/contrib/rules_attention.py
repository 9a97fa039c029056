# SPDX-License-Identifier: Apache-2.0
"""Rules for attention with a mask of numbers: Attention, with its projections, and MultiHeadAttention.

A masked key has ``mask_filter_value`` added to its score, as in onnxruntime: a row whose keys are all masked
attends to all of them. What causal order hides is hidden whatever the masks say.
"""

from __future__ import annotations

from math import isfinite, sqrt
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
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Refused
from onedispatch.dispatch.sources.node import Operand, SourceNode

_FILTER = -10000.0


@contrib.expand("Attention", inherit=False)
def attention(g: Builder, n: SourceNode) -> Any:
    """Queries, keys and values are products of one input; past and present ones are in one tensor."""
    x, bias, past = n.inputs[0], given(n, 2), given(n, 4)
    if n.attr("do_rotary", 0) or n.attr("past_present_share_buffer", 0):
        raise Refused("rotary embedding or a shared buffer inside Attention, which no operator of ONNX has")
    n.ignore("rotary_embedding_dim")
    refuse_given(n, past_sequence_length=6)
    widths = _widths(n)
    made = [g.MatMul(x, one) for one in parted(g, n.inputs[1], widths, 1)]
    if bias is not None:
        made = [g.Add(one, part) for one, part in zip(made, parted(g, bias, widths, 0), strict=True)]
    heads = int(n.attr("num_heads"))
    q, k, v = (by_head(g, one, heads) for one in made)
    if past is not None:
        first, second = (g.Gather(past, g.constant(i, np.int64), axis=0) for i in (0, 1))
        k, v = g.Concat(first, k, axis=2), g.Concat(second, v, axis=2)
    y = _attended(g, n, (q, k, v), given(n, 3), given(n, 5), None if past is None else sizes(g, past, 3))
    if not wants(n, 1):
        return y, y
    if widths[1] != widths[2]:
        raise Refused(f"keys and values of widths {widths[1:]} in one tensor (present)")
    return y, g.Concat(unsqueezed(g, k, [0]), unsqueezed(g, v, [0]), axis=0)


def _widths(n: SourceNode) -> list[int]:
    """Columns of queries, keys and values."""
    said = n.attr("qkv_hidden_sizes", None)
    if said:
        return [int(one) for one in said]
    shape = n.inputs[1].shape
    if shape is None or len(shape) != 2 or not isinstance(shape[1], int) or shape[1] % 3:
        raise Refused(f"weights ({n.inputs[1]}) of shape {shape}, where three blocks of columns are expected")
    return [shape[1] // 3] * 3


@contrib.expand("MultiHeadAttention", inherit=False)
def multi_head_attention(g: Builder, n: SourceNode) -> Any:
    """Queries, keys and values apart, or packed: [batch, sequence, heads, 3, size], keys and values 2."""
    refuse_given(n, past_sequence_length=8, cache_indirection=9)
    if wants(n, 3):
        raise Refused("scores are asked for (output qk)")
    heads, bias = int(n.attr("num_heads")), given(n, 3)
    parts = _apart(g, n)
    split = [one.rank == 4 for one in parts]
    if bias is not None:
        if any(split):
            raise Refused("a bias on keys that are split into heads")
        biases = parted(g, bias, [_last(one) for one in parts], 0)
        parts = [g.Add(one, part) for one, part in zip(parts, biases, strict=True)]
    q, k, v = (one if done else by_head(g, one, heads) for one, done in zip(parts, split, strict=True))
    before = given(n, 6), given(n, 7)
    if before[0] is not None and before[1] is not None:
        k, v = g.Concat(before[0], k, axis=2), g.Concat(before[1], v, axis=2)
    length = None if before[0] is None else sizes(g, before[0], 2)
    lengths = [one.shape[2] if one.shape is not None else None for one in (q, k)]
    if n.attr("unidirectional", 0) and length is None and None not in lengths and lengths[0] != lengths[1]:
        raise Refused(f"causal order of queries [{lengths[0]}] and keys [{lengths[1]}], not as many of both")
    return _attended(g, n, (q, k, v), given(n, 4), given(n, 5), length), k, v


def _last(x: Operand) -> int:
    """The size of the last dimension. Raises ``Refused`` if it is unknown."""
    if not x.shape or not isinstance(x.shape[-1], int):
        raise Refused(f"{x} of shape {x.shape}, where the last size has to be known")
    return x.shape[-1]


def _apart(g: Builder, n: SourceNode) -> list[Any]:
    query, key, value = n.inputs[0], given(n, 1), given(n, 2)
    if key is None and query.rank == 5:
        return [_picked(g, query, i) for i in range(3)]
    if key is not None and value is None and key.rank == 5:
        return [query, _picked(g, key, 0), _picked(g, key, 1)]
    if key is None or value is None or query.rank == 5:
        ranks = [None if one is None else one.rank for one in (query, key, value)]
        raise Refused(
            f"query, key and value of ranks {ranks}, where 3, 3, 3, or 3, 4, 4, or packed are known"
        )
    return [query, key, value]


def _picked(g: Builder, packed: Operand, index: int) -> Any:
    """[batch, sequence, heads, 3, size] -> [batch, sequence, heads * size]."""
    one = g.Gather(packed, g.constant(index, np.int64), axis=3)
    return g.Reshape(one, g.constant([0, 0, -1], np.int64))


def _attended(
    g: Builder,
    n: SourceNode,
    qkv: tuple[Any, Any, Any],
    mask: Operand | None,
    bias: Operand | None,
    before: Any,
) -> Any:
    """The result of queries, keys and values by head: [batch, sequence, heads * size].

    In causal order a query sees the keys of the past, of which there are ``before``, and those up to its own
    place.
    """
    q, k, v = qkv
    rows, keys = sizes(g, q, 2), sizes(g, k, 2)
    added = [one for one in (None if mask is None else masked(g, n, mask, q, keys), bias) if one is not None]
    if n.attr("unidirectional", 0):
        at = unsqueezed(g, counted(g, rows), [1])
        at = at if before is None else g.Add(at, before)
        hides = g.Greater(unsqueezed(g, counted(g, keys), [0]), at)
        added.append(g.Where(hides, number(g, -np.inf, q), number(g, 0, q)))
    n.ignore("mask_filter_value")
    scores = scaled_scores(g, n, q, k)
    for one in added:
        scores = g.Add(scores, one)
    return by_place(g, g.MatMul(g.Softmax(scores, axis=-1), v))


def scaled_scores(g: Builder, n: SourceNode, q: Any, k: Any) -> Any:
    """The product of queries and keys, times ``scale``, which is 1 / sqrt(size) unless the node says it."""
    scale = float(n.attr("scale", 0.0))
    scores = g.MatMul(q, g.Transpose(k, perm=[0, 1, 3, 2]))
    if scale:
        return g.Mul(scores, number(g, scale, q))
    if q.shape is not None and isinstance(q.shape[-1], int):
        return g.Mul(scores, number(g, 1 / sqrt(q.shape[-1]), q))
    return g.Div(scores, g.Sqrt(g.Cast(sizes(g, q, 3), to=q.dtype)))


def masked(g: Builder, n: SourceNode, mask: Operand, q: Operand, keys: Any) -> Any:
    """What a mask adds to scores: [batch, 1, queries or 1, keys].

    It is 1 for keys that are seen, by batch and key, or by query too; or says for each batch how many keys
    there are, then at which the first is.
    """
    value = float(n.attr("mask_filter_value", _FILTER))
    if not isfinite(value):
        raise Refused(f"mask_filter_value {value}: rows whose keys are all masked would be no numbers")
    low = number(g, value, q)
    if mask.rank in (2, 3):
        seen = g.Greater(mask, number(g, 0, mask))
        seen = unsqueezed(g, seen, [1, 2] if mask.rank == 2 else [1])
    elif mask.rank == 1:
        seen = unsqueezed(g, _by_length(g, mask, q, keys), [1, 2])
    else:
        raise Refused(f"a mask ({mask}) of rank {mask.rank}, where 1 to 3 are known")
    return g.Where(seen, number(g, 0, q), low)


def _by_length(g: Builder, mask: Operand, q: Operand, keys: Any) -> Any:
    """Whether each batch has each key: [batch, keys]."""
    batch, size = q.shape[0] if q.shape else None, mask.shape[0] if mask.shape else None
    places = g.Cast(counted(g, keys), to=np.dtype(np.int32))
    if size is not None and size == batch:
        return g.Less(places, unsqueezed(g, mask, [1]))
    if isinstance(size, int) and isinstance(batch, int) and size == 2 * batch:
        ends, starts = (unsqueezed(g, one, [1]) for one in parted(g, mask, [batch] * 2, 0))
        return g.And(g.Less(places, ends), g.Not(g.Less(places, starts)))
    raise Refused(f"a mask of {size} numbers for a batch of {batch}, where one or two for each are known")
