# SPDX-License-Identifier: Apache-2.0
"""Rules for normalisations and Softmax that exporters write as several nodes."""

from __future__ import annotations

from onedispatch.dispatch.rules.conditions import (
    first_axis,
    kept,
    one_axis,
    ones,
    positive,
    row_shaped,
    scalar,
    trailing,
    unpadded,
)
from onedispatch.dispatch.rules.pattern import Rule

# D divided by the deviation; the variance is the mean of D squared, and D may be computed once or twice.
_CENTRED = {
    "D": "(d := Sub(x, (m := ReduceMean(x))))",
    "Q": "Pow(d, 2) | Mul(d, d)",
    "R": "Sqrt(Add((v := ReduceMean(Q)), const(eps)))",
    "N": "Div(D, R) | Mul(D, Div(1, R)) | Mul(D, Reciprocal(R))",
}
_TWICE = {
    **_CENTRED,
    "Q": "Pow(Sub(x, (again := ReduceMean(x))), 2) | Pow(Sub(x, m), 2)",
}
# As TensorFlow writes it, for batches too: x times a scale, and what is left of the bias.
_MOMENTS = {
    "D": _CENTRED["D"],
    "Q": "Mul(D, d) | Pow(D, 2)",
    "R": _CENTRED["R"],
    "INVERSE": "Reciprocal(R) | Div(1, R)",
}
_LAYER = (trailing("m", "v", "again"), kept("m", "v", "again"), positive("eps"))
_AFFINE = (row_shaped("scale", "m"), row_shaped("bias", "m"))
_EPS = {"epsilon": scalar("eps"), "axis": first_axis("m")}
_OWN = {"scale": unpadded("scale", "m"), "bias": unpadded("bias", "m")}
_BODY = "axis=axis, epsilon=epsilon"

_SQUARE = {
    "R": "Sqrt(Add((m := ReduceMean(Pow(x, 2) | Mul(x, x))), const(eps)))",
    "N": "Div(x, R) | Mul(x, Div(1, R)) | Mul(x, Reciprocal(R))",
}
_RMS = (trailing("m"), kept("m"), positive("eps"))


NORMS = (
    *(
        Rule(
            f"layer_norm{name}",
            "ReduceMean",
            ("Add(Mul(N, scale), bias)",),
            f"LayerNormalization(x, scale, bias, {_BODY})",
            17,
            parts,
            (*_LAYER, *_AFFINE),
            {**_EPS, **_OWN},
        )
        for name, parts in (("", _CENTRED), ("_centred_twice", _TWICE))
    ),
    Rule(
        "layer_norm_of_moments",
        "ReduceMean",
        ("Add(Mul(x, (s := Mul(INVERSE, scale))), Sub(bias, Mul(m, s)))",),
        f"LayerNormalization(x, scale, bias, {_BODY})",
        17,
        _MOMENTS,
        (*_LAYER[:1], kept("m", "v"), positive("eps"), *_AFFINE),
        {**_EPS, **_OWN},
    ),
    Rule(
        "layer_norm_without_bias",
        "ReduceMean",
        ("Mul(N, scale)",),
        f"LayerNormalization(x, scale, {_BODY})",
        17,
        _CENTRED,
        (*_LAYER, row_shaped("scale", "m")),
        {**_EPS, "scale": unpadded("scale", "m")},
    ),
    Rule(
        "layer_norm_alone",
        "ReduceMean",
        ("N",),
        f"LayerNormalization(x, one, {_BODY})",
        17,
        _CENTRED,
        _LAYER,
        {**_EPS, "one": ones("m")},
    ),
    Rule(
        "rms_norm",
        "ReduceMean",
        ("Mul(N, scale)",),
        f"RMSNormalization(x, scale, {_BODY})",
        23,
        _SQUARE,
        (*_RMS, row_shaped("scale", "m")),
        {**_EPS, "scale": unpadded("scale", "m")},
    ),
    Rule(
        "rms_norm_alone",
        "ReduceMean",
        ("N",),
        f"RMSNormalization(x, one, {_BODY})",
        23,
        _SQUARE,
        _RMS,
        {**_EPS, "one": ones("m")},
    ),
    Rule(
        "softmax",
        "Exp",
        ("Div((p := Exp(Sub(x, (m := ReduceMax(x))))), (s := ReduceSum(p)))",),
        "Softmax(x, axis=axis)",
        13,
        {},
        (kept("m", "s"), one_axis("m", "s")),
        {"axis": first_axis("m")},
    ),
)
