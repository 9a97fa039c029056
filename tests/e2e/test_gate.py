# SPDX-License-Identifier: Apache-2.0
"""``onedispatch gate`` and ``onedispatch diff``: limits, baselines, and what changed operator by operator."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app, output
from onedispatch.dispatch.cli.cost_tables import diff_markdown
from onedispatch.dispatch.tools.cost_diff import compare_costs
from onedispatch.dispatch.tools.cost_record import CostRecord, OperatorCost, read_record
from tests.devices import device_text
from tests.host_nodes import on_host

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(output.console, "_width", 400)
    monkeypatch.chdir(tmp_path)
    model("m.onnx", 64)


def model(name: str, width: int, *, host: bool = False) -> None:
    """Two products with a function between them; ``host``: its result goes through nodes on the host."""
    rng = np.random.default_rng(1)
    weights = {"v": (32, width), "w": (width, 16)}
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"], name="first"),
        helper.make_node("Exp", ["a"], ["b"], name="bend"),
        *(on_host("b", "c") if host else []),
        helper.make_node("MatMul", ["c" if host else "b", "w"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 16])],
        [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, name)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def gate(*arguments: str, name: str = "m.onnx") -> Any:
    return invoke("gate", name, "--shape", "x=256,32", *arguments)


def failed(result: Any) -> list[str]:
    """Options of the limits that are not met, from the first lines."""
    lines = result.stdout.splitlines()
    found = [re.match(r"FAILED (--[a-z-]+): \S", line) for line in lines]
    options = [one[1] for one in found if one]
    assert all(found[: len(options)]), result.stdout  # before all else
    assert result.exit_code == (2 if options else 0), result.output
    assert lines[-1] == (
        f"gate not met: {len(options)} failure{'s' * (len(options) > 1)}" if options else "gate met"
    )
    return options


def refused(*arguments: str, name: str = "m.onnx") -> str:
    result = gate(*arguments, name=name)
    assert isinstance(result.exception, od.InputError), result.output
    return str(result.exception)


def test_limits_hold_where_they_are_what_the_model_costs() -> None:
    report = od.compile("m.onnx", shapes={"x": (256, 32)}).timing()
    us, traffic = report.seconds * 1e6, report.ddr_bytes_read + report.ddr_bytes_written
    met = {
        "--max-us": us * 1.001,
        "--max-ms": us * 1.001 / 1e3,
        "--max-cycles": report.cycles,
        "--max-ddr-mb": traffic / 1e6,
        "--max-dispatches": 1,
    }
    assert failed(gate("--no-cpu", *(part for key, most in met.items() for part in (key, str(most))))) == []
    over = {key: most * 0.99 for key, most in met.items()}
    over |= {"--max-cycles": report.cycles - 1, "--max-dispatches": 0}
    for option, most in over.items():
        assert failed(gate(option, str(most))) == [option]
    everything = [part for key, most in over.items() for part in (key, str(most))]
    assert failed(gate(*everything)) == list(over)


def test_nodes_are_counted_as_in_the_verdict() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[4] x, float[4] s) => (float[4] y) { a = Exp(s) b = Relu(a) y = Mul(x, b) }"""
    onnx.save(onnx.parser.parse_model(text), "folds.onnx")
    count = "all 3 nodes on the NPU in one dispatch, 2 of them computed when it was compiled"
    for command in ("gate", "time"):
        limit = ["--no-cpu"] if command == "gate" else []
        assert count in invoke(command, "folds.onnx", "--set", "s=[1,2,3,4]", *limit).stdout


def test_nodes_on_the_host_are_named() -> None:
    model("h.onnx", 64, host=True)
    assert failed(gate("--no-cpu", name="h.onnx")) == ["--no-cpu"]
    text = gate("--no-cpu", name="h.onnx").stdout
    assert "2 nodes on the host: host_wide (Cast): " in text and "host (Cast): " in text
    assert failed(gate("--min-npu-share", "60%", name="h.onnx")) == []
    assert failed(gate("--min-npu-share", "60.1%", name="h.onnx")) == ["--min-npu-share"]  # of 3 of 5
    assert failed(gate("--no-cpu")) == []


