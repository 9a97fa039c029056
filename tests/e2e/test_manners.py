# SPDX-License-Identifier: Apache-2.0
"""What every command does alike: version, completion, JSON, tables, colours, progress, errors."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from onnx import TensorProto, helper, parser
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app, output, progress, rows
from onedispatch.dispatch.compile import GRAPH_PASSES, LOWERING_PASSES, MODEL_PASSES, PASSES
from onedispatch.dispatch.compiler.passes import observed
from onedispatch.transactions.base.errors import InputError, reason_of
from onedispatch.transactions.base.text import tile_name
from tests.host_nodes import on_host

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { y = Relu(x) }'


def invoke(*arguments: object, **environment: str) -> Any:
    return CliRunner(env=environment).invoke(app, [str(one) for one in arguments])


def commands() -> Iterator[tuple[str, Any]]:
    waiting = [("", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        inner = getattr(command, "commands", {})
        waiting += [(f"{name} {key}".strip(), one) for key, one in inner.items()]
        if not inner:
            yield name, command


def test_the_version_is_told() -> None:
    shown = invoke("--version")
    assert shown.exit_code == 0 and shown.stdout == f"onedispatch {od.__version__}\n"


@pytest.mark.daily(3)
@pytest.mark.parametrize(
    "words, expected",
    [
        ("onedispatch comp", {"compile", "compare"}),
        ("onedispatch run --pre", {"--precision"}),
        ("onedispatch run --precision b", {"bf16"}),
        ("onedispatch time --device npu1_", {"npu1_1col", "npu1_2col", "npu1_3col"}),
        ("onedispatch inspect light_res", {"light_resnet50"}),
    ],
)
def test_shells_complete(words: str, expected: set[str]) -> None:
    count = str(len(words.split()) - 1)
    code = "import sys; sys.argv[0] = 'onedispatch'; from onedispatch.dispatch.cli import main; main()"
    environment = {"_ONEDISPATCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert set(shown.stdout.split()) == expected, shown.stderr


def test_every_command_has_json() -> None:
    lacking = [
        name for name, command in commands() if not any("--json" in one.opts for one in command.params)
    ]
    assert lacking == [] and len(list(commands())) > 30


@pytest.mark.parametrize(
    "command",
    [
        *("run none --random", "time none", "profile none", "compile none -o made", "inspect none"),
        *("advise none", "export none -o made", "compare none --random", "gate none --no-cpu"),
        *("diff none none", "quantize none --data none", "bench none", "tune none -o made", "doctor none"),
        *("devices none", "txn dump none", "txn explain none", "txn check none", "txn diff none none"),
        *("txn assemble none -o made", "txn fuse none -o made", "txn replay none", "txn survey none"),
        *("kernel show none", "kernel check none", "layer check none", "rule check none"),
        *("rule new none", "catalog list none"),
    ],
)
def test_errors_leave_standard_output_empty_and_exit_with_what_is_not_zero(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = invoke(*command.split(), "--json")
    assert found.exit_code not in (0, None) and not found.stdout
    assert not any(tmp_path.iterdir())


def test_help_of_random_samples_says_how_many() -> None:
    assert "--samples says how many" in " ".join(invoke("compare", "--help", COLUMNS="400").stdout.split())
    inspected = " ".join(invoke("inspect", "--help", COLUMNS="400").stdout.split())
    assert "--json is a list with an entry for each" in inspected


def test_small_commands_print_json(tmp_path: Path) -> None:
    made = json.loads(
        invoke("kernel", "new", "acme", "--python", "--folder", tmp_path / "acme", "--json").stdout
    )
    assert all(Path(file).exists() for file in made["files"]) and made["next"]
    assert Path(json.loads(invoke("kernel", "include", "--json").stdout)["path"]).is_dir()
    asked = invoke("layer", "remove", "acme::blur", "--json")
    assert asked.exit_code == 1 and "accepted: both" in str(asked.exception)


# -- tables ------------------------------------------------------------------------------------------

NAMES = ("node", "operator", "where", "of the largest", "why")
ROWS = [
    ("/encoder/layer.11/attention/self/query/MatMul", "BatchNormalization", "npu", "1,234,567", "as conv"),
    ("n1", "Relu", "cpu", "9", "bound that failed: a-word-that-is-much-longer-than-its-column and others"),
]


def printed(
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    terminal: bool = True,
    rows: Sequence[Sequence[str]] = ROWS,
    **more: Any,
) -> list[str]:
    file = io.StringIO()
    own = Console(file=file, width=width, force_terminal=terminal, color_system=None, **more)
    monkeypatch.setattr(output, "console", own)
    output.table("Placement", NAMES, rows, right=(3,))
    return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()


@pytest.mark.parametrize("width", [60, 80, 120, 300])
def test_tables_fit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(width, monkeypatch)
    assert max(map(len, lines)) <= width
    head = " ".join(lines[2 : 2 + next(i for i, line in enumerate(lines[2:]) if line.startswith("┡"))])
    assert {"node", "operator", "where", "largest", "why"} <= set(re.findall(r"\w+", head))  # whole words
    text = "\n".join(lines)
    assert "1,234,567" in text and re.search(r"\b(npu|cpu)\b", text)
    assert ("…" in text) == (width < 150)
    assert (ROWS[0][0] in text) == (width >= 150)


WORDS = ("node", "value", "error", "own", "inherited", "SNR", "cosine", "verdict")


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_word_of_a_table_breaks(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = ("1.09e-07", "1.09e-07", "1.65e-07", "143.3 dB", "1.00000")
    cells = [(f"node_Conv_{at} (Conv) +2", "probabilities", *numbers, "diverges") for at in range(3)]
    shown = []
    for terminal in (True, False):
        file = io.StringIO()
        own = Console(file=file, width=width, force_terminal=terminal, color_system=None)
        monkeypatch.setattr(output, "console", own)
        output.table("values", WORDS, cells, right=(2, 3, 4, 5, 6), droppable=(6, 5, 4, 3))
        shown.append(re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()))
    for text in shown:
        assert text.count("probabilities") == text.count("diverges") == 3
    assert max(map(len, shown[0].splitlines())) <= width
    assert ("a wider terminal has more columns: " in capsys.readouterr().out) == (width < 100)
    assert all(word in shown[1] for word in WORDS)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    "name", ["/model.22/cv{}.0/conv/Conv_output", "node_Convolution_with_a_long_name_{}"]
)
def test_rows_fit_and_their_names_differ(name: str, width: int) -> None:
    names = [name.format(at) for at in range(100, 130)]
    cells = [(one, "integer_conv", "1,234 us", "50%", "50%", "compute", "0.64") for one in names]
    heads = ("operator", "kind", "time", "compute", "memory", "bound by", "TOPS")
    head, lines, dropped = rows.fitted(heads, cells, width, (0, 1), [(3, 4), (6,)])
    assert max(map(len, (*head, *lines))) <= width and len(lines) == len(names)
    shown = [line.split("integer_conv ")[0].strip() for line in lines]
    assert len(set(shown)) == len(names) and all(len(one) >= 24 for one in shown)
    assert (dropped == []) == (width > 60)
    assert all("compute" in line and "1,234 us" in line for line in lines)


def test_what_is_piped_has_whole_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "…" not in "\n".join(printed(60, monkeypatch, terminal=False))


@pytest.mark.parametrize("terminal", [True, False])
def test_words_stay_whole_where_there_is_room(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is wider than its share of 80 columns, beside columns that want more than theirs."""
    name = "detections/nonzero_of_everything_1"
    reason = "the shape of its result depends on its data, and is known only at run time"
    edit = "compute in float32 what is float64, and cut nodes off the end"
    rows = [(name, "NonZero", reason, "1", edit), ("relu", "Relu", "", "2", "")]
    lines = printed(80, monkeypatch, terminal=terminal, rows=rows)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80 and name in text and "…" not in text
    assert set(f"{reason} {edit}".split()) <= set(re.findall(r"[^\s│]+", text))


