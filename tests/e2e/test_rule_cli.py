# SPDX-License-Identifier: Apache-2.0
"""``onedispatch rule new | check``: a rule from a prototype or a node, and rules on their cases."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.sources.targets import Target
from onedispatch.dispatch.tools.rule_guesses import guessed, target_of
from tests.plugins import node_model
from tests.tensorflow.graphdefs import GraphBuilder

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

TOP_K = {
    "op": "TopKV2",
    "to": "TopK",
    "inputs": [
        {"name": "x", "dtype": "float32", "shape": [3, 4]},
        {"name": "k", "value": 2, "dtype": "int32"},
    ],
    "outputs": ["values", {"name": "indices", "dtype": "int32"}],
    "attributes": {"sorted": True},
}
BODY = """    order = np.argsort(-x, axis=-1, kind="stable")[..., : int(k)]
    return np.take_along_axis(x, order, -1), order"""
RULES = """
import numpy as np
import onedispatch as od
tf = od.frontend("tensorflow")
tf.op("Softplus")
@tf.expand("AddN")
def add_n(g, n):
    n.attr("N")
    made = n.inputs[0]
    for one in n.inputs[1:]:
        made = g.Add(made, one)
    return made
@od.fusion("Soft", framework="tensorflow")
def soft(p):
    p.find("AddN(Softplus(x), y)")
    return lambda g, m: g.Add(g.Softplus(m["x"]), m["y"])