def host_only() -> None:
    """``host.onnx``, of which the device computes nothing."""
    places = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 32]) for name in "xy"]
    graph = helper.make_graph(on_host("x", "y"), "g", places[:1], places[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, "host.onnx")


@pytest.mark.parametrize("option", ["--max-us", "--max-ms", "--max-cycles"])
def test_limits_of_time_fail_where_nothing_runs_on_the_device(option: str) -> None:
    host_only()
    result = gate(option, "10", name="host.onnx")
    assert failed(result) == [option]
    assert f"FAILED {option}: nothing runs on the device, so there is no modelled time\n" in result.stdout
    assert failed(gate("--max-dispatches", "0", name="host.onnx")) == []


def test_a_note_says_that_no_limit_holds_the_time_of_nodes_on_the_host() -> None:
    model("h.onnx", 64, host=True)
    note = "2 nodes on the host, whose time is in no limit"
    result = gate("--max-ms", "100", "--markdown", "s.md", name="h.onnx")
    assert failed(result) == [] and f"\nnote: {note}" in f"\n{result.stdout}"
    assert note in Path("s.md").read_text()
    found = json.loads(gate("--max-ms", "100", "--json", name="h.onnx").stdout)
    assert len(found["notes"]) == 1 and found["notes"][0].startswith(note)
    for more in (["--no-cpu"], ["--min-npu-share", "10%"]):
        assert "note: " not in gate("--max-ms", "100", *more, name="h.onnx").stdout
    assert "note: " not in gate("--max-ms", "100").stdout


def test_a_baseline_is_met_by_the_same_model_and_written_the_same() -> None:
    assert failed(gate("--write-baseline", "a.json")) == []
    assert failed(gate("--baseline", "a.json", "--max-regression", "0%", "--write-baseline", "b.json")) == []
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
    record = read_record(Path("a.json"))
    report = od.compile("m.onnx", shapes={"x": (256, 32)}).timing()
    assert [(one.name, one.cycles) for one in record.operators] == [(op.name, op.cycles) for op in report.ops]
    assert record.cycles == report.cycles and record.placement == {"npu": 3} and record.digest


def test_a_regression_fails_beyond_the_tolerance_and_shows_the_operators() -> None:
    gate("--write-baseline", "a.json")
    before = read_record(Path("a.json"))
    model("m.onnx", 512)  # both products take longer
    after = od.compile("m.onnx", shapes={"x": (256, 32)}).timing()
    change = after.cycles / before.cycles - 1
    assert change > 0.02
    result = gate("--baseline", "a.json")
    assert set(failed(result)) == {"--baseline"} and "cycles: " in result.stdout
    assert "note: the model's file differs: m.onnx, now m.onnx" in result.stdout
    table = result.stdout[result.stdout.index("Cycles of operators") :]
    for name, old, new in zip(("first", "second"), before.operators, after.ops, strict=True):
        assert old.name == new.name == name and new.cycles > old.cycles
        row = next(line for line in table.splitlines() if f" {name} " in line)
        assert f"{old.cycles:,}" in row and f"{new.cycles:,}" in row and "slower" in row
    assert failed(gate("--baseline", "a.json", "--tolerance", "1000%")) == []
    most = max(new.cycles / old.cycles - 1 for old, new in zip(before.operators, after.ops, strict=True))
    bound = f"{most * 100 - 0.01:.4f}%"
    options = failed(gate("--baseline", "a.json", "--tolerance", "1000%", "--max-regression", bound))
    assert options == ["--max-regression"]


def baseline_with(**changes: Any) -> list[int]:
    """Writes ``a.json``, whose last operator has other fields; returns all operators' cycles."""
    gate("--write-baseline", "a.json")
    data = json.loads(Path("a.json").read_text())
    cycles = [one["cycles"] for one in data["operators"]]
    data["operators"][-1] |= changes
    Path("a.json").write_text(json.dumps(data))
    return cycles


ELSE = {"name": "other", "op_type": "pool", "nodes": ["other"]}


def test_an_operator_that_changed_name_and_kind_is_held_to_what_it_replaces() -> None:
    cycles = baseline_with(**ELSE, cycles=10)[-1]
    result = gate("--baseline", "a.json", "--max-regression", "1%")
    assert failed(result) == ["--max-regression"]
    line = result.stdout.splitlines()[0]
    assert f"second (matmul) appeared, {cycles:,} cycles; other (pool) vanished, 10 cycles: +" in line
    assert line.endswith("%, at most +1%")
    for before, options in ((cycles, []), (cycles - 1, ["--max-regression"])):
        baseline_with(**ELSE, cycles=before)
        assert failed(gate("--baseline", "a.json", "--max-regression", "0%")) == options
    assert failed(gate("--baseline", "a.json", "--max-regression", "1%")) == []


def test_operators_that_appeared_beside_all_others_fail() -> None:
    gate("--write-baseline", "a.json")
    data = json.loads(Path("a.json").read_text())
    gone = data["operators"].pop()
    Path("a.json").write_text(json.dumps(data))
    result = gate("--baseline", "a.json", "--max-regression", "1000%")
    assert failed(result) == ["--max-regression"]
    assert f"{gone['name']} (" in result.stdout.splitlines()[0] and "; none vanished" in result.stdout
    assert failed(gate("--baseline", "a.json")) == []


def test_a_faster_model_meets_the_gate() -> None:
    model("m.onnx", 512)
    gate("--write-baseline", "a.json")
    model("m.onnx", 16)
    result = gate("--baseline", "a.json", "--max-regression", "0%")
    assert failed(result) == [] and "faster" in result.stdout and "less" in result.stdout


def test_nodes_that_moved_to_the_host_fail_though_the_device_has_less_to_do() -> None:
    gate("--write-baseline", "a.json")
    model("m.onnx", 64, host=True)
    result = gate("--baseline", "a.json", "--tolerance", "1000%")
    assert failed(result).count("--baseline") == 2
    assert "FAILED --baseline: host (Cast) moved to the host: " in result.stdout
    gate("--write-baseline", "h.json")
    model("m.onnx", 64)
    back = gate("--baseline", "h.json", "--tolerance", "1000%")
    assert failed(back) == [] and "moved to the device: host (Cast)" in back.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "npu1"], "the device: npu2, now npu1"),
        (["--precision", "bf16"], "--precision: fp32, now bf16"),
        (["--sums", "narrow", "--groups", "off"], "--groups: on, now off; --sums: exact, now narrow"),
        (["--shape", "x=512,32"], "the inputs: x=256,32, now x=512,32"),
    ],
)
def test_baselines_of_another_question_are_refused(arguments: list[str], said: str) -> None:
    gate("--write-baseline", "a.json")
    result = invoke(
        "gate",
        "m.onnx",
        "--baseline",
        "a.json",
        *({"--shape": []}.get(arguments[0], ["--shape", "x=256,32"])),
        *arguments,
    )
    assert isinstance(result.exception, od.InputError) and result.exit_code == 1
    assert f"a record that differs in {said}; accepted: a baseline of the same" in str(result.exception)


