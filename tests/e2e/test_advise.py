# SPDX-License-Identifier: Apache-2.0
"""The verdict on a model, and edits that help it: each is tried, and what is written computes the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import Result
from onnx import ModelProto, TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli.commands import app
from onedispatch.dispatch.runtime.profile import PARTS
from onedispatch.dispatch.runtime.summary import duration
from onedispatch.dispatch.tools.advice.edits import KINDS, _Cut, edits_of
from onedispatch.transactions.base.errors import InputError

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

FLOAT, INT64, DOUBLE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE
ROW = (1, 64)


def branch(name: str, factor: float) -> onnx.GraphProto:
    """A body that multiplies what it captures."""
    made = helper.make_tensor_value_info(f"{name}_y", FLOAT, ROW)
    constant = numpy_helper.from_array(np.full(ROW, factor, np.float32), f"{name}_c")
    node = helper.make_node("Mul", ["r", f"{name}_c"], [f"{name}_y"], name=f"{name}_mul")
    return helper.make_graph([node], name, [], [made], [constant])


def model() -> ModelProto:
    """An input that decides a branch, float64 in the middle, and a result whose size depends on data."""
    x, rate = (
        helper.make_tensor_value_info("x", FLOAT, ROW),
        helper.make_tensor_value_info("rate", INT64, []),
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("GreaterOrEqual", ["rate", "k"], ["c"], name="greater"),
        helper.make_node(
            "If", ["c"], ["i"], "if", then_branch=branch("t", 2.0), else_branch=branch("e", 3.0)
        ),
        helper.make_node("Cast", ["i"], ["w"], name="wide", to=DOUBLE),
        helper.make_node("Sub", ["w", "d"], ["s"], name="sub"),
        helper.make_node("Cast", ["s"], ["f"], name="back", to=FLOAT),
        helper.make_node("Sigmoid", ["f"], ["g"], name="sigmoid"),
        helper.make_node("NonZero", ["g"], ["nz"], name="nonzero"),
    ]
    constants = [
        numpy_helper.from_array(np.array(16000, np.int64), "k"),
        numpy_helper.from_array(np.full(ROW, 0.5), "d"),
    ]
    outputs = [
        helper.make_tensor_value_info("nz", INT64, [2, "n"]),
        helper.make_tensor_value_info("g", FLOAT, ROW),
    ]
    graph = helper.make_graph(nodes, "g", [x, rate], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def saved(path: Path, text: str) -> Path:
    """A model in ONNX's text syntax, with apostrophes for quotation marks, without its first line."""
    head = "<ir_version: 8, opset_import: ['': 17]> "
    onnx.save(onnx.parser.parse_model((head + text).replace("'", '"')), path)
    return path


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(model(), path)
    return path


def onedispatch(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def nothing_written(*arguments: object) -> Result:
    """What ``advise --apply`` says where no edit of the model helps; the last argument is the file."""
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 2, result.output
    assert not Path(str(arguments[-1])).exists() and "is not written" in result.stderr
    return result


def test_edits_that_help_are_found_tried_and_written(written: Path, tmp_path: Path) -> None:
    target = tmp_path / "better.onnx"
    found = json.loads(onedispatch("advise", written, "--apply", target, "--json"))
    assert found["before"]["cpu"] == 5 and found["together"]["cpu"] == 0
    assert found["best"] == [
        "set rate=16000",
        "compute in float32 what is float64",
        "cut 1 node of 8 off its end, from nonzero",
    ]
    trials = {one["edit"]: one for one in found["trials"]}
    assert trials["set rate=16000"]["helps"] and trials["set rate=16000"]["summary"]["cpu"] == 4
    assert not trials["cast sub to float32"]["helps"]
    assert "device npu1" in trials

    x = np.random.default_rng(0).standard_normal(ROW).astype(np.float32)
    session = od.InferenceSession(target, fallback="error")
    results = dict(zip([one.name for one in session.get_outputs()], session.run(None, {"x": x}), strict=True))
    (wanted,) = onnxruntime.InferenceSession(written).run(["g"], {"x": x, "rate": np.array(16000, np.int64)})
    np.testing.assert_allclose(results["g"], wanted, rtol=1e-5, atol=1e-6)
    assert np.ptp(wanted) > 0.1


def test_what_is_written_is_what_was_timed(written: Path, tmp_path: Path) -> None:
    target = tmp_path / "better.onnx"
    found = json.loads(onedispatch("advise", written, "--apply", target, "--json"))
    again = json.loads(onedispatch("profile", target, "--json"))
    assert again["summary"]["seconds"] == found["together"]["seconds"]
    assert again["summary"]["cpu"] == 0


def test_what_float32_has_not_is_not_narrowed() -> None:
    def narrowed(fill: float) -> list[str]:
        proto = model()
        proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.full(ROW, fill), "d"))
        compiled = od.compile(proto)
        _, executable = compiled.used_last()
        return [one.kind for one in edits_of(proto, executable, {}, ()) if one.kind == "narrow"]

    assert narrowed(-3e38) == narrowed(-np.inf) == ["narrow"] and not narrowed(-1.7e308)


