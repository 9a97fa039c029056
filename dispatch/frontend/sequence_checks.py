# SPDX-License-Identifier: Apache-2.0
"""Validity checks of recurrent layers and of GridSample: attribute values and operand shapes."""

from __future__ import annotations

from onedispatch.dispatch.frontend.facts import Facts, NodeCheck, Shape
from onedispatch.transactions.base.text import span

# operator -> attribute -> the values that ONNX knows
CHOICES: dict[str, dict[str, tuple[str | int, ...]]] = {
    "GridSample": {
        "mode": ("linear", "nearest", "cubic", "bilinear", "bicubic"),
        "padding_mode": ("zeros", "border", "reflection"),
    },
    **{
        name: {"direction": ("forward", "reverse", "bidirectional"), "layout": (0, 1)}
        for name in ("GRU", "LSTM", "RNN")
    },
}  # fmt: skip
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
FUNCTIONS = (
    "Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
    "Softsign", "Softplus",
)  # fmt: skip


def known_choices(facts: Facts) -> None:
    """Attributes have values that ONNX lists."""
    for name, accepted in CHOICES[facts.node.op_type].items():
        given = facts.attr(name, accepted[0])
        if given not in accepted:
            facts.refuse(f"attribute {name!r}", repr(given), ", ".join(map(str, accepted)))


def recurrent_layer(facts: Facts) -> None:
    """Shapes of the operands, and an activation for every gate function of every direction."""
    gates, directions = GATES[facts.node.op_type], 2 if facts.attr("direction") == "bidirectional" else 1
    _activations(facts, directions)
    x, w, r = (facts.shape(index) for index in range(3))
    for index, shape in enumerate((x, w, r)):
        if shape is not None and len(shape) != 3:
            facts.refuse(facts.input_name(index), f"rank {len(shape)}", "rank 3")
    if x is None or r is None:
        return
    hidden, (first, second, inputs) = r[-1], x
    if facts.attr("hidden_size", hidden) != hidden:
        facts.refuse("attribute 'hidden_size'", facts.attr("hidden_size"), f"{hidden}, as R says")
    batch = first if facts.attr("layout", 0) else second
    state = (batch, directions, hidden) if facts.attr("layout", 0) else (directions, batch, hidden)
    wanted: dict[int, Shape] = {
        1: (directions, gates * hidden, inputs),
        2: (directions, gates * hidden, hidden),
        3: (directions, 2 * gates * hidden),
        4: (batch,),
        5: state,
        6: state,
        7: (directions, 3 * hidden),
    }
    for index, accepted in wanted.items():
        given = facts.shape(index)
        if given is not None and given != accepted:
            facts.refuse(facts.input_name(index), list(given), str(list(accepted)))
    steps, lengths = (second if facts.attr("layout", 0) else first), facts.value(4)
    if lengths is not None and ((lengths < 0) | (lengths > steps)).any():
        facts.refuse(facts.input_name(4), lengths.tolist(), f"lengths in {span(0, steps)}")


def _activations(facts: Facts, directions: int) -> None:
    given = facts.attr("activations")
    if not given:
        return
    count = directions * {"GRU": 2, "LSTM": 3, "RNN": 1}[facts.node.op_type]
    if len(given) != count:
        facts.refuse("attribute 'activations'", given, f"{count} of them")
    known = {name.lower() for name in FUNCTIONS}
    for name in given:
        if name.lower() not in known:
            facts.refuse("attribute 'activations'", repr(name), ", ".join(FUNCTIONS))


_LAYER: tuple[NodeCheck, ...] = (known_choices, recurrent_layer)
SEQUENCES: dict[str, tuple[NodeCheck, ...]] = {
    "GRU": _LAYER,
    "GridSample": (known_choices,),
    "LSTM": _LAYER,
    "RNN": _LAYER,
}