def test_a_changed_device_file_is_refused_and_shown_by_diff() -> None:
    Path("my.toml").write_text(device_text({"ddr.gigabytes_per_second": 60}))
    assert failed(gate("--device", "my.toml", "--write-baseline", "a.json")) == []
    Path("my.toml").write_text(device_text({"ddr.gigabytes_per_second": 1}))
    assert "the description of the device my, which has changed" in refused(
        "--device", "my.toml", "--baseline", "a.json"
    )
    gate("--device", "my.toml", "--write-baseline", "b.json")
    result = invoke("diff", "a.json", "b.json", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and found["unlike"] and found["differs"]
    assert found["totals"][0]["what"] == "cycles" and found["totals"][0]["change"] > 1
    assert {row["verdict"] for row in found["operators"]} == {"slower"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:-9], "no JSON"),
        (lambda text: "[]", "a file that is no cost record"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "a cost record of version 2"),
        (lambda text: text.replace('"cycles": ', '"cycles": -', 1), "the record.cycles: -"),
        (lambda text: text.replace('"model"', '"modal"'), "the record: "),
        (lambda text: "\ufeff" + text, "no JSON"),
    ],
)
def test_files_that_are_no_baselines_are_refused(change: Any, said: str) -> None:
    gate("--write-baseline", "a.json")
    Path("a.json").write_text(change(Path("a.json").read_text()))
    message = refused("--baseline", "a.json")
    assert message.startswith("a.json: given ") and said in message and "accepted: " in message