"""
SUM = '{"op": "AddN", "inputs": [{"name": n, "shape": [2, 3]} for n in "abc"]}'
SOFTPLUS = '{"op": "Softplus", "inputs": [{"name": "x", "shape": [5]}]}'
SOFT = """{"fusion": "Soft", "inputs": [{"name": "x", "shape": [4]}, {"name": "y", "shape": [4]}],
  "nodes": [{"op": "Softplus", "inputs": ["x"], "outputs": ["s"]},
            {"op": "AddN", "inputs": ["s", "y"], "outputs": ["z"]}], "outputs": ["z"]}"""
GOOD = 'REFERENCES = {"AddN": lambda *x, N: sum(x), "Softplus": lambda x: np.log1p(np.exp(x))}'


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    od.plugins.reset()
    yield
    od.plugins.reset()


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["rule", *arguments])


def refusal(*arguments: str) -> str:
    result = invoke(*arguments)
    assert isinstance(result.exception, od.OneDispatchError), result.output
    return str(result.exception)


def checked(file: str, *arguments: str) -> dict[str, Any]:
    """Each rule by name."""
    result = invoke("check", file, *arguments, "--json")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    found = json.loads(result.stdout)
    assert result.exit_code == (0 if found["clean"] else 1)
    return {row["name"]: row for row in found["rules"]}


def prototype(data: Any, name: str = "p.json") -> str:
    Path(name).write_text(json.dumps(data))
    return name


def rules(*cases: str, more: str = GOOD) -> str:
    Path("rules.py").write_text(f"{RULES}\n{more}\nCASES = [{', '.join(cases)}]\n")
    return "rules.py"


# -- new ------------------------------------------------------------------------------------------


def test_a_rule_of_a_prototype_works_once_its_reference_is_written() -> None:
    said = invoke("new", "top_k.py", "--framework", "tensorflow", "--from", prototype(TOP_K)).stdout
    assert "top_kv2 in top_k.py is to be filled in" in said and "onedispatch rule check top_k.py" in said
    text = Path("top_k.py").read_text()
    assert '    rules.op("TopKV2", to="TopK")\n    .auto()\n    .default(largest=1, axis=-1)\n' in text
    (row,) = checked("top_k.py").values()
    assert "no reference" in row["missing"]
    assert "it runs, and gives float32[3, 2], int32[3, 2]" in row["cases"][0]["reason"]
    body = '    raise NotImplementedError("write what TopKV2 computes: return values, indices")'
    assert body in text
    Path("top_k.py").write_text(
        text.replace(body, BODY).replace("import one", "import numpy as np\nimport one")
    )
    od.plugins.reset()
    (row,) = checked("top_k.py").values()
    assert not row["failed"] and row["cases"][0]["written"][0].startswith("values, ")
    done = subprocess.run([sys.executable, "test_top_k.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_tests_beside_it_fail_where_a_case_does() -> None:
    data = {
        **TOP_K,
        "op": "Softplus",
        "to": "",
        "inputs": [{"name": "x", "data": [0.0, 1.0]}],
        "outputs": ["y"],
    }
    data |= {"attributes": {}, "expected": [[0.0, 1.0]]}
    invoke("new", "softplus.py", "--framework", "tensorflow", "--from", prototype(data))
    assert "REFERENCES =" not in Path("softplus.py").read_text()
    done = subprocess.run([sys.executable, "test_softplus.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "where 0.0 is expected" in done.stderr
    (row,) = checked("softplus.py").values()
    (case,) = row["cases"]
    assert "output y[0]: 0.69" in case["reason"] and "ULP of float32" in case["reason"]
    assert case["beside"] == "expected of the case" and case["outputs"][0]["index"] == [0]


def test_a_rule_of_a_node_of_an_onnx_model() -> None:
    proto = node_model("Reducing", [2, 3], inputs="x", keep_dims=1)
    axis = helper.make_tensor("axis", onnx.TensorProto.INT64, [1], [1])
    proto.graph.node[0].input.append("axis")
    proto.graph.initializer.append(axis)
    onnx.save(proto, "m.onnx")
    given = ("new", "mean.py", "--framework", "onnx", "--model", "m.onnx", "--node", "n0")
    invoke(*given, "--to", "ReduceMean")
    text = Path("mean.py").read_text()
    assert 'od.frontend("onnx", domain="acme")' in text and '.rename(keep_dims="keepdims")' in text
    function = "def reducing(x, axis, **attributes):"
    assert function in text and '{"name": "axis", "dtype": "int64", "value": [1]}' in text
    head, _, tail = text.partition(function)
    tail = "\n\n\n" + tail.partition("\n\n\n")[2]
    Path("mean.py").write_text(f"{head}{function}\n    return x.mean(1, keepdims=True){tail}")
    (row,) = checked("mean.py").values()
    assert (row["name"], row["target"], row["failed"]) == ("acme::Reducing", "ReduceMean", False), row


def test_a_rule_of_a_node_of_a_graphdef() -> None:
    b = GraphBuilder()
    axes = b.const("axes", np.array([1], np.int32))
    x = b.op("Sum", b.placeholder("x", "float32", [2, 3]), axes, name="inner/sum", keep_dims=True)
    b.op("MatMul", x, b.const("wide", np.ones((20, 20), np.float32)), name="product")
    Path("g.pb").write_bytes(b.graphdef().SerializeToString())
    given = ("--framework", "tensorflow", "--model", "g.pb", "--node")
    said = invoke("new", "s.py", *given, "inner/sum", "--to", "ReduceSum").stdout
    assert "note" in said and 'rename(keep_dims="keepdims")' in Path("s.py").read_text()
    text = (
        Path("s.py")
        .read_text()
        .replace(
            'raise NotImplementedError("write what Sum computes: return output")',
            "return x.sum(1, keepdims=keep_dims)",
        )
    )
    Path("s.py").write_text(text.replace("**attributes", "keep_dims"))
    (row,) = checked("s.py").values()
    assert not row["failed"], row
    said = invoke("new", "product.py", *given, "product").stdout
    assert "wide: a constant of 400 elements" in said and "does not say its shape" in said


def test_nothing_is_overwritten() -> None:
    given = ("--framework", "tensorflow", "--from", prototype(TOP_K))
    for name in ("a.py", "test_b.py"):
        Path(name).write_text("mine")
        assert "which exists" in refusal("new", name.removeprefix("test_"), *given)
        assert Path(name).read_text() == "mine"
    assert not Path("b.py").exists() and not Path("test_a.py").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"op": "Nothing", "to": ""}, "ONNX has no Nothing"),
        ({"to": "TopQ"}, "Did you mean 'TopK'?"),
        ({"to": "a b"}, "acme::Name"),
        ({"op": 'X"); import os; ("'}, "letters, digits"),
        ({"inputs": [{"name": "x", "dtype": "float33", "shape": [1]}]}, "float33"),
        ({"inputs": [{"name": "x", "dtype": "int8", "value": [1, "a"]}]}, "numbers of int8"),
        ({"inputs": [{"name": "x"}]}, "neither a shape nor a value"),
        ({"inputs": [{"name": "x", "shape": [-1]}]}, "a whole number, 0 or more"),
        ({"inputs": [{"nam": "x", "shape": [1]}]}, "Did you mean 'name'?"),
        ({"inputs": [{"name": "x", "shape": [1]}] * 2}, "each name once"),
        ({"attribute": {}}, "Did you mean 'attributes'?"),
        ({"attributes": {"a": {"b": 1}}}, "attribute 'a'"),
        ({"op": ""}, "or none of an operator"),
    ],
)
def test_bad_prototypes_are_refused(change: dict[str, Any], said: str) -> None:
    given = ("--framework", "tensorflow", "--from", prototype({**TOP_K, **change}))
    assert said in refusal("new", "bad.py", *given)
    assert not Path("bad.py").exists()


def test_bad_arguments_are_refused() -> None:
    name = prototype(TOP_K)
    Path("broken.json").write_text("{")
    onnx.save(node_model("Twice", [2]), "m.onnx")
    model = ("--framework", "onnx", "--model", "m.onnx", "--node")
    cases = (
        (("a.py", "--framework", "torch", "--from", name), "'onnx', 'tensorflow'"),
        (("a.txt", "--framework", "onnx", "--from", name), "a Python file"),
        (("a.py", "--framework", "tensorflow", "--domain", "acme", "--from", name), "--framework onnx"),
        (("a.py", "--framework", "onnx", "--from", "none.json"), "none.json"),
        (("a.py", "--framework", "onnx", "--from", "broken.json"), "a prototype in JSON"),
        (("a.py", "--framework", "onnx"), "--from PROTOTYPE.json, or"),
        (("a.py", "--framework", "onnx", "--model", "m.onnx"), "--from PROTOTYPE.json, or"),
        (("a.py", *model, "n00"), "Did you mean 'n0'?"),
        (("a.py", *model, "n0", "--domain", "other"), "'acme', the domain of n0"),
    )
    for arguments, said in cases:
        assert said in refusal("new", *arguments), arguments


def test_guesses() -> None:
    assert str(target_of("SoftmaxV2", "")) == "Softmax" and str(target_of("matmul", "")) == "MatMul"
    facts = guessed(Target("", "Unsqueeze"), ["x"], [False], {"axes": [1]}, None).facts
    assert facts == [".auto()", '.input_from_attr("axes", 1)']
    guess = guessed(Target("", "Softmax"), ["x", "axis"], [False, True], {"beta": 2.0}, None)
    assert guess.facts == [".auto()", '.attr_from_input(1, "axis")']
    assert guess.remarks == ["nothing is made of beta=2.0: .compute(...) it, or .ignore('beta') it"]
    assert "the target needs to" in guessed(Target("", "Cast"), ["x"], [False], {}, None).remarks[0]
    assert guessed(Target("acme", "Foo"), ["x"], [False], {"a": 1}, None).facts == [".auto()"]


# -- check ----------------------------------------------------------------------------------------


def test_rules_and_fusions_with_cases_pass() -> None:
    rows = checked(rules(SUM, SOFTPLUS, SOFT))
    assert list(rows) == ["tensorflow::Softplus", "tensorflow::AddN", "fusion Soft"]
    assert not any(row["failed"] for row in rows.values()), rows
    (case,) = rows["fusion Soft"]["cases"]
    assert case["beside"] == "the same nodes without the fusion" and len(case["written"]) == 2
    assert rows["tensorflow::AddN"]["line"] == 6 and rows["tensorflow::AddN"]["file"].endswith("rules.py")


def test_what_lacks_a_case_or_a_reference_is_named() -> None:
    rows = checked(rules(SUM, more="REFERENCES = {}"))
    assert "no case" in rows["tensorflow::Softplus"]["missing"]
    assert "no case" in rows["fusion Soft"]["missing"]
    assert "no reference" in rows["tensorflow::AddN"]["missing"]
    text = invoke("check", "rules.py").stdout
    assert "CASES has none of 'Softplus'" in text and "neither REFERENCES['AddN']" in text


def test_prototypes_are_cases_too() -> None:
    name = prototype({"op": "Softplus", "inputs": [{"name": "x", "shape": [2, 2]}]})
    rows = checked(rules(SUM, SOFT, f"'{name}'"), "--from", name)
    assert len(rows["tensorflow::Softplus"]["cases"]) == 2 and not rows["tensorflow::Softplus"]["failed"]


def test_a_case_that_fails_has_its_numbers_and_what_was_written() -> None:
    wrong = 'REFERENCES = {"AddN": lambda *x, N: sum(x) + np.eye(2, 3, 1, np.float32) * N}'
    row = checked(rules(SUM, more=wrong))["tensorflow::AddN"]
    (case,) = row["cases"]
    assert case["reason"].startswith("output node[0, 1]: ") and "error 3, " in case["reason"]
    assert [line.partition(" = ")[2] for line in case["written"]] == ["Add(a, b)", "Add(node/Add, c)"]
    text = invoke("check", "rules.py").stdout
    assert "AddN: FAILED: output node[0, 1]" in text and "wrote: node = Add(node/Add, c)" in text


@pytest.mark.parametrize(
    ("more", "case", "said"),
    [
        ('REFERENCES = {"AddN": lambda *x, N: x[9]}', SUM, "IndexError"),
        ('REFERENCES = {"AddN": lambda *x, N: x}', SUM, "3 expected, of the outputs node"),
        ('REFERENCES = {"AddN": lambda *x, N: sum(x)[0]}', SUM, "shape [2, 3], where [3] is expected"),
        ('REFERENCES = {"AddN": lambda *x, N: sum(x) > 0}', SUM, "float32, where bool is expected"),
        ("", SOFT.replace("AddN", "Softplus").replace('"s", "y"', '"s"'), "its pattern is not in"),
        ("", SOFT.replace("AddN", "Unheard"), "no rule maps"),
    ],
)
def test_why_a_case_fails(more: str, case: str, said: str) -> None:
    reasons = [one["reason"] for row in checked(rules(case, more=more)).values() for one in row["cases"]]
    assert len(reasons) == 1 and said in reasons[0], reasons


def test_a_rule_that_raises_fails_its_case_alone() -> None:
    more = 'REFERENCES = {"Boom": lambda x: x, "Softplus": lambda x: np.log1p(np.exp(x))}'
    boom = '@tf.expand("Boom")\ndef boom(g, n):\n    return g.Nothing(n.inputs[0])\n'
    rows = checked(rules('{"op": "Boom", "inputs": [{"shape": [2]}]}', SOFTPLUS, more=boom + more))
    assert "that ONNX's operator set 21 lacks" in rows["tensorflow::Boom"]["cases"][0]["reason"]
    assert not rows["tensorflow::Softplus"]["failed"]


def test_each_version_is_a_rule_of_its_own() -> None:
    Path("rules.py").write_text(
        "import onedispatch as od\n"
        'acme = od.frontend("onnx", domain="acme")\n'
        'acme.op("Soft", to="Softplus", versions=(1, 2))\n'
        'acme.op("Soft", to="Relu", versions=(3, None))\n'
        'CASES = [{"op": "Soft", "version": 2, "inputs": [{"data": [0.0]}], "expected": [[0.6931472]]},\n'
        '         {"op": "Soft", "version": 5, "inputs": [{"data": [0.0]}], "expected": [[0]]}]\n'
    )
    rows = checked("rules.py")
    assert [len(row["cases"]) for row in rows.values()] == [1, 1] and not any(
        r["failed"] for r in rows.values()
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import onedispatch", "a plug-in that registers nothing"),
        ("x = 1 / 0", "ZeroDivisionError"),
        (f"{RULES}\nCASES = 3", "a list of cases"),
        (f"{RULES}\nREFERENCES = [1]", "a dict of functions"),
        (f'{RULES}\nCASES = [{{"op": "Softplu", "inputs": []}}]', "Did you mean 'Softplus'?"),
        (f'{RULES}\nREFERENCES = {{"Addn": sum}}', "Did you mean 'AddN'?"),
        (f'{RULES}\nCASES = ["none.json"]', "none.json"),
        (f'{RULES}\nCASES = [{{"op": "AddN", "fusion": "Soft"}}]', "the operator of a rule"),
    ],
)
def test_bad_files_are_refused(text: str, said: str) -> None:
    Path("rules.py").write_text(text)
    assert said in refusal("check", "rules.py")


def test_no_file_is_refused() -> None:
    assert "none.py" in refusal("check", "none.py")
