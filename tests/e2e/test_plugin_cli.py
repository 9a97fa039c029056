# SPDX-License-Identifier: Apache-2.0
"""Plug-ins on the command line: new, list, show; ``--plugin`` where models are compiled and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app, output
from onedispatch.dispatch.plugins import skeleton
from tests.plugins import node_model

PATH, CONFLICT = "ONEDISPATCH_PLUGIN_PATH", "ONEDISPATCH_PLUGIN_CONFLICT"
LANGUAGES = ("python", "cpp")
FILES = {
    "python": {"acme.py", "test_acme.py", "pyproject.toml"},
    "cpp": {"acme.cpp", "acme/__init__.py", "test_acme.py", "pyproject.toml"},
}


pytestmark = pytest.mark.usefixtures("no_plugins")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(output.console, "_width", 400)  # no name of a file is wrapped
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> od.OneDispatchError:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert isinstance(result.exception, od.OneDispatchError), result.output
    return result.exception


@pytest.fixture
def plugin() -> Path:
    """The Python file of a new skeleton."""
    invoke("kernel", "new", "acme", "--python")
    return Path("acme/acme.py").resolve()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of one node ScaleAdd of domain acme."""
    path = tmp_path / "m.onnx"
    onnx.save(node_model("ScaleAdd", [4, 8], inputs="x y", name="both", a=2.0), path)
    return path


# -- new ------------------------------------------------------------------------------------------


@pytest.mark.daily(2)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_new_skeleton_works_at_once(language: str, tmp_path: Path) -> None:
    told = invoke("kernel", "new", "acme", f"--{language}")
    written = {p.relative_to("acme").as_posix() for p in Path("acme").rglob("*") if p.is_file()}
    assert written == FILES[language] and "python -m pytest" in told
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=tmp_path / "acme", capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0 and "7 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.daily(2)
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_tests_of_a_skeleton_need_no_pytest(language: str, tmp_path: Path) -> None:
    """Which the normal install lacks: the command that is named runs them with Python alone."""
    shown = invoke("kernel", "new", "acme", f"--{language}")
    commands = shown.partition("Next:")[2].split("\n")
    assert "  python test_acme.py" in commands and not any("pytest" in line for line in commands)
    script = "import runpy, sys; sys.modules['pytest'] = None; runpy.run_path('test_acme.py', {}, '__main__')"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path / "acme", capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0 and "7 passed, 0 failed" in done.stdout, done.stdout + done.stderr
    source = tmp_path / "acme" / "test_acme.py"
    source.write_text(source.read_text().replace("np.float32(0.5) * x", "np.float32(0.25) * x"))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path / "acme", capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 1 and "2 passed, 5 failed" in done.stdout, done.stdout + done.stderr


def test_the_build_command_is_one_line_of_gxx(tmp_path: Path) -> None:
    told = invoke("kernel", "new", "acme::blur", "--cpp", "--folder", "with space/here")
    (build,) = [line.strip() for line in told.splitlines() if "g++" in line]
    folder = tmp_path / "with space" / "here"
    assert build in (folder / "acme.cpp").read_text() and f"cd '{folder.relative_to(tmp_path)}'" in told
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(build, shell=True, cwd=folder, env=environment, timeout=240, check=False)
    assert done.returncode == 0
    (plugin,) = od.plugins.load(folder / "acme" / "libacme.so")
    assert plugin.kernels == ("acme::blur@1",) and plugin.operators == ("acme.Blur",)


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_there_is_not_overwritten(language: str) -> None:
    for name in sorted(FILES[language]):
        folder = Path(name.replace("/", "_"))
        file = folder / name
        file.parent.mkdir(parents=True)
        file.write_text("mine")
        text = str(refused("kernel", "new", "acme", f"--{language}", "--folder", folder))
        assert str(file) in text and "which exists" in text
        assert file.read_text() == "mine" and [p for p in folder.rglob("*") if p.is_file()] == [file]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "a namespace"),
        ("Acme", "lower-case"),
        ("1acme", "lower-case"),
        ("ac-me", "lower-case"),
        ("../acme", "lower-case"),
        ("acme::", "a namespace"),
        ("acme::Blur", "lower-case"),
        ("acme::a::b", "a namespace"),
        ("acme\n", "lower-case"),
        ("od", "which is ours"),
        ("od::mine", "which is ours"),
        ("class", "no module already"),
        ("json", "no module already"),
        ("onedispatch", "no module already"),
        ("a" * 65, "76 bytes; accepted: names of at most 64 bytes"),
        ("acme::" + "b" * 59, "65 bytes"),
    ],
)
def test_names_that_kernels_cannot_have(name: str, said: str) -> None:
    assert said in str(refused("kernel", "new", name)) and not list(Path.cwd().iterdir())


def test_the_longest_name(tmp_path: Path) -> None:
    skeleton.write("acme::" + "b" * 58, "python", tmp_path / "a")
    (plugin,) = od.plugins.load(tmp_path / "a" / "acme.py")
    assert plugin.kernels == ("acme::" + "b" * 58 + "@1",)


# -- list, show, ops ------------------------------------------------------------------------------


