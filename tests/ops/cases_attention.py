# SPDX-License-Identifier: Apache-2.0
"""Cases of Attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.ops.case import Case, Input, Tolerance, case, f32, value
from tests.ops.strategies import DEVICES

CLOSE = Tolerance(scale=3e-6, absolute=1e-6)  # two products and a sum of powers between them
_OPSET = 23
_MASKS = ((5, 6), (1, 5, 6), (2, 1, 5, 6), (2, 4, 5, 6))


def attention(*inputs: Input | None, device: str = "npu2", **attributes: Any) -> Case:
    given = case("Attention", *inputs, tolerance=CLOSE, device=device, **attributes)
    return replace(given, opset=_OPSET)


def _mask(shape: tuple[int, ...], kind: str, const: bool) -> Input:
    rng = np.random.default_rng(sum(shape))
    if kind == "bool":
        return value(rng.random(shape) > 0.4, "bool", const)
    array = rng.standard_normal(shape).astype(np.float32)
    array[rng.random(shape) > 0.6] = -np.inf if kind == "infinite" else np.finfo(np.float32).min
    if kind == "lowest":  # every row sees a key: where none does, onnxruntime takes the lowest for -inf
        array[..., 0] = 0.5
    return value(array, const=const)


@st.composite
def random_attention(draw: st.DrawFn) -> Case:
    kv_heads, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    batch, rows, keys, size = (draw(st.integers(1, most)) for most in (2, 9, 9, 17))
    heads, width = kv_heads * groups, draw(st.integers(1, 12))
    attributes: dict[str, Any] = {"is_causal": draw(st.integers(0, 1))}
    if draw(st.booleans()):
        attributes["scale"] = draw(st.sampled_from([0.25, 1.5]))
    if draw(st.booleans()):
        attributes["softcap"] = 2.0
    if draw(st.booleans()):
        three = f32(batch, rows, heads * size), f32(batch, keys, kv_heads * size)
        tensors = (*three, f32(batch, keys, kv_heads * width))
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    else:
        four = f32(batch, heads, rows, size), f32(batch, kv_heads, keys, size)
        tensors = (*four, f32(batch, kv_heads, keys, width))
    kind = draw(st.sampled_from(["", "bool", "infinite", "lowest"]))
    mask = [_mask((rows, keys), kind, draw(st.booleans()))] if kind else []
    return attention(*tensors, *mask, device=draw(DEVICES), **attributes)


def _of(mask: Input | None = None, kv_heads: int = 4, **attributes: Any) -> Case:
    tensors = f32(2, 4, 5, 8), f32(2, kv_heads, 6, 8), f32(2, kv_heads, 6, 10)
    return attention(*tensors, *([mask] if mask else []), **attributes)


def _hidden(key: float, kind: str, const: bool) -> Case:
    """A key that is no number, and a query that sees nothing: its row is zeros all the same."""
    keys, seen = np.ones((1, 2, 4, 4), np.float32), np.tril(np.ones((3, 4), bool), -1)
    keys[..., 3, 1] = key
    mask = seen if kind == "bool" else np.where(seen, 0, -np.inf).astype(np.float32)
    return attention(
        f32(1, 2, 3, 4), value(keys, const=False), f32(1, 2, 4, 5), value(mask, str(mask.dtype), const)
    )


CASES = [
    *(
        _hidden(key, kind, const)
        for key, kind, const in (
            (np.inf, "bool", False),
            (np.nan, "bool", True),
            (-np.inf, "float", False),
            (np.inf, "float", True),
        )
    ),
    _of(),
    _of(kv_heads=2, is_causal=1),
    _of(kv_heads=1, scale=0.3, softcap=2.0),
    *(_of(_mask(shape, "bool", i % 2 == 1), is_causal=i % 2) for i, shape in enumerate(_MASKS[1:4])),
    _of(_mask((5, 6), "infinite", False), is_causal=1),
    _of(_mask((5, 6), "infinite", True)),
    _of(_mask((5, 6), "lowest", False)),
    attention(f32(2, 5, 32), f32(2, 6, 16), f32(2, 6, 20), q_num_heads=4, kv_num_heads=2),
    attention(f32(1, 12, 197, 64), f32(1, 12, 197, 64), f32(1, 12, 197, 64)),
    replace(_of(kv_heads=2), device="npu1"),
]
FAMILIES = {"attention": random_attention()}
