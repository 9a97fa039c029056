# SPDX-License-Identifier: Apache-2.0
"""Commands with arguments that cannot be: each ends soon, with an error of ours, and loses no file."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli.commands import app
from onedispatch.transactions.base.files import protecting_files
from tests.served import onedispatch
from tests.tables import NIGHTLY

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

MODELS = Path(__file__).parents[2] / "models"
PLUGIN = Path(__file__).parents[1] / "ops" / "kernels" / "dying.py"
FILES = ("m.onnx", "m.od", "m.bin", "m.txt", "x.npy", "plugin.py")
COMMAND = (sys.executable, "-c", "from onedispatch.dispatch.cli import main; main()")


def commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All of them, with their names."""
    for name, one in getattr(group, "commands", {}).items():
        yield from commands(one, *path, name)
    if not hasattr(group, "commands"):
        yield path, group


def options(*kinds: str) -> Iterator[tuple[str, Any]]:
    """Options of all commands whose values are of these kinds."""
    for name, command in COMMANDS.items():
        for one in command.params:
            if one.param_type_name == "option" and kind_of(one) in kinds:
                yield name, one


def kind_of(parameter: Any) -> str:
    """The type of its values, which versions of Typer keep at different places."""
    described = getattr(parameter, "type_descriptor", None)
    text = str(parameter.type.name if described is None else described.annotation)
    names = {
        "int": "integer",
        "float": "float",
        "str": "text",
        "text": "text",
        "Path": "path",
        "path": "path",
    }
    return next((kind for name, kind in names.items() if name in text), text)


COMMANDS = {" ".join(path): one for path, one in commands(typer.main.get_command(app))}
# What a command's arguments are, where they are to be right.
RIGHT = {
    "gate": ["m.onnx", "--no-cpu"],
    "diff": ["m.onnx", "m.onnx"],
    "txn assemble": ["m.txt"],
    "txn diff": ["m.bin", "m.bin"],
    "txn fuse": ["m.json"],
    "txn survey": ["."],
    "kernel check": ["plugin.py", "--kernel", "dying::body_none"],
    "kernel show": ["od::conv"],
    "kernel new": ["acme::made"],
    "layer new": ["acme::made"],
    "layer list": [],
    "layer remove": ["crop"],
    "layer build": ["."],
    "layer rebuild": ["."],
    "layer check": ["plugin.py"],
    "devices": [],
    "doctor": [],
    "ops list": [],
    "ops map": [],
    "ops explain": ["m.onnx", "conv1"],
    "kernel list": [],
}


def arguments(name: str) -> list[str]:
    given = RIGHT.get(name, ["m.bin" if name.startswith("txn") else "m.onnx"])
    needed = [one for one in COMMANDS[name].params if one.required and one.param_type_name == "option"]
    return [*name.split(), *given, *(part for one in needed for part in (one.opts[0], "made"))]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one file of each kind."""
    made = tmp_path_factory.mktemp("files")
    shutil.copy(MODELS / "digits.onnx", made / "m.onnx")
    shutil.copy(PLUGIN, made / "plugin.py")
    model = od.compile(made / "m.onnx", shapes={"image": (1, 1, 8, 8)})
    model.save(made / "m.od")
    (made / "m.bin").write_bytes(model.transaction)
    (made / "m.txt").write_text(od.transactions.Transaction.from_bytes(model.transaction).text())
    np.save(made / "x.npy", np.ones((1, 1, 8, 8), np.float32))
    return made


@pytest.fixture
def folder(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of these files in the current folder, with what is no file; no plug-in outlives it."""
    od.plugins.reset()
    monkeypatch.chdir(tmp_path)
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    os.mkfifo("pipe")
    os.mkdir("empty")
    os.symlink("m.onnx", "soft.onnx")
    os.link("m.onnx", "hard.onnx")
    yield tmp_path
    od.plugins.reset()


def digests() -> dict[str, str]:
    return {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in FILES}


def ended(*given: str) -> Any:
    """Runs a command as the console script does; what it raises is ours."""
    with protecting_files():
        result = CliRunner().invoke(app, list(given))
    fine = result.exception is None or isinstance(result.exception, od.OneDispatchError | SystemExit)
    assert fine and not isinstance(result.exception, od.InternalError), (given, repr(result.exception))
    return result


# Options that commands share are read by the same code: of equal ones one command is tried.


