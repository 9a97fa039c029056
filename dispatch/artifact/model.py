# SPDX-License-Identifier: Apache-2.0
"""A compiled model: executables by input shape, and what more of them come from; saved here, not read."""

from __future__ import annotations

import copy
import importlib
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from onedispatch.dispatch.artifact.container import Writer, is_compiled
from onedispatch.dispatch.artifact.forms import model_form
from onedispatch.dispatch.artifact.serialise import (
    executable_to,
    graph_to,
    value_to,
)
from onedispatch.dispatch.base import arguments, limits
from onedispatch.dispatch.base.forks import ForkLock
from onedispatch.dispatch.base.host_work import HostWork, timed
from onedispatch.dispatch.base.precisions import EXACT, PRECISIONS
from onedispatch.dispatch.compiler.executable import DeviceStep, Executable, NodePlacement, executable_key
from onedispatch.dispatch.compiler.used_kernels import check_host_kernels, declared_again, declared_as
from onedispatch.dispatch.frontend.graph import Array, Graph, Value
from onedispatch.dispatch.plugins import discovery
from onedispatch.dispatch.plugins.missing import check_known
from onedispatch.operators.emission.overlay import overlay_xclbin
from onedispatch.operators.scheduling.resources import resources
from onedispatch.transactions import Device, find_device
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import (
    CompiledModelError,
    InputError,
    KernelLibraryError,
)
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.machine.device import DeviceName

if TYPE_CHECKING:
    from onedispatch.dispatch.compiler.compiler import Fallback, Sums
    from onedispatch.dispatch.compiler.custom import CastPolicy
    from onedispatch.dispatch.frontend.importer import ModelLike
    from onedispatch.operators.scheduling.select import Selector

FORMAT = "onedispatch compiled model"
CACHE_SIZE = 8  # executables of a model with symbolic shapes that are kept
MOST_EXECUTABLES = 1 << 20  # that may be kept
FALLBACKS = ("cpu", "error")
CAST_POLICIES = ("error", "f32")
SUMS = ("exact", "narrow")
FORM = model_form(FORMAT, tuple(PRECISIONS), FALLBACKS, CAST_POLICIES, SUMS, MOST_EXECUTABLES)


