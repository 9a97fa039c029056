# SPDX-License-Identifier: Apache-2.0
"""What ``run``, ``compile`` and ``inspect`` open, and the shapes of inputs that a command leaves open."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from onedispatch.dispatch.artifact.loading import opened
from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.base import limits
from onedispatch.dispatch.base.arguments import integer
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.compiler.options import ImportOptions
from onedispatch.dispatch.driver.executable_cache import ExecutableCache, prepared
from onedispatch.dispatch.driver.requested import RequestedOptions
from onedispatch.dispatch.frontend.graph import Array, Value, dtype_of
from onedispatch.dispatch.runtime.session import NodeArg
from onedispatch.transactions.base.errors import InputError, ModelError, OneDispatchError
from onedispatch.transactions.base.files import check_target, record_read

Shapes = dict[str, tuple[int, ...]]
Model = Annotated[
    str, typer.Argument(help="An .onnx file, a file of `onedispatch compile`, or a light model's name.")
]
_OWN = "A compiled model has its own."
Device = Annotated[
    str | None,
    typer.Option(
        help=f"The NPU, as `onedispatch devices` names it, or its file: my_npu.toml. {_OWN}  [default: npu2]"
    ),
]
Fallback = Annotated[
    str | None,
    typer.Option(
        help=f"cpu: what does not map runs on the host. error: refuse such models. {_OWN}  [default: cpu]"
    ),
]
CastPolicy = Annotated[
    str | None,
    typer.Option(
        help="f32: a custom kernel computes in f32 what it lacks element types for. error: it refuses. "
        f"{_OWN}  [default: error]"
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        help="bf16: float32 tensors are computed in bfloat16, between float32 inputs and outputs. "
        f"{_OWN}  [default: fp32]"
    ),
]
Sums = Annotated[
    str | None,
    typer.Option(
        help="narrow: products keep sums in the type of their results between steps, as published kernels "
        f"do. {_OWN}  [default: exact]"
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        help="on: tensors stay in memory tiles between operators, where that costs less. "
        f"{_OWN}  [default: on]"
    ),
]


Catalogs = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog",
        help="A file or folder of tuned solutions, asked first; none: the search alone. Repeatable.",
    ),
]
Pins = Annotated[
    list[str] | None,
    typer.Option("--pin", help="A solution's name: taken wherever a catalog has it and it fits. Repeatable."),
]
Frontend = Annotated[
    str | None, typer.Option(help="onnx, or tensorflow for a frozen GraphDef.  [default: as the file is]")
]
Outputs = Annotated[
    list[str] | None,
    typer.Option("--outputs", help="A value to compute, in place of the model's outputs. Repeatable."),
]
Fusions = Annotated[
    list[str] | None,
    typer.Option("--fusion", help="Switches a fusion on, as -NAME off: --fusion=-NAME. Repeatable."),
]


@dataclass(frozen=True)
class ReadFlags:
    """How a model is read."""

    frontend: Frontend = None
    outputs: Outputs = None
    fusions: Fusions = None
    set: out.Frozen = None

    @property
    def options(self) -> ImportOptions:
        """Raises ``InputError`` for an unknown frontend, and for what is no value of an input."""
        frozen = out.parse_frozen(self.set)
        return ImportOptions.checked(self.frontend, self.outputs or None, self.fusions, frozen)


@dataclass(frozen=True)
class CompileFlags:
    """What a model is compiled for."""

    shape: out.Shapes = None
    device: Device = None
    fallback: Fallback = None
    cast_policy: CastPolicy = None
    precision: Precision = None
    sums: Sums = None
    groups: Groups = None
    frontend: Frontend = None
    outputs: Outputs = None
    fusions: Fusions = None
    set: out.Frozen = None
    catalog: Catalogs = None
    pin: Pins = None

    @property
    def requested(self) -> RequestedOptions:
        made = (self.device, self.precision, self.fallback, self.cast_policy, self.sums, self.groups)
        return RequestedOptions(
            *made,
            self.frontend,
            self.outputs or None,
            self.fusions or None,
            out.parse_frozen(self.set) or None,
            catalog=self.catalog or None,
            pins=self.pin or None,
        )

    @property
    def shapes(self) -> Shapes:
        """By input. Raises ``InputError`` for what is no shape."""
        return out.parse_shapes(self.shape)


_TRIED = (2, 3, 4, 8, 16, 32, 64, 128, 224, 256)  # sizes of open dimensions, where 1 fits not
_MOST_CONSTANT_SIZES = 6


def open_model(name: str, flags: CompileFlags) -> CompiledModel:
    """Returns a compiled model from whatever ``name`` is: our file, an ONNX file, a light model.

    Raises ``InputError`` for a file of ours that was compiled with other options.
    """
    from onedispatch.dispatch.driver.compile_model import compile_model

    bound, options = flags.shapes, flags.requested
    compiled = opened(Path(name))
    if compiled is not None:
        options.require(compiled, command=True)
        return prepared(compiled, bound)
    with out.working(f"compiling {name} for {options.device or 'npu2'}"):
        return compile_model(source(Path(name)), **options.given, shapes=bound)


def with_executable(model: str, flags: CompileFlags) -> CompiledModel:
    """The model with an executable; dimensions that stay open are taken as 1."""
    return concrete(open_model(model, flags), flags.shapes)


def concrete(compiled: CompiledModel, shapes: Shapes) -> CompiledModel:
    """The model with an executable, of ``shapes`` where it has none; dimensions that stay open are 1."""
    if compiled.executables:
        return compiled
    bound, made = first_executable(compiled, shapes)
    out.tell(f"open dimensions taken as 1; --shape says otherwise: {bound}", to=out.errors)
    return made


def first_executable(compiled: CompiledModel, shapes: Shapes) -> tuple[Shapes, CompiledModel]:
    """The model with an executable for ``shapes``, open dimensions taken as 1; and all of its shapes."""
    feed = random_feed([NodeArg.of(v) for v in compiled.inputs], shapes, 0)
    bound = {name: array.shape for name, array in feed.items()}
    with taken_as_one(compiled, shapes):
        cache = ExecutableCache(compiled)
        cache.executable(bound, feed)
    return bound, cache.model


def keep(model: str, target: Path | None, inputs: list[str] | None = None) -> None:
    """Refuses to write over the model or an input now, and not when all is computed."""
    for name in (model, *(text.rpartition("=")[2] for text in inputs or ())):
        with suppress(OSError, ValueError):  # what opens it says what is wrong with it
            record_read(os.stat(name))
    if target is not None:
        check_target(target)


def source(path: Path) -> Any:
    """What ``compile_model`` takes: the path, or a light model with random weights."""
    if not path.exists():
        from onedispatch.dispatch.tools import zoo

        if str(path) in zoo.light_models():
            return zoo.randomised(zoo.find_model(str(path)))
    return path


def file_of(model: str) -> Path:
    """The file that ``model`` names; a light model's, where there is no other of its name."""
    path = Path(model)
    if not path.exists():
        from onedispatch.dispatch.tools import zoo

        return zoo.light_models().get(model, path)
    return path