def test_cuts_keep_the_order_of_the_nodes() -> None:
    names = [f"h{i}" for i in range(8)]
    x = helper.make_tensor_value_info("x", FLOAT, ROW)
    nodes = [helper.make_node("Relu", ["x"], [name], name) for name in names]
    nodes += [helper.make_node("NonZero", [name], [f"n{name}"], f"n{name}") for name in names]
    outputs = [helper.make_tensor_value_info(f"n{name}", INT64, [2, None]) for name in names]
    proto = helper.make_model(helper.make_graph(nodes, "g", [x], outputs), ir_version=8)
    dropped = frozenset(range(8, 16))
    assert [one.name for one in _Cut(dropped, {})(proto).graph.output] == names


def cut_off(path: Path) -> list[str]:
    trials = json.loads(onedispatch("advise", path, "--json"))["trials"]
    return [one["edit"] for one in trials if one["edit"].startswith("cut")]


def test_cuts_leave_the_greater_part_of_the_work(tmp_path: Path) -> None:
    """A constant is no work, and no output of what is left."""
    loop = """g (float[8, 64] x, int64 n) => (float[8, 64] y) {
        c = Constant <value = bool {1}> ()
        y = Loop <body = b (int64 i, bool a, float[8, 64] v) => (bool o, float[8, 64] w) {
            o = Identity (a) w = Relu (v) }> (n, c, x) }"""
    path = saved(tmp_path / "loop.onnx", loop)
    assert not cut_off(path) and not edits_said(path)
    most = "g (float[8, 64] x) => (int64[2, n] z) { a = Relu (x) y = NonZero (a) z = Abs (y) }"
    assert not cut_off(saved(tmp_path / "most.onnx", most))
    least = "g (float[8, 64] x) => (int64[2, n] z) { a = Relu (x) b = Exp (a) c = Abs (b) z = NonZero (c) }"
    path, target = saved(tmp_path / "least.onnx", least), tmp_path / "cut.onnx"
    assert cut_off(path) == ["cut 1 node of 4 off its end, from NonZero_3"]
    onedispatch("advise", path, "--apply", target)
    assert [one.name for one in onnx.load(target).graph.output] == ["c"]


def test_cuts_leave_constants_where_they_are_read(tmp_path: Path) -> None:
    """Read on both sides, on one, and by no node that is left: they are no inputs and no outputs."""
    end = """g (float[8, 64] x) => (float[2, n] z) {
        k = Constant <value_float = 2.0> () t = Constant <value_float = 3.0> ()
        a = Relu (x) b = Mul (a, k) c = Exp (b) d = Abs (c) e = Neg (d) f = Sqrt (e)
        s = NonZero (f) i = Cast <to = 1> (s) j = Mul (i, k) z = Mul (j, t) }"""
    path, target = saved(tmp_path / "end.onnx", end), tmp_path / "cut.onnx"
    assert cut_off(path) == ["cut 5 nodes of 12 off its end, from NonZero_8"]
    onedispatch("advise", path, "--apply", target)
    graph = onnx.load(target).graph
    assert [one.name for one in graph.output] == ["f"] and [one.name for one in graph.input] == ["x"]
    assert [node.op_type for node in graph.node].count("Constant") == 1
    start = """g (double[8, 64] x) => (float[64, 8] z) {
        k = Constant <value_ints = [64, 8]> () r = Reshape (x, k) s = Sin (r) f = Cast <to = 1> (s)
        a = Relu (f) b = Exp (a) c = Abs (b) d = Neg (c) z = Reshape (d, k) }"""
    path = saved(tmp_path / "start.onnx", start)
    assert cut_off(path) == ["cut 3 nodes of 9 off its beginning, from Reshape_1"]
    onedispatch("advise", path, "--apply", target)
    graph = onnx.load(target).graph
    assert [one.name for one in graph.input] == ["f"] and graph.node[0].op_type == "Constant"


