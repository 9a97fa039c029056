# SPDX-License-Identifier: Apache-2.0
"""Examines an installation: versions, paths, and every plug-in with all that it registers, run once.

Nothing stops at a failure. What cannot be run without knowing more, such as a rule that asks for an attribute
that a made-up node lacks, is a note and no failure.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.driver.compile_model import compile_model, imported
from onedispatch.dispatch.plugins import discovery
from onedispatch.dispatch.plugins.entry_points import described, installed
from onedispatch.dispatch.plugins.files import search_path
from onedispatch.dispatch.plugins.loading import Plugin
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.dispatch.tools.compare import Question, compare
from onedispatch.dispatch.tools.examinations import Failure, Outcome, examine_kernels, examine_rules
from onedispatch.transactions.base.errors import OneDispatchError, RuleError, statement_of

PACKAGES = ("onedispatch", "numpy", "onnx", "onnxruntime", "ml_dtypes", "msgpack", "tensorboard", "protobuf")
_COMPILER = re.compile(rb"GCC: \([^)\0]*\) [0-9.]+|(?:clang|Clang) version [0-9.]+")
_PLACE = re.compile(r"(?P<file>[^\s,(]+), line (?P<line>\d+)")
_TOLERANCE = 1e-5  # of the largest number


@dataclass
class PluginReport:
    """A plug-in, and what it registered."""

    file: str
    named_by: str
    kernels: list[str] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    fusions: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What was found. ``ran`` counts what was run, by kind; ``notes`` are things that could not be."""

    versions: dict[str, str]
    paths: dict[str, list[str]]
    plugins: list[PluginReport] = field(default_factory=list)
    ran: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    simulator: str = ""

    @property
    def healthy(self) -> bool:
        return not self.failures

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"healthy": self.healthy}


def examine(named: Sequence[str] = ()) -> Report:
    """Examines the installation, and the plug-ins ``named`` beside those that are found."""
    report = Report(versions(), paths())
    for plugin, error in discovery.load_each(named):
        report.failures.append(failure_of(plugin, "loading", error))
    loaded = discovery.loaded()
    report.plugins = [_described(plugin) for plugin in loaded]
    for outcome in (examine_kernels(loaded), examine_rules(loaded)):
        _add(report, outcome)
    _check_simulator(report)
    return report


def _add(report: Report, outcome: Outcome) -> None:
    report.failures += outcome.failures
    report.notes += outcome.notes
    report.ran |= outcome.ran


def failure_of(plugin: str, what: str, error: OneDispatchError) -> Failure:
    """Returns a failure with the file and line that an error names."""
    text = statement_of(error)
    if isinstance(error, RuleError) and error.file:
        return Failure(plugin, what, error.file, error.line, text)
    place = _PLACE.search(text)
    file, line = (
        (place["file"], int(place["line"])) if place else (plugin if os.path.exists(plugin) else "", 0)
    )
    return Failure(plugin, what, file, line, text)


def _described(plugin: Plugin) -> PluginReport:
    rules = [name for name in plugin.rules if name.startswith("rule for ")]
    return PluginReport(
        plugin.file,
        plugin.named_by,
        list(plugin.kernels),
        list(plugin.operators),
        [name.removeprefix("rule for ") for name in rules],
        [name for name in plugin.rules if name not in rules],
        list(plugin.skipped),
    )


# -- versions and paths ----------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """Returns versions by name, of Python, the packages that count, and the extension's compiler."""
    found = {
        "Python": f"{platform.python_version()} ({platform.python_implementation()}, {platform.machine()})"
    }
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["compiler of the extension"] = _compiler(_extensions()[0])
    return found


def _extensions() -> list[str]:
    native = find_spec("onedispatch.transactions.format._native")
    return [str(core.__file__), *([str(native.origin)] if native is not None else [])]


def _compiler(file: str) -> str:
    try:
        found = _COMPILER.search(Path(file).read_bytes())
    except OSError:
        found = None
    return "unknown" if found is None else found.group().decode()


def paths() -> dict[str, list[str]]:
    """Returns where things are, by what they are."""
    package = sys.modules.get("onedispatch")
    settings = sorted(name for name in os.environ if name.startswith("ONEDISPATCH_"))
    return {
        "package": [str(getattr(package, "__file__", "unknown"))],
        "extension modules": _extensions(),
        "Python": [sys.executable],
        "ONEDISPATCH_PLUGIN_PATH": search_path(),
        "entry points": [described(point) for point in installed()],
        "settings": [f"{name}={os.environ[name]}" for name in settings],
        "configuration and cache": [],  # there are none: what a run needs is in its arguments
    }


# -- the simulator ---------------------------------------------------------------------------------


def tiny_model() -> ModelProto:
    """Returns a product, a bias and a function: what most models are made of."""
    rng = np.random.default_rng(7)
    given = {"w": rng.standard_normal((8, 6)), "b": rng.standard_normal(6)}
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in given.items()]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
        helper.make_node("Add", ["product", "b"], ["sum"], name="sum"),
        helper.make_node("Tanh", ["sum"], ["y"], name="function"),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [4, 8]), ("y", [4, 6]))
    )
    graph = helper.make_graph(nodes, "tiny", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _check_simulator(report: Report) -> None:
    """A tiny model is compiled, run, and compared with onnxruntime."""
    model = tiny_model()
    feed = {"x": np.random.default_rng(8).standard_normal((4, 8)).astype(np.float32)}
    try:
        compiled = compile_model(model, fallback="error")
        session = InferenceSession(compiled)
        answers = session.run(None, feed)
        question = Question(model, imported(model), _TOLERANCE)
        found = compare(question, feed, answers, compiled)
    except OneDispatchError as error:
        report.failures.append(failure_of("onedispatch", "the built-in model", error))
        report.simulator = "fails"
        return
    first, ran = found.first, session.last_run
    if first is not None:
        text = f"value {first.value} differs from onnxruntime's by {first.relative:.3g} of its largest number"
        report.failures.append(Failure("onedispatch", "the built-in model", "", 0, text))
    cycles = f", {ran.cycles:,} cycles" if ran is not None else ""
    report.simulator = f"the built-in model runs as one transaction{cycles}, beside {found.beside}"