@pytest.mark.parametrize("more", [[], ["--precision", "bf16"]])
def test_a_report_is_no_baseline_as_it_does_not_say_what_it_is_of(more: list[str]) -> None:
    Path("t.json").write_text(invoke("time", "m.onnx", "--shape", "x=256,32", "--json").stdout)
    message = refused("--baseline", "t.json", *more)
    assert message.startswith("t.json: given a file that is no cost record; ")
    assert "gate MODEL --write-baseline FILE" in message


@pytest.mark.parametrize("text", ["2", "-1%", "%", "0x2%", "1e2%", "nan%", "٢%"])
def test_texts_that_are_no_percentages_are_refused(text: str) -> None:
    gate("--write-baseline", "a.json")
    assert "a percentage, with its sign" in refused("--baseline", "a.json", f"--tolerance={text}")
    assert refused(f"--min-npu-share={text}").startswith("--min-npu-share: given ")


@pytest.mark.parametrize("most", ["nan", "inf", "-1"])
def test_limits_that_are_none_are_refused(most: str) -> None:
    assert "--max-us: given " in refused(f"--max-us={most}")


def test_what_belongs_together_is_asked_for() -> None:
    assert "given no limit" in refused()
    assert "without --baseline" in refused("--tolerance", "2%")
    gate("--write-baseline", "a.json")
    before = Path("a.json").read_bytes()
    with od.transactions.base.files.protecting_files():
        assert "read" in refused("--baseline", "a.json", "--write-baseline", "a.json")
    assert Path("a.json").read_bytes() == before


def test_json_and_markdown_say_the_same() -> None:
    gate("--write-baseline", "a.json")
    model("m.onnx", 512)
    result = gate("--baseline", "a.json", "--max-us", "1", "--json", "--markdown", "s.md")
    found, page = json.loads(result.stdout), Path("s.md").read_text()
    assert result.exit_code == 2 and not found["met"] and found["failures"][0]["option"] == "--max-us"
    for failure in found["failures"]:
        assert f"- `{failure['option']}`: {failure['found']}\n" in page
    for row in found["diff"]["operators"]:
        assert f"| {row['name']} | {row['op_type']} | {row['before']:,} | {row['after']:,} |" in page
    assert found["record"]["cycles"] == found["diff"]["totals"][0]["after"]
    Path("gate.json").write_text(result.stdout)
    assert read_record(Path("gate.json")).cycles == found["record"]["cycles"]


HOSTILE = "a|b `c` <!-- *d* _e_ & \\| [f](g)\n# h \x1b[2J"
HARMLESS = r"a&#124;b \`c\` &lt;!-- \*d\* \_e\_ &amp; \\&#124; \[f\](g) \# h \\x1b\[2J"


def test_names_are_text_in_markdown_whatever_they_hold() -> None:
    baseline_with(name=HOSTILE, cycles=10)
    model("m.onnx", 64, host=True)
    onnx_model = onnx.load("m.onnx")
    next(one for one in onnx_model.graph.node if one.name == "host").name = HOSTILE
    onnx.save(onnx_model, "m.onnx")
    gate("--baseline", "a.json", "--max-regression", "0%", "--no-cpu", "--markdown", "s.md")
    gate("--write-baseline", "b.json")
    invoke("diff", "a.json", "b.json", "--full", "--markdown", "d.md")
    for page in (Path("s.md").read_text(), Path("d.md").read_text()):
        assert HARMLESS in page and f"moved to the host: {HARMLESS} (Cast)" in page
        assert "<!--" not in page and "\x1b" not in page and "`c`" not in page.replace(r"\`c\`", "")
    vanished = record(OperatorCost(HOSTILE, HOSTILE, (), 10)), record()
    page = diff_markdown(compare_costs(*vanished), full=True)
    assert f"| {HARMLESS} | {HARMLESS} | 10 | – |  | vanished |" in page
    assert (
        output.as_markdown("- x") == r"\- x"
        and output.as_markdown("12. x") == r"12\. x"
        and output.as_markdown("1.5 x") == "1.5 x"
    )