def unlike(found: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Commands with options, of options that several have alike the first."""
    return list({(one.opts[0], one.help): (name, one.opts[0]) for name, one in reversed([*found])}.values())


NUMBERS = unlike(options("integer", "float"))
assert len(NUMBERS) > 10


@pytest.mark.daily(4)
@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_numbers_below_and_beyond(folder: Path, name: str, option: str) -> None:
    before = digests()
    for value in ("-1", "99999999999999999999"):
        ended(*arguments(name), option, value)
    assert digests() == before


@pytest.mark.daily(4)
@pytest.mark.parametrize("what", ["/dev/zero", "pipe", "empty", "absent", "/dev/null", "a\0b", ""])
@pytest.mark.parametrize("name", [one for one in COMMANDS if RIGHT.get(one) != []])
def test_arguments_that_are_no_files(folder: Path, name: str, what: str) -> None:
    _, *more = arguments(name)[len(name.split()) :]
    result = ended(*name.split(), what, *more)
    taken = name in ("kernel new", "layer new") or (
        name == "txn survey" and what == ""
    )  # which is the current folder
    assert result.exit_code != 0 or taken, result.output


PATHS = unlike(
    (name, one)
    for name, one in options("path", "text")
    if "--output" not in one.opts
    and one.opts[0] not in ("--html", "--svg", "--trace", "--markdown", "--write-baseline", "--apply")
    and (name != "export" or one.opts[0] in ("--all", "--device", "--catalog"))  # others are outputs
)
assert len(PATHS) > 10


@pytest.mark.daily(3)
@pytest.mark.parametrize("what", ["/dev/zero", "pipe", "empty", "absent/absent"])
@pytest.mark.parametrize(("name", "option"), PATHS)
def test_options_that_are_no_files(folder: Path, name: str, option: str, what: str) -> None:
    before = digests()
    ended(*arguments(name), option, what)
    assert digests() == before


WRITING = {
    "run": ["m.onnx", "--random", "-o"],
    "compile": ["m.onnx", "-o"],
    "inspect": ["m.onnx", "--html"],
    "profile": ["m.onnx", "--html"],
    "gate": ["m.onnx", "--write-baseline"],
    "export": ["m.onnx", "--netron"],
    "diff": ["m.onnx", "m.onnx", "--markdown"],
    "txn explain": ["m.bin", "--svg"],
    "txn assemble": ["m.txt", "-o"],
}


@pytest.mark.parametrize("name", WRITING)
def test_no_command_writes_over_what_it_reads(folder: Path, name: str) -> None:
    before = digests()
    given = WRITING[name]
    same = [given[0], *(["soft.onnx", "hard.onnx", "./m.onnx"] if given[0] == "m.onnx" else [])]
    for target in same:
        result = ended(*name.split(), *given, target)
        assert isinstance(result.exception, od.InputError), (target, result.output)
        assert "this command read" in str(result.exception)
    assert digests() == before
    assert ended(*name.split(), *given, "other").exit_code == 0 and Path("other").exists()


def test_no_command_writes_over_an_input_a_plugin_or_its_other_output(folder: Path) -> None:
    before = digests()
    lines = ["import onedispatch as od", "@od.kernel('own::copy', inputs='x', outputs='z')", "class Copy:"]
    own = "\n".join([*lines, "    def body(self, t):", "        t.z[:] = t.x", ""])
    Path("own.py").write_text(own)
    for given in (
        ["--input", "image=x.npy", "-o", "x.npy"],
        ["--random", "--plugin", "own.py", "-o", "own.py"],
        ["--random", "--trace", "made.json", "-o", "made.json"],
    ):
        result = ended("run", "m.onnx", *given)
        assert isinstance(result.exception, od.InputError), (given, result.output)
    assert isinstance(ended("compile", "m.od", "-o", "m.od").exception, od.InputError)
    assert digests() == before and Path("own.py").read_text() == own
    od.load("m.od").save("m.od")  # in a program that is what was asked for


@pytest.mark.daily(4)
@pytest.mark.parametrize("target", ["/dev/full", "empty", "absent/x", "/proc/x"])
@pytest.mark.parametrize("name", WRITING)
def test_outputs_that_cannot_be_written(folder: Path, name: str, target: str) -> None:
    before = set(os.listdir())
    result = ended(*name.split(), *WRITING[name], target)
    assert isinstance(result.exception, od.OneDispatchError), result.output
    assert set(os.listdir()) == before


@pytest.mark.daily(2)
@pytest.mark.parametrize("closed", ["1", "0 1 2", "2", "0"])
def test_closed_streams(folder: Path, closed: str) -> None:
    """What cannot be printed is an error, as it is of other programs; files are written all the same."""
    numbers = [int(one) for one in closed.split()]
    script = f"import os, sys\nfor fd in {numbers}: os.close(fd)\nos.execv(sys.argv[1], sys.argv[1:])"
    starter = [sys.executable, "-c", script, *COMMAND]
    done = subprocess.run([*starter, "devices"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == (1 if "1" in closed else 0)
    assert "internal" not in done.stderr and "Traceback" not in done.stderr
    if closed == "1":
        assert done.stderr.startswith("InputError: the output: given Bad file descriptor")
    made = [*starter, "txn", "assemble", "m.txt", "-o", "made.bin"]
    done = subprocess.run(made, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and Path("made.bin").read_bytes() == Path("m.bin").read_bytes()


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    with onedispatch(fresh=NIGHTLY) as folder:
        yield folder / "onedispatch"


@pytest.mark.daily(4)
@pytest.mark.parametrize("place", ["n" * 300, "x.npy/made"])
@pytest.mark.parametrize("name", WRITING)
def test_an_output_that_cannot_be_opened_is_named(folder: Path, program: Path, name: str, place: str) -> None:
    command = [program, *name.split(), *WRITING[name], place]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    error = done.stderr.strip().splitlines()[-1]
    assert place in error and error.startswith("InputError: "), done.stderr


_PRINTING = """
    --help, ops, ops --json, devices, inspect m.onnx, inspect m.od --json, run m.onnx --random
    compile m.onnx -o made.od, txn dump m.od, txn explain m.od, txn check m.od, txn replay m.od
    txn diff m.od m.od --json, txn survey . --jobs 1
"""
PRINTING = [command.strip() for command in _PRINTING.strip().replace("\n", ",").split(",")]


@pytest.mark.daily(4)
@pytest.mark.parametrize("line", PRINTING)
def test_an_output_on_a_full_device_is_an_error(folder: Path, program: Path, line: str) -> None:
    """Buffered text fails when Python ends, which would look like success."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [program, *line.split()], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert done.returncode == 1 and "No space left" in done.stderr and done.stderr.count("\n") <= 2, (
        done.stderr
    )


