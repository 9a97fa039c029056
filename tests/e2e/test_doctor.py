# SPDX-License-Identifier: Apache-2.0
"""``onedispatch doctor``: what is there, what it registered, and every failure, without stopping at one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app, output
from onedispatch.dispatch.plugins.entry_points import GROUP
from onedispatch.dispatch.sources import registry
from onedispatch.dispatch.tools import doctor
from onedispatch.dispatch.tools.made_cases import made_for_fusion, made_for_rule

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")
pytestmark = pytest.mark.usefixtures("no_plugins")

KERNEL = """
import os
import onedispatch as od
@od.kernel("acme::twice", inputs="x", outputs="z")
class Twice:
    def infer(self, n):
        return {"z": n["x"].like()}
    def index_space(self, n):
        return n["x"].shape
    def access(self, n):
        return n.elementwise("x", "z")
    def body(self, t):
        BODY
od.maps("Twice", domain="acme")(Twice)
"""
RULES = """
import onedispatch as od
tf = od.frontend("tensorflow")
tf.op("TopKV2", to="TopK").auto().default(largest=1, axis=-1)
tf.op("Softplus")
@tf.expand("AddN")
def add_n(g, n):
    return g.Sum(*n.inputs[: n.attr("N")])
@od.frontend("onnx", domain="old").expand("Ends")
def ends(g, n):
    return g.Add(*n.inputs[:2])
@od.fusion("Silu", general=False)
def silu(p):
    p.find("Mul(x, Sigmoid(x))")
    return lambda g, m: g.Mul(m["x"], g.Sigmoid(m["x"]))
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(output.console, "_width", 400)
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


def kernel(name: str, body: str = "t.z[:] = t.x + t.x") -> str:
    return write(name, KERNEL.replace("BODY", body))


def examined(*plugins: str) -> dict[str, Any]:
    arguments = [one for plugin in plugins for one in ("--plugin", plugin)]
    result = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if found["healthy"] else 1), result.stdout
    return found


def failures(*plugins: str) -> dict[str, dict[str, Any]]:
    return {one["what"]: one for one in examined(*plugins)["failures"]}


def test_an_installation_without_plugins_works() -> None:
    found = examined()
    assert found["healthy"] and found["plugins"] == [] and not found["notes"]
    assert found["versions"]["onedispatch"] == od.__version__ and "Python" in found["versions"]
    assert sys.executable in found["paths"]["Python"] and len(found["paths"]["extension modules"]) == 2
    assert all(Path(file).exists() for file in found["paths"]["extension modules"])
    assert "one transaction" in found["simulator"] and "onnxruntime" in found["simulator"]
    text = CliRunner().invoke(app, ["doctor"]).stdout
    assert "everything works" in text and "compiler of the extension" in text


def test_all_that_a_plugin_registers_is_listed_and_run() -> None:
    found = examined(kernel("kernels.py"), write("rules.py", RULES))
    assert found["failures"] == [] and found["notes"] == []
    first, second = found["plugins"]
    assert (first["kernels"], first["operators"]) == (["acme::twice@1"], ["acme.Twice"])
    wanted = ["tensorflow::TopKV2", "tensorflow::Softplus", "tensorflow::AddN", "old::Ends"]
    assert (second["rules"], second["fusions"]) == (wanted, ["Silu"])
    assert found["ran"] == {"kernels": 1, "operators": 1, "rules": 4, "fusions": 1}


def test_every_failure_is_told_and_none_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    write("syntax.py", "\nx = 1 /\n")
    write(
        "fact.py",
        "import onedispatch as od\nod.frontend('onnx', domain='z').op('A', to='Relu').default(b=2)\n",
    )
    monkeypatch.setenv("ONEDISPATCH_PLUGIN_PATH", os.pathsep.join(["syntax.py", "none.py", "fact.py"]))
    rules = write(
        "rules.py",
        RULES + 'bad = od.frontend("onnx", domain="bad")\n'
        '@bad.expand("Typo")\ndef typo(g, n):\n    return g.Ad(n.inputs[0], 1.0)\n'
        '@bad.expand("Name")\ndef name(g, n):\n    return undefined\n'
        '@od.fusion("Lacks", general=False)\ndef lacks(p):\n    p.find("Mul(x, Tanh(y))")\n'
        '    return lambda g, m: m["z"]\n',
    )
    found = examined(kernel("kernels.py", "t.z[:] = t.w"), rules)
    lines = [(one["what"], one["line"], one["reason"]) for one in found["failures"]]
    assert [what for what, _, _ in lines] == [
        *["loading"] * 3,
        *("kernel acme::twice@1", "operator acme.Twice", "rule for bad::Typo", "rule for bad::Name"),
        "fusion Lacks",
    ]
    said = (
        "SyntaxError",
        "no such file",
        "'b'",
        "no 'w'",
        "no 'w'",
        "operator set 21 lacks",
        "undefined",
        "'z'",
    )
    for part, (_, _, reason) in zip(said, lines, strict=True):
        assert part in reason
    assert [line for _, line, _ in lines[:4]] == [2, 0, 2, 4] and lines[5][1] > 15
    assert {os.path.basename(one["plugin"]) for one in found["failures"][3:5]} == {"kernels.py"}
    assert found["ran"]["rules"] == 6 and "one transaction" in found["simulator"]
    od.plugins.reset()
    lines_of_text = CliRunner().invoke(app, ["doctor", "--plugin", rules]).stdout.splitlines()
    assert (
        sum(line.startswith("FAILED: ") for line in lines_of_text) == 6 and lines_of_text[-1] == "6 failures"
    )