def test_a_model_that_needs_nothing_is_left_alone(tmp_path: Path) -> None:
    graph = od.Graph()
    graph.output(graph.add_layer("Relu", [graph.input("x", (8, 64))]), "y")
    path = tmp_path / "relu.onnx"
    onnx.save(graph.to_onnx(), path)
    found = json.loads(onedispatch("advise", path, "--json"))
    assert found["best"] == [] == found["beyond"]
    assert {one["edit"] for one in found["trials"]} == {"precision bf16", "device npu1"}
    assert "none of them helps" in onedispatch("advise", path)
    assert "no edit helps" in nothing_written("advise", path, "--apply", tmp_path / "same.onnx").stderr


def test_bfloat16_is_an_option_beside_the_model(tmp_path: Path) -> None:
    graph = od.Graph()
    weights = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    graph.output(graph.add_layer("MatMul", [graph.input("x", (64, 512)), weights]), "y")
    path = tmp_path / "product.onnx"
    onnx.save(graph.to_onnx(), path)
    found = json.loads(onedispatch("advise", path, "--json"))
    assert found["options"] == {"precision": "bf16"}
    assert found["together"]["seconds"] < found["before"]["seconds"]


def test_models_that_are_no_onnx_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "no.onnx"
    path.write_bytes(b"\x08\x07nonsense")
    result = CliRunner().invoke(app, ["advise", str(path)])
    assert result.exit_code == 1 or result.exception is not None


def test_kinds_are_what_edits_have() -> None:
    assert len(set(KINDS)) == len(KINDS) and KINDS[-1] == "device"


# -- the verdict ---------------------------------------------------------------------------------


def test_the_verdict_counts_as_placement_and_times_as_a_run() -> None:
    session = od.InferenceSession(model())
    x = np.ones(ROW, np.float32)
    session.run(None, {"x": x, "rate": np.array(16000, np.int64)})
    summary = session.summary()
    run = session.last_run
    assert run is not None
    assert summary.dispatches == run.dispatches and summary.seconds == run.seconds
    places = [row.device for row in session.placement]
    assert (summary.npu, summary.cpu, summary.folded) == tuple(map(places.count, ("npu", "cpu", "folded")))
    assert [one.node for one in summary.host] != [] and summary.as_dict()["verdict"] == str(summary)
    sizes = [one.nbytes for one in summary.host]
    assert sizes == sorted(sizes, reverse=True)


def test_the_verdict_reads_well() -> None:
    graph = od.Graph()
    x = graph.input("x", (64, 64))
    graph.output(graph.add_layer("Softmax", [graph.add_layer("Relu", [x])]), "y")
    session = od.InferenceSession(graph)
    text = str(session.summary())
    assert text.startswith("all 2 nodes on the NPU in one dispatch; "), text
    assert " on npu2 (+ 45 us launch); cores " in text and "; bound by " in text
    host = od.Graph()
    host.output(host.add_layer("Det", [host.input("x", (8, 8))]), "y")
    assert str(od.InferenceSession(host).summary()) == "none of 1 node on the NPU, 1 on the host"


