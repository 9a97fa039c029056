# SPDX-License-Identifier: Apache-2.0
"""Models out of the patterns of rules: every form of every rule, as exporters would write it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onedispatch.dispatch.rules import pattern as p
from onedispatch.dispatch.rules.match import _COMMUTE

SHAPE = (2, 6, 8)
_REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceSum")


def variants(rule: p.Rule) -> Iterator[p.NodePattern]:
    """Every form with one of its alternatives in each place."""
    for one in rule.patterns:
        yield from _chosen(one)  # type: ignore[misc]


def _chosen(pattern: p.Pattern) -> Iterator[p.Pattern]:
    match pattern:
        case p.AnyOf(choices):
            for choice in choices:
                yield from _chosen(choice)
        case p.NodePattern(operands=operands):
            for chosen in product(*(list(_chosen(one)) for one in operands)):
                yield replace(pattern, operands=chosen)
        case _:
            yield pattern


def numbers(pattern: p.Pattern) -> int:
    if isinstance(pattern, p.NumberPattern):
        return 1
    return sum(numbers(one) for one in getattr(pattern, "operands", ()))


@dataclass
class Builder:
    """``flip`` turns operands that commute; the number at position ``wrong`` is off by a percent.

    ``table`` is how wide tables of angles are; ``computed`` ones are made of angles that are an input, and
    where ``heads_behind`` they are for x [batch, places, heads, size].
    """

    axes: tuple[int, ...] = (-1,)
    flip: bool = False
    wrong: int = -1
    keepdims: int = 1
    opset: int = 17
    shape: tuple[int, ...] = SHAPE
    table: int = 0
    computed: bool = False
    heads_behind: bool = False
    tables: list[onnx.NodeProto] = field(default_factory=list)  # they are not the rule's
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[str] = field(default_factory=lambda: ["x"])
    weights: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    _named: dict[str, p.NodePattern] = field(default_factory=dict)
    _made: dict[str, str] = field(default_factory=dict)
    _numbers: int = 0

    def model(self, pattern: p.NodePattern, *outputs: str) -> onnx.ModelProto:
        """Its output is y; ``outputs`` are values that leave too."""
        self._name(pattern)
        root = self._build(pattern)
        self.nodes.append(helper.make_node("Identity", [root], ["y"], name="end"))
        grouped = "more_k" in self._named
        few = (self.shape[0], self.shape[1] // 2, *self.shape[2:])
        shapes = {name: few if grouped and name != "q" else self.shape for name in self.inputs}
        angles = (self.shape[0], *self.shape[-2:-1], self.shape[-1] // 2)
        shapes |= {"angles": angles} if self.tables else {}
        ins = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in shapes.items()]
        outs = [helper.make_empty_tensor_value_info(name) for name in ("y", *outputs)]
        tensors = [numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        graph = helper.make_graph([*self.tables, *self.nodes], "g", ins, outs, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def _name(self, pattern: p.Pattern) -> None:
        if isinstance(pattern, p.NodePattern):
            if pattern.name:
                self._named[pattern.name] = pattern
            for one in pattern.operands:
                self._name(one)

    def _build(self, pattern: p.Pattern) -> str:
        match pattern:
            case p.NumberPattern(value):
                self._numbers += 1
                off = 1.01 if self._numbers - 1 == self.wrong else 1.0
                return self._weight(f"c{self._numbers}", np.array(value * off, np.float32))
            case p.ValuePattern(name) if name in self._named:
                return self._op(self._named[name])
            case p.ValuePattern("x"):
                return "x"
            case p.ValuePattern("q" | "v" as name):
                self.inputs += [name] if name not in self.inputs else []
                return name
            case p.ValuePattern("c" | "s" as name, False):
                return self._table(name)
            case p.ValuePattern("w"):
                return self._weight("w", np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4, 1, 1))
            case p.ValuePattern("bias" | "factor" as name, False) if len(self.shape) == 4:
                return self._weight(name, np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1))
            case p.ValuePattern("scale" | "zero" as name) if "quantised" in self._named:
                return self._weight(
                    name, np.array(0.05, np.float32) if name == "scale" else np.array(128, np.uint8)
                )
            case p.ValuePattern("given" | "scale" | "shift" | "mean" | "variance" as name) if (
                len(self.shape) == 4
            ):
                return self._weight(name, np.linspace(0.5, 1.5, 4, dtype=np.float32))
            case p.ValuePattern("mask"):
                mask = np.linspace(-1, 1, self.shape[2], dtype=np.float32).reshape(1, -1)
                return self._weight("mask", mask)
            case p.ValuePattern("shown" | "hidden" as name):  # causal order
                seen = np.tri(self.shape[2], dtype=bool)
                return self._weight(name, seen if name == "shown" else ~seen)
            case p.ValuePattern("low"):
                return self._weight("low", np.array(np.finfo(np.float32).min))
            case p.ValuePattern("first_of_pair" | "second_of_pair" as name):
                return self._weight(name, np.array(name == "second_of_pair", np.int64))
            case p.ValuePattern(name, constant):
                size = 1 if constant else self.shape[-1]
                start = {"eps": 1e-3, "a": 0.25, "b": 0.5}.get(name, 0.5)
                values = np.linspace(start, start + 1, size, dtype=np.float32)
                return self._weight(name, values.reshape(()) if constant else values)
        assert isinstance(pattern, p.NodePattern)
        return self._op(pattern)

    def _table(self, name: str) -> str:
        """Cosines or sines of angles for each place: both halves alike, or one half."""
        places, half = self.shape[-2], self.shape[-1] // 2
        heads = [2] if self.heads_behind else list(range(1, len(self.shape) - 2))
        if not self.computed:
            table = np.linspace(0, 1, places * half, dtype=np.float32).reshape(1, places, half)
            times = (self.table or 2 * half) // half
            table = np.repeat(table, times, -1) if self.in_pairs else np.concatenate([table] * times, axis=-1)
            return self._weight(name, np.expand_dims(table + np.float32(name == "s"), tuple(heads)))
        function, both = ("Cos", "Sin")[name == "s"], "angles"
        make = helper.make_node
        if name not in self._made:
            if self.table == 2 * half:
                both = f"table_both_{name}"
                self.tables += self._doubled(both)
            axes = self._weight("table_axes", np.array(heads))
            nodes = (function, [both]), ("Unsqueeze", [f"table_{function}", axes])
            for op_type, inputs in nodes:
                made = f"table_{op_type}" if op_type == function else f"table_{name}"
                self.tables.append(make(op_type, inputs, [made], name=made))
            self._made[name] = f"table_{name}"
        return self._made[name]

    @property
    def in_pairs(self) -> bool:
        """Whether halves are every second element."""
        return "pairs" in self._named

    def _doubled(self, name: str) -> list[onnx.NodeProto]:
        """Each angle for both halves."""
        if not self.in_pairs:
            return [helper.make_node("Concat", ["angles"] * 2, [name], name=name, axis=-1)]
        last = self._weight("table_last", np.array([-1]))
        whole = self._weight("table_whole", np.array([*self.shape[:1], self.shape[-2], self.shape[-1]]))
        single, pair = f"{name}_single", f"{name}_pair"
        return [
            helper.make_node("Unsqueeze", ["angles", last], [single], name=single),
            helper.make_node("Concat", [single] * 2, [pair], name=pair, axis=-1),
            helper.make_node("Reshape", [pair, whole], [name], name=name),
        ]

    def _weight(self, name: str, array: np.ndarray[Any, Any]) -> str:
        self.weights[name] = array
        return name

    def _op(self, pattern: p.NodePattern) -> str:
        if pattern.name and pattern.name in self._made:
            return self._made[pattern.name]
        operands = list(pattern.operands)
        if self.flip and pattern.op_type in _COMMUTE:
            operands.reverse()
        if pattern.op_type == "Split" and "split" in self._made:
            return f"split_{pattern.output}"
        inputs = [self._build(one) for one in operands]
        attributes = dict(pattern.attributes)
        if pattern.op_type in _REDUCTIONS:
            attributes["keepdims"] = self.keepdims
            if (pattern.op_type == "ReduceSum" and self.opset >= 13) or self.opset >= 18:
                inputs.append(self._weight("axes", np.array(self.axes, np.int64)))
            else:
                attributes["axes"] = list(self.axes)
        if pattern.op_type == "Slice":
            size, last = self.shape[-1], len(self.shape) - 1
            ends = {"high": (size // 2, size), "low": (0, size // 2)}[pattern.name]
            said: tuple[int, ...] = (*ends, last)
            if self.in_pairs:
                said = int(pattern.name == "high"), size, last, 2
            for kind, number in zip(("start", "end", "axis", "step"), said, strict=False):
                inputs.append(self._weight(f"{pattern.name}_{kind}", np.array([number], np.int64)))
        for kind, given in self._structure(pattern).items():
            inputs.append(self._weight(f"{pattern.name}_{kind}", np.array(given, np.int64)))
        attributes |= {"axis": -1} if pattern.op_type in ("Concat", "Gather", "Softmax") else {}
        name = pattern.name or f"v{len(self.nodes)}"
        output = f"{name}_{pattern.op_type}"
        if pattern.op_type == "Split":
            return self._halves(pattern, inputs)
        self.nodes.append(helper.make_node(pattern.op_type, inputs, [output], name=output, **attributes))
        if pattern.name:
            self._made[pattern.name] = output
        return output

    def _halves(self, pattern: p.NodePattern, inputs: list[str]) -> str:
        """An output of the one Split of ``inputs``."""
        outputs = ["split_0", "split_1"]
        self.nodes.append(helper.make_node("Split", inputs, outputs, name="split", axis=-1))
        self._made["split"] = outputs[0]
        return outputs[pattern.output]

    def _structure(self, pattern: p.NodePattern) -> dict[str, list[int]]:
        """Operands of nodes around attention that patterns leave out."""
        batch, heads, places, size = (*self.shape, 0, 0, 0)[:4]
        more = pattern.name in ("more_k", "more_v")
        match pattern.op_type:
            case "Unsqueeze" | "Squeeze" if self.in_pairs:
                return {"axes": [-1]}
            case "Reshape" if self.in_pairs and not pattern.name:
                return {"shape": [batch, heads, places, size // 2, 2]}
            case "Unsqueeze":
                return {"axes": [2]}
            case "Expand" if more:
                return {"shape": [batch, heads // 2, 2, places, size]}
            case "Reshape":
                shapes = {"rows": [-1, places, size], "turned": [batch, heads, size, places]}
                return {"shape": shapes.get(pattern.name, [batch, heads, places, size])}
        return {}


def builder(rule: p.Rule, form: p.NodePattern, **changes: Any) -> Builder:
    """One that writes what exporters write for a form of a rule."""
    given: dict[str, Any] = {"shape": shape_for(rule), "opset": opset_for(form)}
    if rule.name.startswith("rotary"):
        size = given["shape"][-1]
        given["table"] = size if rule.name.startswith("rotary_embedding") else size // 2
        given["computed"] = rule.name.endswith("_computed")
        given["heads_behind"] = "heads_behind" in rule.name
    return Builder(**(given | changes))


def shape_for(rule: p.Rule) -> tuple[int, ...]:
    """Of x; where heads are concerned, one that is right wherever they are."""
    if rule.name.startswith("quantise"):
        return (40, 2, 3) if rule.name == "quantise_after_transpose" else (3, 2, 40)
    return (2, 4, 4, 8) if rule.name.startswith(("attention", "rotary", "conv", "batch")) else SHAPE


def opset_for(pattern: p.NodePattern) -> int:
    """Bounds of Clip were attributes before opset 11."""

    def old(one: p.Pattern) -> bool:
        inner = getattr(one, "operands", ())
        return isinstance(one, p.NodePattern) and (
            (one.op_type == "Clip" and bool(one.attributes)) or any(map(old, inner))
        )

    return 10 if old(pattern) else 17
