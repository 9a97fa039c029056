# SPDX-License-Identifier: Apache-2.0
"""What ``groups="on"`` says of itself: which tensors stay in memory tiles, and why others do not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.compiler import phases
from onedispatch.dispatch.compiler.fold import fold_constants, specialise
from onedispatch.dispatch.compiler.grouping import Grouping
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.transactions import find_device
from onedispatch.transactions.base.errors import InternalError

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

# Two softmaxes along rows, then one along columns, which cuts otherwise.
CHAIN = """(float[64,64] x) => (float[64,64] y)
{a = Softmax<axis=1>(x) b = Softmax<axis=1>(a) y = Softmax<axis=0>(b)}"""


@pytest.fixture(autouse=True)
def _searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans go by estimates, and so do these figures: without what a catalog measured."""
    monkeypatch.setenv("ONEDISPATCH_CATALOG", "none")


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')


def grouping_of(compiled: od.CompiledModel) -> Grouping:
    latest = compiled.latest
    assert latest is not None and latest[1].grouping is not None
    return latest[1].grouping


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_a_group_says_what_it_saves() -> None:
    plain, grouped = (od.compile(model(CHAIN), "npu1", groups=groups) for groups in ("off", "on"))
    (group,) = grouping_of(grouped).groups
    assert group.operators == ("Softmax_0", "Softmax_1") and group.tensors == ("a",)
    size = 64 * 64 * 4
    assert group.saved_bytes == 2 * size and group.tile_bytes == size // 4  # of four columns
    before, after = plain.timing(), grouped.timing()
    assert before.ddr_bytes_read - after.ddr_bytes_read >= size
    assert before.ddr_bytes_written - after.ddr_bytes_written == size
    assert group.saved_cycles > 0 and after.cycles < before.cycles


def test_nothing_is_said_without_groups() -> None:
    compiled = od.compile(model(CHAIN), groups="off")
    assert compiled.groups == "off" and compiled.latest is not None and compiled.latest[1].grouping is None


PASSED = {
    "an output of the model": CHAIN.replace("y)", "y, float[64,64] a)", 1),
    "parts of it have names of their own": "(float[64,64] x) => (float[32,64] y, float[32,64] z) "
    "{a = Softmax<axis=1>(x) b, c = Split<axis=0, num_outputs=2>(a) y = Exp(b) z = Exp(c)}",
    "Softmax_1 cuts it otherwise: x, of which every tile takes all": "(float[64,64] x) => (float[64,64] y) "
    "{a = Softmax<axis=1>(x) y = Softmax<axis=0>(a)}",
    "no shares of whole words for 4 columns, or for 3": "(float[2,2] x) => (float[2,2] y) "
    "{a = Softmax<axis=1>(x) y = Softmax<axis=1>(a)}",
    "too large: 262,144 words of every memory tile, which has 130,944": "(float[1024,1024] x) => "
    "(float[1024,1024] y) {a = Softmax<axis=1>(x) y = Softmax<axis=1>(a)}",
    "TopK_0 has several results": "(float[64,64] x) => (float[64,8] y, int64[64,8] i) <int64[1] k={8}> "
    "{a, i = TopK(x, k) y = Softmax<axis=1>(a)}",
}


@pytest.mark.parametrize("reason", PASSED)
def test_what_does_not_stay_says_why(reason: str) -> None:
    passed = {
        one.tensor: one for one in grouping_of(od.compile(model(PASSED[reason]), "npu1", groups="on")).passed
    }
    assert passed["a"].reason == reason
    assert passed["y"].reason == "an output of the model"


@pytest.mark.parametrize(
    ("text", "device", "reason"),
    [
        (CHAIN, "npu2_1col", "npu2_1col has one column"),
        (
            "(float[8,8] x) => (float[8,8] y) {a = Softmax<axis=1>(x) b = Det(a) y = Mul(a, b)}",
            "npu1",
            "1 node on the host: Det_1",
        ),
    ],
)
def test_models_and_devices_without_groups_say_why(text: str, device: str, reason: str) -> None:
    assert grouping_of(od.compile(model(text), device, groups="on")) == Grouping(reason=reason)


