# SPDX-License-Identifier: Apache-2.0
"""Compiled models that are kept in a folder: what finds one again, what does not, and folders that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.driver import cache_folder, model_cache
from onedispatch.dispatch.driver import compile_model as driver
from onedispatch.dispatch.driver.cache_folder import CacheWarning, default_folder, folder, kept

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

pytestmark = pytest.mark.usefixtures("no_plugins")

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 32] x) => (float[N, 32] y)'
PLUGIN = """
import onedispatch as od


@od.kernel("own::twice", inputs="x", outputs="y")
class Twice:
    def infer(self, n):
        return {"y": n["x"].like()}

    def index_space(self, n):
        return n["x"].shape

    def access(self, n):
        return n.elementwise("x", "y")

    def body(self, t):
        t.y[:] = t.x + t.x
"""
X = np.arange(64, dtype=np.float32).reshape(2, 32)
SHAPES = {"x": (2, 32)}


def weighted(scale: float = 1.0) -> onnx.ModelProto:
    proto = parser.parse_model(f"{TEXT} {{ h = MatMul(x, w) y = Relu(h) }}")
    w = np.random.default_rng(0).standard_normal((32, 32), np.float32) * np.float32(scale)
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return proto


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(weighted(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows with every model that is compiled, and not read."""
    seen: list[object] = []
    import_one = driver._imported

    def counted(model: Any, *rest: Any) -> Any:
        seen.append(model)
        return import_one(model, *rest)

    monkeypatch.setattr(driver, "_imported", counted)
    return seen


def result(compiled: od.CompiledModel) -> np.ndarray[Any, Any]:
    answers: list[np.ndarray[Any, Any]] = od.InferenceSession(compiled).run(None, {"x": X})
    return answers[0]


def test_an_equal_model_is_read(model: Path, place: Path, compiles: list[object]) -> None:
    first = od.compile(model, shapes=SHAPES, cache=place)
    again = od.compile(model, shapes=SHAPES, cache=place)
    assert len(compiles) == 1 and len(kept(place)) == 1
    np.testing.assert_array_equal(result(again), result(first))
    assert np.abs(result(again)).max() > 1 and again.placement == first.placement
    assert again.options == first.options and again.source is not None
    assert kept(place)[0].path.name.startswith("m-npu2-fp32-")


CHANGES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "weights": lambda path: onnx.save(weighted(2.0), path) or {},
    "precision": lambda _: {"precision": "bf16"},
    "device": lambda _: {"device": "npu1"},
    "shapes": lambda _: {"shapes": {"x": (4, 32)}},
    "profiles": lambda _: {"profiles": [{"x": (4, 32)}]},
    "outputs": lambda _: {"outputs": ["h"]},
    "freeze": lambda _: {"freeze": {"x": X}, "shapes": {}},
    "groups": lambda _: {"groups": "off"},
    "catalog": lambda _: {"catalog": "none"},
    "cache_size": lambda _: {"cache_size": 3},
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_model_or_option_is_compiled(
    name: str, model: Path, place: Path, compiles: list[object]
) -> None:
    od.compile(model, shapes=SHAPES, cache=place)
    options = {"shapes": SHAPES, **CHANGES[name](model)}
    for _ in range(2):
        od.compile(model, cache=place, **options)
    assert len(compiles) == 2 and len(kept(place)) == 2


def test_external_data_counts(tmp_path: Path, place: Path, compiles: list[object]) -> None:
    path = tmp_path / "e.onnx"
    answers = []
    for scale in (1.0, 2.0):
        onnx.save(weighted(scale), path, save_as_external_data=True, location="e.data", size_threshold=0)
        answers.append(result(od.compile(path, shapes=SHAPES, cache=place)))
        (tmp_path / "e.data").unlink()
    assert len(compiles) == 2
    np.testing.assert_allclose(answers[1], 2 * answers[0], rtol=1e-6)


