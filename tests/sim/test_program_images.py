# SPDX-License-Identifier: Apache-2.0
"""Images of program memory in the simulator and in the model of the array: reloaded, foreign, false."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onedispatch.operators.declarations import params
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.operators.emission.image import Image, image_hash
from onedispatch.operators.emission.overlay import overlay_transaction, reload_packets, reload_transaction
from onedispatch.operators.interface.operator import Operator
from onedispatch.transactions import ArgKind, ArgMap, Bindings, TransactionBuilder, fuse
from onedispatch.transactions.fusion.fuse import FusePart
from onedispatch.transactions.machine import registers as reg
from tests.array_model.compare import Outcome, run_cpp, run_model
from tests.array_model.super_kernel import load_program
from tests.ops.case import case, f32
from tests.ops.host import buffers_of
from tests.ops.lowered import lower

ELTWISE, SOFTMAX = (
    next(k for k in all_kernels() if k.name == name) for name in ("od::eltwise@1", "od::softmax@1")
)
X = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)


def test_a_block_for_a_type_that_is_not_linked() -> None:
    ((_, op),) = lower(case("Relu", f32(5, 7))).ops
    (linked,) = op.image.linked
    wrong = Image((linked._replace(types=2),))
    outcome = run_cpp(op.device, overlay_transaction(op.device, wrong), op.transaction(),
                      buffers_of(op, [X]))  # fmt: skip
    assert outcome.kind != "ok" and "element type" in outcome.text


@pytest.fixture(scope="module")
def relu() -> Operator:
    ((_, op),) = lower(replace(case("Relu", f32(5, 7)), device="npu2_1col")).ops
    return op


def both(op: Operator, overlay: bytes, *parts: bytes | Image) -> tuple[Outcome, Outcome]:
    """What the simulator and the array model make of the parts, one after the other; images are loaded."""
    buffers = [*buffers_of(op, [X])]
    fused: list[FusePart] = []
    for part in parts:
        if isinstance(part, bytes):
            fused.append(part)
            continue
        packets = reload_packets(op.device, part)
        entries = [ArgMap(ArgKind.CTRL_PKT_BIN, 0, 0, 0, len(packets))]
        load = reload_transaction(op.device, len(packets), op.device.columns)
        fused.append((load, entries, Bindings(ctrl_argument=len(buffers))))
        buffers.append(packets)
    transaction = fuse(fused).to_bytes()
    cpp = run_cpp(op.device, overlay, transaction, buffers)
    return cpp, run_model(op.device, overlay, transaction, buffers, load_program)


def test_the_array_model_runs_an_operator_after_reloads(relu: Operator) -> None:
    device, work, other = relu.device, relu.transaction(), Image.of(SOFTMAX, "f32")
    for overlay, parts in (
        (other, [relu.image, work]),
        (relu.image, [work, other, relu.image, work]),
    ):
        cpp, model = both(relu, overlay_transaction(device, overlay), *parts)
        assert cpp.kind == model.kind == "ok", (cpp.text, model.text)
        assert cpp.buffers == model.buffers
        (output,) = (e for e in relu.arg_map() if e.kind is ArgKind.OUTPUT)
        result = np.frombuffer(cpp.buffers[output.xrt_arg_idx][: 4 * 35], np.float32)
        np.testing.assert_array_equal(result, np.maximum(X, 0).ravel())
    for parts in ([work, other, work], [other, work]):
        cpp, model = both(relu, overlay_transaction(device, relu.image), *parts)
        assert cpp.kind == model.kind == "core" and "carries: od::softmax@1" in cpp.text


def lies(image: Image) -> dict[str, list[int]]:
    """Images, less the hash, that say what no image may, and two that may be."""
    words, at = list(image.words)[:-1], params.IMAGE
    table, count = at["kernels"], at["count"]
    (linked,), (other,) = image.linked, Image.of(SOFTMAX, "f32").linked
    code = [0] * (linked.bytes // 4)
    twice = [*words[:table], *words[table : table + 2] * 2, *words[table + 2 :], *code]

    def said(changes: dict[int, int], given: list[int]) -> list[int]:
        whole = [*given]
        for index, value in ({at["words"]: len(given) + 1} | changes).items():
            whole[index] = value
        return whole

    return {
        "sound": words,
        "another element type too": said({table + 1: linked.types | 2}, [*words, *code]),
        "an element type that there is not": said({table + 1: 1 << 30}, words),
        "no element type": said({table + 1: 0}, words),
        "a kernel that there is not": said({table: 0x12345678}, words),
        "a kernel of another length": said({table: other.digest}, words),
        "code that is missing": said({}, words[:-4]),
        "code that is nobody's": said({}, [*words, *code]),
        "a kernel twice": said({count: 2}, twice),
        "more kernels than its table": said({count: 3}, words),
        "a table over the code": said({count: 250}, words),
        "a table beyond the image": said({count: 0xFFFFFFFF}, words),
        "no words": said({at["words"]: 0}, words),
        "more words than memory": said({at["words"]: 0xFFFFFFFF}, words),
        "another version": said({at["version"]: 2}, words),
    }


@pytest.mark.parametrize("lie", lies(Image.of(ELTWISE, "f32")))
def test_images_that_lie(relu: Operator, lie: str) -> None:
    words = lies(Image.of(ELTWISE, "f32"))[lie]
    builder = TransactionBuilder.for_device(relu.device)
    tile = 2 << reg.ROW_SHIFT
    control, memory = (tile + reg.CORE.block[n].offset for n in ("CORE_CONTROL", "PROGRAM_MEMORY"))
    builder.write(control, 2)
    builder.blockwrite(memory, [*words, image_hash(words)])
    builder.write(control, 0)
    builder.write(control, 1)
    overlay = overlay_transaction(relu.device, relu.image)
    cpp, model = both(relu, overlay, builder.to_bytes(), relu.transaction())
    allowed = lie in ("sound", "another element type too")
    assert cpp.kind == model.kind == ("ok" if allowed else "core"), cpp.text


def test_program_memory_of_a_core_that_runs(relu: Operator) -> None:
    """What runs is what program memory held when the core was started."""
    builder = TransactionBuilder.for_device(relu.device)
    at = (2 << reg.ROW_SHIFT) + reg.CORE.block["PROGRAM_MEMORY"].offset
    builder.write(at, 1)
    overlay = overlay_transaction(relu.device, relu.image)
    cpp, model = both(relu, overlay, builder.to_bytes())
    assert cpp.kind == model.kind == "core" and "PROGRAM_MEMORY" in cpp.text and "reset before" in cpp.text
    builder = TransactionBuilder.for_device(relu.device)
    builder.blockwrite(at, relu.image.words)
    assert [outcome.kind for outcome in both(relu, overlay, builder.to_bytes())] == ["core", "core"]


def test_buffers_end_before_the_stack(relu: Operator) -> None:
    device = relu.device
    room = device.count("core.data_memory_bytes") - device.count("core.stack_bytes")
    buffers = buffers_of(relu, [X])
    block = next(e.xrt_arg_idx for e in relu.arg_map() if e.kind is ArgKind.CONST_KERNEL_PARAM_INPUT)
    words = np.frombuffer(buffers[block], "<u4").copy()
    port = buffers[block].index(relu.parameter_blocks[0]) // 4 + params.HEADER["port_out"]
    words[port] = reg.CORE_VIEW_MEMORY + room - int(words[port + 3]) + 4
    buffers[block] = words.tobytes()
    overlay = overlay_transaction(device, relu.image)
    cpp = run_cpp(device, overlay, relu.transaction(), buffers)
    model = run_model(device, overlay, relu.transaction(), buffers, load_program)
    assert cpp.kind == model.kind == "core"
    assert "port out chunk bytes" in cpp.text and "stack and tables" in cpp.text