def test_where_nodes_run_has_a_colour_unless_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert output.place("npu").style != output.place("cpu").style != output.place("folded").style
    found = {}
    for no_color in (False, True):
        file = io.StringIO()
        own = Console(file=file, width=80, force_terminal=True, color_system="standard", no_color=no_color)
        monkeypatch.setattr(output, "console", own)
        output.table("t", ("node", "where"), [("a", output.place("npu")), ("b", output.place("cpu"))])
        found[no_color] = file.getvalue()
    assert "\x1b[32mnpu" in found[False] and "\x1b[33mcpu" in found[False]
    assert "\x1b[32m" not in found[True] and "npu" in found[True]
    script = (
        "from onedispatch.dispatch.cli import output; print(output.console.no_color, output.errors.no_color)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script],
        env={"NO_COLOR": "1", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert shown.stdout == "True True\n"


# -- progress ----------------------------------------------------------------------------------------


def test_stages_name_passes_of_the_compiler() -> None:
    assert set(progress.SHARES) <= {one.name for one in PASSES} and sum(progress.SHARES.values()) == 100


def test_what_is_left_follows_from_what_is_done() -> None:
    now = 0.0
    stages = progress.Stages("compiling m", lambda: now)
    assert str(stages) == "compiling m"
    for one in MODEL_PASSES:
        stages.before(one)
        now += 0.1 * progress.SHARES.get(one.name, 0)
        stages.after(one, None, None, 0.0)
    assert stages.left == pytest.approx(7.9)  # of ten seconds
    for one in (*GRAPH_PASSES, *LOWERING_PASSES):
        stages.before(one)
        assert str(stages).startswith(f"compiling m: {one.name}, about ")
        now += 0.1 * progress.SHARES.get(one.name, 0)
        stages.after(one, None, None, 0.0)
    assert stages.left == pytest.approx(0, abs=1e-6)
    stages.before(GRAPH_PASSES[0])  # another set of shapes
    assert stages.left is None
    now += 1.58  # of 79 shares, of which these are two
    stages.after(GRAPH_PASSES[0], None, None, 0.0)
    assert stages.left is None  # too little to say so


@pytest.mark.parametrize("width", [60, 80, 200])
def test_what_is_left_is_never_cut_off(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "errors", Console(file=io.StringIO(), width=width, force_terminal=True))
    now = 0.0
    stages = progress.Stages("compiling models/of/a/project/that/is/deep/detector.onnx for npu2", lambda: now)
    for one in MODEL_PASSES:
        stages.before(one)
        now += 10.0
        stages.after(one, None, None, 0.0)
    stages.before(next(one for one in LOWERING_PASSES if one.name == "select-solutions"))
    shown = str(stages.__rich__())
    assert shown.startswith("compiling") and re.search(r": select-solutions, about \d+ s left$", shown)
    assert len(shown) <= width - 2


# -- what a terminal of 80 columns shows ---------------------------------------------------------------


def on_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> list[str]:
    """Lines of a command on a terminal of 80 columns."""
    made = io.StringIO()
    own = Console(file=made, width=80, force_terminal=True, color_system=None, highlight=False)
    monkeypatch.setattr(output, "console", own)
    monkeypatch.setattr(output.tell, "__kwdefaults__", {**output.tell.__kwdefaults__, "to": own})
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return (made.getvalue() + result.stdout).splitlines()


DIGITS = Path(__file__).parents[2] / "models" / "digits.onnx"


def test_a_run_says_how_many_cores_are_busy_and_schedules_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = on_terminal(monkeypatch, "time", DIGITS)
    table = plain[next(at for at, line in enumerate(plain) if line.startswith("op ")) :]
    assert table[0].split() == ["op", "kind", "cores", "cycles", "share"] and len(table) == 7
    assert re.fullmatch(r"conv2 +conv +8 of 32 +[\d,]+ +[\d.]+%", table[3])
    full = "\n".join(on_terminal(monkeypatch, "time", DIGITS, "--full"))
    assert "conv2: conv n:1/1" in full and "cores busy" not in "\n".join(table)
    (line,) = {line for line in plain if line.startswith("modelled time")}
    time = re.search(r"modelled time +(\S+ us) ", line)
    assert time is not None and f"{time[1]} on npu2" in " ".join(plain)


def test_wide_output_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    od.compile(DIGITS, shapes={"image": (1, 1, 8, 8)}).save(tmp_path / "d.od")
    for command in (
        ("txn", "explain", tmp_path / "d.od"),
        ("profile", DIGITS),
        ("time", DIGITS, "--sweep", "columns=1..2", "--sweep", "ddr.gigabytes_per_second=9", "--batch", "64"),
        ("compare", DIGITS, "--random", "--per-node"),
    ):
        lines = on_terminal(monkeypatch, *command)
        assert len(lines) > 4 and max(map(len, (line.rstrip() for line in lines))) <= 80, command


def test_every_column_has_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    titles: list[tuple[str, ...]] = []
    show = output.table

    def recorded(title: str, columns: Any, *rest: Any, **more: Any) -> None:
        titles.append(tuple(columns))
        show(title, columns, *rest, **more)

    monkeypatch.setattr(output, "table", recorded)
    base = tmp_path / "base.json"
    for command in (
        ("gate", DIGITS, "--no-cpu", "--write-baseline", base),
        ("gate", DIGITS, "--baseline", base),
        ("diff", base, DIGITS, "--full"),
        ("compare", DIGITS, "--random", "--per-node"),
        ("run", DIGITS, "--random", "--compare"),
    ):
        on_terminal(monkeypatch, *command)
    assert len(titles) >= 7 and all(name for columns in titles for name in columns)
    assert sum("relative error" in columns for columns in titles) == 3


def test_a_compile_tells_its_stages() -> None:
    stages = progress.Stages("compiling")
    with observed(stages):
        od.compile(parser.parse_model(TEXT))
    assert str(stages).startswith("compiling: fuse")
    assert isinstance(stages.__rich__(), Text)


CONV = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,32,32] x, float[8,3,3,3] w) => (float[1,8,30,30] y)
{ a = Conv(x, w) b = Softmax(a) y = Exp(b) }"""


def test_a_check_says_what_a_bare_transaction_leaves_unknown(tmp_path: Path) -> None:
    model, bare, params = (tmp_path / name for name in ("m.od", "m.bin", "params.bin"))
    compiled = od.compile(parser.parse_model(CONV))
    compiled.save(model)
    bare.write_bytes(compiled.transaction)
    params.write_bytes(compiled.device_step.params)
    assert invoke("txn", "check", model, "--strict").stdout == "0 errors, 0 warnings\n"
    shown = invoke("txn", "check", bare, "--strict")
    assert shown.exit_code == 1 and "hazard warning" in shown.stdout
    assert "note: what cores wait for is not known here" in shown.stdout
    assert "--overlay DEVICE --params FILE name it" in shown.stdout
    assert "--params FILE names it" in invoke("txn", "check", bare, "--overlay", "npu2").stdout
    given = ("--overlay", "npu2", "--params", params)
    assert invoke("txn", "check", bare, *given, "--strict").stdout == "0 errors, 0 warnings\n"
    found = json.loads(invoke("txn", "check", bare, "--json").stdout)
    assert found["warnings"] and len(found["notes"]) == 1


def test_an_onnx_model_is_no_transaction_and_is_called_one(tmp_path: Path) -> None:
    for name in ("m.onnx", "m.bin"):
        (tmp_path / name).write_bytes(parser.parse_model(TEXT).SerializeToString())
        for command in ("check", "dump", "explain"):
            error = str(invoke("txn", command, tmp_path / name).exception)
            assert "an ONNX model" in error and f"onedispatch compile {tmp_path / name} -o m.od" in error


def test_a_check_names_the_device_regions(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [
        node("Exp", ["x"], ["a"], name="first"),
        *on_host("a", "c"),
        node("Exp", ["c"], ["y"], name="last"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy"]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    od.compile(proto).save(tmp_path / "m.od")
    shown = invoke("txn", "check", tmp_path / "m.od").stdout
    assert "checked x[4, 8], region 0: 1 operator\nchecked x[4, 8], region 1: 1 operator\n0 errors" in shown
    assert len(json.loads(invoke("txn", "check", tmp_path / "m.od", "--json").stdout)["regions"]) == 2
    error = invoke("txn", "dump", tmp_path / "m.od").exception
    assert "2 device regions in all" in str(error)


def test_nothing_spins_beside_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(parser.parse_model(TEXT).SerializeToString())
    written = {}
    for flags in ((), ("--json",)):
        file = io.StringIO()
        monkeypatch.setattr(output, "errors", Console(file=file, force_terminal=True, width=80))
        assert invoke("time", model, *flags).exit_code == 0
        written[flags] = file.getvalue()
    assert "compiling" in written[()] and written[("--json",)] == ""


def test_names_in_bars_are_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = tmp_path / "[" / "red].onnx"  # "[/red]" would end a colour
    model.parent.mkdir()
    model.write_bytes(parser.parse_model(TEXT).SerializeToString())
    file = io.StringIO()
    monkeypatch.setattr(output, "errors", Console(file=file, force_terminal=True, width=300))
    with output.progress(f"compiling {model}", 1):
        pass
    assert "[/red].onnx" in file.getvalue()
    monkeypatch.chdir(tmp_path)
    assert invoke("time", "[/red].onnx", "--devices", "npu1,npu2").exit_code == 0


# -- one word for one thing ---------------------------------------------------------------------------


def test_tiles_have_one_name(tmp_path: Path) -> None:
    assert tile_name(2, 1) == "c2 r1"
    od.compile(parser.parse_model(TEXT)).save(tmp_path / "m.od")
    core = next(t for t in json.loads(invoke("txn", "explain", tmp_path / "m.od", "--json").stdout)["tiles"]
                if t["row"] > 1)  # fmt: skip
    name = tile_name(core["column"], core["row"])
    texts = [
        invoke("txn", "explain", tmp_path / "m.od", "--tile", tile).stdout
        for tile in (name, f"{core['column']},{core['row']}")
    ]
    assert texts[0] == texts[1] and texts[0].startswith(f"{name}: core")
    assert "c0 r0 S2MM[0]" in invoke("txn", "dump", tmp_path / "m.od").stdout
    trace = tmp_path / "trace.json"
    assert invoke("run", tmp_path / "m.od", "--random", "--trace", trace).exit_code == 0
    assert f"core {name}" in trace.read_text()
    absent = invoke("txn", "explain", tmp_path / "m.od", "--tile", "c90 r1").exception
    assert "--tile: given c90 r1; accepted: c0 r0, " in str(absent)


WRONG = {
    "input": (["run", "{model}", "--input", "x=none.npy"], "none.npy"),
    "set": (["inspect", "{model}", "--set", "x=@none.npy"], "none.npy"),
    "bench": (["bench", "none.onnx"], "none.onnx"),
    "model": (["inspect", "none.onnx"], "none.onnx"),
    "light": (["inspect", "light_resnet5"], "light_resnet5'"),
    "device": (["time", "{model}", "--device", "npu7"], "npu7"),
    "shape": (["time", "{model}", "--shape", "z=4"], "'z'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_says_one_thing_once(name: str, tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(parser.parse_model(TEXT).SerializeToString())
    arguments, what = WRONG[name]
    text = str(invoke(*(one.format(model=model) for one in arguments)).exception)
    assert text.count(what) == 1, text
    assert len(re.findall("accepted|expected", text)) == 1, text


def test_a_light_model_that_is_nearly_named_is_suggested() -> None:
    assert "Did you mean 'light_resnet50'?" in str(invoke("inspect", "light_resnet5").exception)


def test_a_reason_names_its_place_where_nobody_else_does() -> None:
    error = InputError("m.npy", "no such file", "a file")
    assert reason_of(error, "x=m.npy") == "no such file"
    assert reason_of(error, "x") == "m.npy: no such file"
    assert reason_of(ValueError("bad"), "x") == "bad"