def test_a_verdict_needs_shapes() -> None:
    graph = od.Graph()
    graph.output(graph.add_layer("Relu", [graph.input("x", ("n", 64))]), "y")
    with pytest.raises(InputError, match="shape"):
        od.InferenceSession(graph).summary()


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.0, "0 us"),
        (9.46e-3, "9.46 ms"),
        (45e-6, "45 us"),
        (0.123, "123 ms"),
        (2.5, "2.5 s"),
        (999e-6, "999 us"),
    ],
)
def test_times_have_three_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_profile_fits_the_terminal(written: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from onedispatch.dispatch.cli import output

    monkeypatch.setattr(output.console, "_width", width)
    lines = onedispatch("profile", "models/digits.onnx", "--shape", "image=1,1,8,8", "--tiles").splitlines()
    heads = [line for line in lines if line.startswith(("kind ", "operator "))]
    assert len(heads) == 2 and all("time" in head and "bound" in head for head in heads)
    shares = all(word in heads[0] for word in ("compute", "memory", "streams", "commands"))
    assert shares == (width > 60) and max(map(len, map(str.rstrip, lines))) <= width


def test_profiles_are_sorted_and_cut(written: Path) -> None:
    found = json.loads(onedispatch("profile", "models/digits.onnx", "--shape", "image=1,1,8,8", "--json"))
    assert sum(found["profile"]["parts"].values()) == found["profile"]["cycles"]
    text = onedispatch(
        "profile", "models/digits.onnx", "--shape", "image=1,1,8,8", "--sort", "name", "--top", 2
    )
    assert re.search("\nconv1 +conv ", text) and "softmax" in text and "and 6 more: --top 0 lists all" in text
    result = CliRunner().invoke(app, ["profile", "models/digits.onnx", "--sort", "colour"])
    assert result.exit_code == 1 and "--sort" in str(result.exception)


def test_the_profile_of_the_page_is_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    from onedispatch.dispatch.cli import output

    monkeypatch.setattr(output.console, "_width", 80)
    page = (Path(__file__).parents[2] / "dispatch" / "PROFILING.md").read_text(encoding="utf-8")
    command, _, printed = page.partition("```text\n$ onedispatch ")[2].partition("```")[0].partition("\n")
    assert [line.rstrip() for line in onedispatch(*command.split()).splitlines()] == printed.splitlines()
    missing = [part for part in PARTS if f"\n| {part} | " not in page]
    assert not missing


def test_int8_is_tried_for_its_time_and_left_to_its_owner(tmp_path: Path) -> None:
    """Of sizes that fit the model: 1 does not, since the input is taken apart into rows of four."""
    graph = od.Graph()
    x = graph.add_layer("Reshape", [graph.input("x", ("n", 512)), np.array([-1, 4, 512])])
    for seed in range(3):
        weights = np.random.default_rng(seed).standard_normal((512, 512)).astype(np.float32)
        x = graph.add_layer("Relu", [graph.add_layer("MatMul", [x, weights])])
    graph.output(x, "y")
    path, target = tmp_path / "open.onnx", tmp_path / "same.onnx"
    onnx.save(graph.to_onnx(), path)
    found = json.loads(nothing_written("advise", path, "--json", "--apply", target).stdout)
    int8 = {one["edit"]: one for one in found["trials"]}["int8, by onnxruntime's quantiser"]
    assert int8["helps"] and "quantize" in int8["caution"] and found["best"] == ["precision bf16"]
    rows, width = found["sizes"]["x"]
    assert rows % 4 == 0 and width == 512


def edits_said(path: Path) -> dict[str, str]:
    """What ``inspect`` says moves nodes on the host, by node."""
    (row,) = json.loads(onedispatch("inspect", path, "--json"))
    return dict(row["edits"])


def test_no_edit_moves_nodes_that_stay(tmp_path: Path) -> None:
    """Nodes without names: a cast before one counts the others anew."""
    text = """g (double[8, 64] x) => (int64[2, n] y, double[64, 8] z) {
        a = Sin (x) b = Erf (a) y = NonZero (b) z = Transpose <perm = [1, 0]> (b) }"""
    path = saved(tmp_path / "doubles.onnx", text)
    trials = json.loads(onedispatch("advise", path, "--json"))["trials"]
    casts = {one["edit"]: one for one in trials if one["edit"].startswith("cast")}
    assert not casts["cast Sin_0 to float32"]["helps"]
    moved = edits_said(path)
    assert not any("cast" in edit for edit in moved.values()), moved


def test_an_edit_moves_the_node_that_it_names(tmp_path: Path) -> None:
    """Of two without names: casts around one count the other anew, which stays where it is."""
    text = """g (int64[8, 64] x) => (int64[2, n] y) {
        a = Sign (x) b = Sign (a) c = Cast <to = 1> (b) d = Relu (c) e = Exp (d) y = NonZero (e) }"""
    path = saved(tmp_path / "two.onnx", text)
    trials = json.loads(onedispatch("advise", path, "--json"))["trials"]
    assert {one["edit"]: one["helps"] for one in trials}["cast Sign_0 to int32"]
    assert edits_said(path) == {"Sign_0": "cast Sign_0 to int32", "Sign_1": "cast Sign_1 to int32"}


def test_values_that_help_alike_are_left_to_the_user(tmp_path: Path) -> None:
    """Either branch maps: which one the model is for, it does not say."""
    x, flag = (
        helper.make_tensor_value_info("x", FLOAT, ROW),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        # A branch maps as it is where Equal compares an input.
        helper.make_node("Cast", ["c"], ["n"], name="cast", to=INT64),
        helper.make_node("Greater", ["n", "k"], ["d"], name="greater"),
        helper.make_node(
            "If", ["d"], ["y"], "if", then_branch=branch("t", 2.0), else_branch=branch("e", 3.0)
        ),
    ]
    outputs = [helper.make_tensor_value_info("y", FLOAT, ROW)]
    zero = numpy_helper.from_array(np.array(0, np.int64), "k")
    graph = helper.make_graph(nodes, "g", [x, flag], outputs, [zero])
    path = tmp_path / "branches.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    found = json.loads(onedispatch("advise", path, "--json"))
    helps = {one["edit"]: one["helps"] for one in found["trials"]}
    assert helps["set c=True"] and helps["set c=False"]
    assert not any(edit.startswith("set c") for edit in found["best"])
    chosen = json.loads(onedispatch("advise", path, "--set", "c=true", "--json"))
    assert chosen["before"]["cpu"] == 0 and not any("set c" in one["edit"] for one in chosen["trials"])


def test_an_option_that_helps_is_no_edit_of_the_model(tmp_path: Path) -> None:
    graph = od.Graph()
    weights = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    graph.output(graph.add_layer("MatMul", [graph.input("x", (64, 512)), weights]), "y")
    path = tmp_path / "product.onnx"
    onnx.save(graph.to_onnx(), path)
    result = nothing_written("advise", path, "--apply", tmp_path / "same.onnx")
    assert "to have it, pass --precision bf16 to" in " ".join(result.stdout.split())
    assert "what helps is no edit of the model" in " ".join(result.stderr.split())


def test_what_helps_most_is_named_with_its_command(tmp_path: Path) -> None:
    """int8 needs data, which advise has not; the device is the user's to choose."""
    graph = od.Graph()
    x = graph.input("x", (1, 64, 56, 56))
    for seed in range(3):
        weights = np.random.default_rng(seed).standard_normal((64, 64, 3, 3)).astype(np.float32)
        x = graph.add_layer("Relu", [graph.add_layer("Conv", [x, weights], {"pads": [1] * 4})])
    graph.output(x, "y")
    path = tmp_path / "network.onnx"
    onnx.save(graph.to_onnx(), path)
    found = json.loads(onedispatch("advise", path, "--precision", "bf16", "--device", "npu1", "--json"))
    assert found["best"] == [] and set(found["beyond"]) == {"int8, by onnxruntime's quantiser", "device npu2"}
    text = onedispatch("advise", path, "--precision", "bf16", "--device", "npu1")
    assert "none of them helps" not in text
    assert f"onedispatch quantize {path} --data FOLDER --output OUT.onnx" in text
    assert f"onedispatch time {path} --device npu2" in text


@pytest.mark.parametrize("weights", ["inside", "none", "beyond"])
def test_bfloat16_is_tried_wherever_floats_are(weights: str, tmp_path: Path) -> None:
    """Weights as Constant nodes, no weights, and floats that are in the middle alone."""
    texts = {
        "inside": "g (float[8, 64] x) => (float[8, 64] y) {"
        " w = Constant <value_float = 2.0> () y = Mul (x, w) }",
        "none": "g (float[64, 512] x) => (float[64, 512] y) { y = Softmax (x) }",
        "beyond": "g (int32[8, 64] x) => (int32[8, 64] y) {"
        " f = Cast <to = 1> (x) e = Sigmoid (f) y = Cast <to = 6> (e) }",
    }
    path = saved(tmp_path / "model.onnx", texts[weights])
    found = json.loads(onedispatch("advise", path, "--json"))
    assert "precision bf16" in {one["edit"] for one in found["trials"]}


def test_cut_models_state_the_types_of_their_outputs() -> None:
    """Shape inference does not see through sparse weights; what was compiled knows."""
    from onedispatch.dispatch.frontend.graph import Value
    from onedispatch.dispatch.tools.advice.edits import _Cut

    nodes = [
        helper.make_node("Own", ["x"], ["y"], name="own", domain="acme"),
        helper.make_node("NonZero", ["y"], ["nz"], name="nonzero"),
    ]
    inputs = [helper.make_tensor_value_info("x", FLOAT, ROW)]
    outputs = [helper.make_tensor_value_info("nz", INT64, [2, None])]
    proto = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), ir_version=8)
    cut = _Cut(frozenset({1}), {"y": Value("y", "tensor(float)", ROW)})(proto)
    assert cut.graph.output[0].type.tensor_type.elem_type == FLOAT


