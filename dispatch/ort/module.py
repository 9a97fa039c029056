# SPDX-License-Identifier: Apache-2.0
"""Functions of the module ``onnxruntime``, and its names that there are not here."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.version import installed_version
from onedispatch.dispatch.ort.providers import HOST, PROVIDER
from onedispatch.dispatch.ort.without_meaning import name_once
from onedispatch.transactions.base.boundary import public

_NO_OTHER_DEVICE = "name the device: InferenceSession(model, device=...), onedispatch.devices()"
_NO_ALLOCATOR = "memory is planned when the model is compiled"
_NO_ADAPTER = "merge the adapter into the model's weights"
_COMPILE = "use onedispatch.compile and CompiledModel.save"
_DENSE = "give dense tensors"

# Public names of onnxruntime that this package has not, each with what there is in its place.
REFUSED = {
    "AdapterFormat": _NO_ADAPTER,
    "LoraAdapter": _NO_ADAPTER,
    "ModelCompiler": _COMPILE,
    **dict.fromkeys(("ModelPackage", "ModelPackageComponentContext", "ModelPackageContext"), _COMPILE),
    **dict.fromkeys(("ModelPackageOptions", "ModelPackageWriteMode", "OrtCompileApiFlags"), _COMPILE),
    **dict.fromkeys(("OrtEpContextData", "OrtEpContextDataBuffer"), _COMPILE),
    **dict.fromkeys(("OrtArenaCfg", "OrtMemoryInfo", "OrtMemoryInfoDeviceType"), _NO_ALLOCATOR),
    **dict.fromkeys(("create_and_register_allocator", "create_and_register_allocator_v2"), _NO_ALLOCATOR),
    **dict.fromkeys(("OrtDevice", "OrtDeviceVendorId", "OrtSyncStream"), _NO_OTHER_DEVICE),
    **dict.fromkeys(("OrtEpDevice", "OrtEpAssignedNode", "OrtEpAssignedSubgraph"), _NO_OTHER_DEVICE),
    **dict.fromkeys(("OrtExecutionProviderDevicePolicy", "OrtHardwareDevice"), _NO_OTHER_DEVICE),
    "OrtHardwareDeviceType": _NO_OTHER_DEVICE,
    "register_execution_provider_library": _NO_OTHER_DEVICE,
    "unregister_execution_provider_library": _NO_OTHER_DEVICE,
    "OrtExternalInitializerInfo": "give the path of the model beside its files",
    "OrtSparseFormat": _DENSE,
    "SparseTensor": _DENSE,
    "SessionIOBinding": "use InferenceSession.io_binding()",
    "set_default_logger_callback": "filter IgnoredOptionWarning with Python's warnings",
    "capi": "take the names from onedispatch itself",
}


def get_available_providers() -> list[str]:
    """The simulated NPU, and the host for what does not map."""
    return [PROVIDER, HOST]


def get_all_providers() -> list[str]:
    """The same: there are no others."""
    return get_available_providers()


def get_device() -> str:
    """``NPU``."""
    return "NPU"


def get_ep_devices() -> list[Any]:
    """None: devices are those of ``onedispatch.devices()``."""
    return []


def get_version_string() -> str:
    """``onedispatch.__version__``."""
    return installed_version()


def get_build_info() -> str:
    return f"OneDispatch {get_version_string()}, a simulated AMD XDNA NPU"


def has_collective_ops() -> bool:
    return False


@public
def set_seed(seed: int) -> None:
    """Seeds random operators, which run on the host."""
    checked = arguments.integer("set_seed", seed, -(1 << 63), (1 << 63) - 1)
    if find_spec("onnxruntime") is not None:
        importlib.import_module("onnxruntime").set_seed(checked)


@public
def set_default_logger_verbosity(level: int) -> None:
    """Accepted, without meaning."""
    name_once("verbosity", "set_default_logger_verbosity means nothing here: nothing is logged")


@public
def set_global_thread_pool_sizes(intra_op: int, inter_op: int) -> None:
    """Accepted, without meaning: threads belong to sessions."""
    name_once("pools", "set_global_thread_pool_sizes means nothing here: give InferenceSession threads")


def disable_telemetry_events() -> None:
    """Does nothing: there is no telemetry."""


def enable_telemetry_events() -> None:
    """Does nothing: there is no telemetry."""


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None
) -> None:
    """Does nothing: nothing is to be loaded."""


def print_debug_info() -> None:
    """Prints version and devices."""
    print(get_build_info())
    for device in importlib.import_module("onedispatch").devices():
        print(device)
