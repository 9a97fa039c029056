# SPDX-License-Identifier: Apache-2.0
"""Program memory that is too small for a model's kernels: reloads at operator borders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import onedispatch as od
from onedispatch.dispatch.tools.checking import check_model
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.operators.emission.image import Image, link, merged
from onedispatch.operators.emission.overlay import overlay_transaction, reload_transaction
from onedispatch.transactions import FindingKind, Transaction, find_device
from onedispatch.transactions.machine import registers as reg
from tests.array_model.compare import run_cpp, run_model
from tests.array_model.super_kernel import load_program
from tests.devices import device_file
from tests.ops.case import case, f32
from tests.ops.host import buffers_of
from tests.ops.lowered import lower

X = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)


def small(folder: Path, bytes_: int) -> Path:
    changes = {"device.columns": 1, "core.program_memory_bytes": bytes_}
    return device_file(folder, f"small{bytes_}", changes)


@pytest.fixture(scope="module")
def model() -> ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "x2"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in
            (("x", [8, 32]), ("x2", [32, 8]), ("y", [8, 8]))]  # fmt: skip
    graph = helper.make_graph(nodes, "g", ends[:2], ends[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


FEED = {"x": X, "x2": np.ascontiguousarray(X.T)}


def test_reloads_change_no_answer_and_are_charged(model: ModelProto, tmp_path: Path) -> None:
    whole = od.InferenceSession(model, device="npu2_1col", fallback="error")
    (expected,) = whole.run(None, FEED)
    assert (whole.last_run.reloads, whole.last_run.reload_cycles) == (0, 0)
    parted = od.InferenceSession(model, device=small(tmp_path, 7168), fallback="error")
    for _ in range(2):  # a run leaves the image that it began with
        np.testing.assert_array_equal(parted.run(None, FEED)[0], expected)
        report = parted.last_run
        assert report.reloads == 2 and report.dispatches == 1
        assert report.cycles - whole.last_run.cycles >= 0.95 * report.reload_cycles > 0
    assert "reloads         2" in str(report)
    parted.model.save(tmp_path / "m.od")
    again = od.InferenceSession(od.load(tmp_path / "m.od"))
    np.testing.assert_array_equal(again.run(None, FEED)[0], expected)
    assert again.last_run.cycles == report.cycles
    same = od.InferenceSession(parted.model.with_transaction(parted.model.transaction))
    np.testing.assert_array_equal(same.run(None, FEED)[0], expected)


@pytest.mark.parametrize("columns", [1, 3])
def test_the_checker_follows_reloads(model: ModelProto, tmp_path: Path, columns: int) -> None:
    changes = {"device.columns": columns, "core.program_memory_bytes": 7168}
    compiled = od.compile(model, device=device_file(tmp_path, "parted", changes), fallback="error")
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
    compiled = od.compile(model, device=small(tmp_path, 7168), fallback="error")
    whole = Transaction.from_bytes(compiled.transaction)
    control = reg.CORE.block["CORE_CONTROL"].offset
    stop = next(
        op.index for op in whole.ops if op.name == "WRITE" and op.fields["reg"] & reg.OFFSET_MASK == control
    )
    assert check_model(compiled.with_transaction(without(whole, stop)))


def without(whole: Transaction, *ops: int) -> bytes:
    lines = [line for line in whole.text().splitlines() if line.split()[0] not in map(str, ops)]
    return Transaction.from_text("\n".join(lines)).to_bytes()


def test_a_kernel_that_does_not_fit_by_itself(model: ModelProto, tmp_path: Path) -> None:
    device = small(tmp_path, 4096)  # no room for element-wise code beside the super kernel
    with pytest.raises(od.UnsupportedModelError, match="bytes of program memory"):
        od.compile(model, device=device, fallback="error")
    session = od.InferenceSession(model, device=device)
    session.run(None, FEED)
    (relu,) = [row for row in session.placement if row.op_type == "Relu"]
    assert relu.device == "cpu" and "program memory" in relu.reason
    with pytest.raises(od.DeviceError, match="program memory of npu2"):
        overlay_transaction(find_device("npu2"), merged(Image.of(kernel) for kernel in all_kernels()))


def test_a_block_for_a_type_that_is_not_linked() -> None:
    ((_, op),) = lower(case("Relu", f32(5, 7))).ops
    (linked,) = op.image.linked
    wrong = Image((linked._replace(types=2),))
    outcome = run_cpp(op.device, overlay_transaction(op.device, wrong), op.transaction(),
                      buffers_of(op, [np.zeros((5, 7), np.float32)]))  # fmt: skip
    assert outcome.kind != "ok" and "element type" in outcome.text


def test_the_array_model_reloads_too() -> None:
    ((_, op),) = lower(case("Relu", f32(5, 7))).ops
    other = Image.of(next(k for k in all_kernels() if k.name == "od::softmax@1"), "f32")
    buffers = buffers_of(op, [np.ones((5, 7), np.float32)])
    overlay = overlay_transaction(op.device, other)
    reload = reload_transaction(op.device, op.image, 0)
    cpp = run_cpp(op.device, overlay, reload, buffers)
    model = run_model(op.device, overlay, reload, buffers, load_program)
    assert cpp.kind == model.kind == "ok", (cpp.text, model.text)


def test_linking_changes_as_seldom_as_possible() -> None:
    one, two, three = (Image.of(k, k.outputs[0].dtypes.split()[0]) for k in all_kernels()[:3])
    room = merged([one, two]).nbytes
    linked = link([one, two, one, three, three, one], room)
    assert linked[0] is linked[2] and linked[0].covers(one | two) and not linked[0].covers(three)
    assert len({image.linked for image in linked}) <= 3
    assert link([one, two, three], 1 << 20) == [one | two | three] * 3