def test_a_kernel_that_ends_the_process_is_a_failure() -> None:
    found = failures(kernel("kernels.py", "os._exit(3)"))
    assert list(found) == ["kernel acme::twice@1", "operator acme.Twice"]
    assert all("ended with exit code 3" in one["reason"] for one in found.values())


def test_a_broken_installed_plugin_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is a warning elsewhere."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for package, source in (("broken", "raise RuntimeError('half done')"), ("works", RULES)):
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{package} = {package}_doctor\n")
        (tmp_path / f"{package}_doctor.py").write_text(source)
    try:
        found = examined()
    finally:
        sys.modules.pop("works_doctor", None)
    (failure,) = found["failures"]
    assert failure["plugin"].startswith("entry point broken = ") and "half done" in failure["reason"]
    (plugin,) = found["plugins"]
    assert plugin["file"].startswith("entry point works = ") and len(plugin["rules"]) == 4
    assert len(found["paths"]["entry points"]) == 2


def test_two_plugins_with_one_name_are_a_failure_unless_the_first_is_asked_for() -> None:
    first, second = kernel("a.py"), kernel("b.py")
    (failure,) = examined(first, second)["failures"]
    assert failure["what"] == "loading" and "which" in failure["reason"]
    od.plugins.reset()
    arguments = ["doctor", "--plugin", first, "--plugin", second, "--plugin-conflict", "first"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0 and "skipped kernel acme::twice@1" in result.stdout, result.stdout
    od.plugins.reset()
    result = CliRunner().invoke(app, ["doctor", "--plugin-conflict", "last"])
    assert isinstance(result.exception, od.InputError)


def test_a_file_with_cases_is_run_on_these() -> None:
    case = '{"op": "Softplus", "inputs": [{"data": [0.0]}], "expected": [[EXPECTED]]}'
    good = write("good.py", f"{RULES}\nCASES = [{case.replace('EXPECTED', '0.6931472')}]\n")
    assert failures(good) == {}
    od.plugins.reset()
    wrong = write("wrong.py", f"{RULES}\nCASES = [{case.replace('EXPECTED', '3.5')}]\n")
    (failure,) = failures(wrong).values()
    assert failure["what"] == "rule for tensorflow::Softplus" and "where 3.5 is expected" in failure["reason"]
    od.plugins.reset()
    (failure,) = failures(write("none.py", f"{RULES}\nCASES = 7\n")).values()
    assert failure["what"] == "cases" and "a list of cases" in failure["reason"]


def test_what_nobody_can_make_up_is_a_note() -> None:
    text = """
import onedispatch as od
acme = od.frontend("onnx", domain="acme")
@acme.expand("Needs")
def needs(g, n):
    return g.Mul(n.inputs[0], n.attr("factor"))
@acme.expand("Folds")
def folds(g, n):
    return g.Mul(n.inputs[0], int(n.inputs[0].constant))
@od.fusion("Two", general=False)
def two(p):
    p.find("Mul(x, const(c))")
    p.where("c is two", lambda m: float(m["c"].constant) == 2)
    return lambda g, m: g.Add(m["x"], m["x"])
@od.maps("Own", domain="acme")
def own(node, lowering):
    raise ValueError
"""
    found = examined(write("rules.py", text))
    assert found["healthy"] and len(found["notes"]) == 4, found
    for part in ("acme.Own", "'factor'", "NoneType", "c is two"):
        assert any(part in note for note in found["notes"]), part


def test_a_simulator_that_computes_otherwise_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    run = od.InferenceSession.run
    monkeypatch.setattr(
        od.InferenceSession, "run", lambda self, *given: [one + 1 for one in run(self, *given)]
    )
    (failure,) = doctor.examine().failures
    assert failure.what == "the built-in model" and "differs from onnxruntime's" in failure.reason


def test_made_cases_have_the_inputs_of_the_signature_and_of_the_pattern() -> None:
    od.plugins.load(write("rules.py", RULES))
    rules = {rule.op_type: next(made_for_rule(rule)) for rule in registry.rules() if not rule.ours}
    assert [one.constant for one in rules["TopKV2"].inputs] == [False, True]
    assert len(rules["AddN"].inputs) == 2 and len(rules["Ends"].inputs) == 1
    (fusion,) = (one for one in registry.fusions() if one.name == "Silu")
    case = next(made_for_fusion(fusion))
    assert [node.op for node in case.nodes] == ["Sigmoid", "Mul"] and len(case.inputs) == 1