def test_a_selector_and_plug_ins_keep_nothing(model: Path, place: Path, tmp_path: Path) -> None:
    od.compile(model, shapes=SHAPES, cache=place, selector=od.CatalogSearch([]))
    assert not kept(place)
    plugin = tmp_path / "own.py"
    plugin.write_text(PLUGIN)
    script = (
        "import sys, onedispatch as od\n"
        "od.compile(sys.argv[1], shapes={'x': (2, 32)}, cache=sys.argv[2], plugins=sys.argv[3:])\n"
    )
    command = [sys.executable, "-c", script, str(model), str(place)]
    subprocess.run([*command, str(plugin)], check=True, env=_here(), timeout=120)
    assert not kept(place)
    subprocess.run(command, check=True, env=_here(), timeout=120)
    assert len(kept(place)) == 1


def _here() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_changed_package_reads_nothing_old(
    model: Path, place: Path, compiles: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    od.compile(model, shapes=SHAPES, cache=place)
    monkeypatch.setattr(model_cache, "_of_package", lambda: (b"another source",))
    od.compile(model, shapes=SHAPES, cache=place)
    assert len(compiles) == 2


def test_a_damaged_entry_is_a_warning_and_written_again(
    model: Path, place: Path, compiles: list[object]
) -> None:
    expected = result(od.compile(model, shapes=SHAPES, cache=place))
    (one,) = kept(place)
    data = bytearray(one.path.read_bytes())
    data[len(data) // 2] ^= 1
    for damaged in (bytes(data), bytes(data[:100]), b""):
        one.path.write_bytes(damaged)
        with pytest.warns(CacheWarning, match="the model is compiled again"):
            np.testing.assert_array_equal(result(od.compile(model, shapes=SHAPES, cache=place)), expected)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            od.compile(model, shapes=SHAPES, cache=place)
    assert len(compiles) == 4


@pytest.mark.daily(3)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_an_entry_that_is_no_file_is_a_warning_and_blocks_nothing(
    kind: str, model: Path, place: Path
) -> None:
    script = (
        "import sys, numpy as np, onedispatch as od\n"
        "one = od.compile(sys.argv[1], shapes={'x': (2, 32)}, cache=sys.argv[2])\n"
        "(y,) = od.InferenceSession(one).run(None, {'x': np.ones((2, 32), np.float32)})\n"
        "print(float(y.sum()))\n"
    )
    command = [sys.executable, "-c", script, str(model), str(place)]

    def answer() -> tuple[str, str]:
        done = subprocess.run(command, env=_here(), timeout=120, check=True, capture_output=True, text=True)
        return done.stdout, done.stderr

    expected, _ = answer()
    (one,) = kept(place)
    one.path.unlink()
    {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/full"), "folder": Path.mkdir}[kind](
        one.path
    )
    found, warning = answer()
    assert found == expected and float(found) > 1
    assert "the model is compiled again" in warning and ("is not kept" in warning) == (kind == "folder")
    if kind != "folder":
        assert one.path.is_file() and not one.path.is_symlink() and answer() == (expected, "")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_an_entry_is_of_the_versions_that_read_models_and_run_nodes(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = model_cache._of_package.__wrapped__()
    assert model_cache._of_package.__wrapped__() == before
    if package == "onnx":
        monkeypatch.setattr(onnx, "__version__", "0.0.1")
    else:
        monkeypatch.setattr(model_cache.metadata, "version", lambda name: f"{name} 0.0.1")
    assert model_cache._of_package.__wrapped__() != before


def test_a_folder_that_cannot_be_written_is_one_warning(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_cache, "_WARNED", set())
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(CacheWarning, match="is not kept") as found:
        for _ in range(2):
            result(od.compile(model, shapes=SHAPES, cache=tmp_path / "file" / "cache"))
    assert len(found) == 1


def test_the_least_recently_used_give_way(model: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rows in (1, 2, 3):
        od.compile(model, shapes={"x": (rows, 32)}, cache=place)
    for age, row in enumerate(reversed(kept(place))):
        os.utime(row.path, (1000 + age, 1000 + age))
    oldest = kept(place)[-1]
    od.compile(model, shapes={"x": (1, 32)}, cache=place)  # is used again
    assert kept(place)[0].path == oldest.path
    monkeypatch.setattr(cache_folder, "MOST_BYTES", sum(row.nbytes for row in kept(place)) + 100)
    before = [row.path for row in kept(place)]
    od.compile(model, shapes={"x": (4, 32)}, cache=place)
    assert {row.path for row in kept(place)}.issuperset(before[:1])
    assert before[-1] not in {row.path for row in kept(place)}
    monkeypatch.setattr(cache_folder, "MOST_BYTES", 10)
    od.compile(model, shapes={"x": (5, 32)}, cache=place)
    assert not kept(place)  # an entry larger than the bound is not kept either


def test_two_processes_at_once(model: Path, place: Path) -> None:
    script = (
        "import sys, numpy as np, onedispatch as od\n"
        "for rows in (2, 3, 2, 3):\n"
        "    one = od.compile(sys.argv[1], shapes={'x': (rows, 32)}, cache=sys.argv[2])\n"
        "    (y,) = od.InferenceSession(one).run(None, {'x': np.ones((rows, 32), np.float32)})\n"
        "    print(float(y.sum()))\n"
    )
    command = [sys.executable, "-W", "error", "-c", script, str(model), str(place)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, env=_here()) for _ in range(2)]
    first, second = (one.communicate(timeout=240)[0] for one in running)
    assert [one.returncode for one in running] == [0, 0] and first == second
    assert len(kept(place)) == 2 and float(first.split()[0]) > 1


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ONEDISPATCH_CACHE", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = tmp_path / "onedispatch"
    assert default_folder() == home
    assert folder() is None and folder(command=True) == home and folder(command=True, asked=False) is None
    for value in ("", "0", "false", "False"):
        monkeypatch.setenv("CI", value)
        assert folder(command=True) == home
    for value in ("true", "1", "yes", "woodpecker"):
        monkeypatch.setenv("CI", value)
        assert folder(command=True) is None and folder(True) == home
    monkeypatch.setenv("ONEDISPATCH_CACHE", "on")
    assert folder() == folder(command=True) == home
    monkeypatch.setenv("ONEDISPATCH_CACHE", str(tmp_path / "own"))
    assert folder() == tmp_path / "own" and folder("off") is None
    with pytest.raises(od.InputError, match="cache: given 3; accepted: True, False, a folder"):
        folder(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ("0", "OFF", "false", "No", ""))
def test_words_that_switch_it_off(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDISPATCH_CACHE", text)
    assert folder(command=True) is None


def test_every_number_of_a_frozen_list_counts(place: Path) -> None:
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1, 4096] x, float[1, 4096] m)'
        " => (float[1, 4096] y) { y = Add(x, m) }"
    )
    x = np.zeros((1, 4096), np.float32)
    for number in (1.0, 2.0):
        row = np.zeros(4096, np.float32)
        row[2048] = number  # NumPy's text of it leaves this out
        compiled = od.compile(proto, freeze={"m": [row]}, cache=place)
        np.testing.assert_array_equal(od.InferenceSession(compiled).run(None, {"x": x})[0], row[None])
    with pytest.raises(od.InputError, match="lists of equal lengths"):
        od.compile(proto, freeze={"m": [[1], [1, 2]]}, cache=place)


def test_commands_keep_list_and_clear(
    model: Path, place: Path, compiles: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEDISPATCH_CACHE", str(place))

    def invoke(*arguments: object) -> str:
        found = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.stdout

    for flags in ([], [], ["--no-cache"]):
        invoke("time", model, "--shape", "x=2,32", *flags)
    assert len(compiles) == 2
    assert "fuse" in invoke("inspect", model, "--shape", "x=2,32", "--passes")  # which run, to be seen
    assert invoke("cache", "path").strip() == str(place)
    (entry,) = json.loads(invoke("cache", "list", "--json"))["entries"]
    assert Path(entry["path"]).stat().st_size == entry["nbytes"]
    assert "1 model" in invoke("cache", "list") and "m-npu2" in invoke("cache", "list")
    assert "removed 1 model" in invoke("cache", "clear") and not kept(place)
