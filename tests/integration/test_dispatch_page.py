# SPDX-License-Identifier: Apache-2.0
"""What ``inspect`` tells of every node, as JSON and as a page."""

from __future__ import annotations

import json
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from onedispatch.dispatch.cli import app
from onedispatch.dispatch.compiler.executable import NodePlacement

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

# A folded node, rules (one fires, one nearly), a node of the host, an alias, names that need quoting.
MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,4,16] x, float[6] d) => (float[2,64] y, double[6] e)
<float two={2.0}, float eps={1e-5}, float r={1.4}, float one={1.0}, float half={0.5}, int64[2] s={2,64},
 float k={1}>
{
 m = ReduceMean<axes=[-1]>(x)
 c = Sub(x, m)
 q = Pow(c, two)
 v = ReduceMean<axes=[-1]>(q)
 a = Add(v, eps)
 w = Sqrt(a)
 n = Div(c, w)
 g0 = Div(n, r)
 g1 = Erf(g0)
 g2 = Add(g1, one)
 g3 = Mul(n, g2)
 g4 = Mul(g3, half)
 kk = Neg(k)
 g5 = Add(g4, kk)
 y = Reshape(g5, s)
 dd = Cast<to=11>(d)
 e = Det0(dd)
}
"""


SVG = "http://www.w3.org/2000/svg"  # a name: nothing is loaded by it


class Page(HTMLParser):
    """The facts that a page holds, and what it would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.facts = ""
        self.loads: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = dict(attrs).get("id") == "facts"
        found = (str(value) for name, value in attrs if name in ("src", "href"))
        self.loads += [value for value in found if not value.startswith(("data:", "#"))]

    def handle_data(self, data: str) -> None:
        self.facts += data if self._inside else ""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(MODEL.replace("Det0", "Erf"))
    for index, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type} <{index}> & 'co'"
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    return path


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_json_has_every_field_of_every_node(model: Path) -> None:
    (found,) = json.loads(invoke("inspect", str(model), "--json"))
    rows = {row["op_type"]: row for row in found["placement"]}
    assert len(found["placement"]) == 17
    every = {field.name for field in fields(NodePlacement)}
    assert all(set(row) == every for row in rows.values())
    assert rows["Sub"]["device"] == "npu" and rows["Sub"]["reason"].startswith("rule layer_norm_alone, with ")
    assert rows["Neg"]["device"] == "folded"
    host = rows["Cast"]
    assert host["device"] == "cpu" and "float64" in host["reason"]
    assert host["nearest"] and host["engine"].startswith("on ")


def test_near_misses_are_there(model: Path) -> None:
    (found,) = json.loads(invoke("inspect", str(model), "--json"))
    (row,) = (row for row in found["placement"] if row["op_type"] == "Erf" and row["device"] == "npu")
    assert "rule gelu_erf did not fire: r is 1.4, not 1.41421" in row["remark"]
    assert "gelu_erf" in invoke("inspect", str(model))


def test_the_page_says_what_the_json_says_and_needs_nothing_else(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert str(path.name) in "".join(invoke("inspect", str(model), "--html", str(path)).split())
    (found,) = json.loads(invoke("inspect", str(model), "--json"))
    text = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert not page.loads and text.count("http") == text.count("http-equiv") + text.count(SVG)
    (shown,) = json.loads(page.facts)["executables"]
    assert shown["inspected"] == found
    assert shown["profile"]["cycles"] > 0 and not shown["unprofiled"]


def test_page_and_json_at_once(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    json.loads(invoke("inspect", str(model), "--json", "--html", str(path)))
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
