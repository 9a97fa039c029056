# SPDX-License-Identifier: Apache-2.0
"""Every pass finds what it requires and leaves what it ensures, on models of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli.commands import app
from onedispatch.dispatch.compile import GRAPH_PASSES, MODEL_PASSES, PASSES
from onedispatch.dispatch.compiler.options import ImportOptions
from onedispatch.dispatch.compiler.passes import ImportContext, Pass, observed
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.tools.pass_reports import PassDump, PassReport
from tests.host_nodes import on_host

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
DIGITS = str(Path(__file__).parents[2] / "models" / "digits.onnx")
W = numpy_helper.from_array(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8), "w")


class PropertyChecks:
    """An observer: requirements of the value before, what is ensured of the one after."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.broken: list[str] = []

    def after(self, ran: Pass, before: Any, result: Any, seconds: float) -> None:
        self.seen.append(ran.name)
        for value, properties, when in ((before, ran.requires, "before"), (result, ran.ensures, "after")):
            for one in properties:
                said = one.broken(value)
                if said:
                    self.broken.append(f"{when} {ran.name}: {one}: {said}")


def model(text: str, *weights: onnx.TensorProto) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 21]> g {text}')
    proto.graph.initializer.extend(weights)
    return proto


def hosted() -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(n, FLOAT, [2, 8]) for n in "xy"]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        *on_host("a", "b", "h"),
        helper.make_node("Abs", ["b"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "hosted", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


MODELS: dict[str, Callable[[], Any]] = {
    "digits": lambda: DIGITS,
    "weights": lambda: model("(float[2,8] x) => (float[2,8] y) { a = MatMul(x, w) y = Gelu(a) }", W),
    "rule": lambda: model(
        "(float[2,8] x) => (float[2,8] y) { s = Sigmoid(x) m = Mul(x, s) c = Add(w, w) y = MatMul(m, c) }", W
    ),
    "shapes": lambda: model(
        "(float[N,8] x) => (float[M] y) { s = Size(x) z = Constant<value_ints = [-1]>() u = Reshape(s, z)"
        " y = Reshape(x, u) }"
    ),
    "integers": lambda: model(
        "(float[2,8] x) => (float[2,8] y) { d = Constant<value_float = 0.1>() o = Constant<value_int = 0>()"
        " p = Cast<to = 3>(o) q = QuantizeLinear(x, d, p) f = DequantizeLinear(q, d, p) r = Relu(f)"
        " t = QuantizeLinear(r, d, p) y = DequantizeLinear(t, d, p) }"
    ),
    "packed": lambda: model(
        "(float[2,8] x) => (float[2,8] y) { d = Constant<value_float = 0.1>() v = Cast<to = 3>(w)"
        " f = DequantizeLinear(v, d) y = MatMul(x, f) }",
        W,
    ),
    "dead end": lambda: model("(float[2,8] x) => (float[2,8] y) { a = Exp(x) y = Neg(x) }"),
    "branch": lambda: model(
        "(float[2,8] x) => (float[2,8] y) { c = Constant<value_int = 1>() b = Cast<to = 9>(c)"
        " y = If(b) <then_branch = t () => (float[2,8] p) { p = Neg(x) },"
        " else_branch = e () => (float[2,8] q) { q = Abs(x) }> }"
    ),
    "host": hosted,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "bf16": {"precision": "bf16"},
    "narrow": {"sums": "narrow"},
    "one column": {"device": "npu1_1col"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("name", MODELS)
def test_passes_keep_what_they_say(name: str, options: dict[str, Any]) -> None:
    checks = PropertyChecks()
    with observed(checks):
        session = od.InferenceSession(MODELS[name](), **options)
        feed = {
            one.name: np.ones([d if isinstance(d, int) else 2 for d in one.shape], np.float32)
            for one in session.get_inputs()
        }
        session.run(None, feed)
    assert not checks.broken, "\n".join(checks.broken)
    assert checks.seen[0] == "import" and checks.seen[-1] == "fuse"
    order = [one.name for one in PASSES]
    assert checks.seen == sorted(checks.seen, key=order.index)  # each once, as the list has them


def test_names_are_names_of_one_pass_and_each_says_what_it_does() -> None:
    assert len({one.name for one in PASSES}) == len(PASSES)
    assert all(one.summary and one.summary[0].islower() and one.summary[-1] != "." for one in PASSES)


def test_a_property_that_is_broken_is_seen() -> None:
    checks = PropertyChecks()
    graph = MODEL_PASSES[0].run(MODELS["shapes"](), ImportContext(ImportOptions()))
    assert isinstance(graph, Graph)
    checks.after(GRAPH_PASSES[0], graph, graph, 0.0)
    assert checks.broken == [
        "after specialise: all tensor inputs have concrete shapes: x: tensor(float)[N, 8]"
    ]


def test_observers_see_their_own_thread_while_they_observe() -> None:
    report = PassReport()
    with observed(report):
        od.compile(MODELS["rule"]())
    rows = list(report.rows)
    od.compile(MODELS["rule"]())
    assert report.rows == rows
    changed = {row.name: row.changed for row in rows}
    assert changed["fold-constants"] == "-1 Add"
    assert "Swish" in changed["rewrite-patterns"] or "Mul" in changed["rewrite-patterns"]


def test_the_graph_after_each_pass_is_written(tmp_path: Path) -> None:
    with observed(PassDump(tmp_path)):
        od.compile(MODELS["rule"]())
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0] == "01-import.onnx" and any(name.endswith("-fuse.txt") for name in names)
    written = onnx.load(tmp_path / "04-fold-constants.onnx")
    assert [node.op_type for node in written.graph.node] == ["Sigmoid", "Mul", "MatMul"]


def test_the_command_shows_and_writes_them(tmp_path: Path) -> None:
    folder = tmp_path / "passes"
    command = ["inspect", DIGITS, "--shape", "image=1,1,8,8", "--passes", "--json", "--dump-passes"]
    done = CliRunner().invoke(app, [*command, str(folder)], catch_exceptions=False)
    assert done.exit_code == 0 and '"passes"' in done.stdout and '"merge-operators"' in done.stdout
    assert (folder / "01-import.txt").read_text().startswith("import: loads and checks")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(od.InputError, match="--dump-passes"):
        CliRunner().invoke(app, [*command, str(blocked)], catch_exceptions=False)
