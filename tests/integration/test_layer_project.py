# SPDX-License-Identifier: Apache-2.0
"""``onedispatch layer``: projects that are written, built, listed, checked, and what is in their way."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app, output
from onedispatch.dispatch.plugins import layer_build
from onedispatch.transactions.base.files import protecting_files
from tests.plugins import model, value

pytestmark = pytest.mark.usefixtures("no_plugins")
KINDS = {
    "global": ([], {"acme/roll.py", "test_acme_roll.py"}),
    "local": (["--local"], {"acme/roll.py", "test_acme_roll.py"}),
    "cpp": (["--cpp"], {"acme/roll.py", "acme/roll.cpp", "test_acme_roll.py"}),
}
SHARED = {"pyproject.toml", "acme/__init__.py", "test_acme.py"}
STALE = 1_000_000_000  # a time long ago
# Bodies do the same then, and are compiled in half the time.
QUICKLY = tuple(flag for flag in layer_build.FLAGS if flag != "-O2")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(output.console, "_width", 400)  # no name of a file is wrapped
    monkeypatch.setattr(layer_build, "FLAGS", QUICKLY)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield
    sys.path[:] = before
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


def ran(*arguments: object, answers: str | None = None) -> tuple[int, str, BaseException | None]:
    with protecting_files():
        result = CliRunner().invoke(app, ["layer", *map(str, arguments)], input=answers)
    return result.exit_code, result.output, result.exception


def invoke(*arguments: object, answers: str | None = None) -> str:
    code, printed, error = ran(*arguments, answers=answers)
    assert code == 0, (printed, error)
    return printed


def refused(*arguments: object) -> str:
    _, printed, error = ran(*arguments)
    assert isinstance(error, od.OneDispatchError) and not isinstance(error, od.InternalError), (
        printed,
        error,
    )
    return str(error)


def files(folder: str = "acme") -> set[str]:
    found = {p.relative_to(folder).as_posix() for p in Path(folder).rglob("*") if p.is_file()}
    return {name for name in found if "__pycache__" not in name and ".pytest_cache" not in name}


def listed(*arguments: object) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in json.loads(invoke("list", *arguments, "--json"))}


# -- new ----------------------------------------------------------------------------------------------


@pytest.mark.daily(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_layer_works_at_once(kind: str, tmp_path: Path) -> None:
    flags, own = KINDS[kind]
    shown = invoke("new", "acme", *flags)
    assert files() == SHARED | own
    commands = [line.strip() for line in shown.partition("Next:")[2].splitlines() if line.strip()]
    assert commands[0] == "cd acme" and commands[-2:] == ["python test_acme.py", "pip install ."]
    assert ("onedispatch layer build" in commands) == (kind == "cpp")
    if kind == "cpp":
        invoke("build", "acme")
    for command in (
        ["-c", "import acme; print('8 passed')"],
        ["test_acme.py"],
        ["-m", "pytest", "-q", "-p", "no:cacheprovider"],
    ):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path / "acme", capture_output=True, text=True, timeout=240
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0 and "8 passed" in said, said
    source = Path("acme/acme/roll.py")
    source.write_text(source.read_text().replace("first = self.params.rows", "first = 1 + self.params.rows"))
    done = subprocess.run([sys.executable, "acme/test_acme.py"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 1 and re.search(r"\d passed, \d failed", done.stdout), done.stdout + done.stderr


def test_the_tests_need_no_pytest(tmp_path: Path) -> None:
    invoke("new", "acme")
    script = (
        "import runpy, sys; sys.modules['pytest'] = None; runpy.run_path('test_acme_roll.py', {}, '__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path / "acme", capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0 and "7 passed, 0 failed" in done.stdout, done.stdout + done.stderr


def test_an_installed_project_is_found_by_its_entry_point(tmp_path: Path) -> None:
    invoke("new", "acme", "--cpp")
    invoke("build", "acme")
    site = tmp_path / "site"
    site.mkdir()
    # What pip does with it, but for the download of setuptools and wheel.
    setup = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q"]
    command = [*setup, "build_py", "--build-lib", str(site), "egg_info", "--egg-base", str(site)]
    subprocess.run(command, cwd="acme", check=True, capture_output=True, timeout=240)
    found = os.pathsep.join((str(site), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-m", "onedispatch.dispatch.cli", "layer", "list", "--json"],
        env=os.environ | {"PYTHONPATH": found},
        capture_output=True,
        text=True,
        timeout=240,
    )
    (row,) = json.loads(done.stdout)
    assert (row["name"], row["compiled"]) == ("acme::roll", "built"), done.stderr
    assert Path(row["file"]).is_relative_to(site)


@pytest.mark.parametrize("inside", [False, True])
def test_a_second_layer_joins_the_project(inside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("new", "acme::crop")
    before = {name: (Path("acme") / name).read_text() for name in files()}
    if inside:
        monkeypatch.chdir("acme")
    invoke("new", "acme::double", "--local")
    monkeypatch.chdir(Path.cwd().parent if inside else Path.cwd())
    assert files() == set(before) | {"acme/double.py", "test_acme_double.py"}
    assert all((Path("acme") / name).read_text() == text for name, text in before.items())
    sys.path.insert(0, "acme")
    package = importlib.import_module("acme")
    assert package.double.Double.name == "acme::double" and package.crop.Crop.name == "acme::crop"
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    nodes = [
        helper.make_node("Crop", ["x"], ["t"], domain="acme", rows=1),
        helper.make_node("Double", ["t"], ["y"], domain="acme", rows=2, factor=3.0),
    ]
    proto = model(nodes, [value("x", x.shape)], [value("y", None)])
    (y,) = od.InferenceSession(proto, fallback="error").run(None, {"x": x})
    assert np.array_equal(y, np.float32(3) * np.roll(x, -3, axis=0))


def test_what_is_there_is_not_overwritten() -> None:
    invoke("new", "acme::crop", "--cpp")
    before = {name: (Path("acme") / name).read_text() for name in files()}
    said = refused("new", "acme::crop", "--cpp")
    assert all(f"acme/{name}" in said for name in ("acme/crop.py", "acme/crop.cpp", "test_acme_crop.py"))
    assert "which exist" in said and "another name" in said and "pyproject" not in said
    assert {name: (Path("acme") / name).read_text() for name in files()} == before


@pytest.mark.parametrize("name", sorted(SHARED | KINDS["cpp"][1]))
def test_files_of_others_are_named(name: str) -> None:
    file = Path("place") / name
    file.parent.mkdir(parents=True)
    file.write_text("[project]\nname = 'mine'\n")
    assert f"given {file}, which exists" in refused("new", "acme", "--cpp", "--folder", "place")
    assert files("place") == {name} and file.read_text() == "[project]\nname = 'mine'\n"


def test_a_description_that_cannot_be_read() -> None:
    Path("pyproject.toml").write_text("[")
    invoke("new", "acme::crop")  # of the folder around it nothing is asked
    Path("acme/pyproject.toml").write_text("[")
    said = refused("new", "acme::double", "--folder", "acme")
    assert "acme/pyproject.toml, acme/acme/__init__.py, acme/test_acme.py, which exist" in said
    assert "acme/double.py" not in files() and Path("acme/pyproject.toml").read_text() == "["


def test_links_are_not_followed() -> None:
    invoke("new", "acme::crop")
    Path("elsewhere").write_text("mine")
    for target in ("../../elsewhere", "nowhere"):
        Path("acme/acme/double.py").symlink_to(target)
        assert "acme/acme/double.py, which exists" in refused("new", "acme::double")
        Path("acme/acme/double.py").unlink()
    assert Path("elsewhere").read_text() == "mine" and "acme/double.py" not in files()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "a namespace"),
        ("Acme::crop", "lower-case"),
        ("../acme::crop", "lower-case"),
        ("acme::../crop", "lower-case"),
        ("acme::crop\n", "lower-case"),
        ("acme::a::b", "a namespace"),
        ("od::crop", "which is ours"),
        ("json::crop", "no module already"),
        ("acme::none", "no word of Python's, as None is"),
        ("acme::" + "b" * 59, "at most 64 bytes"),
    ],
)
def test_names_that_layers_cannot_have(name: str, said: str) -> None:
    assert said in refused("new", name) and not list(Path.cwd().iterdir())


def test_a_folder_that_takes_no_files() -> None:
    Path("file").write_text("mine")
    for place in ("file", "file/inside", "/proc/nothing", "n" * 300):
        assert place in refused("new", "acme", "--folder", place)
    assert Path("file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only() -> None:
    Path("closed").mkdir(mode=0o500)
    assert "closed" in refused("new", "acme", "--folder", "closed") and not list(Path("closed").iterdir())


# -- build --------------------------------------------------------------------------------------------

EVERY = """
import onedispatch as od
from typing import Literal

