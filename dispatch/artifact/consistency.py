# SPDX-License-Identifier: Apache-2.0
"""Do the parts of a loaded model fit each other? Names exist, sizes agree, tensors lie in their buffers.

Each part has its form by then (``forms``). Whether a transaction can run shows when it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from onedispatch.dispatch.artifact.forms import Misfit
from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.base import limits
from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.compiler.executable import DeviceStep, Executable, HostStep, Slot, executable_key
from onedispatch.dispatch.frontend.graph import Graph, Value, sort_nodes
from onedispatch.dispatch.plugins.engine import register_kernels
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.machine.device import Device

_WORD = 4  # bytes: the device writes whole ones
_Known = dict[str, tuple[np.dtype[Any] | None, tuple[int, ...] | None]]
"""Value -> dtype and shape, None where they show at run time"""


def check_consistent(model: CompiledModel) -> None:
    """Raises ``Misfit`` or ``ModelError`` for a model that no compilation makes."""
    names = [v.name for v in model.inputs]
    _once(names, "inputs of the model")
    _once([v.name for v in model.outputs], "outputs of the model")
    _require(model.deciding <= set(names), "deciding inputs", sorted(model.deciding), f"some of {names}")
    _require(set(names).isdisjoint(model.frozen), "frozen inputs", list(model.frozen), f"others than {names}")
    _require(
        model.source is not None or bool(model.executables), "the model", "no executable", "one, or its graph"
    )
    if model.source is not None:
        _check_source(model, model.source)
    for key, executable in model.executables.items():
        _check_executable(f"executable {key!r}", model, key, executable)


def _check_source(model: CompiledModel, source: Graph) -> None:
    for given, own in ((source.inputs, model.inputs), (source.outputs, model.outputs)):
        _require(given == own, "the model's graph", _listed(given), _listed(own))
    _check_graph("the model's graph", source, [v.name for v in source.inputs], source.output_names)


def _check_graph(where: str, graph: Graph, inputs: Iterable[str], outputs: Iterable[str]) -> None:
    """Raises ``ModelError`` where nodes read what nothing defines or define what is there."""
    _once([node.name for node in graph.nodes], f"nodes of {where}")
    given = {*inputs, *graph.constants}
    order = sort_nodes(graph.nodes, given)
    _require(order == graph.nodes, where, "nodes before those that they read", "nodes in the order they run")
    _exist(outputs, given.union(*(node.writes for node in graph.nodes)), f"output of {where}")


def _check_executable(where: str, model: CompiledModel, key: str, executable: Executable) -> None:
    for given, own in ((executable.inputs, model.inputs), (executable.outputs, model.outputs)):
        same = [v.name for v in given] == [v.name for v in own]
        _require(same, where, _listed(given), _listed(own))
    for value, declared in zip(executable.inputs, model.inputs, strict=True):
        _require(value.type == declared.type, where, str(value), str(declared))
        fits = value.is_concrete and _takes(declared, value.concrete_shape)
        _require(fits or value.dtype is None, where, str(value), f"a known shape of {declared}")
    base = executable_key({v.name: v.concrete_shape for v in executable.inputs if v.is_concrete}, {})
    fits = key.startswith(base) if model.deciding else key == base
    _require(fits, where, _listed(executable.inputs), "the shapes that its key names")
    known: _Known = {v.name: _facts(v) for v in executable.inputs}
    known |= {name: (array.dtype, array.shape) for name, array in executable.constants.items()}
    for index, step in enumerate(executable.steps):
        if isinstance(step, HostStep):
            _check_host(f"step {index} of {where}", step, known)
        else:
            _check_device(f"step {index} of {where}", step, known)
            _check_program(f"step {index} of {where}", step, model.target)
    _exist(executable.sources, known, f"source of {where}")
    count = len(executable.sources)
    _require(count == len(executable.outputs), where, counted(count, "source"), "one for every output")
    _check_actual(where, executable, known)
    for source, value in zip(executable.sources, executable.outputs, strict=True):
        fits = _fit(known[source], _facts(value))
        _require(fits, f"{where}, output {value.name!r}", f"{source!r}: {known[source]}", str(value))


def _check_actual(where: str, executable: Executable, known: _Known) -> None:
    """Sizes of results are whole numbers, one for each dimension."""
    _exist(executable.actual, set(executable.sources), f"result of {where}")
    _exist(executable.actual.values(), known, f"sizes of a result of {where}")
    for source, sizes in executable.actual.items():
        rank = len(known[source][1] or ())
        wanted = (np.dtype(np.int32), (max(rank, 1),))
        _require(known[sizes] == wanted, f"{where}, sizes of {source!r}", f"{known[sizes]}", f"{wanted}")


def _check_host(where: str, step: HostStep, known: _Known) -> None:
    _exist(step.inputs, known, f"input of {where}")
    _check_graph(where, step.graph, step.inputs, ())
    made = {name for node in step.graph.nodes for name in node.writes}
    _exist(step.outputs, made, f"output of {where}")
    for name in step.inputs:
        value, (dtype, shape) = step.graph.value(name), known[name]
        fits = dtype == value.dtype and (shape is None or _takes(value, shape))
        _require(fits, f"{where}, input {name!r}", str(value), f"{known[name]}")
    known |= {name: _facts(step.graph.value(name)) for name in step.outputs}


def _check_device(where: str, step: DeviceStep, known: _Known) -> None:
    starts = [0, *step.const_starts, len(step.const)]
    _require(starts == sorted(starts), where, f"starts of constants at {starts[1:-1]}", "places in order")
    given, sizes = (len(step.const), len(step.params)), tuple(step.sizes[3:])
    _require(given == sizes, where, f"constants and parameters of sizes {given}", f"{sizes}")
    for kind, slots, size in (("input", step.inputs, step.sizes[0]), ("output", step.outputs, step.sizes[1])):
        for slot in slots:
            _check_slot(f"{where}, {kind} {slot.name!r}", slot, size)
    before = [reload.before for reload in step.reloads]
    _require(
        step.reloads_in_order,
        where,
        f"reloads before operators {before}",
        f"ascending, up to {len(step.ops)}",
    )
    _exist([slot.name for slot in step.inputs], known, f"input of {where}")
    for slot in step.inputs:
        dtype, shape = known[slot.name]
        fits = dtype == slot.dtype and shape is not None and np.prod(shape) == slot.rows * slot.row
        own = f"{slot.dtype}{list(slot.shape)}"
        _require(fits, f"{where}, input {slot.name!r}", own, f"{known[slot.name]}, what it is")
    for slot in step.outputs:
        _require(slot.nbytes % _WORD == 0, f"{where}, output {slot.name!r}", slot.nbytes, "whole words")
        known[slot.name] = (slot.dtype, slot.shape)


def _check_program(where: str, step: DeviceStep, device: Device) -> None:
    """Its image starts on the cores of ``device`` and carries the kernels of its operators."""
    room = device.count("core.program_memory_bytes")
    _require(
        step.program_bytes <= room, f"{where}, its program", counted(step.program_bytes, "byte"), f"{room}"
    )
    image = np.array(step.image.words, "<u4").tobytes()
    blocks = len(step.params)  # more than there are
    if step.reloads:  # which of them come before is not said; the first does, unless a reload does
        blocks = min(step.reloads[0].before, 1)
    register_kernels()
    try:
        core.check_image(image, step.params, blocks)
    except ValueError as error:
        raise Misfit(
            f"{where}, its program", str(error), "an image with the kernels of its operators"
        ) from error


def _check_slot(where: str, slot: Slot, size: int) -> None:
    limits.check_tensor(where, slot.dtype, [max(d, 1) for d in slot.shape])
    fits = slot.row_pitch >= slot.row and slot.offset + slot.nbytes <= size
    given = f"{counted(slot.nbytes, 'byte')} from {slot.offset} on, {slot.row_pitch} elements per row"
    _require(fits, where, given, f"rows of {slot.row} within {counted(size, 'byte')}")


def _facts(value: Value) -> tuple[np.dtype[Any] | None, tuple[int, ...] | None]:
    return value.dtype, value.concrete_shape if value.is_concrete else None


def _fit(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Whether what is known on both sides is the same."""
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


def _takes(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether a declaration, of which only numbers bind, allows a shape."""
    if value.shape is None:
        return True
    same = (not isinstance(d, int) or d == size for d, size in zip(value.shape, shape, strict=False))
    return len(value.shape) == len(shape) and all(same)


def _listed(values: Sequence[Value]) -> str:
    return ", ".join(map(str, values)) or "nothing"


def _once(names: Sequence[str], what: str) -> None:
    _require(len(set(names)) == len(names), what, names, "each name once")


def _exist(names: Iterable[str], known: Iterable[str] | Mapping[str, Any], what: str) -> None:
    for name in names:
        _require(name in known, what, repr(name), "a value that is known by then")


def _require(fits: bool, where: str, given: object, accepted: str) -> None:
    if not fits:
        raise Misfit(where, str(given), accepted)