def test_a_model_that_no_clock_times_is_inspected_all_the_same(tmp_path: Path) -> None:
    """Its transaction may be wrong: placement, buffers and schedules are known without it."""
    compiled = od.compile("models/digits.onnx", shapes={"image": (1, 1, 8, 8)})
    wrong = bytearray(compiled.transaction)
    wrong[16] = 0xEE  # the first operation's code
    path = tmp_path / "wrong.od"
    compiled.with_transaction(bytes(wrong)).save(path)
    text = " ".join(onedispatch("inspect", path).split())
    assert text.startswith("all 11 nodes on the NPU in one dispatch; not timed: "), text
    (row,) = json.loads(onedispatch("inspect", path, "--json"))
    assert row["summary"]["untimed"] and row["summary"]["bound"] == ""


def test_tiles_are_named_as_everywhere() -> None:
    text = onedispatch("profile", "models/digits.onnx", "--shape", "image=1,1,8,8", "--tiles")
    assert "core c0 r2" in text and "shim c0 r0" in text


# -- words ---------------------------------------------------------------------------------------


def test_reasons_read_well(tmp_path: Path) -> None:
    """Strings by their name, not NumPy's; no raw message of onnxruntime; a table only where it has rows."""
    texts = {
        "Identity of strings (x) (nearest: numbers)": "g (string[8] x) => (string[8] y) { y = Identity (x) }",
        "Cast to strings (y) (nearest: numbers)": "g (float[8] x) => (string[8] y) { y = Cast <to = 8> (x) }",
        "Cast to float64 (nearest: float32": "g (float[8] x) => (double[8] y) { y = Cast <to = 11> (x) }",
        "evaluator: onnxruntime has no kernel for it": "g (double[8] x) => (double[8] y) { y = Erf (x) }",
    }
    for number, (reason, text) in enumerate(texts.items()):
        said = onedispatch("inspect", saved(tmp_path / f"{number}.onnx", text))
        (row,) = json.loads(onedispatch("inspect", tmp_path / f"{number}.onnx", "--json"))
        assert reason in row["placement"][0]["reason"]
        assert "Placement" not in said and "On the host" in said
    assert "none of them helps" in onedispatch("advise", tmp_path / "0.onnx")  # numbers are not needed


