# SPDX-License-Identifier: Apache-2.0
"""Program memory that is too small for a model's kernels: reloads at operator borders."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ml_dtypes import bfloat16
from onnx import ModelProto, TensorProto, helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.compiler.executable import DeviceStep
from onedispatch.dispatch.tools.checking import check_model
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.operators.emission.image import EMPTY, Image, Linked, link, merged
from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.transactions import FindingKind, Transaction, find_device
from onedispatch.transactions.machine import registers as reg
from onedispatch.transactions.machine.bd import control_packet_header
from tests.devices import device_file

X = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)


def small(folder: Path, bytes_: int) -> Path:
    changes = {"device.columns": 1, "core.program_memory_bytes": bytes_}
    return device_file(folder, f"small{bytes_}", changes)


@pytest.fixture(scope="module")
def model() -> ModelProto:
    return network(8)


def network(rows: int) -> ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "x2"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in
            (("x", [rows, 32]), ("x2", [32, rows]), ("y", [rows, rows]))]  # fmt: skip
    graph = helper.make_graph(nodes, "g", ends[:2], ends[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SMALL = 6144
"""Bytes of program memory for Softmax beside another kernel, not for three of them."""
TIGHT = 5632
"""For one of them alone."""
FEED = {"x": X, "x2": np.ascontiguousarray(X.T)}


def test_reloads_change_no_answer_and_are_charged(model: ModelProto, tmp_path: Path) -> None:
    whole = od.InferenceSession(model, device="npu2_1col", fallback="error")
    (expected,) = whole.run(None, FEED)
    assert (whole.last_run.reloads, whole.last_run.reload_cycles) == ([], 0)
    parted = od.InferenceSession(model, device=small(tmp_path, SMALL), fallback="error")
    for _ in range(2):  # a run leaves the image that it began with
        np.testing.assert_array_equal(parted.run(None, FEED)[0], expected)
        report = parted.last_run
        assert [reload.before for reload in report.reloads] == [2, 4] and report.dispatches == 1
        assert report.cycles - whole.last_run.cycles >= 0.95 * report.reload_cycles > 0
    assert sum(op.cycles for op in report.ops) + report.reload_cycles <= report.cycles
    assert "reloads         2" in str(report) and str(report).count("bytes into each: od::") == 2
    assert report.program_bytes == max(reload.nbytes for reload in report.reloads) <= SMALL
    parted.model.save(tmp_path / "m.od")
    again = od.InferenceSession(od.load(tmp_path / "m.od"))
    np.testing.assert_array_equal(again.run(None, FEED)[0], expected)
    assert again.last_run.cycles == report.cycles
    same = od.InferenceSession(parted.model.with_transaction(parted.model.transaction))
    np.testing.assert_array_equal(same.run(None, FEED)[0], expected)


@pytest.mark.parametrize("columns", [1, 3])
def test_the_checker_follows_reloads(tmp_path: Path, columns: int) -> None:
    changes = {"device.columns": columns, "core.program_memory_bytes": SMALL}
    compiled = od.compile(network(1), device=device_file(tmp_path, "parted", changes), fallback="error")
    assert check_model(compiled) == []
    whole = Transaction.from_bytes(compiled.transaction)
    polls = [op for op in whole.ops if op.name == "MASKPOLL"]
    cores = columns * 4
    assert len(polls) == 2 * (cores + 4)  # two reloads, after work in one column: its four channels too
    idle = [op for op in polls if op.fields["reg"] >> reg.ROW_SHIFT == 5][:2]  # no output comes from there
    assert len(idle) == 2
    for gone in idle:
        found = check_model(compiled.with_transaction(without(whole, gone.index)))
        assert found and {f.kind for f in found} == {FindingKind.HAZARD}, gone
        assert all(f.op_index is not None and f.op_index > gone.index for f in found)


def test_a_program_that_is_written_while_it_runs_ends_what_is_known(
    model: ModelProto, tmp_path: Path
) -> None:
    compiled = od.compile(model, device=small(tmp_path, SMALL), fallback="error")
    ((key, executable),) = compiled.executables.items()
    (step,) = executable.device_steps
    words = np.frombuffer(step.params, np.uint32).copy()
    stop, *_ = np.flatnonzero(words == control_packet_header(reg.CORE.block["CORE_CONTROL"].offset, 1))
    words[stop + 1] = 1  # what stops the cores leaves them running
    wrong = replace(step, params=words.tobytes())
    compiled.executables[key] = replace(executable, steps=(wrong,))
    assert check_model(compiled)


def without(whole: Transaction, *ops: int) -> bytes:
    lines = [line for line in whole.text().splitlines() if line.split()[0] not in map(str, ops)]
    return Transaction.from_text("\n".join(lines)).to_bytes()


def test_a_kernel_that_does_not_fit_by_itself(model: ModelProto, tmp_path: Path) -> None:
    device = small(tmp_path, 3584)  # no room for element-wise code beside the super kernel
    with pytest.raises(od.UnsupportedModelError, match="bytes of program memory"):
        od.compile(model, device=device, fallback="error")
    session = od.InferenceSession(model, device=device)
    session.run(None, FEED)
    (relu,) = [row for row in session.placement if row.op_type == "Relu"]
    assert relu.device == "cpu" and "program memory" in relu.reason
    with pytest.raises(od.DeviceError, match="program memory of npu2"):
        overlay_transaction(find_device("npu2"), merged(Image.of(kernel) for kernel in all_kernels()))


@pytest.fixture(scope="module")
def turns() -> ModelProto:
    """Element-wise operators and products in turns."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"]),
        helper.make_node("MatMul", ["a", "x2"], ["b"]),
        helper.make_node("Mul", ["b", "b"], ["c"]),
        helper.make_node("MatMul", ["c", "x"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in
            (("x", [8, 32]), ("x2", [32, 8]), ("y", [8, 32]))]  # fmt: skip
    graph = helper.make_graph(nodes, "turns", ends[:2], ends[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_device_file_decides_how_often(turns: ModelProto, tmp_path: Path) -> None:
    counts = {}
    whole = od.InferenceSession(turns, device="npu2_1col", fallback="error").run(None, FEED)
    for room in (4608, TIGHT, 6656, 16384):
        session = od.InferenceSession(turns, device=small(tmp_path, room), fallback="error")
        np.testing.assert_array_equal(session.run(None, FEED)[0], whole[0])
        counts[room] = len(session.last_run.reloads)
        assert session.last_run.program_bytes <= room
    assert counts == {4608: 4, TIGHT: 4, 6656: 0, 16384: 0}


def test_element_types_that_are_more_than_16_kb() -> None:
    """Of the device as it is: element-wise code for nine types is 18 KB."""
    types = (np.float32, np.int32, np.int8, np.float16, np.uint8, np.int16, np.uint16, np.uint32, bfloat16)
    onnx_types = {f"x{i}": helper.np_dtype_to_tensor_dtype(np.dtype(t)) for i, t in enumerate(types)}
    nodes = [helper.make_node("Add", [x, x], [f"{x}y"]) for x in onnx_types]
    ends = [
        [helper.make_tensor_value_info(f"{x}{end}", t, [8, 16]) for x, t in onnx_types.items()]
        for end in ("", "y")
    ]
    opset = [helper.make_opsetid("", 17)]
    mixed = helper.make_model(helper.make_graph(nodes, "mixed", *ends), opset_imports=opset, ir_version=8)
    feed = {x: np.arange(128).reshape(8, 16).astype(t) // 2 for x, t in zip(onnx_types, types, strict=True)}
    session = od.InferenceSession(mixed, device="npu2_1col", fallback="error")
    for x, y in zip(feed.values(), session.run(None, feed), strict=True):
        np.testing.assert_array_equal(y, x + x)
    report = session.last_run
    assert [reload.before for reload in report.reloads] == [7, 9]
    assert 8192 < report.program_bytes <= 16384
    words = sum(reload.nbytes // 4 for reload in report.reloads)
    assert report.reload_cycles > 1.5 * words  # six words of a stream for four of a program


def test_two_sessions_in_threads(model: ModelProto, turns: ModelProto, tmp_path: Path) -> None:
    device = small(tmp_path, SMALL)
    sessions = [od.InferenceSession(one, device=device, fallback="error") for one in (model, turns)]
    alone = [(session.run(None, FEED)[0], session.last_run.cycles) for session in sessions]

    def again(number: int) -> None:
        for _ in range(3):
            np.testing.assert_array_equal(sessions[number].run(None, FEED)[0], alone[number][0])
            assert sessions[number].last_run.cycles == alone[number][1]

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(again, range(2)))


def test_the_tools_know_reloads(turns: ModelProto, tmp_path: Path) -> None:
    compiled = od.compile(turns, device=small(tmp_path, TIGHT), fallback="error")
    whole = Transaction.from_bytes(compiled.transaction)
    assert Transaction.from_text(whole.text()).to_bytes() == compiled.transaction
    assert whole.validate() == [] and check_model(compiled) == []
    compiled.save(tmp_path / "turns.od")

    def shown(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, str(tmp_path / "turns.od")])
        assert result.exit_code == 0, result.output
        return str(result.output)

    assert "load a program: 968 words" in shown("txn", "explain")
    assert "0 errors, 0 warnings" in shown("txn", "check")
    assert shown("inspect").count("reloaded ") == 4
    ((dispatch,),) = ([*one["dispatches"]] for one in json.loads(shown("inspect", "--json")))
    assert [reload["before"] for reload in dispatch["reloads"]] == [1, 2, 3, 4]
    assert dispatch["program_memory_bytes"] == TIGHT >= dispatch["program"]["bytes"] == 4392
    report = json.loads(shown("run", "--random", "--json"))["report"]
    assert len(report["reloads"]) == 4 and all(
        reload["cycles"] > 1.5 * reload["nbytes"] // 4 for reload in report["reloads"]
    )


@pytest.mark.parametrize("change", [{"before": 9}, {"before": 1}])
def test_a_saved_model_that_lies_of_its_reloads(
    turns: ModelProto, tmp_path: Path, change: dict[str, int]
) -> None:
    compiled = od.compile(turns, device=small(tmp_path, TIGHT), fallback="error")
    ((key, executable),) = compiled.executables.items()
    (step,) = executable.device_steps
    wrong = replace(step, reloads=(*step.reloads[:-1], replace(step.reloads[-1], **change)))
    compiled.executables[key] = replace(executable, steps=(wrong,))
    compiled.save(tmp_path / "wrong.od")
    with pytest.raises(od.CompiledModelError, match="reloads before operators"):
        od.load(tmp_path / "wrong.od")


@pytest.mark.parametrize(
    ("room", "change", "told"),
    [
        (16384, lambda step: {"image": EMPTY}, "names od::eltwise@1 .* carries: none"),
        (SMALL, lambda step: {"image": EMPTY}, "names od::eltwise@1 .* carries: none"),
        (
            16384,
            lambda step: {"image": of_linked(step, step.image.linked[:1])},
            "od::eltwise@1 .* od::gemm@1",
        ),
        (16384, lambda step: {"image": of_linked(step, types=2)}, "for element type 0"),
        (16384, lambda step: {"image": of_linked(step, types=0)}, "mask 0"),
        (16384, lambda step: {"image": of_linked(step, code_bytes=16)}, "with the code of its kernels"),
        (16384, lambda step: {"image": of_linked(step, types=0xFFFFFFFF, code_bytes=1 << 20)}, "16384"),
        (SMALL, lambda step: {"reloads": ()}, "od::gemm@1 .* od::eltwise@1"),
        (
            SMALL,
            lambda step: {"reloads": (replace(step.reloads[0], nbytes=SMALL + 4), step.reloads[1])},
            str(SMALL),
        ),
        (16384, lambda step: {"params": bytes(len(step.params))}, "no block"),
    ],
)
def test_a_saved_model_whose_program_does_not_run_its_operators(
    model: ModelProto, tmp_path: Path, room: int, change: Callable[[DeviceStep], dict[str, object]], told: str
) -> None:
    compiled = od.compile(model, device=small(tmp_path, room), fallback="error")
    ((key, executable),) = compiled.executables.items()
    (step,) = executable.device_steps
    wrong = replace(step, **change(step))  # type: ignore[arg-type]
    compiled.executables[key] = replace(executable, steps=(wrong,))
    compiled.save(tmp_path / "wrong.od")
    with pytest.raises(od.CompiledModelError, match=f"its program: .*{told}"):
        od.load(tmp_path / "wrong.od")


def test_a_saved_model_whose_program_names_a_kernel_that_nobody_brings(
    model: ModelProto, tmp_path: Path
) -> None:
    compiled = od.compile(model, device=small(tmp_path, 16384), fallback="error")
    ((key, executable),) = compiled.executables.items()
    (step,) = executable.device_steps
    wrong = replace(step, image=of_linked(step, digest=7))
    compiled.executables[key] = replace(executable, steps=(wrong,))
    compiled.save(tmp_path / "wrong.od")
    with pytest.raises(od.KernelError, match=r"od::softmax@1 .digest 0x00000007., which no plug-in brings"):
        od.load(tmp_path / "wrong.od")


def of_linked(step: DeviceStep, linked: tuple[Linked, ...] | None = None, **change: int) -> Image:
    """The image of ``step`` with other kernels, or with the last of its own changed."""
    own = step.image.linked if linked is None else linked
    return Image((*own[:-1], own[-1]._replace(**change)))  # type: ignore[arg-type]


def test_linking_changes_as_seldom_as_possible() -> None:
    one, two, three = (Image.of(k, k.outputs[0].dtypes.split()[0]) for k in all_kernels()[:3])
    room = merged([one, two]).nbytes
    linked = link([one, two, one, three, three, one], room)
    assert linked[0] is linked[2] and linked[0].covers(one | two) and not linked[0].covers(three)
    assert len({image.linked for image in linked}) <= 3
    assert link([one, two, three], 1 << 20) == [one | two | three] * 3
