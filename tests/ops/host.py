# SPDX-License-Identifier: Apache-2.0
"""A host application for one device operator: overlay, transaction and buffers to the simulated NPU.

The road of the dispatcher, in the open: every part can be replaced, which is what tests of wrong
transactions need.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onedispatch import xrt
from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.operators.interface.operator import Operator
from onedispatch.transactions import ArgKind, Device, OneDispatchError, Xclbin
from tests.ops.case import Array
from tests.ops.lowered import device_bytes

OPCODE = 3  # "execute this transaction" of the NPU's firmware
FIRST_BUFFER = 3
SMALLEST = 64  # bytes of a buffer that no entry of the arg map names
FILL = 0xA5  # what the output buffer holds before the run
TO_DEVICE = xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
FROM_DEVICE = xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE


def run_buffers(
    device: Device,
    transaction: bytes,
    buffers: Sequence[bytes],
    overlay: bytes | None = None,
    kernel_seconds: float | None = None,
) -> list[bytes]:
    """Runs ``transaction`` on ``buffers`` (kernel arguments in order); all of them afterwards.

    Raises:
        OneDispatchError: the simulator refuses the overlay or the run.
    """
    (result,) = run_in_turn(device, [transaction], buffers, overlay, kernel_seconds)
    if isinstance(result, OneDispatchError):
        raise result
    return result


def run_in_turn(
    device: Device,
    transactions: Sequence[bytes],
    buffers: Sequence[bytes],
    overlay: bytes | None = None,
    kernel_seconds: float | None = None,
) -> list[list[bytes] | OneDispatchError]:
    """Runs each transaction on copies of ``buffers``, one after the other in one context.

    What each leaves in the buffers, or its error.

    Raises:
        OneDispatchError: the simulator refuses the overlay.
    """
    npu = xrt.device.from_description(device.description())
    if kernel_seconds is not None:
        npu.set_kernel_seconds(kernel_seconds)
    pdi = overlay_transaction(device) if overlay is None else overlay
    binary = xrt.xclbin(Xclbin(device.name, {0: pdi}).to_bytes())
    npu.register_xclbin(binary)
    context = xrt.hw_context(npu, binary.get_uuid())
    kernel = xrt.kernel(context, binary.get_kernels()[0].get_name())
    results: list[list[bytes] | OneDispatchError] = []
    for transaction in transactions:
        try:
            results.append(_run_one(npu, kernel, transaction, buffers))
        except OneDispatchError as error:
            results.append(error)
    return results


def _run_one(
    npu: xrt.device, kernel: xrt.kernel, transaction: bytes, buffers: Sequence[bytes]
) -> list[bytes]:
    instructions = xrt.bo(npu, len(transaction), xrt.bo.cacheable, kernel.group_id(1))
    instructions.write(transaction, 0)
    instructions.sync(TO_DEVICE)
    held = []
    for data in buffers:
        bo = xrt.bo(npu, len(data), xrt.bo.host_only, kernel.group_id(FIRST_BUFFER))
        bo.write(data, 0)
        bo.sync(TO_DEVICE)
        held.append(bo)
    state = kernel(OPCODE, instructions, len(transaction), *held).wait()
    assert state == xrt.ert_cmd_state.ERT_CMD_STATE_COMPLETED
    for bo in held:
        bo.sync(FROM_DEVICE)
    return [bytes(bo.read(len(data), 0)) for bo, data in zip(held, buffers, strict=True)]


def buffers_of(op: Operator, arrays: Sequence[Array]) -> list[bytes]:
    """The buffers of the operator's own arguments; ``arrays`` are all its inputs."""
    given = {t.name: a for t, a in zip(op.inputs, arrays, strict=True)}
    reads = [device_bytes(t, given[t.name]) for t in op.activations]
    entries = op.arg_map()
    buffers = [bytes([FILL]) * SMALLEST] * (1 + max(entry.xrt_arg_idx for entry in entries))
    for entry in entries:
        if entry.kind is ArgKind.INPUT:
            data = reads[entry.onnx_arg_idx]
        else:
            data = {
                ArgKind.OUTPUT: bytes([FILL]) * entry.size,
                ArgKind.CONST_INPUT: op.format_const_params().tobytes(),
                ArgKind.CONST_KERNEL_PARAM_INPUT: op.super_kernel_params(),
            }[entry.kind]
        assert entry.offset == 0 and len(data) == entry.size
        buffers[entry.xrt_arg_idx] = data.ljust(SMALLEST, bytes([FILL]))
    return buffers


def overlay_for(op: Operator) -> bytes:
    """The overlay with the kernels that ``op`` needs."""
    return overlay_transaction(op.device, op.image)


def execute(op: Operator, arrays: Sequence[Array]) -> Array:
    """``Execute`` on the simulated array, by the operator's own transaction."""
    after = run_buffers(op.device, op.transaction(), buffers_of(op, arrays), overlay_for(op))
    return output_of(op, after[0])


def output_of(op: Operator, data: bytes) -> Array:
    """The output in its argument's bytes, row padding dropped."""
    tensor = op.output
    if not tensor.size:
        return np.zeros(tensor.shape, tensor.dtype)
    flat = np.frombuffer(data[: tensor.device_bytes], tensor.dtype)
    rows = flat.reshape(-1, tensor.row_pitch)[:, : tensor.shape[-1] if tensor.shape else 1]
    return rows.reshape(tensor.shape)