def test_a_reader_that_looks_elsewhere_is_a_fault() -> None:
    graph = specialise(fold_constants(import_model(model(CHAIN))), {"x": (64, 64)}, {})
    selected = phases.select(phases.map_nodes(graph, find_device("npu1")), SEARCH)
    grouped = phases.group_operators(selected)
    mixed = (grouped.units[0], *selected.units[1:])
    with pytest.raises(InternalError, match=r"units\[1\].*None for a; accepted: .*as its maker has it"):
        replace(grouped, units=mixed).verify()


def test_files_keep_it(tmp_path: Path) -> None:
    compiled, path = od.compile(model(CHAIN), "npu1", groups="on"), tmp_path / "m.od"
    compiled.save(path)
    loaded = od.load(path)
    assert loaded.groups == "on" and grouping_of(loaded) == grouping_of(compiled)
    assert loaded.timing().cycles == compiled.timing().cycles


def test_no_such_choice() -> None:
    with pytest.raises(od.InputError, match=r"groups.*'on', 'off'"):
        od.compile(model(CHAIN), groups="yes")
    with pytest.raises(od.InputError, match=r"groups.*'on', 'off'"):
        od.InferenceSession(model(CHAIN), groups="yes")


def test_the_command_line_has_them(tmp_path: Path) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "m.od"
    onnx.save(model(CHAIN), source)
    on = ("--device", "npu1", "--groups", "on")
    assert invoke("compile", source, "-o", target, *on).exit_code == 0
    assert od.load(target).groups == "on"
    assert invoke("run", target, "--random", "--groups", "on").exit_code == 0
    refused = invoke("time", target, "--groups", "off")
    assert isinstance(refused.exception, od.InputError) and "--groups" in str(refused.exception)
    cycles = [
        json.loads(invoke("time", source, "--json", "--device", "npu1", "--groups", groups).stdout)["report"][
            "cycles"
        ]
        for groups in ("on", "off")
    ]
    assert cycles[0] < cycles[1]


def test_inspect_shows_them(tmp_path: Path) -> None:
    source, page = tmp_path / "m.onnx", tmp_path / "m.html"
    onnx.save(model(CHAIN), source)
    command = ("inspect", source, "--device", "npu1", "--groups", "on")
    row, passes = json.loads(invoke(*command, "--json", "--passes").stdout)
    assert row["groups"] == "on" and row["grouping"]["groups"][0]["tensors"] == ["a"]
    assert {one["tensor"] for one in row["grouping"]["passed"]} == {"b", "y"}
    changed = {one["name"]: one["changed"] for one in passes["passes"]}
    assert changed["group-operators"] == "1 tensor kept, in 1 group" and not changed["emit-operators"]
    text = invoke(*command, "--full").stdout
    assert "kept tensors" in text and "groups: 1 tensor kept, in 1 group" in text
    assert invoke(*command, "--html", page).exit_code == 0
    assert "kept tensors" in page.read_text() and "an output of the model" in page.read_text()
    assert "kept tensors" not in invoke("inspect", source, "--full").stdout


def test_a_benchmark_has_them_on_our_side(tmp_path: Path) -> None:
    source = tmp_path / "m.onnx"
    onnx.save(model(CHAIN), source)
    command = ("bench", source, "--device", "npu1", "--runs", "1", "--json", "--groups")
    rows = [json.loads(invoke(*command, groups).stdout) for groups in ("on", "off")]
    assert [row["groups"] for row in rows] == ["on", "off"]
    assert rows[0]["modelled_seconds"] < rows[1]["modelled_seconds"]
    assert isinstance(invoke(*command, "yes").exception, od.InputError)
