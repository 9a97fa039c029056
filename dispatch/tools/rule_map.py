# SPDX-License-Identifier: Apache-2.0
"""One map of all that maps operators: rules of frameworks, fusions, rewrite rules, device operators."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass

from onedispatch.dispatch.contrib import domain as contrib
from onedispatch.dispatch.rules import table
from onedispatch.dispatch.sources import registry
from onedispatch.dispatch.sources.rule import Fusion, Rule
from onedispatch.dispatch.tensorflow import framework as tensorflow
from onedispatch.operators.declarations.registry import OpMapping, all_mappings

DEVICE = "device"


@dataclass(frozen=True)
class MapRow:
    """What maps an operator, or a pattern of several.

    ``kind`` is 1:1, 1:N, N:M, or ``device`` where device operators are made; ``ours``: it comes with the
    package. ``versions`` are of the operator set, "" for all.
    """

    framework: str
    source: str
    versions: str
    target: str
    kind: str
    file: str
    line: int
    ours: bool


def rule_map() -> list[MapRow]:
    """Returns a row for each mapping, those of plug-ins first within a framework."""
    tensorflow.load_rules()
    contrib.load_rules()
    rows = [*map(_rule, registry.rules()), *map(_fusion, registry.fusions())]
    rows += _rewrites()
    rows += map(_mapping, all_mappings())
    return sorted(rows, key=lambda row: (row.framework, row.kind == DEVICE, row.ours))


def _rule(rule: Rule) -> MapRow:
    first, last = rule.versions or (None, None)
    versions = "" if first is None else f"{first}-{'' if last is None else last}"
    source = f"{rule.domain}::{rule.op_type}" if rule.framework == "onnx" and rule.domain else rule.op_type
    target = "ONNX nodes" if rule.target is None else str(rule.target)
    place = rule.place
    return MapRow(rule.framework, source, versions, target, rule.kind, place.file, place.line, rule.ours)


def _fusion(fusion: Fusion) -> MapRow:
    ends = ", ".join(dict.fromkeys(root[0].op_type for root in fusion.roots))
    target = f"fusion {fusion.name}{'' if fusion.general else ' (off unless named)'}"
    place = fusion.place
    return MapRow(fusion.framework or "any", ends, "", target, "N:M", place.file, place.line, fusion.ours)


def _rewrites() -> Iterable[MapRow]:
    file = inspect.getsourcefile(table) or ""
    for rule in (*table.PACKED, *table.RULES, *table.NARROWED):
        yield MapRow(
            "onnx", rule.anchor, "", f"{rule.target.op_type} (rule {rule.name})", "N:1", file, 0, True
        )


def _mapping(mapping: OpMapping) -> MapRow:
    code = getattr(inspect.unwrap(mapping.function), "__code__", None)
    file = mapping.origin or (code.co_filename if code is not None else "")
    line = code.co_firstlineno if code is not None and code.co_filename == file else 0
    name = f"{mapping.domain}::{mapping.op_type}" if mapping.domain else mapping.op_type
    return MapRow("onnx", name, "", "device operators", DEVICE, file, line, not mapping.origin)
