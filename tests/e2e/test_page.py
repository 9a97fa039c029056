# SPDX-License-Identifier: Apache-2.0
"""The HTML page in a browser: nothing overflows, no heading is broken inside a word, nothing complains or
asks for anything, and what a reader does with it works. Names of any content are text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from onedispatch.dispatch.cli import app
from onedispatch.dispatch.page.document import page
from onedispatch.dispatch.page.facts import ExecutableFacts, PageFacts
from tests.browser import Browser, browser, found
from tests.page_facts import HOSTILE, facts

MOST_BYTES = 2 << 20  # for 500 nodes
MOST_SECONDS = 10.0  # until 2,000 nodes are laid out; half of one where nothing else runs
WIDTHS = (1280, 390)

CHECK = (Path(__file__).parent / "page_check.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = found()
    if path is None:
        pytest.skip(
            "no Chromium: install it (Debian: chromium), or name one: ONEDISPATCH_BROWSER=/path/to/chrome"
        )
    with browser(path) as running:
        yield running


def written(tmp_path: Path, given: PageFacts) -> Path:
    path = tmp_path / "page.html"
    path.write_text(page(given), encoding="utf-8")
    return path


def assert_sound(chromium: Browser) -> None:
    assert chromium.value(CHECK) == []
    assert chromium.complaints == [] and chromium.requests == []
    assert chromium.value("performance.getEntriesByType('resource').length") == 0


def test_a_page_of_500_nodes_is_small() -> None:
    assert len(page(facts(500)).encode()) < MOST_BYTES


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_is_sound_at_every_width(chromium: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    chromium.open(written(tmp_path, facts(150)), width=width, dark=dark)
    chromium.value("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert_sound(chromium)
    back = chromium.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back)[:3])) < 200) == dark
    chromium.value("document.getElementById('theme').click()")
    assert chromium.value("getComputedStyle(document.body).backgroundColor") != back
    headings = chromium.value("[...document.querySelectorAll('h2')].map(each => each.textContent)")
    assert {
        "Graph",
        "Operators",
        "Timeline",
        "Array",
        "Roofline",
        "Memory over time",
        "Nodes on the host",
    } <= set(headings)


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_names_are_text(chromium: Browser, tmp_path: Path, width: int) -> None:
    count = len(HOSTILE)
    given = facts(40, lambda at: HOSTILE[at % count] + (str(at) if at >= count else ""))
    chromium.open(written(tmp_path, given), width=width)
    assert_sound(chromium)
    assert chromium.value("document.querySelectorAll('main img, main b, main script').length") == 0
    assert chromium.value("document.querySelectorAll('script').length") == 2
    assert chromium.value("document.querySelector('h1').textContent").startswith(HOSTILE[0])
    assert not chromium.value("/[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.innerText)")
    chromium.value(
        "[...document.querySelectorAll('#nodes button.link')].slice(0, 20).forEach(each => each.click())"
    )
    assert_sound(chromium)


@pytest.mark.parametrize(
    "style, said",
    [
        ("th { white-space: normal; max-width: 1.5rem; overflow-wrap: anywhere }", "broken inside a word"),
        ("#verdict { width: 200vw }", "outside of the page"),
        (".tiles dd { width: 1rem; white-space: nowrap }", "holds more than it shows"),
        ("section { min-width: 110vw }", "the page scrolls sideways"),
    ],
)
def test_the_check_sees_what_it_should(chromium: Browser, tmp_path: Path, style: str, said: str) -> None:
    chromium.open(written(tmp_path, facts(30)))
    chromium.value(
        f"document.styleSheets[0].insertRule({json.dumps(style)}, document.styleSheets[0].cssRules.length)"
    )
    assert said in {what for what, _ in chromium.value(CHECK)}


def test_a_policy_forbids_what_the_page_never_does(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(written(tmp_path, facts(30)))
    tried = "fetch('https://example.com').then(() => 'sent', () => 'refused')"
    assert chromium.value(tried) == "refused"
    assert any("Content Security Policy" in text for text in chromium.complaints) and not chromium.requests
    chromium.value("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">')")
    assert chromium.value("new Promise(done => setTimeout(() => done(window.ran), 50))") is None


def test_what_is_drawn_is_what_was_given(chromium: Browser, tmp_path: Path) -> None:
    given = facts(150)
    (one,) = given.executables
    assert one.profile is not None
    chromium.open(written(tmp_path, given))
    places = [row["device"] for row in one.inspected["placement"]]
    assert chromium.value("document.querySelectorAll('#host tbody tr').length") == min(8, places.count("cpu"))
    assert chromium.value("document.querySelectorAll('#timeline rect[data-operator]').length") == len(
        one.members[0]
    )
    assert chromium.value("document.querySelectorAll('#roofline circle').length") == len(one.members[0])
    assert chromium.value("document.querySelectorAll('#memory svg rect').length") == len(one.members[0])
    cells = chromium.value("[...document.querySelectorAll('#array td')].map(each => each.textContent)")
    tiles = {(tile["row"], tile["column"]): tile for tile in one.profile["tiles"]}
    wanted = [tiles[row, column] for row in range(5, -1, -1) for column in range(8)]
    shares = [100 * tile["busy"] / (tile["busy"] + tile["waiting"] + tile["rest"]) for tile in wanted]
    assert all(abs(int(cell) - share) <= 0.51 for cell, share in zip(cells, shares, strict=True))
    slowest = max(one.profile["rows"], key=lambda row: row["cycles"])
    assert chromium.value("document.querySelector('#operators tbody button').textContent") == slowest["name"]
    assert chromium.value("document.getElementById('verdict').textContent") == one.verdict
    assert chromium.value("document.querySelector('#detail h3').textContent") == slowest["name"]


def test_shapes_are_chosen_and_times_may_be_missing(chromium: Browser, tmp_path: Path) -> None:
    whole = facts(60)
    (one,) = whole.executables
    rows = [row | {"device": "cpu"} for row in one.inspected["placement"][:5]]
    bare = {**one.inspected, "key": "y[7]", "placement": rows, "dispatches": [], "grouping": None}
    host = ExecutableFacts(bare, [], unprofiled="its time depends on <b>data</b>")
    empty = ExecutableFacts(bare | {"key": "", "placement": []}, [])
    chromium.open(written(tmp_path, PageFacts("m", [host, empty, one])))
    for at, said in ((0, "its time depends on <b>data</b>"), (1, "0 on the host"), (2, "32 cores")):
        pick = "(() => { const s = document.querySelector('#switches select'); s.selectedIndex = %d; "
        chromium.value(pick % at + "s.dispatchEvent(new Event('change')); })()")
        assert said in chromium.value("document.getElementById('summary').textContent")
        assert (chromium.value("document.getElementById('timeline') !== null")) == (at == 2)
        assert_sound(chromium)


def test_operators_sort_filter_and_search(chromium: Browser, tmp_path: Path) -> None:
    given = facts(120)
    rows = (given.executables[0].profile or {})["rows"]
    chromium.open(written(tmp_path, given))

    def shown() -> list[str]:
        found = chromium.value(
            "[...document.querySelectorAll('#operators tbody button')].map(each => each.textContent)"
        )
        return list(found)

    by_time = [row["name"] for row in sorted(rows, key=lambda row: -row["cycles"])]
    assert shown() == by_time
    chromium.value("document.querySelector('#operators thead th:nth-child(3) button').focus()")
    chromium.press("Enter", "\r")
    assert shown() == by_time[::-1]
    assert (
        chromium.value("document.querySelector('#operators th[aria-sort]').getAttribute('aria-sort')")
        == "ascending"
    )
    pick = "(() => { const s = document.querySelectorAll('#operators .tools select')[%d]; s.value = %s; "
    pick += "s.dispatchEvent(new Event('change')); })()"
    chromium.value(pick % (0, "'softmax'"))
    assert set(shown()) == {row["name"] for row in rows if row["kind"] == "softmax"}
    bound = next(row["bound"] for row in rows if row["kind"] == "softmax")
    chromium.value(pick % (1, json.dumps(bound)))
    assert set(shown()) == {r["name"] for r in rows if r["kind"] == "softmax" and r["bound"] == bound}
    chromium.value(pick % (0, "''") + ";" + pick % (1, "''") + ";" + pick % (2, "''"))
    type_in = "(() => { const i = document.querySelector('#operators input'); i.value = %s; "
    type_in += "i.dispatchEvent(new Event('input')); })()"
    chromium.value(type_in % "'LAYER.3/ matmul'")
    wanted = [r for r in rows if r["kind"] == "matmul" and any("layer.3/" in node for node in r["nodes"])]
    assert wanted and set(shown()) == {row["name"] for row in wanted}
    assert (
        chromium.value("document.querySelector('#operators .count').textContent")
        == f"{len(wanted)} of {len(rows)}"
    )


def test_the_graph_opens_closes_and_is_walked_by_keys(chromium: Browser, tmp_path: Path) -> None:
    count = 180
    chromium.open(written(tmp_path, facts(count)))

    def boxes() -> int:
        return int(chromium.value("document.querySelectorAll('#canvas .box').length"))

    def press(text: str) -> None:
        chromium.value(
            f"[...document.querySelectorAll('#graph button')].find(b => b.textContent === '{text}').click()"
        )

    first = boxes()
    assert 12 < first < count  # scopes of which some are closed
    press("Close all")
    assert boxes() == 1 and "encoder" in chromium.value("document.querySelector('#canvas .box').textContent")
    chromium.value("document.querySelector('#canvas .box').focus()")
    chromium.press("Enter", "\r")
    assert boxes() == count // 9  # the blocks
    chromium.press("Enter", "\r")
    assert boxes() == count // 9 + 2  # and in place of the first one its three parts
    before = chromium.value("document.activeElement.dataset.box")
    chromium.press("ArrowDown")
    assert chromium.value("document.activeElement.dataset.box") not in (before, None)
    chromium.value("document.querySelectorAll('#graph .tools input[type=checkbox]')[0].click()")
    press("Open all")
    assert boxes() == count
    press("place")
    assert chromium.value("document.querySelectorAll('#canvas .box.by-place.cpu').length") == sum(
        at % 17 == 5 for at in range(count)
    )
    assert chromium.value("document.querySelectorAll('#canvas .box.by-time').length") == 0
    find = "const i = document.querySelector('#graph input[type=search]'); i.value = 'op_77'; i.focus();"
    chromium.value(f"(() => {{ {find} }})()")
    chromium.press("Enter", "\r")
    assert chromium.value("document.querySelector('#detail h3').textContent").endswith("op_77")
    chromium.value(
        "[...document.querySelectorAll('#detail .chips button')].find(b => b.title).click()"
    )  # a scope
    assert boxes() < count
    assert_sound(chromium)


def test_boxes_do_not_lie_over_each_other(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(written(tmp_path, facts(300, lambda at: f"node_{at}")))
    overlaps = """(() => {
      const all = [...document.querySelectorAll('#canvas rect.front')];
      const places = all.map(each => [+each.getAttribute('x'), +each.getAttribute('y')]);
      const near = ([x, y], [p, q]) => Math.abs(x - p) < 155 && Math.abs(y - q) < 40;
      const over = places.filter((one, at) => places.slice(at + 1).some(other => near(one, other)));
      return [all.length, over.length];
    })()"""
    shown, over = chromium.value(overlaps)
    assert shown > 250 and over == 0


@pytest.mark.parametrize("name", ["node_{}", "/a/b{}/c.{}"])
def test_two_thousand_nodes_do_not_freeze(chromium: Browser, tmp_path: Path, name: str) -> None:
    chromium.open(written(tmp_path, facts(2000, lambda at: name.format(at, at))))
    took = chromium.value(
        "(() => { const start = performance.now(); "
        "document.querySelector('#graph input[type=checkbox]').click(); "
        "return performance.now() - start; })()"
    )
    assert took < MOST_SECONDS * 1e3
    assert chromium.complaints == []


def test_work_makes_a_roofline(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(written(tmp_path, facts(60, macs=True)))
    assert "per byte" in chromium.value("document.querySelector('#roofline svg').textContent")
    chromium.open(written(tmp_path, facts(60)))
    assert "cores busy" in chromium.value("document.querySelector('#roofline svg').textContent")


def test_print_is_light_and_whole(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(written(tmp_path, facts(200)), dark=True)
    chromium.pdf(tmp_path / "page.pdf")
    pages = len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "page.pdf").read_bytes()))
    assert 4 < pages < 40
    assert chromium.value("[...document.querySelectorAll('details')].every(each => each.open)")
    assert chromium.value("document.querySelectorAll('#nodes tbody tr').length") == 200
    chromium.call(
        "Emulation.setDeviceMetricsOverride", width=703, height=1000, deviceScaleFactor=1, mobile=False
    )
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    chromium.call("Emulation.setEmulatedMedia", media="print", features=dark)
    assert chromium.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.value("getComputedStyle(document.body).color") != "rgb(230, 232, 235)"
    assert chromium.value(CHECK) == []


MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,4,16] x, float[6] d, float k2) => (float[2,64] y, double[6] e)
<float two={2.0}, float eps={1e-5}, int64[2] s={2,64}, float k={1}>
{
 m = ReduceMean<axes=[-1]>(x)
 c = Sub(x, m)
 q = Pow(c, two)
 v = ReduceMean<axes=[-1]>(q)
 a = Add(v, eps)
 w = Sqrt(a)
 n = Div(c, w)
 kk = Neg(k)
 p = Mul(n, kk)
 r = Add(p, k2)
 y = Reshape(r, s)
 dd = Cast<to=11>(d)
 e = Erf(dd)
}
"""


