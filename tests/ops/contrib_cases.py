# SPDX-License-Identifier: Apache-2.0
"""Cases of onnxruntime's operators that rules write as ONNX's (``dispatch/contrib``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from onedispatch.operators.declarations.registry import MICROSOFT
from tests.ops.case import Case, Input, Tolerance, case, f32, value, weight

B, S, H, N = 2, 5, 16, 4  # batch, sequence, hidden size, heads
SIZE = H // N
X, COLUMNS = f32(B, S, H), weight(H)
# Of functions and sums of a few terms; exp of a library and of a kernel.
NEAR = Tolerance(ulp=16, scale=4e-6)


def contrib(op_type: str, *inputs: Input | None, **more: Any) -> Case:
    return case(op_type, *inputs, **{"domain": MICROSOFT, "tolerance": NEAR, **more})


def ints(given: Any, const: bool = False) -> Input:
    return value(np.array(given), "int32", const=const)


def flags(*shape: int) -> Input:
    return ints(np.random.default_rng(3).integers(0, 2, shape))


def activations(opset: int) -> list[Case]:
    return [
        contrib("Gelu", X, opset=opset),
        contrib("BiasGelu", X, COLUMNS, opset=opset),
        contrib("FastGelu", X, COLUMNS, opset=opset),
        contrib("FastGelu", X, opset=opset),
        contrib("QuickGelu", X, opset=opset),
        contrib("QuickGelu", X, opset=opset, alpha=1.0),
    ]


def norms(opset: int) -> list[Case]:
    last = (Input((B, S, H)), None, None, Input((B, S, H)))
    skip, rms = "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"
    return [
        contrib(skip, X, X, COLUMNS, COLUMNS, opset=opset, epsilon=1e-5),
        contrib(skip, X, f32(1, S, H), COLUMNS, COLUMNS, opset=opset, epsilon=1e-5),
        contrib(skip, X, f32(S, H), COLUMNS, None, COLUMNS, opset=opset),
        contrib(skip, X, X, COLUMNS, COLUMNS, COLUMNS, opset=opset, result=last),
        contrib(rms, X, X, COLUMNS, opset=opset, epsilon=1e-6),
        contrib(rms, X, X, COLUMNS, COLUMNS, opset=opset, result=last),
        contrib(rms, f32(S, H), f32(S, H), COLUMNS, opset=opset),
    ]


def embeddings(opset: int) -> list[Case]:
    words, places, kinds = weight(9, H), weight(7, H), weight(2, H)
    ids, segments = ints([[1, 0, 8, 2, 2], [3, 4, 5, 6, 7]]), flags(B, S)
    y, count = Input((B, S, H)), Input((B,), "int32")
    mask, at = ints([[1, 1, 1, 0, 0], [1] * 5]), ints([[1, 2, 3, 4, 0]])
    op = "EmbedLayerNormalization"
    return [
        contrib(
            op, ids, segments, words, places, kinds, COLUMNS, COLUMNS, mask,
            opset=opset, mask_index_type=1, result=(y, count, y),
        ),
        contrib(
            op, ids, segments, words, places, kinds, COLUMNS, COLUMNS, opset=opset, result=(y, count)
        ),
        contrib(
            op, ids, None, words, places, None, COLUMNS, COLUMNS, None, at, opset=opset, result=(y, None, y)
        ),
    ]  # fmt: skip


def factors(turned: bool, inside: bool, rows: int, columns: int) -> Input:
    """Matrices of 3 x 2 batches, whose rows may stand before the batches."""
    one, other = (columns, rows) if turned else (rows, columns)
    return f32(one, 3, 2, other) if inside else f32(3, 2, one, other)


def products() -> list[Case]:
    found = [
        contrib(
            "FusedMatMul",
            factors(bool(bits & 1), bool(bits & 4), 4, 6),
            factors(bool(bits & 2), bool(bits & 8), 6, 5),
            transA=bits & 1,
            transB=bits >> 1 & 1,
            transBatchA=bits >> 2 & 1,
            transBatchB=bits >> 3 & 1,
            alpha=0.5,
            result=Input((3, 2, 4, 5)),
        )
        for bits in range(16)
    ]
    found += [
        contrib("FusedMatMul", f32(6), f32(6, 5), alpha=2.0, result=Input((5,))),
        contrib("TransposeMatMul", f32(3, 4), weight(5, 4), transB=1, result=Input((3, 5))),
    ]
    packed = value(np.random.default_rng(9).integers(0, 256, 5 * 48 // 2), "uint8")
    largest = value(np.random.default_rng(8).random(15) + 0.5)
    for kind in (0, 1):  # floats of 4 bits, quantiles
        sizes = {"K": 48, "N": 5, "block_size": 16, "quant_type": kind}
        found.append(contrib("MatMulBnb4", f32(2, 3, 48), packed, largest, result=Input((2, 3, 5)), **sizes))
    return found


def fused_convolutions() -> list[Case]:
    pads = value([1, 0, 1, 0], "int64")
    found = [
        contrib(
            "ConvTransposeWithDynamicPads",
            f32(1, 3, 5, 4),
            weight(3, 2, 3, 3),
            pads,
            weight(2),
            strides=[2, 1],
            result=Input((1, 2, 9, 6)),
        )
    ]
    rows = [
        ("Relu", ()), ("Sigmoid", ()), ("Tanh", ()), ("LeakyRelu", (0.1,)), ("Clip", (0.0, 6.0)),
        ("HardSigmoid", (0.2, 0.5)), ("HardSwish", ()),
    ]  # fmt: skip
    image, filters, y = f32(1, 4, 8, 8), weight(6, 4, 3, 3), Input((1, 6, 8, 8))
    for name, parameters in rows:
        more = {"activation_params": list(parameters)} if parameters else {}
        found.append(
            contrib("FusedConv", image, filters, weight(6), activation=name, pads=[1] * 4, result=y, **more)
        )
    found += [
        contrib(
            "FusedConv", image, filters, weight(6), f32(1, 6, 8, 8), activation="Relu", pads=[1] * 4, result=y
        ),
        contrib(
            "FusedConv",
            image,
            weight(6, 2, 3, 3),
            activation="Relu",
            group=2,
            strides=[2, 2],
            result=Input((1, 6, 3, 3)),
        ),
        contrib(
            "FusedConv",
            image,
            filters,
            activation="Clip",
            activation_params=[0.0, 6.0],
            opset=9,
            result=Input((1, 6, 6, 6)),
        ),
    ]
    return found


def fused_products() -> list[Case]:
    found = list[Case]()
    said = [
        ("Relu", {}),
        ("LeakyRelu", {"alpha": 0.1}),
        ("Elu", {"alpha": 0.5}),
        ("Tanh", {}),
        ("Softplus", {}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("Selu", {"alpha": 1.5, "beta": 2.0, "gamma": 1.1}),
        ("Softsign", {}),
        ("ThresholdedRelu", {"alpha": 0.4}),
        ("Sigmoid", {}),
    ]
    for name, parameters in said:
        more = {f"activation_{key}": one for key, one in parameters.items()}
        found.append(contrib("FusedGemm", f32(4, 6), weight(6, 5), weight(5), activation=name, alpha=0.5,
                             result=Input((4, 5)), **more))  # fmt: skip
    found.append(contrib("FusedGemm", f32(6, 4), weight(5, 6), activation="Relu", transA=1, transB=1,
                         result=Input((4, 5))))  # fmt: skip
    return found


def lookups() -> list[Case]:
    rng = np.random.default_rng(5)
    at, rows, y = ints([[0, 3, 2]]), 4, Input((1, 3, 64))
    table = "GatherBlockQuantized"
    packed = value(rng.integers(0, 256, (rows, 32)), "uint8")
    whole = value(rng.integers(0, 256, (rows, 64)), "uint8")
    scales = value(rng.random((rows, 2)) + 0.5)
    halves = value(rng.integers(0, 256, (rows, 1)), "uint8")
    return [
        contrib(table, packed, at, scales, bits=4, block_size=32, quantize_axis=1, result=y),
        contrib(table, packed, at, scales, halves, bits=4, block_size=32, quantize_axis=1, result=y),
        contrib(table, whole, at, scales, bits=8, block_size=32, quantize_axis=1, result=y),
        contrib("ExpandDims", X, ints(1, const=True), result=Input((B, 1, S, H))),
        contrib("CDist", f32(4, 5), f32(3, 5), metric="euclidean", result=Input((4, 3))),
        contrib("CDist", f32(4, 5), f32(3, 5), metric="sqeuclidean", result=Input((4, 3))),
        contrib("Trilu", f32(4, 5), upper=0),
        contrib("GatherND", f32(4, 5), value([[1], [2]], "int64", const=False), result=Input((2, 5))),
        contrib("Pad", f32(2, 3), value([0, 1, 0, 2], "int64"), mode="constant", result=Input((2, 6))),
        contrib("Pad", f32(2, 3), value([[0, 1, 0, 2]], "int64"), value([0.5]), result=Input((2, 6))),
    ]


def attention(*more: Input | None, opset: int = 21, **rest: Any) -> Case:
    inputs = (X, weight(H, 3 * H), weight(3 * H), *more)
    return contrib("Attention", *inputs, opset=opset, **{"num_heads": N, **rest})


def attentions(opset: int) -> list[Case]:
    past, y = 3, Input((B, S, H))
    both = (y, Input((2, B, N, S + past, SIZE)))
    masks = [
        None, ints([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]]), ints([3, 5]), ints([3, 5, 0, 2]), flags(B, S, S),
    ]  # fmt: skip
    found = [attention(mask, opset=opset, unidirectional=one) for mask in masks for one in (0, 1)]
    unlike = weight(H, 28)  # keys of 4 elements, values of 6
    return found + [
        attention(None, f32(2, B, N, past, SIZE), opset=opset, unidirectional=1, result=both),
        attention(None, None, f32(1, 1, S, S), opset=opset, scale=0.3),
        contrib(
            "Attention", X, unlike, weight(28), num_heads=2, qkv_hidden_sizes=[8, 8, 12], opset=opset,
            result=Input((B, S, 12)),
        ),
    ]  # fmt: skip


def heads_apart(opset: int) -> list[Case]:
    keys, past = 7, 3
    cache, there = f32(B, N, past, SIZE), Input((B, N, S + past, SIZE))
    present = (Input((B, S, H)), there, there)
    k, by_head = f32(B, keys, H), f32(B, N, keys, SIZE)
    op = "MultiHeadAttention"
    return [
        contrib(op, X, X, X, num_heads=N, opset=opset),
        contrib(op, X, k, k, num_heads=N, opset=opset, scale=0.7),
        contrib(
            op,
            X,
            k,
            f32(B, keys, 2 * H),
            weight(4 * H),
            num_heads=N,
            opset=opset,
            result=Input((B, S, 2 * H)),
        ),
        contrib(
            op, X, k, k, weight(3 * H), ints([[1] * 5 + [0] * 2, [0] * 2 + [1] * 5]), num_heads=N, opset=opset
        ),
        contrib(op, X, k, k, None, ints([3, 7]), num_heads=N, opset=opset),
        contrib(op, X, k, k, None, None, f32(B, N, S, keys), num_heads=N, opset=opset),
        contrib(op, X, k, k, None, None, f32(1, 1, S, keys), num_heads=N, opset=opset),
        contrib(op, X, by_head, by_head, num_heads=N, opset=opset),
        contrib(op, X, X, X, num_heads=N, opset=opset, unidirectional=1),
        contrib(op, X, X, X, None, None, None, cache, cache, num_heads=N, opset=opset, result=present),
        contrib(
            op,
            X,
            X,
            X,
            weight(3 * H),
            None,
            f32(B, 1, S, S + past),
            cache,
            cache,
            num_heads=N,
            opset=opset,
            unidirectional=1,
            result=present,
        ),
    ]


def grouped(
    rows: int,
    past: int | None,
    lengths: list[int],
    heads: int = 4,
    shared: int = 2,
    packed: bool = False,
    bias: bool = False,
    **more: Any,
) -> Case:
    """Whose cache is full: what lies behind the last key of a batch is nothing that anyone reads."""
    batch, size, total = len(lengths), 16, max(lengths)
    k = None if packed else f32(batch, rows, shared * size)
    before = None if past is None else f32(batch, shared, past, size)
    width = (heads + 2 * shared if packed else heads) * size
    inputs = [f32(batch, rows, width), k, k, before, before, ints(np.array(lengths) - 1), ints(total, True)]
    if more.get("do_rotary") or bias:
        inputs += [weight(32, size // 2)] * 2 if more.get("do_rotary") else [None, None]
    inputs += [None, f32(1, 1, rows, total)] if bias else []
    cache = Input((batch, shared, max(total, past or 0), size))
    result = Input((batch, rows, heads * size)), cache, cache
    return contrib(
        "GroupQueryAttention", *inputs, num_heads=heads, kv_num_heads=shared, result=result, **more
    )  # fmt: skip


GROUPED = [
    grouped(5, None, [5, 5]),
    grouped(5, 0, [5, 5], opset=13),
    grouped(5, 0, [5, 5], do_rotary=1),
    grouped(5, 0, [5, 5], do_rotary=1, rotary_interleaved=1),
    grouped(1, 6, [7, 7]),
    grouped(1, 6, [7, 7], do_rotary=1, opset=14),
    grouped(3, 6, [9]),
    grouped(3, 6, [9], do_rotary=1),
    grouped(1, 6, [7, 7], packed=True),
    grouped(5, 0, [5, 5], packed=True, do_rotary=1),
    grouped(1, 6, [7, 7], local_window_size=3),
    grouped(5, 0, [5, 5], local_window_size=2),
    grouped(1, 6, [7, 7], softcap=2.0),
    grouped(1, 6, [7, 7], bias=True),
    grouped(5, 0, [5, 5], bias=True),
    grouped(1, 6, [7, 7], shared=4),
    grouped(1, 6, [7], heads=8, shared=1, scale=0.2),
]

CASES = [
    *(one for opset in (21, 17, 11) for one in activations(opset)),
    *(one for opset in (21, 13, 11) for one in norms(opset)),
    *(one for opset in (21, 11) for one in embeddings(opset)),
    *products(),
    *fused_convolutions(),
    *fused_products(),
    *lookups(),
    *(one for opset in (21, 11) for one in (*attentions(opset), *heads_apart(opset))),
    *GROUPED,
]
