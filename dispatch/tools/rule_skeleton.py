# SPDX-License-Identifier: Apache-2.0
"""``onedispatch rule new``: a file with a mapping rule that works, a case of it, and its tests."""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.frameworks import FRAMEWORKS
from onedispatch.dispatch.compile import read_model
from onedispatch.dispatch.compiler.options import ImportOptions
from onedispatch.dispatch.frontend.graph import Array, Graph, Node
from onedispatch.dispatch.plugins import discovery
from onedispatch.dispatch.tensorflow.signatures import ELEMENT_TYPES, signature_of
from onedispatch.dispatch.tools.rule_cases import Case, case_of, ports_of, read_prototype
from onedispatch.dispatch.tools.rule_guesses import Guess, guessed, quoted, target_of
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.files import write_file
from onedispatch.transactions.base.text import did_you_mean

_MOST = 64  # elements of a constant that are written into a case
_GUESSED_SHAPE = [2, 3]
_GUESSED_SIZE = 2
_WIDTH = 100
_NAME = re.compile(r"[A-Za-z_][\w.>-]*", re.ASCII)

RULE = '''\
"""How $spelled becomes $target, with a case of it. Checked by: onedispatch rule check $file"""

$imports

rules = od.frontend($frontend)
(
    rules.op("$op", to="$target")
$facts
)

# Nodes that `onedispatch rule check` runs: inputs with "value" are constants of the model, those with "data"
# are fed, others get seeded numbers. "expected" has the outputs; without it, REFERENCES says them.
CASES = $cases
$reference
'''

REFERENCE = '''

def $function($parameters**attributes):
    """What $op computes, in NumPy: $outputs"""
    raise NotImplementedError("write what $op computes: return $outputs")


# Operator -> a function of its inputs, in order, and its attributes by keyword.
REFERENCES = {"$op": $function}'''

# By unittest, which is Python's own; pytest runs such classes too.
TEST = '''\
"""The rules of $file, by `onedispatch rule check`: each case on the simulated array, beside its reference."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

RULES = Path(__file__).resolve().parent / "$file"


class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        command = [sys.executable, "-m", "onedispatch.dispatch.cli", "rule", "check", str(RULES), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.stdout:
            raise RuntimeError(done.stderr)
        cls.rules = json.loads(done.stdout)["rules"]

    def test_every_rule_can_be_checked(self) -> None:
        self.assertTrue(self.rules)
        for rule in self.rules:
            with self.subTest(rule["name"]):
                self.assertEqual(rule["missing"], "")

    def test_every_case_gives_what_it_should(self) -> None:
        for rule in self.rules:
            for case in rule["cases"]:
                with self.subTest(rule["name"], case=case["case"]):
                    self.assertEqual(case["reason"], "")


if __name__ == "__main__":
    unittest.main()
'''


