# SPDX-License-Identifier: Apache-2.0
"""Every kernel that there is, ours and those of plug-ins: what ``onedispatch.kernels`` and the tools list."""

from __future__ import annotations

from dataclasses import dataclass

from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.plugins import discovery
from onedispatch.operators.declarations.kernel import Kernel
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.transactions import find_device
from onedispatch.transactions.machine.device import DeviceName


@dataclass(frozen=True)
class Known:
    """A kernel, and who brought it."""

    name: str
    digest: int
    origin: str = ""
    """The file, or the module; "": it is ours"""
    kernel: Kernel | None = None
    """Its declaration; None of libraries whose kernels only program images name"""

    @property
    def short_name(self) -> str:
        """``gemm`` of ``od::gemm@1``."""
        return self.name.partition("::")[2].partition("@")[0]


def known(device: DeviceName | None = None) -> list[Known]:
    """By name; where a device is named, those that run on it. Plug-ins are loaded if they are not yet.

    Raises ``DeviceError`` for an unknown device, ``KernelLibraryError`` where a plug-in does not load.
    """
    discovery.ensure()
    rows = {row[0]: Known(row[0], row[1], _file_of(row[0])) for row in core.kernels()}
    rows |= {one.name: Known(one.name, one.digest, "", one) for one in all_kernels()}
    for offered in registrations.kernels():
        kernel = offered.kernel
        rows[kernel.name] = Known(kernel.name, kernel.digest, offered.origin, kernel)
    target = None if device is None else find_device(device).name
    return [rows[name] for name in sorted(rows) if target is None or _runs_on(rows[name].kernel, target)]


def _file_of(name: str) -> str:
    """The library that brought a kernel which it declares itself."""
    return next((plugin.file for plugin in discovery.loaded() if name in plugin.kernels), "")


def _runs_on(kernel: Kernel | None, device: str) -> bool:
    return not isinstance(kernel, CustomKernel) or kernel.runs_on(device)
