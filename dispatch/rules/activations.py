# SPDX-License-Identifier: Apache-2.0
"""Rules for activations that exporters write as several nodes."""

from __future__ import annotations

from onedispatch.dispatch.rules.conditions import scalar
from onedispatch.dispatch.rules.pattern import Rule

_ERF = "Add(Erf(Div(x, 1.41421356) | Mul(x, 0.70710678)), 1)"
_CUBE = "Pow(x, 3) | Mul(x, Mul(x, x))"
_INNER = (
    "Mul(Add(x, Mul(CUBE, 0.044715)), 0.79788456)"
    " | Mul(Mul(x, 0.79788456), Add(Mul(Mul(x, 0.044715), x), 1))"
    " | Mul(Mul(x, 0.79788456), Add(Mul(Mul(x, x), 0.044715), 1))"
)
# x / 2 times A, in any order.
_HALVES = ("Mul(Mul(x, A), 0.5)", "Mul(Mul(x, 0.5), A)", "Mul(x, Mul(A, 0.5))", "Div(Mul(x, A), 2)")
_SIXTH = "Clip(Add(x, 3), 0, 6) | Clip(Add(x, 3), min=0.0, max=6.0) | Min(Max(Add(x, 3), 0), 6)"

ACTIVATIONS = (
    Rule("gelu_erf", "Erf", _HALVES, "Gelu(x)", 20, {"A": _ERF}),
    Rule(
        "gelu_tanh",
        "Tanh",
        _HALVES,
        "Gelu(x, approximate='tanh')",
        20,
        {"CUBE": _CUBE, "I": _INNER, "A": "Add(Tanh(I), 1)"},
    ),
    Rule("silu", "Sigmoid", ("Mul(x, Sigmoid(x))",), "Swish(x)", 24),
    Rule(
        "silu_scaled",
        "Sigmoid",
        ("Mul(x, Sigmoid(Mul(x, const(a))))",),
        "Swish(x, alpha=alpha)",
        24,
        derive={"alpha": scalar("a")},
    ),
    Rule(
        "hard_swish",
        "Clip",
        (
            "Div(Mul(x, C), 6)",
            "Mul(Mul(x, C), 0.16666667)",
            "Mul(x, Div(C, 6))",
            "Mul(x, Mul(C, 0.16666667))",
        ),
        "HardSwish(x)",
        14,
        {"C": _SIXTH},
    ),
    Rule(
        "hard_swish_of_hard_sigmoid",
        "HardSigmoid",
        ("Mul(x, HardSigmoid(x, alpha=0.16666667, beta=0.5))",),
        "HardSwish(x)",
        14,
    ),
    Rule(
        "hard_sigmoid",
        "Clip",
        ("Div(C, 6)", "Mul(C, 0.16666667)"),
        "HardSigmoid(x, alpha=0.16666667, beta=0.5)",
        6,
        {"C": _SIXTH},
    ),
    Rule(
        "hard_sigmoid_clipped",
        "Clip",
        ("Clip(L, 0, 1)", "Clip(L, min=0.0, max=1.0)"),
        "HardSigmoid(x, alpha=alpha, beta=beta)",
        6,
        {"L": "Add(Mul(x, const(a)), const(b))"},
        derive={"alpha": scalar("a"), "beta": scalar("b")},
    ),
    Rule("mish", "Tanh", ("Mul(x, Tanh(Softplus(x)))", "Mul(x, Tanh(Log(Add(Exp(x), 1))))"), "Mish(x)", 18),
)
