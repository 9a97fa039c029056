# SPDX-License-Identifier: Apache-2.0
"""Validity checks of attention and rotary embedding that schemas and shape inference leave out."""

from __future__ import annotations

from onedispatch.dispatch.frontend.facts import Facts, NodeCheck


def _heads(facts: Facts, index: int, attribute: str) -> int | None:
    """How many heads an input has; None where its shape is not known."""
    shape, heads = facts.shape(index), int(facts.attr(attribute, 0))
    if shape is None:
        return None
    if len(shape) not in (3, 4):
        facts.refuse(facts.input_name(index), f"rank {len(shape)}", "rank 3 or 4")
    if len(shape) == 4:
        return shape[1]
    if heads < 1 or shape[2] % heads:
        accepted = f"a number of heads that divides {shape[2]}, the last dimension"
        facts.refuse(f"attribute {attribute!r}", heads, accepted)
    return heads


def attended(facts: Facts) -> None:
    """Heads of queries are a multiple of those of keys; the fourth output tells one of four stages."""
    queries, keys = _heads(facts, 0, "q_num_heads"), _heads(facts, 1, "kv_num_heads")
    _heads(facts, 2, "kv_num_heads")
    if queries is not None and keys and queries % keys:
        facts.refuse("heads of queries", queries, f"a multiple of the {keys} of keys")
    mode, cap = facts.attr("qk_matmul_output_mode", 0), facts.attr("softcap", 0.0)
    if mode not in range(4):
        facts.refuse("attribute 'qk_matmul_output_mode'", mode, "0, 1, 2 or 3")
    if cap < 0:
        facts.refuse("attribute 'softcap'", cap, "0 or more")


def turned(facts: Facts) -> None:
    """Pairs of elements: an even part of each head."""
    heads, shape, size = (
        _heads(facts, 0, "num_heads"),
        facts.shape(0),
        int(facts.attr("rotary_embedding_dim", 0)),
    )
    if heads is None or shape is None:
        return
    whole = shape[3] if len(shape) == 4 else shape[2] // heads
    if (size or whole) % 2 or not 0 <= size <= whole:
        facts.refuse("attribute 'rotary_embedding_dim'", size, f"an even number up to {whole}, or 0: all")


ATTENTION: dict[str, tuple[NodeCheck, ...]] = {"Attention": (attended,), "RotaryEmbedding": (turned,)}