class Every(od.Layer):
    name = "acme::every"
    library = "libevery.so"

    class Params:
        new: int = 3
        share: float = 0.25
        twice: bool = False
        mode: Literal["plain", "half"] = "plain"
        weights: tuple[float, ...] = ()
        size: tuple[int, int] = (1, 2)
        note: str = ""
"""
EVERY_CPP = """
#include <numeric>
#include "acme_params.h"
struct Every {
  static void declare(od::Declare& d) {
    acme_params::Every::declare(d.name("acme::every").in("x").out("y"));
  }
  static void place(od::Place& n) { n.out("y", n.in("x")).index_space(n.in("x").shape).elementwise("x y"); }
  int run(const od::Tile& t) const {
    const acme_params::Every p(t);
    if (p.mode == "half" && p.note == "refuse") return -2;
    float sum = std::accumulate(p.weights.begin(), p.weights.end(), 0.0f);
    sum += static_cast<float>(p.new_ * 100 + p.size.at(0) * 10 + p.size.at(1));
    sum += static_cast<float>(p.note.size());
    sum += (p.twice ? 1000.0f : 0.0f) + (p.mode == "half" ? 2000.0f : 0.0f);
    t.map([&](float x) { return p.share * x + sum; }, t.out<float>("y"), t.in<float>("x"));
    return 0;
  }
};
OD_PLUGIN_LIBRARY("every", Every)
"""


@pytest.fixture
def every() -> Path:
    """A project with a body in C++ that has a parameter of each kind."""
    invoke("new", "acme::crop")
    Path("acme/acme/every.py").write_text(EVERY)
    Path("acme/acme/every.cpp").write_text(EVERY_CPP)
    return Path("acme")


def every_run(**attributes: object) -> np.ndarray[object, np.dtype[np.float32]]:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    node = helper.make_node("Every", ["x"], ["y"], domain="acme", **attributes)
    proto = model([node], [value("x", x.shape)], [value("y", None)])
    (y,) = od.InferenceSession(proto, fallback="error").run(None, {"x": x})
    return (y - y[0, 0]) / np.float32(attributes.get("share", 0.25)) - x + y[0, 0]


def test_parameters_of_every_type_reach_a_body_in_cpp(every: Path) -> None:
    assert "wrote" in invoke("build", every)
    text = (every / "acme/acme_params.h").read_text()
    for member in (
        "int32_t new_;",
        "float share;",
        "bool twice;",
        "std::string mode;",
        "std::vector<float> weights;",
    ):
        assert f"  {member}\n" in text
    assert "do not edit" in text.splitlines()[0] and re.search(r"Digest of Params: 0x[0-9A-F]{16}\n", text)
    sys.path.insert(0, str(every))
    importlib.import_module("acme")
    assert (every_run() == 312).all()
    given = {
        "new": -1,
        "share": 2.0,
        "twice": 1,
        "mode": "half",
        "weights": [0.5, 4.0],
        "size": [7, 8],
        "note": "äh",
    }
    assert (every_run(**given) == 3000 - 100 + 78 + 4.5 + 3).all()
    with pytest.raises(od.KernelParameterInvalidError, match="answered -2"):  # type: ignore[attr-defined]
        every_run(mode="half", note="refuse")


def test_what_is_older_than_its_source_is_built(every: Path) -> None:
    library, source, header = (
        every / "acme" / name for name in ("libevery.so", "every.cpp", "acme_params.h")
    )
    assert listed(every)["acme::every"]["compiled"] == "not built"
    printed = invoke("build", every)
    assert all(f"wrote {file.resolve()}" in printed for file in (library, header))
    assert listed(every)["acme::every"]["compiled"] == "built"
    first = library.stat().st_mtime_ns
    assert "is newer than its sources" in invoke("build", every) and library.stat().st_mtime_ns == first
    os.utime(library, (STALE, STALE))
    assert listed(every)["acme::every"]["compiled"] == "older than its source"
    assert f"wrote {library.resolve()}" in invoke("build", every) and library.stat().st_mtime_ns != STALE
    printed = invoke("rebuild", every)
    assert all(f"wrote {file.resolve()}" in printed for file in (library, header))
    (every / "acme/every.py").write_text(EVERY.replace("share: float = 0.25", "share: float = 0.5"))
    printed = invoke("build", every)
    assert all(f"wrote {file.resolve()}" in printed for file in (library, header))
    assert "0.5" in header.read_text() and source.read_text() == EVERY_CPP


def test_what_the_compiler_says_is_shown(every: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (every / "acme/every.cpp").write_text(EVERY_CPP.replace("p.new_", "p.old"))
    code, _, error = ran("build", every)
    line = EVERY_CPP.splitlines().index(next(one for one in EVERY_CPP.splitlines() if "p.new_" in one)) + 1
    assert code == 1 and re.search(rf"every\.cpp:{line}:\d+: error: .*old", str(error)), error
    assert not list((every / "acme").glob("*.so")) and not list((every / "acme").glob(".*.so"))
    monkeypatch.setenv("PATH", "")
    assert "no g++" in refused("build", every)


def test_files_that_no_build_wrote_stay(every: Path) -> None:
    header, library = every / "acme/acme_params.h", every / "acme/libevery.so"
    header.write_text("// mine\n")
    assert "not generated" in refused("build", every) and header.read_text() == "// mine\n"
    header.unlink()
    Path("elsewhere").write_text("mine")
    header.symlink_to(Path("elsewhere").resolve())
    assert "a link" in refused("build", every)
    header.unlink()
    library.symlink_to(Path("elsewhere").resolve())
    os.utime("elsewhere", (STALE, STALE))
    invoke("build", every)
    assert Path("elsewhere").read_text() == "mine" and not library.is_symlink()
    (every / "acme/every.cpp").unlink()
    assert "not built here" in invoke("rebuild", every) and library.exists()  # it could not be made again
    library.unlink()
    assert "nor its source" in refused("build", every)


def test_folders_that_are_no_projects() -> None:
    Path("plain").mkdir()
    for place in ("plain", "absent", "/dev/null"):
        for command in ("build", "rebuild", "check", "list"):
            assert place in refused(command, place)
    for text in ("[", "[project]\n", '[project.entry-points."onedispatch.plugins"]\nacme = 3\n', "\0"):
        Path("plain/pyproject.toml").write_text(text)
        assert "pyproject.toml" in refused("build", "plain")


# -- list, remove -------------------------------------------------------------------------------------


def test_layers_are_listed(every: Path) -> None:
    rows = listed(every)
    assert list(rows) == ["acme::crop", "acme::every"]
    assert rows["acme::crop"] == {
        "name": "acme::crop",
        "node": "acme.Crop",
        "bodies": ["global"],
        "parameters": [{"name": "rows", "type": "int", "required": False, "default": 1}],
        "file": str((every / "acme/crop.py").resolve()),
        "library": None,
        "compiled": None,
    }
    printed = invoke("list", every)
    for part in (
        "2 layers",
        "acme.Every",
        "mode: Literal['plain', 'half'] = 'plain'",
        "size: tuple[int, int] = (1, 2)",
    ):
        assert part in printed
    assert listed() == {}  # reading a project makes nothing known
    assert list(listed("--plugin", every / "acme/crop.py")) == ["acme::crop"]


def test_files_that_cannot_be_read_are_named(every: Path) -> None:
    broken = every / "acme/broken.py"
    for text, said in (
        ("class\n", "line 1"),
        ("\nimport nothing_here\n", "line 2"),
        ("raise SystemExit\n", "line 1"),
    ):
        broken.write_text(text)
        for command in ("list", "build", "check"):
            error = refused(command, every)
            assert str(broken.resolve()) in error and said in error
    invoke("remove", "broken", every, "--yes")
    assert not broken.exists() and len(listed(every)) == 2


def test_two_files_with_one_layer_name_are_both_named(every: Path) -> None:
    other = every / "acme/other.py"
    for text in ((every / "acme/crop.py").read_text(), EVERY.replace("acme::every", "acme::crop_")):
        other.write_text(text)
        for command in ("list", "build", "check"):
            said = refused(command, every)
            assert str(other.resolve()) in said and str((every / "acme/crop.py").resolve()) in said


def test_a_layer_is_removed_file_by_file() -> None:
    invoke("new", "acme::crop")
    invoke("new", "acme::double", "--cpp")
    invoke("build", "acme")
    before = files()
    assert ran("remove", "double", "acme", answers="")[0] == 1 and files() == before
    printed = invoke("remove", "acme::double", "acme", answers="y\nn\ny\nn\n")
    gone = {"acme/double.py", "acme/libdouble.so"}
    assert files() == before - gone and printed.count("as you said") == 2
    assert all(f"stays: {Path('acme').resolve() / name}" in printed for name in files())
    assert "accepted: acme::crop" in refused("remove", "double", "acme", "--yes")
    invoke("remove", "crop", "acme", "--yes")
    assert files() == before - gone - {"acme/crop.py", "test_acme_crop.py"}


def test_what_other_layers_need_stays() -> None:
    invoke("new", "acme::crop")
    Path("mine.py").write_text("kept")
    file = Path("acme/acme/crop.py")
    file.write_text(file.read_text() + "\n\nclass Other(Crop):\n    name = 'acme::other'\n")
    printed = invoke("remove", "crop", "acme", "--yes")
    assert "no file is of crop alone" in printed and "acme::other too" in printed and file.exists()
    Path("mine.py").write_text("broken = [\n")
    Path("acme/acme/linked.py").symlink_to(Path("mine.py").resolve())
    assert "accepted: acme::crop, acme::other" in refused("remove", "../../mine", "acme", "--yes")
    invoke("remove", "linked", "acme", "--yes")  # the link, not what it leads to
    assert Path("mine.py").exists() and not Path("acme/acme/linked.py").is_symlink()


# -- check --------------------------------------------------------------------------------------------

FLAT = """
import onedispatch as od

