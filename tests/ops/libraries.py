# SPDX-License-Identifier: Apache-2.0
"""Kernel libraries of the tests: built by the documented commands, run on the simulated array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onedispatch.cpp_ext import _core
from onedispatch.operators.codegen.headers import include_folder
from onedispatch.operators.codegen.spec_data import spec_data
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec
from onedispatch.operators.plugin.library import LibraryKernel, read
from onedispatch.operators.plugin.lowering import MemberOperator
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.plugin_kernel import PluginKernel
from onedispatch.transactions import ArgKind, Device, find_device
from tests.compiled import shared_object
from tests.ops.host import buffers_of, overlay_for, run_buffers

Array = np.ndarray[Any, Any]
SOURCES = Path(__file__).parent / "kernels"
WARNINGS = ("-Wall", "-Wextra", "-Werror")
UNUSED = ("-Wno-unused-const-variable", "-Wno-unused-function")  # of generated headers


def compiled(source: Path, library: Path, *options: str) -> Path:
    """The library of a source: as the headers say that it is built, every warning an error."""
    own = [Path(option[2:]) for option in options if option.startswith("-I")]
    flags = [option for option in options if not option.startswith("-I")]
    return shared_object(source, library, ["-O1", *WARNINGS, *flags], [include_folder(), *own])


def built(source: str, folder: Path, *options: str, name: str = "") -> Path:
    """The library of a source in ``kernels``."""
    path = SOURCES / source
    return compiled(path, folder / f"lib{name or path.stem}.so", "-O2", *options)


def kernels_of(library: Path) -> dict[str, LibraryKernel]:
    """By the name between namespace and version."""
    return {kernel.kernel.short_name: kernel for kernel in read(library)}


def node_of(
    kernel: PluginKernel,
    inputs: Sequence[TensorSpec | None],
    attributes: Mapping[str, Any] | None = None,
    device: Device | None = None,
    outputs: Sequence[TensorSpec] = (),
) -> Node:
    spec = NodeSpec("n", "Op", "acme", 1, list(inputs), list(outputs), dict(attributes or {}))
    return Node(kernel.kernel, spec, device or find_device("npu2"))


def executed(
    kernel: PluginKernel,
    arrays: Mapping[str, Array],
    attributes: Mapping[str, Any] | None = None,
    device: str = "npu2",
) -> dict[str, Array]:
    """Every output of the kernel over the inputs, by name, as the array computes it."""
    target = find_device(device)
    tensors = {name: TensorSpec(name, a.dtype, a.shape) for name, a in arrays.items()}
    node = node_of(kernel, [tensors.get(one.name) for one in kernel.kernel.inputs], attributes, target)
    instance = kernel.instantiate(node)
    outputs = {n: TensorSpec(n, DTYPES[d].numpy, shape) for n, (d, shape) in instance.outputs.items()}
    aux = {n: TensorSpec(n, v.dtype, v.shape, v) for n, v in instance.aux.items()}
    op = MemberOperator(kernel, node, instance, tensors | aux, outputs, target)
    op.check_fits()
    _core.register_kernel(spec_data(kernel.kernel), dict(kernel.functions))
    try:
        given = buffers_of(op, [*arrays.values(), *instance.aux.values()])
        after = run_buffers(target, op.transaction(), given, overlay_for(op))
    finally:
        _core.unregister_kernel(kernel.kernel.name)
    entries = [entry for entry in op.arg_map() if entry.kind is ArgKind.OUTPUT]
    found = {}
    for name, tensor, entry in zip(op.made, op.outputs, entries, strict=True):
        found[name] = tensor.gathered(
            np.frombuffer(after[entry.xrt_arg_idx][: tensor.device_bytes], tensor.dtype)
        )
    return found
