# SPDX-License-Identifier: Apache-2.0
"""OneDispatch: ONNX models as one transaction on a simulated AMD XDNA NPU.

    import onedispatch as od
    session = od.InferenceSession("model.onnx", device="npu2")
    outputs = session.run(None, {"x": x})
    print(session.last_run)

Scripts for onnxruntime run with ``import onedispatch as ort`` in place of ``import onnxruntime as ort``.

This file becomes ``onedispatch/__init__.py``. Names load on first use, so that importing
the package costs little and a compiled model runs without onnx and onnxruntime.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from onedispatch.dispatch.base import ctrl_c as _ctrl_c

_ctrl_c.listen_while_importing()  # before everything that takes a while

from onedispatch.dispatch.base.collector import paused_collector as _paused_collector  # noqa: E402
from onedispatch.dispatch.base.version import installed_version as _installed_version  # noqa: E402

with _paused_collector():
    from onedispatch import transactions
from onedispatch.operators.declarations.statuses import ERRORS as _KERNEL_ERRORS  # noqa: E402
from onedispatch.operators.plugin.native import provided_by as _provided_by  # noqa: E402
from onedispatch.transactions.base.errors import (  # noqa: E402
    CatalogError,
    CompiledModelError,
    DeviceError,
    InputError,
    InternalError,
    KernelError,
    KernelLibraryError,
    ModelError,
    OneDispatchError,
    OperatorError,
    ResourceError,
    RuleError,
    SimulationError,
    SolutionError,
    TransactionError,
    UnknownOperatorError,
    UnsupportedModelError,
)

# A class with a compiled body may be the first thing that a program makes.
_provided_by(lambda: importlib.import_module("onedispatch.dispatch.base.native"))

if TYPE_CHECKING:
    from onedispatch.dispatch.artifact.loading import load
    from onedispatch.dispatch.artifact.model import CompiledModel
    from onedispatch.dispatch.building.graph import Graph, GraphValue
    from onedispatch.dispatch.compiler.executable import NodePlacement
    from onedispatch.dispatch.driver.compile_model import compile_model as compile
    from onedispatch.dispatch.export.traces import write_trace
    from onedispatch.dispatch.frontend.graph import ModelMetadata
    from onedispatch.dispatch.ort.enums import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        LoggingLevel,
        OrtAllocatorType,
        OrtDeviceMemoryType,
        OrtMemType,
    )
    from onedispatch.dispatch.ort.module import (
        disable_telemetry_events,
        enable_telemetry_events,
        get_all_providers,
        get_available_providers,
        get_build_info,
        get_device,
        get_ep_devices,
        get_version_string,
        has_collective_ops,
        preload_dlls,
        print_debug_info,
        set_default_logger_verbosity,
        set_global_thread_pool_sizes,
        set_seed,
    )
    from onedispatch.dispatch.ort.options import RunOptions, SessionOptions
    from onedispatch.dispatch.ort.values import OrtValue, copy_tensors
    from onedispatch.dispatch.ort.without_meaning import IgnoredOptionWarning, set_default_logger_severity
    from onedispatch.dispatch.plugins import api as plugins
    from onedispatch.dispatch.plugins.api import kernels
    from onedispatch.dispatch.runtime import backend, xrt
    from onedispatch.dispatch.runtime.devices import DeviceInfo, devices
    from onedispatch.dispatch.runtime.iobinding import IOBinding
    from onedispatch.dispatch.runtime.report import OpReport, RunReport
    from onedispatch.dispatch.runtime.session import InferenceSession, NodeArg
    from onedispatch.dispatch.sources.api import frontend, fusion, host
    from onedispatch.dispatch.sources.facts import Refused
    from onedispatch.dispatch.sources.reports import RuleWarning
    from onedispatch.dispatch.tuning.measure import measure
    from onedispatch.dispatch.tuning.measured import MeasuredSearch
    from onedispatch.operators.catalog.catalog import Catalog
    from onedispatch.operators.catalog.selector import CatalogSearch
    from onedispatch.operators.declarations.kernel import Scalar
    from onedispatch.operators.layers.layer import Layer
    from onedispatch.operators.plugin.instance import Interval
    from onedispatch.operators.plugin.operands import Aux, In, Out, Scratch
    from onedispatch.operators.plugin.plugin import kernel, maps

    __version__: str

__all__ = [
    "Aux",
    "Catalog",
    "CatalogError",
    "CatalogSearch",
    "CompiledModel",
    "CompiledModelError",
    "DeviceError",
    "DeviceInfo",
    "ExecutionMode",
    "ExecutionOrder",
    "Graph",
    "GraphOptimizationLevel",
    "GraphValue",
    "IOBinding",
    "IgnoredOptionWarning",
    "In",
    "InferenceSession",
    "InputError",
    "InternalError",
    "Interval",
    "KernelError",
    "KernelLibraryError",
    "Layer",
    "LoggingLevel",
    "MeasuredSearch",
    "ModelError",
    "ModelMetadata",
    "NodeArg",
    "NodePlacement",
    "OneDispatchError",
    "OpReport",
    "OperatorError",
    "OrtAllocatorType",
    "OrtDeviceMemoryType",
    "OrtMemType",
    "OrtValue",
    "Out",
    "Refused",
    "ResourceError",
    "RuleError",
    "RuleWarning",
    "RunOptions",
    "RunReport",
    "Scalar",
    "Scratch",
    "SessionOptions",
    "SimulationError",
    "SolutionError",
    "TransactionError",
    "UnknownOperatorError",
    "UnsupportedModelError",
    "__version__",
    "backend",
    "compile",
    "copy_tensors",
    "devices",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "frontend",
    "fusion",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "host",
    "kernel",
    "kernels",
    "load",
    "maps",
    "measure",
    "plugins",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "transactions",
    "write_trace",
    "xrt",
]
# One class for every status of a kernel: KernelAccessError, KernelDtypeError ...
globals().update({cls.__name__: cls for cls in _KERNEL_ERRORS.values()})
__all__ += [cls.__name__ for cls in _KERNEL_ERRORS.values()]

# name -> (module, name there; "" for the module itself)
_LAZY = {
    "CompiledModel": ("artifact.model", "CompiledModel"),
    "DeviceInfo": ("runtime.devices", "DeviceInfo"),
    "Graph": ("building.graph", "Graph"),
    "GraphValue": ("building.graph", "GraphValue"),
    "IOBinding": ("runtime.iobinding", "IOBinding"),
    "InferenceSession": ("runtime.session", "InferenceSession"),
    "NodePlacement": ("compiler.executable", "NodePlacement"),
    "OpReport": ("runtime.report", "OpReport"),
    "RunReport": ("runtime.report", "RunReport"),
    "backend": ("runtime.backend", ""),
    "compile": ("driver.compile_model", "compile_model"),
    "Refused": ("sources.facts", "Refused"),
    "RuleWarning": ("sources.reports", "RuleWarning"),
    "devices": ("runtime.devices", "devices"),
    "frontend": ("sources.api", "frontend"),
    "fusion": ("sources.api", "fusion"),
    "host": ("sources.api", "host"),
    "kernels": ("plugins.api", "kernels"),
    "load": ("artifact.loading", "load"),
    "MeasuredSearch": ("tuning.measured", "MeasuredSearch"),
    "measure": ("tuning.measure", "measure"),
    "plugins": ("plugins.api", ""),
    "write_trace": ("export.traces", "write_trace"),
    "xrt": ("runtime.xrt", ""),
}
# Names of onnxruntime, by the module that has them.
_OF_ONNXRUNTIME = {
    "ort.enums": (
        "ExecutionMode ExecutionOrder GraphOptimizationLevel LoggingLevel OrtAllocatorType "
        "OrtDeviceMemoryType OrtMemType"
    ),
    "ort.module": (
        "disable_telemetry_events enable_telemetry_events get_all_providers get_available_providers "
        "get_build_info get_device get_ep_devices get_version_string has_collective_ops "
        "preload_dlls print_debug_info set_default_logger_verbosity set_global_thread_pool_sizes "
        "set_seed"
    ),
    "ort.options": "RunOptions SessionOptions",
    "ort.values": "OrtValue copy_tensors",
    "ort.without_meaning": "IgnoredOptionWarning set_default_logger_severity",
    "frontend.graph": "ModelMetadata",
    "runtime.session": "NodeArg",
}
_LAZY.update((name, (module, name)) for module, names in _OF_ONNXRUNTIME.items() for name in names.split())
# The same below onedispatch.operators.
_DECLARING = {
    **{name: ("plugin.operands", name) for name in ("Aux", "In", "Out", "Scratch")},
    "Catalog": ("catalog.catalog", "Catalog"),
    "CatalogSearch": ("catalog.selector", "CatalogSearch"),
    "Interval": ("plugin.instance", "Interval"),
    "Layer": ("layers.layer", "Layer"),
    "Scalar": ("declarations.kernel", "Scalar"),
    "kernel": ("plugin.plugin", "kernel"),
    "maps": ("plugin.plugin", "maps"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _installed_version()
    elif name in _LAZY:
        module_name, attribute = _LAZY[name]
        with _paused_collector():
            module = importlib.import_module(f"onedispatch.dispatch.{module_name}")
        value = getattr(module, attribute) if attribute else module
    elif name in _DECLARING:
        module_name, attribute = _DECLARING[name]
        value = getattr(importlib.import_module(f"onedispatch.operators.{module_name}"), attribute)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_instead(name)}")
    globals()[name] = value
    return value


def _instead(name: str) -> str:
    """What there is in place of a name of onnxruntime that there is not."""
    if name.startswith("_"):
        return ""
    refused = importlib.import_module("onedispatch.dispatch.ort.module").REFUSED
    return f" of onnxruntime: {refused[name]}" if name in refused else ""


def __dir__() -> list[str]:
    return sorted(__all__)
