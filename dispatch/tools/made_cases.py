# SPDX-License-Identifier: Apache-2.0
"""Cases made up for rules and fusions that bring none: from signatures, schemas and patterns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onedispatch.dispatch.rules.pattern import AnyOf, NodePattern, NumberPattern, Pattern, ValuePattern
from onedispatch.dispatch.sources.rule import Fusion, Rule
from onedispatch.dispatch.sources.targets import OPSET, fixed_type
from onedispatch.dispatch.tensorflow.signatures import ELEMENT_TYPES, Signature, signature_of
from onedispatch.dispatch.tools.rule_cases import SEED, Case, NodeData, Tensor, made_values

_SHAPES = ((2, 4, 4, 3), (3, 4), (4,))
_WHOLE = 1  # may be a number of elements, an axis or a size
# What windows of TensorFlow need, where nothing else says it.
_WINDOWS = {"strides": [1, 1, 1, 1], "ksize": [1, 2, 2, 1], "rates": [1, 1, 1, 1], "padding": "SAME"}


def made_for_rule(rule: Rule) -> Iterator[Case]:
    """Yields nodes that a rule may take, the likeliest first."""
    signature = signature_of(rule.op_type) if rule.framework == "tensorflow" else None
    for shape in _SHAPES:
        if signature is not None:
            yield _of_signature(rule, signature, shape)
        else:
            yield from _of_schema(rule, shape)


def _of_signature(rule: Rule, signature: Signature, shape: tuple[int, ...]) -> Case:
    inputs: list[Tensor] = []
    for port in signature.input_ports:
        dtype = ELEMENT_TYPES.get(port.type) or signature.defaults.get(port.type) or np.dtype(np.float32)
        for _ in range(2 if port.many else 1):
            inputs.append(_input(port.name, dtype, shape, len(inputs)))
    attributes = {
        name: _WINDOWS[name]
        for name in signature.attributes
        if name in _WINDOWS and name not in signature.defaults
    }
    return _single(rule.op_type, inputs, attributes, rule)


def _of_schema(rule: Rule, shape: tuple[int, ...]) -> Iterator[Case]:
    """As many inputs as the target needs; where nothing is known of that, one to three."""
    target = rule.target
    schema = target.schema() if target is not None else None
    counts = (max(schema.min_input, 1),) if schema is not None else (1, 2, 3)
    for count in counts:
        inputs = []
        for index in range(count):
            known = None if target is None else fixed_type((target.op_type, target.domain, OPSET), index)
            inputs.append(_input(f"x{index}", known or np.dtype(np.float32), shape, index))
        yield _single(rule.op_type, inputs, {}, rule)


def _input(name: str, dtype: Any, shape: tuple[int, ...], number: int) -> Tensor:
    """Numbers of ``shape``; of whole numbers behind the first input a constant, since they say something."""
    found = np.dtype(dtype)
    called = f"{name}_{number}"
    if number and found.kind in "iu":
        return Tensor(called, np.array([_WHOLE], found), True)
    kind = found if not found.hasobject else np.dtype(np.float32)
    return Tensor(called, made_values(kind, shape, SEED + number, called), False)


def _single(op: str, inputs: list[Tensor], attributes: dict[str, Any], rule: Rule) -> Case:
    node = NodeData(op, "node", tuple(one.name for one in inputs), None, attributes)
    return Case("a made-up node", op, "", (node,), tuple(inputs), None, framework=rule.framework)


# -- fusions ---------------------------------------------------------------------------------------


def made_for_fusion(fusion: Fusion) -> Iterator[Case]:
    """Yields graphs of a fusion's own pattern: the first of every alternative."""
    for shape in _SHAPES:
        made = _Pattern(shape)
        outputs = tuple(made.value(root[0]) for root in fusion.roots)
        framework = fusion.framework or "onnx"
        nodes, inputs = tuple(made.nodes), tuple(made.inputs.values())
        yield Case("its own pattern", "", fusion.name, nodes, inputs, outputs, framework=framework)


class _Pattern:
    """The nodes and inputs of a pattern."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.nodes: list[NodeData] = []
        self.inputs: dict[str, Tensor] = {}
        self._made: dict[str, str] = {}  # the value of a named node

    def value(self, pattern: Pattern) -> str:
        """Returns the name of what a pattern stands for, made where it is not there yet."""
        if isinstance(pattern, AnyOf):
            return self.value(pattern.choices[0])
        if isinstance(pattern, NumberPattern):
            return self._input(f"number{len(self.inputs)}", np.array(pattern.value, np.float32), True)
        if isinstance(pattern, ValuePattern):
            return self._named(pattern)
        if pattern.name in self._made:
            return self._made[pattern.name]
        return self._node(pattern)

    def _named(self, pattern: ValuePattern) -> str:
        if pattern.name in self._made or pattern.name in self.inputs:
            return self._made.get(pattern.name, pattern.name)
        shape = () if pattern.single else self.shape
        array = made_values(np.dtype(np.float32), shape, SEED + len(self.inputs), pattern.name)
        return self._input(pattern.name, np.asarray(array), pattern.constant)

    def _input(self, name: str, array: Any, constant: bool) -> str:
        self.inputs[name] = Tensor(name, array, constant)
        return name

    def _node(self, pattern: NodePattern) -> str:
        operands = tuple(self.value(one) for one in pattern.operands)
        name = f"node{len(self.nodes)}"
        outputs = tuple(f"{name}_{number}" for number in range(max(pattern.output, 0) + 1))
        op = f"{pattern.domain}::{pattern.op_type}" if pattern.domain else pattern.op_type
        self.nodes.append(NodeData(op, name, operands, outputs, dict(pattern.attributes)))
        if pattern.name:
            self._made[pattern.name] = outputs[-1]
        return outputs[-1]