def test_all_output_on_full_devices(folder: Path, program: Path) -> None:
    with open("/dev/full", "w") as full:
        assert subprocess.run([*COMMAND, "ops"], stdout=full, stderr=full, timeout=120).returncode == 1
    for line in ("compile m.onnx -o /dev/full", "run m.onnx --random -o /dev/full"):
        done = subprocess.run([program, *line.split()], capture_output=True, text=True, timeout=120)
        assert done.returncode == 1 and "Traceback" not in done.stderr and "No space left" in done.stderr


def test_instructions_that_are_none_are_named(folder: Path) -> None:
    """The environment chooses SIMD instructions by name; a slip must not go unnoticed."""
    command = [*COMMAND, "run", "m.onnx", "--random"]
    environment = os.environ | {"ONEDISPATCH_SIMD": "avx"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0
    assert "ONEDISPATCH_SIMD: given avx; accepted: portable" in done.stderr


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        (["image=x"], "given 'image=x'; accepted: name=size,size,..."),
        (["image="], "given 'image='; accepted: name=size,size,..."),
        (["image=1,,8"], "given 'image=1,,8'; accepted: name=size,size,..."),
        (["image=1,1,8,8", "image=2,1,8,8"], "image once more; accepted: one shape for each input"),
    ],
)
def test_shapes_that_are_none_or_given_twice(folder: Path, shapes: list[str], said: str) -> None:
    given = [part for shape in shapes for part in ("--shape", shape)]
    error = ended("compile", "m.onnx", "-o", "made.od", *given).exception
    assert isinstance(error, od.InputError) and str(error).startswith("--shape: ") and said in str(error)


def test_an_interrupt_while_the_console_script_imports() -> None:
    """The script imports the package before anything of it can catch what is raised."""
    script = """
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == "numpy":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
sys.argv = ["/usr/bin/onedispatch", "devices"]
from onedispatch.dispatch.cli import main
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (130, "onedispatch: interrupted\n")
