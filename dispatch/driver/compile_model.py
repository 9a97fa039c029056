# SPDX-License-Identifier: Apache-2.0
"""``onedispatch.compile``: from what a caller gives to a ``CompiledModel``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from onedispatch.dispatch.artifact.container import is_compiled
from onedispatch.dispatch.artifact.model import CACHE_SIZE, MOST_EXECUTABLES, CompiledModel
from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.arguments import refuse_unknown
from onedispatch.dispatch.base.mapped import unchanged_files
from onedispatch.dispatch.base.native import core
from onedispatch.dispatch.base.precisions import EXACT
from onedispatch.dispatch.building.graph import Graph as BuiltGraph
from onedispatch.dispatch.compile import MODEL_PASSES
from onedispatch.dispatch.compiler.early import refuse_early
from onedispatch.dispatch.compiler.options import CompileOptions, ImportOptions
from onedispatch.dispatch.compiler.passes import ImportContext, run_passes
from onedispatch.dispatch.driver import cache_folder, model_cache
from onedispatch.dispatch.driver.executable_cache import ExecutableCache, with_profiles
from onedispatch.dispatch.driver.requested import READING
from onedispatch.dispatch.frontend.decided import deciding_inputs
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.frontend.importer import ModelLike
from onedispatch.dispatch.frontend.input_shapes import bind_shapes
from onedispatch.dispatch.plugins import discovery
from onedispatch.operators.scheduling.select import Selector
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.machine.device import DeviceName

if TYPE_CHECKING:
    from typing_extensions import Unpack


Catalogs = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None


class CompileChoices(TypedDict, total=False):
    """Options of ``compile`` by keyword: see there."""

    cache_size: int
    profiles: Sequence[Mapping[str, Sequence[int]]] | None
    selector: Selector | None
    catalog: Catalogs
    pins: Sequence[str] | None
    cast_policy: str
    sums: str
    groups: str
    frontend: str | None
    outputs: Sequence[str] | None
    fusions: Sequence[str] | None
    freeze: Mapping[str, Any] | None
    cache: cache_folder.Asked


@public
def compile_model(
    model: ModelLike | BuiltGraph,
    device: DeviceName = "npu2",
    precision: str = EXACT,
    fallback: str = "cpu",
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    plugins: Sequence[str | os.PathLike[str]] | None = None,
    **options: Unpack[CompileChoices],
) -> CompiledModel:
    """Compiles a model: a path, its bytes, a ModelProto, an ``od.Graph``, or a frozen GraphDef of TensorFlow.

    Args:
        device: a name (see ``onedispatch.devices()``), or the path of a device file, ``my_npu.toml``.
        precision: ``"fp32"`` computes what the model says, ``"bf16"`` float32 tensors in bfloat16 and sums in
            float32, between float32 inputs and outputs; the placement says what has no such kernel.
        fallback: ``"cpu"`` runs what does not map on the host, ``"error"`` refuses such models.
        shapes: concrete shapes of inputs with symbolic dimensions; without them, those of a run are compiled,
            from the file again where the model is a file with 16 MB of weights or more: it has to stay.
        profiles: sets of such shapes, each compiled ahead; what ``shapes`` says holds for all of them.
        cache_size: how many executables are kept, one for each profile at least.
        selector: chooses how each operator's loops are laid over the array; None: catalogs, then the search.
        catalog: files or folders of tuned solutions, asked before those that ``ONEDISPATCH_CATALOG`` names
            and those that ship; ``"none"`` leaves what follows out.
        pins: names of solutions that are taken wherever a catalog has them and they fit.
        plugins: kernel libraries, Python files or folders of these, loaded before others: see ``od.plugins``.
        cast_policy: what happens where a custom kernel lacks an input's element type. ``"error"``
            refuses the node; ``"f32"`` has it compute in f32 between casts, which the placement lists.
        sums: of matrix products between steps: ``"exact"``, or ``"narrow"``, in the type of the results,
            which is faster and rounds or saturates at every step (operators/README.md).
        groups: ``"on"``, the default, keeps tensors in memory tiles between operators where that costs less.
        frontend: ``"onnx"`` or ``"tensorflow"``; None: as the file is.
        outputs: names of the values to compute; None: the model's own, of a GraphDef all that nothing reads.
        fusions: names of those to switch on, ``"-NAME"`` switches one off: see ``onedispatch.fusion``.
        freeze: inputs that become constants, each with its value: ``{"sr": 16000}``, lists, arrays.
        cache: True, or a folder: equal models with equal options are read from there, not compiled again.
            None: as ``ONEDISPATCH_CACHE`` says, else False. See ``driver/cache_folder``.

    Raises:
        RuleError: a mapping rule or a fusion does what it may not.
        ModelError: it is no valid model, or its file changed meanwhile.
        UnsupportedModelError, UnknownOperatorError: all nodes that do not map; all of unknown domains.
        KernelError: a node that its custom kernel refuses, or of whose outputs it says other than the model.
        DeviceError: no such device, a wrong device file, or a device that no overlay can serve.
        InputError: no such precision, fallback, sums, groups, input or selector.
        CatalogError: a catalog is missing or damaged.
        SolutionError: the selector gave a solution that does not fit, or something else.
        KernelLibraryError: a plug-in does not load, or two have one name.
    """
    refuse_unknown("compile", options, CompileChoices)
    discovery.use(plugins)
    rest: dict[str, Any] = {"precision": precision, "fallback": fallback, **options}
    order = _Order.checked(shapes, rest)
    reading = {name: rest.pop(name, None) for name in READING}
    chosen = CompileOptions.checked(device, **rest)
    return _compiled(model, chosen, ImportOptions.checked(**reading, strict=chosen.strict), order)


@dataclass(frozen=True)
class _Order:
    """What executables a model is to have, and where it is kept."""

    shapes: dict[str, tuple[int, ...]]
    profiles: tuple[dict[str, tuple[int, ...]], ...]
    cache_size: int
    place: Path | None

    @classmethod
    def checked(cls, shapes: Any, options: dict[str, Any]) -> _Order:
        """Takes its own out of ``options``. Raises ``InputError`` for those that are none."""
        size = arguments.integer("cache_size", options.pop("cache_size", CACHE_SIZE), 1, MOST_EXECUTABLES)
        given = arguments.shapes(shapes)
        profiles = tuple(given | one for one in arguments.profiles(options.pop("profiles", None)))
        return cls(given, profiles, size, cache_folder.folder(options.pop("cache", None)))


def _compiled(
    model: ModelLike | BuiltGraph, options: CompileOptions, how: ImportOptions, order: _Order
) -> CompiledModel:
    """The model, compiled or as it was kept."""
    with unchanged_files(core):
        entry = _entry(model, options, how, order)
        found = None if entry is None else entry.read(options)
        if found is not None:
            return found
        made = compile_imported(_imported(model, None, how), options, order.shapes, order.cache_size)
        made = with_profiles(made, order.profiles)
        graphs = {name: getattr(made, name) for name in ("source", "recompiled_from")}
        made = replace(made, **{name: graph and graph.kept() for name, graph in graphs.items()})
    if entry is not None:
        entry.write(made)
    return made


def _entry(
    model: ModelLike | BuiltGraph, options: CompileOptions, how: ImportOptions, order: _Order
) -> model_cache.Entry | None:
    """Where the compiled model is kept; None where it is not."""
    if order.place is None:
        return None
    _refuse_compiled(model)
    read = model.to_onnx() if isinstance(model, BuiltGraph) else model
    sizes = order.shapes, order.profiles, order.cache_size
    return model_cache.entry_for(order.place, read, options, how, sizes)


def compile_imported(
    graph: Graph,
    options: CompileOptions,
    shapes: Mapping[str, Sequence[int]],
    cache_size: int = CACHE_SIZE,
) -> CompiledModel:
    """Returns the model of a graph that was ``imported``, compiled where ``shapes`` are all that it needs.

    Raises as ``compile_model`` does once the model is read.
    """
    deciding = deciding_inputs(graph)
    begun = CompiledModel(options, graph.inputs, graph.outputs, deciding, graph, cache_size)
    return compiled_for(replace(begun, metadata=graph.metadata, frozen=graph.frozen), shapes)


def _refuse_compiled(model: object) -> None:
    if isinstance(model, CompiledModel) or is_compiled(model):
        name = f"{os.fspath(model)}, " if isinstance(model, str | os.PathLike) else ""
        remedy = "run it as it is: InferenceSession takes it, and onedispatch.load reads it"
        raise InputError("compile", f"{name}a compiled model", "an ONNX model", remedy)


def imported(
    model: ModelLike | BuiltGraph,
    plugins: Sequence[str | os.PathLike[str]] | None = None,
    how: ImportOptions | None = None,
) -> Graph:
    """The model's graph, folded, once the plug-ins that may know its operators are there."""
    with unchanged_files(core):
        return _imported(model, plugins, how or ImportOptions()).owned()


def _imported(
    model: ModelLike | BuiltGraph, plugins: Sequence[str | os.PathLike[str]] | None, how: ImportOptions
) -> Graph:
    """The same; weights may lie in the model's file."""
    _refuse_compiled(model)
    discovery.use(plugins)
    discovery.ensure()
    read = model.to_onnx() if isinstance(model, BuiltGraph) else model
    graph = run_passes(MODEL_PASSES, read, ImportContext(how))
    assert isinstance(graph, Graph)
    return graph


def compiled_for(model: CompiledModel, shapes: Mapping[str, Sequence[int]]) -> CompiledModel:
    """Returns ``model`` compiled for ``shapes`` where with them all are known and no values decide others.

    Raises ``UnsupportedModelError`` in strict mode, also for nodes that no shape could make map.
    """
    bound = bind_shapes(model.inputs, shapes)
    if bound is None or model.deciding:
        if model.options.strict and model.source is not None:
            refuse_early(model.source, model.deciding)
        return model
    cache = ExecutableCache(model)
    _, executable, _ = cache.executable(bound, {})
    model = cache.model
    if not model.is_static:
        return model
    # The weights live on in the executable, in device layout.
    return replace(model, source=None, recompiled_from=model.source if executable.kernels else None)
