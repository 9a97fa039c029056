# SPDX-License-Identifier: Apache-2.0
"""Facts of pages that no model has: of any number of nodes, with any names."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from onedispatch.dispatch.page.facts import ExecutableFacts, PageFacts
from onedispatch.dispatch.runtime.profile import PARTS, Machine, Profile, RowProfile, TileProfile, Timeline

BINS = 256
KINDS = ("matmul", "eltwise", "softmax", "normalise", "move")
HOSTILE = (
    "</script><img src=x onerror=\"console.error('ran')\">",
    "<b onmouseover=alert(1)>bold</b>",
    "\u202egnp.exe\u202c/\u2066isolated",
    "a" * 5000,
    "/".join("deep" for _ in range(500)),
    "new\nline\ttab\x00zero\x1b[31mred",
    "{{data}}&amp;{{script}}",
    "\ud800 alone",
    "",
    "'\"`${1}--><!--<script>",
    "名前" * 300,
    "__proto__",
    "constructor",
)


def layer_name(index: int) -> str:
    """As exporters name nodes: nine to a block, blocks in a stack."""
    block, part = divmod(index, 9)
    return f"/encoder/layer.{block}/{('attention', 'mlp', 'norm')[part // 3]}/op_{index}"


def facts(count: int, name: Callable[[int], str] = layer_name, *, macs: bool = False) -> PageFacts:
    """A page of ``count`` nodes: every 17th on the host, every 23rd folded, two to an operator."""
    chance = random.Random(count)
    places = ["cpu" if at % 17 == 5 else "folded" if at % 23 == 7 else "npu" for at in range(count)]
    rows = [_row(name(at), place) for at, place in enumerate(places)]
    edges = [(max(0, at - chance.choice((1, 1, 1, 2, 9))), at) for at in range(1, count)]
    on_npu = [at for at, place in enumerate(places) if place == "npu"]
    members = [on_npu[at : at + 2] for at in range(0, len(on_npu), 2)]
    names = [[name(at) for at in those] for those in members]
    profile = _profile(names, chance)
    if macs:
        profile = replace(profile, rows=[replace(r, macs=chance.randrange(1 << 20)) for r in profile.rows])
    one = ExecutableFacts(
        _inspected(rows, names),
        [members],
        edges,
        profile.as_dict(),
        verdict="all of it is made up",
        scratch=[[chance.randrange(1 << 20) for _ in members]],
    )
    return PageFacts(f"{name(0)} on npu2", [one], [("model", name(0)), ("device", "npu2")])


def _row(node: str, place: str) -> dict[str, str]:
    reason, nearest = (f"float64 of {node}", "float32") if place == "cpu" else ("as matmul", "")
    rest = {"nearest": nearest, "remark": "", "engine": "onnxruntime" if place == "cpu" else ""}
    return {"node": node, "op_type": "Gemm", "device": place, "reason": reason} | rest


def _inspected(rows: Sequence[dict[str, str]], names: Sequence[Sequence[str]]) -> dict[str, Any]:
    operators = [
        {
            "name": those[0],
            "op_type": KINDS[at % len(KINDS)],
            "nodes": those,
            "timer": at + 1,
            "arguments": [f"arg 0 OUTPUT: scratch[0:64] {those[0]}"],
            "schedule": [f"{KINDS[at % len(KINDS)]} m:{at}/4; 32 of 32 cores busy"],
            "work_basis": "",
        }
        for at, those in enumerate(names)
    ]
    buffers = {"in": 1 << 12, "out": 1 << 10, "scratch": 1 << 20, "const": 1 << 24, "params": 1 << 14}
    dispatch = {
        "buffers": buffers,
        "scratch_bound": 1 << 19,
        "transaction_bytes": 4096,
        "program_memory_bytes": 16384,
        "program": {"bytes": 8192, "kernels": ["od::gemm@1"]},
        "reloads": [],
        "operators": operators,
    }
    passed = [{"tensor": those[0], "nbytes": 64, "reason": "read by the host"} for those in names[:20]]
    return {
        "key": "x[1, 2, 3]",
        "placement": list(rows),
        "grouping": {"groups": [], "passed": passed, "reason": "", "banded": []},
        "kernels": [],
        "dispatches": [dispatch],
        "dimension_names": {},
        "device_notes": [],
    }


def _profile(names: Sequence[Sequence[str]], chance: random.Random) -> Profile:
    machine = Machine("npu2", 1.8e9, 8, 32, 35.0, {"i8": 58.9, "bf16": 29.5, "f32": 3.7})
    rows: list[RowProfile] = []
    start = 0
    for at, those in enumerate(names):
        parts = {part: chance.randrange(4000) for part in PARTS}
        cycles = sum(parts.values())
        moved = chance.randrange(1, 20 * cycles + 2)
        busy = chance.randrange(32 * cycles + 1)
        kind = KINDS[at % len(KINDS)]
        rows.append(
            RowProfile(
                those[0],
                kind,
                tuple(those),
                0,
                start,
                cycles,
                parts,
                busy,
                moved,
                moved // 3,
                moved,
                cycles // 2,
            )
        )
        start += cycles
    bins = [[chance.randrange(1000) for _ in range(BINS)] for _ in range(3)]
    columns = [dict(zip(("busy", "read", "written"), bins, strict=True)) for _ in range(8)]
    kinds = ("shim", "memory", "core", "core", "core", "core")
    tiles = [
        TileProfile(kind, column, row, chance.randrange(100), 20, 30, 4096)
        for row, kind in enumerate(kinds)
        for column in range(8)
    ]
    return Profile(machine, rows, tiles, [Timeline(0, max(1, start // BINS), columns)])
