# SPDX-License-Identifier: Apache-2.0
"""Writes the node of a 1:1 rule: its facts, then formats and types as the target takes them."""

from __future__ import annotations

import numpy as np
from onnx import helper

from onedispatch.dispatch.frontend.graph import Node
from onedispatch.dispatch.sources.builder import Builder
from onedispatch.dispatch.sources.facts import Draft, Refused, check_counts
from onedispatch.dispatch.sources.formats import FORMATS, SENSITIVE, current_of
from onedispatch.dispatch.sources.node import Operand, SourceNode
from onedispatch.dispatch.sources.rule import Rule
from onedispatch.dispatch.sources.targets import Target, fixed_type, is_list

__all__ = ["CAST", "IDENTITY", "one_to_one", "target_of"]

CAST, IDENTITY = Target("", "Cast"), Target("", "Identity")


def target_of(node: Node) -> Target:
    """Returns the operator of a node."""
    return Target(node.domain, node.op_type)


def one_to_one(rule: Rule, g: Builder, node: SourceNode) -> tuple[Operand, ...]:
    """Writes the target of a rule with what its facts make of ``node``; returns the results."""
    target = rule.target
    if target is None:
        raise Refused("its rule has no target")
    draft = Draft(node, target, g, inputs=list(node.inputs))
    for fact in rule.facts:
        fact.apply(draft)
    check_counts(draft)
    ports = SENSITIVE.get(target.op_type) if not target.domain else None
    if ports is not None:
        _take_data_format(draft, ports.data, ports.outputs)
    inputs = [_input(draft, index, name) for index, name in enumerate(draft.inputs)]
    made = g.op(str(target), *inputs, outputs=_count(draft), **draft.attributes)
    results = made if isinstance(made, tuple) else (made,)
    return tuple(_output(draft, index, one) for index, one in enumerate(results))


def _take_data_format(draft: Draft, inputs: frozenset[int], outputs: tuple[int, ...]) -> None:
    """The attribute data_format holds for data whose format no fact says."""
    if not draft.node.has("data_format"):
        return
    said = draft.node.attr("data_format")
    if said not in FORMATS:
        raise Refused(f"data_format={said!r}, where one of {', '.join(FORMATS)} is expected")
    for port in [*(("in", one) for one in inputs), *(("out", one) for one in outputs)]:
        draft.formats.setdefault(port, said)


def _input(draft: Draft, index: int, name: str) -> Operand | None:
    """An input in the format and type of the target."""
    if not name:
        return None
    g, target = draft.g, draft.target
    found = name if isinstance(name, Operand) else Operand(name, g.writer)
    origin = draft.formats.get(("in", index), "ND")
    if origin != "ND":
        if found.rank not in (None, len(origin)):
            raise Refused(f"input {index} ({name}) has rank {found.rank}, where format {origin} is said")
        found = g.relayout(found, origin, current_of(origin))
    schema = target.schema(g.opset)
    wanted = fixed_type((target.op_type, target.domain, g.opset), index) if schema is not None else None
    if wanted is not None and found.dtype is not None and found.dtype != wanted and found.dtype.kind in "iub":
        array = g.known(found)
        to = int(helper.np_dtype_to_tensor_dtype(wanted))
        found = g.constant(array.astype(wanted)) if array is not None else g.Cast(found, to=to)
    if not target.domain and is_list(target.op_type, index) and found.rank == 0:
        array = g.known(found)
        found = g.constant(array.reshape(1)) if array is not None else g.Reshape(found, np.array([1]))
    return found


def _output(draft: Draft, index: int, name: Operand) -> Operand:
    origin = draft.formats.get(("out", index), "ND")
    return name if origin == "ND" else draft.g.relayout(name, current_of(origin), origin)


def _count(draft: Draft) -> int:
    schema = draft.target.schema(draft.g.opset)
    least = schema.min_output if schema is not None else 1
    return max(least, len(draft.node.outputs), draft.outputs)
