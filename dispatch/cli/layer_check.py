# SPDX-License-Identifier: Apache-2.0
"""``onedispatch layer check``: that the layers of a project do what they say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from onnx import helper

from onedispatch.dispatch.check.layers import check_layers
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.kernel_check import CheckFlags, as_dict, lines
from onedispatch.dispatch.plugins.project import project_at
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.operators.layers.layer import Layer
from onedispatch.operators.layers.layer_kernel import LayerKernel
from onedispatch.operators.plugin.boxes import Array
from onedispatch.operators.plugin.cases import Case
from onedispatch.operators.plugin.findings import failed
from onedispatch.transactions import Device, find_device

MOVED = "moved"  # what a layer is called for a run of its global_


def check(
    flags: CheckFlags,
    project: Annotated[
        Path, typer.Argument(help="The project's folder, or a Python file with layers.")
    ] = Path(),
    name: Annotated[str, typer.Argument(help="This layer alone: acme::crop, or crop.")] = "",
    device: out.Device = "npu2",
    json: out.Json = False,
) -> None:
    """Check the local bodies of layers as `kernel check` does those of kernels, in a child process.

    Also that layers which say just_reshape change no data, where they have a body too, and that the parameter
    header says what Params do. Ends with 0 where nothing is wrong (warnings are not), with 1 where it is.
    """
    options, target = flags.options, find_device(device)
    found = project_at("layer check", project)
    with out.working("checking"):
        report = check_layers(found, options, target, run_global, name)
    if json:
        out.print_json(as_dict(str(project), report))
    else:
        for line in lines(report):
            out.say(line)
    if failed(report.findings):
        raise typer.Exit(1)


def run_global(plugin: LayerKernel, case: Case, device: Device) -> Array:
    """The first result of a layer's moves, where nothing says that it reshapes."""
    space = plugin.kernel.name.partition("::")[0]
    changes = {"name": f"{space}::{MOVED}", "just_reshape": False, "force_use_global_layer": True}
    said: dict[str, Any] = {"__module__": plugin.cls.__module__, **changes}
    type(plugin.cls.__name__, (plugin.cls,), said)
    assert issubclass(plugin.cls, Layer)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in case.arrays.items()
    ]
    outputs = [one.name for one in plugin.kernel.outputs]
    node = helper.make_node(MOVED.capitalize(), list(case.arrays), outputs, domain=space, **case.attributes)
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "reshape", values, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(space, 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = InferenceSession(proto, device.name, fallback="error")
    first: Array = session.run(None, dict(case.arrays))[0]
    return first