@dataclass(frozen=True)
class Written:
    """What was written, what a person has to look at, and how to go on."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]
    commands: tuple[str, ...]


def from_prototype(path: Path) -> dict[str, Any]:
    """Returns the case of a prototype in JSON. Raises ``InputError`` unless it is one, of an operator."""
    found = read_prototype(path)
    if len(found) != 1 or not isinstance(found[0], Mapping) or not found[0].get("op"):
        raise InputError(
            str(path), f"{len(found)} prototypes, or none of an operator", '{"op": "TopKV2", ...}'
        )
    return dict(found[0])


def write(file: Path, framework: str, domain: str | None, data: Mapping[str, Any], to: str = "") -> Written:
    """Writes the rule for a case into ``file``, and its tests beside it.

    Raises ``InputError`` for a case that is none, an unknown target, and where one of the files exists.
    """
    arguments.choice("--framework", framework, FRAMEWORKS)
    _check_file(file)
    if framework != "onnx" and domain:
        raise InputError("--domain", f"{domain!r} of {framework}", "a domain, of --framework onnx")
    case = case_of(data, "the prototype")
    for name, accepted in ((case.op, "the name of an operator"), (domain or "x", "the name of a domain")):
        if not _NAME.fullmatch(name):  # it becomes text of a program
            raise InputError("rule new", repr(name), f"{accepted}, of letters, digits and _ . > -")
    guess = _guess(case, framework, to)
    words = _words(file, framework, domain, case, guess)
    words["cases"] = _cases(data)
    words["reference"] = Template(REFERENCE).substitute(words) if case.expected is None else ""
    tests = file.with_name(f"test_{file.name}")
    for path in (file, tests):
        if path.exists() or path.is_symlink():
            raise InputError("rule new", f"{path}, which exists", "a place without it", "name another file")
    for path, text in ((file, RULE), (tests, TEST)):
        write_file(path, Template(text).substitute(words).encode())
    notes = [f"{case.op}: {remark}" for remark in guess.remarks]
    if case.expected is None:
        notes.append(f"{words['function']} in {file} is to be filled in: what {case.op} computes")
    check = f"onedispatch rule check {shlex.quote(str(file))}"
    return Written((file, tests), tuple(notes), (check, f"python {shlex.quote(str(tests))}"))


def _check_file(file: Path) -> None:
    name = file.stem
    if file.suffix != ".py" or not name.isidentifier() or keyword.iskeyword(name):
        raise InputError("rule new", str(file), "a Python file whose name is an identifier: top_k.py")


def _guess(case: Case, framework: str, to: str) -> Guess:
    node = case.nodes[0]
    signature = signature_of(case.op) if framework == "tensorflow" else None
    target = target_of(case.op, to or case.to)
    names = list(node.inputs)
    if signature is not None:
        pairs = ports_of(signature, node.inputs, node.attributes)
        names = [port.name for port, listed in pairs for _ in listed] + names[sum(len(n) for _, n in pairs) :]
    constants = [one.constant for one in case.inputs]
    return guessed(target, names, constants, node.attributes, signature)


def _words(file: Path, framework: str, domain: str | None, case: Case, guess: Guess) -> dict[str, str]:
    facts = [f"    {fact}" for fact in guess.facts] + [
        f"    # {ascii(remark)[1:-1]}" for remark in guess.remarks
    ]
    parameters = [_identifier(one.name) for one in case.inputs]
    outputs = [_identifier(name) for name in case.outputs or ("result",)]
    frontend = f'"{framework}"' + (f', domain="{domain}"' if domain else "")
    return {
        "file": file.name,
        "spelled": f"{domain or framework}::{case.op}",
        "target": str(guess.target),
        "frontend": frontend,
        "op": case.op,
        "facts": "\n".join(facts),
        "imports": "import onedispatch as od",
        "function": _identifier(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", case.op).lower()),
        "parameters": "".join(f"{name}, " for name in dict.fromkeys(parameters)),
        "outputs": ", ".join(outputs),
    }


def _identifier(name: str) -> str:
    found = re.sub(r"\W", "_", name) or "x"
    return f"_{found}" if found[0].isdigit() or keyword.iskeyword(found) else found


def _cases(data: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in data.items() if key != "to"}
    return f"[\n    {_literal(kept, 4)},\n]"


def _literal(value: Any, indent: int) -> str:
    """Plain data as a formatter writes it: on one line where it fits."""
    if isinstance(value, Mapping):
        parts = [(f"{quoted(str(key))}: ", one) for key, one in value.items()]
        ends = "{}"
    elif isinstance(value, list | tuple):
        parts, ends = [("", one) for one in value], "[]"
    else:
        return quoted(value)
    flat = ends[0] + ", ".join(head + _literal(one, 0) for head, one in parts) + ends[1]
    if "\n" not in flat and len(flat) + indent < _WIDTH:
        return flat
    pad = " " * (indent + 4)
    lines = "".join(f"{pad}{head}{_literal(one, indent + 4)},\n" for head, one in parts)
    return f"{ends[0]}\n{lines}{' ' * indent}{ends[1]}"


# -- a node of a model -----------------------------------------------------------------------------


def from_node(
    model: str, name: str, framework: str, domain: str | None
) -> tuple[dict[str, Any], str | None, list[str]]:
    """Returns a case like a node of a model, its domain, and notes on what the model does not say.

    Raises ``InputError`` where there is no such node, or one of another domain.
    """
    arguments.choice("--framework", framework, FRAMEWORKS)
    discovery.ensure()
    graph = read_model(model, ImportOptions.checked(framework))
    node = next((one for one in graph.nodes if one.name == name), None)
    if node is None:
        names = [one.name for one in graph.nodes]
        accepted = "a node of the model, as `onedispatch ops check` shows it"
        raise InputError("--node", repr(name), accepted, did_you_mean(name, names))
    if node.has_subgraph:
        raise InputError("--node", f"{name}, whose attributes are graphs", "nodes without graphs inside")
    own = node.domain if framework == "onnx" else None
    if domain is not None and own != domain:
        raise InputError("--domain", repr(domain), f"{own!r}, the domain of {name}")
    notes: list[str] = []
    inputs = [_input(graph, one, notes) for one in node.inputs if one]
    if len(inputs) < len(node.inputs):
        notes.append("inputs that the node leaves out are not in the case")
    attributes = {key: _plain(value) for key, value in node.attributes.items() if not key.startswith("_")}
    data: dict[str, Any] = {"op": node.op_type, "inputs": inputs, "outputs": _output_names(node)}
    if attributes:
        data["attributes"] = attributes
    return data, own or None, notes


def _output_names(node: Node) -> list[str]:
    signature = signature_of(node.op_type) if node.domain == "tensorflow" else None
    if signature is not None and len(signature.outputs) == len(node.outputs):
        taken = set(node.inputs)
        return [f"{name}_out" if name in taken else name for name in signature.outputs]
    return [one or f"output{number}" for number, one in enumerate(node.outputs)]


def _input(graph: Graph, name: str, notes: list[str]) -> dict[str, Any]:
    array = graph.constants.get(name)
    if array is not None:
        found = {"name": name, "dtype": _named(array.dtype), "shape": list(array.shape)}
        if array.size <= _MOST:
            return {"name": name, "dtype": found["dtype"], "value": array.tolist()}
        notes.append(f"{name}: a constant of {array.size} elements; the case has seeded numbers")
        return {**found, "constant": True}
    value = graph.value(name)
    if value.dtype is None:
        notes.append(f"{name}: the model does not say its type; float32 is taken")
    if value.shape is None:
        notes.append(f"{name}: the model does not say its shape; {_GUESSED_SHAPE} is taken")
    shape = _GUESSED_SHAPE if value.shape is None else [_size(size) for size in value.shape]
    return {"name": name, "dtype": _named(value.dtype or np.dtype(np.float32)), "shape": shape}


def _size(size: Any) -> int:
    return size if isinstance(size, int) and size > 0 else _GUESSED_SIZE


def _named(dtype: Any) -> str:
    return next((name for name, one in ELEMENT_TYPES.items() if one == dtype), str(dtype))


def _plain(value: Any) -> Any:
    """An attribute as plain data; ``rule_cases`` reads it back."""
    if isinstance(value, np.dtype):
        return {"type": _named(value)}
    if isinstance(value, np.ndarray):
        return {"value": _listed(value), "dtype": _named(value.dtype)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, tuple):
        return {"shape": list(value)}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def _listed(array: Array) -> Sequence[Any]:
    found: Sequence[Any] = array.tolist()
    return found