def test_a_model_without_nodes_is_none_that_was_computed(tmp_path: Path) -> None:
    text = onedispatch("inspect", saved(tmp_path / "empty.onnx", "g (float[8] x) => (float[8] x) { }"))
    assert text.startswith("a model without nodes; ") and "Placement" not in text


def test_places_of_a_compiled_model_have_their_preposition(tmp_path: Path) -> None:
    text = "g (float[8] x) => (float[8] y) { k = Constant <value_float = 2.0> () e = Exp (k) y = Mul (x, e) }"
    path = saved(tmp_path / "model.onnx", text)
    said = onedispatch("compile", path, "-o", tmp_path / "model.od")
    assert said.rstrip().endswith("nodes: 2 folded, 1 on npu"), said


@pytest.mark.parametrize("name, nodes", [("detector", 57), ("bert_base", 12)])
def test_what_is_inspected_fits_a_screen_or_two(
    name: str, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes that one rule took, each with others, are counted as one."""
    from onedispatch.dispatch.cli import output

    monkeypatch.setattr(output.console, "_width", 80)
    text = onedispatch("inspect", f"models/light/{name}.onnx")
    assert 15 < len(text.splitlines()) < 80
    rule = "silu" if name == "detector" else "attention"
    assert f"{nodes} by rule {rule}" in text
    assert max(map(len, text.splitlines())) <= 80
