# SPDX-License-Identifier: Apache-2.0
"""Cases of LSTM, GRU and RNN: directions, activations, bounds, masks, states at first, layouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.ops.case import Case, Input, Tolerance, case, f32, value
from tests.ops.strategies import DEVICES

# Sums of a step are SUMS of their own; states stay within 1, and what is off in one step fades in the next.
NEAR = Tolerance(scale=5e-6, absolute=2e-6)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DIRECTIONS = ("forward", "reverse", "bidirectional")


def layer(
    op: str,
    sizes: tuple[int, int, int, int],
    *,
    bias: bool = True,
    lengths: Any = None,
    initial: bool = False,
    peepholes: bool = False,
    const: bool = True,
    const_bias: bool | None = None,
    **attributes: Any,
) -> Case:
    """``sizes``: steps, batch, inputs, hidden. ``const_bias``: where it is otherwise than the weights."""
    (t, b, i, h), gates = sizes, GATES[op]
    random = np.random.default_rng(5)
    d = 2 if attributes.get("direction") == "bidirectional" else 1

    def given(*shape: int) -> Input:
        """So small that no state decides the sign of the next: what is off would grow from step to step."""
        return value(random.standard_normal(shape) / np.sqrt(shape[-1]), const=const)

    first = (b, d, h) if attributes.get("layout") else (d, b, h)
    x = f32(b, t, i) if attributes.get("layout") else f32(t, b, i)
    inputs: list[Input | None] = [x, given(d, gates * h, i), given(d, gates * h, h)]
    inputs += [given(d, 2 * gates * h) if bias else None]
    if inputs[3] is not None and const_bias is not None:
        inputs[3] = replace(inputs[3], const=const_bias)
        attributes["note"] = "constant bias" if const_bias else "computed bias"
    inputs += [None if lengths is None else value(lengths, "int32", const=const)]
    inputs += [f32(*first) if initial else None]
    if op == "LSTM":
        inputs += [f32(*first) if initial else None, given(d, 3 * h) if peepholes else None]
    while inputs[-1] is None:
        inputs.pop()
    outputs = 3 if op == "LSTM" else 2
    return case(op, *inputs, outputs=outputs, hidden_size=h, tolerance=NEAR, **attributes)


def shared(op: str) -> list[Case]:
    return [
        layer(op, (1, 1, 1, 1)),
        layer(op, (5, 2, 3, 7), bias=False),
        layer(op, (5, 3, 4, 6), direction="reverse", initial=True),
        layer(op, (4, 2, 5, 9), direction="bidirectional", lengths=[4, 2], initial=True),
        layer(op, (4, 2, 5, 9), direction="bidirectional", lengths=[1, 3], const=False),
        layer(op, (3, 3, 2, 4), lengths=[0, 3, 1], initial=True),  # what had no step ends with zeros
        layer(op, (3, 2, 2, 4), lengths=[2, 0], initial=True, const=False, direction="bidirectional"),
        *(
            layer(op, (3, 2, 4, 5), direction="bidirectional", const=not c, const_bias=c)
            for c in (True, False)
        ),
        layer(op, (3, 2, 5, 4), direction="bidirectional", initial=True, const=False, clip=0.5),
        layer(op, (12, 1, 40, 72)),
        *layer(op, (3, 5, 17, 33)).on("npu1", "npu2_1col"),
    ]


def rnn() -> list[Case]:
    return [
        *shared("RNN"),
        layer("RNN", (4, 2, 3, 5), activations=["Relu"]),
        *(
            layer("RNN", (3, 2, 3, 5), activations=[name])
            for name in ("Elu", "Softplus", "HardSigmoid", "ThresholdedRelu")
        ),
        layer("RNN", (3, 2, 3, 5), activations=["ScaledTanh", "Affine"], activation_alpha=[0.5, 0.75],
              activation_beta=[2.0, 0.25], direction="bidirectional"),
        layer("RNN", (2, 8193, 1, 1), bias=False),  # a batch is no number of steps
        layer("RNN", (4, 2, 3, 5), activations=["LeakyRelu", "Softsign"], activation_alpha=[0.3],
              direction="bidirectional"),
    ]  # fmt: skip


def gru() -> list[Case]:
    return [
        *shared("GRU"),
        layer("GRU", (5, 2, 3, 7), linear_before_reset=1),
        layer(
            "GRU",
            (4, 2, 5, 9),
            linear_before_reset=1,
            direction="bidirectional",
            lengths=[4, 2],
            initial=True,
        ),
        layer("GRU", (3, 2, 5, 4), linear_before_reset=1, const=False, clip=0.7),
        layer("GRU", (4, 2, 3, 5), activations=["Sigmoid", "Relu"]),
    ]


def lstm() -> list[Case]:
    return [
        *shared("LSTM"),
        layer("LSTM", (5, 2, 3, 7), peepholes=True, initial=True),
        layer("LSTM", (5, 2, 3, 7), peepholes=True, direction="bidirectional", const=False),
        layer("LSTM", (5, 2, 3, 7), input_forget=1),
        layer("LSTM", (4, 2, 3, 5), activations=["Tanh", "Sigmoid", "Relu"]),
    ]


@st.composite
def recurrent(draw: st.DrawFn) -> Case:
    op = draw(st.sampled_from(sorted(GATES)))
    sizes = (
        draw(st.integers(1, 6)),
        draw(st.integers(1, 5)),
        draw(st.integers(1, 40)),
        draw(st.integers(1, 70)),
    )
    options: dict[str, Any] = {"direction": draw(st.sampled_from(DIRECTIONS)), "initial": draw(st.booleans())}
    options |= {"bias": draw(st.booleans()), "const": draw(st.booleans())}
    if draw(st.booleans()):
        options["lengths"] = [draw(st.integers(1, sizes[0])) for _ in range(sizes[1])]
    if op == "GRU":
        options["linear_before_reset"] = draw(st.integers(0, 1))
    if op == "LSTM":
        options["peepholes"] = draw(st.booleans())
    return layer(op, sizes, device=draw(DEVICES), **options)


CASES = [*rnn(), *gru(), *lstm()]
FAMILIES = {"recurrent": recurrent()}
