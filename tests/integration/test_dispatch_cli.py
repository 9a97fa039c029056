# SPDX-License-Identifier: Apache-2.0
"""The command line as far as it needs no simulator, and the public face of the package."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.cli.output import parse_inputs, parse_shapes, print_json, visible
from onedispatch.dispatch.cli.txn import _parse_sizes, _parse_tile
from onedispatch.dispatch.runtime.report import OpReport, RunReport
from tests.host_nodes import on_host

COMMANDS = (["run"], ["time"], ["compile"], ["inspect"], ["bench"], ["ops"], ["devices"], ["txn"])
COMMANDS += (["kernel"], ["kernel", "list"], ["kernel", "show"])
COMMANDS += (
    ["gate"],
    ["diff"],
    ["tune"],
    ["catalog"],
    ["compare"],
    ["doctor"],
    ["rule"],
    ["rule", "new"],
    ["rule", "check"],
)
COMMANDS += tuple(["txn", name] for name in "dump assemble explain check diff fuse".split())


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def model(tmp_path: Path) -> Path:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 8]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="act")], "g", ends[:1], ends[1:])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_teaches(command: Sequence[str]) -> None:
    assert len(invoke(*command, "--help")) > 150


def test_json_lists() -> None:
    assert {"Conv", "MatMul", "Relu"} <= {row["op_type"] for row in json.loads(invoke("ops", "--json"))}
    names = {row["name"]: row for row in json.loads(invoke("devices", "--json"))}
    assert names["npu2"]["columns"] == 8 and "strix" in names["npu2"]["aliases"]
    assert "Relu" in invoke("ops", "relu") and "phoenix" in invoke("devices")


def test_kernels_are_listed_and_shown() -> None:
    listed = {row["name"]: row for row in json.loads(invoke("kernel", "list", "--json"))}
    assert {"od::eltwise@1", "od::gemm@1", "od::conv@1"} <= set(listed)
    assert json.loads(invoke("kernel", "show", "gemm", "--json")) == listed["od::gemm@1"]
    shown = invoke("kernel", "show", "od::conv@1")
    assert "macs_per_cycle" in shown and "(optional)" in shown and "0x" in shown
    result = CliRunner().invoke(app, ["kernel", "show", "nothing"])
    assert isinstance(result.exception, od.InputError) and "od::gemm@1" in str(result.exception)


def test_compile_inspect_and_dump(model: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "m.od")
    told = json.loads(invoke("compile", str(model), "-o", target, "--shape", "x=4,8", "--json"))
    assert told["placement"] == {"npu": 1}
    (found,) = json.loads(invoke("inspect", target, "--json"))
    assert found["placement"][0]["node"] == "act"
    (dispatch,) = found["dispatches"]
    assert dispatch["operators"][0]["schedule"] and dispatch["operators"][0]["arguments"]
    assert dispatch["buffers"]["in"] >= 4 * 8 * 4
    assert "DDR_PATCH" in invoke("txn", "dump", target)
    assert json.loads(invoke("txn", "dump", target, "--json"))["operations"] > 3
    (tmp_path / "m.txt").write_text(invoke("txn", "dump", target))
    invoke("txn", "assemble", str(tmp_path / "m.txt"), "-o", str(tmp_path / "m.bin"))
    assert invoke("txn", "dump", str(tmp_path / "m.bin")) == invoke("txn", "dump", target)
    assert "act" in invoke("inspect", str(model), "--full")


def test_every_output_goes_to_whatever_it_names(model: Path, tmp_path: Path) -> None:
    compiled, text = str(tmp_path / "m.od"), str(tmp_path / "m.txt")
    invoke("compile", str(model), "-o", compiled, "--shape", "x=4,8")
    Path(text).write_text(invoke("txn", "dump", compiled))
    (tmp_path / "link").symlink_to("kept")
    commands = (
        ["compile", str(model), "--shape", "x=4,8", "-o"],
        ["txn", "assemble", text, "-o"],
        ["txn", "explain", compiled, "--svg"],
    )
    for command in commands:
        (tmp_path / "kept").write_bytes(b"")
        (tmp_path / "kept").chmod(0o604)
        invoke(*command, str(tmp_path / "link"))
        invoke(*command, "/dev/null")
        assert (tmp_path / "kept").stat().st_size and (tmp_path / "link").is_symlink()
        assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o604 and Path("/dev/null").is_char_device()
        for place in ("/dev/full", str(tmp_path), str(tmp_path / "no" / "folder")):
            result = CliRunner().invoke(app, [*command, place])
            assert isinstance(result.exception, od.OneDispatchError), place


def test_errors_are_one_line_and_exit_code_1(tmp_path: Path) -> None:
    for arguments in (["inspect", "absent.onnx"], ["txn", "dump", "absent.bin"], ["run", "light_nothing"]):
        command = [sys.executable, "-m", "onedispatch.dispatch.cli", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "Error" in done.stderr and "Traceback" not in done.stderr


def test_shapes_and_inputs_of_the_command_line(tmp_path: Path) -> None:
    assert parse_shapes(["x=1,3,224,224", "s=1x2"]) == {"x": (1, 3, 224, 224), "s": (1, 2)}
    for text in ("x", "x=", "=1", "x=a", "x=1,-2"):
        with pytest.raises(od.InputError, match="--shape"):
            parse_shapes([text])
    (tmp_path / "bad.npy").write_bytes(b"nonsense")
    for text in ("x=absent.npy", f"x={tmp_path / 'bad.npy'}", str(tmp_path / "bad.npy")):
        with pytest.raises(od.InputError, match="--input"):
            parse_inputs([text])


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, onedispatch; print(sorted({'onnx', 'onnxruntime', 'typer', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_public_names_exist() -> None:
    for name in od.__all__:
        if name != "xrt":  # needs the extension
            assert getattr(od, name) is not None
    assert set(od.__all__) <= set(dir(od))
    with pytest.raises(AttributeError):
        _ = od.nonsense
    assert issubclass(od.UnsupportedModelError, od.OneDispatchError)
    assert next(str(d) for d in od.devices()).startswith("npu1: 4 columns")


def test_a_report_for_people_and_for_scripts() -> None:
    report = RunReport(1, 1000, 1e-6, [OpReport("conv1", "conv", ("a", "b"), 750)], 64, 32)
    text = str(report)
    assert "75.0%" in text and "conv1" in text and "1,000 cycles" in text
    assert report.as_dict()["ops"][0]["nodes"] == ("a", "b")


def test_inspect_tells_of_a_name_that_means_two_sizes(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["?", 8, "?", "M"]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    path = str(tmp_path / "m.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    options = ("--shape", "x=1,8,48,192")
    assert "dimension name '?' stands for different sizes: 1, 48\n" in invoke("inspect", path, *options)
    (found,) = json.loads(invoke("inspect", path, *options, "--json"))
    assert found["dimension_names"] == {"?": [1, 48]}


def test_inspect_names_the_host_engine(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 3]) for n in ("x", "y")]
    graph = helper.make_graph(on_host("x", "y"), "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    invoke("compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.od"))
    for name in ("m.onnx", "m.od"):
        (found,) = json.loads(invoke("inspect", str(tmp_path / name), "--json"))
        assert found["placement"][0]["reason"].endswith("; on onnxruntime")
        assert "on onnxruntime" in " ".join(invoke("inspect", str(tmp_path / name)).split())


COMMAND = [sys.executable, "-m", "onedispatch.dispatch.cli"]


def small_model(path: Path, name: str = "act", op: str = "Relu", output: str = "y") -> Path:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in ("x", output)]
    graph = helper.make_graph([helper.make_node(op, ["x"], [output], name=name)], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    line = f"{' '.join(COMMAND)} ops --json | head -c 10"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.stdout == "[\n  {\n    " and done.stderr == ""


NAMES = (
    "[bold]x[/bold]",
    "[/]",
    "[link=file:///]",
    ":smile:",
    "\x1b[2J\x1b]0;owned\x07",
    "a\u202eb",
    "\x9b31m",
    "%s{}",
)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_text(name: str, tmp_path: Path) -> None:
    """Neither markup nor emoji codes nor commands to the terminal."""
    path = str(small_model(tmp_path / "m.onnx", name, output=f"out{name}"))
    shown = visible(name)
    assert shown.isprintable() and (shown == name or "\\" in shown)
    for command in (["inspect", path, "--full"], ["run", path, "--random"]):
        printed = invoke(*command)
        assert not any(c in printed for c in "\x1b\x07\x9b\u202e")
        assert shown in "".join(printed.split()) or command[0] == "run"
        assert f"out{shown}" in "".join(printed.split()) or command[0] == "inspect"
    assert json.loads(invoke("inspect", path, "--json"))[0]["placement"][0]["node"] == name


def test_errors_are_text_too(tmp_path: Path) -> None:
    command = [*COMMAND, "inspect", "\x1b[31m:smile:[bold].onnx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 1 and b"\x1b" not in done.stderr
    assert rb"\x1b[31m:smile:[bold].onnx" in done.stderr.replace(b"\n", b"").replace(b"\\\\", b"\\")


def test_json_has_no_nan(tmp_path: Path) -> None:
    path = str(small_model(tmp_path / "m.onnx"))
    np.save(tmp_path / "x.npy", np.full((2, 4), np.nan, np.float32))
    text = invoke("run", path, "-i", f"x={tmp_path / 'x.npy'}", "--json")
    (row,) = json.loads(text, parse_constant=pytest.fail)["outputs"]
    assert row["max"] is None and row["mean"] is None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_json({"a": [np.inf, (np.float32("nan"), 1.5)], "b": np.array([-np.inf, 2.0])})
    assert json.loads(out.getvalue()) == {"a": [None, [None, 1.5]], "b": [None, 2.0]}


@pytest.mark.parametrize("size", ["²", "١", "9" * 5000, "1e3", "+1", "-1"])
def test_numbers_of_the_command_line(size: str) -> None:
    for parse, text in (
        (_parse_tile, f"{size},1"),
        (_parse_sizes, [f"0={size}"]),
        (parse_shapes, [f"x={size},2"]),
    ):
        with pytest.raises(od.InputError):
            parse(text)


def test_an_unexpected_error_is_one_message(tmp_path: Path) -> None:
    code = (
        "import sys; from onedispatch.dispatch import cli\nfrom onedispatch.dispatch.cli import info\n"
        "def fail(files): raise KeyError('thrown on purpose')\n"
        "info.all_devices = fail; sys.argv = ['onedispatch', 'devices']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "internal error in onedispatch" in done.stderr and "thrown on purpose" in done.stderr


def test_a_replay_of_a_compiled_model_says_how_it_runs_whole(model: Path, tmp_path: Path) -> None:
    compiled = str(tmp_path / "m.od")
    invoke("compile", str(model), "-o", compiled, "--shape", "x=4,8")
    shown = CliRunner().invoke(app, ["txn", "replay", compiled])
    assert "onedispatch run" in shown.stdout