class Flat(od.Layer):
    name = "acme::flat"
    just_reshape = True

    def shape(self, n):
        return n["x"].like((1, *n["x"].shape))

    def index_space(self, n):
        return (1,)

    def access(self, n):
        return {"x": (n.whole(),) * len(n["x"].shape), "y": (n.whole(),) * (len(n["x"].shape) + 1)}

    def local(self, t):
        t.y[:] = t.x
"""

MOVES = """
    def global_(self, g):
        g.copy(g.y[0, ..., 1:], g.x[..., :-1])
        g.copy(g.y[0, ..., :1], g.x[..., -1:])
"""


def checked(*arguments: object) -> tuple[int, dict[str, list[dict[str, object]]]]:
    code, printed, error = ran("check", *arguments, "--json")
    assert printed.startswith("{"), (printed, error)
    return code, {row["kernel"]: row["findings"] for row in json.loads(printed)["kernels"]}


def test_a_new_project_is_clean() -> None:
    invoke("new", "acme::crop")
    invoke("new", "acme::double", "--cpp")
    invoke("build", "acme")
    printed = invoke("check", "acme")
    assert "acme::double@1: clean (" in printed and "acme::crop@1: clean (0 cases)" in printed
    assert "double" not in invoke("check", "acme", "crop") and "crop" not in invoke(
        "check", "acme", "acme::double"
    )
    assert "accepted: acme::crop, acme::double" in refused("check", "acme", "triple")


def test_a_body_that_reads_beside_its_declaration() -> None:
    invoke("new", "acme::double", "--local")
    file = Path("acme/acme/double.py")
    file.write_text(file.read_text().replace("t.y[:] = t.params.factor * t.x", "t.y[...] = 0 * t.x"))
    assert checked("acme")[0] == 0
    file.write_text(file.read_text().replace("t.y[...] = 0 * t.x", "t.x[:] = 0"))
    code, found = checked(file)  # a file of a project, or of none
    alone = Path("alone.py")
    alone.write_text(file.read_text().replace("acme::", "other::"))
    assert [[one["kind"] for one in rows] for _, rows in checked(alone)[1].items()] == [
        [one["kind"] for one in found["acme::double@1"]]
    ]
    assert code == 1 and found["acme::double@1"][0]["kind"] in ("failed", "write", "gap")


def test_a_layer_that_reshapes_changes_no_data() -> None:
    invoke("new", "acme::crop")
    file = Path("acme/acme/flat.py")
    file.write_text(FLAT)
    code, found = checked("acme", "flat")
    assert code == 0 and found == {"acme::flat@1": []}
    file.write_text(FLAT + "        t.y[..., -1] += 1\n")
    code, found = checked("acme", "flat")
    kinds = {one["kind"] for one in found["acme::flat@1"]}
    assert code == 1 and kinds == {"reshape"}
    first = next(one for one in found["acme::flat@1"] if one["case"] == "x=f32[3, 5]")
    assert (
        first["coordinate"] == [0, 0, 4] and first["operand"] == "y" and "at [0, 0, 4]" in str(first["text"])
    )
    file.write_text(FLAT + MOVES)
    code, found = checked("acme", "flat")
    assert code == 1 and all("global_ writes" in str(one["text"]) for one in found["acme::flat@1"])


def test_parameters_without_defaults_are_made_up() -> None:
    invoke("new", "acme::double", "--local")
    file = Path("acme/acme/double.py")
    typed = ("factor: float", "size: tuple[int, int]", "weights: tuple[float, ...]", "mode: str")
    more = "".join(f"        {one}\n" for one in typed)
    text = file.read_text().replace("        factor: float = 1.0\n", more)
    file.write_text(text.replace("t.params.factor *", "(t.params.factor + t.params.size[1]) *"))
    assert checked("acme") == (0, {"acme::double@1": []})
    printed = json.loads(ran("check", "acme", "--json")[1])["kernels"][0]
    assert "x=f32[3, 5] factor=0.75 size=[2,2] weights=[2.0] mode='text'" in printed["cases"]
    examples = "    examples = [{'x': (3, 5), 'factor': 1.0, 'size': [1, 2], 'weights': [], 'mode': 'a'}]\n"
    file.write_text(file.read_text().replace("    class Params", f"{examples}\n    class Params"))
    printed = json.loads(ran("check", "acme", "--json")[1])["kernels"][0]
    assert [case for case in printed["cases"] if case] == [
        "x=f32[3, 5] factor=1 size=[1,2] weights=[] mode='a'"
    ]


def test_a_header_that_disagrees_with_params(every: Path) -> None:
    invoke("build", every)
    assert checked(every)[0] == 0
    header, file = every / "acme/acme_params.h", every / "acme/every.py"
    text = header.read_text()
    header.write_text(text.replace("int32_t new_;", "int64_t new_;"))
    code, found = checked(every)
    ((finding, stale),) = [found["acme::every@1"]]
    assert code == 1 and finding["kind"] == "header" and "was edited" in str(finding["text"])
    assert stale["kind"] == "stale" and stale["level"] == "warning"
    header.write_text(text)
    file.write_text(EVERY.replace("share: float = 0.25", "share: float = 0.5"))
    code, found = checked(every)
    assert code == 1 and "made of other Params" in str(found["acme::every@1"][0]["text"])
    invoke("build", every)
    assert checked(every)[0] == 0