@pytest.fixture(scope="module")
def commanded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The facts of a page that the command wrote, and its path."""
    pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")
    folder = tmp_path_factory.mktemp("page")
    proto = onnx.parser.parse_model(MODEL)
    for node in proto.graph.node:
        node.name = f"block.0/{node.op_type} of {node.output[0]}"
    onnx.save(proto, folder / "m.onnx")
    path = folder / "page.html"
    arguments = ["inspect", str(folder / "m.onnx"), "--html", str(path)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return facts_in(path) | {"path": path}


def facts_in(path: Path) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="facts">(.*?)</script>', path.read_text(), re.S)
    assert match is not None
    return dict(json.loads(match[1]))


def test_a_commands_page_has_edges_operators_and_times(commanded: dict[str, Any]) -> None:
    (one,) = commanded["executables"]
    nodes = [row["node"].removeprefix("block.0/") for row in one["inspected"]["placement"]]
    edges = {(nodes[a], nodes[b]) for a, b in one["edges"]}
    assert {("ReduceMean of m", "Sub of c"), ("Sub of c", "Div of n"), ("Cast of dd", "Erf of e")} <= edges
    assert ("Pow of q", "Sub of c") not in edges and len(edges) == 12
    members = [{nodes[at] for at in those} for those in one["members"][0]]
    assert {"Sub of c", "Sqrt of w", "Div of n"} <= members[0]  # which a rule made one operator of
    operators = [row for row in one["profile"]["rows"] if row["kind"] not in ("launch", "reload", "end")]
    assert [row["name"] for row in operators] == [
        op["name"] for op in one["inspected"]["dispatches"][0]["operators"]
    ]
    assert "on the NPU" in one["verdict"] and "bound by" in one["verdict"]
    most = max(one["scratch"][0])
    assert most and most <= one["inspected"]["dispatches"][0]["scratch_bound"] <= most + 64 * 8  # aligned
    assert one["profile"]["cycles"] == sum(row["cycles"] for row in one["profile"]["rows"]) > 0


def test_inputs_frozen_to_what_json_has_not_are_on_the_page(tmp_path: Path) -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[3] x, float[3] m) => (float[3] y) { y = Add(x, m) }'
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "masked.onnx")
    np.save(tmp_path / "m.npy", np.array([0, -np.inf, np.nan], np.float32))
    path = tmp_path / "masked.html"
    mask = ["--set", f"m=@{tmp_path / 'm.npy'}", "--html", str(path)]
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "masked.onnx"), *mask])
    assert result.exit_code == 0, result.output
    assert facts_in(path)["executables"][0]["inspected"]["frozen"] == {"m": [0.0, "-inf", "nan"]}


def test_profile_writes_the_page_too(tmp_path: Path, commanded: dict[str, Any]) -> None:
    path = tmp_path / "profile.html"
    model = commanded["path"].with_name("m.onnx")
    result = CliRunner().invoke(app, ["profile", str(model), "--html", str(path)], catch_exceptions=False)
    assert result.exit_code == 0 and "profile.html" in "".join(result.output.split())
    assert facts_in(path) == {key: value for key, value in commanded.items() if key != "path"}


def test_a_compiled_files_page_has_edges_too(tmp_path: Path, commanded: dict[str, Any]) -> None:
    model, compiled, path = commanded["path"].with_name("m.onnx"), tmp_path / "m.od", tmp_path / "m.html"
    for command in (["compile", model, "-o", compiled], ["inspect", compiled, "--html", path]):
        result = CliRunner().invoke(app, list(map(str, command)), catch_exceptions=False)
        assert result.exit_code == 0, result.output
    (one,), (whole,) = facts_in(path)["executables"], commanded["executables"]
    assert one["edges"] and one["profile"]["cycles"] == whole["profile"]["cycles"]


def test_a_commands_page_is_sound(chromium: Browser, commanded: dict[str, Any]) -> None:
    for width in WIDTHS:
        chromium.open(commanded["path"], width=width)
        assert_sound(chromium)
    assert chromium.value("document.querySelectorAll('#host tbody tr').length") >= 1
    host = chromium.value("document.getElementById('host').textContent")
    assert "float64" in host and "onnxruntime" in host