@dataclass
class CompiledModel:
    """Executables for concrete shapes; more are compiled on first sight where ``source`` is kept.

    ``target`` is the device that they are for, its whole description: a file keeps it too.
    ``deciding`` are inputs whose values belong to the key, since they decide shapes.
    """

    target: Device
    precision: str
    fallback: Fallback
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    deciding: frozenset[str]
    source: Graph | None = field(repr=False)
    cache_size: int = CACHE_SIZE
    executables: OrderedDict[str, Executable] = field(default_factory=OrderedDict, repr=False)
    selector: Selector | None = field(default=None, repr=False)  # None: the search; files do not keep it
    cast_policy: CastPolicy = "error"
    sums: Sums = "exact"
    left_out: str = ""  # why ``source`` is None though the file has it
    _lock: ForkLock = field(default_factory=ForkLock, repr=False)
    _declared: dict[str, tuple[Executable, tuple[Any, ...]]] = field(default_factory=dict, repr=False)
    _kept: Graph | None = field(default=None, repr=False)  # files do not keep it

    @property
    def device(self) -> str:
        """The device's canonical name."""
        return self.target.name

    # -- executables --------------------------------------------------------------------------

    @public
    def executable(
        self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Array]
    ) -> tuple[str, Executable]:
        """The executable for these input shapes and its key, compiled if it is the first of its kind.

        Raises ``UnsupportedModelError`` in strict mode, ``InputError`` for shapes that a
        model saved without its source was not compiled for.
        """
        return self.prepared(shapes, values)[:2]

    def prepared(
        self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Array]
    ) -> tuple[str, Executable, tuple[HostWork, ...]]:
        """``executable``, and what the host did for it just now: nothing where it was there."""
        key = executable_key(shapes, {n: a for n, a in values.items() if n in self.deciding})
        with self._lock.guard:
            known, work = self._as_declared(key), tuple[HostWork, ...]()
            if known is not None:
                found = known
            else:
                found, seconds = timed(lambda: self._compile(shapes, values))
                self.executables[key] = found
                work = (*found.evaluated, HostWork("compile", key, seconds))
                self._declared_for(key, found)
                while len(self.executables) > self.cache_size:
                    dropped, _ = self.executables.popitem(last=False)
                    self._declared.pop(dropped, None)
            self.executables.move_to_end(key)
            return key, found, work

    def prepare(self, shapes: Mapping[str, Sequence[int]] | None) -> None:
        """Compiles for ``shapes`` now, where they are given and no input's values decide others."""
        given = arguments.shapes(shapes)
        bound = bind_shapes(self.inputs, given) if given else None
        if bound is not None and not self.deciding:
            self.executable(bound, {})

    def _as_declared(self, key: str) -> Executable | None:
        """The executable of a key; None where it is to be compiled, for the first time or again."""
        found = self.executables.get(key)
        if found is None:
            return None
        again = declared_again(found, self._declared_for(key, found))
        if again and self._source is None:
            raise KernelLibraryError(
                f"kernel {', '.join(again)}",
                "declared again since this model was compiled",
                "the kernels that it was compiled with",
                "compile the model again, or open a new session for it",
            )
        return None if again else found

    @property
    def _source(self) -> Graph | None:
        return self.source if self.source is not None else self._kept

    def _declared_for(self, key: str, executable: Executable) -> tuple[Any, ...]:
        """The kernels as they were declared when the executable was made, or first seen here."""
        known, kernels = self._declared.get(key, (None, ()))
        if known is not executable:
            kernels = declared_as(executable)
            self._declared[key] = (executable, kernels)
        return kernels

    def _compile(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Array]) -> Executable:
        source = self._source
        if source is None:
            raise InputError(
                "the compiled model",
                f"shapes {dict(shapes)}",
                f"the shapes that it was compiled for: {'; '.join(self.executables)}",
                f"{self.left_out}: with it, the file's graph is compiled for these"
                if self.left_out
                else "compile it again for these",
            )
        from onedispatch.dispatch.compiler.compiler import compile_graph

        bound = {name: array for name, array in values.items() if name in self.deciding}
        return compile_graph(
            source,
            shapes,
            bound,
            self.target,
            self.fallback,
            self.selector,
            self.cast_policy,
            self.precision,
            self.sums,
        )

    @property
    def is_static(self) -> bool:
        """All shapes are known without an input."""
        return not self.deciding and all(v.is_concrete for v in self.inputs)

    @property
    @public
    def placement(self) -> list[NodePlacement]:
        """Where every node runs, for the executable used last. Raises ``InputError`` before the first one."""
        return list(self.used_last()[1].placement)

    def used_last(self) -> tuple[str, Executable]:
        """The executable used last and its key. Raises ``InputError`` where there is none yet: an empty
        placement would pass for one without nodes on the host."""
        latest = self.latest
        if latest is None:
            unknown = [f"{value}, whose shape" for value in self.inputs if not value.is_concrete]
            unknown += [f"{name}, whose value decides shapes and" for name in sorted(self.deciding)]
            shapes = "" if self.deciding else ", or give InferenceSession or compile shapes={input: sizes}"
            raise InputError(
                "placement",
                f"input {', '.join(unknown)} is not known yet",
                "known shapes: nodes are placed for these",
                f"run it once{shapes}",
            )
        return latest

    @property
    def latest(self) -> tuple[str, Executable] | None:
        """The executable used last and its key; None before the first one."""
        with self._lock.guard:
            return next(reversed(self.executables.items())) if self.executables else None

    def check_kernels(self, where: str) -> None:
        """Raises ``KernelNotFoundError`` where a kernel of its programs, or of its nodes on the host, is
        neither ours nor a plug-in's; ``UnknownOperatorError`` for operators of its graph that nobody maps."""
        with self._lock.guard:
            executables = list(self.executables.values())
        steps = [step for one in executables for step in one.device_steps]
        reloads = (reload.kernels for step in steps for reload in step.reloads)
        check_known(where, (step.image for step in steps), reloads, self._origins())
        check_host_kernels(where, executables)
        if self.source is not None:
            from onedispatch.dispatch.compiler.early import refuse_missing

            refuse_missing(self.source)

    def _origins(self) -> dict[str, str]:
        """The file or module that each kernel from outside came from, by its name."""
        return {used.name: used.origin for one in self.executables.values() for used in one.kernels}

    # -- transactions ----------------------------------------------------------------------

    @property
    @public
    def transaction(self) -> bytes:
        """The fused transaction. Raises ``CompiledModelError`` unless there is exactly one."""
        return self.device_step.transaction

    @public
    def with_transaction(self, transaction: bytes) -> CompiledModel:
        """The same model with another transaction, which is checked when it runs, not here."""
        if not isinstance(transaction, bytes | bytearray | memoryview):
            raise InputError("with_transaction", f"a {type(transaction).__name__}", "bytes")
        key, executable = self._only_step()
        changed = copy.copy(self)
        changed.executables = OrderedDict({key: executable.with_transaction(bytes(transaction))})
        changed.source = None
        return changed

    @public
    def xclbin(self) -> bytes:
        """The container that devices of ``onedispatch.xrt`` register to run the transaction: the overlay with
        the kernels in program memory.

        Raises ``CompiledModelError`` unless there is exactly one device step.
        """
        return overlay_xclbin(self.target, self.device_step.image)

    @property
    @public
    def device_step(self) -> DeviceStep:
        """The transaction, the contents and sizes of its five buffers, and where inputs and outputs lie.

        Raises ``CompiledModelError`` unless there is exactly one.
        """
        return self._only_step()[1].device_steps[0]

    def _only_step(self) -> tuple[str, Executable]:
        with self._lock.guard:
            executables = list(self.executables.items())
        steps = sum(len(executable.device_steps) for _, executable in executables)
        if len(executables) != 1 or steps != 1:
            raise CompiledModelError(
                "the model's transaction",
                f"{counted(len(executables), 'executable')} with {counted(steps, 'device region')} in all",
                "one executable with one device region",
                "look at model.executables, or compile with fallback='error' and concrete shapes",
            )
        return executables[0]

    # -- the file --------------------------------------------------------------------------

    @public
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model; ``onedispatch.load`` reads it back. ONNX is not needed any more."""
        target = arguments.file_path("the path to save to", path)
        writer, description = self._described("CompiledModel.save")
        writer.write(target, description)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the bytes that ``save`` writes, and the selector."""
        loading = importlib.import_module("onedispatch.dispatch.artifact.loading")  # which imports this file
        writer, description = self._described("pickle of a CompiledModel")
        return loading.unpickled, (writer.to_bytes(description), self.selector)

    def __copy__(self) -> CompiledModel:
        """The same executables under a lock of its own."""
        return replace(self, _lock=ForkLock(), _declared={}, _kept=None)

    def _described(self, where: str) -> tuple[Writer, dict[str, Any]]:
        """The content of the model's file."""
        if self.left_out:
            given = f"without the graph that its file has, since {self.left_out}"
            raise CompiledModelError(where, given, "a whole model", "copy the file")
        writer = Writer()
        with self._lock.guard:
            description = {
                "format": FORMAT,
                "device": self.target.description(),
                "precision": self.precision,
                "fallback": self.fallback,
                "cast_policy": self.cast_policy,
                "sums": self.sums,
                "inputs": [value_to(v) for v in self.inputs],
                "outputs": [value_to(v) for v in self.outputs],
                "deciding": sorted(self.deciding),
                "cache_size": self.cache_size,
                "executables": [[key, executable_to(writer, p)] for key, p in self.executables.items()],
                "source": None if self.source is None else graph_to(writer, self.source),
            }
        FORM(description, "the description")
        return writer, description


