# SPDX-License-Identifier: Apache-2.0
"""Plug-ins' kernels as the simulator has them: registered when a program is first made ready."""

from __future__ import annotations

from onedispatch.dispatch.base.forks import ForkLock
from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.plugins import discovery
from onedispatch.operators.codegen.spec_data import spec_data
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.plugin_kernel import PluginKernel

_LOCK = ForkLock()
_REGISTERED: dict[int, PluginKernel] = {}  # by digest


def register_kernels() -> None:
    """Makes the kernels of plug-ins known to the simulator, as far as they are not.

    All of them: a transaction may load other images than the one that it begins with.
    """
    core.tell_searched(discovery.searched())
    for offered in registrations.kernels():
        with _LOCK.guard:
            digest = offered.kernel.digest
            if _REGISTERED.get(digest) is not offered:
                core.register_kernel(spec_data(offered.kernel), dict(offered.functions), offered.origin)
                _REGISTERED[digest] = offered


def unregister_kernels() -> None:
    """Takes them all back: for tests."""
    with _LOCK.guard:
        for offered in _REGISTERED.values():
            core.unregister_kernel(offered.kernel.name)
        _REGISTERED.clear()