def test_kernels_are_listed_with_the_file_that_they_are_from(
    plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    rows = {row["name"]: row for row in json.loads(invoke("kernel", "list", "--json", "--plugin", plugin))}
    assert rows["acme::scale_add@1"]["file"] == str(plugin) and rows["od::gemm@1"]["file"] == ""
    assert list(rows) == od.kernels()
    listed = invoke("kernel", "list", "--plugin", plugin)
    assert "acme::scale_add@1" in listed and str(plugin) in listed
    assert invoke("kernel", "list", "--plugin", plugin, "--device", "npu2").count("acme::") == 1
    assert "npu9" in str(refused("kernel", "list", "--device", "npu9"))


def test_kernels_of_some_devices_are_listed_for_these(tmp_path: Path, plugin: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(plugin.read_text().replace('outputs="z"', 'outputs="z", devices="npu1"'))
    for device, count in (("npu1", 1), ("phoenix", 1), ("npu2", 0)):
        assert (
            invoke("kernel", "list", "--json", "--plugin", file, "--device", device).count('"acme::') == count
        )
        assert od.kernels(device).count("acme::scale_add@1") == count


def test_a_kernel_is_shown_with_what_it_declares(plugin: Path) -> None:
    shown = invoke("kernel", "show", "acme::scale_add", "--plugin", plugin)
    for text in ("z = a*x + y", "acme.py", "per node", "f32", "a number", "ASSUMPTION", "assumed", "0 to 5"):
        assert text in shown, text
    (told,) = [
        row for row in json.loads(invoke("kernel", "list", "--json")) if row["name"] == "acme::scale_add@1"
    ]
    assert json.loads(invoke("kernel", "show", "scale_add", "--json")) == told
    assert "acme::scale_add@1" in str(refused("kernel", "show", "scale"))


def test_operators_of_plugins_are_listed(plugin: Path) -> None:
    rows = json.loads(invoke("ops", "scaleadd", "--json", "--plugin", plugin))
    assert [(row["domain"], row["plugin"]) for row in rows] == [("acme", str(plugin))]
    assert "acme.ScaleAdd" in invoke("ops", "ScaleAdd") and "plug-in" not in invoke("ops", "relu")


# -- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["option", "environment"])
def test_a_model_is_run_compiled_and_inspected(
    given: str, plugin: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more: list[object] = ["--plugin", plugin]
    if given == "environment":
        monkeypatch.setenv(PATH, str(plugin))
        more = []
    told = json.loads(invoke("run", model, "--random", "--fallback", "error", "--json", *more))
    assert told["outputs"][0]["shape"] == [4, 8] and told["report"]["cycles"] > 0
    (found,) = json.loads(invoke("inspect", model, "--json", *more))
    assert found["placement"][0]["device"] == "npu"
    assert json.loads(invoke("compile", model, "-o", "m.od", "--json", *more))["placement"] == {"npu": 1}
    for command in (["run", "m.od", "--random"], ["inspect", "m.od"], ["txn", "dump", "m.od"]):
        invoke(*command, *more)


def test_a_saved_model_without_its_plugin(plugin: Path, model: Path) -> None:
    invoke("compile", model, "-o", "m.od", "--plugin", plugin)
    command = [sys.executable, "-m", "onedispatch.dispatch.cli", "run", "m.od", "--random"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "kernel acme::scale_add@1 (digest 0x" in done.stderr and "--plugin" in done.stderr
    done = subprocess.run([*command, "--plugin", str(plugin)], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0


def test_two_plugins_with_one_name(plugin: Path, tmp_path: Path, model: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(plugin.read_text())
    both = ["--plugin", plugin, "--plugin", other]
    text = str(refused("inspect", model, *both))
    assert str(plugin) in text and str(other) in text and "--plugin-conflict first" in text
    od.plugins.reset()
    invoke("inspect", model, *both, "--plugin-conflict", "first")
    assert [bool(p.skipped) for p in od.plugins.loaded()] == [False, True]
    assert "'error', 'first'" in str(refused("inspect", model, "--plugin-conflict", "last"))


def test_a_plugin_that_is_not_there(model: Path) -> None:
    for command in (["run"], ["inspect"], ["compile", "-o", "m.od"]):
        text = str(refused(*command, model, "--plugin", "none.so"))
        assert "plug-in none.so (--plugin): given no such file" in text


# -- ours -----------------------------------------------------------------------------------------

OURS = """
import onedispatch as od

@od.kernel("acme::twice", inputs="x", outputs="y")
class Twice:
    def infer(self, n): return {"y": n["x"].like()}
    def index_space(self, n): return n["x"].shape
    def access(self, n): return n.elementwise("x", "y")
    def body(self, t): t.y[:] = t.x + t.x

od.maps("Relu"OVERRIDE)(Twice)
"""


def test_an_operator_of_ours_is_replaced_where_that_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "twice.py"
    file.write_text(OURS.replace("OVERRIDE", ""))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    array = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    with pytest.raises(od.KernelLibraryError, match="operator Relu, which onedispatch itself has already"):
        od.plugins.load(file)
    (plugin,) = od.plugins.load(file, on_conflict="first")
    assert plugin.operators == () and "operator Relu" in plugin.skipped[0]
    (relu,) = od.InferenceSession(model, fallback="error").run(None, {"x": array})
    np.testing.assert_array_equal(relu, np.maximum(array, 0))
    od.plugins.reset()
    file.write_text(OURS.replace("OVERRIDE", ", override=True"))
    (twice,) = od.InferenceSession(model, fallback="error", plugins=[file]).run(None, {"x": array})
    np.testing.assert_array_equal(twice, 2 * array)
    row = {row["op_type"]: row for row in json.loads(invoke("ops", "Relu", "--json"))}["Relu"]
    assert row["plugin"] == str(file)