@public
def compile_model(
    model: ModelLike,
    device: DeviceName = "npu2",
    precision: str = EXACT,
    fallback: str = "cpu",
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    cache_size: int = CACHE_SIZE,
    selector: Selector | None = None,
    plugins: Sequence[str | os.PathLike[str]] | None = None,
    cast_policy: str = "error",
    sums: str = "exact",
) -> CompiledModel:
    """Compiles an ONNX model: a path, its bytes, or a ModelProto.

    Args:
        device: a name (see ``onedispatch.devices()``), or the path of a device file, ``my_npu.toml``.
        precision: ``"fp32"`` computes what the model says, ``"bf16"`` float32 tensors in bfloat16 and sums in
            float32, between float32 inputs and outputs; the placement says what has no such kernel.
        fallback: ``"cpu"`` runs what does not map on the host, ``"error"`` refuses such models.
        shapes: concrete shapes of inputs with symbolic dimensions; without them, those of a run are compiled.
        cache_size: how many executables are kept.
        selector: chooses how each operator's loops are laid over the array; None searches.
        plugins: kernel libraries, Python files or folders of these, loaded before others: see ``od.plugins``.
        cast_policy: what happens where a kernel from outside lacks an input's element type. ``"error"``
            refuses the node; ``"f32"`` has it compute in f32 between casts, which the placement lists.
        sums: of matrix products between steps: ``"exact"``, or ``"narrow"``, in the type of the results,
            which is faster and rounds or saturates at every step (operators/README.md).

    Raises:
        ModelError: it is no valid model.
        UnsupportedModelError, UnknownOperatorError: all nodes that do not map, of domains that nobody knows.
        KernelError: a node that its kernel from outside refuses, or says otherwise of than the model.
        DeviceError: no such device, a wrong device file, or a device that no overlay can serve.
        InputError: no such precision, fallback, sums, input or selector.
        SolutionError: the selector gave a solution that does not fit, or something else.
        KernelLibraryError: a plug-in does not load, or two have one name.
    """
    from onedispatch.dispatch.compiler.fold import deciding_inputs

    check_options(precision, fallback, cast_policy, sums)
    given = arguments.shapes(shapes)
    kept = arguments.integer("cache_size", cache_size, 1, MOST_EXECUTABLES)
    arguments.selector(selector)
    target, graph = _target(device), imported(model, plugins)
    compiled = CompiledModel(
        target,
        precision,
        cast("Fallback", fallback),
        graph.inputs,
        graph.outputs,
        deciding_inputs(graph),
        graph,
        kept,
        selector=selector,
        cast_policy=cast("CastPolicy", cast_policy),
        sums=cast("Sums", sums),
    )
    del graph
    return _compiled_known(compiled, given)