def random_feed(inputs: list[NodeArg], shapes: Shapes, seed: int) -> dict[str, Array]:
    """Seeded values for every input: normal floats, small integers; open dimensions are 1."""
    rng = np.random.default_rng(integer("--seed", seed, 0, (1 << 63) - 1))
    feed: dict[str, Array] = {}
    for info in inputs:
        dtype = dtype_of(info.type)
        if dtype is None or dtype.hasobject:
            raise InputError(
                f"input {info.name!r}", info.type, "numbers, with --random", "use --input name=file.npy"
            )
        shape = shapes.get(info.name) or tuple(d if isinstance(d, int) else 1 for d in info.shape)
        limits.check_tensor(f"input {info.name!r}", dtype, shape, InputError)
        if dtype.kind in "iub":
            feed[info.name] = rng.integers(0, 2 if dtype.kind == "b" else 10, shape).astype(dtype)
        else:
            feed[info.name] = rng.standard_normal(shape).astype(dtype)
    return feed


# -- shapes that a command leaves open -------------------------------------------------------------


def shapes_of(compiled: CompiledModel, named: Shapes) -> Shapes:
    """Returns ``named``, and for the other inputs the shapes of the latest executable that agrees with it."""
    for executable in reversed(list(compiled.executables.values())):
        known = {value.name: value.concrete_shape for value in executable.inputs if value.is_concrete}
        if known.items() >= named.items():
            return known
    return named


@contextmanager
def taken_as_one(compiled: CompiledModel, shapes: Shapes) -> Iterator[None]:
    """Names sizes that fit, where the model refuses the size 1 of dimensions that ``shapes`` leaves open."""
    open_inputs = [v for v in compiled.inputs if v.name not in shapes and not v.is_concrete and v.dtype]
    try:
        yield
    except ModelError as error:
        if not open_inputs or isinstance(error, InputError):
            raise
        fits = _fitting(compiled, open_inputs, shapes)
        sizes = {one.name: ",".join(map(str, fits[one.name])) for one in open_inputs if fits}
        named = " ".join(f"--shape {name}={text}" for name, text in sizes.items())
        inputs = ", ".join(map(str, open_inputs))
        raise InputError(
            "open dimensions",
            f"none, so that 1 is taken for those of {inputs}; that does not fit: {error.statement()}",
            f"sizes that fit the model, such as {named}" if named else "sizes that fit the model",
            "name the sizes: --shape input=sizes",
        ) from error


def _fitting(compiled: CompiledModel, open_inputs: list[Value], shapes: Shapes) -> Shapes:
    """Returns sizes that no node refuses, or {} after a few tries. A first dimension may be a batch."""
    from onedispatch.dispatch.compiler.fold import specialise
    from onedispatch.dispatch.frontend.validity import check_nodes

    graph = compiled.source
    if graph is None or compiled.deciding:
        return {}
    known = {v.name: v.concrete_shape for v in compiled.inputs if v.is_concrete} | shapes
    for size, batch in chain.from_iterable(((size, 1), (size, size)) for size in _sizes(graph.constants)):
        tried = known | {one.name: _filled(one, size, batch) for one in open_inputs}
        with suppress(OneDispatchError):
            special = specialise(graph, tried, {})
            check_nodes(special, special.nodes)
            return tried
    return {}


def _filled(value: Value, size: int, batch: int) -> tuple[int, ...]:
    shape = value.shape or ()
    made = (batch, *(size for _ in shape[1:])) if shape[1:] else (size,)
    return tuple(d if isinstance(d, int) else new for d, new in zip(shape, made, strict=False))


def _sizes(constants: Mapping[str, Array]) -> list[int]:
    """Usual ones, and those that the model's constants have: what is joined with one has its size."""
    own = sorted({size for array in constants.values() for size in array.shape if size > 1})
    return [*dict.fromkeys((*_TRIED, *own[:_MOST_CONSTANT_SIZES]))]
