# SPDX-License-Identifier: Apache-2.0
"""pyxrt's names over the simulator: ``from onedispatch import xrt as pyxrt``.

device = xrt.device(0)                      # or xrt.device(0, "npu1")
binary = xrt.xclbin("design.xclbin")
device.register_xclbin(binary)
context = xrt.hw_context(device, binary.get_uuid())
kernel = xrt.kernel(context, "MLIR_AIE")
instructions = xrt.bo(device, size, xrt.bo.cacheable, kernel.group_id(1))
run = kernel(3, instructions, size, *data_buffers)
run.wait()
"""

from __future__ import annotations

from typing import Any

from onedispatch.dispatch.base.native import core as _core
from onedispatch.dispatch.plugins import discovery as _discovery
from onedispatch.dispatch.plugins.engine import register_kernels as _register_kernels
from onedispatch.transactions.base.boundary import guarded


class hw_context(guarded(_core.hw_context)):  # type: ignore[misc]
    """A partition of the array with the program images of an xclbin; kernels of plug-ins may be in them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _discovery.ensure()
        _register_kernels()
        super().__init__(*args, **kwargs)


# Arguments that the bindings cannot convert are an InputError.
bo = guarded(_core.bo)
device = guarded(_core.device)
enumerate_devices = _core.enumerate_devices
ert_cmd_state = _core.ert_cmd_state
kernel = guarded(_core.kernel)
run = guarded(_core.run)
runlist = guarded(_core.runlist)
uuid = guarded(_core.uuid)
xclBOSyncDirection = _core.xclBOSyncDirection
xclbin = guarded(_core.xclbin)
guarded(_core.xclbin.xclbinkernel)

__all__ = [
    "bo",
    "device",
    "enumerate_devices",
    "ert_cmd_state",
    "hw_context",
    "kernel",
    "run",
    "runlist",
    "uuid",
    "xclBOSyncDirection",
    "xclbin",
]