def _refuse_compiled(model: object) -> None:
    if isinstance(model, CompiledModel) or is_compiled(model):
        name = f"{os.fspath(model)}, " if isinstance(model, str | os.PathLike) else ""
        remedy = "run it as it is: InferenceSession takes it, and onedispatch.load reads it"
        raise InputError("compile", f"{name}a compiled model", "an ONNX model", remedy)


def _target(device: DeviceName) -> Device:
    target = find_device(device)
    resources(target)  # refuses what no overlay can serve, also where shapes are still to come
    return target


def imported(model: ModelLike, plugins: Sequence[str | os.PathLike[str]] | None = None) -> Graph:
    """The model's graph, folded, once the plug-ins that may know its operators are there."""
    from onedispatch.dispatch.compiler.early import refuse_missing
    from onedispatch.dispatch.compiler.fold import fold_constants
    from onedispatch.dispatch.frontend.importer import import_model

    _refuse_compiled(model)
    discovery.use(plugins)
    discovery.ensure()
    graph = fold_constants(import_model(model))
    refuse_missing(graph)
    return graph


def _compiled_known(compiled: CompiledModel, shapes: Mapping[str, Sequence[int]]) -> CompiledModel:
    """Compiled at once where all shapes are known; else refuses what no shape can mend, in strict mode."""
    bound = bind_shapes(compiled.inputs, shapes)
    if bound is not None and not compiled.deciding:
        compiled.executable(bound, {})
        if compiled.is_static:
            if compiled.latest is not None and compiled.latest[1].kernels:
                compiled._kept = compiled.source  # for kernels that are declared again
            compiled.source = None  # the weights live on in the executable, in device layout
    elif compiled.fallback == "error" and compiled.source is not None:
        from onedispatch.dispatch.compiler.early import refuse_early

        refuse_early(compiled.source, compiled.deciding)
    return compiled


def bind_shapes(
    inputs: Sequence[Value], shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]] | None:
    """Concrete shapes of all tensor inputs, or None where some dimension stays open."""
    names = {v.name for v in inputs}
    for name, shape in shapes.items():
        if name not in names:
            raise InputError(
                "shapes", f"{name!r}: {shape}", f"lists of sizes for inputs {', '.join(sorted(names))}"
            )
    bound = {}
    for value in inputs:
        wanted = shapes.get(value.name)
        if wanted is not None:
            bound[value.name] = check_shape(value, tuple(int(d) for d in wanted))
        elif value.is_concrete:
            bound[value.name] = value.concrete_shape
        else:
            return None
    return bound


def check_shape(value: Value, shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` if it fits the declaration of an input, of which only numbers bind.

    A name of a dimension is a hint: exporters call different dimensions "?" and onnxruntime runs
    them. Raises ``InputError``, also for sizes beyond ``limits``.
    """
    wanted = value.shape if value.shape is not None else (None,) * len(shape)
    fits = [not isinstance(size, int) or given == size for given, size in zip(shape, wanted, strict=False)]
    if len(shape) != len(wanted) or not all(fits):
        raise InputError(f"input {value.name!r}", f"shape {list(shape)}", f"{value}")
    if value.dtype is not None:
        limits.check_tensor(f"input {value.name!r}", value.dtype, shape, InputError)
    return shape


def check_options(
    precision: str = EXACT, fallback: str = "cpu", cast_policy: str = "error", sums: str = "exact"
) -> None:
    arguments.choice("precision", precision, tuple(PRECISIONS))
    arguments.choice("fallback", fallback, FALLBACKS)
    arguments.choice("cast_policy", cast_policy, CAST_POLICIES)
    arguments.choice("sums", sums, SUMS)
