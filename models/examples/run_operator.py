# SPDX-License-Identifier: Apache-2.0
"""Runs one operator's transaction from a host application, as one does on real hardware.

    python models/examples/run_operator.py [--shape 64 300]

The first half makes what a build leaves behind: an xclbin (the overlay), an instruction file
(the operator's transaction) and its parameters. The second half is a host application in pyxrt's
manner: apart from the import line it says nothing that is not XRT.

It lives in models/ because that folder holds what one runs and does not install.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from onedispatch import xrt as pyxrt  # on a machine with an NPU: import pyxrt
from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.operators.interface.operator import Operator, TensorSpec
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.transactions import ArgKind, Xclbin, find_device

DEVICE = "npu2"  # what device(0) is in the simulator; a real machine has what it has
OPCODE = 3  # "execute this transaction" of the NPU's firmware
FIRST_BUFFER = 3  # kernel arguments 0 to 2 are opcode, instructions and their length


def build(folder: Path, shape: tuple[int, ...]) -> Operator:
    """Writes overlay.xclbin, add.bin and params.bin; returns the operator for its arg map."""
    device = find_device(DEVICE)
    a, b, total = (TensorSpec(name, np.dtype(np.float32), shape) for name in ("a", "b", "total"))
    add = Eltwise("add", "add", [a, b], total, device)
    overlay = Xclbin(device.name, {0: overlay_transaction(device, add.image)})
    (folder / "overlay.xclbin").write_bytes(overlay.to_bytes())
    (folder / "add.bin").write_bytes(add.transaction())
    (folder / "params.bin").write_bytes(add.super_kernel_params())
    return add


def run(folder: Path, operator: Operator, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The host application: five steps that every XRT program has."""
    # 1. The device, and the overlay that its array gets.
    device = pyxrt.device(0)
    xclbin = pyxrt.xclbin(str(folder / "overlay.xclbin"))
    device.register_xclbin(xclbin)
    context = pyxrt.hw_context(device, xclbin.get_uuid())
    name = next(k.get_name() for k in xclbin.get_kernels() if k.get_name().startswith("MLIR_AIE"))
    kernel = pyxrt.kernel(context, name)

    # 2. The instructions.
    instructions = (folder / "add.bin").read_bytes()
    bo_instructions = pyxrt.bo(device, len(instructions), pyxrt.bo.cacheable, kernel.group_id(1))
    bo_instructions.write(instructions, 0)
    bo_instructions.sync(pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE)

    # 3. A buffer per argument, in the order that the operator's arg map gives.
    buffers = {}
    for entry in operator.arg_map():
        bo = pyxrt.bo(
            device, entry.size, pyxrt.bo.host_only, kernel.group_id(FIRST_BUFFER + entry.xrt_arg_idx)
        )
        if entry.kind is ArgKind.INPUT:
            bo.write(inputs[entry.onnx_arg_idx].tobytes(), 0)
        elif entry.kind is ArgKind.CONST_KERNEL_PARAM_INPUT:
            bo.write((folder / "params.bin").read_bytes(), 0)
        bo.sync(pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE)
        buffers[entry.xrt_arg_idx] = (entry, bo)

    # 4. One run. An index that the arg map leaves out (here: constants) still takes its place.
    unused = pyxrt.bo(device, 4, pyxrt.bo.host_only, kernel.group_id(FIRST_BUFFER))
    bos = [buffers[i][1] if i in buffers else unused for i in range(max(buffers) + 1)]
    running = kernel(OPCODE, bo_instructions, len(instructions) // 4, *bos)
    state = running.wait()
    if state != pyxrt.ert_cmd_state.ERT_CMD_STATE_COMPLETED:
        raise RuntimeError(f"the run ended in state {state}")

    # 5. The answer.
    entry, bo = next(pair for pair in buffers.values() if pair[0].kind is ArgKind.OUTPUT)
    bo.sync(pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE)
    return np.frombuffer(bo.read(entry.size, 0), np.float32).reshape(operator.output.shape)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", type=int, nargs="+", default=[64, 300])
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(options.shape).astype(np.float32) for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        add = build(Path(folder), tuple(options.shape))
        result = run(Path(folder), add, inputs)
    wrong = int((result != inputs[0] + inputs[1]).sum())
    print(f"{add.output.shape} on {DEVICE}: {result.size - wrong} of {result.size} sums are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