def test_diff_takes_reports_records_and_models() -> None:
    shape = ["--shape", "x=256,32"]
    model("wide.onnx", 128)
    Path("timed.json").write_text(invoke("time", "m.onnx", *shape, "--json").stdout)
    gate("--write-baseline", "record.json")
    expected = {name: od.compile(name, shapes={"x": (256, 32)}).timing() for name in ("m.onnx", "wide.onnx")}
    invoke("compile", "m.onnx", *shape, "-o", "m.od")
    for first in ("timed.json", "record.json", "m.onnx", "m.od"):
        more = [] if first == "m.od" else shape
        same = invoke("diff", first, "record.json", "--exit-code", *more)
        assert same.exit_code == 0 and "differs by more than 0%" in same.stdout, same.output
    for first in ("timed.json", "record.json", "m.onnx"):
        result = invoke("diff", first, "wide.onnx", *shape, "--exit-code", "--json")
        found = json.loads(result.stdout)
        assert result.exit_code == 2
        for row, old, new in zip(
            found["operators"], expected["m.onnx"].ops, expected["wide.onnx"].ops, strict=True
        ):
            assert (row["before"], row["after"]) == (old.cycles, new.cycles)
    assert invoke("diff", "timed.json", "wide.onnx", *shape).exit_code == 0
    loose = ["--exit-code", "--tolerance", "1000%"]
    assert invoke("diff", "timed.json", "wide.onnx", *shape, *loose).exit_code == 0


def record(*operators: OperatorCost) -> CostRecord:
    cycles = sum(one.cycles for one in operators)
    return CostRecord("m", "npu2", cycles, cycles / 1800, 45.0, 1, 64, 64, 0, operators)


def test_operators_belong_together_by_name_then_by_nodes_of_one_type() -> None:
    before = record(
        OperatorCost("a", "conv", ("a", "relu"), 100),
        OperatorCost("b", "pool", ("b",), 100),
        OperatorCost("c", "conv", ("c",), 100),
        OperatorCost("d", "conv", ("d",), 100),
    )
    after = record(
        OperatorCost("c2", "conv", ("c", "sum"), 150),
        OperatorCost("a", "conv", ("a",), 101),
        OperatorCost("b2", "eltwise", ("b",), 100),
        OperatorCost("d", "conv", ("d",), 99),
    )
    rows = {
        one.name: (one.before, one.after, one.verdict) for one in compare_costs(before, after, 0.01).operators
    }
    assert rows == {
        "c2": (100, 150, "slower"),
        "a": (100, 101, ""),
        "b2": (None, 100, "appeared"),
        "d": (100, 99, ""),
        "b": (100, None, "vanished"),
    }
    verdicts = {one.name: one.verdict for one in compare_costs(before, after).operators}
    assert (verdicts["a"], verdicts["d"]) == ("slower", "faster")


def test_the_workflow_of_the_page_passes_and_then_fails() -> None:
    """Its steps run as a runner would run them; ``GITHUB_STEP_SUMMARY`` is a file of the runner's."""
    page = (ROOT / "dispatch" / "GATING.md").read_text(encoding="utf-8")
    block = re.search(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
    assert block is not None
    steps = yaml.safe_load(block[1])["jobs"]["gate"]["steps"]
    lines = [line for step in steps for line in step.get("run", "").splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("onedispatch ")]
    assert [words[1] for words in commands] == ["run", "gate", "compile", "txn"]
    Path("models").symlink_to(ROOT / "models", target_is_directory=True)
    kept = Path("digits.cost.json")
    invoke("gate", "models/digits.onnx", "--write-baseline", str(kept))
    files = {"models/digits.cost.json": str(kept), "$GITHUB_STEP_SUMMARY": "summary.md"}
    commands = [[files.get(word, word) for word in words[1:]] for words in commands]
    assert [invoke(*words).exit_code for words in commands] == [0, 0, 0, 0]
    assert "gate met" in Path("summary.md").read_text()
    kept.write_text(re.sub(r'("cycles": )(\d)\d', r"\1\2", kept.read_text()))  # a tenth: all is slower
    assert invoke(*commands[1]).exit_code == 2
    assert "- `--max-regression`: conv1 (conv): " in Path("summary.md").read_text()
